"""Describe where bytes are: absolute URLs, flaws of their syntax, and the version of a source."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Remedy, StorageError
from virtualstack.system import path_in_url, url_path

BYTES = "bytes://"
"""Beginning of the URLs of bytes that only this process has, such as those of a BytesIO. No references name them."""

ARCHIVES = "zip://", "tar://"
"""Beginnings of chained URLs of members of archives, such as ``zip://a.nc::s3://bucket/x.zip``."""

type Stale = Literal["error", "warn", "ignore"]
"""Reaction if a source is not the version that was indexed: see `Storage.with_stale`."""

_WITHOUT_SERVER = "file://", "memory://", BYTES
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.\-]*)://")


@dataclass(frozen=True, slots=True, eq=False)
class MemberChecksums:
    """The CRC-32 of the stored members of a zip archive; columns of equal length.

    Parameters
    ----------
    starts
        Offset of the header of each member, in ascending order.
    lengths
        Bytes of each member, which follow its header.
    crcs
        CRC-32 of these bytes, from the index of the archive.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    crcs: NDArray[np.uint32]

    def members(self, offsets: NDArray[np.int64], lengths: NDArray[np.int64], /) -> NDArray[np.intp]:
        """Return the row of the member that each range covers exactly, or -1 if it is not a whole member.

        A range begins after the header of its member. So a range as long as the member is the member.
        """
        rows = np.searchsorted(self.starts, offsets, "right") - 1
        is_whole = (rows >= 0) & (self.lengths[rows] == lengths) if self.starts.size else np.zeros(rows.shape, np.bool_)
        return np.where(is_whole, rows, -1)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Data that distinguish a source that was written again from one that was copied, moved or only touched.

    Parameters
    ----------
    last_modified
        Seconds since 1970-01-01 (UTC), or ``None`` if unknown: a local file with this time is the same.
    digest
        Digest of parts of the bytes: a file with another time is the same if it has this digest.
    ranges
        The parts, in ascending order, as text such as ``"0+8192,40000+64"``: for each, the number of bytes since the
        last one, and its length. ``"all"``: all bytes. Empty: the beginning, the middle and the end.
    """

    last_modified: float | None
    digest: str
    ranges: str = ""


class Reads:
    """Byte ranges that were read to describe a source; they are noted until its scan ends.

    >>> reads = Reads()
    >>> reads.note((8, 4))
    >>> reads.note(np.array([[0, 8], [100, 4]]))
    >>> reads.edges().tolist()
    [[0, 12], [100, 104]]
    """

    __slots__ = "_edges", "_noted"

    def __init__(self, edges: NDArray[np.int64] | None = None) -> None:
        self._edges = np.empty((0, 2), np.int64) if edges is None else edges
        self._noted: list[tuple[int, int] | NDArray[np.int64]] = []

    def note(self, ranges: tuple[int, int] | NDArray[np.int64], /) -> None:
        """Add a range, or several in an array: offsets and lengths."""
        self._noted.append(ranges)

    def edges(self) -> NDArray[np.int64]:
        """Return the first byte, and the byte after the last, of each range in ascending order: shape ``(n, 2)``.

        Only these are kept, which take less memory.
        """
        if self._noted:
            parts = [np.asarray(x, np.int64).reshape(-1, 2).cumsum(1) for x in self._noted]
            self._edges, self._noted = merge_edges(np.concatenate([self._edges, *parts])), []
        return self._edges


def merge_edges(edges: NDArray[np.int64], /) -> NDArray[np.int64]:
    """Return ranges in ascending order, as one where they overlap or touch.

    >>> merge_edges(np.array([[9, 12], [0, 3], [2, 9], [20, 21]])).tolist()
    [[0, 12], [20, 21]]
    """
    edges = edges[np.argsort(edges[:, 0], kind="stable")]
    ends = np.maximum.accumulate(edges[:, 1])
    cuts = np.flatnonzero(edges[1:, 0] > ends[:-1])
    return np.stack([edges[np.append(0, cuts + 1), 0], ends[np.append(cuts, -1)]], 1) if len(edges) else edges


