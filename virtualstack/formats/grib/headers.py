"""Describe fields by their headers without the times: the fields of all runs and steps of a model share few headers.

Some keys depend on parts of a header only, and the fields of a model share far fewer parts than headers.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from struct import Struct
from typing import NamedTuple

from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.formats.grib.messages import Field

# WMO FM 92 GRIB2 code table 4.4, and GRIB1 table 4: units of fixed length, in seconds
_SECONDS = {0: 60, 1: 3600, 2: 86400, 10: 10800, 11: 21600, 12: 43200, 13: 1}

# Templates of section 4 that have the forecast time in octets 18 to 22. The value is the offset of the end of the time
# interval (7 octets, counted from 0), or None for a point in time.
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
_MAX_DAYS = 10_000 * 366
_NO_UNIT = 255
_WITHOUT_FORECAST = frozenset({20, 30, 31, 35, 254})

_DATE_2 = Struct(">HBBBBB")
_EPOCH = datetime.datetime(1970, 1, 1)


class GribHeader(NamedTuple):
    """The description of a field, with its times kept separately if possible."""

    key: bytes
    time: int | None
    step: float | None

    @property
    def has_dates(self) -> bool:
        """True if dates are part of the key."""
        return self.key[1] == 1


def make_header(field: Field, /, *, with_times: bool) -> GribHeader:
    """Return the header of a field."""
    return _header_2(field, with_times) if field.edition == 2 else _header_1(field, with_times)


def has_endless_time(field: Field, /) -> bool:
    """Return whether a forecast ends more than ten thousand years later: eccodes counts the days one by one.

    A forecast time whose unit is missing has no end either.
    """
    if field.edition == 1:
        product = field.sections[0]
        return max(product[18], product[19], product[18] << 8 | product[19]) * _DAYS.get(product[17], 36500) > _MAX_DAYS
    product = field.sections[3]
    if len(product) < 22 or int.from_bytes(product[7:9], "big") in _WITHOUT_FORECAST:
        return False
    if product[_UNIT] == _NO_UNIT:
        return True
    return (int.from_bytes(product[_TIME], "big") & 0x7FFFFFFF) * _DAYS.get(product[_UNIT], 36500) > _MAX_DAYS


def _header_2(field: Field, with_times: bool) -> GribHeader:
    identification, local, grid, product, packing = field.sections
    rest = (local, grid, packing[9:11])
    time = None if with_times else _seconds_2(identification[12:19])
    found = None if time is None else timeless(product, time)
    if found is None:
        return GribHeader(b"".join((bytes((2, 1, field.discipline)), identification, product, *rest)), time, None)
    product, step = found
    start = bytes((2, 0, field.discipline))
    return GribHeader(b"".join((start, identification[:12], identification[19:], product, *rest)), time, step)


def timeless(product: bytes, time: int, /) -> tuple[bytes, float | None] | None:
    """Remove the forecast time from section 4, or make the end of its interval relative to the reference time."""
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
    # the ranges after it may be in months, whose length depends on the date
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


def _header_1(field: Field, with_times: bool) -> GribHeader:
    product, grid = field.sections[:2]
    grid += bytes((field.form,))
    year = (product[24] - 1) * 100 + product[12]
    time = _seconds(year, product[13], product[14], product[15], product[16])
    if with_times:
        return GribHeader(b"\1\1" + product + grid, None, None)
    if time is None or product[17] not in _SECONDS:
        return GribHeader(b"\1\1" + product + grid, time, None)
    return GribHeader(b"".join((b"\1\0", product[:12], product[17:24], product[25:], grid)), time, None)


STEP = "step"
TRIPLET = "virtualstack:parameter"
"""Own key: discipline, category and number of GRIB 2, or table and number of GRIB 1, if eccodes knows no parameter."""

QUALIFIER = "virtualstack:qualifier"
"""Own key: part of a distribution, such as ``percentile_10``; an empty text for a plain field."""

WHOLE = "virtualstack:whole"
"""Own key: true if eccodes finds all sections of a message. Otherwise eccodes lacks the keys of later sections."""

PARAMETER_KEYS = ("discipline", "parameterCategory", "parameterNumber")
"""Keys of GRIB 2 that name the parameter."""

_KNOWN = (23900, 25099)
"""First and last version of eccodes whose definitions were searched for the conditions that keys depend on.

