"""Read zarr stores of version 2 and 3 as groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from virtualstack.errors import MalformedFileError, Remedy, SourceNotFoundError, StorageError
from virtualstack.formats.base import ReadOptions
from virtualstack.manifests import Manifest, ManifestGroup
from virtualstack.storage import Storage
from virtualstack.storage.source import DirectoryError
from virtualstack.storage.target import UnlistableError
from virtualstack.storage.threads import concurrently
from virtualstack.zarr.archive import ZipArchive
from virtualstack.zarr.metadata.array import ArrayMetadata, paged_manifest
from virtualstack.zarr.metadata.attributes import parse_json
from virtualstack.zarr.metadata.hierarchy import MAX_GROUP_DEPTH, build_group
from virtualstack.zarr.objects import Folder, Members, ObjectChunks

_ZIP = ".zip"
_ZIP_MAGIC = b"PK\x03\x04", b"PK\x05\x06"
_MAX_NODES = 100_000
_MANIFEST_KEYS = "virtualstack.manifest"


class _Store(Protocol):
    """The container of a store: a folder or an archive."""

    def document(self, key: str, /) -> bytes | None: ...

    def folders(self, path: str, /) -> Sequence[str]: ...

    def below(self, path: str, /) -> Members: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Zarr:
    """Reader of zarr stores of version 2 or 3, in a folder or in a zip archive whose members are not compressed.

    Shards are shown as the chunks inside them. The chunks of a variable, and the indexes of its shards, are looked up
    when the variable is first used: all of them at once, by listing its folder. A web server cannot list. There, an
    array of at most 64 chunks (or shards) is looked up as a whole, and chunks of a larger array when they are needed.

    When to use: the reader is chosen by the metadata of a store. Name it to set an option. Alternatives:
    ``xr.open_zarr`` reads values of one store, and :class:`~virtualstack.readers.Icechunk` reads repositories.

    Parameters
    ----------
    consolidated
        If true, only consolidated metadata are read. If false, they are ignored. ``None``: they are read if they exist.
        Groups on a web server need consolidated metadata, because their members cannot be listed.
    masks_fill_value
        If true, the ``fill_value`` of zarr v2 metadata is also the attribute ``_FillValue``, so that equal values are
        missing, as in xarray.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> stored = xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_zarr("rain.zarr", consolidated=False)
    >>> vds = vs.open_virtual_dataset("rain.zarr", reader=vs.readers.Zarr(consolidated=False))
    >>> vds.virtual.open()["rain"].values
    array([1., 2.])
    """

    name: ClassVar[str] = "zarr"

    consolidated: bool | None = None
    masks_fill_value: bool = True

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return a store as a group of virtual arrays; chunks are looked up when they are needed.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        SourceNotFoundError
            The store does not exist.
        MalformedFileError
            The source is not a store, or its metadata contradict themselves.
        StorageError
            The store cannot be read, or it is on a web server and its metadata are not consolidated.
        """
        url = url.rstrip("/")
        store: _Store = Folder(url=url, storage=storage)
        metadata = {} if url.endswith(_ZIP) else self._metadata(store, url)
        if not metadata:
            store = _archive(url, storage)
            metadata = self._metadata(store, url)
        if not metadata:
            raise MalformedFileError(
                f"'{url}' is a zip archive that does not contain a zarr store. Check the URL; or unpack the "
                "archive, and open the files",
                url=url,
            )
        _refuse_vstack(metadata, url)
        # a storage without the caches of this read
        lasting = Storage(storage.given, storage.carried, permissions=storage.permissions, named=storage.named)

        def read(path: str, described: ArrayMetadata) -> tuple[Manifest, int]:
            members = store.below(path)
            if isinstance(members, Folder):
                members = Folder(url=members.url, storage=lasting)
            chunks = ObjectChunks(members=members, path=path, metadata=described, storage=lasting, where=url)
            return paged_manifest(chunks, described, path=path, where=url), 0

        return build_group(
            metadata,
            read,
            where=url,
            url=url,
            wanted=options.wants,
            masks_fill_value=self.masks_fill_value,
            rectilinear=True,
            sharded=True,
        )

    def _metadata(self, store: _Store, url: str) -> dict[str, Any]:
        """Return parsed metadata by key; empty if the store does not exist."""
        root = _document(store, "zarr.json", url)
        consolidated: object
        if root is not None:
            found = {"zarr.json": root}
            consolidated = root.get("consolidated_metadata")
        else:
            found = {}
            consolidated = None if self.consolidated is False else _document(store, ".zmetadata", url)
        if isinstance(consolidated, Mapping) and self.consolidated is not False:
            if "record_size" in consolidated:
                raise MalformedFileError(
                    f"'{url}' is a set of kerchunk references, not a zarr store",
                    Remedy("open it with", reader="kerchunk"),
                    url=url,
                )
            entries = consolidated.get("metadata")
            if not isinstance(entries, Mapping):
                raise MalformedFileError(
                    f"'{url}' has consolidated metadata without 'metadata'",
                    Remedy("consolidate it again"),
                    Remedy("open it with", consolidated=False),
                )
            if root is None:
                return dict(entries)
            return {**{f"{path}/zarr.json": value for path, value in entries.items() if path}, **found}
        if self.consolidated:
            raise MalformedFileError(
                f"'{url}' has no consolidated metadata",
                Remedy("open it with", consolidated=None),
                Remedy("consolidate it"),
            )
        try:
            _walk(store, url, "", found, iter(range(_MAX_NODES)), is_v3=root is not None)
        except UnlistableError as error:
            raise StorageError(
                f"'{url}' is on a web server, which cannot list the content of a group, and its metadata are not "
                "consolidated. Consolidate them (zarr.consolidate_metadata), or open its arrays one by one",
                url=url,
            ) from error
        return found


