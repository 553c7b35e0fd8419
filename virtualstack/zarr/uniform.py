"""Equal chunks over an array with any grid, as zarr needs them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import ChunkGrid, ManifestArray

MAX_CHUNK_BYTES = 64 << 20
"""Approximate largest size of a decoded chunk in bytes; larger chunks are split."""

_MANY_CHUNKS = 256
_SMALL_CHUNK_BYTES = 1 << 15
_MERGED_BYTES = 1 << 20


def uniform_chunks(array: ManifestArray, chosen: Mapping[str, int], /) -> tuple[int, ...]:
    """Choose equal chunks for an array: the cells if they are equal, else the length that most elements have.

    ``chosen`` has other lengths by dimension; chunks of more than 64 MiB are split in any case.
    """
    names = array.dimension_names or (None,) * array.ndim
    lengths = (chosen.get(str(name)) for name in names)
    chunks = [
        axis.usual_length() if length is None else max(min(length, axis.length), 1)
        for length, axis in zip(lengths, array.grid.axes, strict=True)
    ]
    return tuple(split_chunks(chunks, array.dtype, MAX_CHUNK_BYTES))


def merged_chunks(array: ManifestArray, chunks: tuple[int, ...], /) -> tuple[int, ...]:
    """Return chunks of about 1 MiB in place of many small ones, such as the records of netCDF-3; others stay.

    A client has a call for each of its chunks, and reading merges the requests for those that are stored.
    """
    n_chunks = math.prod(-(-n // max(chunk, 1)) for n, chunk in zip(array.shape, chunks, strict=True))
    nbytes = math.prod(chunks) * max(array.dtype.itemsize, 1)
    if n_chunks < _MANY_CHUNKS or nbytes > _SMALL_CHUNK_BYTES:
        return chunks
    merged = list(chunks)
    for i in reversed(range(array.ndim)):
        times = min(-(-array.shape[i] // merged[i]), max(_MERGED_BYTES // nbytes, 1))
        merged[i] *= times
        nbytes *= times
    return tuple(merged)


def split_chunks(chunks: Sequence[int], dtype: np.dtype[Any], most: int, /) -> list[int]:
    """Return chunks of at most about ``most`` bytes, by splitting the first axes.

    >>> split_chunks([100, 10], np.dtype("f8"), 800)
    [10, 10]
    """
    chunks = list(chunks)
    for i, n in enumerate(chunks):
        nbytes = math.prod(chunks) * max(dtype.itemsize, 1)
        if nbytes > most:
            chunks[i] = -(-n // min(-(-nbytes // most), n))
    return chunks


def count_overlaps(marked: NDArray[np.bool_], grid: ChunkGrid, other: ChunkGrid, /) -> NDArray[np.int64]:
    """Count the marked cells of one grid that each cell of another grid over the same elements overlaps."""
    found = np.asarray(marked, np.int64)
    for i, (axis, cells) in enumerate(zip(grid.axes, other.axes, strict=True)):
        lines = cells.lines()
        low, high = axis.find(lines[:-1]), axis.find(lines[1:] - 1) + 1
        before = np.zeros((*found.shape[:i], 1, *found.shape[i + 1 :]), np.int64)
        total = np.concatenate([before, found.cumsum(i)], i)
        found = total.take(high, i) - total.take(low, i)
    return found
