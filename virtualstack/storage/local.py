"""Read local files as sources."""

from __future__ import annotations

import functools
import os
import stat
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import AccessDeniedError, SourceNotFoundError, StorageError, VirtualStackError
from virtualstack.location import Location, absolute_url, local_path
from virtualstack.storage.source import (
    ByteRange,
    Bytes,
    DirectoryError,
    check_lengths,
    check_ranges,
    check_version,
)
from virtualstack.system import READ_FLAGS, in_forked_children, pread, read_into

__all__ = [
    "FileErrors",
    "LocalSource",
    "location_from",
    "look_up_local",
    "open_local",
    "read_local",
]

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
    """A local file; made by `open_local`.

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


def open_local(url: str, /, *, expected: Location | None = None) -> LocalSource:
    """Open a local file by its ``file://`` URL."""
    path = _path(url)
    file = _Descriptor(path, url)
    source = LocalSource(location_from(url, file.status), (file.status.st_ino, file.status.st_ctime_ns))
    check_version(expected, source.location)
    source.keep(file)
    return source


def read_local(url: str, offset: int, length: int, /, *, expected: Location) -> bytes:
    """Read one range of a local file without keeping it open; errors are the same as for `open_local` and reading.

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
    """Return the location of a local file without opening it; errors are the same as for `open_local`."""
    path = _path(url)
    with FileErrors(url, "read"):
        status = path.stat()
        _check_regular(status, url)
        if not os.access(path, os.R_OK):
            raise PermissionError(url)
    return location_from(url, status)


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
            f"'{url}' is a pipe, socket or device, which has no byte ranges: copy it to a file first", url=url
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
                f"'{url}' cannot be written: its folder does not exist and cannot be made. Write to another location",
                url=url,
            ) from error
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise SourceNotFoundError(
                f"there is no file at '{url}'. Check the path, and that its disk is mounted", url=url
            ) from error
        if isinstance(error, IsADirectoryError):
            raise DirectoryError.at(url) from error
        if isinstance(error, PermissionError):
            done, what = ("read", "its") if self._verb == "read" else ("written", "its folder's")
            raise AccessDeniedError(
                f"'{url}' cannot be {done}: permission denied. Change {what} mode or owner", url=url
            ) from error
        if isinstance(error, OSError | ValueError):  # ValueError: a NUL in the path
            raise StorageError(f"'{url}': {self._verb} failed: {error}. Check the file system", url=url) from error
