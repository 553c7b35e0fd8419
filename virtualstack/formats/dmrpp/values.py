"""Values that stand in a document."""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.metadata import Codec
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.formats.dmrpp.dap import read_number
from virtualstack.formats.dmrpp.document import Element
from virtualstack.formats.dmrpp.faults import BadValueError, RefusedError

__all__ = ["compact_text", "compact_values", "missing_values", "vlsa_texts"]

_TEXT = np.dtypes.StringDType()
_MAX_COMPACT = 1 << 16  # bytes of a compact dataset of HDF5, which any document may hold


def compact_values(
    element: Element, dtype: np.dtype[Any], shape: tuple[int, ...], codecs: tuple[Codec, ...] = (), /
) -> NDArray[Any]:
    """Read ``dmrpp:compact``: base64 of values of the machine that wrote it, which is little-endian.

    Parameters
    ----------
    element
        The text is that of the document.
    dtype, shape
        Of the values.
    codecs
        Elementwise.

    Raises
    ------
    BadValueError
        It is no base64, or of another length than the values.
    """
    return _values(_decoded(element), dtype, shape, codecs)


def compact_text(element: Element, /) -> NDArray[Any]:
    """Read ``dmrpp:compact`` of one text.

    Raises
    ------
    BadValueError
        It is no base64, or no UTF-8.
    """
    return np.array(_text(_decoded(element).rstrip(b"\0")), _TEXT)


def missing_values(element: Element, dtype: np.dtype[Any], shape: tuple[int, ...], limit: int, /) -> NDArray[Any]:
    """Read ``dmrpp:missingdata``: base64 of zlib of values, or of one value as it is.

    Raises
    ------
    BadValueError
        It is no base64 or zlib, or of another length than the values.
    RefusedError
        The values are more than the limit.
    """
    length = math.prod(shape) * dtype.itemsize
    _check_limit(length, limit)
    raw = _decoded(element)
    return _values(raw if math.prod(shape) == 1 else _inflated(raw, length), dtype, shape)


def vlsa_texts(element: Element, shape: tuple[int, ...], limit: int, /) -> NDArray[Any]:
    """Read ``dmrpp:vlsa``: an element ``v`` a text, with a count ``c``, compressed where it has a size ``s``.

    Raises
    ------
    BadValueError
        It holds more or less texts than the array.
    RefusedError
        They are more than the limit.
    """
    texts: list[str] = []
    size = math.prod(shape)
    n_texts = n_bytes = 0
    values = []
    for value in element.named("v", "dmrpp:v"):
        count = read_number(value.attributes.get("c", "1"), "count of a text")
        is_packed = "s" in value.attributes
        length = read_number(value.attributes["s"], "size of a text") if is_packed else len(value.text.encode())
        n_bytes += count * (length + 4)
        values.append((value, count, length if is_packed else None))
    _check_limit(n_bytes, limit)
    for value, count, packed_length in values:
        text = value.text if packed_length is None else _text(_inflated(_decoded(value), packed_length))
        n_texts += count
        if n_texts <= size:
            texts += [text] * count
    if n_texts != size:
        raise BadValueError(f"its dmrpp:vlsa holds {n_texts} texts, its shape {shape}")
    return np.array(texts, _TEXT).reshape(shape)


def _values(raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], codecs: tuple[Codec, ...] = ()) -> NDArray[Any]:
    try:
        return decode(raw, codecs, dtype.newbyteorder("<"), shape)
    except CodecError as error:
        raise BadValueError(f"its values in the document are not those of its shape {shape}: {error}") from error


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadValueError(f"its text is no UTF-8: {error}") from error


def _decoded(element: Element) -> bytes:
    try:
        return base64.b64decode("".join(element.text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadValueError(f"its {element.name} is no base64: {error}") from error


def _inflated(raw: bytes, length: int) -> bytes:
    try:
        data = zlib.decompressobj().decompress(raw, length + 1)
    except zlib.error as error:
        raise BadValueError(f"its values in the document are no zlib: {error}") from error
    if len(data) != length:
        raise BadValueError(f"its values in the document are not {length} bytes")
    return data


def _check_limit(length: int, limit: int) -> None:
    if length > max(limit, _MAX_COMPACT):
        what = f"its {length} bytes in the document are more than the inline limit of {limit}"
        raise RefusedError(what, inline_size=length)
