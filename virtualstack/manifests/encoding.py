"""How the stored bytes of a chunk become values, and which value an element without a chunk has."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.cast import CAST, cast_dtypes
from virtualstack.codecs.cf import CF
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.equivalence import decoding_part
from virtualstack.errors import ManifestError


def c_strides(shape: tuple[int, ...], /) -> tuple[int, ...]:
    """Return the strides, in elements, of a C-ordered array.

    >>> c_strides((4, 3, 5))
    (15, 5, 1)
    """
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def native(dtype: np.dtype[Any], /) -> np.dtype[Any]:
    """Return the dtype in native byte order, including the fields of structured dtypes."""
    return dtype if dtype.kind == "T" else dtype.newbyteorder("=")


@dataclass(frozen=True, slots=True)
class ChunkEncoding:
    """How the stored bytes of one chunk become values.

    An array is divided into cells. A cell shows one decoded chunk, or a part of it. The cell begins at the element that
    ``starts`` of the manifest names, and ``strides`` are the steps to its next element along each axis. For chunks in C
    order use :meth:`c_order`.

    When to use: in a reader, to describe chunks. Equal encodings are stored once in a manifest.

    Parameters
    ----------
    dtype
        Data type of the decoded chunk, with its byte order.
    shape
        Stored shape of the decoded chunk, in elements. It may exceed the cell, and have other axes than the array.
    codecs
        Codecs in encoding order. Zarr's plain ``bytes`` codec is implied by ``dtype`` if no codec turns arrays into
        bytes.
    strides
        Stride for each axis of the *array*, in elements of the C-ordered decoded chunk. It may be negative or 0.

    Examples
    --------
    >>> import virtualstack as vs
    >>> encoding = vs.ChunkEncoding.c_order("<f4", (10, 20))
    >>> encoding.size, encoding.strides
    (200, (20, 1))
    >>> encoding.with_strides((1, 10)).strides
    (1, 10)
    >>> encoding.decoding() == encoding
    True
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    codecs: tuple[Codec, ...]
    strides: tuple[int, ...]

    @classmethod
    def c_order(
        cls, dtype: np.dtype[Any] | str | type, shape: Iterable[int], codecs: Iterable[Codec] = ()
    ) -> ChunkEncoding:
        """Make the encoding of chunks stored in C order on the axes of the array."""
        shape = tuple(int(n) for n in shape)
        return cls(dtype=np.dtype(dtype), shape=shape, codecs=tuple(codecs), strides=c_strides(shape))

    @property
    def size(self) -> int:
        """Number of elements of the decoded chunk."""
        return math.prod(self.shape)

    def with_strides(self, strides: Iterable[int], /) -> ChunkEncoding:
        """Return the same encoding with other strides, in elements."""
        return replace(self, strides=tuple(int(step) for step in strides))

    def decoding(self) -> ChunkEncoding:
        """Return the encoding without parameters that do not change decoding, such as compression levels."""
        return replace(self, codecs=decoding_part(self.codecs))


def stored_dtype(encoding: ChunkEncoding, /) -> np.dtype[Any]:
    """Return the dtype of the numbers in the stored bytes, before they are unpacked or cast to those of the array."""
    packings = [str(codec.options()["data_type"]) for codec in encoding.codecs if codec.name == CF]
    if packings:
        return np.dtype(packings[-1])
    cast = [dtypes for codec in encoding.codecs if codec.name == CAST and (dtypes := cast_dtypes(codec)) is not None]
    return cast[-1][0] if cast else encoding.dtype


@dataclass(frozen=True, slots=True)
class Fill:
    """A fill value, compared by its bytes: NaN equals NaN, and -0.0 is not 0.0.

    When to use: in a reader, for the value of EMPTY and ABSENT chunks, which have no bytes. Make it by
    :meth:`from_value` or :meth:`zero`.

    Parameters
    ----------
    dtype
        Native dtype of the value.
    raw
        Bytes of the value; UTF-8 if the dtype is numpy's ``StringDType``.

    Examples
    --------
    >>> import virtualstack as vs
    >>> vs.Fill.from_value(-999, "i2").value
    np.int16(-999)
    >>> vs.Fill.zero("f8").value
    np.float64(0.0)
    """

    dtype: np.dtype[Any]
    raw: bytes

    @classmethod
    def from_value(cls, value: object, dtype: np.dtype[Any] | str | type, /) -> Fill:
        """Return a value as a fill of a dtype. Only a float dtype may round it.

        If the dtype is a float, a number is rounded to it, as in numpy. If it is bytes, text must be ASCII. If it is
        text, bytes are decoded as UTF-8, and an integer becomes its digits, as in numpy.

        >>> import virtualstack as vs
        >>> vs.Fill.from_value(-1, "int16").value
        np.int16(-1)

        Raises
        ------
        ManifestError
            The dtype cannot hold the value. For example, it would become another integer or infinity.
        """
        dtype = native(np.dtype(dtype))
        try:
            return cls(dtype, _raw(value, dtype))
        except (ValueError, TypeError, OverflowError) as error:
            raise ManifestError(f"fill value {value!r} does not fit dtype '{dtype}': {error}") from error

    @classmethod
    def zero(cls, dtype: np.dtype[Any] | str | type, /) -> Fill:
        """Return a fill of zero bytes; an empty string for ``StringDType``."""
        dtype = native(np.dtype(dtype))
        return cls(dtype, b"" if dtype.kind == "T" else bytes(dtype.itemsize))

    @property
    def value(self) -> Any:
        """The fill value as a numpy scalar, or as ``str`` if the dtype is ``StringDType``."""
        if self.dtype.kind == "T":
            return self.raw.decode()
        return np.frombuffer(self.raw, self.dtype)[0] if self.dtype.itemsize else np.zeros((), self.dtype)[()]


