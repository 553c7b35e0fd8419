"""Run calls in other threads: many at once, or so that they can be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location, is_remote
from virtualstack.system import Threads, in_forked_children

_MAX_FAILURES = 100


class LimitedLookup:
    """A lookup of URLs that stops sending requests after a hundred failures in a row."""

    def __init__(self, ask: Callable[[str], Location]) -> None:
        self._ask = ask
        self._failures = 0
        self._lock = threading.Lock()

    def __call__(self, url: str, /) -> Location | StorageError:
        """Return the location of a URL, or the error."""
        if self._failures >= _MAX_FAILURES:
            return StorageError(
                f"'{url}' was not requested, because {_MAX_FAILURES} files before it could not be read. Solve their "
                "errors first",
                url=url,
            )
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
    """Drop the tracebacks of an error and its causes: up to 10^6 errors may be kept, and frames hold memory."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__


_N_THREADS = 32


def concurrently[T, R](work: Callable[[T], R], items: Sequence[T], /, urls: Iterable[str | None]) -> Iterator[R]:
    """Yield the results in order; if a source is remote, the calls run in threads, otherwise sequentially."""
    if len(items) < 2 or not any(is_remote(url) for url in urls if url is not None):
        yield from map(work, items)
        return
    pool = Threads(min(_N_THREADS, len(items)), thread_name_prefix="virtualstack-each")
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


_LOCK = threading.Lock()
_POOLS: dict[str, Threads] = {}


def thread_pool(name: str, n_threads: int, /) -> Threads:
    """Return the threads with a name, which are created once for the process."""
    with _LOCK:
        if name not in _POOLS:
            _POOLS[name] = Threads(n_threads, thread_name_prefix=f"virtualstack-{name}")
        return _POOLS[name]


@in_forked_children
def _forget_pools() -> None:
    # A forked child has the pools but not their threads, and perhaps a lock that nobody will give back.
    global _LOCK
    _LOCK = threading.Lock()
    _POOLS.clear()


_MAX_CALLS = 32  # calls left behind by interrupts, until their servers answer or time out


def wait_for[T](ask: Callable[[], T], /) -> T:
    """Make a call that changes nothing in such a way that Ctrl-C does not wait for its answer.

    Only the main thread gets interrupts, and not while it is in a library: another thread makes its calls. Starting a
    thread for each call would take several times as long as using a pool.
    """
    if threading.current_thread() is not threading.main_thread():
        return ask()
    try:
        answer = thread_pool("waiting", _MAX_CALLS).submit(ask)
    except RuntimeError:  # the process ends: no thread starts
        return ask()
    return answer.result()


def is_ending() -> bool:
    """Return whether the process is about to end and waits for its threads."""
    try:
        thread_pool("waiting", _MAX_CALLS).submit(int)
    except RuntimeError:
        return True
    return False
