"""Define a place to write to: whole objects under string keys, several at the same time."""

from __future__ import annotations

import contextlib
import posixpath
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, runtime_checkable
from weakref import WeakSet

from virtualstack.errors import Remedy, StorageError, WriterError
from virtualstack.location import Location, split_url
from virtualstack.system import Threads


class UnlistableError(StorageError):
    """The server cannot list its objects, as web servers cannot: it is not known which objects exist."""

    @classmethod
    def at(cls, url: str, /) -> UnlistableError:
        """Return the error for a URL."""
        return cls(
            f"'{url}': a web server cannot list its files reliably, so its content is not known. Give the URL "
            "of a file, or use an object store",
            url=url,
        )


@runtime_checkable
class Target(Protocol):
    """Objects of bytes under a root URL; keys are relative, ``/``-separated, without ``.`` and ``..``.

    Every write is atomic: a reader sees the whole new object or the object before it.
    """

    @property
    def url(self) -> str:
        """The root URL, ending in ``/``."""

    @property
    def is_listed(self) -> bool:
        """True if the keys can be listed. False for web servers, which cannot list their files."""

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole object; `SourceNotFoundError` if it does not exist."""

    def list(self, prefix: str = "", /) -> list[str]:
        """List the keys in the folder ``prefix`` and below it, sorted; empty if there are none."""

    def first(self, prefix: str = "", /) -> str | None:
        """Return the first key that `list` would return, or ``None`` if there are none.

        On S3, Google and Azure this takes one request, however many keys exist. On a local disk it lists one folder.
        Other targets list all keys.
        """

    def entries(self, prefix: str = "", /) -> Sequence[tuple[str, bool]]:
        """List the names in the folder ``prefix``, each with whether it is a folder; no other folder is listed."""

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List the same objects as `list`, in any order, with size, etag and modification time of each."""

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Write an object and replace an existing one."""

    def check_put(self, key: str, /) -> None:
        """Raise the error of `put` as far as it is known without writing; nothing is written."""

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Write an object unless the key exists; of several writers exactly one gets ``True``."""

    def delete(self, key: str, /) -> None:
        """Delete an object; nothing happens if it does not exist."""


class PlainTarget:
    """Base of targets whose keys are parts of their URLs."""

    __slots__ = ()
    url: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/") + "/")

    @property
    def is_listed(self) -> bool:
        """True if the keys can be listed. False for web servers, which cannot list their files."""
        return True

    def check_put(self, key: str, /) -> None:
        """Raise an error if the key is not a plain relative path."""
        self._url(key)

    def _url(self, key: str) -> str:
        return self.url + check_key(key, url=self.url)


def check_key(key: str, /, *, url: str) -> str:
    """Return the key if it is a plain relative path; raise `StorageError` if it is not."""
    if any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
        raise StorageError(
            f"'{key}' is not a key under '{url}'", Remedy("use one such as 'a/b', without '..' or empty parts"), url=url
        )
    return key


def check_most(size: int, /, most: int | None, *, url: str) -> None:
    """Raise `StorageError` if an object is larger than allowed."""
    if most is not None and size > most:
        raise StorageError(
            f"'{url}' has {size} bytes, but should have at most {most}. It is damaged or malicious: restore it, or "
            "do not use it",
            url=url,
        )


_NOT_IMPLEMENTED = 501  # status of HTTP; the module http costs time in the first open of a process
_CHECKED: WeakSet[object] = WeakSet()
"""Servers that refuse to replace an object if the request says so."""


def check_conditions(target: Target, key: str, /, *, server: object, create: Callable[[str, bytes], bool]) -> None:
    """Check that a server refuses a write whose condition is that the key is absent; once in each process.

    Some servers that speak S3 ignore the condition: then each of two writers would be told that its object was written.
    Others refuse every write that has one.
    """
    if server in _CHECKED:
        return
    folder = posixpath.dirname(posixpath.dirname(key))
    probe = posixpath.join(folder, "conditions" if folder else f".virtualstack-{uuid.uuid4().hex}")
    does = "ignores"
    try:
        is_replaced = create(probe, b"1") and create(probe, b"1")
    except StorageError as error:
        if error.status != _NOT_IMPLEMENTED:
            raise
        is_replaced, does = True, "does not know"
    if not folder:  # beside files of a user nothing stays; in a store the next process finds it
        with contextlib.suppress(StorageError):  # a writer need not be allowed to delete
            target.delete(probe)
    if is_replaced:
        root = split_url(target.url)[0]
        option = f'storage={{"{root}": {{"conditional_put": "disabled"}}}}'
        raise WriterError(
            f"'{target.url}': the server {does} conditions such as 'If-None-Match: *', so that one writer can replace "
            "what another one has committed. Use a server with conditional writes"
            + (f", or give {option} if there is never a second writer" if root.startswith("s3") else ""),
            feature="conditional writes",
        )
    _CHECKED.add(server)


_MAX_PUTS = 8


class Puts:
    """A context that writes a few objects at a time to a target and ends when all are written."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pool = Threads(_MAX_PUTS, thread_name_prefix="virtualstack-puts")
        self._waiting: deque[Future[None]] = deque()

    def put(self, key: str, data: bytes, /) -> None:
        """Start to write an object; if many are pending, wait for the oldest, and raise its error if it failed."""
        if len(self._waiting) >= _MAX_PUTS:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._target.put, key, data))

    def close(self) -> None:
        """Wait until all objects are written."""
        try:
            while self._waiting:
                self._waiting.popleft().result()
        finally:
            self._pool.shutdown(cancel_futures=True)
