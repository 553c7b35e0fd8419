"""The objects of an HDF4 file: data descriptors, groups, tables and attributes.

The rules are those of the "HDF Specification and Developer's Guide" 4.2, chapters 2, 3, 9 and 10.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.base import contradiction
from virtualstack.storage import Source

NT, LINKED, COMPRESSED, CHUNK, SDD, SD, NDG, VH, VS, VG = 106, 20, 40, 61, 701, 702, 720, 1962, 1963, 1965
"""Tags."""

_MAGIC = b"\x0e\x03\x13\x01"
_MAX_BLOCKS = 1 << 16
_MAX_ELEMENT_BYTES = 1 << 26
_SPECIAL = 0x4000
_NOTHING = 0xFFFFFFFF
_DESCRIPTOR = np.dtype([("tag", ">u2"), ("ref", ">u2"), ("offset", ">u4"), ("length", ">u4")])

# chapter 9, number types; text is 4
_TYPES = {
    3: "u1", 4: "S1", 5: "f4", 6: "f8", 20: "i1", 21: "u1", 22: "i2", 23: "u2", 24: "i4", 25: "u4", 26: "i8", 27: "u8",
}  # fmt: skip
_LITTLE = 0x4000
_TEXT = (3, 4)


class NotReadError(Exception):
    """An object has a feature that is not read; the message names it."""


@dataclass(frozen=True, slots=True)
class Element:
    """The bytes of an object, or of the header of a special object."""

    offset: int
    length: int
    is_special: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A Vgroup: tags and references of its members in order."""

    name: str
    kind: str
    members: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Table:
    """The header of a Vdata: name, class, rows, and the type and number of values of its first field."""

    name: str
    kind: str
    n_rows: int
    type: int
    order: int


