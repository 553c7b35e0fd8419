"""Attribute values and dtypes as JSON and a heap of bytes that restore them exactly, or an error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr

from virtualstack.codecs.codec import check_text
from virtualstack.errors import ManifestError

type Json = Any

# limit for elements that take no bytes, and for the product of the lengths of empty arrays
_MAX_EMPTY_ELEMENTS = 1 << 16
_MAX_NESTED_FIELDS = 64  # depth of nested fields


class UnstorableError(ValueError):
    """A value has no JSON form that restores it exactly."""


class Heap:
    """Bytes that JSON refers to by offset and length."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self._offsets: dict[bytes, int] = {}

    def add(self, data: bytes, /) -> list[int]:
        """Append bytes that the heap does not have yet, and return their offset and length."""
        if data not in self._offsets:
            self._offsets[data] = self.size
            self.parts.append(data)
            self.size += len(data)
        return [self._offsets[data], len(data)]


def to_integer(data: Json, /) -> int:
    """Return JSON data that must be an integer."""
    if type(data) is not int:
        raise ManifestError(f"{data!r} is not an integer")
    return data


def to_count(data: Json, /) -> int:
    """Return JSON data that must be a count, such as a number of bytes: an integer from 0 to less than 2^63."""
    if not 0 <= to_integer(data) < 1 << 63:
        raise ManifestError(f"{data} counts nothing")
    return int(data)


def to_mapping(data: Json, /) -> Mapping[str, Json]:
    """Return JSON data that must be an object."""
    if not isinstance(data, dict):
        raise ManifestError(f"{data!r} is not a JSON object")
    return data


def cut_heap(heap: memoryview, spot: Json, /) -> memoryview:
    """Return the bytes that JSON refers to by offset and length."""
    offset, length = map(to_count, spot)
    if offset + length > len(heap):
        raise ManifestError(f"{length} bytes at {offset} of a heap of {len(heap)}")
    return heap[offset : offset + length]


def from_dtype(dtype: np.dtype[Any], /) -> Json:
    """Return the JSON of a dtype.

    >>> from_dtype(np.dtype(">i2"))
    '>i2'
    """
    if dtype.metadata:  # comparison of dtypes ignores it
        raise UnstorableError(f"dtype {dtype} with metadata")
    return _from_dtype(dtype)


@lru_cache(maxsize=256)
def _from_dtype(dtype: np.dtype[Any]) -> Json:
    if dtype == np.dtypes.StringDType():
        return "string"
    if dtype.hasobject:  # as other dtypes of strings, too
        raise UnstorableError(f"dtype {dtype}")
    try:
        _check_fields(dtype)
    except ValueError as error:  # numpy may not be able to show such a dtype
        raise UnstorableError(f"a dtype of {dtype.itemsize} bytes: {error}") from error
    try:
        descr = json.loads(json.dumps(dtype_to_descr(dtype)))
    except ValueError as error:  # fields that overlap, or not in the order of their bytes
        raise UnstorableError(f"dtype {dtype}") from error
    if to_dtype(descr) != dtype:
        raise UnstorableError(f"dtype {dtype}")
    return descr


def to_dtype(data: Json, /) -> np.dtype[Any]:
    """Return the dtype of JSON."""
    return _simple_dtype(data) if isinstance(data, str) else _checked(data)


@lru_cache(maxsize=256)
def _simple_dtype(name: str) -> np.dtype[Any]:
    return np.dtypes.StringDType() if name == "string" else _checked(name)


def _checked(data: Json) -> np.dtype[Any]:
    dtype: np.dtype[Any] = descr_to_dtype(_as_tuples(data))
    if dtype.hasobject:
        raise ValueError(f"dtype {dtype} has no plain form")
    _check_fields(dtype)
    return dtype


def _check_fields(dtype: np.dtype[Any], depth: int = _MAX_NESTED_FIELDS) -> None:
    """Check the depth and shapes of nested fields; numpy shows and describes them by recursion without a limit."""
    if not depth:
        raise ValueError(f"a dtype with fields in each other more than {_MAX_NESTED_FIELDS} deep")
    for field, *_ in (dtype.fields or {}).values():
        _bounded(field.itemsize, field.shape)
        _check_fields(field.base, depth - 1)


