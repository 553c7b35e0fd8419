"""Present a group as a zarr store: raw values for every program that reads zarr v3."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NoReturn
from weakref import WeakValueDictionary

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from virtualstack.cache import ByteCache
from virtualstack.errors import StorageError
from virtualstack.location import Access, Location
from virtualstack.manifests import ABSENT, FIRST, INLINE, ManifestArray, ManifestGroup, ManifestNode, PlainArray
from virtualstack.reading import OnAbsent, check_absent
from virtualstack.storage import Bytes, Source, Storage, StorageLike, WatchfulSource
from virtualstack.system import in_forked_children
from virtualstack.zarr.documents import (
    ServedArray,
    attributes_document,
    encode_chunk,
    group_document,
    serve,
    why_refused,
)
from virtualstack.zarr.metadata.chunk_keys import parse_cell
from virtualstack.zarr.uniform import UniformArray

__all__ = ["ManifestStore"]

_CACHE_BYTES = 128 << 20
"""Bytes of decoded chunks that a store keeps."""


_STORES: WeakValueDictionary[int, ManifestStore] = WeakValueDictionary()


class ManifestStore(Store):
    """A read-only zarr v3 store of the raw values of a group.

    Chunks of plain arrays are served in stored form, with their codecs in the metadata. All other arrays (several
    codecs, cut chunks, other lengths) are served decoded, as one array of equal chunks; decoded chunks are kept in a
    cache. EMPTY chunks, which were never written, have no key, as in zarr. In references that were opened lazily, every
    chunk has a key. The store works in any thread and event loop, and can be pickled.

    Arrays with a dtype that zarr does not have are in `refused` and are not listed; opening one raises an error.

    When to use: a tool reads zarr, and not xarray. Alternatives: ``vds.virtual.open()`` returns an xarray dataset with
    decoded values, and ``vds.virtual.to_icechunk()`` writes references that zarr reads later.

    Parameters
    ----------
    group
        Group of any reader.
    storage
        Access to the sources; see :meth:`~virtualstack.storage.Storage.from_option`.
    absent
        Treatment of ABSENT chunks, which should exist but have no source (docs/explanation/chunk-states.md):
        ``"raise"`` raises `StorageError`, and ``"fill"`` leaves them out, so that they read as the fill value.

    Examples
    --------
    >>> import xarray as xr
    >>> import zarr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> group = vs.open_virtual_dataset("day.nc").virtual.to_group()
    >>> zarr.open_group(vs.ManifestStore(group), mode="r")["rain"][:]
    array([1., 2.])
    """

    supports_writes: bool = False
    supports_deletes: bool = False
    supports_listing: bool = True
    supports_consolidated_metadata: bool = False

    def __init__(
        self, group: ManifestGroup, storage: StorageLike = None, *, absent: Literal["fill", "raise"] = "fill"
    ) -> None:
        super().__init__(read_only=True)
        if not isinstance(group, ManifestGroup):
            raise TypeError(
                "ManifestStore needs a group, such as vds.virtual.to_group(), not an object of type "
                f"'{type(group).__name__}'. Open URLs with vs.open_virtual_dataset first"
            )
        self.group = group
        self.storage = Storage.from_option(storage)
        check_absent(absent)
        self.absent: OnAbsent = absent
        self._lock = threading.RLock()
        self._served: dict[str, ServedArray] = {}
        self._documents: dict[str, bytes] = {}
        self._sources: dict[tuple[Location, int], Source] = {}
        self._cache: ByteCache[bytes] = ByteCache(_CACHE_BYTES)
        _STORES[id(self)] = self

    @property
    def refused(self) -> dict[str, str]:
        """Paths of the variables that are not served, each with the reason: no dtype in zarr, or a refusal."""
        found: dict[str, str] = {}
        for path, group in self.group.walk():
            found |= {x.path.lstrip("/"): x.reason for x in group.refusals if x.kind == "refused"}
            for name, array in group.arrays.items():
                if (reason := why_refused(array, name=name)) is not None:
                    found[f"{path}/{name}".lstrip("/")] = reason
        return found

    def with_read_only(self, read_only: bool = True) -> ManifestStore:
        """Return a copy of the store, which is always read-only.

        Raises
        ------
        ValueError
            ``read_only`` is false: this store cannot be written.
        """
        if not read_only:
            raise ValueError("a ManifestStore is read-only: open it with mode='r'")
        return type(self)(self.group, self.storage, absent=self.absent)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ManifestStore)
            and self.absent == other.absent
            and self.storage == other.storage
            and _same_group(self.group, other.group)
        )

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {"group": self.group, "storage": self.storage, "absent": self.absent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["group"], state["storage"], absent=state["absent"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"ManifestStore({self.group!r})"

    # -- reading ----------------------------------------------------------------------------------------------

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the value of a key, or a range of the value; ``None`` if the key does not exist.

        Raises
        ------
        StorageError
            The bytes of a chunk could not be read, or do not decode.
        UnsupportedFeatureError
            The key is metadata of an array for which zarr has no data type.
        """
        self._is_open = True
        found = await asyncio.to_thread(self._get, key, byte_range)
        return None if found is None else prototype.buffer.from_bytes(found)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return the bytes, or a range of them, of each key in order; ``None`` for a key that does not exist."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether a key has a value; no chunk is read."""
        return await asyncio.to_thread(self._exists, key)

    async def getsize(self, key: str) -> int:
        """Return the size of a value in bytes.

        Raises
        ------
        FileNotFoundError
            The key does not exist, for example because the chunk is EMPTY.
        """
        size = await asyncio.to_thread(self._size, key)
        if size is None:
            raise FileNotFoundError(key)
        return size

    def _get(self, key: str, byte_range: ByteRequest | None) -> Bytes | None:
        path, node, rest = self._find(key)
        if rest == ["zarr.json"]:
            return _cut(self._document(path, node), byte_range)
        place = self._chunk(path, node, rest)
        if place is None:
            return None
        served, cell = place
        if served.plain is not None:
            assert isinstance(node, ManifestArray)
            return self._stored_chunk(served.plain, path, cell, byte_range, node.access)
        if served.uniform is not None:
            make = partial(_decoded_chunk, served.uniform, cell, self.storage, self.absent)
            return _cut(self._cache.get((path, cell), make), byte_range)
        return None

    def _exists(self, key: str) -> bool:
        path, node, rest = self._find(key)
        if rest == ["zarr.json"]:
            return isinstance(node, ManifestGroup) or why_refused(node, name=path) is None
        return self._chunk(path, node, rest) is not None

    def _size(self, key: str) -> int | None:
        path, node, rest = self._find(key)
        place = self._chunk(path, node, rest)
        if place is not None and place[0].plain is not None:
            return int(place[0].plain.manifest.entries[place[1]]["length"])
        value = self._get(key, None)
        return None if value is None else len(value)

    def _find(self, key: str) -> tuple[str, ManifestNode, list[str]]:
        """Split a key into its node and the rest of the key."""
        node: ManifestNode = self.group
        parts = [part for part in key.split("/") if part]
        for depth, part in enumerate(parts):
            if depth == len(parts) - 1 and part == "zarr.json":  # the metadata, whatever an array is called
                return "/".join(parts[:depth]), node, parts[depth:]
            if isinstance(node, ManifestGroup) and part in node.arrays:
                node = node.arrays[part]
            elif isinstance(node, ManifestGroup) and part in node.groups:
                node = node.groups[part]
            else:
                return "/".join(parts[:depth]), node, parts[depth:]
        return "/".join(parts), node, []

    def _chunk(self, path: str, node: ManifestNode, rest: list[str]) -> tuple[ServedArray, tuple[int, ...]] | None:
        """Return the chunk of a key, or ``None`` if it does not exist."""
        if isinstance(node, ManifestGroup) or rest[:1] != ["c"] or len(rest) != node.ndim + 1:
            return None
        cell = parse_cell(rest[1:])
        if cell is None:
            return None
        served = self._serve(path, node)
        if any(i >= n for i, n in zip(cell, served.present.shape, strict=True)):
            return None
        return (served, cell) if served.present[cell] else None

    def _serve(self, path: str, array: ManifestArray) -> ServedArray:
        with self._lock:
            if path not in self._served:
                self._served[path] = serve(array, name=path, absent=self.absent)
            return self._served[path]

    def _document(self, path: str, node: ManifestNode) -> bytes:
        with self._lock:
            if path not in self._documents:
                document = group_document(node) if isinstance(node, ManifestGroup) else self._serve(path, node).document
                self._documents[path] = json.dumps(document).encode()
            return self._documents[path]

    def _stored_chunk(
        self, plain: PlainArray, path: str, cell: tuple[int, ...], byte_range: ByteRequest | None, access: Access | None
    ) -> Bytes:
        entry = plain.manifest.entries[cell]
        code, offset, length = int(entry["location"]), int(entry["offset"]), int(entry["length"])
        if code == ABSENT:
            raise StorageError(
                f"chunk {cell} of variable '{path}' is ABSENT: its source should contain it, but does not. Restore "
                "the source, or create the ManifestStore with absent='fill'",
                variable=path,
                cell=cell,
            )
        start, stop = _span(byte_range, length)
        if code == INLINE:
            return memoryview(plain.manifest.inline)[offset + start : offset + stop]
        try:
            location = plain.manifest.locations[code - FIRST]
            return self._source(location, access).read(offset + start, stop - start)
        except StorageError as error:
            raise error.of_chunk(path, cell, offset=offset, length=length) from error

    def _source(self, location: Location, access: Access | None) -> Source:
        source = self._sources.get((location, id(access)))
        if source is None:
            source = self.storage.with_access(access).source(location.url, expected=location)
            if isinstance(source, WatchfulSource) and source.is_watchful:  # others find a change when opened
                if len(self._sources) >= _MAX_SOURCES:
                    self._sources = {}
                self._sources[location, id(access)] = source
        return source

    # -- listing ----------------------------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys. EMPTY chunks have none, and ABSENT chunks have one only with ``absent="raise"``."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield all keys that begin with ``prefix``; the keys are those of :meth:`list`."""
        for path, node in self._nodes():
            root = f"{path}/" if path else ""
            if not root.startswith(prefix) and not prefix.startswith(root):
                continue
            if f"{root}zarr.json".startswith(prefix):
                yield f"{root}zarr.json"
            if isinstance(node, ManifestArray):
                for key in await asyncio.to_thread(self._chunk_keys, path, node):
                    if key.startswith(prefix):
                        yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below ``prefix``."""
        for name in await asyncio.to_thread(self._names, prefix):
            yield name

    def _nodes(self) -> Iterator[tuple[str, ManifestNode]]:
        """Yield all nodes except refused ones, parents first, with their paths."""
        for path, group in self.group.walk():
            yield path.strip("/"), group
            for name, array in group.arrays.items():
                if why_refused(array, name=name) is None:
                    yield f"{path}/{name}".strip("/"), array

    def _chunk_keys(self, path: str, array: ManifestArray) -> Sequence[str]:
        present = self._serve(path, array).present
        if not present.ndim:
            return [f"{path}/c"] if present else []
        return ["/".join((path, "c", *map(str, cell))) for cell in np.argwhere(present).tolist()]

    def _names(self, prefix: str) -> Sequence[str]:
        path, node, rest = self._find(prefix)
        if isinstance(node, ManifestGroup):
            arrays = [name for name, array in node.arrays.items() if why_refused(array, name=name) is None]
            return [] if rest else ["zarr.json", *arrays, *node.groups]
        if why_refused(node, name=path) is not None:
            return []
        present = self._serve(path, node).present
        if not rest:
            return ["zarr.json", "c"] if present.any() else ["zarr.json"]
        cell = parse_cell(rest[1:])
        if rest[0] != "c" or cell is None or len(cell) >= present.ndim:
            return []
        if any(i >= n for i, n in zip(cell, present.shape, strict=False)):
            return []
        inner = present[cell]
        return [str(i) for i in np.flatnonzero(inner.reshape(inner.shape[0], -1).any(1)).tolist()]

    # -- writing, which is not supported ------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """Raise `ValueError`: the store is read-only."""
        self._refuse()

    async def delete(self, key: str) -> None:
        """Raise `ValueError`: the store is read-only."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError("a ManifestStore is read-only. Write to another zarr store")


