"""Taking elements by arrays of indices: each run of them that lies in one chunk becomes a cell; no bytes are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests.grid import ChunkAxis, ChunkGrid
from virtualstack.manifests.indexing import Chunks, check_cells, select, slice_axis

__all__ = ["take_axis", "take_points"]

_MAX_STEPS = 256
"""Steps along an axis, but for 1, that a take keeps: each one is a Python object in the table of encodings."""


def take_axis(chunks: Chunks, axis: int, index: NDArray[np.int64], /) -> Chunks:
    """Take elements along one axis, in any order and any number of times.

    Elements that follow each other with one step (0 and negative ones too) inside a chunk become one cell. A step but 1
    is kept where three elements follow each other so; of more than 256 such steps, those that spare most cells.

    Parameters
    ----------
    chunks
        Manifest and grid.
    axis
        Of the grid.
    index
        Shape ``(n,)``, from 0 to the length of the axis.

    Raises
    ------
    ChunkAlignmentError
        There would be too many cells; see :func:`~virtualstack.manifests.indexing.check_cells`.
    """
    found = _as_slice(index)
    if found is not None:
        return slice_axis(chunks, axis, found)
    old = chunks.grid.axes[axis]
    cell = old.find(index)
    steps, is_cut = np.diff(index), cell[1:] != cell[:-1]
    begin = _runs(steps, is_cut | ~_is_kept(steps, is_cut))
    lengths = np.diff(begin, append=index.size)
    step = np.where(lengths > 1, steps[np.minimum(begin, steps.size - 1)], 1)
    cell = cell[begin]
    first = index[begin] - old.starts(cell)
    return select(chunks, axis, cell, first, lengths, step)


def _as_slice(index: NDArray[np.int64]) -> slice | None:
    """Write indices as a slice, where they are one."""
    if not index.size:
        return slice(0, 0)
    step = int(index[1] - index[0]) if index.size > 1 else 1
    if step == 0 or not bool((np.diff(index) == step).all()):
        return None
    stop = int(index[-1]) + (1 if step > 0 else -1)
    return slice(int(index[0]), None if stop < 0 else stop, step)


def _is_kept(steps: NDArray[np.int64], is_cut: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell which steps are worth an encoding: 1, which needs none, and the most frequent of three elements in a row.

    >>> _is_kept(np.array([1, 7, 7, 5, 1, 9]), np.zeros(6, np.bool_)).tolist()
    [True, True, True, False, True, False]
    """
    series = _series(steps, is_cut)
    length = np.diff(series, append=steps.size)
    is_long = (length > 1) & ~is_cut[series] & (steps[series] != 1)
    distinct, number = np.unique(steps[series[is_long]], return_inverse=True)
    if distinct.size > _MAX_STEPS:
        spared = np.bincount(number, weights=length[is_long])
        distinct = distinct[np.argsort(-spared, kind="stable")[:_MAX_STEPS]]
    found: NDArray[np.bool_] = np.isin(steps, np.append(distinct, 1))
    return found


def _series(steps: NDArray[np.int64], is_cut: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Give where series of equal steps in one cell begin; a step from cell to cell is a series of its own."""
    is_new = np.ones(steps.size, np.bool_)
    is_new[1:] = (steps[1:] != steps[:-1]) | is_cut[1:] | is_cut[:-1]
    return np.flatnonzero(is_new)


def _runs(steps: NDArray[np.int64], is_cut: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Give where runs begin: of elements with one step between them and no cut, each as long as it can be.

    The step from the last element of a run to the first of the next belongs to neither. So of steps that are all unlike
    their neighbours every other one makes a run of two; a longer series of equal ones makes a run wherever it begins.

    >>> _runs(np.diff([3, 4, 5, 9, 11, 2]), np.zeros(5, np.bool_)).tolist()
    [0, 3, 5]
    """
    series = _series(steps, is_cut)
    length = np.diff(series, append=steps.size)
    cut = is_cut[series]
    # A series is free where its first step belongs to no gap: behind a cut, and behind a series of one that was
    # not free. Whether it is depends on how many series back that is certain.
    is_known = np.ones(series.size, np.bool_)
    is_known[1:] = cut[:-1] | (length[:-1] > 1)
    number = np.arange(series.size)
    known = np.maximum.accumulate(np.where(is_known, number, 0))
    known_free = np.ones(series.size, np.bool_)
    known_free[1:] = cut[:-1]
    is_free = known_free[known] ^ ((number - known) % 2 == 1)
    # a run ends at a cut, and where a series begins that is not free
    return np.concatenate([np.zeros(1, np.int64), series[cut | ~is_free] + 1])


def take_points(chunks: Chunks, index: Sequence[NDArray[np.int64]], /) -> Chunks:
    """Take single elements along the first axes together: point i is element ``(index[0][i], index[1][i], ...)``.

    Parameters
    ----------
    chunks
        Manifest and grid.
    index
        For each of the first axes, from 0 to its length; all of one shape.

    Returns
    -------
    Chunks
        With axes of that shape in the place of these axes, and each point in a cell of its own.

    Raises
    ------
    ChunkAlignmentError
        There would be too many cells.
    """
    manifest, grid = chunks
    k, shape, rest = len(index), index[0].shape, grid.axes[len(index) :]
    check_cells(ChunkGrid((ChunkAxis.regular(math.prod(grid.shape[:k]), 1), *rest)), 0, math.prod(shape))
    cells = tuple(axis.find(at) for axis, at in zip(grid.axes, index, strict=False))
    entries, holes = manifest.entries[cells], manifest.holes[cells]
    starts = np.zeros(entries.shape, np.int64) if manifest.starts is None else manifest.starts[cells]
    manifest = replace(manifest, entries=entries, starts=starts).drop_unused_encodings()
    if manifest.encodings:
        row = np.where(holes, 0, manifest.entries["encoding"])
        for i, (axis, at) in enumerate(zip(grid.axes, index, strict=False)):
            strides = np.array([x.strides[i] for x in manifest.encodings], np.int64)[row]
            first = (at - axis.starts(cells[i])).reshape(shape + (1,) * len(rest))
            starts = starts + np.where(holes, 0, first * strides)
    encodings = tuple(x.with_strides((*(0 for _ in shape), *x.strides[k:])) for x in manifest.encodings)
    manifest = replace(manifest, starts=starts if starts.any() else None, encodings=encodings)
    return Chunks(manifest, ChunkGrid((*(ChunkAxis.regular(n, 1) for n in shape), *rest)))
