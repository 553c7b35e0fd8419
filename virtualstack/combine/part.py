"""The parts of a dataset for combining: making thousands of `xr.Dataset` would cost more than joining them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.indexes import PandasIndex

from virtualstack.combine.absent import Absent
from virtualstack.dataset import INHERITED, get_refusals, make_index, to_group, virtual_array, with_refusals
from virtualstack.errors import CombineError, Remedy, naming_group
from virtualstack.manifests import ChunkManifest, ManifestGroup, Refusal, with_inherited


class Attribute(NamedTuple):
    """An attribute of a variable, or of the dataset if ``name`` is ``None``."""

    name: str | None
    key: str

    def note(self) -> Refusal:
        """Return a note that the attribute was left out."""
        where = "the dataset" if self.name is None else f"'{self.name}'"
        reason = f"attribute '{self.key}' of {where} differs between files and is left out"
        return Refusal(path=self.name or "/", reason=reason, kind="noted")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Part:
    """The content of a dataset: its variables by name, sizes, indexes, attributes and encoding.

    Parameters
    ----------
    variables
        Virtual and loaded variables, including those of ``indexes``.
    sizes
        Length of each dimension.
    coordinates
        Names of the variables that are coordinates.
    indexes
        Indexes of the loaded dimension coordinates, by the name of the dimension.
    attributes, encoding
        Attributes and encoding of the dataset.
    inherited
        Attributes of the groups above the group of the file; joined parts have none.
    refusals
        Notes and refusals for the report on the dataset.
    source
        URL of the file, for messages, or ``None``; of many files, the URL of the first.
    n_files
        Number of files that the part is made of; 0 for a tile without a file.
    left_out
        Attributes that differ between the files of the part.
    absent
        Elements that no file of the part has; ``None`` if no element is absent.
    """

    variables: Mapping[str, xr.Variable]
    sizes: Mapping[str, int]
    coordinates: frozenset[str] = frozenset()
    indexes: Mapping[str, PandasIndex] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    inherited: Mapping[str, Any] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    source: str | None = None
    n_files: int = 1
    left_out: frozenset[Attribute] = frozenset()
    absent: Absent | None = None

    @classmethod
    def from_dataset(cls, dataset: xr.Dataset, /) -> Part:
        """Return the part of a dataset."""
        indexes: dict[str, PandasIndex] = {}
        for name, index in dataset.xindexes.items():
            if type(index) is not PandasIndex or index.dim != name:
                raise CombineError(
                    f"coordinate '{name}' of '{dataset.encoding.get('source')}' has a {type(index).__name__}; "
                    f"files can only be aligned by plain dimension coordinates. Call drop_indexes('{name}') "
                    "before combining them",
                    variable=str(name),
                    property="index",
                )
            indexes[str(name)] = index
        return cls(
            variables={str(name): variable for name, variable in dataset.variables.items()},
            sizes={str(dim): int(n) for dim, n in dataset.sizes.items()},
            coordinates=frozenset(map(str, dataset.coords)),
            indexes=indexes,
            attributes=dataset.attrs,
            encoding={key: value for key, value in dataset.encoding.items() if key not in ("source", INHERITED)},
            inherited=dataset.encoding.get(INHERITED, {}),
            refusals=get_refusals(dataset),
            source=dataset.encoding.get("source"),
        )

    def dataset(self) -> xr.Dataset:
        """Return the dataset of the part."""
        coords = {name: x for name, x in self.variables.items() if name in self.coordinates}
        data = {name: x for name, x in self.variables.items() if name not in self.coordinates}
        dataset = xr.Dataset(data, coords=xr.Coordinates(coords, indexes=dict(self.indexes)), attrs=self.attributes)
        dataset.encoding = dict(self.encoding)
        if self.source is not None and self.n_files == 1:
            dataset.encoding["source"] = self.source
        notes = (x.note() for x in sorted(self.left_out, key=lambda x: (x.name or "", x.key)))
        return with_refusals(dataset, dict.fromkeys((*self.refusals, *notes)))

    @property
    def called(self) -> str:
        """The source of the part in quotes, for messages; of a joined dataset, one of its files."""
        if self.source is None:
            arrays = (virtual_array(x) for x in self.variables.values())
            url = next((url for array in arrays if array is not None and (url := array.a_url())), None)
            return "'a dataset'" if url is None else f"a dataset of '{url}'"
        name = f"'{self.source}'"
        return name if self.n_files < 2 else f"{name} (joined with {self.n_files - 1:,} more)"

    def absent_in(self, name: str, /) -> NDArray[np.bool_] | None:
        """Return a mask of the elements of a variable that no file has; it broadcasts to the variable.

        ``None`` means that no element is absent.
        """
        return None if self.absent is None else self.absent(name, list(map(str, self.variables[name].dims)))

    def isel(self, dim: str, at: slice | NDArray[np.intp], /) -> Part:
        """Return a part with some of its elements along a dimension, whose index follows."""
        if isinstance(at, np.ndarray) and len(at) and (np.diff(at) == 1).all():
            at = slice(int(at[0]), int(at[-1]) + 1)
        variables = {name: x.isel({dim: at}) if dim in x.dims else x for name, x in self.variables.items()}
        indexes = dict(self.indexes)
        if dim in indexes:
            indexes[dim] = PandasIndex(indexes[dim].index[at], dim, coord_dtype=indexes[dim].coord_dtype)
        n = len(range(self.sizes[dim])[at]) if isinstance(at, slice) else len(at)
        return replace(self, variables=variables, indexes=indexes, sizes={**self.sizes, dim: n})

    def without_dims(self, dims: Collection[str], /) -> Part:
        """Return a part without the variables that have some dimensions."""
        kept = {name: x for name, x in self.variables.items() if not {*map(str, x.dims)} & {*dims}}
        return replace(
            self,
            variables=kept,
            sizes={dim: n for dim, n in self.sizes.items() if dim not in dims},
            indexes={name: x for name, x in self.indexes.items() if name in kept},
            coordinates=self.coordinates & kept.keys(),
        )

    def with_variables(self, variables: Mapping[str, xr.Variable], /, *, coordinates: Iterable[str] = ()) -> Part:
        """Return a part with variables replaced or added.

        Its sizes and the indexes of loaded dimension coordinates follow. The variables that are not replaced must have
        the sizes that the new part will have.
        """
        sizes, indexes, merged = dict(self.sizes), dict(self.indexes), dict(self.variables)
        for name, variable in variables.items():
            sizes.update({str(dim): n for dim, n in variable.sizes.items()})
            merged[name] = variable
            if variable.dims == (name,) and virtual_array(variable) is None:
                indexes[name], merged[name] = make_index(name, variable)
        return replace(
            self,
            variables=merged,
            sizes=sizes,
            indexes=indexes,
            coordinates=self.coordinates | frozenset(coordinates),
        )


def over_index(name: str, index: PandasIndex, like: xr.Variable, /) -> xr.Variable:
    """Return the variable over an index, with another's attributes and encoding; an encoded dtype must be the same."""
    made: xr.Variable = index.create_variables({name: like})[name]
    made.encoding = {key: value for key, value in made.encoding.items() if key != "dtype" or made.dtype == like.dtype}
    return made


