"""Fixed arrays of chunks (HDF5 spec VII.C): the index of datasets whose greatest shape is limited."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.array_elements import add_elements, check_head
from virtualstack.formats.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder, empty_table
from virtualstack.formats.hdf5.structures.fields import check, unsigned, verified, verify_blocks
from virtualstack.formats.hdf5.structures.requests import Blocks, Parse, read_in_rounds, read_span

__all__ = ["read_fixed_array"]

_CHECKSUM_BYTES = 4
_MAX_SET = (1 << 63) - 1  # all elements may be set


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
    widths, n_cells = space.widths, math.prod(space.limited_grid("a fixed array"))
    head = verified((yield from read_span(address, 12 + widths.length + widths.address)))
    check_head(np.frombuffer(head, np.uint8)[None], b"FAHD", space, None)
    entry_size, n_page_bits = head[6], head[7]
    check(entry_size == space.entry_size, f"a fixed array has elements of {entry_size} bytes, not {space.entry_size}")
    check(n_page_bits == space.layout.n_page_bits, "a fixed array has other pages than the layout says")
    n, block = unsigned(head, 8, widths.length), unsigned(head, 8 + widths.length, widths.address)
    check(n == n_cells, f"a fixed array has {n} elements for {n_cells} chunks")
    if block == widths.undefined:
        return empty_table()
    check(n * entry_size <= space.end, f"a fixed array of {n} elements is longer than the file")
    page = 1 << n_page_bits
    # HDF5 spec VII.C, data block: there are no pages where all elements fit in one
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
    pages = np.flatnonzero(np.unpackbits(head[at:], count=n_pages))  # those that hold something
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
        blocks, at, first, n_elements, space=space, order=range(len(space.grid)), n_set=_MAX_SET, builder=builder
    )
