"""Read from web servers of strangers: without credentials, and from checked addresses at every redirect.

The answers are checked, and requests are repeated, as `obstore` and `slow_servers` do it for URLs that users name.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import NoReturn
from urllib.parse import quote, urljoin

import urllib3
from urllib3.exceptions import HTTPError

from virtualstack.errors import ForbiddenLocationError, SourceNotFoundError, StorageError
from virtualstack.location import Location, split_url
from virtualstack.storage.hosts import is_host, why_not_public
from virtualstack.storage.identities.earthdata import is_archive
from virtualstack.storage.identities.identity import MAX_RETRIES, RETRY_SECONDS
from virtualstack.storage.named import advice
from virtualstack.storage.obstore_errors import RangesIgnoredError, UnsatisfiableError, what_was_answered
from virtualstack.storage.slow_servers import Busy, BusyError, Patience, read_retry_after
from virtualstack.storage.target import UnlistableError
from virtualstack.storage.web import pools

__all__ = ["WebConnection", "connect"]

_MAX_REDIRECTS = 10
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 3.0
_PART_BYTES = 1 << 18
_MAX_REFUSAL_BYTES = 4096  # of the body of a refusal or redirect; if it is longer, the connection is closed
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "virtualstack"}
_REDIRECTS = 301, 302, 303, 307, 308
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_IN_URLS = "%/:?#[]@!$&'()*+,;=~|^"  # characters of URLs that a quoted URL keeps
_MAX_CONNECTIONS = 256


class _FailedError(Exception):
    """A request without the wanted answer; its text says why."""

    def __init__(
        self, why: str, status: int | None = None, *, is_transient: bool = False, is_short: bool = False
    ) -> None:
        super().__init__(why)
        self.status = status
        self.is_transient = is_transient
        self.is_short = is_short
        self.retry_after: float | None = None


class WebConnection:
    """One web server, for any number of threads.

    Parameters
    ----------
    root
        URL of the server.
    allowed
        Beginnings of URLs whose hosts may be private.
    proxies
        Proxies of the environment by scheme.
    """

    is_web = True

    def __init__(self, root: str, allowed: tuple[str, ...], proxies: dict[str, str]) -> None:
        self.root = root
        self._allowed = allowed
        self._proxies = proxies
        self._may_need_login = is_archive(root)
        self._patience = Patience(root)
        self._busy = Busy(self._patience, headers=None)

    def get(self, url: str, key: str, start: int, stop: int) -> tuple[memoryview, Location]:
        """Read bytes ``start`` to ``stop`` (clipped at the end), and return them with the location of the object."""

        def ask() -> tuple[memoryview, Location]:
            with self._answer("GET", url, {**_HEADERS, "Range": f"bytes={start}-{stop - 1}"}) as answer:
                match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
                if answer.status != HTTPStatus.PARTIAL_CONTENT or match is None:
                    raise RangesIgnoredError(
                        f"'{url}': its server does not answer with the byte range that was requested. Use another",
                        url=url,
                    )
                first, last, size = map(int, match.groups())
                if (first, last + 1) != (start, min(stop, size)):
                    raise _FailedError(f"Requested {start}..{stop}, got {first}..{last + 1}", is_short=True)
                return self._patience.read(_arriving(answer), stop - start, url), _location(url, answer, size)

        return self._ask(url, ask)

    def get_object(self, url: str, key: str, check: Callable[[int], None]) -> tuple[memoryview, Location]:
        """Read a whole object; its size is checked before its bytes are read."""

        def ask() -> tuple[memoryview, Location]:
            with self._answer("GET", url, _HEADERS) as answer:
                size = _stated_size(answer)
                check(size)
                return self._patience.read(_arriving(answer), size, url), _location(url, answer, size)

        return self._ask(url, ask)

    def look_up(self, url: str, key: str) -> Location:
        """Return size, etag and time of an object; if HEAD fails, its first byte is requested."""

        def ask() -> Location:
            with self._answer("HEAD", url, _HEADERS) as answer:
                return _location(url, answer, _stated_size(answer))

        try:
            return self._ask(url, ask)
        except ForbiddenLocationError:
            raise
        except StorageError:
            pass
        try:
            return self.get(url, key, 0, 1)[1]
        except UnsatisfiableError:
            return Location(url, size=0)

    def list(self, url: str, prefix: str) -> NoReturn:
        """Raise an error: a web server cannot list its files."""
        raise UnlistableError.at(url)

    def first(self, url: str, prefix: str) -> NoReturn:
        """Raise an error, as `list` does."""
        raise UnlistableError.at(url)

    def folders(self, url: str, prefix: str) -> NoReturn:
        """Raise an error, as `list` does."""
        raise UnlistableError.at(url)

    def contents(self, url: str, prefix: str) -> NoReturn:
        """Raise an error, as `list` does."""
        raise UnlistableError.at(url)

    def put(self, url: str, key: str, data: bytes | bytearray | memoryview, *, create: bool) -> NoReturn:
        """Raise an error: nothing is written where strangers' references lead."""
        raise StorageError(f"'{url}' is only read, as references name it. Open the URL itself to write", url=url)

    def delete(self, url: str, key: str) -> NoReturn:
        """Raise an error: nothing is deleted where strangers' references lead."""
        raise StorageError(f"'{url}' is only read, as references name it. Open the URL itself to delete it", url=url)

    def _ask[T](self, url: str, ask: Callable[[], T]) -> T:
        return self._busy.ask(url, lambda: self._repeat(url, ask))

    def _repeat[T](self, url: str, ask: Callable[[], T]) -> T:
        """Send a request, and repeat it a few times after failures that may pass."""
        began, n, pause = time.monotonic(), 0, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return ask()
            except _FailedError as error:
                is_late = n >= MAX_RETRIES or time.monotonic() - began > RETRY_SECONDS
                if not error.is_transient or is_late or error.retry_after is not None:
                    self._raise(url, error, f" (after {n} retries)" if n else "")
            time.sleep(pause)
            n, pause = n + 1, min(2 * pause, _MAX_PAUSE_SECONDS)

    @contextmanager
    def _answer(self, method: str, url: str, headers: dict[str, str]) -> Iterator[urllib3.BaseHTTPResponse]:
        """Send a request where redirects lead, and yield the answer if it is a success."""
        hop = url
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                with closing(self._send(method, hop, headers, url)) as answer:
                    if answer.status in _REDIRECTS and "Location" in answer.headers:
                        hop = self._redirect(hop, answer, url)
                    elif answer.status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                        if self._may_need_login and answer.headers.get("Content-Type", "").startswith("text/html"):
                            page = "the server sent a page for people, as that of a login"
                            raise _FailedError(page, HTTPStatus.UNAUTHORIZED)
                        yield answer
                        return
                    else:
                        raise _refusal(answer)
        except HTTPError as error:
            raise _FailedError(_meaning(error), is_transient=_is_transient(error)) from error
        raise _FailedError(f"its redirects form a loop, or are more than {_MAX_REDIRECTS}")

    def _send(self, method: str, hop: str, headers: dict[str, str], url: str) -> urllib3.BaseHTTPResponse:
        scheme, authority, target = _split(hop, url)
        is_allowed = any(f"{hop}/".startswith(f"{place.rstrip('/')}/") for place in self._allowed)
        proxy = pools.find_proxy(scheme, authority, self._proxies)
        if proxy is not None and not is_allowed and (why := why_not_public(authority)):
            raise _forbidden(url, hop, f"on a host that {why}")
        try:
            return pools.send(method, scheme, authority, target, headers, proxy, is_checked=not is_allowed)
        except pools.NotPublicError as error:
            where = f"at {error.address}, which" if error.address else "on a host that"
            raise _forbidden(url, hop, f"{where} {error.why}") from error

    def _redirect(self, hop: str, answer: urllib3.BaseHTTPResponse, url: str) -> str:
        """Return where an answer leads."""
        _some_text(answer)
        location = quote(answer.headers["Location"], safe=_IN_URLS, encoding="latin-1")
        target = urljoin(hop, location)
        if hop.lower().startswith("https://") and not target.lower().startswith("https://"):
            raise StorageError(
                f"'{url}' could not be read: its redirects lead to an http:// address ('{target}'), which is not "
                f"followed from https://. To allow it, give "
                f'storage={{"{self.root}": {{"allow_http": True}}}}',
                url=url,
            )
        return target

    def _raise(self, url: str, error: _FailedError, suffix: str) -> NoReturn:
        status, answer = error.status, f"{error}{suffix}"
        if status == HTTPStatus.NOT_FOUND:
            raise SourceNotFoundError(
                f"there is nothing at '{url}': {answer}. Check the URL, and that the object was not moved", url=url
            ) from error
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise StorageError(
                f"access denied: '{url}' ({answer}). {advice(self.root)}",
                url=url,
                status=status,
            ) from PermissionError(url)
        if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise UnsatisfiableError(f"'{url}' has no such bytes: {answer}. Scan it again", url=url) from error
        message = f"'{url}' could not be read: {answer}. Try again later, or download it first"
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            busy = BusyError(message, url=url, status=status)
            busy.retry_after = error.retry_after
            raise busy from error
        raise StorageError(message, url=url, status=status, is_short=error.is_short) from error


