"""Version 1 B-trees of chunks (HDF5 spec III.A.1): the index of layout messages up to version 3; no checksums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.readers.hdf5.structures.checks import check
from virtualstack.readers.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder
from virtualstack.readers.hdf5.structures.columns import read_column
from virtualstack.readers.hdf5.structures.requests import Blocks, Parse, read_blocks
from virtualstack.readers.hdf5.structures.rounds import check_places, read_in_rounds

__all__ = ["read_btree1"]

_CHUNKS = 1  # the type of a tree
_LEVEL = 5  # where a node says its level
_NODES = "nodes of a B-tree"


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
        self._head = 8 + 2 * space.widths.address
        self._entry = self._key + space.widths.address
        self.most = 2 * k
        self.size = self._head + self.most * self._entry + self._key

    def children(self, raw: NDArray[np.uint8], level: int) -> NDArray[np.int64]:
        """Give the addresses of the nodes below some nodes."""
        entries = self._entries(raw, level)
        for _ in self._places(entries):
            pass  # keys are checked as they are read
        return self._column(entries, self._key, self._space.widths.address)

    def add_chunks(self, raw: NDArray[np.uint8], builder: TableBuilder) -> None:
        """Add the chunks of some leaves."""
        entries, space = self._entries(raw, 0), self._space
        if not len(entries):
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
        slots = np.ndarray((len(raw), fullest), f"V{self._entry}", raw, self._head, (self.size, self._entry))
        used = slots if emptiest == fullest else slots[np.arange(fullest) < counts[:, None]]
        return np.ascontiguousarray(used).reshape(-1).view(np.uint8).reshape(-1, self._entry)

    def _check_last_keys(self, raw: NDArray[np.uint8], counts: NDArray[Any]) -> None:
        """Check the key behind the last entry of each node, which the HDF5 library reads too."""
        firsts = np.arange(len(raw)) * self.size + self._head + counts.astype(np.int64) * self._entry + 8
        axes = raw.reshape(-1)[firsts[:, None] + np.arange(self._key - 8)].view("<u8")
        chunk = np.array([*self._space.layout.chunk, self._space.layout.element_size], np.uint64)
        check(not (axes % chunk).any(), "a key of a B-tree of chunks is no place of a chunk")
