"""Finding the simplest description of chunks after an operation; no bytes are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests.chunk_manifest import INLINE
from virtualstack.manifests.grid import ChunkAxis
from virtualstack.manifests.indexing import Chunks, along

__all__ = ["collapse", "drop_lines"]


def collapse(chunks: Chunks, /) -> Chunks:
    """Drop the grid lines that divide nothing, and the rows of tables that no cell uses.

    A line goes where every pair of cells across it continues one stored chunk, or is the same hole on both sides, with
    at least one chunk among them.
    """
    for axis, cells in enumerate(chunks.grid.axes):
        if cells.n_cells > 1:
            chunks = drop_lines(chunks, axis, np.arange(1, cells.n_cells))
    return Chunks(chunks.manifest.compact(), chunks.grid)


def drop_lines(chunks: Chunks, axis: int, lines: NDArray[np.intp], /) -> Chunks:
    """Drop those of some lines across an axis that divide nothing; line i is the one before cell i."""
    manifest, grid = chunks
    if not manifest.entries.size:
        return chunks
    row = manifest.entries[tuple(slice(0, None if i == axis else 1) for i in range(manifest.entries.ndim))]
    for entries in (row, manifest.entries):  # a probe of one row leaves few lines most often
        lines = _of_same_bytes(entries, axis, lines)
        if not lines.size:
            return chunks
    lines = _continued(chunks, axis, lines)
    if not lines.size:
        return chunks
    keep = np.ones(manifest.shape[axis], np.bool_)
    keep[lines] = False
    begin = np.flatnonzero(keep)
    lengths = np.add.reduceat(grid.axes[axis].lengths(), begin)
    manifest = replace(
        manifest,
        entries=manifest.entries.take(begin, axis),
        starts=None if manifest.starts is None else manifest.starts.take(begin, axis),
    )
    return Chunks(manifest, grid.replace(axis, ChunkAxis.from_lengths(lengths)))


def _of_same_bytes(entries: NDArray[np.void], axis: int, lines: NDArray[np.intp]) -> NDArray[np.intp]:
    """Give the lines across which every pair of cells shows the same bytes."""
    if lines.size == entries.shape[axis] - 1:
        before = (slice(None),) * axis
        a, b = entries[(*before, slice(None, -1))], entries[(*before, slice(1, None))]
    else:
        a, b = entries.take(lines - 1, axis), entries.take(lines, axis)
    others = tuple(i for i in range(entries.ndim) if i != axis)
    same = (a["offset"] == b["offset"]).all(axis=others)
    if same.any():
        same &= (a["location"] == b["location"]).all(axis=others)
    found: NDArray[np.intp] = lines[same]
    return found


def _continued(chunks: Chunks, axis: int, lines: NDArray[np.intp]) -> NDArray[np.intp]:
    """Give those of some lines that divide nothing."""
    manifest, grid = chunks
    ndim = manifest.entries.ndim
    a, b = manifest.entries.take(lines - 1, axis), manifest.entries.take(lines, axis)
    same = a == b  # location, encoding or fill, offset and length
    is_hole = b["location"] < INLINE
    if manifest.encodings:
        strides = np.array([x.strides[axis] for x in manifest.encodings], np.int64)
        lengths = grid.axes[axis].lengths(lines - 1)
        advance = along(lengths, axis, ndim) * strides[np.where(is_hole, 0, b["encoding"])]
        if manifest.starts is not None:
            advance = advance + manifest.starts.take(lines - 1, axis) - manifest.starts.take(lines, axis)
        same &= is_hole | (advance == 0)
    others = tuple(i for i in range(ndim) if i != axis)
    found: NDArray[np.intp] = lines[same.all(axis=others) & (~is_hole).any(axis=others)]
    return found
