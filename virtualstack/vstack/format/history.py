"""List the snapshots of a store, and read the contents of one."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import orjson
from numcodecs import blosc

from virtualstack.errors import (
    AccessDeniedError,
    MalformedFileError,
    ManifestError,
    Remedy,
    SourceNotFoundError,
    StorageError,
)
from virtualstack.location import is_remote
from virtualstack.manifests import ChunkManifest, Manifest, ManifestArray, ManifestGroup
from virtualstack.storage import ObjectStore
from virtualstack.vstack.format.archive import Archive, Objects, ReadPermission
from virtualstack.vstack.format.documents import MAX_DOCUMENT_BYTES, decoded_size, decompressed
from virtualstack.vstack.format.manifest import StoredManifest, Token
from virtualstack.vstack.format.names import FOLDER, HINT, SNAPSHOTS, bundle_key, snapshot_key, snapshot_number
from virtualstack.vstack.format.snapshot import LAYOUT_OF, ArrayNode, Snapshot, group_tree, read_document
from virtualstack.vstack.format.sources import Prefixes

_MAX_VARIABLE_BYTES = 1 << 28  # maximum bytes of one variable in a bundle, uncompressed

MAX_BUNDLE_BYTES = 1 << 29
"""Maximum bytes of a bundle, and of all its variables together, uncompressed."""


class ListedObjects(Objects, Protocol):
    """Objects whose folders can be listed."""

    def list(self, prefix: str, /) -> list[str]:
        """Return the keys in a folder; raise `StorageError` if it cannot be listed."""

    def first(self, prefix: str, /) -> str | None:
        """Return the least key in a folder, ``None`` if it is empty; raise `StorageError` if it cannot be found."""


def newest(objects: ListedObjects, /) -> int | None:
    """Return the number of the newest snapshot; ``None`` if there is no snapshot.

    One request is enough where objects can be listed. Elsewhere, such as on a web server, the store names a snapshot,
    and each later number is tried.
    """
    found = find_newest(objects)
    return None if found is None else found.number


class Newest(NamedTuple):
    """The newest snapshot, as it was found."""

    number: int
    key: str
    data: bytes | None = None


def find_newest(objects: ListedObjects, /) -> Newest | None:
    """Find the newest snapshot; return ``None`` if there is no snapshot."""
    try:
        key = objects.first(SNAPSHOTS)
    except StorageError as error:
        return _probed(objects, error)
    number = None if key is None else snapshot_number(key)
    if number is None and key is not None:  # another file, left by a file system or a person
        number = next(iter(listed_numbers(objects)), None)
    return None if number is None else Newest(number=number, key=snapshot_key(number))


_MAX_PROBED_SNAPSHOTS = 1000
"""Maximum number of later snapshots that are tried after the snapshot that a store names."""


def _probed(objects: Objects, error: StorageError) -> Newest:
    said = hinted(objects)
    number = said.get("snapshot")
    if not isinstance(number, int) or number < 0:
        raise error
    found = Newest(number=number, key=HINT, data=_carried(said.get("document"), objects.url))
    for n in range(number + 1, number + 1 + _MAX_PROBED_SNAPSHOTS):
        try:
            found = Newest(number=n, key=snapshot_key(n), data=snapshot_bytes(objects, n))
        except StorageError as missing:
            if _is_missing(missing, objects.url):
                return found
            raise
    raise MalformedFileError(
        f"'{objects.url}' says that snapshot {number} is its newest, but {_MAX_PROBED_SNAPSHOTS} later ones exist. "
        "Its server answers every request, or writers could not update the store. Open it where its files can be "
        "listed",
        url=objects.url,
    )


def _is_missing(error: StorageError, url: str) -> bool:
    """Return whether a snapshot does not exist. S3 denies access to missing objects if listing is not permitted."""
    return isinstance(error, SourceNotFoundError) or (isinstance(error, AccessDeniedError) and is_remote(url))


def _carried(document: Any, url: str) -> bytes | None:
    """Return the bytes of the snapshot that a hint carries; ``None`` if it carries none."""
    if document is None:
        return None
    try:
        return base64.b64decode(document, validate=True)
    except (TypeError, ValueError) as error:
        raise MalformedFileError(
            f"'{url}{HINT}' is damaged: its snapshot is not base64. Restore it, or write an object without the field "
            "'document'",
            url=url + HINT,
        ) from error


MAX_HINT_BYTES = 1 << 19
"""Maximum bytes of the hint."""

MAX_CARRIED_BYTES = 1 << 18
"""Maximum bytes of a snapshot that the hint carries."""


_REFUSED_BY_ZARR: Mapping[str, Any] = {
    "zarr_format": 3,
    "node_type": "array",
    "attributes": {},
    "shape": [],
    "data_type": "bool",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": []}},
    "chunk_key_encoding": {"name": "virtualstack.manifest"},
    "fill_value": False,
    "codecs": [{"name": "bytes"}],
}
"""Metadata of an array that no zarr tool opens, because its chunks have no keys."""

ROOT = orjson.dumps(
    {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"comment": 'a vstack: open it with xarray.open_dataset(url, engine="virtualstack")'},
        "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {FOLDER: _REFUSED_BY_ZARR}},
    }
)
"""The object by which zarr tools find out that a folder is a vstack and not a zarr store; it never changes."""


def hint(number: int, data: bytes | None = None, /) -> bytes:
    """Return the object that identifies the folder as a vstack, and names a snapshot."""
    said: dict[str, Any] = {"format": 1, "snapshot": number}
    if data is not None and len(data) <= MAX_CARRIED_BYTES:
        said["document"] = base64.b64encode(data).decode()
    return orjson.dumps({**_REFUSED_BY_ZARR, "attributes": {"virtualstack": said}})


def hinted(objects: Objects, /) -> Mapping[str, Any]:
    """Return what the hint says; nothing if there is none."""
    try:
        said = orjson.loads(objects.get(HINT, most=MAX_HINT_BYTES))["attributes"]["virtualstack"]
    except (StorageError, ValueError, KeyError, TypeError):
        return {}
    return said if isinstance(said, dict) else {}


def snapshot_bytes(objects: Objects, number: int, /) -> bytes:
    """Return the bytes of a snapshot."""
    return objects.get(snapshot_key(number), most=MAX_DOCUMENT_BYTES)


def read_snapshot(objects: Objects, number: int, /) -> Snapshot:
    """Read a snapshot."""
    url = objects.url + snapshot_key(number)
    return Snapshot.decode(snapshot_bytes(objects, number), number=number, url=url)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A summary of a snapshot."""

    number: int
    time: float
    message: str | None
    changes: tuple[str, ...]


