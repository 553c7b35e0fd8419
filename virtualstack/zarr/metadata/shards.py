"""Read shards of zarr v3: objects that hold chunks, and an index of their offsets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.shards import INDEX_CHECKSUM_BYTES, INDEX_ENTRY_BYTES, NO_CHUNK
from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.manifests.cells import distinct_rows

_BLOCK_CHUNKS = 1 << 20  # chunks that are processed together


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Layout of the chunks of an array in shards; zarr v3, codec ``sharding_indexed``.

    Parameters
    ----------
    edges
        Numbers of chunks in each shard, for each axis, as stored: the last shard may reach beyond the array.
    grid
        Number of chunks of the array along each axis.
    is_index_first
        If true, the index is at the start of a shard, otherwise at its end.
    is_checked
        If true, a checksum follows the index.
    """

    edges: tuple[NDArray[np.int64], ...]
    grid: tuple[int, ...]
    is_index_first: bool
    is_checked: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of shards along each axis."""
        return tuple(map(len, self.edges))

    def n_chunks(self, shards: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the number of entries in the index of each shard; shards are counted in C order."""
        return np.prod(self._shapes(self._index(shards)), axis=1, dtype=np.int64)

    def holding(self, cells: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the shard that holds each chunk; chunks and shards are counted in C order of their grids."""
        index = np.unravel_index(cells, self.grid or (1,))
        at = [np.searchsorted(np.cumsum(edges), i, side="right") for edges, i in zip(self._edges, index, strict=True)]
        return np.ravel_multi_index(at, self.shape or (1,))

    def index_ranges(self, shards: NDArray[np.int64], sizes: NDArray[np.int64], /, *, where: str) -> NDArray[np.int64]:
        """Return offset and length, in bytes, of the index in each shard."""
        lengths = self.n_chunks(shards) * INDEX_ENTRY_BYTES + (INDEX_CHECKSUM_BYTES if self.is_checked else 0)
        short = lengths > sizes
        if short.any():
            row = int(short.argmax())
            raise self._damaged(shards[row], where, f"has {sizes[row]} bytes, but its index takes {lengths[row]}")
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
        """Return the chunks that exist, by the indexes of shards.

        Returns
        -------
        tuple
            Four columns: the cell of each chunk in the grid of the array, in C order; the row of its shard in
            ``shards``; its offset in the shard, and its length, in bytes.
        """
        index = self._index(shards)
        shapes = self._shapes(index)
        grid = self.grid or (1,)
        starts = [np.cumsum(edges) - edges for edges in self._edges]
        columns = [tuple(np.zeros((4, 0), np.int64))]
        for some in _alike(shapes):
            tables = [self._checked(indexes[row], shards[row], where) for row in some.tolist()]
            table = np.frombuffer(b"".join(tables), "<u8").reshape(some.size, -1, 2)
            shard, place = np.nonzero((table != NO_CHUNK).any(2))
            offsets, lengths = table[shard, place].T
            rows = some[shard]
            ends = sizes[rows].astype(np.uint64)
            outside = (offsets > ends) | (lengths > ends - np.minimum(offsets, ends))
            if outside.any():
                row = rows[int(outside.argmax())]
                raise self._damaged(shards[row], where, f"has {sizes[row]} bytes, but a chunk beyond its end")
            inner = np.unravel_index(place, shapes[some[0]].tolist())
            cell = [start[i[rows]] + j for start, i, j in zip(starts, index, inner, strict=True)]
            inside = np.all([i < n for i, n in zip(cell, grid, strict=True)], axis=0)
            cells = np.ravel_multi_index([i[inside] for i in cell], grid)
            columns.append((cells, rows[inside], offsets[inside].astype(np.int64), lengths[inside].astype(np.int64)))
        cells, rows, offsets, lengths = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        return cells, rows, offsets, lengths

    @property
    def _edges(self) -> tuple[NDArray[np.int64], ...]:
        return self.edges or (np.ones(1, np.int64),)  # an array without axes has one chunk

    def _index(self, shards: NDArray[np.int64]) -> tuple[NDArray[np.intp], ...]:
        return np.unravel_index(shards, self.shape or (1,))

    def _shapes(self, index: Sequence[NDArray[np.intp]]) -> NDArray[np.int64]:
        """Return the number of chunks in each shard along each axis."""
        return np.stack([edges[i] for edges, i in zip(self._edges, index, strict=True)], 1)

    def _checked(self, data: bytes | memoryview, shard: int, where: str) -> bytes | memoryview:
        if not self.is_checked:
            return data
        index, checksum = bytes(data[:-INDEX_CHECKSUM_BYTES]), int.from_bytes(data[-INDEX_CHECKSUM_BYTES:], "little")
        if google_crc32c.value(index) != checksum:
            raise self._damaged(shard, where, "has an index with a wrong checksum")
        return index

    def _damaged(self, shard: int, where: str, reason: str) -> MalformedFileError:
        cell = tuple(int(i) for i in np.unravel_index(int(shard), self.shape)) if math.prod(self.shape) > 1 else ()
        return MalformedFileError(f"shard {cell} of '{where}' is damaged: it {reason}", Remedy("write it again"))


def _alike(shapes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of shards of one shape, some at a time."""
    first, kinds = distinct_rows(shapes.T)
    for kind, shape in enumerate(shapes[first]):
        rows = np.flatnonzero(kinds == kind)
        step = max(1, _BLOCK_CHUNKS // int(np.prod(shape)))
        yield from (rows[i : i + step] for i in range(0, rows.size, step))
