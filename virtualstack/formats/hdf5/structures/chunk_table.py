"""Hold the chunks of a dataset, and check the rules that all kinds of chunk index share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout
from virtualstack.formats.hdf5.structures.requests import OutsideError, StructureError, Widths


class ChunkTable(NamedTuple):
    """Allocated chunks of a dataset in any order, at most one for each cell; all arrays have the shape ``(n_chunks,)``.

    Parameters
    ----------
    cell
        C-order index in the chunk grid of the current shape.
    offset, length
        Offset from the end of the user block, and length, in bytes.
    mask
        Filter mask: bit i is set if filter i was skipped.
    """

    cell: NDArray[np.int64]
    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    mask: NDArray[np.uint32]


class ChunkSpace(NamedTuple):
    """Facts about the chunks of a dataset that are known before the index is read.

    Parameters
    ----------
    layout
        Layout of the dataset.
    shape
        Shape in elements.
    grid, max_grid
        Number of chunks along each axis, for the current and the maximum shape; ``None`` for an unlimited axis.
    is_filtered
        If true, the dataset has a filter pipeline.
    widths
        Widths of addresses and lengths.
    end
        Number of bytes of the file after the user block.
    """

    layout: ChunkedLayout
    shape: tuple[int, ...]
    grid: tuple[int, ...]
    max_grid: tuple[int | None, ...]
    is_filtered: bool
    widths: Widths
    end: int

    @property
    def n_cells(self) -> int:
        """Number of cells of the current grid."""
        return math.prod(self.grid)

    @property
    def size_width(self) -> int:
        """Width in bytes of the size of a filtered chunk, in all indexes except for version 1 B-trees.

        Layout messages of version 4 use one byte more than the size of an unfiltered chunk needs. Version 5 uses the
        width of lengths.
        """
        if self.layout.version >= 5:
            return self.widths.length
        return min(8, 1 + (self.layout.chunk_bytes.bit_length() + 7) // 8)

    @property
    def entry_size(self) -> int:
        """Size in bytes of an element of a fixed or extensible array: an address; if filtered, also size and mask."""
        return self.widths.address + (self.size_width + 4 if self.is_filtered else 0)

    def limited_grid(self, index: str) -> tuple[int, ...]:
        """Return the maximum grid, or raise `StructureError` with the kind of index if an axis is unlimited."""
        limited = tuple(n for n in self.max_grid if n is not None)
        if len(limited) < len(self.max_grid):
            raise StructureError(f"a dataset with {index} has an unlimited axis")
        return limited

    def cells_at(self, coordinates: Iterable[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.bool] | None]:
        """Return the cells of chunks from their positions in the grid.

        Parameters
        ----------
        coordinates
            Positions in chunks for each axis, of shape ``(n,)``, with n at least 1.

        Returns
        -------
        cell
            Cells of shape ``(n,)``.
        is_inside
            Mask of the cells within the current shape; ``None`` if all cells are.

        Raises
        ------
        StructureError
            A chunk is outside of the maximum shape.
        """
        cell: NDArray[np.int64] | None = None
        is_inside: NDArray[np.bool] | None = None
        for axis, place in enumerate(coordinates):
            greatest, most = int(place.view(np.uint64).max()), self.max_grid[axis]  # negative ones are the greatest
            if greatest >= (1 << 63 if most is None else most):
                raise StructureError("the chunk index has a chunk outside of the greatest shape of the dataset")
            if greatest >= self.grid[axis]:
                below = place < self.grid[axis]
                is_inside = below if is_inside is None else is_inside & below
            stride = math.prod(self.grid[axis + 1 :])
            weighted = place * stride if stride > 1 else place
            cell = weighted if cell is None else cell + weighted
        if cell is None:
            raise StructureError("a dataset without axes has chunks")
        return cell, is_inside

    def cells_numbered(
        self, number: NDArray[np.int64], order: Sequence[int]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool] | None]:
        """Return the cells of chunks from their numbers in the maximum grid, with the results of `cells_at`.

        Parameters
        ----------
        number
            Numbers of shape ``(n,)``, with n at least 1; not negative, and within the maximum shape.
        order
            The axes: first the axis that varies slowest, then the other axes in order.
        """
        if order[0] == 0 and self.max_grid[1:] == self.grid[1:]:
            return number, (number < self.n_cells if int(number.max()) >= self.n_cells else None)
        places: dict[int, NDArray[np.int64]] = {}
        for axis in reversed(order[1:]):
            length = min(self.max_grid[axis] or 0, (1 << 63) - 1)
            slower = number // length
            places[axis] = number - slower * length
            number = slower
        places[order[0]] = number
        return self.cells_at(places[axis] for axis in range(len(order)))


def chunk_space(
    layout: ChunkedLayout,
    shape: tuple[int, ...],
    maxshape: tuple[int | None, ...],
    *,
    is_filtered: bool,
    widths: Widths,
    end: int,
) -> ChunkSpace:
    """Return the chunk space of a dataset, and check that its parts do not contradict each other.

    Raises
    ------
    StructureError
        The layout and the shape contradict each other, or the grid has 2^63 cells or more.
    """
    if not len(layout.chunk) == len(shape) == len(maxshape):
        raise StructureError(f"chunks have {len(layout.chunk)} axes, the dataset has {len(shape)}")
    grid = tuple(-(-n // c) for n, c in zip(shape, layout.chunk, strict=True))
    if math.prod(grid) >= 1 << 63:
        raise StructureError(f"the dataset has a grid of {grid} chunks")
    return ChunkSpace(
        layout=layout,
        shape=shape,
        grid=grid,
        max_grid=tuple(None if n is None else -(-n // c) for n, c in zip(maxshape, layout.chunk, strict=True)),
        is_filtered=is_filtered,
        widths=widths,
        end=end,
    )


def empty_table() -> ChunkTable:
    """Return the table of a dataset without chunks."""
    none = np.zeros(0, np.int64)
    return ChunkTable(cell=none, offset=none, length=none, mask=np.zeros(0, np.uint32))


class TableBuilder:
    """Builder of a chunk table, to which chunks are added as they are found.

    Parameters
    ----------
    space
        Chunk space of the dataset.
    capacity
        Largest possible number of chunks; memory is allocated as needed.
    """

    def __init__(self, space: ChunkSpace, capacity: int) -> None:
        self._space = space
        self._capacity = min(capacity, space.n_cells)
        self._n = 0
        self._columns: tuple[NDArray[Any], ...] = ()

    def add(
        self,
        cell: NDArray[np.int64],
        is_inside: NDArray[np.bool] | None,
        offset: NDArray[np.int64],
        length: NDArray[np.int64] | None,
        mask: NDArray[np.int64] | None,
    ) -> None:
        """Add chunks.

        Parameters
        ----------
        cell, offset
            Cells and offsets of shape ``(n,)``.
        is_inside
            Mask of the chunks to add, of shape ``(n,)``; ``None`` for all chunks.
        length, mask
            Lengths and masks of shape ``(n,)``; ``None`` if there are no filters.

        Raises
        ------
        StructureError
            A chunk has no bytes, or extends past the end of the file, or there are more chunks than cells.
        """
        if is_inside is not None:
            cell, offset = cell[is_inside], offset[is_inside]
            length = None if length is None else length[is_inside]
            mask = None if mask is None else mask[is_inside]
        n = len(cell)
        if not n:
            return
        if self._n + n > self._capacity:
            raise StructureError("the chunk index has duplicate chunks")
        self._check_bytes(offset, length)
        columns: tuple[NDArray[Any], ...] = cell, offset
        if length is not None and mask is not None:
            self._check_edges(cell, length)
            columns = cell, offset, length, mask.astype(np.uint32, copy=False)
        if not self._n:
            self._columns = columns  # not copied: usually no further chunks are added
        else:
            if len(self._columns[0]) == self._n:
                self._columns = tuple(map(self._enlarged, self._columns))
            for place, column in zip(self._columns, columns, strict=True):
                place[self._n : self._n + n] = column
        self._n += n

    def _enlarged(self, column: NDArray[Any]) -> NDArray[Any]:
        place = np.empty(self._capacity, column.dtype)
        place[: self._n] = column
        return place

    def _check_bytes(self, offset: NDArray[np.int64], length: NDArray[np.int64] | None) -> None:
        end = self._space.end
        if length is None:
            least, last = self._space.layout.chunk_bytes, end - self._space.layout.chunk_bytes
        else:
            least, last = int(length.min()), end - int(length.max())
        if least < 1:
            raise StructureError("the chunk index has a chunk of no bytes")
        greatest = int(offset.view(np.uint64).max())  # negative ones are the greatest
        if greatest > last and (greatest > end or length is None or (offset > end - length).any()):
            raise OutsideError("the chunk index has a chunk past the end of the file")

    def _check_edges(self, cell: NDArray[np.int64], length: NDArray[np.int64]) -> None:
        space = self._space
        if not space.layout.leaves_edges_unfiltered:
            return
        for axis, (n, c) in enumerate(zip(space.shape, space.layout.chunk, strict=True)):
            if n % c:
                place = cell // math.prod(space.grid[axis + 1 :]) % space.grid[axis]
                if (length[place == space.grid[axis] - 1] != space.layout.chunk_bytes).any():
                    raise StructureError("the chunk index has a chunk without filters of another size than chunks have")

    def check_increasing(self) -> None:
        """Raise `StructureError` unless each cell comes after the cell before it."""
        cell = self._cells()
        if (cell[1:] <= cell[:-1]).any():
            raise StructureError("the chunk index has chunks out of order, or duplicate chunks")

    def check_distinct(self) -> None:
        """Raise `StructureError` if two chunks belong to one cell."""
        cell, n_cells = self._cells(), self._space.n_cells
        if n_cells <= 8 * self._n:  # no more bytes than `cell` has
            seen = np.zeros(n_cells, np.bool)
            seen[cell] = True
            n_distinct = int(np.count_nonzero(seen))
        else:
            in_order = np.sort(cell)
            n_distinct = 1 + int(np.count_nonzero(in_order[1:] != in_order[:-1])) if self._n else 0
        if n_distinct != self._n:
            raise StructureError("the chunk index has duplicate chunks")

    def finish(self) -> ChunkTable:
        """Return the table; no chunks may be added afterwards."""
        n, space = self._n, self._space
        if not n:
            return empty_table()
        for column in self._columns:
            if len(column) > n:
                column.resize(n, refcheck=False)
        cell, offset, *filtered = self._columns
        length, mask = filtered or (np.full(n, space.layout.chunk_bytes, np.int64), np.zeros(n, np.uint32))
        return ChunkTable(cell=cell, offset=offset, length=length, mask=mask)

    def _cells(self) -> NDArray[np.int64]:
        return self._columns[0][: self._n] if self._n else np.zeros(0, np.int64)
