"""Version 1 B-trees of chunks (HDF5 spec III.A.1): the index of layout messages up to version 3; no checksums."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import lt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests.encoding import c_strides
from virtualstack.readers.hdf5.structures.checks import check, unsigned
from virtualstack.readers.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder
from virtualstack.readers.hdf5.structures.columns import read_column
from virtualstack.readers.hdf5.structures.requests import Blocks, Parse, StructureError, read_blocks
from virtualstack.readers.hdf5.structures.rounds import check_places, read_in_rounds

__all__ = ["read_btree1"]

_CHUNKS = 1  # the type of a tree
_LEVEL, _COUNT = 5, 6  # where a node says its level, and the number of its entries
_FEW = 8  # chunks for which numbers of Python are faster than arrays
_SOME = 1024  # chunks for which few calls of numpy are faster than quick ones
_NODES = "nodes of a B-tree"
_LEAF = b"TREE" + bytes([_CHUNKS, 0])


def read_btree1(space: ChunkSpace, address: int, k: int) -> Parse[ChunkTable]:
    """List the chunks in a version 1 B-tree.

    Parameters
    ----------
    space
        Of the dataset.
    address
        Of the root node.
    k
        Half of the most entries of a node.

    Raises
    ------
    StructureError
        A node is none of such a tree or lies outside of the file, or a chunk is wrong.
    """
    nodes = _Nodes(space, k)
    places = [Blocks(np.array([min(address, (1 << 63) - 1)]), nodes.size)]
    check_places(places, space.end, _NODES)
    root = yield from read_blocks(*places[0])
    if root[0, _LEVEL] == 0 and root[0, _COUNT] <= _FEW and root[0, _COUNT + 1] == 0:
        return nodes.few_chunks(root[0].tobytes())
    for level in range(int(root[0, _LEVEL]), 0, -1):
        is_root = len(places) == 1
        children = nodes.children(root, level) if is_root else (yield from _read_children(nodes, places[-1], level))
        places.append(Blocks(children, nodes.size))
        check_places(places, space.end, _NODES)
    builder = TableBuilder(space, len(places[-1].addresses) * nodes.most)
    if len(places) == 1:
        nodes.add_chunks(root, builder)
    else:
        yield from read_in_rounds(places[-1:], lambda _number, _first, raw: nodes.add_chunks(raw, builder))
    builder.check_increasing()
    return builder.finish()


def _read_children(nodes: _Nodes, places: Blocks, level: int) -> Parse[NDArray[np.int64]]:
    children: list[NDArray[np.int64]] = []
    yield from read_in_rounds([places], lambda _number, _first, raw: children.append(nodes.children(raw, level)))
    return np.concatenate(children)


class _Nodes:
    """The form of the nodes of one tree.

    Attributes
    ----------
    most
        Entries that a node has room for.
    size
        Bytes of a node.
    """

    def __init__(self, space: ChunkSpace, k: int) -> None:
        self._space = space
        self._key = 8 + 8 * (len(space.grid) + 1)  # size, mask, and an offset for each axis and within an element
        self._axes = struct.Struct(f"<{len(space.grid) + 1}Q")
        self._steps = (*space.layout.chunk, space.layout.element_size)
        self._divisors, self._weights = np.array(self._steps), np.array(c_strides(space.grid))
        self._head = 8 + 2 * space.widths.address
        self._entry = self._key + space.widths.address
        self.most = 2 * k
        self.size = self._head + self.most * self._entry + self._key

    def children(self, raw: NDArray[np.uint8], level: int) -> NDArray[np.int64]:
        """Give the addresses of the nodes below some nodes."""
        if len(raw) == 1 and int.from_bytes(raw[0, _COUNT : _COUNT + 2].tobytes(), "little") <= _FEW:
            return self._few_children(raw[0].tobytes(), level)
        entries = self._entries(raw, level)
        for _ in self._places(entries):
            pass  # keys are checked as they are read
        return self._column(entries, self._key, self._space.widths.address)

    def _few_children(self, body: bytes, level: int) -> NDArray[np.int64]:
        check(body[:_COUNT] == b"TREE" + bytes([_CHUNKS, level]), "a node of a B-tree of chunks does not begin as one")
        count = body[_COUNT]
        check(0 < count <= self.most, f"a node of a B-tree has {count} entries, at most {self.most}")
        places = range(self._head, self._head + count * self._entry, self._entry)
        for at in (*places, places.stop):
            self._check_key(body, at)
        width = self._space.widths.address
        addresses = [unsigned(body, at + self._key, width) for at in places]
        return np.array([min(address, (1 << 63) - 1) for address in addresses], np.int64)

    def _check_key(self, body: bytes | memoryview, at: int) -> None:
        for start, step in zip(self._axes.unpack_from(body, at + 8), self._steps, strict=True):
            if start % step:
                raise StructureError("a key of a B-tree of chunks is no place of a chunk")

    def add_chunks(self, raw: NDArray[np.uint8], builder: TableBuilder) -> None:
        """Add the chunks of some leaves."""
        entries, space = self._entries(raw, 0), self._space
        if not len(entries):
            return
        if len(entries) <= _SOME and not self._entry % 8:
            self._add_some(entries.view("<i8"), builder)
            return
        length, mask = self._column(entries, 0, 4), self._column(entries, 4, 4)
        if not space.is_filtered:
            check(bool((length == space.layout.chunk_bytes).all()), "a chunk without filters has not its size")
        cell, is_inside = space.cells_at(self._places(entries))
        offset = self._column(entries, self._key, space.widths.address)
        if space.is_filtered:
            builder.add(cell, is_inside, offset, length, mask)
        else:
            builder.add(cell, is_inside, offset, None, None)

    def _add_some(self, table: NDArray[np.int64], builder: TableBuilder) -> None:
        """Add chunks given as rows of 8-byte numbers: size and mask, starts, address; by the rules of `add_chunks`.

        For some hundred chunks, calls of numpy cost more than what they do: these are fewer.
        """
        space, starts = self._space, table[:, 1:-1]
        places = starts // self._divisors
        check(not starts[:, -1].any(), "a chunk begins in the middle of an element")
        check(bool((places * self._divisors == starts).all()), "a chunk begins in the middle of another one")
        check(int(places.min()) >= 0, "a chunk lies outside of the greatest shape")
        lasts = places.max(axis=0).tolist()[:-1]
        limits = (1 << 63 if most is None else most for most in space.max_grid)
        check(all(map(lt, lasts, limits)), "a chunk lies outside of the greatest shape")
        places = places[:, :-1]
        is_inside = None if all(map(lt, lasts, space.grid)) else (places < np.array(space.grid)).all(axis=1)
        cell = places @ self._weights
        length, mask = table[:, 0] & 0xFFFF_FFFF, table[:, 0] >> 32 & 0xFFFF_FFFF
        if space.is_filtered:
            builder.add(cell, is_inside, table[:, -1], length, mask)
        else:
            check(bool((length == space.layout.chunk_bytes).all()), "a chunk without filters has not its size")
            builder.add(cell, is_inside, table[:, -1], None, None)

    def few_chunks(self, body: bytes) -> ChunkTable:
        """List the chunks of a tree of one leaf, number by number; the rules are those of `add_chunks`."""
        space = self._space
        check(body[:6] == _LEAF, "a node of a B-tree of chunks does not begin as one")
        axes = f"{len(space.grid) + 1}Q"
        count, key = body[_COUNT], struct.Struct(f"<II{axes}")
        check(count <= self.most, f"a node of a B-tree has {count} entries, more than {self.most}")
        rows: list[tuple[int, int, int, int]] = []
        before = -1
        for at in range(self._head, self._head + count * self._entry, self._entry):
            length, mask, *starts = key.unpack_from(body, at)
            offset = unsigned(body, at + self._key, space.widths.address)
            check(starts[-1] == 0, "a chunk begins in the middle of an element")
            cell, is_inside = 0, True
            for start, n, most, n_cells in zip(starts, space.layout.chunk, space.max_grid, space.grid, strict=False):
                place, rest = divmod(start, n)
                check(rest == 0, "a chunk begins in the middle of another one")
                check(place < (1 << 63 if most is None else most), "a chunk lies outside of the greatest shape")
                is_inside &= place < n_cells
                cell = cell * n_cells + place
            check(space.is_filtered or length == space.layout.chunk_bytes, "a chunk without filters has not its size")
            check(length > 0 and offset + length <= space.end, "a chunk has no bytes, or lies past the end of the file")
            if is_inside:
                check(cell > before, "chunks are out of order, or two for one place")
                before = cell
                rows.append((cell, offset, length, mask if space.is_filtered else 0))
        self._check_key(body, self._head + count * self._entry)
        table = np.array(rows, np.int64).reshape(-1, 4).T
        return ChunkTable(cell=table[0], offset=table[1], length=table[2], mask=table[3].astype(np.uint32))

    def _places(self, entries: NDArray[np.uint8]) -> Iterator[NDArray[np.int64]]:
        """Give where chunks begin, in chunks."""
        for axis, n in enumerate(self._space.layout.chunk):
            start = self._column(entries, 8 + 8 * axis, 8)
            if n & (n - 1):
                place = start // n
                rest = start - place * n
            else:
                place, rest = start >> n.bit_length() - 1, start & n - 1
            check(not rest.any(), "a chunk begins in the middle of another one")
            yield place
        check(not self._column(entries, self._key - 8, 8).any(), "a chunk begins in the middle of an element")

    def _column(self, entries: NDArray[np.uint8], at: int, width: int) -> NDArray[np.int64]:
        return read_column(entries, at, width, (len(entries),), (self._entry,))

    def _entries(self, raw: NDArray[np.uint8], level: int) -> NDArray[np.uint8]:
        """Check the heads of some nodes, and give their entries: shape ``(n, bytes of an entry)``."""
        head = np.ndarray((len(raw),), "<u8", raw, 0, (self.size,))
        expected = int.from_bytes(b"TREE" + bytes([_CHUNKS, level]), "little")
        check(bool((head & 0xFFFF_FFFF_FFFF == expected).all()), "a node of a B-tree of chunks does not begin as one")
        counts = head >> 48
        fullest, emptiest = int(counts.max()), int(counts.min())
        check(fullest <= self.most, f"a node of a B-tree has {fullest} entries, more than {self.most}")
        self._check_last_keys(raw, counts)
        if len(raw) <= _FEW:
            firsts = [(number * self.size + self._head, count) for number, count in enumerate(counts.tolist())]
            data = raw.reshape(-1).data
            joined = b"".join([data[first : first + count * self._entry] for first, count in firsts])
            return np.frombuffer(joined, np.uint8).reshape(-1, self._entry)
        slots = np.ndarray((len(raw), fullest), f"V{self._entry}", raw, self._head, (self.size, self._entry))
        used = slots if emptiest == fullest else slots[np.arange(fullest) < counts[:, None]]
        return np.ascontiguousarray(used).reshape(-1).view(np.uint8).reshape(-1, self._entry)

    def _check_last_keys(self, raw: NDArray[np.uint8], counts: NDArray[Any]) -> None:
        """Check the key behind the last entry of each node, which the HDF5 library reads too."""
        if len(raw) <= _FEW:
            data = raw.reshape(-1).data
            for number, count in enumerate(counts.tolist()):
                self._check_key(data, number * self.size + self._head + count * self._entry)
            return
        width = self._key - 8
        windows = np.ndarray((raw.size - width + 1,), f"V{width}", raw, 0, (1,))
        keys = windows[np.arange(len(raw)) * self.size + self._head + counts.astype(np.int64) * self._entry + 8]
        axes = keys.view("<u8").reshape(-1, len(self._steps))
        for axis, step in enumerate(self._steps):
            check(not (axes[:, axis] % step).any(), "a key of a B-tree of chunks is no place of a chunk")
