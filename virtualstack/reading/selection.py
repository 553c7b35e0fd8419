"""Turn outer keys into segments: which elements of which cells go where in the result, one axis at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import ChunkAxis, ChunkGrid
from virtualstack.manifests.cells import begins_run
from virtualstack.manifests.grid import as_range
from virtualstack.manifests.index_keys import expand, from_zero

type AxisKey = int | np.integer[Any] | slice | Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]
type OuterKey = AxisKey | EllipsisType | tuple[AxisKey | EllipsisType, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The selected elements along one axis, cut at the cell boundaries of the grid.

    Segment j covers ``count[j]`` elements of cell ``cells[j]``, from element ``first[j]`` of the cell in steps of
    ``step[j]``. Of these elements, the segment takes the elements ``source(j)``, which go to ``target(j)`` of the
    result.

    Parameters
    ----------
    cells, first, step, count
        Cell, first element, step and number of elements of each segment, shape ``(k,)``.
    begin
        Where each segment begins in the result, shape ``(k,)``; ``None`` if segments do not take all their elements
        to a slice.
    taken, scattered
        Elements that the segments take, and the place of each in the result, shape ``(n,)``; empty if ``begin`` is set.
    edges
        Segment j has the elements ``edges[j]`` to ``edges[j + 1]`` of ``taken`` and ``scattered``, shape ``(k + 1,)``;
        empty if ``begin`` is set.
    length
        Number of elements of the result along the axis.
    """

    cells: NDArray[np.int64]
    first: NDArray[np.int64]
    step: NDArray[np.int64]
    count: NDArray[np.int64]
    begin: NDArray[np.int64] | None
    taken: NDArray[np.int64]
    scattered: NDArray[np.int64]
    edges: NDArray[np.int64]
    length: int

    def source(self, j: int, /) -> NDArray[np.int64] | None:
        """Return which elements a segment takes; ``None`` for all."""
        return None if self.begin is not None else self.taken[self.edges.item(j) : self.edges.item(j + 1)]

    def target(self, j: int, /) -> slice | NDArray[np.int64]:
        """Return the positions of a segment's elements in the result; computed on request, for up to 10^6."""
        if self.begin is None:
            return self.scattered[self.edges.item(j) : self.edges.item(j + 1)]
        begin = self.begin.item(j)
        return slice(begin, begin + self.count.item(j))


