"""Read local files as sources, and write to local directories as targets."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import (
    AccessDeniedError,
    ForbiddenLocationError,
    Remedy,
    SourceNotFoundError,
    StorageError,
    VirtualStackError,
)
from virtualstack.location import Location, absolute_url, local_path
from virtualstack.storage.atomic import LOCK_FILE, TEMPORARY_PREFIX, link_if_absent, sync_folders, temporary_file
from virtualstack.storage.folders import files_below, list_folder
from virtualstack.storage.source import (
    ByteRange,
    Bytes,
    DirectoryError,
    check_lengths,
    check_ranges,
    check_version,
)
from virtualstack.storage.target import PlainTarget, check_most
from virtualstack.storage.threads import LimitedLookup
from virtualstack.system import READ_FLAGS, in_forked_children, path_in_url, pread, read_into

_MAX_OPEN = 128  # descriptors kept; a process may have 1024, and an archive 10^5 files


class _Descriptor:
    """An open file, which is closed when nothing refers to it any more.

    `pread` does not move a file position, so threads and forked processes may share the descriptor.
    """

    __slots__ = ("__weakref__", "number", "status")

    def __init__(self, path: Path, url: str) -> None:
        with FileErrors(url, "read"):
            _check_regular(path.stat(), url)  # before opening: opening a FIFO would wait for its writer
            self.number = os.open(path, READ_FLAGS)
            # This closes the file without Python code: in `__del__`, Ctrl-C would be lost.
            close = functools.partial(next, map(os.close, (self.number,)))
            _CLOSING[self.number] = weakref.ref(self, close)
            self.status = os.fstat(self.number)


_CLOSING: dict[int, weakref.ref[_Descriptor]] = {}
"""References by descriptor number; the system reuses a number for the next file."""

_OPEN: OrderedDict[int, tuple[_Descriptor, weakref.ref[LocalSource]]] = OrderedDict()
"""Open descriptors by the id of the source; an entry is removed with its source."""

_LOCK = threading.Lock()
in_forked_children(lambda: globals().update(_LOCK=threading.Lock()))


class LocalSource:
    """A local file; made by `open_source`.

    A process holds at most 128 files open, however many sources it has. A closed file is opened again when needed,
    and `check_version` must then still hold.
    """

    __slots__ = ("__weakref__", "_path", "location", "stamp")

    def __init__(self, location: Location, stamp: tuple[int, int] | None = None) -> None:
        path = local_path(location.url)
        if path is None or location.size is None:
            raise ValueError(f"{location} is not the location of a local file with its size")
        self._path = path
        self.location = location
        self.stamp = stamp

    @property
    def size(self) -> int:
        """The size of the whole source in bytes."""
        return self.location.size or 0

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``."""
        if not (offset >= 0 and 0 <= length <= self.size - offset):
            check_ranges([(offset, length)], url=self.location.url, size=self.size)  # raises an error with the reason
        if (reads := self.location.reads) is not None:
            reads.note((offset, length))
        file = self._descriptor()
        with FileErrors(self.location.url, "read"):
            data = _pread(file.number, offset, length)
        if len(data) != length:
            check_lengths([length], [data], url=self.location.url)
        return data

    def read_into(self, offset: int, target: memoryview, /) -> None:
        """Fill all of ``target`` with the bytes from ``offset`` on."""
        length = target.nbytes
        if not 0 <= offset <= self.size - length:
            check_ranges([(offset, length)], url=self.location.url, size=self.size)
        if (reads := self.location.reads) is not None:
            reads.note((offset, length))
        file = self._descriptor()
        done = 0
        with FileErrors(self.location.url, "read"):
            while done < length:  # Linux reads 2 GiB less a page at a time
                n = read_into(file.number, target[done:], offset + done)
                if not n:
                    check_lengths([length], [target[:done]], url=self.location.url)
                done += n

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges in the order given."""
        table = check_ranges(ranges, url=self.location.url, size=self.size)
        if not len(table):
            return []
        if (reads := self.location.reads) is not None:
            reads.note(table)
        file = self._descriptor()
        with FileErrors(self.location.url, "read"):
            offsets, lengths = table[:, 0].tolist(), table[:, 1].tolist()
            got: list[Bytes] = list(map(pread, repeat(file.number), lengths, offsets))
            if list(map(len, got)) != lengths:
                got = [_pread(file.number, offset, length) for offset, length in table.tolist()]
                check_lengths(lengths, got, url=self.location.url)
        return got

    def _descriptor(self) -> _Descriptor:
        with _LOCK:
            found = _OPEN.get(id(self))
            if found is not None:
                _OPEN.move_to_end(id(self))
                return found[0]
        file = _Descriptor(self._path, self.location.url)
        check_version(self.location, location_from(self.location.url, file.status))
        self.keep(file)
        return file

    def keep(self, file: _Descriptor) -> None:
        """Hold a descriptor of this file open, and close the least recently used one if there are too many."""
        # Called with the reference itself, which is the default value of `pop`; no Python code runs, as above.
        forget = functools.partial(_OPEN.pop, id(self))
        with _LOCK:
            _OPEN[id(self)] = file, weakref.ref(self, forget)
            closing = _OPEN.popitem(last=False)[1] if len(_OPEN) > _MAX_OPEN else None
        del closing  # outside of the lock: closing may take long on a network file system

    def __reduce__(self) -> tuple[type[Self], tuple[Location]]:
        return type(self), (self.location,)

    def __repr__(self) -> str:
        return f"LocalSource('{self.location.url}', {self.size} bytes)"


def open_source(url: str, backend: object | None, prefix: str, expected: Location | None, /) -> LocalSource:
    """Open a local file by its ``file://`` URL."""
    path = _path(url)
    file = _Descriptor(path, url)
    source = LocalSource(location_from(url, file.status), (file.status.st_ino, file.status.st_ctime_ns))
    check_version(expected, source.location)
    source.keep(file)
    return source


