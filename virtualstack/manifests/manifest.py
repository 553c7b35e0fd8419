"""The protocol of all manifests, in memory or not, and what those that are not in memory have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np

from virtualstack.errors import ManifestError
from virtualstack.location import Location
from virtualstack.manifests.cells import CellBox, CellNumbers, ManifestSummary, check_count, mesh
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill

__all__ = ["Manifest", "Overlay", "Tables", "UnreadManifest", "hollow"]

_MAX_AXES = 32  # those that numpy broadcasts


class Tables(Protocol):
    """What the codes of entries point into; see :class:`~virtualstack.manifests.ChunkManifest`."""

    @property
    def fill(self) -> Fill:
        """The array's own fill value, the first of them."""

    @property
    def fills(self) -> tuple[Fill, ...]:
        """What holes read as."""

    @property
    def encodings(self) -> tuple[ChunkEncoding, ...]:
        """How chunks become values."""

    @property
    def locations(self) -> tuple[Location, ...]:
        """Sources of the chunks; those of pages are not among them."""


@runtime_checkable
class Manifest(Protocol):
    """Where the chunks of an array lie."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the chunk grid, in cells."""

    @property
    def url(self) -> str | None:
        """URL of one of the sources, or of the references where none is known without reading them; for messages."""

    def read(self, box: CellBox, /) -> ChunkManifest:
        """Return the entries of a box of the grid, in memory; a paged manifest reads the pages that hold them."""

    def pick(self, cells: CellNumbers, /) -> ChunkManifest:
        """Return the entries of some cells, in memory, in the shape that their numbers have together."""

    @property
    def tables(self) -> Tables:
        """All fills and encodings that chunks may have, and the sources that are known; no page is read."""

    def summary(self) -> ManifestSummary | None:
        """Count what the manifest holds; ``None`` where pages would have to be read for it."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Chunks that come over those of an array, on its grid.

    Parameters
    ----------
    manifest
        Manifest of the chunks; its fills have the dtype of the array.
    begin
        Cell of the array that their first cell takes the place of.
    """

    manifest: Manifest
    begin: tuple[int, ...]


class _ByCells(Manifest, Protocol):
    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """See :class:`UnreadManifest`."""


class UnreadManifest:
    """Boxes are read as the cells in them, none of them reads nothing, and a copy is the manifest itself.

    Subclasses have ``read_entries(cells, shape)``, which returns the entries of at least one cell, and at most 2^28.
    """

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def read(self: _ByCells, box: CellBox, /) -> ChunkManifest:
        """Return the entries of a box; see :meth:`pick`."""
        return self.pick(mesh(box, self.url))

    def pick(self: _ByCells, cells: CellNumbers, /) -> ChunkManifest:
        """Return the entries of some cells, in the shape that their numbers have together.

        Raises
        ------
        ManifestError
            There are more than 2^28, or they have more than 32 axes; or what holds the entries is not as it should be.
        StorageError
            It cannot be had.
        """
        if len(cells) > _MAX_AXES:
            raise ManifestError(
                f"'{self.url}' has an array of {len(cells)} axes; chunks of {_MAX_AXES} are found: leave it out with "
                "drop_variables="
            )
        shape = np.broadcast_shapes(*(numbers.shape for numbers in cells))
        if 0 in shape:
            return hollow(self.tables, shape)
        check_count(math.prod(shape), self.url)
        return self.read_entries(cells, shape)


def hollow(tables: Tables, shape: tuple[int, ...], /) -> ChunkManifest:
    """Return a manifest with these tables and a grid of EMPTY cells, or of none."""
    entries = np.broadcast_to(np.zeros((), ENTRY), shape)
    return ChunkManifest(entries=entries, fills=tables.fills, encodings=tables.encodings)
