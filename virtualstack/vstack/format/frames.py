"""Blosc frames, whose headers are not believed."""

from __future__ import annotations

import struct

from numcodecs import blosc

__all__ = ["decoded_size", "decompressed"]

_HEADER = struct.Struct("<4xIII")  # after versions, flags and typesize: bytes decoded, of a block, of the frame


def decoded_size(header: bytes, /) -> int:
    """Give how many bytes a frame says that it holds, by its first 16; 0 where there are fewer."""
    return int(_HEADER.unpack_from(header)[0]) if len(header) >= _HEADER.size else 0


def decompressed(frame: bytes, /, *, least: int, most: int) -> bytes:
    """Decompress a frame that holds from ``least`` to ``most`` bytes.

    Blosc takes as much memory as the header says, and reads as far as it says, be it beyond the frame.

    Raises
    ------
    ValueError
        It is damaged, or holds fewer or more.
    """
    if len(frame) < _HEADER.size:
        raise ValueError(f"{len(frame)} bytes are no blosc frame")
    n_decoded, _, n_stored = _HEADER.unpack_from(frame)
    if n_stored != len(frame):
        raise ValueError(f"the blosc frame says that it is {n_stored} bytes long; there are {len(frame)}")
    if not least <= n_decoded <= most:
        raise ValueError(f"the blosc frame holds {n_decoded} bytes, and should hold {least} to {most}")
    try:
        data: bytes = blosc.decompress(frame)
    except RuntimeError as error:
        raise ValueError(str(error)) from error
    return data
