"""Digests of local files, which tell copies of a file from a file that was written again."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache

from virtualstack.errors import StorageError
from virtualstack.location import Location, local_path

__all__ = ["read_digest"]

_BLOCK_BYTES = 1 << 12
"""Bytes that are read at the beginning, in the middle and at the end of a file."""

_MAX_KEPT = 1 << 18


def read_digest(found: Location, /) -> str:
    """Return the digest of a local file: 128 bits of the SHA-256 of its beginning, its middle and its end.

    It is computed once in a process for each version of a file.

    Parameters
    ----------
    found
        The file, with the size and the time of modification that it has now.

    Raises
    ------
    StorageError
        It cannot be read.
    """
    return _digest(found.url, found.size or 0, found.last_modified)


@lru_cache(maxsize=_MAX_KEPT)
def _digest(url: str, size: int, last_modified: float | None) -> str:
    digest = hashlib.sha256(usedforsecurity=False)
    path = local_path(url)
    if path is None:
        raise StorageError(f"'{url}' is not the URL of a local file ('file:///...')", url=url)
    middle, end = (size - _BLOCK_BYTES) // 2, size - _BLOCK_BYTES
    ranges = [(0, size)] if size <= 3 * _BLOCK_BYTES else [(x, _BLOCK_BYTES) for x in (0, middle, end)]
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for begin, length in ranges:
                digest.update(os.pread(number, length, begin))
        finally:
            os.close(number)
    except OSError as error:
        raise StorageError(f"'{url}' cannot be read: {error.strerror}", url=url) from error
    return digest.hexdigest()[:32]
