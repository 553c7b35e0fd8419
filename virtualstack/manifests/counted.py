"""Go through manifests that are not in memory, one block at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from virtualstack.manifests.cells import CellBox, CellNumbers, ManifestSummary, blocks, check_work
from virtualstack.manifests.chunk_manifest import ABSENT, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding
from virtualstack.manifests.manifest import DerivedManifest, Manifest

__all__ = ["CountedManifest", "count_states", "counted", "in_order"]

_BLOCK_CELLS = 1 << 19  # cells that are read at a time


@dataclass(frozen=True, slots=True)
class CountedManifest(DerivedManifest):
    """A manifest whose entries were all counted once by :func:`counted`."""

    base: Manifest
    tables: ChunkManifest
    n_holes: int
    n_absent: int
    n_other_fill: int
    is_cut: bool

    def read(self, box: CellBox, /) -> ChunkManifest:
        """Return the entries of a box."""
        return self.base.read(box)

    def pick(self, cells: CellNumbers, /) -> ChunkManifest:
        """Return the entries of some cells."""
        return self.base.pick(cells)

    def summary(self) -> ManifestSummary | None:
        """Return the counts of the base, or ``None`` if they are not known."""
        return self.base.summary()


def counted(manifest: Manifest, /) -> Manifest:
    """Count the entries of a manifest that is not in memory, without copying it into memory."""
    if isinstance(manifest, ChunkManifest):
        return manifest
    own = manifest.tables.fill
    encodings: dict[ChunkEncoding, None] = {}
    n_holes = n_absent = n_other_fill = 0
    is_cut = False
    for box in blocks(manifest.shape, _BLOCK_CELLS):
        part = manifest.read(box)
        row, holes = part.entries["encoding"].reshape(-1), part.holes.reshape(-1)
        fills = row[holes]
        used = np.bincount(row[~holes] if fills.size else row, minlength=len(part.encodings))
        encodings |= dict.fromkeys(part.encodings[i] for i in np.flatnonzero(used).tolist())
        n_holes += fills.size
        n_absent += int(np.count_nonzero(part.entries["location"] == ABSENT)) if fills.size else 0
        n_other_fill += int(np.count_nonzero(np.array([fill != own for fill in part.fills])[fills]))
        is_cut = is_cut or (part.starts is not None and bool(part.starts.any()))
    tables = replace(ChunkManifest.empty((0,) * len(manifest.shape), own), encodings=tuple(encodings))
    return CountedManifest(manifest, tables, n_holes, n_absent, n_other_fill, is_cut)


def count_states(manifest: Manifest, /) -> ManifestSummary:
    """Count the cells in each state; entries that are not in memory are read one block at a time."""
    known = manifest.summary()
    return known or ManifestSummary.sum(manifest.read(x).summary() for x in blocks(manifest.shape, _BLOCK_CELLS))


def in_order(manifest: Manifest, n: int, /) -> Iterator[ChunkManifest]:
    """Yield the entries of a manifest in C order of its cells, ``n`` at a time, as manifests of one axis."""
    size = math.prod(manifest.shape)
    if isinstance(manifest, ChunkManifest):
        flat = manifest.reshape((size,))
        yield from (flat.read((slice(begin, min(begin + n, size)),)) for begin in range(0, size, n))
        return
    check_work(size)
    several = n * max(_BLOCK_CELLS // n, 1)
    for begin in range(0, size, several):
        cells = np.arange(begin, min(begin + several, size))
        picked = manifest.pick(np.unravel_index(cells, manifest.shape) if manifest.shape else ())
        yield from in_order(picked.reshape((cells.size,)), n)
