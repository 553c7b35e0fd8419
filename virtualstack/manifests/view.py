"""The view of a manifest that is not in memory, as slices, integers, ``None`` and transpositions make it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ChunkAlignmentError, Remedy
from virtualstack.manifests.cells import CellNumbers, ManifestSummary, replaced
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid
from virtualstack.manifests.indexing import MAX_CUT_CELLS, begin_at, cut, stepped
from virtualstack.manifests.joining import JoinedManifest
from virtualstack.manifests.manifest import Manifest, UnreadManifest


class _Cells(NamedTuple):
    """The cells of a view along an axis of its base: those of the base from an element on, or some with a step."""

    axis: ChunkAxis
    first: int = 0
    some: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    step: int = 1


@dataclass(frozen=True)
class ManifestView(UnreadManifest):
    """Equally spaced elements along each axis of a manifest. Axes may be in another order, dropped or new.

    Parameters
    ----------
    base
        Manifest that is not itself a view.
    begins
        First cell of the base that the view meets, for each axis of the base.
    met
        The cells that the view meets, for each axis of the base.
    picked
        Elements of these cells that the view shows, for each axis of the base.
    axes
        Axis of the base for each axis of the view, or ``None`` for a new axis of one element. Of axes of the base that
        are not in the view, one element is visible.
    """

    base: Manifest
    begins: tuple[int, ...]
    met: tuple[ChunkAxis, ...]
    picked: tuple[range, ...]
    axes: tuple[int | None, ...]

    @classmethod
    def from_manifest(cls, manifest: Manifest, grid: ChunkGrid, /) -> ManifestView:
        """Return a view of a whole manifest with a chunk grid."""
        if isinstance(manifest, ManifestView):
            return manifest
        n = len(grid.axes)
        return cls(manifest, (0,) * n, grid.axes, tuple(range(x.length) for x in grid.axes), tuple(range(n)))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.base, self.begins, self.met, self.picked, self.axes)  # without cached properties

    @cached_property
    def _cells(self) -> tuple[_Cells, ...]:
        """The cells along each axis of the base."""
        return tuple(map(_cells_of, self.met, self.picked))

    @property
    def grid(self) -> ChunkGrid:
        """Chunk grid of the view."""
        return ChunkGrid(tuple(ChunkAxis.regular(1, 1) if i is None else self._cells[i].axis for i in self.axes))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid, in cells."""
        return tuple(1 if i is None else self._cells[i].axis.n_cells for i in self.axes)

    @property
    def url(self) -> str | None:
        """URL of the base."""
        return self.base.url

    @property
    def tables(self) -> ChunkManifest:
        """Fills, and encodings on the axes of the view."""
        tables = self.base.tables
        return ChunkManifest(entries=np.zeros(0, ENTRY), fills=tables.fills, encodings=self._seen(tables.encodings))

    def _seen(self, encodings: tuple[ChunkEncoding, ...]) -> tuple[ChunkEncoding, ...]:
        return _on_axes(encodings, tuple(cells.step for cells in self._cells), self.axes)

    def summary(self) -> ManifestSummary | None:
        """Return the counts of the base if the view has all its cells, else ``None``."""
        is_whole = tuple(cells.axis.n_cells for cells in self._cells) == self.base.shape
        return self.base.summary() if is_whole else None

    @property
    def is_box(self) -> bool:
        """True if the cells of the view are whole cells of the base, on the same axes."""
        return self.axes == tuple(range(len(self.picked))) and all(x.start == 0 and x.step == 1 for x in self.picked)

    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the entries of some cells, on the axes of the view."""
        numbers = dict(zip(self.axes, cells, strict=True))
        zero = np.zeros((1,) * len(shape), np.int64)
        wanted, firsts = [], []
        for axis, (begin, side) in enumerate(zip(self.begins, self._cells, strict=True)):
            own = numbers.get(axis, zero)
            if side.some is None:
                wanted.append(begin + own)
                firsts.append(np.where(own == 0, side.first, 0))
            else:
                wanted.append(begin + side.some[0][own])
                firsts.append(side.some[1][own])
        found = self.base.pick(tuple(wanted))
        for axis, first in enumerate(firsts):
            if first.any():
                found = begin_at(found, axis, first)
        found = found.map_cells(lambda x: np.broadcast_to(x, shape))
        return replace(found, encodings=self._seen(found.encodings))

    # -- other views ------------------------------------------------------------------------------------------

    def take(self, axis: int, elements: range, /) -> ManifestView:
        """Select equally spaced elements along an axis, at least one unless the axis has none."""
        at = self.axes[axis]
        return self if at is None else self._take(at, elements)  # a new axis has one element

    def _take(self, at: int, elements: range) -> ManifestView:
        """Select elements along an axis of the base."""
        own, axis = self.picked[at], self.met[at]
        if elements == range(len(own)):
            return self
        first, last = own[elements[0]], own[elements[-1]]
        step = own.step * elements.step if len(elements) > 1 else 1
        cells = axis.cover(min(first, last), max(first, last) + 1)
        low = axis.span(cells.start).start
        return replace(
            self,
            begins=replaced(self.begins, at, self.begins[at] + cells.start),
            met=replaced(self.met, at, axis.between(cells.start, cells.stop)),
            picked=replaced(self.picked, at, range(first - low, last - low + step, step)),
        )

    def drop(self, axis: int, /) -> ManifestView:
        """Remove an axis of one element."""
        return replace(self, axes=self.axes[:axis] + self.axes[axis + 1 :])

    def insert(self, axis: int, /) -> ManifestView:
        """Insert an axis of one element before ``axis``."""
        return replace(self, axes=(*self.axes[:axis], None, *self.axes[axis:]))

    def transpose(self, order: tuple[int, ...], /) -> ManifestView:
        """Permute axes: new axis i is old axis ``order[i]``."""
        return replace(self, axes=tuple(self.axes[i] for i in order))

    def simplified(self) -> Manifest:
        """Return the simplest equal manifest: the seen parts of a join, the base itself, or entries in memory."""
        view = self
        while isinstance(view.base, JoinedManifest):
            axis = view.base.axis
            base, skipped = view.base.between(view.begins[axis], view.begins[axis] + view.met[axis].n_cells)
            if base is view.base:
                break
            outer = replace(view, base=base, begins=replaced(view.begins, axis, view.begins[axis] - skipped))
            if not isinstance(base, ManifestView):
                view = outer
                continue
            view = outer._of_view(base)
        if isinstance(view.base, ChunkManifest):
            return view.read(tuple(slice(0, n) for n in view.shape))
        return view.base if view.is_box and view.shape == view.base.shape else view

    def _of_view(self, inner: ManifestView) -> ManifestView:
        """Return a view of a view as a view of its base."""
        made = inner
        for axis, (begin, picked) in enumerate(zip(self.begins, self.picked, strict=True)):
            low = inner.grid.axes[axis].span(begin).start
            made = made.take(axis, range(picked.start + low, picked.stop + low, picked.step))
        return replace(made, axes=tuple(None if axis is None else made.axes[axis] for axis in self.axes))


def _cells_of(axis: ChunkAxis, picked: range) -> _Cells:
    """Return the cells of equally spaced elements of an axis, all of whose cells they meet."""
    if picked.step == 1:
        new, _, _, first = cut(axis, picked.start, picked.stop)
        return _Cells(new, first)
    if min(len(picked), axis.n_cells) > MAX_CUT_CELLS:
        raise ChunkAlignmentError(
            f"a slice with a step meets {min(len(picked), axis.n_cells)} chunks along an axis, more than "
            f"{MAX_CUT_CELLS}",
            Remedy("take a part of it first, or use {}, which reads values", ".virtual.open()"),
        )
    cells, firsts, lengths, _ = axis.pieces(picked)
    if picked.step < 0:
        cells, firsts, lengths = cells[::-1], firsts[::-1], lengths[::-1]
    return _Cells(ChunkAxis.from_lengths(lengths), 0, (cells, firsts), picked.step if (lengths > 1).any() else 1)


@lru_cache(maxsize=256)  # many parts of a join have the same encodings
def _on_axes(
    encodings: tuple[ChunkEncoding, ...], steps: tuple[int, ...], axes: tuple[int | None, ...]
) -> tuple[ChunkEncoding, ...]:
    """Return encodings with strides on the axes of a view."""
    for axis, step in enumerate(steps):
        if step != 1:
            encodings = tuple(stepped(x, axis, step) for x in encodings)
    return tuple(x.with_strides(0 if axis is None else x.strides[axis] for axis in axes) for x in encodings)
