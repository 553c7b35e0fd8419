"""Translate HDF5's filter pipeline to codecs, by the registered number and client data values of each filter."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from virtualstack.child.pool import run_in_child
from virtualstack.codecs.aec import szip_settings
from virtualstack.codecs.bounded import SHUFFLE
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.hdf5.compressors import BITSHUFFLE, BLOSC2, LZ4, LZF, SZIP, bitshuffle_settings
from virtualstack.codecs.hdf5.packed_bits import NBIT, SCALEOFFSET, parse_layout, parse_scaling
from virtualstack.codecs.hdf5.zfp import ZFP, parse_header

_SNAPPY = 3
_COMPRESSORS = {0: "none", 2: "lz4", 3: "zstd"}
"""Names of bitshuffle's compressors by their numbers."""


def codec_for_filter(number: int, values: Sequence[int], /) -> Codec | None:
    """Return the codec of a filter; ``None`` if the filter leaves stored bytes unchanged."""
    make = _CODECS[number]
    try:
        return make(values)
    except IndexError:
        raise ValueError(f"has {len(values)} parameters, which are too few") from None


def _deflate(values: Sequence[int]) -> Codec:
    return Codec.from_config("numcodecs.zlib", level=values[0] if values else 6)


def _shuffle(values: Sequence[int]) -> Codec | None:
    if not values or values[0] < 1:
        raise ValueError("does not say how long elements are")
    return None if values[0] == 1 else Codec.from_config("numcodecs.shuffle", elementsize=values[0])


def _szip(values: Sequence[int]) -> Codec:
    names = "options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline"
    options = {name: values[i] for i, name in enumerate(names)}
    return Codec.from_config(SZIP, **szip_settings(options))


def _nbit(values: Sequence[int]) -> Codec | None:
    return None if parse_layout(values) is None else Codec.from_config(NBIT, values=list(values))


def _scaleoffset(values: Sequence[int]) -> Codec | None:
    return None if parse_scaling(values) is None else Codec.from_config(SCALEOFFSET, values=list(values))


def _blosc(values: Sequence[int]) -> Codec:
    if len(values) > 6 and values[6] == _SNAPPY:
        raise ValueError("has the compressor snappy, which numcodecs does not support")
    return Codec.from_config("numcodecs.blosc")


def _bitshuffle(values: Sequence[int]) -> Codec:
    number = values[4] if len(values) > 4 else 0
    # a compressed chunk contains the size of its blocks
    block = 0 if number else values[3]
    options = {"elementsize": values[2], "blocksize": block, "compressor": _COMPRESSORS.get(number, number)}
    bitshuffle_settings(options)
    return Codec.from_config(BITSHUFFLE, **options)


def _zfp(values: Sequence[int]) -> Codec:
    parse_header(values[1:])
    return Codec.from_config(ZFP, header=list(values[1:]))


_CODECS: Mapping[int, Callable[[Sequence[int]], Codec | None]] = {
    1: _deflate,
    2: _shuffle,
    3: lambda values: Codec.from_config("numcodecs.fletcher32"),
    4: _szip,
    5: _nbit,
    6: _scaleoffset,
    307: lambda values: Codec.from_config("numcodecs.bz2", level=values[0] if values else 9),
    32000: lambda values: Codec.from_config(LZF),
    32001: _blosc,
    32004: lambda values: Codec.from_config(LZ4),
    32008: _bitshuffle,
    32013: _zfp,
    32015: lambda values: Codec.from_config("numcodecs.zstd", level=values[0] if values else 3),
    # filters that round values on writing leave them unchanged on reading
    32022: lambda values: None,
    32023: lambda values: None,
    32026: lambda values: Codec.from_config(BLOSC2),
}


