"""Read and write through fsspec filesystems, which a user passes or the scheme of a URL names."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import fsspec
import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.spec import AbstractFileSystem
from numpy.typing import NDArray

from virtualstack.errors import AccessDeniedError, Remedy, SourceNotFoundError, StorageError
from virtualstack.location import Location, split_url
from virtualstack.storage.backends import key_in
from virtualstack.storage.source import (
    ByteRange,
    Bytes,
    DirectoryError,
    ManyRangesSource,
    check_version,
)
from virtualstack.storage.target import PlainTarget, UnlistableError, check_conditions, check_most
from virtualstack.storage.threads import LimitedLookup, concurrently

_MIN_FILES_PER_LISTING = 4  # requests for one file each


@dataclass(frozen=True, slots=True)
class FsspecSource(ManyRangesSource):
    """A file of an fsspec filesystem; it pickles if the filesystem does."""

    filesystem: AbstractFileSystem = field(repr=False)
    location: Location
    path: str

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges with ``cat_ranges``, which reads concurrently if the filesystem is asynchronous."""
        return self._filled(ranges, self._fetch)

    def _fetch(self, starts: list[int], lengths: list[int]) -> list[bytes]:
        url, bounds = self.location.url, (starts, [x + n for x, n in zip(starts, lengths, strict=True)])
        filesystem = _of_this_process(self.filesystem, url)
        with _storage_errors(url):
            if not _takes_ranges(filesystem):
                return _read_open(filesystem, self.path, *bounds)
            answers: list[bytes] = filesystem.cat_ranges([self.path] * len(starts), *bounds, on_error="return")
        for answer in answers:
            if isinstance(answer, Exception):
                raise _translated(answer, url) from answer
        return answers


def _takes_ranges(filesystem: AbstractFileSystem, /) -> bool:
    """Return whether a filesystem reads ranges of files; that of sshfs returns whole files instead."""
    method = filesystem._cat_file if filesystem.async_impl else filesystem.cat_file
    return _has_start(getattr(method, "__func__", method))


@lru_cache(maxsize=64)
def _has_start(function: Callable[..., object]) -> bool:
    return "start" in inspect.signature(function).parameters


def _read_open(filesystem: AbstractFileSystem, path: str, starts: list[int], ends: list[int], /) -> list[bytes]:
    """Read ranges from an open file."""
    found = []
    with filesystem.open(path, "rb") as file:
        for start, end in zip(starts, ends, strict=True):
            file.seek(start)
            found.append(file.read(end - start))
    return found


@dataclass(frozen=True, slots=True)
class FsspecTarget(PlainTarget):
    """Objects under a URL of an fsspec filesystem."""

    filesystem: AbstractFileSystem = field(repr=False)
    url: str

    @property
    def is_listed(self) -> bool:
        """True if the keys can be listed. False for web servers, which cannot list their files."""
        return not _is_web(self._filesystem)

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole object."""
        with _storage_errors(self._url(key)):
            data = bytes(self._filesystem.cat_file(self._path(key), end=None if most is None else most + 1))
        check_most(len(data), most, url=self._url(key))
        return data

    def list(self, prefix: str = "", /) -> list[str]:
        """List the keys in the folder ``prefix`` and below it, sorted."""
        return sorted(self.contents(prefix))

    def first(self, prefix: str = "", /) -> str | None:
        """Return the first key in the folder ``prefix`` and below it, or ``None``; all keys are listed for it."""
        return next(iter(self.list(prefix)), None)

    def entries(self, prefix: str = "", /) -> Sequence[tuple[str, bool]]:
        """List the names in the folder ``prefix``, each with whether it is a folder."""
        self._check_listable()
        with _storage_errors(self.url), contextlib.suppress(FileNotFoundError):
            self._filesystem.invalidate_cache()
            folder = _path(self._filesystem, self.url + prefix).rstrip("/")
            rows = {str(row["name"]).rstrip("/"): row.get("type") for row in self._filesystem.ls(folder, detail=True)}
            return [(x.rpartition("/")[2], kind == "directory") for x, kind in rows.items() if x != folder]
        return []

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List the objects in the folder ``prefix`` and below it, with size, etag and modification time of each."""
        self._check_listable()
        root = _path(self._filesystem, self.url).rstrip("/") + "/"
        with _storage_errors(self.url), contextlib.suppress(FileNotFoundError):
            self._filesystem.invalidate_cache()
            rows = self._filesystem.find(root + prefix.rstrip("/"), detail=True)
            keys = [path.removeprefix(root) for path in rows]
            return {key: _row_location(self.url + key, row) for key, row in zip(keys, rows.values(), strict=True)}
        return {}

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Write an object and replace an existing one; the write is atomic only if the filesystem writes atomically."""
        self._pipe(key, data, "overwrite")

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Write an object unless the key exists, and return whether it was written."""
        check_conditions(self, key, server=self._filesystem, create=self._create)
        return self._create(key, data)

    def _create(self, key: str, data: bytes | bytearray | memoryview) -> bool:
        try:
            self._pipe(key, data, "create")
        except FileExistsError:
            return False
        return True

    def delete(self, key: str, /) -> None:
        """Delete an object; nothing happens if it does not exist."""
        with _storage_errors(self._url(key)), contextlib.suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(key))

    @property
    def _filesystem(self) -> AbstractFileSystem:
        return _of_this_process(self.filesystem, self.url)

    def _check_listable(self) -> None:
        if not self.is_listed:
            raise UnlistableError.at(self.url)

    def _pipe(self, key: str, data: bytes | bytearray | memoryview, mode: str) -> None:
        path = self._path(key)
        with _storage_errors(self._url(key)):
            try:
                self._filesystem.pipe_file(path, bytes(data), mode=mode)
            except FileNotFoundError:  # the folder does not exist
                self._filesystem.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._filesystem.pipe_file(path, bytes(data), mode=mode)

    def _path(self, key: str) -> str:
        return _path(self._filesystem, self._url(key))


