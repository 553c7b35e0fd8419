"""The parts of HTTP that zarr clients use: ranges, ETags, compressed metadata, and errors as JSON."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import numcodecs

from virtualstack.errors import ForbiddenLocationError, GroupNotFoundError, SourceNotFoundError, VirtualStackError
from virtualstack.printable import printable

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_WEIGHT = re.compile(r"\s*([\w*]+)\s*(?:;\s*q=([\d.]+))?\s*")
_MIN_COMPRESSED_BYTES = 512
_DOCUMENTS = "", "zarr.json", ".zgroup", ".zattrs", ".zarray", ".zmetadata"
_SECRETS = re.compile(r"(\w://)([^/@\s'\"?]*@)?([^\s'\"?]*)(\?[^\s'\"]*)?")


type RawHeaders = list[tuple[bytes, bytes]]
"""Headers as ASGI servers take them."""


def raw_headers(headers: Mapping[str, str], /) -> RawHeaders:
    """Return headers as ASGI servers take them."""
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


class RangeError(ValueError):
    """No byte of the range exists."""


def read_range(header: str | None, size: int, /) -> tuple[int, int] | None:
    """Return begin and end of the only range of a ``Range`` header; ``None`` if the whole value is to be sent.

    RFC 9110, section 14: a header that is not understood is ignored, and so are several ranges.

    >>> read_range("bytes=2-3", 10), read_range("bytes=-4", 10), read_range("bytes=8-20", 10)
    ((2, 4), (6, 10), (8, 10))
    """
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        if int(last) == 0 or size == 0:
            raise RangeError
        return max(size - int(last), 0), size
    if last and int(last) < int(first):
        return None
    if int(first) >= size:
        raise RangeError
    return int(first), min(int(last) + 1, size) if last else size


def is_same(header: str | None, etag: str, /) -> bool:
    """Return whether an ``If-None-Match`` header has the ETag; weak ETags compare as strong ones."""
    if header is None:
        return False
    return header.strip() == "*" or etag in (x.strip().removeprefix("W/") for x in header.split(","))


def choose_encoding(header: str | None, /) -> str | None:
    """Return ``"zstd"`` or ``"gzip"`` if an ``Accept-Encoding`` header names it, ``None`` for plain bytes.

    >>> choose_encoding("gzip, deflate, zstd;q=0")
    'gzip'
    """
    accepted = set()
    for part in (header or "").split(","):
        found = _WEIGHT.fullmatch(part)
        if found is not None and found[2] not in ("0", "0.0", "0.00", "0.000"):
            accepted.add(found[1].lower())
    return next((name for name in ("zstd", "gzip") if name in accepted), None)


class Document:
    """A document with its ETag, and its compressed forms, which are made when they are first asked for."""

    __slots__ = "_forms", "data", "etag"

    def __init__(self, data: bytes, /) -> None:
        self.data = data
        self.etag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
        self._forms: dict[str, bytes] = {}

    def encode(self, encoding: str | None, /) -> tuple[bytes, str | None]:
        """Return the document in an encoding, and its name; small documents stay as they are."""
        if encoding is None or len(self.data) < _MIN_COMPRESSED_BYTES:
            return self.data, None
        if encoding not in self._forms:
            made = (
                gzip.compress(self.data, 6, mtime=0)
                if encoding == "gzip"
                else numcodecs.Zstd(level=6).encode(self.data)
            )
            self._forms[encoding] = made
        return self._forms[encoding], encoding


def make_hash(*parts: object) -> str:
    """Return a short hash of parts by their representation."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def find_status(error: Exception, key: str = "", /) -> HTTPStatus:
    """Return the status for an error: 403 for places that are not allowed, 404, 504 for timeouts, else 502.

    Clients take status 404 of a chunk as the fill value. So it is only for keys of folders and metadata.
    """
    if isinstance(error, TimeoutError):
        return HTTPStatus.GATEWAY_TIMEOUT
    is_chunk = key.rpartition("/")[2] not in _DOCUMENTS
    if isinstance(error, ForbiddenLocationError):
        return HTTPStatus.FORBIDDEN
    if isinstance(error, SourceNotFoundError | GroupNotFoundError) and not is_chunk:
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.BAD_GATEWAY


def error_body(error: Exception, /, *, timeout: float, **more: Any) -> bytes:
    """Return an error as JSON: its class, its message, and the variable, cell and URL that it names."""
    fields: Mapping[str, Any] = {name: getattr(error, name, None) for name in ("variable", "cell", "url")}
    is_ours = isinstance(error, VirtualStackError)
    message = printable(str(error)) if is_ours else f"the source did not answer within {timeout:g} s"
    body = {"error": type(error).__name__, "message": message, **fields, **more}
    shown = {key: hide_secrets(x) if isinstance(x, str) else x for key, x in body.items() if x is not None}
    return json.dumps(shown).encode()


def shown_url(url: str, /) -> str:
    """Return a URL without what may be a secret: a login, and the values of a query.

    >>> shown_url("https://user:word@host/day.nc?signature=1f2e")
    'https://host/day.nc?...'
    """
    return printable(hide_secrets(url))


def hide_secrets(text: str, /) -> str:
    """Return text in which URLs have no login and no query, as a query may hold a signature.

    >>> hide_secrets("'https://user:word@host/day.nc?signature=1f2e' cannot be read")
    "'https://host/day.nc?...' cannot be read"
    """
    return _SECRETS.sub(lambda found: f"{found[1]}{found[3]}" + ("?..." if found[4] else ""), text)
