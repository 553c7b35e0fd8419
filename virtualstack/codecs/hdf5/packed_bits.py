"""Filters of HDF5 that store values in fewer bits: N-bit and scale-offset."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
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


def gather(data: NDArray[np.uint8], bits: NDArray[np.int64], /, *, width: int) -> NDArray[np.uint64]:
    """Return numbers of ``width`` bits at positions in bits; `PADDING_BYTES` more follow the packed ``data``."""
    at, skip = bits >> 3, (bits & 7).astype(np.uint64)
    words: NDArray[Any] = np.ndarray((data.size - 8,), ">u8", data, 0, (1,))
    numbers: NDArray[np.uint64] = words[at].astype(np.uint64)
    numbers <<= skip
    if width > 57:
        numbers |= data[at + 8].astype(np.uint64) >> (8 - skip)
    numbers >>= 64 - width
    return numbers


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
_ATOMIC, _ARRAY, _COMPOUND, _OTHER = 1, 2, 3, 4
"""Classes of datatypes in the parameters (H5Zpkg.h). Any other class is stored unchanged."""
_WHOLE_NUMBER_BYTES = 1, 2, 4, 8
_MAX_NUMBER_BYTES = 256
"""Bytes of one number."""
_MAX_DATATYPE_LEVELS = 32


class _RepeatAxis(NamedTuple):
    """One axis along which a field repeats: its length, and the distance between repeats in bytes and bits."""

    length: int
    bytes: int
    bits: int


class _Field(NamedTuple):
    """Numbers of one kind in each element."""

    at: int
    first: int
    width: int
    dtype: str
    shift: int
    axes: tuple[_RepeatAxis, ...] = ()


class NbitLayout(NamedTuple):
    """Layout of packed elements that the parameters describe."""

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

    H5Znbit.c: number of values, a flag for "nothing to do", elements of a chunk, then the datatype as a tree.
    """
    check_words(values)
    if len(values) > 1 and values[1]:
        return None
    if len(values) < 5 or values[0] != len(values):
        raise ValueError(f"has {len(values)} parameters, which do not describe a datatype")
    if values[3] == _OTHER or values[4] < 1:
        raise ValueError(f"has elements of class {values[3]} with {values[4]} bytes")
    fields, n_bits, size = _Tree(values).read(values[3])
    return NbitLayout(n_elements=values[2], size=size, n_bits=n_bits, fields=tuple(fields))


class _Tree:
    """Reads a datatype, depth first."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values
        self._next, self._n_compounds = 4, 0

    def _take(self) -> int:
        if self._next >= len(self._values):
            raise ValueError(f"has {len(self._values)} parameters, which are too few for its datatype")
        self._next += 1
        return self._values[self._next - 1]

    def read(self, kind: int, depth: int = 0) -> tuple[list[_Field], int, int]:
        """Return the fields of a datatype, its packed bits and its decoded bytes."""
        if depth > _MAX_DATATYPE_LEVELS:
            raise ValueError(f"has a datatype of more than {_MAX_DATATYPE_LEVELS} levels")
        size = self._take()
        if size < 1:
            raise ValueError("has a datatype of no bytes")
        if kind == _ATOMIC:
            order, precision, offset = self._take(), self._take(), self._take()
            return _number(size, order, precision, offset), precision, size
        if kind == _ARRAY:
            return self._read_array(size, depth)
        if kind == _COMPOUND:
            return self._read_compound(size, depth)
        if kind == _OTHER:
            return [_bytes(size)], 8 * size, size
        raise ValueError(f"has a datatype of class {kind}")

    def _read_array(self, size: int, depth: int) -> tuple[list[_Field], int, int]:
        kind = self._take()
        if self._n_compounds and kind in (_ARRAY, _COMPOUND):
            # H5Z__nbit_decompress_one_array goes back to the parameters of the base type, and then misreads later
            # values
            raise ValueError("has arrays of arrays or of compounds in a compound, of which HDF5 itself loses bits")
        base, n_bits, base_size = self.read(kind, depth + 1)
        if kind == _OTHER:  # its own size is not used
            return [_bytes(size)], 8 * size, size
        n = size // base_size
        axis = _RepeatAxis(n, base_size, n_bits)
        return [field._replace(axes=(axis, *field.axes)) for field in base], n * n_bits, size

    def _read_compound(self, size: int, depth: int) -> tuple[list[_Field], int, int]:
        fields, first = [], 0
        self._n_compounds += 1
        for _ in range(self._take()):
            at, kind = self._take(), self._take()
            members, n_bits, member_size = self.read(kind, depth + 1)
            if at + member_size > size:
                raise ValueError(f"has a member of {member_size} bytes at byte {at} of a compound of {size}")
            fields += [field._replace(at=field.at + at, first=field.first + first) for field in members]
            first += n_bits
        self._n_compounds -= 1
        return fields, first, size


def _bytes(size: int) -> _Field:
    return _Field(at=0, first=0, width=8, dtype="u1", shift=0, axes=(_RepeatAxis(size, 1, 8),))


def _number(size: int, order: int, precision: int, offset: int) -> list[_Field]:
    if size > _MAX_NUMBER_BYTES or order not in (0, 1) or precision < 1 or precision + offset > 8 * size:
        raise ValueError(f"has numbers of {precision} bits at bit {offset} of {size} bytes in byte order {order}")
    if size in _WHOLE_NUMBER_BYTES:
        return [_Field(at=0, first=0, width=precision, dtype=f"{'<>'[order]}u{size}", shift=offset)]
    fields, first = [], 0
    top = precision + offset  # byte by byte, from the most significant
    for byte in range((top - 1) // 8, offset // 8 - 1, -1):
        low, high = max(offset, 8 * byte), min(top, 8 * byte + 8)
        at = byte if order == 0 else size - 1 - byte
        fields.append(_Field(at=at, first=first, width=high - low, dtype="u1", shift=low - 8 * byte))
        first += high - low
    return fields


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
    whole = _RepeatAxis(layout.n_elements, layout.size, layout.n_bits)
    for field in layout.fields if out.size else ():
        _decode_field(padded, out, field, _merge((whole, *field.axes)))
    return out


def _merge(axes: tuple[_RepeatAxis, ...]) -> tuple[_RepeatAxis, ...]:
    """Join axes whose steps equal the steps of a single axis, and leave out axes of length 1."""
    merged: list[_RepeatAxis] = []
    for axis in axes:
        if axis.length == 1:
            continue
        outer = merged[-1] if merged else None
        if outer is not None and (outer.bytes, outer.bits) == (axis.length * axis.bytes, axis.length * axis.bits):
            merged[-1] = _RepeatAxis(outer.length * axis.length, axis.bytes, axis.bits)
        else:
            merged.append(axis)
    return tuple(merged) or (_RepeatAxis(1, 1, 8),)


def _decode_field(
    data: NDArray[np.uint8], out: NDArray[np.uint8], field: _Field, axes: tuple[_RepeatAxis, ...]
) -> None:
    shape, strides = tuple(axis.length for axis in axes), tuple(axis.bytes for axis in axes)
    target: NDArray[Any] = np.ndarray(shape, field.dtype, out, field.at, strides)
    if len(axes) == 1:
        unpack(data, target, first=field.first, stride=axes[0].bits, width=field.width, shift=field.shift)
        return
    bits = np.full((), field.first, np.int64)
    for axis in axes:
        bits = np.add.outer(bits, np.arange(axis.length) * axis.bits)
    target[...] = gather(data, bits, width=field.width) << field.shift


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
