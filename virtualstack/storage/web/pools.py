"""Keep connections to web servers: with urllib3, each to an address that was checked when the connection was made."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.connection import create_connection

from virtualstack.errors import StorageError
from virtualstack.forks import in_forked_children
from virtualstack.storage.hosts import Address, find_host, split_authority

__all__ = ["STATE", "NotPublicError", "find_proxy", "proxies", "send"]

_CONNECT_SECONDS, _READ_SECONDS, _TOTAL_SECONDS = 5.0, 10.0, 600.0  # as obstore's in `identity`
_NEXT_ADDRESS_SECONDS = 2.0  # seconds after which the next address of a host is tried
_MAX_HOSTS = 64  # hosts to which connections are kept
_MAX_KEPT = 120  # connections that are kept to one host: as many as threads read at the same time
_NO_RETRIES = urllib3.Retry(False)


class NotPublicError(Exception):
    """A connection to a host that is not public was refused. It is no ``OSError``, which urllib3 would translate.

    Parameters
    ----------
    why
        The reason, such as ``"is loopback"``.
    address
        The address, or ``None`` if the name alone is the reason.
    """

    def __init__(self, why: str, address: Address | None) -> None:
        super().__init__(why)
        self.why = why
        self.address = address


class _Timed(io.RawIOBase):
    """The bytes of a connection, up to a time: a server that sends a byte of its headers now and then has no end."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._end = time.monotonic() + _TOTAL_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if time.monotonic() > self._end:
            raise TimeoutError(f"the answer took more than {_TOTAL_SECONDS:.0f} s")
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_Timed(self.fp.detach()))


class _Http(HTTPConnection):
    response_class = _Answer


class _Https(HTTPSConnection):
    response_class = _Answer


def _connect(connection: Any) -> socket.socket:
    """Connect to one of the addresses of a host, if all of them are public."""
    host: str = connection._dns_host
    why, found = find_host(f"[{host}]" if ":" in host else host, is_needed=True)
    if why is not None:
        raise NotPublicError(why, found[0] if found else None)
    if not found:
        raise NameResolutionError(host, connection, socket.gaierror(socket.EAI_NONAME, "not known"))
    for address in found:
        limit = connection.timeout if address is found[-1] else min(connection.timeout, _NEXT_ADDRESS_SECONDS)
        try:
            made: socket.socket = create_connection(
                (str(address), connection.port), limit, socket_options=connection.socket_options
            )
        except TimeoutError as error:
            failed: Exception = ConnectTimeoutError(connection, f"no connection to {address} in {limit:.0f} s")
            failed.__cause__ = error
        except OSError as error:
            failed = NewConnectionError(connection, f"no connection to {address}: {error}")
            failed.__cause__ = error
        else:
            return made
    raise failed


class _CheckedHttp(_Http):
    def _new_conn(self) -> socket.socket:
        return _connect(self)


class _CheckedHttps(_Https):
    def _new_conn(self) -> socket.socket:
        return _connect(self)


def _pool_classes(of_http: type[HTTPConnection], of_https: type[HTTPSConnection]) -> dict[str, Any]:
    class Http(urllib3.HTTPConnectionPool):
        ConnectionCls = of_http

    class Https(urllib3.HTTPSConnectionPool):
        ConnectionCls = of_https

    return {"http": Http, "https": Https}


_POOL_CLASSES = {False: _pool_classes(_Http, _Https), True: _pool_classes(_CheckedHttp, _CheckedHttps)}


@dataclass(slots=True)
class _State:
    lock: threading.Lock = field(default_factory=threading.Lock)
    connections: dict[object, object] = field(default_factory=dict)
    managers: dict[object, urllib3.PoolManager] = field(default_factory=dict)
    inherited: list[object] = field(default_factory=list)


STATE = _State()
"""Connections of this process."""


@in_forked_children
def _forget_connections() -> None:
    # Their sockets are shared with the parent. They are kept, as their locks may be held by threads that are gone.
    inherited = [STATE.connections, STATE.managers, *STATE.inherited]
    STATE.lock, STATE.connections, STATE.managers, STATE.inherited = threading.Lock(), {}, {}, inherited


def proxies() -> dict[str, str]:
    """Return the proxies of the environment by scheme."""
    return urllib.request.getproxies()


def find_proxy(scheme: str, authority: str, known: dict[str, str], /) -> str | None:
    """Return the URL of the proxy for a host, or ``None``."""
    found = known.get(scheme) or known.get("all")
    if not found or urllib.request.proxy_bypass(authority):
        return None
    return found if "://" in found else f"http://{found}"


def send(
    method: str,
    scheme: str,
    authority: str,
    target: str,
    headers: dict[str, str],
    proxy: str | None,
    /,
    *,
    is_checked: bool,
) -> urllib3.BaseHTTPResponse:
    """Send a request, and return the answer with its body unread; redirects are not followed.

    Raises
    ------
    NotPublicError
        An address of the host is not public, and ``is_checked`` is true.
    urllib3.exceptions.HTTPError
        The request failed.
    """
    host, port = split_authority(authority)
    pool = _manager(scheme, proxy, is_checked=is_checked and proxy is None).connection_from_host(host, port, scheme)
    is_forwarded = proxy is not None and scheme == "http"
    return pool.urlopen(
        method,
        f"{scheme}://{authority}{target}" if is_forwarded else target,
        headers=headers,
        retries=_NO_RETRIES,
        redirect=False,
        assert_same_host=False,
        preload_content=False,
        decode_content=False,
    )


def _manager(scheme: str, proxy: str | None, *, is_checked: bool) -> urllib3.PoolManager:
    name = scheme, proxy, is_checked
    manager = STATE.managers.get(name)
    if manager is None:
        with STATE.lock:
            manager = STATE.managers.get(name)
            if manager is None:
                manager = STATE.managers[name] = _make_manager(scheme, proxy, is_checked=is_checked)
    return manager


def _make_manager(scheme: str, proxy: str | None, *, is_checked: bool) -> urllib3.PoolManager:
    options: dict[str, Any] = {
        "num_pools": _MAX_HOSTS,
        "maxsize": _MAX_KEPT,
        "timeout": urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
    }
    if scheme == "https":
        options["ssl_context"] = ssl.create_default_context()  # one for all, as it takes long to make
    manager = urllib3.PoolManager(**options) if proxy is None else _make_proxy_manager(proxy, options)
    manager.pool_classes_by_scheme = _POOL_CLASSES[is_checked]
    return manager


def _make_proxy_manager(proxy: str, options: dict[str, Any]) -> urllib3.ProxyManager:
    parts = urllib3.util.parse_url(proxy)
    if parts.scheme not in ("http", "https"):
        raise StorageError(
            f"the environment names a proxy of the kind '{parts.scheme}', through which URLs of references are not "
            "read. Name one that begins with http:// or https://, or exclude the hosts: NO_PROXY"
        )
    if parts.auth:
        options["proxy_headers"] = urllib3.util.make_headers(proxy_basic_auth=urllib.parse.unquote(parts.auth))
    return urllib3.ProxyManager(parts._replace(auth=None).url, **options)
