"""Counts of the cells of an array by state, which a snapshot has so that nobody needs to read rows for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from virtualstack.errors import ManifestError
from virtualstack.manifests import ChunkManifest, Manifest, ManifestSummary
from virtualstack.manifests.cells import blocks
from virtualstack.manifests.serialised.values import to_count

_BATCH_CELLS = 1 << 19  # cells that are read at a time


class Counts(NamedTuple):
    """Cells in each state, stored bytes of all cells, and cells that begin within a decoded chunk."""

    n_references: int
    n_inline: int
    n_empty: int
    n_absent: int
    nbytes: int
    n_cut: int

    @classmethod
    def in_box(cls, manifest: Manifest, low: Sequence[int], high: Sequence[int], /) -> Self:
        """Count the cells of a box of a manifest, which are read one block at a time."""
        sides = tuple(max(b - a, 0) for a, b in zip(low, high, strict=True))
        boxes = blocks(sides, _BATCH_CELLS) if all(sides) else ()
        return cls.of(
            manifest.read(tuple(slice(a + x.start, a + x.stop) for a, x in zip(low, box, strict=True))) for box in boxes
        )

    @classmethod
    def of(cls, parts: Iterable[ChunkManifest], /) -> Self:
        """Count the entries of manifests."""
        total = np.zeros(len(cls._fields), object)
        for part in parts:
            x = part.summary()
            n_cut = 0 if part.starts is None else int(np.count_nonzero(part.starts))
            total += np.array((x.n_references, x.n_inline, x.n_empty, x.n_absent, x.nbytes, n_cut), object)
        return cls(*total)

    @classmethod
    def from_json(cls, document: Any, shape: tuple[int, ...], /) -> Self | None:
        """Read the counts of an array with a chunk grid, which stores of earlier versions do not have."""
        if document is None:
            return None
        counts = cls(*map(to_count, document))
        if counts.n_cells != math.prod(shape) or counts.n_cut > counts.n_cells:
            raise ManifestError(f"it counts {counts.n_cells} chunks of a grid of {shape}")
        return counts

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return sum(self[:4])

    def plus(self, other: Counts, /, times: int = 1) -> Counts:
        """Return the counts with those of other cells."""
        return Counts(*(a + times * b for a, b in zip(self, other, strict=True)))

    def summary(self) -> ManifestSummary:
        """Return the counts as those of a manifest."""
        return ManifestSummary(
            n_chunks=self.n_cells,
            n_references=self.n_references,
            n_inline=self.n_inline,
            n_empty=self.n_empty,
            n_absent=self.n_absent,
            nbytes=self.nbytes,
        )
