"""Decoders from bytes to bytes that never write more than a given limit, even if a chunk is damaged.

Deflate streams (RFC 1950 to 1952) are read by ISA-L if it is installed. ISA-L is about twice as fast as zlib.
"""

from __future__ import annotations

import bz2
import importlib
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numcodecs
import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import BytesDecoder, BytesLike, Codec, CodecError, check_size, raw_bytes, shortened
from virtualstack.codecs.plugins import FilterPlugin, find_foreign_plugin, find_plugin
from virtualstack.errors import UnsupportedFeatureError, VirtualStackError

__all__ = [
    "INFLATE_ERRORS",
    "INTO",
    "SHUFFLE",
    "BytesDecoder",
    "CodecError",
    "bounded_decoder",
    "decode_zstd",
    "encoded_size",
    "new_gzip",
    "new_inflate",
    "new_zlib",
    "raw_bytes",
    "shuffle",
]

INFLATE_ERRORS: tuple[type[Exception], ...] = (zlib.error,)
"""Errors that decoders raise if the bytes are not a deflate stream, or if the checksum differs."""

_inflate: Any = zlib
try:
    _inflate = importlib.import_module("isal.isal_zlib")
except ImportError:  # no wheel for this machine
    pass
else:
    INFLATE_ERRORS = (zlib.error, _inflate.error)


def new_zlib() -> Any:
    """Return a new decoder of one zlib stream, with the interface of :func:`zlib.decompressobj`."""
    return _inflate.decompressobj()


def new_gzip() -> Any:
    """Return a new decoder of one gzip member."""
    return _inflate.decompressobj(zlib.MAX_WBITS | 16)


def new_inflate() -> Any:
    """Return a new decoder of one deflate stream without header."""
    return _inflate.decompressobj(-zlib.MAX_WBITS)


# bytes after the end of a stream are copied in blocks, so that many streams do not copy the whole chunk each time
_COPY_BLOCK_BYTES = 1 << 14
_FREE_STREAMS = 1000
"""Streams in a row that any chunk may have."""
_BYTES_PER_STREAM = 1000
"""A chunk may have one further stream for each of these stored bytes: starting a stream costs as much time."""


def _drain(what: str, new: Callable[[], Any], raw: BytesLike, limit: int, *, is_many: bool) -> bytes:
    """Decompress one stream, or several in a row, to at most ``limit`` bytes."""
    parts: list[bytes] = []
    room = limit
    rest = memoryview(raw)
    block = len(rest)  # of the first stream; most chunks have only one
    most = _FREE_STREAMS + len(rest) // _BYTES_PER_STREAM
    for _ in range(most):
        stream = new()
        while not stream.eof:
            if not rest:
                raise CodecError(f"{what} ends before it should: the chunk is cut short or damaged")
            part = stream.decompress(rest[:block], room + 1)
            if len(part) > room:
                raise CodecError(f"{what} holds more than {limit} bytes, the most that is expected")
            parts.append(part)
            room -= len(part)
            rest = rest[min(block, len(rest)) - len(stream.unused_data) :]
        block = _COPY_BLOCK_BYTES
        while rest and is_many and not rest[0]:
            padding = bytes(rest[:block])
            rest = rest[len(padding) - len(padding.lstrip(b"\0")) :]
        if not rest or not is_many:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise CodecError(
        f"{what} has {len(raw)} bytes and more than {most} parts, which are nearly empty. "
        "Write the chunk again as one part"
    )


def _stream(what: str, new: Callable[[], Any], *, is_many: bool = True) -> BytesDecoder:
    return lambda raw, size, limit: _drain(what, new, raw, limit, is_many=is_many)


def _lzma(options: Mapping[str, Any]) -> BytesDecoder:
    kind = options.get("format", lzma.FORMAT_XZ)
    more = {"filters": options.get("filters")} if kind == lzma.FORMAT_RAW else {"memlimit": 1 << 30}
    return _stream("the LZMA stream", lambda: lzma.LZMADecompressor(kind, **more))


def decode_zstd(raw: BytesLike, size: int | None, limit: int, out: NDArray[np.uint8] | None = None, /) -> BytesLike:
    """Decompress a zstd frame of ``size`` bytes, if they are known, and at most ``limit``; into ``out`` if it fits.

    Raises
    ------
    CodecError
        The frame holds another number of bytes, or does not say how many.
    RuntimeError
        The frame is damaged.
    """
    found = _zstd_size(bytes(raw[:18]))
    if found is not None:
        check_size("the zstd frame", found, size, limit)
        size = found
    elif size is None:
        raise CodecError("the zstd frame does not say how many bytes it holds, and nothing else does")
    if out is None or out.size != size:
        out = np.empty(size, np.uint8)
    if size:
        numcodecs.Zstd().decode(raw, out)
    return out


def _zstd_size(header: bytes) -> int | None:
    """Read the content size of a zstd frame; return ``None`` if the frame does not store its size."""
    # RFC 8878, 3.1.1: magic, descriptor, window descriptor unless single segment, dictionary id, content size
    if len(header) < 6 or header[:4] != b"\x28\xb5\x2f\xfd":
        raise CodecError("there is no zstd frame: the magic number is missing")
    descriptor = header[4]
    is_single = bool(descriptor & 0x20)
    flag = descriptor >> 6
    if not flag and not is_single:
        return None
    at = 5 + (not is_single) + (0, 1, 2, 4)[descriptor & 3]
    width = 1 << flag
    if len(header) < at + width:
        raise CodecError("the zstd frame ends in its header")
    return int.from_bytes(header[at : at + width], "little") + (256 if flag == 1 else 0)


