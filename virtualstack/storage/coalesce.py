"""Merge byte ranges that are near each other, split large ones, and copy blocks out of the results, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from virtualstack.storage.source import Bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Requests:
    """The plan of :func:`coalesce`: which requests to send for some byte ranges. Requests are sorted by offset.

    Send the requests, and pass the answers to `cut` to get the bytes of each range.

    Parameters
    ----------
    offsets, lengths
        Shape ``(m,)``, bytes: the requests. The requests of one merged run are consecutive and do not overlap.
    request
        Shape ``(n,)``: for each range the number of the request that holds its first byte.
    within
        Shape ``(n,)``, bytes: where the range begins in that request. It ends in the same request, unless
        ``max_length`` split requests; then it continues in the next requests.
    """

    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]
    request: NDArray[np.intp]
    within: NDArray[np.int64]

    def cut(self, answers: Sequence[bytes | memoryview], lengths: NDArray[np.int64], /) -> list[bytes | memoryview]:
        """Return the bytes of each range, cut out of the answers to the requests.

        Only a range that spans several answers is copied.

        >>> lengths = np.array([2, 2, 2])
        >>> plan = coalesce(np.array([0, 2, 90]), lengths)
        >>> list(zip(plan.offsets.tolist(), plan.lengths.tolist()))
        [(0, 4), (90, 2)]
        >>> [bytes(x) for x in plan.cut([b"abcd", b"yz"], lengths)]
        [b'ab', b'cd', b'yz']
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
    """Plan few requests for many byte ranges: merge ranges that overlap, touch, or are near each other.

    Ranges are near each other if at most ``max_gap`` bytes are between them.

    An empty range needs no request: its ``request`` is 0 (which need not exist) and its ``within`` is 0.

    Examples
    --------
    >>> plan = coalesce(np.array([100, 0, 4]), np.array([10, 4, 4]), max_gap=8)
    >>> plan.offsets.tolist(), plan.lengths.tolist(), plan.request.tolist(), plan.within.tolist()
    ([0, 100], [8, 10], [1, 0, 0], [0, 0, 4])
    """
    if max_gap < 0 or (enough is not None and enough < 1) or (max_length is not None and max_length < 1):
        raise ValueError(
            f"max_gap={max_gap}, enough={enough} and max_length={max_length} are not valid; give max_gap >= 0, "
            "enough >= 1 and max_length >= 1"
        )
    offsets = np.asarray(offsets, dtype=np.int64)
    lengths = np.asarray(lengths, dtype=np.int64)
    request = np.zeros(offsets.shape, dtype=np.intp)
    within = np.zeros(offsets.shape, dtype=np.int64)
    if lengths.size == 1 and 0 < lengths[0] <= (max_length or lengths[0]):  # most common: nothing to merge
        return Requests(offsets=offsets, lengths=lengths, request=request, within=within)
    filled = np.flatnonzero(lengths)
    if filled.size == 0:
        return Requests(offsets=np.empty(0, np.int64), lengths=np.empty(0, np.int64), request=request, within=within)

    order = filled[np.argsort(offsets[filled], kind="stable")]
    starts = offsets[order]
    reach = np.maximum.accumulate(starts + lengths[order])  # end of all ranges so far
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
)  # copying as much costs about 2 us; another read costs as much, and far more on a network file system
_BATCH_BYTES = 1024 * 1024  # bytes that are read and split up together: they stay in the cache of the processor


def gather(data: Bytes | bytearray, positions: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
    """Copy the blocks of ``size`` bytes that begin at ``positions`` of ``data``."""
    # Overlapping items, one for each byte of the data: taking an item is one memcpy.
    windows = np.ndarray((len(data) - size + 1,), dtype=np.dtype((np.void, size)), buffer=data, strides=(1,))
    return windows[positions].view(np.uint8).reshape(-1, size)


def read_blocks(
    read_ranges: Callable[[NDArray[np.int64]], Sequence[Bytes]], offsets: NDArray[np.int64], size: int, /
) -> NDArray[np.uint8]:
    """Read blocks from a source where reading is cheap; near blocks are read together with the bytes between them.

    At most about 3 MiB, or three blocks, are in memory in addition to the result.
    """
    is_sorted = bool((offsets[1:] >= offsets[:-1]).all())
    order = slice(None) if is_sorted else np.argsort(offsets, kind="stable")
    requests = coalesce(offsets[order], np.full(len(offsets), size), max_gap=_MAX_GAP_BYTES, enough=_BATCH_BYTES)
    table = np.stack([requests.offsets, requests.lengths], axis=1)
    begins = np.cumsum(requests.lengths) - requests.lengths  # positions in the joined answers to all requests
    places = begins[requests.request] + requests.within
    if is_sorted and begins[-1] < _BATCH_BYTES:
        data = _joined(read_ranges(table))
        if len(data) == len(offsets) * size:  # no bytes between the blocks
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
