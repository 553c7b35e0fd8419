"""Convert elements that numpy cannot read as stored: unusual numbers, and strings that end before their bytes do.

This codec is not a filter of HDF5: it does what the HDF5 library does to values that it reads. The settings are
``itemsize``, the bytes of a stored element, and ``members``, the parts of each element to convert. All other bytes stay
unchanged. A member has

``kind``
    ``"integer"``, ``"float"``, ``"nullterm"`` or ``"spacepad"``.
``offset``, ``count``, ``size``
    Position of its first byte, number of consecutive values, and bytes of each value.
``dtype``
    Dtype of decoded numbers, in the stored byte order. Only a single member that fills the element may change size.
``bits``
    For integers: lowest bit and number of bits. For floats: position of the sign, position and size of the exponent,
    position and size of the mantissa, bias of the exponent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import BytesDecoder, BytesLike, CodecError, raw_bytes
from virtualstack.errors import UnsupportedFeatureError

ELEMENTS = "virtualstack.elements"

_SPACE = 0x20
_INTEGERS = frozenset(order + code for order in "<>" for code in ("i2", "i4", "i8", "u2", "u4", "u8")) | {"|i1", "|u1"}
_FLOATS = frozenset(order + code for order in "<>" for code in ("f2", "f4", "f8"))

type _Turn = Callable[[NDArray[np.uint8]], NDArray[np.uint8]]


def elements(options: Mapping[str, Any], /) -> BytesDecoder:
    """Return the decoder; settings as above."""
    try:
        itemsize = _whole(options["itemsize"], 1)
        turns = [_member(itemsize, member) for member in options["members"]]
    except (LookupError, ValueError, TypeError) as error:  # untrusted settings may have any JSON type
        text = f"codec '{ELEMENTS}' does not take the configuration {dict(options)}: {error}"
        raise UnsupportedFeatureError(text, feature=ELEMENTS) from error

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        data = raw_bytes(raw)
        if data.size % itemsize:
            raise CodecError(f"{data.size} bytes are not a whole number of elements of {itemsize}")
        stored = data.reshape(-1, itemsize)
        if len(turns) == 1 and turns[0][0] == slice(0, itemsize):
            return turns[0][1](stored).reshape(-1)
        out = stored.copy()
        for where, turn in turns:
            cells = out[:, where]
            cells[...] = turn(cells).reshape(cells.shape)
        return out.reshape(-1)

    return decode


def is_text(options: Mapping[str, Any], /) -> bool:
    """Return whether all members are strings."""
    return all(member["kind"] in _STRINGS for member in options["members"])


def stored_size(options: Mapping[str, Any], nbytes: int, /) -> int:
    """Return the number of stored bytes for ``nbytes`` decoded bytes.

    >>> member = {"kind": "float", "size": 2, "dtype": "<f4", "bits": [15, 7, 8, 0, 7, 127]}
    >>> stored_size({"itemsize": 2, "members": [member]}, 40)
    20
    """
    itemsize, members = options["itemsize"], options["members"]
    is_number = len(members) == 1 and "dtype" in members[0] and members[0]["size"] == itemsize
    return int(nbytes // np.dtype(members[0]["dtype"]).itemsize * itemsize) if is_number else nbytes


def _member(itemsize: int, member: Mapping[str, Any]) -> tuple[slice, _Turn]:
    kind, size = member["kind"], _whole(member["size"], 1)
    offset, count = _whole(member.get("offset", 0), 0), _whole(member.get("count", 1), 1)
    where = slice(offset, offset + count * size)
    if where.stop > itemsize:
        raise ValueError(f"the bytes {where.start} to {where.stop} are not in elements of {itemsize}")
    if kind in _STRINGS:
        trim = _STRINGS[kind]
        return where, lambda cells: trim(np.ascontiguousarray(cells).reshape(-1, size))
    code, bits = member["dtype"], [_whole(bit, 0) for bit in member["bits"]]
    if kind == "integer" and code in _INTEGERS:
        turn = _integer(np.dtype(code), size, *bits)
    elif kind == "float" and code in _FLOATS:
        turn = _float(np.dtype(code), size, *bits)
    else:
        raise ValueError(f"'{kind}' of dtype '{code}' is not known")
    if np.dtype(code).itemsize != size and (where.start, where.stop) != (0, itemsize):
        raise ValueError(f"a member of {size} bytes cannot become '{code}' in the middle of an element")
    return where, lambda cells: turn(np.ascontiguousarray(cells).reshape(-1, size))


def _whole(value: Any, least: int) -> int:
    if not isinstance(value, int) or not least <= value < 1 << 31:
        raise ValueError(f"{value!r} is not a number of bits or bytes")
    return value


def _until_null(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Keep the characters before the first NUL of each string; shape ``(n, size)``."""
    is_text = cells != 0
    return cells if is_text.all() else cells * np.logical_and.accumulate(is_text, axis=1)


