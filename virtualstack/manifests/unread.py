"""What all manifests have in common that are not in memory: their entries are read cell by cell."""

from __future__ import annotations

import math
from typing import Protocol, Self

import numpy as np

from virtualstack.errors import ManifestError
from virtualstack.manifests.cells import CellBox, CellNumbers, check_count, mesh
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.manifest import Manifest, Tables

__all__ = ["UnreadManifest", "hollow"]

_MOST_AXES = 32  # those that numpy broadcasts


class _ByCells(Manifest, Protocol):
    def entries_of(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """See :class:`UnreadManifest`."""


class UnreadManifest:
    """Boxes are read as the cells in them, none of them reads nothing, and a copy is the manifest itself.

    Classes below it have ``entries_of(cells, shape)``, which gives the entries of at least one cell, and at most 2^28.
    """

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def read(self: _ByCells, box: CellBox, /) -> ChunkManifest:
        """Give the entries of a box; see :meth:`pick`."""
        return self.pick(mesh(box, self.url))

    def pick(self: _ByCells, cells: CellNumbers, /) -> ChunkManifest:
        """Give the entries of some cells, in the shape that their numbers have together.

        Raises
        ------
        ManifestError
            There are more than 2^28, or they have more than 32 axes; or what holds the entries is not as it should be.
        StorageError
            It cannot be had.
        """
        if len(cells) > _MOST_AXES:
            raise ManifestError(
                f"'{self.url}' has an array of {len(cells)} axes; chunks of {_MOST_AXES} are found: leave it out with "
                "drop_variables="
            )
        shape = np.broadcast_shapes(*(numbers.shape for numbers in cells))
        if 0 in shape:
            return hollow(self.tables, shape)
        check_count(math.prod(shape), self.url)
        return self.entries_of(cells, shape)


def hollow(tables: Tables, shape: tuple[int, ...], /) -> ChunkManifest:
    """Give tables a grid of EMPTY cells, or of none."""
    entries = np.broadcast_to(np.zeros((), ENTRY), shape)
    return ChunkManifest(entries=entries, fills=tables.fills, encodings=tables.encodings)
