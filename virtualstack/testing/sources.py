"""Sources for tests: one that records what is read, and one that fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.location import Location
from virtualstack.storage.source import ByteRange, Bytes, Source

__all__ = ["FaultySource", "RecordingSource"]


class _Wrapper:
    """Base of sources that read from another source."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def location(self) -> Location:
        """URL, size and version of the source."""
        return self._source.location

    @property
    def size(self) -> int:
        """Size of the whole source, in bytes."""
        return self._source.size


class RecordingSource(_Wrapper):
    """Source that records every range that is read from another source.

    When to use: to test which bytes a reader reads.

    Parameters
    ----------
    source
        Source to read from.

    Attributes
    ----------
    reads
        Offset and length in bytes of each range, in the order of the reads.

    Examples
    --------
    >>> from virtualstack.storage import MemorySource
    >>> from virtualstack.testing.sources import RecordingSource
    >>> source = RecordingSource(MemorySource(b"abcdef"))
    >>> source.read(2, 2)
    b'cd'
    >>> source.reads
    [(2, 2)]
    >>> source.overlap([(0, 3)])
    1
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.reads: list[ByteRange] = []

    @property
    def bytes_read(self) -> int:
        """Sum of the lengths of all reads, in bytes."""
        return sum(length for _, length in self.reads)

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``, and record the range."""
        self.reads.append((offset, length))
        return self._source.read(offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges in the order given, and record them."""
        self.reads += [(int(offset), int(length)) for offset, length in ranges]
        return self._source.read_ranges(ranges)

    def overlap(self, ranges: Sequence[ByteRange], /) -> int:
        """Count the bytes of ``ranges`` that were read, once for each read."""
        return sum(
            max(0, min(offset + length, start + size) - max(offset, start))
            for offset, length in self.reads
            for start, size in ranges
        )


class FaultySource(_Wrapper):
    """Source that fails after a number of reads, or when a read touches given bytes.

    When to use: to test what a program does if a read fails.

    Parameters
    ----------
    source
        Source to read from.
    after
        Number of reads that succeed, or ``None``.
    touching
        Offset and length in bytes of a range that cannot be read, or ``None``.

    Examples
    --------
    >>> from virtualstack.storage import MemorySource
    >>> from virtualstack.testing.sources import FaultySource
    >>> source = FaultySource(MemorySource(b"abcdef"), touching=(4, 1))
    >>> source.read(0, 2)
    b'ab'
    >>> source.read(3, 2)
    Traceback (most recent call last):
    virtualstack.errors.StorageError: 'memory://...': bytes 4 to 5 were made to fail
    """

    def __init__(self, source: Source, *, after: int | None = None, touching: ByteRange | None = None) -> None:
        super().__init__(source)
        self._left = after
        self._touching = touching

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``.

        Raises
        ------
        StorageError
            The read is made to fail.
        """
        self._check([(offset, length)])
        return self._source.read(offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges in the order given.

        Raises
        ------
        StorageError
            The read is made to fail.
        """
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
