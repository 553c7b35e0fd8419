"""Encode and decode rows of a segment: the places of chunks, as columns of integers in compressed pages.

A segment is a zarr v3 array of int64, shape ``(columns, rows)``. Its chunks are pages of rows, and its shards are
objects of 64 pages. Columns are source, gap and length, and if the segment needs them, encoding and start. Each page
has a checksum. A mark in front of the index of each shard, where zarr does not look, identifies the shard.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from virtualstack.codecs.shards import INDEX_CHECKSUM_BYTES, INDEX_ENTRY_BYTES, NO_CHUNK
from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.vstack.format.documents import decompressed

ABSENT_ROW, EMPTY_ROW, INLINE_ROW = -1, -2, -3
"""Codes in the column of sources that do not refer to a source."""

PAGE_ROWS = 32768
"""Number of rows of a page."""

SHARD_PAGES = 64
"""Number of pages of a shard."""

_SHARD_MARK_BYTES = 16
"""Bytes of the mark of a shard."""

_BITSHUFFLE = 2


def page_rows(n_rows: int, /) -> int:
    """Return the number of rows of each page of a segment of ``n_rows``."""
    return max(min(PAGE_ROWS, n_rows), 1)


_PAGE_OVERHEAD_BYTES = 16 + 4
"""Maximum bytes that blosc (``BLOSC_MAX_OVERHEAD``) and a checksum add to a page."""


def _follows(source: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the rows that refer to bytes, and which of them come directly after a row of the same source."""
    stored = np.flatnonzero((source >= 0) | (source == INLINE_ROW))
    follows = np.zeros(len(stored), np.bool_)
    follows[1:] = source[stored[1:]] == source[stored[:-1]]
    return stored, follows


def encode_page(rows: NDArray[np.int64], /, n_rows: int | None = None) -> bytes:
    """Compress a page.

    The second column becomes the gap, in bytes, from the end of the previous chunk. The previous chunk is the last row
    above that refers to bytes, if its source is the same. For other rows the second column is the offset.
    """
    n = rows.shape[1]
    page = np.full((len(rows), n if n_rows is None else n_rows), ABSENT_ROW, np.int64)
    page[:, :n] = rows
    source, offset, length = page[0], page[1], page[2]
    stored, follows = _follows(source)
    ends = offset[stored] + length[stored]
    gap = offset[stored]
    gap[1:] -= np.where(follows[1:], ends[:-1], 0)
    offset[stored] = gap
    data: bytes = blosc.compress(page, b"zstd", 3, _BITSHUFFLE)
    return data + _checksum(data)


def _checksum(data: bytes) -> bytes:
    """Return the bytes that zarr's codec ``crc32c`` appends to data."""
    return struct.pack("<I", google_crc32c.value(data))


def decode_page(data: bytes | memoryview, columns: int, n_rows: int, /, *, where: str) -> NDArray[np.int64]:
    """Decompress a page."""
    nbytes = 8 * columns * n_rows
    data, checksum = bytes(data[:-4]), bytes(data[-4:])
    try:
        if checksum != _checksum(data):
            raise ValueError("its checksum is wrong")
        page = np.frombuffer(bytearray(decompressed(data, least=nbytes, most=nbytes)), "<i8").reshape(columns, n_rows)
    except ValueError as error:
        raise MalformedFileError(
            f"{where} is damaged: {error}", Remedy("restore it, or open another snapshot")
        ) from error
    stored, follows = _follows(page[0])
    gap, length = page[1][stored], page[2][stored]
    run = gap.copy()
    run[1:] += length[:-1]
    run = np.cumsum(run)
    begins = np.flatnonzero(~follows)
    page[1][stored] = run + np.repeat(gap[begins] - run[begins], np.diff(begins, append=len(gap)))
    page.flags.writeable = False
    return page


def page_length(columns: int, n_rows: int, /) -> int:
    """Return the maximum number of bytes of a compressed page."""
    return 8 * columns * n_rows + _PAGE_OVERHEAD_BYTES


def encode_shard(pages: Sequence[bytes], n_pages: int, mark: bytes, /) -> bytes:
    """Join pages, a mark, and the index, in the layout of zarr's codec ``sharding_indexed``."""
    index = np.full((n_pages, 2), NO_CHUNK, "<u8")
    lengths = np.array([len(page) for page in pages], np.uint64)
    index[: len(pages), 1] = lengths
    index[: len(pages), 0] = np.cumsum(lengths) - lengths
    tail = index.tobytes()
    return b"".join((*pages, mark, tail, _checksum(tail)))