_MAX_LOG_CHARACTERS = 10_000
_MAX_LOG_CHANGES = 1000
"""Maximum number of changes of a log entry: a log holds many entries, and a small object may hold many changes."""


def read_entry(objects: Objects, number: int, /) -> LogEntry | None:
    """Read the log entry of a snapshot; return ``None`` if the snapshot does not exist."""
    key = snapshot_key(number)
    try:
        data = objects.get(key, most=MAX_DOCUMENT_BYTES)
    except StorageError as error:
        if _is_missing(error, objects.url):
            return None
        raise
    url = objects.url + key
    match read_document(data, number=number, url=url):
        case {"time": int() | float() as time, "message": None | str() as message, "changes": list() as changes}:
            told = [str(change)[:_MAX_LOG_CHARACTERS] for change in changes[:_MAX_LOG_CHANGES]]
            if len(changes) > len(told):
                told.append(f"... and {len(changes) - len(told)} more")
            said = None if message is None else message[:_MAX_LOG_CHARACTERS]
            return LogEntry(number=number, time=float(time), message=said, changes=tuple(told))
    raise MalformedFileError(f"'{url}' is not a snapshot of a vstack", Remedy("restore it, or expire it"), url=url)


def number_at(objects: Objects, last: int, moment: float, /) -> int:
    """Return the number of the snapshot that was the newest at a moment, in seconds since 1970; it may be expired.

    The search is a bisection that reads snapshots.
    """
    low, high, at = 0, last + 1, last
    while low < high:
        entry = read_entry(objects, at)
        if entry is None or entry.time <= moment:  # expired snapshots are older than existing ones
            low = at + 1
        else:
            high = at
        at = (low + high) // 2
    return low - 1


def listed_numbers(objects: ListedObjects, /) -> list[int]:
    """Return the numbers of all snapshots, newest first."""
    numbers = (snapshot_number(key) for key in objects.list(SNAPSHOTS))
    return sorted((number for number in numbers if number is not None), reverse=True)


def bundle_chunk(data: bytes, itemsize: int, /) -> bytes:
    """Compress the chunk of a loaded variable."""
    compressed: bytes = blosc.compress(
        data, b"zstd", 5, blosc.BITSHUFFLE if itemsize > 1 else blosc.NOSHUFFLE, 0, itemsize
    )
    return compressed


def open_archive(snapshot: Snapshot, objects: Objects, permission: ReadPermission, /) -> Archive:
    """Return the archive that the chunks of a snapshot are read from."""
    prefixes = Prefixes(store=objects.url, table=snapshot.prefixes, moved=snapshot.moved)
    return Archive(objects=objects, segments=snapshot.segments, prefixes=prefixes, permission=permission)


