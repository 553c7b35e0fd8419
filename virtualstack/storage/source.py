"""Define readable bytes at a URL, the checks of all implementations, and digests of local files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import SourceChangedError, StorageError
from virtualstack.location import Location, local_path
from virtualstack.warning import warn

__all__ = [
    "ByteRange",
    "Bytes",
    "DirectSource",
    "DirectoryError",
    "Source",
    "SourceChangedWarning",
    "WatchfulSource",
    "check_lengths",
    "check_ranges",
    "check_version",
    "read_digest",
    "warn_of_change",
]

_BLOCK_BYTES = 1 << 12
"""Bytes that are read at the beginning, in the middle and at the end of a file."""

_MAX_KEPT_DIGESTS = 1 << 18


def read_digest(found: Location, /) -> str:
    """Return the digest of a local file: 128 bits of the SHA-256 of its beginning, its middle and its end.

    It is computed once in a process for each version of a file.

    Parameters
    ----------
    found
        Location of the file, with its current size and modification time.

    Raises
    ------
    StorageError
        The file cannot be read.
    """
    return _digest(found.url, found.size or 0, found.last_modified)


@lru_cache(maxsize=_MAX_KEPT_DIGESTS)
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


type Bytes = bytes | memoryview
"""Type of the bytes of a range; a memoryview may be a part of a larger answer."""

type ByteRange = tuple[int, int]
"""Offset and length in bytes."""

_MAX_INT64 = np.iinfo(np.int64).max


class DirectoryError(StorageError):
    """The URL is a directory, but a file is needed."""

    @classmethod
    def at(cls, url: str, /) -> DirectoryError:
        """Return the error for a URL."""
        return cls(f"'{url}' is a directory, not a file: give the URL of one file", url=url)


class SourceChangedWarning(UserWarning):
    """A source is not the version that was indexed, but is read anyway because of ``stale="warn"``."""


@runtime_checkable
class Source(Protocol):
    """Readable bytes at a location: immutable, picklable, usable from many threads at once."""

    @property
    def location(self) -> Location:
        """The absolute URL, with size, etag and modification time as the server stated them."""

    @property
    def size(self) -> int:
        """The size of the whole source in bytes."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``, or raise `StorageError`."""

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges, concurrently if that is faster.

        Parameters
        ----------
        ranges
            Pairs of offset and length in bytes (or an array of shape ``(n, 2)``), in any order; they may overlap.

        Returns
        -------
        list of bytes-like
            Bytes of the ranges in the order of ``ranges``, each of exactly the requested length.

        Raises
        ------
        StorageError
            A range reaches past the end of the source, or the bytes could not be read.
        """


@runtime_checkable
class DirectSource(Source, Protocol):
    """A source without latency, from which threads read directly into their own memory."""

    def read_into(self, offset: int, target: memoryview, /) -> None:
        """Fill all of ``target`` with the bytes from ``offset`` on, or raise `StorageError`."""


@runtime_checkable
class WatchfulSource(Source, Protocol):
    """A source that notices with every read if the file or object has changed since the source was opened.

    A read then raises `SourceChangedError`. So the source may be kept open and used for a long time. Other sources
    check the version only when they are opened.
    """

    @property
    def is_watchful(self) -> bool:
        """True if each answer is compared with the size and etag that the source was opened with, if they are known."""


def check_ranges(ranges: Sequence[ByteRange] | NDArray[np.int64], /, *, url: str, size: int) -> NDArray[np.int64]:
    """Return the ranges as an array of shape ``(n, 2)``: offset and length in bytes, all within the source.

    Raises
    ------
    StorageError
        A range is negative or reaches past ``size`` bytes.
    """
    try:
        table = np.asarray(ranges, dtype=np.int64).reshape(-1, 2)
    except OverflowError:
        offset, length = next(
            (o, n) for o, n in ranges if not -_MAX_INT64 <= o <= _MAX_INT64 or not -_MAX_INT64 <= n <= _MAX_INT64
        )
        raise _past_end(int(offset), int(length), url=url, size=size) from None
    offsets, lengths = table[:, 0], table[:, 1]
    bad = (offsets < 0) | (lengths < 0) | (lengths > size) | (offsets > size - lengths)
    if bad.any():
        offset, length = table[int(bad.argmax())].tolist()
        raise _past_end(offset, length, url=url, size=size)
    return table


def _past_end(offset: int, length: int, *, url: str, size: int) -> StorageError:
    return StorageError(
        f"'{url}' has {size} bytes, but {length} bytes from offset {offset} were requested: the source is "
        "shorter than the manifest says, or the manifest is damaged. Scan the source again, or restore the "
        "one that was indexed",
        url=url,
    )


def check_lengths(lengths: Sequence[int], got: Sequence[Bytes], /, *, url: str) -> None:
    """Raise `StorageError` if an answer does not have exactly the requested length in bytes."""
    for length, data in zip(lengths, got, strict=True):
        if len(data) != length:
            raise StorageError(
                f"'{url}': {length} bytes were requested, but {len(data)} arrived. The source shrank after it "
                "was opened, or the server sends answers of another length: open it again, or download it "
                "first",
                url=url,
                is_short=True,
            )


def check_version(expected: Location | None, found: Location, /) -> None:
    """Raise `SourceChangedError` if size or etag are known on both sides and differ.

    For local files, which have no etag, the modification time is compared too: a file that was written again may have
    the same size. Any source has changed if it was modified after `Location.unmodified_since`. If the time in the
    `Location.fingerprint` of a local file differs, the digest of the file is read and compared, once in a process.

    Raises
    ------
    StorageError
        A file cannot be read for its digest.
    """
    if expected is None or expected == found:
        return
    versions: list[tuple[str, float | str | None, float | str | None]]
    versions = [("size", expected.size, found.size), ("etag", expected.etag, found.etag)]
    if found.url.startswith("file://") and expected.url == found.url:
        versions[1] = "etag", expected.etag, found.etag or "none, as local files have no etags"
        versions.append(("time of modification", expected.last_modified, found.last_modified))
    for word, recorded, now in versions:
        if recorded is not None and now is not None and _plain(recorded) != _plain(now):
            raise SourceChangedError(
                f"'{found.url}' changed after it was indexed: its {word} was {recorded!r} and is {now!r}. "
                "Scan it again, or restore the version that was indexed",
                url=found.url,
            )
    _check_fingerprint(expected, found)
    latest, modified = expected.unmodified_since, found.last_modified
    if latest is not None and modified is not None and modified > latest:
        raise SourceChangedError(
            f"'{found.url}' changed after it was indexed: it was not to be modified after {_moment(latest)}, "
            f"and was modified at {_moment(modified)}. Scan it again, or restore the version that was indexed",
            url=found.url,
        )


def _check_fingerprint(expected: Location, found: Location) -> None:
    known = expected.fingerprint
    if known is None or known.last_modified == found.last_modified or not found.url.startswith("file://"):
        return
    if (digest := read_digest(found)) != known.digest:
        raise SourceChangedError(
            f"'{found.url}' changed after it was indexed: the digest of its beginning, middle and end was "
            f"'{known.digest}' and is '{digest}'. Scan it again, or restore the version that was indexed",
            url=found.url,
        )


def warn_of_change(expected: Location, found: Location, /) -> None:
    """Warn if `check_version` would raise `SourceChangedError`."""
    try:
        check_version(expected, found)
    except SourceChangedError as error:
        warn(f"read as it is now, by stale='warn': {error}", SourceChangedWarning)


def _moment(seconds: float) -> str:
    return np.datetime64(round(seconds * 1000), "ms").item().isoformat(timespec="milliseconds") + "Z"


def _plain(tag: float | str) -> float | str:
    # Quotes and the weak mark depend on the client: obstore keeps them, s3fs and caches do not always.
    return tag.removeprefix("W/").strip('"') if isinstance(tag, str) else tag
