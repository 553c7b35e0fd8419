"""Translate HDF5 datatypes to numpy dtypes, and decide whether the stored bytes are the values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.hdf5.elements import ELEMENTS
from virtualstack.codecs.pipeline import decode
from virtualstack.formats.hdf5.structures.datatype_message import Datatype, FloatLayout, Member, parse_datatype
from virtualstack.formats.hdf5.structures.requests import StructureError

_PLAIN = frozenset({"integer", "float", "string", "enum", "opaque"})


def is_read_by_netcdf(datatype: Datatype, /) -> bool:
    """Return whether netCDF-C reads elements of a datatype that is not committed.

    This follows the observed behaviour of netCDF-C 4.10. It reads numbers, text, enumerations and opaque bytes. It
    reads compounds of numbers, text, and arrays of numbers or text. It reads sequences of numbers and text.
    """
    if datatype.kind in _PLAIN or datatype.variant == "string":
        return True
    if datatype.kind == "compound":
        return all(_is_part(_element_of_array(member.datatype)) for member in datatype.members)
    return datatype.kind == "vlen" and datatype.base is not None and _is_part(datatype.base)


def _element_of_array(datatype: Datatype) -> Datatype:
    return datatype.base if datatype.kind == "array" and datatype.base is not None else datatype


def _is_part(datatype: Datatype) -> bool:
    """Return whether a datatype may be in a compound or a sequence; floats there must be floats of C."""
    is_float_of_c = datatype.kind == "float" and 2 < datatype.size <= 8
    return is_float_of_c or datatype.kind in ("integer", "string") or datatype.variant == "string"


_IEEE = {
    2: FloatLayout(15, 10, 5, 0, 10, 15, "implied"),
    4: FloatLayout(31, 23, 8, 0, 23, 127, "implied"),
    8: FloatLayout(63, 52, 11, 0, 52, 1023, "implied"),
}
_FLOATS = {size: np.finfo(f"f{size}") for size in _IEEE}
_MAX_ELEMENT_BYTES = (1 << 31) - 1  # largest size of a numpy element
_MAX_AXES = 32
_MAX_CACHED_NAMES = 64  # names of an enumeration
_MAX_ARRAY_ELEMENTS = 16  # elements of an array type in a compound
_NOT_ZARR = "zarr has no data type for it"
_NAMES = {
    "string": "strings of variable length in a compound or array type",
    "sequence": "sequences of variable length",
    "object": "references to objects in a compound or array type",
    "region": "references to regions of datasets",
    "object2": "references to objects in the form of HDF5 1.12",
    "region2": "references to regions in the form of HDF5 1.12",
    "attribute": "references to attributes",
    "time": "the time class",
}
_NUMPY_TAG = re.compile(rb"NUMPY:([<>|=]?[mMiufcbSUV][0-9]{0,9}(?:\[[0-9]{0,9}[a-zA-Z]{1,2}\])?)")


class ElementType(NamedTuple):
    """The interpretation of the elements of a dataset or attribute."""

    kind: Literal["bytes", "converted", "text", "paths", "refused"]
    stored: np.dtype[Any] | None = None
    subshape: tuple[int, ...] = ()
    reason: str = ""
    size: int = 0
    codecs: tuple[Codec, ...] = ()


def packed(dtype: np.dtype[Any], /) -> np.dtype[Any]:
    """Return the dtype of the values: native byte order, no padding between fields, no metadata.

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
    """Return a dtype without fields as numpy writes it, without h5py's metadata."""
    return np.dtype(dtype.str)


def parse_library_datatype(encoded: bytes, /) -> Datatype:
    """Return a datatype that the HDF5 library has encoded."""
    # H5Tencode: type of the message, version of the encoding, and the message
    return parse_datatype(encoded[2:])


def element_type(datatype: Datatype | bytes, /) -> ElementType:
    """Interpret an HDF5 datatype.

    The kind is ``"converted"`` if the HDF5 library has encoded the datatype and `parse_datatype` does not know it.
    """
    if isinstance(datatype, Datatype):
        return _interpret(datatype)
    try:
        return _interpret(parse_library_datatype(datatype))
    except StructureError as error:
        return ElementType(kind="converted", reason=f"a datatype of an unknown form: {error}")


def decode_element(raw: bytes, found: ElementType, /) -> NDArray[Any]:
    """Return the value of one stored element, such as a fill value, with the shape of an array type."""
    if found.stored is None:
        raise ValueError(f"stored bytes of {found.reason} are not values")
    return decode(raw, found.codecs, found.stored, found.subshape).astype(packed(found.stored))


class _NotBytesError(Exception):
    def __init__(self, reason: str, kind: Literal["converted", "refused"] = "converted") -> None:
        super().__init__(reason)
        self.reason, self.kind = reason, kind


def _interpret(datatype: Datatype) -> ElementType:
    # A file may have any number of compounds of any size; they are not cached.
    is_small = datatype.base is None and not datatype.members
    is_enum = datatype.kind == "enum" and len(datatype.names) <= _MAX_CACHED_NAMES
    return _cached(datatype) if is_small or is_enum else _uncached(datatype)


