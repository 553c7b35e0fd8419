"""Define readable bytes at a URL, and the checks of all implementations."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Remedy, SourceChangedError, StorageError
from virtualstack.location import Location, MemberChecksums, split_url
from virtualstack.sizes import human_bytes
from virtualstack.storage.digests import read_digest
from virtualstack.warning import warn

type Bytes = bytes | memoryview
"""Type of the bytes of a range; a memoryview may be a part of a larger answer."""

type ByteRange = tuple[int, int]
"""Part of a source: the offset of its first byte, and its length in bytes; ``(0, 4)`` is the first four bytes.

You need it if you write a source of your own, whose ``read_ranges`` gets a sequence of them: see `Source`."""

_N_ASKED = 20  # of two replicas that answer at random, both are met but for one case in a million
_REPLICAS: set[str] = set()  # hosts whose servers have different etags for one version
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
        """Read many ranges, concurrently if that is faster."""


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
    """Return the ranges as an array of shape ``(n, 2)``: offset and length in bytes, all within the source."""
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
        f"'{url}' has {size} bytes, but {length} bytes from offset {offset} were requested. The source is "
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
                "it was opened, or its server sends wrong lengths",
                Remedy("open it again, or download it first"),
                url=url,
                is_short=True,
            )


def check_version(
    expected: Location | None, found: Location, /, read: Callable[[int, int], bytes] | None = None
) -> None:
    """Raise `SourceChangedError` if a source is not the version that was indexed.

    Size and etag are compared if they are known on both sides, and the etag only if neither is weak. Without an etag to
    compare, as for local files, the digest of the file decides if the modification time differs; it is read once in a
    process. Without a digest, such as in Icechunk, another or a later time of a local file is a change.
    """
    if expected is None or expected == found:
        return
    if change := _change(expected, found, read):
        again = [Remedy("scan it again (in a vstack: 'virtualstack refresh')")]
        if expected.unmodified_since is not None and expected.fingerprint is None:  # of a reference in Icechunk
            again = [
                Remedy("only its time is known: keep it with 'cp -p' or 'rsync -a'"),
                Remedy("write the references again"),
            ]
        raise SourceChangedError(
            f"'{found.url}' changed after it was indexed: {change}",
            *again,
            Remedy("read it as it is with", stale="warn"),
            url=found.url,
        )


def _change(expected: Location, found: Location, read: Callable[[int, int], bytes] | None) -> str | None:
    """Return in words what a version has instead of what was indexed."""
    if None not in (expected.size, found.size) and expected.size != found.size:
        return _instead(human_bytes, lambda x: f"{x:,} bytes", found.size, expected.size)
    is_local = found.url.startswith("file://")
    if is_local and expected.url == found.url and expected.etag and not found.etag:
        return f"it has no ETag, as a local file, instead of {expected.etag}"
    if etags_differ(expected.etag, found.etag):
        return "its ETag is {} instead of {}".format(*(str(x).strip('"') for x in (found.etag, expected.etag)))
    known, now = expected.fingerprint, found.last_modified
    was = expected.last_modified if known is None else known.last_modified
    latest = expected.unmodified_since
    is_late = latest is not None and now is not None and now > latest
    is_told = is_strong(expected.etag) and is_strong(found.etag)
    can_read = is_local or (read is not None and not is_told)
    if can_read and known is not None and known.digest and (was != now or is_late):
        if read_digest(found, known.ranges, None if is_local else read) == known.digest:
            return None
        return f"other content, {_times(now, was)}"
    if is_late:
        return _times(now, latest)
    if is_local and expected.url == found.url and None not in (was, now) and was != now:
        return _times(now, was)
    return None


def etags_differ(old: str | None, new: str | None, /) -> bool:
    """Return whether two etags are of different versions; a weak or unknown one is not compared (RFC 9110 8.8.1)."""
    if not old or not new or not is_strong(old) or not is_strong(new):
        return False
    return old.strip('"') != new.strip('"')  # obstore keeps the quotes, s3fs and caches do not always


def is_strong(etag: str | None, /) -> bool:
    """Return whether an etag is known and tells versions apart."""
    return bool(etag) and not str(etag).startswith("W/")


def are_replicas(expected: Location, found: Location, ask: Callable[[], Location], /) -> bool:
    """Return whether servers behind one name have different etags for one version, which then tell no versions apart.

    They say the same time of modification, and asking again gives another etag. If one host was found to be such a
    name, its servers are not asked again. Versions with different times are those of a cache that is not up to date.
    """
    host = split_url(found.url)[0]
    if None not in (expected.last_modified, found.last_modified) and expected.last_modified != found.last_modified:
        return False
    if host not in _REPLICAS and any(etags_differ(found.etag, ask().etag) for _ in range(_N_ASKED)):
        _REPLICAS.add(host)
    return host in _REPLICAS


def _times(now: float | None, was: float | None) -> str:
    return f"modified {_instead(lambda x: _moment(x)[:10], _moment, now, was)}"


def _instead[T](short: Callable[[T], str], exact: Callable[[T], str], now: T | None, was: T | None) -> str:
    """Return two values in words, and exactly if the short words are the same."""
    for words in (short, exact):
        told = ["at an unknown time" if x is None else words(x) for x in (now, was)]
        if told[0] != told[1]:
            break
    return " instead of ".join(told)


def warn_of_change(expected: Location, source: Source, /) -> None:
    """Warn if `check_version` would raise `SourceChangedError`."""
    try:
        check_version(expected, source.location, source.read)
    except SourceChangedError as error:
        warn(f"read as it is now, by stale='warn': {error}", SourceChangedWarning)


def _moment(seconds: float) -> str:
    return np.datetime64(round(seconds * 1000), "ms").item().isoformat(timespec="milliseconds") + "Z"


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

    def _filled(
        self, ranges: Sequence[ByteRange] | NDArray[np.int64], fetch: Callable[[list[int], list[int]], Sequence[Bytes]]
    ) -> list[Bytes]:
        """Return ranges of which those with bytes come from a function of their offsets and lengths."""
        table = check_ranges(ranges, url=self.location.url, size=self.size)
        filled = np.flatnonzero(table[:, 1])
        got: list[Bytes] = [b""] * len(table)
        if filled.size:
            for n, answer in zip(filled.tolist(), fetch(*table[filled].T.tolist()), strict=True):
                got[n] = answer
        check_lengths(table[:, 1].tolist(), got, url=self.location.url)
        return got


@dataclass(frozen=True, slots=True)
class CheckedSource(ManyRangesSource):
    """An archive in which each range that is a whole member is checked against its checksum.

    It is not a `DirectSource`: bytes are checked before they are decoded.
    """

    source: Source
    checksums: MemberChecksums

    @property
    def location(self) -> Location:  # type: ignore[override]
        """The location of the archive."""
        return self.source.location

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges; `StorageError` is raised if it fails or if a range is a damaged member."""
        parts = self.source.read_ranges(ranges)
        members = self.checksums.members(*np.asarray(ranges, np.int64).reshape(-1, 2).T)
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
        return parts

    def _name(self, member: int) -> str:
        """Return the name of a member from its local header, for a message."""
        start = self.checksums.starts.item(member)
        header = self.source.read(start, _NAME_AT)
        length = int.from_bytes(header[_NAME_LENGTH_AT : _NAME_LENGTH_AT + 2], "little")
        length = min(length, self.size - start - _NAME_AT)
        return f"member {self.source.read(start + _NAME_AT, length).decode('utf-8', 'replace')!r}"
