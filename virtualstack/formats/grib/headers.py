"""What tells fields apart, without the times: fields of all runs and steps of a model share few headers."""

from __future__ import annotations

import datetime
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from virtualstack.formats.grib.messages import Field

__all__ = ["Header", "has_endless_time", "header_of", "interval_end", "timeless"]

# WMO FM 92 GRIB2 code table 4.4, and GRIB1 table 4: units of fixed length, in seconds
_SECONDS = {0: 60, 1: 3600, 2: 86400, 10: 10800, 11: 21600, 12: 43200, 13: 1}

# Templates of section 4 whose forecast time stands in octets 18 to 22, with where the end of the time interval stands
# (7 octets, from 0), None where they are for a point in time.
_TEMPLATES = {
    **dict.fromkeys((0, 1, 2, 5, 6, 7, 15)),
    8: 34,
    9: 47,
    10: 35,
    11: 37,
    12: 36,
}
_UNIT, _TIME = 17, slice(18, 22)

_DAYS = {3: 30, 4: 365, 5: 3650, 6: 10950, 7: 36500} | {unit: n / 86400 for unit, n in _SECONDS.items()}
_MOST_DAYS = 10_000 * 366
_NO_UNIT = 255
_WITHOUT_FORECAST = frozenset({20, 30, 31, 35, 254})

_DATE_2 = Struct(">HBBBBB")
_EPOCH = datetime.datetime(1970, 1, 1)


class Header(NamedTuple):
    """What describes a field, and its times apart where they are.

    Parameters
    ----------
    key
        All that keys depend on but for the times below; equal keys have equal values of those.
    time
        Reference time, in seconds since 1970-01-01; ``None`` where it is no date, or stands in the key.
    step
        Hours from it to the forecast; ``None`` where it stands in the key.
    """

    key: bytes
    time: int | None
    step: float | None

    @property
    def has_dates(self) -> bool:
        """Whether dates are in the key."""
        return self.key[1] == 1


def header_of(field: Field, /, *, with_times: bool) -> Header:
    """Tell what describes a field.

    Parameters
    ----------
    field
        What was found.
    with_times
        Whether times stay in the key: keys other than reference time and step depend on them.
    """
    return _header_2(field, with_times) if field.edition == 2 else _header_1(field, with_times)


def has_endless_time(field: Field, /) -> bool:
    """Tell whether a forecast ends more than ten thousand years later: eccodes counts the days one by one.

    It has no end either where its unit is missing.
    """
    if field.edition == 1:
        product = field.sections[0]
        return (
            max(product[18], product[19], product[18] << 8 | product[19]) * _DAYS.get(product[17], 36500) > _MOST_DAYS
        )
    product = field.sections[3]
    if len(product) < 22 or int.from_bytes(product[7:9], "big") in _WITHOUT_FORECAST:
        return False
    if product[_UNIT] == _NO_UNIT:
        return True
    return (int.from_bytes(product[_TIME], "big") & 0x7FFFFFFF) * _DAYS.get(product[_UNIT], 36500) > _MOST_DAYS


def _header_2(field: Field, with_times: bool) -> Header:
    identification, local, grid, product, packing = field.sections
    rest = (local, grid, packing[9:11])
    time = None if with_times else _seconds_2(identification[12:19])
    found = None if time is None else timeless(product, time)
    if found is None:
        return Header(b"".join((bytes((2, 1, field.discipline)), identification, product, *rest)), time, None)
    product, step = found
    start = bytes((2, 0, field.discipline))
    return Header(b"".join((start, identification[:12], identification[19:], product, *rest)), time, step)


def interval_end(template: int, /) -> int | None:
    """Tell where the date is in section 4 at which an interval ends; ``None`` where it is about a point in time."""
    return _TEMPLATES[template]


def timeless(product: bytes, time: int, /) -> tuple[bytes, float | None] | None:
    """Take the forecast time out of section 4, or make the end of its interval relative to the reference time.

    Returns
    -------
    tuple or None
        What is left, and the step in hours where it is out. ``None`` for products that may have other dates.
    """
    number = int.from_bytes(product[7:9], "big")
    if number not in _TEMPLATES:
        return None
    seconds = _SECONDS.get(product[_UNIT])
    if seconds is None:
        return None
    at = _TEMPLATES[number]
    if at is None:
        count = int.from_bytes(product[_TIME], "big")
        if count & 0x80000000:  # sign and magnitude
            count = -(count & 0x7FFFFFFF)
        return product[:18] + product[22:], count * seconds / 3600.0
    end = _seconds_2(product[at : at + 7])
    # the ranges behind it may be in months, whose length the date tells
    if end is None or any(product[i] not in _SECONDS for i in range(at + 14, len(product), 12)):
        return None
    return product[:at] + (end - time).to_bytes(8, "big", signed=True) + product[at + 7 :], None


def _seconds_2(date: bytes) -> int | None:
    return _seconds(*_DATE_2.unpack(date)) if len(date) == 7 else None


@lru_cache(maxsize=4096)
def _seconds(year: int, month: int, day: int, hour: int, minute: int, second: int = 0) -> int | None:
    try:
        return int((datetime.datetime(year, month, day, hour, minute, second) - _EPOCH).total_seconds())
    except ValueError:
        return None


def _header_1(field: Field, with_times: bool) -> Header:
    product, grid = field.sections[:2]
    grid += bytes((field.form,))
    year = (product[24] - 1) * 100 + product[12]
    time = _seconds(year, product[13], product[14], product[15], product[16])
    if with_times:
        return Header(b"\1\1" + product + grid, None, None)
    if time is None or product[17] not in _SECONDS:
        return Header(b"\1\1" + product + grid, time, None)
    return Header(b"".join((b"\1\0", product[:12], product[17:24], product[25:], grid)), time, None)
