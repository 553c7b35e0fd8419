"""What a scan finds in a file, in columns: where each field lies, and the keys of each header.

Headers also tell which fields the codec ``grib`` of kerchunk decodes as ours does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from hashlib import blake2b
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.errors import MalformedFileError, ManifestError
from virtualstack.formats.base import PARTS
from virtualstack.formats.grib.headers import GribHeader, has_endless_time, make_header
from virtualstack.formats.grib.keys import UNDEFINED, Asking
from virtualstack.formats.grib.messages import Field
from virtualstack.location import Location
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.inline import inline_array

__all__ = ["FIELD", "NO_TIME", "Records", "describe_fields", "is_plain"]

_MISSING = 9999.0
_TOLERANCE = 1e-3  # of the distance of two packed numbers; eccodes' arithmetic is off by far less

_PACKING_2 = Struct(">fHHB")
_SIMPLE_2 = frozenset({0, 40, 41, 42})  # WMO FM 92 GRIB2 code table 5.0: simple, JPEG 2000, PNG, CCSDS
_SCANNING_2 = {0: 71, 1: 71, 2: 71, 3: 71, 10: 59, 20: 64, 30: 64, 40: 71, 41: 71, 42: 71, 43: 71, 90: 63}
"""Code table 3.1: where a grid has its scanning mode, in its section."""
_COLUMNS, _ALTERNATE = 0x20, 0x10
_SPECTRAL_1, _COMPLEX_1, _MORE_1 = 0x80, 0x40, 0x10


def is_plain(field: Field, /) -> bool:
    """Tell whether kerchunk's codec is known to decode a field rightly."""
    return field.is_whole and (_is_plain_2(field) if field.edition == 2 else _is_plain_1(field))


def _is_plain_2(field: Field) -> bool:
    _, _, grid, _, packing = field.sections
    at = _SCANNING_2.get(int.from_bytes(grid[12:14], "big"))
    if at is None or len(grid) <= at or grid[at] & (_COLUMNS | _ALTERNATE) or len(packing) < 20:
        return False
    if int.from_bytes(packing[9:11], "big") not in _SIMPLE_2:
        return False
    reference, binary, decimal, bits = _PACKING_2.unpack_from(packing, 11)
    return not _reaches(reference, _signed(binary), _signed(decimal), bits)


def _is_plain_1(field: Field) -> bool:
    product, grid, _, data, _ = field.sections
    if data[3] & (_SPECTRAL_1 | _COMPLEX_1 | _MORE_1) or len(grid) < 28 or grid[27] & _COLUMNS:
        return False
    mantissa = int.from_bytes(data[7:10], "big")
    reference = (-1.0 if data[6] & 0x80 else 1.0) * mantissa * 16.0 ** ((data[6] & 0x7F) - 70)  # IBM's floats
    binary, decimal = int.from_bytes(data[4:6], "big"), int.from_bytes(product[26:28], "big")
    return not _reaches(reference, _signed(binary), _signed(decimal), data[10])


def _signed(number: int) -> int:
    """Read two bytes of sign and magnitude."""
    return -(number & 0x7FFF) if number & 0x8000 else number


def _reaches(reference: float, binary: int, decimal: int, bits: int) -> bool:
    """Tell whether a packed number may stand for 9999: (reference + packed * 2^binary) / 10^decimal."""
    if abs(binary) > 200 or abs(decimal) > 100 or bits > 32:
        return True
    packed = (_MISSING * 10.0**decimal - reference) / 2.0**binary
    nearest = round(packed) if abs(packed) < 2.0**40 else 0
    if not -1 <= nearest <= 2**bits or abs(packed) >= 2.0**40:
        return False
    return abs(packed - nearest) < _TOLERANCE


FIELD = np.dtype(
    [
        ("header", "<u4"),
        ("number", "<u4"),
        ("offset", "<i8"),
        ("length", "<i8"),
        ("described", "<i8"),
        ("time", "<i8"),
        ("step", "<f8"),
        ("plain", "?"),
    ]
)
"""A field: row of its header, number in its message, bytes; reference time in seconds since 1970, step in hours.

``plain`` tells whether kerchunk's codec is right, too.
"""

_FIELDS = "fields"

