"""Zarr's codec ``sharding_indexed``: chunks in a chunk, each decoded within its bounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import CodecError, raw_bytes
from virtualstack.codecs.metadata import Codec
from virtualstack.errors import ManifestError, UnsupportedFeatureError

__all__ = ["SHARDS", "shard_decoder"]

SHARDS = "sharding_indexed"

_ABSENT = (1 << 64) - 1
_CHECKSUM = 4

type _DecoderOf = Callable[[tuple[Codec, ...], np.dtype[Any], tuple[int, ...]], Callable[[Any], NDArray[Any]]]


def shard_decoder(
    codec: Codec, dtype: np.dtype[Any], shape: tuple[int, ...], decoder_of: _DecoderOf, /
) -> Callable[[Any], NDArray[Any]]:
    """Make the decoder of shards; chunks that a shard does not have are zeros.

    Parameters
    ----------
    codec
        Its metadata.
    dtype, shape
        Of a shard.
    decoder_of
        Makes the decoders of the chunks in it, and of its index.

    Raises
    ------
    UnsupportedFeatureError
        Its configuration is none.
    """
    options = codec.options()
    try:
        inner = tuple(options["chunk_shape"])
        codecs, of_index = (tuple(map(Codec.from_json, options[key])) for key in ("codecs", "index_codecs"))
        is_first = {"start": True, "end": False}[options.get("index_location", "end")]
        if not all(type(m) is int and m > 0 and n % m == 0 for n, m in zip(shape, inner, strict=True)):
            raise ValueError(f"chunks of shape {inner} in a shard of shape {shape}")
        if [x.name for x in of_index] not in (["bytes"], ["bytes", "crc32c"]):
            raise ValueError("index_codecs")
        if any(x.name == SHARDS for x in codecs):
            raise ValueError("shards in a shard")
    except (KeyError, TypeError, ValueError, ManifestError) as error:
        raise UnsupportedFeatureError(
            f"codec '{SHARDS}' does not take the configuration {codec.configuration[:500]}: {error}", feature=SHARDS
        ) from error
    grid = tuple(n // m for n, m in zip(shape, inner, strict=True))
    length = 16 * math.prod(grid) + _CHECKSUM * (len(of_index) - 1)
    read, read_index = decoder_of(codecs, dtype, inner), decoder_of(of_index, np.dtype("<u8"), (*grid, 2))

    def decode(raw: Any) -> NDArray[Any]:
        data = raw_bytes(raw)
        if data.size < length:
            raise CodecError(f"a shard of {data.size} bytes, whose index has {length}")
        spots = read_index(data[:length] if is_first else data[data.size - length :]).reshape(-1, 2).tolist()
        values = np.zeros(shape, dtype)
        for cell, (offset, n) in zip(itertools.product(*map(range, grid)), spots, strict=True):
            if (offset, n) == (_ABSENT, _ABSENT):
                continue
            begin, end = (length, data.size) if is_first else (0, data.size - length)
            if not begin <= offset <= offset + n <= end:
                raise CodecError(f"a shard of {data.size} bytes has a chunk of {n} bytes at {offset}")
            box = tuple(slice(i * m, (i + 1) * m) for i, m in zip(cell, inner, strict=True))
            values[box] = read(data[offset : offset + n])
        return values

    return decode
