"""Read each chunk once for all clients that wait for it, within a limit of memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Any

from virtualstack.storage import Bytes

type IsWanted = Callable[[], bool]
"""Return whether a client still waits; threads call it, too."""


class ClientGoneError(Exception):
    """The client has closed its connection."""


class UnwantedError(Exception):
    """A chunk was not read, as no client waited for it any more when a thread was free."""


def read_if_wanted(read: Callable[[], Bytes], is_wanted: IsWanted, /) -> Bytes:
    """Read in a thread, if a client still waits."""
    if not is_wanted():
        raise UnwantedError
    return read()


class QueueFullError(Exception):
    """Too many chunks are waiting to be read."""


class Memory:
    """Bytes that chunks may take together. Who needs more waits, in the order of asking.

    Parameters
    ----------
    limit
        Bytes. A chunk that is larger waits until no other is held, and counts as the whole limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, nbytes: int) -> int:
        """Wait until bytes are free, take them, and return how many were taken."""
        nbytes = min(nbytes, self.limit)
        if nbytes == 0:  # parts of a chunk that has taken its memory
            return 0
        if not self._waiting and self.used + nbytes <= self.limit:
            self.used += nbytes
            return nbytes
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(nbytes)
            else:
                with contextlib.suppress(ValueError):
                    self._waiting.remove((nbytes, turn))
                self._wake()
            raise
        return nbytes

    def take_now(self, nbytes: int) -> None:
        """Count bytes that are in memory already, even beyond the limit. The next request for memory waits."""
        self.used += nbytes

    def give(self, nbytes: int) -> None:
        """Return bytes, so that others can take them."""
        self.used -= nbytes
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self.limit:
            nbytes, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.used += nbytes
                turn.set_result(None)


@dataclass(slots=True, eq=False)
class Lease:
    """Bytes of a chunk, which count once: in the cache, or else in the memory until every client has released them."""

    data: Bytes
    nbytes: int
    memory: Memory
    n_users: int

    def release(self) -> None:
        """Record that a client has sent the bytes, or has gone."""
        self.n_users -= 1
        if self.n_users == 0:
            self.memory.give(self.nbytes)
            self.nbytes = 0


@dataclass(slots=True, eq=False)
class _Reading:
    """A chunk that is read, or waits to be read. Each client that waits for it has a function in `waiting`."""

    task: asyncio.Task[Lease] = field(init=False)
    waiting: list[IsWanted] = field(default_factory=list)

    def is_wanted(self) -> bool:
        """Return whether a client still waits."""
        return any(is_wanted() for is_wanted in tuple(self.waiting))


@dataclass(slots=True, eq=False)
class Reads:
    """The chunks that are being read, and a cache of those that were read last.

    Parameters
    ----------
    memory
        Limit of the bytes of chunks that are being read or sent.
    cache_bytes
        Limit of the cache in bytes.
    max_waiting
        Largest number of chunks that are read or wait to be read at a time.
    """

    memory: Memory
    cache_bytes: int
    max_waiting: int = 4096
    n_reads: int = 0
    n_hits: int = 0
    cached: int = 0
    _cache: OrderedDict[Hashable, Lease] = field(default_factory=OrderedDict)
    _readings: dict[Hashable, _Reading] = field(default_factory=dict)

    @property
    def max_kept_bytes(self) -> int:
        """Largest size of what is kept in the cache."""
        return self.cache_bytes // 2

    def find(self, key: Hashable, /) -> Lease | None:
        """Return the bytes of a chunk from the cache, or ``None``; the caller must release the lease."""
        lease = self._cache.get(key)
        if lease is not None:
            self._cache.move_to_end(key)
            self.n_hits += 1
            lease.n_users += 1
        return lease

    async def get(
        self,
        key: Hashable,
        read: Callable[[IsWanted], Awaitable[Bytes]],
        /,
        *,
        nbytes: int,
        timeout: float,
        keeps: bool = True,
        gone: Callable[[], Coroutine[Any, Any, None]] | None = None,
        is_wanted: IsWanted = lambda: True,
    ) -> Lease:
        """Return the bytes of a chunk; the caller must release the lease."""
        if (lease := self.find(key)) is not None:
            return lease
        end = asyncio.get_running_loop().time() + timeout
        leaving = None if gone is None else asyncio.create_task(gone())
        try:
            while True:
                try:
                    return await self._wait(self._join(key, read, nbytes, keeps), end, leaving, is_wanted)
                except UnwantedError:  # all others had gone before this client came
                    if not is_wanted():
                        raise
        finally:
            if leaving is not None:
                leaving.cancel()

    def _join(self, key: Hashable, read: Callable[[IsWanted], Awaitable[Bytes]], nbytes: int, keeps: bool) -> _Reading:
        """Return the reading of a chunk, and begin it if no other client has."""
        reading = self._readings.get(key)
        if reading is not None:
            self.n_hits += 1
            return reading
        if len(self._readings) >= self.max_waiting and nbytes:
            raise QueueFullError
        reading = self._readings[key] = _Reading()
        reading.task = asyncio.create_task(self._read(key, reading, read, nbytes, keeps))
        reading.task.add_done_callback(_take_note)
        return reading

    async def _wait(
        self, reading: _Reading, end: float, leaving: asyncio.Task[None] | None, is_wanted: IsWanted
    ) -> Lease:
        task, left = reading.task, end - asyncio.get_running_loop().time()
        reading.waiting.append(is_wanted)
        try:
            events = [task] if leaving is None else [task, leaving]
            await asyncio.wait(events, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGoneError if leaving is not None and leaving.done() else TimeoutError
            return task.result()
        except BaseException:
            if _is_good(task):
                task.result().release()
            else:
                reading.waiting.remove(is_wanted)
            raise

    async def _read(
        self,
        key: Hashable,
        reading: _Reading,
        read: Callable[[IsWanted], Awaitable[Bytes]],
        nbytes: int,
        keeps: bool,
    ) -> Lease:
        taken = 0
        try:
            taken = await self.memory.take(nbytes)
            data = await read(reading.is_wanted)
        except BaseException as error:
            self.memory.give(taken)
            self.n_reads += not isinstance(error, UnwantedError)
            raise
        finally:
            del self._readings[key]
        self.n_reads += 1
        n_waiting = len(reading.waiting)
        is_kept = keeps and len(data) <= self.max_kept_bytes and key not in self._cache
        # Decoding took more; what the cache or nobody has takes no more.
        left = 0 if is_kept or n_waiting == 0 else min(taken, len(data))
        lease = Lease(data, left, self.memory, n_waiting)
        if is_kept:
            self._keep(key, lease)
        self.memory.give(taken - left)
        return lease

    def _keep(self, key: Hashable, lease: Lease) -> None:
        self._cache[key] = lease
        self.cached += len(lease.data)
        while self.cached > self.cache_bytes:
            _, old = self._cache.popitem(last=False)
            self.cached -= len(old.data)
            if old.n_users:  # it is being sent
                old.nbytes = len(old.data)
                self.memory.take_now(old.nbytes)


def _is_good(task: asyncio.Task[Lease]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _take_note(task: asyncio.Task[Lease]) -> None:
    """Look at the error of a reading that no client waits for any more, or asyncio would report it as lost."""
    if not task.cancelled():
        task.exception()
