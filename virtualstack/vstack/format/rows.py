"""Rows of a segment: where chunks lie, as columns of integers in compressed pages.

A segment is a zarr v3 array of int64, shape ``(columns, rows)``, whose chunks are pages of rows and whose shards are
objects of 64 pages. Columns are source, gap, length, and, where the segment needs them, encoding and start. Each page
has a checksum, and each shard says which one it is, in front of its index, where zarr does not look.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.vstack.format.documents import decompressed

__all__ = [
    "EMPTY_ROW",
    "INLINE_ROW",
    "MISSING_ROW",
    "PAGE_ROWS",
    "SHARD_MARK_BYTES",
    "SHARD_PAGES",
    "PageIndex",
    "Placements",
    "decode_page",
    "encode_page",
    "encode_shard",
    "index_length",
    "page_rows",
    "parse_index",
    "refs_document",
    "width",
]

MISSING_ROW, EMPTY_ROW, INLINE_ROW = -1, -2, -3
"""Codes in the column of sources that are none."""

PAGE_ROWS = 32768
"""Rows of a page."""

SHARD_PAGES = 64
"""Pages of a shard."""

SHARD_MARK_BYTES = 16
"""Bytes of the mark of a shard."""

_NO_PAGE = (1 << 64) - 1
_BITSHUFFLE = 2


def page_rows(n_rows: int, /) -> int:
    """Give the rows of each page of a segment of ``n_rows``."""
    return max(min(PAGE_ROWS, n_rows), 1)


_PAGE_OVERHEAD_BYTES = 16 + 4
"""Bytes that blosc (``BLOSC_MAX_OVERHEAD``) and a checksum add to a page at most."""


def _follows(source: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Give the rows that are stored somewhere, and which of them follow one of the same source."""
    stored = np.flatnonzero((source >= 0) | (source == INLINE_ROW))
    follows = np.zeros(len(stored), np.bool_)
    follows[1:] = source[stored[1:]] == source[stored[:-1]]
    return stored, follows


def encode_page(rows: NDArray[np.int64], /, n_rows: int | None = None) -> bytes:
    """Compress a page.

    The second column becomes the gap, in bytes, between a chunk and the end of the one before it, which is the last row
    above that is stored, if it is of the same source. Of the others it is the offset.

    Parameters
    ----------
    rows
        Shape ``(columns, n)``: source, offset, length, and what else there is.
    n_rows
        Rows that the page has; what is left of it is ABSENT.
    """
    n = rows.shape[1]
    page = np.full((len(rows), n if n_rows is None else n_rows), MISSING_ROW, np.int64)
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
    """Give what zarr's codec ``crc32c`` puts behind bytes."""
    return struct.pack("<I", google_crc32c.value(data))


def decode_page(data: bytes | memoryview, columns: int, n_rows: int, /, *, where: str) -> NDArray[np.int64]:
    """Decompress a page.

    Returns
    -------
    numpy.ndarray
        Shape ``(columns, n_rows)``, read-only: source, offset, length, and what else there is. Values are not checked.

    Raises
    ------
    MalformedFileError
        The bytes are no such page.
    """
    nbytes = 8 * columns * n_rows
    data, checksum = bytes(data[:-4]), bytes(data[-4:])
    try:
        if checksum != _checksum(data):
            raise ValueError("its checksum is wrong")
        page = np.frombuffer(bytearray(decompressed(data, least=nbytes, most=nbytes)), "<i8").reshape(columns, n_rows)
    except ValueError as error:
        raise MalformedFileError(f"{where} is damaged: {error}; restore it, or open another snapshot") from error
    stored, follows = _follows(page[0])
    gap, length = page[1][stored], page[2][stored]
    begins = np.flatnonzero(~follows)
    if len(begins) == 1:
        offset = np.cumsum(gap)
        offset[1:] += np.cumsum(length[:-1])
    elif len(begins):
        moved = gap.copy()
        moved[1:] += length[:-1]
        moved[begins] = 0
        run = np.cumsum(moved)
        offset = run + np.repeat(gap[begins] - run[begins], np.diff(begins, append=len(gap)))
    else:
        offset = gap
    page[1][stored] = offset
    page.flags.writeable = False
    return page


def page_length(columns: int, n_rows: int, /) -> int:
    """Give the most bytes that a page may have, compressed."""
    return 8 * columns * n_rows + _PAGE_OVERHEAD_BYTES