def connect(url: str, allowed: tuple[str, ...], /) -> WebConnection:
    """Return the connection that serves a URL: see `PublicWeb`."""
    root, proxies = split_url(url)[0], pools.proxies()
    name = (root, allowed, tuple(sorted(proxies.items())))
    with pools.STATE.lock:
        connections = pools.STATE.connections
        if name not in connections:
            while len(connections) >= _MAX_CONNECTIONS:
                del connections[next(iter(connections))]
            connections[name] = WebConnection(root, allowed, proxies)
        found = connections[name]
    assert isinstance(found, WebConnection)
    return found


def _split(hop: str, url: str) -> tuple[str, str, str]:
    """Split a URL into scheme, authority and target, as strictly as references are checked."""
    match = _URL.fullmatch(hop)
    if match is None or not is_host(match[2]):
        raise ForbiddenLocationError(
            f"'{url}' leads to '{hop}', which is not the plain URL of a web server. Ask who wrote the references",
            url=url,
        )
    return match[1].lower(), match[2].lower(), match[3] if match[3].startswith("/") else f"/{match[3]}"


def _forbidden(url: str, hop: str, where: str) -> ForbiddenLocationError:
    leads = "" if hop == url else f"redirects to '{hop}' "
    place = split_url(hop)[0]
    return ForbiddenLocationError(
        f"'{url}', which references name, {leads or 'is '}{where}. If it may be read, open the references with "
        f'allow=["{place}"], or grant it with the command: virtualstack allow {shlex.quote(place)}',
        url=url,
    )


