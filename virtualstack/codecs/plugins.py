"""Codecs that make an array of a chunk, as zarr and numcodecs load them; they only decode."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numcodecs.abc
import numpy as np
from numpy.typing import NDArray
from zarr.abc.codec import ArrayBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer

from virtualstack.codecs.decoder import Bytes, CodecError
from virtualstack.codecs.metadata import Codec

__all__ = ["NumcodecsPlugin", "ZarrPlugin"]


@dataclass(frozen=True)
class ZarrPlugin(ArrayBytesCodec):
    """A codec in zarr version 3 metadata.

    Parameters
    ----------
    codec
        Its metadata.
    """

    is_fixed_size: ClassVar[bool] = False  # type: ignore[misc]

    codec: Codec

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the codec's metadata."""
        return cls(Codec.from_json(data))

    def to_dict(self) -> Any:
        """Write the codec's metadata."""
        return self.codec.to_json()

    @abstractmethod
    def decoder(self, options: Mapping[str, Any], shape: tuple[int, ...], /) -> Callable[[Bytes], NDArray[Any]]:
        """Make the decoder of chunks of a shape."""

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Refuse: the size depends on the values.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        decode = self.decoder(self.codec.options(), chunk_spec.shape)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(decode(chunk_bytes.to_bytes()))

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)


class NumcodecsPlugin(numcodecs.abc.Codec):  # type: ignore[misc]
    """A codec in zarr version 2 metadata; its settings are those of the codec."""

    codec_id: str

    def __init__(self, **options: Any) -> None:
        self._options, self._decode = options, self.decoder(options)

    @abstractmethod
    def decoder(self, options: Mapping[str, Any], /) -> Callable[[Bytes], NDArray[Any]]:
        """Make the decoder."""

    def get_config(self) -> dict[str, Any]:
        """Give the settings, with the ``id``."""
        return {"id": self.codec_id, **self._options}

    def encode(self, _buf: Any) -> Any:
        """Refuse.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(f"'{self.codec_id}' only decodes")

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Give the values, in ``out`` where it is given."""
        values = self._decode(bytes(memoryview(buf).cast("B")))
        if out is None:
            return values
        target = np.asarray(memoryview(out).cast("B"))
        if target.size != values.nbytes:
            raise CodecError(f"the chunk decodes to {values.nbytes} bytes; there is room for {target.size}")
        target[:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return out
