"""Read and write compressed JSON documents, Blosc frames, and tables that grow; every read is bounded."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson
from numcodecs import blosc

from virtualstack.errors import MalformedFileError, Remedy, WriterError
from virtualstack.manifests.serialised.values import to_count

MAX_DOCUMENT_BYTES = 1 << 26
"""Maximum bytes of a document, compressed or not; reading it takes several times as much memory."""

MAX_JSON_VALUES = 1 << 23
"""Maximum number of commas and opening brackets of a document; each may take 200 bytes of memory."""


_BRACKETS = b",", b"[", b"{"


def dump(document: Any, /) -> bytes:
    """Write a document as gzip."""
    try:
        data = orjson.dumps(document)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise WriterError(
            f"metadata cannot be written as JSON: {error} (in {': '.join(_unwritten(document))}); rename what is not "
            "plain text"
        ) from error
    if len(data) > MAX_DOCUMENT_BYTES or sum(map(data.count, _BRACKETS)) > MAX_JSON_VALUES:
        raise WriterError(
            f"the metadata have {len(data)} bytes; those of a vstack can have {MAX_DOCUMENT_BYTES} bytes and "
            f"{MAX_JSON_VALUES} values",
            Remedy("write the variables to several stores"),
        )
    compressor = zlib.compressobj(1 if len(data) > 1 << 20 else 6, wbits=31)
    return compressor.compress(data) + compressor.flush()


_MAX_NAMED_KEYS = 20


def _unwritten(value: Any, n: int = _MAX_NAMED_KEYS) -> list[str]:
    """Return the path of keys to a value that JSON cannot hold, from the outermost key on, with at most ``n`` keys."""
    if not n:
        return ["..."]
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        try:
            orjson.dumps({str(key): part})
        except (TypeError, orjson.JSONEncodeError):
            return [ascii(key), *_unwritten(part, n - 1)]
    return []


def load(data: bytes, /, *, url: str) -> dict[str, Any]:
    """Read a document."""
    try:
        inflater = zlib.decompressobj(wbits=31)
        text = inflater.decompress(data, MAX_DOCUMENT_BYTES)
        if not inflater.eof or inflater.unconsumed_tail or inflater.unused_data:
            raise MalformedFileError(
                f"'{url}' is cut off, or has more than {MAX_DOCUMENT_BYTES} bytes. Restore it, or open another "
                "snapshot",
                url=url,
            )
        if sum(map(text.count, _BRACKETS)) > MAX_JSON_VALUES:
            raise MalformedFileError(
                f"'{url}' has more than {MAX_JSON_VALUES} values; at most so many are read. It is damaged or "
                "malicious: do not use it",
                url=url,
            )
        document = orjson.loads(text)
    except (zlib.error, orjson.JSONDecodeError) as error:
        raise MalformedFileError(
            f"'{url}' is damaged: {error}", Remedy("restore it, or open another snapshot"), url=url
        ) from error
    if not isinstance(document, dict):
        raise MalformedFileError(f"'{url}' is not an object of a vstack", Remedy("restore it"), url=url)
    return document


_HEADER = struct.Struct("<4xIII")  # after versions, flags and typesize: bytes decoded, of a block, of the frame


def decoded_size(header: bytes, /) -> int:
    """Return the number of decoded bytes by the header of a frame, its first 16 bytes; 0 if the header is shorter."""
    return int(_HEADER.unpack_from(header)[0]) if len(header) >= _HEADER.size else 0


def decompressed(frame: bytes, /, *, least: int, most: int) -> bytes:
    """Decompress a frame that holds from ``least`` to ``most`` bytes.

    Blosc trusts the header: it takes the memory that the header names, and reads as far, even beyond the frame.
    """
    if len(frame) < _HEADER.size:
        raise ValueError(f"{len(frame)} bytes are not a blosc frame")
    n_decoded, _, n_stored = _HEADER.unpack_from(frame)
    if n_stored != len(frame):
        raise ValueError(f"the blosc frame says that it is {n_stored} bytes long; there are {len(frame)}")
    if not least <= n_decoded <= most:
        raise ValueError(f"the blosc frame holds {n_decoded} bytes, and should hold {least} to {most}")
    try:
        data: bytes = blosc.decompress(frame)
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return data


MAX_TAIL_ROWS = 128
"""Maximum number of rows that the snapshot itself holds."""

FULL_PAGE_ROWS = 4096
"""Number of rows of a full page, to which no rows are added."""


class PageRef(NamedTuple):
    """A reference to a page of a table."""

    name: str
    n: int
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in pages, and the rows after the pages.

    Parameters
    ----------
    pages
        Pages in order.
    tail
        Rows after the pages, as JSON.
    """

    pages: tuple[PageRef, ...] = ()
    tail: tuple[Any, ...] = ()

    @property
    def n(self) -> int:
        """Number of rows."""
        return sum(page.n for page in self.pages) + len(self.tail)

    def document(self) -> dict[str, Any]:
        """Return the table as JSON."""
        return {"pages": [[x.name, x.n, *x.low, *x.high] for x in self.pages], "tail": list(self.tail)}

    @classmethod
    def from_json(cls, document: Any, /, *, ndim: int = 0, where: str) -> Table:
        """Read a table from JSON; a table of placements has ``ndim`` axes."""
        try:
            pages = tuple(_page(row, ndim) for row in document["pages"])
            tail = document["tail"]
            if not isinstance(tail, list):
                raise TypeError(f"its tail is {tail!r}")
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedFileError(f"'{where}' has an invalid table: {error!r}", Remedy("restore it")) from error
        return cls(pages, tuple(tail))


def _page(row: Sequence[Any], ndim: int) -> PageRef:
    name, n, *box = row
    if not isinstance(name, str) or to_count(n) < 1 or len(box) != 2 * ndim:
        raise ValueError(f"its page {str(row)[:200]} is not valid")
    return PageRef(name, n, tuple(map(to_count, box[:ndim])), tuple(map(to_count, box[ndim:])))
