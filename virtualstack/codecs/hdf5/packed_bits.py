"""Filters of HDF5 that store values in fewer bits: N-bit and scale-offset."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import BytesDecoder, BytesLike, CodecError, check_size, raw_bytes

PADDING_BYTES = 9
"""Bytes after the packed ones that may be read but do not affect the result."""
_BLOCK_NUMBERS = 1 << 15
"""Numbers that are unpacked together, so that data written in several passes stays in the cache."""


def unpack(
    data: NDArray[np.uint8], out: NDArray[Any], /, *, first: int, stride: int, width: int, shift: int = 0
) -> None:
    """Write packed numbers into an array.

    Number ``i`` begins ``first + i * stride`` bits from the start. Bit positions within a byte repeat after at most 8
    numbers, so 8 strided reads return all numbers. `PADDING_BYTES` more follow the packed ``data``.
    """
    period = 8 // math.gcd(stride, 8)
    block = out.size if stride % 8 == 0 else _BLOCK_NUMBERS
    for start in range(0, out.size, max(block, 1)):
        part = out[start : start + block]
        for i in range(min(period, part.size)):
            target = part[i::period]
            at, skip = divmod(first + (start + i) * stride, 8)
            _write(data, target, at=at, step=stride * period // 8, skip=skip, width=width, shift=shift)


def _write(
    data: NDArray[np.uint8], target: NDArray[Any], *, at: int, step: int, skip: int, width: int, shift: int
) -> None:
    """Write numbers that begin at bit ``skip`` of a byte and are ``step`` bytes apart."""
    n_bytes = next(n for n in (1, 2, 4, 8, 9) if skip + width <= 8 * n)
    read = min(n_bytes, 8)
    view: NDArray[Any] = np.ndarray(target.shape, f">u{read}", data, at, (step,))
    if not shift and not skip and width == 8 * read:
        target[...] = view
        return
    numbers = view.astype(f"u{max(read, target.itemsize) if shift else read}")
    if n_bytes == 9:
        rest = skip + width - 64
        numbers = numbers << skip >> (64 - width)
        numbers |= np.ndarray(target.shape, np.uint8, data, at + 8, (step,)) >> (8 - rest)
    else:
        numbers >>= 8 * read - skip - width
        if skip:
            numbers &= (1 << width) - 1
    if shift:
        numbers <<= shift
    target[...] = numbers


def _padded(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return packed bytes with `PADDING_BYTES` more."""
    padded = np.zeros(data.size + PADDING_BYTES, np.uint8)
    padded[: data.size] = data
    return padded


def check_words(values: Sequence[int], /) -> None:
    """Raise ``ValueError`` for client data values that are not unsigned integers of 32 bits."""
    if not all(0 <= value < 1 << 32 for value in values):
        raise ValueError("has parameters that are not words of 32 bits")


def _decoder[P: (NbitLayout, Scaling)](
    name: str,
    parse: Callable[[Sequence[int]], P | None],
    unpack_chunk: Callable[[NDArray[np.uint8], P], NDArray[Any]],
    options: Mapping[str, Any],
) -> BytesDecoder:
    """Make the decoder of a filter: it parses the client data values once, and compares sizes before it unpacks."""
    parameters = parse([int(value) for value in options["values"]])

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        source = raw_bytes(raw)
        if parameters is None:
            return source
        check_size(f"the {name} filter", parameters.n_bytes, size, limit)
        return raw_bytes(unpack_chunk(source, parameters))

    return decode


NBIT = "virtualstack.nbit"
_NUMBER = 1
"""Class of numbers in the parameters (H5Zpkg.h). Arrays and compounds, whose numbers have other bits each, are left
to the HDF5 library."""
_N_NUMBER_PARAMETERS = 8
_WHOLE_NUMBER_BYTES = 1, 2, 4, 8
_MAX_NUMBER_BYTES = 256
"""Bytes of one number."""


class _Field(NamedTuple):
    """A part of each number: its byte, first packed bit, bits, dtype, and how far it is shifted to the left."""

    at: int
    first: int
    width: int
    dtype: str
    shift: int


