"""Which rows of which segment show which cells of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError

__all__ = ["Placements", "width"]

_HEAD = 4  # columns before strides, begins and counts
_LIMIT = 1 << 62


def width(ndim: int, /) -> int:
    """Give the numbers of a placement on a grid of ``ndim`` axes."""
    return _HEAD + 3 * ndim


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """Boxes of a grid, later ones over earlier ones.

    Parameters
    ----------
    table
        Int64, shape ``(n, 4 + 3 * ndim)``: number of the segment; row of the first cell; what is added to codes of
        encodings, and of fills; then, an axis each: rows from a cell to the next, first cell, number of cells.
    """

    table: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], ndim: int, /, *, where: str) -> Placements:
        """Read placements of JSON.

        Raises
        ------
        MalformedFileError
            They are none.
        """
        try:
            numbers = np.array(rows or np.zeros(0, np.int64))
            if numbers.dtype != np.int64:  # which would be cut off, or wrap
                raise ValueError(f"numbers of dtype '{numbers.dtype}'")
            table = numbers.reshape(len(rows), width(ndim))
        except (ValueError, TypeError, OverflowError) as error:
            raise MalformedFileError(f"'{where}' has placements that are none: {error}; restore it") from error
        found = cls(table)
        begins, counts = found.begins, found.counts
        if (table[:, :_HEAD] < 0).any() or (begins < 0).any() or (counts < 1).any() or (np.abs(table) > _LIMIT).any():
            raise MalformedFileError(f"'{where}' has a placement with numbers that are none: restore it")
        with np.errstate(over="ignore"):
            reach = np.abs(found.strides.astype(float)) * (counts - 1)
        if (reach.sum(1) + table[:, 1] > _LIMIT).any():
            raise MalformedFileError(f"'{where}' has a placement beyond all rows: restore it")
        return found

    @property
    def ndim(self) -> int:
        """Axes of the grid."""
        return int(self.table.shape[1] - _HEAD) // 3

    @property
    def strides(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.table[:, _HEAD : _HEAD + self.ndim]

    @property
    def begins(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.table[:, _HEAD + self.ndim : _HEAD + 2 * self.ndim]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.table[:, _HEAD + 2 * self.ndim :]

    @property
    def ends(self) -> NDArray[np.int64]:
        """Shape ``(n, ndim)``."""
        return self.begins + self.counts

    def within(self, low: NDArray[np.int64], high: NDArray[np.int64], /) -> Placements:
        """Leave out what does not meet a box, and what lies under one that covers all of it."""
        meets = ((self.begins < high) & (self.ends > low)).all(1)
        covers = np.flatnonzero(((self.begins <= low) & (self.ends >= high)).all(1))
        if len(covers):
            meets[: covers[-1]] = False
        return self if meets.all() else Placements(self.table[meets])

    def rows_of(self, which: NDArray[np.intp] | int, cells: Sequence[NDArray[np.int64]], /) -> NDArray[np.int64]:
        """Give the row of each cell; ``which`` placement shows it, and its numbers an axis."""
        rows = np.broadcast_to(self.table[which, 1], np.broadcast_shapes(np.shape(which), *(x.shape for x in cells)))
        for axis, numbers in enumerate(cells):
            rows = rows + (numbers - self.begins[which, axis]) * self.strides[which, axis]
        return rows

    def find(self, cells: Sequence[NDArray[np.int64]], /) -> NDArray[np.intp]:
        """Give the placement that shows each cell, or -1.

        Parameters
        ----------
        cells
            Numbers of the cells an axis, each of shape ``(n,)``.
        """
        n = len(cells[0]) if cells else 1
        found = np.full(n, -1, np.intp)
        if not self.ndim or not len(self.table):
            found[:] = len(self.table) - 1
            return found
        # Those whose boxes are alike but along one axis are looked up together, and the latest of all shows the cell.
        alike = [self._alike(axis) for axis in range(self.ndim)]
        axis = min(range(self.ndim), key=lambda axis: len(alike[axis][1]))
        order, firsts = alike[axis]
        others = [x for x in range(self.ndim) if x != axis]
        for first, last in itertools.pairwise([*firsts.tolist(), len(order)]):
            group = order[first:last]
            box = group[0]
            meets = [(cells[x] >= self.begins[box, x]) & (cells[x] < self.ends[box, x]) for x in others]
            mine = np.flatnonzero(np.logical_and.reduce(meets)) if meets else np.arange(n)
            if len(mine):
                shown = _latest(self.begins[group, axis], self.ends[group, axis], cells[axis][mine])
                found[mine] = np.maximum(found[mine], np.where(shown < 0, -1, group[shown]))
        return found

    def _alike(self, axis: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Sort the placements by their boxes along all axes but one; alike ones stay in order.

        Returns
        -------
        tuple
            Their numbers, and where among these each box begins.
        """
        boxes = np.delete(np.concatenate([self.begins, self.counts], 1), [axis, axis + self.ndim], 1)
        order = np.lexsort(boxes.T) if (boxes != boxes[:1]).any() else np.arange(len(boxes))
        is_first = (boxes[order[1:]] != boxes[order[:-1]]).any(1)
        return order, np.flatnonzero(np.append(True, is_first))


def _latest(begins: NDArray[np.int64], ends: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.intp]:
    """Give the latest of some intervals that each number lies in, or -1."""
    if (begins[1:] >= ends[:-1]).all():
        at = np.searchsorted(begins, numbers, "right") - 1
        return np.where((at >= 0) & (numbers < ends[at]), at, -1)
    # The lines of all intervals are the ends of pieces, each of which lies in an interval or not. An interval is two
    # runs of pieces, of 2^k each; from the longest runs down, the latest of a run is that of both halves of it.
    lines = np.unique(np.concatenate([begins, ends]))
    first, last = np.searchsorted(lines, begins), np.searchsorted(lines, ends)
    level = np.frexp(last - first)[1] - 1
    latest = np.full(len(lines), -1, np.intp)
    for k in range(int(level.max()), -1, -1):
        half = 1 << k
        if k < level.max():
            latest[half:] = np.maximum(latest[half:], latest[:-half])
        mine = np.flatnonzero(level == k)
        np.maximum.at(latest, first[mine], mine)
        np.maximum.at(latest, last[mine] - half, mine)
    piece = np.searchsorted(lines, numbers, "right") - 1
    return np.where(piece >= 0, latest[piece], -1)
