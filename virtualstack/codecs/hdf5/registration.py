"""The filters as zarr and numcodecs load them, by entry point.

Zarr version 3 metadata names a filter ``virtualstack.szip``; version 2 metadata and kerchunk references have that name
as the ``id``. Both only decode.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numcodecs.abc
import numpy as np
from zarr.abc.codec import BytesBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer

from virtualstack.codecs.bounded import bounded_decoder, encoded_size
from virtualstack.codecs.decoder import CodecError, raw_bytes
from virtualstack.codecs.hdf5.blocks import BITSHUFFLE, LZ4
from virtualstack.codecs.hdf5.blosc2 import BLOSC2
from virtualstack.codecs.hdf5.compressors import LZF, SZIP
from virtualstack.codecs.hdf5.elements import ELEMENTS, is_text
from virtualstack.codecs.hdf5.nbit import NBIT
from virtualstack.codecs.hdf5.scaleoffset import SCALEOFFSET
from virtualstack.codecs.hdf5.shuffle import SHUFFLE
from virtualstack.codecs.hdf5.zfp import ZFP
from virtualstack.codecs.metadata import Codec

__all__ = [
    "Bitshuffle",
    "Blosc2",
    "Elements",
    "LZ4Blocks",
    "Lzf",
    "Nbit",
    "ScaleOffset",
    "Shuffle",
    "Szip",
    "ZarrFilter",
    "Zfp",
]

_MOST = (1 << 31) - 1
"""Bytes that a chunk decodes to at most where nothing else tells; HDF5 has chunks of less than 4 GiB."""
_MOST_STORED = 4
"""A stored element, such as a long double, has at most so many times the bytes of the numpy element made of it."""


def _decode(codec: Codec, raw: Any, limit: int) -> Any:
    decoder = bounded_decoder(codec)
    if decoder is None:
        raise CodecError(f"'{codec.name}' is no filter of HDF5")
    return decoder(raw_bytes(raw), None, limit)


@dataclass(frozen=True)
class ZarrFilter(BytesBytesCodec):
    """Any filter, in zarr version 3 metadata."""

    is_fixed_size: ClassVar[bool] = False  # type: ignore[misc]

    codec: Codec

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the codec's metadata."""
        return cls(Codec.from_json(data))

    def to_dict(self) -> Any:
        """Write the codec's metadata."""
        return self.codec.to_json()

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Refuse: what a filter makes of a chunk depends on the values.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        size = math.prod(chunk_spec.shape) * chunk_spec.dtype.to_native_dtype().itemsize
        _, limit = encoded_size(self.codec, None, _MOST_STORED * size)
        decoded = _decode(self.codec, chunk_bytes.as_numpy_array(), limit)
        return chunk_spec.prototype.buffer.from_array_like(raw_bytes(decoded))

    async def _decode_single(self, chunk_data: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._decode_sync, chunk_data, chunk_spec)


class _Filter(numcodecs.abc.Codec):  # type: ignore[misc]
    """A filter in zarr version 2 metadata; its settings are those of the codec."""

    codec_id: str

    def __init__(self, **options: Any) -> None:
        self._codec = Codec.of(self.codec_id, **options)

    def get_config(self) -> dict[str, Any]:
        """Give the settings, with the ``id``."""
        return {"id": self.codec_id, **self._codec.options()}

    def encode(self, buf: Any) -> Any:
        """Refuse.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(f"'{self.codec_id}' only decodes")

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Give the decoded bytes, in ``out`` where it is given."""
        decoded = raw_bytes(_decode(self._codec, buf, _MOST))
        if out is None:
            return decoded
        target = np.asarray(memoryview(out).cast("B"))
        if target.size != decoded.size:
            raise CodecError(f"the chunk decodes to {decoded.size} bytes; there is room for {target.size}")
        target[:] = decoded
        return out


class Bitshuffle(_Filter):
    """Filter 32008."""

    codec_id = BITSHUFFLE


class Blosc2(_Filter):
    """Filter 32026."""

    codec_id = BLOSC2


class Elements(_Filter):
    """No filter, but what makes numpy's elements of stored ones."""

    codec_id = ELEMENTS

    def encode(self, buf: Any) -> Any:
        """Give strings as they are: they end in NULs.

        Raises
        ------
        NotImplementedError
            There are numbers, which are only decoded.
        """
        return buf if is_text(self._codec.options()) else super().encode(buf)


class LZ4Blocks(_Filter):
    """Filter 32004."""

    codec_id = LZ4


class Lzf(_Filter):
    """Filter 32000."""

    codec_id = LZF


class Nbit(_Filter):
    """Filter 5."""

    codec_id = NBIT


class ScaleOffset(_Filter):
    """Filter 6."""

    codec_id = SCALEOFFSET


class Shuffle(_Filter):
    """Filter 2, where there need not be whole elements."""

    codec_id = SHUFFLE


class Szip(_Filter):
    """Filter 4."""

    codec_id = SZIP


class Zfp(_Filter):
    """Filter 32013."""

    codec_id = ZFP
