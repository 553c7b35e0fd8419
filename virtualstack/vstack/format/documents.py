"""JSON documents, compressed; reading one is bounded."""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from virtualstack.errors import MalformedFileError, WriterError

__all__ = ["MAX_DOCUMENT", "dump", "load"]

MAX_DOCUMENT = 1 << 26
"""Bytes of a document, compressed or not; reading one takes several times as much memory."""

MAX_VALUES = 1 << 23
"""Commas and opening brackets of a document, each of which may take 200 bytes of memory."""


_BRACKETS = b",", b"[", b"{"


def dump(document: Any, /) -> bytes:
    """Write a document as gzip.

    Raises
    ------
    WriterError
        It has a text that is no Unicode, or is larger than :data:`MAX_DOCUMENT` or :data:`MAX_VALUES`.
    """
    try:
        data = orjson.dumps(document)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise WriterError(
            f"metadata cannot be written as JSON: {error} (in {': '.join(_unwritten(document))}); rename what is not "
            "plain text"
        ) from error
    if len(data) > MAX_DOCUMENT or sum(map(data.count, _BRACKETS)) > MAX_VALUES:
        raise WriterError(
            f"metadata of {len(data)} bytes; a vstack takes {MAX_DOCUMENT}, and {MAX_VALUES} values: write "
            "variables to several stores"
        )
    compressor = zlib.compressobj(1 if len(data) > 1 << 20 else 6, wbits=31)
    compressed = compressor.compress(data) + compressor.flush()
    if len(compressed) > MAX_DOCUMENT:
        raise WriterError(f"metadata of {len(compressed)} bytes, compressed; a vstack takes {MAX_DOCUMENT}")
    return compressed


_MOST_NAMED = 20


def _unwritten(value: Any, n: int = _MOST_NAMED) -> list[str]:
    """Give where a document has what is no JSON: its keys, from the outermost on, and no more than some."""
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
    """Read a document.

    Raises
    ------
    MalformedFileError
        It is none, or is larger than :data:`MAX_DOCUMENT` or :data:`MAX_VALUES`.
    """
    try:
        inflater = zlib.decompressobj(wbits=31)
        text = inflater.decompress(data, MAX_DOCUMENT)
        if not inflater.eof or inflater.unconsumed_tail or inflater.unused_data:
            raise MalformedFileError(
                f"'{url}' is cut off, or has more than {MAX_DOCUMENT} bytes: restore it, or open another snapshot",
                url=url,
            )
        if sum(map(text.count, _BRACKETS)) > MAX_VALUES:
            raise MalformedFileError(
                f"'{url}' has more than {MAX_VALUES} values: it is a trap, or was not written by virtualstack", url=url
            )
        document = orjson.loads(text)
    except (zlib.error, orjson.JSONDecodeError) as error:
        raise MalformedFileError(
            f"'{url}' is damaged: {error}; restore it, or open another snapshot", url=url
        ) from error
    if not isinstance(document, dict):
        raise MalformedFileError(f"'{url}' is no object of a vstack: restore it", url=url)
    return document