@dataclass(frozen=True, slots=True)
class PageIndex:
    """The places of the pages in a shard: int64, shape ``(pages, 2)``, offset and length in bytes."""

    spots: NDArray[np.int64]


def index_length(n_pages: int, /) -> int:
    """Return the number of bytes of the mark and the index, which are the last bytes of a shard."""
    return _SHARD_MARK_BYTES + INDEX_ENTRY_BYTES * n_pages + INDEX_CHECKSUM_BYTES


def parse_index(data: bytes | memoryview, size: int, mark: bytes, /, *, where: str) -> PageIndex:
    """Read the mark and the index of a shard of ``size`` bytes, and check the mark."""
    end = len(data) - INDEX_CHECKSUM_BYTES
    found, body, checksum = bytes(data[:_SHARD_MARK_BYTES]), bytes(data[_SHARD_MARK_BYTES:end]), bytes(data[end:])
    if found != mark:
        raise MalformedFileError(
            f"{where} is another object than its name says", Remedy("restore it, or open another snapshot")
        )
    spots = np.frombuffer(body, "<u8").reshape(-1, 2)
    present = spots[:, 0] != NO_CHUNK
    if _checksum(body) != checksum or bool((spots[present] > size).any()) or bool((spots[present].sum(1) > size).any()):
        raise MalformedFileError(f"{where} has a damaged index", Remedy("restore it, or open another snapshot"))
    return PageIndex(np.where(present[:, None], spots, 0).astype(np.int64))


_HEAD_COLUMNS = 4  # columns before strides, begins and counts
_LIMIT = 1 << 62


