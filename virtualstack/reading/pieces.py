"""Small equal pieces of uncompressed values to their places in the result, many at once: no Python for each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from virtualstack.reading.decoding import Decoding, strided
from virtualstack.reading.fetch import StoredBytes
from virtualstack.reading.plan import Plan
from virtualstack.storage import Bytes
from virtualstack.storage.gather import read_blocks

__all__ = ["equal_pieces", "place_pieces"]

_MIN_PIECES = 8  # pieces from which on to place them together is quicker
_SMALL_PIECE_BYTES = 1 << 13  # bytes of a piece up to which copying it once more is quicker than reading it alone
_LARGE_PIECE_BYTES = 1 << 18  # bytes of a piece from which on it hardly matters what there is to do for each
_BATCH_BYTES = 1 << 20  # bytes that are placed together: they stay in the cache of the processor


def equal_pieces(plan: Plan, begin: int, end: int, out: NDArray[Any], /) -> list[tuple[int, int]]:
    """Find chunks of uncompressed values that follow each other and differ in nothing but their places.

    Returns
    -------
    list of tuple
        First and last, not included, of those that `place_pieces` places together; in order.
    """
    chunks, axes, which = plan.chunks, plan.selection.axes, slice(begin, end)
    if end - begin < _MIN_PIECES or out.dtype.hasobject or any(axis.begin is None for axis in axes):
        return []
    fits = chunks.is_raw[which] & (chunks.length[which] <= _LARGE_PIECE_BYTES)
    if np.count_nonzero(fits) < _MIN_PIECES:
        return []
    first = chunks.first[begin : end + 1]
    part, fits = first[:-1], fits & (np.diff(first) == 1)
    alike = fits[1:] & fits[:-1]
    for values in (
        *(chunks.location[which], chunks.length[which], chunks.decoding[which]),
        *(plan.parts.base[part], *plan.parts.strides[part].T),
        *(axis.count[at[part]] for axis, at in zip(axes, plan.parts.position, strict=True)),
    ):
        alike &= values[1:] == values[:-1]
    edges = begin + np.flatnonzero(np.concatenate([[True], ~alike, [True]]))
    runs = [(a, b) for a, b in pairwise(edges.tolist()) if b - a >= _MIN_PIECES]
    most = [_BATCH_BYTES // max(chunks.length.item(a), 1) for a, _ in runs]
    return [(i, min(i + n, b)) for (a, b), n in zip(runs, most, strict=True) for i in range(a, b, n)]


def place_pieces(plan: Plan, begin: int, end: int, got: list[StoredBytes], out: NDArray[Any], /) -> None:
    """Write pieces that `equal_pieces` found to the result.

    Parameters
    ----------
    plan
        What they are.
    begin, end
        Numbers of the chunks.
    got
        What was fetched of each.
    out
        Result, with an axis for each axis of the array.

    Raises
    ------
    CodecError, StorageError
        One of them cannot be read, or does not decode; it is not said which.
    """
    chunks, parts, axes = plan.chunks, plan.parts, plan.selection.axes
    part, places, joint = chunks.first[begin:end], plan.selection.places, plan.selection.joint
    offset, length = chunks.offset[begin:end], chunks.length.item(begin)
    decoding, base, strides = plan.decodings[chunks.decoding[begin]], parts.base.item(part[0]), parts.strides[part[0]]
    counts = [axis.count.item(at[part[0]]) for axis, at in zip(axes, parts.position, strict=True)]
    shape = [counts[i] for i in places]  # points are single elements along all their axes
    goal = [x[parts.position[i][part]] for i in places if (x := axes[i].begin) is not None]
    source = got[0]
    if isinstance(source, bytes | memoryview):
        raw: Bytes = b"".join(x for x in got if isinstance(x, bytes | memoryview))
    elif length > _SMALL_PIECE_BYTES and _is_stretch(decoding, shape, strides[list(places)].tolist(), out):
        whole = memoryview(out.reshape(-1).view(np.uint8))
        starts = np.stack(goal, axis=1) @ np.array(out.strides)
        for position, start in zip(offset.tolist(), starts.tolist(), strict=True):
            source.read_into(position, whole[start : start + length])
        return
    else:
        raw = read_blocks(source.read_ranges, offset, length).reshape(-1).data
    pitch = length // decoding.itemsize
    values = strided(decoding.numbers(raw), base, (end - begin, *counts), [pitch, *strides.tolist()])
    values = values.transpose(0, *(i + 1 for i in (*joint, *(i for i in range(len(axes)) if i not in joint))))
    _write(out, goal, decoding.elementwise(values.reshape(end - begin, *shape)))


def _is_stretch(decoding: Decoding, shape: list[int], strides: list[int], out: NDArray[Any]) -> bool:
    """Tell whether the bytes of a piece are, as they are, consecutive ones of the result."""
    if not decoding.is_plain or decoding.dtype != out.dtype:
        return False
    size = 1
    for n, stride, nbytes in zip(shape[::-1], strides[::-1], out.strides[::-1], strict=True):
        if n > 1 and (stride != size or nbytes != size * out.itemsize):
            return False
        size *= n
    return True


def _write(out: NDArray[Any], goal: list[NDArray[np.int64]], values: NDArray[Any]) -> None:
    """Write pieces, ``values[i]`` to where ``goal[axis][i]`` says."""
    item = np.dtype((np.void, out.itemsize))  # strided views do not keep compounds as they are
    last = [n - m + 1 for n, m in zip(out.shape, values.shape[1:], strict=True)]
    windows = as_strided(out.view(item), (*last, *values.shape[1:]), out.strides * 2)
    windows[tuple(goal)] = values.astype(out.dtype, copy=False).view(item)
