"""Read extensible arrays of chunks (HDF5 spec VII.D), the index of datasets with one unlimited axis."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.chunk_table import ChunkSpace, ChunkTable, TableBuilder, empty_table
from virtualstack.formats.hdf5.structures.fixed_array import ElementBlocks, Elements, check_head
from virtualstack.formats.hdf5.structures.layout_message import ExtensibleArrayParameters
from virtualstack.formats.hdf5.structures.requests import (
    Blocks,
    Parse,
    Span,
    check,
    check_places,
    read_column,
    read_span,
    verified,
)
from virtualstack.formats.hdf5.structures.tables import Table

_CHECKSUM_BYTES = 4
_HEADER = Table(
    "has_filters B, entry_size B, n_bits B, n_index_block B, n_data_block B, n_pointers B, n_page_bits B,"
    "n_super_blocks L, super_block_bytes L, n_data_blocks L, data_block_bytes L, n_set L, n_elements L, index_block A",
    "EAHD",
    version=0,
)


class _Group(NamedTuple):
    """Data blocks of one size."""

    n_blocks: int
    n_elements: int
    first: int
    is_direct: bool


@functools.lru_cache(maxsize=8)
def _groups(p: ExtensibleArrayParameters) -> tuple[tuple[_Group, ...], tuple[_Group, ...]]:
    """Return the groups of data blocks to which the index block points, and the groups of super blocks."""
    # HDF5 spec VII.D: super block u has 2^floor(u/2) data blocks of 2^ceil(u/2) times the smallest number of elements.
    sizes = [(1 << u // 2, p.n_data_block << (u + 1) // 2) for u in range(p.n_bits - _log2(p.n_data_block) + 1)]
    groups, first, n_direct = [], p.n_index_block, 2 * _log2(p.n_pointers)
    for i, (n_blocks, n_elements) in enumerate(sizes):
        groups.append(_Group(n_blocks, n_elements, first, i < n_direct))
        first += n_blocks * n_elements
    return tuple(groups[:n_direct]), tuple(groups[n_direct:])


class _DataBlocks(NamedTuple):
    """The data blocks of a group that exist."""

    group: _Group
    addresses: NDArray[np.int64]
    first: NDArray[np.int64]
    is_written: NDArray[np.bool]


class _Array(NamedTuple):
    """The header of an extensible array."""

    space: ChunkSpace
    address: int
    parameters: ExtensibleArrayParameters
    order: tuple[int, ...]
    n_set: int
    index_block: int | None

    @property
    def page(self) -> int:
        """Number of elements of a page."""
        return 1 << self.parameters.n_page_bits

    @property
    def head(self) -> int:
        """Number of bytes before the content of each block: signature, version, client, address of the header."""
        return 6 + self.space.widths.address

    @property
    def offset_width(self) -> int:
        """Width in bytes of an element number, which follows the head of super blocks and data blocks."""
        return (self.parameters.n_bits + 7) // 8

    def n_pages(self, n_elements: int) -> int:
        """Return the number of pages of a data block."""
        return n_elements // self.page if n_elements > self.page else 0

    def data_block_size(self, n_elements: int) -> int:
        """Return the size of a data block in bytes."""
        n_checksums = 1 + self.n_pages(n_elements)
        return self.head + self.offset_width + n_elements * self.space.entry_size + n_checksums * _CHECKSUM_BYTES


def read_extensible_array(space: ChunkSpace, address: int) -> Parse[ChunkTable]:
    """List the chunks in an extensible array.

    The elements are numbered in the maximum grid with the unlimited axis moved to the slowest place. The first few
    elements are in the index block, and the other elements are in data blocks. The index block points to the first data
    blocks, and super blocks point to the other data blocks.
    """
    array = yield from _read_header(space, address)
    if array.index_block is None:
        return empty_table()
    n_index, width = array.parameters.n_index_block, space.widths.address
    direct, indirect = _groups(array.parameters)
    n_pointers = sum(group.n_blocks for group in direct)
    at = array.head + n_index * space.entry_size
    size = at + (n_pointers + len(indirect)) * width
    body = np.frombuffer(verified((yield from read_span(array.index_block, size + _CHECKSUM_BYTES))), np.uint8)
    check_head(body[None], b"EAIB", space, address)
    pointers = read_column(body, at, width, (n_pointers + len(indirect),), (width,))
    found = []
    for group in direct:
        found.append(_present(array, group, pointers[: group.n_blocks], np.zeros((group.n_blocks, 0), np.bool)))
        pointers = pointers[group.n_blocks :]
    found += yield from _read_super_blocks(array, indirect, pointers)
    found = [blocks for blocks in found if len(blocks.addresses)]
    places = [Blocks(blocks.addresses, array.data_block_size(blocks.group.n_elements)) for blocks in found]
    check_places(places, space.end, "data blocks of an extensible array")
    builder = TableBuilder(space, n_index + sum(len(b.addresses) * b.group.n_elements for b in found))
    elements = Elements(space=space, order=array.order, n_set=array.n_set, builder=builder)
    if n_index:
        elements.add(body[None], array.head, np.zeros(1, np.int64), n_index)
    return (yield from elements.read([request for blocks in found for request in _requests(array, blocks)]))


def _read_header(space: ChunkSpace, address: int) -> Parse[_Array]:
    widths, parameters = space.widths, space.layout.array
    unlimited = [axis for axis, n in enumerate(space.max_grid) if n is None]
    check(len(unlimited) == 1, f"a dataset with an extensible array has {len(unlimited)} unlimited axes")
    found = parameters or ExtensibleArrayParameters(0, 0, 0, 0, 0)
    head = yield from _HEADER.read(
        address, widths, has_filters=space.is_filtered, entry_size=space.entry_size, **found._asdict()
    )
    is_known = found.n_bits <= 64 and found.n_pointers > 1
    is_known = is_known and _is_power(found.n_pointers) and _is_power(found.n_data_block)
    is_known = is_known and 2 * _log2(found.n_pointers) <= found.n_bits - _log2(found.n_data_block) + 1
    check(is_known, f"an extensible array has invalid block sizes: {found}")
    n_set = head["n_set"]
    check(n_set < 1 << 62, f"an extensible array has {n_set} elements")
    array = _Array(
        space=space,
        address=address,
        parameters=found,
        order=(*unlimited, *(axis for axis in range(len(space.grid)) if axis not in unlimited)),
        n_set=n_set,
        index_block=widths.defined(head["index_block"]),
    )
    check(not any(array.n_pages(group.n_elements) for group in _groups(found)[0]), "the index block points to pages")
    return array


def _is_power(n: int) -> bool:
    return n > 0 and n & (n - 1) == 0


def _log2(n: int) -> int:
    return n.bit_length() - 1


def _present(array: _Array, group: _Group, addresses: NDArray[np.int64], is_written: NDArray[np.bool]) -> _DataBlocks:
    """Return the data blocks of a group that exist and begin before the last element that was set."""
    undefined = -1 if array.space.widths.address == 8 else array.space.widths.undefined
    n_begun = max(0, -(-(array.n_set - group.first) // group.n_elements))
    there = np.flatnonzero(addresses[:n_begun] != undefined)
    first = group.first + there * group.n_elements if len(there) else there  # no block has a number past 2^63
    return _DataBlocks(group, addresses[there], first, is_written[there])


def _read_super_blocks(
    array: _Array, groups: Sequence[_Group], addresses: NDArray[np.int64]
) -> Parse[list[_DataBlocks]]:
    spans, present = [], []
    width, undefined = array.space.widths.address, array.space.widths.undefined
    for group, address in zip(groups, addresses.tolist(), strict=True):
        if address % (1 << 64) == undefined or group.first >= array.n_set:
            continue
        n_map = (array.n_pages(group.n_elements) + 7) // 8
        size = array.head + array.offset_width + group.n_blocks * (n_map + width) + _CHECKSUM_BYTES
        spans.append(Span(address, size))
        present.append(group)
    check(sum(span.size for span in spans) <= array.space.end, "an extensible array is longer than the file")
    if not spans:
        return []
    answers = yield spans
    return [_parse_super_block(array, group, answer) for group, answer in zip(present, answers, strict=True)]


def _parse_super_block(array: _Array, group: _Group, raw: bytes) -> _DataBlocks:
    body = np.frombuffer(verified(raw), np.uint8)
    _check_heads(array, body[None], b"EASB", np.array([group.first]))
    n_pages, width = array.n_pages(group.n_elements), array.space.widths.address
    at = array.head + array.offset_width
    n_map = group.n_blocks * ((n_pages + 7) // 8)
    # The bits of all data blocks follow one another; unused bits are at the end.
    bits = np.unpackbits(body[at : at + n_map], count=group.n_blocks * n_pages).view(np.bool)
    addresses = read_column(body, at + n_map, width, (group.n_blocks,), (width,))
    return _present(array, group, addresses, bits.reshape(group.n_blocks, n_pages))


def _check_heads(array: _Array, blocks: NDArray[np.uint8], signature: bytes, first: NDArray[np.int64] | None) -> None:
    """Check the heads of blocks, including the number of the first element unless ``first`` is ``None``.

    In data blocks of the index block, the stored number differs. There the library (H5EA__lookup_elmt) counts the data
    blocks of all groups before as if they were in this group.
    """
    check_head(blocks, signature, array.space, array.address)
    if first is None:
        return
    offset = (first - array.parameters.n_index_block).astype("<i8").view(np.uint8).reshape(-1, 8)
    stored = blocks[:, array.head : array.head + array.offset_width]
    check(
        bool((stored == offset[:, : array.offset_width]).all()),
        "a block of an extensible array belongs to another place",
    )


def _requests(array: _Array, blocks: _DataBlocks) -> Iterator[ElementBlocks]:
    """Yield the requests for data blocks, or for their heads and for the pages that were written."""
    group, prefix = blocks.group, array.head + array.offset_width
    n_pages = array.n_pages(group.n_elements)

    def check_blocks(raw: NDArray[np.uint8], first: NDArray[np.int64]) -> None:
        _check_heads(array, raw, b"EADB", None if group.is_direct else first)

    n_elements = 0 if n_pages else group.n_elements
    yield ElementBlocks(blocks.addresses, blocks.first, prefix, n_elements, check_blocks)
    if n_pages:
        block, page = np.nonzero(blocks.is_written)
        page_size = array.page * array.space.entry_size + _CHECKSUM_BYTES
        addresses = blocks.addresses[block] + prefix + _CHECKSUM_BYTES + page * page_size
        yield ElementBlocks(addresses, blocks.first[block] + page * array.page, 0, array.page)
