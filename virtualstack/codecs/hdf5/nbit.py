"""The filter nbit (5): of each number only the bits that its datatype uses, one number behind the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import Bytes, BytesDecoder, CodecError, check_size, raw_bytes
from virtualstack.codecs.hdf5.bits import PADDING, gather, unpack

__all__ = ["NBIT", "NbitLayout", "nbit", "parse_layout"]

NBIT = "virtualstack.nbit"
_ATOMIC, _ARRAY, _COMPOUND, _OTHER = 1, 2, 3, 4
"""Classes of datatypes in the parameters (H5Zpkg.h); what is none of the first three is stored as it is."""
_WHOLE_NUMBERS = 1, 2, 4, 8
_MAX_NUMBER = 256
"""Bytes of one number."""
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis along which a field repeats: its length, and bytes and bits from one to the next."""

    length: int
    bytes: int
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """Numbers of one kind in each element.

    Parameters
    ----------
    at, first
        Byte of the decoded element and bit of the packed one where the first of them begins.
    width
        Packed bits.
    dtype
        Unsigned integer that holds them decoded.
    shift
        Bits to the right of them there.
    axes
        Along which they repeat, the slowest first.
    """

    at: int
    first: int
    width: int
    dtype: str
    shift: int
    axes: tuple[_Axis, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NbitLayout:
    """What the parameters say.

    Parameters
    ----------
    n_elements
        Of a chunk.
    size
        Bytes of a decoded element.
    n_bits
        Of a packed element.
    fields
        All that is packed.
    """

    n_elements: int
    size: int
    n_bits: int
    fields: tuple[_Field, ...]


def parse_layout(values: Sequence[int], /) -> NbitLayout | None:
    """Read the client data values of the filter; ``None`` where it leaves chunks as they are.

    H5Znbit.c: the number of values, whether nothing is to be done, elements of a chunk, then the datatype as a tree.

    Raises
    ------
    ValueError
        They contradict themselves.
    """
    if not all(0 <= value < 1 << 32 for value in values):
        raise ValueError("has parameters that are no words of 32 bits")
    if len(values) > 1 and values[1]:
        return None
    if len(values) < 5 or values[0] != len(values):
        raise ValueError(f"has {len(values)} parameters, which describe no datatype")
    if values[3] == _OTHER or values[4] < 1:
        raise ValueError(f"has elements of class {values[3]} with {values[4]} bytes")
    tree = _Tree(values)
    fields, n_bits, size = tree.read(values[3], 4, depth=0)
    return NbitLayout(n_elements=values[2], size=size, n_bits=n_bits, fields=tuple(fields))


class _Tree:
    """Reads a datatype, depth first."""

    def __init__(self, values: Sequence[int]) -> None:
        self._values = values
        self._next = self._n_compounds = 0

    def read(self, kind: int, at: int, *, depth: int) -> tuple[list[_Field], int, int]:
        """Give the fields of a datatype whose values begin at an index, its packed bits and its decoded bytes."""
        self._next = at
        return self._read(kind, depth)

    def _take(self) -> int:
        if self._next >= len(self._values):
            raise ValueError(f"has {len(self._values)} parameters, which are too few for its datatype")
        self._next += 1
        return self._values[self._next - 1]

    def _read(self, kind: int, depth: int) -> tuple[list[_Field], int, int]:
        if depth > _MAX_DEPTH:
            raise ValueError(f"has a datatype of more than {_MAX_DEPTH} levels")
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
            # H5Z__nbit_decompress_one_array goes back to the parameters of the base, and misreads what follows
            raise ValueError("has arrays of arrays or of compounds in a compound, of which HDF5 itself loses bits")
        base, n_bits, base_size = self._read(kind, depth + 1)
        if kind == _OTHER:  # its own size is not used
            return [_bytes(size)], 8 * size, size
        n = size // base_size
        axis = _Axis(n, base_size, n_bits)
        return [replace(field, axes=(axis, *field.axes)) for field in base], n * n_bits, size

    def _read_compound(self, size: int, depth: int) -> tuple[list[_Field], int, int]:
        fields, first = [], 0
        self._n_compounds += 1
        for _ in range(self._take()):
            at, kind = self._take(), self._take()
            members, n_bits, member_size = self._read(kind, depth + 1)
            if at + member_size > size:
                raise ValueError(f"has a member of {member_size} bytes at byte {at} of a compound of {size}")
            fields += [replace(field, at=field.at + at, first=field.first + first) for field in members]
            first += n_bits
        self._n_compounds -= 1
        return fields, first, size


def _bytes(size: int) -> _Field:
    return _Field(at=0, first=0, width=8, dtype="u1", shift=0, axes=(_Axis(size, 1, 8),))


def _number(size: int, order: int, precision: int, offset: int) -> list[_Field]:
    if size > _MAX_NUMBER or order not in (0, 1) or precision < 1 or precision + offset > 8 * size:
        raise ValueError(f"has numbers of {precision} bits at bit {offset} of {size} bytes in byte order {order}")
    if size in _WHOLE_NUMBERS:
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
    """Give the decoder.

    Parameters
    ----------
    options
        ``values``: the client data values of the filter.
    """
    layout = parse_layout([int(value) for value in options["values"]])

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        source = raw_bytes(raw)
        if layout is None:
            return source
        n_bytes = layout.n_elements * layout.size
        check_size("the nbit filter", n_bytes, size, limit)
        if source.size * 8 < layout.n_elements * layout.n_bits:
            raise CodecError(
                f"the nbit chunk has {source.size} bytes; {layout.n_elements} elements of {layout.n_bits} bits are more"
            )
        padded = np.zeros(source.size + PADDING, np.uint8)
        padded[: source.size] = source
        out = np.zeros(n_bytes, np.uint8)
        whole = _Axis(layout.n_elements, layout.size, layout.n_bits)
        for field in layout.fields if n_bytes else ():
            _decode_field(padded, out, field, _merge((whole, *field.axes)))
        return out

    return decode


def _merge(axes: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """Join axes whose steps are those of one, and leave out those of length 1."""
    merged: list[_Axis] = []
    for axis in axes:
        if axis.length == 1:
            continue
        outer = merged[-1] if merged else None
        if outer is not None and (outer.bytes, outer.bits) == (axis.length * axis.bytes, axis.length * axis.bits):
            merged[-1] = _Axis(outer.length * axis.length, axis.bytes, axis.bits)
        else:
            merged.append(axis)
    return tuple(merged) or (_Axis(1, 1, 8),)


def _decode_field(data: NDArray[np.uint8], out: NDArray[np.uint8], field: _Field, axes: tuple[_Axis, ...]) -> None:
    shape, strides = tuple(axis.length for axis in axes), tuple(axis.bytes for axis in axes)
    if not math.prod(shape):
        return
    target: NDArray[Any] = np.ndarray(shape, field.dtype, out, field.at, strides)
    if len(axes) == 1:
        unpack(data, target, first=field.first, stride=axes[0].bits, width=field.width, shift=field.shift)
        return
    bits = np.full((), field.first, np.int64)
    for axis in axes:
        bits = np.add.outer(bits, np.arange(axis.length) * axis.bits)
    target[...] = gather(data, bits, width=field.width) << field.shift
