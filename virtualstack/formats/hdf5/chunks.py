"""Where the chunks of a dataset lie, as the HDF5 library lists them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.child.records import FoundChunks
from virtualstack.formats.hdf5.structures.chunk_table import ChunkTable
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout

__all__ = ["UnlistableChunksError", "table_of_chunks"]

_MAX_OFFSET = np.uint64(2**63 - 1)


class UnlistableChunksError(Exception):
    """The HDF5 library does not say where the chunks of a dataset lie."""


def table_of_chunks(found: FoundChunks, layout: ChunkedLayout, base: int, /) -> ChunkTable:
    """Return the allocated chunks of a chunked dataset, whose offsets are counted from the start of the file.

    Parameters
    ----------
    found
        Of a dataset with at least one element.
    layout
        Its layout message.
    base
        Bytes of the user block.

    Raises
    ------
    UnlistableChunksError
        Listing them would give wrong places, or chunks are listed twice or outside of the array.
    """
    chunks, shape, maxshape = found.chunks, found.shape, found.maxshape
    if (found.rows > _MAX_OFFSET).any():
        raise UnlistableChunksError("the chunk index has a chunk at 2^63 bytes or more")
    rows = found.rows.astype(np.int64)
    scaled = rows[:, : len(shape)] // np.array(chunks, np.int64)
    unlimited = [axis for axis, length in enumerate(maxshape) if length is None]
    if len(unlimited) == 1 and unlimited[0] > 0 and found.lists_moved_axes:
        scaled = _true_cells(scaled, layout, unlimited[0], chunks, maxshape)
    grid = np.array([-(-n // c) for n, c in zip(shape, chunks, strict=True)], np.int64)
    if ((scaled < 0) | (scaled >= grid)).any():
        raise UnlistableChunksError("the chunk index has a chunk outside of the array")
    cell = np.ravel_multi_index(tuple(scaled.T), tuple(grid.tolist())) if len(rows) else np.zeros(0, np.int64)
    if np.unique(cell).size != cell.size:
        raise UnlistableChunksError("the chunk index has two chunks for one place")
    offset = rows[:, -3] if not base or found.counts_user_block else rows[:, -3] + base
    return ChunkTable(cell=cell.astype(np.int64), offset=offset, length=rows[:, -2], mask=rows[:, -1].astype(np.uint32))


def _true_cells(
    listed: NDArray[np.int64],
    layout: ChunkedLayout,
    unlimited: int,
    chunks: tuple[int, ...],
    maxshape: tuple[int | None, ...],
) -> NDArray[np.int64]:
    """Undo a fault of HDF5 (up to 2.0 at least) in listing extensible arrays.

    An extensible array numbers the cells of the *maximum* grid with the one unlimited axis moved to the slowest place
    (HDF5 spec, appendix C, "the extensible array index"). The library looks chunks up that way, but lists them as if
    the axes were not moved. The number of a cell is all the same, as the unlimited axis never overflows.
    """
    if layout.index != "extensible":
        return listed
    most = [-(-n // c) if n is not None else 0 for n, c in zip(maxshape, chunks, strict=True)]
    after = most[unlimited + 1 :]
    if listed[:, :unlimited].any() or (listed[:, unlimited + 1 :] >= np.array(after, np.int64)).any():
        raise UnlistableChunksError("the HDF5 library lists an extensible array in an unknown way")
    weights = np.array([math.prod(after[i:]) for i in range(len(after) + 1)], np.int64)
    number = listed[:, unlimited:] @ weights
    others = [n for axis, n in enumerate(most) if axis != unlimited]
    per_step = math.prod(others)
    moved = np.stack([number // per_step, *np.unravel_index(number % per_step, others)], axis=1)
    return np.insert(moved[:, 1:], unlimited, moved[:, 0], axis=1)
