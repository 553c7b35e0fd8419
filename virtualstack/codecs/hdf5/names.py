"""Names that other packages have registered with numcodecs for the same bytes.

A kerchunk reader without virtualstack, but with that package, opens references that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtualstack.codecs.hdf5.blocks import LZ4
from virtualstack.codecs.hdf5.compressors import SZIP
from virtualstack.codecs.metadata import Codec

__all__ = ["codec_from_numcodecs", "numcodecs_config"]

_SZIP = "options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline"


def numcodecs_config(codec: Codec, /) -> dict[str, Any]:
    """Give the numcodecs configuration of a filter: another package's where it decodes the same, else ours.

    >>> numcodecs_config(Codec.of("virtualstack.lz4"))
    {'id': 'imagecodecs_lz4h5'}
    >>> numcodecs_config(Codec.of("virtualstack.lzf"))
    {'id': 'virtualstack.lzf'}
    """
    options = codec.options()
    if codec.name == LZ4:
        return {"id": "imagecodecs_lz4h5"}
    if codec.name == SZIP:
        return {"id": "imagecodecs_szip", **options, "header": True}
    return {"id": codec.name, **options}


def codec_from_numcodecs(config: Mapping[str, Any], /) -> Codec | None:
    """Give the filter that a numcodecs configuration stands for, or ``None`` where it is no filter of ours.

    >>> codec_from_numcodecs({"id": "imagecodecs_lz4h5"})
    Codec(name='virtualstack.lz4', configuration='{}')
    """
    name, options = config["id"], {key: value for key, value in config.items() if key != "id"}
    if name == "imagecodecs_lz4h5":
        return Codec.of(LZ4)
    if name == "imagecodecs_szip" and options.get("header", True) and options.keys() >= set(_SZIP):
        return Codec.of(SZIP, **{key: options[key] for key in _SZIP})
    return None
