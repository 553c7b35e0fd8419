"""Rows of a segment: where chunks lie, as columns of integers in compressed pages.

A segment is a zarr v3 array of int64, shape ``(columns, rows)``, whose chunks are pages of rows and whose shards are
objects of 64 pages. Columns are source, gap, length, and, where the segment needs them, encoding and start. Each page
has a checksum, and each shard says which one it is, in front of its index, where zarr does not look.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.vstack.format.frames import decompressed

__all__ = [
    "EMPTY_ROW",
    "INLINE_ROW",
    "MARK",
    "MISSING_ROW",
    "PAGE",
    "SHARD",
    "PageIndex",
    "decode_page",
    "encode_page",
    "encode_shard",
    "index_length",
    "page_rows",
    "parse_index",
    "refs_document",
]

MISSING_ROW, EMPTY_ROW, INLINE_ROW = -1, -2, -3
"""Codes in the column of sources that are none."""

PAGE = 32768
"""Rows of a page."""

SHARD = 64
"""Pages of a shard."""

MARK = 16
"""Bytes of the mark of a shard."""

_NO_PAGE = (1 << 64) - 1
_BITSHUFFLE = 2


def page_rows(n_rows: int, /) -> int:
    """Give the rows of each page of a segment of ``n_rows``."""
    return max(min(PAGE, n_rows), 1)


_PAGE_OVERHEAD = 16 + 4
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
    return 8 * columns * n_rows + _PAGE_OVERHEAD


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
    return MARK + 16 * n_pages + 4


def parse_index(data: bytes | memoryview, size: int, mark: bytes, /, *, where: str) -> PageIndex:
    """Read the mark and the index of a shard of ``size`` bytes, which should have a mark.

    Raises
    ------
    MalformedFileError
        It is damaged.
    """
    found, body, checksum = bytes(data[:MARK]), bytes(data[MARK:-4]), bytes(data[-4:])
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
    pages = min(-(-n_rows // page), SHARD)
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
