"""The filter zfp (32013). The header that describes every chunk is stored in the dataset's filter parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import BytesDecoder, BytesLike, CodecError, check_size, raw_bytes
from virtualstack.codecs.hdf5.compressors import check_installed, imagecodecs
from virtualstack.codecs.hdf5.packed_bits import check_words

ZFP = "virtualstack.zfp"
_MAGIC = b"zfp\x05"
_DTYPES = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.float64)
_LONG_MODE = 0xFFF
_SHORT_BITS, _LONG_BITS = 96, 148
_MAX_FIXED_BLOCK_BITS = 2048


class ZfpHeader(NamedTuple):
    """Content of a zfp header."""

    n_bits: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    block_bits: int


def parse_header(words: Sequence[int], /) -> ZfpHeader:
    """Read a zfp header, least significant bit first.

    zfp's ``zfp_read_header``: 32 bits of magic, 52 of type and shape, then 12 or 64 of the mode.
    """
    check_words(words)
    data = np.array(words, "<u4").tobytes()
    if data[:4] != _MAGIC or len(data) * 8 < _SHORT_BITS:
        raise ValueError("has parameters without a zfp header")
    meta = int.from_bytes(data, "little") >> 32
    mode = meta >> 52
    dtype, n_dims = _DTYPES[meta & 3], (meta >> 2 & 3) + 1
    width = 48 // n_dims
    sizes = [(meta >> 4 + i * width & ((1 << width) - 1)) + 1 for i in range(n_dims)]
    shape = tuple(reversed(sizes))
    if mode & 0xFFF != _LONG_MODE:
        short = mode & 0xFFF
        # zfp_stream_set_mode: a fixed rate up to 2048 bits a block
        return ZfpHeader(
            n_bits=_SHORT_BITS, shape=shape, dtype=dtype, block_bits=short + 1 if short < _MAX_FIXED_BLOCK_BITS else 1
        )
    if len(data) * 8 < _LONG_BITS:
        raise ValueError("has a zfp header that ends early")
    return ZfpHeader(n_bits=_LONG_BITS, shape=shape, dtype=dtype, block_bits=(mode >> 12 & 0x7FFF) + 1)


def zfp(options: Mapping[str, Any], /) -> BytesDecoder:
    """Return the decoder."""
    words = [int(word) for word in options["header"]]
    header = parse_header(words)
    check_installed(ZFP)
    prefix = np.array(words, "<u4").view(np.uint8)

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        check_size("the zfp header", math.prod(header.shape) * header.dtype.itemsize, size, limit)
        out = np.empty(header.shape, header.dtype)
        imagecodecs().zfp_decode(_stream(prefix, header, raw_bytes(raw)), out=out)
        return raw_bytes(out)

    return decode


def _stream(prefix: NDArray[np.uint8], header: ZfpHeader, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Join header and chunk bit by bit, followed by enough zeros that no decoder reads past the end.

    zfp trusts its input. For each block it reads at most a header, one bit for each bit plane, one for each element,
    and one for each bit plane of each element.
    """
    n_blocks = math.prod(-(-n // 4) for n in header.shape)
    if data.size * 8 < n_blocks * header.block_bits:
        raise CodecError(
            f"the zfp stream has {data.size} bytes; {n_blocks} blocks of {header.block_bits} bits are expected at least"
        )
    most = 4 ** len(header.shape) * (header.dtype.itemsize * 8 + 1) + 192
    whole, shift = divmod(header.n_bits, 8)
    stream = np.zeros(prefix.size + data.size + n_blocks * most // 8 + 64, np.uint8)
    stream[: whole + bool(shift)] = prefix[: whole + bool(shift)]
    if not shift:
        stream[whole : whole + data.size] = data
    else:
        stream[whole : whole + data.size] |= data << shift
        stream[whole + 1 : whole + 1 + data.size] |= data >> (8 - shift)
    return stream
