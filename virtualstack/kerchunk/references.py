"""References of one array as columns, and their conversion to a manifest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, ManifestError, Remedy, UnsupportedFeatureError
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, INLINE, ChunkManifest
from virtualstack.manifests.cells import MAX_READ_CELLS
from virtualstack.zarr.metadata.array import ArrayMetadata

FILE_SUFFIXES = ".json", ".json.gz", ".json.zst"
"""Suffixes of references that are one file."""

FOLDER_SUFFIXES = ".parq", ".parquet"
"""Suffixes of references that are a folder."""

_UNKNOWN = np.int64(-1)

WHOLE = -1
"""Length of a reference to a whole file."""


type LocateReference = Callable[[str], Location]
"""A function that returns the location of a URL in references."""

type Measure = Callable[[Sequence[Location]], Sequence[Location]]
"""A function that returns locations with their sizes."""


def is_one_file(url: str, /) -> bool:
    """Return whether references are one file, by their suffix; those with other names may be a folder.

    >>> is_one_file("https://host/refs.json?token=a"), is_one_file("refs.json.d")
    (True, False)
    """
    return url.partition("?")[0].endswith(FILE_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The existing chunks of one array, as columns of equal length.

    Parameters
    ----------
    cells
        Index of each chunk in the grid, in C order, without duplicates.
    rows
        Row of ``urls`` of each chunk; -1 for inline chunks.
    offsets, lengths
        Offset and length in bytes; the length is :data:`WHOLE` for a whole file.
    urls
        URLs as written in the references.
    inline
        Bytes of the inline chunks, in the order of the columns.
    n_outside
        Number of further references, to cells that are not in the grid.
    """

    cells: NDArray[np.int64]
    rows: NDArray[np.integer]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.integer]
    urls: Sequence[str]
    inline: tuple[bytes, ...] = ()
    n_outside: int = 0


def check_grid(metadata: ArrayMetadata, /, *, where: str) -> int:
    """Return the number of cells of the grid."""
    n_cells = math.prod(-(-n // chunk) for n, chunk in zip(metadata.shape, metadata.chunks, strict=True))
    if n_cells > MAX_READ_CELLS:
        raise UnsupportedFeatureError(
            f"'{where}' has a grid of {n_cells} chunks; at most {MAX_READ_CELLS} are read into memory",
            feature="chunk grid",
        )
    return n_cells


def build_manifest(
    parts: Iterable[References], metadata: ArrayMetadata, /, *, locate: LocateReference, measure: Measure, where: str
) -> ChunkManifest:
    """Make a manifest of references; cells without a reference are EMPTY."""
    n_cells = check_grid(metadata, where=where)
    rows = place_rows(parts, n_cells, metadata, locate=locate, where=where)
    sized = with_sizes(rows, measure)
    if sized is not rows:
        _validate(sized, where)
    return sized.reshape(metadata.grid.shape)


def place_rows(
    parts: Iterable[References], n_rows: int, metadata: ArrayMetadata, /, *, locate: LocateReference, where: str
) -> ChunkManifest:
    """Make a manifest of one axis from references; sources are not read."""
    entries = np.zeros(n_rows, ENTRY)
    whole = [np.zeros(0, np.int64)]
    known: dict[str, int] = {}
    urls: Sequence[str] | None = None
    inline, end = list[bytes](), 0
    for part in parts:
        if part.urls is not urls:
            urls, codes = part.urls, np.full(len(part.urls) + 1, _UNKNOWN)
            codes[-1] = INLINE
        is_used = np.zeros(len(codes), np.bool_)
        is_used[part.rows] = True
        for row in np.flatnonzero(is_used & (codes == _UNKNOWN)).tolist():
            codes[row] = known.setdefault(urls[row], len(known) + FIRST)
        found = np.zeros(part.cells.size, ENTRY)
        found["location"], found["offset"], found["length"] = codes[part.rows], part.offsets, part.lengths
        if part.inline:
            lengths = np.array([len(chunk) for chunk in part.inline], np.int64)
            found["offset"][part.rows < 0], found["length"][part.rows < 0] = end + np.cumsum(lengths) - lengths, lengths
            inline += part.inline
            end += int(lengths.sum())
        is_whole = (part.lengths == WHOLE) & (part.rows >= 0)
        found["length"][is_whole] = 0  # until the entries are validated
        whole.append(part.cells[is_whole])
        entries[part.cells] = found
    manifest = ChunkManifest(
        entries=entries,
        fills=(metadata.fill,),
        encodings=(metadata.encoding,),
        locations=tuple(map(locate, known)),
        inline=b"".join(inline),
    )
    _validate(manifest, where)
    entries["length"][np.concatenate(whole)] = WHOLE
    return manifest


def with_sizes(rows: ChunkManifest, measure: Measure, /) -> ChunkManifest:
    """Return a manifest in which entries of whole files have the sizes of their sources."""
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
        raise MalformedFileError(f"'{where}': {error}", Remedy("write the references again")) from error
