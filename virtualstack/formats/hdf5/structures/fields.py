"""Fields of structures: numbers, texts and checksums, of one structure or of many that were read at once."""

from __future__ import annotations

import numpy as np
from numcodecs.jenkins import jenkins_lookup3
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.requests import StructureError

__all__ = ["check", "check_signature", "decode_text", "read_column", "unsigned", "verified", "verify_blocks"]


def check(is_true: bool, what: str, /) -> None:
    """Raise `StructureError` unless a rule of the format holds; ``what`` is half a sentence on what is wrong."""
    if not is_true:
        raise StructureError(what)


def unsigned(body: bytes, at: int, width: int, /) -> int:
    """Read a little-endian number of ``width`` bytes; `StructureError` where the bytes end before it does."""
    if at + width > len(body):
        raise StructureError("a structure ends before its fields do")
    return int.from_bytes(body[at : at + width], "little")


def check_signature(body: bytes, signature: bytes, version: int, /) -> None:
    """Check the four letters that a structure begins with, and the version behind them."""
    if body[:4] != signature:
        raise StructureError(f"there is no '{signature.decode()}' where one should be")
    if body[4] != version:
        raise StructureError(f"version {body[4]} of '{signature.decode()}' is not known")


def verified(body: bytes, /) -> bytes:
    """Give a structure without the checksum at its end, after checking it.

    HDF5 spec: Jenkins' lookup3 of all bytes before it, in 4 bytes.
    """
    if len(body) < 4 or jenkins_lookup3(body[:-4], 0) != int.from_bytes(body[-4:], "little"):
        raise StructureError(f"the checksum of '{body[:4].decode('latin-1')}' is wrong")
    return body[:-4]


def decode_text(raw: bytes, /) -> str:
    """Read text as UTF-8, and as latin-1 where it is not, so that no letter is lost."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


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


def verify_blocks(blocks: NDArray[np.uint8], sizes: NDArray[np.int64] | int, what: str, /) -> None:
    """Check the checksum behind the first bytes of each block.

    HDF5 spec, "checksum" of every structure since version 1.8: Jenkins' lookup3 of all bytes before it, in 4 bytes.

    Parameters
    ----------
    blocks
        Shape ``(n, size)``, C-contiguous.
    sizes
        Bytes before the checksum: shape ``(n,)``, or one number for all.
    what
        Name of the structure, for the error.

    Raises
    ------
    StructureError
        A checksum is wrong.
    """
    n, width = blocks.shape
    flat = blocks.reshape(-1)
    starts = np.arange(n, dtype=np.int64) * width
    ends = starts + sizes
    stored = flat[ends[:, None] + np.arange(4)].view("<u4")[:, 0].tolist()
    data = flat.data
    found = [jenkins_lookup3(data[start:end], 0) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    if found != stored:
        raise StructureError(f"the checksum of {what} is wrong")
