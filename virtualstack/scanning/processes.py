"""Processes that can be ended while they work."""

from __future__ import annotations

import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

__all__ = ["Processes"]


class _Context(SpawnContext):
    """Starts processes afresh, and knows them; threads of obstore, and locks of others, do not survive a fork."""

    def __init__(self) -> None:
        self.started: list[SpawnProcess] = []

    def Process(self, *arguments: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        self.started.append(_Process(*arguments, **options))
        return self.started[-1]


class _Process(SpawnProcess):
    """A process that Ctrl-C does not reach while it starts, which would show a traceback for each."""

    def start(self) -> None:
        held = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a child has the mask of its parent
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)


class Processes(ProcessPoolExecutor):
    """Some processes; Ctrl-C is left to the one that has made them."""

    def __init__(self, n: int, /) -> None:
        self._context = _Context()
        super().__init__(n, mp_context=self._context, initializer=_ignore_interrupts)

    def kill(self) -> None:
        """End them, whatever they do."""
        for process in self._context.started:
            if process.is_alive():
                process.kill()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
