"""One of the datasets that are combined, taken apart: making thousands of `xr.Dataset` costs more than joining them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.indexes import PandasIndex

from virtualstack.combine.absent import Absent
from virtualstack.dataset import index_of, refusals_of, virtual_array, with_refusals
from virtualstack.errors import CombineError
from virtualstack.manifests import Refusal

__all__ = ["Attribute", "Part", "over_index"]


class Attribute(NamedTuple):
    """An attribute of a variable, or of the dataset where ``name`` is ``None``."""

    name: str | None
    key: str

    def note(self) -> Refusal:
        """Say that it was left out."""
        where = "the dataset" if self.name is None else f"'{self.name}'"
        reason = f"attribute '{self.key}' of {where} differs between files and is left out"
        return Refusal(path=self.name or "/", reason=reason, kind="noted")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Part:
    """Variables of a dataset by name, and what else it is made of.

    Parameters
    ----------
    variables
        Virtual and loaded ones, those of ``indexes`` too.
    sizes
        Length of each dimension.
    coordinates
        Names of the variables that are coordinates.
    indexes
        Of the loaded dimension coordinates, by the name of the dimension.
    attributes, encoding
        Of the dataset.
    refusals
        What the report on it says beside its variables.
    source
        Where it is from, for messages; or ``None``. Of many files, the first.
    n_files
        That it is made of; none for a tile for which there is no file.
    left_out
        Attributes in which the files that it is made of differ.
    absent
        Which elements none of its files has; ``None`` where there are all.
    """

    variables: Mapping[str, xr.Variable]
    sizes: Mapping[str, int]
    coordinates: frozenset[str] = frozenset()
    indexes: Mapping[str, PandasIndex] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    encoding: Mapping[str, Any] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    source: str | None = None
    n_files: int = 1
    left_out: frozenset[Attribute] = frozenset()
    absent: Absent | None = None

    @classmethod
    def of(cls, dataset: xr.Dataset, /) -> Part:
        """Take a dataset apart.

        Raises
        ------
        CombineError
            It has an index that is no plain one of a dimension coordinate.
        """
        indexes: dict[str, PandasIndex] = {}
        for name, index in dataset.xindexes.items():
            if type(index) is not PandasIndex or index.dim != name:
                raise CombineError(
                    f"coordinate '{name}' of '{dataset.encoding.get('source')}' has a {type(index).__name__}; files "
                    f"are aligned by plain dimension coordinates alone: drop_indexes('{name}') before combining them",
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
            encoding={key: value for key, value in dataset.encoding.items() if key != "source"},
            refusals=refusals_of(dataset),
            source=dataset.encoding.get("source"),
        )

    def dataset(self) -> xr.Dataset:
        """Put the dataset together."""
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
        """Where it is from, in quotes."""
        name = f"'{self.source or 'a dataset'}'"
        return name if self.n_files < 2 else f"{name} (joined with {self.n_files - 1:,} more)"

    def absent_in(self, name: str, /) -> NDArray[np.bool_] | None:
        """Give which elements of a variable no file has, as what broadcasts to it; ``None`` where there are all."""
        return None if self.absent is None else self.absent.mask(name, list(map(str, self.variables[name].dims)))

    def with_variables(self, variables: Mapping[str, xr.Variable], /, *, coordinates: Iterable[str] = ()) -> Part:
        """Replace or add variables; sizes are those that they have, and indexes of loaded dimension coordinates follow.

        Variables that are not named must have the sizes that the part will have.
        """
        sizes, indexes, merged = dict(self.sizes), dict(self.indexes), dict(self.variables)
        for name, variable in variables.items():
            sizes.update({str(dim): n for dim, n in variable.sizes.items()})
            merged[name] = variable
            if variable.dims == (name,) and virtual_array(variable) is None:
                indexes[name], merged[name] = index_of(name, variable)
        return replace(
            self,
            variables=merged,
            sizes=sizes,
            indexes=indexes,
            coordinates=self.coordinates | frozenset(coordinates),
        )


def over_index(name: str, index: PandasIndex, like: xr.Variable, /) -> xr.Variable:
    """Make the variable over an index, with attributes and encoding of another one; its dtype only where it is kept."""
    made: xr.Variable = index.create_variables({name: like})[name]
    made.encoding = {key: value for key, value in made.encoding.items() if key != "dtype" or made.dtype == like.dtype}
    return made
