"""Log in to NASA Earthdata, for the web servers of its archives and for their buckets.

An archive sends a client without a login on to the login server (``urs.earthdata.nasa.gov``), which sends it back with
a code; the archive then gives it a cookie. obstore follows redirects but keeps no cookies. So the login is done here,
when it is needed, and obstore's requests carry the cookie. Tokens are sent to the archive itself, which knows them.

Name and password are sent to the login server only, a token to the login server and to the archive, and a cookie to the
host that set it; all of them only by https. Every redirect is followed by hand, so that none carries them elsewhere.
obstore drops them at a redirect to another host.
"""

from __future__ import annotations

import base64
import http.client
import http.cookiejar
import json
import math
import netrc
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from virtualstack.errors import StorageError
from virtualstack.storage.source import RequestRefusedError
from virtualstack.system import IS_WINDOWS

DEFAULT_LOGIN_HOST = "urs.earthdata.nasa.gov"
REGION = "us-west-2"
"""Region of the buckets of all archives; their credentials are accepted only from within it."""

_ARCHIVES = (
    "earthdata.nasa.gov", "earthdatacloud.nasa.gov", "eosdis.nasa.gov", "ecs.nsidc.org", "e4ftl01.cr.usgs.gov",
    "asf.alaska.edu", "daac.ornl.gov", "oceandata.sci.gsfc.nasa.gov", "asdc.larc.nasa.gov", "opendap.larc.nasa.gov",
    "gesdisc.eosdis.nasa.gov",
)  # fmt: skip
_BUCKETS = {  # the archives' own names of buckets, and who gives credentials for them
    "asdc-prod-": "data.asdc.earthdata.nasa.gov",
    "asf-cumulus-prod-": "cumulus.asf.alaska.edu",
    "asf-ngap2w-p-": "sentinel1.asf.alaska.edu",
    "gesdisc-cumulus-prod-": "data.gesdisc.earthdata.nasa.gov",
    "ghrcw-": "data.ghrc.earthdata.nasa.gov",
    "lp-prod-": "data.lpdaac.earthdatacloud.nasa.gov",
    "nsidc-cumulus-prod-": "data.nsidc.earthdatacloud.nasa.gov",
    "ob-cumulus-prod-": "obdaac-tea.earthdatacloud.nasa.gov",
    "ornl-cumulus-prod-": "data.ornldaac.earthdata.nasa.gov",
    "podaac-ops-cumulus-": "archive.podaac.earthdata.nasa.gov",
    "prod-lads": "data.laadsdaac.earthdatacloud.nasa.gov",
}
_MAX_HOPS = 12
_MAX_ANSWER_BYTES = 64 * 1024
_TIMEOUT_SECONDS = 20
_PAUSE_SECONDS = 60.0  # seconds after a login that failed or changed nothing
_REDIRECTS = 301, 302, 303, 307, 308


@dataclass(frozen=True, slots=True)
class Login:
    """What a user has for the login server: a token, or a name and a password.

    Parameters
    ----------
    name
        Where it comes from, for messages.
    token, user, password
        The secrets, which are never part of a repr.
    """

    name: str
    token: str | None = field(default=None, repr=False)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


def is_archive(root: str, /) -> bool:
    """Return whether the host of a URL belongs to an archive of NASA Earthdata.

    >>> is_archive("https://data.nsidc.earthdatacloud.nasa.gov/x"), is_archive("https://earthdata.nasa.gov.evil.org/")
    (True, False)
    """
    host = (urlsplit(root).hostname or "").removesuffix(".")
    return any(host == archive or host.endswith("." + archive) for archive in _ARCHIVES)


def credentials_url(root: str, /) -> str | None:
    """Return the URL that gives credentials for a bucket, or ``None`` if the bucket is not known as one of NASA's.

    >>> credentials_url("s3://podaac-ops-cumulus-protected/")
    'https://archive.podaac.earthdata.nasa.gov/s3credentials'
    """
    bucket = root.partition("://")[2]
    host = next((host for prefix, host in _BUCKETS.items() if bucket.startswith(prefix)), None)
    return None if host is None else f"https://{host}/s3credentials"


def login_host(environ: Mapping[str, str], /) -> str:
    """Return the host of the login server, which ``EARTHDATA_HOST`` may name."""
    return environ.get("EARTHDATA_HOST") or DEFAULT_LOGIN_HOST


def logins(options: Mapping[str, Any], environ: Mapping[str, str], /) -> tuple[Login, ...]:
    """Return the logins to try, in order: those of the options only, or those of the environment and of ``.netrc``."""
    token = options.get("token") or options.get("bearer_token")
    if token:
        return (Login("the Earthdata token in storage=", token=str(token)),)
    if "username" in options:
        name, secret = str(options["username"]), str(options.get("password", ""))
        return (Login(f"the Earthdata user '{name}' in storage=", user=name, password=secret),)
    found: list[Login] = []
    if environ.get("EARTHDATA_TOKEN"):
        found.append(Login("the Earthdata token in EARTHDATA_TOKEN", token=environ["EARTHDATA_TOKEN"].strip()))
    user, password = environ.get("EARTHDATA_USERNAME"), environ.get("EARTHDATA_PASSWORD")
    if user and password:
        found.append(Login(f"the Earthdata user '{user}' in EARTHDATA_USERNAME", user=user, password=password))
    path = Path(environ.get("NETRC") or ("~/_netrc" if IS_WINDOWS else "~/.netrc")).expanduser()
    if (entry := _netrc_entry(path, login_host(environ))) is not None:
        found.append(Login(f"the Earthdata user '{entry[0]}' in '{path}'", user=entry[0], password=entry[1]))
    return tuple(found)


