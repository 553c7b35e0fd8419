"""Cache of scanned groups, by source and reader options. An entry is used while its files stay the same.

Storage options are compared by hashes that reveal no secret.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, fields
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any

import orjson
from numcodecs import zstd

from virtualstack.codecs.bounded import CodecError, decode_zstd
from virtualstack.errors import ManifestError, SourceNotFoundError, StorageError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.formats.registry import list_readers
from virtualstack.location import Location, absolute_url, local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.serialised.values import Heap, Json, UnstorableError, to_mapping
from virtualstack.scanning.plain_groups import from_group, to_group
from virtualstack.storage import LocalSource, Source, Storage, Target
from virtualstack.storage.identities.identity import CLIENT_OPTIONS, OWN_OPTIONS
from virtualstack.warning import warn

_HOW = (
    CLIENT_OPTIONS - {"default_headers"}
) | OWN_OPTIONS  # options without effect on which server is reached, or as whom
_CLOUD_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")
_PLACES = ("ENDPOINT", "ACCOUNT_NAME", "BASE_URL", "EMULATOR")
_HASH_ROUNDS = 100_000  # 40 ms: guessing a short password from its hash must be slow


def hash_backends(storage: Storage, /) -> dict[str, str]:
    """Return a hash of the options, store or filesystem of each URL prefix.

    A backend whose content cannot be compared, such as a store in memory, has another hash each time.
    """
    return {prefix: _mark(prefix, backend) for prefix, backend in reversed(storage.entries())}


def hash_environment() -> str:
    """Return a hash of the environment variables that decide which servers the URLs of buckets mean."""
    found = [
        item
        for item in os.environ.items()
        if item[0].startswith(_CLOUD_PREFIXES) and any(word in item[0] for word in _PLACES)
    ]
    return _hash(repr(sorted(found)), "") if found else ""


def _mark(prefix: str, backend: object) -> str:
    if isinstance(backend, Mapping):
        backend = {key: value for key, value in backend.items() if str(key).lower() not in _HOW}
    try:
        text = repr((type(backend).__qualname__, _plain(backend)))
    except Exception:  # noqa: BLE001 - classes of other packages may raise any error
        text = uuid.uuid4().hex
    return _hash(text, prefix)


def _hash(text: str, salt: str) -> str:
    return hashlib.pbkdf2_hmac("sha256", text.encode(errors="backslashreplace"), salt.encode(), _HASH_ROUNDS, 16).hex()


def _plain(value: object) -> object:
    """Return a value with the same ``repr`` in each process: mappings are sorted, and objects are taken apart."""
    if value is None or isinstance(value, str | bytes | int | float | PurePath):
        return value
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(x)) for key, x in value.items())
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    made: Any = value.__reduce_ex__(2)
    return [made[0].__qualname__, *map(_plain, made[1:])]


_CLOCK_TICK_SECONDS = 0.02  # seconds; the clock of a local file system advances every 1 to 10 ms
_PREFIX_VARIABLES = ("HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX")  # where the HDF5 library searches for other files


@dataclass(frozen=True, slots=True)
class Version:
    """Facts that identify one version of a file. A fact that is not known is ``None``.

    Parameters
    ----------
    size, etag, last_modified
        Size in bytes, etag and modification time, as in `Location`.
    stamp
        Stamp of a local file, as in `LocalSource`: another file with the same size and time may take its place.
    """

    size: int | None = None
    etag: str | None = None
    last_modified: float | None = None
    stamp: tuple[int, int] | None = None

    @classmethod
    def from_source(cls, source: Source, /) -> Version:
        """Return the version of the source that was opened."""
        x: Location = source.location
        return cls(x.size, x.etag, x.last_modified, source.stamp if isinstance(source, LocalSource) else None)

    @property
    def is_known(self) -> bool:
        """Whether the size and at least one other fact are known."""
        return self.size is not None and (self.etag, self.last_modified, self.stamp) != (None, None, None)


@dataclass(frozen=True, slots=True, repr=False)
class WatchedStorage(Storage):
    """Storage that records the URL and version of each source that was opened.

    The version is ``None`` if there was no source, and an unknown version if the source could not be opened.
    """

    seen: dict[str, Version | None] = field(default_factory=dict, compare=False)

    def source(self, url: str | os.PathLike[str], /, *, expected: Location | None = None) -> Source:
        """Open the source at a URL or local path, and record its version."""
        key = absolute_url(url)
        try:
            source = Storage.source(self, url, expected=expected)
        except SourceNotFoundError:
            self.seen.setdefault(key, None)
            raise
        except StorageError:
            self.seen[key] = Version()
            raise
        if key not in self.seen:
            self.seen[key] = Version.from_source(source)
            _let_pass(source)
        return source


def _let_pass(source: Source) -> None:
    """Wait if a file has changed just now, so that a later change gets another modification time."""
    if isinstance(source, LocalSource) and source.stamp is not None:
        age = time.time() - source.stamp[1] / 1e9
        if abs(age) < _CLOCK_TICK_SECONDS:
            time.sleep(_CLOCK_TICK_SECONDS)


def is_unchanged(versions: Mapping[str, Version | None], main: str, storage: Storage, /) -> bool:
    """Return whether all files still have these versions, with one request for each file."""
    return all(_is_same(url, before, main, storage) for url, before in versions.items())


def _is_same(url: str, before: Version | None, main: str, storage: Storage) -> bool:
    try:
        now = Version.from_source(storage.source(url))
    except SourceNotFoundError:
        return before is None
    except StorageError:
        if url == main:
            raise
        return False
    if before is None or not before.is_known or (now.size, now.stamp) != (before.size, before.stamp):
        return False
    pairs = [(before.etag, now.etag), (before.last_modified, now.last_modified)]
    known = [(old, new) for old, new in pairs if old is not None and new is not None]
    return bool(known) and all(old == new for old, new in known)


def surroundings(main: str, seen: Mapping[str, Any], /) -> list[str] | None:
    """Return the folder and environment variables that local references of a file depend on.

    The result is ``None`` if no other local file was opened.
    """
    if not any(url != main and local_path(url) is not None for url in seen):
        return None
    try:
        folder = os.getcwd()
    except OSError:  # the folder was deleted
        folder = ""
    return [folder, *(os.environ.get(name, "") for name in _PREFIX_VARIABLES)]


_FORMAT_VERSION = 9  # entries with another version are ignored
_MAGIC = b"vs.scan\n"
_OPTIONAL = (
    "eccodes",
    "hdf5plugin",
    "imagecodecs",
    "pyproj",
    "rasterio",
    "tifffile",
)  # optional packages; without them, readers find less
_MAX_ENTRY_BYTES = 1 << 30  # bytes of an entry, once decompressed
_TAG_NAME = "CACHEDIR.TAG"
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Made by virtualstack.scanning; it may be deleted at any time.\n"
_DAMAGE = (
    ManifestError,
    CodecError,
    ValueError,
    TypeError,
    LookupError,
    OverflowError,
    RecursionError,
)  # errors that forged JSON may cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCache:
    """Cache with one object for each source, named by a hash of its URL and of how it was reached and read.

    An object holds the version (size, etag, times, inode) of every file that was opened, including files that the
    source refers to. It also holds the group, as JSON and packed columns with a checksum, compressed. Nothing in an
    object can be executed. Objects that are damaged or of another format are written again.
    """

    target: Target
    how: str
    storage: Storage = field(default_factory=Storage)
    marks: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""
    is_checked: bool = True

    @classmethod
    def at(
        cls,
        place: str | os.PathLike[str],
        storage: Storage,
        reader: Reader | None,
        options: ReadOptions,
        /,
        *,
        is_checked: bool,
    ) -> ScanCache:
        """Open the cache in a directory or under a URL."""
        target = storage.target(place)
        try:
            target.put(_TAG_NAME, _TAG)
        except StorageError as error:
            if not _has_tag(target):  # with the tag, this is a read-only cache: new results are not stored
                raise StorageError(
                    f"cache='{os.fspath(place)}' cannot be created or written: {error.__cause__ or error}. "
                    "Give another folder",
                    url=target.url,
                ) from error
        how = {
            "format": _FORMAT_VERSION,
            "version": version("virtualstack"),
            "reader": _identify_reader(reader),
            "options": {field.name: getattr(options, field.name) for field in fields(options)},
            "installed": [name for name in _OPTIONAL if find_spec(name) is not None],
        }
        return cls(
            target=target,
            how=json.dumps(how, default=sorted),
            storage=storage,
            marks=hash_backends(storage),
            environment=hash_environment(),
            is_checked=is_checked,
        )

    def watch(self, storage: Storage, /) -> WatchedStorage:
        """Return a storage that records the versions for an entry of the cache."""
        return WatchedStorage(
            storage.given,
            storage.carried,
            storage.kept,
            storage.stale,
            storage.permissions,
            storage.named,
            storage.opened,
        )

    def load(self, url: str, storage: Storage, /) -> ManifestGroup | None:
        """Return the group of a source, or ``None`` if the cache has no entry or the files have changed.

        This reads one object of the cache, and makes one request for each file that was opened to make it.
        """
        try:
            data = self.target.get(self._key(url))
        except StorageError:
            return None
        try:
            header, heap = _parse(data)
            if header["what"] != self._what(url):
                return None
            versions = {key: _to_version(x) for key, x in to_mapping(header["versions"]).items()}
            if header["surroundings"] != surroundings(url, versions) or header["reached"] != self._reached(versions):
                return None
            if self.is_checked and not is_unchanged(versions, url, storage):
                return None
            return to_group(header["group"], heap)
        except StorageError:
            raise
        except _DAMAGE:
            return None

    def store(self, url: str, group: ManifestGroup, storage: WatchedStorage, /) -> None:
        """Store a group, unless its attributes have no plain form, or changes of its files could not be detected."""
        if url not in storage.seen or not all(x is None or x.is_known for x in storage.seen.values()):
            return
        heap = Heap()
        try:
            header = orjson.dumps(
                {
                    "what": self._what(url),
                    "versions": {key: x and astuple(x) for key, x in storage.seen.items()},
                    "surroundings": surroundings(url, storage.seen),
                    "reached": self._reached(storage.seen),
                    "group": from_group(group, heap),
                }
            )
        except (UnstorableError, orjson.JSONEncodeError, UnicodeEncodeError):
            return
        try:
            self.target.put(self._key(url), _build(header, heap))
        except StorageError as error:
            warn(f"the result of '{url}' could not be cached, so the next scan reads this file again: {error}")

    def _what(self, url: str) -> str:
        return "\n".join((url, *self._reached([url]), self.how))

    def _reached(self, urls: Iterable[str]) -> list[str]:
        marks = [self.marks.get(self.storage.find(url)[0], "") for url in urls]
        return marks if all(map(local_path, urls)) else [*marks, self.environment]

    def _key(self, url: str) -> str:
        name = hashlib.blake2b(self._what(url).encode(), digest_size=16).hexdigest()
        return f"{name[:2]}/{name[2:]}.scan"


def _has_tag(target: Target) -> bool:
    try:
        return target.get(_TAG_NAME) == _TAG
    except StorageError:
        return False


def _identify_reader(reader: Reader | None) -> list[str]:
    """Return text that identifies the reader with its options, or all known readers if no reader is given."""
    if reader is None:
        return [f"{row.name} {row.target}" for row in list_readers()]
    try:
        options = hashlib.blake2b(pickle.dumps(reader), digest_size=16).hexdigest()  # `repr` may omit some options
    except Exception:  # noqa: BLE001 - classes of other packages may raise any error
        options = uuid.uuid4().hex  # no later scan finds these entries
    return [type(reader).__module__, type(reader).__qualname__, repr(reader), options]


def _build(header: bytes, heap: Heap) -> bytes:
    body = b"".join((len(header).to_bytes(8, "little"), header, *heap.parts))
    packed: bytes = zstd.compress(body, 1)
    return _MAGIC + hashlib.blake2b(packed, digest_size=16).digest() + packed


def _parse(data: bytes) -> tuple[Mapping[str, Any], memoryview]:
    packed = memoryview(data)[len(_MAGIC) + 16 :]
    if not data.startswith(_MAGIC + hashlib.blake2b(packed, digest_size=16).digest()):
        raise ValueError("it was not written by virtualstack, or it is damaged")
    body = memoryview(decode_zstd(packed, None, _MAX_ENTRY_BYTES))
    length = int.from_bytes(body[:8], "little")
    header = orjson.loads(body[8 : 8 + length])
    return header, body[8 + length :]


def _to_version(data: Json) -> Version | None:
    if data is None:
        return None
    size, etag, last_modified, stamp = data
    return Version(size, etag, last_modified, None if stamp is None else tuple(stamp))
