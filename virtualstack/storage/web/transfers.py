"""Send many HTTP requests at the same time with libcurl, each to an address that was checked when it was connected.

One thread sends all requests of a call. libcurl gives the address of each connection before it is made, and again
before a request is sent on a connection that was kept: both are checked here.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from operator import attrgetter
from typing import Any, Protocol

from virtualstack.errors import StorageError
from virtualstack.loading import pycurl_beside_eccodes
from virtualstack.storage.hosts import find_host, split_authority
from virtualstack.storage.threads import thread_pool
from virtualstack.system import in_forked_children

pycurl_beside_eccodes()
import pycurl  # noqa: E402

__all__ = [
    "PORTS",
    "STATE",
    "Answer",
    "EnoughError",
    "FailedError",
    "Limits",
    "NotPublicError",
    "Request",
    "Sink",
    "Steps",
    "find_proxy",
    "proxies",
    "run",
]

_MAX_REQUESTS = 120  # requests of this process at the same time, as of obstore in `remote`
_MAX_KEPT = 32  # sets of connections that are kept, each for one thread
_BUFFER_BYTES = 1 << 19
_MAX_THREADS, _BYTES_PER_THREAD = 12, 4 << 20  # of one call: on a busy machine, one thread copies too slowly
_WAIT_SECONDS = 1.0
_FD_SECONDS = 0.001
_GO_ON: int = pycurl.PREREQFUNC_OK
_STOP: int = pycurl.PREREQFUNC_ABORT
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
    """A connection to a host that is not public was refused.

    Parameters
    ----------
    why
        The reason, such as ``"is loopback"``.
    address
        The address, or ``None`` if the name alone is the reason.
    """

    def __init__(self, why: str, address: str | None) -> None:
        super().__init__(why)
        self.why = why
        self.address = address


class Sink(Protocol):
    """What takes the body of an answer."""

    def add(self, part: bytes, /) -> object:
        """Take a part of the body; an error breaks the answer off."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to wait for a connection, for the next bytes of an answer, and for a whole answer."""

    connect: float = 5.0
    read: float = 10.0
    total: float = 600.0


@dataclass(slots=True)
class Answer:
    """Status and headers of an answer, with names in lower case."""

    status: int
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """A request to one server; redirects are not followed.

    Parameters
    ----------
    method, scheme, authority, target
        Method, and the parts of the URL. ``target`` is sent as it is.
    headers
        Lines of the header.
    begin
        Function that is called with the answer before its body arrives, and returns what takes the body.
    limits
        How long to wait.
    proxy
        URL of the proxy, or ``None``.
    is_checked
        If true, the host must be public.
    """

    method: str
    scheme: str
    authority: str
    target: str
    headers: Sequence[str]
    begin: Callable[[Answer], Sink]
    limits: Limits = Limits()
    proxy: str | None = None
    is_checked: bool = True


type Steps[T] = Generator[Request, Answer, T]
"""Requests one after the other, such as those along redirects; each yields an answer whose body has been taken."""


class _Transfer:
    """A request that is being sent."""

    def __init__(self, number: int, steps: Steps[Any], handle: Any, sockets: list[socket.socket]) -> None:
        self.number = number
        self.steps = steps
        self.handle = handle
        self._sockets = sockets
        self.error: BaseException | None = None
        self._lines: list[bytes] = []
        self._answer: Answer | None = None

    def start(self, request: Request, checked: set[str], hosts: dict[tuple[str, str, bool], list[str]]) -> None:
        """Set the options of a request.

        Parameters
        ----------
        request
            The request.
        checked
            Addresses that are known to be public.
        hosts
            Results of `_look_up` by scheme, authority and whether the host must be public.

        Raises
        ------
        NotPublicError, FailedError
            The host is not public, or not known.
        """
        self.error, self._lines, self._answer = None, [], None
        self._request, self._checked = request, checked
        handle, is_checked = self.handle, request.is_checked and request.proxy is None
        self._is_checked = is_checked
        name = request.scheme, request.authority, is_checked
        if name not in hosts:
            hosts[name] = [] if request.proxy else _look_up(*name)
        handle.setopt(pycurl.RESOLVE, hosts[name])
        root = f"{request.scheme}://{request.authority}"
        handle.setopt(pycurl.URL, root)
        is_forwarded = request.proxy is not None and request.scheme == "http"
        handle.setopt(pycurl.REQUEST_TARGET, f"{root}{request.target}" if is_forwarded else request.target)
        handle.setopt(pycurl.NOBODY, request.method == "HEAD")
        handle.setopt(pycurl.HTTPHEADER, request.headers)
        handle.setopt(pycurl.PROXY, request.proxy or "")  # "": also none of the environment
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, math.ceil(1000 * request.limits.connect))
        handle.setopt(pycurl.LOW_SPEED_TIME, math.ceil(request.limits.read))
        handle.setopt(pycurl.TIMEOUT_MS, math.ceil(1000 * request.limits.total))
        handle.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
        handle.setopt(pycurl.PREREQFUNCTION, self._before)
        handle.setopt(pycurl.HEADERFUNCTION, self._lines.append)
        handle.setopt(pycurl.WRITEFUNCTION, self._take)

    def _open(self, purpose: int, address: Any) -> Any:
        """Make the socket for a connection to an address."""
        if not self._is_public(address.addr[0]):
            return pycurl.SOCKET_BAD
        self._sockets.append(_make_socket(address))
        return self._sockets[-1]

    def _before(self, ip: str, *_: object) -> int:
        """Return whether a request may be sent on a connection to an address."""
        return _GO_ON if self._is_public(ip) else _STOP

    def _is_public(self, ip: str) -> bool:
        if not self._is_checked or ip in self._checked:
            return True
        why, _ = find_host(f"[{ip}]" if ":" in ip else ip)
        if why is None:
            self._checked.add(ip)
            return True
        self.error = NotPublicError(why, ip)
        return False

    def _take(self, part: bytes) -> int:
        try:
            self._begun().add(part)
        except BaseException as error:  # noqa: BLE001 - libcurl would print it; it is raised where the call ends
            self.error = error
            return 0
        return len(part)

    def _begun(self) -> Sink:
        if self._answer is None:
            self._answer = _read_header(self._lines)
            self._sink = self._request.begin(self._answer)
        return self._sink

    def end(self, code: int, text: str) -> Request:
        """Pass the answer, or what went wrong, on to the steps, and return the next request.

        Raises
        ------
        StopIteration
            This was the last request; the error has the result.
        """
        if self.error is None and code == pycurl.E_OK:
            try:
                self._begun()  # of an answer without a body
            except Exception as error:  # noqa: BLE001 - the steps take every error
                self.error = error
        if isinstance(self.error, EnoughError):
            self.error, code = None, pycurl.E_OK
        if self.error is None and code != pycurl.E_OK:
            self.error = _failed(code, text, self.handle, is_proxied=self._request.proxy is not None)
        if self.error is not None:
            return self.steps.throw(self.error)
        assert self._answer is not None
        return self.steps.send(self._answer)


