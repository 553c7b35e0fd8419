"""The protocol of all manifests, and a base class of manifests that are not in memory."""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from virtualstack.errors import ManifestError, Remedy
from virtualstack.manifests.cells import CellBox, CellNumbers, ManifestSummary, check_count, mesh
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest, Usage, count_entries

_MAX_AXES = 32  # the most arrays that numpy broadcasts


@runtime_checkable
class Manifest(Protocol):
    """A manifest: where the chunks of an array are stored."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the chunk grid, in cells."""

    @property
    def url(self) -> str | None:
        """URL to name in messages: that of the first source, or of the references if they were not read yet.

        The references are the object that lists the entries, such as a folder of kerchunk parquet. ``None`` if the
        manifest has no sources.
        """

    def read(self, box: CellBox, /) -> ChunkManifest:
        """Return the entries of a box of the grid, in memory; a paged manifest reads the pages that hold them."""

    def pick(self, cells: CellNumbers, /) -> ChunkManifest:
        """Return the entries of some cells, in memory."""

    @property
    def tables(self) -> ChunkManifest:
        """A manifest for its tables: all fills and encodings that chunks may have; no page is read."""

    def summary(self) -> ManifestSummary | None:
        """Count the cells in each state; return ``None`` if this would require reading pages."""

    @property
    def usage(self) -> Usage:
        """What the entries use; all are read once, one block at a time, and not kept in memory."""


class Overlay(NamedTuple):
    """Chunks that replace chunks of an array, on the grid of the array."""

    manifest: Manifest
    begin: tuple[int, ...]


class _ByCells(Manifest, Protocol):
    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the entries of at least one cell, as a manifest of the given shape; see :class:`UnreadManifest`."""


class UnreadManifest:
    """Base class of manifests that are not in memory: a box is read as its cells, and a copy is the manifest itself.

    A selection without cells reads nothing.
    Subclasses have ``read_entries(cells, shape)``, which returns the entries of at least one and at most 2^28 cells.
    ``cells`` has one array of indexes for each axis of the grid. ``shape`` is the shape to which these arrays
    broadcast, and so the shape of the result.
    """

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @cached_property
    def usage(self: Manifest) -> Usage:
        """What the entries use."""
        return count_entries(self.shape, self.read, self.tables.fill)

    def read(self: _ByCells, box: CellBox, /) -> ChunkManifest:
        """Return the entries of a box; see :meth:`pick`."""
        return self.pick(mesh(box, self.url))

    def pick(self: _ByCells, cells: CellNumbers, /) -> ChunkManifest:
        """Return the entries of some cells, in the shape of the broadcast of their indexes."""
        if len(cells) > _MAX_AXES:
            raise ManifestError(
                f"'{self.url}' has an array of {len(cells)} axes; chunks of {_MAX_AXES} are found",
                Remedy("leave it out with", drop_variables=...),
            )
        shape = np.broadcast_shapes(*(numbers.shape for numbers in cells))
        if 0 in shape:
            return hollow(self.tables, shape)
        check_count(math.prod(shape), self.url)
        return self.read_entries(cells, shape)


def hollow(tables: ChunkManifest, shape: tuple[int, ...], /) -> ChunkManifest:
    """Return a manifest with these tables and a grid of EMPTY cells, or without cells."""
    entries = np.broadcast_to(np.zeros((), ENTRY), shape)
    return ChunkManifest(entries=entries, fills=tables.fills, encodings=tables.encodings)
