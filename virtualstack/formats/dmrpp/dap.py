"""Types of DAP4 as dtypes of numpy, and values that a document stores as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from virtualstack.codecs.codec import Codec
from virtualstack.formats.dmrpp.document import BadValueError, Element, RefusedError, read_number
from virtualstack.formats.hdf5.attributes import HIDDEN
from virtualstack.formats.hdf5.datatypes import element_type
from virtualstack.formats.hdf5.structures.datatype_message import Datatype, Padding
from virtualstack.manifests import Fill, Refusal, value_changing

TEXT = frozenset({"String", "URL", "Url"})
"""Types whose values are text."""

PADDINGS: Mapping[str, Padding] = {"null_term": "nullterm", "null_pad": "nullpad", "space_pad": "spacepad"}
"""Paddings of text by their names in DMR++, with their names in HDF5."""

# DAP4 specification, 5.1, "atomic types"; Byte and UByte are other names of UInt8
_NUMBERS = {
    "Byte": "u1",
    "UByte": "u1",
    "UInt8": "u1",
    "Int8": "i1",
    "UInt16": "u2",
    "Int16": "i2",
    "UInt32": "u4",
    "Int32": "i4",
    "UInt64": "u8",
    "Int64": "i8",
    "Float32": "f4",
    "Float64": "f8",
}
_ORDERS = {"LE": "<", "BE": ">", "": "<"}  # BES swaps bytes only for "BE"
_MAX_ELEMENT_BYTES = 1 << 20  # maximum bytes of an element: each variable holds one, as its fill value
_MAX_AXES = 32
_NO_VALUES = frozenset({"Container", "OtherXML", "Opaque"})


def stored_dtype(
    element: Element, byte_order: str, offsets: str | None, enumeration: Callable[[str], Element], /
) -> np.dtype[Any]:
    """Return the dtype of the elements of a variable as they are stored; text is not supported here."""
    if byte_order not in _ORDERS:
        raise BadValueError(f"byteOrder is '{byte_order}', neither 'LE' nor 'BE'")
    order = _ORDERS[byte_order]
    name = element.name
    if name in _NUMBERS:
        return np.dtype(order + _NUMBERS[name])
    if name == "Char":
        return np.dtype("S1")
    if name == "Enum":
        return _enum_dtype(enumeration(element.attributes.get("enum", "")), order)
    if name == "Structure":
        return _structure_dtype(element, order, offsets, enumeration)
    if name in TEXT:
        raise RefusedError("texts in a Structure, whose length the document does not say")
    raise RefusedError(f"the type '{name}', whose length the document does not say")


def text_elements(length: int, pad: str, /) -> tuple[np.dtype[Any], tuple[Codec, ...]]:
    """Return dtype and codecs that remove the padding of text of a fixed length."""
    if not length:
        raise BadValueError("its texts have 0 bytes")
    if length > _MAX_ELEMENT_BYTES:
        raise RefusedError(f"texts of {length} bytes; at most {_MAX_ELEMENT_BYTES} are taken for an element")
    if pad not in PADDINGS:
        raise RefusedError(f"texts with the padding '{pad[:40]}', which is not known")
    return np.dtype(f"S{length}"), element_type(Datatype(kind="string", size=length, padding=PADDINGS[pad])).codecs


def _enum_dtype(definition: Element, order: str) -> np.dtype[Any]:
    base = definition.attributes.get("basetype", "")
    if base not in _NUMBERS or _NUMBERS[base].startswith("f"):
        raise BadValueError(f"its Enumeration has the type '{base}', which is not an integer")
    dtype = np.dtype(order + _NUMBERS[base])
    constants = {x.attributes.get("name"): x.attributes.get("value") for x in definition.named("EnumConst")}
    # h5py's rule for bool: an enum of FALSE = 0 and TRUE = 1 in one byte
    return np.dtype(np.bool_) if dtype.str == "|i1" and constants == {"FALSE": "0", "TRUE": "1"} else dtype


def _structure_dtype(
    element: Element, order: str, offsets: str | None, enumeration: Callable[[str], Element]
) -> np.dtype[Any]:
    members = [x for x in element.children if x.name in _NUMBERS or x.name in {*TEXT, "Char", "Enum", "Structure"}]
    names = [member.attributes.get("name", "") for member in members]
    if any(member.name == "Structure" for member in members):
        raise RefusedError("a Structure in a Structure, for which DMR++ does not say where fields lie")
    if offsets is None:
        raise RefusedError("a Structure without 'structOffset', which says where its fields lie")
    fields = []
    for member in members:
        base = stored_dtype(member, {"<": "LE", ">": "BE"}[order], None, enumeration)
        shape = tuple(read_number(dim.attributes.get("size"), "size of a field") for dim in member.named("Dim"))
        if len(shape) > _MAX_AXES or math.prod(shape) * base.itemsize > _MAX_ELEMENT_BYTES:
            raise RefusedError(f"a Structure with a field of shape {shape[:_MAX_AXES]}")
        fields.append(np.dtype((base, shape)) if shape else base)
    starts = [0, *(read_number(x, "structOffset") for x in offsets.split())]
    if starts[-1] > _MAX_ELEMENT_BYTES:
        raise RefusedError(f"a Structure of {starts[-1]} bytes; at most {_MAX_ELEMENT_BYTES} are taken for an element")
    if len(starts) != len(fields) + 1 or len(set(names)) != len(names) or not all(names):
        raise BadValueError(f"structOffset has {len(starts) - 1} numbers for the fields {names}")
    ends = [start + x.itemsize for start, x in zip(starts, fields, strict=False)]
    if any(end > after for end, after in zip(ends, starts[1:], strict=True)):
        raise BadValueError(f"structOffset is '{offsets}', in which the fields {names} do not follow each other")
    if names == ["r", "i"] and fields[0].kind == "f" and fields[0] == fields[1] and starts[1:] == ends:
        return np.dtype(f"{order}c{starts[-1]}")  # h5py's rule for complex numbers
    return np.dtype({"names": names, "formats": fields, "offsets": starts[:-1], "itemsize": starts[-1]})


# -- attributes -----------------------------------------------------------------------------------------------


def read_attributes(element: Element, path: str, /, *, is_char: bool = False) -> tuple[dict[str, Any], list[Refusal]]:
    """Return the attributes of a variable or group, and notes on attributes that have no counterpart.

    Text becomes `str`, and several texts become a list of them. One number becomes a numpy scalar, and several become
    an array.
    """
    values: dict[str, Any] = {}
    notes: list[Refusal] = []
    for attribute in element.named("Attribute"):
        name, kind = attribute.attributes.get("name", ""), attribute.attributes.get("type", "")
        if name in HIDDEN or not name:
            continue
        texts = [x.attributes.get("value", x.text) for x in attribute.named("Value")]
        try:
            value = _attribute_value(kind, texts)
        except (BadValueError, RefusedError) as error:
            if isinstance(error, BadValueError) and value_changing({name: 0}):
                raise BadValueError(f"the attribute '{name}' {error}") from error
            notes.append(Refusal(path=f"{path}@{name}", reason=f"the attribute {error}", kind="noted"))
            continue
        values[name] = value.encode() if is_char and name == "_FillValue" and isinstance(value, str) else value
    return values, notes


def _attribute_value(kind: str, texts: list[str]) -> Any:
    if kind in _NO_VALUES:
        raise RefusedError(f"is a '{kind}', which has no counterpart")
    if kind in _NUMBERS:
        dtype = np.dtype(_NUMBERS[kind])
        array = _array(texts, dtype)
        return array[0] if array.size == 1 else array
    if kind in TEXT or kind == "Char":
        return texts[0] if len(texts) == 1 else (texts or "")
    raise RefusedError(f"has the type '{kind}', which DAP4 does not have")


def _array(texts: Iterable[str], dtype: np.dtype[Any]) -> Any:
    texts = list(texts)
    try:
        if any("_" in x for x in texts):
            raise ValueError("Python's numbers may have underscores, others have none")
        # old handlers of OPeNDAP write 'nan.' and 'inf.'
        numbers = [float(x.strip().rstrip(".")) if dtype.kind == "f" else int(x) for x in texts]
        with np.errstate(over="raise"):
            return np.array(numbers, dtype)
    except (ValueError, OverflowError, FloatingPointError) as error:
        raise BadValueError(f"has the values {texts[:3]}, which are not all '{dtype}'") from error


# -- fill values ----------------------------------------------------------------------------------------------

# netCDF-C, netcdf.h: NC_FILL_FLOAT and NC_FILL_DOUBLE
_USUAL_FILLS = (9.969209968386869e36,)
_DIGITS = 6


def parse_fill(text: str, dtype: np.dtype[Any], attribute: object, /) -> tuple[Fill, str | None]:
    """Read the fill value of a variable, and return why it may be wrong.

    OPeNDAP's ``get_dmrpp`` writes floats with six digits (its ``get_value_as_string``, a C++ stream), which is too few
    for most numbers. If six digits equal those of ``_FillValue``, of netCDF's default or of the largest number of the
    type, that number is used. Numbers with fewer digits are used unchanged.

    >>> parse_fill("9.96921e+36", np.dtype("f4"), None)[0].value, parse_fill("-9999", np.dtype("f4"), None)[0].value
    (np.float32(9.96921e+36), np.float32(-9999.0))
    >>> parse_fill("-999.999", np.dtype("f8"), -999.99912)[0].value
    np.float64(-999.99912)
    """
    if dtype.kind == "S":
        raw = text.encode()
        if len(raw) > dtype.itemsize:
            raise BadValueError(f"fillValue '{text[:40]}' is longer than its {dtype.itemsize} bytes")
        return Fill(dtype, raw.ljust(dtype.itemsize, b"\0")), None
    if dtype.names is not None:
        return _structure_fill(text, dtype)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        fill, doubt = _structure_fill(text, np.dtype([("r", part), ("i", part)]))
        return Fill(dtype, fill.raw), doubt
    if dtype.kind == "b":
        dtype_read = np.dtype("i1")
        return Fill(dtype, _array([text], dtype_read).astype(dtype).tobytes()), None
    try:
        value = _array([text], dtype)[0]
    except BadValueError as error:
        raise BadValueError(f"fillValue {error}") from error
    if dtype.kind != "f":
        return Fill.from_value(value, dtype), None
    limits = np.finfo(dtype)
    candidates = [attribute, *_USUAL_FILLS, limits.max, limits.min, limits.tiny]
    for candidate in candidates:
        if (
            isinstance(candidate, int | float | np.number)
            and f"{float(candidate):.{_DIGITS}g}" == f"{value:.{_DIGITS}g}"
        ):
            return Fill.from_value(dtype.type(candidate), dtype), None
    mantissa = text.lower().partition("e")[0].strip("+-").replace(".", "").strip("0")
    doubt = f"fillValue '{text}' may be a number of more digits, which get_dmrpp does not write"
    return Fill.from_value(value, dtype), doubt if mantissa.isdigit() and len(mantissa) >= _DIGITS else None


def _structure_fill(text: str, dtype: np.dtype[Any]) -> tuple[Fill, str | None]:
    """Read one number for each field, in the order of fields; a single 0 stands for all fields."""
    cell = np.zeros((), dtype)
    texts = text.split()
    if texts == ["0"] or not texts:
        return Fill(dtype, cell.tobytes()), None
    doubts = []
    for name in dtype.names or ():
        base, shape = dtype[name].subdtype or (dtype[name], ())
        n = math.prod(shape)
        found = [parse_fill(x, base, None) for x in texts[:n]]
        doubts += [doubt for _, doubt in found if doubt]
        if len(found) != n:
            raise BadValueError(f"fillValue '{text[:40]}' has fewer numbers than the fields {dtype.names}")
        cell[name] = np.array([fill.value for fill, _ in found], base).reshape(shape)
        del texts[:n]
    if texts:
        raise BadValueError(f"fillValue '{text[:40]}' has more numbers than the fields {dtype.names}")
    return Fill(dtype, cell.tobytes()), doubts[0] if doubts else None
