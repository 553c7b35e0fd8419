"""Elements of fixed and extensible arrays: an address each, and with filters the size and the filter mask too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.chunk_table import ChunkSpace, TableBuilder
from virtualstack.formats.hdf5.structures.fields import check, read_column

__all__ = ["add_elements", "check_head"]


def check_head(blocks: NDArray[np.uint8], signature: bytes, space: ChunkSpace, array: int | None) -> None:
    """Check how some blocks begin.

    Parameters
    ----------
    blocks
        Shape ``(n, size)``.
    signature
        Four letters.
    array
        Address of the header of the array, which follows in all blocks but the header itself.

    Raises
    ------
    StructureError
        Signature, version, the kind of elements, or the address is another one.
    """
    # HDF5 spec VII.C and VII.D: signature, version 0, client id (0 without, 1 with filters)
    head = signature + bytes([0, int(space.is_filtered)])
    if array is not None:
        head += array.to_bytes(space.widths.address, "little")
    is_head = (blocks[:, : len(head)] == np.frombuffer(head, np.uint8)).all()
    check(bool(is_head), f"there is no '{signature.decode()}' of the dataset where one should be")


def add_elements(
    blocks: NDArray[np.uint8],
    at: int,
    first: NDArray[np.int64],
    n_elements: int,
    *,
    space: ChunkSpace,
    order: Sequence[int],
    n_set: int,
    builder: TableBuilder,
) -> None:
    """Add the chunks of some blocks of elements.

    Parameters
    ----------
    blocks
        Shape ``(n, size)``, C-contiguous.
    at
        Byte of each block where the first element begins.
    first
        Shape ``(n,)``: the number of the first element of each block.
    n_elements
        Elements of each block.
    order
        The axes of the dataset, from the one that varies slowest in the numbers of elements.
    n_set
        Elements of this number and more were never set.
    """
    shape, strides = (len(blocks), n_elements), (blocks.shape[1], space.entry_size)
    width = space.widths.address
    offset = read_column(blocks, at, width, shape, strides)
    number = (first[:, None] + np.arange(n_elements)).reshape(-1)
    undefined = -1 if width == 8 else space.widths.undefined
    is_set = offset != undefined
    if int(first.max()) + n_elements > n_set:
        is_set &= number < n_set
    is_whole = bool(is_set.all())
    if not is_whole:
        offset, number = offset[is_set], number[is_set]
    if not len(number):
        return
    cell, is_inside = space.cells_numbered(number, order)
    length = mask = None
    if space.is_filtered:
        length = read_column(blocks, at + width, space.size_width, shape, strides)
        mask = read_column(blocks, at + width + space.size_width, 4, shape, strides)
        if not is_whole:
            length, mask = length[is_set], mask[is_set]
    builder.add(cell, is_inside, offset, length, mask)
