"""Keep bytes in memory: as a source, as an object that travels with arrays, and as the ``memory://`` target."""

from __future__ import annotations

import hashlib
import importlib
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage.source import ByteRange, Bytes, Source, check_ranges, check_version
from virtualstack.storage.target import PlainTarget, check_most
from virtualstack.storage.threads import LimitedLookup

_OBJECTS: dict[str, bytes] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, repr=False)
class MemorySource:
    """A source over bytes in memory; its pickle contains the bytes.

    Parameters
    ----------
    data
        The whole source.
    url
        URL of the source in errors and manifests.

    Examples
    --------
    >>> MemorySource(b"abcdef").read(2, 3)
    b'cde'
    """

    data: bytes
    url: str = "memory://bytes"

    @property
    def location(self) -> Location:
        """The URL and the size; the etag is a digest of the bytes."""
        return Location(self.url, size=len(self.data), etag=hashlib.sha1(self.data, usedforsecurity=False).hexdigest())

    @property
    def size(self) -> int:
        """The size of the whole source in bytes."""
        return len(self.data)

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``."""
        check_ranges([(offset, length)], url=self.url, size=self.size)
        return self.data[offset : offset + length]

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges in the order given, without copies."""
        view = memoryview(self.data)
        table = check_ranges(ranges, url=self.url, size=self.size)
        return [view[offset : offset + length] for offset, length in table.tolist()]

    def __repr__(self) -> str:
        return f"MemorySource('{self.url}', {self.size} bytes)"


_MAX_PICKLED_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, repr=False)
class HeldBytes:
    """The bytes of a file that has no URL, such as a BytesIO; arrays carry them along.

    It pickles if it is small.
    """

    url: str
    data: bytes

    def source(self, url: str, /) -> MemorySource:
        """Return the bytes as the source at their URL."""
        if url != self.url:
            raise SourceNotFoundError(f"there is nothing at '{url}', only the bytes at '{self.url}'", url=url)
        return MemorySource(self.data, url)

    def __reduce__(self) -> tuple[object, ...]:
        if len(self.data) > _MAX_PICKLED_BYTES:
            raise StorageError(
                f"{self!r} has more than the {_MAX_PICKLED_BYTES >> 20} MiB that are sent to other processes. Write "
                "it to a file or an object store and open it there, or use threads",
                url=self.url,
            )
        return type(self), (self.url, self.data)

    def __repr__(self) -> str:
        return f"HeldBytes('{self.url}', {len(self.data)} bytes)"


@dataclass(frozen=True, slots=True)
class MemoryTarget(PlainTarget):
    """Objects under a ``memory://`` URL, shared by the whole process and lost at its end."""

    url: str

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole object."""
        source = _written(self._url(key))
        check_most(source.size, most, url=source.url)
        return source.data

    def list(self, prefix: str = "", /) -> list[str]:
        """List the keys in the folder ``prefix`` and below it, sorted."""
        root = self.url + (prefix.rstrip("/") + "/" if prefix else "")
        with _LOCK:
            return sorted(url[len(self.url) :] for url in _OBJECTS if url.startswith(root))

    def first(self, prefix: str = "", /) -> str | None:
        """Return the first key in the folder ``prefix`` and below it, or ``None``."""
        return next(iter(self.list(prefix)), None)

    def entries(self, prefix: str = "", /) -> Sequence[tuple[str, bool]]:
        """List the names in the folder ``prefix``, each with whether it is a folder."""
        start = len(prefix.rstrip("/")) + 1 if prefix else 0
        return sorted({(name, bool(slash)) for name, slash, _ in (x[start:].partition("/") for x in self.list(prefix))})

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List the objects in the folder ``prefix`` and below it, with size and etag of each."""
        return {key: _written(self.url + key).location for key in self.list(prefix)}

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Write an object and replace an existing one."""
        url = self._url(key)
        with _LOCK:
            _OBJECTS[url] = bytes(data)

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Write an object unless the key exists, and return whether it was written."""
        url = self._url(key)
        with _LOCK:
            return url not in _OBJECTS and _OBJECTS.setdefault(url, bytes(data)) is not None

    def delete(self, key: str, /) -> None:
        """Delete an object; nothing happens if it does not exist."""
        url = self._url(key)
        with _LOCK:
            _OBJECTS.pop(url, None)


def open_source(url: str, backend: object | None, prefix: str, expected: Location | None, /) -> Source:
    """Open bytes that arrays carry along, or an object that this process wrote to ``memory://``."""
    if isinstance(backend, HeldBytes):
        source = backend.source(url)
    else:
        fsspec: Any = sys.modules.get("fsspec.implementations.memory")
        if fsspec is not None and url not in _OBJECTS and fsspec.MemoryFileSystem().isfile(url):
            module = importlib.import_module("virtualstack.storage.fsspec")
            return cast(Source, module.open_source(url, fsspec.MemoryFileSystem(), prefix, expected))
        source = _written(url)
    check_version(expected, source.location)
    return source


def _written(url: str) -> MemorySource:
    with _LOCK:
        data = _OBJECTS.get(url)
    if data is None:
        raise SourceNotFoundError(f"there is nothing at '{url}'; memory:// holds what this process wrote", url=url)
    return MemorySource(data, url)


def look_up(urls: Sequence[str], backend: object | None, prefix: str, /) -> list[Location | StorageError]:
    """Return the current version of each URL, or an error."""
    return list(map(LimitedLookup(lambda url: open_source(url, backend, prefix, None).location), urls))


def open_target(url: str, backend: object | None, prefix: str, /) -> MemoryTarget:
    """Return the target at a root URL."""
    if isinstance(backend, HeldBytes):
        raise StorageError(f"'{url}': {backend!r} can only be read", url=url)
    return MemoryTarget(url)
