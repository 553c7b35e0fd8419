"""Decoders of HDF5's filters by codec name, and the names that other packages register with numcodecs.

A kerchunk reader without virtualstack, but with such a package, opens references that use its names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from virtualstack.codecs.bounded import SHUFFLE, shuffle
from virtualstack.codecs.codec import BytesDecoder, Codec
from virtualstack.codecs.hdf5.compressors import BITSHUFFLE, BLOSC2, LZ4, LZF, SZIP, bitshuffle, blosc2, lz4, lzf, szip
from virtualstack.codecs.hdf5.elements import ELEMENTS, elements
from virtualstack.codecs.hdf5.packed_bits import NBIT, SCALEOFFSET, nbit, scaleoffset
from virtualstack.codecs.hdf5.zfp import ZFP, zfp

__all__ = ["FILTERS", "codec_from_numcodecs", "numcodecs_config"]

FILTERS: Mapping[str, Callable[[Mapping[str, Any]], BytesDecoder]] = {
    BITSHUFFLE: bitshuffle,
    BLOSC2: blosc2,
    ELEMENTS: elements,
    LZ4: lz4,
    LZF: lzf,
    NBIT: nbit,
    SCALEOFFSET: scaleoffset,
    SHUFFLE: shuffle,
    SZIP: szip,
    ZFP: zfp,
}


_SZIP = "options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline"


def numcodecs_config(codec: Codec, /) -> dict[str, Any]:
    """Return the numcodecs configuration of a filter: another package's if it decodes the same, else virtualstack's.

    >>> numcodecs_config(Codec.from_config("virtualstack.lz4"))
    {'id': 'imagecodecs_lz4h5'}
    >>> numcodecs_config(Codec.from_config("virtualstack.lzf"))
    {'id': 'virtualstack.lzf'}
    """
    options = codec.options()
    if codec.name == LZ4:
        return {"id": "imagecodecs_lz4h5"}
    if codec.name == SZIP:
        return {"id": "imagecodecs_szip", **options, "header": True}
    return {"id": codec.name, **options}


def codec_from_numcodecs(config: Mapping[str, Any], /) -> Codec | None:
    """Return the HDF5 filter that a numcodecs configuration of another package describes, or ``None``.

    >>> codec_from_numcodecs({"id": "imagecodecs_lz4h5"})
    Codec(name='virtualstack.lz4', configuration='{}')
    """
    name, options = config["id"], {key: value for key, value in config.items() if key != "id"}
    if name == "imagecodecs_lz4h5":
        return Codec.from_config(LZ4)
    if name == "imagecodecs_szip" and options.get("header", True) and options.keys() >= set(_SZIP):
        return Codec.from_config(SZIP, **{key: options[key] for key in _SZIP})
    return None
