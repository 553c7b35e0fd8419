"""A bucket on loopback that speaks as S3, Google and Azure do, and may treat conditions as no good server does."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Literal, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

__all__ = ["Conditions", "ObjectServer"]

Conditions = Literal[
    "heeded",
    "ignored",  # an object that exists is replaced whatever the request says
    "refused",  # a write with a condition is refused although the object does not exist
]


class ObjectServer:
    """Keep the objects of one bucket; a context manager.

    Parameters
    ----------
    conditions
        How conditional writes are treated; may be changed while the server runs.
    fault
        Asked for each PUT by key: ``"before"`` resets the connection before the object is stored, ``"after"`` when it
        is stored.

    Attributes
    ----------
    objects
        Bytes by path: bucket and key.
    may_delete
        If false, deletions are answered with status 403.
    unlisted
        Paths that no listing shows.
    requests
        Number of requests by method.
    """

    def __init__(
        self,
        conditions: Conditions = "heeded",
        fault: Callable[[str], Literal["before", "after"] | None] = lambda path: None,
    ) -> None:
        self.conditions = conditions
        self.fault = fault
        self.objects: dict[str, bytes] = {}
        self.may_delete = True
        self.unlisted: set[str] = set()
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def options(self) -> dict[str, object]:
        """Options of ``storage=`` for S3."""
        return {
            "endpoint": self.root,
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "max_retries": 0,
        }

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.root = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    owner: ObjectServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about connections that were reset."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_PUT(self) -> None:
        owner, path = self._begin()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_conditional = self.headers.get("If-None-Match") == "*" or "x-goog-if-generation-match" in self.headers
        fault = owner.fault(path)
        if fault == "before":
            self._reset()
            return
        with owner.lock:
            is_refused = is_conditional and (
                owner.conditions == "refused" or (path in owner.objects and owner.conditions == "heeded")
            )
            if not is_refused:
                owner.objects[path] = data
        if fault == "after":
            self._reset()
        elif is_refused:
            is_azure = "x-ms-version" in self.headers
            self._answer(
                409 if is_azure else 412,
                b"<Error><Code>PreconditionFailed</Code><Condition>If-None-Match</Condition></Error>",
            )
        else:
            self._answer(200, b"", ETag=_etag(data))

    def do_GET(self) -> None:
        owner, path = self._begin()
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(path.strip("/"), query)
            return
        with owner.lock:
            data = owner.objects.get(path)
        if data is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        headers = {"ETag": _etag(data), "Last-Modified": "Tue, 14 Nov 2023 22:13:20 GMT"}
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found is None:
            self._answer(200, data, **headers)
        elif int(found[1]) >= len(data):
            self._answer(416, b"")
        else:
            part = data[int(found[1]) : int(found[2]) + 1]
            headers["Content-Range"] = f"bytes {found[1]}-{int(found[1]) + len(part) - 1}/{len(data)}"
            self._answer(206, part, **headers)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        path = self._begin()[1]
        self._delete([path], 204, b"")

    def do_POST(self) -> None:
        bucket = self._begin()[1]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        keys = re.findall("<Key>(.*?)</Key>", body)  # S3
        paths = [f"{bucket.strip('/')}/{unescape(key)}" for key in keys]
        paths += re.findall(r"DELETE /([^ ?]+)", body)  # a batch of Azure, whose answer is left out
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._delete(paths, 200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _delete(self, paths: list[str], status: int, body: bytes) -> None:
        owner = self.server.owner
        if not owner.may_delete:
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        with owner.lock:
            for path in paths:
                owner.objects.pop(path, None)
        self._answer(status, body)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _begin(self) -> tuple[ObjectServer, str]:
        owner = self.server.owner
        with owner.lock:
            owner.requests[self.command] += 1
        return owner, unquote(urlsplit(self.path).path.lstrip("/"))

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        with self.server.owner.lock:
            found = self.server.owner.objects.items()
            hidden = self.server.owner.unlisted
            objects = {path.removeprefix(f"{bucket}/"): data for path, data in found if path not in hidden}
        rows, folders = [], set()
        for key, data in sorted(objects.items()):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            rows.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified>"
                f"<ETag>{escape(_etag(data))}</ETag><Size>{len(data)}</Size></Contents>"
            )
        rows += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)]
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
        self._answer(200, text.encode())

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() sends RST
        self.connection.close()

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _etag(data: bytes) -> str:
    return f'"{md5(data).hexdigest()}"'
