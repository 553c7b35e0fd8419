"""The filters by name, as numcodecs and the pipeline load them, by entry point.

Zarr version 3 metadata names a filter ``virtualstack.szip``; version 2 metadata and kerchunk references have that name
as the ``id``, or that of another package: a kerchunk reader without virtualstack, but with such a package, opens the
references. Both only decode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from virtualstack.codecs.bounded import SHUFFLE, bounded_decoder, shuffle
from virtualstack.codecs.codec import BytesDecoder, BytesLike, Codec, CodecError, raw_bytes
from virtualstack.codecs.hdf5.compressors import BITSHUFFLE, BLOSC2, LZ4, LZF, SZIP, bitshuffle, blosc2, lz4, lzf, szip
from virtualstack.codecs.hdf5.elements import ELEMENTS, elements, is_text, stored_size
from virtualstack.codecs.hdf5.packed_bits import NBIT, SCALEOFFSET, nbit, scaleoffset
from virtualstack.codecs.hdf5.zfp import ZFP, zfp
from virtualstack.codecs.plugins import FilterPlugin

_FILTERS: Mapping[str, Callable[[Mapping[str, Any]], BytesDecoder]] = {
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

_MAX_CHUNK_BYTES = (1 << 31) - 1
"""Maximum decoded bytes of a chunk if nothing else limits it; chunks in HDF5 have less than 4 GiB."""

_SZIP = "options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline"


def _numcodecs_config(codec: Codec, /) -> dict[str, Any]:
    """Return the numcodecs configuration of a filter: another package's if it decodes the same, else virtualstack's.

    >>> _numcodecs_config(Codec.from_config("virtualstack.lz4"))
    {'id': 'imagecodecs_lz4h5'}
    >>> _numcodecs_config(Codec.from_config("virtualstack.lzf"))
    {'id': 'virtualstack.lzf'}
    """
    options = codec.options()
    if codec.name == LZ4:
        return {"id": "imagecodecs_lz4h5"}
    if codec.name == SZIP:
        return {"id": "imagecodecs_szip", **options, "header": True}
    return {"id": codec.name, **options}


def _codec_from_numcodecs(config: Mapping[str, Any], /) -> Codec | None:
    """Return the HDF5 filter that a numcodecs configuration of another package describes, or ``None``.

    >>> _codec_from_numcodecs({"id": "imagecodecs_lz4h5"})
    Codec(name='virtualstack.lz4', configuration='{}')
    """
    name, options = config["id"], {key: value for key, value in config.items() if key != "id"}
    if name == "imagecodecs_lz4h5":
        return Codec.from_config(LZ4)
    if name == "imagecodecs_szip" and options.get("header", True) and options.keys() >= set(_SZIP):
        return Codec.from_config(SZIP, **{key: options[key] for key in _SZIP})
    return None


class _Filter(FilterPlugin):
    @classmethod
    def to_numcodecs(cls, codec: Codec, /) -> list[dict[str, Any]]:
        """Return the configuration of another package if it decodes the same, else the one of virtualstack."""
        return [_numcodecs_config(codec)]

    @classmethod
    def from_numcodecs(cls, config: Mapping[str, Any], chunks: tuple[int, ...], /) -> Codec | None:
        """Return the filter that a configuration of another package describes."""
        return _codec_from_numcodecs(config)

    @classmethod
    def decoder(cls, options: Mapping[str, Any], /) -> BytesDecoder:
        """Make the decoder."""
        return _FILTERS[cls.codec_id](options)

    def decode_chunk(self, raw: BytesLike, /) -> Any:
        """Return the decoded bytes."""
        decode = bounded_decoder(self.codec)
        if decode is None:
            raise CodecError(f"'{self.codec_id}' is not a filter of HDF5")
        return raw_bytes(decode(raw, None, _MAX_CHUNK_BYTES))


class Bitshuffle(_Filter):
    """Filter 32008."""

    codec_id = BITSHUFFLE


class Blosc2(_Filter):
    """Filter 32026."""

    codec_id = BLOSC2


class Elements(_Filter):
    """The codec that converts stored elements to numpy's; it is not an HDF5 filter."""

    codec_id = ELEMENTS

    @classmethod
    def encoded_size(cls, options: Mapping[str, Any], size: int, /) -> int | None:
        """Return the bytes of stored elements."""
        return stored_size(options, size)

    def encode(self, buf: Any) -> Any:
        """Return strings unchanged, since they end in NULs."""
        return buf if is_text(self.codec.options()) else super().encode(buf)


class LZ4Blocks(_Filter):
    """Filter 32004."""

    codec_id = LZ4


class Lzf(_Filter):
    """Filter 32000."""

    codec_id = LZF


class Nbit(_Filter):
    """Filter 5."""

    codec_id = NBIT


class ScaleOffset(_Filter):
    """Filter 6."""

    codec_id = SCALEOFFSET


class Shuffle(_Filter):
    """Filter 2; the last element may be incomplete."""

    codec_id = SHUFFLE


class Szip(_Filter):
    """Filter 4."""

    codec_id = SZIP


class Zfp(_Filter):
    """Filter 32013."""

    codec_id = ZFP
