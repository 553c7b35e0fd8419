"""Write attributes as JSON values that zarr metadata of either version can hold, and parse JSON of others."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from virtualstack.errors import MalformedFileError, Remedy, WriterError
from virtualstack.manifests import ManifestGroup, unnamed_coordinates

_EXTRA, _ATTRIBUTE_DTYPES = "virtualstack", "attribute_dtypes"
"""Keys in the metadata of an array, and inside its member; readers of zarr do not know and ignore both."""

_NOT_FINITE = "NaN", "Infinity", "-Infinity"


def json_attributes(attributes: Mapping[str, Any], /, *, variable: str) -> dict[str, Any]:
    """Return attributes as values that the ``json`` module writes and reads back.

    NaN and infinities stay floats (``NaN`` in Python's JSON): as text they would not decode as numbers, and as null
    they would vanish. Bytes become text: UTF-8, else Latin-1. JSON has no float32, so a ``scale_factor`` of that type
    comes back as float64 of the same value, unless :func:`attribute_dtypes` is stored too.

    >>> json_attributes({"valid_range": np.array([0, 1], "i2"), "units": b"K"}, variable="t")
    {'valid_range': [0, 1], 'units': 'K'}
    """
    return {str(name): _value(value, f"{variable}.{name}") for name, value in attributes.items()}


def with_coordinates(attributes: dict[str, Any], group: ManifestGroup, /) -> dict[str, Any]:
    """Return attributes of a group that name coordinates which no variable names: not CF, but as xarray does it."""
    named = str(attributes.get("coordinates", "")).split()
    extra = [name for name in unnamed_coordinates(group) if " " not in name and name not in named]
    return {**attributes, "coordinates": " ".join([*named, *extra])} if extra else attributes


def attribute_dtypes(attributes: Mapping[str, Any], dtype: np.dtype[Any] | None = None, /) -> dict[str, str]:
    """Return the dtypes of numbers that JSON would lose: a float32 ``scale_factor`` decodes to float32.

    NaN and infinities may become text. ``_FillValue`` is expected to have the ``dtype`` of the values.

    >>> attribute_dtypes({"scale_factor": np.float32(0.5), "n": 3, "valid_range": np.array([0, 1], "i2")})
    {'scale_factor': '<f4', 'valid_range': '<i2'}
    """
    numbers = {name: np.asarray(x) for name, x in attributes.items() if isinstance(x, np.generic | np.ndarray | float)}
    return {
        name: x.dtype.newbyteorder("<").str
        for name, x in numbers.items()
        if x.dtype.kind in "iuf" and not _is_known(x, dtype if name == "_FillValue" else None)
    }


def _is_known(numbers: np.ndarray[Any, Any], dtype: np.dtype[Any] | None) -> bool:
    if dtype is not None:
        return bool(numbers.dtype == dtype)
    return numbers.dtype in (np.dtype(np.int64), np.dtype(np.float64)) and bool(np.isfinite(numbers).all())


def restore_dtypes(attributes: Mapping[str, Any], dtypes: object, /) -> dict[str, Any]:
    """Return attributes with the dtypes of :func:`attribute_dtypes`; dtypes that are invalid or do not fit are ignored.

    A program that does not know of the dtype may have changed the attribute since.

    >>> restore_dtypes({"scale_factor": 0.5}, {"scale_factor": "<f4"})
    {'scale_factor': np.float32(0.5)}
    >>> restore_dtypes({"scale_factor": 0.1}, {"scale_factor": "<f4"})
    {'scale_factor': 0.1}
    """
    restored = dict(attributes)
    for name, dtype in dtypes.items() if isinstance(dtypes, Mapping) else ():
        value = restored.get(name)
        if not _are_numbers(value) or not re.fullmatch(r"<[iuf][248]|\|[iu]1", str(dtype)):
            continue
        try:
            with np.errstate(over="ignore"):
                array = np.asarray(value, np.dtype(dtype).newbyteorder("="))
        except (ValueError, TypeError, OverflowError):
            continue
        if _same(array.tolist(), _numbers(value)):
            restored[name] = array if array.ndim else array[()]
    return restored


def _are_numbers(value: Any) -> bool:
    """Return whether a value is one number or several, with NaN and infinities as text."""
    if isinstance(value, list):
        return all(map(_are_numbers, value))
    return isinstance(value, int | float | np.number) or (isinstance(value, str) and value in _NOT_FINITE)


def _numbers(value: Any) -> Any:
    """Return a value as numbers of Python."""
    if isinstance(value, list):
        return [_numbers(x) for x in value]
    return value.item() if isinstance(value, np.number) else float(value) if value in _NOT_FINITE else value


def with_dtypes(attributes: Mapping[str, Any], document: Mapping[str, Any], /) -> dict[str, Any]:
    """Return attributes with the dtypes in the metadata of their array or group, if it has any."""
    extra = document.get(_EXTRA)
    return restore_dtypes(attributes, extra.get(_ATTRIBUTE_DTYPES) if isinstance(extra, Mapping) else None)


def keep_unwritable_attributes(attributes: Mapping[str, Any], dtype: np.dtype[Any] | None = None, /) -> dict[str, Any]:
    """Return the member that stores the attribute dtypes in the metadata; empty if JSON holds all attributes.

    The ``dtype`` is the dtype of the values, if there are values: see :func:`attribute_dtypes`. The member has the key
    ``must_understand``, without which readers of zarr v3 reject unknown members.
    """
    dtypes = attribute_dtypes(attributes, dtype)
    return {_EXTRA: {"must_understand": False, _ATTRIBUTE_DTYPES: dtypes}} if dtypes else {}


def restore_cf(attributes: Mapping[str, Any], cf: Mapping[str, Any], /, *, variable: str) -> dict[str, Any]:
    """Return attributes with the attributes of the source that decode values.

    xarray may drop or keep attributes when it joins datasets, but the meaning of the stored numbers does not change.
    """
    restored = dict(attributes)
    for name, value in cf.items():
        if name in attributes and not _same(_value(attributes[name], name), _value(value, name)):
            raise WriterError(
                f"variable '{variable}' has {name} = {attributes[name]!r}, but its stored values have {value!r}; "
                "references cannot change the meaning of stored bytes",
                Remedy("set the attribute back, or remove it"),
                variable=variable,
                feature=name,
            )
        restored[name] = value
    return restored


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, list) and len(left) == 1:
        return _same(left[0], right)
    if isinstance(right, list) and len(right) == 1:
        return _same(left, right[0])
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


def _value(value: Any, where: str) -> Any:
    match value:
        case None | str() | bool() | int() | float():
            return str(value) if isinstance(value, np.str_) else float(value) if isinstance(value, float) else value
        case bytes():
            return _text(value)
        case np.datetime64() | np.timedelta64():  # durations are integers to numpy, too
            return str(value)
        case np.bool_() | np.integer():
            return value.item()
        case np.floating():
            return float(value)  # long doubles too, which are their own item
        case complex() | np.complexfloating():
            return [float(value.real), float(value.imag)]
        case np.ndarray() if not value.dtype.names and value.dtype.kind != "V":
            array = np.asarray(value)  # items of a matrix are matrices, and items of a masked array may be masked
            if array.dtype.kind in "biuf":  # all at once: there may be millions
                return array.astype(np.float64 if array.dtype.kind == "f" else array.dtype).tolist()
            return _value(array[()], where) if not array.ndim else [_value(x, where) for x in array]
        case Mapping():
            return {str(key): _value(x, f"{where}.{key}") for key, x in value.items()}
        case list() | tuple():
            return [_value(x, where) for x in value]
    raise WriterError(
        f"attribute '{where}' is a {type(value).__name__}, which JSON cannot hold: {value!r}. Remove it, or convert "
        "it to text",
        variable=where.rpartition(".")[0],
        feature=f"attribute of type {type(value).__name__}",
    )


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def parse_json(text: str | bytes | bytearray, /, *, where: str) -> Any:
    """Parse JSON as Python does: with NaN."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedFileError(f"'{where}' is not JSON: {error}", Remedy("write it again")) from error
