"""Attribute values and dtypes as JSON and a heap of bytes, exactly; what has no such form is refused."""

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

__all__ = [
    "Heap",
    "UnstorableError",
    "cut_heap",
    "from_dtype",
    "from_value",
    "to_count",
    "to_dtype",
    "to_integer",
    "to_mapping",
    "to_value",
]

type Json = Any

_MAX_EMPTY_ELEMENTS = 1 << 16  # elements that take no bytes, and lists of none
_MAX_NESTED_FIELDS = 64  # fields in each other


class UnstorableError(ValueError):
    """A value has no plain form that gives it back exactly."""


class Heap:
    """Bytes that JSON points into, by offset and length."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self._offsets: dict[bytes, int] = {}

    def add(self, data: bytes, /) -> list[int]:
        """Append bytes that are not there yet, and give what points to them."""
        if data not in self._offsets:
            self._offsets[data] = self.size
            self.parts.append(data)
            self.size += len(data)
        return [self._offsets[data], len(data)]


def to_integer(data: Json, /) -> int:
    """Give an integer that is one.

    Raises
    ------
    ManifestError
        It is something else.
    """
    if type(data) is not int:
        raise ManifestError(f"{data!r} is no integer")
    return data


def to_count(data: Json, /) -> int:
    """Give a number of bytes, elements or the like, which is from 0 on and less than 2^63.

    Raises
    ------
    ManifestError
        It is something else.
    """
    if not 0 <= to_integer(data) < 1 << 63:
        raise ManifestError(f"{data} counts nothing")
    return int(data)


def to_mapping(data: Json, /) -> Mapping[str, Json]:
    """Return a JSON object.

    Raises
    ------
    ManifestError
        It is something else.
    """
    if not isinstance(data, dict):
        raise ManifestError(f"{data!r} is no JSON object")
    return data


def cut_heap(heap: memoryview, spot: Json, /) -> memoryview:
    """Give the bytes that JSON points to by offset and length.

    Raises
    ------
    ManifestError
        The heap has none there.
    """
    offset, length = map(to_count, spot)
    if offset + length > len(heap):
        raise ManifestError(f"{length} bytes at {offset} of a heap of {len(heap)}")
    return heap[offset : offset + length]


def from_dtype(dtype: np.dtype[Any], /) -> Json:
    """Give the JSON of a dtype.

    >>> from_dtype(np.dtype(">i2"))
    '>i2'

    Raises
    ------
    UnstorableError
        It would not come back as it is: objects, metadata, or fields that are not in the order of their bytes.
    """
    if dtype.metadata:  # which comparing does not look at
        raise UnstorableError(f"dtype {dtype} with metadata")
    return _from_dtype(dtype)


@lru_cache(maxsize=256)
def _from_dtype(dtype: np.dtype[Any]) -> Json:
    if dtype == np.dtypes.StringDType():
        return "string"
    if dtype.hasobject or dtype.kind == "T":
        raise UnstorableError(f"dtype {dtype}")
    try:
        _check_fields(dtype)
    except ValueError as error:  # numpy may show no more of it
        raise UnstorableError(f"a dtype of {dtype.itemsize} bytes: {error}") from error
    try:
        descr = json.loads(json.dumps(dtype_to_descr(dtype)))
    except ValueError as error:  # fields that overlap, or not in the order of their bytes
        raise UnstorableError(f"dtype {dtype}") from error
    if to_dtype(descr) != dtype:
        raise UnstorableError(f"dtype {dtype}")
    return descr


def to_dtype(data: Json, /) -> np.dtype[Any]:
    """Give the dtype back.

    Raises
    ------
    ValueError, TypeError
        It is none, or one of objects.
    """
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
    """Check what numpy does not: it shows, and describes, fields in each other as deep as Python calls go."""
    if not depth:
        raise ValueError(f"a dtype with fields in each other more than {_MAX_NESTED_FIELDS} deep")
    for field, *_ in (dtype.fields or {}).values():
        _bounded(field.itemsize, field.shape)
        _check_fields(field.base, depth - 1)


def _as_tuples(data: Json) -> Any:
    """Undo what JSON makes of the fields of a structured dtype: (name, dtype) and (name, dtype, shape)."""
    if isinstance(data, str):
        return data
    fields = []
    for field in data:
        name, kind, *shape = field
        name = tuple(name) if isinstance(name, list) else name
        fields.append((name, _as_tuples(kind), *(tuple(n) for n in shape)))
    return fields


def from_value(value: object, heap: Heap, /) -> Json:
    """Give the JSON of an attribute; arrays and bytes go to the heap.

    Raises
    ------
    UnstorableError
        It is of a kind that has no exact plain form.
    """
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
    except ValueError as error:  # Python writes, and reads, no more than 4300 digits
        raise UnstorableError(f"an integer of {value.bit_length()} bits") from error


def _from_array(value: np.ndarray[Any, Any] | np.generic, heap: Heap) -> Json:
    if isinstance(value, np.ma.MaskedArray):
        raise UnstorableError("an array with a mask")
    if isinstance(value, np.bytes_ | np.str_) and value[-1:] in (b"\0", "\0"):
        raise UnstorableError("numpy's text with NUL at its end, which numpy drops")
    kind = "array" if isinstance(value, np.ndarray) else "scalar"
    dtype = from_dtype(np.asarray(value).dtype)  # an empty scalar says that its text has no bytes, and then has some
    if dtype == "string":
        return {"strings": [list(value.shape), np.asarray(value).reshape(-1).tolist()]}
    return {kind: [dtype, list(value.shape), heap.add(value.tobytes())]}


def to_value(data: Json, heap: memoryview, /) -> Any:
    """Give the value back.

    Raises
    ------
    ValueError, TypeError, KeyError
        The JSON is none of ours.
    """
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
    """Give the shape of an array of ``n`` elements or bytes; where these are none, any shape costs its writer nothing.

    Raises
    ------
    ValueError
        Lists of it would take more memory than its bytes let expect.
    """
    if not n and math.prod(length or 1 for length in shape) > _MAX_EMPTY_ELEMENTS:
        raise ValueError(f"an array of shape {tuple(shape)} that has no bytes")
    return shape


def _array(data: bytearray, dtype: np.dtype[Any], shape: list[int]) -> np.ndarray[Any, Any]:
    _bounded(len(data), shape)
    if dtype.itemsize:
        return check_text(np.frombuffer(data, dtype).reshape(shape))
    return np.zeros(shape if dtype.kind == "V" else (), dtype)  # empty text was written so
