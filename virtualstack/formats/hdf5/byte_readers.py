"""Read the bytes of a file from memory, a local file, or a server.

Local bytes are read when a parser requests them. From a server, all wanted bytes are fetched at once, and kept.
"""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.storage import Bytes, Source
from virtualstack.storage.coalesce import gather, read_blocks
from virtualstack.system import READ_FLAGS, lock_for_reading

__all__ = [
    "ByteReader",
    "DirectReader",
    "FetchedRanges",
    "MemoryReader",
    "NotFetchedError",
    "PageReader",
    "RemoteReader",
    "ServerSpeed",
    "is_locked",
    "merge_ranges",
    "subtract_ranges",
]


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


class FetchedRanges:
    """Byte ranges of a file that were fetched; no byte is kept twice.

    Examples
    --------
    >>> held = FetchedRanges()
    >>> held.add(np.array([[10, 14]]), [b"abcd"])
    >>> held.add(np.array([[8, 12]]), [b"xyab"])
    >>> held.span(9, 4), held.span(9, 6)
    (b'yabc', None)
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._data: list[memoryview] = []
        self.edges: NDArray[np.int64] = np.empty((0, 2), np.int64)

    def add(self, edges: NDArray[np.int64], data: Sequence[Bytes], /) -> None:
        """Add bytes; bytes that were added before do not change.

        Parameters
        ----------
        edges
            First byte, and the byte after the last, of each range: shape ``(n, 2)``, sorted and without overlap.
        data
            Bytes of each range.
        """
        new = subtract_ranges(edges, self.edges)
        owner = np.searchsorted(edges[:, 0], new[:, 0], "right") - 1
        views = [memoryview(part) for part in data]
        parts = [
            views[n][start - first : stop - first]
            for n, first, (start, stop) in zip(owner.tolist(), edges[owner, 0].tolist(), new.tolist(), strict=True)
        ]
        together = np.concatenate([self.edges, new])
        order = np.argsort(together[:, 0])
        self.edges = together[order]
        self._starts = self.edges[:, 0].tolist()
        parts = [*self._data, *parts]
        self._data = [parts[n] for n in order.tolist()]

    def span(self, offset: int, size: int, /) -> bytes | None:
        """Return bytes; ``None`` if not all of them were fetched."""
        n = bisect_right(self._starts, offset) - 1
        if n < 0:
            return None
        at = offset - self._starts[n]
        data = bytes(self._data[n][at : at + size])
        if len(data) == size:
            return data
        parts, left = [data], size - len(data)
        while left:
            n += 1
            if not data or n == len(self._starts) or self._starts[n] != offset + size - left:
                return None
            parts.append(bytes(self._data[n][:left]))
            left -= len(parts[-1])
        return b"".join(parts)

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8] | None:
        """Return blocks as an array of shape ``(n, size)``; ``None`` if not all of them were fetched."""
        owner = np.searchsorted(self.edges[:, 0], offsets, "right") - 1
        if not len(self.edges) or owner.min() < 0:
            return None
        at = offsets - self.edges[owner, 0]
        parts: list[Bytes] = [
            self._data[n][begin : begin + size] for n, begin in zip(owner.tolist(), at.tolist(), strict=True)
        ]
        for n in np.flatnonzero(offsets + size > self.edges[owner, 1]).tolist():
            part = self.span(int(offsets[n]), size)
            if part is None:
                return None
            parts[n] = part
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(offsets), size)


def subtract_ranges(wanted: NDArray[np.int64], held: NDArray[np.int64], /) -> NDArray[np.int64]:
    """Return the wanted ranges without the bytes that are held.

    Parameters
    ----------
    wanted, held
        First byte, and the byte after the last, of each range: shapes ``(n, 2)`` and ``(m, 2)``, in any order. Ranges
        may overlap.

    Returns
    -------
    numpy.ndarray
        Ranges of shape ``(k, 2)``, sorted; they neither overlap nor touch.

    Examples
    --------
    >>> subtract_ranges(np.array([[0, 9], [7, 12]]), np.array([[3, 5]])).tolist()
    [[0, 3], [5, 12]]
    """
    n, m = len(wanted), len(held)
    points = np.concatenate([wanted[:, 0], wanted[:, 1], held[:, 0], held[:, 1]])
    order = np.argsort(points, kind="stable")
    points = points[order]
    steps = np.repeat([1, -1, 0], [n, n, 2 * m])[order], np.repeat([0, 1, -1], [2 * n, m, m])[order]
    is_missing = (np.cumsum(steps[0]) > 0) & (np.cumsum(steps[1]) == 0)
    is_last = np.append(points[1:] != points[:-1], True)[: len(points)]  # the last of the steps at one point
    points, is_missing = points[is_last], is_missing[is_last]
    edges: NDArray[np.int64] = points[np.flatnonzero(np.diff(is_missing, prepend=False))]
    return edges.reshape(-1, 2)


_LATENCY_BYTES = 64 * 1024  # a response up to this size measures latency, a larger response measures bandwidth
_FREE_GAP_BYTES = 16 * 1024  # gaps up to this size are always fetched, as in `storage`


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpeed:
    """Measured or assumed speed of a server.

    Parameters
    ----------
    latency
        Seconds until a response arrives.
    bandwidth
        Bytes per second, of all responses together.
    n_parallel
        Number of requests that run at a time.
    work
        Seconds of computing for each request; this work does not run in parallel.
    """

    latency: float = 0.05
    bandwidth: float = 60e6
    n_parallel: int = 120
    work: float = 2e-4

    def seconds(self, n_requests: NDArray[np.int64], n_bytes: NDArray[np.int64], /) -> NDArray[np.float64]:
        """Estimate the seconds that requests take when they are sent together."""
        waves = -(-n_requests // self.n_parallel)
        return waves * self.latency + n_requests * self.work + n_bytes / self.bandwidth

    def after(self, n_requests: int, n_bytes: int, seconds: float, /) -> ServerSpeed:
        """Return the speed updated by the measured time of requests that were sent together."""
        waves = -(-n_requests // self.n_parallel)
        if n_bytes <= _LATENCY_BYTES * n_requests and waves == 1:
            return replace(self, latency=float(np.clip(seconds - n_requests * self.work, 1e-3, 1.0)))
        left = max(seconds - waves * self.latency - n_requests * self.work, 1e-3)
        return replace(self, bandwidth=float(np.clip(n_bytes / left, 10e6, 1e9)))


def merge_ranges(edges: NDArray[np.int64], speed: ServerSpeed, /, *, max_waste: int) -> NDArray[np.int64]:
    """Merge ranges across the gaps between them if one request is faster than several.

    Parameters
    ----------
    edges
        First byte, and the byte after the last, of each range: shape ``(n, 2)``, sorted and without overlap.
    speed
        Speed of the server.
    max_waste
        Number of bytes of gaps that may be fetched. Short gaps are fetched in any case.

    Returns
    -------
    numpy.ndarray
        Merged ranges of shape ``(m, 2)``.

    Examples
    --------
    >>> merge_ranges(np.array([[0, 100], [200, 300], [10**9, 10**9 + 100]]), ServerSpeed(), max_waste=1000).tolist()
    [[0, 300], [1000000000, 1000000100]]
    """
    if len(edges) < 2:
        return edges
    gaps = edges[1:, 0] - edges[:-1, 1]
    waste = np.append(0, np.cumsum(np.sort(gaps)))  # bytes wasted if the k smallest gaps are fetched
    n_requests = len(edges) - np.arange(len(edges))
    seconds = speed.seconds(n_requests, waste + int((edges[:, 1] - edges[:, 0]).sum()))
    least = int(np.count_nonzero(gaps <= _FREE_GAP_BYTES))
    most = max(least, int(np.searchsorted(waste, max_waste, "right")) - 1)
    k = least + int(seconds[least : most + 1].argmin())
    is_cut = np.ones(len(gaps), bool)
    is_cut[np.argsort(gaps, kind="stable")[:k]] = False
    return np.stack([edges[np.append(True, is_cut), 0], edges[np.append(is_cut, True), 1]], axis=1)


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


class DirectReader:
    """Reader of a local source of unknown kind: each request reads exactly the wanted bytes."""

    def __init__(self, source: Source, /) -> None:
        self._source = source

    def span(self, offset: int, size: int, /) -> bytes:
        """Return bytes."""
        return self._source.read(offset, size)

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Return blocks as an array of shape ``(n, size)``."""
        parts = self._source.read_ranges(np.stack([offsets, np.full(len(offsets), size)], axis=1))
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(offsets), size)

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Do nothing: bytes are read when a parser asks for them."""


class PageReader:
    """Reader of a file in which each read is a system call: it reads pages of 8 KiB and keeps 8 MiB of pages.

    Parameters
    ----------
    source
        A local file. It is read, not mapped into memory: a file that shrinks while it is read raises a `StorageError`.
    """

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


_WHOLE_FILE_BYTES = 4 * 1024 * 1024  # a file up to this size is fetched as a whole
_OPENING_BYTES = 16 * 1024  # fetched when a remote source is opened, without an extra request
_HEAD_BYTES = 256 * 1024  # most files begin with metadata
_MIN_REQUEST_BYTES = 4 * 1024  # more metadata usually follows
_MIN_ALLOWED_WASTE_BYTES = 4 * 1024 * 1024
_MAX_METADATA_BYTES = 1 << 30


class RemoteReader:
    """Reader of a file on a server.

    Parameters
    ----------
    source
        The file.
    """

    def __init__(self, source: Source, /) -> None:
        self._source = source
        self._size = source.size
        self._fetched = FetchedRanges()
        self._speed = ServerSpeed()
        self._n_wanted = self._n_asked = 0

    def span(self, offset: int, size: int, /) -> bytes:
        """Return bytes, or raise `NotFetchedError`."""
        data = self._fetched.span(offset, size)
        if data is None:
            raise NotFetchedError
        return data

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Return blocks as an array of shape ``(n, size)``, or raise `NotFetchedError`."""
        data = self._fetched.blocks(offsets, size)
        if data is None:
            raise NotFetchedError
        return data

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Fetch bytes and blocks, each with offsets and a size, all at once; ranges are merged if this is faster.

        Raises
        ------
        StorageError
            The bytes could not be read, or more than 1 GiB of metadata would be fetched.
        """
        pairs = [(np.atleast_1d(np.asarray(offsets, np.int64)), size) for offsets, size in wanted]
        starts = np.concatenate([offsets for offsets, _ in pairs])
        sizes = np.repeat([size for _, size in pairs], [len(offsets) for offsets, _ in pairs])
        ends = np.minimum(starts + np.maximum(sizes, _MIN_REQUEST_BYTES), self._size)
        edges = np.stack([starts, ends], axis=1)
        if not self._n_asked:
            self._ask(np.array([[0, self._size if self._size <= _WHOLE_FILE_BYTES else _OPENING_BYTES]]))
        if self._n_asked == _OPENING_BYTES and len(subtract_ranges(edges, self._fetched.edges)):
            edges = np.concatenate([edges, [[0, _HEAD_BYTES]]])
        self._ask(edges)

    def _ask(self, edges: NDArray[np.int64]) -> None:
        missing = subtract_ranges(edges, self._fetched.edges)
        if not len(missing):
            return
        self._n_wanted += _length(missing)
        allowance = max(_MIN_ALLOWED_WASTE_BYTES, self._n_wanted) - (self._n_asked + _length(missing) - self._n_wanted)
        asked = merge_ranges(missing, self._speed, max_waste=allowance)
        n_bytes = _length(asked)
        if self._n_asked + n_bytes > _MAX_METADATA_BYTES:
            raise StorageError(
                f"'{self._source.location.url}': to describe it, {self._n_asked + n_bytes} bytes of metadata would "
                f"have to be fetched, and at most {_MAX_METADATA_BYTES} are. Download it first",
                url=self._source.location.url,
            )
        begin = time.perf_counter()
        parts = self._source.read_ranges(np.stack([asked[:, 0], asked[:, 1] - asked[:, 0]], axis=1))
        if self._n_asked:
            self._speed = self._speed.after(len(asked), n_bytes, time.perf_counter() - begin)
        self._n_asked += n_bytes
        self._fetched.add(asked, parts)


def _length(edges: NDArray[np.int64]) -> int:
    return int((edges[:, 1] - edges[:, 0]).sum())
