"""Conversion of an addition to the form of a store: dtypes, labels and chunk boundaries of the store do not change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import xarray as xr

from virtualstack.combine.absent import missing_variable
from virtualstack.combine.align import LABELS_REMEDY, align
from virtualstack.combine.concat import check_calendars, may_follow
from virtualstack.combine.conflicts import Rules, in_some, is_packed, merge_attributes, numbers_like, unpacked_like
from virtualstack.combine.part import Part
from virtualstack.dataset import loaded_dataset, loaded_variable, to_group, virtual_array
from virtualstack.dataset.variables import virtual_variable
from virtualstack.errors import ChunkAlignmentError, Code, CombineError, Remedy, check_type, check_word
from virtualstack.manifests import ABSENT, ChunkAxis, ManifestArray, ManifestGroup, other_meaning, unpack
from virtualstack.manifests.agreement import value_text
from virtualstack.manifests.indexing import refine
from virtualstack.options import JoinToStore
from virtualstack.storage import Storage

TEXT = "OSTU"


def labels_of_a_variable(dim: str, /) -> Remedy:
    """Return the remedy for a file with a dimension that has no labels, but the store has."""
    return Remedy("take them from a variable with {}", "vs.open_virtual_mfdataset", labels={dim: Code("...", "NAME")})


WITH_OUTER = Remedy("{} fills missing elements with missing values", join="outer")
"""Remedy for a variable that only a store or an addition has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """Rules for differences between a new part and a store.

    Parameters
    ----------
    join
        Treatment of labels along the other dimensions. ``"exact"``: they must be the labels of the store. ``"left"``:
        labels that the store lacks are left out, and elements at labels that the part lacks are ABSENT. ``"outer"``:
        such elements are ABSENT, too, but a new label is an error. Only with ``"outer"`` may one side lack a variable.
    rules
        Rules with ``compat``, ``combine_attrs`` and ``fill_value``.
    storage
        Storage by which values are read that must be compared.
    """

    join: JoinToStore
    rules: Rules
    storage: Storage

    @classmethod
    def from_options(cls, *, join: str, options: Mapping[str, Any] | None, storage: Storage) -> Fitting:
        """Check the options of a user.

        Raises
        ------
        ValueError
            An option or its value is not known.
        TypeError
            ``options`` is not a mapping.
        """
        check_type("combine_options", options, Mapping | None, "a mapping of options")
        check_word("join", join, JoinToStore)
        unknown = sorted((options or {}).keys() - {"compat", "combine_attrs", "fill_value"})
        if unknown:
            raise ValueError(
                f"combine_options has {unknown}; the known ones are ['combine_attrs', 'compat', 'fill_value'] here"
            )
        left_out = Remedy(
            "{} leaves out labels that the store does not have, and fills the others with missing values", join="left"
        )
        rules = replace(Rules.from_options(options=options), remedies=(LABELS_REMEDY, left_out))
        return cls(join=join, rules=rules, storage=storage)  # type: ignore[arg-type]

    def with_remedies(self, *remedies: Remedy) -> Fitting:
        """Return the same rules with other remedies for labels that differ."""
        return replace(self, rules=replace(self.rules, remedies=remedies))

    @property
    def keeping_attributes(self) -> Rules:
        """The rules with which the attributes of the store are kept, unless the user chose otherwise."""
        return replace(self.rules, combine_attrs=self.rules.combine_attrs or "override")


def load_part(group: ManifestGroup, storage: Storage, loaded: Collection[str], /) -> Part:
    """Return the part of a group, with some of its variables loaded; see `loaded_dataset`."""
    return Part.from_dataset(loaded_dataset(group, storage, loaded))


