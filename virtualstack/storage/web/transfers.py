"""Send HTTP requests, each to an address that was checked before it was connected to.

The connections are those of urllib3. They get the checked addresses instead of the name, so that no second look-up of
the name can lead elsewhere. A connection that is kept serves only requests with the same check.
"""

from __future__ import annotations

import http.client
import math
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import unquote

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection, ProxyConfig
from urllib3.util.ssltransport import SSLTransport

from virtualstack.errors import StorageError
from virtualstack.storage.hosts import find_host, split_authority
from virtualstack.system import in_forked_children

_MAX_KEPT = 256  # connections of this process
_PART_BYTES = 1 << 18
PORTS = {"http": 80, "https": 443}
"""Default ports by scheme."""


class FailedError(Exception):
    """A request without the wanted answer; its text says why."""

    def __init__(
        self, why: str, status: int | None = None, *, is_transient: bool = False, is_short: bool = False
    ) -> None:
        super().__init__(why)
        self.status = status
        self.is_transient = is_transient
        self.is_short = is_short
        self.retry_after: float | None = None


class NotPublicError(Exception):
    """A connection to a host that is not public was refused."""

    def __init__(self, why: str, address: str | None) -> None:
        super().__init__(why)
        self.why = why
        self.address = address


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to wait for a connection, for the next bytes of an answer, and for a whole answer."""

    connect: float = 5.0
    read: float = 10.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request to one server; redirects are not followed."""

    method: str
    scheme: str
    authority: str
    target: str
    headers: Mapping[str, str]
    limits: Limits = Limits()
    proxy: str | None = None
    is_checked: bool = True

    @property
    def way(self) -> tuple[object, ...]:
        """What two requests share that may use one connection."""
        return self.scheme, self.authority, self.proxy, self.is_checked


class _Socket(socket.socket):
    """A socket with a time limit for all that it receives, beside the limit for each part."""

    limits: Limits | None = None
    end = math.inf

    def begin(self, limits: Limits) -> None:
        self.limits, self.end = limits, time.monotonic() + limits.total

    def _wait(self) -> None:
        if self.limits is not None:
            left = self.end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.settimeout(min(self.limits.read, left))

    def recv(self, *args: Any, **options: Any) -> bytes:
        self._wait()
        return super().recv(*args, **options)

    def recv_into(self, *args: Any, **options: Any) -> int:
        self._wait()
        return super().recv_into(*args, **options)


class _SecureSocket(_Socket, ssl.SSLSocket):
    """The same with TLS."""


class _Connection(HTTPConnection):
    """A connection to the first address that can be reached."""

    addresses: Sequence[str] = ()

    def _new_conn(self) -> socket.socket:
        assert isinstance(self.timeout, float)
        end, failure = time.monotonic() + self.timeout, OSError("no address")
        for n_left, address in zip(range(len(self.addresses), 0, -1), self.addresses, strict=True):
            try:
                made = socket.create_connection((address, self.port), max(0.001, (end - time.monotonic()) / n_left))
            except OSError as error:
                failure = error
                continue
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.settimeout(self.timeout)
            found = _Socket(made.family, made.type, made.proto, made.detach())
            found.begin(Limits(read=self.timeout, total=self.timeout))
            return found
        raise failure


class _SecureConnection(_Connection, HTTPSConnection):
    """The same with TLS."""


