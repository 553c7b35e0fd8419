"""Answer requests for the keys of cubes."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from virtualstack.errors import VirtualStackError
from virtualstack.serve.answers import (
    CHUNK_BYTES,
    ChunkAnswer,
    document,
    failed,
    listing,
    may_be_gdal,
    problem,
    read_parts,
    shown_to_gdal,
)
from virtualstack.serve.content import Content, public_url, stored_version
from virtualstack.serve.cubes import Cube
from virtualstack.serve.http import RangeError, is_same, make_hash, raw_headers, read_range
from virtualstack.serve.reads import ClientGoneError, IsWanted, Lease, QueueFullError, Reads, read_if_wanted
from virtualstack.storage import Bytes
from virtualstack.zarr.client import ZarrFormat
from virtualstack.zarr.present import Chunk, ZarrArray

_STREAMED_BYTES = 32 << 20
"""Stored chunks of more bytes are read in parts while they are sent, and not kept."""

_PART_BYTES = 4 << 20
"""Bytes of such a chunk that are read at a time."""

_N_SOME = 200
"""Number of values of a cell that the page gets for its range of colours."""

_ZARR2 = "zarr2/"
"""Begin of the paths at which cubes are zarr 2: programs warn about folders with the metadata of both versions."""

CELLS = "-/cells/"
"""Begin of the paths at which the page has the cells of cubes as they are stored."""

_HOW = "Virtualstack-Cell"
"""Header that says how the bytes of a cell become values; without it, they are the values."""

_PREFIXES: Mapping[str, ZarrFormat] = {_ZARR2: 2, CELLS: "cells"}

_CELL = re.compile(r"\d+(\.\d+)*", re.ASCII)
"""The last part of the key of a chunk, except of an array without dimensions."""

_SOME = b"some"
"""The query of a cell of which a few values are enough."""

_CONDITIONS = frozenset([b"range", b"if-none-match"])

_CLIENT_GONE = 499
"""Status in the log and the metrics for clients that left before their chunk was read, as in those of nginx."""

_MAX_LISTED = 10_000
"""Largest number of chunks in a listing of one folder."""

_IMMUTABLE = "max-age=31536000, immutable"
_NEWEST = "no-cache"


class CubeServer:
    """The ASGI application below ``/NAME/``."""

    def __init__(
        self, cubes: Mapping[str, Cube], reads: Mapping[str, Reads], /, *, timeout: float, redirects: bool, scope: str
    ) -> None:
        self._cubes = cubes
        self._reads = reads
        self._scope = scope
        self._timeout = timeout
        self._redirects = redirects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        response = await self._respond(scope, receive)
        if isinstance(response, Response):
            response = shown_to_gdal(response, scope)
        with contextlib.suppress(ClientGoneError):  # before the last part of a large chunk was read
            await response(scope, receive, send)

    async def _respond(self, scope: Scope, receive: Receive) -> ASGIApp:
        if scope["method"] not in ("GET", "HEAD"):
            return problem(405, "this server is read-only", {"Allow": "GET, HEAD"})
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        path = path.lstrip("/")
        zarr_format: ZarrFormat = 3
        for prefix, version in _PREFIXES.items():
            if path.startswith(prefix):
                path, zarr_format = path.removeprefix(prefix), version
        first, slash, key = path.partition("/")
        name, at, snapshot = first.partition("@")
        cube = self._cubes.get(name)
        if cube is None:
            there = ", ".join(list(self._cubes)[:5])
            return _missing(key, scope["method"], f"there is no cube '{name}' here; there are {there}")
        scope["virtualstack.cube"] = name
        if not slash:
            where = f"{quote(first)}/"  # relative: a proxy may serve this at another path
            return Response(status_code=307, headers={"Location": where})
        try:
            content = None if at else cube.fresh
            if content is None:
                content = await asyncio.wait_for(cube.content(snapshot if at else None), self._timeout)
            return self._again(cube, content, key, zarr_format, scope) or await self._answer(
                cube, content, key, zarr_format, Request(scope, receive)
            )
        except (VirtualStackError, TimeoutError) as error:
            return failed(error, timeout=self._timeout, cube=name, key=key)
        except QueueFullError:
            message = f"too many chunks of '{name}' are waiting for their sources; try again later"
            return problem(503, message, {"Retry-After": "5"})
        except ClientGoneError:
            return Response(status_code=_CLIENT_GONE)

    def _again(
        self, cube: Cube, content: Content, key: str, zarr_format: ZarrFormat, scope: Scope
    ) -> ChunkAnswer | None:
        """Return the answer with a whole chunk that was sent before and is in the cache, in few steps."""
        head = content.heads.get((key, zarr_format))
        if (
            head is None
            or scope["method"] != "GET"
            or scope["query_string"] == _SOME
            or any(name in _CONDITIONS for name, _ in scope["headers"])
        ):
            return None
        read_key, headers = head
        lease = self._reads[cube.name].find(read_key)
        if lease is None:
            return None
        return ChunkAnswer(200, headers, lease, 0, len(lease.data), timeout=self._timeout)

    def _cache_control(self, content: Content) -> str:
        return f"{self._scope}, {_IMMUTABLE if content.is_fixed else _NEWEST}"

    async def _answer(
        self, cube: Cube, content: Content, key: str, zarr_format: ZarrFormat, request: Request
    ) -> ASGIApp:
        found = content.keys[zarr_format].chunk_key(key)
        if found is not None:
            request.scope[CHUNK_BYTES] = found[0].chunk_nbytes
            if zarr_format == "cells" and request.scope["query_string"] == _SOME:
                return await self._some(cube, content, *found)
            return await self._chunk(cube, content, key, *found, request)
        loop = asyncio.get_running_loop()
        is_quoted = may_be_gdal(request.headers) and content.needs_quotes
        make = partial(content.document, key, zarr_format, quoted=is_quoted)
        data = await asyncio.wait_for(loop.run_in_executor(cube.opener, make), self._timeout)
        if data is not None:
            response = await document(data, self._cache_control(content), request.headers)
            if content.needs_quotes:
                response.headers["Vary"] = f"{response.headers['Vary']}, User-Agent"
            return response
        if not key or key.endswith("/"):
            names = content.keys[zarr_format].names(key.rstrip("/"), most=_MAX_LISTED)
            if names is not None:
                return listing(f"{cube.name}/{key}", names, request.headers)
        is_node = not content.keys[zarr_format].find(key)[2]  # without its slash
        return _missing("" if is_node else key, request.method, f"cube '{cube.name}' has no key '{key}'")

    async def _chunk(
        self, cube: Cube, content: Content, key: str, array: ZarrArray, cell: tuple[int, ...], request: Request
    ) -> ASGIApp:
        if array.is_in_memory:
            chunk = content.chunk(array, cell)
        else:  # references must be read
            look = asyncio.get_running_loop().run_in_executor(cube.executor, content.chunk, array, cell)
            chunk = await asyncio.wait_for(look, self._timeout)
        if chunk is None:
            return problem(404, f"chunk {cell} of variable '{array.path}' was never written: it has the fill value")
        form = array.client.zarr_format == "cells", array.plain is None
        identity = stored_version(chunk) or make_hash(cube.name, content.tag, array.path, form, array.chunks, cell)
        headers = {
            "ETag": f'"{make_hash(identity, chunk.how) if chunk.how else identity}"',
            "Accept-Ranges": "bytes",
            "Cache-Control": self._cache_control(content),
            "Content-Type": "application/octet-stream",
            **({_HOW: chunk.how} if chunk.how else {}),
        }
        asked = _headers(request.scope)
        if is_same(asked.get("if-none-match"), headers["ETag"]):
            return Response(status_code=304, headers=headers)
        read = partial(self._read, cube, content, chunk, identity, partial(_wait_until_gone, request.receive))
        size, whole = chunk.length, None
        if self._redirects and size and not chunk.how and (url := public_url(chunk)) is not None:
            (await read(0, 1, keeps=False)).release()  # clients would take status 404 of the source for the fill value
            return Response(status_code=307, headers={**headers, "Location": url})
        if size is None:  # it is known when the chunk is made
            whole = await read(0, None)
            size = len(whole.data)
        try:
            is_wanted = asked.get("if-range", headers["ETag"]) == headers["ETag"]
            part = read_range(asked.get("range") if is_wanted else None, size)
        except RangeError:
            return _released(whole, Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{size}"}))
        begin, stop = part or (0, size)
        headers["Content-Length"] = str(stop - begin)
        if part is not None:
            headers["Content-Range"] = f"bytes {begin}-{stop - 1}/{size}"
        status = 200 if part is None else 206
        if request.method == "HEAD":
            return _released(whole, Response(status_code=status, headers=headers))
        raw = raw_headers(headers)
        most = min(_STREAMED_BYTES, self._reads[cube.name].memory.limit // 8)
        is_made = chunk.stored is None
        if is_made or stop - begin <= most:
            span = (0, None) if is_made else (begin, stop)
            lease = whole or await read(*span)
            if part is None:
                content.keep_head((key, array.client.zarr_format), (identity, *span), raw)
            first = begin - span[0]
            return ChunkAnswer(status, raw, lease, first, first + stop - begin, timeout=self._timeout)
        parts = read_parts(partial(read, keeps=False), begin, stop, min(_PART_BYTES, most))
        lease = await anext(parts)
        return ChunkAnswer(status, raw, lease, 0, len(lease.data), timeout=self._timeout, more=parts)

    async def _some(self, cube: Cube, content: Content, array: ZarrArray, cell: tuple[int, ...]) -> Response:
        """Answer with a few values of a cell, so that the range of all times costs few bytes."""
        read = partial(array.read_some, cell, _N_SOME, content.storage)
        key = ("some", content.tag, array.path, cell)
        lease = await self._get(cube, key, _in_thread(cube, read), 2 * array.chunk_nbytes)
        headers = {"Cache-Control": self._cache_control(content), "Content-Type": "application/octet-stream"}
        return _released(lease, Response(bytes(lease.data), headers=headers))

    async def _read(
        self,
        cube: Cube,
        content: Content,
        chunk: Chunk,
        identity: str,
        gone: Callable[[], Coroutine[Any, Any, None]],
        begin: int,
        stop: int | None,
        /,
        *,
        keeps: bool = True,
    ) -> Lease:
        key = identity, begin, stop
        reads = self._reads[cube.name]
        most = {"max_cell_bytes": reads.max_kept_bytes, "max_bytes": reads.memory.limit}
        if chunk.stored is None and (cells := chunk.array.cut_cells(chunk.cell, **most)):
            make = partial(self._assemble, cube, content, chunk, cells)
            return await self._get(cube, key, make, chunk.array.count_bytes(cells), gone=gone)
        # A chunk that is made takes the memory of its stored bytes and of its values.
        nbytes = 2 * chunk.array.chunk_nbytes if chunk.stored is None or stop is None else stop - begin
        read = partial(chunk.read, content.sources, begin, stop)
        return await self._get(cube, key, _in_thread(cube, read), nbytes, keeps=keeps, gone=gone)

    async def _get(
        self, cube: Cube, key: Hashable, read: Callable[[IsWanted], Awaitable[Bytes]], nbytes: int, **options: Any
    ) -> Lease:
        return await self._reads[cube.name].get(key, read, nbytes=nbytes, timeout=self._timeout, **options)

    async def _assemble(
        self, cube: Cube, content: Content, chunk: Chunk, cells: Sequence[tuple[int, ...]], is_wanted: IsWanted
    ) -> Bytes:
        """Make a chunk from cells of the array that other chunks share, so that each cell is read once for all."""
        loop, array = asyncio.get_running_loop(), chunk.array

        def get(cell: tuple[int, ...]) -> Awaitable[Lease]:
            read = partial(array.read_cell, cell, content.storage)
            key = ("cell", content.tag, array.path, cell)
            return self._get(cube, key, _in_thread(cube, read), 0, is_wanted=is_wanted)

        found = await asyncio.gather(*map(get, cells), return_exceptions=True)
        leases = [lease for lease in found if isinstance(lease, Lease)]
        try:
            for lease in found:
                if isinstance(lease, BaseException):
                    raise lease
            parts = dict(zip(cells, (lease.data for lease in leases), strict=True))
            return await loop.run_in_executor(cube.executor, array.assemble, chunk.cell, parts)
        finally:
            for lease in leases:
                lease.release()


def _missing(key: str, method: str, message: str) -> Response:
    """Return the answer for a key that does not exist. Clients take status 404 of a chunk for the fill value."""
    if method == "GET" and _CELL.fullmatch(key.rpartition("/")[2]):
        why = "Open the cube again if it has changed. Names with '%', '#' or '?' need quotes in URLs"
        return problem(400, f"{message}. {why}")
    return problem(404, message)


def _in_thread(cube: Cube, read: Callable[[], Bytes]) -> Callable[[IsWanted], Awaitable[Bytes]]:
    loop = asyncio.get_running_loop()
    return lambda is_wanted: loop.run_in_executor(cube.executor, read_if_wanted, read, is_wanted)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request, which are looked up more cheaply than those of a `Request`."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _released(lease: Lease | None, response: Response) -> Response:
    if lease is not None:
        lease.release()
    return response
