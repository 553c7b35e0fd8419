"""Where the bytes of a file come from when they are near: from memory, or from a local file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.storage import Bytes, Source
from virtualstack.storage.gather import gather, read_blocks

__all__ = ["Exact", "InMemory", "NotHeldError", "Paged", "Supply"]

_PAGE_BITS = 13
_PAGE = 1 << _PAGE_BITS  # reading one costs little more than reading a few bytes
_MAX_PAGES = 1024
_FEW = 16  # blocks, for which it does not pay to look for near ones


class NotHeldError(Exception):
    """Bytes have to be fetched before they can be given."""


class Supply(Protocol):
    """Bytes of one file; all offsets and sizes are within it, and nothing empty is asked for."""

    def span(self, offset: int, size: int, /) -> bytes:
        """Give bytes, or raise `NotHeldError`."""

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Give blocks, shape ``(n, size)``, or raise `NotHeldError`."""

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Fetch bytes and blocks, given by their offsets and their size, all at once."""


class InMemory:
    """A file that is in memory as a whole."""

    def __init__(self, data: Bytes, /) -> None:
        self._data = data

    def span(self, offset: int, size: int, /) -> bytes:
        """Give bytes."""
        return bytes(self._data[offset : offset + size])

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Give blocks, shape ``(n, size)``."""
        return gather(self._data, offsets, size)

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Do nothing."""


class Exact:
    """A source that is near, but how it reads is not known here: it is asked for what is wanted and no more."""

    def __init__(self, source: Source, /) -> None:
        self._source = source

    def span(self, offset: int, size: int, /) -> bytes:
        """Give bytes."""
        return self._source.read(offset, size)

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Give blocks, shape ``(n, size)``."""
        parts = self._source.read_ranges(np.stack([offsets, np.full(len(offsets), size)], axis=1))
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(offsets), size)

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Do nothing: bytes are read when they are asked for."""


class Paged:
    """A file where a read costs a system call: read by pages of 8 KiB, of which 8 MiB are kept.

    Parameters
    ----------
    source
        A local file. It is read, not mapped into memory: one that shrinks meanwhile gives a `StorageError`.
    """

    def __init__(self, source: Source, /) -> None:
        self._source = source
        self._size = source.size
        self._pages: dict[int, bytes] = {}

    def span(self, offset: int, size: int, /) -> bytes:
        """Give bytes."""
        first, last = offset >> _PAGE_BITS, (offset + size - 1) >> _PAGE_BITS
        at = offset - (first << _PAGE_BITS)
        if first == last:
            return (self._pages.get(first) or self._load(first))[at : at + size]
        if last == first + 1:
            pages = [self._pages.get(number) or self._load(number) for number in (first, last)]
            return (pages[0][at:] + pages[1])[:size]
        return self._source.read(offset, size)

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Give blocks, shape ``(n, size)``."""
        if len(offsets) <= _FEW:
            parts = [self.span(offset, size) for offset in offsets.tolist()]
            return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8).reshape(-1, size)
        return read_blocks(self._source.read_ranges, offsets, size)

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Do nothing: bytes are read when they are asked for."""

    def _load(self, number: int) -> bytes:
        if len(self._pages) >= _MAX_PAGES:
            self._pages.clear()
        begin = number << _PAGE_BITS
        page = self._pages[number] = self._source.read(begin, min(_PAGE, self._size - begin))
        return page