def _uncached(datatype: Datatype) -> ElementType:
    subshape: tuple[int, ...] = ()
    while datatype.kind == "array" and datatype.base is not None:
        subshape += datatype.dims
        datatype = datatype.base
    if not subshape and (found := _pointers(datatype)) is not None:
        return found
    try:
        if len(subshape) > _MAX_AXES:
            raise _NotBytesError(f"an array type of {len(subshape)} axes", "refused")
        stored = _dtype(datatype, is_whole=True)
        members = list(_conversions(datatype, 0, is_whole=True))
    except _NotBytesError as error:
        return ElementType(kind=error.kind, reason=error.reason, subshape=subshape, size=datatype.size)
    codecs = (Codec.from_config(ELEMENTS, itemsize=datatype.size, members=members),) if members else ()
    return ElementType(kind="bytes", stored=stored, subshape=subshape, size=datatype.size, codecs=codecs)


_cached = lru_cache(maxsize=512)(_uncached)


def _pointers(datatype: Datatype) -> ElementType | None:
    """Interpret elements that only point to their values; return ``None`` for other elements."""
    if datatype.variant == "string":
        reason = "strings of variable length lie in the heap of the file"
        return ElementType(kind="text", reason=reason, size=datatype.size)
    if datatype.variant == "object":
        reason = "references to objects have a meaning only in their file"
        return ElementType(kind="paths", reason=reason, size=datatype.size)
    return None


def _dtype(datatype: Datatype, *, is_whole: bool = False) -> np.dtype[Any]:
    """Return the dtype of elements in h5py.

    h5py has no dtype for integers of odd sizes. They get the next wider dtype if the integer is the whole element.
    """
    if datatype.size > _MAX_ELEMENT_BYTES:
        raise _NotBytesError(f"elements of {datatype.size} bytes: {_NOT_ZARR}", "refused")
    match datatype.kind:
        case "integer" | "bitfield" if datatype.size in (1, 2, 4, 8) or (is_whole and datatype.size < 8):
            sign = "i" if datatype.is_signed else "u"
            return np.dtype(f"{datatype.order}{sign}{1 << (datatype.size - 1).bit_length()}")
        case "float":
            dtype = _float_dtype(datatype)
            if dtype is not None:
                return dtype
        case "string":
            return np.dtype(f"S{datatype.size}")
        case "opaque":
            return _opaque(datatype)
        case "compound":
            return _compound(datatype)
        case "enum" if datatype.base is not None:
            return np.dtype(np.bool_) if _is_bool(datatype) else _dtype(datatype.base)
        case "array" if datatype.base is not None:
            return np.dtype((_dtype(datatype.base), datatype.dims))
        case "complex" if datatype.base is not None:
            return _complex(_dtype(datatype.base))
    raise _NotBytesError(f"{_describe(datatype)}: {_NOT_ZARR}", "refused")


def _describe(datatype: Datatype) -> str:
    if datatype.kind in ("integer", "bitfield"):
        where = f"from bit {datatype.bit_offset} in {datatype.size} bytes"
        return f"{datatype.kind}s of {datatype.precision} bits {where}"
    if datatype.kind == "float":
        order = " in VAX byte order" if datatype.order == "vax" else ""
        return f"floats of {datatype.precision} bits in {datatype.size} bytes{order}"
    return _NAMES.get(datatype.variant or datatype.kind, f"{datatype.kind} elements")


def _float_dtype(datatype: Datatype) -> np.dtype[Any] | None:
    """Return the smallest of numpy's floats that holds all values, as h5py does."""
    layout = datatype.layout
    if layout is None or datatype.order not in ("<", ">"):
        return None
    for size, info in _FLOATS.items():
        is_wide = size >= datatype.size and layout.mantissa_size <= info.nmant
        if is_wide and 2**layout.exponent_size - layout.bias - 1 <= info.maxexp and 1 - layout.bias >= info.minexp:
            return np.dtype(f"{datatype.order}f{size}")
    return None


def _is_bool(datatype: Datatype) -> bool:
    """Return whether h5py reads an enumeration as bool: its members are FALSE = 0 and TRUE = 1."""
    if sorted(datatype.names) != [b"FALSE", b"TRUE"] or datatype.base is None:
        return False
    size, base = datatype.size, datatype.base
    order: Literal["little", "big"] = "little" if base.order == "<" else "big"
    numbers = [int.from_bytes(datatype.values[at : at + size], order) for at in (0, size)]
    return numbers == [datatype.names.index(b"TRUE") == i for i in (0, 1)]


def _opaque(datatype: Datatype) -> np.dtype[Any]:
    """Interpret opaque bytes; the dtype is numpy's if the tag names one, as h5py does for ``datetime64``."""
    if not datatype.tag.startswith(b"NUMPY:"):
        return np.dtype(f"V{datatype.size}")
    tag = _NUMPY_TAG.fullmatch(datatype.tag)
    try:
        dtype = np.dtype(tag[1].decode()) if tag is not None else None
    except TypeError:  # numpy does not have this type
        dtype = None
    if dtype is None or dtype.itemsize != datatype.size:
        text = datatype.tag.decode("ascii", "replace")
        raise _NotBytesError(f"opaque elements of {datatype.size} bytes with the tag '{text}'", "refused")
    return plain(dtype)


