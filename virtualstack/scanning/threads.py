"""Threads that end with the interpreter, whatever they are at; it waits for those of `ThreadPoolExecutor`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any

__all__ = ["DaemonThreads", "within"]

_NAME = "virtualstack-scan"

type _Call = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads(Executor):
    """Some threads that call functions, in the order in which they come.

    Parameters
    ----------
    n_threads
        At most; one is started with each of the first calls.
    """

    def __init__(self, n_threads: int, /) -> None:
        self.n_threads = n_threads
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._is_shut = False

    def submit[T](self, function: Callable[..., T], /, *arguments: Any, **options: Any) -> Future[T]:
        """Call a function soon. Not to be called by several threads at once."""
        if self._is_shut:
            raise RuntimeError("these threads were told to end")
        future: Future[T] = Future()
        self._calls.put((future, functools.partial(function, *arguments, **options)))
        if len(self._threads) < self.n_threads:
            self._threads.append(threading.Thread(target=_work, args=(self._calls,), name=_NAME, daemon=True))
            self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let threads end when they have done what they were given, or what they are at."""
        self._is_shut = True
        while cancel_futures:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            if call is not None:
                call[0].cancel()
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads if wait else ():
            thread.join()


def within[T](seconds: float, function: Callable[[], T], /) -> T:
    """Call a function in a thread of its own, which is left alone when it takes longer.

    Raises
    ------
    TimeoutError
        It took longer.
    """
    future: Future[T] = Future()
    threading.Thread(target=_call, args=(future, function), name=_NAME, daemon=True).start()
    return future.result(seconds)


def _work(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        _call(*call)
        del call  # it holds what came of it


def _call(future: Future[Any], function: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - who waits for it gets it
            future.set_exception(error)
        else:
            future.set_result(result)
