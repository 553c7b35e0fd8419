"""Keys of ``array[key]`` as numpy reads them: integers, slices, ``None``, ``...``, arrays of integers or booleans.

Lists, tuples inside a key, ranges, and other objects that numpy converts to arrays, count as arrays.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Any, cast, overload

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ChunkAlignmentError
from virtualstack.manifests.cells import MAX_READ_CELLS, begins_run, check_count
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid, as_range
from virtualstack.manifests.indexing import (
    Chunks,
    begin_at,
    check_cells,
    cut,
    drop_axis,
    insert_axis,
    select,
    slice_axis,
    transpose,
)
from virtualstack.manifests.manifest import Manifest, hollow
from virtualstack.manifests.view import ManifestView, SteppedManifest

__all__ = ["from_zero", "index_chunks", "index_view", "take_axis", "take_points", "without_dots"]

_MAX_STEPS = 256
"""Largest number of steps other than 1 that a take keeps along an axis: each is a row of the table of encodings."""


def take_axis(chunks: Chunks, axis: int, index: NDArray[np.int64], /) -> Chunks:
    """Take elements along one axis, in any order and any number of times.

    Consecutive elements with one step (also 0 or negative) inside a chunk become one cell. A step other than 1 is kept
    if at least three elements in a row have it. If there are more than 256 such steps, those that save most cells are
    kept.
    """
    picked = as_range(index)
    if picked is not None:
        stop = picked.stop if picked.stop >= 0 else None
        return slice_axis(chunks, axis, slice(picked.start, stop, picked.step))
    old = chunks.grid.axes[axis]
    cell = old.find(index)
    steps, is_cut = np.diff(index), cell[1:] != cell[:-1]
    begin = _runs(steps, is_cut | ~_is_kept(steps, is_cut))
    lengths = np.diff(begin, append=index.size)
    step = np.where(lengths > 1, steps[np.minimum(begin, steps.size - 1)], 1)
    cell = cell[begin]
    first = index[begin] - old.starts(cell)
    return select(chunks, axis, cell, first, lengths, step)


def _is_kept(steps: NDArray[np.int64], is_cut: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which steps are kept: 1, which needs no encoding, and the most frequent steps of three elements in a row.

    >>> _is_kept(np.array([1, 7, 7, 5, 1, 9]), np.zeros(6, np.bool_)).tolist()
    [True, True, True, False, True, False]
    """
    series = _series(steps, is_cut)
    length = np.diff(series, append=steps.size)
    is_long = (length > 1) & ~is_cut[series] & (steps[series] != 1)
    distinct, number = np.unique(steps[series[is_long]], return_inverse=True)
    if distinct.size > _MAX_STEPS:
        spared = np.bincount(number, weights=length[is_long])
        distinct = distinct[np.argsort(-spared, kind="stable")[:_MAX_STEPS]]
    found: NDArray[np.bool_] = np.isin(steps, np.append(distinct, 1))
    return found