class EnoughError(Exception):
    """Raised by a `Sink` that needs no more of the body."""


class _Client:
    """Connections for one thread at a time."""

    def __init__(self) -> None:
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, _MAX_REQUESTS)
        self._handles: list[Any] = []
        self._checked: set[str] = set()
        self._sockets: list[socket.socket] = []

    @property
    def n_connections(self) -> int:
        """Largest number of requests that were sent at the same time."""
        return len(self._handles)

    def run(self, work: Sequence[Steps[Any]], slots: threading.Semaphore) -> list[Any]:
        """Make all steps; each result, or its error, is in the place of its steps."""
        self._found: list[Any] = [None] * len(work)
        self._active: dict[Any, _Transfer] = {}
        self._hosts: dict[tuple[str, str, bool], list[str]] = {}
        self._slots = slots
        waiting = deque(enumerate(work))
        try:
            while waiting or self._active:
                while waiting and len(self._active) < _MAX_REQUESTS and slots.acquire(blocking=not self._active):
                    handle = self._handles.pop() if self._handles else _make_handle()
                    self._active[handle] = transfer = _Transfer(*waiting.popleft(), handle, self._sockets)
                    self._go_on(transfer, partial(next, transfer.steps))
                self._multi.perform()
                while self._sockets:
                    self._sockets.pop().close()  # libcurl has duplicated it
                if not self._finish() and self._multi.select(_WAIT_SECONDS) <= 0:
                    time.sleep(_FD_SECONDS)  # select knows no descriptors above 1023
        finally:
            for handle in self._active:
                self._multi.remove_handle(handle)
                slots.release()
        found, self._found = self._found, []  # connections are kept, and answers are not
        return found

    def _finish(self) -> bool:
        """Go on with the transfers whose answers are complete, and return whether there were any."""
        _, succeeded, failed = self._multi.info_read(2 * _MAX_REQUESTS)
        for handle, code, text in [*((x, pycurl.E_OK, "") for x in succeeded), *failed]:
            self._multi.remove_handle(handle)
            transfer = self._active[handle]
            self._go_on(transfer, partial(transfer.end, code, text))
        return bool(succeeded or failed)

    def _go_on(self, transfer: _Transfer, step: Callable[[], Request]) -> None:
        """Make a step, and start its request; if there is none, keep the result."""
        try:
            while True:
                request = step()
                try:
                    transfer.start(request, self._checked, self._hosts)
                except (NotPublicError, FailedError) as error:
                    step = partial(transfer.steps.throw, error)
                else:
                    self._multi.add_handle(transfer.handle)
                    return
        except StopIteration as end:
            self._found[transfer.number] = end.value
        except Exception as error:  # noqa: BLE001 - it is the result
            self._found[transfer.number] = error
        del self._active[transfer.handle]
        self._handles.append(transfer.handle)
        transfer.__dict__.clear()  # the handle keeps the callbacks, and so the bytes of the answer
        self._slots.release()


@dataclass(slots=True)
class _State:
    lock: threading.Lock = field(default_factory=threading.Lock)
    connections: dict[object, object] = field(default_factory=dict)
    clients: list[_Client] = field(default_factory=list)
    slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_MAX_REQUESTS))
    inherited: list[object] = field(default_factory=list)


