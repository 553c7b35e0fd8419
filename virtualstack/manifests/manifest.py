"""What everything that knows where chunks lie can do: the protocol that in-memory and paged manifests fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from virtualstack.location import Location
from virtualstack.manifests.cells import CellBox, CellNumbers, ManifestSummary
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill

__all__ = ["Manifest", "Overlay", "Tables"]


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
