"""Find the chunks of a dataset in the bytes of its chunk index, of any kind."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.btree1 import read_btree1
from virtualstack.formats.hdf5.structures.btree2 import read_btree2, scan_records
from virtualstack.formats.hdf5.structures.chunk_table import (
    ChunkSpace,
    ChunkTable,
    TableBuilder,
    chunk_space,
    empty_table,
)
from virtualstack.formats.hdf5.structures.extensible_array import read_extensible_array
from virtualstack.formats.hdf5.structures.fixed_array import read_fixed_array
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout
from virtualstack.formats.hdf5.structures.requests import Parse, Widths, check, read_column

__all__ = ["ChunkTable", "read_btree2_chunks", "read_chunk_index"]

_UNFILTERED, _FILTERED = 10, 11


def read_btree2_chunks(space: ChunkSpace, address: int) -> Parse[ChunkTable]:
    """List the chunks in a version 2 B-tree."""
    tree = yield from read_btree2(address, _FILTERED if space.is_filtered else _UNFILTERED, space.widths)
    size = space.entry_size + 8 * len(space.grid)
    check(tree.record_size == size, f"a B-tree has records of {tree.record_size} bytes, not {size}")
    check(tree.node_size == space.layout.node_size, "a B-tree has nodes of another size than the layout says")
    check(tree.n_records * size <= space.end, f"a B-tree of {tree.n_records} records is longer than the file")
    builder = TableBuilder(space, tree.n_records)

    def use(records: NDArray[np.uint8]) -> None:
        def column(at: int, width: int) -> NDArray[np.int64]:
            return read_column(records, at, width, (len(records),), (size,))

        width, entry = space.widths.address, space.entry_size
        cell, is_inside = space.cells_at(column(entry + 8 * axis, 8) for axis in range(len(space.grid)))
        length = column(width, space.size_width) if space.is_filtered else None
        mask = column(width + space.size_width, 4) if space.is_filtered else None
        builder.add(cell, is_inside, column(0, width), length, mask)

    yield from scan_records(tree, space.widths, space.end, use)
    builder.check_distinct()
    return builder.finish()


def read_chunk_index(
    layout: ChunkedLayout,
    shape: tuple[int, ...],
    maxshape: tuple[int | None, ...],
    *,
    is_filtered: bool,
    btree1_k: int,
    widths: Widths,
    end: int,
) -> Parse[ChunkTable]:
    """List the allocated chunks of a dataset.

    Chunks outside of the current shape and chunks that were never allocated are left out.
    """
    space = chunk_space(layout, shape, maxshape, is_filtered=is_filtered, widths=widths, end=end)
    address = layout.address
    if address is None or not space.n_cells:
        return empty_table()
    match layout.kind:
        case "btree1":
            return (yield from read_btree1(space, address, btree1_k))
        case "single":
            return _single_chunk(space, address)
        case "implicit":
            return _implicit_index(space, address)
        case "fixed":
            return (yield from read_fixed_array(space, address))
        case "extensible":
            return (yield from read_extensible_array(space, address))
        case "btree2":
            return (yield from read_btree2_chunks(space, address))


def _single_chunk(space: ChunkSpace, address: int) -> ChunkTable:
    """Return the single chunk to which the layout message points (HDF5 spec VII.A)."""
    size, mask = space.layout.single_size, space.layout.single_mask
    check(space.max_grid == (1,) * len(space.grid), f"a single chunk is for a grid of {space.max_grid} chunks")
    check((size is not None) == space.is_filtered, "a single chunk has a size without filters, or filters and no size")
    builder = TableBuilder(space, 1)
    length = None if size is None else _bounded(size)
    builder.add(np.zeros(1, np.int64), None, _bounded(address), length, np.array([mask], np.int64))
    return builder.finish()


def _bounded(number: int) -> NDArray[np.int64]:
    return np.array([min(number, (1 << 63) - 1)], np.int64)


def _implicit_index(space: ChunkSpace, address: int) -> ChunkTable:
    """Return chunks that follow one another in the order of the maximum grid (HDF5 spec VII.B)."""
    check(not space.is_filtered, "a dataset with filters has an implicit chunk index")
    n, size = math.prod(space.limited_grid("an implicit chunk index")), space.layout.chunk_bytes
    check(address + n * size <= space.end, "the chunks of an implicit chunk index lie past the end of the file")
    number = np.arange(n)
    builder = TableBuilder(space, n)
    cell, is_inside = space.cells_numbered(number, range(len(space.grid)))
    builder.add(cell, is_inside, address + number * size, None, None)
    return builder.finish()