def _blosc(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
    if len(raw) < 16:
        raise CodecError(f"a blosc frame has 16 bytes of header at least; there are {len(raw)}")
    # c-blosc README_HEADER: nbytes, blocksize and cbytes follow four bytes of versions and flags
    found, _, stored = struct.unpack("<III", bytes(raw[4:16]))
    if stored > len(raw):
        raise CodecError(f"the blosc frame says that it is {stored} bytes long; there are {len(raw)}")
    check_size("the blosc frame", found, size, limit)
    return numcodecs.Blosc().decode(raw) if found else b""


def _lz4(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
    if len(raw) < 4:
        raise CodecError(f"an lz4 chunk begins with its size in 4 bytes; there are {len(raw)} bytes")
    found = int.from_bytes(bytes(raw[:4]), "little")
    check_size("the lz4 chunk", found, size, limit)
    return numcodecs.LZ4().decode(raw) if found else b""


def _fletcher32(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
    if len(raw) < 4:
        raise CodecError(f"a fletcher32 checksum has 4 bytes; the chunk has {len(raw)}")
    return numcodecs.Fletcher32().decode(raw) if len(raw) > 4 else b""


SHUFFLE = "virtualstack.shuffle"
"""Name of a shuffle filter that accepts any number of bytes. The shuffle of numcodecs refuses an incomplete element."""


def shuffle(options: Mapping[str, Any], /) -> BytesDecoder:
    """Make the decoder; ``elementsize`` is in bytes."""
    width = int(options.get("elementsize", 4))

    def decode(raw: BytesLike, size: int | None, limit: int, out: NDArray[np.uint8] | None = None, /) -> BytesLike:
        source = raw_bytes(raw)
        n = source.size // width if width > 1 else 0
        if n < 2:
            return source
        # HDF5 stores bytes that do not fill an element unchanged, at the end.
        if out is None or out.size != source.size:
            out = np.empty_like(source)
        elements, planes = out[: n * width].reshape(n, width), source[: n * width].reshape(width, n)
        for i in range(width):
            elements[:, i] = planes[i]
        out[n * width :] = source[n * width :]
        return out

    return decode


_GZIP = _stream("the gzip stream", new_gzip)

_DECODERS: Mapping[str, BytesDecoder] = {
    "blosc": _blosc,
    "gzip": _GZIP,
    "numcodecs.blosc": _blosc,
    "numcodecs.bz2": _stream("the bzip2 stream", bz2.BZ2Decompressor),
    "numcodecs.fletcher32": _fletcher32,
    "numcodecs.gzip": _GZIP,
    "numcodecs.lz4": _lz4,
    "numcodecs.zlib": _stream("the deflate stream", new_zlib, is_many=False),
    "numcodecs.zstd": decode_zstd,
    "zstd": decode_zstd,
    "numcodecs.imagecodecs_blosc": _blosc,  # imagecodecs reads past the end of a frame if the frame claims to be longer
    "numcodecs.imagecodecs_lzma": _lzma({"format": lzma.FORMAT_AUTO}),
}
"""Decoders that need no settings."""

_FACTORIES: Mapping[str, Callable[[Mapping[str, Any]], BytesDecoder]] = {
    "numcodecs.lzma": _lzma,
    "numcodecs.shuffle": shuffle,
}
INTO = frozenset({"numcodecs.zstd", "zstd", "numcodecs.shuffle", SHUFFLE})
"""Codecs whose decoders take an array to write to: memory that was used before costs no page faults."""

_NUMCODECS = "numcodecs."
_SAME_SIZE = frozenset({"numcodecs.shuffle", SHUFFLE})
_CHECKSUMS = frozenset(
    {"crc32c", *(f"numcodecs.{name}" for name in ("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"))}
)


def _registered_filter(codec: Codec) -> type[FilterPlugin] | None:
    """Return the filter that a format of virtualstack registered, or ``None`` if there is none."""
    kind = find_plugin(codec.name)
    return kind if kind is not None and issubclass(kind, FilterPlugin) else None


def _foreign_decoder(codec: Codec) -> BytesDecoder | None:
    """Return the decoder that a format of virtualstack has for a codec of another package, or ``None``."""
    name = codec.name.removeprefix(_NUMCODECS)
    kind = None if name == codec.name else find_foreign_plugin(name)
    return None if kind is None else kind.foreign_decoder({**codec.options(), "id": name})


@lru_cache(maxsize=1024)
def bounded_decoder(codec: Codec, /) -> BytesDecoder | None:
    """Return the decoder of a codec that is known here, or ``None``."""
    if (decoder := _DECODERS.get(codec.name)) is not None:
        return decoder
    factory = _FACTORIES.get(codec.name)
    filter_ = _registered_filter(codec) if factory is None else None
    try:
        if factory is not None:
            return factory(codec.options())
        return _foreign_decoder(codec) if filter_ is None else filter_.decoder(codec.options())
    except VirtualStackError:
        raise
    except (LookupError, ValueError, TypeError, ArithmeticError) as error:
        raise UnsupportedFeatureError(
            f"codec '{codec.name}' does not take the configuration {shortened(codec.configuration)}: "
            f"{shortened(error)}",
            feature=codec.name,
        ) from error


def encoded_size(codec: Codec, size: int | None, limit: int, /) -> tuple[int | None, int]:
    """Return the number of bytes that ``size`` bytes have after encoding, if it is known, and an upper limit.

    The limit leaves room for bytes that do not compress.
    """
    if codec.name in _SAME_SIZE:
        return size, limit
    if codec.name in _CHECKSUMS:
        return None if size is None else size + 4, limit + 4
    filter_ = None if size is None else _registered_filter(codec)
    if filter_ is not None and size is not None and (size := filter_.encoded_size(codec.options(), size)) is not None:
        return size, size
    return None, limit + limit // 16 + (1 << 16)
