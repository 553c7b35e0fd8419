"""Blocks of one size out of larger stretches of bytes, by one copy each and no Python for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from virtualstack.storage.coalesce import coalesce
from virtualstack.storage.source import Bytes

__all__ = ["gather", "read_blocks"]

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