NO_TIME = np.iinfo(np.int64).min
"""A time that is none; a step that is none is NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All fields of one file; it pickles.

    Parameters
    ----------
    location
        Of the file.
    names
        Keys that were asked for.
    headers
        Values of the keys, a row for each header that occurs.
    stubs
        A message without data of the first field with each header.
    digests
        Of each header, times apart: equal ones are equal headers.
    fields
        In the order of the file, of dtype `FIELD`.
    n_junk
        Bytes that belong to no message.
    notes
        What there is to say about the index of the file.
    """

    location: Location
    names: tuple[str, ...]
    headers: tuple[tuple[Any, ...], ...]
    stubs: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    fields: NDArray[np.void]
    n_junk: int = 0
    notes: tuple[str, ...] = ()

    def to_group(self) -> ManifestGroup:
        """Give the records as a group, for who keeps and sends groups alone."""
        return ManifestGroup(
            arrays={_FIELDS: inline_array(self.fields, name=f"/{_FIELDS}", dims=[_FIELDS], attributes={})},
            attributes={
                PARTS: "grib",
                "location": [getattr(self.location, x.name) for x in fields(Location) if x.name != "checksums"],
                "names": self.names,
                "headers": self.headers,
                "stubs": self.stubs,
                "digests": self.digests,
                "n_junk": self.n_junk,
                "notes": self.notes,
            },
            url=self.location.url,
        )

    @classmethod
    def from_group(cls, group: ManifestGroup, /) -> Records:
        """Take the records out of a group that :meth:`to_group` has made.

        Raises
        ------
        ManifestError
            It is none.
        """
        said = group.attributes
        if said.get(PARTS) != "grib":
            raise ManifestError(f"the group of '{group.url}' holds no records of GRIB")
        manifest = group.arrays[_FIELDS].in_memory()
        return cls(
            location=Location(*said["location"]),
            names=tuple(said["names"]),
            headers=tuple(tuple(header) for header in said["headers"]),
            stubs=tuple(said["stubs"]),
            digests=tuple(said["digests"]),
            fields=np.frombuffer(manifest.inline, FIELD),
            n_junk=said["n_junk"],
            notes=tuple(said["notes"]),
        )


def describe_fields(
    found: Iterable[Field], location: Location, names: tuple[str, ...], /, *, with_times: bool
) -> Records:
    """Ask for the keys of fields.

    Parameters
    ----------
    found
        In the order of the file.
    location
        Of the file.
    names
        Of the keys, ``"time"`` and ``"step"`` among them.
    with_times
        Whether keys other than these two depend on times.

    Raises
    ------
    MalformedFileError
        eccodes can make nothing of a header, or would count time for ever.
    """
    rows: dict[bytes, int] = {}
    headers: list[tuple[Any, ...]] = []
    stubs: list[bytes] = []
    columns: list[tuple[int, int, int, int, int, int, float, bool]] = []
    i_time, i_step = names.index("time"), names.index("step")
    asking = Asking(names)
    for field in found:
        header = make_header(field, with_times=with_times)
        row = rows.get(header.key)
        if row is None:
            row = rows[header.key] = len(headers)
            stubs.append(stub := field.stub())
            if with_times and has_endless_time(field):
                raise MalformedFileError(
                    f"'{location.url}' has a message at byte {field.offset} with a forecast time of more than ten "
                    "thousand years, or without a unit; keys that depend on times other than 'time' and 'step' cannot "
                    "be had",
                    url=location.url,
                    offset=field.offset,
                )
            headers.append(_keys(asking, field, header, stub, location))
        time, step = header.time, header.step
        if time is None:
            time = _number(headers[row][i_time], NO_TIME)
        if step is None:
            step = _number(headers[row][i_step], np.nan)
        columns.append(
            (
                row,
                field.number,
                field.offset,
                field.length,
                field.described,
                time,
                step,
                is_plain(field),
            )
        )
    return Records(
        location=location,
        names=names,
        headers=tuple(headers),
        stubs=tuple(stubs),
        digests=tuple(blake2b(key, digest_size=16).digest() for key in rows),
        fields=np.array(columns, FIELD),
    )


def _keys(asking: Asking, field: Field, header: GribHeader, stub: bytes, location: Location) -> tuple[Any, ...]:
    try:
        return asking.field_keys(field, header, stub)
    except import_eccodes().CodesInternalError as error:
        raise MalformedFileError(
            f"'{location.url}' has a message at byte {field.offset} that eccodes cannot make out: {error}. "
            "Fetch it again",
            url=location.url,
            offset=field.offset,
        ) from error


def _number(value: Any, otherwise: Any) -> Any:
    return otherwise if value == UNDEFINED else value
