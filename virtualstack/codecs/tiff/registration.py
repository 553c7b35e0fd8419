"""The codec as zarr and numcodecs load it, by entry point; it only decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.plugins import NumcodecsPlugin, ZarrPlugin
from virtualstack.codecs.tiff.codec import TIFF, TiffDecoder, tiff_decoder
from virtualstack.codecs.tiff.settings import numcodecs_configs

__all__ = ["Tiff", "ZarrTiff"]


class ZarrTiff(ZarrPlugin):
    """A strip or tile as a chunk, in zarr version 3 metadata."""

    @classmethod
    def to_numcodecs(cls, codec: Codec, /) -> list[dict[str, Any]]:
        """Return configurations of other packages if they decode the same, else the configuration of virtualstack."""
        return numcodecs_configs(codec)

    def decoder(self, options: Mapping[str, Any], shape: tuple[int, ...], /) -> TiffDecoder:
        """Make the decoder of strips or tiles of one shape."""
        return tiff_decoder(options, shape)


class Tiff(NumcodecsPlugin):
    """A strip or tile as a chunk, in zarr version 2 metadata; its settings are the configuration of the codec."""

    codec_id = TIFF

    def decoder(self, options: Mapping[str, Any], /) -> TiffDecoder:
        """Make the decoder of strips or tiles of the shape of the settings."""
        return tiff_decoder(options)