def encode_shard(pages: Sequence[bytes], n_pages: int, mark: bytes, /) -> bytes:
    """Put pages one after the other, a mark, and the index, as zarr's codec ``sharding_indexed`` has it."""
    index = np.full((n_pages, 2), _NO_PAGE, "<u8")
    lengths = np.array([len(page) for page in pages], np.uint64)
    index[: len(pages), 1] = lengths
    index[: len(pages), 0] = np.cumsum(lengths) - lengths
    tail = index.tobytes()
    return b"".join((*pages, mark, tail, _checksum(tail)))


@dataclass(frozen=True, slots=True)
class PageIndex:
    """Where the pages of a shard lie in it: int64, shape ``(pages, 2)``, offset and length in bytes."""

    spots: NDArray[np.int64]


def index_length(n_pages: int, /) -> int:
    """Give the bytes of the mark and the index of a shard, which are its last."""
    return SHARD_MARK_BYTES + 16 * n_pages + 4


def parse_index(data: bytes | memoryview, size: int, mark: bytes, /, *, where: str) -> PageIndex:
    """Read the mark and the index of a shard of ``size`` bytes, which should have a mark.

    Raises
    ------
    MalformedFileError
        It is damaged.
    """
    found, body, checksum = bytes(data[:SHARD_MARK_BYTES]), bytes(data[SHARD_MARK_BYTES:-4]), bytes(data[-4:])
    if found != mark:
        raise MalformedFileError(f"{where} is another object than it should be; restore it, or open another snapshot")
    spots = np.frombuffer(body, "<u8").reshape(-1, 2)
    present = spots[:, 0] != _NO_PAGE
    if _checksum(body) != checksum or bool((spots[present] > size).any()) or bool((spots[present].sum(1) > size).any()):
        raise MalformedFileError(f"{where} has a damaged index; restore it, or open another snapshot")
    return PageIndex(np.where(present[:, None], spots, 0).astype(np.int64))


def refs_document(columns: int, n_rows: int, /) -> dict[str, Any]:
    """Give the zarr metadata of a segment's rows."""
    page = page_rows(n_rows)
    pages = min(-(-n_rows // page), SHARD_PAGES)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [columns, n_rows],
        "data_type": "int64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [columns, page * max(pages, 1)]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": MISSING_ROW,
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [columns, page],
                    "codecs": [
                        {"name": "bytes", "configuration": {"endian": "little"}},
                        {
                            "name": "blosc",
                            "configuration": {
                                "cname": "zstd",
                                "clevel": 3,
                                "shuffle": "bitshuffle",
                                "typesize": 8,
                                "blocksize": 0,
                            },
                        },
                        {"name": "crc32c"},
                    ],
                    "index_codecs": [
                        {"name": "bytes", "configuration": {"endian": "little"}},
                        {"name": "crc32c"},
                    ],
                    "index_location": "end",
                },
            }
        ],
        "attributes": {},
        "dimension_names": ["column", "row"],
        "storage_transformers": [],
    }


_HEAD_COLUMNS = 4  # columns before strides, begins and counts
_LIMIT = 1 << 62


