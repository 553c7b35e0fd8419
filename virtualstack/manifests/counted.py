"""Go through manifests that are not in memory, one block at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from virtualstack.manifests.cells import ManifestSummary, blocks, check_work
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.manifest import Manifest

_BLOCK_CELLS = 1 << 19  # cells that are read at a time


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
