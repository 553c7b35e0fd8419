"""The protocol of a place to write to: whole objects under string keys."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from virtualstack.errors import StorageError

__all__ = ["Target", "check_key"]


@runtime_checkable
class Target(Protocol):
    """Objects of bytes under a root URL; keys are relative, ``/``-separated, without ``.`` and ``..``.

    Every write is atomic: a reader sees the whole object or the one before it.
    """

    @property
    def url(self) -> str:
        """Root URL, ending in ``/``."""

    def get(self, key: str, /) -> bytes:
        """Read a whole object; `SourceNotFoundError` where there is none."""

    def list(self, prefix: str = "", /) -> list[str]:
        """List the keys in the folder ``prefix`` and below it, sorted; empty where there are none."""

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