def each_node(
    stored: ManifestGroup,
    groups: Sequence[ManifestGroup],
    change: Callable[[str, ManifestGroup, Sequence[ManifestGroup]], ManifestGroup],
    /,
    *,
    inherits: bool = False,
) -> ManifestGroup:
    """Return a store's group in which each group is changed by the groups of other trees at the same path.

    With ``inherits``, the groups have the coordinates of their parents, which the result does not get.
    """
    nodes, others = dict(stored.walk()), [dict(group.walk()) for group in groups]
    for group, its in zip(groups, others, strict=True):
        for path in sorted(nodes.keys() ^ its.keys()):
            having, other = (stored, group) if path in nodes else (group, stored)
            raise CombineError(
                f"group '{path}' is in '{having.url}' and not in '{other.url}', but an addition must have the "
                "groups of the store",
                Remedy("leave the group out, or write a separate store"),
                variable=path,
                property="presence",
                left=path in nodes,
                right=path in its,
                left_url=stored.url,
                right_url=group.url,
            )
    whole, *others = map(with_inherited, (stored, *groups)) if inherits else (nodes, *others)
    made = {}
    for path, node in nodes.items():
        with naming_group(path):
            found = change(path, whole[path], [its[path] for its in others])
            made[path] = _without(found, whole[path].arrays.keys() - node.arrays.keys())
    return _tree(made, stored, "")


def _without(group: ManifestGroup, names: Collection[str]) -> ManifestGroup:
    if not names:
        return group
    arrays = {name: array for name, array in group.arrays.items() if name not in names}
    return replace(group, arrays=arrays, loaded=group.loaded & arrays.keys())


def _tree(made: dict[str, ManifestGroup], like: ManifestGroup, path: str) -> ManifestGroup:
    below = {name: _tree(made, child, f"{path}/{name}") for name, child in like.groups.items()}
    return replace(made[path], groups=below)


def group_from(part: Part, stored: ManifestGroup, unchanged: Collection[str], /) -> ManifestGroup:
    """Return the group of a part; variables that are unchanged in the store stay the same objects."""
    added = [x for x in part.refusals if x.path not in unchanged]
    known = {(x.path, x.kind): x for x in reversed((*stored.refusals, *added))}  # the store's refusals win
    made = to_group(replace(part, refusals=tuple(reversed(known.values()))).dataset())
    arrays = {name: stored.arrays[name] if name in unchanged else array for name, array in made.arrays.items()}
    return replace(made, arrays=arrays, loaded=made.loaded | (stored.loaded & arrays.keys()), not_text=stored.not_text)


def bundled_in(group: ManifestGroup, /) -> set[str]:
    """Return the names of the variables whose manifests are in memory."""
    return {name for name, array in group.arrays.items() if isinstance(array.manifest, ChunkManifest)}