def read_local(url: str, offset: int, length: int, /, *, expected: Location) -> bytes:
    """Read one range of a local file without keeping it open; errors are the same as for `open_source` and reading.

    The version is checked just before the file is opened.
    """
    path = _path(url)
    with FileErrors(url, "read"):
        status = path.stat()
        if status.st_size != expected.size or status.st_mtime != expected.last_modified or expected.url != url:
            check_version(expected, location_from(url, status))
        if not (stat.S_ISREG(status.st_mode) and offset >= 0 and 0 <= length <= status.st_size - offset):
            _check_regular(status, url)
            check_ranges([(offset, length)], url=url, size=status.st_size)  # raises an error with the reason
        number = os.open(path, READ_FLAGS)
        try:
            data = _pread(number, offset, length)
        finally:
            os.close(number)
    if len(data) != length:
        check_lengths([length], [data], url=url)
    return data


def look_up_local(url: str, /) -> Location:
    """Return the location of a local file without opening it; errors are the same as for `open_source`."""
    path = _path(url)
    with FileErrors(url, "read"):
        status = path.stat()
        _check_regular(status, url)
        if not os.access(path, os.R_OK):
            raise PermissionError(url)
    return location_from(url, status)


def look_up(urls: Sequence[str], backend: object | None, prefix: str, /) -> list[Location | StorageError]:
    """Return the current version of each file, or an error."""
    return list(map(LimitedLookup(look_up_local), urls))


def open_target(url: str, backend: object | None, prefix: str, /) -> LocalTarget:
    """Return the target at a folder; nothing is made yet."""
    return LocalTarget(url)


def _path(url: str) -> Path:
    path = local_path(url)
    if path is None:
        raise StorageError(f"'{url}' is not the URL of a local file ('file:///...')", url=url)
    return path


def location_from(url: str, status: os.stat_result, /) -> Location:
    """Return the location of a file with the size and the time of modification that the system tells."""
    return Location(url, size=status.st_size, last_modified=status.st_mtime)


def _pread(number: int, offset: int, length: int) -> bytes:
    data = pread(number, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]  # Linux returns at most 2 GiB at once, network file systems sometimes less
    done = len(data)
    while done < length and (data := pread(number, length - done, offset + done)):
        parts.append(data)
        done += len(data)
    return b"".join(parts)