class Answer:
    """Status and headers of an answer, and its body."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.is_read = False
        self._response = response

    def parts(self) -> Iterator[bytes]:
        """Yield the parts of the body as they arrive."""
        while True:
            try:
                part = self._response.read1(_PART_BYTES)
            except _FAILURES as error:
                raise _broken(error) from error
            if not part:
                break
            yield part
        if self._response.length:
            raise FailedError("the connection broke off", is_transient=True)
        self.is_read = True


@contextmanager
def sent(request: Request, /) -> Iterator[Answer]:
    """Send a request and give its answer; the connection is kept if the body is read to its end."""
    connection, response = _ask(request)
    answer = Answer(response)
    try:
        yield answer
    finally:
        response.close()
        if answer.is_read and not connection.is_closed:
            STATE.keep(request.way, connection)
        else:
            connection.close()


def _ask(request: Request) -> tuple[_Connection, HTTPResponse]:
    kept = STATE.take(request.way)
    try:
        if kept is not None:
            with suppress(ConnectionError):  # its server has closed it meanwhile
                return kept, _answer(kept, request)
        connection = _connect(request)
        return connection, _answer(connection, request)
    except _FAILURES as error:
        raise _broken(error) from error


def _answer(connection: _Connection, request: Request) -> HTTPResponse:
    limits, target, headers = request.limits, request.target, request.headers
    if request.proxy is not None and request.scheme == "http":
        target, headers = f"http://{request.authority}{target}", {**headers, **_proxy_headers(request.proxy)}
    connection.timeout = min(limits.read, limits.total)
    try:
        under = connection.sock.socket if isinstance(connection.sock, SSLTransport) else connection.sock
        assert isinstance(under, _Socket)
        under.begin(limits)
        connection.request(request.method, target, headers=headers)
        return http.client.HTTPConnection.getresponse(connection)  # that of urllib3 takes half as long again
    except BaseException:
        connection.close()
        raise


def _connect(request: Request) -> _Connection:
    """Connect to a checked address of a host, or to the proxy."""
    host, port = split_authority(request.authority)
    port, is_secure = port or PORTS[request.scheme], request.scheme == "https"
    context = _tls_context(ssl.get_default_verify_paths())
    options: dict[str, Any] = {"timeout": float(request.limits.connect)}
    if request.proxy is None:
        addresses = _look_up(request.authority, host, is_checked=request.is_checked)
        connection = _make(host, port, context if is_secure else None, options)
    else:
        proxy = urllib3.util.parse_url(request.proxy)
        assert proxy.host is not None
        addresses = [proxy.host.strip("[]")]
        to_proxy = proxy.host, proxy.port or PORTS[proxy.scheme or "http"]
        if is_secure:
            options |= {"proxy": proxy, "proxy_config": ProxyConfig(context, False, None, None)}
        connection = _make(*to_proxy, context if is_secure or proxy.scheme == "https" else None, options)
        if is_secure:
            connection.set_tunnel(host, port, _proxy_headers(request.proxy), proxy.scheme or "http")
    connection.addresses = addresses
    try:
        connection.connect()
    except BaseException as error:
        connection.close()
        if isinstance(error, ssl.SSLError):
            raise FailedError(f"its certificate is not accepted ({error})") from error
        if not isinstance(error, _FAILURES):
            raise
        what = "it gave no answer in time" if isinstance(error, TimeoutError) else "the connection was refused"
        if request.proxy is not None:
            what = "the proxy of the environment did not connect to it"
        raise FailedError(what, is_transient=True) from error
    return connection


def _make(host: str, port: int, context: ssl.SSLContext | None, options: dict[str, Any]) -> _Connection:
    if context is None:
        return _Connection(host, port, **options)
    return _SecureConnection(host, port, ssl_context=context, **options)


@lru_cache(maxsize=1)
def _tls_context(paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """Return what accepts certificates; the paths are those of the environment."""
    context = ssl.create_default_context()
    context.sslsocket_class = _SecureSocket
    return context


def _look_up(authority: str, host: str, *, is_checked: bool) -> list[str]:
    """Return the addresses to connect to, or the name if any address will do."""
    why, found = find_host(authority)
    if is_checked and why is not None:
        raise NotPublicError(why, str(found[0]) if found else None)
    if is_checked and not found:
        raise FailedError("its host name is not known", is_transient=True)
    return [str(address) for address in found] or [host]


def _proxy_headers(proxy: str) -> dict[str, str]:
    auth = urllib3.util.parse_url(proxy).auth
    return urllib3.make_headers(proxy_basic_auth=unquote(auth)) if auth else {}


_FAILURES = OSError, HTTPException, urllib3.exceptions.HTTPError


def _broken(error: Exception) -> FailedError:
    """Return what an error after connecting means, in the words that are used for obstore's."""
    if isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
        return FailedError("it gave no answer in time", is_transient=True)
    if isinstance(error, HTTPException) and not isinstance(error, ConnectionError):
        return FailedError(f"its answer is not HTTP ({str(error)[:300]})")
    return FailedError("the connection broke off", is_transient=True)


class _Kept:
    """Connections that may be used again, in the order of their last use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[tuple[tuple[object, ...], _Connection]] = []

    def keep(self, way: tuple[object, ...], connection: _Connection) -> None:
        with self._lock:
            self._all.append((way, connection))
            surplus = self._all.pop(0)[1] if len(self._all) > _MAX_KEPT else None
        if surplus is not None:
            surplus.close()

    def take(self, way: tuple[object, ...]) -> _Connection | None:
        """Return the connection that was used last, if its server has not closed it."""
        while True:
            with self._lock:
                n = next((n for n in reversed(range(len(self._all))) if self._all[n][0] == way), None)
                if n is None:
                    return None
                found = self._all.pop(n)[1]
            if found.is_connected:
                return found
            found.close()

    def forget(self) -> None:
        """Close all, such as in a forked child, whose parent goes on with its own ends."""
        self._lock = threading.Lock()
        for _, connection in self._all:
            connection.close()
        self._all.clear()


STATE = _Kept()
"""Connections of this process."""
in_forked_children(STATE.forget)


def proxies() -> dict[str, str]:
    """Return the proxies of the environment by scheme."""
    return urllib.request.getproxies()


def find_proxy(scheme: str, authority: str, known: dict[str, str], /) -> str | None:
    """Return the URL of the proxy for a host, or ``None``."""
    found = known.get(scheme) or known.get("all")
    if not found or urllib.request.proxy_bypass(authority):
        return None
    found = found if "://" in found else f"http://{found}"
    kind = found.partition("://")[0].lower()
    if kind not in ("http", "https"):
        raise StorageError(
            f"the environment names a proxy of the kind '{kind}', through which URLs of references are not read. Name "
            "one that begins with http:// or https://, or exclude the hosts: NO_PROXY"
        )
    return found
