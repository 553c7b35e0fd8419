"""Where the chunks of a dataset lie, as the HDF5 library lists them."""

from __future__ import annotations

import functools
import math
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from virtualstack.readers.hdf5.faults import library_errors
from virtualstack.readers.hdf5.structures.chunk_table import ChunkTable
from virtualstack.readers.hdf5.structures.layout_message import ChunkedLayout

__all__ = ["UnlistableChunksError", "list_chunks"]


class UnlistableChunksError(Exception):
    """The HDF5 library does not say where the chunks of a dataset lie."""


def list_chunks(dataset: h5py.Dataset, layout: ChunkedLayout, base: int, /) -> ChunkTable:
    """List the allocated chunks of a chunked dataset; the chunk index is read, no chunk is.

    Offsets are counted from the start of the file.

    Parameters
    ----------
    dataset
        Chunked, with at least one element.
    layout
        Its layout message.
    base
        Bytes of the user block.

    Raises
    ------
    LibraryError
        The chunk index is damaged.
    UnlistableChunksError
        Listing them would give wrong places, or chunks are listed twice or outside of the array.
    """
    chunks, shape, maxshape = dataset.chunks, dataset.shape, dataset.maxshape
    listed: list[Any] = []
    with library_errors():
        dataset.id.chunk_iter(listed.append)
    table = [(*x.chunk_offset, x.byte_offset, x.size, x.filter_mask) for x in listed]
    try:
        rows = np.array(table, np.int64).reshape(len(table), len(shape) + 3)
    except OverflowError as error:
        raise UnlistableChunksError("the chunk index has a chunk at 2^63 bytes or more") from error
    scaled = rows[:, : len(shape)] // np.array(chunks, np.int64)
    unlimited = [axis for axis, length in enumerate(maxshape) if length is None]
    if len(unlimited) == 1 and unlimited[0] > 0 and len(table):
        scaled = _true_cells(scaled, layout, unlimited[0], chunks, maxshape)
    grid = np.array([-(-n // c) for n, c in zip(shape, chunks, strict=True)], np.int64)
    if ((scaled < 0) | (scaled >= grid)).any():
        raise UnlistableChunksError("the chunk index has a chunk outside of the array")
    cell = np.ravel_multi_index(tuple(scaled.T), tuple(grid.tolist())) if len(table) else np.zeros(0, np.int64)
    if np.unique(cell).size != cell.size:
        raise UnlistableChunksError("the chunk index has two chunks for one place")
    offset = rows[:, -3] if not base or _counts_user_block() else rows[:, -3] + base
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
    if layout.index != "extensible" or not _lists_moved_axes():
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


@functools.cache
def _lists_moved_axes() -> bool:
    """Whether this HDF5 library has the fault: it is asked to list one chunk of a file in memory."""
    with h5py.File("listing", "w", driver="core", backing_store=False, libver="latest") as file:
        dataset = file.create_dataset("x", (2, 2), "u1", chunks=(1, 1), maxshape=(2, None))
        dataset[1, 0] = 1
        listed: list[Any] = []
        dataset.id.chunk_iter(listed.append)
        return [x.chunk_offset for x in listed] == [(0, 1)]


@functools.cache
def _counts_user_block() -> bool:
    """Whether this HDF5 library counts the user block in offsets of chunks, which older ones (1.14.1) do not."""
    with h5py.File("listing", "w", driver="core", backing_store=False, userblock_size=512) as file:
        dataset = file.create_dataset("x", data=np.frombuffer(b"a chunk to find again", np.uint8), chunks=(21,))
        file.flush()
        listed: list[Any] = []
        dataset.id.chunk_iter(listed.append)
        image = file.id.get_file_image()  # begins with the superblock: the user block is no part of it
        after = image.find(b"a chunk to find again") - image.find(b"\x89HDF\r\n\x1a\n")
        return bool(listed[0].byte_offset == after + 512)
