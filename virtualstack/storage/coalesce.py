"""Merge byte ranges that are near, split what is too large, and copy blocks out of them. Pure numpy, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from virtualstack.storage.source import Bytes

__all__ = ["Requests", "coalesce", "gather", "read_blocks"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """Requests that cover byte ranges, sorted by offset.

    Parameters
    ----------
    offsets, lengths
        Shape ``(m,)``, bytes: the requests. Those of one merged stretch are consecutive, without overlap.
    request
        Shape ``(n,)``: for each range the number of the request that holds its first byte.
    within
        Shape ``(n,)``, bytes: where the range begins in that request. It ends in the same request unless
        requests were split by ``max_length``; then it continues in the next ones.
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    request: NDArray[np.intp]
    within: NDArray[np.int64]

    def cut(self, answers: Sequence[bytes | memoryview], lengths: NDArray[np.int64], /) -> list[bytes | memoryview]:
        """Cut the ranges out of the answers to the requests; copied only where a range spans several.

        Parameters
        ----------
        answers
            Bytes of each request.
        lengths
            Shape ``(n,)``, bytes: as given to `coalesce`.
        """
        views = [memoryview(answer) for answer in answers]
        ranges: list[bytes | memoryview] = []
        for number, begin, length in zip(self.request.tolist(), self.within.tolist(), lengths.tolist(), strict=True):
            part: bytes | memoryview = views[number][begin : begin + length] if length else b""
            if len(part) < length:
                parts = [part]
                while (missing := length - sum(map(len, parts))) > 0:
                    number += 1
                    parts.append(views[number][:missing])
                part = b"".join(parts)
            ranges.append(part)
        return ranges


