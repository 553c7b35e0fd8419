"""In which order sources go to workers, and how the one is found that ends a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from queue import Empty, SimpleQueue
from typing import Any

from virtualstack.errors import ReaderError
from virtualstack.scanning.job import Outcome
from virtualstack.scanning.workers import Workers

__all__ = ["Schedule"]

_WATCH_SECONDS = 10.0  # between two looks at who works, while nothing comes back

type _Task = tuple[int, ...]
"""Indexes of sources."""


class Schedule:
    """Tasks of some sources each, of which a few are submitted at a time.

    A worker that dies takes along what was under way, of others too. All of that is done again, one task at a time,
    and a task that ends its worker again, one source at a time: so the source that does it is found, and nothing else
    is lost. An executor that takes no tasks has come to its end: what it was not given yet is listed as lost.

    Parameters
    ----------
    urls
        The sources.
    workers
        Who reads them.
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
        """Give the index of each source, and what became of it, as they finish; closing this ends the work."""
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
        """Do without the sources after one of them; those that are being read are not waited for."""
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
        except Exception as error:  # noqa: BLE001 - executors of others raise what they like
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
            except Exception as odd:  # noqa: BLE001 - executors of others give what they like
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


_EXECUTOR_ENDED = "its executor or cluster came to an end. Scan it again"


def _explain(error: Exception, workers: Workers) -> str:
    if isinstance(error, CancelledError):
        return f"was cancelled: {_EXECUTOR_ENDED}"
    if isinstance(error, workers.deaths):
        timeout = workers.job.timeout
        late = "" if timeout is None else f"it took longer than timeout={timeout:g} seconds, or "
        return (
            f"came to an end with its worker ({_describe(error)}): {late}it ran out of memory, or a library that it "
            "used crashed. Scan this file by itself"
        )
    return f"was lost by its executor ({_describe(error)}). Scan it again"


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _lost(url: str, why: str, error: Exception) -> ReaderError:
    lost = ReaderError(f"'{url}': the task that scanned it {why}", url=url)
    lost.__cause__ = error
    return lost