_MAX_SOURCES = 1024


@in_forked_children
def _unlock_all() -> None:  # the threads that had the locks do not exist in the child
    for store in _STORES.values():
        store._lock = threading.RLock()


def _span(byte_range: ByteRequest | None, length: int) -> tuple[int, int]:
    """Return the begin and end of a range in a value of ``length`` bytes."""
    match byte_range:
        case None:
            return 0, length
        case RangeByteRequest(start, end) if start >= 0 and end >= 0:
            start, end = min(start, length), min(end, length)
            return start, max(start, end)
        case OffsetByteRequest(offset) if offset >= 0:
            return min(offset, length), length
        case SuffixByteRequest(suffix) if suffix >= 0:
            return max(length - suffix, 0), length
    raise ValueError(f"{byte_range!r} is not a byte range: offsets and lengths cannot be negative")


def _cut(value: bytes, byte_range: ByteRequest | None) -> Bytes:
    start, stop = _span(byte_range, len(value))
    return value if stop - start == len(value) else memoryview(value)[start:stop]


def _decoded_chunk(uniform: UniformArray, cell: tuple[int, ...], storage: Storage, absent: OnAbsent) -> bytes:
    return encode_chunk(uniform.read(cell, storage, absent=absent))


def _same_group(a: ManifestGroup, b: ManifestGroup) -> bool:
    if a is b:
        return True
    if a.arrays.keys() != b.arrays.keys() or a.groups.keys() != b.groups.keys():
        return False
    if json.dumps(group_document(a)) != json.dumps(group_document(b)):
        return False
    return all(_same_array(x, b.arrays[name]) for name, x in a.arrays.items()) and all(
        _same_group(x, b.groups[name]) for name, x in a.groups.items()
    )


def _same_array(a: ManifestArray, b: ManifestArray) -> bool:
    return (
        a.dimension_names == b.dimension_names
        and json.dumps(attributes_document(a)) == json.dumps(attributes_document(b))
        and a.equals(b)
    )