def _archive(url: str, storage: Storage) -> ZipArchive:
    try:
        source = storage.source(url)
    except DirectoryError as error:
        raise SourceNotFoundError(
            f"'{url}' is not a zarr store: it has no 'zarr.json', '.zgroup', '.zarray' or '.zmetadata'",
            Remedy("check the URL"),
            url=url,
        ) from error
    if source.read(0, min(4, source.size)) not in _ZIP_MAGIC:
        raise MalformedFileError(
            f"'{url}' is a file, but not a zip archive of a zarr store",
            Remedy("check the URL"),
            Remedy("leave out", reader=...),
            url=url,
        )
    return ZipArchive(source)


def _walk(store: _Store, url: str, path: str, found: dict[str, Any], budget: Iterator[int], *, is_v3: bool) -> None:
    """Find the metadata of a node, unless known, and of everything below it; each document counts against a budget."""
    if path.count("/") >= MAX_GROUP_DEPTH:
        raise MalformedFileError(
            f"'{url}' has groups in more than {MAX_GROUP_DEPTH} levels, perhaps because of a link, such as "
            f"'{path[:200]}'",
            Remedy("remove such links, or open one of its groups by its own URL"),
        )
    if next(budget, None) is None:
        raise MalformedFileError(
            f"'{url}' has more than {_MAX_NODES} groups and arrays, perhaps because of links, such as "
            f"'{path[:200]}'. Consolidate its metadata, or open its groups by their own URLs"
        )
    prefix = f"{path}/" if path else ""
    if is_v3:
        document = found.get(f"{prefix}zarr.json") or _document(store, f"{prefix}zarr.json", url)
        if document is None:
            return
        found[f"{prefix}zarr.json"] = document
        is_group = document.get("node_type") != "array"
    else:
        array = _document(store, f"{prefix}.zarray", url)
        group = None if array is not None else _document(store, f"{prefix}.zgroup", url)
        if array is None and group is None:
            return
        is_group = array is None
        found[f"{prefix}{'.zgroup' if is_group else '.zarray'}"] = group if array is None else array
        attributes = _document(store, f"{prefix}.zattrs", url)
        if attributes is not None:
            found[f"{prefix}.zattrs"] = attributes
    if not is_group:
        return
    below = [prefix + name for name in store.folders(path)]
    parts: list[dict[str, Any]] = [{} for _ in below]

    def walk(item: tuple[str, dict[str, Any]]) -> None:
        _walk(store, url, item[0], item[1], budget, is_v3=is_v3)

    list(concurrently(walk, list(zip(below, parts, strict=True)), [url]))
    for part in parts:
        found.update(part)


def _document(store: _Store, key: str, url: str) -> dict[str, Any] | None:
    data = store.document(key)
    if data is None:
        return None
    value = parse_json(data, where=f"{key}' of '{url}")  # orjson refuses NaN, and rounds numbers from 2^64
    if not isinstance(value, dict):
        raise MalformedFileError(
            f"'{key}' of '{url}' is {repr(value)[:100]}; expected an object", Remedy("write it again")
        )
    return value


def _refuse_vstack(metadata: Mapping[str, Any], url: str) -> None:
    for document in metadata.values():
        keys = document.get("chunk_key_encoding") if isinstance(document, Mapping) else None
        if isinstance(keys, Mapping) and keys.get("name") == _MANIFEST_KEYS:
            raise MalformedFileError(
                f"'{url}' is a vstack, not a zarr store", Remedy("open it with", reader="vstack"), url=url
            )
