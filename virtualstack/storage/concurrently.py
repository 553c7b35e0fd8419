"""Many small reads at once where each of them is a request over a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from virtualstack.location import is_remote

__all__ = ["concurrently"]

_N_THREADS = 32


def concurrently[T, R](work: Callable[[T], R], items: Sequence[T], /, urls: Iterable[str | None]) -> Iterator[R]:
    """Give the results in order; in threads where a source is remote, one after the other where all are local."""
    if len(items) < 2 or not any(is_remote(url) for url in urls if url is not None):
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(min(_N_THREADS, len(items)), thread_name_prefix="virtualstack-each")
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
