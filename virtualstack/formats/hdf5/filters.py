"""HDF5's filter pipeline as codecs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from virtualstack.codecs.metadata import Codec
from virtualstack.codecs.shuffle import SHUFFLE
from virtualstack.formats.hdf5.filter_codecs import codec_of_filter

__all__ = ["Filter", "codecs_of", "filter_of", "is_nonsense", "obstacle", "passed"]

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
_SCALEOFFSET = 6
_SHUFFLE = "numcodecs.shuffle"
_MORE = {_SHUFFLE: 0, "numcodecs.fletcher32": 4}
"""Bytes by which chunks of whole elements become longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One step of the pipeline that chunks went through when written.

    Parameters
    ----------
    id
        Registered number.
    name
        Registered name, or the one the file gives.
    values
        The client data values of the filter.
    """

    id: int
    name: str
    values: tuple[int, ...]

    def __str__(self) -> str:
        return f"filter {self.id} ({self.name or 'no name'})"


def filter_of(number: int, name: bytes, values: Sequence[int], /) -> Filter:
    """Give a step of a pipeline by its registered number, with the name that is registered, or else the file's."""
    text = _NAMES.get(number) or name.split(b"\0")[0].decode("ascii", "replace")
    return Filter(id=int(number), name=text, values=tuple(int(x) for x in values))


def obstacle(filters: Sequence[Filter], /) -> str | None:
    """Say which filter no codec decodes, or ``None``."""
    for step in filters:
        try:
            codec_of_filter(step.id, step.values)
        except LookupError:
            return f"no codec for {step} yet"
        except ValueError as error:
            return f"{step} {error}"
    return None


def is_nonsense(filters: Sequence[Filter], /) -> bool:
    """Tell whether a filter has parameters with which the HDF5 library makes anything of a chunk, but not values."""
    for step in filters:
        if step.id == _SCALEOFFSET:
            try:
                codec_of_filter(step.id, step.values)
            except ValueError:
                return True
    return False


def passed(filters: Sequence[Filter], mask: int, /) -> tuple[Filter, ...]:
    """Give the filters that a chunk went through; bit i of its mask is set where it went past filter i.

    HDF5 spec III.A.1, "filter mask".
    """
    return tuple(step for i, step in enumerate(filters) if not mask >> i & 1)


def codecs_of(filters: Sequence[Filter], /) -> tuple[Codec, ...]:
    """Give the codecs of chunks, in the order of encoding, for filters without `obstacle`."""
    codecs: list[Codec] = []
    for step in filters:
        codec = codec_of_filter(step.id, step.values)
        if codec is None:
            continue
        if codec.name == _SHUFFLE and not _are_whole(codecs, step.values[0]):
            codec = Codec(SHUFFLE, codec.configuration)
        codecs.append(codec)
    return tuple(codecs)


def _are_whole(codecs: Sequence[Codec], width: int) -> bool:
    """Tell whether chunks that went through codecs surely are whole elements of a width in bytes."""
    return all(x.name in _MORE and _MORE[x.name] % width == 0 for x in codecs)
