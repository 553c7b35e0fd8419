"""References of one array as columns, and the manifest that they make."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, ManifestError, UnsupportedFeatureError
from virtualstack.formats.metadata import ArrayMetadata
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, INLINE, ChunkManifest

__all__ = ["WHOLE", "Locate", "References", "build_manifest", "check_grid"]

WHOLE = -1
"""Length of a reference to a whole file."""

MAX_CELLS = 1 << 28
"""Chunks that a grid may have: metadata of a few bytes can ask for any number of them."""

type Locate = Callable[[str, bool], Location]
"""Makes a location of a URL as it stands in references; the flag asks for its size."""


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


def build_manifest(references: References, metadata: ArrayMetadata, /, *, locate: Locate, where: str) -> ChunkManifest:
    """Put references on the grid; what they do not name is EMPTY.

    Raises
    ------
    MalformedFileError
        An offset or length is no place in a file.
    """
    check_grid(metadata, where=where)
    grid_shape = metadata.grid.shape
    whole = (references.lengths == WHOLE) & (references.rows >= 0)
    needs_size = np.zeros(len(references.urls), np.bool_)
    needs_size[references.rows[whole]] = True
    locations = tuple(map(locate, references.urls, needs_size.tolist()))
    lengths = references.lengths.copy()
    if whole.any():
        sizes = np.array([location.size or 0 for location in locations], np.int64)
        lengths[whole] = sizes[references.rows[whole]]
    offsets = references.offsets.copy()
    inline = references.rows < 0
    if inline.any():
        lengths[inline] = [len(chunk) for chunk in references.inline]
        offsets[inline] = np.cumsum(lengths[inline]) - lengths[inline]
    entries = np.zeros(math.prod(grid_shape), ENTRY)
    entries["location"][references.cells] = np.where(inline, INLINE, references.rows + FIRST)
    entries["offset"][references.cells] = offsets
    entries["length"][references.cells] = lengths
    manifest = ChunkManifest(
        entries=entries.reshape(grid_shape),
        fills=(metadata.fill,),
        encodings=(metadata.encoding,),
        locations=locations,
        inline=b"".join(references.inline),
    )
    try:
        manifest.validate()
    except ManifestError as error:
        raise MalformedFileError(f"'{where}': {error}; write the references anew") from error
    return manifest
