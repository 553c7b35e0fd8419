"""Work on one source, here or in a worker: read it, retry after temporary failures, and stop at the time limit.

Executors of `concurrent.futures` wait for their work when the interpreter exits. The executors here do not.
"""

from __future__ import annotations

import faulthandler
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import SpawnContext, SpawnProcess
from numbers import Real
from typing import Any, Self

from numcodecs import zstd

from virtualstack.errors import ReaderError, Remedy, check_type
from virtualstack.formats.base import Reader, ReadOptions, check_references, permitted
from virtualstack.location import is_remote, outermost, split_url
from virtualstack.manifests import ManifestGroup
from virtualstack.scanning.cache import ScanCache
from virtualstack.scanning.one import describe, naming_source, retry
from virtualstack.storage import Storage
from virtualstack.system import Threads, hold_interrupts

_MIN_PATIENCE_SECONDS, _MAX_BACKOFF_SECONDS = 10.0, 3.0  # longest time of all retries of obstore, and longest pause


def with_retries(storage: Storage, urls: Iterable[str], retries: int, /) -> Storage:
    """Return the storage with a number of retries for the servers of these URLs, unless their options set it.

    Stores and filesystems that a user made keep their own setting.
    """
    roots = {split_url(url)[0]: url for url in map(outermost, urls) if is_remote(url)}
    given = dict(storage.given)
    for url in roots.values():
        prefix, backend = storage.find(url)
        if backend is None or (isinstance(backend, Mapping) and "max_retries" not in backend):
            patience = {
                "max_retries": retries,
                "retry_timeout": max(_MIN_PATIENCE_SECONDS, _MAX_BACKOFF_SECONDS * retries),
            }
            given[prefix] = patience | dict(backend or {})
    return storage.with_given(given)