def _compound(datatype: Datatype) -> np.dtype[Any]:
    if _is_complex(datatype.members):
        return _complex(_dtype(datatype.members[0].datatype))
    fields = [_dtype(member.datatype) for member in datatype.members]
    names, offsets = [member.name for member in datatype.members], [member.offset for member in datatype.members]
    places = sorted(zip(offsets, fields, strict=True), key=lambda place: place[0])
    starts = [*(offset for offset, _ in places[1:]), datatype.size]
    if any(offset + field.itemsize > start for (offset, field), start in zip(places, starts, strict=True)):
        wide = next(x for x, y in zip(datatype.members, fields, strict=True) if x.datatype.size < y.itemsize)
        raise _NotBytesError(f"compounds of {_describe(wide.datatype)}: {_NOT_ZARR}", "refused")
    return np.dtype({"names": names, "formats": fields, "offsets": offsets, "itemsize": datatype.size})


def _is_complex(members: tuple[Member, ...]) -> bool:
    """Return whether h5py reads a compound as complex: members r and i of one float type of 4 or 8 bytes."""
    if [member.name for member in members] != ["r", "i"]:
        return False
    first, second = (_float_dtype(member.datatype) for member in members)
    return first is not None and first == second and first.itemsize in (4, 8)


def _complex(part: np.dtype[Any]) -> np.dtype[Any]:
    if part.itemsize not in (4, 8):
        raise _NotBytesError(f"complex numbers of two '{part}': {_NOT_ZARR}", "refused")
    return np.dtype(f"{part.str[0]}c{2 * part.itemsize}")


def _conversions(datatype: Datatype, offset: int, *, is_whole: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the conversions that the bytes of elements need, as members of the codec that applies them."""
    match datatype.kind:
        case "integer" | "bitfield" | "float":
            number = _number(datatype)
            if number and number["size"] != np.dtype(number["dtype"]).itemsize and not is_whole:
                raise _NotBytesError(f"{_describe(datatype)} in a compound or array type")
            if number:
                yield {"offset": offset, **number}
        case "string":
            # HDF5 spec IV.A.2.d, class 3: bytes after the first NUL are not part of the string, and arbitrary
            if datatype.padding == "spacepad" or (datatype.padding == "nullterm" and datatype.size > 1):
                yield {"offset": offset, "kind": datatype.padding, "size": datatype.size}
        case "enum":
            if not _is_exact(datatype.base) or (_is_bool(datatype) and datatype.size > 1):
                raise _NotBytesError(f"enumerations with {datatype.size} bytes of values that are converted")
        case "complex" if not _is_exact(datatype.base):
            raise _NotBytesError("complex numbers whose parts are not IEEE 754's", "refused")
        case "array" if datatype.base is not None:
            count, size = math.prod(datatype.dims), datatype.base.size
            members = list(_conversions(datatype.base, offset))
            if all(member.get("count", 1) * member["size"] == size for member in members):
                yield from ({**member, "count": count * member.get("count", 1)} for member in members)
            elif count > _MAX_ARRAY_ELEMENTS:
                raise _NotBytesError("array types of compounds whose members are converted")
            else:
                repeated = itertools.product(range(count), members)
                yield from ({**member, "offset": member["offset"] + i * size} for i, member in repeated)
        case "compound" if _is_complex(datatype.members):
            half = datatype.size // 2
            offsets, part = [member.offset for member in datatype.members], datatype.members[0].datatype
            if offsets != [0, half] or part.size != half or not all(_is_exact(x.datatype) for x in datatype.members):
                raise _NotBytesError("complex numbers whose parts do not lie one after the other")
        case "compound":
            for _, at, part in datatype.members:
                yield from _conversions(part, offset + at)


def _number(datatype: Datatype) -> dict[str, Any]:
    """Return the conversion that a number needs; an empty dict if its bytes are a number of numpy."""
    size, precision, layout, code = (
        datatype.size,
        datatype.precision,
        datatype.layout,
        _dtype(datatype, is_whole=True).str,
    )
    if layout is None:
        if precision == 8 * size and int(code[2:]) == size:
            return {}
        return {"kind": "integer", "size": size, "dtype": code, "bits": [datatype.bit_offset, precision]}
    if precision == 8 * size and layout == _IEEE.get(size):
        return {}
    if layout.normalisation != "implied":
        raise _NotBytesError(
            f"{_describe(datatype)} whose mantissa has no implied bit, which no library reads", "refused"
        )
    return {"kind": "float", "size": size, "dtype": code, "bits": list(layout[:-1])}


def _is_exact(datatype: Datatype | None) -> bool:
    """Return whether the stored bytes of elements are the values."""
    return datatype is not None and not any(_conversions(datatype, 0))
