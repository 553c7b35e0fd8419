"""Helpers for calls that run in other threads: many at once, one at a time for each key, and interruptible."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location, is_remote

__all__ = ["LimitedLookup", "concurrently", "forget_frames", "is_ending", "wait_for"]

_MAX_FAILURES = 100


class LimitedLookup:
    """Asks for each URL, until a place could not be reached a hundred times one after the other."""

    def __init__(self, ask: Callable[[str], Location]) -> None:
        self._ask = ask
        self._failures = 0
        self._lock = threading.Lock()

    def __call__(self, url: str, /) -> Location | StorageError:
        """Give what is there, or the error."""
        if self._failures >= _MAX_FAILURES:
            return StorageError(f"'{url}' was not asked for: {_MAX_FAILURES} before it could not be had", url=url)
        try:
            found = self._ask(url)
        except SourceNotFoundError as error:
            self._note(is_failure=False)
            forget_frames(error)
            return error
        except StorageError as error:
            self._note(is_failure=True)
            forget_frames(error)
            return error
        self._note(is_failure=False)
        return found

    def _note(self, *, is_failure: bool) -> None:
        with self._lock:
            self._failures = self._failures + 1 if is_failure else 0


def forget_frames(error: BaseException, /) -> None:
    """Let go of what the frames hold that an error went through: where errors are kept, there may be 10^6 of them."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__


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


_MAX_CALLS = 32  # calls that interrupts have left behind, until their servers answer or time is out
_LOCK = threading.Lock()
_POOL: ThreadPoolExecutor | None = None


def wait_for[T](ask: Callable[[], T], /) -> T:
    """Make a call that changes nothing, so that Ctrl-C does not wait for its answer.

    Interrupts come to the main thread alone, and not while it is in a library: another thread makes its calls. To
    start one for each takes several times as long as to hand the call over.
    """
    if threading.current_thread() is not threading.main_thread():
        return ask()
    try:
        answer = _pool().submit(ask)
    except RuntimeError:  # the process ends: no thread begins anything
        return ask()
    return answer.result()


def is_ending() -> bool:
    """Return whether the process is about to end, and waits for its threads."""
    try:
        _pool().submit(int)
    except RuntimeError:
        return True
    return False


def _pool() -> ThreadPoolExecutor:
    global _POOL
    with _LOCK:
        if _POOL is None:
            _POOL = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="virtualstack-waiting")
        return _POOL
