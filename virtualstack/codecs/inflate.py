"""Deflate streams (RFC 1950 to 1952): ISA-L, about twice as fast as zlib, where it is installed."""

from __future__ import annotations

import importlib
import zlib
from typing import Any

__all__ = ["INFLATE_ERRORS", "new_gzip", "new_zlib"]

INFLATE_ERRORS: tuple[type[Exception], ...] = (zlib.error,)
"""What decoders raise on bytes that are no such stream, or whose checksum differs."""

_inflate: Any = zlib
try:
    _inflate = importlib.import_module("isal.isal_zlib")
except ImportError:  # no wheel for this machine
    pass
else:
    INFLATE_ERRORS = (zlib.error, _inflate.error)


def new_zlib() -> Any:
    """Give a new decoder of one zlib stream, with the interface of :func:`zlib.decompressobj`."""
    return _inflate.decompressobj()


def new_gzip() -> Any:
    """Give a new decoder of one gzip member."""
    return _inflate.decompressobj(zlib.MAX_WBITS | 16)
