"""Joining of files along one dimension, and merging of files with different variables.

Everything else must be equal, and is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.indexes import PandasIndex

from virtualstack.codecs.cf_times import datetime_units
from virtualstack.combine.absent import absent_joined, absent_variables, missing_variable
from virtualstack.combine.align import align
from virtualstack.combine.conflicts import Rules, joined, merge_attributes, with_attributes
from virtualstack.combine.equal_variables import KEEP_STORED, Remedies, are_equal, the_same
from virtualstack.combine.part import Part, over_index
from virtualstack.dataset import all_virtual, expand_dims, make_index, virtual_array
from virtualstack.errors import CombineError, Remedy
from virtualstack.planning.labels import check_kinds, is_dates
from virtualstack.printable import counted
from virtualstack.storage import Storage


def concat_parts(
    parts: Sequence[Part],
    dim: str,
    rules: Rules,
    storage: Storage,
    /,
    *,
    followers: Collection[str] = (),
    is_append: bool = False,
) -> Part:
    """Join parts along a dimension that either all of them have or none.

    Variables with the dimension are joined. If no file has the dimension, all data variables are joined, and so is the
    coordinate of the same name. So are ``followers``, coordinates such as scalars, if they differ. The other variables
    must be the same in all parts, and the first part's are used.
    """
    is_new = _is_new(parts, dim)
    followers = followers if rules.scalars_follow else ()
    joined_names = _joined(parts, dim, rules, storage, followers, is_new=is_new)
    parts = _of_all_variables(parts, dim, joined_names, rules)

    def join(name: str) -> tuple[PandasIndex | None, xr.Variable] | None:
        if name not in joined_names:
            return None
        if not is_new and any(name in part.indexes for part in parts):
            return _join_labels(name, parts)
        members = [part.variables[name] for part in parts if name in part.variables]
        variable = _join(name, _of_common_dims(members, parts) if name in followers else members, parts, dim)
        return make_index(name, variable) if name == dim and virtual_array(variable) is None else (None, variable)

    why = f"does not have the dimension '{dim}' that files are joined along"

    def remedies(name: str) -> Remedies:
        return joining_remedies(name, parts, dim, rules, is_append)

    return _assembled(parts, dim, join, rules, storage, why, remedies)


def _assembled(
    parts: Sequence[Part],
    dim: str | None,
    join: Callable[[str], tuple[PandasIndex | None, xr.Variable] | None],
    rules: Rules,
    storage: Storage,
    why: str,
    remedies: Callable[[str], Remedies],
) -> Part:
    """Return one part with all variables, and the attributes and notes that hold for all parts.

    ``join`` returns the joined variable of a name, and its index if it has one, or ``None``. Variables that it does not
    join must be the same in all parts; the message says ``why`` they are not joined, with ``remedies``.
    """
    variables: dict[str, xr.Variable] = {}
    indexes: dict[str, PandasIndex] = {}
    attributes, left_out = merge_attributes([part.attributes for part in parts], rules, name=None, sources=parts)
    for name in dict.fromkeys(name for part in parts for name in part.variables):
        having = [part for part in parts if name in part.variables]
        joined = join(name)
        if joined is not None:
            index, variable = joined
        elif all(name in part.indexes for part in having):  # labels are aligned already
            index, variable = having[0].indexes[name], having[0].variables[name]
        else:
            index = having[0].indexes.get(name)
            variable = the_same(name, having, storage, rules, why=why, remedies=remedies(name))
        if index is not None:
            indexes[name] = index
        own, found = merge_attributes([part.variables[name].attrs for part in having], rules, name=name, sources=having)
        variables[name] = with_attributes(variable, own)
        left_out |= found
    return Part(
        variables=variables,
        sizes={str(dim): n for variable in variables.values() for dim, n in variable.sizes.items()},
        coordinates=parts[0].coordinates.union(*(part.coordinates for part in parts)) & variables.keys(),
        indexes=indexes,
        attributes=attributes,
        encoding=parts[0].encoding,
        refusals=tuple(dict.fromkeys(x for part in parts for x in part.refusals)),
        source=next((part.source for part in parts if part.n_files), None),
        n_files=sum(part.n_files for part in parts),
        left_out=left_out,
        absent=absent_joined([part.absent for part in parts], dim, [part.sizes.get(dim or "", 1) for part in parts]),
    )


def _is_new(parts: Sequence[Part], dim: str) -> bool:
    having = [dim in part.sizes for part in parts]
    if all(having) or not any(having):
        return not any(having)
    odd = parts[having.index(False)]
    raise CombineError(
        f"{odd.called} has no dimension '{dim}' to join along; it has {sorted(odd.sizes)}; other files have it",
        variable=None,
        property="dimension",
        left=dim,
        right=None,
        left_url=parts[having.index(True)].source,
        right_url=odd.source,
    )


def _joined(
    parts: Sequence[Part], dim: str, rules: Rules, storage: Storage, followers: Collection[str], *, is_new: bool
) -> set[str]:
    """Return the names of the variables that are joined; the others must be the same."""
    coordinates = parts[0].coordinates.union(*(part.coordinates for part in parts))
    indexed = {name for part in parts for name in part.indexes}
    every = rules.data_vars == "all" or (rules.data_vars is None and is_new)
    named = rules.named

    def is_wanted(name: str, having: Sequence[Part]) -> bool:
        option = rules.coords if name in coordinates else rules.data_vars
        return (
            any(dim in part.variables[name].dims for part in having)
            or (rules.coords == "all" if name in coordinates else every)
            or name in named
            or ((option == "different" or name in followers) and not are_equal(name, having, storage, rules))
        )

    names = dict.fromkeys(name for part in parts for name in part.variables if name not in indexed)
    return {name for name in names if is_wanted(name, [part for part in parts if name in part.variables])} | {
        name for part in parts for name in part.variables if name == dim
    }


def may_follow(variable: xr.Variable, /) -> bool:
    """Return whether a coordinate gets a dimension along which it differs: a scalar, or dates as those of leads."""
    array = virtual_array(variable)
    if variable.ndim != 1:
        return not variable.ndim
    return is_dates(variable.to_index()) if array is None else datetime_units(array.cf.get("units"))


def joining_remedies(name: str, parts: Sequence[Part], dim: str, rules: Rules, is_append: bool) -> Remedies:
    """Return remedies for a variable that lacks the dimension: to join it too, beside those that are joined already."""
    option = "coords" if any(name in part.coordinates for part in parts) else "data_vars"
    known = rules.coords if option == "coords" else rules.data_vars
    names = [*(sorted(known) if isinstance(known, frozenset) else []), name]
    if is_append:
        again = f"build the store again from all files, joined along '{dim}' with"
        return Remedies(Remedy(again, "vs.open_virtual_mfdataset", combine_options={option: names}), (KEEP_STORED,))
    return Remedies(Remedy(f"join it along '{dim}' too with", combine_options={option: names}))


# -- variables that are not in all files ----------------------------------------------------------------------


def _of_all_variables(parts: Sequence[Part], dim: str, joined_names: Collection[str], rules: Rules) -> Sequence[Part]:
    """Return parts that all have the same variables; a joined variable that a file lacks is ABSENT there."""
    names = dict.fromkeys(name for part in parts for name in part.variables)
    if all(len(part.variables) == len(names) for part in parts):
        return parts
    if rules.join != "outer":
        _check_dims(parts, names, dim)  # other dimensions explain better why coordinates are absent
        raise _absent(parts, names)
    completed = []
    templates = {name: next(part for part in parts if name in part.variables) for name in names}
    sizes = {d: n for part in reversed(parts) for d, n in part.sizes.items()}
    for part in parts:
        own = {}
        for name in names:
            variable = part.variables.get(name, templates[name].variables[name])
            if name in joined_names:
                variable = variable if dim in variable.dims else _expanded(variable, dim, part)
                if name not in part.variables:
                    variable = missing_variable(name, variable, {**sizes, dim: 1, **part.sizes}, rules.fill(name))
            own[name] = variable
        indexes = {
            name: templates[name].indexes[name] for name in names if name in templates[name].indexes and name != dim
        }
        absent = absent_variables(part.absent, names.keys() - part.variables.keys())
        completed.append(
            replace(
                part,
                variables=own,
                indexes={**indexes, **part.indexes},
                sizes={**sizes, **part.sizes},
                absent=absent,
            )
        )
    return completed


def _check_dims(parts: Sequence[Part], names: Iterable[str], dim: str) -> None:
    """Refuse variables with other dimensions than in the first file that has them."""
    for name in names:
        having = [part for part in parts if name in part.variables]
        dims = {*having[0].variables[name].dims, dim}
        for part in having[1:]:
            if {*part.variables[name].dims, dim} != dims:
                raise _other_dims(name, dim, having[0], having[0].variables[name], part, part.variables[name])


def _absent(parts: Sequence[Part], names: Iterable[str]) -> CombineError:
    counts = {name: sum(name not in part.variables for part in parts) for name in names}
    absent = {name: n for name, n in counts.items() if n}
    name = next(iter(absent))
    with_it = next(part for part in parts if name in part.variables)
    without = next(part for part in parts if name not in part.variables)
    left, right = (with_it, without) if name in parts[0].variables else (without, with_it)
    listed = ", ".join(f"'{x}' is missing from {n:,}" for x, n in list(absent.items())[:5])
    listed += f", and {len(absent) - 5} more" if len(absent) > 5 else ""
    return CombineError(
        f"of {len(parts):,} files, {listed}; {with_it.called} has '{name}' and {without.called} does not",
        Remedy("fill it with missing values with", join="outer"),
        Remedy("leave it out with", drop_variables=[name]),
        variable=name,
        property="presence",
        left=left is with_it,
        right=right is with_it,
        left_url=left.source,
        right_url=right.source,
    )


# -- joining one variable -------------------------------------------------------------------------------------


def _join_labels(name: str, parts: Sequence[Part]) -> tuple[PandasIndex, xr.Variable]:
    """Return the joined labels of the dimension."""
    if not all(name in part.indexes for part in parts):
        loaded, odd = (next(part for part in parts if (name in part.indexes) is has) for has in (True, False))
        raise CombineError(
            f"coordinate '{name}' is loaded in {loaded.called} and virtual in {odd.called}. Open all files "
            "with the same loadable_variables",
            variable=name,
            property="virtual",
            left="loaded",
            right="virtual",
            left_url=loaded.source,
            right_url=odd.source,
        )
    check_kinds(name, parts, [part.indexes[name].index for part in parts])
    index = PandasIndex.concat([part.indexes[name] for part in parts], name)
    return index, over_index(name, index, parts[0].variables[name])


def _join(name: str, members: Sequence[xr.Variable], parts: Sequence[Part], dim: str) -> xr.Variable:
    members = _of_one_shape(name, all_virtual(name, members), parts, dim)
    first = members[0]
    arrays = [virtual_array(x) for x in members]
    if all(x is None for x in arrays):
        check_calendars(name, parts, [x.values for x in members])
        plain = [x.to_base_variable() for x in members]
        loaded: xr.Variable = xr.Variable.concat(plain, dim)  # type: ignore[no-untyped-call]
        loaded.encoding = dict(first.encoding)
        return loaded
    data: Any = joined(cast(Any, arrays), first.dims.index(dim))
    return xr.Variable(first.dims, data, first.attrs, first.encoding, fastpath=True)


def check_calendars(name: str, parts: Sequence[Part], values: Sequence[NDArray[Any]], /) -> None:
    """Refuse loaded dates of several calendars: joined, they would be objects of several types."""
    if all(x.dtype.kind != "O" for x in values):
        return
    first: tuple[str, Part] | None = None
    for part, x in zip(parts, values, strict=True):
        some = next((x for x in x.flat if not pd.isnull(x)), None) if x.dtype.kind == "O" else None
        calendar = "standard" if x.dtype.kind == "M" else getattr(some, "calendar", None)
        if calendar is None:
            continue
        kind = "datetime64" if x.dtype.kind == "M" else f"cftime, calendar '{calendar}'"
        first = first or (kind, part)
        if kind != first[0]:
            raise CombineError(
                f"variable '{name}' has dates of several calendars: {first[0]} in {first[1].called}, {kind} "
                f"in {part.called}",
                Remedy("leave it out with", drop_variables=[name]),
                Remedy("convert the dates of one calendar with", preprocess=...),
                Remedy("join the files of each calendar separately"),
                variable=name,
                property="calendar",
                left=first[0],
                right=kind,
                left_url=first[1].source,
                right_url=part.source,
            )


def _of_one_shape(name: str, members: Sequence[xr.Variable], parts: Sequence[Part], dim: str) -> Sequence[xr.Variable]:
    """Return variables with the dimension, in the dimension order of the first; their other lengths must be equal."""
    is_expanded = dim not in members[0].dims
    first = _expanded(members[0], dim, parts[0]) if is_expanded else members[0]
    axis = first.dims.index(dim)
    rest = first.shape[:axis] + first.shape[axis + 1 :]
    made = [first]
    for variable, part in zip(members[1:], parts[1:], strict=True):
        if is_expanded and dim not in variable.dims:
            variable = _expanded(variable, dim, part)
        if variable.dims != first.dims and set(variable.dims) == set(first.dims):
            variable = variable.transpose(*first.dims)
        if variable.dims != first.dims or variable.shape[:axis] + variable.shape[axis + 1 :] != rest:
            raise _other_dims(name, dim, parts[0], first, part, variable)
        made.append(variable)
    return made


def _of_common_dims(members: Sequence[xr.Variable], parts: Sequence[Part]) -> list[xr.Variable]:
    """Return variables that all have the dimensions along which any of them was joined before."""
    dims = dict.fromkeys(str(dim) for variable in members for dim in variable.dims)
    return [
        expand_dims(variable, {dim: part.sizes[dim] for dim in dims if dim not in variable.dims})
        for variable, part in zip(members, parts, strict=True)
    ]


def _other_dims(name: str, dim: str, a: Part, left: xr.Variable, b: Part, right: xr.Variable) -> CombineError:
    return CombineError(
        f"variable '{name}' has dimensions {dict(left.sizes)} in {a.called} and {dict(right.sizes)} in "
        f"{b.called}. Except for '{dim}', they must be equal",
        Remedy("leave the variable out with", drop_variables=[name]),
        variable=name,
        property="dimensions",
        left=dict(left.sizes),
        right=dict(right.sizes),
        left_url=a.source,
        right_url=b.source,
    )


def _expanded(variable: xr.Variable, dim: str, part: Part) -> xr.Variable:
    """Return a variable with the dimension in front, in the length that the file has."""
    return expand_dims(variable, {dim: part.sizes.get(dim, 1)})


def merge_parts(parts: Sequence[Part], rules: Rules, storage: Storage, /) -> Part:
    """Return one part with the variables of all parts."""
    if len(parts) == 1:
        return parts[0]
    parts = align(parts, rules)
    _check_lengths(parts)
    names = {name for part in parts for name in part.variables}
    parts = [replace(part, absent=absent_variables(part.absent, names - part.variables.keys())) for part in parts]
    why = "is in several files that are joined side by side"
    return _assembled(parts, None, lambda name: None, rules, storage, why, lambda name: Remedies())


def _check_lengths(parts: Sequence[Part]) -> None:
    lengths: dict[str, tuple[int, Part]] = {}
    for part in parts:
        for dim, n in part.sizes.items():
            known, first = lengths.setdefault(dim, (n, part))
            if n != known:
                raise CombineError(
                    f"dimension '{dim}' has {counted(known, 'element')} in {first.called} and {n} in {part.called}, "
                    "but no labels to align them by",
                    Remedy("give the files labels with", preprocess=...),
                    Remedy("leave one out"),
                    variable=dim,
                    property="dimensions",
                    left=known,
                    right=n,
                    left_url=first.source,
                    right_url=part.source,
                )
