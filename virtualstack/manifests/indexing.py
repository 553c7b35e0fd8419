"""Select elements of a chunked array by editing entries, starts and strides; no bytes are read.

All functions take :class:`Chunks`, a manifest in memory with its grid, and return new ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ChunkAlignmentError, Remedy
from virtualstack.manifests.cells import along, replaced
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid

MAX_CUT_CELLS = 1 << 26
"""Largest number of cells that an operation may cut chunks into: 1.6 GB of entries."""


_MAX_GRID_LINES = 1 << 28
"""Largest number of cells of unequal lengths along an axis: 2 GB of lines."""


class Chunks(NamedTuple):
    """A manifest in memory together with its chunk grid: the pair on which structural operations work."""

    manifest: ChunkManifest
    grid: ChunkGrid


def select(
    chunks: Chunks,
    axis: int,
    cell: NDArray[np.int64],
    first: NDArray[np.int64],
    lengths: NDArray[np.int64],
    step: int | NDArray[np.int64] = 1,
    /,
) -> Chunks:
    """Make cell j of ``axis`` from the elements ``first[j] + i * step``, ``i < lengths[j]``, of the old ``cell[j]``."""
    manifest, grid = chunks
    ndim = manifest.entries.ndim
    check_cells(grid, axis, len(cell))
    manifest = manifest.map_cells(lambda x: x.take(cell, axis)).drop_unused_encodings()
    if first.any():
        manifest = begin_at(manifest, axis, along(first, axis, ndim))
    is_long = lengths > 1
    if not is_long.any():
        step = 1
    elif isinstance(step, np.ndarray):
        step = np.where(is_long, step, 1)
        step = int(step[0]) if (step == step[0]).all() else step
    if isinstance(step, np.ndarray):
        manifest = _with_steps(manifest, axis, step)
    elif step != 1:
        manifest = replace(manifest, encodings=tuple(stepped(x, axis, step) for x in manifest.encodings))
    return Chunks(manifest, grid.replace(axis, ChunkAxis.from_lengths(lengths)))


def stepped(encoding: ChunkEncoding, axis: int, step: int, /) -> ChunkEncoding:
    """Multiply a stride by a step; a stride longer than the chunk, which only cells of one element have, is limited."""
    strides, most = encoding.strides, max(encoding.size, 1)
    stride = min(max(strides[axis] * step, -most), most)
    return encoding.with_strides(replaced(strides, axis, stride))


def _with_steps(manifest: ChunkManifest, axis: int, steps: NDArray[np.int64]) -> ChunkManifest:
    """Multiply strides along one axis by a factor for each cell; each pair of encoding and factor is a new row."""
    distinct, number = np.unique(steps, return_inverse=True)
    entries, chunks = manifest.entries.copy(), ~manifest.holes
    pairs = entries["encoding"].astype(np.int64) * distinct.size + along(number, axis, entries.ndim)
    used = np.zeros(len(manifest.encodings) * distinct.size, np.bool_)
    used[pairs[chunks]] = True
    entries["encoding"][chunks] = (np.cumsum(used) - 1)[pairs[chunks]]
    encodings = tuple(
        stepped(manifest.encodings[i // distinct.size], axis, int(distinct[i % distinct.size]))
        for i in np.flatnonzero(used).tolist()
    )
    return replace(manifest, entries=entries, encodings=encodings)


def check_cells(grid: ChunkGrid, axis: int, n_cells: int, /) -> None:
    """Refuse to cut an axis into ``n_cells`` cells if the grid then has more than :data:`MAX_CUT_CELLS` cells."""
    before = math.prod(grid.shape)
    after = math.prod(replaced(grid.shape, axis, n_cells))
    if after > max(MAX_CUT_CELLS, before):
        raise ChunkAlignmentError(
            f"this would cut the chunks into {after} pieces, and a manifest has at most {MAX_CUT_CELLS} of "
            f"{ENTRY.itemsize} bytes each",
            Remedy("use {}, which reads values", ".virtual.open()"),
            axis=axis,
        )


def refine(chunks: Chunks, axis: int, lines: NDArray[np.int64], /) -> Chunks:
    """Cut cells along one axis at ``lines``, which must contain the present lines."""
    old = chunks.grid.axes[axis]
    if len(lines) == old.n_cells + 1:
        return chunks
    cell = old.find(lines[:-1])
    return select(chunks, axis, cell, lines[:-1] - old.starts(cell), np.diff(lines))


def slice_axis(chunks: Chunks, axis: int, key: slice, /) -> Chunks:
    """Select a slice of elements along one axis; start, stop and step are as in numpy."""
    old = chunks.grid.axes[axis]
    picked = range(old.length)[key]
    if picked == range(old.length):
        return chunks
    if len(picked) < 2 or picked.step == 1:
        return _between(chunks, axis, picked[0], picked[-1] + 1) if picked else _between(chunks, axis, 0, 0)
    cell, first, lengths, _ = old.pieces(picked)
    order = slice(None, None, 1 if picked.step > 0 else -1)
    return select(chunks, axis, cell[order], first[order], lengths[order], picked.step)


def _between(chunks: Chunks, axis: int, low: int, high: int) -> Chunks:
    """Select the elements from ``low`` to before ``high``: a view of the entries."""
    new, begin, n, first = cut(chunks.grid.axes[axis], low, high)
    box = (slice(None),) * axis + (slice(begin, begin + n),)
    manifest = chunks.manifest.read(box)
    if first:
        firsts = np.zeros(n, np.int64)
        firsts[0] = first
        manifest = begin_at(manifest.drop_unused_encodings(), axis, along(firsts, axis, manifest.entries.ndim))
    return Chunks(manifest, chunks.grid.replace(axis, new))


def cut(axis: ChunkAxis, low: int, high: int, /) -> tuple[ChunkAxis, int, int, int]:
    """Cut an axis at two elements; return it, its first old cell, number of cells, and first element in that cell."""
    if (low, high) == (0, axis.length):
        return axis, 0, axis.n_cells, 0
    if low >= high:
        return ChunkAxis.regular(0, 1), 0, 0, 0
    met = axis.cover(low, high)
    begin, n = met.start, len(met)
    first = low - axis.span(begin).start
    if axis.chunk is not None:
        if first == 0 or n == 1:
            return ChunkAxis.regular(high - low, axis.chunk), begin, n, first
        if n > _MAX_GRID_LINES:
            raise ChunkAlignmentError(f"a slice from within a chunk has {n} cells, whose lines must be held in memory")
    lines = axis.lines(begin, met.stop).copy()
    lines[0], lines[-1] = low, high
    return ChunkAxis.from_lengths(np.diff(lines)), begin, n, first


def begin_at(manifest: ChunkManifest, axis: int, first: NDArray[np.int64], /) -> ChunkManifest:
    """Move the beginning of cells to a later element along an axis; ``first`` is broadcast to the shape of the grid."""
    if not manifest.encodings:
        return manifest
    strides = np.array([x.strides[axis] for x in manifest.encodings], np.int64)
    moved = np.where(manifest.holes, 0, first * strides[manifest.encoding_rows])
    return replace(manifest, starts=moved if manifest.starts is None else manifest.starts + moved)


def rearrange(
    chunks: Chunks,
    entries: Callable[[NDArray[Any]], NDArray[Any]],
    strides: Callable[[tuple[int, ...]], Iterable[int]],
    axes: Iterable[ChunkAxis],
    /,
) -> Chunks:
    """Apply functions to the arrays of cells and to the strides of encodings, and set the axes."""
    encodings = tuple(x.with_strides(strides(x.strides)) for x in chunks.manifest.encodings)
    return Chunks(replace(chunks.manifest.map_cells(entries), encodings=encodings), ChunkGrid(tuple(axes)))


def drop_axis(chunks: Chunks, axis: int, /) -> Chunks:
    """Remove an axis of one element."""

    def cut[T](values: tuple[T, ...]) -> tuple[T, ...]:
        return values[:axis] + values[axis + 1 :]

    return rearrange(chunks, lambda x: x.reshape(cut(x.shape)), cut, cut(chunks.grid.axes))


def insert_axis(chunks: Chunks, axis: int, /) -> Chunks:
    """Insert an axis of one element before ``axis``."""
    axes = chunks.grid.axes
    return rearrange(
        chunks,
        lambda x: np.expand_dims(x, axis),
        lambda strides: (*strides[:axis], 0, *strides[axis:]),
        (*axes[:axis], ChunkAxis.regular(1, 1), *axes[axis:]),
    )


def repeat_axis(chunks: Chunks, axis: int, length: int, /) -> Chunks:
    """Stretch an axis of one element to ``length`` elements: one cell with stride 0."""
    n_cells = min(length, 1)
    zero = np.zeros(n_cells, np.int64)
    return select(chunks, axis, zero, zero, np.full(n_cells, length, np.int64), 0)


def transpose(chunks: Chunks, order: tuple[int, ...], /) -> Chunks:
    """Permute axes: new axis i is old axis ``order[i]``."""
    return rearrange(
        chunks,
        lambda x: x.transpose(order),
        lambda strides: [strides[i] for i in order],
        [chunks.grid.axes[i] for i in order],
    )
