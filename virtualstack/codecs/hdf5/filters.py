"""Decoders of HDF5's filters by codec name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from virtualstack.codecs.decoder import BytesDecoder
from virtualstack.codecs.hdf5.blocks import BITSHUFFLE, LZ4, bitshuffle, lz4
from virtualstack.codecs.hdf5.blosc2 import BLOSC2, blosc2
from virtualstack.codecs.hdf5.compressors import LZF, SZIP, lzf, szip
from virtualstack.codecs.hdf5.elements import ELEMENTS, elements
from virtualstack.codecs.hdf5.nbit import NBIT, nbit
from virtualstack.codecs.hdf5.scaleoffset import SCALEOFFSET, scaleoffset
from virtualstack.codecs.hdf5.zfp import ZFP, zfp
from virtualstack.codecs.shuffle import SHUFFLE, shuffle

__all__ = ["FILTERS"]

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
