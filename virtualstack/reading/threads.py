"""Threads that reading shares: some that wait for bytes, and one a processor that decodes."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from virtualstack.forks import in_forked_children

__all__ = ["decode_pool", "io_pool", "n_decoders", "read_ahead_pool"]

_IO_THREADS = 64
_LOCK = threading.Lock()
_POOLS: dict[str, ThreadPoolExecutor] = {}


def n_decoders() -> int:
    """Give the number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def decode_pool() -> ThreadPoolExecutor:
    """Give the threads that decode; tasks in them must not wait for each other."""
    return _pool("decode", n_decoders())


def io_pool() -> ThreadPoolExecutor:
    """Give the threads that wait for sources."""
    return _pool("io", _IO_THREADS)


def read_ahead_pool() -> ThreadPoolExecutor:
    """Give the threads that fetch the next batch of a read; they wait for those of `io_pool`."""
    return _pool("read-ahead", 8)


def _pool(name: str, n_threads: int) -> ThreadPoolExecutor:
    with _LOCK:
        if name not in _POOLS:
            _POOLS[name] = ThreadPoolExecutor(n_threads, thread_name_prefix=f"virtualstack-{name}")
        return _POOLS[name]


@in_forked_children
def _forget() -> None:
    # A forked child has the pools but not their threads, and perhaps a lock that nobody will give back.
    global _LOCK
    _LOCK = threading.Lock()
    _POOLS.clear()