class DaemonThreads(Executor):
    """Executor that makes each call in a new daemon thread, which ends with the interpreter."""

    def submit[T](self, function: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        """Start a call now, and return its future."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def call() -> None:
            try:
                result = function(*arguments, **options)
            except BaseException as error:  # noqa: BLE001 - the future hands it to the caller
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=call, name="virtualstack-scan", daemon=True).start()
        return future


def call_within[T](seconds: float, function: Callable[[], T], /) -> T:
    """Call a function in a new thread, and stop waiting for it after a time limit. The thread is not stopped."""
    return DaemonThreads().submit(function).result(seconds)


class _Context(SpawnContext):
    """Context that spawns processes and remembers them.

    Processes are not forked, because threads of obstore and locks of other libraries do not survive a fork.
    """

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        self.started.append(_Process(*arguments, **options))
        return self.started[-1]


class _Process(SpawnProcess):
    """Process that ignores Ctrl-C while it starts; otherwise each process would print a traceback."""

    def start(self) -> None:
        with hold_interrupts():
            super().start()


def check_timeout(timeout: float | None, /) -> None:
    """Raise an error if a timeout is neither a number of seconds nor ``None``."""
    check_type("timeout", timeout, Real | None, "a number of seconds. Give one, or None")
    if timeout is not None and not 0 < timeout <= threading.TIMEOUT_MAX:
        raise ValueError(f"timeout={timeout} is not a positive number of seconds. Give one, or None for no limit")


class KillablePool(ProcessPoolExecutor):
    """Pool of processes that can be killed while they work. Only the parent process handles Ctrl-C."""

    def __init__(self, n: int, /) -> None:
        self._context = _Context()
        super().__init__(n, mp_context=self._context, initializer=_ignore_interrupts)

    def kill(self) -> None:
        """Kill all processes, whether they are idle or not."""
        for process in self._context.started:
            if process.is_alive():
                process.kill()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


type Outcome = ManifestGroup | BaseException
"""Group or error of one source. Other errors than an `Exception` (Ctrl-C, an exit) end the scan."""

_MAX_THREADS = 16  # remote sources that one worker reads at a time
_STDERR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is done for each of many names, here or in a worker. It can be pickled.

    Parameters
    ----------
    cache
        Cache of groups, or ``None``.
    timeout
        Largest number of seconds for one name, or ``None``.
    may_exit
        If true, a name that takes longer than ``timeout`` ends the process. A library that hangs may hold its locks
        forever.
    """

    cache: ScanCache | None = None
    timeout: float | None = None
    may_exit: bool = False

    def read(self, url: str, /) -> ManifestGroup:
        """Return the group of one name, such as the URL of a source."""
        raise NotImplementedError

    def only(self, urls: Sequence[str], /) -> Self:
        """Return the work for some names, as a worker gets it."""
        return self

    def try_read(self, url: str, /) -> Outcome:
        """Return the group of one source, or its error. No error is raised, so that only this file is lost."""
        if self.timeout is None:
            return self._try(url)
        try:
            return call_within(self.timeout, lambda: self._try(url))
        except TimeoutError:
            return ReaderError(
                f"'{url}' was not read within timeout={self.timeout:g} seconds, by a thread that cannot be stopped",
                Remedy("use a larger", timeout=...),
                Remedy("leave the file out"),
                Remedy("read it in a process, which can be stopped, with", executor="processes"),
                url=url,
            )

    def _try(self, url: str) -> Outcome:
        try:
            with naming_source(url):
                return self.read(url)
        except BaseException as error:  # noqa: BLE001 - a bug in a reader; it is raised, or listed under its file
            return error

    def read_all(self, urls: Sequence[str], /) -> list[Outcome]:
        """Return the outcomes of several sources. Remote ones are read in threads at the same time."""
        if len(urls) > 1 and any(map(is_remote, urls)):
            with Threads(min(len(urls), _MAX_THREADS)) as pool:
                return list(pool.map(self.try_read, urls))
        return [self._try_or_exit(url) if self.may_exit and self.timeout else self.try_read(url) for url in urls]

    def _try_or_exit(self, url: str) -> Outcome:
        faulthandler.dump_traceback_later(self.timeout or 0, exit=True, file=_STDERR)  # needs no lock of Python
        try:
            return self._try(url)
        finally:
            faulthandler.cancel_dump_traceback_later()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Work):
    """Settings for reading sources. A job can be pickled.

    Parameters
    ----------
    reader, options
        Reader (``None`` to detect it) and its options, as in :func:`virtualstack.scan`.
    storage
        Access to the sources.
    retries
        Number of times a source is read again after a temporary failure.
    """

    reader: Reader | None
    storage: Storage
    options: ReadOptions
    retries: int

    def read(self, url: str, /) -> ManifestGroup:
        """Return the group of one source."""
        return retry(lambda: self._read(url), self.retries)

    def _read(self, url: str) -> ManifestGroup:
        once = self.storage.once(url)
        if self.cache is None:
            return describe(url, once, self.reader, self.options)
        limited = permitted(once, outermost(url), (*self.options.allow, *getattr(self.reader, "places", ())))
        kept = self.cache.load(url, limited)
        if kept is not None:
            check_references(kept, limited)  # what was granted when it was cached may not be granted now
            return kept
        watched = self.cache.watch(once)
        group = describe(url, watched, self.reader, self.options)
        self.cache.store(url, group, watched)
        return group


def run(job: Work, urls: Sequence[str], /) -> bytes:
    """Do the work of a worker, and return the pickled and compressed outcomes.

    Each outcome is pickled by itself, so that an outcome that cannot be pickled loses only its own file. Groups of
    similar files compress to little more than their chunk positions.
    """
    outcomes = [_pickle(url, outcome) for url, outcome in zip(urls, job.read_all(urls), strict=True)]
    compressed: bytes = zstd.compress(pickle.dumps(outcomes), 1)
    return compressed


def unpack_outcomes(data: bytes, urls: Sequence[str], /) -> list[Outcome]:
    """Return the outcome of each source from the bytes of a worker."""
    return [_unpickle(outcome, url) for outcome, url in zip(pickle.loads(zstd.decompress(data)), urls, strict=True)]


def _pickle(url: str, outcome: Outcome) -> bytes:
    try:
        data = pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)
        if isinstance(outcome, BaseException):
            pickle.loads(data)  # an error with an unusual constructor may not unpickle
    except Exception as error:  # noqa: BLE001 - classes of other packages may raise any error
        what = repr(outcome) if isinstance(outcome, BaseException) else f"a group that does not pickle: {error!r}"
        return pickle.dumps(ReaderError(f"'{url}': its reader returned {what}", url=url))
    return data


def _unpickle(data: bytes, url: str) -> Outcome:
    try:
        outcome: Outcome = pickle.loads(data)
    except Exception as error:  # noqa: BLE001 - as above
        return ReaderError(
            f"'{url}': the result of its worker cannot be unpickled here: {error!r}. "
            "Use the same versions of virtualstack and of its dependencies on all workers",
            url=url,
        )
    return outcome
