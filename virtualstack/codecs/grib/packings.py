"""Whether what a message of GRIB 2 says of its packed values fits together: eccodes trusts it."""

from __future__ import annotations

from struct import Struct

import numpy as np
from numpy.typing import NDArray

__all__ = ["MAX_SCALE", "is_safe_packing", "n_marked"]

# WMO FM 92 GRIB2, code table 5.0
_SIMPLE, _CCSDS, _JPEG_2000 = 0, 42, (40, 40000)
_COMPLEX = {2: 47, 3: 49}
"""Complex packing without and with differences, and the bytes that section 5 has then."""
_SIZ = Struct(">4s4x4I16xHBBB")
"""The begin of a codestream (ITU T.800, A.5.1): size and offset of the image, components, and the first of these."""

MAX_SCALE = 500
"""Binary and decimal scale, either way; larger ones have a meaning of their own to eccodes, or overflow."""

_NO_BITMAP = 255

_GROUPS = Struct(">IBBIBIB")
_MAX_BITS = 64


def is_safe_packing(n_points: int, packing: bytes, bitmap: bytes, data: bytes, /) -> bool:
    """Tell whether eccodes decodes values without reading or writing beyond what it has.

    Parameters
    ----------
    n_points
        Number of points of the grid.
    packing
        Section 5.
    bitmap
        Section 6.
    data
        Section 7 after its first five bytes.
    """
    if len(packing) < 21:
        return False
    n_values, template, n_bits = int.from_bytes(packing[5:9], "big"), int.from_bytes(packing[9:11], "big"), packing[19]
    if bitmap[5] == _NO_BITMAP:
        is_counted = n_values == n_points
    else:
        is_counted = not bitmap[5] and n_values == n_marked(bitmap[6:], n_points)
    scales = [int.from_bytes(packing[at : at + 2], "big") & 0x7FFF for at in (15, 17)]
    if not is_counted or n_bits > _MAX_BITS or max(scales) > MAX_SCALE:
        return False
    if template == _SIMPLE:
        return n_values * n_bits <= 8 * len(data)
    if template == _CCSDS:
        return len(packing) >= 25
    if template in _JPEG_2000:
        return not n_bits or _is_plain_image(n_values, n_bits, data)
    return len(packing) >= _COMPLEX.get(template, 256) and _has_room(n_values, packing, data)


def n_marked(bitmap: bytes, n_points: int, /) -> int:
    """Count the points that a bitmap has values for; -1 where it has fewer points."""
    n_spare = 8 * len(bitmap) - n_points
    return -1 if n_spare < 0 else (int.from_bytes(bitmap, "big") >> n_spare).bit_count()


def _is_plain_image(n_values: int, n_bits: int, data: bytes) -> bool:
    """Tell whether a codestream has one component, with an unsigned number of so many bits for each value."""
    if len(data) < _SIZ.size:
        return False
    marker, columns, rows, left, top, n_components, depth, dx, dy = _SIZ.unpack_from(data)
    return (
        marker == b"\xff\x4f\xff\x51"
        and (rows - top) * (columns - left) == n_values
        and (n_components, depth, dx, dy) == (1, n_bits - 1, 1, 1)
    )


def _has_room(n_values: int, packing: bytes, data: bytes) -> bool:
    """Tell whether the groups of complex packing have as many values, and all their bits are there."""
    n_bits = packing[19]
    n_groups, least_width, width_bits, least_length, increment, last_length, length_bits = _GROUPS.unpack_from(
        packing, 31
    )
    at = 0
    if packing[9:11] == b"\0\3":
        order, n_bytes = packing[47:49]
        at = (order + 1) * n_bytes
        if order not in (1, 2) or not 1 <= n_bytes <= 4:
            return False
    if not n_groups or n_groups > n_values or max(n_bits, width_bits, length_bits) > 32:
        return False
    at += -(-n_groups * n_bits // 8)
    lengths_at = at + -(-n_groups * width_bits // 8)
    values_at = lengths_at + -(-n_groups * length_bits // 8)
    if values_at > len(data):
        return False
    widths = least_width + _numbers(data[at:lengths_at], n_groups, width_bits)
    lengths = least_length + increment * _numbers(data[lengths_at:values_at], n_groups, length_bits)
    lengths[-1] = last_length
    n_data_bits = int(widths @ lengths)
    return (
        widths.max() <= _MAX_BITS
        and lengths.max() <= n_values
        and int(lengths.sum()) == n_values
        and n_data_bits <= 8 * (len(data) - values_at)
    )


def _numbers(data: bytes, n: int, n_bits: int) -> NDArray[np.int64]:
    """Unpack numbers of so many bits each, one behind the other."""
    if not n_bits:
        return np.zeros(n, np.int64)
    size = 1 if n_bits <= 8 else 4
    bits = np.zeros((n, 8 * size), np.uint8)
    bits[:, -n_bits:] = np.unpackbits(np.frombuffer(data, np.uint8), count=n * n_bits).reshape(n, n_bits)
    return np.packbits(bits).view(f">u{size}").astype(np.int64)