@dataclass(frozen=True, slots=True)
class Location:
    """A source of bytes, with the properties that distinguish one version from another.

    Parameters
    ----------
    url
        Absolute URL. A local file is ``file://`` and its absolute path, *not* percent-encoded, as fsspec and
        kerchunk write it; object-store keys are not percent-encoded either; http(s) URLs are kept as given.
    size
        Bytes of the whole source when it was indexed, or ``None`` if unknown.
    etag
        The server's version tag when it was indexed, or ``None``.
    last_modified
        Seconds since 1970-01-01 (UTC) when it was indexed, or ``None``.
    unmodified_since
        Seconds since 1970-01-01 (UTC) after which it must not have been modified, or ``None``. Icechunk records such a
        time, in whole seconds, instead of the time of the modification itself.
    relative_to
        URL of the vstack that names the source relative to itself and must continue to do so, or ``None``. It is not a
        property of the source, and is not compared.
    fingerprint
        Fingerprint of a local file that a vstack knows, or ``None``. It is checked when the file is read, and not
        compared between locations.
    checksums
        Checksums of the members, if the source is a zip archive that was just read; else ``None``. They are not
        compared, and no format of references stores them.
    reads
        Ranges that were read to describe a local file, or ``None``. Its fingerprint will cover them.
    """

    url: str
    size: int | None = None
    etag: str | None = None
    last_modified: float | None = None
    unmodified_since: float | None = None
    relative_to: str | None = field(default=None, compare=False, repr=False)
    fingerprint: Fingerprint | None = field(default=None, compare=False, repr=False)
    checksums: MemberChecksums | None = field(default=None, compare=False, repr=False)
    reads: Reads | None = field(default=None, compare=False, repr=False)


class Access(Protocol):
    """How sources are reached: options, obstore stores or fsspec filesystems by URL prefix.

    It is made of ``storage=`` and is a :class:`~virtualstack.storage.Storage`. It is not a permission (``allow=``).
    """

    @property
    def given(self) -> tuple[tuple[str, object], ...]:
        """Pairs of URL prefix and its options or store, longest prefix first."""

    @property
    def named(self) -> tuple[str, ...] | None:
        """Prefixes of the places to which credentials are sent; ``""`` and ``None``: all."""

    @property
    def stale(self) -> Stale:
        """Reaction to sources that changed after they were indexed."""

    def given_for(self, url: str, /) -> object | None:
        """Return the options or store that the user gave for an absolute URL, or ``None``."""

    def find(self, url: str, /) -> tuple[str, object | None]:
        """Return the prefix that serves an absolute URL, and its options or store; ``None`` means the defaults."""

    def is_named(self, url: str, /) -> bool:
        """Return whether the user named the place of a URL."""

    def with_named(self, urls: Iterable[str], /) -> Access:
        """Return the same access, for which the user named the places of URLs too."""

    def joined(self, others: Iterable[Access], /) -> Access:
        """Return the entries of this and other accesses as one; for equal prefixes, those of the first are kept."""


def split_url(url: str, /) -> tuple[str, str]:
    """Split an absolute URL into its root and the key under it.

    >>> split_url("s3://bucket/a/b.nc")
    ('s3://bucket/', 'a/b.nc')
    >>> split_url("file:///data/a b.nc")
    ('file:///', 'data/a b.nc')

    Raises
    ------
    StorageError
        The URL has no scheme.
    """
    match = _SCHEME.match(url)
    if match is None:
        raise StorageError(f"'{url}' is not an absolute URL: it has no scheme such as 'file://'", url=url)
    scheme, rest = match.group(1).lower(), url[match.end() :]
    host, _, key = rest.partition("/")
    return f"{scheme}://{host}/", key


def split_query(url: str, /) -> tuple[str, str]:
    """Return the path of a URL, and its query with the mark; only in URLs of the web, ``?`` is no ordinary character.

    >>> split_query("https://host/a.tif?x=1")
    ('https://host/a.tif', '?x=1')
    """
    path, mark, query = url.partition("?") if is_http(url) else (url, "", "")
    return path, mark + query


def absolute_url(path: str | bytes | os.PathLike[str], /) -> str:
    """Return the absolute URL of a path or URL; the file system is not asked.

    Raises
    ------
    StorageError
        The name is not valid UTF-8, or has a NUL.

    >>> absolute_url("s3://bucket/key.nc")
    's3://bucket/key.nc'
    >>> absolute_url("/data/../x.nc")
    'file:///x.nc'
    """
    text = os.fsdecode(path)
    url = _absolute_url(text)
    if url is None and "\0" in text:
        raise StorageError(f"{text!r} has a NUL, which no path has", Remedy("name another file"))
    return _file_url(os.path.expanduser(text)) if url is None else url


