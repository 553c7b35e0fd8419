"""The codec as zarr and numcodecs load it, by entry point; it only decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.grib.codec import GRIB, GribDecoder, grib_decoder
from virtualstack.codecs.plugins import NumcodecsPlugin, ZarrPlugin

__all__ = ["Grib", "ZarrGrib"]

_KERCHUNK = {"id": "grib", "var": "values", "dtype": "float32"}
"""The configuration of kerchunk's codec that decodes the same as ours."""


class ZarrGrib(ZarrPlugin):
    """A GRIB message as a chunk, in zarr version 3 metadata."""

    @classmethod
    def to_numcodecs(cls, codec: Codec, /) -> list[dict[str, Any]]:
        """Return the configuration of kerchunk's codec where it decodes the same, else ours."""
        return [dict(_KERCHUNK)] if codec.options().get("plain") else super().to_numcodecs(codec)

    @classmethod
    def from_numcodecs(cls, config: Mapping[str, Any], chunks: tuple[int, ...], /) -> Codec | None:
        """Return the codec for values that kerchunk's codec reads as it does."""
        return Codec.from_config(GRIB, row=chunks[-1], plain=True) if config == _KERCHUNK and chunks else None

    def decoder(self, options: Mapping[str, Any], shape: tuple[int, ...], /) -> GribDecoder:
        """Make the decoder of messages of one grid."""
        return grib_decoder(options, shape)


class Grib(NumcodecsPlugin):
    """A GRIB message as a chunk, in zarr version 2 metadata; its settings are those of the codec."""

    codec_id = GRIB

    def decoder(self, options: Mapping[str, Any], /) -> GribDecoder:
        """Make the decoder of messages of any grid."""
        return grib_decoder(options)
