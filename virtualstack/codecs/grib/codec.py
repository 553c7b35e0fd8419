"""The codec ``virtualstack.grib``: a message to the values of its last field, or to the coordinates of its grid.

References of other tools name kerchunk's codec ``grib``, which is decoded here, too. eccodes gets bytes that could
crash it only in a child process.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, run_in_child
from virtualstack.codecs.codec import BytesDecoder, BytesLike, CodecError, raw_bytes, shortened
from virtualstack.codecs.grib.fields import described, is_safe, last_field
from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.errors import UnsupportedFeatureError

GRIB = "virtualstack.grib"
DTYPES: dict[str, np.dtype[Any]] = {
    "values": np.dtype(np.float32),
    "latitudes": np.dtype(np.float64),
    "longitudes": np.dtype(np.float64),
}
"""Dtype of the decoded values of each key."""

type GribDecoder = Callable[[BytesLike], NDArray[Any]]

_LIBRARY = "virtualstack.codecs.grib.child"


def grib_decoder(options: Mapping[str, Any], shape: tuple[int, ...] | None = None, /) -> GribDecoder:
    """Make the decoder of messages of one grid."""
    key, row = options.get("key", "values"), options.get("row", 1)
    is_key = isinstance(key, str) and key in DTYPES  # in a damaged store, the key may be a list
    is_known = not options.keys() - {"grid", "key", "plain", "row"} and is_key and type(row) is int and row > 0
    if not is_known or (shape is not None and math.prod(shape) % row):
        raise UnsupportedFeatureError(
            f"codec '{GRIB}' does not take the configuration {shortened(dict(options))}", feature=GRIB
        )
    import_eccodes()
    size = None if shape is None else math.prod(shape)

    def decode(raw: BytesLike, /) -> NDArray[Any]:
        message = bytes(raw)
        values: NDArray[Any] | None
        if key != "values":
            values = _call("coordinates", described(message), key, size)
        else:
            message = last_field(message)
            values = _call("values", message, size, row, is_here=is_safe(message))
        if values is None:
            raise CodecError(f"eccodes has no {key} of the grid of the GRIB message")
        return values if shape is None else values.reshape(shape)

    return decode


def kerchunk_decoder(options: Mapping[str, Any], /) -> BytesDecoder:
    """Make the decoder of whole messages as kerchunk's codec ``grib`` decodes them."""
    import_eccodes()
    var = options.get("var")
    key = f"{var}s" if var in ("latitude", "longitude") else "values"
    dtype = np.dtype(options.get("dtype") or DTYPES[key])
    if dtype.kind not in "biufc":
        raise ValueError(f"dtype '{dtype}' is not that of a number")

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        message = bytes(raw)
        field = last_field(message)  # differs from the message if there are several fields: kerchunk takes the first
        is_here = key == "values" and field == message and is_safe(message)
        return raw_bytes(_call("kerchunk_values", message, key, dtype, size, limit, is_here=is_here))

    return decode


def _call(function: str, /, *arguments: Any, is_here: bool = False) -> Any:
    """Call a function of the module that calls eccodes, in this process or in a child process."""
    try:
        if is_here:
            return getattr(importlib.import_module(_LIBRARY), function)(*arguments)
        return run_in_child(f"{_LIBRARY}:{function}", *arguments)
    except LibraryError as error:
        raise CodecError(f"eccodes cannot decode the GRIB message: {error}") from error
    except ChildDiedError as error:
        raise CodecError(f"the GRIB message is damaged: eccodes {error}") from error
