"""Workers of a scan: the executor, the order of sources, and the search for a source that kills its worker."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Literal

from virtualstack.errors import ReaderError
from virtualstack.location import is_remote
from virtualstack.scanning.job import DaemonThreads, KillablePool, Outcome, Work, run, unpack_outcomes
from virtualstack.system import n_cpus

type ExecutorLike = Literal["threads", "processes", "dask"] | Executor | Any | None
"""Values of ``executor=``. ``Any`` is for a ``distributed.Client``, which is not imported here."""

_MAX_THREADS = 64  # remote files at a time: each waits for two to five answers, and computes for 3 ms
_MAX_TASK_SOURCES = 32
_PROBE_SECONDS = 120


@dataclass(slots=True)
class Workers:
    """An executor with settings for its tasks.

    Parameters
    ----------
    job
        Work to do for each source.
    executor
        Executor that does the work.
    make
        Function that makes another executor if this one breaks; ``None`` for an executor of the user.
    n_tasks
        Largest number of tasks that are submitted at the same time.
    task_length
        Number of sources in a task.
    is_here
        If true, tasks run in threads of this process, and nothing is pickled.
    watch
        Function that is called from time to time while no result arrives. It returns true if no further result will
        arrive, and warns if there are no workers.
    deaths
        Error classes of a task whose worker died.
    """

    job: Work
    executor: Executor
    make: Callable[[], Executor] | None
    n_tasks: int
    task_length: int
    is_here: bool = False
    watch: Callable[[], bool] | None = None
    deaths: tuple[type[Exception], ...] = (BrokenExecutor,)

    def submit(self, urls: Sequence[str], /) -> Future[Any]:
        """Submit a task, and return its future."""
        if self.is_here:
            return self.executor.submit(self.job.read_all, urls)
        return self.executor.submit(run, self.job.only(urls), tuple(urls))

    def outcomes(self, future: Future[Any], urls: Sequence[str], /) -> list[Outcome]:
        """Return the outcome of each source of a task."""
        if self.is_here:
            outcomes: list[Outcome] = future.result()
            return outcomes
        return unpack_outcomes(future.result(), urls)

    def renew(self) -> None:
        """Replace an executor that broke. An executor of the user is replaced by processes of this machine."""
        self.close(is_idle=True)
        if self.make is None:
            self.make, self.job = functools.partial(KillablePool, _n_cpus()), replace(self.job, may_exit=True)
        self.executor, self.is_here, self.watch = self.make(), False, None
        try:
            self.executor.submit(os.getpid).result(_PROBE_SECONDS)
        except (BrokenExecutor, TimeoutError) as error:
            self.close(is_idle=False)
            raise RuntimeError(
                "worker processes cannot be started: stderr has the reason. A script that uses executor='processes' "
                "must be importable: put its calls under `if __name__ == '__main__':`"
            ) from error

    def close(self, *, is_idle: bool) -> None:
        """Shut down an executor that was made here. Waiting tasks are cancelled, and busy processes are killed."""
        if self.make is not None:
            self.executor.shutdown(wait=False, cancel_futures=True)
        if isinstance(self.executor, KillablePool) and not is_idle:
            self.executor.kill()


def find_workers(executor: ExecutorLike, job: Work, urls: Sequence[str], /) -> Workers | None:
    """Return the workers for some sources, or ``None`` to read them one after the other in this thread."""
    n = len(urls)
    any_remote = any(map(is_remote, urls))
    if executor is None:
        if n < 2 or not (any_remote or job.cache):  # writing an entry of the cache waits for the disk
            return None
        executor = "threads"
    if executor == "threads":
        n_threads = min(_MAX_THREADS if any_remote else _n_cpus() + 4, max(n, 1))
        return Workers(job, DaemonThreads(), DaemonThreads, n_threads, 1, is_here=True)
    if executor == "processes":
        _check_pickles(job)
        n_processes = max(min(_n_cpus(), n), 1)
        length = _task_length(n, 4 * n_processes)
        make_pool = functools.partial(KillablePool, n_processes)
        return Workers(replace(job, may_exit=True), make_pool(), make_pool, 2 * n_processes, length)
    if isinstance(executor, ThreadPoolExecutor):
        return Workers(job, executor, None, 256, 1, is_here=True)
    if isinstance(executor, Executor):
        _check_pickles(job)
        return Workers(job, executor, None, 64, _task_length(n, 64))
    if executor == "dask" or type(executor).__module__.partition(".")[0] == "distributed":
        _check_pickles(job)
        dask = importlib.import_module("virtualstack.scanning.dask")
        given, n_threads, watch = dask.open_executor(None if executor == "dask" else executor)
        n_tasks, length = max(2 * n_threads, 16), _task_length(n, 4 * n_threads)
        return Workers(job, given, None, n_tasks, length, watch=watch, deaths=(BrokenExecutor, dask.KilledWorker))
    if isinstance(executor, str):
        raise ValueError(f"executor={executor!r}; it must be 'threads', 'processes', 'dask', or an executor")
    raise TypeError(
        f"executor= is of type '{type(executor).__name__}'. Give 'threads', 'processes', 'dask', a "
        "concurrent.futures.Executor or a distributed.Client"
    )


def _task_length(n: int, n_tasks: int) -> int:
    """Return the number of sources in a task: large for low overhead, and small enough that workers finish together."""
    return min(max(n // max(n_tasks, 1), 1), _MAX_TASK_SOURCES)


def _n_cpus() -> int:
    return min(n_cpus(), 61)  # Windows waits for at most 61 processes


def _check_pickles(job: Work) -> None:
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(
            f"reader= or storage= cannot be pickled, so other processes cannot use it: {error}. Use "
            "executor='threads', or give options as storage= instead of a store"
        ) from error


_WATCH_SECONDS = 10.0  # between two checks of the workers, while no result arrives

type _Task = tuple[int, ...]
"""Indexes of the sources of a task."""


class Schedule:
    """Tasks of some sources each, of which a limited number is submitted at the same time.

    If a worker dies, all running tasks are lost, also those of other workers. They are repeated one task at a time. A
    task that kills its worker again is repeated one source at a time, so that only the source at fault is lost. If an
    executor accepts no more tasks, the sources that were not submitted are reported as lost.
    """

    def __init__(self, urls: Sequence[str], workers: Workers, /) -> None:
        self._urls = urls
        self._workers = workers
        length = workers.task_length
        indexes = range(len(urls))
        self._pending = deque(tuple(indexes[i : i + length]) for i in range(0, len(urls), length))
        self._suspects: deque[_Task] = deque()
        self._running: dict[Future[Any], _Task] = {}
        self._dropped: list[Future[Any]] = []
        self._finished: SimpleQueue[Future[Any]] = SimpleQueue()
        self._is_broken = False
        self._is_alone = False
        self._refusal: Exception | None = None

    def outcomes(self) -> Generator[tuple[int, Outcome]]:
        """Yield the index and the outcome of each source as they finish. Closing this generator ends the work."""
        try:
            while self._pending or self._suspects or self._running:
                self._submit()
                if self._refusal is not None:
                    yield from self._give_up(self._refusal)
                    if not self._running:
                        break
                future = self._next()
                task = self._running.pop(future, None)
                if task is not None:
                    yield from self._take(task, future)
        finally:
            is_idle = all(future.done() for future in (*self._running, *self._dropped))
            for future in self._running:
                future.cancel()
            self._workers.close(is_idle=is_idle)

    def drop_after(self, index: int, /) -> None:
        """Drop all sources after an index. Tasks that are running are not waited for."""
        self._pending = deque(task for task in self._pending if task[0] <= index)
        self._suspects = deque(task for task in self._suspects if task[0] <= index)
        for future, task in list(self._running.items()):
            if task[0] > index:
                del self._running[future]
                future.cancel()
                self._dropped.append(future)

    def _next(self) -> Future[Any]:
        while True:
            try:
                return self._finished.get(timeout=_WATCH_SECONDS if self._workers.watch else None)
            except Empty:
                if self._workers.watch and self._workers.watch():
                    for future in self._running:
                        future.cancel()

    def _submit(self) -> None:
        while self._refusal is None:
            if not self._running:
                self._is_alone = False
                if self._is_broken:
                    self._workers.renew()
                    self._is_broken = False
            if self._is_broken or self._is_alone or len(self._running) >= self._workers.n_tasks:
                return
            if self._suspects:
                if self._running:
                    return
                self._is_alone = True
                self._start(self._suspects)
            elif self._pending:
                self._start(self._pending)
            else:
                return

    def _start(self, tasks: deque[_Task]) -> None:
        task = tasks.popleft()
        try:
            future = self._workers.submit([self._urls[i] for i in task])
        except BrokenExecutor:
            tasks.appendleft(task)
            self._is_broken = True
        except Exception as error:  # noqa: BLE001 - executors of other packages may raise any error
            tasks.appendleft(task)
            self._refusal = error
        else:
            self._running[future] = task
            future.add_done_callback(self._finished.put)

    def _give_up(self, error: Exception) -> Iterator[tuple[int, Outcome]]:
        while self._suspects or self._pending:
            for i in (self._suspects or self._pending).popleft():
                yield i, _lost(self._urls[i], f"could not be started ({_describe(error)}): {_EXECUTOR_ENDED}", error)

    def _take(self, task: _Task, future: Future[Any]) -> Iterator[tuple[int, Outcome]]:
        error = CancelledError("the task was cancelled") if future.cancelled() else future.exception()
        if error is None:
            try:
                found = self._workers.outcomes(future, [self._urls[i] for i in task])
            except Exception as odd:  # noqa: BLE001 - executors of other packages may return anything
                error = odd
            else:
                yield from zip(task, found, strict=True)
                return
        if not isinstance(error, Exception):
            raise error
        is_broken = isinstance(error, BrokenExecutor)
        self._is_broken |= is_broken
        if is_broken and not self._is_alone:
            self._suspects.append(task)
        elif len(task) > 1:
            self._suspects.extend((i,) for i in task)
        else:
            yield task[0], _lost(self._urls[task[0]], _explain(error, self._workers), error)


_EXECUTOR_ENDED = "its executor or cluster was shut down. Scan the file again"


def _explain(error: Exception, workers: Workers) -> str:
    if isinstance(error, CancelledError):
        return f"was cancelled: {_EXECUTOR_ENDED}"
    if isinstance(error, workers.deaths):
        timeout = workers.job.timeout
        late = "" if timeout is None else f"it took longer than timeout={timeout:g} seconds, or "
        return (
            f"ended with its worker ({_describe(error)}): {late}it ran out of memory, or a library crashed. Scan "
            "this file alone"
        )
    return f"was lost by its executor ({_describe(error)}). Scan the file again"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _lost(url: str, why: str, error: Exception) -> ReaderError:
    lost = ReaderError(f"'{url}': the task that scanned it {why}", url=url)
    lost.__cause__ = error
    return lost
