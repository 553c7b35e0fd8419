"""One codec of a chain, ready to decode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np


class Spec(NamedTuple):
    """Dtype, byte order included, and shape of an array between two codecs."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Step(NamedTuple):
    """One codec, ready to decode.

    Parameters
    ----------
    kind
        Kind of the codec, named for encoding: array to array, array to bytes, or bytes to bytes.
    decode
        Function from an array, or its bytes, to an array; from bytes to bytes it is a `BytesDecoder`.
    encoded
        Specification of the array after encoding. Only array-to-array codecs change it.
    """

    kind: Literal["array-array", "array-bytes", "bytes-bytes"]
    decode: Callable[..., Any]
    encoded: Spec