def _without_spaces(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Leave out the spaces at the end of each string; shape ``(n, size)``."""
    is_end = np.logical_and.accumulate(cells[:, ::-1] == _SPACE, axis=1)[:, ::-1]
    return np.where(is_end, np.uint8(0), cells)


_STRINGS: Mapping[str, _Turn] = {"nullterm": _until_null, "spacepad": _without_spaces}


def _unsigned(cells: NDArray[np.uint8], order: str) -> NDArray[Any]:
    """Read numbers of up to 8 bytes as native unsigned integers of the next size that numpy has."""
    size = cells.shape[1]
    width = 1 << (size - 1).bit_length()
    if size != width:
        wide = np.zeros((len(cells), width), np.uint8)
        wide[:, slice(width - size, None) if order == ">" else slice(size)] = cells
        cells = wide
    return cells.view(f"{order}u{width}").reshape(-1).astype(f"=u{width}", copy=False)


def _bytes(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.uint8]:
    return np.asarray(values.astype(dtype, copy=False).view(np.uint8), np.uint8)


def _order(dtype: np.dtype[Any]) -> str:
    return ">" if dtype.str[0] == ">" else "<"


def _integer(dtype: np.dtype[Any], size: int, offset: int, precision: int) -> _Turn:
    order, width = _order(dtype), 8 * dtype.itemsize
    if not size <= dtype.itemsize < 2 * size or not 0 < precision <= 8 * size - offset:
        raise ValueError(f"{precision} bits from bit {offset} in {size} bytes are not a '{dtype}'")
    kind = dtype.newbyteorder("=")

    def turn(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
        # shift to the left end, then back: the shift to the right repeats the sign
        bits = _unsigned(cells, order) << np.array(width - offset - precision, f"u{dtype.itemsize}")
        values = bits.view(kind) >> np.array(width - precision, kind)
        return _bytes(values, dtype)

    return turn


def _float(
    dtype: np.dtype[Any],
    size: int,
    sign: int,
    exponent: int,
    n_exponent: int,
    mantissa: int,
    n_mantissa: int,
    bias: int,
) -> _Turn:
    order, info = _order(dtype), np.finfo(dtype)
    is_inside = max(sign, exponent + n_exponent - 1, mantissa + n_mantissa - 1) < 8 * size <= 64
    is_exact = n_mantissa <= info.nmant and (1 << min(n_exponent, 16)) - bias - 1 <= info.maxexp
    if not is_inside or not is_exact or not n_exponent or not n_mantissa or 1 - bias < info.minexp:
        raise ValueError(f"floats of {n_exponent} and {n_mantissa} bits in {size} bytes do not fit into '{dtype}'")
    least, most = 1 - bias - n_mantissa, (1 << n_exponent) - 1

    def turn(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
        bits = _unsigned(cells, order)
        power = (bits >> bits.dtype.type(exponent) & bits.dtype.type(most)).astype(np.int32)
        digits = bits >> bits.dtype.type(mantissa) & bits.dtype.type((1 << n_mantissa) - 1)
        whole = digits.astype(np.float64)
        whole[power > 0] += 2.0**n_mantissa  # the implicit leading bit; a number without it is subnormal
        with np.errstate(over="ignore"):  # infinity and NaN overflow here; they are set below
            values = np.ldexp(whole, np.maximum(power, 1) + np.int32(least - 1))
        is_special = power == most
        values[is_special] = np.where(digits[is_special] == 0, np.inf, np.nan)
        is_negative = (bits >> bits.dtype.type(sign) & bits.dtype.type(1)).astype(np.bool_)
        np.negative(values, out=values, where=is_negative)
        return _bytes(values, dtype)

    return turn
