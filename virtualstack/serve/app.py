"""Serve cubes as zarr 2 and zarr 3 under any ASGI server."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from virtualstack.errors import MissingDependencyError, check_word
from virtualstack.options import Codecs

try:
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import RedirectResponse
    from starlette.routing import Mount, Route
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.websockets import WebSocketClose

    from virtualstack.serve.metrics import Metrics
except ImportError as error:
    raise MissingDependencyError("serving cubes", extra="serve") from error

from virtualstack.reading import check_absent
from virtualstack.serve.answers import problem
from virtualstack.serve.browser import BrowserServer
from virtualstack.serve.content import make_clients
from virtualstack.serve.cubes import CubeLike, make_cube
from virtualstack.serve.reads import Memory, Reads
from virtualstack.serve.server import CELLS, CubeServer
from virtualstack.serve.verified import VerifiedFile
from virtualstack.sizes import byte_count
from virtualstack.storage import Allow, Listed, StorageLike, read_allowed_urls

_LOCAL_ORIGINS = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
_LOCAL_HOSTS = "localhost", "127.0.0.1", "::1", "[::1]"
_EXPOSED = "ETag", "Content-Range", "Accept-Ranges", "Content-Length", "Content-Encoding"
_NAME = re.compile(r"\w[\w.-]*")
_RESERVED = "metrics", "zarr2"
_MIN_MEMORY_BYTES = 1 << 20


def app(
    cubes: Mapping[str, CubeLike],
    /,
    *,
    storage: StorageLike = None,
    allow: Allow = (),
    token: str | None = None,
    origins: Sequence[str] | None = None,
    hosts: Sequence[str] | None = None,
    chunks: Mapping[str, int] | None = None,
    codecs: Literal["common", "any"] = "common",
    absent: Literal["fill", "raise"] = "fill",
    redirect: bool = False,
    memory: int | str = "1 GiB",
    cache: int | str = "256 MiB",
    threads: int = 32,
    timeout: float = 60.0,
    refresh: float = 1.0,
    build: Mapping[str, Any] | None = None,
    verified: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Starlette:
    """Return an ASGI application that serves cubes as zarr 2 and zarr 3.

    The page at ``/`` shows the cubes to people.

    A cube is at ``/NAME/`` in zarr 3 and at ``/zarr2/NAME/`` in zarr 2, and a snapshot of it at ``/NAME@SNAPSHOT/``.
    Metadata are consolidated. Chunks are sent as they are stored where their codecs are common to zarr clients.
    All other arrays are decoded, and served as arrays of equal chunks. Values are the stored numbers, not scaled.

    When to use: to serve cubes under your own ASGI server, or inside another application. Alternatives: the command
    ``virtualstack serve``, and :class:`virtualstack.ManifestStore` for zarr clients in the same process.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> from starlette.testclient import TestClient
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).virtual.to_vstack("rain.vstack")
    >>> with TestClient(vs.serve.app({"rain": "rain.vstack"}), "http://localhost") as client:
    ...     client.get("/rain/rain/zarr.json").json()["shape"]
    [2]
    """
    check_absent(absent)
    check_word("codecs", codecs, Codecs)
    clients = make_clients(chunks, any_codec=codecs == "any", absent=absent)
    hosts = hosts or _LOCAL_HOSTS
    allowed = read_allowed_urls(allow)
    made = {
        _checked(name): make_cube(
            name,
            cube,
            clients=clients,
            storage=storage,
            allow=allowed if set(hosts) <= {*_LOCAL_HOSTS} else Listed(*allowed),
            options=build or {},
            refresh=refresh,
            n_threads=threads,
        )
        for name, cube in cubes.items()
    }
    for name, path in (verified or {}).items():
        if name not in made:
            raise ValueError(f"{path!r} was verified for a cube {name!r}, and the cubes are {sorted(made)}")
        made[name].verified = file = VerifiedFile(path, made[name].url)
        file.read()
    if token is not None and not (token and token.isascii()):
        raise ValueError("a token is ASCII text, and not empty: leave it out to let everyone read")
    shares = {
        name: byte_count(x, option=name) // max(len(made), 1) for name, x in (("memory", memory), ("cache", cache))
    }
    if shares["memory"] < _MIN_MEMORY_BYTES:
        raise ValueError(f"memory={memory!r} is too little: each cube needs at least 1 MiB")
    reads = {name: Reads(Memory(shares["memory"]), shares["cache"]) for name in made}
    metrics = Metrics(list(reads.values()))
    scope = "private" if token else "public"
    server = CubeServer(made, reads, timeout=timeout, redirects=redirect, scope=scope)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        for cube in made.values():
            cube.close()

    middleware = [
        Middleware(metrics.watch),
        Middleware(_Host, allowed_hosts=list(hosts), www_redirect=False),
        Middleware(
            _Origins,
            allow_origins=list(origins or ()),
            allow_origin_regex=_LOCAL_ORIGINS if origins is None else None,
            allow_methods=["GET", "HEAD"],
            allow_headers=["*"],
            expose_headers=list(_EXPOSED),
            max_age=86400,
        ),
        *([Middleware(_TokenMiddleware, token=token)] if token else []),
        Middleware(_Keys, server=server),
    ]
    routes = [
        Route("/metrics", metrics.show),
        *BrowserServer(made, timeout=timeout).routes,
        Mount("/", server),
    ]
    application = Starlette(routes=routes, middleware=middleware, lifespan=lifespan)
    application.state.cubes = made
    application.state.metrics = metrics
    return application


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise ValueError(
            f"{name!r} cannot be the name of a cube. Use letters, digits, '.', '_' and '-'. The first is a letter "
            "or digit. 'metrics' and 'zarr2' are taken"
        )
    return name


class _Host(TrustedHostMiddleware):
    """Answer requests for this server. With two headers ``Host``, a proxy may have looked at the other one."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if sum(name == b"host" for name, _ in scope.get("headers", ())) > 1:
            await problem(400, "the request has more than one header 'Host'")(scope, receive, send)  # RFC 9112, 3.2
            return
        await super().__call__(scope, receive, send)


