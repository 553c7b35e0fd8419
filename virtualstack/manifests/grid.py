"""Chunk grids: where the cells of an array begin and end along each axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError
from virtualstack.manifests.cells import begins_run, replaced

MAX_AXIS_LENGTH = (1 << 63) - 1
"""Largest number of elements along an axis: the largest index that numpy can count."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkAxis:
    """Cells along one axis.

    Parameters
    ----------
    length
        Number of elements along the axis.
    chunk
        Number of elements of each cell; the last cell may be shorter. ``None`` if cells differ.
    edges
        First element of each cell, followed by the length: int64, strictly increasing from 0. ``None`` if cells do not
        differ.

    Raises
    ------
    ManifestError
        The axis has more than :data:`MAX_AXIS_LENGTH` elements.
    """

    length: int
    chunk: int | None
    edges: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.length > MAX_AXIS_LENGTH:
            raise _too_long(self.length)

    @classmethod
    def regular(cls, length: int, chunk: int, /) -> ChunkAxis:
        """Make an axis of equal cells; the last cell ends at the length."""
        if length < 0 or chunk < 1:
            raise ManifestError(f"an axis of {length} elements cannot have chunks of {chunk}; chunks have at least one")
        return cls(int(length), max(min(int(chunk), int(length)), 1))

    @classmethod
    def from_lengths(cls, lengths: NDArray[np.integer[Any]] | Sequence[int], /) -> ChunkAxis:
        """Make an axis of cells of the given lengths; the axis is regular if the lengths allow it.

        >>> ChunkAxis.from_lengths([4, 4, 2]).chunk
        4
        """
        try:
            lengths = np.asarray(lengths, np.int64)
        except OverflowError:
            raise _too_long(max(lengths)) from None
        if not lengths.size:
            return cls(0, 1)
        if lengths.min() < 1:
            raise ManifestError(f"cells of {int(lengths.min())} elements; each cell has at least one")
        first = int(lengths[0])
        if lengths[-1] <= first and bool((lengths[:-1] == first).all()):
            return cls(first * (lengths.size - 1) + int(lengths[-1]), first)
        edges = np.zeros(lengths.size + 1, np.int64)
        np.cumsum(lengths, out=edges[1:])
        if edges.min() < 0:  # the first sum that overflows is negative, as each length is less than 2^63
            raise _too_long(sum(lengths.tolist()))
        edges.flags.writeable = False
        return cls(int(edges[-1]), None, edges)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        if self.edges is not None:
            return len(self.edges) - 1
        return -(-self.length // (self.chunk or 1))

    @property
    def is_regular(self) -> bool:
        """True if all cells but the last have one length, and the last is not longer."""
        return self.edges is None

    @property
    def longest(self) -> int:
        """Number of elements of the longest cell; 1 if there are no cells."""
        return int(np.diff(self.edges).max()) if self.edges is not None else self.chunk or 1

    def lines(self, begin: int = 0, stop: int | None = None, /) -> NDArray[np.int64]:
        """Return the borders of the cells from number ``begin`` to before number ``stop``, by default of all cells.

        The borders are the first element of each of these cells, followed by the end of the last one.

        >>> ChunkAxis.regular(10, 4).lines().tolist(), ChunkAxis.regular(10, 4).lines(1, 2).tolist()
        ([0, 4, 8, 10], [4, 8])
        """
        stop = self.n_cells if stop is None else stop
        if self.edges is not None:
            return self.edges[begin : stop + 1]
        chunk = self.chunk or 1
        lines = np.arange(begin, stop + 1, dtype=np.int64)
        lines[:-1] *= chunk
        lines[-1] = min(stop * chunk, self.length)  # the last chunk may end past the largest integer
        return lines

    def span(self, begin: int, stop: int | None = None, /) -> slice:
        """Return the elements of the cells from ``begin`` to before ``stop``, by default of the cell ``begin`` alone.

        >>> ChunkAxis.regular(10, 4).span(1, 3)
        slice(4, 10, None)
        """
        stop = begin + 1 if stop is None else stop
        if self.edges is not None:
            return slice(int(self.edges[begin]), int(self.edges[stop]))
        chunk = self.chunk or 1
        return slice(begin * chunk, min(stop * chunk, self.length))

    def between(self, begin: int, stop: int, /) -> ChunkAxis:
        """Return the cells from number ``begin`` to before number ``stop`` as an axis."""
        if self.chunk is None:
            return ChunkAxis.from_lengths(np.diff(self.lines(begin, stop)))
        side = self.span(begin, stop)
        return ChunkAxis.regular(side.stop - side.start, self.chunk)

    def cover(self, start: int, stop: int, /) -> range:
        """Return the cells that hold the elements from ``start`` to before ``stop``; there is at least one element.

        >>> ChunkAxis.regular(10, 4).cover(3, 5)
        range(0, 2)
        """
        if self.edges is not None:
            first, last = self.edges.searchsorted((start, stop - 1), "right").tolist()
            return range(first - 1, last)
        chunk = self.chunk or 1
        return range(start // chunk, (stop - 1) // chunk + 1)

    def starts(self, cells: NDArray[np.integer[Any]], /) -> NDArray[np.int64]:
        """Return the first element of each of some cells."""
        if self.edges is not None:
            starts: NDArray[np.int64] = self.edges[cells]
        else:
            starts = cells.astype(np.int64, copy=False) * (self.chunk or 1)
        return starts

    def lengths(self, cells: NDArray[np.integer[Any]] | None = None, /) -> NDArray[np.int64]:
        """Return the number of elements of each cell, or of some cells by their indexes."""
        if cells is None:
            return np.diff(self.lines())
        if self.edges is not None:
            lengths: NDArray[np.int64] = self.edges[cells + 1] - self.edges[cells]
        else:
            chunk = self.chunk or 1
            lengths = np.minimum(self.length - cells.astype(np.int64) * chunk, chunk)
        return lengths

    def usual_length(self) -> int:
        """Return the chunk length, or if cells differ, the cell length that covers most elements."""
        if self.chunk is not None:
            return self.chunk
        lengths, counts = np.unique(self.lengths(), return_counts=True)
        return int(lengths[(lengths * counts).argmax()])

    def find(self, index: NDArray[np.int64] | int, /) -> NDArray[np.int64]:
        """Return the cell that holds each element; indexes are in ``[0, length)``."""
        if self.edges is None:
            return np.asarray(index, np.int64) // (self.chunk or 1)
        return np.searchsorted(self.edges, index, "right") - 1

    def begins(self, other: ChunkAxis, /) -> bool:
        """Return whether another axis begins with the same cells; it may have more cells after them."""
        if self.length > other.length:
            return False
        if self.chunk is not None and self.chunk == other.chunk:
            return self.length == other.length or self.length % self.chunk == 0
        lines, n = self.lines(), self.n_cells + 1
        return n <= other.n_cells + 1 and bool(np.array_equal(lines, other.lines()[:n]))

    def pieces(
        self, picked: range, /
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Cut equally spaced elements at the lines between cells; there is at least one element.

        Returns
        -------
        tuple
            Four arrays with one value for each cell that has picked elements, in the order of cells: index of the cell;
            element of the cell that is picked first; number of picked elements; position of the first among all picked.

        >>> [x.tolist() for x in ChunkAxis.regular(10, 4).pieces(range(9, 1, -3))]
        [[0, 1, 2], [3, 2, 1], [1, 1, 1], [2, 1, 0]]
        """
        low, high, k = min(picked[0], picked[-1]), max(picked[0], picked[-1]), abs(picked.step)
        met = self.cover(low, high + 1)
        if len(picked) < len(met):  # steps over whole cells, perhaps over very many
            cells = self.find(low + np.arange(len(picked)) * k)
            cells = cells[begins_run(cells.size, cells)]
        else:
            cells = np.arange(met.start, met.stop)
        start = self.starts(cells)
        last = start + (self.lengths(cells) - 1)
        begin = low + -(-np.maximum(start - low, 0) // k) * k
        end = low + (np.minimum(last, high) - low) // k * k
        hit = end >= begin
        if not hit.all():  # some steps are longer than a cell
            cells, start, begin, end = cells[hit], start[hit], begin[hit], end[hit]
        count = (end - begin) // k + 1
        if picked.step > 0:
            return cells, begin - start, count, (begin - low) // k
        return cells, end - start, count, (high - end) // k

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChunkAxis):
            return NotImplemented
        if (self.length, self.chunk) != (other.length, other.chunk):
            return False
        return self.edges is other.edges or bool(np.array_equal(self.lines(), other.lines()))

    def __hash__(self) -> int:
        return hash((self.length, self.chunk, self.n_cells))

    def __repr__(self) -> str:
        if self.is_regular:
            return f"{self.length}/{self.chunk}"
        lengths = self.lengths()
        shown = ",".join(str(n) for n in lengths[:4]) + (",..." if len(lengths) > 4 else "")
        return f"{self.length}/({shown})"


@dataclass(frozen=True)
class ChunkGrid:
    """Cells of an array: the product of the cells along each axis.

    When to use: in a reader, for the shape of an array and the boundaries of its chunks.

    Parameters
    ----------
    axes
        One :class:`ChunkAxis` for each axis of the array.

    Examples
    --------
    >>> import virtualstack as vs
    >>> grid = vs.ChunkGrid.regular((31, 10), (1, 4))
    >>> grid.shape, grid.array_shape, grid.is_regular
    ((31, 3), (31, 10), True)
    >>> grid.replace(0, grid.axes[1]).array_shape
    (10, 10)
    """

    axes: tuple[ChunkAxis, ...]

    @classmethod
    def regular(cls, shape: Iterable[int], chunks: Iterable[int], /) -> ChunkGrid:
        """Make a grid of equal cells; shape and chunks in elements, of the same number of axes."""
        return cls(tuple(ChunkAxis.regular(n, c) for n, c in zip(shape, chunks, strict=True)))

    @cached_property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of the array, in elements."""
        return tuple(axis.length for axis in self.axes)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid, in cells."""
        return tuple(axis.n_cells for axis in self.axes)

    @property
    def is_regular(self) -> bool:
        """True if every axis is regular."""
        return all(axis.is_regular for axis in self.axes)

    def box(self, cell: Iterable[int], /) -> tuple[slice, ...]:
        """Return the elements of a cell.

        >>> import virtualstack as vs
        >>> vs.ChunkGrid.regular((10, 3), (4, 3)).box((2, 0))
        (slice(8, 10, None), slice(0, 3, None))
        """
        return tuple(axis.span(i) for i, axis in zip(cell, self.axes, strict=True))

    def replace(self, axis: int, new: ChunkAxis, /) -> ChunkGrid:
        """Return the grid with one axis replaced."""
        return ChunkGrid(replaced(self.axes, axis, new))

    def __repr__(self) -> str:
        return f"ChunkGrid({' x '.join(map(repr, self.axes)) or 'scalar'})"


def as_range(index: NDArray[np.int64], /) -> range | None:
    """Return indexes as a range, or ``None`` if they are not equally spaced, or all the same.

    >>> as_range(np.array([5, 3, 1])), as_range(np.array([1, 2, 4]))
    (range(5, 0, -2), None)
    """
    if not index.size:
        return range(0)
    step = int(index[1] - index[0]) if index.size > 1 else 1
    if step == 0 or not bool((np.diff(index) == step).all()):
        return None
    return range(int(index[0]), int(index[-1]) + (1 if step > 0 else -1), step)


def _too_long(length: int) -> ManifestError:
    return ManifestError(f"an axis of {length} elements is longer than the {MAX_AXIS_LENGTH} that can be counted")


def union(*lines: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Return all lines, each once, in ascending order.

    `numpy.unique` uses a hash table, which is slow for the lines of regular grids: 20 s for 10^7.

    >>> union(np.array([0, 4, 8]), np.array([0, 6, 8])).tolist()
    [0, 4, 6, 8]
    """
    merged = np.concatenate(lines, dtype=np.int64)
    merged.sort(kind="stable")  # merges runs that are in order
    is_new = np.ones(merged.size, np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=is_new[1:])
    return merged[is_new]


_MAX_DIGITS = 19  # of a number of chunks that can be counted


def parse_cell(parts: Sequence[str], /) -> tuple[int, ...] | None:
    """Read the numbers of one chunk key; ``None`` if they are not numbers as zarr writes them."""
    if not all(part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS for part in parts):
        return None
    numbers = tuple(map(int, parts))
    return numbers if [*map(str, numbers)] == [*parts] else None


def chunk_key(path: str, cell: Sequence[int], /) -> str:
    """Return the key of a chunk in zarr v3.

    >>> chunk_key("t", (0, 1)), chunk_key("x", ())
    ('t/c/0/1', 'x/c')
    """
    return "/".join((path, "c", *map(str, cell)))


def cell_of_key(key: str, shape: tuple[int, ...], separator: str, /) -> tuple[int, ...]:
    """Return the index that a key such as ``"0.1"`` names in a grid of a shape."""
    if not shape and key in ("", "0"):
        return ()
    cell = parse_cell(key.split(separator))
    if cell is not None and len(cell) == len(shape) and all(i < n for i, n in zip(cell, shape, strict=True)):
        return cell
    raise ManifestError(f"chunk key '{key}' is not an index of a grid of shape {shape}")
