"""HDF5's filter pipeline as codecs."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from h5py import h5p, h5z

from virtualstack.codecs.metadata import Codec

__all__ = ["Filter", "codecs_of", "enable_plugins", "filter_of", "filters_of", "missing_plugin", "obstacle", "passed"]

# Names of registered filters, for messages: https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
_NAMES = {
    1: "deflate",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    305: "lzo",
    307: "bzip2",
    32000: "lzf",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32022: "granular bit round",
    32026: "blosc2",
    32028: "jpeg",
}
_SHUFFLE, _FLETCHER32 = 2, 3


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


def _shuffle(values: Sequence[int]) -> Codec:
    return Codec.of("numcodecs.shuffle", elementsize=values[0])


def _deflate(values: Sequence[int]) -> Codec:
    return Codec.of("numcodecs.zlib", level=values[0] if values else 6)


_CODECS: dict[int, Callable[[Sequence[int]], Codec]] = {
    1: _deflate,
    _SHUFFLE: _shuffle,
    3: lambda values: Codec.of("numcodecs.fletcher32"),
    307: lambda values: Codec.of("numcodecs.bz2", level=values[0] if values else 9),
    32001: lambda values: Codec.of("numcodecs.blosc"),
    32015: lambda values: Codec.of("numcodecs.zstd", level=values[0] if values else 3),
}


def filter_of(number: int, name: bytes, values: Sequence[int], /) -> Filter:
    """Give a step of a pipeline by its registered number, with the name that is registered, or else the file's."""
    text = _NAMES.get(number) or name.split(b"\0")[0].decode("ascii", "replace")
    return Filter(id=int(number), name=text, values=tuple(int(x) for x in values))


def filters_of(dcpl: h5p.PropDCID, /) -> tuple[Filter, ...]:
    """Read the pipeline of a dataset, in the order of encoding."""
    steps = (dcpl.get_filter(i) for i in range(dcpl.get_nfilters()))
    return tuple(filter_of(code, name, values) for code, _, values, name in steps)


def obstacle(filters: Sequence[Filter], /) -> str | None:
    """Say which filter no codec decodes, or ``None``."""
    for i, step in enumerate(filters):
        if step.id not in _CODECS:
            return f"no codec for {step} yet"
        if step.id == _SHUFFLE:
            if not step.values or step.values[0] < 1:
                return f"{step} does not say how long elements are"
            if any(before.id not in (_SHUFFLE, _FLETCHER32) for before in filters[:i]):
                return f"{step} comes after {filters[i - 1]}"  # lengths need not be whole elements there
    return None


def missing_plugin(filters: Sequence[Filter], /) -> str | None:
    """Say which filter the HDF5 library itself has no plugin for, or ``None``."""
    enable_plugins()
    for step in filters:
        if not h5z.filter_avail(step.id):
            return f"the HDF5 library has no plugin for {step}; pip install 'virtualstack[hdf5]' brings many"
    return None


@functools.cache
def enable_plugins() -> None:
    """Let the HDF5 library find the filters of the package ``hdf5plugin``, where it is installed."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("hdf5plugin")


def passed(filters: Sequence[Filter], mask: int, /) -> tuple[Filter, ...]:
    """Give the filters that a chunk went through; bit i of its mask is set where it went past filter i.

    HDF5 spec III.A.1, "filter mask".
    """
    return tuple(step for i, step in enumerate(filters) if not mask >> i & 1)


def codecs_of(filters: Sequence[Filter], /) -> tuple[Codec, ...]:
    """Give the codecs of chunks, in the order of encoding, for filters without `obstacle`."""
    # the shuffle of single bytes changes nothing
    steps = (step for step in filters if not (step.id == _SHUFFLE and step.values[0] == 1))
    return tuple(_CODECS[step.id](step.values) for step in steps)
