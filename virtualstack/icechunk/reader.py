"""Reading of Icechunk repositories and sessions as groups."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from virtualstack.errors import (
    Remedy,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
)
from virtualstack.formats.base import ReadOptions
from virtualstack.icechunk.format import (
    KIND_NATIVE,
    NATIVE,
    Checksums,
    PlaceBatch,
    import_icechunk,
    join_checksums,
    node_id,
    place_batches,
    read_checksums,
    read_reason,
)
from virtualstack.icechunk.places import repository_storage
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import ENTRY, FIRST, INLINE, ChunkManifest, Manifest, ManifestGroup
from virtualstack.manifests.cells import check_count
from virtualstack.manifests.grid import chunk_key
from virtualstack.printable import first_names
from virtualstack.storage import Storage
from virtualstack.storage.sessions import SessionStore
from virtualstack.storage.threads import concurrently
from virtualstack.zarr.metadata.array import ArrayMetadata, paged_manifest
from virtualstack.zarr.metadata.attributes import parse_json
from virtualstack.zarr.metadata.hierarchy import build_group
from virtualstack.zarr.metadata.shards import Shards

_READING = "reading Icechunk"
_BATCH_CHUNKS = 1 << 17  # chunks that Icechunk returns at a time
_MAX_REQUESTS = 32
_MAX_NATIVE_BYTES = 64 << 20
"""Largest size in bytes of the repository chunks of one variable that are read from a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Icechunk:
    """Reader of an Icechunk repository: of a branch, a tag or a snapshot.

    Virtual chunks refer to their sources, and chunks of the repository to its own files. Chunks that Icechunk keeps in
    its manifests become INLINE: their bytes are in the manifest itself (docs/explanation/chunk-states.md). The chunks
    of a variable are looked up when they are first needed; the manifest files of the repository are read then.

    As in Icechunk, a source that changed after its references were made is not read: if its etag differs, or it was
    modified later, reading raises `SourceChangedError`.

    When to use: to open another branch than ``"main"``, a tag or a snapshot. Otherwise the URL is enough.

    Parameters
    ----------
    branch, tag, snapshot
        Name of a branch or tag, or id of a snapshot. At most one may be given; the default is the branch ``"main"``.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"t": ("x", [1.0, 2.0])}).virtual.to_kerchunk("a.json")
    >>> group = vs.convert("a.json", "a.icechunk")
    >>> dict(vs.open_virtual_dataset("a.icechunk", reader=vs.readers.Icechunk(branch="main")).sizes)
    {'x': 2}
    """

    name: ClassVar[str] = "icechunk"

    branch: str | None = None
    tag: str | None = None
    snapshot: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("branch", "tag", "snapshot") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} each select a snapshot of the repository: pass only one of them")

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return a snapshot of a repository as a group of virtual arrays; chunks are looked up when they are needed.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MissingDependencyError
            Icechunk is not installed.
        SourceNotFoundError
            The repository, branch, tag or snapshot does not exist.
        MalformedFileError
            The metadata contradict themselves.
        StorageError
            The repository cannot be reached.
        """
        url = url.rstrip("/")
        icechunk = import_icechunk(_READING, url=url)
        held = storage.given_for(url)
        if isinstance(held, SessionStore):
            if self._version() != Icechunk()._version():
                raise ValueError("a session has one snapshot: pass repo.readonly_session(...) without branch or tag")
            return _group(held.store, "", url, url, options, storage, held=held)
        repository, session = self._session(icechunk, url, storage)
        try:
            # the synchronous function holds the GIL while it waits for a server
            manifests = _manifests(sync(repository.inspect_snapshot_async(session.snapshot_id)), url)
            return _group(session.store, "", url, url, options, storage, manifests)
        except icechunk.IcechunkError as error:
            raise StorageError(f"'{url}' cannot be read by Icechunk: {read_reason(error)}", url=url) from error

    def snapshot_id(self, url: str, storage: Storage, /) -> str:
        """Return the id of the snapshot that the branch, tag or snapshot of this reader means now.

        Raises
        ------
        SourceNotFoundError, StorageError
            As for :meth:`read`.
        """
        url = url.rstrip("/")
        return str(self._session(import_icechunk(_READING, url=url), url, storage)[1].snapshot_id)

    def _session(self, icechunk: Any, url: str, storage: Storage) -> tuple[Any, Any]:
        """Open the repository, and a session that reads the chosen snapshot."""
        place = repository_storage(icechunk, url, storage)
        try:
            if not icechunk.Repository.exists(place):
                raise SourceNotFoundError(f"'{url}' is not an Icechunk repository; check the URL", url=url)
            repository = icechunk.Repository.open(place)
        except icechunk.IcechunkError as error:
            raise StorageError(
                f"'{url}' cannot be opened by Icechunk: {read_reason(error)}",
                Remedy("check the URL and", storage=...),
                url=url,
            ) from error
        try:
            return repository, repository.readonly_session(**self._version())
        except (icechunk.IcechunkError, ValueError) as error:
            which = ", ".join(f"{key} '{value}'" for key, value in self._version().items())
            branches, tags = sorted(repository.list_branches()), sorted(repository.list_tags())
            raise SourceNotFoundError(
                f"'{url}' has no {which}: {read_reason(error)}; it has the branches {first_names(branches)} and the "
                f"tags {first_names(tags)}",
                url=url,
            ) from error

    def _version(self) -> dict[str, str]:
        if self.snapshot is not None:
            return {"snapshot_id": self.snapshot}
        return {"tag": self.tag} if self.tag is not None else {"branch": self.branch or "main"}


@dataclass(frozen=True, slots=True, eq=False)
class SessionSources:
    """The sources of virtual chunks of a session, which are read only if Icechunk reads them too.

    A foreign repository that a user adds to therefore cannot choose which files of this machine are read: Icechunk
    reads only from containers that its user has authorised.
    """

    chunks: dict[str, tuple[Any, str]] = field(default_factory=dict)

    def note(self, manifest: ChunkManifest, store: Any, path: str, metadata: ArrayMetadata, /) -> None:
        """Remember a chunk of each source of an array."""
        codes, rows = np.unique(manifest.entries["location"], return_index=True)
        cells = _cells(rows[codes >= FIRST], metadata)
        for code, cell in zip(codes[codes >= FIRST].tolist(), cells, strict=True):
            self.chunks[absolute_url(manifest.locations[code - FIRST].url)] = store, chunk_key(path, cell)

    def check(self, urls: Sequence[str], /) -> None:
        """Let Icechunk read a byte of each source of the session; an error of Icechunk is raised."""
        for url in urls:
            if (chunk := self.chunks.get(url)) is not None:
                store, key = chunk
                sync(store.get(key, cpu.buffer_prototype, RangeByteRequest(0, 1)))
                self.chunks.pop(url, None)


def read_session(store: Any, path: str, /, *, sources: SessionSources | None = None) -> ManifestGroup:
    """Read the metadata of a group from a session, with changes that are not committed yet.

    Chunks of the repository are read if they are small in total. Otherwise they get locations that cannot be read,
    since a session does not name its files. Icechunk reads the chunks of labels, wherever they are.
    """
    where = f"icechunk session, group /{path}"
    group = _group(store, path, where, None, ReadOptions(), Storage(), sources=sources)
    return replace(group, url=where)


# -- metadata -------------------------------------------------------------------------------------------------


type _Files = tuple[bytes, tuple[str, ...]]
"""The id of an array, and the ids of the manifest files that have chunks of the array."""


def _manifests(snapshot: Any, url: str) -> dict[str, _Files]:
    """Return the manifest files of each array, by its path."""
    try:
        return {
            node["path"].strip("/"): (node_id(node["id"]), tuple(x["id"] for x in node["manifest_refs"]))
            for node in snapshot["nodes"]
            if node["node_type"] == "array"
        }
    except (KeyError, TypeError) as error:
        raise UnsupportedFeatureError(
            f"'{url}': this version of icechunk does not list the manifest files of a snapshot as version 2.3 does "
            f"({error!r})",
            Remedy("install icechunk 2.3"),
            url=url,
            feature="manifest files",
        ) from error


def _group(
    store: Any,
    path: str,
    where: str,
    url: str | None,
    options: ReadOptions,
    storage: Storage,
    manifests: Mapping[str, _Files] = MappingProxyType({}),
    sources: SessionSources | None = None,
    held: SessionStore | None = None,
) -> ManifestGroup:
    documents: dict[str, bytes] = {}
    sync(_documents(store, path, "", documents))
    if "zarr.json" not in documents:
        if url is None or documents:
            raise SourceNotFoundError(
                f"there is no group '/{path}' in the {where}", Remedy("check the path of the group"), url=url
            )
        documents["zarr.json"] = b'{"node_type": "group"}'  # the repository is new and still empty
    metadata = {key: parse_json(data, where=f"{key}' of '{where}") for key, data in documents.items()}

    def read(below: str, described: ArrayMetadata) -> tuple[Manifest, int]:
        at = "/".join(filter(None, (path, below)))
        pages = ChunkPages(
            store=store,
            path=at,
            metadata=described,
            where=where,
            url=url,
            storage=storage,
            manifests=manifests.get(at),
            sources=sources,
            held=held,
        )
        return paged_manifest(pages, described, path=at, where=where), 0

    # additions to a session are stored as its arrays are, and chunks cannot be added to shards
    is_sharded = url is not None
    return build_group(metadata, read, where=where, url=url, wanted=options.wants, rectilinear=True, sharded=is_sharded)


async def _documents(store: Any, path: str, below: str, found: dict[str, bytes]) -> None:
    """Read the metadata of a node and of all nodes below it."""
    key = "/".join(filter(None, (path, below, "zarr.json")))
    data = await store.get(key, prototype=cpu.buffer_prototype)
    if data is None:
        return
    raw = bytes(data.to_bytes())
    found[f"{below}/zarr.json".lstrip("/")] = raw
    if b'"array"' in raw and _is_array(raw, key):
        return
    listed: AsyncIterator[str] = store.list_dir("/".join(filter(None, (path, below))))
    names = [name async for name in listed if name != "zarr.json"]
    await asyncio.gather(*(_documents(store, path, f"{below}/{name}".lstrip("/"), found) for name in names))


def _is_array(raw: bytes, key: str) -> bool:
    document = parse_json(raw, where=key)
    return isinstance(document, dict) and document.get("node_type") == "array"


# -- chunks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPages:
    """The chunks of one array as one page, since Icechunk returns all of them at once."""

    store: Any
    path: str
    metadata: ArrayMetadata
    where: str
    url: str | None
    storage: Storage
    manifests: _Files | None
    sources: SessionSources | None
    held: SessionStore | None

    def read(self, page: int, /) -> ChunkManifest:
        """Look up all chunks."""
        icechunk = import_icechunk(_READING, url=self.url)
        where = f"{self.path}' of '{self.where}"
        try:
            batches = self.store.array_chunk_iterator(f"/{self.path}", _BATCH_CHUNKS)
            manifest = place_batches(
                batches if self.held is None else self._by_key(batches),
                self.metadata,
                checksums=self._checksums,
                root=NATIVE if self.url is None else f"{self.url}/chunks/" if self.held is None else f"{self.url}/",
                where=where,
            )
            # a chunk of the repository itself may be a link, also in a repository of a stranger
            self.storage.check([x.url for x in manifest.locations if not x.url.startswith(NATIVE)])
            if self.held is not None:
                manifest = self._as_icechunk_reads(manifest, self.held)
            if self.sources is not None:
                self.sources.note(manifest, self.store, self.path, self.metadata)
            if self.url is None:
                return self._with_inlined_chunks(manifest)
            return manifest if self.metadata.shards is None else self._in_shards(manifest, self.metadata.shards, where)
        except icechunk.IcechunkError as error:
            raise StorageError(
                f"the references of '{where}' cannot be read by Icechunk: {read_reason(error)}. Try again, or "
                "restore the repository or its sources",
                url=self.url,
            ) from error

    def _checksums(self) -> Checksums:
        """Read the checksums of virtual chunks."""
        n_axes = len(self.metadata.object_grid)
        if self.manifests is None:
            return join_checksums([], n_axes)
        node, names = self.manifests
        files = [f"{self.url}/manifests/{name}" for name in names]

        def read(url: str) -> Checksums:
            source = self.storage.source(url)
            return read_checksums(source.read(0, source.size), node, n_axes, where=url)

        return join_checksums(concurrently(read, files, files), n_axes)

    def complete(self, entries: ChunkManifest, rows: Any, /) -> ChunkManifest:
        """Return the entries unchanged: a page is always complete."""
        return entries

    def _by_key(self, batches: Iterable[PlaceBatch]) -> Iterator[PlaceBatch]:
        """Yield batches with the keys of repository chunks, by which a session reads them, instead of their ids."""
        for cells, kinds, paths, offsets, lengths, inlined in batches:
            is_own = kinds == KIND_NATIVE
            for i in np.flatnonzero(is_own).tolist():
                paths[i] = chunk_key(self.path, cells[i].tolist())
            yield cells, kinds, paths, np.where(is_own, 0, offsets), lengths, inlined

    def _as_icechunk_reads(self, manifest: ChunkManifest, held: SessionStore) -> ChunkManifest:
        """Return the manifest with the present versions of its sources, of which Icechunk has read each chunk.

        Icechunk compares each virtual chunk with its checksum, which a session does not list.
        """
        codes = [FIRST + i for i, x in enumerate(manifest.locations) if not x.url.startswith(f"{self.url}/")]
        found = self.storage.look_up([manifest.locations[code - FIRST].url for code in codes])
        rows = np.flatnonzero(np.isin(manifest.entries["location"], codes))
        held.read((chunk_key(self.path, cell), (0, 1)) for cell in _cells(rows, self.metadata))
        locations = list(manifest.locations)
        for code, location in zip(codes, found, strict=True):
            if isinstance(location, Location):
                locations[code - FIRST] = location
        return replace(manifest, locations=tuple(locations))

    def _in_shards(self, held: ChunkManifest, shards: Shards, where: str) -> ChunkManifest:
        """Return the manifest of the chunks inside shards; Icechunk reads the indexes of the shards."""
        metadata, n_cells = self.metadata, math.prod(self.metadata.grid.shape)
        check_count(n_cells, self.where)
        rows = np.flatnonzero(held.entries["location"] >= INLINE)
        found = held.entries[rows]
        ranges = shards.index_ranges(rows, found["length"], where=where)
        indexes = sync(_chunks(self.store, self.path, _cells(rows, metadata), ranges.tolist()))
        cells, at, offsets, lengths = shards.places(rows, found["length"], indexes, where=where)
        entries = np.zeros(n_cells, ENTRY)
        entries["location"][cells] = found["location"][at]
        entries["offset"][cells] = found["offset"][at] + offsets
        entries["length"][cells] = lengths
        entries["encoding"][cells] = metadata.encoding_rows().flat[cells]
        return replace(held, entries=entries)

    def _with_inlined_chunks(self, manifest: ChunkManifest) -> ChunkManifest:
        """Return the manifest with all chunks of labels, and small repository chunks, as INLINE chunks.

        Icechunk reads labels from files that its user has authorised. A foreign repository that a user adds to
        therefore cannot choose which other files of this machine are read.
        """
        location = manifest.entries["location"]
        if self.metadata.dimension_names == (self.path.rpartition("/")[2],):
            rows = np.flatnonzero(location >= FIRST)
        else:
            native = [FIRST + i for i, x in enumerate(manifest.locations) if x.url.startswith(NATIVE)]
            rows = np.flatnonzero(np.isin(location, native))
            if int(manifest.entries["length"][rows].sum()) > _MAX_NATIVE_BYTES:
                return manifest
        if not rows.size:
            return manifest
        entries = manifest.entries.copy()
        chunks = sync(_chunks(self.store, self.path, _cells(rows, self.metadata)))
        lengths = np.array([len(chunk) for chunk in chunks], np.int64)
        entries["location"][rows] = INLINE
        entries["offset"][rows] = len(manifest.inline) + np.cumsum(lengths) - lengths
        entries["length"][rows] = lengths
        return replace(manifest, entries=entries, inline=b"".join([manifest.inline, *chunks]))


def _cells(rows: NDArray[np.intp], metadata: ArrayMetadata) -> list[list[int]]:
    """Return the index of each chunk or shard from its number in C order."""
    grid = metadata.object_grid
    found: list[list[int]] = np.stack(np.unravel_index(rows, grid or (1,)), 1)[:, : len(grid)].tolist()
    return found


async def _chunks(
    store: Any, path: str, cells: Sequence[Sequence[int]], ranges: Iterable[tuple[int, int] | None] = repeat(None)
) -> list[bytes]:
    """Read chunks: each as a whole, or as a range of an offset and a length."""
    limit = asyncio.Semaphore(_MAX_REQUESTS)

    async def get(cell: Sequence[int], span: tuple[int, int] | None) -> bytes:
        part = None if span is None else RangeByteRequest(span[0], span[0] + span[1])
        async with limit:
            data = await store.get(chunk_key(path, cell), cpu.buffer_prototype, part)
        return b"" if data is None else bytes(data.to_bytes())

    return list(await asyncio.gather(*map(get, cells, ranges)))
