"""Zarr's codec ``sharding_indexed``: chunks in a chunk, each decoded within its bounds.

A shard does not store the values of its missing chunks: they are the fill value of the array, which is not part of an
encoding. `with_fill` adds the fill value to the codecs for decoding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec, CodecError, raw_bytes
from virtualstack.errors import ManifestError, UnsupportedFeatureError

SHARDS = "sharding_indexed"

INDEX_ENTRY_BYTES = 16
"""Bytes of the offset and the length of a chunk in the index of a shard."""

INDEX_CHECKSUM_BYTES = 4
"""Bytes of the checksum behind the index of a shard."""

NO_CHUNK = np.uint64((1 << 64) - 1)
"""Offset, and length, of a chunk that a shard does not have."""

_FILL = "virtualstack_fill"  # bytes of the fill value, in hexadecimal
_BLOCK_CHUNKS = 1 << 12
_MAX_INNER_CHUNKS = 1 << 22  # chunks of a shard: each costs time, and a few compressed bytes can stand for many
_OVERHEAD_BYTES = 4096  # upper limit of what codecs add to a small chunk

type _DecoderOf = Callable[[tuple[Codec, ...], np.dtype[Any], tuple[int, ...]], Callable[[Any], NDArray[Any]]]


def with_fill(codecs: tuple[Codec, ...], fills: Iterable[bytes], /) -> tuple[Codec, ...]:
    """Write the fill value of the array into the codecs that decode shards, if there is exactly one fill value."""
    names = [codec.name for codec in codecs]
    if SHARDS not in names or len(distinct := set(fills)) != 1:
        return codecs
    if set(names[: names.index(SHARDS)]) - {"transpose"}:
        return codecs  # values in a shard differ from the values of the array
    told = {_FILL: distinct.pop().hex()}
    return tuple(Codec.from_config(x.name, **x.options(), **told) if x.name == SHARDS else x for x in codecs)


def shard_decoder(
    codec: Codec, dtype: np.dtype[Any], shape: tuple[int, ...], make_decoder: _DecoderOf, /
) -> Callable[[Any], NDArray[Any]]:
    """Make the decoder of shards; chunks that a shard does not have can be read if `with_fill` added the fill value."""
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
        fill = _fill(options.get(_FILL), dtype)
    except (KeyError, TypeError, ValueError, ManifestError) as error:
        raise UnsupportedFeatureError(
            f"codec '{SHARDS}' does not take the configuration {codec.configuration[:500]}: {error}", feature=SHARDS
        ) from error
    grid = tuple(n // m for n, m in zip(shape, inner, strict=True))
    if math.prod(grid) > _MAX_INNER_CHUNKS:
        raise UnsupportedFeatureError(
            f"codec '{SHARDS}' has {math.prod(grid)} chunks in a shard; {_MAX_INNER_CHUNKS} are decoded: write it with "
            "longer ones",
            feature=SHARDS,
        )
    length = INDEX_ENTRY_BYTES * math.prod(grid) + INDEX_CHECKSUM_BYTES * (len(of_index) - 1)
    read, read_index = make_decoder(codecs, dtype, inner), make_decoder(of_index, np.dtype("<u8"), (*grid, 2))

    def decode(raw: Any) -> NDArray[Any]:
        data = raw_bytes(raw)
        if data.size < length:
            raise CodecError(f"a shard of {data.size} bytes, whose index has {length}")
        most = data.size if dtype.kind in "OT" else 2 * math.prod(inner) * dtype.itemsize + _OVERHEAD_BYTES
        begin, end = (length, data.size) if is_first else (0, data.size - length)
        spots = read_index(data[:length] if is_first else data[data.size - length :]).reshape(-1, 2)
        is_absent = (spots == NO_CHUNK).all(1)
        is_whole = not is_absent.any()
        if fill is None and not is_whole:
            raise CodecError("a shard lacks some of its chunks, and their fill value is not known")
        values = np.empty(shape, dtype) if is_whole else np.full(shape, fill, dtype)
        # lists of all chunks would take many times the memory of the index
        for first in range(0, len(spots), _BLOCK_CHUNKS):
            at = first + np.flatnonzero(~is_absent[first : first + _BLOCK_CHUNKS])
            cells = np.stack(np.unravel_index(at, grid), 1).tolist() if grid else [()] * len(at)
            for cell, (offset, n) in zip(cells, spots[at].tolist(), strict=True):
                if not begin <= offset <= offset + n <= end:
                    raise CodecError(f"a shard of {data.size} bytes has a chunk of {n} bytes at {offset}")
                if n > most:  # each chunk could then be as long as the whole shard
                    raise CodecError(f"a shard has a chunk of {n} bytes, which decodes to {most // 2} bytes at most")
                box = tuple(slice(i * m, (i + 1) * m) for i, m in zip(cell, inner, strict=True))
                values[box] = read(data[offset : offset + n])
        return values

    return decode


def _fill(told: object, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the fill value; ``None`` if it was not given, or does not have the dtype."""
    if not isinstance(told, str):
        return None
    raw = bytes.fromhex(told)
    if dtype.kind == "T":
        return np.array(raw.decode(), dtype)
    if len(raw) != dtype.itemsize:
        return None
    native = dtype.newbyteorder("=")
    return np.frombuffer(raw, native).reshape(()) if native.itemsize else np.zeros((), native)