type Backend = AbstractFileSystem | Mapping[str, Any] | None
"""A filesystem; or options of the filesystem that the scheme of a URL names."""


def check_scheme(url: str, /) -> None:
    """Raise an error if fsspec has no filesystem for the scheme of a URL, or if a package for it is not installed."""
    scheme = url.partition("://")[0]
    if "::" in url:
        raise StorageError(
            f"'{url}' is a chained URL of an unsupported kind. Supported are members of zip and tar archives "
            "(zip://a.nc::s3://bucket/x.zip), and caches before a URL, which are ignored",
            Remedy("give the URL of a file"),
            url=url,
        )
    if scheme == "reference":
        raise StorageError(
            f"'{url}': fsspec's filesystem of references is not needed. Open the references themselves: their URL, or "
            "a dict of them",
            url=url,
        )
    try:
        fsspec.get_filesystem_class(scheme)
    except ImportError as error:
        raise StorageError(f"'{url}': {error}, which fsspec needs for '{scheme}://'", url=url) from error
    except ValueError as error:
        raise StorageError(
            f"'{url}': no storage is known for '{scheme}://'. The known schemes are file, memory, s3, gs, az, abfs, "
            "http, https, and those of fsspec. For other schemes give an fsspec filesystem: storage={'scheme://': "
            "filesystem}",
            url=url,
        ) from error


def _filesystem(url: str, backend: Backend) -> AbstractFileSystem:
    if isinstance(backend, AbstractFileSystem):
        return _of_this_process(backend, url)
    with _storage_errors(url):
        try:
            return url_to_fs(url, **(backend or {}))[0]
        except (ImportError, TypeError) as error:
            raise StorageError(
                f"'{url}': its fsspec filesystem cannot be created: {error}. Give its options: "
                f'storage={{"{split_url(url)[0]}": {{...}}}}',
                url=url,
            ) from error


def _path_in(filesystem: AbstractFileSystem, url: str, prefix: str) -> str:
    """Return the path of a URL in a filesystem; one of a folder serves what is under its prefix."""
    if not isinstance(filesystem, DirFileSystem):
        return _path(filesystem, url)
    return key_in(prefix, url)


def open_source(url: str, backend: Backend, prefix: str, expected: Location | None, /) -> FsspecSource:
    """Open a file of a filesystem; its version is requested first, as the bytes come without a version."""
    filesystem = _filesystem(url, backend)
    path = _path_in(filesystem, url, prefix)
    with _storage_errors(url):
        info = filesystem.info(path)
    if info.get("type") == "directory":
        raise DirectoryError.at(url)
    if info.get("size") is None:
        raise StorageError(f"'{url}': its server does not report its size. Download it first", url=url)
    found = _row_location(url, info)
    source = FsspecSource(filesystem, found, path)
    check_version(expected, found, source.read)
    return source