def _arriving(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    while part := answer.read1(_PART_BYTES):
        yield part


def _some_text(answer: urllib3.BaseHTTPResponse) -> str:
    """Read the beginning of a body; if this is all, the connection can be used again."""
    data = b""
    for part in _arriving(answer):
        data += part
        if len(data) > _MAX_REFUSAL_BYTES:
            break
    return data[:_MAX_REFUSAL_BYTES].decode("utf-8", "replace")


def _refusal(answer: urllib3.BaseHTTPResponse) -> _FailedError:
    status = answer.status
    phrase = HTTPStatus(status).phrase if status in HTTPStatus else ""
    is_busy = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    text = what_was_answered(f"status code: {status} {phrase}: {_some_text(answer)}")
    failed = _FailedError(text, status, is_transient=is_busy and status != HTTPStatus.NOT_IMPLEMENTED)
    failed.retry_after = read_retry_after(answer.headers)
    return failed


def _meaning(error: HTTPError) -> str:
    """Return what an error of urllib3 means, in the words that are used for obstore's."""
    kinds = urllib3.exceptions
    for kind, meaning in (
        (kinds.NameResolutionError, "its host name is not known"),
        (kinds.NewConnectionError, "the connection was refused"),  # before its base class of timeouts
        (kinds.TimeoutError, "it gave no answer in time"),
        (kinds.ProxyError, "the proxy of the environment did not connect to it"),
        (kinds.ProtocolError, "the connection broke off"),
    ):
        if isinstance(error, kind):
            return meaning
    if isinstance(error, kinds.SSLError):
        return f"its certificate is not accepted ({error})"
    return f"{error}"[:300]


def _is_transient(error: HTTPError) -> bool:
    kinds = urllib3.exceptions
    return isinstance(error, (kinds.TimeoutError, kinds.NewConnectionError, kinds.ProxyError, kinds.ProtocolError))


def _stated_size(answer: urllib3.BaseHTTPResponse) -> int:
    text = answer.headers.get("Content-Length", "")
    if not re.fullmatch("[0-9]{1,18}", text):
        raise _FailedError("its server does not report its size")
    return int(text)


def _location(url: str, answer: urllib3.BaseHTTPResponse, size: int) -> Location:
    return Location(url, size, answer.headers.get("ETag"), _time(answer.headers.get("Last-Modified", "")))


@lru_cache(maxsize=1024)
def _time(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() or None  # 0: unknown
    except (ValueError, OverflowError):
        return None
