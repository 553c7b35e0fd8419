"""A cache of what is costly to make, bounded in bytes, that makes each of it once however many ask."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future
from typing import Any
from weakref import WeakSet

from virtualstack.forks import in_forked_children

__all__ = ["ByteCache", "each"]

_CACHES: WeakSet[ByteCache[Any]] = WeakSet()


def each(_value: object, /) -> int:
    """Count a value as one, whatever its bytes: the limit of a cache is then a number of values."""
    return 1


class ByteCache[T]:
    """Values by key; the least recently used are dropped first.

    Parameters
    ----------
    limit
        Bytes to keep. What is larger by itself is handed on and not kept.
    measure
        Gives the bytes of a value.
    """

    def __init__(self, limit: int, measure: Callable[[Any], int] = len) -> None:
        self._limit = limit
        self._measure = measure
        self.clear()
        _CACHES.add(self)

    def clear(self) -> None:
        """Forget everything, also who is making what: a forked process, in which nobody is, does so on its own."""
        self._size = 0
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._making: dict[Hashable, Future[T]] = {}
        self._lock = threading.Lock()

    def __contains__(self, key: Hashable) -> bool:
        """Tell whether a value is kept just now."""
        return key in self._kept

    def get(self, key: Hashable, make: Callable[[], T], /) -> T:
        """Give what is kept, or make it; who asks meanwhile waits for the same answer or error.

        Where Ctrl-C ended the making of it, one of those who wait makes it.
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
            else:  # an interrupt of this thread is none of the others
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
