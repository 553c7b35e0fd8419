"""Place arrays in a larger array, whose grid has the lines of all arrays; cells without an array are EMPTY."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import CombineError
from virtualstack.manifests.cells import outer
from virtualstack.manifests.chunk_manifest import ENTRY, ChunkManifest
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid, union
from virtualstack.manifests.indexing import Chunks, refine, slice_axis
from virtualstack.manifests.joining import MAX_CELL_GROWTH
from virtualstack.manifests.unify import unify

MAX_MOSAIC_CELLS = 1 << 26
"""Largest number of cells of a mosaic, and of a tile that is cut: 1.6 GB of entries."""

_FREE_CELLS = 1 << 12  # number of cells that is within any budget


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Some elements of an axis, as runs of consecutive elements.

    Parameters
    ----------
    starts, lengths
        First element and number of elements of each run: shape ``(n,)``, int64. Runs ascend and neither overlap nor
        touch; lengths are at least 1.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def from_starts(cls, starts: Iterable[int] | NDArray[np.int64], lengths: Iterable[int] | NDArray[np.int64]) -> Runs:
        """Make runs from ascending starts; runs that touch are merged, and empty runs are left out.

        >>> Runs.from_starts([0, 4, 7, 9, 12], [4, 1, 2, 1, 0])
        Runs(0:5,7:10)
        """
        first = np.asarray(starts, np.int64).reshape(-1)
        count = np.asarray(lengths, np.int64).reshape(-1)
        keep = count > 0
        first, end = first[keep], (first + count)[keep]
        if (first < 0).any() or (end < first).any() or (first[1:] < end[:-1]).any():
            raise ValueError("runs of elements must ascend from 0 on and not overlap")
        is_new = np.ones(first.size, np.bool_)
        is_new[1:] = first[1:] != end[:-1]
        first, end = first[is_new], end[np.append(is_new[1:], True)[: end.size]]
        return cls(first, end - first)

    @classmethod
    @lru_cache(maxsize=1 << 12)
    def one(cls, start: int, length: int) -> Runs:
        """Make `Runs` of one run of elements, or of none if the length is 0.

        The result is cached, so that many tiles that cover the same elements share one object.

        >>> Runs.one(3, 2)
        Runs(3:5)
        """
        return cls.from_starts([start], [length])

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.lengths.sum())

    @property
    def stop(self) -> int:
        """End of the last run; 0 if there are no runs."""
        return int(self.starts[-1] + self.lengths[-1]) if self.starts.size else 0

    def offsets(self) -> NDArray[np.int64]:
        """Return the number of elements before each run, and the total at the end: shape ``(n + 1,)``."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths)])

    def __repr__(self) -> str:
        shown = ",".join(
            f"{a}:{a + n}" for a, n in zip(self.starts[:4].tolist(), self.lengths[:4].tolist(), strict=True)
        )
        return f"Runs({shown}{',...' if self.starts.size > 4 else ''})"


class Tile(NamedTuple):
    """An array, and where it is placed in a larger array: the input of :func:`place_tiles`.

    Parameters
    ----------
    chunks
        Manifest and chunk grid of the array.
    runs
        For each axis: the elements of the larger array that are the elements of this array, in order.
    """

    chunks: Chunks
    runs: tuple[Runs, ...]


class Mosaic(NamedTuple):
    """The larger array that :func:`place_tiles` returns."""

    chunks: Chunks
    n_covered: int


def take_runs(chunks: Chunks, axis: int, runs: Runs, /) -> Chunks:
    """Select runs of elements along one axis; no bytes are read."""
    length = chunks.grid.axes[axis].length
    if runs.stop > length:
        raise IndexError(f"elements up to {runs.stop} are out of bounds for axis {axis} with size {length}")
    if runs.starts.size <= 1:
        start = int(runs.starts[0]) if runs.starts.size else 0
        return slice_axis(chunks, axis, slice(start, runs.stop))
    step = int(runs.starts[1] - runs.starts[0])
    if (runs.lengths == 1).all() and (np.diff(runs.starts) == step).all():
        return slice_axis(chunks, axis, slice(int(runs.starts[0]), runs.stop, step))
    low = int(runs.starts[0])
    chunks = slice_axis(chunks, axis, slice(low, runs.stop))
    starts = runs.starts - low
    chunks = _cut(chunks, axis, np.concatenate([starts, starts + runs.lengths]))
    lines = chunks.grid.axes[axis].lines()
    run = np.searchsorted(starts, lines[:-1], "right") - 1
    cells = np.flatnonzero(lines[:-1] < (starts + runs.lengths)[run])
    return Chunks(
        chunks.manifest.map_cells(lambda x: x.take(cells, axis)),
        chunks.grid.replace(axis, ChunkAxis.from_lengths(np.diff(lines)[cells])),
    )


