"""Send requests to object stores and web servers with obstore, and check its answers.

Behaviour of obstore 0.12, and how this module and `remote` handle it:

- Ranges past the end, and short 206 bodies, come back as short bytes without an error: lengths are compared.
- obstore repeats a request after 429 or 503 for about a second and ignores ``Retry-After``. Here the request is
  repeated at the pace that the server asks for, as long as ``retry_timeout`` allows.
- obstore accepts an answer at any speed: the parts of an answer are counted as they arrive.
- Answers that are longer than requested are accepted, whatever memory they take. An answer to one request is broken
  off. An answer of `get_ranges` and the body of a refusal cannot be broken off, so `get_ranges` is not used for web
  servers.
- obstore's own merging of ranges past the end panics, which ``except Exception`` does not catch: merging is switched
  off, and a panic becomes a `StorageError`.
- Without credentials obstore waits for instance metadata services: each store gets an explicit identity, see `stores`.
- After a fork obstore's threads are gone, and every request waits for ever: see `connect`.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import obstore
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from virtualstack.errors import AccessDeniedError, Remedy, StorageError
from virtualstack.location import Location, is_http, split_url
from virtualstack.storage.backends import WAITING, key_in
from virtualstack.storage.identities import aws, azure
from virtualstack.storage.identities.earthdata import is_archive
from virtualstack.storage.identities.identity import Identity, identities, normalise
from virtualstack.storage.named import UnnamedBucket, advice, options_at
from virtualstack.storage.obstore_errors import (
    RangesIgnoredError,
    WrongRegionError,
    call_obstore,
    is_option_error,
    what_was_answered,
)
from virtualstack.storage.signatures import QUERY, login_remedies, signed
from virtualstack.storage.slow_servers import Busy, Patience
from virtualstack.storage.source import RequestRefusedError
from virtualstack.storage.stores import make_store
from virtualstack.storage.unsaid import find_region, seconds_to_wait
from virtualstack.storage.web.public_web import PublicWeb
from virtualstack.system import was_imported_before_fork

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SERVICES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "adl": "az",
            "abfs": "az", "abfss": "az", "http": "http", "https": "http"}  # fmt: skip
SORTED = S3Store, GCSStore, AzureStore
"""Stores whose servers sort their keys."""

_MAX_CONNECTIONS = 256
_MAX_REGIONS = 3  # a hostile server could redirect to new regions for ever
PAGE_KEYS = 1000
"""Keys in one page of a listing."""

_FREE_LISTINGS = 4
_MIN_REQUESTS_PER_LISTING = 8  # requests for one object each, at once
_EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "s3": {"access_key_id": "...", "secret_access_key": "..."},
    "gs": {"service_account_path": "..."},
    "az": {"account_name": "...", "account_key": "..."},
}
_SAFE = "/!$&'()*+,;=:@~[]^|"  # characters that obstore does not encode in the path of an http URL


_LOCK = threading.Lock()
_CONNECTIONS: dict[object, Connection] = {}
"""Connections of this process; a forked child drops none, as that would wait for threads that it does not have."""


class Connection:
    """One bucket or host, with a store (connection pool) for each identity.

    The identity that was accepted last is tried first. Safe to use from many threads.
    """

    def __init__(
        self,
        root: str,
        service: str,
        options: Mapping[str, Any],
        store: ObjectStore | None = None,
        *,
        is_named: bool = True,
        at: str | None = None,
    ) -> None:
        self.root = root
        self._at = root if at is None else at  # with a signature, which no message has
        self._service = service
        self._options = options
        self._is_named = is_named
        self._patience = Patience.from_options(options, root)
        headers = options.get("default_headers", {})
        self._busy = Busy(self._patience, *([lambda url: seconds_to_wait(url, headers)] if service == "http" else []))
        self._region: str | None = None
        self._may_need_login = service == "http" and (is_archive(root) or bool(options.get("earthdata")))
        self._identities: tuple[Identity, ...]
        self._stores: dict[str, ObjectStore] = {}
        if store is None:
            self._identities = identities(service, options, os.environ, root, is_named=is_named)
        else:
            self._identities = (Identity("the store in storage=", {}),)
            self._stores[self._identities[0].name] = store
        self._lock = threading.Lock()

    def get(self, url: str, key: str, start: int, stop: int) -> tuple[memoryview, Location]:
        """Read bytes ``start`` to ``stop`` (clipped at the end), and return them with the location of the object."""

        def ask(store: ObjectStore) -> tuple[memoryview, Location]:
            result = obstore.get(store, key, options={"range": (start, stop)})
            return self._patience.read(_arriving(result), stop - start, url), location_from(url, result.meta)

        return self.read(url, ask)

    def get_object(self, url: str, key: str, check: Callable[[int], None]) -> tuple[memoryview, Location]:
        """Read a whole object; its size is checked before its bytes are read."""

        def ask(store: ObjectStore) -> tuple[memoryview, Location]:
            result = obstore.get(store, key)
            if self._may_need_login and str(result.attributes.get("Content-Type")).startswith("text/html"):
                raise RequestRefusedError("the server sent an HTML page, such as a login page", url=url)
            found = location_from(url, result.meta)
            size = found.size or 0
            check(size)
            return self._patience.read(_arriving(result), size, url), found

        return self.read(url, ask)

    def get_ranges(self, url: str, key: str, starts: Sequence[int], lengths: Sequence[int]) -> list[memoryview]:
        """Read ranges, about ten at a time, without checks of their lengths; no answer is broken off."""

        def ask(store: ObjectStore) -> list[memoryview]:
            got = obstore.get_ranges(store, key, starts=starts, lengths=lengths, coalesce=0)
            return [memoryview(data) for data in got]

        return self.read(url, ask)

    def put(self, url: str, key: str, data: bytes | bytearray | memoryview, *, create: bool) -> bool:
        """Write an object, with ``create`` only if the key does not exist; return whether it was written."""

        def ask(store: ObjectStore) -> bool:
            try:
                if create and isinstance(store, S3Store) and store.config.get("conditional_put") == "disabled":
                    with contextlib.suppress(FileNotFoundError):  # the user says that there is no other writer
                        obstore.head(store, key)
                        return False
                    obstore.put(store, key, bytes(data))
                elif create:
                    obstore.put(store, key, bytes(data), mode="create", use_multipart=False)
                else:
                    obstore.put(store, key, bytes(data))
            except obstore.exceptions.AlreadyExistsError:
                return False
            return True

        return self._ask(url, ask)

    @property
    def identities(self) -> tuple[str, ...]:
        """Names of the identities that are tried, in order; the command line shows them."""
        return tuple(identity.name for identity in self._identities)

    @property
    def is_web(self) -> bool:
        """True if this is a web server, which cannot list its keys."""
        stores = list(self._stores.values()) if self._service == "store" else []
        return self._service == "http" or any(isinstance(store, HTTPStore) for store in stores)

    def look_up(self, url: str, key: str) -> Location:
        """Return size, etag and time of an object."""
        return self.read(url, lambda store: location_from(url, obstore.head(store, key)))

    def between(self, url: str, keys: Sequence[str]) -> tuple[dict[str, Location], str | None]:
        """List the existing objects from the first to the last of some sorted keys.

        Returns
        -------
        tuple
            The locations of the existing keys, without the URL, and the last key that the listing reached. ``None``: it
            reached all keys. The listing stops early if it contains mostly other objects.
        """
        wanted = set(keys)
        folder = posixpath.commonprefix([keys[0], keys[-1]]).rpartition("/")[0]

        def ask(store: ObjectStore) -> tuple[dict[str, Location], str | None]:
            found: dict[str, Location] = {}
            # The text before the first key begins the listing, with little in between.
            pages = obstore.list(store, folder or None, offset=keys[0][:-1] or None, chunk_size=PAGE_KEYS)
            is_sorted, end = isinstance(store, SORTED), ""
            for n, page in enumerate(pages):
                paths = [item["path"] for item in page]
                is_sorted = is_sorted and paths == sorted(paths) and (not paths or end <= paths[0])
                found |= {item["path"]: location_from("", item) for item in page if item["path"] in wanted}
                end = max(paths, default=end)
                if is_sorted and end >= keys[-1]:
                    break
                if n >= _FREE_LISTINGS + len(found) // _MIN_REQUESTS_PER_LISTING:
                    return found, end if is_sorted else ""
            return found, None

        return self.read(url, ask)

    def delete(self, url: str, key: str) -> None:
        """Delete an object; nothing happens if it does not exist."""

        def ask(store: ObjectStore) -> None:
            try:
                obstore.delete(store, key)
            except FileNotFoundError:
                return

        self._ask(url, ask)

    def read[T](self, url: str, ask: Callable[[ObjectStore], T]) -> T:
        """Return what a store answers, once its server is not busy and accepts an identity."""
        return self._busy.ask(url, lambda: self._ask(url, ask))

    def _ask[T](self, url: str, ask: Callable[[ObjectStore], T]) -> T:
        refused: list[str] = []
        for identity in self._identities:
            try:
                answer = self._ask_as(identity, url, ask)
            except RequestRefusedError as error:
                refused.append(f"{identity.name}: {error}")
                continue
            if refused:  # next time this identity is tried first
                self._identities = (identity, *(other for other in self._identities if other is not identity))
            return answer
        if not self._is_named:
            remedies: tuple[Remedy, ...] = (advice(split_url(url)[0]),)
        elif self._service == "http":
            remedies = login_remedies(split_url(self.root)[0], is_signed=self._at != self.root)
        else:
            example = options_at(self.root, **_EXAMPLES.get(self._service, {}))
            remedies = (Remedy("give credentials that have access:", storage=example),)
        raise AccessDeniedError(f"access denied: '{url}' (tried: {'; '.join(refused)})", *remedies, url=url)

    def _ask_as[T](self, identity: Identity, url: str, ask: Callable[[ObjectStore], T]) -> T:
        for _ in range(_MAX_REGIONS):
            used = self._region
            try:
                return self._ask_once(identity, url, ask)
            except WrongRegionError as error:
                wrong = error
            region = wrong.region or (find_region(self.root, self._endpoint()) if self._service == "s3" else None)
            if region is None or region == used:
                break
            with self._lock:
                if self._region == used:  # another thread may have set the region meanwhile
                    self._region = region
                    self._stores.clear()
        raise StorageError(
            f"'{url}': the server answered with a redirect without a target, as S3 does for a bucket of another region",
            Remedy("name its region:", storage=options_at(self.root, region="...")),
            url=url,
        ) from wrong

    def _ask_once[T](self, identity: Identity, url: str, ask: Callable[[ObjectStore], T]) -> T:
        """Send a request; if credentials have expired, or the server asks for a login, renew them and send it again."""
        n_logins = 0 if identity.session is None else identity.session.n_logins
        try:
            return call_obstore(url, lambda: ask(self._store(identity, url)))
        except (RequestRefusedError, RangesIgnoredError) as error:
            if identity.session is not None:
                is_renewed = identity.session.log_in(url, n_logins, is_refused=isinstance(error, RequestRefusedError))
            else:
                is_renewed = identity.provider is not None and getattr(error, "is_expired", False)
            if not is_renewed:
                raise
        with self._lock:
            self._stores.pop(identity.name, None)
        return call_obstore(url, lambda: ask(self._store(identity, url)))

    def _endpoint(self) -> str | None:
        if self._service == "s3":
            return aws.endpoint(self._options, os.environ)
        if self._service == "gs" and "base_url" not in self._options and (host := os.environ.get(_EMULATOR)):
            return host if "://" in host else f"http://{host}"
        if self._service == "az" and "endpoint" not in self._options:
            # obstore would read it too, and refuse one that begins with http://
            return os.environ.get("AZURE_STORAGE_ENDPOINT") or os.environ.get("AZURE_ENDPOINT")
        return None

    def _store(self, identity: Identity, url: str) -> ObjectStore:
        with self._lock:
            store = self._stores.get(identity.name)
            if store is None:
                region = {} if self._region is None else {"region": self._region}
                try:
                    store = make_store(self._at, self._service, identity, region, self._endpoint(), url)
                except obstore.exceptions.BaseError as error:
                    if is_option_error(error):
                        raise
                    # such as a missing credentials file: another identity may be accepted
                    raise RequestRefusedError(what_was_answered(str(error)), url=url) from error
                self._stores[identity.name] = store
            return store


_PLAIN_HEADERS = {"accept", "authorization", "cookie", "user-agent"}  # obstore removes secret ones at other hosts
_OWN_OPTIONS = {*WAITING, "allow_http", "bearer_token", "default_headers", "password", "token", "username"}


def with_own_headers(url: str, backend: object | None, /) -> object | None:
    """Return `PublicWeb` for a web server that gets headers such as an API key, which obstore would send anywhere.

    Options that only obstore has, such as certificates, keep it.
    """
    if not isinstance(backend, Mapping) or not is_http(url):
        return backend
    options = normalise("http", backend)
    headers = options.get("default_headers") or {}
    root = split_url(url)[0]
    if {x.lower() for x in headers} <= _PLAIN_HEADERS or options.keys() - _OWN_OPTIONS or is_archive(root):
        return backend
    (identity,) = identities("http", options, os.environ, root)
    waiting = {name: options[name] for name in WAITING & options.keys()}
    sent = identity.config["default_headers"]
    return PublicWeb(("http://", "https://"), tuple(sorted(waiting.items())), tuple(sorted(sent.items())))


def connect(url: str, backend: object | None, prefix: str, /) -> tuple[Connection, str]:
    """Return the connection that serves a URL, shared by all URLs of its bucket or host, and the key of the URL in it.

    Raises
    ------
    StorageError
        This process was forked from a process that had imported obstore.
    """
    if was_imported_before_fork("obstore"):
        raise StorageError(
            f"'{url}' cannot be reached: this process was forked from one that had imported obstore, whose threads do "
            'not survive a fork. Start workers with multiprocessing.get_context("forkserver"), and those of a PyTorch '
            'DataLoader with multiprocessing_context="forkserver"',
            url=url,
        )
    root, key = split_url(url)
    is_named = True
    if isinstance(backend, UnnamedBucket):
        is_named, backend = False, backend.options
    if backend is not None and not isinstance(backend, Mapping):
        store: Any = backend
        return _shared((id(store), root), lambda: Connection(root, "store", {}, store)), _key(store, url, prefix)
    service = _SERVICES[root.partition("://")[0]]
    options = normalise(service, backend or {})
    at = root
    if service == "http" and azure.blob_account(root) and azure.OPTIONS & normalise("az", backend or {}).keys():
        service, options = "az", normalise("az", backend or {})
        container, _, key = key.partition("/")
        root, key = f"{root}{container}/", unquote(key)
        at = root
    if service == "http":
        path = unquote(key)
        if not key or any(part in ("", ".", "..") for part in path.split("/")) or quote(path, safe=_SAFE) != key:
            root, key = url, ""  # a query, '//' or '%2F': only the unchanged URL is right
        else:
            key = path
        at = root
        if QUERY in options:
            at, key = signed(url, options), ""
            options = {name: value for name, value in options.items() if name != QUERY}
    name = (at, repr(sorted(options.items())), is_named, _environment())
    return _shared(name, lambda: Connection(root, service, options, is_named=is_named, at=at)), key


_EMULATOR = "STORAGE_EMULATOR_HOST"  # of Google's own libraries
_CREDENTIALS = ("AWS_", "GOOGLE_", "AZURE_", "CLOUDSDK_", "EARTHDATA_", "NETRC", "PC_SDK_", "IDENTITY_", _EMULATOR)
_CREDENTIALS_RAW = tuple(prefix.encode() for prefix in _CREDENTIALS)


def _environment() -> int:
    """Return a hash of the credentials in the environment; new credentials make a new connection."""
    if not os.supports_bytes_environ:
        return hash(tuple(sorted(item for item in os.environ.items() if item[0].startswith(_CREDENTIALS))))
    # called for each source: no variable is decoded
    return hash(tuple(sorted((name, os.environb[name]) for name in os.environb if name.startswith(_CREDENTIALS_RAW))))


def _shared(name: object, make: Callable[[], Connection]) -> Connection:
    with _LOCK:
        if name not in _CONNECTIONS:
            while len(_CONNECTIONS) >= _MAX_CONNECTIONS:
                del _CONNECTIONS[next(iter(_CONNECTIONS))]
            _CONNECTIONS[name] = make()
        return _CONNECTIONS[name]


def _key(store: Any, url: str, prefix: str) -> str:
    if isinstance(store, HTTPStore):
        base = store.url.rstrip("/") + "/"
        return unquote(url[len(base) :]) if url.startswith(base) else unquote(split_url(url)[1])
    if isinstance(store, SORTED):
        key, own = split_url(url)[1], (store.prefix or "").strip("/")
        return key[len(own) + 1 :] if own and key.startswith(own + "/") else key
    return key_in(prefix, url)


def _arriving(result: Any) -> Iterator[memoryview]:
    return map(memoryview, result.stream(min_chunk_size=1))  # otherwise obstore collects 10 MiB without a limit of time


def location_from(url: str, meta: Any, /) -> Location:
    """Return the location of an object with what obstore says of it."""
    modified = meta["last_modified"].timestamp()
    return Location(url, size=meta["size"], etag=meta["e_tag"], last_modified=modified or None)  # 0: unknown
