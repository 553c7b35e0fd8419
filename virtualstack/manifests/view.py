"""Views of manifests that are not in memory, as slices, steps and transpositions make them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ChunkAlignmentError
from virtualstack.manifests.cells import CellNumbers, ManifestSummary, replaced
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding
from virtualstack.manifests.grid import ChunkAxis
from virtualstack.manifests.indexing import MAX_CUT_CELLS, begin_at, stepped
from virtualstack.manifests.joining import JoinedManifest
from virtualstack.manifests.manifest import DerivedManifest, Manifest, UnreadManifest

__all__ = ["ManifestView", "SteppedManifest"]


@dataclass(frozen=True, kw_only=True)
class ManifestView(DerivedManifest, UnreadManifest):
    """A box of a manifest. Its axes are axes of the base, in any order, and new axes.

    Parameters
    ----------
    base
        Manifest that is not itself a view.
    begins, counts
        First cell and number of cells, for each axis of the base.
    firsts
        First element of the view within its first cell, for each axis of the base.
    axes
        Axis of the base for each axis of the view, or ``None`` for a new axis of one element. Axes of the base that are
        not in the view have one cell, of which one element is visible.
    """

    base: Manifest
    begins: tuple[int, ...]
    counts: tuple[int, ...]
    firsts: tuple[int, ...]
    axes: tuple[int | None, ...]

    @classmethod
    def from_manifest(cls, manifest: Manifest, /) -> ManifestView:
        """Return a view of a whole manifest."""
        if isinstance(manifest, ManifestView):
            return manifest
        ndim = len(manifest.shape)
        return cls(
            base=manifest,
            begins=(0,) * ndim,
            counts=manifest.shape,
            firsts=(0,) * ndim,
            axes=tuple(range(ndim)),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid, in cells."""
        return tuple(1 if axis is None else self.counts[axis] for axis in self.axes)

    @property
    def tables(self) -> ChunkManifest:
        """Fills, and encodings on the axes of the view."""
        tables = self.base.tables
        entries = np.zeros(0, ENTRY)
        return ChunkManifest(entries=entries, fills=tables.fills, encodings=_on_axes(tables.encodings, self.axes))

    def summary(self) -> ManifestSummary | None:
        """Return the counts of the base if the view has all its cells, else ``None``."""
        return self.base.summary() if self.counts == self.base.shape else None

    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the entries of some cells, on the axes of the view."""
        own: list[NDArray[np.integer[Any]]] = [np.zeros((1,) * len(shape), np.int64) for _ in self.begins]
        for numbers, axis in zip(cells, self.axes, strict=True):
            if axis is not None:
                own[axis] = numbers
        found = self.base.pick(tuple(numbers + begin for numbers, begin in zip(own, self.begins, strict=True)))
        for axis, (numbers, first) in enumerate(zip(own, self.firsts, strict=True)):
            if first:
                found = begin_at(found, axis, np.where(numbers == 0, first, 0))
        found = found.map_cells(lambda x: np.broadcast_to(x, shape))
        return replace(found, encodings=_on_axes(found.encodings, self.axes))

    # -- other views ------------------------------------------------------------------------------------------

    def cut(self, axis: int, begin: int, n: int, first: int, /) -> ManifestView:
        """Take ``n`` cells of an axis, starting at cell ``begin``; the first cell starts at its element ``first``."""
        at = self.axes[axis]
        if at is None or (begin, n, first) == (0, self.counts[at], 0):
            return self  # a new axis has one cell of one element
        if begin == 0:
            first += self.firsts[at]
        return replace(
            self,
            begins=replaced(self.begins, at, self.begins[at] + begin),
            counts=replaced(self.counts, at, n),
            firsts=replaced(self.firsts, at, first),
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
            base, skipped = view.base.between(view.begins[axis], view.begins[axis] + view.counts[axis])
            if base is view.base:
                break
            outer = replace(view, base=base, begins=replaced(view.begins, axis, view.begins[axis] - skipped))
            if not isinstance(base, ManifestView):
                view = outer
                continue
            view = outer._of_view(base)
        if isinstance(view.base, ChunkManifest):
            return view.read(tuple(slice(0, n) for n in view.shape))
        is_whole = view == ManifestView.from_manifest(view.base)
        return view.base if is_whole else view

    def _of_view(self, inner: ManifestView) -> ManifestView:
        """Return a view of a view as a view of its base."""
        made = inner
        for axis, (begin, n, first) in enumerate(zip(self.begins, self.counts, self.firsts, strict=True)):
            made = made.cut(axis, begin, n, first)
        return replace(made, axes=tuple(None if axis is None else made.axes[axis] for axis in self.axes))


@dataclass(frozen=True, kw_only=True, eq=False)
class SteppedManifest(DerivedManifest, UnreadManifest):
    """Selected cells along an axis of a manifest; each begins at a chosen element and advances by one step.

    Parameters
    ----------
    base
        The manifest.
    axis
        Axis of the chunk grid.
    cells, firsts
        Cells of the base, and the first element that is seen of each: shape ``(n,)``.
    step
        Number of elements from one seen element to the next; 1 if no cell shows several.
    """

    base: Manifest
    axis: int
    cells: NDArray[np.int64]
    firsts: NDArray[np.int64]
    step: int

    @classmethod
    def from_range(
        cls, base: Manifest, axis: int, grid_axis: ChunkAxis, picked: range, /
    ) -> tuple[SteppedManifest, ChunkAxis]:
        """Select equally spaced elements along an axis, at least one; return the manifest and its axis."""
        n_cells = min(len(picked), grid_axis.n_cells)
        if n_cells > MAX_CUT_CELLS:
            raise ChunkAlignmentError(
                f"a slice with a step meets {n_cells} chunks along an axis, more than {MAX_CUT_CELLS}: take a part of "
                "it first, or use .virtual.open(), which reads values",
                axis=axis,
            )
        cells, firsts, lengths, _ = grid_axis.pieces(picked)
        if picked.step < 0:
            cells, firsts, lengths = cells[::-1], firsts[::-1], lengths[::-1]
        step = picked.step if (lengths > 1).any() else 1
        return cls(base=base, axis=axis, cells=cells, firsts=firsts, step=step), ChunkAxis.from_lengths(lengths)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid, in cells."""
        return replaced(self.base.shape, self.axis, self.cells.size)

    @property
    def tables(self) -> ChunkManifest:
        """Fills and encodings."""
        tables = self.base.tables
        return ChunkManifest(entries=np.zeros(0, ENTRY), fills=tables.fills, encodings=self._seen(tables.encodings))

    def summary(self) -> ManifestSummary | None:
        """Return the counts of the base if all its cells are visible, else ``None``."""
        return self.base.summary() if self.shape == self.base.shape else None

    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the entries of some cells."""
        at = cells[self.axis]
        found = self.base.pick(replaced(cells, self.axis, self.cells[at]))
        firsts = self.firsts[at]
        if firsts.any():
            found = begin_at(found, self.axis, firsts)
        return replace(found, encodings=self._seen(found.encodings))

    def _seen(self, encodings: tuple[ChunkEncoding, ...]) -> tuple[ChunkEncoding, ...]:
        if self.step == 1:
            return encodings
        return tuple(stepped(encoding, self.axis, self.step) for encoding in encodings)


@lru_cache(maxsize=256)  # many parts of a join have the same encodings
def _on_axes(encodings: tuple[ChunkEncoding, ...], axes: tuple[int | None, ...]) -> tuple[ChunkEncoding, ...]:
    """Return encodings with strides on the axes of a view."""
    return tuple(x.with_strides(0 if axis is None else x.strides[axis] for axis in axes) for x in encodings)
