"""How Icechunk names places, and the columns in which it gives the chunks of an array."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, MissingDependencyError
from virtualstack.icechunk.manifest_files import Checksum, Checksums
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, INLINE, ChunkManifest
from virtualstack.manifests.cells import check_count
from virtualstack.zarr.metadata.array import ArrayMetadata

__all__ = [
    "NATIVE",
    "PlaceBatch",
    "choose_checksum",
    "import_icechunk",
    "place_batches",
    "read_reason",
    "url_from_icechunk",
    "url_to_icechunk",
]

type PlaceBatch = tuple[NDArray[Any], NDArray[Any], list[str], NDArray[Any], NDArray[Any], dict[int, bytes]]
"""Chunks as ``IcechunkStore.array_chunk_iterator`` gives them: cells, kinds, paths, offsets, lengths, inline bytes."""

NATIVE = "icechunk-chunk://"
"""Root of the URLs of chunks of a repository whose place is not known; nothing can be read there."""

_KIND_NATIVE, _KIND_VIRTUAL, _KIND_INLINE = 1, 2, 3

_KEPT = "/!$&'()*+,;=:@~[]|^-._"
"""Characters that the path of a URL has as they are; prefixes of Icechunk's containers have them so too."""

_WEB = "http://", "https://"


def import_icechunk(what: str, /, *, url: str | None = None) -> Any:
    """Give the module.

    Parameters
    ----------
    what
        That is done with it, for the message.
    url
        Of the repository.

    Raises
    ------
    MissingDependencyError
        Icechunk is not installed.
    """
    try:
        return importlib.import_module("icechunk")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(what, extra="icechunk", url=url) from error


def read_reason(error: Exception, /) -> str:
    """Give what an error of Icechunk says, without the trace of its own code."""
    return str(error).strip().partition("\n")[0]


def url_to_icechunk(url: str, /) -> str:
    """Give the URL of a source as Icechunk has it: percent-encoded, as those at web servers are already.

    >>> url_to_icechunk("file:///data/a b#1.nc")
    'file:///data/a%20b%231.nc'
    """
    if url.startswith(_WEB):
        return url
    root = re.match(r"[^:]+://[^/]*", url)
    start = root.end() if root else 0
    return url[:start] + quote(url[start:], safe=_KEPT)


def url_from_icechunk(url: str, /) -> str:
    """Give the URL of a source as it is here: percent-encoded at web servers alone.

    >>> url_from_icechunk("s3://bucket/a%20b.nc")
    's3://bucket/a b.nc'

    Raises
    ------
    MalformedFileError
        What it encodes is no UTF-8.
    """
    if url.startswith(_WEB):
        return url
    try:
        return unquote(url, errors="strict")
    except UnicodeDecodeError as error:
        raise MalformedFileError(f"'{url}' encodes no UTF-8; write the reference anew") from error


def choose_checksum(location: Location, /) -> str | datetime | None:
    """Give what Icechunk compares before it reads from a source, where that is known.

    Of S3 it is the etag; elsewhere Icechunk quotes etags in other ways than servers do. Times are whole seconds there,
    so those of the source are rounded up. What a repository said of a source is handed on as it is.

    >>> choose_checksum(Location("s3://bucket/a.nc", etag='"9a"', last_modified=7.5))
    '"9a"'
    >>> choose_checksum(Location("file:///a.nc", last_modified=7.5))
    datetime.datetime(1970, 1, 1, 0, 0, 8, tzinfo=datetime.timezone.utc)
    """
    if location.etag and location.url.startswith(("s3://", "s3a://")) and not location.etag.startswith("W/"):
        return location.etag
    time = location.last_modified if location.unmodified_since is None else location.unmodified_since
    if time is None or time <= 0:
        return location.etag if location.url.startswith("file://") else None  # only Icechunk has etags of these
    return datetime.fromtimestamp(math.ceil(time), UTC)


