"""Find the chunks of a regular grid that are stored chunks unchanged, however cells of an array divide them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import ABSENT, ENTRY, INLINE, ChunkAxis, ChunkEncoding, ChunkGrid, ChunkManifest
from virtualstack.manifests.cells import along
from virtualstack.zarr.uniform import count_overlaps


@dataclass(frozen=True, slots=True, eq=False)
class _AxisMatch:
    """Cells of the array in chunks of the target along one axis, for chunks whose edges both grids have."""

    n_chunks: int
    whole: NDArray[np.int64]
    cells: NDArray[np.int64]
    first: NDArray[np.int64]
    offset: NDArray[np.int64]

    @classmethod
    def from_axis(cls, axis: ChunkAxis, chunk: int) -> _AxisMatch:
        target = np.minimum(np.arange(-(-axis.length // chunk) + 1, dtype=np.int64) * chunk, axis.length)
        lines = axis.lines()
        at = np.searchsorted(lines, target)
        is_line = lines[at] == target
        whole = np.flatnonzero(is_line[:-1] & is_line[1:])
        counts = at[whole + 1] - at[whole]
        first = np.cumsum(counts) - counts
        cells = np.arange(int(counts.sum())) + np.repeat(at[whole] - first, counts)
        return cls(len(target) - 1, whole, cells, first, lines[cells] - np.repeat(target[whole], counts))

    @property
    def is_cut(self) -> bool:
        """True if a chunk has several cells."""
        return self.cells.size != self.first.size

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of cells in each chunk."""
        return np.diff(self.first, append=len(self.cells))


def match_chunks(
    manifest: ChunkManifest,
    grid: ChunkGrid,
    chunks: Sequence[int],
    encoding: ChunkEncoding,
    compatible: NDArray[np.bool_],
    fill: int,
) -> tuple[NDArray[Any], NDArray[np.bool_], int]:
    """Find the chunks of a regular grid that are stored chunks unchanged, or have no bytes.

    Returns
    -------
    tuple
        Entries of the target's grid, EMPTY if a chunk must be re-encoded; a mask of these chunks; and the number of
        parts of ABSENT chunks that they show.
    """
    axes = [_AxisMatch.from_axis(axis, n) for axis, n in zip(grid.axes, chunks, strict=True)]
    cells = _pick(manifest.entries, [axis.cells for axis in axes])
    first = _pick(cells, [axis.first for axis in axes])
    holes = cells["location"] < INLINE
    is_same = ~holes
    if not compatible.all():
        is_same &= compatible[np.where(holes, 0, cells["encoding"])] if compatible.size else False
    if manifest.starts is not None or any(axis.is_cut for axis in axes):
        is_same &= _starts(manifest, axes) == _expected_starts(axes, encoding)
    if any(axis.is_cut for axis in axes):
        spread = first
        for i, axis in enumerate(axes):
            spread = spread.repeat(axis.counts, i) if axis.is_cut else spread
        for name in ("location", "offset", "length"):
            is_same &= cells[name] == spread[name]
        for i, axis in enumerate(axes):
            is_same = np.logical_and.reduceat(is_same, axis.first, i) if axis.is_cut else is_same
    shape = tuple(axis.n_chunks for axis in axes)
    at: Any = (*np.ix_(*(axis.whole for axis in axes)), ...)  # the dots keep an array without axes an array
    is_kept = np.zeros(shape, np.bool_)
    is_kept[at] = is_same
    if first.shape == shape:
        entries = np.array(first)
    else:
        entries = np.zeros(shape, ENTRY)
        entries[at] = first
    entries["encoding"] = 0
    if is_kept.all():
        return entries, ~is_kept, 0
    entries[~is_kept] = np.zeros((), ENTRY)
    if not manifest.holes.any():
        return entries, ~is_kept, 0
    is_other = ~(manifest.holes & (manifest.entries["encoding"] == fill))
    target = ChunkGrid.regular(grid.array_shape, chunks)
    is_anew = ~is_kept & (count_overlaps(is_other, grid, target) > 0)
    n_absent = count_overlaps(manifest.entries["location"] == ABSENT, grid, target)
    entries["location"][~is_kept & ~is_anew & (n_absent > 0)] = ABSENT
    return entries, is_anew, int(n_absent[is_anew].sum())


def _pick[T: np.generic](array: NDArray[T], indexes: Sequence[NDArray[np.int64]]) -> NDArray[T]:
    """Select a box of ascending indexes, as a view if they are consecutive."""
    for i, index in enumerate(indexes):
        if index.size and int(index[-1]) - int(index[0]) + 1 == index.size:
            array = array[(slice(None),) * i + (slice(int(index[0]), int(index[-1]) + 1),)]
        else:
            array = array.take(index, i)
    return array


def _starts(manifest: ChunkManifest, axes: Sequence[_AxisMatch]) -> NDArray[np.int64] | int:
    return 0 if manifest.starts is None else _pick(manifest.starts, [axis.cells for axis in axes])


def _expected_starts(axes: Sequence[_AxisMatch], encoding: ChunkEncoding) -> NDArray[np.int64]:
    """Return the start of each cell in a stored chunk that begins where its chunk of the target begins."""
    expected = np.zeros((1,) * len(axes), np.int64)
    for i, axis in enumerate(axes):
        expected = expected + along(axis.offset * encoding.strides[i], i, len(axes))
    return expected
