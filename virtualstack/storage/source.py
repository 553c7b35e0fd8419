"""Define readable bytes at a URL, the checks of all implementations, and digests of local files."""

from __future__ import annotations

import hashlib
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import SourceChangedError, StorageError
from virtualstack.location import Location, MemberChecksums, local_path
from virtualstack.system import READ_FLAGS, pread
from virtualstack.warning import warn

__all__ = [
    "ByteRange",
    "Bytes",
    "CheckedSource",
    "DirectSource",
    "DirectoryError",
    "ManyRangesSource",
    "RequestRefusedError",
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
        number = os.open(path, READ_FLAGS)
        try:
            for begin, length in ranges:
                digest.update(pread(number, length, begin))
        finally:
            os.close(number)
    except OSError as error:
        raise StorageError(f"'{url}' cannot be read: {error.strerror}", url=url) from error
    return digest.hexdigest()[:32]


type Bytes = bytes | memoryview
"""Type of the bytes of a range; a memoryview may be a part of a larger answer."""

type ByteRange = tuple[int, int]
"""Part of a source: the offset of its first byte, and its length in bytes; ``(0, 4)`` is the first four bytes.

You need it if you write a source of your own, whose ``read_ranges`` gets a sequence of them: see `Source`."""

_MAX_INT64 = np.iinfo(np.int64).max


class RequestRefusedError(StorageError):
    """Status 401 or 403: another identity may be accepted."""

    is_expired = False
    """If true, the server said that the credentials were valid earlier."""


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
                f"'{url}': {length} bytes were requested, but {len(data)} arrived. The source became shorter after "
                "it was opened, or its server sends wrong lengths. Open it again, or download it first",
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
            f"'{found.url}' changed after it was indexed: its references are valid up to {_moment(latest)}, but it "
            f"was modified at {_moment(modified)}. Scan it again, or restore the version that was indexed",
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


_NAME_LENGTH_AT, _NAME_AT = 26, 30  # offsets in bytes within a local header of a zip archive


class ManyRangesSource(ABC):
    """Base of sources that read through a client of many ranges; their size is in their location."""

    __slots__ = ()
    location: Location

    @property
    def size(self) -> int:
        """The size of the whole source in bytes."""
        return self.location.size or 0

    def read(self, offset: int, length: int, /) -> bytes:
        """Read exactly ``length`` bytes from ``offset``."""
        return bytes(self.read_ranges([(offset, length)])[0])

    @abstractmethod
    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges in the order given."""


@dataclass(frozen=True, slots=True)
class CheckedSource:
    """An archive in which each range that is a whole member is checked against its checksum.

    It is not a `DirectSource`: bytes are checked before they are decoded.
    """

    source: Source
    checksums: MemberChecksums

    @property
    def location(self) -> Location:
        """The location of the archive."""
        return self.source.location

    @property
    def size(self) -> int:
        """The size of the archive in bytes."""
        return self.source.size

    def read(self, offset: int, length: int, /) -> bytes:
        """Read one range; `StorageError` is raised if it fails or if the range is a damaged member."""
        data = self.source.read(offset, length)
        self._check(np.array([(offset, length)]), [data])
        return data

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges; `StorageError` is raised if it fails or if a range is a damaged member."""
        parts = self.source.read_ranges(ranges)
        self._check(np.asarray(ranges, np.int64).reshape(-1, 2), parts)
        return parts

    def _check(self, ranges: NDArray[np.int64], parts: Sequence[Bytes]) -> None:
        members = self.checksums.members(ranges[:, 0], ranges[:, 1])
        for member, data in zip(members.tolist(), parts, strict=True):
            if member < 0:
                continue
            recorded, found = self.checksums.crcs.item(member), zlib.crc32(data)
            if recorded != found:
                url = self.location.url
                raise StorageError(
                    f"the bytes of {self._name(member)} in the archive '{url}' are damaged: their CRC-32 is "
                    f"{found:08x}, and the index of the archive has {recorded:08x}. Fetch the archive again, "
                    "or pack the store again",
                    url=url,
                )

    def _name(self, member: int) -> str:
        """Return the name of a member from its local header, for a message."""
        start = self.checksums.starts.item(member)
        header = self.source.read(start, _NAME_AT)
        length = int.from_bytes(header[_NAME_LENGTH_AT : _NAME_LENGTH_AT + 2], "little")
        length = min(length, self.size - start - _NAME_AT)
        return f"member {self.source.read(start + _NAME_AT, length).decode('utf-8', 'replace')!r}"
