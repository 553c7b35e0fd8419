"""Read version 1 B-trees of chunks (HDF5 spec III.A.1), the index of layout messages up to version 3; no checksums."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import lt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder
from virtualstack.formats.hdf5.structures.requests import (
    SLICE_BYTES,
    Blocks,
    Parse,
    Span,
    StructureError,
    check,
    check_places,
    read_in_rounds,
    read_span,
    unsigned,
)
from virtualstack.manifests.encoding import c_strides

_CHUNKS = 1  # the type of a tree
_LEVEL_AT, _COUNT_AT = 5, 6  # offsets in a node of its level and of its number of entries
_KNOWN_HEAD = 24  # bytes before the entries of a node, with addresses of 8 bytes
_FEW_NODES = 8  # up to this number of nodes, Python's numbers are faster than arrays
_NODES = "nodes of a B-tree"
_NO_PLACE = "a key of a B-tree of chunks is not where a chunk begins"
_LEAF, _ABOVE_LEAVES = b"TREE" + bytes([_CHUNKS, 0]), b"TREE" + bytes([_CHUNKS, 1])


def read_btree1(space: ChunkSpace, address: int, k: int) -> Parse[ChunkTable]:
    """List the chunks in a version 1 B-tree."""
    nodes = _Nodes(space, k)
    root = yield from read_span(address, nodes.size)
    level, count = root[_LEVEL_AT], unsigned(root, _COUNT_AT, 2)
    if level == 0:
        return nodes.some_chunks([root])
    if level == 1 and count <= _FEW_NODES and count * nodes.size <= SLICE_BYTES:
        children, keys = nodes.few_children(root)
        check_places([Blocks(np.array([address, *children]), nodes.size)], space.end, _NODES)
        return nodes.some_chunks((yield [Span(child, nodes.size) for child in children]), keys)
    places = [Blocks(np.array([address]), nodes.size)]
    bounds = None
    for below in range(level, 0, -1):
        addresses, bounds = yield from _read_children(nodes, places[-1], below, bounds)
        places.append(Blocks(addresses, nodes.size))
        check_places(places, space.end, _NODES)
    builder = TableBuilder(space, len(places[-1].addresses) * nodes.most)
    edges = _Edges([], [])
    yield from read_in_rounds(places[-1:], lambda _number, _first, raw: nodes.add_chunks(raw, edges, builder))
    nodes.check_edges(edges, bounds)
    builder.check_increasing()
    return builder.finish()


def known_leaf_size(rank: int, k: int, /) -> int:
    """Return the size of a node, with addresses of 8 bytes."""
    return _KNOWN_HEAD + 2 * k * 8 * (rank + 3) + 8 * (rank + 2)


class KnownLeaf(NamedTuple):
    """The keys of a tree of one leaf, with addresses of 8 bytes, whose chunks were found and all are in the dataset.

    A leaf with the same keys, of a dataset with the same shape and filters, has chunks in the same cells.
    """

    head: bytes
    width: int
    keys: bytes
    cell: NDArray[np.int64]
    unfiltered_bytes: int | None

    @classmethod
    def learn(cls, body: bytes, rank: int, table: ChunkTable, unfiltered_bytes: int | None, /) -> KnownLeaf | None:
        """Return what is known of a node; ``None`` if it is not such a leaf."""
        n = len(table.cell)
        if body[:_COUNT_AT] != _LEAF or not n or unsigned(body, _COUNT_AT, 2) != n:
            return None
        cell, width = table.cell.copy(), rank + 3
        cell.flags.writeable = False
        return cls(body[:8], width, _entries_and_keys(body, n, width)[1], cell, unfiltered_bytes)

    def chunks(self, body: bytes, end: int, /) -> ChunkTable | None:
        """Return the chunks of a node; ``None`` if it has other keys, or chunks that may not be in the file."""
        if body[:8] != self.head:
            return None
        entries, keys = _entries_and_keys(body, len(self.cell), self.width)
        if keys != self.keys:
            return None
        offset, sizes = entries[:, -1].copy(), entries[:, 0].copy().view("<u4").reshape(-1, 2)
        length, mask = sizes[:, 0].astype(np.int64), sizes[:, 1].copy()
        least, most = int(length.min()), int(length.max())
        if self.unfiltered_bytes is not None:
            mask[:] = 0
            if not least == most == self.unfiltered_bytes:
                return None
        if least < 1 or int(offset.min()) < 0:
            return None
        if int(offset.max()) > end - most and (offset > end - length).any():
            return None
        return ChunkTable(cell=self.cell, offset=offset, length=length, mask=mask)


def _entries_and_keys(body: bytes, n: int, width: int) -> tuple[NDArray[np.int64], bytes]:
    """Return the entries of a leaf as rows of numbers (size and mask, starts, address), and the starts of all keys."""
    numbers = np.frombuffer(body, "<i8", (n + 1) * width - 1, _KNOWN_HEAD)
    entries = numbers[: n * width].reshape(n, width)
    return entries, entries[:, 1:-1].tobytes() + numbers[n * width + 1 :].tobytes()


class _Bounds(NamedTuple):
    """The keys left and right of some nodes in the node above: all keys of a node are between them.

    The HDF5 library finds a chunk by these keys. If they lead elsewhere, it treats the chunk as never written.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]


