"""Chunks cut into blocks, each compressed by itself: the filters lz4 and bitshuffle."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numcodecs.lz4 import decompress
from numpy.typing import NDArray

from virtualstack.codecs.decoder import Bytes, BytesDecoder, CodecError, check_size, raw_bytes
from virtualstack.codecs.hdf5.library import check_installed, imagecodecs

__all__ = ["BITSHUFFLE", "LZ4", "bitshuffle", "bitshuffle_settings", "lz4"]

BITSHUFFLE, LZ4 = "virtualstack.bitshuffle", "virtualstack.lz4"
_HEADER = struct.Struct(">QI")
"""Both filters: bytes of the decoded chunk, bytes of a decoded block."""
_GROUP = 8
"""Elements whose bits bitshuffle transposes together; what is left over at the end is stored as it is."""
_TARGET_BYTES, _MIN_BLOCK_ELEMENTS = 8192, 128
"""The block that bitshuffle takes where the file names none: bytes, and elements at least."""
_MAX_WIDTH = 1 << 20
"""Bytes of an element that a file is taken at its word for."""

type _Undo = Callable[[memoryview, int, int, memoryview], None]
"""Decodes the block between two places, the first 4 bytes of which are its size."""


def lz4(options: Mapping[str, Any], /) -> BytesDecoder:
    """Give the decoder of filter 32004; a block that did not shrink is stored as it is."""

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        out, work, n_bytes = _open(raw, "lz4", size, limit)
        _decode_blocks(work, memoryview(out), n_bytes, _copy_or_lz4)
        return out

    return decode


def bitshuffle_settings(options: Mapping[str, Any], /) -> tuple[int, int, str]:
    """Give bytes of an element, elements of a block and the compressor.

    Raises
    ------
    ValueError, LookupError, TypeError
        The filter has no such settings, or one is missing.
    """
    width, block, compressor = int(options["elementsize"]), int(options["blocksize"]), options["compressor"]
    if compressor not in ("none", *_COMPRESSORS):
        raise ValueError(f"has the compressor {compressor!r}, which is not known")
    if not 1 <= width <= _MAX_WIDTH or not 0 <= block < 1 << 32 or block % _GROUP:
        raise ValueError(f"has elements of {width} bytes in blocks of {block}")
    return width, block, compressor


def bitshuffle(options: Mapping[str, Any], /) -> BytesDecoder:
    """Give the decoder of filter 32008.

    Parameters
    ----------
    options
        ``elementsize`` in bytes, ``blocksize`` in elements (0: the filter's own choice; compressed chunks say it
        themselves) and ``compressor``: ``"none"``, ``"lz4"`` or ``"zstd"``.
    """
    width, block, compressor = bitshuffle_settings(options)
    check_installed(BITSHUFFLE)
    if compressor == "none":
        return lambda raw, size, limit: _unshuffle(raw_bytes(raw), width, block or _own_block(width))
    undo = _COMPRESSORS[compressor]

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        out, work, n_bytes = _open(raw, "bitshuffle", size, limit)
        if out.size % width or n_bytes % (_GROUP * width) or not n_bytes:
            raise CodecError(
                f"the bitshuffle chunk says that it holds {out.size} bytes in blocks of {n_bytes}; elements have "
                f"{width} bytes and blocks {_GROUP} elements or a multiple"
            )
        whole = out.size - out.size % (_GROUP * width)
        at = _decode_blocks(work, memoryview(out)[:whole], n_bytes, undo)
        rest = out.size - whole
        if len(work) - at < rest:
            raise CodecError("the bitshuffle chunk is cut short")
        out[whole:] = np.frombuffer(work[at : at + rest], np.uint8)
        return _unshuffle(out, width, n_bytes // width)

    return decode


def _open(raw: Bytes, what: str, size: int | None, limit: int) -> tuple[NDArray[np.uint8], memoryview, int]:
    """Give memory for the decoded chunk, the stored bytes in memory that may be changed, and the bytes of a block."""
    if len(raw) < _HEADER.size:
        raise CodecError(f"the {what} chunk has {len(raw)} bytes; its header alone has {_HEADER.size}")
    work = memoryview(bytearray(raw))
    found, block = _HEADER.unpack_from(work)
    check_size(f"the {what} chunk", found, size, limit)
    if found and not block:
        raise CodecError(f"the {what} chunk says that its blocks have no bytes")
    return np.empty(found, np.uint8), work, block


def _decode_blocks(work: memoryview, out: memoryview, n_bytes: int, undo: _Undo) -> int:
    """Decode blocks of ``n_bytes`` each, the last one shorter, and give the place behind them."""
    at = _HEADER.size
    for start in range(0, len(out), max(n_bytes, 1)):
        end = at + 4 + int.from_bytes(work[at : at + 4], "big")
        if len(work) < at + 4 or len(work) < end:
            raise CodecError("a block reaches past the end of the chunk, which is cut short or damaged")
        undo(work, at, end, out[start : start + n_bytes])
        at = end
    return at


def _copy_or_lz4(work: memoryview, start: int, end: int, out: memoryview) -> None:
    if end - start - 4 == len(out):
        out[:] = work[start + 4 : end]
        return
    # numcodecs wants the decoded size in front, where the stored size stands
    work[start : start + 4] = len(out).to_bytes(4, "little")
    decompress(work[start:end], out)


def _lz4_block(work: memoryview, start: int, end: int, out: memoryview) -> None:
    _check_block(imagecodecs().lz4_decode(work[start + 4 : end], out=out), out)


def _zstd_block(work: memoryview, start: int, end: int, out: memoryview) -> None:
    _check_block(imagecodecs().zstd_decode(work[start + 4 : end], out=out), out)


def _check_block(decoded: Any, out: memoryview) -> None:
    if len(decoded) != len(out):
        raise CodecError(f"a block holds {len(decoded)} bytes; {len(out)} are expected")


_COMPRESSORS: Mapping[str, _Undo] = {"lz4": _lz4_block, "zstd": _zstd_block}


def _own_block(width: int) -> int:
    """Give the elements of a block where the file does not: 8 KiB in multiples of 8."""
    return max(_TARGET_BYTES // width // _GROUP * _GROUP, _MIN_BLOCK_ELEMENTS)


def _unshuffle(data: NDArray[np.uint8], width: int, block: int) -> Bytes:
    if data.size % width:
        raise CodecError(f"the bitshuffle chunk has {data.size} bytes, which are no elements of {width} bytes")
    if not data.size:
        return data
    out = np.empty(data.size, np.uint8)
    imagecodecs().bitshuffle_decode(memoryview(data), itemsize=width, blocksize=block, out=memoryview(out))
    return out
