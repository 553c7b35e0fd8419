"""An HTTP/1.1 range server on loopback that can misbehave as real ones do."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import unquote

__all__ = ["Fault", "Handler", "Mode", "RangeServer", "etag_of"]

Mode = Literal[
    "normal",
    "ignore_ranges",  # 200 and the whole body where a range was asked for
    "short_body",  # 206 whose body is one byte shorter than its Content-Range says; Content-Length agrees with the body
    "short_range",  # 206 that says in all headers that it is one byte shorter than what was asked for
    "long_body",  # 206 with the whole file as its body, whatever its Content-Range says
    "cut_body",  # 206 that promises more bytes than it sends, then hangs up
    "no_total",  # Content-Range with '*' for the size
    "no_head",  # 405 to HEAD
    "no_length",  # no Content-Length, neither to HEAD nor to GET: chunked bodies
    "redirect",  # 302 from every path to the same one under /moved/
    "hang",  # reads the request and never answers
    "other_region",  # 301 without Location, until the signature names the region eu-north-1, which HEAD / tells
    "refuse_signed",  # 403 to requests with an Authorization header, or with a signature in the query (SAS)
    "refuse_anonymous",  # 403 to requests without
    "secret",  # 403 to what does not exist, and to listings, as a bucket that may only be read
    "trickle",  # sends bodies a byte at a time, with a pause of 50 ms
    "status",  # `status`, for the first `times` requests (None: for all)
]


Fault = int | float | Literal["cut"] | None
"""Of one answer: a status instead, seconds that it takes longer, or a body that is cut off; ``None``: none."""


class RangeServer:
    """Serve files of a folder, or bytes, under an ephemeral port of an address of loopback.

    A context manager; every attribute may be changed while it runs.

    Parameters
    ----------
    files
        A folder, or a mapping of path (without leading slash) to bytes.
    mode
        How it misbehaves.
    status, times
        For mode "status": what it answers, and to how many requests.
    latency
        Seconds before each answer.
    body
        Of the answers of mode "status".
    headers
        Of these, too.
    fault
        What goes wrong with the answer for a path; asked for each request.
    host
        Address of loopback to listen at.
    tag
        What the servers behind this name make of the etag of a file; ``None``: they send none.
    modified
        Seconds since 1970 of ``Last-Modified``; ``None``: none is sent.
    handler
        What answers requests; `Handler` by default.
    cors
        Whether pages of other servers may read answers, as far as a public bucket lets them: all, or those
        that are no errors, as ``add_header`` of nginx does.

    Attributes
    ----------
    requests
        Number of requests by method.
    log
        Method, path, Range header (or None) and headers of each request.
    bytes_sent
        Bytes of all bodies.
    """

    def __init__(
        self,
        files: Path | str | Mapping[str, bytes],
        *,
        mode: Mode = "normal",
        status: int = 500,
        times: int | None = None,
        latency: float = 0.0,
        body: bytes = b"<Error><Code>Made</Code><Message>made to fail</Message></Error>",
        headers: Mapping[str, str] | None = None,
        fault: Callable[[str], Fault] = lambda path: None,
        host: str = "127.0.0.1",
        tag: Callable[[str], str] | None = lambda etag: etag,
        modified: int | None = 1_700_000_000,
        cors: Literal["always", "found"] | None = None,
        handler: type[Handler] | None = None,
    ) -> None:
        self.host = host
        self.tag = tag
        self.modified = modified
        self.cors = cors
        self._handler = handler or Handler
        self.files = files if isinstance(files, Mapping) else Path(files)
        self.mode: Mode = mode
        self.status = status
        self.times = times
        self.latency = latency
        self.body = body
        self.headers: Mapping[str, str] = headers or {}
        self.fault = fault
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._kept: dict[str, tuple[object, bytes, str]] = {}
        self.reset()
        self._server: _Server | None = None

    def reset(self) -> None:
        """Set all counters to zero."""
        with self.lock:
            self.requests: Counter[str] = Counter()
            self.log: list[tuple[str, str, str | None, dict[str, str]]] = []
            self.bytes_sent = 0

    @property
    def n_requests(self) -> int:
        """Number of requests of all methods."""
        return self.requests.total()

    @property
    def root(self) -> str:
        """URL of the server, ending in a slash."""
        assert self._server is not None, "not started"
        return f"http://{self.host}:{self._server.server_port}/"

    def url(self, path: str = "") -> str:
        """URL of one file."""
        return self.root + path

    def read(self, path: str) -> tuple[bytes, str] | None:
        """Bytes and etag of one file, or None; both are kept until the file changes."""
        if isinstance(self.files, Mapping):
            data = self.files.get(path)
            if data is None:
                return None
            version: object = data
        else:
            file = self.files / path
            if not file.is_file():
                return None
            version = file.stat().st_mtime_ns, file.stat().st_size
        kept = self._kept.get(path)
        if kept is None or kept[0] != version:
            if not isinstance(self.files, Mapping):
                data = file.read_bytes()
            kept = self._kept[path] = (version, data, etag_of(data))
        return kept[1:]

    def __enter__(self) -> Self:
        self.closing.clear()
        self._server = _Server((self.host, 0), self._handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: RangeServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet where a client hung up."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # one packet for headers and a small body
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _serve(self) -> None:
        owner = self.server.owner
        path = unquote(self.path.split("?")[0].lstrip("/"))
        range_ = self.headers.get("Range")
        with owner.lock:
            owner.requests[self.command] += 1
            owner.log.append((self.command, self.path, range_, dict(self.headers)))
            failing = owner.mode == "status" and (owner.times is None or owner.times > 0)
            if failing and owner.times is not None:
                owner.times -= 1
            fault = owner.fault(path)
        if owner.latency or isinstance(fault, float):
            time.sleep(owner.latency + (fault if isinstance(fault, float) else 0))
        if owner.mode == "hang":
            owner.closing.wait()
            self.close_connection = True
            return
        if failing or isinstance(fault, int):
            self._answer(fault if isinstance(fault, int) else owner.status, owner.body, **owner.headers)
            return
        if owner.mode == "no_head" and self.command == "HEAD":
            self._answer(405, b"")
            return
        if owner.mode == "redirect" and not path.startswith("moved/"):
            self._answer(302, b"", Location=owner.url("moved/" + self.path.lstrip("/")))
            return
        signed = "Authorization" in self.headers or "sig=" in self.path
        if (owner.mode == "refuse_signed" and signed) or (owner.mode == "refuse_anonymous" and not signed):
            code = b"InvalidAccessKeyId" if signed else b"AccessDenied"
            self._answer(403, b"<Error><Code>%b</Code></Error>" % code)
            return
        if owner.mode == "other_region" and "/eu-north-1/" not in self.headers.get("Authorization", ""):
            self._answer(301, b"", **{"x-amz-bucket-region": "eu-north-1"})
            return
        found = owner.read(path.removeprefix("moved/"))
        if found is None:
            is_secret = owner.mode == "secret"
            self._answer(403 if is_secret else 404, b"<Error><Code>AccessDenied</Code></Error>" if is_secret else b"")
            return
        self._answer_file(owner, *found, range_, cut=owner.mode == "cut_body" or fault == "cut")

    def _answer_file(self, owner: RangeServer, data: bytes, etag: str, range_: str | None, *, cut: bool) -> None:
        headers = {} if owner.tag is None else {"ETag": owner.tag(etag)}
        if owner.modified is not None:
            headers["Last-Modified"] = formatdate(owner.modified, usegmt=True)
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", range_ or "")
        if match is None or owner.mode in ("ignore_ranges", "no_length"):
            self._answer(200, data, chunked=owner.mode == "no_length", **headers)
            return
        headers["Accept-Ranges"] = "bytes"
        first, last = match.groups()
        if first == "":
            start, stop = max(0, len(data) - int(last)), len(data)
        else:
            start, stop = int(first), min(int(last) + 1 if last else len(data), len(data))
        if start >= len(data):
            self._answer(416, b"", **{"Content-Range": f"bytes */{len(data)}"})
            return
        total = "*" if owner.mode == "no_total" else str(len(data))
        headers["Content-Range"] = f"bytes {start}-{stop - 1 - (owner.mode == 'short_range')}/{total}"
        short = owner.mode in ("short_body", "short_range")
        body = data if owner.mode == "long_body" else data[start : stop - short]
        self._answer(206, body, cut=cut, **headers)

    def _answer(self, status: int, body: bytes, *, chunked: bool = False, cut: bool = False, **headers: str) -> None:
        self.send_response(status)
        if self.server.owner.cors == "always" or (self.server.owner.cors and status < 400):
            headers |= {"Access-Control-Allow-Origin": "*", "Access-Control-Expose-Headers": "Content-Range, ETag"}
            headers["Content-Type"] = guess_type(self.path.partition("?")[0])[0] or "application/octet-stream"
        for name, value in headers.items():
            self.send_header(name, value)
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if cut:
            body = body[:-1]
            self.close_connection = True
        with self.server.owner.lock:
            self.server.owner.bytes_sent += len(body)
        if self.server.owner.mode == "trickle":
            for i in range(len(body)):
                self.wfile.write(body[i : i + 1])
                self.wfile.flush()
                time.sleep(0.05)
            return
        self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked and body else body)


def etag_of(data: bytes) -> str:
    """ETag of the bytes of a file."""
    return f'"{md5(data).hexdigest()}"'
