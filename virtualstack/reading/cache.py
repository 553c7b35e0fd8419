"""A cache of decoded chunks, bounded in bytes, that makes each of them once however many ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future

__all__ = ["ByteCache"]


class ByteCache:
    """Bytes by key; the least recently used are dropped first.

    Parameters
    ----------
    limit
        Bytes to keep. What is larger by itself is handed on and not kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._making: dict[Hashable, Future[bytes]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], bytes], /) -> bytes:
        """Give what is kept, or make it; who asks meanwhile waits for the same answer or error."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            waiting = self._making.get(key)
            if waiting is None:
                answer = self._making[key] = Future[bytes]()
        if waiting is not None:
            return waiting.result()
        try:
            data = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            answer.set_exception(error)
            raise
        self._keep(key, data)
        answer.set_result(data)
        return data

    def _keep(self, key: Hashable, data: bytes) -> None:
        with self._lock:
            del self._making[key]
            if len(data) > self._limit:
                return
            self._kept[key] = data
            self._size += len(data)
            while self._size > self._limit:
                self._size -= len(self._kept.popitem(last=False)[1])
