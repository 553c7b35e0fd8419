"""Shards of zarr v3: objects that hold chunks, and an index of where they lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError

__all__ = ["Shards"]

_ABSENT = np.uint64((1 << 64) - 1)
_CHECKSUM = 4  # bytes behind the index
_PLACE = 16  # bytes of offset and length


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """How the chunks of an array lie in shards; zarr v3, codec ``sharding_indexed``.

    Parameters
    ----------
    edges
        For each axis the chunks in each shard, as they are stored: the last shard may reach beyond the array.
    grid
        Chunks of the array along each axis.
    is_index_first
        Whether the index stands at the start of a shard; else at its end.
    is_checked
        Whether a checksum stands behind the index.
    """

    edges: tuple[NDArray[np.int64], ...]
    grid: tuple[int, ...]
    is_index_first: bool
    is_checked: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shards along each axis."""
        return tuple(map(len, self.edges))

    def n_chunks(self, shards: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Count the places in the index of each shard; shards are counted in C order."""
        lengths = [edges[index] for edges, index in zip(self.edges, self._index(shards), strict=True)]
        return np.prod(lengths, axis=0, dtype=np.int64) if lengths else np.ones(len(shards), np.int64)

    def index_ranges(self, shards: NDArray[np.int64], sizes: NDArray[np.int64], /, *, where: str) -> NDArray[np.int64]:
        """Give offset and length, in bytes, of the index in each shard.

        Parameters
        ----------
        shards
            Counted in C order.
        sizes
            Of the shards, in bytes.
        where
            Array and store, for messages.

        Raises
        ------
        MalformedFileError
            A shard is too short for its index.
        """
        lengths = self.n_chunks(shards) * _PLACE + (_CHECKSUM if self.is_checked else 0)
        short = lengths > sizes
        if short.any():
            row = int(short.argmax())
            raise self._damaged(shards[row], where, f"has {sizes[row]} bytes, and its index takes {lengths[row]}")
        return np.stack([np.zeros_like(sizes) if self.is_index_first else sizes - lengths, lengths], 1)

    def places(
        self,
        shards: NDArray[np.int64],
        sizes: NDArray[np.int64],
        indexes: Sequence[bytes | memoryview],
        /,
        *,
        where: str,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Give the chunks that are there, out of the indexes of shards.

        Parameters
        ----------
        shards, sizes, where
            As in :meth:`index_ranges`.
        indexes
            Bytes of the index of each shard.

        Returns
        -------
        tuple
            Four columns: the cell of each chunk in the grid of the array, in C order; the row of its shard in
            ``shards``; its offset in the shard, and its length, in bytes.

        Raises
        ------
        MalformedFileError
            A checksum is wrong, or a chunk lies outside of its shard.
        """
        starts = [np.cumsum(edges) - edges for edges in self.edges]
        index = self._index(shards)
        columns = []
        for row, data in enumerate(indexes):
            corner = [int(axis[i[row]]) for axis, i in zip(starts, index, strict=True)]
            shape = [int(edges[i[row]]) for edges, i in zip(self.edges, index, strict=True)]
            table = np.frombuffer(self._checked(data, shards[row], where), "<u8").reshape(-1, 2)
            offsets, lengths = table[:, 0], table[:, 1]
            there = np.flatnonzero((offsets != _ABSENT) | (lengths != _ABSENT))
            offsets, lengths = offsets[there], lengths[there]
            size = np.uint64(sizes[row])
            if ((offsets > size) | (lengths > size - np.minimum(offsets, size))).any():
                raise self._damaged(shards[row], where, f"has {size} bytes, and a chunk beyond them")
            inner = [i + n for i, n in zip(np.unravel_index(there, shape or (1,)), corner or [0], strict=True)]
            inside = np.all([i < n for i, n in zip(inner, self.grid or (1,), strict=True)], axis=0)
            cells = np.ravel_multi_index([i[inside] for i in inner], self.grid or (1,))
            rows = np.full(cells.size, row, np.int64)
            columns.append((cells, rows, offsets[inside].astype(np.int64), lengths[inside].astype(np.int64)))
        if not columns:
            return (np.zeros(0, np.int64),) * 4
        cells, rows, offsets, lengths = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return cells, rows, offsets, lengths

    def _index(self, shards: NDArray[np.int64]) -> tuple[NDArray[np.intp], ...]:
        return np.unravel_index(shards, self.shape) if self.shape else ()

    def _checked(self, data: bytes | memoryview, shard: int, where: str) -> bytes | memoryview:
        if not self.is_checked:
            return data
        index, checksum = bytes(data[:-_CHECKSUM]), int.from_bytes(data[-_CHECKSUM:], "little")
        if google_crc32c.value(index) != checksum:
            raise self._damaged(shard, where, "has an index with a wrong checksum")
        return index

    def _damaged(self, shard: int, where: str, reason: str) -> MalformedFileError:
        cell = tuple(int(i) for i in np.unravel_index(int(shard), self.shape)) if math.prod(self.shape) > 1 else ()
        return MalformedFileError(f"shard {cell} of '{where}' {reason}: it is damaged; write it anew")