class HDF4File:
    """A file whose data descriptors are in memory."""

    def __init__(self, source: Source, /) -> None:
        self.source, self.url = source, source.location.url
        if source.read(0, min(4, source.size)) != _MAGIC:
            self.fail("it does not begin with the signature of HDF4")
        parts: list[NDArray[np.void]] = []
        at = 4
        for _ in range(_MAX_BLOCKS):
            n, following = struct.unpack(">HI", self.read(at, 6))
            parts.append(np.frombuffer(self.read(at + 6, n * _DESCRIPTOR.itemsize), _DESCRIPTOR))
            if not following:
                break
            at = following
        else:
            self.fail(f"its list of data descriptors leads back into itself, or is longer than {_MAX_BLOCKS} blocks")
        self.table = np.concatenate(parts)
        tags = self.table["tag"].astype(np.int64)
        self._keys = ((tags & ~_SPECIAL) << 16) | self.table["ref"]
        self._order = np.argsort(self._keys, kind="stable")

    def read(self, offset: int, length: int) -> bytes:
        """Read bytes that must be in the file."""
        if length > _MAX_ELEMENT_BYTES or offset + length > self.source.size:
            self.fail(f"{length} bytes at offset {offset} are not in its {self.source.size} bytes")
        return self.source.read(offset, length)

    def rows(self, tag: int, refs: NDArray[Any]) -> NDArray[np.intp]:
        """Return the rows of descriptors in the table, or -1."""
        keys = (tag << 16) | refs.astype(np.int64)
        at = np.searchsorted(self._keys, keys, sorter=self._order)
        found = self._order[np.minimum(at, self._order.size - 1)]
        return np.where(self._keys[found] == keys, found, -1)

    def find(self, tag: int, ref: int) -> Element | None:
        """Return an object; ``None`` if it does not exist or has no bytes yet."""
        row = int(self.rows(tag, np.array([ref]))[0]) if self.table.size else -1
        if row < 0:
            return None
        stored, _, offset, length = self.table[row].tolist()
        return None if _NOTHING in (offset, length) else Element(offset, length, bool(stored & _SPECIAL))

    def refs(self, tag: int) -> list[int]:
        """Return the references of all objects with a tag."""
        found: list[int] = self.table["ref"][(self._keys >> 16) == tag].tolist()
        return found

    def bytes_of(self, tag: int, ref: int) -> bytes:
        """Read an object, which may be in linked blocks."""
        element = self.find(tag, ref)
        if element is None:
            self.fail(f"it has no object {tag}/{ref}, to which another object refers")
        if not element.is_special:
            return self.read(element.offset, element.length)
        return b"".join(self.read(x.offset, x.length) for x in self.linked(element))

    def linked(self, element: Element) -> list[Element]:
        """Return the blocks of an object in linked blocks (chapter 10)."""
        code, length, _, n, ref = struct.unpack(">HIIIH", self.read(element.offset, 16))
        if code != 1:
            raise NotReadError(f"it is stored as a special element of kind {code}")
        found: list[Element] = []
        seen: set[int] = set()
        is_ended = False
        while ref:
            table = self.find(LINKED, ref)
            if table is None or table.is_special or table.length < 2 + 2 * n or ref in seen:
                self.fail("a table of linked blocks does not exist, is cut short or leads back into itself")
            seen.add(ref)
            ref, *blocks = struct.unpack(f">H{n}H", self.read(table.offset, 2 + 2 * n))
            for number in blocks:
                part = self.find(LINKED, number)
                if number == 0 or length <= 0:  # the rest was not written
                    is_ended = True
                elif part is None or part.is_special or is_ended:
                    self.fail(f"the linked block {number} does not exist, or is behind one that does not")
                else:
                    found.append(Element(part.offset, min(part.length, length), False))
                    length -= part.length
        return found

    def group(self, ref: int) -> Group:
        """Parse a Vgroup."""
        fields = _Fields(self, self.bytes_of(VG, ref))
        n = fields.number()
        tags, refs = fields.numbers(n), fields.numbers(n)
        return Group(fields.text(), fields.text(), list(zip(tags, refs, strict=True)))

    def vdata(self, ref: int) -> Table:
        """Parse the header of a Vdata."""
        fields = _Fields(self, self.bytes_of(VH, ref))
        fields.number()
        n_rows = (fields.number() << 16) | fields.number()
        fields.number()
        n = fields.number()
        types, _, _, orders = (fields.numbers(n) for _ in range(4))
        for _ in range(n):
            fields.text()
        return Table(fields.text(), fields.text(), n_rows, types[0] if n else 0, orders[0] if n else 0)

    def attribute(self, ref: int) -> tuple[str, Any] | None:
        """Return name and value of a Vdata that is an attribute; ``None`` for others."""
        table = self.vdata(ref)
        if table.kind != "Attr0.0":
            return None
        dtype = number_type(table.type & 0xFF, is_little=bool(table.type & _LITTLE))
        raw = self.bytes_of(VS, ref)
        n = max(table.n_rows, 1) * table.order
        if len(raw) < n * dtype.itemsize:
            self.fail(f"the attribute '{table.name}' is cut short")
        if table.type & 0xFF in _TEXT:
            return table.name, raw[:n].rstrip(b"\0").decode("utf-8", "replace")
        values = np.frombuffer(raw, dtype, n).astype(dtype.newbyteorder("="))
        return table.name, values[0] if n == 1 else values

    def fail(self, what: str) -> NoReturn:
        """Raise an error that names the contradiction."""
        raise contradiction(self.url, "an HDF4", what)


class _Fields:
    """A position in the bytes of an object."""

    def __init__(self, file: HDF4File, data: bytes) -> None:
        self._file, self._data, self._at = file, data, 0

    def numbers(self, n: int) -> list[int]:
        begin, self._at = self._at, self._at + 2 * n
        if self._at > len(self._data):
            self._file.fail("a description of an object is cut short")
        return list(struct.unpack(f">{n}H", self._data[begin : self._at]))

    def number(self) -> int:
        return self.numbers(1)[0]

    def text(self) -> str:
        length = self.number()
        begin, self._at = self._at, self._at + length
        if self._at > len(self._data):
            self._file.fail("a name is cut short")
        return self._data[begin : self._at].split(b"\0")[0].decode("utf-8", "replace")


def number_type(code: int, /, *, is_little: bool) -> np.dtype[Any]:
    """Return a data type by its number."""
    if code not in _TYPES:
        raise NotReadError(f"it has numbers of type {code}")
    return np.dtype(_TYPES[code]).newbyteorder("<" if is_little else ">")
