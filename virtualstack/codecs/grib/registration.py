"""The codec as zarr and numcodecs load it, by entry point; it only decodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtualstack.codecs.grib.codec import GRIB, GribDecoder, grib_decoder
from virtualstack.codecs.plugins import NumcodecsPlugin, ZarrPlugin

__all__ = ["Grib", "ZarrGrib"]


class ZarrGrib(ZarrPlugin):
    """A GRIB message as a chunk, in zarr version 3 metadata."""

    def decoder(self, options: Mapping[str, Any], shape: tuple[int, ...], /) -> GribDecoder:
        """Make the decoder of messages of one grid."""
        return grib_decoder(options, shape)


class Grib(NumcodecsPlugin):
    """A GRIB message as a chunk, in zarr version 2 metadata; its settings are those of the codec."""

    codec_id = GRIB

    def decoder(self, options: Mapping[str, Any], /) -> GribDecoder:
        """Make the decoder of messages of any grid."""
        return grib_decoder(options)