class _Origins(CORSMiddleware):
    """Let pages of some origins read answers. Programs name no origin, and their answers take fewer steps."""

    async def simple_response(self, scope: Scope, receive: Receive, send: Send, request_headers: Headers) -> None:
        if "origin" in request_headers:
            await super().simple_response(scope, receive, send, request_headers)
            return

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"vary", b"Origin")]
            await send(message)

        await self.app(scope, receive, answer)


class _Keys:
    """Send requests for keys of cubes to their server, and not through the routes of the page, which takes longer."""

    def __init__(self, app: ASGIApp, server: CubeServer) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            is_page = path.startswith("/-/") and not path.startswith(f"/{CELLS}")
            if path not in ("", "/", "/metrics") and not is_page:
                await self._server(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _TokenMiddleware:
    """Answer with status 401 unless a request has the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer: ASGIApp = self._app
        if self._is_token(request.query_params.get("token")):  # a link for a browser, which then has a cookie
            # relative: a proxy may serve this at another host and path
            here = quote(scope["path"].rpartition("/")[2]) or "./"
            query = request.url.remove_query_params("token").query
            where = f"{here}?{query}" if query else here
            answer = RedirectResponse(where, 303, {"Cache-Control": "no-store"})
            answer.set_cookie(
                _cookie(request),
                self._token,
                httponly=True,
                secure=request.url.scheme == "https",
                samesite="strict",
                path=scope.get("root_path") or "/",
            )
        elif not self._is_token(_sent_token(request)):
            answer = problem(
                401,
                "send the token of this server: 'Authorization: Bearer TOKEN', or as the password in the URL",
                {"WWW-Authenticate": 'Basic realm="virtualstack"'},
            )
        await answer(scope, receive, send)

    def _is_token(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _sent_token(request: Request) -> str | None:
    """Return the token that a request has in its headers."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    if kind.lower() == "basic":
        with contextlib.suppress(ValueError):
            return b64decode(value, validate=True).decode().partition(":")[2]
    return request.cookies.get(_cookie(request))


def _cookie(request: Request) -> str:
    """Return the name of the cookie with the token: browsers send the cookies of a host to all its ports."""
    return "virtualstack-token-" + re.sub(r"[^a-zA-Z0-9]", "-", request.headers.get("host", ""))
