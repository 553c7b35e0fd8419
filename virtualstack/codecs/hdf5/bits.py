"""Numbers of any number of bits, packed one behind the other, most significant bit first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PADDING", "gather", "unpack"]

PADDING = 9
"""Bytes behind the packed ones that may be read, and change nothing."""
_BLOCK = 1 << 15
"""Numbers unpacked together, so that what is written in several passes stays in the cache."""


def unpack(
    data: NDArray[np.uint8], out: NDArray[Any], /, *, first: int, stride: int, width: int, shift: int = 0
) -> None:
    """Write packed numbers into an array.

    Number ``i`` begins ``first + i * stride`` bits from the start. Bits repeat their places in bytes after 8 numbers
    at most, so 8 strided reads give all of them.

    Parameters
    ----------
    data
        Packed bytes, and `PADDING` more.
    out
        One axis of unsigned integers, any stride and byte order.
    first, stride
        In bits.
    width
        Bits of a number, 1 to 64.
    shift
        Bits to shift a number to the left; it still fits.
    """
    period = 8 // math.gcd(stride, 8)
    block = out.size if stride % 8 == 0 else _BLOCK
    for start in range(0, out.size, max(block, 1)):
        part = out[start : start + block]
        for i in range(min(period, part.size)):
            target = part[i::period]
            at, skip = divmod(first + (start + i) * stride, 8)
            _write(data, target, at=at, step=stride * period // 8, skip=skip, width=width, shift=shift)


def _write(
    data: NDArray[np.uint8], target: NDArray[Any], *, at: int, step: int, skip: int, width: int, shift: int
) -> None:
    """Write numbers that begin at bit ``skip`` of a byte, ``step`` bytes from one to the next."""
    n_bytes = next(n for n in (1, 2, 4, 8, 9) if skip + width <= 8 * n)
    read = min(n_bytes, 8)
    view: NDArray[Any] = np.ndarray(target.shape, f">u{read}", data, at, (step,))
    if not shift and not skip and width == 8 * read:
        target[...] = view
        return
    numbers = view.astype(f"u{max(read, target.itemsize) if shift else read}")
    if n_bytes == 9:
        rest = skip + width - 64
        numbers = numbers << skip >> (64 - width)
        numbers |= np.ndarray(target.shape, np.uint8, data, at + 8, (step,)) >> (8 - rest)
    else:
        numbers >>= 8 * read - skip - width
        if skip:
            numbers &= (1 << width) - 1
    if shift:
        numbers <<= shift
    target[...] = numbers


def gather(data: NDArray[np.uint8], bits: NDArray[np.int64], /, *, width: int) -> NDArray[np.uint64]:
    """Give packed numbers at any places.

    Parameters
    ----------
    data
        Packed bytes, and `PADDING` more.
    bits
        Where numbers begin, in bits from the start.
    width
        Bits of a number, 1 to 64.
    """
    at, skip = bits >> 3, (bits & 7).astype(np.uint64)
    words: NDArray[Any] = np.ndarray((data.size - 8,), ">u8", data, 0, (1,))
    numbers: NDArray[np.uint64] = words[at].astype(np.uint64)
    numbers <<= skip
    if width > 57:
        numbers |= data[at + 8].astype(np.uint64) >> (8 - skip)
    numbers >>= 64 - width
    return numbers
