"""Writing several objects side by side."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from virtualstack.storage.target import Target

__all__ = ["Puts"]

_MAX_PUTS = 8


class Puts:
    """Objects on their way to a target, a few at a time; a context that ends when all are there.

    Parameters
    ----------
    target
        Where they go.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pool = ThreadPoolExecutor(_MAX_PUTS, thread_name_prefix="virtualstack-puts")
        self._waiting: deque[Future[None]] = deque()

    def put(self, key: str, data: bytes, /) -> None:
        """Begin to write an object; waits where many are on their way, and raises what went wrong with one of them."""
        if len(self._waiting) >= _MAX_PUTS:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._target.put, key, data))

    def close(self) -> None:
        """Wait until all are there.

        Raises
        ------
        StorageError
            One cannot be written.
        """
        try:
            while self._waiting:
                self._waiting.popleft().result()
        finally:
            self._pool.shutdown(cancel_futures=True)