class NbitLayout(NamedTuple):
    """Layout of packed numbers that the parameters describe."""

    n_elements: int
    size: int
    n_bits: int
    fields: tuple[_Field, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes of a decoded chunk."""
        return self.n_elements * self.size


def parse_layout(values: Sequence[int], /) -> NbitLayout | None:
    """Read the client data values of the filter; return ``None`` if the filter does not change chunks.

    H5Znbit.c: number of values, a flag for "nothing to do", elements of a chunk, then class, size, byte order,
    precision and offset of a number.
    """
    check_words(values)
    if len(values) > 1 and values[1]:
        return None
    if len(values) != _N_NUMBER_PARAMETERS or values[0] != len(values) or values[3] != _NUMBER:
        raise ValueError(f"has {len(values)} parameters, which do not describe a number")
    _, _, n_elements, _, size, order, precision, offset = values
    if size > _MAX_NUMBER_BYTES or order not in (0, 1) or precision < 1 or precision + offset > 8 * size:
        raise ValueError(f"has numbers of {precision} bits at bit {offset} of {size} bytes in byte order {order}")
    return NbitLayout(n_elements, size, precision, tuple(_fields(size, order, precision, offset)))


def _fields(size: int, order: int, precision: int, offset: int) -> Iterator[_Field]:
    if size in _WHOLE_NUMBER_BYTES:
        yield _Field(at=0, first=0, width=precision, dtype=f"{'<>'[order]}u{size}", shift=offset)
        return
    first, top = 0, precision + offset  # byte by byte, from the most significant
    for byte in range((top - 1) // 8, offset // 8 - 1, -1):
        low, high = max(offset, 8 * byte), min(top, 8 * byte + 8)
        at = byte if order == 0 else size - 1 - byte
        yield _Field(at=at, first=first, width=high - low, dtype="u1", shift=low - 8 * byte)
        first += high - low


def nbit(options: Mapping[str, Any], /) -> BytesDecoder:
    """Make the decoder of the N-bit filter; ``options["values"]`` are its client data values."""
    return _decoder("nbit", parse_layout, _unpack_elements, options)


def _unpack_elements(source: NDArray[np.uint8], layout: NbitLayout) -> NDArray[np.uint8]:
    if source.size * 8 < layout.n_elements * layout.n_bits:
        raise CodecError(
            f"the nbit chunk has {source.size} bytes; {layout.n_elements} elements of {layout.n_bits} bits are more"
        )
    padded = _padded(source)
    out = np.zeros(layout.n_bytes, np.uint8)
    for field in layout.fields if out.size else ():
        target: NDArray[Any] = np.ndarray((layout.n_elements,), field.dtype, out, field.at, (layout.size,))
        unpack(padded, target, first=field.first, stride=layout.n_bits, width=field.width, shift=field.shift)
    return out


SCALEOFFSET = "virtualstack.scaleoffset"
_N_PARAMETERS, _FILL_AT = 20, 8
_HEADER_BYTES = 21
"""Bytes before the packed numbers: how many bits these have (4), then the size (1) and bytes (16) of the minimum."""
_DECIMALS, _INTEGERS = 0, 2
"""Kinds of scaling (H5Zpublic.h); 1, by powers of two, was never written."""


class Scaling(NamedTuple):
    """Scaling that the parameters describe."""

    n_elements: int
    dtype: np.dtype[Any]
    decimals: int
    fill: np.generic | None

    @property
    def n_bytes(self) -> int:
        """Bytes of a decoded chunk."""
        return self.n_elements * self.dtype.itemsize


def parse_scaling(values: Sequence[int], /) -> Scaling | None:
    """Read the client data values of the filter; return ``None`` if the filter does not change chunks.

    H5Zscaleoffset.c: kind of scaling, its factor, elements of a chunk; class, size, sign and byte order of a number;
    whether there is a fill value, and its bytes in words of 4, least significant first.
    """
    check_words(values)
    if len(values) != _N_PARAMETERS:
        raise ValueError(f"has {len(values)} parameters; {_N_PARAMETERS} are expected")
    scaling, factor, n_elements, kind, size, sign, order, has_fill = values[:_FILL_AT]
    factor = factor - (1 << 32) if factor >> 31 else factor
    sizes = {0: (1, 2, 4, 8), 1: (4, 8)}.get(kind, ())
    if size not in sizes or sign not in (0, 1) or order not in (0, 1):
        raise ValueError(f"has numbers of class {kind} with {size} bytes, sign {sign}, byte order {order}")
    if has_fill not in (0, 1):
        raise ValueError(f"says with {has_fill}, not 0 or 1, whether it has a fill value")
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
    """Make the decoder of the scale-offset filter; ``options["values"]`` are its client data values."""
    return _decoder("scaleoffset", parse_scaling, _unpack_scaled, options)


def _unpack_scaled(source: NDArray[np.uint8], scaling: Scaling) -> NDArray[Any]:
    if source.size < _HEADER_BYTES:
        raise CodecError(f"the scaleoffset chunk has {source.size} bytes; its header alone has {_HEADER_BYTES}")
    width, n_least = struct.unpack_from("<IB", source)
    body = source[_HEADER_BYTES:]
    if width > 8 * scaling.dtype.itemsize or body.size * 8 < scaling.n_elements * width:
        raise CodecError(
            f"the scaleoffset chunk has {body.size} bytes of numbers; {scaling.n_elements} of {width} bits with "
            f"dtype '{scaling.dtype}' are expected"
        )
    if width == 8 * scaling.dtype.itemsize:
        return body[: scaling.n_bytes].view(scaling.dtype.newbyteorder("<")).astype(scaling.dtype, copy=False)
    numbers = np.zeros(scaling.n_elements, f"u{scaling.dtype.itemsize}")
    if width:
        unpack(_padded(body), numbers, first=0, stride=width, width=width)
    least = source[5 : 5 + n_least].tobytes().ljust(8, b"\0")
    return _restore(numbers, width, least, scaling)


def _restore(numbers: NDArray[Any], width: int, least: bytes, scaling: Scaling) -> NDArray[Any]:
    """Return values in the stored byte order."""
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
