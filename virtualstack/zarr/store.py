"""Present a group as a zarr store: raw values for every program that reads zarr v3."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from virtualstack.cache import ByteCache
from virtualstack.errors import UnsupportedFeatureError
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.manifests.grid import chunk_key, parse_cell
from virtualstack.options import OnAbsent
from virtualstack.reading import check_absent
from virtualstack.storage import Bytes, Storage, StorageLike
from virtualstack.zarr.client import Client
from virtualstack.zarr.documents import attributes_document, group_document
from virtualstack.zarr.keys import ZarrKeys
from virtualstack.zarr.present import Chunk, KeptSources, ZarrArray

_CACHE_BYTES = 128 << 20
"""Bytes of decoded chunks that a store keeps."""


class ManifestStore(Store):
    """A read-only zarr v3 store of the raw values of a group.

    Chunks of arrays with one encoding and equal chunks are served in stored form, with their codecs in the metadata; a
    chunk that a slice cuts is encoded again. All other arrays are served decoded, as one array of equal chunks. Chunks
    that are made are kept in a cache. EMPTY chunks, which were never written, have no key, as in zarr. Of references
    that were opened lazily, all keys are listed. The store works in any thread and event loop, and can be pickled.

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
        self._keys = ZarrKeys(group, Client(absent=absent))
        self._sources = KeptSources(self.storage)
        self._cache: ByteCache[bytes] = ByteCache(_CACHE_BYTES)

    @property
    def refused(self) -> dict[str, str]:
        """Paths of the variables that are not served, each with the reason: no dtype in zarr, or a refusal."""
        return self._keys.refused()

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
        if (document := self._document(key)) is not None:
            return _cut(document, byte_range)
        chunk = self._chunk(key)
        if chunk is None:
            return None
        if chunk.stored is not None:
            return chunk.read(self._sources, *_span(byte_range, chunk.stored.length))
        make = partial(chunk.array.make, chunk.cell, self.storage)
        return _cut(self._cache.get((chunk.array.path, chunk.cell), make), byte_range)

    def _document(self, key: str) -> bytes | None:
        path, node, rest = self._keys.find(key.strip("/"))
        if rest != ["zarr.json"]:
            return None
        documents = self._keys.documents(path, node)
        if not documents and isinstance(node, ManifestArray):
            raise UnsupportedFeatureError(str(self._keys.array(path, node)), variable=path, feature=str(node.dtype))
        return json.dumps(documents["zarr.json"]).encode()

    def _chunk(self, key: str) -> Chunk | None:
        found = self._existing(key)
        return None if found is None else found[0].find(found[1])

    def _existing(self, key: str) -> tuple[ZarrArray, tuple[int, ...]] | None:
        """Return the array and cell of a chunk that exists, as far as this is known without reading references."""
        found = self._keys.chunk_key(key.strip("/"))
        return None if found is None or not found[0].exists[found[1]] else found

    def _exists(self, key: str) -> bool:
        path, node, rest = self._keys.find(key.strip("/"))
        if rest == ["zarr.json"]:
            return isinstance(node, ManifestGroup) or isinstance(self._keys.array(path, node), ZarrArray)
        return self._existing(key) is not None

    def _size(self, key: str) -> int | None:
        chunk = self._chunk(key)
        if chunk is not None and chunk.length is not None:
            return chunk.length
        value = self._get(key, None)
        return None if value is None else len(value)

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
            if isinstance(node, ZarrArray):
                for key in await asyncio.to_thread(_chunk_keys, node):
                    if key.startswith(prefix):
                        yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names directly below ``prefix``."""
        for name in await asyncio.to_thread(self._names, prefix):
            yield name

    def _nodes(self) -> Iterator[tuple[str, ManifestGroup | ZarrArray]]:
        """Yield all nodes except refused ones, parents first, with their paths."""
        for path, group in self.group.walk():
            yield path.strip("/"), group
            for name, node in group.arrays.items():
                array = self._keys.array(f"{path}/{name}".strip("/"), node)
                if isinstance(array, ZarrArray):
                    yield array.path, array

    def _names(self, prefix: str) -> Sequence[str]:
        prefix = prefix.strip("/")
        names = [name.rstrip("/") for name in self._keys.names(prefix) or ()]
        path, node, rest = self._keys.find(prefix)
        array = self._keys.array(path, node) if isinstance(node, ManifestArray) else None
        if not isinstance(array, ZarrArray) or not names:
            return names
        if not rest:
            return names if array.exists.any() else ["zarr.json"]
        inner = array.exists[parse_cell(rest[1:])]
        return [names[i] for i in np.flatnonzero(inner.reshape(len(names), -1).any(1)).tolist()]

    # -- writing, which is not supported ------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """Raise `ValueError`: the store is read-only."""
        self._refuse()

    async def delete(self, key: str) -> None:
        """Raise `ValueError`: the store is read-only."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError("a ManifestStore is read-only. Write to another zarr store")


def _chunk_keys(array: ZarrArray) -> Sequence[str]:
    return [chunk_key(array.path, cell) for cell in np.argwhere(array.exists).tolist()]


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
