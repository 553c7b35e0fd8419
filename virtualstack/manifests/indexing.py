"""Selecting elements of a chunked array by editing entries, starts and strides; no bytes are read.

Everything here works on :class:`Chunks`, a manifest in memory with its grid, and gives another.
"""

from __future__ import annotations

from dataclasses import replace
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ChunkAlignmentError
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid

__all__ = ["Chunks", "basic_index", "drop_axis", "insert_axis", "refine", "repeat_axis", "slice_axis", "transpose"]


class Chunks(NamedTuple):
    """A manifest in memory with the grid of its cells."""

    manifest: ChunkManifest
    grid: ChunkGrid


def _along(values: NDArray[Any], axis: int, ndim: int) -> NDArray[Any]:
    """Shape a 1-D array to broadcast along one axis."""
    return values.reshape((-1,) + (1,) * (ndim - axis - 1))


def _scale_strides(manifest: ChunkManifest, axis: int, factor: int) -> ChunkManifest:
    if factor == 1:
        return manifest
    return replace(
        manifest,
        encodings=tuple(
            x.with_strides((*x.strides[:axis], x.strides[axis] * factor, *x.strides[axis + 1 :]))
            for x in manifest.encodings
        ),
    )


def _select(
    chunks: Chunks,
    axis: int,
    cell: NDArray[np.int64],
    first: NDArray[np.int64],
    lengths: NDArray[np.int64],
    step: int = 1,
) -> Chunks:
    """Make cell j of ``axis`` of the elements ``first[j] + i * step``, ``i < lengths[j]``, of the old ``cell[j]``."""
    manifest, grid = chunks
    ndim = manifest.entries.ndim
    entries = manifest.entries.take(cell, axis)
    starts = None if manifest.starts is None else manifest.starts.take(cell, axis)
    if first.any() and manifest.encodings:
        strides = np.array([x.strides[axis] for x in manifest.encodings], np.int64)
        holes = manifest.holes.take(cell, axis)
        moved = _along(first, axis, ndim) * strides[np.where(holes, 0, entries["encoding"])]
        moved = np.where(holes, 0, moved)
        starts = moved if starts is None else starts + moved
    manifest = replace(_scale_strides(manifest, axis, step), entries=entries, starts=starts)
    return Chunks(manifest, grid.replace(axis, ChunkAxis.from_lengths(lengths)))


def refine(chunks: Chunks, axis: int, lines: NDArray[np.int64], /) -> Chunks:
    """Cut cells along one axis at ``lines``, which must contain the present ones."""
    old = chunks.grid.axes[axis]
    if len(lines) == old.n_cells + 1:
        return chunks
    cell = old.find(lines[:-1])
    return _select(chunks, axis, cell, lines[:-1] - old.lines()[cell], np.diff(lines))


