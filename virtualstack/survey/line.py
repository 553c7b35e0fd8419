"""Values of the dimension coordinate in each file: their order, what is there twice, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import cftime
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.errors import VirtualStackError
from virtualstack.location import local_path
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.reading import read_array
from virtualstack.storage import Storage

__all__ = ["Gap", "Line", "common_dimension", "find_gaps", "read_line", "read_values"]

_MOST_BYTES = 1 << 24
"""Bytes of a coordinate that are read of a file: what is longer is no axis of files."""
_THREADS = 32
_REGULAR = 0.9
_NEAR = 0.15
_EPOCH = "days since 1850-01-01"
_DAYS_TO_1970 = 43829
_DAYS_OF_A_YEAR = {"standard": 365.2425, "noleap": 365.0, "all_leap": 366.0, "360_day": 360.0, "julian": 365.25}
_DAY = 86_400_000_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """The coordinate of one file along the dimension.

    Parameters
    ----------
    numbers
        Its values, missing ones left out, as numbers that can be subtracted: int64 nanoseconds of dates and durations,
        days since 1850 of dates of other calendars, or the values; ``None`` where there are none, or no numbers.
    labels
        The first and the last value as text.
    unit
        What numbers are: ``"M8"`` or ``"m8"``, the name of another calendar, or ``None`` for the values.
    """

    numbers: NDArray[Any] | None
    labels: tuple[str, str]
    unit: str | None = None

    @property
    def first(self) -> float:
        """The least number; of dates, years since 1850 in their calendar, so that two calendars can be compared."""
        least = float(self.numbers.min()) if self.numbers is not None and self.numbers.size else np.nan
        match self.unit:
            case None | "m8":
                return least
            case "M8":
                return (least / _DAY + _DAYS_TO_1970) / _DAYS_OF_A_YEAR["standard"]
        return least / _DAYS_OF_A_YEAR.get(self.unit, _DAYS_OF_A_YEAR["standard"])

    @property
    def key(self) -> tuple[str | None, bytes | None]:
        """What is equal where the values are."""
        return self.unit, None if self.numbers is None else self.numbers.tobytes()

    def overlaps(self, later: Line, /) -> bool:
        """Whether a coordinate that begins later begins before this one has ended."""
        if self.numbers is None or later.numbers is None or self.unit != later.unit:
            return False
        return bool(later.numbers.min() <= self.numbers.max())

    def label(self, number: float, /) -> str:
        """Write a number as the value that it stands for."""
        match self.unit:
            case None:
                return label(np.float64(number) if isinstance(number, float) else number)
            case "M8" | "m8":
                return label(np.array(number, np.int64).view(f"{self.unit}[ns]")[()])
        return str(cftime.num2date(number, _EPOCH, self.unit))


def common_dimension(groups: Sequence[ManifestGroup], /) -> str | None:
    """Find the dimension along which files follow each other.

    That is the unlimited one, else one whose coordinate has times; of several the one that most files have. ``None``
    where there is none.
    """
    unlimited: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for group in groups:
        coordinates = {name for name, x in group.arrays.items() if x.dimension_names == (name,)}
        unlimited.update(group.unlimited & coordinates)
        times.update(x for x in coordinates if " since " in str(group.arrays[x].cf.get("units", "")))
    for found in (unlimited & times, unlimited, times):
        if found:
            return max(sorted(found), key=found.__getitem__)
    return None


def read_values(
    arrays: Iterable[ManifestArray | None], storage: Storage, /
) -> Iterator[NDArray[Any] | VirtualStackError | None]:
    """Read small arrays, remote ones many at a time; an error stands for what cannot be read."""

    def read(array: ManifestArray | None) -> NDArray[Any] | VirtualStackError | None:
        if array is None or array.nbytes > _MOST_BYTES:
            return None
        try:
            return read_array(array, (), storage, missing="raise")
        except VirtualStackError as error:
            return error

    listed = list(arrays)
    if all(array is None or local_path(array.a_url() or "file://") is not None for array in listed):
        yield from map(read, listed)
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="virtualstack-survey") as pool:
        yield from pool.map(read, listed)


def read_line(
    groups: Sequence[ManifestGroup], dim: str | None, storage: Storage, /
) -> list[Line | VirtualStackError | ValueError | None]:
    """Read and decode the coordinate of every file; ``None`` where it has none, or an error."""
    arrays = [None if dim is None else _coordinate(group, dim) for group in groups]
    found: list[Any] = list(read_values(arrays, storage))
    batches: dict[Any, list[int]] = {}
    for i, (array, values) in enumerate(zip(arrays, found, strict=True)):
        if array is not None and isinstance(values, np.ndarray):
            key = (array.dtype.str, *sorted((name, repr(value)) for name, value in array.cf.items()))
            batches.setdefault(key, []).append(i)
    for members in batches.values():  # files that encode alike are decoded at once
        array = arrays[members[0]]
        if array is not None:
            for i, line in zip(members, _decoded(str(dim), array, [found[i] for i in members]), strict=True):
                found[i] = line
    return found


def _coordinate(group: ManifestGroup, dim: str) -> ManifestArray | None:
    array = group.arrays.get(dim)
    return array if array is not None and array.dimension_names == (dim,) and array.size else None


def _decoded(dim: str, array: ManifestArray, parts: Sequence[NDArray[Any]]) -> list[Line | ValueError]:
    raw = np.concatenate(parts)
    if raw.dtype.kind == "T":
        raw = raw.astype(object)
    try:
        values = conventions.decode_cf_variable(dim, xr.Variable((dim,), raw, dict(array.cf))).values
        numbers = _numbers(values)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        return [ValueError(f"coordinate '{dim}' cannot be decoded: {error}")] * len(parts)
    if values.dtype.kind == "M":
        values = values.astype("M8[ns]")
    unit = {"M": "M8", "m": "m8", "O": getattr(values[0], "calendar", None)}.get(values.dtype.kind)
    ends = np.cumsum([len(part) for part in parts])
    lines: list[Line | ValueError] = []
    for end, part in zip(ends.tolist(), parts, strict=True):
        begin = end - len(part)
        own = None if numbers is None else numbers[begin:end][~pd.isnull(values[begin:end])]
        labels = label(values[begin]), label(values[end - 1])
        lines.append(Line(own if own is not None and own.size else None, labels, unit))
    return lines


def _numbers(values: NDArray[Any]) -> NDArray[Any] | None:
    match values.dtype.kind:
        case "M" | "m":
            return values.astype(f"{values.dtype.kind}8[ns]").view(np.int64)
        case "i" | "u" | "f":
            return values
        case "O" if isinstance(values[0], cftime.datetime):
            return np.asarray(cftime.date2num(values, _EPOCH, values[0].calendar), np.float64)
    return None


def label(value: Any, /) -> str:
    """Write a coordinate value; a date without the parts that are zero.

    >>> label(np.datetime64("2000-01-31T00:00:00", "ns")), label(np.datetime64("2000-01-31T06:30:00", "ns"))
    ('2000-01-31', '2000-01-31T06:30')
    """
    if not isinstance(value, np.datetime64):
        return f"{value:.10g}" if isinstance(value, np.floating) else str(value)
    text = str(value).rstrip("0").rstrip(".") if "." in str(value) else str(value)
    text = text.removesuffix(":00") if text.count(":") == 2 else text
    return text.removesuffix("T00:00")


@dataclass(frozen=True, slots=True)
class Gap:
    """Missing steps between two values that follow each other.

    Parameters
    ----------
    after, before
        Numbers of the values.
    n_steps
        Steps that are missing, about where steps are not all equal (months).
    """

    after: float
    before: float
    n_steps: int


def find_gaps(numbers: NDArray[Any], /) -> list[Gap] | None:
    """Find missing steps in regularly spaced numbers of any order; ``None`` where they are not regularly spaced.

    Months of 28 to 31 days count as regular.

    >>> find_gaps(np.array([0, 1, 2, 3, 6, 7, 8]))
    [Gap(after=3, before=6, n_steps=2)]
    """
    values = np.unique(numbers)
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
    if values.size < 3:
        return []
    steps = np.diff(values).astype(np.float64)
    usual = float(np.median(steps))
    is_usual = np.abs(steps - usual) <= _NEAR * usual
    at = np.flatnonzero(steps > 1.5 * usual)
    if np.count_nonzero(is_usual) + at.size < _REGULAR * steps.size or np.count_nonzero(is_usual) * 2 < steps.size:
        return None
    return [Gap(values[i].item(), values[i + 1].item(), round(float(steps[i] / usual)) - 1) for i in at.tolist()]