With another version, or with other definitions, each header is asked for all of its keys, which is slower. A test
searches the definitions of the installed version.
"""
_OTHER_DEFINITIONS = (
    "ECCODES_DEFINITION_PATH",
    "ECCODES_EXTRA_DEFINITION_PATH",
    "GRIB_DEFINITION_PATH",
    "GRIB_EXTRA_DEFINITION_PATH",
)

ANY_VALUE_2 = frozenset({(x, 255) for x in (100, 104, 105, 108, 109, 118, 119)} | {(x, x) for x in (104, 105, 108)})
"""Types of the first and second surface of GRIB 2, such as pressure, whose values do not affect paramId."""

ANY_VALUE_1 = frozenset({100, 109})
"""Types of level of GRIB 1 whose values do not affect paramId."""

WITH_CONDITIONS = frozenset({78, 80})
"""Centres whose own definitions make paramId depend on such values: Offenbach and Rome."""

_OF_ALL = (
    WHOLE,
    "centre",
    "centreDescription",
    "dataType",
    "directionNumber",
    "edition",
    "frequencyNumber",
    "subCentre",
)
_OF_LEVEL, _OF_MEMBER, _OF_PARAMETER = ("level:float", "typeOfLevel"), ("number",), ("paramId", TRIPLET)

# Octets, from 0, of section 4 of GRIB 2: the parameter, types of surface, both surfaces, their values, and the member
_PARAMETER, _TYPES, _LEVEL, _VALUES = slice(9, 11), (22, 28), slice(22, 34), (slice(23, 28), slice(29, 34))
_MEMBERS, _MEMBER = frozenset({1, 11}), slice(35, 36)
_HEIGHTS = 150  # a type of surface for which section 4 continues after its template

_VALUE_1 = slice(10, 12)  # of section 1 of GRIB 1
_ECMWF = 98
_LABEL = slice(40, 49)  # number of the local definition, class, type, stream and version, before the member
_MEMBERS_1 = dict.fromkeys((1, 26, 30, 36), slice(49, 50)) | dict.fromkeys((12, 15, 16), slice(49, 51))


@dataclass(frozen=True, slots=True)
class Parameter:
    """Position of the parameter in a part of a header."""

    others: bytes
    at: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeaderPart:
    """A part of a header."""

    names: tuple[str, ...]
    key: bytes
    parameter: Parameter | None = None


def header_parts(field: Field, header: GribHeader, /) -> tuple[HeaderPart, ...]:
    """Split the header of a field into parts; return no parts if too little is known about the header.

    Keys of eccodes follow from sections 1 to 5 without dates. Each part leaves out further bytes that its keys do not
    depend on. The first part decides about `WHOLE`; the other parts are valid only if `WHOLE` is true.
    """
    if header.has_dates or header.time is None or not _is_known():
        return ()
    return tuple(_parts_2(field, header.time) if field.edition == 2 else _parts_1(field))


@cache
def _is_known() -> bool:
    version = import_eccodes().codes_get_api_version(int)
    return _KNOWN[0] <= version <= _KNOWN[1] and not any(name in os.environ for name in _OTHER_DEFINITIONS)


def _without(data: bytes, *places: slice) -> bytes:
    left = bytearray(data)
    for place in places:
        left[place] = bytes(place.stop - place.start)
    return bytes(left)


def _parts_2(field: Field, time: int) -> Iterator[HeaderPart]:
    identification, local, grid, product, packing = field.sections
    template = int.from_bytes(product[7:9], "big")
    member = (_MEMBER,) if template in _MEMBERS else ()
    types = product[_TYPES[0]], product[_TYPES[1]]
    found = timeless(_without(product, _PARAMETER, _LEVEL, *member), time)
    if found is None or _HEIGHTS in types or len(product) < _LEVEL.stop + 3 * len(member):
        return
    structure, step = found
    run = identification[:12] + identification[19:]
    rest = b"".join((run, local, grid, packing[9:11]))
    steps = (STEP,) if step is None else ()
    yield HeaderPart((*_OF_ALL, QUALIFIER, "stepType", *steps), b"".join((b"\2S", structure, rest)))
    yield HeaderPart(_OF_LEVEL, b"".join((b"\2L", product[5:9], product[_LEVEL], run, local)))
    yield HeaderPart(_OF_MEMBER, b"".join((b"\2N", product[5:9], product[34:37] if member else b"", run, local)))
    is_any = types in ANY_VALUE_2 and int.from_bytes(identification[5:7], "big") not in WITH_CONDITIONS
    product = _without(product, *member, *(_VALUES if is_any else ()))
    end = _TEMPLATES[template]
    untimed = product[11:18] + (product[22:] if end is None else product[22:end] + product[end + 7 :])
    others = b"".join((b"\2P", product[:9], untimed, rest))
    values = field.discipline, *product[_PARAMETER]
    at = 16 + len(identification) + len(local) + len(grid) + _PARAMETER.start
    yield HeaderPart(_OF_PARAMETER, bytes(values) + others, Parameter(others, at, values))


def _parts_1(field: Field) -> Iterator[HeaderPart]:
    product, grid = field.sections[:2]
    centres = {product[4], product[25]}
    is_ecmwf = _ECMWF in centres and len(product) > 50
    member = _MEMBERS_1.get(product[_LABEL.start]) if is_ecmwf else None
    run = b"".join((product[3:8], product[25:26], len(product).to_bytes(3, "big")))
    label = run + product[_LABEL] if member is not None else run + product[_LABEL.start :]
    is_any = product[9] in ANY_VALUE_1 and not centres & WITH_CONDITIONS
    less = _without(product, *(() if member is None else (member,)), *((_VALUE_1,) if is_any else ()))
    yield HeaderPart(_OF_ALL, b"".join((b"\1S", less[:8], less[9:10], less[25:], grid)))
    yield HeaderPart(_OF_LEVEL, b"".join((b"\1L", product[9:12], label)))
    yield HeaderPart(_OF_MEMBER, b"".join((b"\1N", b"" if member is None else product[member], label)))
    yield HeaderPart((*_OF_PARAMETER, "stepType", STEP), b"".join((b"\1P", less[:12], less[17:24], less[25:], grid)))