def slice_axis(chunks: Chunks, axis: int, key: slice, /) -> Chunks:
    """Select a slice of elements along one axis; any start, stop and step, as numpy has it."""
    old = chunks.grid.axes[axis]
    picked = range(old.length)[key]
    if picked == range(old.length):
        return chunks
    if not len(picked):
        none = np.zeros(0, np.int64)
        return _select(chunks, axis, none, none, none)
    low, high, step = min(picked[0], picked[-1]), max(picked[0], picked[-1]), picked.step
    if step == 1 and old.is_regular and low % (old.chunk or 1) == 0:
        return _slice_cells(chunks, axis, low, high)
    lines = old.lines()
    cell = np.arange(int(old.find(low)), int(old.find(high)) + 1)
    k = abs(step)
    begin = low + -(-np.maximum(lines[cell] - low, 0) // k) * k
    end = low + (np.minimum(lines[cell + 1] - 1, high) - low) // k * k
    hit = end >= begin
    cell, begin, end = cell[hit], begin[hit], end[hit]
    lengths = (end - begin) // k + 1
    if step > 0:
        return _select(chunks, axis, cell, begin - lines[cell], lengths, step)
    return _select(chunks, axis, cell[::-1], (end - lines[cell])[::-1], lengths[::-1], step)


def _slice_cells(chunks: Chunks, axis: int, low: int, high: int) -> Chunks:
    """Select elements ``low`` to ``high``, both included, where ``low`` begins a cell of a regular axis: a view."""
    manifest, grid = chunks
    chunk = grid.axes[axis].chunk or 1
    box = (slice(None),) * axis + (slice(low // chunk, high // chunk + 1),)
    return Chunks(manifest.read(box), grid.replace(axis, ChunkAxis.regular(high - low + 1, chunk)))


def drop_axis(chunks: Chunks, axis: int, /) -> Chunks:
    """Remove an axis of one element."""
    manifest, grid = chunks

    def cut[T](values: tuple[T, ...]) -> tuple[T, ...]:
        return values[:axis] + values[axis + 1 :]

    return Chunks(
        replace(
            manifest,
            entries=manifest.entries.reshape(cut(manifest.shape)),
            starts=None if manifest.starts is None else manifest.starts.reshape(cut(manifest.shape)),
            encodings=tuple(x.with_strides(cut(x.strides)) for x in manifest.encodings),
        ),
        ChunkGrid(cut(grid.axes)),
    )


def insert_axis(chunks: Chunks, axis: int, /) -> Chunks:
    """Insert an axis of one element before ``axis``."""
    manifest, grid = chunks
    return Chunks(
        replace(
            manifest,
            entries=np.expand_dims(manifest.entries, axis),
            starts=None if manifest.starts is None else np.expand_dims(manifest.starts, axis),
            encodings=tuple(x.with_strides((*x.strides[:axis], 0, *x.strides[axis:])) for x in manifest.encodings),
        ),
        ChunkGrid((*grid.axes[:axis], ChunkAxis.regular(1, 1), *grid.axes[axis:])),
    )


def repeat_axis(chunks: Chunks, axis: int, length: int, /) -> Chunks:
    """Stretch an axis of one element to ``length`` elements: one cell seen with stride 0."""
    n_cells = min(length, 1)
    zero = np.zeros(n_cells, np.int64)
    return _select(chunks, axis, zero, zero, np.full(n_cells, length, np.int64), 0)


def transpose(chunks: Chunks, order: tuple[int, ...], /) -> Chunks:
    """Permute axes: new axis i is old axis ``order[i]``."""
    manifest, grid = chunks
    return Chunks(
        replace(
            manifest,
            entries=manifest.entries.transpose(order),
            starts=None if manifest.starts is None else manifest.starts.transpose(order),
            encodings=tuple(x.with_strides(x.strides[i] for i in order) for x in manifest.encodings),
        ),
        ChunkGrid(tuple(grid.axes[i] for i in order)),
    )


def basic_index(chunks: Chunks, key: object, /) -> Chunks:
    """Index with integers, slices, ``None`` and ``...``, as numpy's basic indexing.

    Raises
    ------
    IndexError
        Too many indices, or an integer out of range.
    ChunkAlignmentError
        An array of integers or booleans that is no slice.
    """
    axis = 0
    items = _expand(key, len(chunks.grid.axes))
    n_arrays = sum(isinstance(item, np.ndarray) and item.ndim > 0 for item in items)
    for item in items:
        if item is None:
            chunks = insert_axis(chunks, axis)
            axis += 1
            continue
        length = chunks.grid.axes[axis].length
        if isinstance(item, np.ndarray):
            item = _slice_of_array(item, axis, length, n_arrays)
        if isinstance(item, slice):
            chunks = slice_axis(chunks, axis, item)
            axis += 1
        else:
            at = _checked(item, axis, length)
            chunks = drop_axis(slice_axis(chunks, axis, slice(at, at + 1)), axis)
    return chunks


def _checked(index: int, axis: int, length: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index % length


def _expand(key: object, ndim: int) -> list[int | slice | NDArray[Any] | None]:
    """Write a numpy key as one item an axis and new axis, without Ellipsis."""
    items = list(key) if isinstance(key, tuple) else [key]
    n_axes = sum(item is not None and not isinstance(item, EllipsisType) for item in items)
    if n_axes > ndim:
        raise IndexError(f"too many indices: the array has {ndim} axes, {n_axes} were indexed")
    whole: list[object] = [slice(None)] * (ndim - n_axes)
    dots = [i for i, item in enumerate(items) if isinstance(item, EllipsisType)]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    items = items[: dots[0]] + whole + items[dots[0] + 1 :] if dots else items + whole
    return [_item(item) for item in items]


def _item(item: object) -> int | slice | NDArray[Any] | None:
    if item is None or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        raise ChunkAlignmentError("a boolean scalar is no index of a virtual array; use None or 0:0")
    if isinstance(item, (int, np.integer)):
        return int(item)
    if isinstance(item, (np.ndarray, list)):
        array = np.asarray(item)
        if array.size and array.dtype.kind not in "iub":
            raise IndexError(f"arrays used as indices must be of integers or booleans, not '{array.dtype}'")
        return int(array) if array.ndim == 0 and array.dtype.kind in "iu" else array
    raise IndexError(f"{item!r} is no index of a virtual array; use integers, slices, None and '...'")


def _slice_of_array(index: NDArray[Any], axis: int, length: int, n_arrays: int) -> slice:
    """Write an array of indices as a slice where it is one (xarray hands over ``np.ix_`` arrays for several axes)."""
    long_axes = sum(n != 1 for n in index.shape)
    if long_axes > 1 or (n_arrays > 1 and index.ndim != n_arrays) or (n_arrays == 1 and index.ndim > 1):
        raise ChunkAlignmentError(
            "pointwise indexing of a virtual array is not supported yet; open the dataset with .virtual.open()",
            axis=axis,
        )
    if index.dtype.kind == "b":
        if index.size != length:
            raise IndexError(f"boolean index of {index.size} elements on axis {axis} with size {length}")
        flat = np.flatnonzero(index)
    else:
        flat = index.reshape(-1).astype(np.int64)
    if flat.size == 0:
        return slice(0, 0)
    for extreme in (int(flat.min()), int(flat.max())):
        _checked(extreme, axis, length)
    flat = flat % length
    step = int(flat[1] - flat[0]) if flat.size > 1 else 1
    if step == 0 or not bool((np.diff(flat) == step).all()):
        raise ChunkAlignmentError(
            f"an array of {flat.size} indices on axis {axis} that is no slice would cut chunks into runs, which is not "
            "supported yet; select with slices, join datasets with equal coordinates (join='exact'), or use "
            ".virtual.open()",
            axis=axis,
        )
    stop = int(flat[-1]) + (1 if step > 0 else -1)
    return slice(int(flat[0]), None if stop < 0 else stop, step)