class _Edges(NamedTuple):
    """The keys at the edges of leaves; they are checked together, because a slice of leaves has few of them."""

    keys: list[NDArray[np.int64]]
    counts: list[NDArray[np.int64]]


def _part(bounds: _Bounds | None, first: int, n: int) -> _Bounds | None:
    return None if bounds is None else _Bounds(*(keys[first : first + n] for keys in bounds))


def _read_children(
    nodes: _Nodes, places: Blocks, level: int, bounds: _Bounds | None
) -> Parse[tuple[NDArray[np.int64], _Bounds]]:
    found: list[tuple[NDArray[np.int64], _Bounds]] = []
    yield from read_in_rounds(
        [places], lambda _, first, raw: found.append(nodes.children(raw, level, _part(bounds, first, len(raw))))
    )
    children = np.concatenate([addresses for addresses, _ in found])
    return children, _Bounds(*(np.concatenate(keys) for keys in zip(*(keys for _, keys in found), strict=True)))


def _check_order(before: NDArray[np.int64], after: NDArray[np.int64], *, may_be_equal: bool = False) -> None:
    """Check row by row that keys come before other keys, by the first axis along which they differ."""
    differ = before != after
    axis = differ.argmax(axis=1)
    row = np.arange(len(before))
    is_right = before[row, axis] < after[row, axis]
    if may_be_equal:
        is_right |= ~differ.any(axis=1)
    check(bool(is_right.all()), "keys of a B-tree of chunks are out of order")


