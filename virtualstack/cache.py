"""Cache values that are costly to make, bounded in bytes; each value is made once for all threads that ask."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Any
from weakref import WeakSet

from virtualstack.system import in_forked_children

_CACHES: WeakSet[ByteCache[Any]] = WeakSet()


def each(_value: object, /) -> int:
    """Count a value as one, whatever its bytes: the limit of a cache is then a number of values."""
    return 1


class ByteCache[T]:
    """Cache of values by key; the least recently used values are dropped first.

    Parameters
    ----------
    limit
        Bytes to keep. A larger value is returned, but not kept.
    measure
        Function that returns the bytes of a value.
    """

    def __init__(self, limit: int, measure: Callable[[Any], int] = len) -> None:
        self._limit = limit
        self._measure = measure
        self.clear()
        _CACHES.add(self)

    def clear(self) -> None:
        """Forget all values, and which threads are making values: no thread of a forked process is making any."""
        self._size = 0
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._making: dict[Hashable, Future[T]] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: Hashable) -> bool:
        """Return whether a value is kept now."""
        return key in self._kept

    def get(self, key: Hashable, make: Callable[[], T], /) -> T:
        """Return the kept value, or make it; other threads wait for the same value or error.

        If Ctrl-C interrupts the thread that makes it, a waiting thread makes it instead.
        """
        while True:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key][0]
                waiting = self._making.get(key)
                if waiting is None:
                    answer = self._making[key] = Future[T]()
                    break
            with contextlib.suppress(CancelledError):
                return waiting.result()
        try:
            value = make()
            size = self._measure(value)
        except BaseException as error:
            with self._lock:
                del self._making[key]
            if isinstance(error, Exception):
                answer.set_exception(error)
            else:  # an interrupt of this thread does not concern the other threads
                answer.cancel()
            raise
        self._keep(key, value, size)
        answer.set_result(value)
        return value

    def _keep(self, key: Hashable, value: T, size: int) -> None:
        with self._lock:
            del self._making[key]
            if size > self._limit:
                return
            self._kept[key] = value, size
            self._size += size
            while self._size > self._limit:
                self._size -= self._kept.popitem(last=False)[1][1]


@in_forked_children
def _clear_all() -> None:
    for cache in _CACHES:
        cache.clear()
