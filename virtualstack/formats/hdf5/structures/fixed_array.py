"""Read fixed arrays of chunks (HDF5 spec VII.C), the index of datasets without an unlimited axis.

An element is an address, and with filters also size and filter mask. Extensible arrays have the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder, empty_table
from virtualstack.formats.hdf5.structures.requests import (
    Blocks,
    Parse,
    check,
    read_column,
    read_in_rounds,
    read_span,
    verified,
    verify_blocks,
)
from virtualstack.formats.hdf5.structures.tables import Table

__all__ = ["add_elements", "check_head", "read_fixed_array"]


def check_head(blocks: NDArray[np.uint8], signature: bytes, space: ChunkSpace, array: int) -> None:
    """Check the heads of some blocks."""
    # HDF5 spec VII.C and VII.D: signature, version 0, client id (0 without, 1 with filters)
    head = signature + bytes([0, int(space.is_filtered)]) + array.to_bytes(space.widths.address, "little")
    is_head = (blocks[:, : len(head)] == np.frombuffer(head, np.uint8)).all()
    check(bool(is_head), f"there is no '{signature.decode()}' of the dataset where it should be")


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
    """Add the chunks of some blocks of elements."""
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


_HEADER = Table("has_filters B, entry_size B, n_page_bits B, n_elements L, block A", "FAHD", version=0)
_CHECKSUM_BYTES = 4
_MAX_SET_ELEMENTS = (1 << 63) - 1  # all elements may be set


def read_fixed_array(space: ChunkSpace, address: int) -> Parse[ChunkTable]:
    """List the chunks in a fixed array, which has an element for each cell of the maximum grid."""
    widths, n_cells = space.widths, math.prod(space.limited_grid("a fixed array"))
    n_page_bits = space.layout.n_page_bits or 0
    found = yield from _HEADER.read(
        address,
        widths,
        has_filters=space.is_filtered,
        entry_size=space.entry_size,
        n_page_bits=n_page_bits,
        n_elements=n_cells,
    )
    n, block = n_cells, found["block"]
    if block == widths.undefined:
        return empty_table()
    check(n * space.entry_size <= space.end, f"a fixed array of {n} elements is longer than the file")
    page = 1 << n_page_bits
    # HDF5 spec VII.C, data block: there are no pages if all elements fit in one page
    return (
        yield from (_read_pages(space, address, block, n, page) if n > page else _read_whole(space, address, block, n))
    )


def _read_whole(space: ChunkSpace, array: int, block: int, n: int) -> Parse[ChunkTable]:
    at = 6 + space.widths.address
    raw = yield from read_span(block, at + n * space.entry_size + _CHECKSUM_BYTES)
    blocks = np.frombuffer(raw, np.uint8)[None]
    check_head(blocks, b"FADB", space, array)
    builder = TableBuilder(space, n)
    _add(space, blocks, at, np.zeros(1, np.int64), n, builder)
    return builder.finish()


def _read_pages(space: ChunkSpace, array: int, block: int, n: int, page: int) -> Parse[ChunkTable]:
    n_pages = -(-n // page)
    at = 6 + space.widths.address
    size = at + (n_pages + 7) // 8 + _CHECKSUM_BYTES
    head = np.frombuffer(verified((yield from read_span(block, size))), np.uint8)
    check_head(head[None], b"FADB", space, array)
    page_size, end = (
        page * space.entry_size + _CHECKSUM_BYTES,
        block + size + n * space.entry_size + n_pages * _CHECKSUM_BYTES,
    )
    check(end <= space.end, "a fixed array reaches past the end of the file")
    pages = np.flatnonzero(np.unpackbits(head[at:], count=n_pages))  # the pages that were written
    n_last = n - (n_pages - 1) * page
    whole = pages[:-1] if n_last < page and len(pages) and pages[-1] == n_pages - 1 else pages
    last = pages[len(whole) :]
    requests = [
        Blocks(block + size + whole * page_size, page_size),
        Blocks(block + size + last * page_size, n_last * space.entry_size + _CHECKSUM_BYTES),
    ]
    builder = TableBuilder(space, len(pages) * page)

    def use(number: int, first: int, raw: NDArray[np.uint8]) -> None:
        numbers = (last if number else whole)[first : first + len(raw)]
        _add(space, raw, 0, numbers * page, n_last if number else page, builder)

    yield from read_in_rounds(requests, use)
    return builder.finish()


def _add(
    space: ChunkSpace,
    blocks: NDArray[np.uint8],
    at: int,
    first: NDArray[np.int64],
    n_elements: int,
    builder: TableBuilder,
) -> None:
    verify_blocks(blocks, at + n_elements * space.entry_size, "a fixed array")
    add_elements(
        blocks,
        at,
        first,
        n_elements,
        space=space,
        order=range(len(space.grid)),
        n_set=_MAX_SET_ELEMENTS,
        builder=builder,
    )
