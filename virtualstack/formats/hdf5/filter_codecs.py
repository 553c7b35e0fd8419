"""Each filter of HDF5 as a codec, by its registered number and its client data values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from virtualstack.codecs.aec import szip_settings
from virtualstack.codecs.hdf5.blocks import BITSHUFFLE, LZ4, bitshuffle_settings
from virtualstack.codecs.hdf5.blosc2 import BLOSC2
from virtualstack.codecs.hdf5.compressors import LZF, SZIP
from virtualstack.codecs.hdf5.nbit import NBIT, parse_layout
from virtualstack.codecs.hdf5.scaleoffset import SCALEOFFSET, parse_scaling
from virtualstack.codecs.hdf5.zfp import ZFP, parse_header
from virtualstack.codecs.metadata import Codec

__all__ = ["codec_of_filter"]

_SNAPPY = 3
_COMPRESSORS = {0: "none", 2: "lz4", 3: "zstd"}
"""Of bitshuffle."""


def codec_of_filter(number: int, values: Sequence[int], /) -> Codec | None:
    """Give the codec of a filter; ``None`` where it leaves stored bytes as they are.

    Parameters
    ----------
    number
        The registered identifier.
    values
        The client data values of the dataset.

    Raises
    ------
    LookupError
        No codec is known for the filter.
    ValueError
        There is one, but not for these values; the message says why.
    """
    make = _CODECS[number]
    try:
        return make(values)
    except IndexError:
        raise ValueError(f"has {len(values)} parameters, which are too few") from None


def _deflate(values: Sequence[int]) -> Codec:
    return Codec.of("numcodecs.zlib", level=values[0] if values else 6)


def _shuffle(values: Sequence[int]) -> Codec | None:
    if not values or values[0] < 1:
        raise ValueError("does not say how long elements are")
    return None if values[0] == 1 else Codec.of("numcodecs.shuffle", elementsize=values[0])


def _szip(values: Sequence[int]) -> Codec:
    names = "options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline"
    options = {name: values[i] for i, name in enumerate(names)}
    return Codec.of(SZIP, **szip_settings(options))


def _nbit(values: Sequence[int]) -> Codec | None:
    return None if parse_layout(values) is None else Codec.of(NBIT, values=list(values))


def _scaleoffset(values: Sequence[int]) -> Codec | None:
    return None if parse_scaling(values) is None else Codec.of(SCALEOFFSET, values=list(values))


def _blosc(values: Sequence[int]) -> Codec:
    if len(values) > 6 and values[6] == _SNAPPY:
        raise ValueError("has the compressor snappy, which numcodecs has not")
    return Codec.of("numcodecs.blosc")


def _bitshuffle(values: Sequence[int]) -> Codec:
    number = values[4] if len(values) > 4 else 0
    # a compressed chunk says itself how long its blocks are
    block = 0 if number else values[3]
    options = {"elementsize": values[2], "blocksize": block, "compressor": _COMPRESSORS.get(number, number)}
    bitshuffle_settings(options)
    return Codec.of(BITSHUFFLE, **options)


def _zfp(values: Sequence[int]) -> Codec:
    parse_header(values[1:])
    return Codec.of(ZFP, header=list(values[1:]))


_CODECS: Mapping[int, Callable[[Sequence[int]], Codec | None]] = {
    1: _deflate,
    2: _shuffle,
    3: lambda values: Codec.of("numcodecs.fletcher32"),
    4: _szip,
    5: _nbit,
    6: _scaleoffset,
    307: lambda values: Codec.of("numcodecs.bz2", level=values[0] if values else 9),
    32000: lambda values: Codec.of(LZF),
    32001: _blosc,
    32004: lambda values: Codec.of(LZ4),
    32008: _bitshuffle,
    32013: _zfp,
    32015: lambda values: Codec.of("numcodecs.zstd", level=values[0] if values else 3),
    # what rounds values when they are written leaves them alone when they are read
    32022: lambda values: None,
    32023: lambda values: None,
    32026: lambda values: Codec.of(BLOSC2),
}
