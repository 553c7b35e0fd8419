"""Elements that no chunk holds: padding, reindexing and choosing put holes with a fill value; no bytes are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.chunk_manifest import EMPTY, ChunkManifest
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.grid import MAX_AXIS_LENGTH, ChunkAxis, ChunkGrid, union
from virtualstack.manifests.index_keys import take_axis
from virtualstack.manifests.indexing import Chunks, check_cells, refine, repeat_axis, slice_axis
from virtualstack.manifests.joining import align, collapse, concatenate
from virtualstack.manifests.unify import unify

__all__ = ["choose", "holes", "pad_axis", "pad_axis_by_elements", "reindex", "reindex_axis"]

_BLOCK_ELEMENTS = 1 << 24  # elements of a condition that are compared at a time


def holes(axes: tuple[ChunkAxis, ...], fill: Fill, /, *, code: int = EMPTY) -> Chunks:
    """Give chunks that are all holes; ``code`` is EMPTY or ABSENT."""
    grid = ChunkGrid(axes)
    return Chunks(ChunkManifest.empty(grid.shape, fill, code=code), grid)


def _holes_beside(chunks: Chunks, axis: int, length: int, fill: Fill, code: int = EMPTY) -> Chunks:
    """Give holes of the extents of an array but along one axis; cells are as long as its chunks, if they are few."""
    grid = chunks.grid
    chunk = grid.axes[axis].chunk or length
    if -(-length // chunk) > max(grid.axes[axis].n_cells, 1):
        chunk = length
    return holes(grid.replace(axis, ChunkAxis.regular(length, chunk)).axes, fill, code=code)


def pad_axis(chunks: Chunks, axis: int, before: int, after: int, fills: tuple[Fill, Fill], /) -> Chunks:
    """Put elements with a fill value before and behind those of an axis."""
    parts = [chunks]
    if before:
        parts.insert(0, _holes_beside(chunks, axis, before, fills[0]))
    if after:
        parts.append(_holes_beside(chunks, axis, after, fills[1]))
    return _joined(parts, axis, chunks)


def pad_axis_by_elements(chunks: Chunks, axis: int, before: int, after: int, mode: str, /) -> Chunks:
    """Put elements of an axis before and behind it. Costs the elements that are put there, of ``"edge"`` none.

    Parameters
    ----------
    chunks
        Manifest and grid.
    axis
        Of the grid.
    before, after
        Elements to put there, 0 and more.
    mode
        ``"edge"``, ``"wrap"``, ``"reflect"`` or ``"symmetric"`` of even type, as :func:`numpy.pad` has them.

    Raises
    ------
    ValueError
        The axis has no elements.
    ManifestError
        The axis would be too long.
    ChunkAlignmentError
        There would be too many cells.
    """
    n = chunks.grid.axes[axis].length
    if not n and (before or after):
        raise ValueError(f"axis {axis} has no elements to pad it with by mode={mode!r}")
    if before + n + after > MAX_AXIS_LENGTH:
        raise ManifestError(
            f"axis {axis} of {n} elements cannot be padded by {before} and {after}: it would be too long"
        )
    parts = [chunks]
    if before:
        parts.insert(0, _beyond(chunks, axis, -before, before, mode))
    if after:
        parts.append(_beyond(chunks, axis, n, after, mode))
    return _joined(parts, axis, chunks)


def _beyond(chunks: Chunks, axis: int, begin: int, width: int, mode: str) -> Chunks:
    """Give the elements that continue an axis on one side, of which the first stands at ``begin``."""
    n = chunks.grid.axes[axis].length
    if mode == "edge" or n == 1:
        at = 0 if begin < 0 else n - 1
        return repeat_axis(slice_axis(chunks, axis, slice(at, at + 1)), axis, width)
    skipped = 1 if mode == "reflect" else 0  # the element at the edge
    if width <= n - skipped:
        low = skipped if (begin < 0) is (mode != "wrap") else n - skipped - width
        found = slice_axis(chunks, axis, slice(low, low + width))
        return found if mode == "wrap" else slice_axis(found, axis, slice(None, None, -1))
    check_cells(chunks.grid, axis, width // n)
    period = n if mode == "wrap" else 2 * (n - skipped)  # forth, and back
    index = (begin % period + np.arange(width)) % period
    return take_axis(chunks, axis, np.where(index < n, index, 2 * n - 1 - skipped - index))


def _joined(parts: list[Chunks], axis: int, own: Chunks) -> Chunks:
    """Join parts; the fill value of the array stays the one of ``own``."""
    if len(parts) == 1:
        return own
    nothing = own.manifest.read(tuple(slice(0, 0) for _ in own.grid.axes))  # its fill becomes the first one
    manifests = unify([nothing, *(x.manifest for x in parts)])[1:]
    return concatenate([Chunks(x, part.grid) for x, part in zip(manifests, parts, strict=True)], axis)


def reindex_axis(chunks: Chunks, axis: int, index: NDArray[np.int64], fill: Fill, /, *, code: int = EMPTY) -> Chunks:
    """Take elements along an axis, and holes where the index is -1.

    Parameters
    ----------
    chunks
        Manifest and grid.
    axis
        Of the grid.
    index
        Shape ``(n,)``, from -1 to the length of the axis.
    fill, code
        What a hole reads as, and whether it is EMPTY or ABSENT.

    Raises
    ------
    ChunkAlignmentError
        There would be too many cells.
    """
    is_hole = index < 0
    if not is_hole.any():
        return take_axis(chunks, axis, index)
    n = chunks.grid.axes[axis].length
    # Behind the axis stands a stretch of holes as long as the longest that is asked for.
    position = np.arange(index.size)
    begin = np.maximum.accumulate(np.where(is_hole, np.where(np.append(True, ~is_hole[:-1]), position, 0), 0))
    within = position - begin
    stretch = ChunkAxis.regular(int(within[is_hole].max()) + 1, int(within[is_hole].max()) + 1)
    hole = holes(chunks.grid.replace(axis, stretch).axes, fill, code=code)
    extended = _joined([chunks, hole], axis, chunks)
    return take_axis(extended, axis, np.where(is_hole, n + within, index))


def choose(condition: NDArray[np.bool_], x: Chunks, y: Chunks, /) -> Chunks:
    """Take the elements of one array where a condition holds, else those of another; both of one shape.

    Cells are cut where the condition changes.

    Parameters
    ----------
    condition
        Of the shape of both; axes along which it was broadcast cost nothing.
    x, y
        Of one value dtype.

    Raises
    ------
    CombineError
        The union of the grid lines of both exceeds the budget.
    ChunkAlignmentError
        There would be too many cells.
    """
    x, y = align([x, y])
    small = condition[tuple(slice(0, 1) if step == 0 else slice(None) for step in condition.strides)]
    for axis, cells in enumerate(x.grid.axes):
        if small.shape[axis] > 1:
            lines = union(cells.lines(), _changes(small, axis))
            check_cells(x.grid, axis, lines.size - 1)
            x, y = refine(x, axis, lines), refine(y, axis, lines)
            small = small.take(lines[:-1], axis)
    own, other = unify([x.manifest, y.manifest])
    is_own = np.broadcast_to(small, own.shape)
    starts = None
    if own.starts is not None or other.starts is not None:
        none = np.zeros((), np.int64)
        starts = np.where(
            is_own, none if own.starts is None else own.starts, none if other.starts is None else other.starts
        )
    chosen = ChunkManifest(
        entries=np.where(is_own, own.entries, other.entries),
        starts=starts,
        fills=own.fills,
        encodings=own.encodings,
        locations=own.locations,
        inline=own.inline,
    )
    return collapse(Chunks(chosen, x.grid))


def _changes(condition: NDArray[np.bool_], axis: int) -> NDArray[np.intp]:
    """Give the elements along an axis where anything differs from the element before."""
    rows = np.moveaxis(condition, axis, 0)
    step = max(1, _BLOCK_ELEMENTS // max(math.prod(rows.shape[1:]), 1))
    found = [np.zeros(0, np.intp)]
    others = tuple(range(1, rows.ndim))
    for at in range(0, len(rows) - 1, step):
        block = rows[at : at + step + 1]
        found.append(np.flatnonzero((block[1:] != block[:-1]).any(axis=others)) + at + 1)
    return np.concatenate(found)


def reindex(
    array: ManifestArray,
    indexers: Mapping[int, NDArray[np.integer[Any]]],
    fill_value: object,
    /,
    *,
    code: int = EMPTY,
) -> ManifestArray:
    """Take elements along axes by their positions; -1 stands for the fill value. No mask of elements is made.

    Parameters
    ----------
    array
        To be reindexed.
    indexers
        For each axis (negative ones count from the end), shape ``(n,)``, from -1 to the length of the axis.
    fill_value
        In the dtype of the array, as it is stored: of a packed array, a packed number.
    code
        Whether the elements that are not there are EMPTY or ABSENT.

    Raises
    ------
    IndexError
        A position is out of range.
    ManifestError
        The fill value has no place in the dtype; no such axis, or the same one twice; indexers that are not integers,
        or not of one axis.
    ChunkAlignmentError
        There would be too many cells.
    """
    fill = Fill.from_value(fill_value, array.dtype)
    chunks = array.as_chunks()
    for axis, index in _by_axis(array, indexers).items():
        n = array.shape[axis]
        if index.size and (int(index.min()) < -1 or int(index.max()) >= n):
            raise IndexError(f"positions from {index.min()} to {index.max()} are out of bounds for axis {axis} of {n}")
        chunks = reindex_axis(chunks, axis, index.astype(np.int64), fill, code=code)
    return array.with_chunks(chunks)


def _by_axis(array: ManifestArray, indexers: Mapping[int, Any]) -> dict[int, NDArray[Any]]:
    """Check indexers, and count their axes from the beginning."""
    found: dict[int, NDArray[Any]] = {}
    for key, indexer in indexers.items():
        if not isinstance(key, int | np.integer) or isinstance(key, bool) or not -array.ndim <= key < array.ndim:
            raise ManifestError(f"{key!r} is no axis of variable '{array.name}', which has {array.ndim}")
        axis = int(key) % array.ndim
        if axis in found:
            raise ManifestError(f"axis {axis} of variable '{array.name}' has two indexers")
        index = np.asarray(indexer)
        if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
            raise ManifestError(
                f"positions along axis {axis} of variable '{array.name}' are integers of shape (n,), not "
                f"'{index.dtype}' of shape {index.shape}"
            )
        found[axis] = index
    return found