def look_up(urls: Sequence[str], backend: Backend, prefix: str, /) -> list[Location | StorageError]:
    """Return the current version of each URL, or an error; folders with several of the URLs are listed."""
    filesystem = _filesystem(urls[0], backend)
    filesystem.invalidate_cache()
    found: dict[str, Location | StorageError] = {}
    folders: dict[str, list[str]] = {}
    for url in urls:
        folders.setdefault(url.rpartition("/")[0], []).append(url)
    listable = (
        {}
        if _is_web(filesystem) or isinstance(filesystem, DirFileSystem)
        else {x: each for x, each in folders.items() if len(each) >= _MIN_FILES_PER_LISTING}
    )
    for listed in concurrently(lambda item: _listed(filesystem, *item), list(listable.items()), urls[:1]):
        found |= listed
    ask = LimitedLookup(lambda url: open_source(url, filesystem, prefix, None).location)
    left = [url for url in dict.fromkeys(urls) if url not in found]
    found |= zip(left, concurrently(ask, left, urls[:1]), strict=True)
    return [found[url] for url in urls]


def _listed(backend: AbstractFileSystem, folder: str, urls: Sequence[str]) -> dict[str, Location | StorageError]:
    try:
        with _storage_errors(folder):
            rows = {str(row["name"]): row for row in backend.ls(_path(backend, folder), detail=True)}
    except StorageError:
        return {}
    paths = {url: rows.get(_path(backend, url)) for url in urls}
    return {
        url: _row_location(url, row)
        for url, row in paths.items()
        if row is not None and row.get("type") == "file" and row.get("size") is not None
    }


def _row_location(url: str, row: Mapping[str, Any]) -> Location:
    size = row.get("size")
    return Location(url, None if size is None else int(size), row.get("ETag") or row.get("etag"), _modified(row))


def _is_web(backend: AbstractFileSystem) -> bool:
    protocol = backend.protocol
    return "http" in ((protocol,) if isinstance(protocol, str) else protocol)


def open_target(url: str, backend: Backend, prefix: str, /) -> FsspecTarget:
    """Return the target at a root URL; no request is made."""
    filesystem = _filesystem(url, backend)
    if isinstance(filesystem, DirFileSystem):
        raise StorageError(
            f"'{url}': a DirFileSystem can only be read. To write or to list files, give the filesystem of its folder",
            url=url,
        )
    return FsspecTarget(filesystem, url)


def _of_this_process(filesystem: AbstractFileSystem, url: str) -> AbstractFileSystem:
    """Return a filesystem that works in this process; if it has an event loop, it is made again after a fork."""
    if not filesystem.async_impl or getattr(filesystem, "_pid", None) == os.getpid():
        return filesystem
    try:
        return pickle.loads(pickle.dumps(filesystem))  # the filesystem's own way to another process
    except Exception as error:  # unpickling may raise any class of error
        raise StorageError(
            f"'{url}': the {type(filesystem).__name__} in storage= was opened by the process that this one was "
            f"forked from, and cannot be opened again ({error!r}). Give a filesystem that can be pickled, or open it "
            "after the fork",
            url=url,
        ) from error


def _path(filesystem: AbstractFileSystem, url: str) -> str:
    return str(filesystem._strip_protocol(url))  # fsspec documents this method for this use; it has no public name


def _modified(info: Mapping[str, Any]) -> float | None:
    value = info.get("LastModified", info.get("mtime"))
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, int | float) else None


@contextlib.contextmanager
def _storage_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (StorageError, FileExistsError):
        raise
    except Exception as error:  # filesystems let errors of their libraries through, such as those of ftplib
        raise _translated(error, url) from error


def _translated(error: Exception, url: str) -> StorageError:
    """Return the error of a filesystem with its URL and what to do."""
    if isinstance(error, FileNotFoundError):
        return SourceNotFoundError(f"there is nothing at '{url}': {error}", Remedy("check the URL"), url=url)
    if isinstance(error, PermissionError):
        return AccessDeniedError(
            f"'{url}': access denied: {error}",
            Remedy("give {} a filesystem whose credentials have access", storage=...),
            url=url,
        )
    return StorageError(
        f"'{url}' cannot be reached: {error!r}",
        Remedy("check the URL, and the options or the filesystem in", storage=...),
        url=url,
    )
