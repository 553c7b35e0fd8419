"""Checks of settings for libaec. The packages that decode its streams pass on settings that libaec refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_AEC_RESTRICTED = 16
"""The flag of libaec for a restricted set of code options."""
_MAX_LINE_BLOCKS = 128
"""Blocks that a line of szip has at most."""


def check_aec(options: Mapping[str, Any], /) -> None:
    """Check settings of libaec: with settings that libaec refuses, imagecodecs frees memory that it does not own."""
    names = ("bitspersample", "flags", "blocksize", "rsi")
    bits, flags, block, interval = (options.get(name) for name in names)
    is_known = (
        (bits is None or bits in range(1, 33))
        and (flags is None or (flags in range(64) and not flags & _AEC_RESTRICTED))
        and (block is None or block in (8, 16, 32, 64))
        and (interval is None or interval in range(1, 4097))
    )
    if not is_known:
        raise ValueError("libaec does not support such streams")


def aec_block_bytes(options: Mapping[str, Any], /) -> int:
    """Return the bytes of a decoded block. The last block of a stream is padded to them.

    >>> aec_block_bytes({"bitspersample": 12, "blocksize": 16})
    32
    """
    return int(options.get("blocksize") or 8) * sample_bytes(options.get("bitspersample") or 8)


def sample_bytes(bits: int, /) -> int:
    """Return the bytes in which libaec stores a sample of up to 32 bits.

    >>> [sample_bytes(bits) for bits in (8, 12, 24)]
    [1, 2, 4]
    """
    return next(width for width in (1, 2, 4) if bits <= 8 * width)


def szip_settings(options: Mapping[str, Any], /) -> dict[str, int]:
    """Check the settings of szip."""
    names = "options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline"
    settings = {name: int(options[name]) for name in names}
    mask, block, bits, line = settings.values()
    is_known = 0 <= mask < 1 << 16 and 2 <= block <= 32 and not block % 2 and 1 <= line <= _MAX_LINE_BLOCKS * block
    if not is_known or not (1 <= bits <= 32 or bits == 64):
        raise ValueError(f"has blocks of {block} pixels of {bits} bits in lines of {line}, which szip does not support")
    return settings
