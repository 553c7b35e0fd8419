"""Compressors whose chunks are one stream: LZF and szip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from virtualstack.codecs.aec import szip_settings
from virtualstack.codecs.decoder import Bytes, BytesDecoder, CodecError, check_size, raw_bytes
from virtualstack.codecs.hdf5.library import check_installed, imagecodecs

__all__ = ["LZF", "SZIP", "lzf", "szip"]

LZF, SZIP = "virtualstack.lzf", "virtualstack.szip"
_LZF_RATIO = 88
"""Bytes that one stored byte gives at most: 264 from a back reference of 3."""


def lzf(options: Mapping[str, Any], /) -> BytesDecoder:
    """Give the decoder of filter 32000."""
    check_installed(LZF)

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        source = raw_bytes(raw)
        if not source.size:
            raise CodecError("there is no LZF stream: the chunk is empty")
        room = min(limit, _LZF_RATIO * (source.size + 1)) if size is None else size
        decoded: Bytes = imagecodecs().lzf_decode(source, header=False, out=np.empty(max(room, 1), np.uint8))
        if size is not None and len(decoded) != size:
            raise CodecError(f"the LZF stream holds {len(decoded)} bytes; {size} are expected")
        return decoded

    return decode


def szip(options: Mapping[str, Any], /) -> BytesDecoder:
    """Give the decoder of filter 4: the size in 4 bytes, least significant first, and a stream of libaec.

    Parameters
    ----------
    options
        ``options_mask``, ``pixels_per_block``, ``bits_per_pixel`` and ``pixels_per_scanline``, as in the file.
    """
    settings = szip_settings(options)
    check_installed(SZIP)

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        source = raw_bytes(raw)
        if source.size < 4:
            raise CodecError(f"an szip chunk begins with its size in 4 bytes; there are {source.size} bytes")
        found = int.from_bytes(source[:4].tobytes(), "little")
        check_size("the szip chunk", found, size, limit)
        if not found:
            return b""
        decoded: Bytes = imagecodecs().szip_decode(source, **settings, header=True, out=np.empty(found, np.uint8))
        if len(decoded) != found:
            raise CodecError(f"the szip stream gives {len(decoded)} bytes; its header says {found}")
        return decoded

    return decode
