"""A bucket on loopback that speaks as S3, Google and Azure do, and may treat conditions as no good server does."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.servers import Handler, RangeServer, etag_of

__all__ = ["Conditions", "ObjectServer"]

Conditions = Literal[
    "heeded",
    "ignored",  # an object that exists is replaced whatever the request says
    "refused",  # a write with a condition is refused although the object does not exist
    "unknown",  # status 501, as the server of Google Cloud Storage that speaks S3
]


class ObjectServer(RangeServer):
    """Keep the objects of one bucket; a context manager.

    Parameters
    ----------
    conditions
        How conditional writes are treated; may be changed while the server runs.
    put_fault
        Asked for each PUT by key: ``"before"`` resets the connection before the object is stored, ``"after"`` when it
        is stored.

    Attributes
    ----------
    objects
        Bytes by path: bucket and key.
    may_delete
        If false, deletions are answered with status 403.
    may_list
        If false, listings are answered with status 403.
    unlisted
        Paths that no listing shows.
    """

    def __init__(
        self,
        conditions: Conditions = "heeded",
        put_fault: Callable[[str], Literal["before", "after"] | None] = lambda path: None,
    ) -> None:
        self.objects: dict[str, bytes] = {}
        super().__init__(self.objects, handler=_Handler)
        self.conditions = conditions
        self.put_fault = put_fault
        self.may_delete = True
        self.may_list = True
        self.unlisted: set[str] = set()

    @property
    def options(self) -> dict[str, object]:
        """Options of ``storage=`` for S3."""
        return {
            "endpoint": self.root.rstrip("/"),
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "max_retries": 0,
        }


class _Handler(Handler):
    wbufsize = 0  # "100 Continue" is sent at once

    @property
    def owner(self) -> ObjectServer:
        owner = self.server.owner
        assert isinstance(owner, ObjectServer)
        return owner

    def do_PUT(self) -> None:
        owner, path = self._begin()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_conditional = self.headers.get("If-None-Match") == "*" or "x-goog-if-generation-match" in self.headers
        fault = owner.put_fault(path)
        if fault == "before":
            self._reset()
            return
        if is_conditional and owner.conditions == "unknown":
            self._answer(501, b"<Error><Code>NotImplemented</Code></Error>")
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
            self._answer(200, b"", ETag=etag_of(data))

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if "list-type" in query:
            self._begin()
            if not self.owner.may_list:
                self._answer(403, b"")
                return
            self._list(parts.path.strip("/"), query)
        else:
            super().do_GET()

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
        owner = self.owner
        if not owner.may_delete:
            self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            return
        with owner.lock:
            for path in paths:
                owner.objects.pop(path, None)
        self._answer(status, body)

    def _begin(self) -> tuple[ObjectServer, str]:
        with self.owner.lock:
            self.owner.requests[self.command] += 1
        return self.owner, unquote(urlsplit(self.path).path.lstrip("/"))

    def _list(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        with self.owner.lock:
            found = self.owner.objects.items()
            hidden = self.owner.unlisted
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
                f"<ETag>{escape(etag_of(data))}</ETag><Size>{len(data)}</Size></Contents>"
            )
        rows += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)]
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(rows)}</ListBucketResult>"
        self._answer(200, text.encode())

    def _reset(self) -> None:
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() sends RST
        self.connection.close()
