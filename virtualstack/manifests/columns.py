"""Entries as narrow columns of bytes: a few bytes a chunk, for pickles and caches."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numcodecs import zstd
from numpy.typing import NDArray

from virtualstack.codecs.bounded import CodecError, bounded_decoder
from virtualstack.codecs.metadata import Codec
from virtualstack.errors import ManifestError

__all__ = ["pack", "unpack"]

_SMALL = 4096  # planes up to this many bytes are not compressed: calling zstd costs as much as 2000 chunks
_HEADER = struct.Struct("<BQI")


def pack(entries: NDArray[np.void], starts: NDArray[np.int64] | None, /) -> bytes:
    """Pack the entries of a manifest, and their starts, in C order of the grid.

    Offsets become gaps, in bytes, to the end of the chunk before. Then each byte of an entry is a column of its own, of
    which those that vary are kept, compressed with zstd: 2 to 4 bytes a chunk of a compressed file, and none of one
    whose chunks follow each other at equal lengths. Costs about 20 ns a chunk each way.

    Parameters
    ----------
    entries
        Any shape, dtype ``ENTRY``.
    starts
        Same shape, or ``None``.
    """
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
    """Give back the entries, of dtype ``ENTRY``, and the starts; memory is taken as the data say, no more.

    Raises
    ------
    ManifestError
        The data are no entries of this shape.
    """
    n = math.prod(shape)
    words, at = _unpack_rows(memoryview(data), 0, n, dtype.itemsize // 8)
    table = words.reshape(-1).view(dtype)
    ends = np.cumsum(table["offset"] + table["length"])
    np.subtract(ends, table["length"], out=table["offset"])
    if at == len(data):
        return table.reshape(shape), None
    starts, at = _unpack_rows(memoryview(data), at, n, 1)
    if at != len(data):
        raise ManifestError(f"packed entries have {len(data) - at} bytes too many")
    return table.reshape(shape), starts.view(np.int64).reshape(shape)


def _pack_rows(rows: NDArray[np.uint64]) -> bytes:
    """Pack a table of shape ``(n, words)``: two rows as they are, and of all others the bytes that vary."""
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
    is_large = planes.size > _SMALL
    body = zstd.compress(planes, 1) if is_large else planes.tobytes()
    mask = sum(1 << column for column in varies.tolist())
    return b"".join((_HEADER.pack(is_large, len(head) + len(body), mask), head, body))


def _unpack_rows(data: memoryview, at: int, n: int, n_words: int) -> tuple[NDArray[np.uint64], int]:
    """Give a packed table, and the byte after it."""
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
    planes = np.frombuffer(body, np.uint8)
    rows = np.empty((n, n_words), np.uint64)
    first = np.frombuffer(head, np.uint64).reshape(-1, n_words)
    rows[:2] = first
    if n > 2:
        rows[2:] = first[1]
        bytes_ = rows[1:].view(np.uint8)
        for plane, column in zip(planes.reshape(len(varies), n - 1), varies, strict=True):
            bytes_[:, column] = plane
    return rows, at + length


def _decompress(body: memoryview, size: int) -> memoryview:
    decode = bounded_decoder(Codec("zstd"))
    if decode is None:
        raise RuntimeError("zstd is a codec of ours")
    try:
        return memoryview(decode(body, size, size))
    except (CodecError, RuntimeError) as error:
        raise ManifestError(f"packed entries are damaged: {error}") from error
