"""Settings of the codec ``virtualstack.tiff``: the tags that describe how a strip or tile is stored.

A kerchunk reader without virtualstack, but with imagecodecs, opens references that use the names of imagecodecs.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from virtualstack.codecs.codec import Codec
from virtualstack.errors import UnsupportedFeatureError

TIFF = "virtualstack.tiff"

BY_STREAM: Mapping[int, str] = {
    1: "none",
    5: "lzw",
    8: "deflate",
    32773: "packbits",
    32946: "deflate",
    34887: "lerc",
    34925: "lzma",
    50000: "zstd",
    50013: "deflate",
}
"""Compressions of bytes, by the value of tag 259; they can be combined with predictors and packed samples."""

_BY_IMAGE: Mapping[int, str] = {
    2: "ccittrle",
    3: "ccittfax3",
    4: "ccittfax4",
    7: "jpeg",
    22610: "jpegxr",
    33003: "jpeg2k",
    33004: "jpeg2k",
    33005: "jpeg2k",
    33007: "jpeg",
    34712: "jpeg2k",
    34892: "jpeg",
    34933: "png",
    34934: "jpegxr",
    50001: "webp",
    50002: "jpegxl",
    52546: "jpegxl",
}
"""Compressions of whole images."""

COMPRESSIONS: Mapping[int, str] = {**BY_STREAM, **_BY_IMAGE}

_NAMED: Mapping[int, str] = {
    6: "old-style JPEG",
    9: "JBIG",
    10: "JBIG",
    32766: "NeXT",
    32771: "CCITT RLE with words",
    32809: "ThunderScan",
    32895: "IT8",
    32908: "PixarFilm",
    32909: "PixarLog",
    34661: "JBIG",
    34676: "SGI LogLuv",
    34677: "SGI LogLuv of 24 bits",
    48124: "Jetraw",
    65000: "EER",
    65001: "EER",
    65002: "EER",
}
"""Compressions that are not decoded."""

_UINT, _INT, _FLOAT, _VOID, _COMPLEX_INT, _COMPLEX = range(1, 7)  # TIFF 6.0, tag 339
_LISTS = frozenset({"edge", "shape"})


def sample_dtype(kind: int, bits: int, /) -> np.dtype[Any] | None:
    """Return the dtype of values, by sample format and bits; ``None`` if the combination is not supported.

    >>> sample_dtype(1, 12), sample_dtype(3, 24), sample_dtype(2, 12)
    (dtype('uint16'), dtype('float32'), None)
    """
    if kind in (_UINT, _VOID) and (1 <= bits <= 32 or bits == 64):
        return np.dtype(f"u{next(n for n in (1, 2, 4, 8) if bits <= 8 * n)}")
    name = {
        (_INT, 8): "i1",
        (_INT, 16): "i2",
        (_INT, 32): "i4",
        (_INT, 64): "i8",
        (_FLOAT, 16): "f2",
        (_FLOAT, 24): "f4",
        (_FLOAT, 32): "f4",
        (_FLOAT, 64): "f8",
        (_COMPLEX_INT, 32): "c8",
        (_COMPLEX_INT, 64): "c16",
        (_COMPLEX, 64): "c8",
        (_COMPLEX, 128): "c16",
    }.get((kind, bits))
    return None if name is None else np.dtype(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How strips or tiles of an image are stored, by the values of their tags; defaults are the defaults of TIFF.

    Parameters
    ----------
    compression
        Tag 259.
    kind, bits
        Sample format (tag 339) and bits of a sample (258).
    big
        If true, the file is big-endian.
    predictor, fill_order, photometric, planar, t4
        Tags 317, 266, 262, 284 and 292.
    extra
        Number of samples that are not colour (tag 338).
    tables
        Tag 347, the JPEG tables, in base64.
    edge
        Rows and columns inside the image of the last tiles, if these are fewer than the rows and columns of a tile.
        Writers may leave out the rest of the tile.
    """

    compression: int = 1
    kind: int = 1
    bits: int = 8
    big: bool = False
    predictor: int = 1
    fill_order: int = 1
    photometric: int = 1
    planar: int = 1
    t4: int = 0
    extra: int = 0
    tables: str | None = None
    edge: tuple[int, int] | None = None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Dtype of values."""
        return sample_dtype(self.kind, self.bits)

    @property
    def is_packed(self) -> bool:
        """True if numpy has no dtype of this size."""
        return self.bits not in (8, 16, 32, 64, 128) or self.kind == _COMPLEX_INT

    @property
    def is_complex_int(self) -> bool:
        """True if samples are pairs of integers."""
        return self.kind == _COMPLEX_INT

    def jpeg_tables(self) -> bytes | None:
        """Return the JPEG tables."""
        return None if self.tables is None else base64.b64decode(self.tables)

    def codec(self, shape: tuple[int, int, int], /) -> Codec:
        """Return the codec's metadata for strips or tiles of a shape, without options that have their default."""
        own = {name: getattr(self, name) for name in self.__slots__}
        own = {name: value for name, value in own.items() if value != _DEFAULTS[name]}
        return Codec.from_config(TIFF, shape=shape, **own)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], /) -> tuple[Settings, tuple[int, int, int]]:
        """Read the configuration of a codec; return the settings and the shape of strips or tiles."""
        try:
            known: dict[str, Any] = {key: tuple(value) if key in _LISTS else value for key, value in options.items()}
            shape = known.pop("shape", ())
            settings = cls(**known)
            settings._check()
            if len(shape) != 3 or not all(type(n) is int and n > 0 for n in shape):
                raise ValueError(f"shape is {shape}; it is of rows, columns and samples")
        except (TypeError, ValueError, binascii.Error) as error:  # untrusted settings may have any JSON type
            raise UnsupportedFeatureError(
                f"codec '{TIFF}' does not take the configuration {dict(options)}: {error}", feature=TIFF
            ) from error
        return settings, shape

    def _check(self) -> None:
        numbers = (getattr(self, name) for name in self.__slots__ if name not in ("big", "tables", "edge"))
        if not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError("a setting is not a whole number")
        self.jpeg_tables()
        if self.edge is not None and (len(self.edge) != 2 or not all(type(n) is int and n > 0 for n in self.edge)):
            raise ValueError(f"edge is {self.edge}")
        if (reason := self.obstacle()) is not None:
            raise ValueError(reason)

    def obstacle(self) -> str | None:
        """Return why chunks with these settings cannot be decoded, as half a sentence; ``None`` if they can."""
        if self.compression not in COMPRESSIONS:
            name = _NAMED.get(self.compression)
            what = "which is not known" if name is None else f"{name}, which is not decoded"
            return f"compression {self.compression} (tag 259), {what}"
        if self.dtype is None:
            return f"samples of {self.bits} bits in sample format {self.kind}, which numpy has no dtype for"
        if self.fill_order not in (1, 2):
            return f"fill order {self.fill_order} (tag 266), which is not known"
        if self.compression in BY_STREAM and self.predictor != 1:
            return self._obstacle_of_predictor()
        return None

    def _obstacle_of_predictor(self) -> str | None:
        what = f"predictor {self.predictor} (tag 317)"
        if self.predictor not in (2, 3):
            return f"{what}, which is not known"
        if self.is_packed or (self.bits == 128 and self.predictor == 2):
            return f"{what} before samples of {self.bits} bits, which is not decoded"
        return None


