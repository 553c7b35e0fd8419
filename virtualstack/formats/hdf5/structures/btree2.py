"""Read version 2 B-trees: sorted records of one size, in nodes of one size (HDF5 spec III.A.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.requests import (
    Blocks,
    Parse,
    StructureError,
    Widths,
    check,
    check_places,
    check_signature,
    read_column,
    read_in_rounds,
    read_span,
    verified,
    verify_blocks,
)
from virtualstack.formats.hdf5.structures.tables import Table

_PREFIX_BYTES, _CHECKSUM_BYTES = (
    6,
    4,
)  # before and after the records and pointers of a node: signature, version and type; checksum
_MAX_OFFSET = (1 << 63) - 1
_HEADER = Table(
    "kind B, node_size I, record_size H>0, depth H, split_percent B, merge_percent B, root A, n_root H, n_records L",
    "BTHD",
    version=0,
)


class _Level(NamedTuple):
    """Nodes of one level: number of records that fit, and widths of the two record counts after each address."""

    most: int
    count_width: int
    total_width: int


class BTree2(NamedTuple):
    """The header of a version 2 B-tree."""

    kind: int
    node_size: int
    record_size: int
    root: int | None
    n_root: int
    n_records: int
    levels: tuple[_Level, ...]


def read_records(address: int, kind: int, widths: Widths) -> Parse[list[bytes]]:
    """Read all records of a small tree."""
    tree = yield from read_btree2(address, kind, widths)
    if tree.root is not None and len(tree.levels) == 1:
        return (yield from _read_leaf(tree, tree.root))
    found: list[bytes] = []

    def keep(records: NDArray[np.uint8]) -> None:
        found.extend(record.tobytes() for record in records)

    yield from scan_records(tree, widths, _MAX_OFFSET, keep)
    return found


def _read_leaf(tree: BTree2, root: int) -> Parse[list[bytes]]:
    """Read the records of a tree of one node."""
    n, size = tree.n_records, tree.record_size
    check(n == tree.n_root <= tree.levels[0].most, "a B-tree has another number of records than its header says")
    body = verified((yield from read_span(root, _PREFIX_BYTES + n * size + _CHECKSUM_BYTES)))
    check_signature(body, b"BTLF", 0)
    check(body[5] == tree.kind, f"a node of a B-tree has records of type {body[5]}")
    return [body[at : at + size] for at in range(_PREFIX_BYTES, _PREFIX_BYTES + n * size, size)]


def read_btree2(address: int, kind: int, widths: Widths) -> Parse[BTree2]:
    """Read the header of a tree whose records have the type ``kind``."""
    found = yield from _HEADER.read(address, widths, kind=kind)
    node_size, record_size, depth = found["node_size"], found["record_size"], found["depth"]
    n_records = found["n_records"]
    # Each node above the leaves has at least a record and two children.
    check(depth <= (n_records + 1).bit_length() - 1, f"a B-tree of {n_records} records has a depth of {depth}")
    root = widths.defined(found["root"])
    is_empty = root is None
    check(is_empty == (n_records == 0), f"a B-tree of {n_records} records is {'' if is_empty else 'not '}empty")
    return BTree2(
        kind=kind,
        node_size=node_size,
        record_size=record_size,
        root=root,
        n_root=found["n_root"],
        n_records=n_records,
        levels=_levels(node_size, record_size, depth, widths),
    )


def _levels(node_size: int, record_size: int, depth: int, widths: Widths) -> tuple[_Level, ...]:
    room = node_size - _PREFIX_BYTES - _CHECKSUM_BYTES
    leaf = room // record_size
    levels, most_below, total_width = [_Level(leaf, 0, 0)], leaf, 0
    for _ in range(depth):
        # HDF5 spec III.A.2, internal node: counts are as wide as their largest possible value needs
        pointer = widths.address + _byte_width(leaf) + total_width
        most = (room - pointer) // (record_size + pointer)
        check(most > 0 and total_width <= 8, f"a B-tree with nodes of {node_size} bytes has a depth of {depth}")
        levels.append(_Level(most, _byte_width(leaf), total_width))
        most_below = (most + 1) * most_below + most
        total_width = _byte_width(most_below)
    return tuple(levels)


def _byte_width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def scan_records(tree: BTree2, widths: Widths, end: int, use: Callable[[NDArray[np.uint8]], None]) -> Parse[None]:
    """Pass all records of a tree to a function, in pieces, in no fixed order."""
    if tree.root is None:
        return
    check(tree.root <= _MAX_OFFSET, "a B-tree lies past the end of the file")
    addresses, counts = np.array([tree.root]), np.array([tree.n_root])
    nodes: list[Blocks] = []
    n_found = 0
    for depth in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[depth]
        check(int(counts.max()) <= level.most, "a node of a B-tree has more records than fit into it")
        check(not depth or int(counts.min()) > 0, "a node of a B-tree has no records")
        nodes.append(Blocks(addresses, tree.node_size))
        check_places(nodes, end, "nodes of a B-tree")
        n_found += int(counts.sum())
        check(n_found <= tree.n_records, "a B-tree has more records than its header says")
        reader = _LevelNodes(tree, widths, depth, counts, use)
        yield from read_in_rounds([Blocks(addresses, reader.size)], reader.read)
        addresses, counts = reader.children()
    check(n_found == tree.n_records, "a B-tree has fewer records than its header says")


class _LevelNodes:
    """Reader of the nodes of one level."""

    def __init__(
        self,
        tree: BTree2,
        widths: Widths,
        depth: int,
        counts: NDArray[np.int64],
        use: Callable[[NDArray[np.uint8]], None],
    ) -> None:
        self._record, self._kind, self._depth, self._counts, self._use = tree.record_size, tree.kind, depth, counts, use
        self._level, self._address = tree.levels[depth], widths.address
        self._pointer = widths.address + self._level.count_width + self._level.total_width if depth else 0
        self._children: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        # The size that the fullest node uses.
        self.size = int(self._used(counts).max()) + _CHECKSUM_BYTES

    def _used(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        return _PREFIX_BYTES + counts * self._record + (counts + 1) * self._pointer

    def read(self, number: int, first: int, nodes: NDArray[np.uint8], /) -> None:
        counts = self._counts[first : first + len(nodes)]
        head = np.frombuffer((b"BTIN" if self._depth else b"BTLF") + bytes([0, self._kind]), np.uint8)
        if (nodes[:, :_PREFIX_BYTES] != head).any():
            raise StructureError("a node of a B-tree does not begin as one")
        verify_blocks(nodes, self._used(counts), "a node of a B-tree")
        if self._depth:
            self._read_pointers(nodes, counts)
        if most := int(counts.max()):
            shape, strides = (len(nodes), most), (nodes.shape[1], self._record)
            records = np.ndarray(shape, f"V{self._record}", nodes, _PREFIX_BYTES, strides)
            used = records[np.arange(most) < counts[:, None]] if int(counts.min()) < most else records
            self._use(np.ascontiguousarray(used).reshape(-1).view(np.uint8).reshape(-1, self._record))

    def _read_pointers(self, nodes: NDArray[np.uint8], counts: NDArray[np.int64]) -> None:
        places = []  # positions of the pointers, in order
        for row, count in enumerate(counts.tolist()):
            at = row * nodes.shape[1] + _PREFIX_BYTES + count * self._record
            places.append(at + np.arange(count + 1) * self._pointer)
        flat = nodes.reshape(-1)
        pointers = flat[np.concatenate(places)[:, None] + np.arange(self._pointer)]
        n = len(pointers)
        padded = np.zeros((n, self._pointer + 8), np.uint8)
        padded[:, : self._pointer] = pointers
        step = (padded.shape[1],)
        addresses = read_column(padded, 0, self._address, (n,), step)
        below = read_column(padded, self._address, self._level.count_width, (n,), step)
        self._children.append((addresses, below))

    def children(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the addresses of the nodes below, and the number of records of each."""
        addresses, counts = zip(*self._children, strict=True) if self._children else ((), ())
        none = np.zeros(0, np.int64)
        return np.concatenate([none, *addresses]), np.concatenate([none, *counts])