def fitted(part: Part, stored: Part, fitting: Fitting, /, *, but: Collection[str]) -> Part:
    """Return a part in the form of a store: with its virtual variables, dimension order and labels.

    Parameters
    ----------
    part
        Part to add.
    stored
        Part of the store, or of the box in the store that the part is written to.
    fitting
        Rules for differences.
    but
        Dimensions along which labels are ignored.

    Raises
    ------
    CombineError
        Dimensions, dtypes, labels or attributes differ; the message has both.
    """
    both = [name for name in part.variables if name in stored.variables]
    variables = {name: _fitted_variable(name, part, stored, fitting.storage) for name in both}
    indexes = {
        name: index
        for name, index in part.indexes.items()
        if name not in variables or virtual_array(variables[name]) is None
    }
    loaded = {name: x for name, x in variables.items() if name not in part.indexes}
    part = replace(part, variables={**part.variables, **variables}, indexes=indexes)
    part = part.with_variables({name: x for name, x in loaded.items() if virtual_array(x) is None})
    for name in both:
        _check_alike(name, stored, part)
        if fitting.rules.combine_attrs is None:
            attributes = [x.variables[name].attrs for x in (stored, part)]
            merge_attributes(attributes, fitting.rules, name=name, sources=(stored, part))
    if fitting.join == "exact":
        return align([stored, part], fitting.rules, but=but)[1]
    return align([stored, part], replace(fitting.rules, join="left"), but=but, code=ABSENT)[1]


def cut_like_store(part: Part, stored: Part, /) -> Part:
    """Return a part whose chunks are cut at the chunk boundaries of a store.

    Raises
    ------
    ChunkAlignmentError
        A chunk of the part ends inside a chunk of the store.
    """
    cut = {}
    for name in part.variables.keys() & stored.variables.keys():
        mine, its = virtual_array(part.variables[name]), virtual_array(stored.variables[name])
        if mine is not None and its is not None:
            for axis, (dim, like) in enumerate(zip(stored.variables[name].dims, its.grid.axes, strict=True)):
                mine = cut_like(name, str(dim), mine, axis, like)
            cut[name] = part.variables[name].copy(deep=False)
            cut[name].data = mine
    return replace(part, variables={**part.variables, **cut})


def _fitted_variable(name: str, part: Part, stored: Part, storage: Storage) -> xr.Variable:
    """Return a variable in the dimension order of the store, loaded or virtual as in the store.

    Loaded values become a virtual variable by the encoding of the store.
    """
    variable, like = part.variables[name], stored.variables[name]
    if variable.dims != like.dims and set(variable.dims) == set(like.dims):
        variable = variable.transpose(*like.dims)
    mine, its = virtual_array(variable), virtual_array(like)
    if mine is not None:
        if its is None:
            return loaded_variable(name, mine, storage, url=part.source)
        variable = unpacked_like(variable, mine, its)
        mine = cast(ManifestArray, virtual_array(variable))
        return xr.Variable(variable.dims, numbers_like(mine, its), variable.attrs, variable.encoding, fastpath=True)
    if its is None:
        return variable
    encoding = {**its.cf, **({} if its.dtype.kind in TEXT else {"dtype": its.dtype})}
    encoded = xr.Variable(variable.dims, variable.values, variable.attrs, encoding)
    return virtual_variable(to_group(xr.Dataset({name: encoded})).arrays[name])


def _check_alike(name: str, stored: Part, part: Part) -> None:
    """Check that numbers have the same dtype and meaning, and the same dimensions."""
    left, right = stored.variables[name], part.variables[name]
    kinds = {left.dtype.kind, right.dtype.kind}
    is_same = left.dtype == right.dtype or kinds in ({"m"}, {"M"}) or kinds <= set(TEXT)
    if virtual_array(left) is None and virtual_array(right) is None:
        check_calendars(name, [stored, part], [left.values, right.values])
    if not is_same or (virtual_array(left) is not None and left.dtype != right.dtype):
        why, remedy = _dtype_remedy(left, right)
        raise _clash(
            name, "dtype", left.dtype, right.dtype, stored, part, f"the store's dtype cannot change{why}", remedy
        )
    a, b = virtual_array(left), virtual_array(right)
    key = None if a is None or b is None else other_meaning(a, b)
    if a is not None and b is not None and key is not None:
        remedy = Remedy(
            "write the store again from files opened with {}, which decodes each file by its own attributes",
            "vs.open_virtual_mfdataset",
            unpack=True,
        )
        why = "they change what the stored numbers mean"
        raise _clash(name, key, a.cf.get(key), b.cf.get(key), stored, part, why, remedy)
    if set(left.dims) != set(right.dims):
        remedies = [Remedy("use", "expand_dims or squeeze")]
        if set(left.dims) < set(right.dims):  # without it, the value of the store would count for all files
            option = "coords" if name in stored.coordinates else "data_vars"
            again = "build the store again from all files with"
            remedies.append(Remedy(again, "vs.open_virtual_mfdataset", combine_options={option: [name]}))
        elif set(left.dims) - set(right.dims) <= part.variables.keys():  # left out, its values would be lost
            remedies.append(Remedy("place the file by all of its labels with", "Repository.update", join="outer"))
        else:
            remedies.append(Remedy("leave the variable out with", drop_variables=[name]))
        raise _clash(name, "dimensions", left.dims, right.dims, stored, part, "they must be equal", *remedies)


