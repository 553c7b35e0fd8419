"""The header of a netCDF-3 file, parsed to dimensions, attributes and variables as the format defines them.

The rules are those of "The NetCDF Classic Format Specification" (NetCDF User's Guide, appendix B), here called CDF.
CDF-1, CDF-2 and CDF-5 have the same grammar, except for the widths of numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from virtualstack.errors import MalformedFileError, Remedy, UnsupportedFeatureError
from virtualstack.formats.base import contradiction

MAX_HEADER_BYTES = 1 << 26
"""Maximum bytes of a header; a header of 100,000 variables takes about 30 MB."""

_FIRST_READ_BYTES = 1 << 16

# CDF, "nc_type": numbers start at 1; numbers from 7 on exist only in CDF-5
_DTYPES = tuple(np.dtype(code) for code in ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8"))
_N_CLASSIC_TYPES = 6
_CHAR_TYPE = 2

# CDF, "NC_DIMENSION", "NC_VARIABLE", "NC_ATTRIBUTE"; ABSENT is a tag of 0 with a length of 0
_TAGS = {"dimensions": 10, "variables": 11, "attributes": 12}
_TAG = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetCDF3Dimension:
    """A dimension."""

    name: str
    length: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetCDF3Variable:
    """A variable without its ``vsize``, which follows from the other fields and which some writers get wrong."""

    name: str
    dimensions: tuple[int, ...]
    attributes: Mapping[str, Any]
    dtype: np.dtype[Any]
    begin: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetCDF3Header:
    """Content of the header of a file."""

    url: str
    n_records: int | None
    dimensions: tuple[NetCDF3Dimension, ...]
    attributes: Mapping[str, Any]
    variables: tuple[NetCDF3Variable, ...]
    length: int


def malformed(url: str, what: str, offset: int | None = None, /, *remedies: Remedy) -> MalformedFileError:
    """Make an error that names the contradiction with the format and its position."""
    where = "" if offset is None else f" (at offset {offset})"
    return contradiction(url, "a netCDF-3", f"{what}{where}", *remedies, offset=offset)


def read_header(read: Callable[[int, int], bytes], size: int, url: str, /) -> NetCDF3Header:
    """Read and parse the header: first 64 KiB, then twice as much each time that the header is longer."""
    return _Parser(read, size, url).header()


class _Parser:
    """A position in the header, whose bytes are fetched on demand."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, url: str) -> None:
        self._read, self._size, self._url = read, size, url
        self._data, self._at = b"", 0
        # CDF, "NON_NEG": 4 bytes, 8 in CDF-5; "OFFSET": 4 bytes in CDF-1, 8 in the others
        self._count, self._offset = struct.Struct(">I"), struct.Struct(">i")
        self._n_types = _N_CLASSIC_TYPES

    def header(self) -> NetCDF3Header:
        # CDF, "header": magic, numrecs, dim_list, gatt_list, var_list
        magic = self._take(4)
        if magic[:3] != b"CDF" or magic[3] not in (1, 2, 5):
            self._fail(f"it begins with the bytes {magic.hex(' ')}, not with 'CDF' and 1, 2 or 5", 0)
        if magic[3] != 1:
            self._offset = struct.Struct(">q")
        if magic[3] == 5:
            self._count, self._n_types = struct.Struct(">Q"), len(_DTYPES)
        n_records = self._number(self._count)
        is_streaming = n_records == (1 << 8 * self._count.size) - 1
        if n_records >= 1 << 63 and not is_streaming:
            self._fail(f"it says that it has {n_records} records")
        dimensions = self._dimensions()
        attributes = self._attributes()
        return NetCDF3Header(
            url=self._url,
            n_records=None if is_streaming else n_records,
            dimensions=dimensions,
            attributes=attributes,
            variables=self._variables(len(dimensions)),
            length=self._at,
        )

    # -- lists ------------------------------------------------------------------------------------------------

    def _dimensions(self) -> tuple[NetCDF3Dimension, ...]:
        found: dict[str, NetCDF3Dimension] = {}
        for _ in range(self._n_elements("dimensions")):
            name = self._unique_name("dimension", found)
            length = self._number(self._count)
            if length >= 1 << 63:
                self._fail(f"the dimension '{name}' has {length} elements")
            found[name] = NetCDF3Dimension(name=name, length=length or None)
        record = [dimension.name for dimension in found.values() if dimension.length is None]
        if len(record) > 1:  # CDF, "dim_length": there can be at most one record dimension
            self._fail(f"it has two record dimensions, '{record[0]}' and '{record[1]}'; netCDF-3 has one at most")
        return tuple(found.values())

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self._n_elements("attributes")):
            name = self._unique_name("attribute", found)
            kind = self._type()
            n_values = self._number(self._count)
            raw = self._take_padded(n_values * _DTYPES[kind - 1].itemsize)
            found[name] = _attribute(name, kind, raw)
        return found

    def _variables(self, n_dimensions: int) -> tuple[NetCDF3Variable, ...]:
        found: dict[str, NetCDF3Variable] = {}
        for _ in range(self._n_elements("variables")):
            name = self._unique_name("variable", found)
            n_axes = self._number(self._count)
            raw = self._take(n_axes * self._count.size)
            dimensions = struct.unpack(f">{n_axes}{self._count.format[-1]}", raw)
            if any(number >= n_dimensions for number in dimensions):
                self._fail(f"the variable '{name}' has the dimensions {dimensions}, of {n_dimensions}")
            attributes = self._attributes()
            dtype = _DTYPES[self._type() - 1]
            self._take(self._count.size)  # vsize
            begin = self._number(self._offset)
            found[name] = NetCDF3Variable(
                name=name, dimensions=dimensions, attributes=attributes, dtype=dtype, begin=begin
            )
        return tuple(found.values())

    def _n_elements(self, what: str) -> int:
        tag, n = self._number(_TAG), self._number(self._count)
        if n == 0 and tag in (0, _TAGS[what]):
            return 0
        if tag != _TAGS[what]:
            self._fail(f"its list of {what} has the tag {tag}, not {_TAGS[what]}")
        if n > (self._size - self._at) // (3 * self._count.size):  # an element has a name of 4 bytes or more
            self._fail(f"it says that it has {n} {what}, more than its {self._size} bytes can hold")
        return n

    # -- values -----------------------------------------------------------------------------------------------

    def _unique_name(self, what: str, taken: Mapping[str, object]) -> str:
        start = self._at
        raw = self._take_padded(self._number(self._count))
        name = _text(raw.split(b"\0")[0])  # netCDF-C renames in place, and leaves NULs after the shorter name
        if not name:
            self._fail(f"a {what} has no name", start)
        if name in taken:
            self._fail(f"two {what}s have the name '{name}'", start)
        return name

    def _type(self) -> int:
        kind = self._number(_TAG)
        if not 1 <= kind <= self._n_types:
            self._fail(f"there is no type {kind}; this version of the format has 1 to {self._n_types}")
        return kind

    def _number(self, form: struct.Struct) -> int:
        return int(form.unpack(self._take(form.size))[0])

    def _take_padded(self, n: int) -> bytes:
        # CDF, "padding": to the next multiple of 4 bytes, also in CDF-5. Any padding is accepted, as in netCDF-C.
        return self._take(n + -n % 4)[:n]

    def _take(self, n: int) -> bytes:
        start, end = self._at, self._at + n
        if end > len(self._data):
            self._fetch(end)
        self._at = end
        return self._data[start:end]

    def _fetch(self, end: int) -> None:
        if end > self._size:
            self._fail(f"its header reaches to offset {end} or further, but it has {self._size} bytes")
        if end > MAX_HEADER_BYTES:
            raise UnsupportedFeatureError(
                f"'{self._url}' has a header of {end} bytes or more, and at most {MAX_HEADER_BYTES} are read. If it is "
                "not damaged, write it again with shorter attributes",
                url=self._url,
                feature="length of the header",
            )
        first = len(self._data)
        last = min(self._size, max(end, 2 * first, _FIRST_READ_BYTES))
        self._data += self._read(first, last - first)

    def _fail(self, what: str, offset: int | None = None) -> NoReturn:
        raise malformed(self._url, what, self._at if offset is None else offset)


def _text(raw: bytes) -> str:
    """Read text as UTF-8, else as Latin-1, so that no letter is lost: older files have any encoding."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _attribute(name: str, kind: int, raw: bytes) -> Any:
    """Return a value as netCDF4-python does: text is `str` (bytes for ``_FillValue``), and one number is a scalar."""
    if kind == _CHAR_TYPE:
        return raw if name == "_FillValue" else _text(raw.replace(b"\0", b""))
    stored = np.frombuffer(raw, _DTYPES[kind - 1])
    values = stored.astype(stored.dtype.newbyteorder("="))
    return values[0] if values.size == 1 else values
