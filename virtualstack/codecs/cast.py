"""Casting as a codec: numbers are stored in one dtype and read in another, and text in a longer one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec, CodecError
from virtualstack.errors import Remedy

CAST = "numcodecs.astype"
"""Name of the codec in zarr v3 metadata; numcodecs has it, so other readers know it too."""


class UnfitNumberError(CodecError):
    """A float that does not fit into an integer dtype."""

    remedy = Remedy(
        "the cause is the cast, not the source. Read floats without the cast, and replace such values before they are "
        "cast to integers"
    )


def cast_codec(stored: np.dtype[Any], dtype: np.dtype[Any], /) -> Codec:
    """Return the metadata of the codec that reads ``stored``, byte order included, as ``dtype``.

    >>> cast_codec(np.dtype(">f4"), np.dtype("f8")).options()
    {'decode_dtype': '<f8', 'encode_dtype': '>f4'}
    """
    return Codec.from_config(CAST, encode_dtype=stored.str, decode_dtype=dtype.str)


def cast_dtypes(codec: Codec, /) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the stored dtype and the dtype of values; ``None`` unless both are numbers, or text of a fixed length."""
    options = codec.options()
    try:
        stored, dtype = np.dtype(options["encode_dtype"]), np.dtype(options["decode_dtype"])
    except (KeyError, TypeError, ValueError, SyntaxError):
        return None
    are_numbers = stored.kind in "biufc" and dtype.kind in "biufc"
    are_texts = stored.kind == dtype.kind and stored.kind in "SU" and 0 < stored.itemsize <= dtype.itemsize
    return (stored, dtype) if are_numbers or are_texts else None


def cast_numbers(numbers: NDArray[Any], dtype: np.dtype[Any], /) -> NDArray[Any]:
    """Cast as numpy does if that is defined: integers wrap, fractions are cut off, too large floats are infinite.

    >>> cast_numbers(np.array([1.9, -1.9]), np.dtype("i2"))
    array([ 1, -1], dtype=int16)
    """
    with np.errstate(all="ignore"):
        if numbers.dtype.kind == "f" and dtype.kind in "iu":
            limits, whole = np.iinfo(dtype), np.trunc(numbers)
            # limits that float16 cannot hold are infinite, the others are exact: the sum is a power of two
            fits = np.isfinite(whole) & (whole >= float(limits.min)) & (whole < float(limits.max) + 1)
            if not fits.all():
                odd = numbers[~fits].reshape(-1)[0]
                raise UnfitNumberError(f"{odd} cannot be stored as dtype '{dtype}'")
        return numbers.astype(dtype)