def place_tiles(shape: Sequence[int], tiles: Sequence[Tile], fill: Fill, /) -> Mosaic:
    """Place arrays in a larger array; where two overlap, the later one is used.

    Cells of every tile are cut at the grid lines of all tiles, as in joining. This costs a few copies of the entries.
    """
    tiles = [tile for tile in tiles if all(runs.starts.size for runs in tile.runs)]
    for tile in tiles:
        if any(runs.stop > n for runs, n in zip(tile.runs, shape, strict=True)):
            raise IndexError(f"a tile ends at {tuple(x.stop for x in tile.runs)}, the array at {tuple(shape)}")
    tiles = [Tile(_cut_at_runs(tile), tile.runs) for tile in tiles]
    axes = [_Lines.from_tiles(n, tiles, axis) for axis, n in enumerate(shape)]
    grid = ChunkGrid(tuple(ChunkAxis.from_lengths(np.diff(axis.union)) for axis in axes))
    _check_budget(sum(math.prod(tile.chunks.grid.shape) for tile in tiles), math.prod(grid.shape), len(tiles))
    parts = [_refine_at(tile, axes) for tile in tiles]
    none, *manifests = unify([ChunkManifest.empty((0,) * len(shape), fill), *(part.manifest for part in parts)])
    entries = np.zeros(grid.shape, ENTRY)
    starts = np.zeros(grid.shape, np.int64) if any(x.starts is not None for x in manifests) else None
    covered = np.zeros(grid.shape, np.bool_)
    for manifest, tile in zip(manifests, tiles, strict=True):
        place = outer([axis.cells(runs) for axis, runs in zip(axes, tile.runs, strict=True)])
        entries[place] = manifest.entries
        covered[place] = True
        if starts is not None:
            starts[place] = manifest.all_starts
    if starts is not None and not starts.any():
        starts = None
    made = Chunks(replace(none, entries=entries, starts=starts), grid)
    return Mosaic(made, _n_elements(covered, grid))


def _cut_at_runs(tile: Tile) -> Chunks:
    """Cut the cells of a tile between elements that are not neighbours in the larger array."""
    chunks = tile.chunks
    for axis, (runs, n) in enumerate(zip(tile.runs, chunks.grid.array_shape, strict=True)):
        if runs.size != n:
            raise ValueError(
                f"a tile of {chunks.grid.array_shape} elements cannot stand for {runs.size} on axis {axis}"
            )
        if runs.starts.size > 1:
            chunks = _cut(chunks, axis, runs.offsets())
    return chunks


def _cut(chunks: Chunks, axis: int, at: NDArray[np.int64]) -> Chunks:
    """Cut cells along an axis at additional lines."""
    old = chunks.grid.axes[axis].lines()
    lines = union(old, at)
    if lines.size == old.size:
        return chunks
    _check_cells(math.prod(chunks.grid.shape) // max(old.size - 1, 1) * (lines.size - 1))
    return refine(chunks, axis, lines)


class _Lines:
    """The lines along one axis of the larger array, and the cells that tiles cover; results are cached."""

    def __init__(self, union: NDArray[np.int64]) -> None:
        self.union = union
        self._found: dict[int, tuple[slice | NDArray[np.intp], NDArray[np.int64], Runs]] = {}

    @classmethod
    def from_tiles(cls, length: int, tiles: Sequence[Tile], axis: int) -> _Lines:
        seen: set[Any] = set()
        found = [np.array([0, length], np.int64)]
        for tile in tiles:
            runs, cells = tile.runs[axis], tile.chunks.grid.axes[axis]
            if (id(runs), cells) not in seen:
                seen.add((id(runs), cells))
                offsets, begin = runs.offsets(), cells.lines()[:-1]
                run = np.searchsorted(offsets, begin, "right") - 1
                found += [runs.starts[run] + begin - offsets[run], runs.starts + runs.lengths]
        return cls(union(*found))

    def cells(self, runs: Runs) -> slice | NDArray[np.intp]:
        """Return the cells that runs of elements cover."""
        return self._find(runs)[0]

    def inner(self, runs: Runs) -> NDArray[np.int64]:
        """Return the lines within runs, in elements of a tile."""
        return self._find(runs)[1]

    def _find(self, runs: Runs) -> tuple[slice | NDArray[np.intp], NDArray[np.int64], Runs]:
        known = self._found.get(id(runs))
        if known is not None:
            return known
        first = np.searchsorted(self.union, runs.starts)
        count = np.searchsorted(self.union, runs.starts + runs.lengths) - first
        numbers = _ranges(first, count)
        begin = self.union[numbers] - np.repeat(runs.starts - runs.offsets()[:-1], count)
        cells = slice(int(numbers[0]), int(numbers[-1]) + 1) if first.size == 1 else numbers
        self._found[id(runs)] = cells, np.append(begin, runs.size), runs  # `runs` is kept, so that its id stays valid
        return self._found[id(runs)]


def _check_budget(before: int, after: int, n_tiles: int) -> None:
    _check_cells(after)
    if after > max(MAX_CELL_GROWTH * before, _FREE_CELLS):
        raise CombineError(
            f"the chunk grids of {n_tiles} arrays do not meet. Cut at all their lines, they would have {after} cells "
            f"instead of {before}. At most {MAX_CELL_GROWTH} times as many are allowed",
            property="chunks",
            left=before,
            right=after,
        )


def _check_cells(n: int) -> None:
    if n > MAX_MOSAIC_CELLS:
        raise CombineError(
            f"a chunk grid of {n} cells; one made of several arrays has at most {MAX_MOSAIC_CELLS}",
            property="chunks",
            right=n,
        )


def _refine_at(tile: Tile, axes: Sequence[_Lines]) -> Chunks:
    chunks = tile.chunks
    for axis, (runs, lines) in enumerate(zip(tile.runs, axes, strict=True)):
        chunks = refine(chunks, axis, lines.inner(runs))
    return chunks


def _ranges(first: NDArray[np.intp], count: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the ``count[i]`` numbers from ``first[i]`` on, for each i in turn.

    >>> _ranges(np.array([3, 9]), np.array([2, 3])).tolist()
    [3, 4, 9, 10, 11]
    """
    ends = np.cumsum(count)
    numbers: NDArray[np.intp] = np.arange(count.sum()) + np.repeat(first - (ends - count), count)
    return numbers


def _n_elements(covered: NDArray[np.bool_], grid: ChunkGrid) -> int:
    """Count the elements of the marked cells."""
    if covered.all():
        return math.prod(grid.array_shape)
    counts: Any = covered
    for axis in reversed(grid.axes):
        counts = counts @ axis.lengths()
    return int(counts)
