"""Handling of Ctrl-C: it ends the command at any moment, with one line and exit status 130.

Python raises `KeyboardInterrupt` between any two steps. It is lost where no code can catch it: in ``__del__``, in
callbacks of libraries, and in some functions of C libraries. So the interrupt is recorded, and raised again until it
is handled.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from virtualstack.system import ring_after

INTERRUPTED = 130
"""Exit status that shells use for a command that SIGINT ended."""

_PAUSE = 0.2  # seconds until a lost interrupt is raised again


@dataclass(slots=True)
class _InterruptState:
    came: bool = False
    status: int | None = None


_STATE = _InterruptState()


def run_interruptible(run: Callable[[], int], /) -> int:
    """Run the command and return its exit status, or exit with the status of an interrupt."""
    status: int | None = None
    try:
        try:
            if (
                signal.getsignal(signal.SIGINT) is signal.default_int_handler
            ):  # otherwise the parent process has made it ignore Ctrl-C
                _watch()
            status = run()
        finally:
            take(status)
    except BaseException:
        # any error that the interrupt has become; --debug shows it
        if not _STATE.came or "--debug" in sys.argv:
            raise
    if _STATE.came:
        if status != INTERRUPTED:
            clear = "\r\x1b[K" if sys.stderr is not None and sys.stderr.isatty() else ""
            print(f"{clear}virtualstack: error: interrupted", file=sys.stderr)  # noqa: T201
        _end_processes()
        atexit._run_exitfuncs()  # removes shared memory of processes, and temporary folders
        _leave(INTERRUPTED)
    return status or 0


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed since the command began."""
    return _STATE.came


def take(status: int | None = INTERRUPTED, /) -> None:
    """Record the exit status of a command that ends. The interrupt is not raised again after this."""
    _STATE.status = INTERRUPTED if status is None else status
    if _STATE.came:
        ring_after(0)


def _watch() -> None:
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _show_unraisable
    # The function registered first is called last. After it, Python restores the default action, which kills.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _STATE.status is not None:  # the exit may wait for threads that wait for servers
        _leave(_STATE.status)
    _STATE.came = True
    ring_after(_PAUSE, _raise_lost)
    raise KeyboardInterrupt


def _raise_lost(number: int, frame: FrameType | None) -> None:
    """Raise the interrupt again, unless it is already being handled by ``finally`` and ``with``."""
    if _STATE.status is not None:
        return
    ring_after(_PAUSE, _raise_lost)
    error = sys.exception()
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return
        error = error.__context__
    raise KeyboardInterrupt


def _show_unraisable(unraisable: Any, /) -> None:
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _end_processes() -> None:
    if "multiprocessing" in sys.modules:
        from multiprocessing import active_children

        for child in active_children():
            child.kill()


def _leave(status: int) -> None:
    """Exit the process now. The interpreter would wait for threads that may wait for servers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_processes()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    os._exit(status)
