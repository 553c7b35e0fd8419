"""HDF5 datatypes as numpy dtypes, and whether stored bytes are the values."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Literal

import h5py
import numpy as np
from h5py import h5t

__all__ = ["ElementType", "converted_dtype", "element_type", "packed", "plain"]

# HDF5 spec IV.A.2.d, class 1: bit position of the sign, of the exponent, of the mantissa; their sizes; bias.
_IEEE = {
    2: ((15, 10, 5, 0, 10), 15),
    4: ((31, 23, 8, 0, 23), 127),
    8: ((63, 52, 11, 0, 52), 1023),
}
_ORDER = {h5t.ORDER_LE: "<", h5t.ORDER_BE: ">"}
_COMPLEX_CLASS = getattr(h5t, "COMPLEX", None)  # since HDF5 2.0
_NOT_ZARR = "zarr has no data type for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementType:
    """What the elements of a dataset or attribute are.

    Parameters
    ----------
    kind
        ``"bytes"``: stored bytes are the values, seen through ``stored``. ``"converted"``: the HDF5 library makes
        values of them. ``"text"``: strings of any length. ``"refused"``: there is nothing zarr could call it.
    stored
        Dtype of one stored element, byte order, offsets and padding included; ``None`` where it is not ``"bytes"``.
    subshape
        Shape of an array type, or ``()``.
    reason
        Why it is not ``"bytes"``, in the words of the format.
    """

    kind: Literal["bytes", "converted", "text", "refused"]
    stored: np.dtype[Any] | None = None
    subshape: tuple[int, ...] = ()
    reason: str = ""


def packed(dtype: np.dtype[Any], /) -> np.dtype[Any]:
    """Give the dtype of the values: native byte order, no padding between fields, no metadata.

    >>> packed(np.dtype([("a", "i1"), ("b", ">f8")], align=True)).itemsize
    9
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((packed(base), shape))
    if dtype.names is not None:
        return np.dtype([(name, packed(dtype[name])) for name in dtype.names])
    return plain(dtype).newbyteorder("=")


def plain(dtype: np.dtype[Any], /) -> np.dtype[Any]:
    """Give a dtype without fields as numpy would write it, without h5py's metadata on it."""
    return np.dtype(dtype.str)


def element_type(tid: h5t.TypeID, /) -> ElementType:
    """Interpret an HDF5 datatype."""
    subshape: tuple[int, ...] = ()
    while tid.get_class() == h5t.ARRAY:
        subshape += tuple(int(n) for n in tid.get_array_dims())
        tid = tid.get_super()
    if tid.get_class() == h5t.STRING and tid.is_variable_str():
        reason = "strings of variable length lie in the heap of the file"
        if subshape:
            return ElementType(kind="refused", reason=f"array type of {reason}")
        return ElementType(kind="text", reason=reason)
    try:
        stored = _stored(tid)
    except _NotBytesError as error:
        return ElementType(kind=error.kind, reason=error.reason, subshape=subshape)
    return ElementType(kind="bytes", stored=stored, subshape=subshape)


class _NotBytesError(Exception):
    def __init__(self, reason: str, kind: Literal["converted", "refused"] = "converted") -> None:
        super().__init__(reason)
        self.reason, self.kind = reason, kind


def _stored(tid: h5t.TypeID) -> np.dtype[Any]:
    kind = tid.get_class()
    if kind in (h5t.INTEGER, h5t.BITFIELD):
        return _integer(tid)
    if kind == h5t.FLOAT:
        return _float(tid)
    if kind == h5t.STRING:
        return _string(tid)
    if kind == h5t.ENUM:
        # h5py's rule for bool: an enum of FALSE = 0 and TRUE = 1 in one byte
        return np.dtype(np.bool_) if tid.dtype.kind == "b" else _integer(tid.get_super())
    if kind == h5t.OPAQUE:
        return plain(tid.dtype)  # numpy's datetime64 where the tag says so
    if kind == h5t.COMPOUND:
        return _compound(tid)
    if kind == h5t.ARRAY:
        return np.dtype((_stored(tid.get_super()), tuple(tid.get_array_dims())))
    if kind == _COMPLEX_CLASS:
        return _complex(_stored(tid.get_super()))
    names = {h5t.VLEN: "sequences of variable length", h5t.REFERENCE: "references", h5t.TIME: "the time class"}
    raise _NotBytesError(f"{names.get(kind, f'datatype class {kind}')}: {_NOT_ZARR}", "refused")


