"""Labels of one dimension in many files: equal labels, their distances, and the labels that are common to all files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any, Literal, Protocol, cast

import cftime
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.codecs.cf_times import STANDARD_CALENDARS
from virtualstack.errors import Code, CombineError, Remedy

type Labels = pd.Index[Any]
type _Unit = Literal["ns", "us", "s"]


class Named(Protocol):
    """A file, or what was made of it, as messages name it."""

    @property
    def source(self) -> str | None:
        """URL, or ``None``."""
        ...

    @property
    def called(self) -> str:
        """The source in quotes, for messages."""
        ...


KINDS = {"i": "number", "u": "number", "f": "number", "m": "duration", "M": "date"}
"""Kind of labels that have a distance, by the kind of their dtype."""

_UNITS: tuple[_Unit, ...] = ("ns", "us", "s")
"""Units of dates, from the finest; the last unit can express all dates."""

_MAX_INTEGER_GAP = 1 << 64
"""A number larger than the distance of any two 64-bit integers."""


def first_within(seen: Sequence[Labels], tolerance: Any, /) -> NDArray[np.intp]:
    """Return, for the labels of each file, the first labels within a tolerance, compared position by position."""
    stand_for = np.arange(len(seen), dtype=np.intp)
    groups: dict[tuple[str, int], list[int]] = {}
    for number, x in enumerate(seen):
        if _is_measurable(x):
            groups.setdefault((kind_of(x), len(x)), []).append(number)
    for members in groups.values():
        values, unit = _measured([seen[n] for n in members])
        limit = _limit(values, unit, tolerance)
        if limit is not None:
            stand_for[members] = np.array(members)[_first_near(values, limit)]
    return stand_for


def distance(a: Labels, b: Labels, /) -> Any:
    """Return the largest distance of two sets of labels, or ``None`` if they cannot be compared one by one."""
    if len(a) != len(b) or not (_is_measurable(a) and _is_measurable(b)):
        return None
    if kind_of(a) != kind_of(b):
        return None
    (left, right), unit = _measured([a, b])
    far = _gaps(left, right).max()
    return far if unit is None else pd.Timedelta(np.timedelta64(min(int(far), np.iinfo(np.int64).max), unit))


def _first_near(values: NDArray[Any], limit: Any) -> NDArray[np.intp]:
    """Return, for each row of labels, the number of the first row within the limit.

    Only rows whose first labels are close are compared. Comparing the dates of thousands of files in pairs would be
    slow.
    """
    rounded = values[:, 0].astype(np.float64)
    order = np.argsort(rounded, kind="stable")
    firsts = rounded[order]
    found = np.full(len(values), -1, np.intp)
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        for number, own in enumerate(values):
            if found[number] < 0:
                found[number] = number
                reach = limit + 1e-15 * (abs(rounded[number]) + limit)  # more than what was lost by rounding
                low = np.searchsorted(firsts, rounded[number] - reach)
                high = np.searchsorted(firsts, rounded[number] + reach, side="right")
                near = order[low:high]
                near = near[found[near] < 0]
                found[near[(_gaps(values[near], own) <= limit).all(axis=1)]] = number
    return found


def _is_measurable(labels: Labels) -> bool:
    is_known = labels.dtype.kind in KINDS or isinstance(labels, xr.CFTimeIndex)
    return len(labels) > 0 and is_known and not labels.hasnans


def _measured(rows: Sequence[Labels]) -> tuple[NDArray[Any], _Unit | None]:
    """Return labels of one kind and length as rows of numbers, and the unit of dates; integers stay exact."""
    whole = in_a_row(rows)
    unit: _Unit | None = "us" if whole.dtype.kind == "O" and is_dates(whole) else getattr(whole, "unit", None)
    values = np.asarray(numbers_of(whole)).reshape(len(rows), -1)
    return values.astype(np.float64) if values.dtype.kind == "f" else values, unit


def since_1970(labels: Labels) -> pd.TimedeltaIndex:
    """Return dates of any calendar as durations, exactly."""
    found = cftime.date2num(labels.values, "microseconds since 1970-01-01", labels[0].calendar)
    return pd.TimedeltaIndex(np.asarray(found, np.int64).view("m8[us]"))


def usable(labels: Labels, /) -> Labels:
    """Return the labels that are neither missing nor infinite."""
    is_known = ~pd.isnull(labels.values)
    if labels.dtype.kind == "f":
        is_known &= np.isfinite(labels.values)
    return labels if is_known.all() else xr.Variable(("label",), labels.values[is_known]).to_index()


def in_a_row(parts: Sequence[Labels], /) -> Labels:
    """Return the labels of all files: integers of two dtypes as objects, dates in the finest unit that has them all."""
    kinds = {x.dtype.kind for x in parts}
    if kinds == {"i", "u"}:
        parts = [x.astype(object) for x in parts]
    elif kinds <= {"m", "M"} and len({x.dtype for x in parts}) > 1:
        unit = next(unit for unit in _UNITS if all(_fits(x, unit) for x in parts))
        parts = [cast(Any, x).as_unit(unit) for x in parts]
    return parts[0].append(list(parts[1:]))


def numbers_of(labels: Labels, /) -> NDArray[Any] | None:
    """Return labels as numbers that can be subtracted, exactly; ``None`` for labels without a distance."""
    if labels.dtype.kind == "O" and is_dates(labels):
        return since_1970(labels).values.view(np.int64)
    if labels.dtype.kind in "mM":
        return labels.values.view(np.int64)
    is_number = labels.dtype.kind in "iuf" or (len(labels) > 0 and all(isinstance(x, int) for x in labels))
    return labels.values if is_number else None  # integers of two dtypes are objects


def _fits(labels: Labels, unit: _Unit) -> bool:
    try:
        cast(Any, labels).as_unit(unit)
    except (pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
        return False
    return True


def _gaps(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return the distances of numbers; distances of integers are right even if the difference exceeds their dtype."""
    if a.dtype.kind not in "iu":
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            return np.asarray(abs(a - b))
    gaps: NDArray[Any] = np.where(a > b, a - b, b - a)
    return gaps.view(f"u{gaps.itemsize}")


