"""Stretches of a file whose bytes are held. No I/O."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from virtualstack.storage import Bytes

__all__ = ["Stretches", "without"]


class Stretches:
    """Bytes of a file, as far as they are held; no byte is held twice.

    Examples
    --------
    >>> held = Stretches()
    >>> held.add(np.array([[10, 14]]), [b"abcd"])
    >>> held.add(np.array([[8, 12]]), [b"xyab"])
    >>> held.span(9, 4), held.span(9, 6)
    (b'yabc', None)
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._data: list[memoryview] = []
        self.edges: NDArray[np.int64] = np.empty((0, 2), np.int64)

    def add(self, edges: NDArray[np.int64], data: Sequence[Bytes], /) -> None:
        """Hold more bytes; of those that are held already nothing changes.

        Parameters
        ----------
        edges
            Shape ``(n, 2)``, first byte and the one after the last, sorted and without overlap.
        data
            The bytes between them.
        """
        new = without(edges, self.edges)
        owner = np.searchsorted(edges[:, 0], new[:, 0], "right") - 1
        views = [memoryview(part) for part in data]
        parts = [
            views[n][start - first : stop - first]
            for n, first, (start, stop) in zip(owner.tolist(), edges[owner, 0].tolist(), new.tolist(), strict=True)
        ]
        together = np.concatenate([self.edges, new])
        order = np.argsort(together[:, 0])
        self.edges = together[order]
        self._starts = self.edges[:, 0].tolist()
        parts = [*self._data, *parts]
        self._data = [parts[n] for n in order.tolist()]

    def span(self, offset: int, size: int, /) -> bytes | None:
        """Give bytes, or ``None`` where not all of them are held."""
        n = bisect_right(self._starts, offset) - 1
        if n < 0:
            return None
        at = offset - self._starts[n]
        data = bytes(self._data[n][at : at + size])
        if len(data) == size:
            return data
        parts, left = [data], size - len(data)
        while left:
            n += 1
            if not data or n == len(self._starts) or self._starts[n] != offset + size - left:
                return None
            parts.append(bytes(self._data[n][:left]))
            left -= len(parts[-1])
        return b"".join(parts)

    def blocks(self, offsets: NDArray[np.int64], size: int, /) -> NDArray[np.uint8] | None:
        """Give blocks, shape ``(n, size)``, or ``None`` where not all of them are held."""
        owner = np.searchsorted(self.edges[:, 0], offsets, "right") - 1
        if not len(self.edges) or owner.min() < 0:
            return None
        at = offsets - self.edges[owner, 0]
        parts: list[Bytes] = [
            self._data[n][begin : begin + size] for n, begin in zip(owner.tolist(), at.tolist(), strict=True)
        ]
        for n in np.flatnonzero(offsets + size > self.edges[owner, 1]).tolist():
            part = self.span(int(offsets[n]), size)
            if part is None:
                return None
            parts[n] = part
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(offsets), size)


def without(wanted: NDArray[np.int64], held: NDArray[np.int64], /) -> NDArray[np.int64]:
    """Give what is wanted and not held.

    Parameters
    ----------
    wanted, held
        Shapes ``(n, 2)`` and ``(m, 2)``: first byte and the one after the last, in any order, overlapping or not.

    Returns
    -------
    numpy.ndarray
        Shape ``(k, 2)``, sorted; none overlap or touch.

    Examples
    --------
    >>> without(np.array([[0, 9], [7, 12]]), np.array([[3, 5]])).tolist()
    [[0, 3], [5, 12]]
    """
    n, m = len(wanted), len(held)
    points = np.concatenate([wanted[:, 0], wanted[:, 1], held[:, 0], held[:, 1]])
    order = np.argsort(points, kind="stable")
    points = points[order]
    steps = np.repeat([1, -1, 0], [n, n, 2 * m])[order], np.repeat([0, 1, -1], [2 * n, m, m])[order]
    is_missing = (np.cumsum(steps[0]) > 0) & (np.cumsum(steps[1]) == 0)
    is_last = np.append(points[1:] != points[:-1], True)[: len(points)]  # of the steps at one point
    points, is_missing = points[is_last], is_missing[is_last]
    edges: NDArray[np.int64] = points[np.flatnonzero(np.diff(is_missing, prepend=False))]
    return edges.reshape(-1, 2)