STATE = _State()
"""Connections of this process."""


@in_forked_children
def _forget_connections() -> None:
    # Their sockets are shared with the parent, and would be closed for it too if they were freed here.
    inherited = [STATE.connections, STATE.clients, *STATE.inherited]
    STATE.lock, STATE.connections, STATE.clients, STATE.inherited = threading.Lock(), {}, [], inherited
    STATE.slots = threading.Semaphore(_MAX_REQUESTS)


def run[T](work: Sequence[Steps[T]], /) -> list[T | Exception]:
    """Make all steps of several requests, up to 120 at a time, and return the result or the error of each."""
    state = STATE
    with state.lock:
        enough = [client for client in state.clients if client.n_connections >= len(work)]
        size = attrgetter("n_connections")
        best = min(enough, key=size) if enough else max(state.clients, key=size, default=None)
        if best is not None:
            state.clients.remove(best)
    client = _Client() if best is None else best
    found = client.run(work, state.slots)
    with state.lock:
        if len(state.clients) < _MAX_KEPT:
            state.clients.append(client)
    return found


def run_together[T](work: Sequence[Steps[T]], /, *, n_bytes: int) -> list[T | Exception]:
    """Make all steps of several requests as `run` does, in several threads if they bring many bytes."""
    n = min(_MAX_THREADS, len(work), n_bytes // _BYTES_PER_THREAD)
    if n < 2:
        return run(work)
    futures = [thread_pool("web", _MAX_REQUESTS).submit(run, work[i::n]) for i in range(n)]
    try:
        parts = [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()
    return [parts[i % n][i // n] for i in range(len(work))]


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


def _make_handle() -> Any:
    handle = pycurl.Curl()
    handle.setopt(pycurl.NOSIGNAL, True)
    handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    handle.setopt(pycurl.PATH_AS_IS, True)
    handle.setopt(pycurl.BUFFERSIZE, _BUFFER_BYTES)
    handle.setopt(pycurl.LOW_SPEED_LIMIT, 1)
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        _set(handle, pycurl.CAINFO, paths.cafile)
        _set(handle, pycurl.CAPATH, paths.capath)
    else:
        handle.setopt(pycurl.SSL_OPTIONS, pycurl.SSLOPT_NATIVE_CA)
    return handle


def _set(handle: Any, option: int, value: str | None) -> None:
    if value is None:
        handle.unsetopt(option)
    else:
        handle.setopt(option, value)


def _make_socket(address: Any) -> socket.socket:
    return socket.socket(address.family, address.socktype, address.protocol)


def _look_up(scheme: str, authority: str, is_checked: bool, /) -> list[str]:
    """Look up the name of a host, and return what libcurl takes, so that it connects to the addresses that were found.

    Raises
    ------
    NotPublicError, FailedError
        The host must be public and is not, or is not known.
    """
    why, found = find_host(authority)
    if is_checked and why is not None:
        raise NotPublicError(why, str(found[0]) if found else None)
    if is_checked and not found:
        raise FailedError("its host name is not known", is_transient=True)
    host, port = split_authority(authority)
    addresses = ",".join(f"[{x}]" if x.version == 6 else str(x) for x in found)
    return [f"{host}:{port or PORTS[scheme]}:{addresses}"] if found else []


_STATUS = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})")


def _read_header(lines: Sequence[bytes]) -> Answer:
    """Return the answer of the last header; a proxy, or the status 100, has one before it."""
    begin = max(i for i, line in enumerate(lines) if line.startswith(b"HTTP/"))
    match = _STATUS.match(lines[begin])
    headers: dict[str, str] = {}
    for line in lines[begin + 1 :]:
        name, mark, value = line.decode("latin-1").partition(":")
        if mark:
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Answer(int(match[1]) if match else 0, headers)


_MEANINGS = {
    pycurl.E_COULDNT_RESOLVE_HOST: "its host name is not known",
    pycurl.E_COULDNT_CONNECT: "the connection was refused",
    pycurl.E_OPERATION_TIMEDOUT: "it gave no answer in time",
    pycurl.E_PARTIAL_FILE: "the connection broke off",
    pycurl.E_GOT_NOTHING: "the connection broke off",
    pycurl.E_SEND_ERROR: "the connection broke off",
    pycurl.E_RECV_ERROR: "the connection broke off",
}
_CERTIFICATE = {pycurl.E_SSL_CONNECT_ERROR, pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE}


def _failed(code: int, text: str, handle: Any, *, is_proxied: bool) -> FailedError:
    """Return what an error of libcurl means, in the words that are used for obstore's."""
    told = handle.getinfo(pycurl.HTTP_CONNECTCODE) if is_proxied else 0
    no_proxy = code in (pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_CONNECT) and is_proxied
    if no_proxy or told not in (0, HTTPStatus.OK):
        return FailedError("the proxy of the environment did not connect to it", is_transient=True)
    if code in _CERTIFICATE:
        return FailedError(f"its certificate is not accepted ({text})")
    return FailedError(_MEANINGS.get(code, text[:300]), is_transient=code in _MEANINGS)
