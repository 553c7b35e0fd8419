"""Chunks of a variable: contiguous ranges of bytes of a useful size, and where each of them lies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.netcdf3.extents import Extent
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill

__all__ = ["chunk_shape", "references"]

_TRIALS = 1 << 20


def chunk_shape(extent: Extent, chunk_size: int | None, /, *, is_exact: bool) -> tuple[int, ...]:
    """Choose chunks of whole rows along the leading axes, each one contiguous range.

    Where slabs of records lie apart, each is a chunk, or several. Lengths that divide their axis come first: all chunks
    are then stored alike, which kerchunk references need.

    Parameters
    ----------
    extent
        Of a variable.
    chunk_size
        Bytes that a chunk has at most, unless one element has more; ``None`` for all that is contiguous.
    is_exact
        Whether chunks are as long as ``chunk_size`` allows, or down to half of that where such a length divides the
        axis; the last one may be shorter. Otherwise all chunks are equal: as long as allowed or down to 1/256 of that,
        and the whole axis where no such length divides it.

    Examples
    --------
    >>> from virtualstack.formats.netcdf3.header import NetCDF3Variable
    >>> x = NetCDF3Variable(name="x", dimensions=(0, 1), attributes={}, dtype=np.dtype(">f4"), begin=0)
    >>> extent = Extent(variable=x, shape=(365, 1000), record_step=None)
    >>> chunk_shape(extent, 100_000, is_exact=True), chunk_shape(extent, 100_000, is_exact=False)
    ((25, 1000), (5, 1000))
    """
    shape = extent.shape
    if 0 in shape:
        return shape
    n_leading = 0 if extent.record_step is None else 1
    chunks = [1] * n_leading + list(shape[n_leading:])
    row = math.prod(chunks) * extent.variable.dtype.itemsize
    if chunk_size is None:
        return tuple(chunks)
    for axis in range(n_leading, len(shape)):
        if row <= chunk_size:
            break
        row //= shape[axis]
        most = max(chunk_size // row, 1)
        if is_exact:
            chunks[axis] = _divisor(shape[axis], most, max(most // 2, 1)) or most
        else:
            chunks[axis] = _divisor(shape[axis], most, max(most // 256, 1)) or shape[axis]
        if chunks[axis] > 1:
            break
    return tuple(chunks)


def _divisor(n: int, most: int, least: int) -> int | None:
    """Give the greatest divisor of ``n`` from ``least`` to ``most``, if a bounded search finds one."""
    fewest, most_chunks = -(-n // most), n // least
    if most - least < most_chunks - fewest:
        lengths = np.arange(most, max(least, most - _TRIALS) - 1, -1, dtype=np.int64)
        found = lengths[n % lengths == 0]
        return int(found[0]) if found.size else None
    counts = np.arange(fewest, min(most_chunks, fewest + _TRIALS) + 1, dtype=np.int64)
    found = counts[n % counts == 0]
    return n // int(found[0]) if found.size else None


def references(
    extent: Extent, chunks: tuple[int, ...], fill: Fill, location: Location, /
) -> tuple[ChunkManifest, ChunkGrid]:
    """Give the chunk grid of a variable, and the byte range of each of its chunks."""
    shape, dtype = extent.shape, extent.variable.dtype
    grid = ChunkGrid.regular(shape, [max(n, 1) for n in chunks])
    if not math.prod(shape):
        return ChunkManifest.empty(grid.shape, fill), grid
    entries = np.empty(grid.shape, ENTRY)
    entries["location"], entries["encoding"] = FIRST, 0
    entries["offset"], entries["length"] = extent.variable.begin, math.prod(chunks) * dtype.itemsize
    encodings = [ChunkEncoding.of(dtype, chunks)]
    step = dtype.itemsize
    for axis in reversed(range(len(shape))):
        if grid.shape[axis] > 1:
            _place(entries, axis, chunks[axis] * (extent.record_step if axis == 0 and extent.record_step else step))
        if shape[axis] % chunks[axis]:
            encodings.append(_cut_last(entries, axis, shape, chunks, dtype))
        step *= shape[axis]
    return ChunkManifest(entries=entries, fills=(fill,), encodings=tuple(encodings), locations=(location,)), grid


def _place(entries: NDArray[np.void], axis: int, step: int) -> None:
    """Move the chunks along an axis to where they begin, ``step`` bytes apart."""
    offsets = np.arange(entries.shape[axis], dtype=np.int64) * step
    entries["offset"] += offsets.reshape(-1, *[1] * (entries.ndim - axis - 1))


def _cut_last(
    entries: NDArray[np.void], axis: int, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any]
) -> ChunkEncoding:
    """Give the last chunks along the one axis that chunks do not divide their own encoding and length."""
    cut = (*chunks[:axis], shape[axis] % chunks[axis], *chunks[axis + 1 :])
    last = entries[(*[slice(None)] * axis, slice(-1, None))]
    last["encoding"], last["length"] = 1, math.prod(cut) * dtype.itemsize
    return ChunkEncoding.of(dtype, cut)
