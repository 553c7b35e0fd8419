"""Sources for tests: one that writes down what is read."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.location import Location
from virtualstack.storage.source import ByteRange, Bytes, Source

__all__ = ["FaultySource", "RecordingSource"]


class RecordingSource:
    """A source that records every range that is read of another one.

    Parameters
    ----------
    source
        The source to read from.

    Attributes
    ----------
    reads
        Offset and length in bytes of each range, in the order asked for.

    Examples
    --------
    >>> from virtualstack.storage import MemorySource
    >>> source = RecordingSource(MemorySource(b"abcdef"))
    >>> source.read(2, 2)
    b'cd'
    >>> source.reads
    [(2, 2)]
    >>> source.overlap([(0, 3)])
    1
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.reads: list[ByteRange] = []
        self._lock = threading.Lock()

    @property
    def location(self) -> Location:
        """Where the bytes are."""
        return self._source.location

    @property
    def size(self) -> int:
        """Bytes of the whole source."""
        return self._source.size

    @property
    def bytes_read(self) -> int:
        """Sum of the lengths of all reads, in bytes."""
        return sum(length for _, length in self.reads)

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``."""
        self._record([(offset, length)])
        return self._source.read(offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges in the order given."""
        self._record([(int(offset), int(length)) for offset, length in ranges])
        return self._source.read_ranges(ranges)

    def overlap(self, ranges: Sequence[ByteRange], /) -> int:
        """Count the bytes of ``ranges`` that were read, once per read."""
        return sum(
            max(0, min(offset + length, start + size) - max(offset, start))
            for offset, length in self.reads
            for start, size in ranges
        )

    def _record(self, ranges: list[ByteRange]) -> None:
        with self._lock:
            self.reads.extend(ranges)

    def __getstate__(self) -> tuple[Source, list[ByteRange]]:
        return self._source, self.reads

    def __setstate__(self, state: tuple[Source, list[ByteRange]]) -> None:
        self.__init__(state[0])  # type: ignore[misc]
        self.reads = list(state[1])


class FaultySource:
    """A source that fails from the n-th read on, or whenever a read touches given bytes.

    Parameters
    ----------
    source
        The source to read from.
    after
        Number of reads that work.
    touching
        Offset and length in bytes of a stretch that cannot be read, or ``None``.
    """

    def __init__(self, source: Source, *, after: int | None = None, touching: ByteRange | None = None) -> None:
        self._source = source
        self._left = after
        self._touching = touching

    @property
    def location(self) -> Location:
        """Where the bytes are."""
        return self._source.location

    @property
    def size(self) -> int:
        """Bytes of the whole source."""
        return self._source.size

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``, or fail as told."""
        self._check([(offset, length)])
        return self._source.read(offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges in the order given, or fail as told."""
        self._check([(int(offset), int(length)) for offset, length in ranges])
        return self._source.read_ranges(ranges)

    def _check(self, ranges: list[ByteRange]) -> None:
        url = self.location.url
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise StorageError(f"'{url}': reading was made to fail by a FaultySource", url=url)
        if self._touching is not None:
            start, size = self._touching
            if any(offset < start + size and start < offset + length for offset, length in ranges):
                raise StorageError(f"'{url}': bytes {start} to {start + size} were made to fail", url=url)
