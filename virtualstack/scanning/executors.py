"""Executors whose work can be left or ended: those of `concurrent.futures` wait for it when the interpreter ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

__all__ = ["DaemonThreads", "KillablePool", "call_within"]


class DaemonThreads(Executor):
    """Make each call in a thread of its own, which ends with the interpreter, whatever it does."""

    def submit[T](self, function: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        """Begin a call now."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def call() -> None:
            try:
                result = function(*arguments, **options)
            except BaseException as error:  # noqa: BLE001 - the one who waits gets it
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=call, name="virtualstack-scan", daemon=True).start()
        return future


def call_within[T](seconds: float, function: Callable[[], T], /) -> T:
    """Call a function in a thread of its own, which is left alone when it takes longer.

    Raises
    ------
    TimeoutError
        It took longer.
    """
    return DaemonThreads().submit(function).result(seconds)


class _Context(SpawnContext):
    """Start processes afresh, and remember them: threads of obstore, and locks of others, do not survive a fork."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        self.started.append(_Process(*arguments, **options))
        return self.started[-1]


class _Process(SpawnProcess):
    """A process that Ctrl-C does not reach while it starts, which would show a traceback for each."""

    def start(self) -> None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child has the mask of its parent
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class KillablePool(ProcessPoolExecutor):
    """Processes that can be ended while they work; Ctrl-C is left to the process that has made them."""

    def __init__(self, n: int, /) -> None:
        self._context = _Context()
        super().__init__(n, mp_context=self._context, initializer=_ignore_interrupts)

    def kill(self) -> None:
        """End all processes, whatever they do."""
        for process in self._context.started:
            if process.is_alive():
                process.kill()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
