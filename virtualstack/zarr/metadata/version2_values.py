"""Dtypes and fill values as zarr v2 metadata writes them."""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any

import numpy as np

from virtualstack.codecs.metadata import Codec
from virtualstack.errors import MalformedFileError, ManifestError, UnsupportedFeatureError, WriterError
from virtualstack.manifests import Fill
from virtualstack.zarr.metadata.array import check_itemsize

__all__ = ["dtype_from_zarr2", "dtype_to_zarr2", "fill_from_zarr2", "fill_to_zarr2"]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ITEMSIZES = {"f": (2, 4, 8), "c": (8, 16)}


def dtype_to_zarr2(dtype: np.dtype[Any], /, *, variable: str) -> str | list[Any]:
    """Give a dtype as zarr v2 writes it; a structured one as a list of fields.

    >>> dtype_to_zarr2(np.dtype([("a", ">f4"), ("b", "S2")]), variable="t")
    [['a', '>f4'], ['b', '|S2']]

    Raises
    ------
    WriterError
        zarr v2 metadata has no form for it.
    """
    if dtype.kind == "T":
        return "|O"
    if dtype.names is not None:
        if dtype != np.dtype([(name, dtype[name]) for name in dtype.names]):
            raise _no_dtype(dtype, variable, "a structured dtype with gaps between its fields, or with titles")
        return [[name, dtype_to_zarr2(dtype[name], variable=variable)] for name in dtype.names]
    if dtype.subdtype is not None:
        raise _no_dtype(dtype, variable, "a structured dtype with an array in a field")
    if dtype.kind == "O" or dtype.itemsize not in _ITEMSIZES.get(dtype.kind, (dtype.itemsize,)):
        raise _no_dtype(dtype, variable, "a dtype")
    return dtype.str


def _no_dtype(dtype: np.dtype[Any], variable: str, what: str) -> WriterError:
    return WriterError(
        f"variable '{variable}' has {what} that zarr v2 metadata cannot express: {dtype}; leave the variable out, or "
        "load its values with loadable_variables=[...]",
        variable=variable,
        feature=str(dtype),
    )


def dtype_from_zarr2(value: object, codecs: tuple[Codec, ...], /, *, where: str) -> np.dtype[Any]:
    """Read ``dtype``; objects are strings where the codecs say so.

    Raises
    ------
    MalformedFileError
        It is no dtype.
    UnsupportedFeatureError
        Objects other than strings.
    """
    try:
        dtype: np.dtype[Any] = np.dtype(_fields(value) if isinstance(value, list) else value)  # type: ignore[call-overload]
    except (TypeError, ValueError, SyntaxError) as error:
        raise MalformedFileError(f"'{where}' has dtype {value!r}: {error}; write the references anew") from error
    if value is None:
        raise MalformedFileError(f"'{where}' has no dtype; write the references anew")
    if not dtype.hasobject:
        check_itemsize(dtype, where=where)
        return dtype
    if dtype.kind == "O" and any(codec.name == "vlen-utf8" for codec in codecs[:1]):
        strings: np.dtype[Any] = np.dtypes.StringDType()
        return strings
    first = codecs[0].name if codecs else "no codec"
    raise UnsupportedFeatureError(
        f"'{where}' holds Python objects made by '{first}'; only 'vlen-utf8' strings have a form here. "
        "Load it from its source with loadable_variables=[...]",
        variable=where,
        feature=first,
    )


def _fields(value: list[Any]) -> list[tuple[Any, ...]]:
    fields: list[tuple[Any, ...]] = []
    for field in value:
        if not isinstance(field, list) or len(field) not in (2, 3):
            raise ValueError(f"field {field!r} is not [name, dtype] or [name, dtype, shape]")
        name, dtype, *shape = field
        fields.append((name, _fields(dtype) if isinstance(dtype, list) else dtype, *map(_shape, shape)))
    return fields


def _shape(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def fill_to_zarr2(fill: Fill, stored: np.dtype[Any], /) -> Any:
    """Give a fill value as JSON; structured values as base64 of their bytes in the ``stored`` dtype.

    >>> fill_to_zarr2(Fill.of(np.nan, "f4"), np.dtype(">f4"))
    'NaN'
    """
    value = fill.value
    match fill.dtype.kind:
        case "T" | "U":
            return str(value)
        case "S":
            return base64.b64encode(bytes(value)).decode()
        case "V":
            raw = np.frombuffer(fill.raw, fill.dtype).astype(stored).tobytes() if fill.dtype.names else fill.raw
            return base64.b64encode(raw).decode()
        case "f":
            return _float(float(value))
        case "c":
            return [_float(float(value.real)), _float(float(value.imag))]
        case "M" | "m":
            return int(value.view("i8"))
    return value.item()


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def fill_from_zarr2(value: Any, stored: np.dtype[Any], /, *, where: str) -> Fill:
    """Read ``fill_value``; null is zero, and NaT of times, as zarr reads absent chunks then.

    Raises
    ------
    MalformedFileError
        It does not fit the dtype.
    """
    try:
        with np.errstate(over="ignore"):
            return _fill(value, stored)
    except (ManifestError, ValueError, TypeError, OverflowError, binascii.Error) as error:
        raise MalformedFileError(
            f"'{where}' has fill_value {value!r}, which does not fit dtype '{stored}': {error}; write the references "
            "anew, or set fill_value to null"
        ) from error


def _fill(value: Any, stored: np.dtype[Any]) -> Fill:
    if value is None and stored.kind in "Mm":
        value = "NaT"
    if value is None or (value == 0 and stored.kind in "SUTV" and not isinstance(value, str)):
        return Fill.zero(stored)
    match stored.kind:
        case "T" | "U":
            if not isinstance(value, str):
                raise TypeError("text is asked for")
            return Fill.of(value, stored)
        case "S":
            return Fill.of(
                np.frombuffer(base64.b64decode(value, validate=True).ljust(stored.itemsize, b"\0"), stored)[0], stored
            )
        case "V":
            raw = base64.b64decode(value, validate=True)
            if len(raw) != stored.itemsize:
                raise ValueError(f"{len(raw)} bytes")
            if stored.names is None:
                return Fill(stored, raw)
            native = Fill.zero(stored).dtype
            return Fill(native, np.frombuffer(raw, stored).astype(native).tobytes())
        case "c":
            if isinstance(value, list):
                real, imag = (_number(part) for part in value)
                return Fill.of(complex(real, imag), stored)
            return Fill.of(_number(value), stored)
        case "f":
            return Fill.of(_number(value), stored)
        case "M" | "m":
            return Fill.of(
                np.array(
                    "NaT" if value == "NaT" else int(value), "i8" if value != "NaT" else stored.newbyteorder("=")
                ).view(stored.newbyteorder("="))[()],
                stored,
            )
    number = _number(value)
    if number != int(number):
        raise ValueError("a whole number is asked for")
    return Fill.of(int(number) if stored.kind != "b" else bool(number), stored)


def _number(value: Any) -> float | int:
    if isinstance(value, str):
        return _NON_FINITE[value] if value in _NON_FINITE else float(value)
    if isinstance(value, (bool, int, float)):
        return value
    raise TypeError("a number is asked for")
