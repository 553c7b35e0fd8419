"""Attributes as JSON that keeps their dtypes: a scale of float32 decodes to other numbers than one of float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["attributes_from_json", "attributes_to_json"]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PYTHON = "python"


def attributes_to_json(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Write text as it is, and numbers with their dtype.

    >>> attributes_to_json({"units": "K", "_FillValue": np.int16(-1), "missing_value": np.array([1.5, np.nan], "f4")})
    {'units': 'K', '_FillValue': {'int16': -1}, 'missing_value': {'float32': [1.5, 'NaN']}}

    Raises
    ------
    ValueError
        A value is neither text, nor a number, nor an array of numbers.
    """
    return {name: _to_json(name, value) for name, value in attributes.items()}


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return {_PYTHON: _finite(value)}
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8 or array.ndim > 1:
        raise ValueError(f"attribute '{name}' is {value!r}; text, numbers or a row of numbers are asked for")
    if isinstance(value, list):
        return {_PYTHON: [_finite(x) for x in array.tolist()]}
    numbers = array.tolist()
    return {array.dtype.name: [_finite(x) for x in numbers] if array.ndim else _finite(numbers)}


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def attributes_from_json(data: Mapping[str, Any], /) -> dict[str, Any]:
    """Read what :func:`attributes_to_json` has written.

    >>> attributes_from_json({"units": "K", "_FillValue": {"int16": -1}})
    {'units': 'K', '_FillValue': np.int16(-1)}

    Raises
    ------
    ValueError
        It is damaged.
    """
    return {name: _from_json(name, value) for name, value in data.items()}


def _from_json(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    try:
        ((kind, coded),) = value.items()
        numbers = [_number(x) for x in coded] if isinstance(coded, list) else _number(coded)
        if kind == _PYTHON:
            return numbers
        dtype = np.dtype(kind)
        if dtype.kind not in "iuf":
            raise ValueError(f"dtype '{dtype}' is none of numbers")
        array = np.array(numbers, dtype)
        return array if array.ndim else array[()]
    except (AttributeError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"attribute '{name}' stands as {value!r} in the metadata of a codec: {error}") from error


def _number(value: Any) -> Any:
    if isinstance(value, str):
        return _NON_FINITE[value]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no number")
    return value
