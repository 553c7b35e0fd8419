"""Present any virtual array with equal chunks, as zarr needs them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import EMPTY, ChunkGrid, ManifestArray
from virtualstack.reading import OnAbsent, read_array
from virtualstack.storage import StorageLike
from virtualstack.zarr.metadata.encode import filled_up

__all__ = ["MAX_CHUNK_BYTES", "UniformArray", "count_overlaps", "split_chunks"]

MAX_CHUNK_BYTES = 64 << 20
"""Approximate largest size of a decoded chunk in bytes; larger chunks are split."""


@dataclass(frozen=True, slots=True, eq=False)
class UniformArray:
    """An array over a regular grid."""

    array: ManifestArray
    grid: ChunkGrid
    chunks: tuple[int, ...]

    @classmethod
    def from_array(cls, array: ManifestArray, chosen: Mapping[str, int] | None = None, /) -> UniformArray:
        """Choose the chunks: the cells if they are equal, else the length that most elements have.

        ``chosen`` has other lengths by dimension; chunks of more than 64 MiB are split in any case.
        """
        names = array.dimension_names or (None,) * array.ndim
        lengths = ((chosen or {}).get(str(name)) for name in names)
        chunks = [
            axis.usual_length() if length is None else max(min(length, axis.length), 1)
            for length, axis in zip(lengths, array.grid.axes, strict=True)
        ]
        chunks = split_chunks(chunks, array.dtype, MAX_CHUNK_BYTES)
        return cls(array, ChunkGrid.regular(array.shape, chunks), tuple(chunks))

    def present(self, *, absent: OnAbsent) -> NDArray[np.bool_]:
        """Return a mask of the chunks that show more than the array's own fill value; shape of the grid."""
        manifest = self.array.in_memory()
        code, row = manifest.entries["location"], manifest.entries["encoding"]
        is_hole = code == EMPTY if absent == "raise" else manifest.holes
        is_own = np.array([fill == manifest.fill for fill in manifest.fills])[np.where(is_hole, row, 0)]
        return np.asarray(count_overlaps(~(is_hole & is_own), self.array.grid, self.grid) > 0)

    def read(self, cell: Sequence[int], storage: StorageLike = None, /, *, absent: OnAbsent = "fill") -> NDArray[Any]:
        """Read one whole chunk; past the array's end it repeats the last values."""
        return filled_up(read_array(self.array, self.grid.box(cell), storage, absent=absent), self.chunks)

    def read_each(self, cells: Iterable[Sequence[int]], storage: StorageLike = None, /) -> Iterator[NDArray[Any]]:
        """Read chunks sequentially, as :meth:`read` does; cells that several consecutive chunks share are read once.

        The cells of the array that a chunk overlaps are held in memory.
        """
        there: tuple[slice, ...] | None = None
        values: NDArray[Any] | None = None
        for cell in cells:
            key = self.grid.box(cell)
            axes = self.array.grid.axes
            met = [axis.cover(side.start, side.stop) for axis, side in zip(axes, key, strict=True)]
            wanted = tuple(axis.span(cells.start, cells.stop) for axis, cells in zip(axes, met, strict=True))
            if values is None or wanted != there:
                values = None  # before others take memory
                there, values = wanted, read_array(self.array, wanted, storage)
            own: Any = (slice(a.start - b.start, a.stop - b.start) for a, b in zip(key, wanted, strict=True))
            yield filled_up(values[(*own, ...)], self.chunks)


def split_chunks(chunks: Sequence[int], dtype: np.dtype[Any], most: int, /) -> list[int]:
    """Return chunks of at most about ``most`` bytes, by splitting the first axes.

    >>> split_chunks([100, 10], np.dtype("f8"), 800)
    [10, 10]
    """
    chunks = list(chunks)
    for i, n in enumerate(chunks):
        nbytes = math.prod(chunks) * max(dtype.itemsize, 1)
        if nbytes > most:
            chunks[i] = -(-n // min(-(-nbytes // most), n))
    return chunks


def count_overlaps(marked: NDArray[np.bool_], grid: ChunkGrid, other: ChunkGrid, /) -> NDArray[np.int64]:
    """Count the marked cells of one grid that each cell of another grid over the same elements overlaps."""
    found = np.asarray(marked, np.int64)
    for i, (axis, cells) in enumerate(zip(grid.axes, other.axes, strict=True)):
        lines = cells.lines()
        low, high = axis.find(lines[:-1]), axis.find(lines[1:] - 1) + 1
        before = np.zeros((*found.shape[:i], 1, *found.shape[i + 1 :]), np.int64)
        total = np.concatenate([before, found.cumsum(i)], i)
        found = total.take(high, i) - total.take(low, i)
    return found
