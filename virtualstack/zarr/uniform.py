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
from virtualstack.zarr.rewrite.matching import count_overlaps

__all__ = ["UniformArray"]

_MAX_CHUNK_BYTES = 64 << 20
"""Approximate largest size of a decoded chunk in bytes; larger chunks are split."""


@dataclass(frozen=True, slots=True, eq=False)
class UniformArray:
    """An array over a regular grid.

    Parameters
    ----------
    array
        Any virtual array.
    grid
        Regular grid of the same shape in elements.
    chunks
        Shape of all chunks in elements.
    """

    array: ManifestArray
    grid: ChunkGrid
    chunks: tuple[int, ...]

    @classmethod
    def from_array(cls, array: ManifestArray, chosen: Mapping[str, int] | None = None, /) -> UniformArray:
        """Choose the chunks: the cells if they are equal, else the length that most elements have.

        ``chosen`` has other lengths by dimension; chunks of more than 64 MiB are split in any case.
        """
        names = array.dimension_names or (None,) * array.ndim
        chunks = [
            axis.usual_length()
            if (length := (chosen or {}).get(str(name))) is None
            else max(min(length, axis.length), 1)
            for name, axis in zip(names, array.grid.axes, strict=True)
        ]
        for i, n in enumerate(chunks):
            nbytes = math.prod(chunks) * max(array.dtype.itemsize, 1)
            if nbytes > _MAX_CHUNK_BYTES:
                chunks[i] = -(-n // min(-(-nbytes // _MAX_CHUNK_BYTES), n))
        return cls(array, ChunkGrid.regular(array.shape, chunks), tuple(chunks))

    def present(self, *, absent: OnAbsent) -> NDArray[np.bool_]:
        """Return a mask of the chunks that show more than the array's own fill value; shape of the grid."""
        manifest = self.array.in_memory()
        code, row = manifest.entries["location"], manifest.entries["encoding"]
        is_hole = code == EMPTY if absent == "raise" else manifest.holes
        is_own = np.array([fill == manifest.fill for fill in manifest.fills])[np.where(is_hole, row, 0)]
        return np.asarray(count_overlaps(~(is_hole & is_own), self.array.grid, self.grid) > 0)

    def read(self, cell: Sequence[int], storage: StorageLike = None, /, *, absent: OnAbsent = "fill") -> NDArray[Any]:
        """Read one whole chunk; the part past the array's end is the fill value.

        Raises
        ------
        StorageError
            Values cannot be read; see :func:`~virtualstack.reading.read_array`.
        """
        return self.filled_up(read_array(self.array, self._key(cell), storage, absent=absent))

    def read_each(self, cells: Iterable[Sequence[int]], storage: StorageLike = None, /) -> Iterator[NDArray[Any]]:
        """Read chunks sequentially, as :meth:`read` does; cells that several consecutive chunks share are read once.

        The cells of the array that a chunk overlaps are held in memory.
        """
        there: tuple[slice, ...] | None = None
        values: NDArray[Any] | None = None
        for cell in cells:
            key = self._key(cell)
            axes = self.array.grid.axes
            met = [axis.cover(side.start, side.stop) for axis, side in zip(axes, key, strict=True)]
            wanted = tuple(axis.span(cells.start, cells.stop) for axis, cells in zip(axes, met, strict=True))
            if values is None or wanted != there:
                values = None  # before others take memory
                there, values = wanted, read_array(self.array, wanted, storage)
            own: Any = (slice(a.start - b.start, a.stop - b.start) for a, b in zip(key, wanted, strict=True))
            yield self.filled_up(values[(*own, ...)])

    def _key(self, cell: Sequence[int]) -> tuple[slice, ...]:
        return tuple(axis.span(i) for i, axis in zip(cell, self.grid.axes, strict=True))

    def filled_up(self, values: NDArray[Any], /) -> NDArray[Any]:
        """Return a whole chunk with the values, and the fill value past the end of the array."""
        if values.shape == self.chunks:
            return values
        whole = np.empty(self.chunks, self.array.dtype)
        whole[...] = self.array.manifest.read(tuple(slice(0, 0) for _ in values.shape)).fill.value
        whole[tuple(slice(0, n) for n in values.shape)] = values
        return whole