def width(ndim: int, /) -> int:
    """Give the numbers of a placement on a grid of ``ndim`` axes."""
    return _HEAD_COLUMNS + 3 * ndim


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """Boxes of a grid, later ones over earlier ones.

    Parameters
    ----------
    table
        Int64, shape ``(n, 4 + 3 * ndim)``: number of the segment; row of the first cell; what is added to codes of
        encodings, and of fills; then, an axis each: rows from a cell to the next, first cell, number of cells.
    """

    table: NDArray[np.int64]

    @classmethod
    def from_json(cls, rows: Sequence[Sequence[int]], ndim: int, /, *, where: str) -> Placements:
        """Read placements of JSON.

        Raises
        ------
        MalformedFileError
            They are none.
        """
        try:
            numbers = np.array(rows or np.zeros(0, np.int64))
            if numbers.dtype != np.int64:  # which would be cut off, or wrap
                raise ValueError(f"numbers of dtype '{numbers.dtype}'")
            table = numbers.reshape(len(rows), width(ndim))
        except (ValueError, TypeError, OverflowError) as error:
            raise MalformedFileError(f"'{where}' has placements that are none: {error}; restore it") from error
        found = cls(table)
        begins, counts = found.begins, found.counts
        if (
            (table[:, :_HEAD_COLUMNS] < 0).any()
            or (begins < 0).any()
            or (counts < 1).any()
            or (np.abs(table) > _LIMIT).any()
        ):
            raise MalformedFileError(f"'{where}' has a placement with numbers that are none: restore it")
        with np.errstate(over="ignore"):
            reach = np.abs(found.strides.astype(float)) * (counts - 1)
        if (reach.sum(1) + table[:, 1] > _LIMIT).any():
            raise MalformedFileError(f"'{where}' has a placement beyond all rows: restore it")
        return found

    @property
    def ndim(self) -> int:
        """Axes of the grid."""
        return int(self.table.shape[1] - _HEAD_COLUMNS) // 3

    @property
    def strides(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.table[:, _HEAD_COLUMNS : _HEAD_COLUMNS + self.ndim]

    @property
    def begins(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.table[:, _HEAD_COLUMNS + self.ndim : _HEAD_COLUMNS + 2 * self.ndim]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.table[:, _HEAD_COLUMNS + 2 * self.ndim :]

    @property
    def ends(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.begins + self.counts

    def within(self, low: NDArray[np.int64], high: NDArray[np.int64], /) -> Placements:
        """Leave out what does not meet a box, and what lies under one that covers all of it."""
        meets = ((self.begins < high) & (self.ends > low)).all(1)
        covers = np.flatnonzero(((self.begins <= low) & (self.ends >= high)).all(1))
        if len(covers):
            meets[: covers[-1]] = False
        return self if meets.all() else Placements(self.table[meets])

    def find_rows(self, which: NDArray[np.intp] | int, cells: Sequence[NDArray[np.int64]], /) -> NDArray[np.int64]:
        """Give the row of each cell; ``which`` placement shows it, and its numbers an axis."""
        rows = np.broadcast_to(self.table[which, 1], np.broadcast_shapes(np.shape(which), *(x.shape for x in cells)))
        for axis, numbers in enumerate(cells):
            rows = rows + (numbers - self.begins[which, axis]) * self.strides[which, axis]
        return rows

    def find(self, cells: Sequence[NDArray[np.int64]], /) -> NDArray[np.intp]:
        """Give the placement that shows each cell, or -1.

        Parameters
        ----------
        cells
            Numbers of the cells an axis, each of shape ``(n,)``.
        """
        n = len(cells[0]) if cells else 1
        found = np.full(n, -1, np.intp)
        if not self.ndim or not len(self.table):
            found[:] = len(self.table) - 1
            return found
        # Those whose boxes are alike but along one axis are looked up together, and the latest of all shows the cell.
        alike = [self._alike(axis) for axis in range(self.ndim)]
        axis = min(range(self.ndim), key=lambda axis: len(alike[axis][1]))
        order, firsts = alike[axis]
        others = [x for x in range(self.ndim) if x != axis]
        for first, last in itertools.pairwise([*firsts.tolist(), len(order)]):
            group = order[first:last]
            box = group[0]
            meets = [(cells[x] >= self.begins[box, x]) & (cells[x] < self.ends[box, x]) for x in others]
            mine = np.flatnonzero(np.logical_and.reduce(meets)) if meets else np.arange(n)
            if len(mine):
                shown = _latest(self.begins[group, axis], self.ends[group, axis], cells[axis][mine])
                found[mine] = np.maximum(found[mine], np.where(shown < 0, -1, group[shown]))
        return found

    def _alike(self, axis: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Sort the placements by their boxes along all axes but one; alike ones stay in order.

        Returns
        -------
        tuple
            Their numbers, and where among these each box begins.
        """
        boxes = np.delete(np.concatenate([self.begins, self.counts], 1), [axis, axis + self.ndim], 1)
        order = np.lexsort(boxes.T) if (boxes != boxes[:1]).any() else np.arange(len(boxes))
        is_first = (boxes[order[1:]] != boxes[order[:-1]]).any(1)
        return order, np.flatnonzero(np.append(True, is_first))


def _latest(begins: NDArray[np.int64], ends: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.intp]:
    """Give the latest of some intervals that each number lies in, or -1."""
    if (begins[1:] >= ends[:-1]).all():
        at = np.searchsorted(begins, numbers, "right") - 1
        return np.where((at >= 0) & (numbers < ends[at]), at, -1)
    # The lines of all intervals are the ends of pieces, each of which lies in an interval or not. An interval is two
    # runs of pieces, of 2^k each; from the longest runs down, the latest of a run is that of both halves of it.
    lines = np.unique(np.concatenate([begins, ends]))
    first, last = np.searchsorted(lines, begins), np.searchsorted(lines, ends)
    level = np.frexp(last - first)[1] - 1
    latest = np.full(len(lines), -1, np.intp)
    for k in range(int(level.max()), -1, -1):
        half = 1 << k
        if k < level.max():
            latest[half:] = np.maximum(latest[half:], latest[:-half])
        mine = np.flatnonzero(level == k)
        np.maximum.at(latest, first[mine], mine)
        np.maximum.at(latest, last[mine] - half, mine)
    piece = np.searchsorted(lines, numbers, "right") - 1
    return np.where(piece >= 0, latest[piece], -1)
