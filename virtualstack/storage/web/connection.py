"""Read from web servers of strangers: without credentials, and from checked addresses at every redirect.

The answers are checked, and requests are repeated, as `obstore` and `slow_servers` do it for URLs that users name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import NoReturn
from urllib.parse import quote, urljoin

from virtualstack.errors import AccessDeniedError, ForbiddenLocationError, Remedy, StorageError
from virtualstack.location import Location, split_url, way_out
from virtualstack.storage.hosts import find_host, is_host
from virtualstack.storage.identities.earthdata import is_archive
from virtualstack.storage.identities.identity import MAX_RETRIES, RETRY_SECONDS
from virtualstack.storage.named import advice, options_at, places
from virtualstack.storage.obstore_errors import RangesIgnoredError, missing_at, what_was_answered
from virtualstack.storage.signatures import QUERY, login_remedies, signed
from virtualstack.storage.slow_servers import Busy, BusyError, Patience, read_retry_after
from virtualstack.storage.web.transfers import (
    PORTS,
    Answer,
    FailedError,
    Limits,
    NotPublicError,
    Request,
    find_proxy,
    proxies,
    sent,
)

_MAX_REDIRECTS = 10
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 3.0
_MAX_REFUSAL_BYTES = 4096  # of the body of a refusal or redirect; if it is longer, the connection is closed
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "virtualstack"}
_SUCCESSES = HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT
_REDIRECTS = 301, 302, 303, 307, 308
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_IN_URLS = "%/:?#[]@!$&'()*+,;=~|^"  # characters of URLs that a quoted URL keeps
_MAX_CONNECTIONS = 256


class WebConnection:
    """One web server, for any number of threads."""

    is_web = True

    def __init__(
        self,
        root: str,
        allowed: tuple[str, ...],
        options: Mapping[str, object],
        proxies: dict[str, str],
        headers: tuple[tuple[str, str], ...],
    ) -> None:
        self.root = root
        self._plain_root = _plain(root)
        self._headers = {name.lower(): value for name, value in headers}
        self._allowed = tuple(f"{_plain(place).rstrip('/')}/" for place in allowed)
        self._proxies = proxies
        self._may_need_login = is_archive(root)
        self._patience = Patience.from_options(options, root)
        self._options = options
        names = {"connect": "connect_timeout", "read": "read_timeout", "total": "timeout"}
        self._limits = Limits(**{x: _seconds(options[name], name) for x, name in names.items() if name in options})
        self._max_retries = int(str(options.get("max_retries", MAX_RETRIES)))
        self._retry_seconds = float(str(options.get("retry_timeout", RETRY_SECONDS)))
        self._busy = Busy(self._patience)

    def get(self, url: str, key: str, start: int, stop: int) -> tuple[memoryview, Location]:
        """Read bytes ``start`` to ``stop`` (clipped at the end), and return them with the location of the object."""
        return self._ask(url, lambda: self._range(url, start, stop))

    def get_object(self, url: str, key: str, check: Callable[[int], None]) -> tuple[memoryview, Location]:
        """Read a whole object; its size is checked before its bytes are read."""

        def begin(answer: Answer) -> int:
            size = _stated_size(answer)
            check(size)
            return size

        def read() -> tuple[memoryview, Location]:
            answer, data = self._follow("GET", url, {}, begin)
            return data, _location(url, answer, _stated_size(answer))

        return self._ask(url, read)

    def look_up(self, url: str, key: str) -> Location:
        """Return size, etag and time of an object."""

        def read() -> Location:
            answer, _ = self._follow("HEAD", url, {}, lambda answer: 0)
            return _location(url, answer, _stated_size(answer))

        return self._ask(url, read)

    def _range(self, url: str, start: int, stop: int) -> tuple[memoryview, Location]:
        size = 0

        def begin(answer: Answer) -> int:
            nonlocal size
            match = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
            if answer.status != HTTPStatus.PARTIAL_CONTENT or match is None:
                raise RangesIgnoredError(
                    f"'{url}': its server returned another byte range than was requested. Download the file first, "
                    "or use another server",
                    url=url,
                )
            first, last, size = map(int, match.groups())
            if (first, last + 1) != (start, min(stop, size)):
                raise FailedError(f"Requested {start}..{stop}, got {first}..{last + 1}", is_short=True)
            return stop - start

        answer, data = self._follow("GET", url, {"Range": f"bytes={start}-{stop - 1}"}, begin)
        return data, _location(url, answer, size)

    def _follow(
        self, method: str, url: str, headers: Mapping[str, str], begin: Callable[[Answer], int]
    ) -> tuple[Answer, memoryview]:
        """Send a request where redirects lead, and return the answer, which is a success, and its body.

        ``begin`` checks the headers, and returns how long the body may be.
        """
        hop = signed(url, self._options)
        for _ in range(_MAX_REDIRECTS + 1):
            try:
                with sent(self._request(method, hop, url, headers)) as answer:
                    if answer.status in _SUCCESSES:
                        if self._may_need_login and answer.headers.get("content-type", "").startswith("text/html"):
                            why = "the server sent a page for people, as that of a login"
                            raise FailedError(why, HTTPStatus.UNAUTHORIZED)
                        return answer, self._patience.read(answer.parts(), begin(answer), url)
                    said = _beginning(answer)
            except NotPublicError as error:
                where = f"at {error.address}, which" if error.address else "on a host that"
                raise _forbidden(url, hop, f"{where} {error.why}") from error
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                raise _refusal(answer, said)
            hop = self._redirect(hop, answer.headers["location"], url)
        raise FailedError(f"its redirects form a loop, or are more than {_MAX_REDIRECTS}")

    def _request(self, method: str, hop: str, url: str, headers: Mapping[str, str]) -> Request:
        scheme, authority, target = _split(hop, url)
        path = "/" if way_out(hop) else target  # such a path may leave a folder, but not its server
        is_allowed = f"{_plain(f'{scheme}://{authority}{path}')}/".startswith(self._allowed)
        proxy = find_proxy(scheme, authority, self._proxies)
        if proxy is not None and not is_allowed and (why := find_host(authority)[0]):
            raise _forbidden(url, hop, f"on a host that {why}")
        own = self._headers if _plain(f"{scheme}://{authority}/") == self._plain_root else {}
        return Request(
            method, scheme, authority, target, {**_HEADERS, **headers, **own}, self._limits, proxy, not is_allowed
        )

    def _redirect(self, hop: str, location: str, url: str) -> str:
        """Return where an answer leads."""
        target = urljoin(hop, quote(location, safe=_IN_URLS, encoding="latin-1"))
        if hop.lower().startswith("https://") and not target.lower().startswith("https://"):
            raise StorageError(
                f"'{url}' could not be read: its redirects lead to an http:// address ('{target}'), which is not "
                f"followed from https://",
                Remedy("to allow it, give", storage=options_at(self.root, allow_http=True)),
                url=url,
            )
        return target

    def _ask[T](self, url: str, read: Callable[[], T]) -> T:
        return self._busy.ask(url, lambda: self._repeat(url, read))

    def _repeat[T](self, url: str, read: Callable[[], T]) -> T:
        """Send a request, and repeat it a few times after failures that may pass."""
        began, n, pause = time.monotonic(), 0, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return read()
            except FailedError as error:
                is_late = n >= self._max_retries or time.monotonic() - began > self._retry_seconds
                if not error.is_transient or is_late or error.retry_after is not None:
                    self._raise(url, error, f" (after {n} {'retry' if n == 1 else 'retries'})" if n else "")
            time.sleep(pause)
            n, pause = n + 1, min(2 * pause, _MAX_PAUSE_SECONDS)

    def _raise(self, url: str, error: FailedError, suffix: str) -> NoReturn:
        status, answer = error.status, f"{error}{suffix}"
        if missing := missing_at(url, status, answer):
            raise missing from error
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise AccessDeniedError(
                f"access denied: '{url}' ({answer})", *self._advice(), url=url, status=status
            ) from error
        message = f"'{url}' could not be read: {answer}. Try again later, or download it first"
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            busy = BusyError(message, url=url, status=status)
            busy.retry_after = error.retry_after
            raise busy from error
        raise StorageError(message, url=url, status=status, is_short=error.is_short) from error

    def _advice(self) -> tuple[Remedy, ...]:
        """Return how to send credentials to a server that refuses a request."""
        if not self._plain_root.startswith(self._allowed):
            return (advice(self.root),)
        return login_remedies(self.root, is_signed=QUERY in self._options)


@lru_cache(maxsize=_MAX_CONNECTIONS)
def _connection(
    root: str,
    allowed: tuple[str, ...],
    waiting: tuple[tuple[str, object], ...],
    headers: tuple[tuple[str, str], ...],
    proxies: tuple[tuple[str, str], ...],
) -> WebConnection:
    return WebConnection(root, allowed, dict(waiting), dict(proxies), headers)


def connect(
    url: str, allowed: tuple[str, ...], waiting: tuple[tuple[str, object], ...], headers: tuple[tuple[str, str], ...], /
) -> WebConnection:
    """Return the connection that serves a URL: see `PublicWeb`."""
    return _connection(split_url(url)[0], allowed, waiting, headers, tuple(sorted(proxies().items())))


def _plain(url: str) -> str:
    """Return a URL with its host in lower case and without the default port of its scheme."""
    scheme, mark, rest = url.partition("://")
    authority, slash, key = rest.partition("/")
    authority = authority.lower().removesuffix(f":{PORTS.get(scheme.lower())}")
    return f"{scheme.lower()}{mark}{authority}{slash}{key}"


def _seconds(value: object, name: str) -> float:
    """Return the seconds of an option that obstore also takes: a duration, or a text such as ``"1m 30s"``."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    parts = re.findall(r"([0-9]+) *([a-z]+)", str(value))
    if not parts or any(unit not in _UNITS for _, unit in parts):
        raise StorageError(f'{name}={value!r} in storage= is not a duration; give one such as "30s"')
    return sum(int(number) * _UNITS[unit] for number, unit in parts)


