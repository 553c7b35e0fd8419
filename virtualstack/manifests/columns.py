"""Entries as narrow columns of bytes, for pickles and caches: a few bytes a chunk."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numcodecs import zstd
from numpy.typing import NDArray

from virtualstack.codecs.bounded import CodecError, decode_zstd
from virtualstack.codecs.codec import shortened
from virtualstack.errors import ManifestError, Remedy
from virtualstack.manifests.cells import MAX_READ_CELLS

_MIN_COMPRESSED_BYTES = (
    4096  # planes up to this many bytes are not compressed: calling zstd costs as much as 2000 chunks
)
_HEADER = struct.Struct("<BQI")
_MAX_CELLS_PER_BYTE = 64  # limit for more cells; real files have at most one cell a byte
_MAX_AXES = 64  # numpy's limit


def pack(entries: NDArray[np.void], starts: NDArray[np.int64] | None, /) -> bytes:
    """Pack the entries of a manifest, and their starts, in C order of the grid.

    Offsets become gaps, in bytes, to the end of the previous chunk. Then each byte of an entry becomes a column.
    Columns that vary are kept and compressed with zstd: 2 to 4 bytes for each chunk of a compressed file. Contiguous
    chunks of equal lengths take no bytes. Packing costs about 20 ns for each chunk in each direction. An entry that is
    repeated without memory costs nothing.
    """
    if entries.size > 2 and not any(entries.strides):
        entries = np.broadcast_to(entries[(0,) * entries.ndim], 2)  # if all are equal, two entries are packed
    table = np.array(entries, order="C").reshape(-1)
    ends = table["offset"] + table["length"]
    table["offset"][1:] -= ends[:-1]
    parts = [_pack_rows(table.view(np.uint64).reshape(-1, table.itemsize // 8))]
    if starts is not None:
        parts.append(_pack_rows(np.ascontiguousarray(starts).view(np.uint64).reshape(-1, 1)))
    return b"".join(parts)


def unpack(
    data: bytes | memoryview, shape: tuple[int, ...], dtype: np.dtype[Any], /
) -> tuple[NDArray[np.void], NDArray[np.int64] | None]:
    """Return the packed entries, of dtype ``ENTRY``, and the starts.

    If all entries are equal, as EMPTY entries are, the result repeats one entry without memory.
    """
    n = _n_cells(shape, len(data))
    try:
        rows, at = _unpack_rows(memoryview(data), 0, n, dtype.itemsize // 8)
        table = _entries(rows, n, dtype).reshape(shape)
        if at == len(data):
            return table, None
        rows, at = _unpack_rows(memoryview(data), at, n, 1)
        starts = _all_rows(rows, n)
    except MemoryError as error:
        raise ManifestError(
            f"packed entries of {n} chunks take {n * dtype.itemsize >> 20} MiB, which this machine does not have"
        ) from error
    if at != len(data):
        raise ManifestError(f"packed entries have {len(data) - at} bytes too many")
    return table, starts.view(np.int64).reshape(shape)


def _n_cells(shape: tuple[int, ...], nbytes: int) -> int:
    """Return the number of cells of a shape; refuse a shape that is invalid or too large for ``nbytes``."""
    if len(shape) > _MAX_AXES or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise ManifestError(f"packed entries of shape {shortened(shape)}, which no chunk grid has")
    if math.prod(max(n, 1) for n in shape) > max(MAX_READ_CELLS, _MAX_CELLS_PER_BYTE * nbytes):
        raise ManifestError(
            f"packed entries of shape {shortened(shape)} have only {nbytes} bytes, which cannot hold so many chunks. "
            "They are damaged",
            Remedy("write them again"),
        )
    return math.prod(shape)


def _entries(rows: NDArray[np.uint64], n: int, dtype: np.dtype[Any]) -> NDArray[np.void]:
    """Return ``n`` entries from rows that have gaps instead of offsets."""
    if len(rows) < n:
        two = _with_offsets(rows.copy().reshape(-1).view(dtype))
        if two[0] == two[1]:
            return np.broadcast_to(two[0], n)
    return _with_offsets(_all_rows(rows, n).reshape(-1).view(dtype))


def _with_offsets(table: NDArray[np.void]) -> NDArray[np.void]:
    """Replace gaps by offsets, in the same memory."""
    offset, length = table["offset"], table["length"]
    offset += length
    np.cumsum(offset, out=offset)
    offset -= length
    return table


def _all_rows(rows: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """Return ``n`` rows; the last row is repeated if rows are missing."""
    if len(rows) == n:
        return rows
    table = np.empty((n, rows.shape[1]), np.uint64)
    table[:1], table[1:] = rows[:1], rows[1]
    return table


def _pack_rows(rows: NDArray[np.uint64]) -> bytes:
    """Pack a table of shape ``(n, words)``: the first two rows unchanged, and the bytes that vary in other rows."""
    n, rest = len(rows), rows[1:]
    head = rows[:2].tobytes()
    if n < 3:
        return _HEADER.pack(0, len(head), 0) + head
    differs = np.array([np.bitwise_or.reduce(column ^ column[0]) for column in rest.T])
    varies = np.flatnonzero(differs.view(np.uint8))
    bytes_ = rest.view(np.uint8)
    planes = np.empty((len(varies), n - 1), np.uint8)
    for plane, column in zip(planes, varies.tolist(), strict=True):
        plane[...] = bytes_[:, column]
    is_large = planes.size > _MIN_COMPRESSED_BYTES
    body = zstd.compress(planes, 1) if is_large else planes.tobytes()
    mask = sum(1 << column for column in varies.tolist())
    return b"".join((_HEADER.pack(is_large, len(head) + len(body), mask), head, body))


def _unpack_rows(data: memoryview, at: int, n: int, n_words: int) -> tuple[NDArray[np.uint64], int]:
    """Return a packed table, or two rows, of which the second must be repeated; and the position after the table."""
    if len(data) < at + _HEADER.size:
        raise ManifestError("packed entries end in their header")
    is_compressed, length, mask = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    head_length = 8 * n_words * min(n, 2)
    varies = [column for column in range(8 * n_words) if mask >> column & 1]
    if length > len(data) - at or length < head_length or mask >> (8 * n_words) or (varies and n < 3):
        raise ManifestError(f"packed entries are damaged: {length} bytes, mask {mask:#x} for {n} entries")
    head, body = data[at : at + head_length], data[at + head_length : at + length]
    size = len(varies) * max(n - 1, 0)
    if is_compressed:
        body = _decompress(body, size)
    if len(body) != size:
        raise ManifestError(f"packed entries are damaged: {len(body)} bytes where {size} belong")
    first = np.frombuffer(head, np.uint64).reshape(-1, n_words)
    if not varies:
        return first.copy(), at + length
    planes = np.frombuffer(body, np.uint8)
    rows = np.empty((n, n_words), np.uint64)
    rows[0], rows[1:] = first
    bytes_ = rows[1:].view(np.uint8)
    for plane, column in zip(planes.reshape(len(varies), n - 1), varies, strict=True):
        bytes_[:, column] = plane
    return rows, at + length


def _decompress(body: memoryview, size: int) -> memoryview:
    try:
        return memoryview(decode_zstd(body, size, size))
    except (CodecError, RuntimeError) as error:
        raise ManifestError(f"packed entries are damaged: {error}") from error