class Selection(NamedTuple):
    """The elements of an array that an outer key, or points, select.

    Parameters
    ----------
    axes
        Segments of each axis of the array; an integer key selects one element.
    kept
        Axes of the result: axes without an integer key.
    joint
        Axes along which points are selected; each point has an index along every joint axis. Segment i of one joint
        axis goes with segment i of the others. Together they are the first axis of the result.
    """

    axes: tuple[Segments, ...]
    kept: tuple[int, ...]
    joint: tuple[int, ...] = ()

    def cut(self, axis: int, n: int, /) -> Selection:
        """Return the same selection with segments of at most ``n`` elements along an axis; 1 on joint axes."""
        cut = self.joint if axis in self.joint else (axis,)
        n = 1 if axis in self.joint else n
        return self._replace(axes=tuple(_cut(x, n) if i in cut else x for i, x in enumerate(self.axes)))

    @property
    def places(self) -> tuple[int, ...]:
        """Axis whose segments place the elements, for each axis of the result, including axes of integer keys."""
        return (*self.joint[:1], *(i for i in range(len(self.axes)) if i not in self.joint))

    def of_axes[T](self, of_places: Sequence[T], /) -> tuple[T, ...]:
        """Return values for each axis of the array from values for each axis of the result."""
        found = dict(zip(self.places, of_places, strict=True))
        return tuple(found[self.joint[0] if i in self.joint else i] for i in range(len(self.axes)))

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the result, including the axes of integer keys, which have one element each."""
        return tuple(self.axes[i].length for i in self.places)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.axes[i].length for i in self.kept)


def select(grid: ChunkGrid, items: Sequence[int | slice | NDArray[np.int64]], /) -> Selection:
    """Apply the keys of all axes to a chunk grid."""
    axes = []
    for axis, item in zip(grid.axes, items, strict=True):
        if isinstance(item, np.ndarray):
            axes.append(_of_array(axis, item))
        else:
            axes.append(_of_range(axis, range(axis.length)[item] if isinstance(item, slice) else range(item, item + 1)))
    return Selection(tuple(axes), tuple(i for i, item in enumerate(items) if not isinstance(item, int)))


def expand_outer(key: OuterKey, shape: tuple[int, ...], /) -> list[int | slice | NDArray[np.int64]]:
    """Return a key as a list with one key for each axis; arrays have one axis each."""
    items: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
    for item in items:
        if item is None or isinstance(item, bool | np.bool_) or np.ndim(item) > 1:
            raise IndexError(f"{item!r} is not an integer, a slice, or a 1-D array of integers or booleans")
    return [item for item in expand(key, shape) if item is not None]


def select_points(grid: ChunkGrid, items: Sequence[slice | NDArray[np.integer[Any]]], /) -> Selection:
    """Apply the indexes of points to a chunk grid."""
    joint = tuple(i for i, item in enumerate(items) if not isinstance(item, slice))
    index = {i: from_zero(np.asarray(items[i]), i, grid.axes[i].length) for i in joint}
    cells = {i: grid.axes[i].find(index[i]) for i in joint}
    order = np.lexsort([cells[i] for i in reversed(joint)])
    begins = np.flatnonzero(begins_run(order.size, *(of_points[order] for of_points in cells.values())))
    axes = []
    for i, (axis, item) in enumerate(zip(grid.axes, items, strict=True)):
        if isinstance(item, slice):
            axes.append(_of_range(axis, range(axis.length)[item]))
        else:
            axes.append(_of_groups(axis, index[i][order], cells[i][order], begins, order))
    return Selection(tuple(axes), (), joint)


def _of_range(axis: ChunkAxis, picked: range) -> Segments:
    """Cut equally spaced elements at the cell boundaries of the grid; segments come in the order of the cells."""
    if not picked:
        return _whole(_NONE, _NONE, _NONE, _NONE, _NONE, 0)
    if len(picked) == 1:  # its step may be longer than can be counted
        picked = range(picked[0], picked[0] + 1)
    cells, first, count, at = axis.pieces(picked)
    return _whole(cells, first, np.broadcast_to(np.int64(picked.step), cells.shape), count, at, len(picked))


_NONE = np.zeros(0, np.int64)


def _whole(
    cells: NDArray[np.int64],
    first: NDArray[np.int64],
    step: NDArray[np.int64],
    count: NDArray[np.int64],
    begin: NDArray[np.int64],
    length: int,
) -> Segments:
    return Segments(cells, first, step, count, begin, _NONE, _NONE, _NONE, length)


def _cut(segments: Segments, n: int) -> Segments:
    """Split segments into segments of at most ``n`` elements; segments with index arrays become single elements."""
    begin = segments.begin
    n_pieces = np.diff(segments.edges) if begin is None else -(-segments.count // n)
    of = np.repeat(np.arange(n_pieces.size), n_pieces)
    if begin is None:
        piece, goal, count = segments.taken, segments.scattered, _ones(of.size)
    else:
        piece = (np.arange(of.size) - (np.cumsum(n_pieces) - n_pieces)[of]) * n
        goal, count = begin[of] + piece, np.minimum(n, segments.count[of] - piece)
    step = segments.step[of]
    return _whole(segments.cells[of], segments.first[of] + piece * step, step, count, goal, segments.length)


def _ones(n: int) -> NDArray[np.int64]:
    return np.broadcast_to(np.int64(1), (n,))


def _of_array(axis: ChunkAxis, index: NDArray[np.int64]) -> Segments:
    """Group the elements of an index array by cell."""
    picked = as_range(index)
    if picked is not None:
        return _of_range(axis, picked)
    cell = axis.find(index)
    order = np.argsort(cell, kind="stable")
    ordered = cell[order]
    begins = np.flatnonzero(begins_run(ordered.size, ordered))
    return _of_groups(axis, index[order], ordered, begins, order)


def _of_groups(
    axis: ChunkAxis,
    index: NDArray[np.int64],
    cell: NDArray[np.int64],
    begins: NDArray[np.intp],
    target: NDArray[np.int64],
) -> Segments:
    """Make segments of elements that are sorted by cell and go to ``target``; group i begins at ``begins[i]``."""
    if not index.size:
        return _of_range(axis, range(0))
    local = index - axis.starts(cell)
    if index.size < _MIN_GROUP_ELEMENTS * begins.size:
        one = _ones(index.size)
        return _whole(cell, local, one, one, target, index.size)
    first = np.minimum.reduceat(local, begins)
    count = np.maximum.reduceat(local, begins) - first + 1
    edges = np.append(begins, index.size)
    local = local - np.repeat(first, np.diff(edges))
    return Segments(cell[begins], first, _ones(begins.size), count, None, local, target, edges, index.size)


_MIN_GROUP_ELEMENTS = 2
"""Mean number of elements in a cell below which each element is a segment: grouping them would cost more."""
