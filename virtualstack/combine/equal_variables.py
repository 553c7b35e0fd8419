"""Checks that variables which are not joined are the same in all files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from virtualstack.combine.absent import Mask
from virtualstack.combine.conflicts import Rules, variables_of_one_dtype
from virtualstack.combine.part import Part
from virtualstack.dataset import all_virtual, virtual_array
from virtualstack.errors import CombineError, Remedy
from virtualstack.manifests import other_meaning, same_value
from virtualstack.reading import read_array
from virtualstack.storage import Storage

KEEP_STORED = Remedy(
    "keep the values of the store, also for the new files, with", combine_options={"compat": "override"}
)
"""Remedy for a variable of a store that differs in an addition."""

_UNCHECKED = Remedy("if it is, take the first file's without a check with", combine_options={"compat": "override"})

_DECODE_BOTH = Remedy("decode both with", unpack="differing")

_BATCH_BYTES = 1 << 26  # bytes of values that are compared at a time
_MAX_UNASKED_BYTES = 1 << 30  # bytes of values of a variable that are read without a request by the user


@dataclass(frozen=True, slots=True)
class Remedies:
    """Remedies for a variable that differs: the one that keeps all values comes first."""

    join: Remedy | None = None
    others: Sequence[Remedy] = ()

    def for_variable(self, name: str, *, only_values: bool) -> list[Remedy]:
        """Return the remedies for one variable."""
        usual = (Remedy("leave it out with", drop_variables=[name]),)
        return [*([self.join] if self.join and only_values else []), *(self.others or usual)]


def are_equal(name: str, parts: Sequence[Part], storage: Storage, rules: Rules, /) -> bool:
    """Return whether a variable has the same values in all parts."""
    try:
        the_same(name, parts, storage, replace(rules, compat="equals"), why="is compared")
    except CombineError as error:
        if error.property != "values":
            raise
        return False
    return True


def the_same(
    name: str, parts: Sequence[Part], storage: Storage, rules: Rules, /, *, why: str, remedies: Remedies | None = None
) -> xr.Variable:
    """Return a variable that must be the same in all parts, after checking that it is.

    Virtual variables are compared by their references. If these do not decide it, values are read and compared; the
    values of the first part are read once. Elements that a part lacks, since it lacked their labels, are taken from
    another part.
    """
    remedies = remedies or Remedies()
    masks = [part.absent_in(name) for part in parts] if len(parts) > 1 else [None]
    there = [(part, mask) for part, mask in zip(parts, masks, strict=True) if mask is None or not mask.all()]
    if there:
        parts, masks = [part for part, _ in there], [mask for _, mask in there]
    alike = all_virtual(name, [part.variables[name] for part in parts])
    parts = [part if x is part.variables[name] else _with(part, name, x) for part, x in zip(parts, alike, strict=True)]
    first = parts[0].variables[name]
    if rules.compat == "override" or len(parts) == 1:
        return first
    if rules.compat == "identical":
        for part in parts[1:]:
            left, right = first.attrs, part.variables[name].attrs
            if left.keys() != right.keys() or not all(same_value(left[key], right[key]) for key in left):
                odd = _Difference(f"attributes {left} and {right}", left, right)
                raise _differs(name, why, parts[0], part, odd, remedies.for_variable(name, only_values=False))
    if rules.compat == "broadcast_equals":
        sizes = {dim: n for part in reversed(parts) for dim, n in part.variables[name].sizes.items()}
        parts = [_with(part, name, part.variables[name].set_dims(sizes)) for part in parts]  # type: ignore[no-untyped-call]
        first = parts[0].variables[name]
    if any(mask is not None for mask in masks):
        return _united(name, parts, masks, storage, rules, why, remedies)
    others = [part for part in parts[1:] if part.variables[name] is not first]
    unsettled = []
    for other in others:
        found = _structural_difference(first, other.variables[name])
        if found is not None:
            raise _differs(name, why, parts[0], other, found, remedies.for_variable(name, only_values=False))
        if not _is_provably_equal(first, other.variables[name]):
            unsettled.append(other)
    if not unsettled:
        return first
    _check_size(name, first, parts, remedies)
    values = _values(first, storage)
    for batch in _batches(unsettled, values.nbytes):
        read = _values_of_all([part.variables[name] for part in batch], storage)
        for other, its in zip(batch, read, strict=True):
            found = _value_difference(values, np.asarray(its), rules.tolerance)
            if found is not None:
                if rules.compat == "no_conflicts":
                    nulls = [_is_null(part.variables[name]) for part in parts]
                    if any(mask.any() for mask in nulls):
                        return _united(name, parts, nulls, storage, rules, why, remedies)
                raise _differs(name, why, parts[0], other, found, remedies.for_variable(name, only_values=True))
    return first


def _with(part: Part, name: str, variable: xr.Variable) -> Part:
    return replace(part, variables={**part.variables, name: variable})


def _is_null(variable: xr.Variable) -> Mask:
    return np.asarray(xr.DataArray(variable).isnull().values)


def _check_size(name: str, variable: xr.Variable, parts: Sequence[Part], remedies: Remedies) -> None:
    """Refuse to read a variable that does not fit into memory."""
    if variable.nbytes > _MAX_UNASKED_BYTES:
        raise CombineError(
            f"variable '{name}' must be the same in all files, and checking this would read "
            f"{variable.nbytes / 1e9:.3g} GB from each of {len(parts):,} files",
            *(() if remedies.others else (_UNCHECKED,)),
            *remedies.for_variable(name, only_values=True),
            variable=name,
            property="size",
            left_url=parts[0].source,
        )


def _united(
    name: str,
    parts: Sequence[Part],
    masks: Sequence[Mask | None],
    storage: Storage,
    rules: Rules,
    why: str,
    remedies: Remedies,
) -> xr.Variable:
    """Return a variable assembled from all parts; elements that several parts have must be the same."""
    united, *others = variables_of_one_dtype([part.variables[name] for part in parts])
    _check_size(name, united, parts, remedies)
    values = _values(united, storage)
    covered = _is_there(masks[0], united)
    for part, mask, variable in zip(parts[1:], masks[1:], others, strict=True):
        found = _structural_difference(united, variable)
        if found is not None:
            raise _differs(name, why, parts[0], part, found, remedies.for_variable(name, only_values=False))
        is_there = _is_there(mask, variable)
        its = _values(variable, storage)
        both, more = covered & is_there, is_there & ~covered
        found = _value_difference(values[both], its[both], rules.tolerance)
        if found is not None:
            raise _differs(name, why, parts[0], part, found, remedies.for_variable(name, only_values=True))
        if more.any():
            values = np.where(more, its, values)
            left, right = (cast(Any, virtual_array(x)) for x in (united, variable))
            data: Any = values if left is None else np.where(more, right, left)
            united = xr.Variable(united.dims, data, united.attrs, united.encoding)
            covered |= more
    return united


def _is_there(mask: Mask | None, variable: xr.Variable) -> NDArray[np.bool_]:
    """Return a mask of the elements that a part has, from a mask of the elements that it lacks."""
    return np.ones(variable.shape, np.bool_) if mask is None else np.broadcast_to(~mask, variable.shape).copy()


class _Difference(NamedTuple):
    """A difference of a variable between two files, and an example from each file."""

    how: str
    left: object
    right: object
    remedies: Sequence[Remedy] = ()


def _differs(
    name: str, why: str, first: Part, other: Part, found: _Difference, remedies: Sequence[Remedy]
) -> CombineError:
    return CombineError(
        f"variable '{name}' {why}. It differs between {first.called} and {other.called}: {found.how}",
        *found.remedies,
        *remedies,
        variable=name,
        property="values",
        left=found.left,
        right=found.right,
        left_url=first.source,
        right_url=other.source,
    )


def _structural_difference(left: xr.Variable, right: xr.Variable) -> _Difference | None:
    """Return a difference that is known without reading values, or ``None``."""
    a, b = virtual_array(left), virtual_array(right)
    kinds = {left.dtype.kind, right.dtype.kind}
    is_comparable = left.dtype == right.dtype or kinds <= set("biuf") or kinds in ({"M"}, {"m"}, {"S"}, {"U"})
    if left.dims != right.dims or left.shape != right.shape or not is_comparable:
        what = [f"{x.dims} {x.shape} '{x.dtype}'" for x in (left, right)]
        return _Difference(" and ".join(what), what[0], what[1])
    if a is None or b is None or (key := other_meaning(a, b)) is None:
        return None
    values = a.cf.get(key), b.cf.get(key)
    return _Difference(f"{key} is {values[0]!r} and {values[1]!r}", *values, (_DECODE_BOTH,))


def _is_provably_equal(left: xr.Variable, right: xr.Variable) -> bool:
    """Return whether virtual variables have the same references."""
    a, b = virtual_array(left), virtual_array(right)
    return a is not None and b is not None and a.equals(b)


def _batches(parts: Sequence[Part], nbytes: int) -> Iterator[Sequence[Part]]:
    """Yield batches of parts whose values fit into memory together; ``nbytes`` is the size of one part's values."""
    n = max(_BATCH_BYTES // max(nbytes, 1), 1)
    for begin in range(0, len(parts), n):
        yield parts[begin : begin + n]


def _values_of_all(variables: Sequence[xr.Variable], storage: Storage) -> Iterable[NDArray[Any]]:
    """Return the values of variables; virtual ones of one shape and packing are read together, in parallel."""
    arrays = [virtual_array(variable) for variable in variables]
    if any(array is None for array in arrays):
        return [_values(variable, storage) for variable in variables]
    try:
        stacked: Any = np.stack(cast(Any, arrays))
    except CombineError:  # chunk boundaries differ at too many places
        return (_values(variable, storage) for variable in variables)
    values: NDArray[Any] = read_array(stacked, (), storage)
    return values


def _values(variable: xr.Variable, storage: Storage) -> NDArray[Any]:
    array = virtual_array(variable)
    values: NDArray[Any] = variable.values if array is None else read_array(array, (), storage)
    return values


def _value_difference(a: NDArray[Any], b: NDArray[Any], tolerance: Any) -> _Difference | None:
    """Return the difference of values of one shape, or ``None`` if they are equal."""
    if a.dtype.names or a.dtype.kind == "V":
        return None if a.tobytes() == b.tobytes() else _Difference("stored records differ", None, None)
    same = np.asarray((a == b) | ((a != a) & (b != b)))
    if same.all():
        return None
    left, right = a[~same][0], b[~same][0]
    how = f"{int(np.count_nonzero(~same))} of {same.size} values differ"
    if a.dtype.kind in "iufc":
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        far = np.abs(a[~same].astype(wide) - b[~same].astype(wide)).max()
        if a.dtype.kind == "f" and isinstance(tolerance, (int, float)) and far <= tolerance:
            return None
        how += ", some of them missing in one" if np.isnan(far) else f", by up to {far:g}"
    return _Difference(f"{how}, first {left} and {right}" if same.size > 1 else f"{left} and {right}", left, right)
