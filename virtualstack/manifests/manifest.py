"""What everything that knows where chunks lie can do: the protocol that in-memory and paged manifests fill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError

if TYPE_CHECKING:
    from virtualstack.location import Location
    from virtualstack.manifests.chunk_manifest import ChunkManifest
    from virtualstack.manifests.encoding import ChunkEncoding, Fill

__all__ = ["Box", "Cells", "Manifest", "ManifestSummary", "Tables", "check_count", "mesh"]

type Box = tuple[slice, ...]
"""A box of the chunk grid: one slice with start and stop and no step for each axis, in cells."""

type Cells = tuple[NDArray[np.integer[Any]], ...]
"""Some cells of the grid: their numbers along each axis, which are broadcast together, as numpy has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSummary:
    """Counts over a manifest.

    Parameters
    ----------
    n_chunks
        Cells of the grid.
    n_references, n_inline, n_empty, n_absent
        How many of them lie in a source, in the manifest itself, were never written, or should be there and are not.
    nbytes
        Stored bytes that the references and inline chunks point to; a chunk counts once a cell that shows it.
    """

    n_chunks: int
    n_references: int
    n_inline: int
    n_empty: int
    n_absent: int
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

    def pick(self, cells: Cells, /) -> ChunkManifest:
        """Give the entries of some cells, in memory, in the shape that their numbers have together."""

    @property
    def tables(self) -> Tables:
        """All fills and encodings that chunks may have, and the sources that are known; no page is read."""

    def summary(self) -> ManifestSummary | None:
        """Count what the manifest holds; ``None`` where pages would have to be read for it."""


MAX_WORK = 1 << 34
"""Cells that are gone through, a part at a time, which takes minutes."""

MAX_CELLS = 1 << 28
"""Cells that are read at once: 6.4 GB of entries. Metadata of a few bytes can promise any number of them."""


def mesh(box: Box, url: str | None, /) -> Cells:
    """Give the cells of a box by their numbers.

    Raises
    ------
    ManifestError
        See :func:`check_count`.
    """
    check_count(math.prod(max(side.stop - side.start, 0) for side in box), url)
    runs = [np.arange(side.start, max(side.stop, side.start), dtype=np.int64) for side in box]
    return tuple(run.reshape((-1,) + (1,) * (len(box) - i - 1)) for i, run in enumerate(runs))


def check_work(n_cells: int, /) -> None:
    """Refuse to go through more than :data:`MAX_WORK` cells, a part at a time.

    Raises
    ------
    ManifestError
        There are more.
    """
    if n_cells > MAX_WORK:
        raise ManifestError(
            f"{n_cells} chunks are more than anyone goes through, {MAX_WORK} at most: the grid is a mistake or a trap"
        )


def check_count(n_cells: int, url: str | None, /) -> None:
    """Refuse to read more than :data:`MAX_CELLS` cells at once; ``url`` is that of the manifest.

    Raises
    ------
    ManifestError
        There are more.
    """
    if n_cells > MAX_CELLS:
        raise ManifestError(
            f"{n_cells} chunks of '{url}' are asked for at once, and at most {MAX_CELLS} are read into memory: select "
            "a part of the variable first"
        )