def _check_regular(status: os.stat_result, url: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise DirectoryError.at(url)
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(
            f"'{url}' is a pipe, socket or device, which has no byte ranges", Remedy("copy it to a file first"), url=url
        )


class FileErrors:
    """A context that turns errors of the operating system into errors of storage."""

    __slots__ = ("_url", "_verb")

    def __init__(self, url: str, verb: str) -> None:
        self._url = url
        self._verb = verb

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, VirtualStackError):
            return
        url = self._url
        if self._verb == "write" and isinstance(error, FileExistsError | NotADirectoryError):
            parents = (absolute_url(x) for x in (local_path(url) or Path()).parents if x.is_file())
            raise StorageError(
                f"'{url}' cannot be written: '{next(parents, url)}' is a file, not a folder. Remove it, or "
                "write to another location",
                url=url,
            ) from error
        if self._verb == "write" and isinstance(error, FileNotFoundError):
            raise StorageError(
                f"'{url}' cannot be written: its folder does not exist and cannot be made",
                Remedy("write to another location"),
                url=url,
            ) from error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise SourceNotFoundError(
                f"there is no file at '{url}'", Remedy("check the path, and that its disk is mounted"), url=url
            ) from error
        if isinstance(error, IsADirectoryError):
            raise DirectoryError.at(url) from error
        if isinstance(error, PermissionError):
            done, what = ("read", "its") if self._verb == "read" else ("written", "its folder's")
            raise AccessDeniedError(
                f"'{url}' cannot be {done}: permission denied. Change {what} mode or owner", url=url
            ) from error
        if isinstance(error, OSError | ValueError):  # ValueError: a NUL in the path
            raise StorageError(
                f"'{url}': {self._verb} failed: {error}", Remedy("check the file system"), url=url
            ) from error


