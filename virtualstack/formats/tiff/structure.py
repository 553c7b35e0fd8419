"""The structure of a TIFF file: its directories, and the values of their tags.

TIFF 6.0, section 2; BigTIFF has wider counts and offsets. Everything is checked against the size of the file, so a
wrong count in a damaged file cannot make an object larger than the file. Headers may be anywhere; they are fetched by
few requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.location import is_remote
from virtualstack.storage import Source

_LOCAL_READ_BYTES, _REMOTE_READ_BYTES = 1 << 14, 1 << 16
_MAX_READ_BYTES = 1 << 20
_MAX_KEPT_BYTES, _MAX_KEPT_READS = 1 << 26, 512
_SMALL_FILE_BYTES = 1 << 20


class PrefetchingSource:
    """A source that reads ahead; it reads longer ranges as long as each read follows the one before.

    Directories of a stack are usually in file order, close to each other or at equal distances. With equal distances,
    the positions of the next directories are guessed, and fetched together.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.size = source.size
        self._is_remote = is_remote(source.location.url)
        self._least = _REMOTE_READ_BYTES if self._is_remote else _LOCAL_READ_BYTES
        self._length = self._least
        self._reads: list[tuple[int, bytes]] = []
        self._kept = 0
        self._last = (0, b"")
        self._asked: list[int] = []

    def read(self, offset: int, length: int, /) -> bytes:
        """Return bytes, fewer only at the end of the file."""
        length = max(0, min(length, self.size - offset))
        begin, data = self._last
        if begin <= offset and offset + length <= begin + len(data):
            return data[offset - begin : offset - begin + length]
        for begin, data in reversed(self._reads):
            if begin <= offset and offset + length <= begin + len(data):
                self._last = (begin, data)
                return data[offset - begin : offset - begin + length]
        if not length:
            return b""
        self._fetch(offset, length)
        begin, data = self._last
        return data[offset - begin : offset - begin + length]

    def _fetch(self, offset: int, length: int) -> None:
        if self._is_remote and self.size <= _SMALL_FILE_BYTES:
            self._keep([(0, bytes(self.source.read(0, self.size)))])
            return
        begin, data = self._last
        near = begin <= offset <= begin + len(data) + self._length
        self._length = min(_MAX_READ_BYTES, 2 * self._length) if near and data else self._least
        ranges = [(offset, max(length, self._length))]
        if self._is_remote:
            ranges += self._guessed(offset, length)
        ranges = [(at, min(n, self.size - at)) for at, n in ranges]
        if len(ranges) == 1:
            found = [self.source.read(*ranges[0])]
        else:
            found = [bytes(x) for x in self.source.read_ranges(ranges)]
        self._keep([(at, bytes(x)) for (at, _), x in zip(ranges, found, strict=True)])
        self._last = self._reads[-len(ranges)]

    def _guessed(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Return the ranges of the next directories, if the last ones are at equal distances."""
        self._asked = [*self._asked[-2:], offset]
        if len(self._asked) < 3:
            return []
        first, second, third = self._asked
        step = third - second
        if step <= self._least or step != second - first:
            return []
        n = min(256, (self.size - 1 - third) // step)
        self._asked = [third + (n - 1) * step, third + n * step] if n else []
        return [(third + i * step, max(length, 4096)) for i in range(1, n + 1)]

    def _keep(self, reads: list[tuple[int, bytes]]) -> None:
        self._reads += reads
        self._kept += sum(len(data) for _, data in reads)
        while (self._kept > _MAX_KEPT_BYTES or len(self._reads) > _MAX_KEPT_READS) and len(self._reads) > len(reads):
            self._kept -= len(self._reads.pop(0)[1])
        self._last = self._reads[-1]


_MAX_DIRECTORIES = 1 << 20
_MAX_TAGS = 4096
_MAX_COMPARED_BYTES = 1 << 18

_TYPES: Mapping[int, str] = {
    1: "u1",
    2: "S1",
    3: "u2",
    4: "u4",
    5: "u4",  # a rational has two numbers
    6: "i1",
    7: "u1",
    8: "i2",
    9: "i4",
    10: "i4",  # a rational has two numbers
    11: "f4",
    12: "f8",
    13: "u4",
    16: "u8",
    17: "i8",
    18: "u8",
}
"""Dtypes of tags by their type."""

_SIZES = {code: np.dtype(name).itemsize * (2 if code in (5, 10) else 1) for code, name in _TYPES.items()}
_BIG = 43
_FIELDS = {42: ("H", "HHI4s", "I"), _BIG: ("Q", "HHQ8s", "Q")}
"""Number of entries, an entry and an offset by the version. The first offset begins at the byte of its own size."""

_INTEGERS = {3: 2, 4: 4, 16: 8}
_NOTHING = (0, 0, b"")

type Entry = tuple[int, int, bytes]
"""Type, count, and the bytes of the value or of its offset."""


@dataclass(frozen=True, slots=True)
class Directory:
    """One directory, which describes an image.

    Parameters
    ----------
    offset
        Position of the directory, in bytes.
    number
        Number in the chain, from 0. A directory below another one has the number of its parent.
    entries
        Entries by tag.
    following
        Offset of the next directory; 0 if there is none.
    """

    offset: int
    number: int
    entries: Mapping[int, Entry] = field(repr=False)
    following: int


class TiffStructure:
    """Reads directories and tags of a file."""

    def __init__(self, ahead: PrefetchingSource) -> None:
        self._ahead = ahead
        self.url, self.size = ahead.source.location.url, ahead.size
        head = ahead.read(0, 16)
        orders: dict[bytes, Literal["<", ">"]] = {b"II": "<", b"MM": ">"}
        order = orders.get(head[:2])
        if order is None or len(head) < 8:
            raise self.malformed("it has no TIFF header", 0)
        self.order: Literal["<", ">"] = order
        (version,) = Struct(f"{order}H").unpack_from(head, 2)
        if version not in _FIELDS:
            raise self.malformed(f"its version is {version}; TIFF has 42, BigTIFF 43", 2)
        if version == _BIG and (len(head) < 16 or Struct(f"{order}HH").unpack_from(head, 4) != (8, 0)):
            raise self.malformed("its offsets are not of 8 bytes, as those of BigTIFF are", 4)
        self._count, self._entry, self._offset = (Struct(order + fields) for fields in _FIELDS[version])
        (self.first,) = self._offset.unpack_from(head, self._offset.size)
        self._known: dict[int, Directory] = {}
        self._n_tags = 0
        self._dtypes = {code: np.dtype(name).newbyteorder(self.order) for code, name in _TYPES.items()}

    def malformed(self, what: str, offset: int | None = None, /) -> MalformedFileError:
        """Make the error for a file that contradicts itself."""
        return MalformedFileError(
            f"'{self.url}' is not a whole TIFF file: {what}. It is damaged or cut short",
            Remedy("fetch or write it again"),
            url=self.url,
            offset=offset,
        )

    def chain(self) -> Iterator[Directory]:
        """Yield the directories one after another."""
        if not self.first:
            raise self.malformed("it has no image", 4)
        offset, number = self.first, 0
        seen: set[int] = set()
        while offset:
            if offset in seen:
                raise self.malformed(f"directory {number} is the same as an earlier one, at byte {offset}", offset)
            seen.add(offset)
            if number == _MAX_DIRECTORIES:
                raise self.malformed(f"it has more than {_MAX_DIRECTORIES} directories", offset)
            directory = self.directory(offset, number)
            yield directory
            offset, number = directory.following, number + 1

    def directory(self, offset: int, number: int, /) -> Directory:
        """Read a directory, or return it from memory if it was read before: several tags may refer to it."""
        if offset in self._known:
            return self._known[offset]
        if len(self._known) >= _MAX_DIRECTORIES:
            raise self.malformed(f"it has more than {_MAX_DIRECTORIES} directories", offset)
        width, size = self._count.size, self._entry.size
        data = self._ahead.read(offset, width + 24 * size + self._offset.size)
        if len(data) < width:
            raise self.malformed(f"directory {number} begins at byte {offset} of {self.size}", offset)
        (count,) = self._count.unpack_from(data)
        if not 0 < count <= _MAX_TAGS:
            raise self.malformed(f"directory {number} has {count} tags", offset)
        self._n_tags += count
        if self._n_tags * size > self.size:
            raise self.malformed(f"directory {number} and those before have more tags than bytes: they overlap", offset)
        end = width + count * size
        if end + self._offset.size > len(data):
            data = self._ahead.read(offset, end + self._offset.size)
            if len(data) < end:
                raise self.malformed(f"directory {number}, of {count} tags from byte {offset} on, has no end", offset)
        entries = {code: (kind, n, value) for code, kind, n, value in self._entry.iter_unpack(data[width:end])}
        # the last offset may be missing if nothing follows
        following = self._offset.unpack_from(data, end)[0] if len(data) >= end + self._offset.size else 0
        found = self._known[offset] = Directory(offset, number, entries, following)
        return found

    def values(self, directory: Directory, code: int, /) -> NDArray[Any] | None:
        """Return the values of a tag; ``None`` if the tag is missing. Rationals are pairs, and text is bytes."""
        entry = directory.entries.get(code)
        if entry is None:
            return None
        dtype = self._dtypes.get(entry[0])
        if dtype is None:
            raise self.malformed(f"tag {code} of directory {directory.number} has type {entry[0]}", directory.offset)
        return np.frombuffer(self.raw(directory, code), dtype)

    def integer(self, directory: Directory, code: int, /) -> int | None:
        """Return a single unsigned number of 2, 4 or 8 bytes that is stored in the entry of a tag; else ``None``."""
        kind, count, value = directory.entries.get(code, _NOTHING)
        size = _INTEGERS.get(kind, 0)
        if count != 1 or not 0 < size <= len(value):
            return None
        return int.from_bytes(value[:size], "little" if self.order == "<" else "big")

    def key(self, directory: Directory, codes: frozenset[int], /) -> tuple[Any, ...]:
        """Return the tags of some codes that the directory has, with their types, counts and bytes of values."""
        width = self._offset.size
        found = []
        for code, entry in directory.entries.items():
            if code in codes:
                size = entry[1] * _SIZES.get(entry[0], 1)
                if size > _MAX_COMPARED_BYTES:
                    raise self.malformed(
                        f"tag {code} of directory {directory.number} has {size} bytes", directory.offset
                    )
                found.append((code, *entry) if size <= width else (code, *entry[:2], self.raw(directory, code)))
        return tuple(found)

    def raw(self, directory: Directory, code: int, /) -> bytes:
        """Return the bytes of the values of a tag that the directory has."""
        kind, count, value = directory.entries[code]
        size = count * _SIZES.get(kind, 1)
        if size <= len(value):
            return value[:size]
        (offset,) = self._offset.unpack(value)
        if offset + size > self.size:
            raise self.malformed(
                f"tag {code} of directory {directory.number} has {count} values from byte {offset} of {self.size} on",
                directory.offset,
            )
        return self._ahead.read(offset, size)

    def number(self, directory: Directory, code: int, default: int, /) -> int:
        """Return the first value of a tag of whole numbers."""
        values = self.values(directory, code)
        if values is None or not values.size:
            return default
        if values.dtype.kind not in "iu":
            raise self.malformed(f"tag {code} of directory {directory.number} is not a whole number", directory.offset)
        return int(values[0])

    def text(self, directory: Directory, code: int, /) -> str | None:
        """Return the text of a tag up to its first NUL; ``None`` if the tag is missing."""
        if code not in directory.entries:
            return None
        raw = self.raw(directory, code).partition(b"\0")[0]
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw.decode("latin-1")


def is_number(text: str, /) -> bool:
    """Return whether text of a file is a whole number of at most nine digits."""
    return text.isdecimal() and len(text) < 10


def read_xml(text: str | bytes, most: int, /) -> ElementTree.Element | str:
    """Parse XML of at most some bytes; return why not as half a sentence: entities may expand beyond all memory."""
    data = text if isinstance(text, bytes) else text.encode(errors="replace")
    if len(data) > most or b"<!" in data.replace(b"<!--", b""):
        return "which declares entities or is very long"
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        return f"which is not XML: {error}"