def _dtype_remedy(left: xr.Variable, right: xr.Variable) -> tuple[str, Remedy]:
    """Return why, and what to do about, a variable whose dtype is not that of the store."""
    a, b = virtual_array(left), virtual_array(right)
    if a is not None and is_packed(a) and (b is None or not is_packed(b)):
        return ", and the store has packed numbers", Remedy("open it with", unpack=False)
    if b is not None and is_packed(b):
        unpacked = unpack(b)
        values = unpacked.obstacle or f"its values are '{unpacked.array.dtype}'"
        again = Remedy("write the store again from all files, opened with", "vs.open_virtual_mfdataset", unpack=True)
        return f": it is packed, and {values}", again
    return "", Remedy("cast it with", f"astype('{left.dtype}')")


def joint_dtype(dtypes: Sequence[np.dtype[Any]], /) -> np.dtype[Any]:
    """Return the dtype that holds the values of loaded variables: longest text, finest unit of time, widest numbers.

    >>> joint_dtype([np.dtype("U1"), np.dtype("U12")])
    dtype('<U12')
    """
    kinds = {dtype.kind for dtype in dtypes}
    return np.result_type(*dtypes) if len(kinds) == 1 or kinds <= set("biufc") else np.dtype(object)


def _clash(
    name: str, key: str, a: object, b: object, stored: Part, part: Part, why: str, *remedies: Remedy
) -> CombineError:
    return CombineError(
        f"variable '{name}' has {key} = {value_text(a)} in {stored.called} and {value_text(b)} in {part.called}; {why}",
        *remedies,
        variable=name,
        property=key,
        left=a,
        right=b,
        left_url=stored.source,
        right_url=part.source,
    )


# -- chunk lines ----------------------------------------------------------------------------------------------


def cut_like(name: str, dim: str, array: ManifestArray, axis: int, like: ChunkAxis, /) -> ManifestArray:
    """Return an array whose chunks are also cut at the chunk boundaries of another array along an axis.

    Raises
    ------
    ChunkAlignmentError
        A chunk of the array ends inside a chunk of the other array.
    """
    own = array.grid.axes[axis]
    if own == like or own.length != like.length:
        return array
    lines = like.lines()
    odd = np.setdiff1d(own.lines(), lines)
    if odd.size:
        raise ChunkAlignmentError(
            f"chunks of variable '{name}' end at element {int(odd[0])} of '{dim}' in "
            f"'{array.a_url() or 'a dataset'}', but those of the store do not. Elements and lengths of chunks are "
            f"{own!r} and {like!r}",
            Remedy("rewrite the file with the chunks of the store"),
            Remedy(
                "join it with the dataset of the store by {} and write the result with mode='w', which divides all "
                "chunks again",
                "xarray.concat",
            ),
            axis=axis,
            chunk_length=like.chunk,
            variable=name,
        )
    return replace(array.with_chunks(refine(array.as_chunks(), axis, lines)), dimension_names=array.dimension_names)


# -- presence -------------------------------------------------------------------------------------------------


