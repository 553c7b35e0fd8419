"""What undoes one codec that makes bytes of bytes, and what such decoders share."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bytes", "BytesDecoder", "CodecError", "check_size", "check_text", "raw_bytes"]

type Bytes = bytes | memoryview | NDArray[np.uint8]


class CodecError(ValueError):
    """Stored bytes do not decode; the caller knows which chunk they are.

    Attributes
    ----------
    remedy
        What to do about it, where the bytes are not to blame; else ``None``.
    """

    remedy: str | None = None


class BytesDecoder(Protocol):
    """Undoes one codec.

    ``size`` is the number of bytes that must come out, or ``None`` where it is not known; no more than ``limit``
    may come out.
    """

    def __call__(self, raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        """Give the decoded bytes."""


def raw_bytes(data: Any, /) -> NDArray[np.uint8]:
    """View any buffer as bytes, without a copy."""
    if isinstance(data, np.ndarray):
        return np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def check_size(what: str, found: int, size: int | None, limit: int, /) -> None:
    """Compare the size that stored bytes claim to decode to with what is expected.

    Raises
    ------
    CodecError
        It is more than ``limit`` bytes, or not the known ``size``.
    """
    if found > limit:
        raise CodecError(f"{what} says that it holds {found} bytes; {limit} are expected at most")
    if size is not None and found != size:
        raise CodecError(f"{what} says that it holds {found} bytes; {size} are expected")


_LAST_CHARACTER = 0x10FFFF


def check_text(values: NDArray[Any], /) -> NDArray[Any]:
    """Give values back that are seen in stored bytes, if their text is text: numpy crashes where it is not.

    Raises
    ------
    CodecError
        A number in text of a fixed length is no character of Unicode.
    """
    dtype = values.dtype
    if dtype.names:
        for name in dtype.names:
            check_text(values[name])
    elif dtype.kind == "U" and dtype.itemsize and values.size:
        numbers = np.ascontiguousarray(values).reshape(-1).view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if (largest := int(numbers.max())) > _LAST_CHARACTER:
            raise CodecError(f"text of dtype '{dtype}' holds the number {largest:#x}, which is no character")
    return values
