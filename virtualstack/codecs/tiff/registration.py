"""The codec as numcodecs and the pipeline load it, by entry point; it only decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.plugins import ArrayPlugin
from virtualstack.codecs.tiff.codec import TIFF, TiffDecoder, tiff_decoder
from virtualstack.codecs.tiff.settings import numcodecs_configs


class Tiff(ArrayPlugin):
    """A strip or tile as a chunk."""

    codec_id = TIFF

    @classmethod
    def to_numcodecs(cls, codec: Codec, /) -> list[dict[str, Any]]:
        """Return configurations of other packages if they decode the same, else the configuration of virtualstack."""
        return numcodecs_configs(codec)

    @classmethod
    def decoder(cls, options: Mapping[str, Any], shape: tuple[int, ...] | None = None, /) -> TiffDecoder:
        """Make the decoder of strips or tiles of one shape; by default of the shape of the settings."""
        return tiff_decoder(options, shape)