def check_dimension(stored: ManifestGroup, dim: str, /, *more: Remedy) -> None:
    """Raise `CombineError` unless an array of the store has a dimension; ``more`` are further remedies."""
    dims = {x for _, node in stored.walk() for array in node.arrays.values() for x in array.dimension_names or ()}
    if not isinstance(dim, str) or dim not in dims:
        is_scalar = isinstance(dim, str) and any(dim in node.arrays for _, node in stored.walk())
        again = Remedy("it is one value there; build the store again with", "vs.open_virtual_mfdataset", concat_dim=dim)
        raise CombineError(
            f"'{stored.url}' has no dimension {dim!r} to add along; it has {sorted(dims)}",
            *([again] if is_scalar else []),
            *more,
            property="dimension",
            left=sorted(dims),
            right=dim,
            left_url=stored.url,
        )


def check_presence(stored: Part, part: Part, names: Collection[str], /, *more: Remedy) -> None:
    """Refuse variables that only one of part and store has; ``names`` are their names.

    Parameters
    ----------
    stored, part
        Part of the store, and part to add.
    names
        Names of the variables.
    more
        Further remedies, in addition to those that always work.

    Raises
    ------
    CombineError
        ``names`` is not empty.
    """
    for name in names:
        is_new = name in part.variables
        having, other = (part, stored) if is_new else (stored, part)
        if is_new:
            usual = [Remedy("leave it out with", drop_variables=[name])]
        else:
            of_store = f"ds.assign({{'{name}': vs.open_virtual_dataset(...)['{name}']}})"
            usual = [Remedy("take the variable from the store with", of_store)]
        raise CombineError(
            f"{having.called} has variable '{name}' and {other.called} does not",
            *more,
            *usual,
            variable=name,
            property="presence",
            left=name in stored.variables,
            right=is_new,
            left_url=stored.source,
            right_url=part.source,
        )


def completed(part: Part, other: Part, dim: str, fitting: Fitting, /) -> Part:
    """Return a part with the variables that it lacks and another part has: ABSENT along a dimension, else the same."""
    sizes = {**other.sizes, **part.sizes}

    def may_enter(name: str, x: xr.Variable) -> bool:
        is_of_each_file = name in other.coordinates - other.indexes.keys() and may_follow(x)  # such as a reference time
        return not is_of_each_file and all(sizes[str(d)] == n for d, n in x.sizes.items())

    lacks = {name: x for name, x in other.variables.items() if name not in part.variables}
    absent = {name: x for name, x in lacks.items() if dim in x.dims or may_enter(name, x)}
    holes = {name: lacking(name, other, sizes, fitting) if dim in x.dims else x for name, x in absent.items()}
    return part.with_variables(holes, coordinates=other.coordinates & absent.keys())


def incomplete(parts: Sequence[Part], dim: str, fitting: Fitting, /) -> set[str]:
    """Return the names of the variables that will have missing elements: some part lacks them, or some of their labels.

    Those for which the user named a fill value are not among them.
    """

    def differs(name: str) -> bool:
        indexes = [part.indexes[name].index for part in parts if name in part.indexes]
        return any(not x.equals(indexes[0]) for x in indexes[1:])

    odd = {name for name in parts[0].indexes.keys() - {dim} if differs(name)}
    some = in_some(parts)
    variables = {name: x for part in parts for name, x in part.variables.items()}
    names = {name for name, x in variables.items() if (name in some and dim in x.dims) or not odd.isdisjoint(x.dims)}
    return {name for name in names if fitting.rules.fill(name) is None}


def lacking(name: str, like: Part, sizes: Mapping[str, int], fitting: Fitting, /) -> xr.Variable:
    """Return a variable for a part that lacks it: ABSENT or filled, in the dtype that the variable has in another part.

    Raises
    ------
    CombineError
        The variable has no missing value in this dtype.
    """
    variable, fill_value = like.variables[name], fitting.rules.fill(name)
    is_text = variable.dtype.kind in TEXT
    if not is_text or virtual_array(variable) is not None or isinstance(fill_value, str | bytes):
        made = missing_variable(name, variable, sizes, fill_value)
        if is_text or made.dtype.kind != "O":
            return made
    value = "''" if is_text else "0"
    raise CombineError(
        f"variable '{name}' has missing elements to fill, but dtype '{variable.dtype}' has no missing value",
        Remedy("set the value that they read as, for example", combine_options={"fill_value": {name: Code(value)}}),
        variable=name,
        property="fill_value",
        left=variable.dtype,
        left_url=like.source,
    )
