"""What everything that knows where chunks lie can do: the protocol that in-memory and paged manifests fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from virtualstack.manifests.chunk_manifest import ChunkManifest

__all__ = ["Box", "Manifest", "ManifestSummary"]

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


@runtime_checkable
class Manifest(Protocol):
    """Where the chunks of an array lie."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the chunk grid, in cells."""

    def read(self, box: Box, /) -> ChunkManifest:
        """Give the entries of a box of the grid, in memory."""

    def summary(self) -> ManifestSummary:
        """Count what the manifest holds; a paged manifest answers without reading its pages."""