def _order(tid: h5t.TypeID) -> str:
    order = tid.get_order()
    if order not in _ORDER:
        raise _NotBytesError("VAX or mixed byte order")
    return _ORDER[order]


def _integer(tid: h5t.TypeID) -> np.dtype[Any]:
    """Interpret integers, and bitfields as h5py does: as unsigned integers."""
    size = tid.get_size()
    order = _order(tid)
    is_bitfield = tid.get_class() == h5t.BITFIELD
    offset, precision = _bits(tid) if is_bitfield else (tid.get_offset(), tid.get_precision())
    if precision != 8 * size or offset != 0 or size not in (1, 2, 4, 8):
        what = "bitfields" if is_bitfield else "integers"
        raise _NotBytesError(f"{what} of {precision} bits from bit {offset} in {size} bytes")
    is_signed = not is_bitfield and tid.get_sign() == h5t.SGN_2
    return np.dtype(f"{order}{'i' if is_signed else 'u'}{size}")


def _bits(tid: h5t.TypeID) -> tuple[int, int]:
    """Give offset and precision of a bitfield, which h5py does not ask for, from its encoded form."""
    # H5Tencode: two bytes, then the message. HDF5 spec IV.A.2.d, class 4: 8 bytes, bit offset, bit precision
    return struct.unpack_from("<HH", tid.encode(), 10)


def _float(tid: h5t.TypeID) -> np.dtype[Any]:
    size = tid.get_size()
    order = _order(tid)
    if size > 8:
        raise _NotBytesError(f"floats of {tid.get_precision()} bits: {_NOT_ZARR}", "refused")
    layout = (tuple(tid.get_fields()), tid.get_ebias())
    is_whole = tid.get_precision() == 8 * size and tid.get_offset() == 0 and tid.get_norm() == h5t.NORM_IMPLIED
    if layout != _IEEE.get(size) or not is_whole:
        raise _NotBytesError(f"floats of {tid.get_precision()} bits in {size} bytes that are not IEEE 754's")
    return np.dtype(f"{order}f{size}")


def _string(tid: h5t.TypeID) -> np.dtype[Any]:
    if tid.is_variable_str():
        raise _NotBytesError(f"strings of variable length in a compound: {_NOT_ZARR}", "refused")
    size, padding = tid.get_size(), tid.get_strpad()
    if padding == h5t.STR_SPACEPAD:
        raise _NotBytesError("fixed strings padded with spaces")
    if padding == h5t.STR_NULLTERM and size > 1:
        # HDF5 spec IV.A.2.d, class 3: bytes after the first NUL are not part of the string, and may be anything.
        raise _NotBytesError("fixed strings that end at the first NUL, with any bytes behind it")
    return np.dtype(f"S{size}")


def _compound(tid: h5t.TypeID) -> np.dtype[Any]:
    members = [tid.get_member_type(i) for i in range(tid.get_nmembers())]
    offsets = [int(tid.get_member_offset(i)) for i in range(len(members))]
    fields = [_stored(member) for member in members]
    size = tid.get_size()
    if tid.dtype.kind == "c":  # h5py's rule: the members r and i of one float type
        half = size // 2
        if offsets != [0, half] or {field.itemsize for field in fields} != {half} or fields[0] != fields[1]:
            raise _NotBytesError("complex numbers whose parts do not lie one after the other")
        return _complex(fields[0])
    names = [_text(tid.get_member_name(i)) for i in range(len(members))]
    return np.dtype({"names": names, "formats": fields, "offsets": offsets, "itemsize": size})


def _complex(part: np.dtype[Any]) -> np.dtype[Any]:
    if part.kind != "f" or part.itemsize not in (4, 8):
        raise _NotBytesError(f"complex numbers of two '{part}': {_NOT_ZARR}", "refused")
    return np.dtype(f"{part.str[0]}c{2 * part.itemsize}")


def _text(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def converted_dtype(dataset: h5py.Dataset, /) -> np.dtype[Any]:
    """Give the dtype that h5py converts elements to, as values have it; without the shape of an array type."""
    dtype = dataset.dtype
    return packed(dtype.subdtype[0] if dtype.subdtype is not None else dtype)
