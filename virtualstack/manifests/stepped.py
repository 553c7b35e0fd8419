"""Cells of a manifest that is not in memory, of which some elements along an axis are seen, or all backwards."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ChunkAlignmentError
from virtualstack.manifests.cells import CellNumbers, ManifestSummary
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding
from virtualstack.manifests.grid import ChunkAxis
from virtualstack.manifests.indexing import MAX_CELLS, begin_at, stepped
from virtualstack.manifests.manifest import Manifest
from virtualstack.manifests.unread import UnreadManifest

__all__ = ["SteppedManifest"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SteppedManifest(UnreadManifest):
    """Cells along an axis of a manifest, each seen from an element on.

    Parameters
    ----------
    base
        The manifest.
    axis
        Of the chunk grid.
    cells, firsts
        Shape ``(n,)``: cells of the base, and the element of each that is seen first.
    step
        From an element that is seen to the next; 1 where no cell shows several.
    """

    base: Manifest
    axis: int
    cells: NDArray[np.int64]
    firsts: NDArray[np.int64]
    step: int

    @classmethod
    def of(cls, base: Manifest, axis: int, grid_axis: ChunkAxis, picked: range, /) -> tuple[SteppedManifest, ChunkAxis]:
        """See equally spaced elements along an axis, of which there is one at least; give their axis, too.

        Raises
        ------
        ChunkAlignmentError
            They lie in more than 2^26 cells.
        """
        n_cells = min(len(picked), grid_axis.n_cells)
        if n_cells > MAX_CELLS:
            raise ChunkAlignmentError(
                f"a slice with a step meets {n_cells} chunks along an axis, more than {MAX_CELLS}: take a part of it "
                "first, or use .virtual.open(), which reads values",
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
        shape = self.base.shape
        return (*shape[: self.axis], self.cells.size, *shape[self.axis + 1 :])

    @property
    def url(self) -> str | None:
        """That of the base."""
        return self.base.url

    @property
    def tables(self) -> ChunkManifest:
        """Fills and encodings."""
        tables = self.base.tables
        return ChunkManifest(entries=np.zeros(0, ENTRY), fills=tables.fills, encodings=self._seen(tables.encodings))

    def summary(self) -> ManifestSummary | None:
        """Give the counts of the base where all its cells are seen."""
        return self.base.summary() if self.shape == self.base.shape else None

    def entries_of(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Give the entries of some cells."""
        at = cells[self.axis]
        found = self.base.pick((*cells[: self.axis], self.cells[at], *cells[self.axis + 1 :]))
        firsts = self.firsts[at]
        if firsts.any():
            found = begin_at(found, self.axis, firsts)
        return replace(found, encodings=self._seen(found.encodings))

    def _seen(self, encodings: tuple[ChunkEncoding, ...]) -> tuple[ChunkEncoding, ...]:
        if self.step == 1:
            return encodings
        return tuple(stepped(encoding, self.axis, self.step) for encoding in encodings)
