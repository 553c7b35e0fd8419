"""The codec as numcodecs and the pipeline load it, by entry point; it only decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from virtualstack.codecs.codec import BytesDecoder, Codec
from virtualstack.codecs.grib.codec import GRIB, GribDecoder, grib_decoder, kerchunk_decoder
from virtualstack.codecs.plugins import ArrayPlugin

_KERCHUNK = {"id": "grib", "var": "values", "dtype": "float32"}
"""The configuration with which kerchunk's codec decodes the same as the codec of virtualstack."""


class Grib(ArrayPlugin):
    """A GRIB message as a chunk."""

    codec_id = GRIB
    promises: ClassVar[frozenset[str]] = frozenset({"plain"})
    naming_setting: ClassVar[str | None] = "grid"

    @classmethod
    def to_numcodecs(cls, codec: Codec, /) -> list[dict[str, Any]]:
        """Return kerchunk's configuration if it decodes the same, else the configuration of virtualstack."""
        return [dict(_KERCHUNK)] if codec.options().get("plain") else super().to_numcodecs(codec)

    @classmethod
    def from_numcodecs(cls, config: Mapping[str, Any], chunks: tuple[int, ...], /) -> Codec | None:
        """Return the codec for values if kerchunk's codec decodes them the same."""
        return Codec.from_config(GRIB, row=chunks[-1], plain=True) if config == _KERCHUNK and chunks else None

    @classmethod
    def foreign_decoder(cls, config: Mapping[str, Any], /) -> BytesDecoder:
        """Return the decoder of messages as kerchunk's codec decodes them."""
        return kerchunk_decoder(config)

    @classmethod
    def decoder(cls, options: Mapping[str, Any], shape: tuple[int, ...] | None = None, /) -> GribDecoder:
        """Make the decoder of messages of one grid; by default of any grid."""
        return grib_decoder(options, shape)
