"""Numbers with units of time to dates and durations, as xarray decodes them with its default resolution.

xarray chooses the resolution of dates by its option ``time_unit``, which is nanoseconds by default. If a value does not
fit, xarray returns objects of cftime for all values that it reads together. Here the attributes alone fix the
resolution, and a value that does not fit raises an error.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from xarray.coding.times import decode_cf_datetime, decode_cf_timedelta

from virtualstack.codecs.bounded import CodecError
from virtualstack.errors import Remedy
from virtualstack.system import in_forked_children

DURATIONS = frozenset({"days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"})
"""Units without an epoch that xarray takes for durations (CF conventions 4.4)."""

STANDARD_CALENDARS = frozenset({"standard", "gregorian", "proleptic_gregorian"})
"""Calendars whose dates numpy supports. Dates of all other calendars become objects."""

CODING_ERRORS = ValueError, TypeError, OverflowError, KeyError, AttributeError
"""Errors that xarray raises for attributes that it cannot use: text instead of numbers, or numbers instead of text."""

_NAT = np.iinfo(np.int64).min
_MAX_EXACT_INTEGER = 1 << 53
_RESOLUTIONS = ("s", "ms", "us", "ns")
_LOCK = threading.RLock()
# a lock held while forking is never released in the child
in_forked_children(lambda: globals().update(_LOCK=threading.RLock()))


class UnfitTimeError(CodecError):
    """A date or duration that does not fit into the dtype that the attributes lead to."""

    remedy = Remedy("open with {}, which leaves times as they are stored", decode_times=False)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, in one thread at a time, since all threads share the list of filters."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def datetime_units(units: object, /) -> bool:
    """Return whether xarray treats units as units of dates.

    >>> datetime_units("days since 2000-01-01"), datetime_units("days")
    (True, False)
    """
    return isinstance(units, str) and "since" in units


def check_calendar(calendar: object, /) -> None:
    """Raise ``ValueError`` for a calendar whose dates xarray decodes to objects; ``None`` is the standard calendar."""
    if calendar is not None and str(calendar).lower() not in STANDARD_CALENDARS:
        raise ValueError(f"dates of the calendar '{calendar}' are objects of cftime, which have no fixed size")


_LINE: Any = pd.Index([0, 1])  # of an array, xarray would ask whether it is one of dask, and import that


@lru_cache(maxsize=4096)
def datetime_scale(units: str, calendar: str | None, /) -> tuple[int, int] | None:
    """Return the reference date and the unit of dates, both in nanoseconds.

    The result is ``None`` if xarray uses cftime for every date. This is the case if the reference date is before 1678,
    is before the reform of the calendar, or is not written as in ISO 8601.
    """
    try:
        with quiet():
            dates = decode_cf_datetime(_LINE, units, calendar, use_cftime=False)
            origin, after = dates.astype("M8[ns]").view(np.int64).tolist()
    except (KeyError, OverflowError, pd.errors.OutOfBoundsDatetime, pd.errors.OutOfBoundsTimedelta):
        with quiet():
            decode_cf_datetime(np.array([0.0]), units, calendar, use_cftime=True)
        return None
    return origin, after - origin


@lru_cache(maxsize=4096)
def same_dates(left: tuple[str, str | None], right: tuple[str, str | None], /) -> bool:
    """Return whether numbers are the same dates with either of two pairs of units and calendar.

    A calendar that is not named is the standard one (CF conventions 4.4.1). Its dates equal those of the proleptic
    calendar if the reference date is not before the reform of the calendar.

    >>> same_dates(("days since 1970-01-01", None), ("days since 1970-1-1 00:00:00", "proleptic_gregorian"))
    True
    >>> same_dates(("days since 0001-01-01", None), ("days since 0001-01-01", "proleptic_gregorian"))
    False
    """
    if left == right:
        return True
    try:
        with quiet():
            a, b = (decode_cf_datetime(np.array([0, 1]), *each, time_unit="us") for each in (left, right))
    except (ValueError, KeyError, OverflowError):  # units that cannot be read are equal only if spelt the same
        return False
    return a.dtype.kind == b.dtype.kind and [type(x) for x in a] == [type(x) for x in b] and bool((a == b).all())


def decode_datetimes(numbers: NDArray[Any], units: str, calendar: str | None, /) -> NDArray[Any]:
    """Return dates as ``datetime64[ns]``; NaN, and the least integer of 64 bits, are NaT."""
    line = datetime_scale(units, calendar)
    is_float = numbers.dtype.kind == "f"
    if numbers.dtype.kind != "u":
        numbers = numbers.astype(np.float64 if is_float else np.int64, copy=False)
    missing = np.isnan(numbers) if is_float else numbers == _NAT
    has_missing = bool(missing.any())
    present = numbers[~missing] if has_missing else numbers
    if has_missing and line is None:
        raise UnfitTimeError(f"a date in '{units}' is missing. xarray asks cftime for such dates, and it has no NaT")
    if not present.size:
        return np.full(numbers.shape, "NaT", "M8[ns]")
    low, high = present.min().item(), present.max().item()
    if line is not None and all(_fits(x, *line) for x in (low, high)):
        origin, step = line
        known = np.where(missing, numbers.dtype.type(0), numbers) if has_missing else numbers
        signed = known if is_float else known.astype(np.int64, copy=False)
        dates = (signed * np.int64(step)).astype(np.int64, copy=False)
        dates += origin
        if has_missing:
            np.putmask(dates, missing, _NAT)
        return dates.view("M8[ns]")
    if line is not None and (is_float or has_missing or line[1] < 1000 or max(-low, high) > _MAX_EXACT_INTEGER):
        raise UnfitTimeError(f"{low!r} to {high!r} '{units}' are more nanoseconds than 64 bits hold")
    try:
        with quiet():
            found: NDArray[Any] = decode_cf_datetime(numbers, units, calendar)
    except (ValueError, OverflowError) as error:
        raise UnfitTimeError(f"{low!r} to {high!r} '{units}' are not dates: {error}") from error
    if found.dtype != np.dtype("M8[ns]"):
        raise UnfitTimeError(
            f"{low!r} to {high!r} '{units}' are not all dates between 1677-09-21 and 2262-04-11, the range "
            "of 'datetime64[ns]'"
        )
    return found


def _fits(number: float, origin: int, step: int) -> bool:
    """Return whether a number of units, and the date that it leads to, fit into 64 bits of nanoseconds."""
    span = number * step
    if not abs(span) < 1 << 63:
        return False
    return abs(origin + int(span)) < 1 << 63


def timedelta_dtype(units: str, attribute: str, numbers: np.dtype[Any], /) -> np.dtype[Any]:
    """Return the dtype of durations: the value of the attribute ``dtype``.

    >>> timedelta_dtype("days", "timedelta64[s]", np.dtype(np.int32))
    dtype('<m8[s]')
    """
    try:
        resolution, count = np.datetime_data(np.dtype(attribute))
    except TypeError as error:
        raise ValueError(f"dtype {attribute!r} is not a dtype of durations") from error
    own = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}.get(units, "s")
    if resolution not in _RESOLUTIONS or count != 1 or _RESOLUTIONS.index(own) > _RESOLUTIONS.index(resolution):
        raise ValueError(f"durations in {units} of dtype {attribute!r} have another dtype once decoded")
    if numbers.kind == "f":
        raise ValueError(f"durations of '{numbers}' are rounded depending on the values that are decoded with them")
    return np.dtype(f"m8[{resolution}]")


def decode_timedeltas(numbers: NDArray[Any], units: str, dtype: np.dtype[Any], /) -> NDArray[Any]:
    """Return durations of a dtype of :func:`timedelta_dtype`; the least integer of 64 bits is NaT."""
    resolution: Any = np.datetime_data(dtype)[0]
    try:
        with quiet():
            found: NDArray[Any] = decode_cf_timedelta(numbers, units, resolution)
    except (OverflowError, pd.errors.OutOfBoundsTimedelta) as error:
        raise UnfitTimeError(f"a number of '{units}' cannot be stored as '{dtype}': {error}") from error
    return found
