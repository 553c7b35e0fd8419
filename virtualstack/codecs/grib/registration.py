"""The codec as zarr and numcodecs load it, by entry point; it only decodes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numcodecs.abc
import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer

from virtualstack.codecs.decoder import CodecError
from virtualstack.codecs.grib.codec import GRIB, grib_decoder
from virtualstack.codecs.metadata import Codec

__all__ = ["Grib", "ZarrGrib"]


@dataclass(frozen=True)
class ZarrGrib(ArrayBytesCodec):
    """A GRIB message as a chunk, in zarr version 3 metadata."""

    is_fixed_size: ClassVar[bool] = False  # type: ignore[misc]

    codec: Codec

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the codec's metadata."""
        return cls(Codec.from_json(data))

    def to_dict(self) -> Any:
        """Write the codec's metadata."""
        return self.codec.to_json()

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Refuse: the size depends on the values.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        decode = grib_decoder(self.codec.options(), chunk_spec.shape)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(decode(chunk_bytes.to_bytes()))

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)


class Grib(numcodecs.abc.Codec):  # type: ignore[misc]
    """A GRIB message as a chunk, in zarr version 2 metadata; its settings are those of the codec."""

    codec_id = GRIB

    def __init__(self, **options: Any) -> None:
        self._options, self._decode = options, grib_decoder(options)

    def get_config(self) -> dict[str, Any]:
        """Give the settings, with the ``id``."""
        return {"id": GRIB, **self._options}

    def encode(self, _buf: Any) -> Any:
        """Refuse.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(f"'{GRIB}' only decodes")

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Give the values, in ``out`` where it is given."""
        values = self._decode(bytes(memoryview(buf).cast("B")))
        if out is None:
            return values
        target = np.asarray(memoryview(out).cast("B"))
        if target.size != values.nbytes:
            raise CodecError(f"the chunk decodes to {values.nbytes} bytes; there is room for {target.size}")
        target[:] = values.reshape(-1).view(np.uint8)
        return out
