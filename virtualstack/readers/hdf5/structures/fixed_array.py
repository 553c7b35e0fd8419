"""Fixed arrays of chunks (HDF5 spec VII.C): the index of datasets whose greatest shape is limited."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from virtualstack.readers.hdf5.structures.array_elements import add_elements, check_head
from virtualstack.readers.hdf5.structures.checks import check, unsigned, verified
from virtualstack.readers.hdf5.structures.checksum import verify_blocks
from virtualstack.readers.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder, empty_table
from virtualstack.readers.hdf5.structures.requests import Blocks, Parse, StructureError, read_span
from virtualstack.readers.hdf5.structures.rounds import read_in_rounds

__all__ = ["read_fixed_array"]

_CHECKSUM = 4


def read_fixed_array(space: ChunkSpace, address: int) -> Parse[ChunkTable]:
    """List the chunks in a fixed array.

    It has an element for each cell of the maximum grid.

    Parameters
    ----------
    space
        Of the dataset.
    address
        Of the header.

    Raises
    ------
    StructureError
        A block is damaged, contradicts the layout, or lies outside of the file, or a chunk is wrong.
    """
    widths = space.widths
    head = verified((yield from read_span(address, 12 + widths.length + widths.address)))
    check_head(np.frombuffer(head, np.uint8)[None], b"FAHD", space, None)
    entry_size, n_page_bits = head[6], head[7]
    check(entry_size == space.entry_size, f"a fixed array has elements of {entry_size} bytes, not {space.entry_size}")
    check(n_page_bits == space.layout.n_page_bits, "a fixed array has other pages than the layout says")
    n, block = unsigned(head, 8, widths.length), unsigned(head, 8 + widths.length, widths.address)
    n_cells = math.prod(_limited(space))
    check(n == n_cells, f"a fixed array has {n} elements for {n_cells} chunks")
    if block == widths.undefined:
        return empty_table()
    return (yield from _read_block(space, address, block, n, 1 << n_page_bits))


def _limited(space: ChunkSpace) -> tuple[int, ...]:
    limited = tuple(n for n in space.max_grid if n is not None)
    if len(limited) < len(space.max_grid):
        raise StructureError("a dataset with a fixed array has an unlimited axis")
    return limited


def _read_block(space: ChunkSpace, array: int, block: int, n: int, page: int) -> Parse[ChunkTable]:
    entry, order = space.entry_size, range(len(space.grid))
    check(n * entry <= space.end, f"a fixed array of {n} elements is longer than the file")
    prefix = 6 + space.widths.address
    n_pages = -(-n // page) if n > page else 0  # HDF5 spec VII.C, data block: no pages if all fits in one
    n_map = (n_pages + 7) // 8

    def add(raw: NDArray[np.uint8], at: int, first: NDArray[np.int64], n_elements: int) -> None:
        verify_blocks(raw, at + n_elements * entry, "a fixed array")
        add_elements(raw, at, first, n_elements, space=space, order=order, n_set=n, builder=builder)

    if not n_pages:
        builder = TableBuilder(space, n)
        raw = np.frombuffer((yield from read_span(block, prefix + n * entry + _CHECKSUM)), np.uint8)[None]
        check_head(raw, b"FADB", space, array)
        add(raw, prefix, np.zeros(1, np.int64), n)
        return builder.finish()
    head = np.frombuffer(verified((yield from read_span(block, prefix + n_map + _CHECKSUM))), np.uint8)
    check_head(head[None], b"FADB", space, array)
    is_written = np.unpackbits(head[prefix:], count=n_pages).view(np.bool)
    start = block + prefix + n_map + _CHECKSUM
    check(start + n * entry + n_pages * _CHECKSUM <= space.end, "a fixed array reaches past the end of the file")
    pages = np.flatnonzero(is_written)
    builder = TableBuilder(space, len(pages) * page)
    places = start + pages * (page * entry + _CHECKSUM)
    last = n % page
    whole = len(pages) - int(bool(last) and bool(is_written[-1]))
    requests = [Blocks(places[:whole], page * entry + _CHECKSUM), Blocks(places[whole:], last * entry + _CHECKSUM)]

    def use(number: int, first: int, raw: NDArray[np.uint8]) -> None:
        numbers = pages[first : first + len(raw)] if number == 0 else pages[whole:]
        add(raw, 0, numbers * page, last if number else page)

    yield from read_in_rounds(requests, use)
    return builder.finish()