@lru_cache(maxsize=4096)
def _absolute_url(text: str) -> str | None:
    """Return the absolute URL of a text with a scheme."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StorageError(
            f"{text!r} is not UTF-8, as references and URLs must be", Remedy("rename the file")
        ) from error
    match = _SCHEME.match(text)
    if match is None:
        return None
    scheme, rest = match.group(1).lower(), text[match.end() :]
    return _file_url("/" + rest.lstrip("/")) if scheme in ("file", "local") else f"{scheme}://{rest}"


def _file_url(path: str) -> str:
    return "file://" + url_path(os.path.abspath(path))


@lru_cache(maxsize=4096)
def local_path(url: str, /) -> Path | None:
    """Return the local path of an absolute URL, or ``None`` if it is not a ``file://`` URL.

    >>> local_path("file:///data/a b.nc").as_posix()
    '/data/a b.nc'
    """
    return Path(path_in_url(url[len("file://") :])) if url.startswith("file://") else None


def is_remote(url: str, /) -> bool:
    """Return whether reading from an absolute URL waits for a network.

    >>> is_remote("s3://bucket/a.nc"), is_remote("file:///data/a.nc")
    (True, False)
    """
    return not (url.startswith(_WITHOUT_SERVER) or outermost(url).startswith(_WITHOUT_SERVER))


def is_http(url: str, /) -> bool:
    """Return whether an absolute URL is at a web server."""
    return url.startswith(("http://", "https://"))


def outermost(url: str, /) -> str:
    """Return the URL of the file that a chained URL of members of archives is in; another URL is returned as it is.

    >>> outermost("zip://a.nc::s3://bucket/x.zip"), outermost("s3://bucket/a.nc")
    ('s3://bucket/x.zip', 's3://bucket/a.nc')
    """
    while url.startswith(ARCHIVES) and "::" in url:
        url = url.partition("::")[2]
    return url


def join_url(base: str, relative: str, /) -> str:
    """Resolve a location that is written in a file in the folder ``base``.

    >>> join_url("file:///refs", "data/a.nc")
    'file:///refs/data/a.nc'
    >>> join_url("s3://bucket/refs", "../a.nc")
    's3://bucket/a.nc'
    >>> join_url("file:///refs", "s3://bucket/a.nc")
    's3://bucket/a.nc'

    Raises
    ------
    StorageError
        ``..`` climbs above the root of the URL.
    """
    if _SCHEME.match(relative):
        return absolute_url(relative)
    if relative.startswith("/"):
        return absolute_url(relative)
    root, key = split_url(base if base.endswith("/") else base + "/")
    parts: list[str] = []
    for part in PurePosixPath(key, relative).parts:
        if part == "..":
            if not parts:
                raise StorageError(f"'{relative}' climbs above the root of '{base}'", url=base)
            parts.pop()
        elif part != ".":
            parts.append(part)
    return root + "/".join(parts)


_SLASH, _DOT = r"(?:[/\\]|%(?:25)*(?:2f|5c))", r"(?:\.|%(?:25)*2e)"
# Characters that end a segment: RFC 3986 3.3, the parameters of some servers (";"), and all of them encoded once or
# twice.
_DOTS = re.compile(rf"{_SLASH}{_DOT}{{1,2}}(?=[/\\?#;\n]|$|%(?:25)*(?:2f|5c|3f|23|3b|00))", re.IGNORECASE)
# Bytes C0 and C1 never occur in UTF-8; some decoders turn them into dots and slashes.
_ENCODED = re.compile(r"%(?:25)*(?:[01][0-9a-f]|7f|5c|c0|c1)", re.IGNORECASE)
_CONTROL = re.compile(r"[\0-\x1f\x7f]")


def are_plain(urls: Sequence[str], /) -> bool:
    """Return whether no URL has a flaw, if each begins with a scheme; all URLs are checked together."""
    text = "\n".join(urls)
    try:
        data = np.frombuffer(text.encode(), np.uint8)
    except UnicodeEncodeError:
        return False
    return not (
        np.count_nonzero(data < 32) != max(0, len(urls) - 1)
        or "\x7f" in text
        or "\\" in text
        or text.count("//") != len(urls)
        or (("/." in text or "%2" in text) and _DOTS.search(text))
        or ("%" in text and _ENCODED.search(text))
    )


def way_out(url: str, /) -> str | None:
    """Return why a text is not an absolute URL or leads out of its folder; ``None`` if neither is true.

    >>> way_out("https://host/data/%2E%2e/secret")
    "has a segment '.' or '..'"
    """
    scheme = _SCHEME.match(url)
    if scheme is None or scheme.group(1).lower() == "local":
        return "is not an absolute URL"
    if scheme.group(1).lower() == "file" and not url[scheme.end() :].startswith("/"):
        return "is not an absolute path"
    return "has a segment '.' or '..'" if _DOTS.search(url) else None


def flaw(url: str, /) -> str | None:
    """Return which part of a URL programs could read differently, or ``None``; the check includes `way_out`.

    >>> flaw("s3://bucket/a//b")
    'has an empty segment'
    """
    if found := way_out(url):
        return found
    if url.count("//") != 1:
        return "has an empty segment"
    if "\\" in url or _CONTROL.search(url) or _ENCODED.search(url):
        return "has a backslash or a control character"
    try:
        url.encode()
    except UnicodeEncodeError:
        return "has half a character"
    return None
