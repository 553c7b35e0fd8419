"""JSON documents, compressed; reading one is bounded."""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from virtualstack.errors import MalformedFileError, WriterError

__all__ = ["MAX_DOCUMENT", "dump", "load"]

MAX_DOCUMENT = 1 << 28
"""Bytes of a document, before it is compressed."""


def dump(document: Any, /) -> bytes:
    """Write a document as gzip.

    Raises
    ------
    WriterError
        It has a text that is no Unicode, or is larger than :data:`MAX_DOCUMENT`.
    """
    try:
        data = orjson.dumps(document)
    except (TypeError, orjson.JSONEncodeError) as error:
        raise WriterError(f"metadata cannot be written as JSON: {error}; rename what is not plain text") from error
    if len(data) > MAX_DOCUMENT:
        raise WriterError(
            f"metadata of {len(data)} bytes; a manifest store takes {MAX_DOCUMENT}: write variables to several stores"
        )
    compressor = zlib.compressobj(1 if len(data) > 1 << 20 else 6, wbits=31)
    return compressor.compress(data) + compressor.flush()


def load(data: bytes, /, *, url: str) -> dict[str, Any]:
    """Read a document.

    Raises
    ------
    MalformedFileError
        It is none, or is larger than :data:`MAX_DOCUMENT`.
    """
    try:
        inflater = zlib.decompressobj(wbits=31)
        text = inflater.decompress(data, MAX_DOCUMENT)
        if not inflater.eof or inflater.unconsumed_tail or inflater.unused_data:
            raise MalformedFileError(
                f"'{url}' is cut off, or has more than {MAX_DOCUMENT} bytes: restore it, or open another snapshot",
                url=url,
            )
        document = orjson.loads(text)
    except (zlib.error, orjson.JSONDecodeError) as error:
        raise MalformedFileError(
            f"'{url}' is damaged: {error}; restore it, or open another snapshot", url=url
        ) from error
    if not isinstance(document, dict):
        raise MalformedFileError(f"'{url}' is no object of a manifest store: restore it", url=url)
    return document