@dataclass(frozen=True, slots=True)
class LocalTarget(PlainTarget):
    """Files under a local directory, made on the first write."""

    url: str
    _unsynced: set[Path] = field(default_factory=set, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if local_path(self.url) is None:
            raise StorageError(f"'{self.url}' is not the URL of a local directory ('file:///...')", url=self.url)
        object.__setattr__(self, "url", f"file://{self.url.removeprefix('file://').rstrip('/')}/")

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole file."""
        source = open_source(self._url(key), None, "", None)
        check_most(source.size, most, url=source.location.url)
        return source.read(0, source.size)

    def leftovers(self, prefix: str, before: float, /) -> list[str]:
        """List the keys of temporary files that killed writers left below a folder before a time (s since 1970)."""
        found = []
        with FileErrors(self.url, "read"):
            for key, path in self._files(prefix):
                if path.name.startswith(TEMPORARY_PREFIX) and path.name != LOCK_FILE:
                    with contextlib.suppress(FileNotFoundError):
                        if path.stat().st_mtime < before:
                            found.append(key)
        return sorted(found)

    def empty_folders(self, prefix: str, before: float, /) -> list[str]:
        """List the folders in a folder that hold no files at any depth, unchanged since a time (s since 1970).

        Links to folders are left out, since they may lead anywhere.
        """
        found = []
        with FileErrors(self.url + prefix, "read"):
            for name in (name for name, is_folder in self.entries(prefix) if is_folder):
                key = f"{prefix}/{name}".lstrip("/")
                if self._path(key).is_symlink():
                    continue
                walked = list(os.walk(self._path(key), onerror=_raise_unless_gone))
                with contextlib.suppress(FileNotFoundError):
                    is_empty = not any(names for _, _, names in walked)
                    if is_empty and all(Path(folder).stat().st_mtime < before for folder, _, _ in walked):
                        found.append(key)
        return found

    def list(self, prefix: str = "", /) -> list[str]:
        """List the files in the folder ``prefix`` and below it, sorted."""
        with FileErrors(self.url, "read"):
            return sorted(key for key, path in self._files(prefix) if not path.name.startswith(TEMPORARY_PREFIX))

    def first(self, prefix: str = "", /) -> str | None:
        """Return the first file in the folder ``prefix`` and below it, or ``None``; it lists the folder once."""
        folder = self._path(prefix.rstrip("/"))
        try:
            with FileErrors(self.url + prefix, "read"):
                every = os.listdir(folder)  # noqa: PTH208 - 10^5 names, no paths
            names = [name for name in every if not name.startswith(TEMPORARY_PREFIX)]
        except SourceNotFoundError:
            return None
        if not names:
            return None
        least = min(names)
        if os.path.isdir(f"{folder}/{least}"):  # its files may come after others, and it may be empty
            return next(iter(self.list(prefix)), None)
        return f"{prefix.rstrip('/')}/{least}".lstrip("/")

    def entries(self, prefix: str = "", /) -> Sequence[tuple[str, bool]]:
        """List the names in the folder ``prefix``, each with whether it is a folder; empty if there is no folder."""
        with FileErrors(self.url + prefix, "read"):
            return [(entry.name, entry.is_dir()) for entry in list_folder(str(self._path(prefix.rstrip("/"))))]

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List the files in the folder ``prefix`` and below it, with size and modification time; links are followed."""
        top, found = str(self._path(prefix.rstrip("/"))), {}
        with FileErrors(self.url + prefix, "read"):
            for name, entry in files_below(top):
                if entry.name.startswith(TEMPORARY_PREFIX):
                    continue
                key = f"{prefix.rstrip('/')}/{name}" if prefix else name
                try:
                    found[key] = location_from(self.url + key, entry.stat())
                except FileNotFoundError:
                    if entry.is_symlink():  # a link to nothing; other files are gone
                        with FileErrors(self.url + key, "read"):
                            raise
        return found

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Write a file beside the old one, then rename it."""
        self.put_parts(key, [memoryview(data)])

    def put_parts(self, key: str, parts: Iterable[Bytes], /) -> None:
        """Write a file as `put` does, from parts that are produced one by one."""
        with self._written(key, parts) as (temporary, path):
            temporary.replace(path)
            self._unsynced.add(path.parent)

    def check_put(self, key: str, /) -> None:
        """Raise the error of `put` if the folder of a file cannot be made or written; nothing is written."""
        folder = self._own_path(key).parent
        with FileErrors(self._url(key), "write"):
            while not folder.exists():
                folder = folder.parent
            if not folder.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Write a file unless the key exists, and return whether it was written.

        Once this returns, a loss of power loses neither this file nor the files that were put before it: their folders
        are synchronised with the disk too, once each.
        """
        with self._written(key, [memoryview(data)]) as (temporary, path):
            self.sync()  # first, since this file may refer to files that were put
            is_new = link_if_absent(temporary, path)
            sync_folders({path.parent}, self._path(""))
            return is_new

    def sync(self) -> None:
        """Synchronise the folders of files that were put with the disk, so that a loss of power loses none of them."""
        with FileErrors(self.url, "write"):
            written = set(self._unsynced)
            self._unsynced.difference_update(written)
            sync_folders(written, self._path(""))

    def delete(self, key: str, /) -> None:
        """Delete a file; nothing happens if it does not exist."""
        nothing = contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError)
        with FileErrors(self._url(key), "delete"), nothing:
            self._own_path(key).unlink()

    def delete_folder(self, prefix: str, /) -> None:
        """Delete a folder (``""``: the root) and the folders in it, as far as they hold no files."""
        with FileErrors(self.url + prefix, "delete"):
            top = self._own_path(f"{prefix.rstrip('/')}/x".lstrip("/")).parent
            for folder, _, _ in os.walk(top, topdown=False, onerror=_raise_unless_gone):
                with contextlib.suppress(FileNotFoundError, OSError):
                    os.rmdir(folder)  # noqa: PTH106 - a text

    @contextlib.contextmanager
    def _written(self, key: str, parts: Iterable[Bytes]) -> Iterator[tuple[Path, Path]]:
        path = self._own_path(key)
        with FileErrors(self._url(key), "write"):
            folder = path.parent
            # the names of this folder, and of new folders above the root, must be on the disk, too
            while not folder.exists():
                folder = folder.parent
                self._unsynced.add(folder)
            with temporary_file(path, parts) as temporary:
                yield temporary, path
            with contextlib.suppress(OSError):  # xarray treats it as the version of a directory
                os.utime(self._path(""))

    def _files(self, prefix: str) -> Iterator[tuple[str, Path]]:
        """Return key and path of all files in a folder and below it; links to folders are not followed."""
        root = self._path("")
        for folder, _, names in os.walk(self._path(prefix.rstrip("/")), onerror=_raise_unless_gone):
            for path in (Path(folder, name) for name in names):
                yield path.relative_to(root).as_posix(), path

    def _own_path(self, key: str) -> Path:
        """Return the path of a file that is written or deleted; it must not be behind a link out of the directory."""
        path = self._path(key)
        root, folder = os.path.realpath(self._path("")), os.path.realpath(path.parent)
        if folder != root and not folder.startswith(f"{root.rstrip(os.sep)}{os.sep}"):
            raise ForbiddenLocationError(
                f"'{self._url(key)}' is behind a link to '{folder}', outside of '{self.url}', and nothing is written "
                "or deleted there. If it should be, move the folder itself to the place of the link",
                url=self._url(key),
            )
        return path

    def _path(self, key: str) -> Path:
        return Path(path_in_url((self._url(key) if key else self.url)[len("file://") :]))


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