class _Nodes:
    """Parser of the nodes of one tree."""

    def __init__(self, space: ChunkSpace, k: int) -> None:
        self._space = space
        self._key = 8 + 8 * (len(space.grid) + 1)  # size, mask, and an offset for each axis and within an element
        self._axes = struct.Struct(f"<{len(space.grid) + 1}Q")
        self._steps = (*space.layout.chunk, space.layout.element_size)
        self._divisors = np.array(self._steps, np.uint64)[:, None]
        self._weights = np.array(c_strides(space.grid))
        # an unlimited axis has fewer than 2^63 elements
        self._limits = [
            -(-(1 << 63) // n) if most is None else most
            for n, most in zip(space.layout.chunk, space.max_grid, strict=True)
        ]
        self._head = 8 + 2 * space.widths.address
        self.entry = self._key + space.widths.address
        self.most = 2 * k
        self.size = self._head + self.most * self.entry + self._key

    def children(self, raw: NDArray[np.uint8], level: int, bounds: _Bounds | None) -> tuple[NDArray[np.int64], _Bounds]:
        """Return the addresses of the nodes below some nodes, and the keys beside them."""
        entries, counts = self._entries(raw, level)
        check(int(counts.min()) > 0, "a node of a B-tree that is not a leaf has no entries")
        numbers = self._numbers(entries)
        left = numbers[:, 1:-1]
        self._check_places(left)
        check(not left[:, -1].any(), "a chunk begins in the middle of an element")
        ends = np.cumsum(counts)
        right = np.empty_like(left)
        right[:-1] = left[1:]
        right[ends - 1] = last = self._keys_at(raw, counts)
        self._check_places(last)
        _check_order(left, right)
        if bounds is not None:
            _check_order(bounds.left, left[ends - counts], may_be_equal=True)
            _check_order(last, bounds.right, may_be_equal=True)
        return numbers[:, -1], _Bounds(left, right)

    def few_children(self, body: bytes) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return the addresses of the leaves below a node, and the keys between them, with the checks of `children`."""
        check(body[:_COUNT_AT] == _ABOVE_LEAVES, "a node of a B-tree of chunks does not begin as one")
        count = unsigned(body, _COUNT_AT, 2)
        check(0 < count <= self.most, f"a node of a B-tree has {count} entries, at most {self.most}")
        places = range(self._head, self._head + count * self.entry, self.entry)
        keys = [self._checked_key(body, at) for at in (*places, places.stop)]
        check(not any(key[-1] for key in keys[:-1]), "a chunk begins in the middle of an element")
        check(all(map(lt, keys, keys[1:])), "keys of a B-tree of chunks are out of order")
        width = self._space.widths.address
        return [min(unsigned(body, at + self._key, width), (1 << 63) - 1) for at in places], keys

    def _checked_key(self, body: bytes, at: int) -> tuple[int, ...]:
        key = self._axes.unpack_from(body, at + 8)
        for start, step in zip(key, self._steps, strict=True):
            if start % step:
                raise StructureError(_NO_PLACE)
        return key

    def add_chunks(self, raw: NDArray[np.uint8], edges: _Edges, builder: TableBuilder) -> None:
        """Add the chunks of some leaves; `check_edges` checks the keys at their edges."""
        entries, counts = self._entries(raw, 0)
        last = np.maximum(counts - 1, 0)
        edges.keys.append(self._keys_at(raw, np.stack([np.zeros_like(last), last, counts])))
        edges.counts.append(counts)
        if len(entries):
            self._add_rows(self._numbers(entries), builder)

    def check_edges(self, edges: _Edges, bounds: _Bounds | None) -> None:
        """Check the keys at the edges of leaves against each other, and against the keys of the nodes above."""
        first, last, behind = np.concatenate(edges.keys, axis=1)
        self._check_places(behind)
        used = np.flatnonzero(np.concatenate(edges.counts))
        _check_order(last[used], behind[used])
        if bounds is not None:
            _check_order(bounds.left[used], first[used], may_be_equal=True)
            _check_order(last[used], bounds.right[used])

    def some_chunks(self, leaves: Sequence[bytes], keys: Sequence[tuple[int, ...]] | None = None) -> ChunkTable:
        """List the chunks of some leaves, with the checks of `add_chunks`.

        For some hundred chunks, calls of numpy cost more than their work; this method makes fewer calls.
        """
        parts = []
        for number, leaf in enumerate(leaves):
            check(leaf[:_COUNT_AT] == _LEAF, "a node of a B-tree of chunks does not begin as one")
            count = unsigned(leaf, _COUNT_AT, 2)
            check(count <= self.most, f"a node of a B-tree has {count} entries, more than {self.most}")
            end = self._head + count * self.entry
            behind = self._checked_key(leaf, end)
            if count:
                last = self._axes.unpack_from(leaf, end - self.entry + 8)
                is_between = keys is None or (
                    keys[number] <= self._axes.unpack_from(leaf, self._head + 8) and last < keys[number + 1]
                )
                check(last < behind and is_between, "keys of a B-tree of chunks are out of order")
            parts.append(leaf[self._head : end])
        entries = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, self.entry)
        builder = TableBuilder(self._space, len(entries))
        if len(entries):
            self._add_rows(self._numbers(entries), builder)
        builder.check_increasing()
        return builder.finish()

    def _numbers(self, entries: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return entries as rows of 8-byte numbers: size and mask, starts, address."""
        missing = -self.entry % 8
        return (np.pad(entries, ((0, 0), (0, missing))) if missing else entries).view("<i8")

    def _add_rows(self, table: NDArray[np.int64], builder: TableBuilder) -> None:
        """Add chunks from rows of `_numbers`."""
        space, columns = self._space, np.ascontiguousarray(table.T)  # operations on contiguous rows are fast
        starts = columns[1:-1].view(np.uint64)  # negative numbers become the largest
        places = starts // self._divisors
        lasts = places[:-1].max(axis=1).tolist()
        check(all(map(lt, lasts, self._limits)), "a chunk lies outside of the greatest shape")
        check(not np.count_nonzero(starts[-1]), "a chunk begins in the middle of an element")
        check(not np.count_nonzero(places * self._divisors != starts), "a chunk begins in the middle of another one")
        is_inside = None
        if not all(map(lt, lasts, space.grid)):
            is_inside = (places[:-1] < np.array(space.grid, np.uint64)[:, None]).all(axis=0)
            keys = starts.view(np.int64).T
            _check_order(keys[:-1], keys[1:])
        cell = self._weights @ places[:-1].view(np.int64)
        sizes = columns[0].view("<u4")
        length = sizes[::2].astype(np.int64)
        if space.is_filtered:
            builder.add(cell, is_inside, columns[-1], length, sizes[1::2])
        else:
            check(bool((length == space.layout.chunk_bytes).all()), "a chunk without filters has a wrong size")
            builder.add(cell, is_inside, columns[-1], None, None)

    def _entries(self, raw: NDArray[np.uint8], level: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Check the heads of nodes; return their entries, of shape ``(n, entry size)``, and the number in each node."""
        head = np.ndarray((len(raw),), "<u8", raw, 0, (self.size,))
        expected = int.from_bytes(b"TREE" + bytes([_CHUNKS, level]), "little")
        check(bool((head & 0xFFFF_FFFF_FFFF == expected).all()), "a node of a B-tree of chunks does not begin as one")
        counts = (head >> 48).astype(np.int64)
        fullest, emptiest = int(counts.max()), int(counts.min())
        check(fullest <= self.most, f"a node of a B-tree has {fullest} entries, more than {self.most}")
        slots = np.ndarray((len(raw), fullest), f"V{self.entry}", raw, self._head, (self.size, self.entry))
        used = slots if emptiest == fullest else slots[np.arange(fullest) < counts[:, None]]
        return np.ascontiguousarray(used).reshape(-1).view(np.uint8).reshape(-1, self.entry), counts

    def _keys_at(self, raw: NDArray[np.uint8], number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return keys of nodes by their numbers; for numbers of shape ``(..., n)`` of n nodes, the axes come last."""
        width = self._key - 8
        windows = np.ndarray((raw.size - width + 1,), f"V{width}", raw, 0, (1,))
        keys = windows[number * self.entry + (np.arange(len(raw)) * self.size + self._head + 8)]
        axes: NDArray[np.int64] = keys.view("<i8").reshape(*number.shape, len(self._steps))
        return axes

    def _check_places(self, keys: NDArray[np.int64]) -> None:
        is_place = int(keys.min()) >= 0 and not (keys.view(np.uint64) % np.array(self._steps, np.uint64)).any()
        check(is_place, _NO_PLACE)
