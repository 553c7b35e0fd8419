"""References of one array as columns, and the manifest that they make."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, ManifestError, UnsupportedFeatureError
from virtualstack.formats.metadata import ArrayMetadata
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, INLINE, ChunkManifest

__all__ = [
    "WHOLE",
    "Locate",
    "Measure",
    "References",
    "build_manifest",
    "check_grid",
    "join_references",
    "place_rows",
    "with_sizes",
]

WHOLE = -1
"""Length of a reference to a whole file."""

MAX_CELLS = 1 << 28
"""Chunks that a grid may have: metadata of a few bytes can ask for any number of them."""

type Locate = Callable[[str], Location]
"""Makes a location of a URL as it stands in references."""

type Measure = Callable[[Sequence[Location]], Sequence[Location]]
"""Gives locations their sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """Chunks that are there, of one array; columns of equal length.

    Parameters
    ----------
    cells
        Index in the grid, counted in C order.
    rows
        Row of ``urls``; -1 for inline chunks.
    offsets, lengths
        Bytes; the length is :data:`WHOLE` for a whole file.
    urls
        As they stand in the references.
    inline
        Bytes of the inline chunks, in the order of the columns.
    """

    cells: NDArray[np.int64]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    urls: tuple[str, ...]
    inline: tuple[bytes, ...] = ()


def join_references(parts: Sequence[References], /) -> References:
    """Join references of one array that name different cells."""
    parts = [part for part in parts if part.cells.size] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    row_of: dict[str, int] = {}
    rows = []
    for part in parts:
        joined = np.array([row_of.setdefault(url, len(row_of)) for url in part.urls] + [-1], np.int64)
        rows.append(joined[part.rows])  # -1 is the last
    return References(
        cells=np.concatenate([part.cells for part in parts]),
        rows=np.concatenate(rows),
        offsets=np.concatenate([part.offsets for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        urls=tuple(row_of),
        inline=tuple(chunk for part in parts for chunk in part.inline),
    )


def check_grid(metadata: ArrayMetadata, /, *, where: str) -> int:
    """Give the number of cells of the grid.

    Raises
    ------
    UnsupportedFeatureError
        It has more cells than a manifest in memory may have.
    """
    n_cells = math.prod(-(-n // chunk) for n, chunk in zip(metadata.shape, metadata.chunks, strict=True))
    if n_cells > MAX_CELLS:
        raise UnsupportedFeatureError(
            f"'{where}' has a grid of {n_cells} chunks; at most {MAX_CELLS} are held in memory", feature="chunk grid"
        )
    return n_cells


def build_manifest(
    references: References, metadata: ArrayMetadata, /, *, locate: Locate, measure: Measure, where: str
) -> ChunkManifest:
    """Put references on the grid; what they do not name is EMPTY.

    Raises
    ------
    MalformedFileError
        An offset or length is no place in a file.
    UnsupportedFeatureError
        The grid has more cells than a manifest in memory may have.
    """
    n_cells = check_grid(metadata, where=where)
    rows = place_rows(references, n_cells, metadata, locate=locate, where=where)
    sized = with_sizes(rows, measure)
    if sized is not rows:
        _validate(sized, where)
    return sized.reshape(metadata.grid.shape)


def place_rows(
    references: References, n_rows: int, metadata: ArrayMetadata, /, *, locate: Locate, where: str
) -> ChunkManifest:
    """Put references into a manifest of one axis; sources are not touched.

    Returns
    -------
    ChunkManifest
        Entries of whole files have the length :data:`WHOLE`, until :func:`with_sizes`.

    Raises
    ------
    MalformedFileError
        An offset or length is no place in a file.
    """
    inline = references.rows < 0
    whole = (references.lengths == WHOLE) & ~inline
    offsets, lengths = references.offsets.copy(), np.where(whole, 0, references.lengths)
    if inline.any():
        lengths[inline] = [len(chunk) for chunk in references.inline]
        offsets[inline] = np.cumsum(lengths[inline]) - lengths[inline]
    entries = np.zeros(n_rows, ENTRY)
    entries["location"][references.cells] = np.where(inline, INLINE, references.rows + FIRST)
    entries["offset"][references.cells] = offsets
    entries["length"][references.cells] = lengths
    manifest = ChunkManifest(
        entries=entries,
        fills=(metadata.fill,),
        encodings=(metadata.encoding,),
        locations=tuple(map(locate, references.urls)),
        inline=b"".join(references.inline),
    )
    _validate(manifest, where)
    entries["length"][references.cells[whole]] = WHOLE
    return manifest


def with_sizes(rows: ChunkManifest, measure: Measure, /) -> ChunkManifest:
    """Give entries of whole files the sizes of their sources."""
    whole = rows.entries["length"] == WHOLE
    if not whole.any():
        return rows
    used, which = np.unique(rows.entries["location"][whole] - FIRST, return_inverse=True)
    measured = measure([rows.locations[row] for row in used.tolist()])
    locations = list(rows.locations)
    for row, location in zip(used.tolist(), measured, strict=True):
        locations[row] = location
    entries = rows.entries.copy()
    entries["length"][whole] = np.array([location.size or 0 for location in measured], np.int64)[which]
    return replace(rows, entries=entries, locations=tuple(locations))


def _validate(manifest: ChunkManifest, where: str) -> None:
    try:
        manifest.validate_entries()
    except ManifestError as error:
        raise MalformedFileError(f"'{where}': {error}; write the references anew") from error
