"""Split and merge axes, as ``reshape`` needs it for an array in C order; no bytes are read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from virtualstack.manifests.grid import ChunkAxis, union
from virtualstack.manifests.indexing import Chunks, check_cells, drop_axis, insert_axis, rearrange, refine, select


def split_axis(chunks: Chunks, axis: int, inner: int, /) -> Chunks:
    """Split an axis in two; the second has ``inner`` elements.

    Cells are cut where a row of the second axis begins, and at every position within a row where a cell begins.
    """
    manifest, grid = chunks
    old = grid.axes[axis]
    lines = old.lines()
    outer_lines = union(lines // inner, -(-lines // inner))
    inner_lines = union(lines % inner, np.array([0, inner]))
    check_cells(grid, axis, (outer_lines.size - 1) * (inner_lines.size - 1))
    begin = (outer_lines[:-1, None] * inner + inner_lines[:-1]).reshape(-1)
    cell = old.find(begin)
    # the lengths are corrected below: a cell here is a block of rows
    manifest, _ = select(chunks, axis, cell, begin - lines[cell], np.ones(cell.size, np.int64))
    n = (outer_lines.size - 1, inner_lines.size - 1)
    axes = [ChunkAxis.from_lengths(np.diff(x)) for x in (outer_lines, inner_lines)]
    return rearrange(
        Chunks(manifest, grid),
        lambda x: x.reshape(*x.shape[:axis], *n, *x.shape[axis + 1 :]),
        lambda strides: (*strides[:axis], strides[axis] * inner, strides[axis], *strides[axis + 1 :]),
        (*grid.axes[:axis], *axes, *grid.axes[axis + 1 :]),
    )


def merge_axes(chunks: Chunks, axis: int, /) -> Chunks:
    """Merge ``axis`` and the next axis.

    Cells stay whole if each chunk has whole rows of the second axis in order; otherwise cells are cut between rows.
    """
    manifest, grid = chunks
    outer, inner = grid.axes[axis : axis + 2]
    n = inner.length
    ChunkAxis.regular(outer.length * n, 1)  # raises an error if the axis is too long
    if inner.n_cells == 1 and all(x.strides[axis] == x.strides[axis + 1] * n for x in manifest.encodings):
        merged = ChunkAxis.from_lengths(outer.lengths() * n)
    else:
        check_cells(grid, axis, outer.length)
        manifest, grid = refine(chunks, axis, np.arange(outer.length + 1))
        merged = ChunkAxis.from_lengths(np.tile(inner.lengths(), outer.length))
    return rearrange(
        Chunks(manifest, grid),
        lambda x: x.reshape(*x.shape[:axis], merged.n_cells, *x.shape[axis + 2 :]),
        lambda strides: (*strides[:axis], *strides[axis + 1 :]),
        (*grid.axes[:axis], merged, *grid.axes[axis + 2 :]),
    )


def reshape(chunks: Chunks, shape: Sequence[int], /) -> Chunks:
    """Reshape the elements in C order; the caller checks that the size stays the same and is not 0."""
    old = chunks.grid.array_shape
    for axis in reversed(range(len(old))):
        if old[axis] == 1:
            chunks = drop_axis(chunks, axis)
    wanted = [n for n in shape if n != 1]
    axis = 0
    while axis < len(wanted):
        present = chunks.grid.array_shape
        if present[axis] == wanted[axis]:
            axis += 1
        elif present[axis] % wanted[axis] == 0:
            chunks = split_axis(chunks, axis, present[axis] // wanted[axis])
            axis += 1
        else:
            chunks = merge_axes(chunks, axis)
    for axis, n in enumerate(shape):
        if n == 1:
            chunks = insert_axis(chunks, axis)
    return chunks
