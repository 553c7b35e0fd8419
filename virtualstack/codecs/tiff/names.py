"""Names that others have for what the codec does: standard ones, and those that packages register with numcodecs.

A kerchunk reader without virtualstack, but with imagecodecs, opens references that use them.
"""

from __future__ import annotations

from typing import Any

from virtualstack.codecs.metadata import Codec
from virtualstack.codecs.tiff.settings import Settings

__all__ = ["numcodecs_configs", "standard_codec"]

_ZLIB = Codec.of("numcodecs.zlib", level=6)
_STANDARD = {
    8: _ZLIB,
    32946: _ZLIB,
    34925: Codec.of("numcodecs.lzma", format=1, check=-1, preset=None, filters=None),
    50000: Codec.of("zstd", level=0, checksum=False),
}
"""Codecs of streams that need no more than their bytes, by the value of tag 259."""

_STREAMS: dict[int, dict[str, Any] | None] = {
    1: None,
    5: {"id": "imagecodecs_lzw"},
    32773: {"id": "imagecodecs_packbits"},
    **{
        number: {"id": codec.name.removeprefix("numcodecs."), **codec.options()}
        for number, codec in _STANDARD.items()
        if codec.name != "zstd"
    },
    50000: {"id": "zstd", "level": 0},
}
_IMAGES = {
    **dict.fromkeys((33003, 33004, 33005, 34712), "imagecodecs_jpeg2k"),
    34933: "imagecodecs_png",
    50001: "imagecodecs_webp",
    50002: "imagecodecs_jpegxl",
    52546: "imagecodecs_jpegxl",
}
_WEBP = 50001


def standard_codec(own: Settings, /) -> Codec | None:
    """Give the codec of zarr version 3 that decodes the same; ``None`` where there is none."""
    is_bytes = not own.is_packed and own.predictor == 1 and own.fill_order == 1
    return _STANDARD.get(own.compression) if is_bytes else None


def numcodecs_configs(codec: Codec, /) -> list[dict[str, Any]]:
    """Give numcodecs configurations, in encoding order, that decode the same or raise: others' where there are such.

    >>> numcodecs_configs(Codec.of("virtualstack.tiff", shape=[8, 8, 1], compression=5))
    [{'id': 'imagecodecs_lzw'}]
    >>> numcodecs_configs(Codec.of("virtualstack.tiff", shape=[8, 8, 1], compression=7))
    [{'id': 'virtualstack.tiff', 'compression': 7, 'shape': [8, 8, 1]}]
    """
    own, shape = Settings.from_options(codec.options())
    found = None if own.is_packed or own.fill_order != 1 else _others(own, shape)
    return [{"id": codec.name, **codec.options()}] if found is None else found


def _others(own: Settings, shape: tuple[int, int, int]) -> list[dict[str, Any]] | None:
    if own.compression in _IMAGES:
        is_same = own.compression != _WEBP or shape[2] == 3
        return [{"id": _IMAGES[own.compression]}] if is_same else None
    dtype = own.dtype
    # what stands behind the codecs takes the samples for those of the machine
    if own.compression not in _STREAMS or dtype is None or (own.big and dtype.itemsize > 1):
        return None
    compressor = _STREAMS[own.compression]
    last = [] if compressor is None else [dict(compressor)]
    match own.predictor:
        case 2 if dtype.kind in "iuf":
            kind = f"<u{dtype.itemsize}" if dtype.itemsize > 1 else "|u1"
            return [{"id": "imagecodecs_delta", "shape": list(shape), "dtype": kind, "axis": -2}, *last]
        case 3 if dtype.kind == "f":
            return [{"id": "imagecodecs_floatpred", "shape": list(shape), "dtype": dtype.str, "axis": -2}, *last]
        case 1:
            return last
    return None
