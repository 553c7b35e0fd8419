"""Parts of a header that alone decide about some of its keys: fields of a model share far fewer parts than headers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from virtualstack.codecs.grib.library import eccodes_of
from virtualstack.formats.grib.headers import Header, interval_end, timeless
from virtualstack.formats.grib.messages import Field

__all__ = [
    "ANY_VALUE_1",
    "ANY_VALUE_2",
    "PARAMETER_KEYS",
    "QUALIFIER",
    "STEP",
    "WHOLE",
    "WITH_CONDITIONS",
    "Parameter",
    "Part",
    "parts_of",
]

STEP = "step"
TRIPLET = "virtualstack:parameter"
"""A key of ours: discipline, category and number of GRIB 2, or table and number of GRIB 1, where eccodes knows none."""

QUALIFIER = "virtualstack:qualifier"
"""A key of ours: what a field is of a distribution, such as ``percentile_10``; empty text for a plain field."""

WHOLE = "virtualstack:whole"
"""A key of ours: whether eccodes finds all sections of a message. Where it does not, it has no keys of later ones."""

PARAMETER_KEYS = ("discipline", "parameterCategory", "parameterNumber")
"""Keys of GRIB 2 that name the parameter."""

_KNOWN = (23900, 25099)
"""First and last version of eccodes whose definitions were searched for what conditions of keys are about.

With another one, or other definitions, each header is asked for all of its keys, which is slower. A test searches the
definitions of the version that is installed.
"""
_OTHER_DEFINITIONS = (
    "ECCODES_DEFINITION_PATH",
    "ECCODES_EXTRA_DEFINITION_PATH",
    "GRIB_DEFINITION_PATH",
    "GRIB_EXTRA_DEFINITION_PATH",
)

ANY_VALUE_2 = frozenset({(x, 255) for x in (100, 104, 105, 108, 109, 118, 119)} | {(x, x) for x in (104, 105, 108)})
"""Types of first and second surface of GRIB 2 of whose values no condition of paramId is, such as pressure."""

ANY_VALUE_1 = frozenset({100, 109})
"""Types of level of GRIB 1, likewise."""

WITH_CONDITIONS = frozenset({78, 80})
"""Centres that have such conditions in definitions of their own: Offenbach and Rome."""

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
_HEIGHTS = 150  # a type of surface with which section 4 goes on behind its template

_VALUE_1 = slice(10, 12)  # of section 1 of GRIB 1
_ECMWF = 98
_LABEL = slice(40, 49)  # the number of its local definition, and class, type, stream and version, ahead of the member
_MEMBERS_1 = dict.fromkeys((1, 26, 30, 36), slice(49, 50)) | dict.fromkeys((12, 15, 16), slice(49, 51))


@dataclass(frozen=True, slots=True)
class Parameter:
    """Where the parameter stands in a part.

    Parameters
    ----------
    others
        The bytes of the part but for the parameter: in a message that has them, too, it may be written.
    at
        Where octets of category and number begin in a message of the header without data.
    values
        Of `PARAMETER_KEYS`.
    """

    others: bytes
    at: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a header.

    Parameters
    ----------
    names
        Keys that it decides about.
    key
        Its bytes: where they are equal, values are.
    parameter
        How to have its keys by writing into a message, where that can be done.
    """

    names: tuple[str, ...]
    key: bytes
    parameter: Parameter | None = None


def parts_of(field: Field, header: Header, /) -> tuple[Part, ...]:
    """Take the header of a field apart; there are no parts where too little is known about it.

    What eccodes makes of a key follows from sections 1 to 5 without dates. Each part leaves out more, of which no
    condition of its keys is. The first one decides about `WHOLE`; the others hold where that is true.
    """
    if header.has_dates or header.time is None or not _is_known():
        return ()
    return tuple(_parts_2(field, header.time) if field.edition == 2 else _parts_1(field))


@cache
def _is_known() -> bool:
    version = eccodes_of().codes_get_api_version(int)
    return _KNOWN[0] <= version <= _KNOWN[1] and not any(name in os.environ for name in _OTHER_DEFINITIONS)


def _without(data: bytes, *places: slice) -> bytes:
    left = bytearray(data)
    for place in places:
        left[place] = bytes(place.stop - place.start)
    return bytes(left)


def _parts_2(field: Field, time: int) -> Iterator[Part]:
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
    yield Part((*_OF_ALL, QUALIFIER, "stepType", *steps), b"".join((b"\2S", structure, rest)))
    yield Part(_OF_LEVEL, b"".join((b"\2L", product[5:9], product[_LEVEL], run, local)))
    yield Part(_OF_MEMBER, b"".join((b"\2N", product[5:9], product[34:37] if member else b"", run, local)))
    is_any = types in ANY_VALUE_2 and int.from_bytes(identification[5:7], "big") not in WITH_CONDITIONS
    product = _without(product, *member, *(_VALUES if is_any else ()))
    end = interval_end(template)
    untimed = product[11:18] + (product[22:] if end is None else product[22:end] + product[end + 7 :])
    others = b"".join((b"\2P", product[:9], untimed, rest))
    values = field.discipline, *product[_PARAMETER]
    at = 16 + len(identification) + len(local) + len(grid) + _PARAMETER.start
    yield Part(_OF_PARAMETER, bytes(values) + others, Parameter(others, at, values))


def _parts_1(field: Field) -> Iterator[Part]:
    product, grid = field.sections[:2]
    centres = {product[4], product[25]}
    is_ecmwf = _ECMWF in centres and len(product) > 50
    member = _MEMBERS_1.get(product[_LABEL.start]) if is_ecmwf else None
    run = b"".join((product[3:8], product[25:26], len(product).to_bytes(3, "big")))
    label = run + product[_LABEL] if member is not None else run + product[_LABEL.start :]
    is_any = product[9] in ANY_VALUE_1 and not centres & WITH_CONDITIONS
    less = _without(product, *(() if member is None else (member,)), *((_VALUE_1,) if is_any else ()))
    yield Part(_OF_ALL, b"".join((b"\1S", less[:8], less[9:10], less[25:], grid)))
    yield Part(_OF_LEVEL, b"".join((b"\1L", product[9:12], label)))
    yield Part(_OF_MEMBER, b"".join((b"\1N", b"" if member is None else product[member], label)))
    yield Part((*_OF_PARAMETER, "stepType", STEP), b"".join((b"\1P", less[:12], less[17:24], less[25:], grid)))
