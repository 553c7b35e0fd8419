"""Which stretches of a file to fetch by one request: requests against bytes. Pure numpy, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["Pace", "merged"]

_SMALL = 64 * 1024  # an answer up to this long tells of latency, a longer one of bandwidth
_NEAR = 16 * 1024  # gaps up to this long are fetched whatever they cost: storage does so too


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast a server answers, as far as it has been seen.

    Parameters
    ----------
    latency
        Seconds until an answer comes.
    bandwidth
        Bytes a second, of all answers together.
    n_parallel
        Requests that are under way at a time.
    work
        Seconds of computing for each request, which do not run side by side.
    """

    latency: float = 0.05
    bandwidth: float = 60e6
    n_parallel: int = 120
    work: float = 2e-4

    def seconds(self, n_requests: NDArray[np.int64], n_bytes: NDArray[np.int64], /) -> NDArray[np.float64]:
        """Estimate how long requests take that are sent together."""
        waves = -(-n_requests // self.n_parallel)
        return waves * self.latency + n_requests * self.work + n_bytes / self.bandwidth

    def after(self, n_requests: int, n_bytes: int, seconds: float, /) -> Pace:
        """Learn from requests that were sent together."""
        waves = -(-n_requests // self.n_parallel)
        if n_bytes <= _SMALL * n_requests and waves == 1:
            return replace(self, latency=float(np.clip(seconds - n_requests * self.work, 1e-3, 1.0)))
        left = max(seconds - waves * self.latency - n_requests * self.work, 1e-3)
        return replace(self, bandwidth=float(np.clip(n_bytes / left, 10e6, 1e9)))


def merged(edges: NDArray[np.int64], pace: Pace, /, *, max_waste: int) -> NDArray[np.int64]:
    """Merge stretches across the gaps where that takes less time than to ask for each.

    Parameters
    ----------
    edges
        Shape ``(n, 2)``, first byte and the one after the last, sorted and without overlap.
    pace
        Of the server.
    max_waste
        Bytes of gaps that may be fetched, unless they are short.

    Returns
    -------
    numpy.ndarray
        Shape ``(m, 2)``.

    Examples
    --------
    >>> merged(np.array([[0, 100], [200, 300], [10**9, 10**9 + 100]]), Pace(), max_waste=1000).tolist()
    [[0, 300], [1000000000, 1000000100]]
    """
    if len(edges) < 2:
        return edges
    gaps = edges[1:, 0] - edges[:-1, 1]
    waste = np.append(0, np.cumsum(np.sort(gaps)))  # where the k smallest gaps are fetched
    n_requests = len(edges) - np.arange(len(edges))
    seconds = pace.seconds(n_requests, waste + int((edges[:, 1] - edges[:, 0]).sum()))
    least = int(np.count_nonzero(gaps <= _NEAR))
    most = max(least, int(np.searchsorted(waste, max_waste, "right")) - 1)
    k = least + int(seconds[least : most + 1].argmin())
    is_cut = np.ones(len(gaps), bool)
    is_cut[np.argsort(gaps, kind="stable")[:k]] = False
    return np.stack([edges[np.append(True, is_cut), 0], edges[np.append(is_cut, True), 1]], axis=1)
