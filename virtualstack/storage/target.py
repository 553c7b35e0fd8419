"""The protocol of a place to write to: whole objects under string keys, several side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, runtime_checkable

from virtualstack.errors import StorageError
from virtualstack.location import Location

__all__ = ["Puts", "Target", "UnlistableError", "check_key", "check_most"]


class UnlistableError(StorageError):
    """A server has no list of what is there, as web servers do not: nothing is known of it."""

    @classmethod
    def at(cls, url: str, /) -> UnlistableError:
        """Give the error for a URL."""
        return cls(
            f"'{url}': a web server has no list of its files that could be trusted, so that what there is cannot be "
            "known. Give the URL of a file, or use an object store",
            url=url,
        )


@runtime_checkable
class Target(Protocol):
    """Objects of bytes under a root URL; keys are relative, ``/``-separated, without ``.`` and ``..``.

    Every write is atomic: a reader sees the whole object or the one before it.
    """

    @property
    def url(self) -> str:
        """Root URL, ending in ``/``."""

    @property
    def is_listed(self) -> bool:
        """Whether it may have a list of its keys: web servers have none."""

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole object; `SourceNotFoundError` where there is none.

        Parameters
        ----------
        most
            Bytes that it may have: of a larger one no memory is taken, and it is a `StorageError`.
        """

    def list(self, prefix: str = "", /) -> list[str]:
        """List the keys in the folder ``prefix`` and below it, sorted; empty where there are none."""

    def first(self, prefix: str = "", /) -> str | None:
        """Give the first key that `list` would give, or ``None`` where there are none.

        On S3, Google and Azure it takes one request, however many keys there are, and on a local disk one look at the
        folder. Others list all.

        Raises
        ------
        UnlistableError
            It is a web server.
        """

    def folders(self, prefix: str = "", /) -> Sequence[str]:
        """List the names of the folders in the folder ``prefix``, sorted; empty where there are none.

        Raises
        ------
        UnlistableError
            It is a web server.
        """

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List what `list` lists, in any order, with size, etag and time of each object.

        Raises
        ------
        UnlistableError
            It is a web server.
        """

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Write an object, replacing the one that is there."""

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Write an object only where there is none; of several writers exactly one gets ``True``."""

    def delete(self, key: str, /) -> None:
        """Delete an object; nothing happens where there is none."""


def check_key(key: str, /, *, url: str) -> str:
    """Give the key back where it is a plain relative path; raise `StorageError` where it is not."""
    if any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
        raise StorageError(f"'{key}' is not a key under '{url}': use 'a/b', without '..' or empty parts", url=url)
    return key


def check_most(size: int, /, most: int | None, *, url: str) -> None:
    """Raise `StorageError` where an object has more bytes than it may."""
    if most is not None and size > most:
        raise StorageError(
            f"'{url}' has {size} bytes, and should have {most} at most: it is damaged or a trap", url=url
        )


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
