"""One field of many records, as an array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_column"]


def read_column(
    raw: NDArray[np.uint8], at: int, width: int, shape: tuple[int, ...], strides: tuple[int, ...], /
) -> NDArray[np.int64]:
    """Read unsigned little-endian numbers of any width up to 8 bytes; those of 2^63 and more come out negative.

    Parameters
    ----------
    raw
        C-contiguous; where `width` is none of 1, 2, 4, 8, with at least 8 bytes from the start of each number.
    at
        Of the first number, in bytes.
    width
        Bytes of a number.
    shape, strides
        How many numbers there are along each axis, and bytes from one to the next.

    Returns
    -------
    NDArray[np.int64]
        Shape ``(n,)``, in C order, contiguous.

    Examples
    --------
    >>> raw = np.arange(16, dtype=np.uint8)
    >>> read_column(raw, 1, 1, (2, 2), (8, 3))
    array([ 1,  4,  9, 12])
    >>> [hex(n) for n in read_column(raw, 0, 3, (2,), (8,))]
    ['0x20100', '0xa0908']
    """
    if width in (1, 2, 4, 8):
        kind = "<i8" if width == 8 else f"<u{width}"
        return np.array(np.ndarray(shape, kind, raw, at, strides), np.int64).reshape(-1)
    eight = np.ndarray(shape, "<u8", raw, at, strides)
    return (eight & np.uint64((1 << 8 * width) - 1)).reshape(-1).view(np.int64)