_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def _split(hop: str, url: str) -> tuple[str, str, str]:
    """Split a URL into scheme, authority and target, as strictly as references are checked."""
    match = _URL.fullmatch(hop)
    if match is None or not is_host(match[2]):
        raise ForbiddenLocationError(
            f"'{url}' leads to '{hop}', which is not the plain URL of a web server",
            Remedy("ask who wrote the references"),
            url=url,
        )
    target = quote(match[3], safe=_IN_URLS)
    return match[1].lower(), match[2].lower(), target if target.startswith("/") else f"/{target}"


def _forbidden(url: str, hop: str, where: str) -> ForbiddenLocationError:
    leads = "" if hop == url else f"redirects to '{hop}' "
    place = split_url(hop)[0]
    return ForbiddenLocationError(
        f"'{url}', which references name, {leads or 'is '}{where}",
        Remedy("open them with", allow=places(place)),
        url=url,
    )


def _beginning(answer: Answer) -> bytes:
    """Read the beginning of a body of which no more is needed, such as that of a refusal."""
    said = b""
    for part in answer.parts():
        said += part
        if len(said) > _MAX_REFUSAL_BYTES:
            break
    return said[:_MAX_REFUSAL_BYTES]


def _refusal(answer: Answer, body: bytes) -> FailedError:
    status = answer.status
    phrase = HTTPStatus(status).phrase if status in HTTPStatus else ""
    is_busy = status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    said = body.decode("utf-8", "replace")
    text = what_was_answered(f"status code: {status} {phrase}: {said}")
    failed = FailedError(text, status, is_transient=is_busy and status != HTTPStatus.NOT_IMPLEMENTED)
    failed.retry_after = read_retry_after(answer.headers)
    return failed


def _stated_size(answer: Answer) -> int:
    text = answer.headers.get("content-length", "")
    if not re.fullmatch("[0-9]{1,18}", text):
        raise FailedError("its server does not report its size")
    return int(text)


def _location(url: str, answer: Answer, size: int) -> Location:
    return Location(url, size, answer.headers.get("etag"), _time(answer.headers.get("last-modified", "")))


@lru_cache(maxsize=1024)
def _time(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() or None  # 0: unknown
    except (ValueError, OverflowError):
        return None