_DEFAULTS: Mapping[str, Any] = {name: getattr(Settings(), name) for name in Settings.__slots__}


_ZLIB = Codec.from_config("numcodecs.zlib", level=6)
_STANDARD = {
    8: _ZLIB,
    32946: _ZLIB,
    34925: Codec.from_config("numcodecs.lzma", format=1, check=-1, preset=None, filters=None),
    50000: Codec.from_config("zstd", level=0, checksum=False),
}
"""Codecs for streams that need no further settings, by the value of tag 259."""

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
    """Return the codec of zarr version 3 that decodes the same; ``None`` if there is none."""
    is_bytes = not own.is_packed and own.predictor == 1 and own.fill_order == 1
    return _STANDARD.get(own.compression) if is_bytes else None


def numcodecs_configs(codec: Codec, /) -> list[dict[str, Any]]:
    """Return numcodecs configurations, in encoding order, that decode the same or raise, of other packages if possible.

    >>> numcodecs_configs(Codec.from_config("virtualstack.tiff", shape=[8, 8, 1], compression=5))
    [{'id': 'imagecodecs_lzw'}]
    >>> numcodecs_configs(Codec.from_config("virtualstack.tiff", shape=[8, 8, 1], compression=7))
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
    # the steps after the codecs assume the byte order of the machine
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