# Names of registered filters, for messages: https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
_NAMES = {
    1: "deflate",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    257: "hzip",
    258: "fpzip",
    305: "lzo",
    307: "bzip2",
    32000: "lzf",
    32001: "blosc",
    32002: "mafisc",
    32003: "snappy",
    32004: "lz4",
    32005: "apax",
    32006: "cbf",
    32007: "jpeg-xr",
    32008: "bitshuffle",
    32009: "spdp",
    32010: "lpc-rice",
    32011: "ccsds-123",
    32012: "jpeg-ls",
    32013: "zfp",
    32014: "fpzip",
    32015: "zstd",
    32016: "b3d",
    32017: "sz",
    32018: "fcidecomp",
    32019: "jpeg",
    32020: "vbz",
    32021: "fapec",
    32022: "bitgroom",
    32023: "granular bit round",
    32024: "sz3",
    32025: "delta-rice",
    32026: "blosc2",
    32027: "flac",
    32028: "sperr",
    32029: "terse/prolix",
    32030: "ffmpeg",
}
_HDF5PLUGIN_FILTERS = {307, 32001, 32004, 32008, 32013, 32015, 32017, 32018, 32024, 32026, 32028}
_SCALEOFFSET = 6
_SHUFFLE = "numcodecs.shuffle"
_MORE = {_SHUFFLE: 0, "numcodecs.fletcher32": 4}
"""Number of bytes by which codecs lengthen chunks of whole elements."""


class Filter(NamedTuple):
    """One filter of the pipeline that encoded the chunks.

    Parameters
    ----------
    id
        Registered number.
    name
        Registered name, or the name in the file.
    values
        Client data values of the filter.
    """

    id: int
    name: str
    values: tuple[int, ...]

    def __str__(self) -> str:
        return f"filter {self.id} ({self.name or 'no name'})"


@functools.lru_cache(maxsize=256)
def make_filter(number: int, name: bytes, values: Sequence[int], /) -> Filter:
    """Return a filter by its registered number, with its registered name, or else the name in the file."""
    text = _NAMES.get(number) or name.split(b"\0")[0].decode("ascii", "replace")
    return Filter(id=int(number), name=text, values=tuple(int(x) for x in values))


def obstacle(filters: Sequence[Filter], /) -> str | None:
    """Return which filter no codec decodes; ``None`` if codecs decode all filters."""
    for step in filters:
        try:
            codec_for_filter(step.id, step.values)
        except LookupError:
            return f"no codec for {step} yet"
        except ValueError as error:
            return f"{step} {error}"
    return None


def missing_plugin(filters: Sequence[Filter], /) -> str | None:
    """Return which filter has no plugin in the HDF5 library, and a remedy; ``None`` if the library has all filters."""
    for step in filters:
        if not _has_filter(step.id):
            if step.id in _HDF5PLUGIN_FILTERS and not find_spec("hdf5plugin"):
                return f"the HDF5 library has no plugin for {step}; pip install 'virtualstack[hdf5]' brings it"
            return (
                f"the HDF5 library has no plugin for {step}, nor has the package hdf5plugin. Where you have one, name "
                "its folder in the environment variable HDF5_PLUGIN_PATH"
            )
    return None


@functools.cache
def _has_filter(number: int) -> bool:
    found: bool = run_in_child("virtualstack.formats.hdf5.child.files:has_filter", number)
    return found


def is_nonsense(filters: Sequence[Filter], /) -> bool:
    """Return whether the HDF5 library decodes chunks to arbitrary bytes because of bad parameters of a filter."""
    for step in filters:
        if step.id == _SCALEOFFSET:
            try:
                codec_for_filter(step.id, step.values)
            except ValueError:
                return True
    return False


def passed(filters: Sequence[Filter], mask: int, /) -> tuple[Filter, ...]:
    """Return the filters that encoded a chunk; bit i of its mask is set if filter i was skipped.

    HDF5 spec III.A.1, "filter mask".
    """
    return tuple(step for i, step in enumerate(filters) if not mask >> i & 1)


def filter_codecs(filters: Sequence[Filter], /) -> tuple[Codec, ...]:
    """Return the codecs of chunks in the order of encoding; the filters must have no `obstacle`."""
    codecs: list[Codec] = []
    for step in filters:
        codec = codec_for_filter(step.id, step.values)
        if codec is None:
            continue
        if codec.name == _SHUFFLE and not _are_whole(codecs, step.values[0]):
            codec = Codec(SHUFFLE, codec.configuration)
        codecs.append(codec)
    return tuple(codecs)


def _are_whole(codecs: Sequence[Codec], width: int) -> bool:
    """Return whether chunks after these codecs are certainly multiples of ``width`` bytes."""
    return all(x.name in _MORE and _MORE[x.name] % width == 0 for x in codecs)
