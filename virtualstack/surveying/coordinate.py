"""Values of the dimension coordinate of each file, read and decoded so that they can be compared."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cftime
import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.errors import VirtualStackError
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.storage.threads import concurrently

__all__ = ["TEXT", "CoordinateLine", "read_line", "read_values", "times_along"]

_MAX_FILE_BYTES = 1 << 26
_MAX_TOTAL_BYTES = 1 << 29
"""Bytes of the coordinate that are read from one file, and from all files."""
_BATCH_BYTES = 1 << 24
_EPOCH = "days since 1850-01-01"
_DAYS_TO_1970 = 43829
_YEAR_DAYS = {"standard": 365.2425, "noleap": 365.0, "all_leap": 366.0, "360_day": 360.0, "julian": 365.25}
_DAY_NANOSECONDS = 86_400_000_000_000
_YEARS_OF_DATETIME64 = 1678, 2261
"""First and last year in which every date can be expressed in nanoseconds since 1970."""

TEXT = "text"
"""Unit of values that are text and have no order."""


@dataclass(frozen=True, slots=True, eq=False)
class CoordinateLine:
    """Coordinate of one file along the dimension.

    Parameters
    ----------
    numbers
        Values without missing and infinite ones, as numbers that can be subtracted. Dates and durations are int64
        nanoseconds, dates of other calendars are days since 1850, and other numbers have 64 bits. Text stays text.
        ``None`` if there are no values, or they are neither numbers nor text.
    labels
        First and last value, as text.
    ends
        Least and greatest value, as text; empty if the coordinate has no numbers.
    unit
        Meaning of the numbers: ``"M8"`` or ``"m8"``, the name of a calendar for dates that have no ``datetime64``,
        :data:`TEXT`, or ``None`` if the numbers are the values.
    """

    numbers: NDArray[Any] | None
    labels: tuple[str, str]
    ends: tuple[str, str]
    unit: str | None = None

    @property
    def least(self) -> float:
        """Least number, or NaN if there are no numbers.

        Dates are in years since 1850 of their calendar, so that two calendars can be compared.
        """
        return np.nan if self.numbers is None or self.unit == TEXT else self.comparable(float(self.numbers.min()))

    @property
    def greatest(self) -> float:
        """Greatest number, or NaN if there are no numbers. Dates are in years since 1850 of their calendar."""
        return np.nan if self.numbers is None or self.unit == TEXT else self.comparable(float(self.numbers.max()))

    def comparable(self, number: float, /) -> float:
        """Return a number that can be compared with those of another calendar: years since 1850 if it is a date."""
        match self.unit:
            case None | "m8":
                return number
            case "M8":
                return (number / _DAY_NANOSECONDS + _DAYS_TO_1970) / _YEAR_DAYS["standard"]
        return number / _YEAR_DAYS.get(self.unit, _YEAR_DAYS["standard"])

    @property
    def key(self) -> tuple[str | None, bytes | None]:
        """Key that is equal for files with equal values."""
        return self.unit, None if self.numbers is None else self.numbers.tobytes()

    @property
    def kind(self) -> str:
        """Kind of the values, in words for messages."""
        usual = {None: "numbers", "M8": "dates", "m8": "durations", TEXT: TEXT}
        return usual.get(self.unit) or f"dates that have no datetime64 ({self.unit})"

    def label(self, number: float, /) -> str:
        """Return a number as text of the value that it encodes."""
        match self.unit:
            case None:
                return label(np.float64(number) if isinstance(number, float) else number)
            case "M8" | "m8":
                return label(np.array(number, np.int64).view(f"{self.unit}[ns]")[()])
        return str(cftime.num2date(number, _EPOCH, self.unit))


def read_values(
    arrays: Iterable[ManifestArray | None], storage: Storage, /
) -> Iterator[NDArray[Any] | VirtualStackError | None]:
    """Yield the values of each array, or its error. Remote arrays are read at the same time."""

    def read(array: ManifestArray | None) -> NDArray[Any] | VirtualStackError | None:
        if array is None:
            return None
        try:
            return np.atleast_1d(read_array(array, (), storage, absent="raise"))
        except VirtualStackError as error:
            return error

    listed = list(arrays)
    return concurrently(read, listed, urls=(array.a_url() for array in listed if array is not None))


def read_line(
    groups: Sequence[ManifestGroup], dim: str | None, storage: Storage, /
) -> list[CoordinateLine | VirtualStackError | ValueError | None]:
    """Read and decode the coordinate of every file. A file without one has ``None``, or the error."""
    arrays: list[ManifestArray | None] = []
    errors: dict[int, ValueError] = {}
    n_bytes = 0
    for i, group in enumerate(groups):
        array = None if dim is None else _coordinate(group, dim)
        if array is not None and (array.nbytes > _MAX_FILE_BYTES or n_bytes + array.nbytes > _MAX_TOTAL_BYTES):
            errors[i] = ValueError(
                f"coordinate '{dim}' was not read, so the position of this file is not known: it has "
                f"{array.nbytes:,} bytes, and at most {_MAX_FILE_BYTES:,} per file and {_MAX_TOTAL_BYTES:,} "
                "in total are read. Survey fewer files at a time, or along another dimension"
            )
            array = None
        n_bytes += 0 if array is None else array.nbytes
        arrays.append(array)
    found: list[Any] = [errors.get(i, x) for i, x in enumerate(read_values(arrays, storage))]
    batches: dict[Any, list[int]] = {}
    sizes: Counter[Any] = Counter()
    for i, (array, values) in enumerate(zip(arrays, found, strict=True)):
        if array is not None and isinstance(values, np.ndarray):
            key = (array.dtype.str, *sorted((name, repr(value)) for name, value in array.cf.items()))
            batches.setdefault((key, sizes[key] // _BATCH_BYTES), []).append(i)
            sizes[key] += array.nbytes
    for members in batches.values():  # files with the same encoding are decoded together
        array = arrays[members[0]]
        if array is not None:
            for i, line in zip(members, _decoded(str(dim), array, [found[i] for i in members]), strict=True):
                found[i] = line
    return found


def _coordinate(group: ManifestGroup, dim: str) -> ManifestArray | None:
    array = group.arrays.get(dim, group.arrays.get(times_along(group, dim) or ""))
    return array if array is not None and array.dimension_names in ((dim,), ()) and array.size else None


def times_along(group: ManifestGroup, dim: str, /) -> str | None:
    """Return the name of the times along a dimension without a coordinate, such as ``XTIME`` of WRF."""
    names = (
        name
        for name, x in group.arrays.items()
        if x.dimension_names == (dim,) and " since " in str(x.cf.get("units", ""))
    )
    return None if dim in group.arrays else next(names, None)


def _decoded(dim: str, array: ManifestArray, parts: Sequence[NDArray[Any]]) -> list[CoordinateLine | ValueError]:
    """Decode the coordinates of files with the same encoding, with the result that each would have alone.

    Errors are in the positions of the files that cause them.
    """
    raw = np.concatenate(parts)
    if raw.dtype.kind == "T":
        raw = raw.astype(object)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", xr.SerializationWarning)  # dates beyond datetime64 show in the labels
            values = conventions.decode_cf_variable(dim, xr.Variable((dim,), raw, dict(array.cf))).values
        numbers = _numbers(values)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        if len(parts) == 1:
            return [ValueError(f"coordinate '{dim}' cannot be decoded: {error}")]
        half = len(parts) // 2
        return _decoded(dim, array, parts[:half]) + _decoded(dim, array, parts[half:])
    ends = np.cumsum([len(part) for part in parts]).tolist()
    spans = [slice(end - len(part), end) for end, part in zip(ends, parts, strict=True)]
    lines: list[CoordinateLine | ValueError] = [
        _line(values[span], None if numbers is None else numbers[span]) for span in spans
    ]
    if getattr(values[0], "calendar", None) in ("standard", "gregorian", "proleptic_gregorian"):
        near = [i for i, span in enumerate(spans) if _has_datetime64(values[span])]
        if len(near) < len(parts):  # otherwise xarray has chosen cftime for all of them
            for i, line in zip(near, _decoded(dim, array, [parts[i] for i in near]) if near else (), strict=True):
                lines[i] = line
    return lines


def _line(values: NDArray[Any], numbers: NDArray[Any] | None) -> CoordinateLine:
    """Return the coordinate of a file from its values and their numbers."""
    unit = {"M": "M8", "m": "m8", "O": getattr(values[0], "calendar", TEXT)}.get(values.dtype.kind)
    ends = ("", "")
    if numbers is not None:
        is_number = ~pd.isnull(values)
        is_number &= np.isfinite(numbers) if numbers.dtype.kind == "f" else True
        numbers = numbers[is_number] if is_number.any() else None
        if numbers is not None and unit != TEXT:
            at = np.flatnonzero(is_number)[[numbers.argmin(), numbers.argmax()]]
            ends = (_make_label(values[at[0]]), _make_label(values[at[1]]))
    return CoordinateLine(numbers, (_make_label(values[0]), _make_label(values[-1])), ends, unit)


def _make_label(value: Any) -> str:
    return label(value.astype("M8[ns]") if isinstance(value, np.datetime64) else value)


def _has_datetime64(dates: NDArray[Any]) -> bool:
    first, last = _YEARS_OF_DATETIME64
    return all(first <= date.year <= last for date in dates)


def _numbers(values: NDArray[Any]) -> NDArray[Any] | None:
    match values.dtype.kind:
        case "M" | "m":
            return values.astype(f"{values.dtype.kind}8[ns]").view(np.int64)
        case "i" | "u" | "f":
            return values.astype(f"{values.dtype.kind}8")
        case "O" if isinstance(values[0], cftime.datetime):
            return np.asarray(cftime.date2num(values, _EPOCH, values[0].calendar), np.float64)
        case "O" if all(isinstance(x, str) for x in values):
            return values.astype(str)
    return None


def label(value: Any, /) -> str:
    """Return a coordinate value as text; a date is shortened by the parts that are zero.

    >>> label(np.datetime64("2000-01-31T00:00:00", "ns")), label(np.datetime64("2000-01-31T06:30:00", "ns"))
    ('2000-01-31', '2000-01-31T06:30')
    """
    if not isinstance(value, np.datetime64):
        return f"{value:.10g}" if isinstance(value, np.floating) else str(value)
    text = str(value).rstrip("0").rstrip(".") if "." in str(value) else str(value)
    text = text.removesuffix(":00") if text.count(":") == 2 else text
    return text.removesuffix("T00:00")