def width(ndim: int, /) -> int:
    """Return the number of integers of a placement on a grid of ``ndim`` axes."""
    return _HEAD_COLUMNS + 3 * ndim


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """Boxes of a chunk grid; later ones hide earlier ones.

    Parameters
    ----------
    table
        Int64, shape ``(n, 4 + 3 * ndim)``: number of the segment; row of the first cell; number that is added to codes
        of encodings, and of fills. Then follow, one value for each axis: rows from a cell to the next, first cell,
        number of cells.
    """

    table: NDArray[np.int64]

    @classmethod
    def from_json(cls, rows: Sequence[Sequence[int]], ndim: int, /, *, where: str) -> Placements:
        """Read placements from JSON."""
        try:
            numbers = np.array(rows or np.zeros(0, np.int64))
            if numbers.dtype != np.int64:  # other dtypes would be truncated, or wrap
                raise ValueError(f"its numbers have dtype '{numbers.dtype}'")
            table = numbers.reshape(len(rows), width(ndim))
        except (ValueError, TypeError, OverflowError) as error:
            raise MalformedFileError(f"'{where}' has invalid placements: {error}", Remedy("restore it")) from error
        found = cls(table)
        begins, counts = found.begins, found.counts
        if (
            (table[:, :_HEAD_COLUMNS] < 0).any()
            or (begins < 0).any()
            or (counts < 1).any()
            or (np.abs(table) > _LIMIT).any()
        ):
            raise MalformedFileError(f"'{where}' has a placement with invalid numbers", Remedy("restore it"))
        with np.errstate(over="ignore"):
            reach = np.abs(found.strides.astype(float)) * (counts - 1)
        if (reach.sum(1) + table[:, 1] > _LIMIT).any():
            raise MalformedFileError(f"'{where}' has a placement beyond all rows", Remedy("restore it"))
        return found

    @property
    def ndim(self) -> int:
        """Number of axes of the grid."""
        return int(self.table.shape[1] - _HEAD_COLUMNS) // 3

    @property
    def strides(self) -> NDArray[np.int64]:
        """Rows from a cell to the next, shape ``(n, ndim)``."""
        return self.table[:, _HEAD_COLUMNS : _HEAD_COLUMNS + self.ndim]

    @property
    def begins(self) -> NDArray[np.int64]:
        """First cell of each box, shape ``(n, ndim)``."""
        return self.table[:, _HEAD_COLUMNS + self.ndim : _HEAD_COLUMNS + 2 * self.ndim]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of cells of each box, shape ``(n, ndim)``."""
        return self.table[:, _HEAD_COLUMNS + 2 * self.ndim :]

    @property
    def ends(self) -> NDArray[np.int64]:
        """Cell after the last cell of each box, shape ``(n, ndim)``."""
        return self.begins + self.counts

    def within(self, low: NDArray[np.int64], high: NDArray[np.int64], /) -> Placements:
        """Return the placements that meet a box, without placements below one that covers the whole box."""
        shown = self._shown(low, high)
        return self if len(shown) == len(self.table) else Placements(self.table[shown])

    def _shown(self, low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the numbers of these placements."""
        meets = ((self.begins < high) & (self.ends > low)).all(1)
        covers = np.flatnonzero(((self.begins <= low) & (self.ends >= high)).all(1))
        if len(covers):
            meets[: covers[-1]] = False
        return np.flatnonzero(meets)

    @property
    def are_apart(self) -> bool:
        """True if they follow each other along an axis, as those of appended files do, so that none hides another."""
        orders = (np.argsort(column, kind="stable") for column in self.begins.T)
        return len(self.table) < 2 or any(
            bool((self.begins[order[1:], axis] >= self.ends[order[:-1], axis]).all())
            for axis, order in enumerate(orders)
        )

    def find_rows(self, which: NDArray[np.intp] | int, cells: Sequence[NDArray[np.int64]], /) -> NDArray[np.int64]:
        """Return the row of each cell."""
        rows = np.broadcast_to(self.table[which, 1], np.broadcast_shapes(np.shape(which), *(x.shape for x in cells)))
        for axis, numbers in enumerate(cells):
            rows = rows + (numbers - self.begins[which, axis]) * self.strides[which, axis]
        return rows

    def find(self, cells: Sequence[NDArray[np.int64]], /) -> NDArray[np.intp]:
        """Return the placement that shows each cell, or -1."""
        points = np.stack(cells, 1) if cells else np.zeros((1, 0), np.int64)
        found = np.full(len(points), -1, np.intp)
        # Boxes that end along one axis of the cells at most are intervals of it. For others the cells are halved, as
        # looking at every box for every cell would take hours at worst.
        todo = [(np.arange(len(points)), np.arange(len(self.table)))] if len(points) else []
        while todo:
            mine, boxes = todo.pop()
            at, best = points[mine], found[mine]
            low, high = at.min(0), at.max(0) + 1
            boxes = boxes[Placements(self.table[boxes])._shown(low, high)]
            begins, ends = self.begins[boxes], self.ends[boxes]
            if len(mine) * len(boxes) <= _FEW:
                is_in = ((at[:, None] >= begins) & (at[:, None] < ends)).all(2)
                found[mine] = np.maximum(best, np.where(is_in, boxes, -1).max(1, initial=-1))
                continue
            is_cut = (begins > low) | (ends < high)
            n_cut = is_cut.sum(1)
            best = np.maximum(best, boxes[n_cut == 0].max(initial=-1))
            for axis in np.flatnonzero(is_cut[n_cut == 1].any(0)):
                slabs = np.flatnonzero(is_cut[:, axis] & (n_cut == 1))
                best = np.maximum(best, _latest(begins[slabs, axis], ends[slabs, axis], boxes[slabs], at[:, axis]))
            found[mine] = best
            rest = np.flatnonzero((n_cut > 1) & (boxes > best.min()))
            if len(rest):
                middle = low + (high - low) // 2
                n_apart = ((ends[rest] <= middle) | (begins[rest] >= middle)).sum(0)
                axis = np.where(is_cut[rest].any(0), n_apart, -1).argmax()
                is_first = at[:, axis] < middle[axis]
                todo += [(mine[is_first], boxes[rest]), (mine[~is_first], boxes[rest])]
        return found


_FEW = 1 << 14


def _latest(
    begins: NDArray[np.int64], ends: NDArray[np.int64], numbers: NDArray[np.intp], at: NDArray[np.int64]
) -> NDArray[np.intp]:
    """Return the greatest number of the intervals that each element is in, or -1."""
    edges = np.unique(np.concatenate([begins, ends]))
    first, last = np.searchsorted(edges, begins), np.searchsorted(edges, ends)
    level = np.frexp(last - first)[1] - 1  # two runs of 2**level edges are an interval together
    best = np.full(len(edges), -1, np.intp)
    for k in range(level.max(), -1, -1):  # best[i]: of the runs of 2**k edges that begin at i
        mine = level == k
        np.maximum.at(best, first[mine], numbers[mine])
        np.maximum.at(best, last[mine] - (1 << k), numbers[mine])
        if k:
            half = 1 << (k - 1)
            best[half:] = np.maximum(best[half:], best[:-half])
    return best[np.searchsorted(edges, at, "right") - 1]  # -1 before the first edge, and from the last one on