def place_batches(
    batches: Iterable[PlaceBatch],
    metadata: ArrayMetadata,
    /,
    *,
    locate: Callable[[str, Checksum], Location],
    locate_native: Callable[[str], Location],
    checksums: Callable[[], Checksums],
    where: str,
) -> ChunkManifest:
    """Make the manifest of an array, of one axis: its chunks, or shards, in C order.

    Chunks outside of the grid are left out: of an array that became shorter Icechunk keeps them, and nobody reads them.

    Parameters
    ----------
    batches
        All chunks of the array.
    metadata
        Of the array.
    locate, locate_native
        Give the place of a virtual chunk by its URL and checksum, and of a native one by its id.
    checksums
        Gives the checksums of virtual chunks; called once, where there are virtual chunks.
    where
        Repository and array, for messages.

    Raises
    ------
    ManifestError
        The grid has more than 2^28 cells.
    MalformedFileError
        Cells have another number of axes than the array, or an offset is no place in a file.
    """
    grid = metadata.object_grid
    check_count(math.prod(grid), where)
    entries = np.zeros(math.prod(grid), ENTRY)
    locations: dict[Location, int] = {}
    heap: list[bytes] = []
    end = 0
    known: _KnownChecksums | None = None
    for cells, kinds, paths, offsets, lengths, inlined in batches:
        rows, kept = _rows(cells, grid, where)
        if max(int(offsets.max(initial=0)), int(lengths.max(initial=0))) >= 1 << 62:
            raise MalformedFileError(f"'{where}' has a chunk at or of {1 << 62} bytes or more; write it anew")
        found = np.zeros(len(kinds), ENTRY)
        found["offset"], found["length"] = offsets, lengths
        virtual, native = np.flatnonzero(kinds == _KIND_VIRTUAL), np.flatnonzero(kinds == _KIND_NATIVE)
        names = np.array(paths, object)
        if virtual.size:
            known = known or _KnownChecksums.of(checksums(), grid, where)
            numbers = known.numbers(rows[virtual], kept[virtual])
            found["location"][virtual] = _codes(names[virtual], numbers, known.table, locate, locations)
        if native.size:
            none = np.zeros(native.size, np.int64)
            found["location"][native] = _codes(
                names[native], none, [(None, None)], lambda name, _: locate_native(name), locations
            )
        for row, data in inlined.items():
            found[row] = (INLINE, 0, end, len(data))
            heap.append(data)
            end += len(data)
        found[found["location"] < INLINE] = np.zeros((), ENTRY)
        entries[rows[kept]] = found[kept]
    written = entries["location"] >= INLINE
    if metadata.shards is None:
        entries["encoding"][written] = metadata.encoding_rows().reshape(-1)[written]
    return ChunkManifest(
        entries=entries,
        fills=(metadata.fill,),
        encodings=metadata.encodings(),
        locations=tuple(locations),
        inline=b"".join(heap),
    )


def _rows(cells: NDArray[Any], grid: Sequence[int], where: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count cells in C order, and tell which of them are in the grid."""
    if cells.ndim != 2 or cells.shape[1] != len(grid):
        raise MalformedFileError(f"'{where}' has chunks at cells of shape {cells.shape}, and a grid of {tuple(grid)}")
    rows, kept = np.zeros(len(cells), np.int64), np.ones(len(cells), np.bool_)
    for axis, n in enumerate(grid):
        rows = rows * n + cells[:, axis]
        kept &= cells[:, axis] < n
    return rows, kept


@dataclass(frozen=True, slots=True)
class _KnownChecksums:
    """Checksums by the number of the cell in C order: entries of a table, whose first one stands for none."""

    by_cell: NDArray[np.int64]
    table: Sequence[Checksum]

    @classmethod
    def of(cls, checksums: Checksums, grid: Sequence[int], where: str, /) -> _KnownChecksums:
        if not checksums.table:
            return cls(np.zeros(0, np.int64), [(None, None)])
        rows, kept = _rows(checksums.cells, grid, where)
        by_cell = np.zeros(math.prod(grid), np.int64)
        by_cell[rows[kept]] = checksums.codes[kept] + 1
        return cls(by_cell, [(None, None), *checksums.table])

    def numbers(self, rows: NDArray[np.int64], kept: NDArray[np.bool_], /) -> NDArray[np.int64]:
        """Return the entry of each cell; of those outside of the grid that of none."""
        found = np.zeros(len(rows), np.int64)
        if self.by_cell.size:
            found[kept] = self.by_cell[rows[kept]]
        return found


def _codes(
    names: NDArray[np.object_],
    checksums: NDArray[np.int64],
    table: Sequence[Checksum],
    place: Callable[[str, Checksum], Location],
    locations: dict[Location, int],
) -> NDArray[np.int64]:
    """Give location codes of some rows, by their names and checksums; new locations are added to the table."""
    codes, unique = pd.factorize(names)
    numbers, pairs = pd.factorize(codes * len(table) + checksums)
    found = [place(unique[pair // len(table)], table[pair % len(table)]) for pair in np.asarray(pairs).tolist()]
    return np.array([locations.setdefault(x, len(locations) + FIRST) for x in found], np.int64)[numbers]
