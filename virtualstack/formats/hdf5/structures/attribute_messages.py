"""Parse the attributes of an object as stored: name, datatype, dataspace, and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from virtualstack.formats.hdf5.structures.datatype_message import Datatype, parse_datatype
from virtualstack.formats.hdf5.structures.heaps import read_dense
from virtualstack.formats.hdf5.structures.messages import parse_dataspace, parse_shared
from virtualstack.formats.hdf5.structures.object_header import Message, read_object_header
from virtualstack.formats.hdf5.structures.requests import (
    Fields,
    Parse,
    StructureError,
    Widths,
    check,
    compiled,
    unsigned,
)
from virtualstack.formats.hdf5.structures.superblock import Superblock

_DATATYPE, _ATTRIBUTE, _ATTRIBUTE_INFO = 0x03, 0x0C, 0x15
_MAX_CACHED_BYTES = 1024
_BY_NAME = 8  # B-tree version 2, type of records: identifier in the heap, message flags, order of creation, hash


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttributeMessage:
    """An attribute as stored, or why it cannot be read; equal attributes of an archive are usually one object."""

    name: bytes
    datatype: Datatype
    shape: tuple[int, ...] | None
    data: bytes
    fault: str = ""


def read_attributes(messages: Sequence[Message], superblock: Superblock) -> Parse[Sequence[AttributeMessage]]:
    """Read the attributes of an object in order of creation if it is tracked, else as stored, or by name."""
    stored, heaps = [], []
    for kind, is_shared, body, order in messages:
        if kind in (_ATTRIBUTE, _ATTRIBUTE_INFO):
            check(not is_shared, "an attribute is shared")
            if kind == _ATTRIBUTE:
                stored.append((order, body))
            else:
                heaps.append(body)
    is_by_name = False
    for body in heaps:
        dense = yield from _read_dense(body, superblock)
        is_by_name = bool(dense) and not body[1] & 1
        stored += dense
    stored.sort(key=itemgetter(0))
    attributes: list[AttributeMessage] = []
    for _, body in stored:
        if len(body) <= _MAX_CACHED_BYTES and body[1:2] in (b"\0", b"\2"):
            attributes.append(_cached(body, superblock.widths.length))
        else:
            attributes.append((yield from _parse(body, superblock)))
    check(len({x.name for x in attributes}) == len(attributes), "two attributes of an object have one name")
    # without order of creation, a heap orders attributes by a hash of their names
    return tuple(sorted(attributes, key=lambda attribute: attribute.name) if is_by_name else attributes)


def _read_dense(body: bytes, superblock: Superblock) -> Parse[Sequence[tuple[int, bytes]]]:
    """Read the order and the message of each attribute in a fractal heap (HDF5 spec IV.A.2.v)."""
    check(unsigned(body, 0, 2) < 0x400 and not body[0], f"attribute info {body[:2].hex()} is not known")
    records, heap = yield from read_dense(body, 2 + (2 if body[1] & 1 else 0), superblock, kind=_BY_NAME)
    check(not any(unsigned(record, 8, 1) & 2 for record in records), "an attribute is shared")
    return [(unsigned(record, 9, 4), heap.object(record[:8])) for record in records]


class _Parts(NamedTuple):
    """The parts of an attribute message."""

    name: bytes
    datatype: bytes
    space: bytes
    rest: bytes
    is_committed: bool


def _parse(body: bytes, superblock: Superblock) -> Parse[AttributeMessage]:
    """Parse an attribute message (HDF5 spec IV.A.2.m)."""
    parts = _split(body)
    datatype = yield from read_datatype(parts.datatype, superblock, is_shared=parts.is_committed)
    return _attribute(parts, datatype, superblock.widths.length)


@lru_cache(maxsize=4096)
def _cached(body: bytes, width: int) -> AttributeMessage:
    """Parse an attribute with a datatype that is not committed; objects and files share many such attributes."""
    parts = _split(body)
    return _attribute(parts, parse_datatype(parts.datatype), width)


def _split(body: bytes) -> _Parts:
    fields = Fields(body, "an attribute")
    version, flags, *sizes = fields.unpack("BB3H")
    check(
        version in (1, 2, 3) and (flags < 4 or version == 1),
        f"version {version} of an attribute, flags {flags:#x}, is not known",
    )
    check(version == 1 or not flags & 2, "a dataspace is shared")
    if version == 3:
        fields.take(1)  # the character set of the name
    parts = []
    for size in sizes:
        parts.append(fields.take(size))
        if version == 1:
            fields.take(-size % 8)
    name, nul, behind = parts[0].partition(b"\0")
    check(bool(nul) and not behind, f"the name of an attribute is not {sizes[0]} bytes long with its NUL")
    return _Parts(name, parts[1], parts[2], fields.rest, version > 1 and bool(flags & 1))


def _attribute(parts: _Parts, datatype: Datatype, width: int) -> AttributeMessage:
    shape = parse_dataspace(parts.space, Widths(length=width)).shape
    n_bytes = 0 if shape is None else math.prod(shape) * datatype.size
    check(n_bytes <= len(parts.rest), "an attribute ends before its values do")
    return AttributeMessage(name=parts.name, datatype=datatype, shape=shape, data=parts.rest[:n_bytes])


def read_datatype(body: bytes, superblock: Superblock, *, is_shared: bool) -> Parse[Datatype]:
    """Parse a datatype message; if it is shared, read the committed datatype."""
    if not is_shared:
        return parse_datatype(body)
    messages = yield from read_object_header(parse_shared(body, superblock), superblock.widths)
    found = [message for message in messages if message.kind == _DATATYPE]
    check(len(found) == 1 and not found[0].is_shared, "a committed datatype is not a datatype")
    return parse_datatype(found[0].body)


type Heaps = Mapping[int, Mapping[int, bytes] | StructureError]
"""Global heap collections by address."""


def elements(data: bytes, count: int, width: int, superblock: Superblock, heaps: Heaps, /) -> list[bytes]:
    """Return the bytes of elements of variable length, whose own elements have ``width`` bytes each."""
    return [_in_heap(pointer, width, heaps) for pointer in pointers(data, count, superblock)]


def _in_heap(pointer: Pointer, width: int, heaps: Heaps) -> bytes:
    if pointer.heap is None:
        return b""
    heap = heaps[pointer.heap]
    if isinstance(heap, StructureError):
        raise heap
    raw = heap.get(pointer.number)
    if raw is None or len(raw) != pointer.length * width:  # the HDF5 library (2.0) checks this too
        raise StructureError("an element of variable length is not in its heap, or has another length there")
    return raw


class Pointer(NamedTuple):
    """Position of an element of variable length."""

    length: int
    heap: int | None
    number: int


def pointers(data: bytes, count: int, superblock: Superblock, /) -> list[Pointer]:
    """Parse stored elements of variable length (HDF5 spec IV.A.2.d, class 9, "data storage")."""
    width = superblock.widths.address
    size = count * (8 + width)
    if len(data) < size:
        raise StructureError("elements of variable length are cut off")
    nowhere, found = (0, superblock.widths.undefined), []
    for length, heap, number in compiled("IAI", superblock.widths).iter_unpack(data[:size]):
        is_nowhere = heap in nowhere
        if heap >= superblock.end and not is_nowhere:
            raise StructureError("an element of variable length lies past the end of the file")
        found.append(Pointer(length, None if is_nowhere else heap, number))
    return found
