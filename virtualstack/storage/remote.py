"""Read and write objects in object stores and on web servers, and look up many of their URLs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
import obstore
from numpy.typing import NDArray

from virtualstack.errors import ForbiddenLocationError, Remedy, SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage.coalesce import coalesce
from virtualstack.storage.obstore import PAGE_KEYS, SORTED, Connection, location_from, with_own_headers
from virtualstack.storage.obstore import connect as connect_store
from virtualstack.storage.obstore_errors import RangesIgnoredError, UnsatisfiableError
from virtualstack.storage.source import (
    ByteRange,
    Bytes,
    ManyRangesSource,
    are_replicas,
    check_lengths,
    check_ranges,
    check_version,
    etags_differ,
)
from virtualstack.storage.target import PlainTarget, UnlistableError, check_conditions, check_most
from virtualstack.storage.threads import LimitedLookup, concurrently, thread_pool
from virtualstack.storage.web.public_web import PublicWeb

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from virtualstack.storage.web.connection import WebConnection

_FIRST_PAGE_KEYS = 50  # servers return 1000 and more at once
_LISTED_KEYS = 4096  # keys of a listing: four requests, if there are no other keys


def connect(url: str, backend: object | None, prefix: str, /) -> tuple[Connection | WebConnection, str]:
    """Return the connection that serves a URL, and the key of the URL in it."""
    return (backend.connect(url), url) if isinstance(backend, PublicWeb) else connect_store(url, backend, prefix)


def connect_to_read(url: str, backend: object | None, prefix: str, /) -> tuple[Connection | WebConnection, str]:
    """Return the connection that reads a URL: its redirects get no headers of the user; see `connect`."""
    return connect(url, with_own_headers(url, backend), prefix)


def look_up(urls: Sequence[str], backend: object | None, prefix: str, /) -> list[Location | StorageError]:
    """Return the current version of each URL of one bucket or host, or an error; see :meth:`Storage.look_up`."""
    results: dict[str, Location | StorageError] = {}
    by_key: dict[str, str] = {}
    connection, _ = connect_to_read(urls[0], backend, prefix)
    if isinstance(connection, Connection) and not connection.is_web:
        by_key = {connect(url, backend, prefix)[1]: url for url in urls}
        keys = sorted(by_key)
        runs = [keys[begin : begin + _LISTED_KEYS] for begin in range(0, len(keys), _LISTED_KEYS)]
        for listed in concurrently(functools.partial(_listed, connection, urls=by_key), runs, urls[:1]):
            results |= listed

    def ask(url: str) -> Location:
        return _look_up(*connect_to_read(url, backend, prefix), url)

    left = [url for url in dict.fromkeys(urls) if url not in results]
    results |= zip(left, concurrently(LimitedLookup(ask), left, urls[:1]), strict=True)
    return [results[url] for url in urls]


def _look_up(connection: Connection | WebConnection, key: str, url: str) -> Location:
    """Return size, etag and time of an object; if HEAD fails at a web server, its first byte is requested."""
    try:
        return connection.look_up(url, key)
    except StorageError as error:  # obstore reports "not found" for a server that does not support HEAD
        if not connection.is_web or isinstance(error, ForbiddenLocationError):
            raise
    try:
        return connection.get(url, key, 0, 1)[1]
    except UnsatisfiableError:
        return Location(url, size=0)


def _listed(connection: Connection, keys: Sequence[str], urls: dict[str, str]) -> dict[str, Location | StorageError]:
    """Return the results of a listing for keys, as far as it reaches; empty if the keys cannot be listed."""
    try:
        objects, end = connection.between(urls[keys[0]], keys)
    except StorageError:
        return {}  # readers may lack the right to list; then each key is requested separately
    answers: dict[str, Location | StorageError] = {}
    for key in keys:
        url = urls[key]
        if key in objects:
            answers[url] = replace(objects[key], url=url)
        elif end is None or key <= end:
            answers[url] = SourceNotFoundError(f"there is nothing at '{url}', as the list of its folder says", url=url)
    return answers


FIRST_BYTES = 16 * 1024  # fetched together with the size: enough to recognise most formats without a further request
MAX_WHOLE_BYTES = 256 * 1024 * 1024
MAX_GAP_BYTES = 16 * 1024
ENOUGH_BYTES = 8 * 1024 * 1024  # ranges that do not overlap a request of this length do not extend it
MAX_REQUEST_BYTES = 32 * 1024 * 1024  # a longer request is split, and its parts are fetched at the same time
_REQUESTS_PER_CALL = 10  # obstore keeps this many requests of one call in flight
_MAX_CALLS = 12  # a server that takes 0.1 s to answer serves 2,700 requests in 3.0 s; with 8 calls it takes 4.2 s
_MAX_THREADS = (
    _MAX_CALLS * _REQUESTS_PER_CALL
)  # each single request has a thread, for all sources that are read at the same time


class RemoteSource(ManyRangesSource):
    """An object in an object store or on a web server; made by `open_source`.

    Near ranges are merged and fetched up to 120 at a time. From a server that ignores ranges, the whole object is
    fetched once, up to 256 MiB. Its pickle contains the options.
    """

    def __init__(
        self,
        location: Location,
        backend: object | None,
        prefix: str,
        /,
        *,
        first: Bytes = b"",
        is_checked: bool = False,
    ) -> None:
        if location.size is None:
            raise ValueError(f"the size of '{location.url}' is not known")
        self.location = location
        self._backend = backend
        self._prefix = prefix
        self._first = memoryview(first)
        self._is_checked = is_checked
        self._lock = threading.Lock()

    @property
    def is_watchful(self) -> bool:
        """Always true."""
        return True

    def read_ranges(self, ranges: Sequence[ByteRange] | NDArray[np.int64], /) -> list[Bytes]:
        """Read many ranges: near ranges in one request, up to 120 requests at a time."""
        table = check_ranges(ranges, url=self.location.url, size=self.size)
        offsets, lengths = table[:, 0], table[:, 1]
        known = self._first
        if not ((lengths == 0) | (offsets + lengths <= len(known))).all():
            plan = coalesce(offsets, lengths, max_gap=MAX_GAP_BYTES, enough=ENOUGH_BYTES, max_length=MAX_REQUEST_BYTES)
            try:
                parts = self._fetch(plan.offsets, plan.lengths)
            except RangesIgnoredError:
                known = self._fetch_whole()
            else:
                return plan.cut(parts, lengths)
        return [known[offset : offset + length] for offset, length in table.tolist()]

    def _fetch(self, offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> list[memoryview]:
        url = self.location.url
        connection, key = connect_to_read(url, self._backend, self._prefix)
        starts, sizes = offsets.tolist(), lengths.tolist()

        def ask_one(n: int) -> memoryview:
            data, location = connection.get(url, key, starts[n], starts[n] + sizes[n])
            if not self._is_checked:
                self.check(connection, key, location)
            return data

        touching = len(starts) > 1 and bool((offsets[1:] == offsets[:-1] + lengths[:-1]).any())
        try:
            if not isinstance(connection, Connection) or connection.is_web or len(starts) <= _MAX_CALLS:
                parts = _each(ask_one, range(len(starts)))
            else:
                in_one_call = functools.partial(connection.get_ranges, url, key)

                def ask(part: slice) -> list[memoryview]:
                    return in_one_call(starts[part], sizes[part])

                parts = _in_calls(ask, ask_one, len(starts), is_checked=self._is_checked, touching=touching)
            short = [n for n, part in enumerate(parts) if len(part) < sizes[n]]
            for n in short:  # perhaps a cut connection: try once more
                parts[n] = ask_one(n)
        except UnsatisfiableError as error:
            raise SourceChangedError(
                f"'{url}' is shorter than the {self.size} bytes that it had. Scan it again, or restore the version "
                "that was indexed",
                url=url,
            ) from error
        check_lengths(sizes, parts, url=url)
        return parts

    def check(self, connection: Connection | WebConnection, key: str, answer: Location, /) -> None:
        """Check the version of an answer; replicas may have other etags for it."""
        ask = functools.partial(_look_up, connection, key, self.location.url)
        if etags_differ(self.location.etag, answer.etag) and are_replicas(self.location, answer, ask):
            self.location = replace(self.location, etag=None)
        url = self.location.url
        check_version(self.location, answer, lambda begin, n: bytes(connection.get(url, key, begin, begin + n)[0]))

    def _fetch_whole(self) -> memoryview:
        with self._lock:
            if len(self._first) < self.size:
                connection, key = connect_to_read(self.location.url, self._backend, self._prefix)
                data, location = _get_whole(connection, self.location.url, key)
                self.check(connection, key, location)
                check_lengths([self.size], [data], url=self.location.url)
                self._first = data
            return self._first

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        return type(self), (self.location, self._backend, self._prefix)

    def __repr__(self) -> str:
        return f"RemoteSource('{self.location.url}', {self.size} bytes)"


def _each(ask_one: Callable[[int], memoryview], numbers: Sequence[int]) -> list[memoryview]:
    """Send single requests at the same time; each answer states its version, and is broken off if it is too long.

    All requests to web servers are sent this way, as a server named by a stranger's store may send without end. This
    costs 0.15 ms of CPU a request more than calls with many ranges.
    """
    if len(numbers) == 1:
        return [ask_one(numbers[0])]
    futures = [thread_pool("storage", _MAX_THREADS).submit(ask_one, n) for n in numbers]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def _in_calls(
    ask: Callable[[slice], list[memoryview]],
    ask_one: Callable[[int], memoryview],
    n: int,
    *,
    is_checked: bool,
    touching: bool,
) -> list[memoryview]:
    """Send ``n`` requests, divided among calls that each keep some requests in flight.

    The answers to calls with many ranges do not state a version. So the first request is sent by itself, and the last
    one after all others were answered: if both have one version, so have the answers in between.

    Neighbours go to different calls, as obstore merges touching ranges even with ``coalesce=0``.
    """
    begin, end = (0, n) if is_checked else (1, n - 1)
    n_calls = max(min(_MAX_CALLS, -(-(end - begin) // _REQUESTS_PER_CALL)), 2 if touching else 1)
    shares = [slice(first, end, n_calls) for first in range(begin, min(end, begin + n_calls))]
    alone = [thread_pool("storage", _MAX_THREADS).submit(ask_one, i) for i in range(begin)]
    futures = [thread_pool("storage", _MAX_THREADS).submit(ask, share) for share in shares]
    parts = [memoryview(b"")] * n
    try:
        for i, one in enumerate(alone):
            parts[i] = one.result()
        for share, future in zip(shares, futures, strict=True):
            parts[share] = future.result()
    finally:
        for one in alone:
            one.cancel()
        for future in futures:
            future.cancel()
    for i in range(end, n):
        parts[i] = ask_one(i)
    return parts


def open_source(url: str, backend: object | None, prefix: str, expected: Location | None, /) -> RemoteSource:
    """Open a remote object with one request, or without one if ``expected`` has a size."""
    if expected is not None and expected.size is not None:
        return RemoteSource(replace(expected, url=url, checksums=None), backend, prefix)
    connection, key = connect_to_read(url, backend, prefix)
    try:
        first, location = connection.get(url, key, 0, FIRST_BYTES)
        if location.size is not None and len(first) != min(FIRST_BYTES, location.size):
            first = memoryview(b"")
    except (RangesIgnoredError, UnsatisfiableError):  # UnsatisfiableError: an empty object
        first, location = _get_whole(connection, url, key)
        check_lengths([location.size or 0], [first], url=url)
    if expected is not None:
        RemoteSource(replace(expected, url=url, size=location.size), backend, prefix).check(connection, key, location)
    return RemoteSource(location, backend, prefix, first=first, is_checked=True)


def _get_whole(connection: Connection | WebConnection, url: str, key: str) -> tuple[memoryview, Location]:
    """Read a whole object from a server without ranges; a larger one than `MAX_WHOLE_BYTES` is a `StorageError`."""

    def check(size: int) -> None:
        if size > MAX_WHOLE_BYTES:
            raise StorageError(
                f"'{url}': its server ignores byte ranges, and the file has {size} bytes, more than the "
                f"{MAX_WHOLE_BYTES} that are fetched whole. Download it first, or use a server that supports byte "
                "ranges",
                url=url,
            )

    return connection.get_object(url, key, check)


@dataclass(frozen=True, eq=False)
class RemoteTarget(PlainTarget):
    """Objects under a URL of an object store."""

    url: str
    _backend: object | None = field(repr=False)
    _prefix: str = field(repr=False)

    @property
    def is_listed(self) -> bool:
        """True if the keys can be listed. False for web servers, which cannot list their files."""
        return not self._connect(self.url)[0].is_web

    def get(self, key: str, /, *, most: int | None = None) -> bytes:
        """Read a whole object."""
        url = self._url(key)
        connection, path = connect_to_read(url, self._backend, self._prefix)
        data, location = connection.get_object(url, path, functools.partial(check_most, most=most, url=url))
        check_lengths([location.size or 0], [data], url=url)
        return bytes(data)

    def list(self, prefix: str = "", /) -> list[str]:
        """List the keys in the folder ``prefix`` and below it, sorted."""
        return sorted(self.contents(prefix))

    def first(self, prefix: str = "", /) -> str | None:
        """Return the first key in the folder ``prefix`` and below it, with one request if the server sorts its keys."""

        def ask(store: ObjectStore, folder: str) -> str | None:
            pages = iter(obstore.list(store, folder or None, chunk_size=_FIRST_PAGE_KEYS))
            keys = [item["path"] for item in next(pages, ())]
            is_sorted = isinstance(store, SORTED) and keys == sorted(keys)
            if len(keys) == _FIRST_PAGE_KEYS and not is_sorted:  # S3's directory buckets do not sort
                keys += [item["path"] for page in pages for item in page]
            return min(keys, default=None)

        key = self._listed(prefix, ask)
        return None if key is None else key.removeprefix(self._root()).lstrip("/")

    def entries(self, prefix: str = "", /) -> Sequence[tuple[str, bool]]:
        """List the names in the folder ``prefix``, each with whether it is a folder."""

        def ask(store: ObjectStore, folder: str) -> Sequence[tuple[str, bool]]:
            listing = obstore.list_with_delimiter(store, folder or None)
            paths = [(x, True) for x in listing["common_prefixes"]] + [(x["path"], False) for x in listing["objects"]]
            return [(path.rpartition("/")[2], is_folder) for path, is_folder in paths if path != folder]

        return self._listed(prefix, ask)

    def contents(self, prefix: str = "", /) -> dict[str, Location]:
        """List the objects in the folder ``prefix`` and below it, with size, etag and modification time of each."""
        root = self._root()

        def ask(store: ObjectStore, folder: str) -> dict[str, Location]:
            pages = obstore.list(store, folder or None, chunk_size=PAGE_KEYS)
            keys = ((item["path"].removeprefix(root).lstrip("/"), item) for page in pages for item in page)
            return {key: location_from(self.url + key, item) for key, item in keys}

        return self._listed(prefix, ask)

    def put(self, key: str, data: bytes | bytearray | memoryview, /) -> None:
        """Write an object and replace an existing one."""
        self._put(key, data, create=False)

    def put_if_absent(self, key: str, data: bytes | bytearray | memoryview, /) -> bool:
        """Write an object unless the key exists, and return whether it was written; the server orders the writers."""
        create = functools.partial(self._put, create=True)
        check_conditions(self, key, server=self._writer(key)[0], create=create)
        return create(key, data)

    def _put(self, key: str, data: bytes | bytearray | memoryview, *, create: bool) -> bool:
        connection, url, path = self._writer(key)
        return connection.put(url, path, data, create=create)

    def delete(self, key: str, /) -> None:
        """Delete an object; nothing happens if it does not exist."""
        connection, url, path = self._writer(key)
        connection.delete(url, path)

    def _listed[T](self, prefix: str, ask: Callable[[ObjectStore, str], T]) -> T:
        """Return what a store lists in a folder."""
        connection, path = self._connect(self.url + prefix.rstrip("/"))
        if not isinstance(connection, Connection) or connection.is_web:
            raise UnlistableError.at(self.url)
        return connection.read(self.url, lambda store: ask(store, path.rstrip("/")))

    def _writer(self, key: str) -> tuple[Connection, str, str]:
        """Return what writes an object, and its URL and path."""
        url = self._url(key)
        connection, path = self._connect(url)
        if not isinstance(connection, Connection):
            raise StorageError(
                f"'{url}' comes from references, so it can only be read",
                Remedy("open the URL itself to change it"),
                url=url,
            )
        return connection, url, path

    def _root(self) -> str:
        return self._connect(self.url)[1].rstrip("/")

    def _connect(self, url: str) -> tuple[Connection | WebConnection, str]:
        return connect(url, self._backend, self._prefix)


def open_target(url: str, backend: object | None, prefix: str, /) -> RemoteTarget:
    """Return the target at a root URL; no request is made."""
    return RemoteTarget(url, backend, prefix)