def _series(steps: NDArray[np.int64], is_cut: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the beginnings of series of equal steps in one cell; a step from cell to cell is a separate series."""
    return np.flatnonzero(begins_run(steps.size, steps, is_cut) | is_cut)


def _runs(steps: NDArray[np.int64], is_cut: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return where runs begin: elements with one step between them and no cut, each run as long as possible.

    The step from the last element of a run to the first of the next run belongs to neither. So among steps that all
    differ from their neighbours, every second step makes a run of two.
    A longer series of equal steps always makes a run.

    >>> _runs(np.diff([3, 4, 5, 9, 11, 2]), np.zeros(5, np.bool_)).tolist()
    [0, 3, 5]
    """
    series = _series(steps, is_cut)
    length = np.diff(series, append=steps.size)
    cut = is_cut[series]
    # A series is free if its first step is not the gap between two runs. This holds after a cut, and after a series of
    # one step that was not free. It depends on the number of series back to the last series for which this is certain.
    is_known = np.ones(series.size, np.bool_)
    is_known[1:] = cut[:-1] | (length[:-1] > 1)
    number = np.arange(series.size)
    known = np.maximum.accumulate(np.where(is_known, number, 0))
    known_free = np.ones(series.size, np.bool_)
    known_free[1:] = cut[:-1]
    is_free = known_free[known] ^ ((number - known) % 2 == 1)
    # a run ends at a cut, and where a series begins that is not free
    return np.concatenate([np.zeros(1, np.int64), series[cut | ~is_free] + 1])


def take_points(chunks: Chunks, index: Sequence[NDArray[np.int64]], /) -> Chunks:
    """Take single elements along the first axes together: point i is element ``(index[0][i], index[1][i], ...)``."""
    manifest, grid = chunks
    k, shape, rest = len(index), index[0].shape, grid.axes[len(index) :]
    check_cells(ChunkGrid((ChunkAxis.regular(math.prod(grid.shape[:k]), 1), *rest)), 0, math.prod(shape))
    cells = tuple(axis.find(at) for axis, at in zip(grid.axes, index, strict=False))
    manifest = manifest.map_cells(lambda x: x[cells]).drop_unused_encodings()
    for i, (axis, at) in enumerate(zip(grid.axes, index, strict=False)):
        first = at - axis.starts(cells[i])
        if first.any():
            manifest = begin_at(manifest, i, first.reshape(shape + (1,) * len(rest)))
    encodings = tuple(x.with_strides((*(0 for _ in shape), *x.strides[k:])) for x in manifest.encodings)
    return Chunks(replace(manifest, encodings=encodings), ChunkGrid((*(ChunkAxis.regular(n, 1) for n in shape), *rest)))


type _Item = int | slice | NDArray[np.int64] | None


def index_chunks(chunks: Chunks, key: object, /) -> Chunks:
    """Index as numpy does, with basic and advanced indexing."""
    items = _expand(key, chunks.grid.array_shape)
    if any(isinstance(item, np.ndarray) for item in items):
        return _advanced(chunks, items)
    axis = 0
    for item in items:
        if item is None:
            chunks = insert_axis(chunks, axis)
        elif isinstance(item, slice):
            chunks = slice_axis(chunks, axis, item)
        else:
            at = int(item)
            chunks = drop_axis(slice_axis(chunks, axis, slice(at, at + 1)), axis)
            continue
        axis += 1
    return chunks


def index_view(manifest: Manifest, grid: ChunkGrid, key: object, /) -> tuple[Manifest, ChunkGrid, Any]:
    """Index a manifest that is not in memory, and read as few cells as possible.

    Returns
    -------
    tuple
        The indexed manifest, its grid, and the rest of the key, or ``None`` if the key is used up. If the key has
        arrays, the cells that they meet are read, and the rest of the key applies to these cells.
    """
    items = _expand(key, grid.array_shape)
    view, axes = ManifestView.from_manifest(manifest), list(grid.axes)
    rest: list[_Item] = []
    axis = 0
    for item in items:
        if item is None:
            rest.append(None)
            continue
        low, high, left = _span(item, axes[axis].length)
        axes[axis], begin, n, first = cut(axes[axis], low, high)
        view = view.cut(axis, begin, n, first)
        rest.append(left)
        axis += 1
    met = ChunkGrid(tuple(axes))
    if 0 in met.shape:
        return hollow(view.tables, met.shape), met, tuple(rest)
    steps = [left.step if isinstance(left, slice) else None for left in rest if left is not None]
    if any(steps) or any(isinstance(left, np.ndarray) for left in rest):
        seen = view.simplified()
        if isinstance(seen, ChunkManifest) or any(isinstance(left, np.ndarray) for left in rest):
            return _read_met(seen, met, rest)
        for axis, step in enumerate(steps):
            if step is not None:
                seen, axes[axis] = SteppedManifest.from_range(seen, axis, axes[axis], range(axes[axis].length)[::step])
        view = ManifestView.from_manifest(seen)
    axis = 0
    for left in rest:
        if left is None:
            view = view.insert(axis)
            axes.insert(axis, ChunkAxis.regular(1, 1))
        elif isinstance(left, int):
            view = view.drop(axis)
            del axes[axis]
            continue
        axis += 1
    return view.simplified(), ChunkGrid(tuple(axes)), None


def _span(item: int | slice | NDArray[np.int64], length: int) -> tuple[int, int, _Item]:
    """Return the range of elements that an item selects from, and the rest of the item relative to that range."""
    if isinstance(item, int):
        return item, item + 1, 0
    if isinstance(item, slice):
        picked = range(length)[item]
        low, high = (min(picked[0], picked[-1]), max(picked[0], picked[-1]) + 1) if picked else (0, 0)
        return low, high, slice(None, None, picked.step if picked.step != 1 and len(picked) > 1 else None)
    low, high = (int(item.min()), int(item.max()) + 1) if item.size else (0, 0)
    return low, high, item - low


def _read_met(manifest: Manifest, grid: ChunkGrid, items: list[_Item]) -> tuple[ChunkManifest, ChunkGrid, Any]:
    """Read only the cells that a key meets; return them with their grid and the key on that grid."""
    places = [i for i, item in enumerate(items) if item is not None]
    rest, axes = list(items), list(grid.axes)
    runs: list[NDArray[np.int64] | None] = []
    for axis, place in enumerate(places):
        run, axes[axis], rest[place] = _without_gaps(axes[axis], items[place])
        runs.append(run)
    check_count(math.prod(axis.n_cells for axis in axes), manifest.url)
    cells = np.ix_(*(np.arange(x.n_cells) if run is None else run for run, x in zip(runs, axes, strict=True)))
    chunks = Chunks(manifest.pick(cells), ChunkGrid(tuple(axes)))
    for axis, place in enumerate(places):
        index = rest[place]
        # only a single array, since arrays are indexed together
        if isinstance(items[place], slice) and isinstance(index, np.ndarray):
            chunks = take_axis(chunks, axis, index)
            rest[place] = slice(None)
    return *chunks, tuple(rest)


def _without_gaps(axis: ChunkAxis, item: _Item) -> tuple[NDArray[np.int64] | None, ChunkAxis, _Item]:
    """Return the cells of an axis that an item meets (``None``: all), and axis and item without the other cells."""
    if isinstance(item, slice):
        picked = range(axis.length)[item]
        if len(picked) >= min(axis.n_cells, MAX_READ_CELLS):
            return None, axis, item
        index = np.arange(picked.start, picked.stop, picked.step)
    elif isinstance(item, np.ndarray):
        index = item
    else:
        return None, axis, item
    cells, which = np.unique(axis.find(index), return_inverse=True)
    if len(cells) == axis.n_cells:
        return None, axis, item
    met = ChunkAxis.from_lengths(axis.lengths(cells))
    return cells, met, index + (met.lines()[:-1] - axis.starts(cells))[which].reshape(index.shape)


def _advanced(chunks: Chunks, items: list[_Item]) -> Chunks:
    """Index by arrays; integers become arrays too, and all of them are broadcast together."""
    axes: list[int] = []
    index: list[NDArray[np.int64]] = []
    for axis, item in enumerate(items):
        if item is None:
            chunks = insert_axis(chunks, axis)
        elif isinstance(item, slice):
            chunks = slice_axis(chunks, axis, item)
        else:
            axes.append(axis)
            index.append(np.asarray(item, np.int64))
    try:
        shape = np.broadcast_shapes(*(x.shape for x in index))
    except ValueError:
        raise IndexError(f"arrays of indices of shapes {[x.shape for x in index]} do not broadcast together") from None
    # numpy: the axes of the indices replace the first indexed axis, but come first if other axes are between them
    places = [i for i, item in enumerate(items) if not isinstance(item, slice) and item is not None]
    at = axes[0] if places[-1] - places[0] == len(places) - 1 else 0
    index = [x.reshape((1,) * (len(shape) - x.ndim) + x.shape) for x in index]
    chunks, block = _outer(chunks, axes, index, shape) or _points(chunks, axes, index, shape)
    others = [i for i in range(len(chunks.grid.axes)) if i not in block]
    return transpose(chunks, (*others[:at], *block, *others[at:]))


def _outer(
    chunks: Chunks, axes: list[int], index: list[NDArray[np.int64]], shape: tuple[int, ...]
) -> tuple[Chunks, list[int]] | None:
    """Take along one axis after the other if no two index arrays vary along the same axis of their broadcast.

    Return the chunks and which of their axes belong to the broadcast, or ``None`` if two arrays vary together.
    """
    long = [[i for i, n in enumerate(x.shape) if n != 1] for x in index]
    used = [i for found in long for i in found]
    if any(len(found) > 1 for found in long) or len(set(used)) < len(used):
        return None
    for axis, x in zip(axes, index, strict=True):
        chunks = take_axis(chunks, axis, x.reshape(-1))
    kept: dict[int, int] = {}
    for axis, found in sorted(zip(axes, long, strict=True), reverse=True):
        if not found:
            chunks = drop_axis(chunks, axis)
            kept = {i: a - 1 for i, a in kept.items()}
        else:
            kept[found[0]] = axis
    block = []
    for i in range(len(shape)):
        if i not in kept:
            kept[i] = len(chunks.grid.axes)
            chunks = insert_axis(chunks, kept[i])
        block.append(kept[i])
    return chunks, block


def _points(
    chunks: Chunks, axes: list[int], index: list[NDArray[np.int64]], shape: tuple[int, ...]
) -> tuple[Chunks, list[int]]:
    others = [i for i in range(len(chunks.grid.axes)) if i not in axes]
    chunks = transpose(chunks, (*axes, *others))
    return take_points(chunks, [np.broadcast_to(x, shape) for x in index]), list(range(len(shape)))


def _expand(key: object, shape: tuple[int, ...]) -> list[_Item]:
    """Return a key as one item for each axis and new axis, without Ellipsis; integers and arrays count from 0."""
    found = [_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    items: list[_Item] = []
    axis = 0
    for item in without_dots(found, len(shape), sum(map(_width, found))):
        if item is None or isinstance(item, slice):
            items.append(item)
        elif isinstance(item, np.ndarray) and item.dtype == np.bool_:
            _check_mask(item, axis, shape)
            items += [np.asarray(x, np.int64) for x in np.nonzero(item)]
        else:
            items.append(from_zero(item, axis, shape[axis]))
        axis += _width(item)
    return items


def _width(item: object) -> int:
    """Return the number of axes that an item indexes."""
    if item is None or isinstance(item, EllipsisType):
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == np.bool_ else 1


def _item(item: object) -> int | slice | NDArray[Any] | EllipsisType | None:
    if item is None or isinstance(item, slice | EllipsisType):
        return item
    if isinstance(item, np.integer) or not (isinstance(item, bool) or hasattr(item, "__array__")):
        with contextlib.suppress(TypeError):  # not an integer
            return operator.index(cast(Any, item))
    try:
        array = np.asarray(item)
    except ValueError:  # lists of different lengths
        raise IndexError(f"{item!r} is not an array of indices") from None
    if not array.size and array.ndim and not isinstance(item, np.ndarray):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        if array.ndim:
            raise IndexError(f"arrays used as indices must be of integers or booleans, not '{array.dtype}'")
        raise IndexError(f"{item!r} is not an index of a virtual array; use integers, slices, None, '...' and arrays")
    if array.ndim == 0 and array.dtype.kind == "b":
        raise ChunkAlignmentError("a boolean scalar is not an index of a virtual array; use None or 0:0")
    return int(array) if array.ndim == 0 else array


def _check_mask(mask: NDArray[np.bool_], axis: int, shape: tuple[int, ...]) -> None:
    for i, n in enumerate(mask.shape):
        if n != shape[axis + i]:
            raise IndexError(f"boolean index of {n} elements on axis {axis + i} with size {shape[axis + i]}")


def without_dots(items: Sequence[Any], ndim: int, n_indexed: int, /) -> list[Any]:
    """Return a key with whole slices, for all axes that its items do not index, in place of ``...`` or at its end.

    Raises
    ------
    IndexError
        The items index more than ``ndim`` axes, or there is more than one ellipsis.
    """
    if n_indexed > ndim:
        raise IndexError(f"too many indices: the array has {ndim} axes, {n_indexed} were indexed")
    dots = [i for i, item in enumerate(items) if isinstance(item, EllipsisType)]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = dots[0] if dots else len(items)
    return [*items[:at], *[slice(None)] * (ndim - n_indexed), *items[at + 1 :]]


@overload
def from_zero(index: int, axis: int, length: int, /) -> int: ...
@overload
def from_zero(index: NDArray[Any], axis: int, length: int, /) -> NDArray[np.int64]: ...
def from_zero(index: int | NDArray[Any], axis: int, length: int, /) -> int | NDArray[np.int64]:
    """Return indices that count from the beginning of their axis.

    Raises
    ------
    IndexError
        An index is out of range.
    """
    values = np.asarray(index)
    for extreme in (int(values.min()), int(values.max())) if values.size else ():
        if not -length <= extreme < length:
            raise IndexError(f"index {extreme} is out of bounds for axis {axis} with size {length}")
    if isinstance(index, int):
        return index % length
    found = index.astype(np.int64)
    return np.where(found < 0, found + length, found)
