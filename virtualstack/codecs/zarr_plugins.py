"""The codecs of all formats in zarr version 3 metadata, as zarr loads them, by entry point; they only decode."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any, Self

from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer

from virtualstack.codecs.bounded import bounded_decoder, encoded_size
from virtualstack.codecs.codec import Codec, CodecError, raw_bytes
from virtualstack.codecs.plugins import ArrayPlugin, find_plugin

_MAX_STORED_RATIO = 4
"""A stored element, such as a long double, may be at most this many times longer than the numpy element."""


@dataclass(frozen=True)
class ZarrCodec:
    """Metadata of a codec, and decoding in a thread."""

    is_fixed_size = False

    codec: Codec

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the codec's metadata."""
        return cls(Codec.from_json(data))

    def to_dict(self) -> Any:
        """Write the codec's metadata."""
        return self.codec.to_json()

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Refuse: the size depends on the values."""
        raise NotImplementedError

    def _decode_sync(self, chunk: Any, spec: ArraySpec) -> Any:
        raise NotImplementedError

    async def _decode_single(self, chunk: Any, spec: ArraySpec) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk, spec)


class ZarrArray(ZarrCodec, ArrayBytesCodec):
    """A codec that decodes a chunk to an array."""

    def _decode_sync(self, chunk: Buffer, spec: ArraySpec) -> NDBuffer:
        plugin = find_plugin(self.codec.name)
        if plugin is None or not issubclass(plugin, ArrayPlugin):
            raise CodecError(f"'{self.codec.name}' is no codec of arrays")
        decode = plugin.decoder(self.codec.options(), spec.shape)
        return spec.prototype.nd_buffer.from_numpy_array(decode(chunk.to_bytes()))


class ZarrFilter(ZarrCodec, BytesBytesCodec):
    """A codec that decodes bytes to bytes, such as a filter of HDF5."""

    def _decode_sync(self, chunk: Buffer, spec: ArraySpec) -> Buffer:
        decode = bounded_decoder(self.codec)
        if decode is None:
            raise CodecError(f"'{self.codec.name}' is no filter")
        size = math.prod(spec.shape) * spec.dtype.to_native_dtype().itemsize
        _, limit = encoded_size(self.codec, None, _MAX_STORED_RATIO * size)
        return spec.prototype.buffer.from_array_like(raw_bytes(decode(raw_bytes(chunk.as_numpy_array()), None, limit)))
