"""Hold the records of a scan in columns: byte ranges of fields, keys of headers, and tables of many files.

This module also decides from headers which fields kerchunk's codec ``grib`` decodes to the same values as our codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import blake2b
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.errors import MalformedFileError, ManifestError
from virtualstack.formats.base import PARTS
from virtualstack.formats.grib.headers import GribHeader, has_endless_time, make_header
from virtualstack.formats.grib.keys import QUALIFIER, UNDEFINED, Asking
from virtualstack.formats.grib.messages import Field
from virtualstack.location import Location, Reads
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.cells import distinct_rows

_MISSING = 9999.0
_TOLERANCE = 1e-3  # part of the distance of two packed numbers; eccodes' rounding error is far smaller

_PACKING_2 = Struct(">fHHB")
_SIMPLE_2 = frozenset({0, 40, 41, 42})  # WMO FM 92 GRIB2 code table 5.0: simple, JPEG 2000, PNG, CCSDS
_SCANNING_2 = {0: 71, 1: 71, 2: 71, 3: 71, 10: 59, 20: 64, 30: 64, 40: 71, 41: 71, 42: 71, 43: 71, 90: 63}
"""Code table 3.1: offset of the scanning mode in the section of each grid."""
_COLUMNS, _ALTERNATE = 0x20, 0x10
_SPECTRAL_1, _COMPLEX_1, _MORE_1 = 0x80, 0x40, 0x10


def is_plain(field: Field, /) -> bool:
    """Return whether kerchunk's codec is known to decode a field to the right values."""
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
    """Return whether a packed number may mean 9999: (reference + packed * 2^binary) / 10^decimal."""
    if abs(binary) > 200 or abs(decimal) > 100 or bits > 32:
        return True
    packed = (_MISSING * 10.0**decimal - reference) / 2.0**binary
    nearest = round(packed) if abs(packed) < 2.0**40 else 0
    if not -1 <= nearest <= 2**bits or abs(packed) >= 2.0**40:
        return False
    return abs(packed - nearest) < _TOLERANCE


