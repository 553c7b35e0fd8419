"""How the stored bytes of a chunk become values, and what stands where nothing is stored."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from virtualstack.codecs.metadata import Codec, decoding_part
from virtualstack.errors import ManifestError

__all__ = ["ChunkEncoding", "Fill", "c_strides", "native"]


def c_strides(shape: tuple[int, ...], /) -> tuple[int, ...]:
    """Give the strides, in elements, of a C-ordered array.

    >>> c_strides((4, 3, 5))
    (15, 5, 1)
    """
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def native(dtype: np.dtype[Any], /) -> np.dtype[Any]:
    """Give the dtype in native byte order, fields of structured dtypes included."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


@dataclass(frozen=True, slots=True)
class ChunkEncoding:
    """How the stored bytes of one chunk become values.

    A grid cell is a strided view of the decoded chunk, as a numpy view is of its buffer.

    Parameters
    ----------
    dtype
        Of the decoded chunk, byte order included.
    shape
        Of the decoded chunk as stored, in elements; may exceed the cell, and may have other axes than the array.
    codecs
        In encoding order. Zarr's plain ``bytes`` codec is implied by ``dtype`` where no codec makes bytes of arrays.
    strides
        One for each axis of the *array*, in elements of the C-ordered decoded chunk; any sign, 0 too.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    codecs: tuple[Codec, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, dtype: np.dtype[Any] | str | type, shape: Iterable[int], codecs: Iterable[Codec] = ()) -> ChunkEncoding:
        """Make the encoding of chunks stored in C order on the axes of the array."""
        shape = tuple(int(n) for n in shape)
        return cls(dtype=np.dtype(dtype), shape=shape, codecs=tuple(codecs), strides=c_strides(shape))

    @property
    def size(self) -> int:
        """Elements of the decoded chunk."""
        return math.prod(self.shape)

    def with_strides(self, strides: Iterable[int], /) -> ChunkEncoding:
        """Give the same encoding seen along other strides (elements)."""
        return replace(self, strides=tuple(int(step) for step in strides))

    def decoding(self) -> ChunkEncoding:
        """Leave out what does not change decoding (compression levels): equal results decode alike."""
        return replace(self, codecs=decoding_part(self.codecs))


@dataclass(frozen=True, slots=True)
class Fill:
    """A fill value by its bytes: NaN equals NaN, and -0.0 is not 0.0.

    Parameters
    ----------
    dtype
        Native dtype of the value.
    raw
        Its bytes; UTF-8 where the dtype is numpy's ``StringDType``.
    """

    dtype: np.dtype[Any]
    raw: bytes

    @classmethod
    def of(cls, value: object, dtype: np.dtype[Any] | str | type, /) -> Fill:
        """Take a value as a fill of a dtype.

        >>> Fill.of(-1, "int16").value
        np.int16(-1)

        Raises
        ------
        ManifestError
            The value has no place in the dtype.
        """
        dtype = native(np.dtype(dtype))
        if dtype.kind == "T":
            return cls(dtype, value if isinstance(value, bytes) else str(value).encode())
        cell = np.zeros((), dtype)
        try:
            array = np.asarray(value)
            with np.errstate(all="ignore"):
                cell[...] = array
        except (ValueError, TypeError, OverflowError) as error:
            raise ManifestError(f"fill value {value!r} does not fit dtype '{dtype}': {error}") from error
        if array.dtype.kind in "iuf" and dtype.kind in "iuf":
            is_lost = cell != array if dtype.kind in "iu" else np.isinf(cell) & np.isfinite(array)
            if bool(is_lost):
                raise ManifestError(f"fill value {value!r} does not fit dtype '{dtype}': it would become {cell}")
        return cls(dtype, cell.tobytes())

    @classmethod
    def zero(cls, dtype: np.dtype[Any] | str | type, /) -> Fill:
        """Give zero bytes of a dtype (an empty string for strings)."""
        dtype = native(np.dtype(dtype))
        return cls(dtype, b"" if dtype.kind == "T" else bytes(dtype.itemsize))

    @property
    def value(self) -> Any:
        """The fill value as a numpy scalar, or ``str`` where the dtype is ``StringDType``."""
        if self.dtype.kind == "T":
            return self.raw.decode()
        return np.frombuffer(self.raw, self.dtype)[0] if self.dtype.itemsize else np.zeros((), self.dtype)[()]
