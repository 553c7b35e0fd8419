"""Read the three kinds of heaps.

Local heaps have the names of old groups. Global heaps have values of variable length. Fractal heaps have the links of
large groups, and the attributes of objects with many attributes.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from numcodecs.jenkins import jenkins_lookup3

from virtualstack.formats.hdf5.structures.btree2 import read_records
from virtualstack.formats.hdf5.structures.requests import (
    Parse,
    Span,
    StructureError,
    Widths,
    check,
    check_signature,
    compiled,
    read_both,
    read_span,
    unsigned,
    verified,
)
from virtualstack.formats.hdf5.structures.superblock import Superblock
from virtualstack.formats.hdf5.structures.tables import Table

_MAX_HEAP_BYTES = 1 << 28
_NO_FREE_BLOCK = 1  # H5HL_FREE_NULL
_MIN_COLLECTION_BYTES = 4096
"""Smallest size of a global heap collection in bytes (H5HG_MINSIZE)."""


_LOCAL = Table(f"3x, size L<={_MAX_HEAP_BYTES}, free L, place A", "HEAP", version=0)
_FRACTAL = Table(
    "id_length H, filters H=0, flags B, max_managed I>0, next_huge L, huge_tree A, free_bytes L, free_manager A,"
    "managed L, allocated L, iterator L, n_managed L, huge_bytes L, n_huge L, tiny_bytes L, n_tiny L, width H, start L,"
    "max_direct L, max_bits H, n_first_rows H, root A, n_rows H",
    "FRHP",
    version=0,
)
_HUGE_OBJECT = Table("address A, size L, number L", "huge object")


def read_local_heap(address: int, superblock: Superblock) -> Parse[bytes]:
    """Read the data segment of a local heap (HDF5 spec III.D)."""
    widths = superblock.widths
    body = yield from read_span(address, _LOCAL.size(widths))
    found = _LOCAL.parse(body, widths)
    size = found["size"]
    heap = yield from read_span(superblock.known(found["place"]), size)
    _check_free_list(heap, found["free"], superblock)
    return heap


def _check_free_list(heap: bytes, free: int, superblock: Superblock) -> None:
    """Check that the free blocks are within the heap; each has the position of the next block, and its length."""
    left = len(heap) // superblock.widths.length
    while free != _NO_FREE_BLOCK:
        following, length = superblock.length(heap, free), superblock.length(heap, free + superblock.widths.length)
        left -= 1
        check(bool(following) and free + length <= len(heap) and left >= 0, "the free list of a local heap is damaged")
        free = following


def name_in_heap(heap: bytes, at: int, /) -> bytes:
    """Return the text at an offset of a local heap, up to its NUL."""
    end = heap.find(b"\0", at)
    check(0 <= at < len(heap) and end >= 0, "a name is outside of its heap")
    return heap[at:end]


def read_global_heap(address: int, superblock: Superblock) -> Parse[Mapping[int, bytes]]:
    """Read the objects of a global heap collection by their index (HDF5 spec III.E)."""
    body = yield from read_span(address, _MIN_COLLECTION_BYTES)
    check_signature(body, b"GCOL", 1)
    width = superblock.widths.length
    size = superblock.length(body, 8)
    check(
        _MIN_COLLECTION_BYTES <= size <= _MAX_HEAP_BYTES,
        f"a global heap collection has {size} bytes; expected {_MIN_COLLECTION_BYTES} to {_MAX_HEAP_BYTES}",
    )
    if size > _MIN_COLLECTION_BYTES:
        body = yield from read_span(address, size)
    objects: dict[int, bytes] = {}
    at = prefix = -(-(8 + width) // 8) * 8
    unpack = compiled("H6xL", superblock.widths).unpack_from
    while at + prefix <= size:
        index, length = unpack(body, at)
        if not index:  # the free space at the end; its length includes its prefix
            check(length == size - at, "the free space of a global heap is out of bounds")
            break
        check(index not in objects and length <= size - at - prefix, "an object of a global heap is out of bounds")
        objects[index] = body[at + prefix : at + prefix + length]
        at += prefix + -(-length // 8) * 8
    return objects


_HUGE, _TINY = 1, 2
_HUGE_RECORD = 1  # HDF5 spec III.A.2, B-tree version 2: type of records of huge objects that have no filters
_MAX_DEPTH = 64
_MAX_BLOCKS = 1 << 20
_MAX_BLOCK_BYTES = 1 << 28


class FractalHeap(NamedTuple):
    """The objects of a fractal heap: the blocks have no heads, and thus no addresses."""

    offset_width: int
    length_width: int
    starts: tuple[int, ...]
    blocks: tuple[bytes, ...]
    huge: tuple[tuple[int, bytes], ...]

    def object(self, identifier: bytes, /) -> bytes:
        """Return the object with an identifier (HDF5 spec III.G, "fractal heap ID")."""
        kind = unsigned(identifier, 0, 1)  # version, kind, and the length of a tiny object
        if kind:
            return self._special(identifier, kind)
        split = 1 + self.offset_width
        offset = int.from_bytes(identifier[1:split], "little")
        length = int.from_bytes(identifier[split : split + self.length_width], "little")
        i = bisect.bisect_right(self.starts, offset) - 1
        check(i >= 0, "an object is not in its heap")
        found = self.blocks[i][offset - self.starts[i] : offset - self.starts[i] + length]
        check(len(found) == length > 0, "an object is not in its heap")
        return found

    def _special(self, identifier: bytes, first: int) -> bytes:
        """Return an object that is in no block."""
        check(not first >> 6, f"the identifier of a heap object has the unknown version {first >> 6}")
        if first >> 4 == _TINY:
            return identifier[1 : 2 + (first & 15)]
        check(first >> 4 == _HUGE, f"the identifier of a heap object has the unknown kind {first >> 4}")
        number = int.from_bytes(identifier[1:], "little")
        huge = dict(self.huge)
        check(number in huge, "an object is not in its heap")
        return huge[number]


class _Header(NamedTuple):
    """Fields of the header that determine where blocks are."""

    address: int
    has_checksums: bool
    width: int
    start: int
    max_direct: int
    offset_width: int

    def head(self, widths: Widths) -> int:
        """Return the size of the head of a direct block."""
        return 5 + widths.address + self.offset_width + 4 * self.has_checksums

    def block_size(self, row: int) -> int:
        return self.start if row == 0 else self.start << (row - 1)

    @property
    def n_direct_rows(self) -> int:
        return self.max_direct.bit_length() - self.start.bit_length() + 2

    def n_rows(self, size: int) -> int:
        """Return the number of rows of an indirect block that covers ``size`` bytes."""
        return size.bit_length() - (self.start * self.width).bit_length() + 1


def read_dense(body: bytes, at: int, superblock: Superblock, *, kind: int) -> Parse[tuple[list[bytes], FractalHeap]]:
    """Read a fractal heap whose index is a version 2 B-tree, and the records of its objects."""
    heap_address = superblock.address(body, at)
    if heap_address is None:
        return [], FractalHeap(0, 0, (), (), ())
    index = superblock.known_address(body, at + superblock.widths.address)
    return (
        yield from read_both(read_records(index, kind, superblock.widths), _read_fractal_heap(heap_address, superblock))
    )


def _read_fractal_heap(address: int, superblock: Superblock) -> Parse[FractalHeap]:
    """Read all objects of a fractal heap (HDF5 spec III.G)."""
    widths = superblock.widths
    found = yield from _FRACTAL.read(address, widths)
    width, start, max_direct, max_bits = found["width"], found["start"], found["max_direct"], found["max_bits"]
    powers = all(n > 0 and n & (n - 1) == 0 for n in (width, start, max_direct))
    check(
        powers and start <= max_direct <= _MAX_BLOCK_BYTES and 0 < max_bits <= 64,
        "a fractal heap has invalid sizes of its blocks or of its table",
    )
    offset_width = -(-max_bits // 8)
    max_managed = found["max_managed"]
    length_width = min(_log2(max_direct) // 8 + 1, _log2(max_managed) // 8 + 1)
    header = _Header(address, bool(found["flags"] & 2), width, start, max_direct, offset_width)
    blocks: list[tuple[int, bytes]] = []
    root, n_rows, huge_tree = widths.defined(found["root"]), found["n_rows"], widths.defined(found["huge_tree"])
    if root is not None:
        blocks = yield from (
            _read_tree(header, root, n_rows, superblock) if n_rows else _read_root(header, root, superblock)
        )
        blocks.sort()
    huge = () if huge_tree is None else tuple((yield from _read_huge(huge_tree, superblock)).items())
    head = header.head(widths)
    starts, bodies = tuple([x + head for x, _ in blocks]), tuple([x[head:] for _, x in blocks])
    return FractalHeap(offset_width, length_width, starts, bodies, huge)


def _log2(n: int) -> int:
    return n.bit_length() - 1


def _read_root(header: _Header, root: int, superblock: Superblock) -> Parse[list[tuple[int, bytes]]]:
    block = yield from read_span(root, header.start)
    return [(0, _checked(block, 0, header, superblock))]


def _read_tree(header: _Header, root: int, n_rows: int, superblock: Superblock) -> Parse[list[tuple[int, bytes]]]:
    """Read all direct blocks under the root indirect block, level by level."""
    found: list[tuple[int, bytes]] = []
    level = [(root, n_rows, 0)]
    total = n_blocks = 0
    for _ in range(_MAX_DEPTH):
        answers = yield [Span(where, _indirect_size(header, rows, superblock)) for where, rows, _ in level]
        direct: list[tuple[int, int, int]] = []
        below: list[tuple[int, int, int]] = []
        for (_, rows, offset), body in zip(level, answers, strict=True):
            for where, row, start in _children(body, rows, offset, header, superblock):
                size = header.block_size(row)
                if row < header.n_direct_rows:
                    direct.append((where, size, start))
                    total += size
                else:
                    below.append((where, header.n_rows(size), start))
        n_blocks += len(direct) + len(below)
        check(total <= superblock.end and n_blocks <= _MAX_BLOCKS, "a fractal heap is larger than its file")
        if direct:
            blocks = yield [Span(where, size) for where, size, _ in direct]
            found += [
                (start, _checked(block, start, header, superblock))
                for (_, _, start), block in zip(direct, blocks, strict=True)
            ]
        if not below:
            return found
        level = below
    raise StructureError("a fractal heap is too deep")


def _indirect_size(header: _Header, n_rows: int, superblock: Superblock) -> int:
    check(
        0 < n_rows <= _MAX_DEPTH, f"an indirect block of a fractal heap has {n_rows} rows; expected 1 to {_MAX_DEPTH}"
    )
    widths = superblock.widths
    return 9 + widths.address + header.offset_width + n_rows * header.width * widths.address


def _children(
    body: bytes, n_rows: int, offset: int, header: _Header, superblock: Superblock
) -> Iterator[tuple[int, int, int]]:
    """Yield address, row and offset of each child of an indirect block."""
    body = _checked_head(verified(body), b"FHIB", offset, header, superblock)
    at, undefined = 5 + superblock.widths.address + header.offset_width, superblock.widths.undefined
    places = compiled(f"{n_rows * header.width}A", superblock.widths).unpack_from(body, at)
    for number, where in enumerate(places):
        row = number // header.width
        if where != undefined:
            yield where, row, offset
        offset += header.block_size(row)


def _checked(block: bytes, offset: int, header: _Header, superblock: Superblock) -> bytes:
    """Check the head of a direct block, and its checksum if it has one."""
    _checked_head(block, b"FHDB", offset, header, superblock)
    if header.has_checksums:
        at = 5 + superblock.widths.address + header.offset_width
        computed = jenkins_lookup3(block[:at] + bytes(4) + block[at + 4 :], 0)
        check(computed == unsigned(block, at, 4), "the checksum of 'FHDB' is wrong")
    return block


def _checked_head(body: bytes, signature: bytes, offset: int, header: _Header, superblock: Superblock) -> bytes:
    check_signature(body, signature, 0)
    at = 5 + superblock.widths.address
    is_own = unsigned(body, 5, superblock.widths.address) == header.address
    check(is_own and unsigned(body, at, header.offset_width) == offset, "a block belongs to another fractal heap")
    return body


def _read_huge(tree: int, superblock: Superblock) -> Parse[dict[int, bytes]]:
    """Read the objects that are too large for blocks."""
    records = yield from read_records(tree, _HUGE_RECORD, superblock.widths)
    objects = [_HUGE_OBJECT.parse(record, superblock.widths) for record in records]
    found = {x["number"]: Span(superblock.known(x["address"]), x["size"]) for x in objects}
    total = sum(x["size"] for x in objects)
    check(total <= superblock.end and len(found) == len(records), "a fractal heap is larger than its file")
    if not found:
        return {}
    answers = yield list(found.values())
    return dict(zip(found, answers, strict=True))
