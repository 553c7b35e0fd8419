"""Version 2 B-trees of chunks (HDF5 spec III.A.2, records of type 10 and 11): several unlimited axes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.btree2 import read_btree2, scan_records
from virtualstack.formats.hdf5.structures.checks import check
from virtualstack.formats.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder
from virtualstack.formats.hdf5.structures.columns import read_column
from virtualstack.formats.hdf5.structures.requests import Parse

__all__ = ["read_btree2_chunks"]

_UNFILTERED, _FILTERED = 10, 11


def read_btree2_chunks(space: ChunkSpace, address: int) -> Parse[ChunkTable]:
    """List the chunks in a version 2 B-tree.

    Parameters
    ----------
    space
        Of the dataset.
    address
        Of the header.

    Raises
    ------
    StructureError
        A node is damaged, contradicts the layout, or lies outside of the file, or a chunk is wrong.
    """
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
