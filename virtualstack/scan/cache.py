"""Groups that were found before, by source and by how it was read; an entry is used while its sources stay the same."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import orjson
from numcodecs import zstd

from virtualstack.codecs.bounded import CodecError, bounded_decoder
from virtualstack.codecs.metadata import Codec
from virtualstack.errors import ManifestError, SourceNotFoundError, StorageError
from virtualstack.location import Location, absolute_url, local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.readers.base import Reader, ReadOptions
from virtualstack.readers.registry import list_readers
from virtualstack.scan.plain_groups import from_group, from_location, to_group, to_location
from virtualstack.scan.plain_values import Heap, UnstorableError
from virtualstack.storage import Source, Storage, Target

__all__ = ["ScanCache", "WatchedStorage"]

_FORMAT = 1  # another number, and entries of this one are not looked at
_MAGIC = b"vs.scan\n"
_OPTIONAL = ("eccodes", "hdf5plugin", "imagecodecs", "tifffile")  # without them, readers refuse some variables
_MAX_SIZE = 1 << 30  # bytes of an entry, once decompressed
_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Made by virtualstack.scan; it may be deleted at any time.\n"
_DAMAGE = (  # all that bytes of somebody else can make of JSON, numpy and our own constructors
    ManifestError, CodecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
    MemoryError,
)  # fmt: skip

type _Versions = dict[str, Location | None]


@dataclass(frozen=True, slots=True, repr=False)
class WatchedStorage(Storage):
    """A storage that notes what was opened: URL and version, ``None`` where there was nothing."""

    seen: _Versions = field(default_factory=dict, compare=False)

    def source(self, url: str | os.PathLike[str], /, *, expected: Location | None = None) -> Source:
        """Open what is at a URL or local path."""
        key = absolute_url(url)
        try:
            source = Storage.source(self, url, expected=expected)
        except SourceNotFoundError:
            self.seen.setdefault(key, None)
            raise
        self.seen.setdefault(key, source.location)
        return source


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanCache:
    """One object for each source, named by a hash of its URL, and of the reader, its options and what is installed.

    It holds the version (size, etag, time of modification) of every file that was opened, those that the source points
    to included, and the group: JSON and packed columns under a checksum, compressed. Nothing in it runs; what
    is damaged or was written by others is written anew.

    Parameters
    ----------
    target
        Where the objects are.
    how
        How sources are read, as text.
    is_checked
        Whether versions are compared with what is there now.
    """

    target: Target
    how: str
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
        """Open the cache in a directory or under a URL.

        Raises
        ------
        StorageError
            It cannot be written to.
        """
        target = storage.target(place)
        target.put_if_absent("CACHEDIR.TAG", _TAG)
        how = {
            "format": _FORMAT,
            "version": version("virtualstack"),
            "reader": _words_of(reader),
            "options": {field.name: getattr(options, field.name) for field in fields(options)},
            "installed": [name for name in _OPTIONAL if find_spec(name) is not None],
        }
        return cls(target=target, how=json.dumps(how, default=sorted), is_checked=is_checked)

    def watch(self, storage: Storage, /) -> WatchedStorage:
        """Give the storage to read a source with that is to be stored."""
        return WatchedStorage(storage.given, storage.remembered, storage.kept)

    def load(self, url: str, storage: Storage, /) -> ManifestGroup | None:
        """Give the group of a source, or ``None`` where there is none or its files have changed.

        One object of the cache, and one request for each file that was opened to make it.
        """
        try:
            data = self.target.get(self._key(url))
        except StorageError:
            return None
        try:
            header, heap = _parse(data)
            if header["what"] != self._what(url):
                return None
            versions = {key: None if x is None else to_location(x) for key, x in header["versions"].items()}
            if self.is_checked and not all(_is_same(key, x, storage) for key, x in versions.items()):
                return None
            return to_group(header["group"], heap)
        except StorageError:
            raise
        except _DAMAGE:
            return None

    def store(self, url: str, group: ManifestGroup, storage: WatchedStorage, /) -> None:
        """Keep a group; it is not, where it has attributes without a plain form, or may change with files not seen."""
        if not _is_all_seen(url, group, storage.seen):
            return
        heap = Heap()
        try:
            header = orjson.dumps(
                {
                    "what": self._what(url),
                    "versions": {key: x and from_location(x) for key, x in storage.seen.items()},
                    "group": from_group(group, heap),
                }
            )
        except (UnstorableError, orjson.JSONEncodeError, UnicodeEncodeError):
            return
        try:
            self.target.put(self._key(url), _build(header, heap))
        except StorageError as error:
            warnings.warn(
                f"what was found in '{url}' is not kept for the next scan: {error}", UserWarning, stacklevel=2
            )

    def _what(self, url: str) -> str:
        return f"{url}\n{self.how}"

    def _key(self, url: str) -> str:
        name = hashlib.blake2b(self._what(url).encode(), digest_size=16).hexdigest()
        return f"{name[:2]}/{name[2:]}.scan"


def _words_of(reader: Reader | None) -> list[str]:
    """Say which reader it is, with its options; those that it is found among, where it is not given."""
    if reader is None:
        return [f"{row.name} {row.target}" for row in list_readers()]
    try:
        options = hashlib.blake2b(pickle.dumps(reader), digest_size=16).hexdigest()  # `repr` may leave some out
    except Exception:  # noqa: BLE001 - classes of others raise what they like
        options = uuid.uuid4().hex  # nothing is found again
    return [type(reader).__module__, type(reader).__qualname__, repr(reader), options]


def _build(header: bytes, heap: Heap) -> bytes:
    body = b"".join((len(header).to_bytes(8, "little"), header, *heap.parts))
    packed: bytes = zstd.compress(body, 1)
    return _MAGIC + hashlib.blake2b(packed, digest_size=16).digest() + packed


def _parse(data: bytes) -> tuple[Mapping[str, Any], memoryview]:
    packed = memoryview(data)[len(_MAGIC) + 16 :]
    if not data.startswith(_MAGIC + hashlib.blake2b(packed, digest_size=16).digest()):
        raise ValueError("it is none of ours, or damaged")
    decode = bounded_decoder(Codec("zstd"))
    if decode is None:
        raise RuntimeError("zstd is a codec of ours")
    body = memoryview(decode(packed, None, _MAX_SIZE))
    length = int.from_bytes(body[:8], "little")
    header = orjson.loads(body[8 : 8 + length])
    return header, body[8 + length :]


def _is_all_seen(url: str, group: ManifestGroup, seen: _Versions) -> bool:
    """Whether the group depends on nothing but files that were opened through the storage.

    The sources of a virtual dataset (VDS) in a local HDF5 file are not: the reader looks on its own which ones exist.
    They were found (other local files), or some were not (a refusal), or none that make an array longer.
    """
    if local_path(url) is None:
        return True
    nodes = [node for _, node in group.walk()]
    return (
        not any(local_path(other) is not None and other != url for other in seen)
        and all(array.size for node in nodes for array in node.arrays.values())
        and not any("(VDS)" in refusal.reason for node in nodes for refusal in node.refusals)
    )


def _is_same(url: str, before: Location | None, storage: Storage) -> bool:
    """Whether a file is what it was: its size, and its etag or time, are known and the same."""
    try:
        now = storage.source(url).location
    except SourceNotFoundError:
        return before is None
    if before is None or now.size != before.size:
        return False
    tags = [(before.etag, now.etag), (before.last_modified, now.last_modified)]
    known = [(old, new) for old, new in tags if old is not None and new is not None]
    return bool(known) and all(old == new for old, new in known)
