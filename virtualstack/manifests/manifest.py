"""What everything that knows where chunks lie can do: the protocol that in-memory and paged manifests fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from virtualstack.location import Location
    from virtualstack.manifests.chunk_manifest import ChunkManifest
    from virtualstack.manifests.encoding import ChunkEncoding, Fill

__all__ = ["Box", "Manifest", "ManifestSummary", "Tables"]

type Box = tuple[slice, ...]
"""A box of the chunk grid: one slice with start and stop and no step for each axis, in cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSummary:
    """Counts over a manifest.

    Parameters
    ----------
    n_chunks
        Cells of the grid.
    n_references, n_inline, n_empty, n_missing
        How many of them lie in a source, in the manifest itself, were never written, or should be there and are not.
    nbytes
        Stored bytes that the references and inline chunks point to; a chunk counts once a cell that shows it.
    """

    n_chunks: int
    n_references: int
    n_inline: int
    n_empty: int
    n_missing: int
    nbytes: int


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

    def read(self, box: Box, /) -> ChunkManifest:
        """Give the entries of a box of the grid, in memory; of a paged manifest, the pages that hold them are read."""

    @property
    def tables(self) -> Tables:
        """All fills and encodings that chunks may have, and the sources that are known; no page is read."""

    def summary(self) -> ManifestSummary | None:
        """Count what the manifest holds; ``None`` where pages would have to be read for it."""
