"""Run parsers of HDF5 over the bytes of a file: one at a time, or many together, level by level."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.byte_readers import (
    ByteReader,
    MemoryReader,
    NotFetchedError,
    PageReader,
    RemoteReader,
)
from virtualstack.formats.hdf5.structures.requests import Blocks, OutsideError, Parse, Span, StructureError
from virtualstack.location import Location, is_remote
from virtualstack.storage import ByteRange, Bytes, MemorySource, Source

_MAX_REQUEST_BYTES = 1 << 30
_WHOLE_LOCAL_BYTES = 1 << 18  # reading this much costs less than reading 10 pages
_WHOLE_REMOTE_BYTES = 1 << 22  # fetching this much takes about as long as a second request
_BLOCK_BYTES = 64 * 1024
_MAX_BLOCK_BYTES = 4 * 1024 * 1024
_MAX_UNREQUESTED_BYTES = 256 * 1024 * 1024  # largest number of bytes kept that no parser requested

type OnResult[T] = Callable[[T | StructureError], None]


class MetadataSource:
    """The metadata of one file: the bytes that parsers request, each fetched once.

    The object is also a `Source` of the whole file: it fetches missing bytes in aligned blocks. Only one thread at a
    time may run parsers.
    """

    def __init__(self, source: Source, /, *, base: int = 0) -> None:
        self.base = base
        self.size = self.end = source.size
        self._source = source
        self._reader = _reader(source)
        self._lock = threading.Lock()
        self._next, self._ahead, self._n_unrequested = -2 * _BLOCK_BYTES, 0, 0

    @property
    def location(self) -> Location:
        """Location of the file."""
        return self._source.location

    def run[T](self, parser: Parse[T], /) -> T:
        """Run one parser to its end, and return its result."""
        (result,) = self.run_all([parser])
        if isinstance(result, StructureError):
            raise result
        return result

    def run_all[T](self, parsers: Sequence[Parse[T]], /) -> list[T | StructureError]:
        """Run parsers together, and return their results; the error of a parser takes the place of its result."""
        results: list[Any] = [None] * len(parsers)
        scheduler = Scheduler(self)
        for n, parser in enumerate(parsers):
            scheduler.spawn(parser, partial(results.__setitem__, n))
        scheduler.run()
        return results

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset`` of the file; missing bytes are fetched in aligned blocks."""
        if offset < 0 or not 0 < length <= self.size - offset or length > _MAX_BLOCK_BYTES:
            return self._source.read(offset, length)
        with self._lock:
            with contextlib.suppress(NotFetchedError):
                return self._reader.span(offset, length)
            if self._n_unrequested > _MAX_UNREQUESTED_BYTES:
                return self._source.read(offset, length)
            self._fetch_around(offset, length)
            return self._reader.span(offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges of the file; they are not kept."""
        return self._source.read_ranges(ranges)

    def _fetch_around(self, offset: int, length: int) -> None:
        is_next = abs(offset - self._next) <= _BLOCK_BYTES
        self._ahead = min(2 * self._ahead + _BLOCK_BYTES, _MAX_BLOCK_BYTES) if is_next else 0
        begin = offset // _BLOCK_BYTES * _BLOCK_BYTES
        self._next = min(-(-(offset + length) // _BLOCK_BYTES) * _BLOCK_BYTES + self._ahead, self.size)
        self._n_unrequested += self._next - begin
        self._reader.fetch([(begin, self._next - begin)])

    def get(self, request: Span | Blocks, /) -> bytes | NDArray[np.uint8]:
        """Return the answer to a request of a parser."""
        if isinstance(request, Span):
            offset, size = self._place(request)
            return self._reader.span(offset, size) if size else b""
        offsets, size = self._places(request)
        return self._reader.blocks(offsets, size) if size and len(offsets) else np.empty((len(offsets), size), np.uint8)

    def fetch(self, requests: Sequence[Span | Blocks], /) -> None:
        """Fetch the missing bytes of the answers to requests, all at once."""
        self._reader.fetch([self._place(x) if isinstance(x, Span) else self._places(x) for x in requests])

    def _place(self, span: Span) -> tuple[int, int]:
        address, size, is_clipped = span
        left = self.end - self.base - address
        if is_clipped and size > left > 0:
            size = left
        if address < 0 or not 0 <= size <= left:
            raise _outside(address, size)
        if size > _MAX_REQUEST_BYTES:
            raise _too_large(size)
        return address + self.base, size

    def _places(self, blocks: Blocks) -> tuple[NDArray[np.int64], int]:
        addresses, size = blocks
        if len(addresses):
            low, high = int(addresses.min()), int(addresses.max())
            if low < 0 or not 0 <= size <= self.end - self.base - high:
                raise _outside(low if low < 0 else high, size)
        if size * len(addresses) > _MAX_REQUEST_BYTES:
            raise _too_large(size * len(addresses))
        return addresses + self.base if self.base else addresses, size


def _outside(address: int, size: int) -> StructureError:
    return OutsideError(f"{size} bytes at address {address} are not in the file")


def _too_large(size: int) -> StructureError:
    return StructureError(f"{size} bytes of metadata are requested at once, more than {_MAX_REQUEST_BYTES}")


class _Job:
    """A parser, the requests that it waits for, and the function that takes its result."""

    __slots__ = ("parser", "requests", "then")

    def __init__(self, parser: Parse[Any], then: OnResult[Any]) -> None:
        self.parser = parser
        self.then = then
        self.requests: Sequence[Span | Blocks] | None = None  # None until the parser has started


class Scheduler:
    """Scheduler of parsers that run together: the next requests of all parsers are fetched at once.

    Parsers of local files run one after another, and each request is read at once.

    Examples
    --------
    >>> from virtualstack.formats.hdf5.structures.requests import read_span
    >>> from virtualstack.storage import MemorySource
    >>> found, scheduler = [], Scheduler(MetadataSource(MemorySource(b"abcdef")))
    >>> scheduler.spawn(read_span(1, 2), found.append)
    >>> scheduler.spawn(read_span(9, 2), found.append)
    >>> scheduler.run()
    >>> found
    [b'bc', OutsideError('2 bytes at address 9 are not in the file')]
    """

    def __init__(self, metadata: MetadataSource, /) -> None:
        self._metadata = metadata
        self._ready: deque[_Job] = deque()

    def spawn[T](self, parser: Parse[T], then: OnResult[T], /) -> None:
        """Add a parser; this is also possible while other parsers run."""
        self._ready.append(_Job(parser, then))

    def run(self) -> None:
        """Run all parsers to their end."""
        waiting: list[_Job] = []
        while self._ready or waiting:
            while self._ready:
                job = self._ready.popleft()
                if not self._advance(job):
                    waiting.append(job)
            if waiting:
                self._metadata.fetch([request for job in waiting for request in job.requests or ()])
                self._ready.extend(waiting)
                waiting = []

    def _advance(self, job: _Job) -> bool:
        """Run a parser until it ends (return true) or bytes must be fetched (return false)."""
        get, parser = self._metadata.get, job.parser
        try:
            requests = next(parser) if job.requests is None else job.requests
            while True:
                try:
                    answers = [get(request) for request in requests]
                except NotFetchedError:
                    job.requests = requests
                    return False
                except StructureError as error:
                    requests = parser.throw(error)
                else:
                    requests = parser.send(answers)
        except StopIteration as stop:
            result = stop.value
        except StructureError as error:
            result = error
        job.then(result)
        return True


def _reader(source: Source) -> ByteReader:
    if isinstance(source, MemorySource):
        return MemoryReader(source.data)
    is_far = is_remote(source.location.url)
    if source.size <= (_WHOLE_REMOTE_BYTES if is_far else _WHOLE_LOCAL_BYTES):
        return MemoryReader(source.read(0, source.size))
    return RemoteReader(source) if is_far else PageReader(source)
