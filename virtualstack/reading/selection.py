"""Outer keys to segments: which elements of which cells go where in the result, one axis at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import ChunkAxis, ChunkGrid

__all__ = ["AxisKey", "OuterKey", "Segments", "Selection", "expand", "select"]

type AxisKey = int | np.integer[Any] | slice | Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]
type OuterKey = AxisKey | EllipsisType | tuple[AxisKey | EllipsisType, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The selected elements along one axis, cut at the lines of the grid.

    Segment j shows ``count[j]`` elements of cell ``cells[j]``, from element ``first[j]`` of the cell in steps of
    ``step[j]``. Of these it takes ``source[j]``, and they go to ``target[j]`` of the result.

    Parameters
    ----------
    cells, first, step, count
        Shape ``(k,)``.
    source
        For each segment an index array, or ``None`` for all.
    target
        For each segment a slice or an index array.
    length
        Elements of the result along the axis.
    begin
        Shape ``(k,)``: where segments go, if each takes all its elements to a slice; else ``None``.
    """

    cells: NDArray[np.int64]
    first: NDArray[np.int64]
    step: NDArray[np.int64]
    count: NDArray[np.int64]
    source: Sequence[NDArray[np.int64] | None]
    target: Sequence[slice | NDArray[np.int64]]
    length: int
    begin: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """What an outer key selects of an array.

    Parameters
    ----------
    axes
        Of the array; an integer key selects one element.
    kept
        Axes of the result: those without an integer key.
    """

    axes: tuple[Segments, ...]
    kept: tuple[int, ...]

    def cut(self, axis: int, n: int, /) -> Selection:
        """Give the same selection with segments of at most ``n`` elements along one axis."""
        return Selection((*self.axes[:axis], _cut(self.axes[axis], n), *self.axes[axis + 1 :]), self.kept)

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the result with the axes of integer keys, of one element each."""
        return tuple(axis.length for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.axes[i].length for i in self.kept)


def select(grid: ChunkGrid, items: list[Any], /) -> Selection:
    """Lay the keys of all axes over a chunk grid.

    Raises
    ------
    IndexError
        An index is out of range, or no integers.
    """
    axes, kept = [], []
    for number, (axis, item) in enumerate(zip(grid.axes, items, strict=True)):
        if isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_)):
            at = int(_in_bounds(np.array([item], np.int64), number, axis.length)[0])
            axes.append(_of_range(axis, range(at, at + 1)))
            continue
        kept.append(number)
        if isinstance(item, slice):
            axes.append(_of_range(axis, range(axis.length)[item]))
        else:
            axes.append(_of_array(axis, _index_array(item, number, axis.length)))
    return Selection(tuple(axes), tuple(kept))


def expand(key: OuterKey, ndim: int, /) -> list[Any]:
    """Write a key as one for each axis.

    Raises
    ------
    IndexError
        There are too many.
    """
    items: list[Any] = list(key) if isinstance(key, tuple) else [key]
    dots = [i for i, item in enumerate(items) if isinstance(item, EllipsisType)]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if len(items) - len(dots) > ndim:
        raise IndexError(f"too many indices: the array has {ndim} axes, {len(items) - len(dots)} were indexed")
    at = dots[0] if dots else len(items)
    return items[:at] + [slice(None)] * (ndim - len(items) + len(dots)) + items[at + len(dots) :]


def _index_array(item: Any, axis: int, length: int) -> NDArray[np.int64]:
    index = np.asarray(item)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iub"):
        raise IndexError(
            f"the index of axis {axis} has {index.ndim} axes and dtype '{index.dtype}'; integers, slices and 1-D "
            "arrays of integers or booleans are asked for"
        )
    if index.dtype.kind == "b":
        if index.size != length:
            raise IndexError(f"the boolean index of axis {axis} has {index.size} elements; the axis has {length}")
        return np.flatnonzero(index)
    return _in_bounds(index.astype(np.int64), axis, length)


def _in_bounds(index: NDArray[np.int64], axis: int, length: int) -> NDArray[np.int64]:
    bad = (index < -length) | (index >= length)
    if bad.any():
        raise IndexError(f"index {int(index[bad][0])} is out of bounds for axis {axis} with size {length}")
    return np.where(index < 0, index + length, index)


def _of_range(axis: ChunkAxis, picked: range) -> Segments:
    """Cut equally spaced elements at the lines of the grid; segments come in the order of the cells."""
    if not picked:
        none = np.zeros(0, np.int64)
        return Segments(none, none, none, none, (), (), 0)
    low, high, k = min(picked[0], picked[-1]), max(picked[0], picked[-1]), abs(picked.step)
    cells = np.arange(int(axis.find(low)), int(axis.find(high)) + 1)
    if axis.edges is None:
        chunk = axis.chunk or 1
        start, stop = cells * chunk, np.minimum((cells + 1) * chunk, axis.length)
    else:
        start, stop = axis.edges[cells], axis.edges[cells + 1]
    begin = low + -(-np.maximum(start - low, 0) // k) * k
    end = low + (np.minimum(stop - 1, high) - low) // k * k
    hit = end >= begin
    if not hit.all():  # a step over whole cells
        cells, start, begin, end = cells[hit], start[hit], begin[hit], end[hit]
    count = (end - begin) // k + 1
    if picked.step > 0:
        first, at = begin - start, (begin - low) // k
    else:
        first, at = end - start, (high - end) // k
    target = [slice(i, i + n) for i, n in zip(at.tolist(), count.tolist(), strict=True)]
    step = np.full(cells.size, picked.step, np.int64)
    return Segments(cells, first, step, count, (None,) * cells.size, target, len(picked), at)


def _cut(segments: Segments, n: int) -> Segments:
    """Split segments into several of at most ``n`` elements; those with index arrays into single elements."""
    cells, first, step, count = [], [], [], []
    target: list[slice | NDArray[np.int64]] = []
    for j, (source, goal) in enumerate(zip(segments.source, segments.target, strict=True)):
        if source is None and isinstance(goal, slice):
            begin = np.arange(0, int(segments.count[j]), n)
            length = np.minimum(n, segments.count[j] - begin)
            target += [slice(goal.start + i, goal.start + i + m) for i, m in zip(begin, length, strict=True)]
        else:
            begin = np.asarray(source)
            length = np.ones(begin.size, np.int64)
            target += [slice(i, i + 1) for i in np.asarray(goal).tolist()]
        cells.append(np.full(begin.size, segments.cells[j]))
        first.append(segments.first[j] + begin * segments.step[j])
        step.append(np.full(begin.size, segments.step[j]))
        count.append(length)
    joined = [np.concatenate(x) for x in (cells, first, step, count)]
    return Segments(joined[0], joined[1], joined[2], joined[3], (None,) * len(target), target, segments.length)


def _of_array(axis: ChunkAxis, index: NDArray[np.int64]) -> Segments:
    """Group elements by cell."""
    steps = np.diff(index)
    if index.size and (steps == (steps[0] if steps.size else 1)).all():
        step = int(steps[0]) if steps.size else 1
        if step:
            return _of_range(axis, range(int(index[0]), int(index[-1]) + (1 if step > 0 else -1), step))
    cell = axis.find(index)
    order = np.argsort(cell, kind="stable")
    cells, begins = np.unique(cell[order], return_index=True)
    lines = axis.lines()
    local = index[order] - lines[cell[order]]
    if not index.size:
        return _of_range(axis, range(0))
    first = np.minimum.reduceat(local, begins)
    count = np.maximum.reduceat(local, begins) - first + 1
    local = local - np.repeat(first, np.diff(begins, append=index.size))
    return Segments(
        cells,
        first,
        np.ones(cells.size, np.int64),
        count,
        np.split(local, begins[1:]),
        np.split(order, begins[1:]),
        index.size,
    )
