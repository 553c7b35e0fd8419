"""The filter scaleoffset (6): numbers as differences from the least of their chunk, floats rounded to decimals."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import Bytes, BytesDecoder, CodecError, check_size, raw_bytes
from virtualstack.codecs.hdf5.bits import PADDING, unpack

__all__ = ["SCALEOFFSET", "Scaling", "parse_scaling", "scaleoffset"]

SCALEOFFSET = "virtualstack.scaleoffset"
_N_VALUES, _FILL_AT = 20, 8
_HEADER = 21
"""Bytes before the packed numbers: how many bits these have (4), then the size (1) and bytes (16) of the minimum."""
_DECIMALS, _INTEGERS = 0, 2
"""Kinds of scaling (H5Zpublic.h); 1, by powers of two, was never written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What the parameters say.

    Parameters
    ----------
    n_elements
        Of a chunk.
    dtype
        Of its values, in the stored byte order.
    decimals
        Of floats.
    fill
        Stored as the packed number of which all bits are set.
    """

    n_elements: int
    dtype: np.dtype[Any]
    decimals: int
    fill: np.generic | None


def parse_scaling(values: Sequence[int], /) -> Scaling | None:
    """Read the client data values of the filter; ``None`` where it leaves chunks as they are.

    H5Zscaleoffset.c: kind of scaling, its factor, elements of a chunk, class, size, sign and byte order of a number,
    whether there is a fill value, and its bytes in words of 4, least significant first.

    Raises
    ------
    ValueError
        The filter does not know them either.
    """
    if not all(0 <= value < 1 << 32 for value in values):
        raise ValueError("has parameters that are no words of 32 bits")
    if len(values) != _N_VALUES:
        raise ValueError(f"has {len(values)} parameters; {_N_VALUES} are expected")
    scaling, factor, n_elements, kind, size, sign, order, has_fill = values[:_FILL_AT]
    factor = factor - (1 << 32) if factor >> 31 else factor
    sizes = {0: (1, 2, 4, 8), 1: (4, 8)}.get(kind, ())
    if size not in sizes or sign not in (0, 1) or order not in (0, 1):
        raise ValueError(f"has numbers of class {kind} with {size} bytes, sign {sign}, byte order {order}")
    if has_fill not in (0, 1):
        raise ValueError(f"has a fill value that is there in the way {has_fill}, not 0 or 1")
    if scaling != (_DECIMALS if kind else _INTEGERS):
        raise ValueError(f"has scaling {scaling} of numbers of class {kind}")
    if not kind and factor > 8 * size:
        raise ValueError(f"has integers of {factor} bits in {size} bytes")
    if not kind and factor == 8 * size:
        return None
    dtype = np.dtype(f"{'<>'[order]}{'f' if kind else 'ui'[sign]}{size}")
    fill = np.array(values[_FILL_AT:], "<u4").view(dtype.newbyteorder("<"))[0] if has_fill else None
    return Scaling(n_elements=n_elements, dtype=dtype, decimals=factor, fill=fill)


def scaleoffset(options: Mapping[str, Any], /) -> BytesDecoder:
    """Give the decoder.

    Parameters
    ----------
    options
        ``values``: the client data values of the filter.
    """
    scaling = parse_scaling([int(value) for value in options["values"]])

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        source = raw_bytes(raw)
        if scaling is None:
            return source
        n_bytes = scaling.n_elements * scaling.dtype.itemsize
        check_size("the scaleoffset filter", n_bytes, size, limit)
        if source.size < _HEADER:
            raise CodecError(f"the scaleoffset chunk has {source.size} bytes; its header alone has {_HEADER}")
        width, n_least = struct.unpack_from("<IB", source)
        body = source[_HEADER:]
        if width > 8 * scaling.dtype.itemsize or body.size * 8 < scaling.n_elements * width:
            raise CodecError(
                f"the scaleoffset chunk has {body.size} bytes of numbers; {scaling.n_elements} of {width} bits with "
                f"dtype '{scaling.dtype}' are expected"
            )
        if width == 8 * scaling.dtype.itemsize:
            whole = body[:n_bytes].view(scaling.dtype.newbyteorder("<"))
            return raw_bytes(whole.astype(scaling.dtype, copy=False))
        least = source[5 : 5 + min(n_least, 8)].tobytes().ljust(8, b"\0")
        return raw_bytes(_restore(_unpacked(body, width, scaling), width, least, scaling))

    return decode


def _unpacked(body: NDArray[np.uint8], width: int, scaling: Scaling) -> NDArray[Any]:
    numbers = np.zeros(scaling.n_elements, f"u{scaling.dtype.itemsize}")
    if width:
        padded = np.zeros(body.size + PADDING, np.uint8)
        padded[: body.size] = body
        unpack(padded, numbers, first=0, stride=width, width=width)
    return numbers


def _restore(numbers: NDArray[Any], width: int, least: bytes, scaling: Scaling) -> NDArray[Any]:
    """Give values in the stored byte order."""
    native = scaling.dtype.newbyteorder("=")
    start = np.frombuffer(least, native.newbyteorder("<"), 1).astype(native)[0]
    is_fill = None if scaling.fill is None else numbers == (1 << width) - 1
    if native.kind == "f":
        values = numbers.view(f"i{native.itemsize}").astype(native)
        with np.errstate(all="ignore"):
            values /= native.type(_power_of_ten(scaling.decimals))
            values += start
    else:
        numbers += start.view(numbers.dtype)
        values = numbers.view(native)
    if is_fill is not None:
        values[is_fill] = scaling.fill
    return values.astype(scaling.dtype, copy=False)


def _power_of_ten(exponent: int) -> float:
    try:
        return math.pow(10.0, exponent)
    except OverflowError:
        return math.inf
