"""Kerchunk's codec ``grib``: the same values, decoded where a damaged message harms nobody."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, run_in_child
from virtualstack.codecs.codec import Bytes, BytesDecoder, CodecError, raw_bytes
from virtualstack.codecs.grib.fields import is_safe, last_field
from virtualstack.codecs.grib.library import import_eccodes

__all__ = ["message_decoder"]

_LIBRARY = "virtualstack.codecs.grib.child"


def message_decoder(options: Mapping[str, Any], /) -> BytesDecoder:
    """Make the decoder of whole messages, as kerchunk's codec reads them.

    Parameters
    ----------
    options
        ``var``: "latitude" or "longitude" for coordinates of all points; anything else means the values.
        ``dtype``: what the numbers become; float32 for values and float64 for coordinates without it.
    """
    import_eccodes()
    var = options.get("var")
    key = f"{var}s" if var in ("latitude", "longitude") else "values"
    dtype = np.dtype(options.get("dtype") or ("f4" if key == "values" else "f8"))

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        message = bytes(raw)
        arguments = message, key, dtype, size, limit
        field = last_field(message)  # it is another message where there are several fields: kerchunk takes the first
        try:
            if key == "values" and field == message and is_safe(message):
                return raw_bytes(importlib.import_module(_LIBRARY).kerchunk_values(*arguments))
            return raw_bytes(run_in_child(f"{_LIBRARY}:kerchunk_values", *arguments))
        except LibraryError as error:
            raise CodecError(f"eccodes cannot decode the GRIB message: {error}") from error
        except ChildDiedError as error:
            raise CodecError(f"the GRIB message is damaged: eccodes, which was to decode it, {error}") from error

    return decode
