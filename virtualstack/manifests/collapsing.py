"""Finding the simplest description of chunks after an operation; no bytes are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

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
    if not chunks.manifest.entries.size:
        return chunks
    lines = _continued(chunks, axis, lines, is_probe=True)  # one row of cells; few lines are left most often
    if not lines.size:
        return chunks
    lines = _continued(chunks, axis, lines)
    if not lines.size:
        return chunks
    manifest, grid = chunks
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


def _continued(chunks: Chunks, axis: int, lines: NDArray[np.intp], *, is_probe: bool = False) -> NDArray[np.intp]:
    """Give the lines that divide nothing; a probe looks at one row of cells across them, and takes holes alone too."""
    manifest, grid = chunks
    lengths = grid.axes[axis].lengths()[lines - 1]
    if is_probe:
        manifest = manifest.read(tuple(slice(0, n if i == axis else 1) for i, n in enumerate(manifest.shape)))
    ndim = manifest.entries.ndim
    a, b = manifest.entries.take(lines - 1, axis), manifest.entries.take(lines, axis)
    same = a == b  # location, encoding or fill, offset and length
    is_hole = manifest.holes.take(lines, axis)
    if manifest.encodings:
        strides = np.array([x.strides[axis] for x in manifest.encodings], np.int64)
        advance = along(lengths, axis, ndim) * strides[np.where(is_hole, 0, b["encoding"])]
        if manifest.starts is not None:
            advance = advance + manifest.starts.take(lines - 1, axis) - manifest.starts.take(lines, axis)
        same &= is_hole | (advance == 0)
    others = tuple(i for i in range(ndim) if i != axis)
    is_continued = same.all(axis=others)
    if not is_probe:
        is_continued &= (~is_hole).any(axis=others)
    found: NDArray[np.intp] = lines[is_continued]
    return found
