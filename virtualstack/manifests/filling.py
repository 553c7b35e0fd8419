"""Elements without a chunk: padding, reindexing and choosing add EMPTY or ABSENT cells; no bytes are read."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.chunk_manifest import EMPTY, ChunkManifest
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.grid import MAX_AXIS_LENGTH, ChunkAxis, ChunkGrid, union
from virtualstack.manifests.index_keys import take_axis
from virtualstack.manifests.indexing import Chunks, check_cells, refine, repeat_axis, slice_axis
from virtualstack.manifests.joining import align, collapse, concatenate
from virtualstack.manifests.unify import unify

_BLOCK_ELEMENTS = 1 << 24  # elements of a condition that are compared at once


def holes(axes: tuple[ChunkAxis, ...], fill: Fill, /, *, code: int = EMPTY) -> Chunks:
    """Return chunks that are all EMPTY or all ABSENT, according to ``code``."""
    grid = ChunkGrid(axes)
    return Chunks(ChunkManifest.empty(grid.shape, fill, code=code), grid)


def _holes_beside(chunks: Chunks, axis: int, length: int, fill: Fill) -> Chunks:
    """Return cells without chunks that match an array except along one axis; few cells have its chunk length."""
    grid = chunks.grid
    chunk = grid.axes[axis].chunk or length
    if -(-length // max(chunk, 1)) > max(grid.axes[axis].n_cells, 1):
        chunk = length
    return holes(grid.replace(axis, ChunkAxis.regular(length, max(chunk, 1))).axes, fill)


def pad_axis(chunks: Chunks, axis: int, before: int, after: int, fills: tuple[Fill, Fill], /) -> Chunks:
    """Add elements with a fill value before and after an axis."""
    left, right = (_holes_beside(chunks, axis, n, fill) for n, fill in zip((before, after), fills, strict=True))
    return _joined([left, chunks, right], axis, chunks)


def pad_axis_by_elements(chunks: Chunks, axis: int, before: int, after: int, mode: str, /) -> Chunks:
    """Add elements of an axis before and after it; ``"edge"`` repeats one cell, other modes cost the added elements."""
    n = chunks.grid.axes[axis].length
    if not n and (before or after):
        raise ValueError(f"axis {axis} has no elements to pad it with by mode={mode!r}")
    if before + n + after > MAX_AXIS_LENGTH:
        raise ManifestError(
            f"axis {axis} of {n} elements cannot be padded by {before} and {after}: it would be too long"
        )
    if not (before or after):
        return chunks
    left, right = _beyond(chunks, axis, -before, before, mode), _beyond(chunks, axis, n, after, mode)
    return _joined([left, chunks, right], axis, chunks)


def _beyond(chunks: Chunks, axis: int, begin: int, width: int, mode: str) -> Chunks:
    """Return ``width`` elements that continue an axis on one side; the first new element has the position ``begin``."""
    n = chunks.grid.axes[axis].length
    if mode == "edge" or n == 1:
        at = 0 if begin < 0 else n - 1
        return repeat_axis(slice_axis(chunks, axis, slice(at, at + 1)), axis, width)
    skipped = 1 if mode == "reflect" else 0  # the element at the edge
    if width <= n - skipped:
        low = skipped if (begin < 0) is (mode != "wrap") else n - skipped - width
        found = slice_axis(chunks, axis, slice(low, low + width))
        return found if mode == "wrap" else slice_axis(found, axis, slice(None, None, -1))
    check_cells(chunks.grid, axis, width // n)
    period = n if mode == "wrap" else 2 * (n - skipped)  # forth, and back
    index = (begin % period + np.arange(width)) % period
    return take_axis(chunks, axis, np.where(index < n, index, 2 * n - 1 - skipped - index))


def _joined(parts: list[Chunks], axis: int, own: Chunks) -> Chunks:
    """Join the parts that have elements; the fill value of the array stays the fill value of ``own``."""
    parts = [part for part in parts if part is own or part.grid.axes[axis].length]
    if len(parts) == 1:
        return own
    nothing = own.manifest.read(tuple(slice(0, 0) for _ in own.grid.axes))  # its fill becomes the first one
    manifests = unify([nothing, *(x.manifest for x in parts)])[1:]
    return concatenate([Chunks(x, part.grid) for x, part in zip(manifests, parts, strict=True)], axis)


def reindex_axis(chunks: Chunks, axis: int, index: NDArray[np.int64], fill: Fill, /, *, code: int = EMPTY) -> Chunks:
    """Take elements along an axis; an index of -1 becomes an element without a chunk."""
    is_hole = index < 0
    if not is_hole.any():
        return take_axis(chunks, axis, index)
    n = chunks.grid.axes[axis].length
    # The axis is extended by as many elements without a chunk as the longest run of -1 has.
    position = np.arange(index.size)
    begin = np.maximum.accumulate(np.where(is_hole, np.where(np.append(True, ~is_hole[:-1]), position, 0), 0))
    within = position - begin
    stretch = ChunkAxis.regular(int(within[is_hole].max()) + 1, int(within[is_hole].max()) + 1)
    hole = holes(chunks.grid.replace(axis, stretch).axes, fill, code=code)
    extended = _joined([chunks, hole], axis, chunks)
    return take_axis(extended, axis, np.where(is_hole, n + within, index))


def choose(condition: NDArray[np.bool_], x: Chunks, y: Chunks, /) -> Chunks:
    """Take the elements of one array where a condition holds, else the elements of another array of the same shape.

    Cells are cut where the condition changes.
    """
    x, y = align([x, y])
    small = condition[tuple(slice(0, 1) if step == 0 else slice(None) for step in condition.strides)]
    for axis, cells in enumerate(x.grid.axes):
        if small.shape[axis] > 1:
            lines = union(cells.lines(), _changes(small, axis))
            check_cells(x.grid, axis, lines.size - 1)
            x, y = refine(x, axis, lines), refine(y, axis, lines)
            small = small.take(lines[:-1], axis)
    own, other = unify([x.manifest, y.manifest])
    is_own = np.broadcast_to(small, own.shape)
    starts = None
    if own.starts is not None or other.starts is not None:
        starts = np.where(is_own, own.all_starts, other.all_starts)
    chosen = ChunkManifest(
        entries=np.where(is_own, own.entries, other.entries),
        starts=starts,
        fills=own.fills,
        encodings=own.encodings,
        locations=own.locations,
        inline=own.inline,
    )
    return collapse(Chunks(chosen, x.grid))


def _changes(condition: NDArray[np.bool_], axis: int) -> NDArray[np.intp]:
    """Return the elements along an axis where anything differs from the previous element."""
    rows = np.moveaxis(condition, axis, 0)
    step = max(1, _BLOCK_ELEMENTS // max(math.prod(rows.shape[1:]), 1))
    found = [np.zeros(0, np.intp)]
    others = tuple(range(1, rows.ndim))
    for at in range(0, len(rows) - 1, step):
        block = rows[at : at + step + 1]
        found.append(np.flatnonzero((block[1:] != block[:-1]).any(axis=others)) + at + 1)
    return np.concatenate(found)


def reindex(
    array: ManifestArray,
    indexers: Mapping[int, NDArray[np.int64]],
    fill_value: object,
    /,
    *,
    code: int = EMPTY,
) -> ManifestArray:
    """Take elements along axes by their positions; -1 becomes the fill value. No mask of elements is made."""
    fill = Fill.from_value(fill_value, array.dtype)
    chunks = array.as_chunks()
    for axis, index in indexers.items():
        n = array.shape[axis]
        if index.size and (int(index.min()) < -1 or int(index.max()) >= n):
            raise IndexError(f"positions from {index.min()} to {index.max()} are out of bounds for axis {axis} of {n}")
        chunks = reindex_axis(chunks, axis, index, fill, code=code)
    return array.with_chunks(chunks)