def _as_tuples(data: Json) -> Any:
    """Return the fields of a structured dtype as tuples: (name, dtype) and (name, dtype, shape); JSON has lists."""
    if isinstance(data, str):
        return data
    fields = []
    for field in data:
        name, kind, *shape = field
        name = tuple(name) if isinstance(name, list) else name
        fields.append((name, _as_tuples(kind), *(tuple(n) for n in shape)))
    return fields


def from_value(value: object, heap: Heap, /) -> Json:
    """Return the JSON of an attribute; arrays and bytes go to the heap."""
    if value is None or isinstance(value, bool) or type(value) is str:
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _from_array(value, heap)
    if type(value) is int:
        return value if abs(value) < 2**53 else {"int": _digits(value)}
    if type(value) is float:
        return value if math.isfinite(value) else {"float": value.hex()}
    if type(value) is bytes:
        return {"bytes": heap.add(value)}
    if type(value) is list:
        return [from_value(x, heap) for x in value]
    if type(value) is tuple:
        return {"tuple": [from_value(x, heap) for x in value]}
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {"dict": {key: from_value(x, heap) for key, x in value.items()}}
    raise UnstorableError(f"a {type(value).__name__}")


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError as error:  # Python writes and reads at most 4300 digits
        raise UnstorableError(f"an integer of {value.bit_length()} bits") from error


def _from_array(value: np.ndarray[Any, Any] | np.generic, heap: Heap) -> Json:
    if isinstance(value, np.ma.MaskedArray):
        raise UnstorableError("an array with a mask")
    if isinstance(value, np.bytes_ | np.str_) and value[-1:] in (b"\0", "\0"):
        raise UnstorableError("numpy's text with NUL at its end, which numpy drops")
    kind = "array" if isinstance(value, np.ndarray) else "scalar"
    # the dtype of an empty text scalar has no bytes, but the dtype of its array has some
    dtype = from_dtype(np.asarray(value).dtype)
    if dtype == "string":
        return {"strings": [list(value.shape), np.asarray(value).reshape(-1).tolist()]}
    return {kind: [dtype, list(value.shape), heap.add(value.tobytes())]}


def to_value(data: Json, heap: memoryview, /) -> Any:
    """Return the value of JSON."""
    if isinstance(data, list):
        return [to_value(x, heap) for x in data]
    if not isinstance(data, dict):
        return data
    ((kind, inner),) = data.items()
    match kind:
        case "array" | "scalar":
            dtype, shape, spot = inner
            array = _array(bytearray(cut_heap(heap, spot)), to_dtype(dtype), [to_count(n) for n in shape])
            return array if kind == "array" else array[()]
        case "strings":
            shape, texts = inner
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise ValueError("text that is none")
            return np.array(texts, np.dtypes.StringDType()).reshape(_bounded(len(texts), [to_count(n) for n in shape]))
        case "bytes":
            return bytes(cut_heap(heap, inner))
        case "int" if isinstance(inner, str):
            return int(inner)
        case "float":
            return float.fromhex(inner)
        case "tuple":
            return tuple(to_value(x, heap) for x in inner)
        case "dict":
            return {key: to_value(x, heap) for key, x in to_mapping(inner).items()}
    raise ValueError(f"a value of the kind '{kind}' is unknown")


def _bounded(n: int, shape: Sequence[int]) -> Sequence[int]:
    """Return the shape of an array of ``n`` elements or bytes; a long one without bytes is a `ValueError`."""
    if not n and math.prod(length or 1 for length in shape) > _MAX_EMPTY_ELEMENTS:
        raise ValueError(f"an array of shape {tuple(shape)} that has no bytes")
    return shape


def _array(data: bytearray, dtype: np.dtype[Any], shape: list[int]) -> np.ndarray[Any, Any]:
    _bounded(len(data), shape)
    if dtype.itemsize:
        return check_text(np.frombuffer(data, dtype).reshape(shape))
    return np.zeros(shape if dtype.kind == "V" else (), dtype)  # empty text was written so
