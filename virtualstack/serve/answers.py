"""Answers of the server: documents, listings, bytes of chunks, and errors as JSON."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from virtualstack.serve.http import (
    Document,
    RangeError,
    RawHeaders,
    choose_encoding,
    error_body,
    find_status,
    is_same,
    read_range,
)
from virtualstack.serve.reads import Lease

CHUNK_BYTES = "virtualstack.chunk_bytes"
"""Key of the scope of a request for a chunk: its size without codecs."""

_PIECE_BYTES = 1 << 20
"""Bytes that are given to the ASGI server at a time, so that a client that takes none holds up no more."""


def problem(status: int, message: str, headers: Mapping[str, str] | None = None, /) -> Response:
    """Return an error of the request as JSON."""
    body = {"error": _REASONS.get(status, "Error"), "message": message}
    return Response(json.dumps(body), status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def failed(error: Exception, /, *, timeout: float, cube: str, key: str = "") -> Response:
    """Return an error of a source as JSON."""
    body = error_body(error, timeout=timeout, cube=cube, **({"key": key} if key else {}))
    return Response(body, find_status(error, key), {"Cache-Control": "no-store"}, "application/json")


_REASONS = {400: "BadRequest", 401: "Unauthorized", 404: "NotFound", 405: "MethodNotAllowed", 503: "Busy"}


def may_be_gdal(headers: Headers, /) -> bool:
    """Return whether a client is GDAL, or does not send its name, as GDAL 3.6 does not.

    GDAL puts names into URLs without quotes, and takes all errors of a chunk for the fill value.
    """
    return headers.get("user-agent", "GDAL/").startswith("GDAL/")


def shown_to_gdal(response: Response, scope: Scope, /) -> Response:
    """Return an error such that GDAL reports it, or else the same response.

    With any status but 200, GDAL takes a chunk for one that was never written, and shows the fill value. It reports a
    chunk that is too short. Metrics and log have the status that other clients get.
    """
    is_error = response.status_code in (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN) or response.status_code >= 500
    is_chunk = scope["method"] == "GET" and scope["path"].rpartition("/")[2][:1].isdigit()
    headers = Headers(scope=scope)
    if not (is_error and is_chunk and may_be_gdal(headers)):
        return response
    most = scope.get(CHUNK_BYTES, 2) - 1
    # A program that is not GDAL may ask for a few bytes of a chunk, and take a text for them.
    body = response.body[: most if "user-agent" in headers else min(most, 1)]
    if not body:  # nothing is shorter than a chunk of one byte
        return response
    scope["virtualstack.status"] = response.status_code
    return Response(bytes(body), 200, {"Cache-Control": "no-store"}, "application/json")


async def document(
    found: Document, cache_control: str, headers: Headers, /, media_type: str = "application/json"
) -> Response:
    """Return the answer with a whole document: compressed if the client takes it, or a range of it."""
    wanted = None if "range" in headers else choose_encoding(headers.get("accept-encoding"))
    body, encoding = await asyncio.to_thread(found.encode, wanted)
    etag = found.etag if encoding is None else f'{found.etag[:-1]}-{encoding}"'
    common = {"ETag": etag, "Cache-Control": cache_control, "Vary": "Accept-Encoding", "Accept-Ranges": "bytes"}
    if is_same(headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=common)
    size = len(found.data)
    try:
        part = read_range(headers.get("range") if headers.get("if-range", etag) == etag else None, size)
    except RangeError:
        return Response(status_code=416, headers={**common, "Content-Range": f"bytes */{size}"})
    if part is not None:
        span = {"Content-Range": f"bytes {part[0]}-{part[1] - 1}/{size}"}
        return Response(found.data[slice(*part)], 206, {**common, **span}, media_type)
    return Response(body, 200, common | ({"Content-Encoding": encoding} if encoding else {}), media_type)


def listing(title: str, names: Sequence[str], headers: Headers, /) -> Response:
    """Return the names in a folder, as HTML with links, or as JSON if the client prefers it."""
    common = {"Cache-Control": "no-cache", "Vary": "Accept"}
    if headers.get("accept", "").startswith("application/json"):
        return Response(json.dumps({"names": list(names)}), 200, common, "application/json")
    links = "\n".join(f'<li><a href="{quote(name)}">{html.escape(name)}</a></li>' for name in names)
    title = html.escape(title)
    page = f"<!doctype html><html lang=en><title>{title}</title><h1>{title}</h1><ul>\n{links}\n</ul></html>"
    return Response(page, 200, common, "text/html")


_COPIED_BYTES = 64 << 10
_SMALL_BYTES = 128 << 10
"""Answers that are given to the ASGI server at once: what it holds of them until the client takes it is little."""

type Read = Callable[[int, int], Awaitable[Lease]]


class ChunkAnswer:
    """Bytes of a chunk, sent in pieces, so that a client that takes none holds up little memory, and not for ever."""

    def __init__(
        self,
        status: int,
        headers: RawHeaders,
        lease: Lease,
        begin: int,
        stop: int,
        /,
        *,
        timeout: float,
        more: AsyncIterator[Lease] | None = None,
    ) -> None:
        self.status_code = status
        self._headers = headers
        self._lease = lease
        self._span = begin, stop
        self._timeout = timeout
        self._more = more

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. A source that fails halfway, or a client that stops, ends the connection."""
        begin, stop = self._span
        start = {"type": "http.response.start", "status": self.status_code, "headers": self._headers}
        try:
            async with asyncio.timeout(self._timeout):  # an earlier answer on this connection may still be unsent
                await send(start)
                if self._more is None and stop - begin <= _SMALL_BYTES:
                    data = self._lease.data
                    body = data if stop - begin == len(data) else memoryview(data)[begin:stop]
                    await send({"type": "http.response.body", "body": body})
                    return
            await self._send(send, self._lease, begin, stop)
            if self._more is None:
                await self._end(send)
                return
        except TimeoutError:  # the ASGI server closes the connection, as the answer is not whole
            return
        finally:
            self._lease.release()
        request = Request(scope, receive)
        async for lease in self._more:
            try:
                await self._send(send, lease, 0, len(lease.data))
            except TimeoutError:
                return
            finally:
                lease.release()
            if await request.is_disconnected():
                return
        await self._end(send)

    async def _send(self, send: Send, lease: Lease, begin: int, stop: int) -> None:
        """Send bytes. The last of them are a copy: the connection may hold them when the chunk has been released."""
        data = memoryview(lease.data)
        last = max(begin, stop - _COPIED_BYTES)
        for at in range(begin, last, _PIECE_BYTES):
            await self._send_piece(send, data[at : min(at + _PIECE_BYTES, last)])
        await self._send_piece(send, bytes(data[last:stop]))

    async def _send_piece(self, send: Send, piece: Any) -> None:
        async with asyncio.timeout(self._timeout):
            await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _end(self, send: Send) -> None:
        """Wait until the client has taken most of the bytes, and end the answer."""
        async with asyncio.timeout(self._timeout):
            await send({"type": "http.response.body", "body": b""})


async def read_parts(read: Read, begin: int, stop: int, step: int, /) -> AsyncIterator[Lease]:
    """Read a range in parts of ``step`` bytes."""
    for at in range(begin, stop, max(step, 1)):
        yield await read(at, min(at + step, stop))