def coalesce(
    offsets: NDArray[np.int64],
    lengths: NDArray[np.int64],
    /,
    *,
    max_gap: int = 0,
    enough: int | None = None,
    max_length: int | None = None,
) -> Requests:
    """Merge ranges that overlap, touch, or stand at most ``max_gap`` bytes apart.

    An empty range asks for nothing: its request is 0 (which need not exist) and its place in it 0.

    Parameters
    ----------
    offsets, lengths
        Shape ``(n,)``, bytes, in any order, not negative.
    max_gap
        Unneeded bytes to read rather than send another request.
    enough
        Bytes after which a request is not extended by ranges that do not overlap it, more or less. ``None``: never.
    max_length
        Bytes a request may have at most; a longer stretch is cut. ``None``: no bound.

    Returns
    -------
    Requests

    Examples
    --------
    >>> plan = coalesce(np.array([100, 0, 4]), np.array([10, 4, 4]), max_gap=8)
    >>> plan.offsets.tolist(), plan.lengths.tolist(), plan.request.tolist(), plan.within.tolist()
    ([0, 100], [8, 10], [1, 0, 0], [0, 0, 4])
    """
    if max_gap < 0 or (enough is not None and enough < 1) or (max_length is not None and max_length < 1):
        raise ValueError(f"max_gap >= 0, enough >= 1 and max_length >= 1 are needed: {max_gap}, {enough}, {max_length}")
    offsets = np.asarray(offsets, dtype=np.int64)
    lengths = np.asarray(lengths, dtype=np.int64)
    request = np.zeros(offsets.shape, dtype=np.intp)
    within = np.zeros(offsets.shape, dtype=np.int64)
    if lengths.size == 1 and 0 < lengths[0] <= (max_length or lengths[0]):  # most often, and nothing to merge or cut
        return Requests(offsets=offsets, lengths=lengths, request=request, within=within)
    filled = np.flatnonzero(lengths)
    if filled.size == 0:
        return Requests(offsets=np.empty(0, np.int64), lengths=np.empty(0, np.int64), request=request, within=within)

    order = filled[np.argsort(offsets[filled], kind="stable")]
    starts = offsets[order]
    reach = np.maximum.accumulate(starts + lengths[order])  # end of everything so far
    fresh = np.empty(order.size, dtype=bool)
    fresh[0] = True
    np.greater(starts[1:] - reach[:-1], max_gap, out=fresh[1:])
    if enough is not None:
        begins = starts[np.flatnonzero(fresh)][np.cumsum(fresh) - 1]
        bucket = (starts - begins) // enough
        fresh[1:] |= (bucket[1:] != bucket[:-1]) & (starts[1:] >= reach[:-1])
    first = np.flatnonzero(fresh)
    begins = starts[first]
    sizes = reach[np.append(first[1:], order.size) - 1] - begins
    stretch = np.cumsum(fresh) - 1
    inside = starts - begins[stretch]

    if max_length is not None:
        pieces = -(-sizes // max_length)
        firsts = np.cumsum(pieces) - pieces
        piece = np.arange(pieces.sum()) - np.repeat(firsts, pieces)
        begins, sizes = (
            np.repeat(begins, pieces) + piece * max_length,
            np.minimum(np.repeat(sizes, pieces) - piece * max_length, max_length),
        )
        stretch = firsts[stretch] + inside // max_length
        inside = inside % max_length
    request[order] = stretch
    within[order] = inside
    return Requests(offsets=begins, lengths=sizes, request=request, within=within)


_MAX_GAP_BYTES = (
    16 * 1024
)  # to copy as much costs about 2 us; another read as much, and far more on a network file system
_BATCH_BYTES = 1024 * 1024  # bytes that are read and taken apart together: they stay in the cache of the processor


def gather(data: Bytes | bytearray, positions: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
    """Copy the blocks of ``size`` bytes that begin at ``positions`` of ``data``.

    Returns
    -------
    numpy.ndarray
        Shape ``(n, size)``.
    """
    # Overlapping items, one for each byte of the data: to take them is one memcpy each.
    windows = np.ndarray((len(data) - size + 1,), dtype=np.dtype((np.void, size)), buffer=data, strides=(1,))
    return windows[positions].view(np.uint8).reshape(-1, size)


def read_blocks(
    read_ranges: Callable[[NDArray[np.int64]], Sequence[Bytes]], offsets: NDArray[np.int64], size: int, /
) -> NDArray[np.uint8]:
    """Read blocks from a place where reading is cheap: near ones at once, unneeded bytes between them included.

    No more than about 3 MiB, or three blocks, are held besides the answer.

    Parameters
    ----------
    read_ranges
        As `Source.read_ranges`.
    offsets
        Shape ``(n,)``, bytes, in any order; all blocks lie within the source. At least one.
    size
        Bytes of a block, at least one.

    Returns
    -------
    numpy.ndarray
        Shape ``(n, size)``.
    """
    is_sorted = bool((offsets[1:] >= offsets[:-1]).all())
    order = slice(None) if is_sorted else np.argsort(offsets, kind="stable")
    requests = coalesce(offsets[order], np.full(len(offsets), size), max_gap=_MAX_GAP_BYTES, enough=_BATCH_BYTES)
    table = np.stack([requests.offsets, requests.lengths], axis=1)
    begins = np.cumsum(requests.lengths) - requests.lengths  # in the answers to all requests, joined
    places = begins[requests.request] + requests.within
    if is_sorted and begins[-1] < _BATCH_BYTES:
        data = _joined(read_ranges(table))
        if len(data) == len(offsets) * size:  # nothing lies between
            return np.frombuffer(data, np.uint8).reshape(-1, size)
        return gather(data, places, size)
    answer = np.empty((len(offsets), size), np.uint8)
    edges = np.append(np.flatnonzero(np.diff(begins // _BATCH_BYTES, prepend=-1)), len(begins))
    blocks = np.searchsorted(requests.request, edges)
    for (begin, end), (first, stop) in zip(pairwise(edges.tolist()), pairwise(blocks.tolist()), strict=True):
        rows = slice(first, stop) if isinstance(order, slice) else order[first:stop]
        answer[rows] = gather(_joined(read_ranges(table[begin:end])), places[first:stop] - begins[begin], size)
    return answer


def _joined(parts: Sequence[Bytes]) -> Bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)
