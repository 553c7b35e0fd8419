"""Many small reads at once where each of them is a request over a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

__all__ = ["concurrently", "is_remote"]

_N_THREADS = 32


def is_remote(url: str | None, /) -> bool:
    """Tell whether reading waits for a network."""
    return url is not None and "://" in url and not url.startswith(("file://", "memory://"))


def concurrently[T, R](work: Callable[[T], R], items: Sequence[T], /, urls: Iterable[str | None]) -> Iterator[R]:
    """Give the results in order; in threads where a source is remote, one after the other where all are local."""
    if len(items) < 2 or not any(map(is_remote, urls)):
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(min(_N_THREADS, len(items)), thread_name_prefix="virtualstack-open")
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)
