"""Waiting for answers in a way that an interrupt ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

__all__ = ["is_ending", "wait_for"]

_MAX_CALLS = 32  # calls that interrupts have left behind, until their servers answer or time is out
_LOCK = threading.Lock()
_POOL: ThreadPoolExecutor | None = None


def wait_for[T](ask: Callable[[], T], /) -> T:
    """Make a call that changes nothing, so that Ctrl-C does not wait for its answer.

    Interrupts come to the main thread alone, and not while it is in a library: another thread makes its calls. To
    start one for each takes several times as long as to hand the call over.
    """
    if threading.current_thread() is not threading.main_thread():
        return ask()
    try:
        answer = _pool().submit(ask)
    except RuntimeError:  # the process ends: no thread begins anything
        return ask()
    return answer.result()


def is_ending() -> bool:
    """Return whether the process is about to end, and waits for its threads."""
    try:
        _pool().submit(int)
    except RuntimeError:
        return True
    return False


def _pool() -> ThreadPoolExecutor:
    global _POOL
    with _LOCK:
        if _POOL is None:
            _POOL = ThreadPoolExecutor(_MAX_CALLS, thread_name_prefix="virtualstack-waiting")
        return _POOL
