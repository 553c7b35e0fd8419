"""Answer the requests of the page at ``/``: the page itself, its assets, and facts about cubes as JSON."""

from __future__ import annotations

import asyncio
import html
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from virtualstack.errors import VirtualStackError
from virtualstack.serve.answers import document, failed, listing, problem
from virtualstack.serve.content import Content
from virtualstack.serve.cubes import Cube
from virtualstack.serve.facts import ASSETS, CubeFacts, dump_facts
from virtualstack.serve.http import Document

_MAX_KEPT = 64
"""Number of answers that are kept for a version of a cube."""

_MEDIA_TYPES = {
    ".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml",
    ".json": "application/json",
}  # fmt: skip

_HEADERS = {
    # Codecs of zarrita are WebAssembly.
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; script-src 'self' 'wasm-unsafe-eval'; object-src 'none'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_OPTIONS = "variable", "offset", "limit", "before", "after"
"""Options that facts have; others make no new answer."""

_CHANGING = "snapshots", "sources", "verified"
"""Facts that change though the version does not: the list of snapshots, and what was verified."""

type _Key = tuple[str, tuple[tuple[str, str], ...]]
type _Answers = OrderedDict[_Key, asyncio.Future[Document | None]]


class BrowserServer:
    """The page at ``/``, and what it asks for below ``/-/``."""

    def __init__(self, cubes: Mapping[str, Cube], /, *, timeout: float) -> None:
        self._cubes = cubes
        self._timeout = timeout

    @property
    def routes(self) -> list[Route]:
        """Routes of the page."""
        return [
            Route("/", self.index),
            Route("/-/cubes", self.cubes),
            Route("/-/assets/{name}", self.asset),
            Route("/-/facts/{cube}/{kind}", self.facts),
        ]

    async def index(self, request: Request) -> Response:
        """Answer with the page, or with a list of the cubes for programs and where the page was not built."""
        names = [f"{name}/" for name in self._cubes]
        page = ASSETS / "index.html"
        if request.headers.get("accept", "").startswith("application/json") or not page.exists():
            return listing("cubes", names, request.headers)
        links = "".join(f'<li><a href="{quote(name)}">{html.escape(name)}</a></li>' for name in names)
        found = _asset(page, page.stat().st_mtime_ns, f"<ul>{links}</ul>")
        answer = await document(found, "no-cache", request.headers, "text/html; charset=utf-8")
        return _secured(answer, vary="Accept")

    async def asset(self, request: Request) -> Response:
        """Answer with a file of the page."""
        path = ASSETS / request.path_params["name"]
        if path.suffix not in _MEDIA_TYPES or path.parent != ASSETS or not path.is_file():
            return problem(404, f"the page has no file '{path.name}'")
        found = await asyncio.to_thread(_asset, path, path.stat().st_mtime_ns)
        media_type = f"{_MEDIA_TYPES[path.suffix]}; charset=utf-8"
        return _secured(await document(found, "no-cache", request.headers, media_type))

    async def cubes(self, request: Request) -> Response:
        """Answer with the names of the cubes."""
        found = Document(dump_facts({"cubes": [cube.about for cube in self._cubes.values()]}))
        return await document(found, "no-cache", request.headers)

    async def facts(self, request: Request) -> Response:
        """Answer with facts about a cube, which are computed in threads of their own."""
        name, at, snapshot = request.path_params["cube"].partition("@")
        kind, options = request.path_params["kind"], dict(request.query_params)
        cube = self._cubes.get(name)
        if cube is None:
            return problem(404, f"there is no cube '{name}' here")
        request.scope["virtualstack.cube"] = name
        try:
            content = await asyncio.wait_for(cube.content(snapshot if at else None), self._timeout)
            data = await asyncio.wait_for(self._find(cube, content, kind, options), self._timeout)
        except (VirtualStackError, TimeoutError) as error:
            return failed(error, timeout=self._timeout, cube=name)
        except ValueError as error:
            return problem(400, str(error))
        if data is None:
            return problem(404, f"there are no facts '{kind}' of cube '{name}' for {options}")
        return await document(data, "no-cache", request.headers)

    async def _find(self, cube: Cube, content: Content, kind: str, options: Mapping[str, str]) -> Document | None:
        if content.facts is None:
            content.facts = CubeFacts(cube, content)
        answers: _Answers = content.answers
        find = partial(_find, content.facts, kind, options)
        loop = asyncio.get_running_loop()
        if kind in _CHANGING:
            return await loop.run_in_executor(cube.describer, find)
        key = kind, tuple(sorted((name, x) for name, x in options.items() if name in _OPTIONS))
        answer = answers.get(key)
        if answer is None or (answer.done() and _failed(answer)):
            answer = answers[key] = loop.run_in_executor(cube.describer, find)
            answer.add_done_callback(_failed)
        answers.move_to_end(key)
        while len(answers) > _MAX_KEPT:
            answers.popitem(last=False)
        return await asyncio.shield(answer)


@lru_cache(_MAX_KEPT)
def _asset(path: Path, _: int, cubes: str = "") -> Document:
    """Read a file of the page, once for each time at which it was changed."""
    return Document(path.read_bytes().replace(b"<!-- cubes -->", cubes.encode()))


def _find(facts: CubeFacts, kind: str, options: Mapping[str, str]) -> Document | None:
    found: Any = facts.find(kind, options)
    return None if found is None else Document(dump_facts(found))


def _failed(answer: asyncio.Future[Document | None]) -> bool:
    """Return whether an answer failed; asyncio would report an error that nobody looks at."""
    return answer.cancelled() or answer.exception() is not None


def _secured(response: Response, *, vary: str | None = None) -> Response:
    response.headers.update(_HEADERS)
    if vary is not None:
        response.headers["Vary"] = f"{response.headers['Vary']}, {vary}"
    return response
