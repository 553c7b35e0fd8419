"""Work on one source, here or in a worker: read it, retry after temporary failures, and stop at the time limit.

Executors of `concurrent.futures` wait for their work when the interpreter exits. The executors here do not.
"""

from __future__ import annotations

import errno
import faulthandler
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from numcodecs import zstd

from virtualstack.errors import ReaderError, Remedy, StorageError, VirtualStackError
from virtualstack.formats.base import Reader, ReadOptions, check_references, permitted, read_permitted
from virtualstack.formats.registry import find_reader
from virtualstack.location import ARCHIVES, is_remote, outermost, split_url
from virtualstack.manifests import ManifestGroup, text_arrays
from virtualstack.reading.nameless import in_files
from virtualstack.scanning.cache import ScanCache
from virtualstack.storage import Storage
from virtualstack.system import Threads, hold_interrupts

__all__ = [
    "DEFAULT_RETRIES",
    "DaemonThreads",
    "Job",
    "KillablePool",
    "Outcome",
    "call_within",
    "is_transient",
    "retry",
    "run",
    "unpack_outcomes",
    "with_retries",
]

DEFAULT_RETRIES = 5  # the default of storage, too
_MIN_PATIENCE_SECONDS, _MAX_BACKOFF_SECONDS = 10.0, 3.0  # longest time of all retries of obstore, and longest pause
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 10.0
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_TRANSIENT_ERRNOS = {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ESTALE, errno.ETIMEDOUT}
_BROKEN_CONNECTIONS = {"ClientPayloadError", "IncompleteRead", "ServerDisconnectedError"}  # of aiohttp and http.client


def retry[T](read: Callable[[], T], retries: int, /) -> T:
    """Call a function, and repeat the call up to ``retries`` times after temporary failures of storage."""
    for attempt in range(retries):
        try:
            return read()
        except StorageError as error:
            if not is_transient(error):
                raise
        # jitter: workers that were rejected at the same time do not repeat at the same time
        time.sleep(min(_FIRST_PAUSE_SECONDS * 2**attempt, _MAX_PAUSE_SECONDS) * random.uniform(0.5, 1.5))
    return read()


def is_transient(error: StorageError, /) -> bool:
    """Return whether the same request may succeed soon and was not repeated by the library that made it.

    Errors of object stores (statuses such as 503, broken connections and time-outs) do not count: obstore has already
    repeated these requests according to its options. fsspec and file systems have not repeated theirs.
    """
    if type(error) is not StorageError:  # a missing, changed or forbidden source stays so
        return False
    return error.is_short or any(_is_transient(cause) for cause in _find_causes(error))


def _find_causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or error.__context__
    while cause is not None and not type(cause).__module__.startswith("obstore"):
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, TimeoutError | ConnectionError) or type(error).__name__ in _BROKEN_CONNECTIONS:
        return True
    status, number = getattr(error, "status", None), getattr(error, "errno", None)
    return status in _TRANSIENT_STATUSES or number in _TRANSIENT_ERRNOS


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
class Job:
    """Settings for reading sources. A job can be pickled.

    Parameters
    ----------
    reader, options
        Reader (``None`` to detect it) and its options, as in :func:`virtualstack.scan`.
    storage
        Access to the sources.
    retries
        Number of times a source is read again after a temporary failure.
    cache
        Cache of groups, or ``None``.
    timeout
        Largest number of seconds for one source, or ``None``.
    may_exit
        If true, a source that takes longer than ``timeout`` ends the process. A library that hangs may hold its locks
        forever.
    """

    reader: Reader | None
    storage: Storage
    options: ReadOptions
    retries: int
    cache: ScanCache | None = None
    timeout: float | None = None
    may_exit: bool = False

    def read(self, url: str, /) -> ManifestGroup:
        """Return the group of one source."""
        return retry(lambda: self._read(url), self.retries)

    def _read(self, url: str) -> ManifestGroup:
        once = self.storage.once(url)
        if self.cache is None:
            return self._described(url, once)
        limited = permitted(once, outermost(url), (*self.options.allow, *getattr(self.reader, "places", ())))
        kept = self.cache.load(url, limited)
        if kept is not None:
            check_references(kept, limited)  # what was granted when it was cached may not be granted now
            return kept
        watched = self.cache.watch(once)
        group = self._described(url, watched)
        self.cache.store(url, group, watched)
        return group

    def _described(self, url: str, storage: Storage) -> ManifestGroup:
        reader = find_reader(url, storage, self.reader)
        group = _group(read_permitted(reader, url, storage, self.options), url)
        source = None if storage.kept is None else storage.kept.source
        if source is not None and source.location.reads is not None:
            source.location.reads.edges()  # which take less memory
        if url.startswith(ARCHIVES):
            group = in_files(group, storage)
        if not self.options.drop_variables:
            return group
        group = self.options.without_dropped(group)  # readers may drop variables themselves, to read less
        if not any(text_arrays(node) for _, node in group.walk()):
            return group
        # Whether characters are text depends on all variables, also on dropped ones. Without these, more would be text.
        try:
            whole = _group(read_permitted(reader, url, storage, replace(self.options, drop_variables=frozenset())), url)
        except VirtualStackError:
            return group  # the file opens only without the dropped variables, in xarray too
        return _as_within(group, whole)

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
            return self.read(url)
        except BaseException as error:  # noqa: BLE001 - a bug in a reader; it is raised, or listed under its file
            if isinstance(error, Exception) and not isinstance(error, VirtualStackError):
                error.add_note(f"while '{url}' was scanned")
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


def _as_within(part: ManifestGroup, whole: ManifestGroup) -> ManifestGroup:
    """Return a group without some arrays; ``not_text`` has the dimensions whose letters are not text in the whole."""
    names = text_arrays(part) - text_arrays(whole)
    dims = {(part.arrays[name].dimension_names or ())[-1] for name in names}
    return replace(
        part,
        not_text=part.not_text | dims,
        groups={
            name: _as_within(child, whole.groups[name]) if name in whole.groups else child
            for name, child in part.groups.items()
        },
    )


def _group(found: object, url: str) -> ManifestGroup:
    """Check that a reader returned a group; anything else would be lost silently."""
    if not isinstance(found, ManifestGroup):
        raise ReaderError(f"'{url}': its reader returned a {type(found).__name__}, not a ManifestGroup", url=url)
    return found


def run(job: Job, urls: Sequence[str], /) -> bytes:
    """Run the job in a worker, and return the pickled and compressed outcomes.

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
