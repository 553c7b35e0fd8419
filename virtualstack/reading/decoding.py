"""Stored bytes of a chunk to its numbers, and these to views of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import check_text
from virtualstack.codecs.metadata import Codec
from virtualstack.codecs.pipeline import Decoder, Elementwise, make_decoder, split_elementwise
from virtualstack.storage import Bytes

__all__ = ["Decoding", "find_decoding", "strided"]


@dataclass(frozen=True, slots=True, eq=False)
class Decoding:
    """What of an encoding matters for decoding: all but the strides.

    Parameters
    ----------
    dtype, shape
        Of the decoded chunk.
    elementwise
        What makes each value of one stored number.
    is_raw
        Whether values lie in the source one by one, so that any part of a chunk can be read alone.
    is_plain
        Whether these are values as they are in memory, too.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    elementwise: Elementwise
    is_raw: bool
    is_plain: bool

    @property
    def itemsize(self) -> int:
        """Bytes of a stored number."""
        return self.elementwise.stored.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of a decoded chunk, before each value is made of one number."""
        return math.prod(self.shape) * self.itemsize

    def numbers(self, raw: Bytes, /) -> NDArray[Any]:
        """Decode up to the numbers that values are made of, one by one; flat.

        Raises
        ------
        CodecError
            The bytes do not decode.
        UnsupportedFeatureError, MissingDependencyError
            A codec is not installed.
        """
        stored = self.elementwise.stored
        if not self.is_raw:
            return self._decoder()(raw).reshape(-1)
        if stored.kind == "b":
            return make_decoder((), stored, (len(raw),))(raw)
        return check_text(np.frombuffer(raw, stored))

    def _decoder(self) -> Decoder:
        return make_decoder(self.elementwise.codecs, self.elementwise.stored, self.shape)


@lru_cache(maxsize=4096)
def find_decoding(dtype: np.dtype[Any], shape: tuple[int, ...], codecs: tuple[Codec, ...], /) -> Decoding:
    """Find what decodes chunks of an encoding; equal encodings have one object.

    Raises
    ------
    UnsupportedFeatureError
        Numbers cannot be unpacked so.
    """
    elementwise = split_elementwise(codecs, dtype)
    is_raw = not dtype.hasobject and dtype.itemsize > 0 and not elementwise.codecs
    stored = elementwise.stored
    is_plain = is_raw and not elementwise.steps and stored.isnative and stored.kind not in "bT"
    return Decoding(dtype, shape, elementwise, is_raw, is_plain)


def strided(flat: NDArray[Any], base: int, shape: tuple[int, ...], strides: list[int], /) -> NDArray[Any]:
    """Give the strided view that a part shows; the plan has checked that it stays within the chunk."""
    if flat.dtype.kind == "T":  # no views of another shape of its buffer: gather
        index = np.asarray(base)
        for n, step in zip(shape, strides, strict=True):
            index = index[..., None] + np.arange(n) * step
        return np.asarray(flat[index])
    itemsize = flat.itemsize
    # `as_strided` would name the padding of compounds "f1", which members are named too
    view: NDArray[Any] = np.ndarray(shape, flat.dtype, flat, base * itemsize, [step * itemsize for step in strides])
    return view
