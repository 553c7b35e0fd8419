"""Read fixed arrays of chunks (HDF5 spec VII.C), the index of datasets without an unlimited axis.

An element is an address, and with filters also size and filter mask. Extensible arrays have the same elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder, empty_table
from virtualstack.formats.hdf5.structures.requests import (
    Blocks,
    OutsideError,
    Parse,
    check,
    read_column,
    read_in_rounds,
    read_span,
    verified,
    verify_blocks,
)
from virtualstack.formats.hdf5.structures.tables import Table


def check_head(blocks: NDArray[np.uint8], signature: bytes, space: ChunkSpace, array: int) -> None:
    """Check the heads of some blocks."""
    # HDF5 spec VII.C and VII.D: signature, version 0, client id (0 without, 1 with filters)
    head = signature + bytes([0, int(space.is_filtered)]) + array.to_bytes(space.widths.address, "little")
    is_head = (blocks[:, : len(head)] == np.frombuffer(head, np.uint8)).all()
    check(bool(is_head), f"there is no '{signature.decode()}' of the dataset where it should be")


class ElementBlocks(NamedTuple):
    """Blocks with equally many elements.

    Parameters
    ----------
    addresses, first
        Address of each block, and number of its first element.
    at
        Bytes before the elements; a checksum follows the elements.
    n_elements
        Elements in each block.
    check
        Function that checks the bytes before the elements of some blocks with their first numbers.
    """

    addresses: NDArray[np.int64]
    first: NDArray[np.int64]
    at: int
    n_elements: int
    check: Callable[[NDArray[np.uint8], NDArray[np.int64]], None] | None = None


class Elements(NamedTuple):
    """Collector of the chunks of an array, whose elements are numbered along some order of the axes."""

    space: ChunkSpace
    order: Sequence[int]
    n_set: int
    builder: TableBuilder

    def read(self, requests: Sequence[ElementBlocks]) -> Parse[ChunkTable]:
        """Read blocks of elements, and return all chunks."""
        entry = self.space.entry_size

        def use(number: int, start: int, raw: NDArray[np.uint8]) -> None:
            blocks = requests[number]
            first = blocks.first[start : start + len(raw)]
            verify_blocks(raw, blocks.at + blocks.n_elements * entry, "an array of chunks")
            if blocks.check is not None:
                blocks.check(raw, first)
            if blocks.n_elements:
                self.add(raw, blocks.at, first, blocks.n_elements)

        sizes = [x.at + x.n_elements * entry + _CHECKSUM_BYTES for x in requests]
        yield from read_in_rounds([Blocks(x.addresses, n) for x, n in zip(requests, sizes, strict=True)], use)
        return self.builder.finish()

    def add(self, blocks: NDArray[np.uint8], at: int, first: NDArray[np.int64], n_elements: int) -> None:
        """Add the chunks of some blocks."""
        space, width = self.space, self.space.widths.address
        shape, strides = (len(blocks), n_elements), (blocks.shape[1], space.entry_size)
        offset = read_column(blocks, at, width, shape, strides)
        number = (first[:, None] + np.arange(n_elements)).reshape(-1)
        is_set = offset != (-1 if width == 8 else space.widths.undefined)
        if int(first.max()) + n_elements > self.n_set:
            is_set &= number < self.n_set
        is_whole = bool(is_set.all())
        if not is_whole:
            offset, number = offset[is_set], number[is_set]
        if not len(number):
            return
        cell, is_inside = space.cells_numbered(number, self.order)
        length = mask = None
        if space.is_filtered:
            length = read_column(blocks, at + width, space.size_width, shape, strides)
            mask = read_column(blocks, at + width + space.size_width, 4, shape, strides)
            if not is_whole:
                length, mask = length[is_set], mask[is_set]
        self.builder.add(cell, is_inside, offset, length, mask)


_HEADER = Table("has_filters B, entry_size B, n_page_bits B, n_elements L, block A", "FAHD", version=0)
_CHECKSUM_BYTES = 4


def read_fixed_array(space: ChunkSpace, address: int) -> Parse[ChunkTable]:
    """List the chunks in a fixed array, which has an element for each cell of the maximum grid."""
    widths, n = space.widths, math.prod(space.limited_grid("a fixed array"))
    n_page_bits = space.layout.n_page_bits or 0
    found = yield from _HEADER.read(
        address,
        widths,
        has_filters=space.is_filtered,
        entry_size=space.entry_size,
        n_page_bits=n_page_bits,
        n_elements=n,
    )
    block, page, at = found["block"], 1 << n_page_bits, 6 + widths.address
    if block == widths.undefined:
        return empty_table()
    check(n * space.entry_size <= space.end, f"a fixed array of {n} elements is longer than the file")
    if block > space.end:
        raise OutsideError("a fixed array lies past the end of the file")

    def check_block(blocks: NDArray[np.uint8], _first: NDArray[np.int64]) -> None:
        check_head(blocks, b"FADB", space, address)

    elements = Elements(space=space, order=range(len(space.grid)), n_set=n, builder=TableBuilder(space, n))
    start = np.zeros(1, np.int64)
    # HDF5 spec VII.C, data block: there are no pages if all elements fit in one page
    if n <= page:
        return (yield from elements.read([ElementBlocks(start + block, start, at, n, check_block)]))
    n_pages = -(-n // page)
    size = at + (n_pages + 7) // 8 + _CHECKSUM_BYTES
    head = np.frombuffer(verified((yield from read_span(block, size))), np.uint8)
    check_block(head[None], start)
    page_size, end = page * space.entry_size + _CHECKSUM_BYTES, block + size + n * space.entry_size
    check(end + n_pages * _CHECKSUM_BYTES <= space.end, "a fixed array reaches past the end of the file")
    pages = np.flatnonzero(np.unpackbits(head[at:], count=n_pages))  # the pages that were written
    is_last = pages == n_pages - 1
    requests = [
        ElementBlocks(block + size + some * page_size, some * page, 0, n_elements)
        for some, n_elements in ((pages[~is_last], page), (pages[is_last], n - (n_pages - 1) * page))
    ]
    return (yield from elements.read(requests))
