"""Find the chunks of a zarr array as objects in a store or folder."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.errors import AccessDeniedError, ReaderError, SourceNotFoundError, StorageError
from virtualstack.location import Location, is_http
from virtualstack.manifests import ENTRY, FIRST, ChunkManifest
from virtualstack.manifests.cells import check_count
from virtualstack.storage import Storage
from virtualstack.storage.target import UnlistableError
from virtualstack.storage.threads import concurrently
from virtualstack.zarr.metadata.array import ArrayMetadata
from virtualstack.zarr.metadata.chunk_keys import cells_of_keys

_MAX_REQUESTS = 64  # requests side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObjects:
    """Objects below one array; columns of equal length."""

    keys: Sequence[str]
    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    locations: Sequence[Location]


class Members(Protocol):
    """A picklable, thread-safe lookup of the objects below one array."""

    @property
    def is_listed(self) -> bool:
        """True if the objects can be listed; otherwise each object is requested."""

    def find(self, metadata: ArrayMetadata, cells: NDArray[np.int64] | None = None, /) -> FoundObjects:
        """Return the objects that exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChunks:
    """The chunks of one array, in one page.

    If the objects cannot be listed and there may be more than a few, this page is empty. Its entries are then completed
    on demand, by one request for each object.
    """

    members: Members
    path: str
    metadata: ArrayMetadata
    storage: Storage
    where: str

    def read(self, page: int, /) -> ChunkManifest:
        """Look up all chunks; chunks without an object are EMPTY."""
        n_cells = math.prod(self.metadata.grid.shape)
        if self._is_asked:
            return self._manifest(np.broadcast_to(np.zeros((), ENTRY), n_cells), ())
        check_count(n_cells, self.where)
        cells, found, locations = self._look_up(None)
        entries = np.zeros(n_cells, ENTRY)
        entries[cells] = found
        return self._manifest(entries, locations)

    def complete(self, entries: ChunkManifest, rows: NDArray[np.int64], /) -> ChunkManifest:
        """Request the objects of some cells, if the page lacks them; errors are the same as for :meth:`read`."""
        if not self._is_asked:
            return entries
        wanted, which = np.unique(rows, return_inverse=True)
        shards = self.metadata.shards
        cells, found, locations = self._look_up(wanted if shards is None else np.unique(shards.holding(wanted)))
        at = np.minimum(np.searchsorted(wanted, cells), wanted.size - 1)
        is_wanted = wanted[at] == cells  # of a shard, other chunks are found, too
        table = np.zeros(wanted.size, ENTRY)
        table[at[is_wanted]] = found[is_wanted]
        return self._manifest(table[which].reshape(rows.shape), locations)

    @property
    def _is_asked(self) -> bool:
        return math.prod(self.metadata.object_grid) > _MAX_REQUESTS and not self.members.is_listed

    def _look_up(self, objects: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], NDArray[Any], Sequence[Location]]:
        """Return the cells of chunks that exist, their entries, and the locations that the entries name."""
        metadata, where = self.metadata, f"{self.path}' of '{self.where}"
        try:
            found = self.members.find(metadata, objects)
            self.storage.check([x.url for x in found.locations])  # a file may be a link, also in a store of a stranger
            cells, at = _chunk_cells(found.keys, metadata, where)
            rows, offsets, lengths = found.rows[at], found.offsets[at], found.lengths[at]
            if metadata.shards is not None and at.size:
                ranges = metadata.shards.index_ranges(cells, lengths, where=where)
                ranges[:, 0] += offsets
                indexes = self._indexes(found.locations, rows, ranges)
                cells, shard, inner, lengths = metadata.shards.places(cells, lengths, indexes, where=where)
                rows, offsets = rows[shard], offsets[shard] + inner
        except ReaderError as error:
            error.url = error.url or self.where
            raise
        entries = np.zeros(cells.size, ENTRY)
        entries["location"], entries["offset"], entries["length"] = rows + FIRST, offsets, lengths
        entries["encoding"] = metadata.encoding_rows().flat[cells]
        return cells, entries, found.locations

    def _manifest(self, entries: NDArray[Any], locations: Sequence[Location]) -> ChunkManifest:
        return ChunkManifest(
            entries=entries,
            fills=(self.metadata.fill,),
            encodings=self.metadata.encodings(),
            locations=tuple(locations),
        )

    def _indexes(
        self,
        locations: Sequence[Location],
        rows: NDArray[np.int64],
        ranges: NDArray[np.int64],
    ) -> list[bytes | memoryview]:
        """Read the indexes of shards."""
        order = np.argsort(rows, kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(rows[order])) + 1)

        def read(group: NDArray[np.int64]) -> list[bytes | memoryview]:
            location = locations[int(rows[group[0]])]
            return self.storage.source(location.url, expected=location).read_ranges(ranges[group])

        indexes: list[bytes | memoryview] = [b""] * rows.size
        urls = [locations[int(rows[group[0]])].url for group in groups]
        for group, parts in zip(groups, concurrently(read, groups, urls), strict=True):
            for i, part in zip(group.tolist(), parts, strict=True):
                indexes[i] = part
        return indexes