def _limit(values: NDArray[Any], unit: _Unit | None, tolerance: Any) -> Any:
    """Return a tolerance as a number comparable with distances of labels, or ``None`` if it is of another kind."""
    if isinstance(tolerance, pd.Timedelta) != (unit is not None):
        return None
    if unit is not None:
        return tolerance // pd.Timedelta(1, unit)
    return float(tolerance) if values.dtype.kind == "f" else math.floor(min(tolerance, _MAX_INTEGER_GAP))


@dataclass(frozen=True, slots=True, eq=False)
class Distinct:
    """The distinct labels of files, and the number of each file's labels."""

    labels: tuple[Labels, ...]
    which: NDArray[np.intp]

    def first(self, number: int) -> int:
        """Return the first file that has the labels of a number."""
        return int(np.argmax(self.which == number))

    @property
    def n_differing(self) -> int:
        """Number of files whose labels differ from the labels of the first file."""
        return int(np.count_nonzero(self.which))


def distinct_labels(indexes: Sequence[Labels], /, tolerance: Any = None) -> Distinct:
    """Return the distinct labels; labels within a tolerance of an earlier file's labels count as these."""
    buckets: dict[object, list[int]] = {}
    seen: list[Labels] = []
    which = np.empty(len(indexes), np.intp)
    for i, index in enumerate(indexes):
        bucket = buckets.setdefault(_key(index), [])
        number = next((n for n in bucket if _are_equal(seen[n], index)), None)
        if number is None:
            number = len(seen)
            bucket.append(number)
            seen.append(index)
        which[i] = number
    if tolerance is None or len(seen) == 1:
        return Distinct(tuple(seen), which)
    stand_for = first_within(seen, tolerance)
    kept = np.unique(stand_for)
    return Distinct(tuple(seen[n] for n in kept.tolist()), np.searchsorted(kept, stand_for)[which])


def all_labels(indexes: Sequence[Labels], tolerance: Any, /) -> Labels:
    """Return the sorted labels of all files."""
    found = distinct_labels(indexes, tolerance).labels
    merged = found[0].append(list(found[1:])).unique() if len(found) > 1 else found[0]
    return merged.sort_values()


def _are_equal(a: Labels, b: Labels) -> bool:
    if a is b or a.equals(b) or not (len(a) or len(b)):
        return True
    # pandas 2.3 takes equal dates with two units for different ones
    return len(a) == len(b) and a.dtype.kind == b.dtype.kind == "M" and bool((a == b).all())


def _key(labels: Labels) -> object:
    """Return a key that equal labels share and other labels rarely do, so that few labels are compared."""
    kind = labels.dtype.kind if len(labels) else ""
    if kind in "iuf":
        return len(labels), hash((labels.values.astype(np.float64) + 0.0).tobytes())  # -0.0 is 0.0
    if kind in "mM":
        return len(labels), kind, hash(labels.values.astype(f"{kind}8[s]").tobytes())  # all fit into seconds
    return len(labels), hash(tuple(labels))


def is_dates(labels: Labels, /) -> bool:
    """Return whether labels are dates, of any calendar."""
    return labels.dtype.kind == "M" or (labels.dtype.kind == "O" and len(labels) > 0 and hasattr(labels[0], "calendar"))


