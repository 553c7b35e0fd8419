"""Read the bytes of a file from memory, a local file, or a server.

Local bytes are read when a parser requests them. From a server, all wanted bytes are fetched at once, and kept.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.storage import Bytes, Source
from virtualstack.storage.coalesce import gather, read_blocks
from virtualstack.system import READ_FLAGS, lock_for_reading


def is_locked(path: Path, /) -> bool:
    """Return whether a program writes to a local file through the HDF5 library, which locks files that it has open.

    The metadata of such a file may be incomplete. As in the library, ``HDF5_USE_FILE_LOCKING=FALSE`` disables this
    check. File systems without locks report no lock.
    """
    if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
        return False
    with contextlib.suppress(OSError):
        file = os.open(path, READ_FLAGS)
        try:
            return not lock_for_reading(file)
        finally:
            os.close(file)
    return False


_PAGE_BITS = 13
_PAGE_BYTES = 1 << _PAGE_BITS  # reading a page costs little more than reading a few bytes
_MAX_PAGES = 1024
_FEW_BLOCKS = 16  # up to this number of blocks, looking for neighbours is not worthwhile


class NotFetchedError(Exception):
    """Bytes must be fetched before they can be returned."""


class ByteReader(Protocol):
    """Reader of the bytes of one file. All offsets and sizes are within the file, and no request is empty."""

    def span(self, offset: int, size: int, /) -> bytes:
        """Return bytes, or raise `NotFetchedError`."""

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Return blocks as an array of shape ``(n, size)``, or raise `NotFetchedError`."""

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Fetch bytes and blocks, each with offsets and a size, all at once."""


class MemoryReader:
    """Reader of a file that is in memory as a whole."""

    def __init__(self, data: Bytes, /) -> None:
        self._data = data

    def span(self, offset: int, size: int, /) -> bytes:
        """Return bytes."""
        return bytes(self._data[offset : offset + size])

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Return blocks as an array of shape ``(n, size)``."""
        return gather(self._data, offsets, size)

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Do nothing: all bytes are in memory."""


class PageReader:
    """Reader of a file in which each read is a system call: it reads pages of 8 KiB and keeps 8 MiB of pages."""

    def __init__(self, source: Source, /) -> None:
        self._source = source
        self._size = source.size
        self._pages: dict[int, bytes] = {}

    def span(self, offset: int, size: int, /) -> bytes:
        """Return bytes."""
        first, last = offset >> _PAGE_BITS, (offset + size - 1) >> _PAGE_BITS
        at = offset - (first << _PAGE_BITS)
        if first == last:
            return (self._pages.get(first) or self._load(first))[at : at + size]
        if last == first + 1:
            pages = [self._pages.get(number) or self._load(number) for number in (first, last)]
            return (pages[0][at:] + pages[1])[:size]
        return self._source.read(offset, size)

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Return blocks as an array of shape ``(n, size)``."""
        if len(offsets) <= _FEW_BLOCKS:
            parts = [self.span(offset, size) for offset in offsets.tolist()]
            return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8).reshape(-1, size)
        return read_blocks(self._source.read_ranges, offsets, size)

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Do nothing: bytes are read when a parser asks for them."""

    def _load(self, number: int) -> bytes:
        if len(self._pages) >= _MAX_PAGES:
            self._pages.clear()
        begin = number << _PAGE_BITS
        page = self._pages[number] = self._source.read(begin, min(_PAGE_BYTES, self._size - begin))
        return page


_REMOTE_PAGE_BITS = 10
_REMOTE_PAGE_BYTES = 1 << _REMOTE_PAGE_BITS
_OPENING_BYTES = 16 * 1024  # fetched when a remote source is opened, without an extra request
_HEAD_BYTES = 256 * 1024  # most files begin with metadata
_MIN_REQUEST_BYTES = 4 * 1024  # more metadata usually follows
_MAX_METADATA_BYTES = 1 << 30


class RemoteReader:
    """Reader of a file on a server: it keeps all pages of 1 KiB that it has fetched."""

    def __init__(self, source: Source, /) -> None:
        self._source = source
        self._size = source.size
        self._pages: dict[int, Bytes] = {}

    def span(self, offset: int, size: int, /) -> bytes:
        """Return bytes, or raise `NotFetchedError`."""
        numbers = _pages(offset, size)
        try:
            pages = [self._pages[number] for number in numbers]
        except KeyError:
            raise NotFetchedError from None
        at = offset - (numbers.start << _REMOTE_PAGE_BITS)
        return bytes(pages[0][at : at + size]) if len(pages) == 1 else b"".join(pages)[at : at + size]

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Return blocks as an array of shape ``(n, size)``, or raise `NotFetchedError`."""
        parts = [self.span(offset, size) for offset in offsets.tolist()]
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(offsets), size)

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Fetch bytes and blocks, each with offsets and a size, all at once."""
        numbers: set[int] = set()
        for offsets, size in wanted:
            for offset in np.atleast_1d(offsets).tolist():
                numbers.update(_pages(offset, min(max(size, _MIN_REQUEST_BYTES), self._size - offset)))
        opening = _pages(0, _OPENING_BYTES)
        if not self._pages:
            self._ask(set(opening))
        if len(self._pages) == len(opening) and not numbers <= self._pages.keys():
            numbers.update(_pages(0, _HEAD_BYTES))
        self._ask(numbers)

    def _ask(self, numbers: set[int]) -> None:
        missing = np.array(sorted(numbers - self._pages.keys()), np.int64)
        n_bytes = (len(self._pages) + len(missing)) * _REMOTE_PAGE_BYTES
        if n_bytes > _MAX_METADATA_BYTES:
            raise StorageError(
                f"'{self._source.location.url}' has {n_bytes} bytes of metadata or more, and at most "
                f"{_MAX_METADATA_BYTES} are fetched. Download it first",
                url=self._source.location.url,
            )
        if not len(missing):
            return
        runs = np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1)
        edges = np.array([(run[0], run[-1] + 1) for run in runs]) * _REMOTE_PAGE_BYTES
        edges[-1, 1] = min(edges[-1, 1], self._size)
        answers = self._source.read_ranges(np.stack([edges[:, 0], edges[:, 1] - edges[:, 0]], axis=1))
        for run, answer in zip(runs, answers, strict=True):
            data = memoryview(answer)
            for i, number in enumerate(run.tolist()):
                self._pages[number] = data[i * _REMOTE_PAGE_BYTES : (i + 1) * _REMOTE_PAGE_BYTES]


def _pages(offset: int, size: int) -> range:
    return range(offset >> _REMOTE_PAGE_BITS, (offset + size - 1 >> _REMOTE_PAGE_BITS) + 1)
