"""Bytes of a file where each request takes long: all that are wanted are fetched at once, and kept."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.formats.hdf5.pace import Pace, merged
from virtualstack.formats.hdf5.stretches import Stretches, without
from virtualstack.formats.hdf5.supply import NotHeldError
from virtualstack.storage import Source

__all__ = ["Remote"]

_WHOLE = 4 * 1024 * 1024  # a file up to this long is fetched whole
_FIRST = 16 * 1024  # come with opening a remote source, at no request of their own
_HEAD = 256 * 1024  # most files begin with metadata
_AHEAD = 4 * 1024  # where there is metadata, there is more
_WASTE = 4 * 1024 * 1024
_LIMIT = 1 << 30


class Remote:
    """A file behind a server.

    Parameters
    ----------
    source
        The file.
    """

    def __init__(self, source: Source, /) -> None:
        self._source = source
        self._size = source.size
        self._held = Stretches()
        self._pace = Pace()
        self._n_wanted = self._n_asked = 0

    def span(self, offset: int, size: int, /) -> bytes:
        """Give bytes, or raise `NotHeldError`."""
        data = self._held.span(offset, size)
        if data is None:
            raise NotHeldError
        return data

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
        """Give blocks, shape ``(n, size)``, or raise `NotHeldError`."""
        data = self._held.blocks(offsets, size)
        if data is None:
            raise NotHeldError
        return data

    def fetch(self, wanted: Sequence[tuple[NDArray[np.int64] | int, int]], /) -> None:
        """Fetch bytes and blocks, given by offsets and size, all at once; near ones by one request, where faster.

        Raises
        ------
        StorageError
            The bytes could not be had, or it would be more than 1 GiB.
        """
        pairs = [(np.atleast_1d(np.asarray(offsets, np.int64)), size) for offsets, size in wanted]
        starts = np.concatenate([offsets for offsets, _ in pairs])
        sizes = np.repeat([size for _, size in pairs], [len(offsets) for offsets, _ in pairs])
        ends = np.minimum(starts + np.maximum(sizes, _AHEAD), self._size)
        edges = np.stack([starts, ends], axis=1)
        if not self._n_asked:
            self._ask(np.array([[0, self._size if self._size <= _WHOLE else _FIRST]]))
        if self._n_asked == _FIRST and len(without(edges, self._held.edges)):
            edges = np.concatenate([edges, [[0, _HEAD]]])
        self._ask(edges)

    def _ask(self, edges: NDArray[np.int64]) -> None:
        missing = without(edges, self._held.edges)
        if not len(missing):
            return
        self._n_wanted += _length(missing)
        allowance = max(_WASTE, self._n_wanted) - (self._n_asked + _length(missing) - self._n_wanted)
        asked = merged(missing, self._pace, max_waste=allowance)
        n_bytes = _length(asked)
        if self._n_asked + n_bytes > _LIMIT:
            raise StorageError(
                f"'{self._source.location.url}': to describe it, {self._n_asked + n_bytes} bytes of metadata would "
                f"have to be fetched, and at most {_LIMIT} are. Download it first",
                url=self._source.location.url,
            )
        begin = time.perf_counter()
        parts = self._source.read_ranges(np.stack([asked[:, 0], asked[:, 1] - asked[:, 0]], axis=1))
        if self._n_asked:
            self._pace = self._pace.after(len(asked), n_bytes, time.perf_counter() - begin)
        self._n_asked += n_bytes
        self._held.add(asked, parts)


def _length(edges: NDArray[np.int64]) -> int:
    return int((edges[:, 1] - edges[:, 0]).sum())
