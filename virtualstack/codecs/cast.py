"""Casting as a codec: numbers are stored in one dtype and read in another."""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualstack.codecs.metadata import Codec

__all__ = ["CAST", "cast_codec", "cast_dtypes"]

CAST = "numcodecs.astype"
"""Name of the codec in zarr v3 metadata; numcodecs has it, so other readers know it too."""


def cast_codec(stored: np.dtype[Any], dtype: np.dtype[Any], /) -> Codec:
    """Give the metadata of the codec that reads ``stored``, byte order included, as ``dtype``.

    >>> cast_codec(np.dtype(">f4"), np.dtype("f8")).options()
    {'decode_dtype': '<f8', 'encode_dtype': '>f4'}
    """
    return Codec.of(CAST, encode_dtype=stored.str, decode_dtype=dtype.str)


def cast_dtypes(codec: Codec, /) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Give the stored dtype and that of values; ``None`` where they are no numbers of a fixed size."""
    options = codec.options()
    try:
        stored, dtype = np.dtype(options["encode_dtype"]), np.dtype(options["decode_dtype"])
    except (KeyError, TypeError, ValueError):
        return None
    return (stored, dtype) if stored.kind in "biufc" and dtype.kind in "biufc" else None
