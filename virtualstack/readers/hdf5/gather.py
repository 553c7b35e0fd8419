"""Blocks of one size out of larger stretches of bytes, by one copy each and no Python for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.storage import Bytes, coalesce

__all__ = ["gather", "read_blocks"]

_MAX_GAP = 16 * 1024  # copying this much from the page cache costs about one system call
_ENOUGH = 4 * 1024 * 1024  # bytes of a read; more of them make it no faster


def gather(data: Bytes | bytearray, positions: NDArray[np.int64], size: int, /) -> NDArray[np.uint8]:
    """Copy the blocks of ``size`` bytes that begin at ``positions`` of ``data``.

    Returns
    -------
    numpy.ndarray
        Shape ``(n, size)``.
    """
    if not size or not len(positions):
        return np.empty((len(positions), size), np.uint8)
    # Overlapping items, one for each byte of the data: to take them is one memcpy each.
    windows = np.ndarray((len(data) - size + 1,), dtype=np.dtype((np.void, size)), buffer=data, strides=(1,))
    return windows[positions].view(np.uint8).reshape(-1, size)


def read_blocks(
    read_ranges: Callable[[NDArray[np.int64]], Sequence[Bytes]], offsets: NDArray[np.int64], size: int, /
) -> NDArray[np.uint8]:
    """Read blocks from a place where reading is cheap: near ones at once, unneeded bytes between them included.

    No more than about 8 MiB, or two blocks, are held besides the answer.

    Parameters
    ----------
    read_ranges
        As `Source.read_ranges`.
    offsets
        Shape ``(n,)``, bytes, in any order; all blocks lie within the source.
    size
        Bytes of a block.

    Returns
    -------
    numpy.ndarray
        Shape ``(n, size)``.
    """
    if not size or not len(offsets):
        return np.empty((len(offsets), size), np.uint8)
    requests = coalesce(offsets, np.full(len(offsets), size), max_gap=_MAX_GAP, enough=_ENOUGH)
    ends = np.cumsum(requests.lengths)
    table = np.stack([requests.offsets, requests.lengths], axis=1)
    batch = (ends - requests.lengths) // _ENOUGH
    if batch[-1] == 0:
        return gather(_joined(read_ranges(table)), (ends - requests.lengths)[requests.request] + requests.within, size)

    answer = np.empty((len(offsets), size), np.uint8)
    order = np.argsort(requests.request, kind="stable")
    asked = requests.request[order]
    edges = np.append(np.flatnonzero(np.diff(batch, prepend=-1)), len(batch))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = order[np.searchsorted(asked, begin) : np.searchsorted(asked, end)]
        starts = ends[begin:end] - requests.lengths[begin:end] - (ends[begin] - requests.lengths[begin])
        positions = starts[requests.request[rows] - begin] + requests.within[rows]
        answer[rows] = gather(_joined(read_ranges(table[begin:end])), positions, size)
    return answer


def _joined(parts: Sequence[Bytes]) -> Bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)
