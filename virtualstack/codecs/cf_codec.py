"""The codec that unpacks numbers, for zarr: arrays that have it in their metadata read as decoded values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from zarr.abc.codec import ArrayArrayCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import NDBuffer
from zarr.core.dtype import parse_dtype

from virtualstack.codecs.cf import CF, parse_packing
from virtualstack.codecs.zarr_plugins import ZarrCodec


class CFCodec(ZarrCodec, ArrayArrayCodec):
    """Decodes packed numbers by CF attributes; it does not encode."""

    is_fixed_size = True

    def resolve_metadata(self, chunk_spec: ArraySpec) -> ArraySpec:
        """Return the specification of the array before decoding."""
        packing = parse_packing(self.codec)
        dtype = chunk_spec.dtype.to_native_dtype()
        if dtype.newbyteorder("=") != packing.dtype:
            raise ValueError(f"codec '{CF}' gives values of '{packing.dtype}'; the array has '{dtype}'")
        stored = parse_dtype(packing.stored, zarr_format=3)
        return replace(chunk_spec, dtype=stored, fill_value=stored.default_scalar())

    def _decode_sync(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer:
        values = parse_packing(self.codec)(chunk_array.as_numpy_array())
        return chunk_spec.prototype.nd_buffer.from_numpy_array(np.asarray(values))

    async def _encode_single(self, chunk_array: NDBuffer, chunk_spec: ArraySpec) -> NDBuffer | None:
        raise NotImplementedError(f"codec '{CF}' only decodes: packing again would lose what the source has rounded")

    def compute_encoded_size(self, input_byte_length: int, chunk_spec: ArraySpec) -> int:
        """Return the number of stored bytes for a number of decoded bytes."""
        packing = parse_packing(self.codec)
        return input_byte_length // packing.dtype.itemsize * packing.stored.itemsize