def _chunk_cells(
    keys: Sequence[str], metadata: ArrayMetadata, where: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells that keys name, and the rows of these keys; keys outside the grid are ignored, as in zarr."""
    names = pa.array(keys, pa.large_string())
    at = np.flatnonzero(pc.match_substring_regex(names, _expression(metadata)).to_numpy(zero_copy_only=False))
    cells = cells_of_keys(names.take(pa.array(at)), "", metadata, where=where)
    inside = cells >= 0
    return cells[inside], at[inside]


def _expression(metadata: ArrayMetadata) -> str:
    number, ndim = "(0|[1-9][0-9]{0,17})", len(metadata.shape)  # no grid has 10^18 chunks
    prefix, separator = re.escape(metadata.key_prefix), re.escape(metadata.separator)
    if not ndim:
        return f"^{re.escape(metadata.key_prefix.rstrip(metadata.separator) or '0')}$"
    return f"^{prefix}{separator.join([number] * ndim)}$"


_MAX_DOCUMENT_BYTES = 1 << 30
_KEPT = "/!$&'()*+,;=:@~"  # of a key, in the URL of a web server


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of a store: the whole store, or an array in it.

    Parameters
    ----------
    url
        URL of the folder, without a slash at its end.
    storage
        Storage that opens the URL.
    """

    url: str
    storage: Storage

    def document(self, key: str, /) -> bytes | None:
        """Read a whole object; ``None`` if it does not exist."""
        source = self.storage.existing(self._url(key))
        if source is None:
            return None
        if source.size > _MAX_DOCUMENT_BYTES:
            raise StorageError(
                f"'{self._url(key)}' has {source.size} bytes; at most {_MAX_DOCUMENT_BYTES} are read as metadata. "
                "Write the store again, with fewer arrays or attributes",
                url=self._url(key),
            )
        return source.read(0, source.size)

    def folders(self, path: str, /) -> Sequence[str]:
        """Return the folders in a folder."""
        return sorted(name for name, is_folder in self.storage.target(self.url).entries(path) if is_folder)

    def below(self, path: str, /) -> Folder:
        """Return a folder inside this folder."""
        return Folder(url=self._url(path) if path else self.url, storage=self.storage)

    @property
    def is_listed(self) -> bool:
        """True if the objects in the folder can be listed."""
        return self.storage.target(self.url).is_listed

    def find(self, metadata: ArrayMetadata, cells: NDArray[np.int64] | None = None, /) -> FoundObjects:
        """Return the objects in the folder; if they cannot be listed, all possible chunks or shards are requested."""
        try:
            found = self.storage.target(self.url).contents()
        except (UnlistableError, AccessDeniedError):
            found = self._asked(metadata, cells)
        locations = tuple(found.values())
        n = len(locations)
        return FoundObjects(
            keys=list(found),
            rows=np.arange(n),
            offsets=np.zeros(n, np.int64),
            lengths=np.fromiter((location.size or 0 for location in locations), np.int64, n),
            locations=locations,
        )

    def _asked(self, metadata: ArrayMetadata, cells: NDArray[np.int64] | None) -> dict[str, Location]:
        grid, prefix, separator = metadata.object_grid, metadata.key_prefix, metadata.separator
        check_count(math.prod(grid) if cells is None else cells.size, self.url)
        if grid:
            index = np.unravel_index(np.arange(math.prod(grid)) if cells is None else cells, grid)
            keys = [prefix + separator.join(map(str, cell)) for cell in zip(*(x.tolist() for x in index), strict=True)]
        else:
            keys = [prefix.rstrip(separator) or "0"]
        found: dict[str, Location] = {}
        for key, answer in zip(keys, self.storage.look_up([self._url(key) for key in keys]), strict=True):
            if isinstance(answer, Location):
                found[key] = answer if answer.size is not None else self.storage.source(answer.url).location
            elif not isinstance(answer, SourceNotFoundError):
                raise answer
        return found

    def _url(self, key: str) -> str:
        return f"{self.url}/{quote(key, safe=_KEPT) if is_http(self.url) else key}"