@dataclass(frozen=True)
class OpenStore:
    """A store that is read or changed."""

    objects: ObjectStore
    permission: ReadPermission
    bundles: dict[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    def archive(self, snapshot: Snapshot, /) -> Archive:
        """Return the archive that the chunks of a snapshot are read from."""
        return open_archive(snapshot, self.objects, self.permission)

    def group(self, snapshot: Snapshot, /) -> ManifestGroup:
        """Return the group of a snapshot: see `read_group`."""
        return read_group(snapshot, self.archive(snapshot), bundles=self.bundles)

    def bundle(self, snapshot: Snapshot, /) -> bytes:
        """Return the bytes of the bundle of a snapshot: see `bundle_bytes`."""
        return bundle_bytes(snapshot, self.objects, self.bundles)


def read_group(
    snapshot: Snapshot, archive: Archive, /, *, is_chosen: bool = False, bundles: dict[str, bytes] | None = None
) -> ManifestGroup:
    """Return the group of a snapshot; only the bundle of its loaded variables is read."""
    bundle = bundle_bytes(snapshot, archive.objects, bundles)
    arrays = {path: array_in(snapshot, path, archive, bundle, is_chosen=is_chosen) for path in snapshot.arrays}
    return group_tree(snapshot, arrays, archive.url.rstrip("/"))


def bundle_bytes(snapshot: Snapshot, objects: Objects, bundles: dict[str, bytes] | None = None, /) -> bytes:
    """Return the bytes of the bundle of a snapshot, and add them to ``bundles``."""
    if snapshot.bundle is None:
        return b""
    name, size = snapshot.bundle.name, snapshot.bundle.size
    if bundles is not None and name in bundles:
        return bundles[name]
    key = bundle_key(name)
    if size > MAX_BUNDLE_BYTES:
        raise MalformedFileError(
            f"'{objects.url}{key}' is recorded with {size} bytes, but at most {MAX_BUNDLE_BYTES} are read",
            Remedy("restore it"),
        )
    data = objects.get(key, most=MAX_BUNDLE_BYTES)
    if len(data) != size:
        raise MalformedFileError(
            f"'{objects.url}{key}' has {len(data)} bytes, but should have {size}", Remedy("restore it")
        )
    if zlib.crc32(data) != snapshot.bundle.crc32:
        raise MalformedFileError(f"'{objects.url}{key}' is damaged: its checksum is wrong", Remedy("restore it"))
    _check_bundle(snapshot, data, objects.url)
    if bundles is not None:
        bundles[name] = data
    return data


def _check_bundle(snapshot: Snapshot, bundle: bytes, url: str) -> None:
    """Check the size of all variables before memory is taken for one: many may claim the same range of a bundle."""
    ranges = [node.bundled for node in snapshot.arrays.values() if node.bundled is not None]
    total = sum(decoded_size(bundle[offset : offset + 16]) for offset, _ in ranges)
    if total > MAX_BUNDLE_BYTES:
        raise MalformedFileError(
            f"'{url}' has loaded variables of {total} bytes in the bundle of a snapshot; at most {MAX_BUNDLE_BYTES} "
            "are read. It is damaged or malicious: do not open it",
            url=url,
        )


def make_token(url: str, snapshot: Snapshot, path: str, /) -> Token:
    """Return the token that identifies the chunks of an array of a snapshot."""
    return url, snapshot.number, snapshot.time, path


def array_in(
    snapshot: Snapshot, path: str, archive: Archive, bundle: bytes, /, *, is_chosen: bool = False
) -> ManifestArray:
    """Return an array of a snapshot whose bundle was read."""
    node = snapshot.arrays[path]
    header = node.header
    if (layout := snapshot.layouts.get(path)) is not None:
        header = replace(header, attributes={**header.attributes, LAYOUT_OF: layout.of.rpartition("/")[2]})
    manifest: Manifest
    if node.bundled is not None:
        manifest = _bundled(path, node, bundle, archive.url)
    else:
        manifest = StoredManifest(
            archive=archive,
            path=path,
            grid=header.grid,
            encodings=header.encodings,
            fills=header.fills,
            placements=node.placements,
            counts=node.counts,
            token=make_token(archive.url, snapshot, path),
            is_chosen=is_chosen,
        )
    try:
        array = header.array(manifest)
        if isinstance(manifest, ChunkManifest):
            array.validate()
    except ManifestError as error:
        raise MalformedFileError(
            f"array '{path}' of '{archive.url}' is damaged: {error}", Remedy("restore it")
        ) from error
    return array


def _bundled(path: str, node: ArrayNode, bundle: bytes, url: str) -> ChunkManifest:
    header, (offset, length) = node.header, node.bundled or (0, 0)
    data = bundle[offset : offset + length]
    where = f"array '{path}' of '{url}'"
    if not 0 <= offset <= offset + length <= len(bundle) or header.grid.shape != (1,) * len(header.grid.shape):
        raise MalformedFileError(f"{where} is not in the bundle of its snapshot", Remedy("restore it"))
    if len(header.encodings) != 1:
        raise MalformedFileError(f"{where} has {len(header.encodings)} encodings, but one chunk", Remedy("restore it"))
    (encoding,) = header.encodings
    size = encoding.size * encoding.dtype.itemsize
    least, most = (0, _MAX_VARIABLE_BYTES) if encoding.codecs else (size, min(size, _MAX_VARIABLE_BYTES))
    try:
        raw = decompressed(data, least=least, most=most)
    except ValueError as error:
        raise MalformedFileError(
            f"{where} is damaged in the bundle of its snapshot: {error}", Remedy("restore it")
        ) from error
    return ChunkManifest.from_bytes([raw], shape=header.grid.shape, encoding=encoding, fill=header.fills[0])