_FIELD = np.dtype(
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
"""A field: row of its header, number in its message, byte range, reference time in seconds since 1970, step in hours.

``described`` is the number of bytes that describe the grid. ``plain`` is true if kerchunk's codec returns the right
values.
"""

COMPUTED = frozenset({"time", "step", "valid_time"})
"""Keys of times that follow from ``time`` and ``step`` of fields."""

_NO_TIME = np.iinfo(np.int64).min
"""Value of ``time`` if a field has no time. The value of ``step`` if a field has no step is NaN."""


_PLAIN = "names", "headers", "stubs", "digests", "n_junk", "notes", "packing"
"""Fields of records that a group keeps as attributes."""

_LOCATION = tuple(x.name for x in fields(Location) if x.name not in {"checksums", "reads"})
"""Fields of a location but for objects: GRIB files have no ``checksums``, and the edges of ``reads`` are an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """All fields of one file; the object can be pickled."""

    location: Location
    names: tuple[str, ...]
    headers: tuple[tuple[Any, ...], ...]
    stubs: tuple[bytes, ...]
    digests: tuple[bytes, ...]
    fields: NDArray[np.void]
    n_junk: int = 0
    notes: tuple[str, ...] = ()
    packing: str = ""

    def to_group(self) -> ManifestGroup:
        """Return the records as a group, for code that keeps and sends groups only."""
        return ManifestGroup(
            arrays={},
            attributes={
                PARTS: "grib",
                "fields": self.fields.tobytes(),
                "location": {name: getattr(self.location, name) for name in _LOCATION},
                "reads": None if self.location.reads is None else self.location.reads.edges(),
                **{name: getattr(self, name) for name in _PLAIN},
            },
            url=self.location.url,
        )

    @classmethod
    def from_group(cls, group: ManifestGroup, /) -> Records:
        """Return the records of a group that :meth:`to_group` has made."""
        said = group.attributes
        if said.get(PARTS) != "grib":
            raise ManifestError(f"the group of '{group.url}' has no GRIB records")
        return cls(
            location=Location(**said["location"], reads=None if said["reads"] is None else Reads(said["reads"])),
            fields=np.frombuffer(said["fields"], _FIELD),
            **{name: said[name] for name in _PLAIN},
        )


def describe_fields(
    found: Iterable[Field], location: Location, names: tuple[str, ...], /, *, with_times: bool
) -> Records:
    """Read the keys of fields."""
    rows: dict[bytes, int] = {}
    headers: list[tuple[Any, ...]] = []
    stubs: list[bytes] = []
    columns: list[tuple[int, int, int, int, int, int, float, bool]] = []
    i_time, i_step = names.index("time"), names.index("step")
    asking = Asking(names)
    for message in found:
        header = make_header(message, with_times=with_times)
        row = rows.get(header.key)
        if row is None:
            row = rows[header.key] = len(headers)
            stubs.append(stub := message.stub())
            if with_times and has_endless_time(message):
                raise MalformedFileError(
                    f"'{location.url}' has a message at byte {message.offset} with a forecast time of more than ten "
                    "thousand years, or without a unit. Keys of times other than 'time' and 'step' cannot be computed",
                    url=location.url,
                    offset=message.offset,
                )
            headers.append(_keys(asking, message, header, stub, location))
        time, step = header.time, header.step
        if time is None:
            time = _NO_TIME if headers[row][i_time] == UNDEFINED else headers[row][i_time]
        if step is None:
            step = np.nan if headers[row][i_step] == UNDEFINED else headers[row][i_step]
        place = message.number, message.offset, message.length, message.described
        columns.append((row, *place, time, step, is_plain(message)))
    return Records(
        location=location,
        names=names,
        headers=tuple(headers),
        stubs=tuple(stubs),
        digests=tuple(blake2b(key, digest_size=16).digest() for key in rows),
        fields=np.array(columns, _FIELD),
    )


def _keys(asking: Asking, message: Field, header: GribHeader, stub: bytes, location: Location) -> tuple[Any, ...]:
    try:
        return asking.field_keys(message, header, stub)
    except import_eccodes().CodesInternalError as error:
        raise MalformedFileError(
            f"'{location.url}' has a message at byte {message.offset} that eccodes cannot interpret: {error}. "
            "Fetch it again",
            url=location.url,
            offset=message.offset,
        ) from error


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """One key of all fields.

    Parameters
    ----------
    codes
        Index into ``values`` for each field.
    values
        Distinct values of the key.
    """

    codes: NDArray[np.int64]
    values: list[Any]

    def distinct(self, rows: NDArray[np.int64], /) -> list[Any]:
        """Return the distinct values of some fields, in order of first occurrence."""
        if len(self.values) == 1 and len(rows):
            return list(self.values)
        codes, first = np.unique(self.codes[rows], return_index=True)
        return [self.values[code] for code in codes[np.argsort(first)]]


@dataclass(frozen=True, eq=False)
class FieldTable:
    """The fields of several files, in the order of the files."""

    names: tuple[str, ...]
    headers: list[tuple[Any, ...]]
    stubs: list[bytes]
    digests: list[bytes]
    fields: NDArray[np.void]
    sources: NDArray[np.int64]
    locations: tuple[Location, ...]
    packings: tuple[str, ...]
    _columns: dict[str, Column] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_records(cls, parts: Sequence[Records], names: tuple[str, ...], /) -> FieldTable:
        """Make one table of the records of several files."""
        rows: dict[bytes, int] = {}
        headers: list[tuple[Any, ...]] = []
        stubs: list[bytes] = []
        fields = np.frombuffer(bytearray().join(part.fields.tobytes() for part in parts), _FIELD)
        known: dict[tuple[bytes, ...], NDArray[np.uint32]] = {}
        begin = 0
        for part in parts:
            if part.digests not in known:  # parts that a template describes have the same
                for i, digest in enumerate(part.digests):
                    if rows.setdefault(digest, len(rows)) == len(stubs):
                        stubs.append(part.stubs[i])
                        headers.append(part.headers[i])
                known[part.digests] = np.array([rows[digest] for digest in part.digests], np.uint32)
            end = begin + len(part.fields)
            fields["header"][begin:end] = known[part.digests][part.fields["header"]]
            begin = end
        return cls(
            names=names,
            headers=headers,
            stubs=stubs,
            digests=list(rows),
            fields=fields,
            sources=np.repeat(np.arange(len(parts)), [len(part.fields) for part in parts]),
            locations=tuple(part.location for part in parts),
            packings=tuple(part.packing for part in parts),
        )

    @property
    def url(self) -> str | None:
        """URL of the file; ``None`` if there are several."""
        return self.locations[0].url if len(self.locations) == 1 else None

    @property
    def files(self) -> str:
        """The file, or files, in words."""
        return "these files" if self.url is None else f"'{self.url}'"

    def column(self, name: str, /) -> Column:
        """Return the values of a key."""
        if name not in self._columns:
            self._columns[name] = self._times(name) if name in COMPUTED else self._key(name)
        return self._columns[name]

    def _key(self, name: str) -> Column:
        if name not in self.names:
            raise KeyError(name)
        at = self.names.index(name)
        values: dict[Any, int] = {}
        # 1, 1.0 and True are one key of a dict, but not one value of an attribute
        codes = [values.setdefault((type(header[at]), header[at]), len(values)) for header in self.headers]
        return Column(np.array(codes, np.int64)[self.fields["header"]], [value for _, value in values])

    def _times(self, name: str) -> Column:
        if name == "valid_time":
            time, step = self.fields["time"], self.fields["step"]
            if (time == _NO_TIME).any() or np.isnan(step).any():
                return self._key(name)
            distinct, codes = np.unique(time + np.rint(step * 3600).astype(np.int64), return_inverse=True)
            return Column(codes.astype(np.int64), distinct.tolist())
        distinct, codes = np.unique(self.fields[name], return_inverse=True)
        none = distinct == _NO_TIME if name == "time" else np.isnan(distinct)
        values = [UNDEFINED if is_none else value for value, is_none in zip(distinct.tolist(), none, strict=True)]
        return Column(codes.astype(np.int64), values)

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """Number of the entry of each field in cfgrib's index: fields with equal keys and times are one entry."""
        values: dict[Any, int] = {}
        # cfgrib does not know the qualifier; times come from the fields, whether or not their headers have them
        at = [i for i, name in enumerate(self.names) if name not in (QUALIFIER, "time", "step")]
        of_header = [values.setdefault(tuple(repr(row[i]) for i in at), len(values)) for row in self.headers]
        step = np.where(np.isnan(self.fields["step"]), -np.inf, self.fields["step"])
        keys = np.array(of_header, np.int64)[self.fields["header"]]
        first, inverse = distinct_rows([keys, self.fields["time"], step])
        return np.argsort(np.argsort(first))[inverse].astype(np.int64)

    def selected(self, wanted: Mapping[str, Any], /) -> NDArray[np.int64]:
        """Return the rows of fields whose keys have the given values, or one of several given values."""
        keep = np.ones(len(self.fields), bool)
        for name, value in wanted.items():
            column = self.column(name)
            these = value if isinstance(value, list | tuple | set | frozenset | range) else (value,)
            keep &= np.array([x in these for x in column.values], bool)[column.codes]
        return np.flatnonzero(keep)
