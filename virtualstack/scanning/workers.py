"""Who does the work: threads, processes, a dask cluster, or an executor of the user's."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

from virtualstack.location import is_remote
from virtualstack.scanning.job import DaemonThreads, Job, KillablePool, Outcome, run, unpack_outcomes

__all__ = ["ExecutorLike", "Workers", "find_workers"]

type ExecutorLike = Literal["threads", "processes", "dask"] | Executor | Any | None
"""What ``executor=`` takes; ``Any``: a ``distributed.Client``, which is not imported here."""

_MAX_THREADS = 64  # remote files at a time: each waits for two to five answers, and computes for 3 ms
_MAX_TASK_SOURCES = 32
_PROBE_SECONDS = 120


@dataclass(slots=True)
class Workers:
    """An executor, and how it is fed.

    Parameters
    ----------
    job
        What is done with each source.
    executor
        Does it.
    make
        Makes another executor where this one breaks down; ``None`` where it is the user's.
    n_tasks
        Tasks that are submitted at a time.
    task_length
        Sources a task.
    is_here
        Whether tasks run in threads of this process, so that nothing is pickled.
    watch
        Called now and then while nothing comes back: tells whether nothing will any more, and warns where nobody is
        left to do it.
    deaths
        Classes of errors of a task whose worker died.
    """

    job: Job
    executor: Executor
    make: Callable[[], Executor] | None
    n_tasks: int
    task_length: int
    is_here: bool = False
    watch: Callable[[], bool] | None = None
    deaths: tuple[type[Exception], ...] = (BrokenExecutor,)

    def submit(self, urls: Sequence[str], /) -> Future[Any]:
        """Start a task."""
        if self.is_here:
            return self.executor.submit(self.job.read_all, urls)
        return self.executor.submit(run, self.job, tuple(urls))

    def outcomes(self, future: Future[Any], urls: Sequence[str], /) -> list[Outcome]:
        """Give what a task has made of each of its sources."""
        if self.is_here:
            outcomes: list[Outcome] = future.result()
            return outcomes
        return unpack_outcomes(future.result(), urls)

    def renew(self) -> None:
        """Go on with another executor after one has broken down; processes of our own where it was the user's.

        Raises
        ------
        RuntimeError
            Its processes do not even start.
        """
        self.close(is_idle=True)
        if self.make is None:
            self.make, self.job = functools.partial(KillablePool, _n_cpus()), replace(self.job, may_exit=True)
        self.executor, self.is_here, self.watch = self.make(), False, None
        try:
            self.executor.submit(os.getpid).result(_PROBE_SECONDS)
        except (BrokenExecutor, TimeoutError) as error:
            self.close(is_idle=False)
            raise RuntimeError(
                "worker processes do not start: see what they wrote to stderr. A script that uses executor='processes' "
                "must be importable: what it does belongs under `if __name__ == '__main__':`"
            ) from error

    def close(self, *, is_idle: bool) -> None:
        """Let go of an executor of ours; what waits does not begin, processes that are not idle are ended."""
        if self.make is not None:
            self.executor.shutdown(wait=False, cancel_futures=True)
        if isinstance(self.executor, KillablePool) and not is_idle:
            self.executor.kill()


def find_workers(executor: ExecutorLike, job: Job, urls: Sequence[str], /) -> Workers | None:
    """Give the workers for some sources; ``None``: one after the other, here.

    Raises
    ------
    ValueError, TypeError
        There is no such executor.
    MissingDependencyError
        dask is asked for, and not installed.
    """
    n = len(urls)
    any_remote = any(map(is_remote, urls))
    if executor is None:
        if n < 2 or not (any_remote or job.cache):  # writing an entry of the cache is waiting for the disk
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
        raise ValueError(f"executor={executor!r}; it is 'threads', 'processes', 'dask', or an executor")
    raise TypeError(
        f"executor= is a {type(executor).__name__}; give 'threads', 'processes', 'dask', a concurrent.futures.Executor "
        "or a distributed.Client"
    )


def _task_length(n: int, n_tasks: int) -> int:
    """Give how many sources a task has: enough to cost little, and few enough for all workers to end together."""
    return min(max(n // max(n_tasks, 1), 1), _MAX_TASK_SOURCES)


def _n_cpus() -> int:
    # Those that this process may use; Windows waits for 61 processes at most.
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, 61)


def _check_pickles(job: Job) -> None:
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise TypeError(
            f"reader= or storage= does not pickle, so no other process can use it: {error}. "
            "Use executor='threads', or give storage= options instead of a store"
        ) from error