def is_jitter(found: Distinct, /) -> bool:
    """Return whether all labels differ from the labels of the first file by less than half a step."""
    first = found.labels[0]
    if len(found.labels) < 2 or len(first) < 2 or any(distance(first, x) is None for x in found.labels[1:]):
        return False
    step = np.abs(np.diff(first.values)).min()
    return all(distance(first, x) < step / 2 for x in found.labels[1:])


def misfit(
    dim: str, parts: Sequence[Named], found: Distinct, tolerance: Any, /, *, remedies: Sequence[Remedy] = ()
) -> CombineError:
    """Return an error that explains how the labels of files differ, in how many files, and how to fix it."""
    n = f"{found.n_differing:,} of {len(parts):,} files"
    number = int(found.which[np.argmax(found.which != 0)])
    first, other = parts[0], parts[found.first(number)]
    a, b = found.labels[0], found.labels[number]
    far = [distance(a, x) for x in found.labels[1:]]
    how = f"differs in {n}"
    if all(x is not None for x in far):
        most = max(far)
        how += f", by at most {most if isinstance(most, pd.Timedelta) else format(most, '.3g')}"
    at, too_small = f"first in {other.called}", ""
    if is_jitter(found):  # to fill in labels that nearly agree would double the grid
        enough, too_small = _enough(tolerance, max(far))
        usual = [Remedy(f"{{}} takes the labels of {first.called} if all labels are that close", tolerance=enough)]
    else:
        how += f": {_extent(a)} in {first.called}, {_extent(b)} there"
        usual = [
            Remedy("{} fills missing labels with missing values", join="outer"),
            Remedy("{} keeps only common labels", join="inner"),
        ]
    return CombineError(
        f"coordinate '{dim}' {how}, {at}{too_small}",
        *(remedies or usual),
        variable=dim,
        property="labels",
        left=len(a),
        right=len(b),
        left_url=first.source,
        right_url=other.source,
    )


def _enough(tolerance: Any, far: Any) -> tuple[Code, str]:
    """Return a tolerance that is enough, and why the given one is not."""
    is_dates = isinstance(far, pd.Timedelta)
    enough = Code(f"pd.Timedelta('{far}')", str(far)) if is_dates else Code(text := f"{_rounded_up(far):.3g}", text)
    if tolerance is None:
        return enough, ""
    if isinstance(tolerance, pd.Timedelta) == is_dates:
        return enough, f", and tolerance={tolerance!r} is smaller"
    return enough, f", and tolerance={tolerance!r} is not a distance between {'dates' if is_dates else 'numbers'}"


def _rounded_up(distance: float) -> float:
    """Return a distance of three digits that is not less."""
    return float(Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(float(distance)))


def _extent(labels: Labels) -> str:
    if len(labels) < 2:
        return f"the label {labels[0]}" if len(labels) else "no labels"
    return f"{len(labels):,} labels from {labels[0]} to {labels[-1]}"


def check_kinds(dim: str, parts: Sequence[Named], indexes: Sequence[Labels], /) -> None:
    """Refuse labels that have no common order, such as dates of two calendars."""
    first: tuple[str, Named, Labels] | None = None
    for part, labels in zip(parts, indexes, strict=True):
        if not len(labels):
            continue
        if first is None:
            first = kind_of(labels), part, labels
        elif kind_of(labels) != first[0]:
            kind, other, known = first
            as_cftime = Code("xr.coders.CFDatetimeCoder(use_cftime=True)")
            calendars = {
                getattr(x[0], "calendar", "standard" if x.dtype.kind == "M" else None) for x in (known, labels)
            }
            is_late = calendars <= STANDARD_CALENDARS  # some of the dates are outside the range of datetime64
            convert = Remedy("convert the labels of one kind with", preprocess=...)
            raise CombineError(
                f"labels of '{dim}' are of several kinds, which have no order: {known[0]!s} ({kind}) in "
                f"{other.called}, {labels[0]!s} ({kind_of(labels)}) in {part.called}",
                Remedy("open the files with", decode_times=as_cftime) if is_late else convert,
                Remedy("join the files of each kind separately"),
                variable=dim,
                property="labels",
                left=known[0],
                right=labels[0],
                left_url=other.source,
                right_url=part.source,
            )


def kind_of(labels: Labels, /) -> str:
    """Return the kind of labels, in words for messages; labels of one kind can be compared."""
    if labels.dtype.kind in KINDS:
        return "datetime64" if labels.dtype.kind == "M" else KINDS[labels.dtype.kind]
    label = labels[0] if len(labels) else None
    calendar = getattr(label, "calendar", None)
    return type(label).__name__ if calendar is None else f"cftime, calendar '{calendar}'"


def span(labels: Labels, /) -> str:
    """Return the first and the last label as text."""
    if not len(labels):
        return "no labels"
    return f"{labels[0]} to {labels[-1]}" if len(labels) > 1 else f"{labels[0]}"
