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

from virtualstack.errors import ChunkAlignmentError, Remedy
from virtualstack.manifests.cells import begins_run, check_count
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid, as_range
from virtualstack.manifests.indexing import (
    Chunks,
    begin_at,
    check_cells,
    drop_axis,
    insert_axis,
    select,
    slice_axis,
    transpose,
)
from virtualstack.manifests.manifest import Manifest, hollow
from virtualstack.manifests.view import ManifestView


def take_axis(chunks: Chunks, axis: int, index: NDArray[np.int64], /) -> Chunks:
    """Take elements along one axis, in any order and any number of times.

    Consecutive elements with one step (also 0 or negative) inside a chunk become one cell. A step other than 1 is kept
    if at least three elements in a row have it.
    """
    picked = as_range(index)
    if picked is not None:
        stop = picked.stop if picked.stop >= 0 else None
        return slice_axis(chunks, axis, slice(picked.start, stop, picked.step))
    old = chunks.grid.axes[axis]
    cell = old.find(index)
    steps, is_cut = np.diff(index), cell[1:] != cell[:-1]
    begin = _runs(steps, is_cut)
    lengths = np.diff(begin, append=index.size)
    step = np.where(lengths > 1, steps[np.minimum(begin, steps.size - 1)], 1)
    cell = cell[begin]
    first = index[begin] - old.starts(cell)
    return select(chunks, axis, cell, first, lengths, step)


def _runs(steps: NDArray[np.int64], is_cut: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return where runs begin: elements of one cell with one step between them.

    The step between two runs belongs to neither. So that few steps other than 1 occur, each of which is a row of the
    table of encodings, such a step makes a run only if it is repeated.

    >>> _runs(np.diff([3, 4, 5, 9, 11, 13, 2]), np.zeros(6, np.bool_)).tolist()
    [0, 3, 6]
    """
    is_new = begins_run(steps.size, steps, is_cut)
    is_alone = is_new & np.append(is_new[1:], True) & (steps != 1)
    is_gap = is_cut | is_alone
    is_gap[1:] |= is_new[1:] & ~is_gap[:-1]
    return np.append(0, np.flatnonzero(is_gap) + 1)


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


type Item = int | slice | NDArray[np.int64] | None


def index_chunks(chunks: Chunks, key: object, /) -> Chunks:
    """Index as numpy does, with basic and advanced indexing."""
    items = expand(key, chunks.grid.array_shape)
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
    """Index a manifest that is not in memory; return it, its grid, and what is left of the key, or ``None``.

    If the key has arrays, the cells that they meet are read, and the rest of the key applies to these cells.
    """
    view = ManifestView.from_manifest(manifest, grid)
    rest: list[Item] = []
    empty: list[int] = []
    axis = 0
    for item in expand(key, grid.array_shape):
        if item is None:
            rest.append(None)
            continue
        picked, left = _span(item, grid.array_shape[axis])
        if picked:
            view = view.take(axis, picked)
        else:
            empty.append(axis)
        rest.append(left)
        axis += 1
    if empty:
        grid = ChunkGrid(tuple(ChunkAxis.regular(0, 1) if i in empty else x for i, x in enumerate(view.grid.axes)))
        return hollow(view.tables, grid.shape), grid, tuple(rest)
    if any(isinstance(left, np.ndarray) for left in rest):
        return _read_met(view, rest)
    axis = 0
    for left in rest:
        if isinstance(left, int):
            view = view.drop(axis)
            continue
        if left is None:
            view = view.insert(axis)
        axis += 1
    return view.simplified(), view.grid, None


def _span(item: int | slice | NDArray[np.int64], length: int) -> tuple[range, Item]:
    """Return the elements that an item selects from, and the rest of the item relative to them."""
    if isinstance(item, int):
        return range(item, item + 1), 0
    if isinstance(item, slice):
        return range(length)[item], slice(None)
    low, high = (int(item.min()), int(item.max()) + 1) if item.size else (0, 0)
    return range(low, high), item - low


def _read_met(view: ManifestView, items: list[Item]) -> tuple[ChunkManifest, ChunkGrid, Any]:
    """Read only the cells that a key meets; return them with their grid and the key on that grid."""
    rest, axes = list(items), list(view.grid.axes)
    some: dict[int, NDArray[np.int64]] = {}
    for axis, place in enumerate(i for i, item in enumerate(items) if item is not None):
        index, own = items[place], axes[axis]
        if isinstance(index, np.ndarray):
            some[axis], which = np.unique(own.find(index), return_inverse=True)
            axes[axis] = ChunkAxis.from_lengths(own.lengths(some[axis]))
            rest[place] = index + (axes[axis].lines()[:-1] - own.starts(some[axis]))[which].reshape(index.shape)
    check_count(math.prod(axis.n_cells for axis in axes), view.url)
    cells = (some.get(i, np.arange(axis.n_cells)) for i, axis in enumerate(axes))
    return view.simplified().pick(np.ix_(*cells)), ChunkGrid(tuple(axes)), tuple(rest)


def _advanced(chunks: Chunks, items: list[Item]) -> Chunks:
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


def expand(key: object, shape: tuple[int, ...]) -> list[Item]:
    """Return a key as one item for each axis and new axis, without Ellipsis; integers and arrays count from 0."""
    found = [_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    items: list[Item] = []
    axis = 0
    for item in _without_dots(found, len(shape), sum(map(_width, found))):
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
        raise ChunkAlignmentError("a boolean scalar is not an index of a virtual array", Remedy("use None or 0:0"))
    return int(array) if array.ndim == 0 else array


def _check_mask(mask: NDArray[np.bool_], axis: int, shape: tuple[int, ...]) -> None:
    for i, n in enumerate(mask.shape):
        if n != shape[axis + i]:
            raise IndexError(f"boolean index of {n} elements on axis {axis + i} with size {shape[axis + i]}")


def _without_dots(items: Sequence[Any], ndim: int, n_indexed: int, /) -> list[Any]:
    """Return a key with whole slices, for all axes that its items do not index, in place of ``...`` or at its end."""
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
    """Return indexes that count from the beginning of their axis; one that is out of range is an `IndexError`."""
    values = (index,) if isinstance(index, int) else (index.min(), index.max()) if index.size else ()
    for extreme in map(int, values):
        if not -length <= extreme < length:
            raise IndexError(f"index {extreme} is out of bounds for axis {axis} with size {length}")
    if isinstance(index, int):
        return index % length
    found = index.astype(np.int64)
    return np.where(found < 0, found + length, found)