def _raw(value: object, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of a value in a native dtype."""
    if value is np.ma.masked:
        raise TypeError("it is masked")
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(f"it is not one value, but {array.size}")
    array = array.reshape(())
    match dtype.kind:
        case "b" | "i" | "u" | "f" | "c":
            return _raw_number(array, dtype)
        case "S" | "U" | "T":
            return _raw_text(value if isinstance(value, str | bytes) else array, dtype)
        case "M" | "m":
            return _raw_time(value, array, dtype)
    if isinstance(value, bytes) and dtype.names is None and len(value) == dtype.itemsize:
        return value
    if array.dtype.kind in "iu" and array.item() == 0 and not dtype.hasobject:  # which numpy takes for every field
        return bytes(dtype.itemsize)
    if dtype.hasobject or not np.can_cast(array.dtype, dtype, "equiv"):
        raise TypeError(f"it is of dtype '{array.dtype}'")
    return array.astype(dtype).tobytes()


def _raw_number(array: NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    kind, number = array.dtype.kind, array.item()
    is_long = kind == "O" and isinstance(number, int)  # has more bits than numpy's own
    if kind not in "biufc" and not is_long:
        raise TypeError(f"it is of dtype '{array.dtype}'")
    if kind == "c" and dtype.kind != "c":
        if number.imag != 0:
            raise ValueError("it has an imaginary part")
        array, number = array.real, number.real
    cell = np.zeros((), dtype)
    with np.errstate(all="ignore"):
        cell[...] = array
    if dtype.kind in "biu":
        is_kept = cell.item() == number  # Python compares integers and floats exactly
    else:
        is_kept = bool(np.isfinite(cell)) or not (is_long or np.isfinite(array))
    if not is_kept:
        raise ValueError(f"it would become {cell}")
    return cell.tobytes()


def _raw_text(value: str | bytes | NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "SUTiu":
            raise TypeError(f"it is of dtype '{value.dtype}'")
        value = value.item() if value.dtype.kind in "SUT" else str(value)
    if dtype.kind == "T":
        # text as stored in the file; it is decoded when it is read
        return value.encode() if isinstance(value, str) else value
    if dtype.kind == "S":
        raw = value.encode("ascii") if isinstance(value, str) else value
    else:
        raw = np.asarray(value if isinstance(value, str) else value.decode()).tobytes()
    if len(raw) > dtype.itemsize and any(raw[dtype.itemsize :]):
        raise ValueError(f"it is longer than {dtype.itemsize} bytes")
    return raw[: dtype.itemsize].ljust(dtype.itemsize, b"\0")


def _raw_time(value: object, array: NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    if isinstance(value, datetime.date | datetime.timedelta):
        array = _time(value)
    cell = np.zeros((), dtype)
    is_number = array.dtype.kind in "iu" and dtype.kind == "m"  # numpy takes it in the unit of the dtype
    if array.dtype.kind != dtype.kind and not is_number:
        raise TypeError(f"it is of dtype '{array.dtype}'")
    cell[...] = array
    if is_number or np.datetime_data(array.dtype)[0] == "generic":
        is_kept = cell.view(np.int64).item() == (array if is_number else array.astype(np.int64)).item()
    else:
        with np.errstate(all="ignore"):
            is_kept = cell.astype(array.dtype).tobytes() == array.tobytes()
    if not is_kept:
        raise ValueError(f"it would become {cell}")
    return cell.tobytes()


def _time(value: datetime.date | datetime.timedelta) -> NDArray[Any]:
    """Return a time of Python or pandas as a time of numpy."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        raise TypeError("it has a time zone")
    if hasattr(value, "to_numpy"):  # pandas: of nanoseconds
        return np.asarray(value.to_numpy())
    return np.asarray(np.timedelta64(value) if isinstance(value, datetime.timedelta) else np.datetime64(value))
