"""The filter shuffle (2), where what it shuffled need not be whole elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from virtualstack.codecs.codec import BytesDecoder, BytesLike, raw_bytes

__all__ = ["SHUFFLE", "shuffle"]

SHUFFLE = "virtualstack.shuffle"
"""Behind filters that give any number of bytes; numcodecs' shuffle refuses what is left over."""


def shuffle(options: Mapping[str, Any], /) -> BytesDecoder:
    """Give the decoder; ``elementsize`` in bytes."""
    width = int(options.get("elementsize", 4))

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        source = raw_bytes(raw)
        n = source.size // width if width > 1 else 0
        if n < 2:
            return source
        # HDF5 leaves what does not fill an element as it is, at the end.
        out = np.empty_like(source)
        elements, planes = out[: n * width].reshape(n, width), source[: n * width].reshape(width, n)
        for i in range(width):
            elements[:, i] = planes[i]
        out[n * width :] = source[n * width :]
        return out

    return decode