def _netrc_entry(path: Path, host: str) -> tuple[str, str] | None:
    try:
        hosts = netrc.netrc(path).hosts
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    entry = hosts.get(host) or hosts.get(host.partition(":")[0])
    return None if entry is None or not entry[2] else (entry[0], entry[2])


class Session:
    """A login at one archive. It is safe to use from many threads."""

    def __init__(self, login: Login, host: str, /) -> None:
        self._login = login
        self._host = host
        self._jar = http.cookiejar.CookieJar()
        opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPCookieProcessor(self._jar))
        self._opener = opener
        self._lock = threading.Lock()
        self._n_logins = 0
        self._failed: tuple[float, str] | None = None
        self._quiet_until = -math.inf

    @property
    def n_logins(self) -> int:
        """Number of logins so far; see `log_in`."""
        return self._n_logins

    def headers(self, url: str, /) -> dict[str, str]:
        """Return the headers for requests to the host of a URL: the token, and cookies of a login."""
        found = self._token(url)
        request = urllib.request.Request(url)
        with self._lock:
            self._jar.add_cookie_header(request)
        cookie = request.get_header("Cookie")
        return found if cookie is None else {**found, "Cookie": cookie}

    def log_in(self, url: str, n_logins: int, /, *, is_refused: bool) -> bool:
        """Log in for a URL, and return whether requests to it now have other headers.

        A login that failed is not tried again for a minute, as the login server locks users out after many failures.
        """
        with self._lock:
            if self._n_logins != n_logins:
                return True
            now = time.monotonic()
            if not is_refused and now < self._quiet_until:
                return False
            before = self._cookies()
            self._get(url, {"Range": "bytes=0-0"})
            self._n_logins += 1
            is_new = before != self._cookies()
            self._quiet_until = -math.inf if is_new else now + _PAUSE_SECONDS
            return is_new

    def _cookies(self) -> set[tuple[str, str, str | None]]:
        return {(cookie.domain, cookie.name, cookie.value) for cookie in self._jar}

    def fetch(self, url: str, /) -> bytes:
        """Return the answer to a URL of an archive, of at most 64 KiB, with a login if the archive asks for it."""
        with self._lock:
            return self._get(url, {})

    def _get(self, url: str, headers: Mapping[str, str]) -> bytes:
        now = time.monotonic()
        if self._failed is not None and now < self._failed[0]:
            raise RequestRefusedError(self._failed[1], url=url)
        try:
            return self._follow(url, headers)
        except RequestRefusedError as error:
            self._failed = now + _PAUSE_SECONDS, str(error)
            raise

    def _follow(self, first: str, headers: Mapping[str, str]) -> bytes:
        url = first
        for _ in range(_MAX_HOPS):
            status, target, body = self._ask(url, {**headers, **self._secret(url, first)})
            if target is None:
                break
            url = urljoin(url, target)
            if _place(url) not in (_place(first), self._host) or urlsplit(url).scheme not in _schemes(first):
                return b""  # the archive sends the client on to its data, which needs no login
        where = _place(url)
        if target is not None:
            raise RequestRefusedError(f"the login at '{where}' is redirected without end", url=first)
        if where == self._host or status in (401, 403):
            raise RequestRefusedError(f"'{where}' did not accept it (status {status}). {_ADVICE}", url=first)
        if status >= 400:
            raise RequestRefusedError(f"'{where}' answered {status} after the login", url=first)
        return body

    def _ask(self, url: str, headers: Mapping[str, str]) -> tuple[int, str | None, bytes]:
        try:
            try:
                answer = self._opener.open(urllib.request.Request(url, headers=dict(headers)), timeout=_TIMEOUT_SECONDS)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                target = answer.headers.get("Location") if answer.status in _REDIRECTS else None
                return answer.status, target, answer.read(_MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RequestRefusedError(f"'{_place(url)}' could not be reached to log in: {error}", url=url) from error

    def _secret(self, url: str, first: str) -> dict[str, str]:
        if _place(url) == self._host and _is_private(url):
            if self._login.token is not None:
                return {"Authorization": f"Bearer {self._login.token}"}
            pair = f"{self._login.user}:{self._login.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return self._token(url) if _place(url) == _place(first) else {}

    def _token(self, url: str) -> dict[str, str]:
        if self._login.token is None or not _is_private(url):
            return {}
        return {"Authorization": f"Bearer {self._login.token}"}


_ADVICE = (
    "Check it at https://urs.earthdata.nasa.gov, and that you have accepted the terms of this archive under "
    "'Applications' there"
)


def temporary_keys(url: str, session: Session, /) -> Callable[[], dict[str, Any]]:
    """Return a provider of temporary keys for buckets, which an archive gives; obstore asks again in time."""

    def ask() -> dict[str, Any]:
        try:
            answer = json.loads(session.fetch(url))
            return {
                "access_key_id": answer["accessKeyId"],
                "secret_access_key": answer["secretAccessKey"],
                "token": answer["sessionToken"],
                "expires_at": datetime.fromisoformat(answer["expiration"]),
            }
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(f"'{url}' returned no credentials for buckets", url=url) from error

    return ask


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _schemes(first: str) -> tuple[str, ...]:
    return ("https",) if first.startswith("https:") else ("http", "https")


def _place(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def _is_private(url: str) -> bool:
    """Return whether nobody can listen to a request: https, or this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("127.0.0.1", "localhost", "::1")
