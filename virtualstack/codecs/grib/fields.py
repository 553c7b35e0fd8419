"""Cut the message of one field from the bytes of a chunk, and check the values that eccodes trusts.

eccodes crashes, hangs or reads past the end if grids, products and packings contradict themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import CodecError

_MAX_PARALLELS = 1 << 14
"""Parallels of a Gaussian grid between a pole and the equator. eccodes needs time that grows with their square."""

_PRODUCT = Struct(">HH")
_MIN_PRODUCT_BYTES = {0: 34, 1: 37, 2: 36, 8: 58, 11: 61, 12: 60}
"""Bytes that section 4 of GRIB 2 has at least, by its template, before the coordinates of model levels."""

_LATLON_1, _GAUSSIAN_1 = frozenset({0, 10, 20, 30}), frozenset({4, 14, 24, 34})
"""WMO FM 92 GRIB1 table 6: types of grids; plain, rotated, stretched, and both, as in GRIB 2."""
_LATLON_2 = {0: 72, 1: 84, 2: 84, 3: 96}
_GAUSSIAN_2 = {40: 72, 41: 84, 42: 84, 43: 96}
"""Beginning of the lengths of rows in section 3 of GRIB 2, by its template."""
_MAX_POINTS_PER_PARALLEL = 8  # limit above the longest row of any reduced grid; grids of ECMWF have 4 n + 16

_COMPLEX = (b"\0\2", b"\0\3")
_N_BITS_AT = (19, 35, 36, 46)
"""Bytes of section 5 of GRIB 2, templates 5.2 and 5.3, that store numbers of bits: of values, groups and lengths."""
_MAX_BITS = 64


def check_grid_1(grid: bytes, /) -> None:
    """Check section 2 of GRIB 1: coordinates of levels and lengths of rows."""
    if len(grid) < 28:
        return
    lists = grid[4] - 1 if 0 < grid[4] < 255 else len(grid)  # coordinates of levels are followed by lengths of rows
    _check_levels(grid[3], lists + 4 * grid[3], len(grid))
    if grid[5] in _GAUSSIAN_1:
        _check_parallels(int.from_bytes(grid[25:27], "big"))
    if grid[6:8] != b"\xff\xff":
        return
    n_rows = int.from_bytes(grid[8:10], "big")
    rows = grid[lists + 4 * grid[3] :]
    if grid[5] in _GAUSSIAN_1:
        _check_gaussian(rows, 2, n_rows, int.from_bytes(grid[25:27], "big"))
    elif grid[5] in _LATLON_1:
        _rows(rows, 2, n_rows)


def check_grid_2(grid: bytes, /) -> None:
    """Check section 3 of GRIB 2: lengths of rows."""
    template = int.from_bytes(grid[12:14], "big")
    at = _LATLON_2.get(template) or _GAUSSIAN_2.get(template)
    if at is None or len(grid) < at:
        return
    if template in _GAUSSIAN_2:
        _check_parallels(int.from_bytes(grid[67:71], "big"))
    size, n_rows = grid[10], int.from_bytes(grid[34:38], "big")
    if not size and grid[30:34] != b"\xff\xff\xff\xff":
        return
    if template in _GAUSSIAN_2:
        _check_gaussian(grid[at:], size, n_rows, int.from_bytes(grid[67:71], "big"))
        return
    n, n_points = int(_rows(grid[at:], size, n_rows).sum()), int.from_bytes(grid[6:10], "big")
    if n != n_points:
        raise CodecError(f"rows of its grid have {n} points together, and the grid has {n_points}")


def _rows(lengths: bytes, size: int, n_rows: int) -> NDArray[np.unsignedinteger]:
    """Read the consecutive lengths of rows of a reduced grid; each length has ``size`` bytes."""
    if size not in (1, 2, 4):
        raise CodecError(f"lengths of rows of its grid have {size} bytes")
    if n_rows * size > len(lengths):
        raise CodecError(f"its grid has {n_rows} rows, and lengths of {len(lengths) // size}")
    return np.frombuffer(lengths[: n_rows * size], f">u{size}")


def _check_parallels(number: int) -> None:
    if number > _MAX_PARALLELS:
        raise CodecError(f"its Gaussian grid has {number} parallels in each hemisphere, more than {_MAX_PARALLELS}")


def _check_gaussian(lengths: bytes, size: int, n_rows: int, number: int) -> None:
    rows = _rows(lengths, size, n_rows)
    if (rows == 1).any():
        raise CodecError("a row of its Gaussian grid has a single point")
    most = _MAX_POINTS_PER_PARALLEL * number + _MAX_POINTS_PER_PARALLEL**2
    if rows.size and rows.max() > most:
        raise CodecError(f"a row of its Gaussian grid of {number} parallels has {rows.max()} points")


def _check_levels(n: int, end: int, length: int) -> None:
    """Check that the section has room for the coordinates of model levels: eccodes reads past its end."""
    if n and end > length:
        raise CodecError(f"a section of {length} bytes has no room for the {n} coordinates of levels that it names")


def check_product_2(product: bytes, /) -> None:
    """Check section 4 of GRIB 2: coordinates of levels."""
    if len(product) >= 9:
        n_levels, template = _PRODUCT.unpack_from(product, 5)
        _check_levels(n_levels, _MIN_PRODUCT_BYTES.get(template, 9) + 4 * n_levels, len(product))


def check_packing_2(packing: bytes, /) -> None:
    """Check section 5 of GRIB 2: how many bits the numbers of complex packing have."""
    if (
        packing[9:11] in _COMPLEX
        and max((packing[at] for at in _N_BITS_AT if at < len(packing)), default=0) > _MAX_BITS
    ):
        raise CodecError(f"its complex packing has numbers of more than {_MAX_BITS} bits")


# WMO FM 92 GRIB2, code table 5.0
_SIMPLE, _CCSDS, _JPEG_2000, _PNG = 0, 42, (40, 40000), (41, 40010)
_LOGARITHMIC, _IEEE, _SPECTRAL = 61, 4, 50  # as simple packing; as floats; as simple packing, but for the first value
_IEEE_BITS = {1: 32, 2: 64, 3: 128}
"""Bits of a float by the precision in section 5, template 5.4 (WMO FM 92 GRIB2, code table 5.7)."""
_COMPLEX_SECTION_BYTES = {2: 47, 3: 49}
"""Complex packing without and with differences, and the bytes that section 5 has then."""
_SIZ = Struct(">4s4x4I16xHBBB")
"""The beginning of a codestream (ITU T.800, A.5.1): size and offset of the image, components, and the first component.
"""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_CHUNK = Struct(">I4s")
_IHDR = Struct(">I4sIIBBBBB")
_SAMPLES = {0: 1, 2: 3, 6: 4}
"""Samples of a pixel by the colour type of a PNG image (ISO 15948, 11.2.2). eccodes reads whole bytes of a pixel."""
_MAX_DEFLATE_RATIO = 1032
"""Largest ratio of bytes to compressed bytes (RFC 1951): 258 bytes in two bits."""

_MAX_SCALE = 500
"""Maximum binary and decimal scale, up or down. eccodes treats larger ones specially, or they overflow."""

_NO_BITMAP = 255

_GROUPS = Struct(">IBBIBIB")


def _is_safe_packing(n_points: int, packing: bytes, bitmap: bytes, data: bytes) -> bool:
    """Return whether eccodes decodes values without reading or writing beyond its memory."""
    n_values, template = int.from_bytes(packing[5:9], "big"), int.from_bytes(packing[9:11], "big")
    if template == _IEEE and len(packing) > 11:
        _check_room(n_values * _IEEE_BITS.get(packing[11], 0), data)
    if len(packing) < 21:
        return False
    n_bits = packing[19]
    if template in (_SIMPLE, _LOGARITHMIC, _SPECTRAL):
        _check_room((n_values - (template == _SPECTRAL)) * n_bits, data)
    if bitmap[5] == _NO_BITMAP:
        is_counted = n_values == n_points
    else:
        is_counted = not bitmap[5] and n_values == _n_marked(bitmap[6:], n_points)
    scales = [int.from_bytes(packing[at : at + 2], "big") & 0x7FFF for at in (15, 17)]
    if not is_counted or n_bits > _MAX_BITS or max(scales) > _MAX_SCALE:
        return False
    if template == _SIMPLE:
        return True
    if template == _CCSDS:
        return len(packing) >= 25
    if template in _JPEG_2000:
        return not n_bits or _is_plain_image(n_values, n_bits, data)
    if template in _PNG:
        return not n_bits or _is_plain_png(n_values, n_bits, data)
    return len(packing) >= _COMPLEX_SECTION_BYTES.get(template, 256) and _are_safe_groups(n_values, packing, data)


def _n_marked(bitmap: bytes, n_points: int) -> int:
    """Count the points that a bitmap has values for; return -1 if the bitmap has fewer points."""
    n_spare = 8 * len(bitmap) - n_points
    return -1 if n_spare < 0 else (int.from_bytes(bitmap, "big") >> n_spare).bit_count()


def _is_plain_image(n_values: int, n_bits: int, data: bytes) -> bool:
    """Return whether a codestream has a single component of unsigned numbers, of ``n_bits`` bits for each value."""
    if len(data) < _SIZ.size:
        return False
    marker, columns, rows, left, top, n_components, depth, dx, dy = _SIZ.unpack_from(data)
    return (
        marker == b"\xff\x4f\xff\x51"
        and (rows - top) * (columns - left) == n_values
        and (n_components, depth, dx, dy) == (1, n_bits - 1, 1, 1)
    )


def _is_plain_png(n_values: int, n_bits: int, data: bytes) -> bool:
    """Return whether a PNG image ends within the data and has one pixel for each value, as eccodes expects."""
    at = len(_PNG_SIGNATURE)
    if data[:at] != _PNG_SIGNATURE or len(data) < at + _IHDR.size:
        return False
    length, kind, columns, rows, depth, colour, *methods = _IHDR.unpack_from(data, at)
    pixel_bits = depth * _SAMPLES.get(colour, 0)
    is_plain = (
        (length, kind, methods) == (13, b"IHDR", [0, 0, 0])
        and columns * rows == n_values
        and depth >= 8
        and pixel_bits == 8 * -(-n_bits // 8)
        and n_values * n_bits <= 8 * _MAX_DEFLATE_RATIO * len(data)
    )
    while is_plain and kind != b"IEND" and at + 8 <= len(data):
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        at += 12 + length
    return is_plain and kind == b"IEND" and at <= len(data)


def _are_safe_groups(n_values: int, packing: bytes, data: bytes) -> bool:
    """Return whether the groups of complex packing have ``n_values`` values."""
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
    _check_room(8 * values_at, data)
    widths = least_width + _numbers(data[at:lengths_at], n_groups, width_bits)
    lengths = least_length + increment * _numbers(data[lengths_at:values_at], n_groups, length_bits)
    lengths[-1] = last_length
    _check_room(8 * values_at + int(np.multiply(widths, lengths, dtype=np.float64).sum()), data)
    return widths.max() <= _MAX_BITS and lengths.max() <= n_values and int(lengths.sum()) == n_values


def _check_room(n_bits: int, data: bytes) -> None:
    if n_bits > 8 * len(data):
        raise CodecError(
            f"the GRIB message is damaged: its packed values take {n_bits} bits, and it has {8 * len(data)}"
        )


def _numbers(data: bytes, n: int, n_bits: int) -> NDArray[np.int64]:
    """Unpack consecutive numbers of ``n_bits`` bits each."""
    if not n_bits:
        return np.zeros(n, np.int64)
    size = 1 if n_bits <= 8 else 4
    bits = np.zeros((n, 8 * size), np.uint8)
    bits[:, -n_bits:] = np.unpackbits(np.frombuffer(data, np.uint8), count=n * n_bits).reshape(n, n_bits)
    return np.packbits(bits).view(f">u{size}").astype(np.int64)


MAGIC, END = b"GRIB", b"7777"
EMPTY_BITMAP = b"\0\0\0\6\6\xff"
EMPTY_DATA = b"\0\0\0\5\7"

SECTION = Struct(">IB")
"""Length and number of a section of GRIB 2."""
_CHECKS = {3: check_grid_2, 4: check_product_2, 5: check_packing_2}

_MIN_GRID_BYTES_1 = {0: 32, 1: 42, 3: 42, 4: 32, 5: 32, 10: 42, 14: 42, 20: 42, 24: 42, 30: 52, 34: 52}
"""Bytes that section 2 of GRIB 1 has at least, by its type of grid: WMO FM 92 GRIB1 table 6."""
_MIN_SECTION_BYTES_1 = 6  # bytes of a section of GRIB 1
SAME_BITMAP = 254  # WMO FM 92 GRIB2, section 6: the bitmap that was defined before, in the same message


def last_field(raw: bytes, /) -> bytes:
    """Make a message of the last field of a message whose end may be missing.

    GRIB 2 may repeat sections 2 to 7, once for each field. A section that is not repeated keeps its content.
    """
    if _edition(raw) == 1:
        _check_1(raw)
        return raw
    sections, n_fields = _sections(raw)
    _check_2(raw, sections)
    if not n_fields or not {1, 3, 4, 5, 6} <= sections.keys():
        raise CodecError("the GRIB message has no data, or no description of it: it is cut short")
    if n_fields == 1 and raw[-4:] == END and int.from_bytes(raw[8:16], "big") == len(raw):
        return raw
    return message_2(raw[6], (raw[begin:end] for _, (begin, end) in sorted(sections.items())))


def described(raw: bytes, /) -> bytes:
    """Make a message without data from the beginning of a message, up to the end of the description of its grid."""
    if _edition(raw) == 1:
        _check_1(raw)
        return message_1(raw[8:], short_data(bytes(11)))
    sections, _ = _sections(raw)
    _check_2(raw, sections)
    kept = [raw[begin:end] for kind, (begin, end) in sorted(sections.items()) if kind < 6]
    return message_2(raw[6], [*kept, EMPTY_BITMAP, EMPTY_DATA])


def short_data(data: bytes, /) -> bytes:
    """Return a section 4 of GRIB 1 without values, with the flags, scale and reference value of another section 4.

    Coefficients of spherical harmonics that are stored apart are zeros.
    """
    flags, rest = data[3], data[4:10]
    if flags & 0x80:  # the bytes after the width of values describe the packing
        body = bytes((flags & 0xF0,)) + rest + data[10:].ljust(64, b"\0")
        return (3 + len(body)).to_bytes(3, "big") + body
    return b"\0\0\x0c\x08" + rest + b"\0\0"


def is_safe(message: bytes, /) -> bool:
    """Return whether eccodes decodes the values of a message of one field without a crash.

    A message is safe if its values are packed in one of the usual ways, and if its lengths are consistent.
    """
    if message[7] == 1:
        return _is_safe_1(message)
    sections, _ = _sections(message)
    grid, packing, bitmap, data = (message[slice(*sections[kind])] for kind in (3, 5, 6, 7))
    return _is_safe_packing(int.from_bytes(grid[6:10], "big"), packing, bitmap, data[5:])


def _is_safe_1(message: bytes) -> bool:
    at, end = _data_1(message), len(message) - 4
    data = message[at:end]
    is_simple = not data[3] & 0xD0  # WMO FM 92 GRIB1 table 11: no harmonics, no complex packing, no more flags
    scale = int.from_bytes(data[4:6], "big") & 0x7FFF
    if not is_simple or int.from_bytes(data[:3], "big") != len(data) or scale > _MAX_SCALE:
        return False
    bitmap_at = 8 + int.from_bytes(message[8:11], "big")
    if message[15] & 0x80:
        grid = message[bitmap_at : bitmap_at + int.from_bytes(message[bitmap_at : bitmap_at + 3], "big")]
        lists_end = 0 if grid[4] == 255 else grid[4] - 1 + 4 * grid[3]
        if max(_MIN_GRID_BYTES_1.get(grid[5], 256), lists_end) > len(grid):
            return False
        bitmap_at += len(grid)
    if not message[15] & 0x40:
        return True
    bitmap = message[bitmap_at:at]
    n_values = _n_marked(bitmap[6:], 8 * (len(bitmap) - 6) - bitmap[3])
    return bitmap[4:6] == b"\0\0" and 0 <= 8 * (len(data) - 11) - (data[3] & 0x0F) - n_values * data[10] < 32


def _edition(raw: bytes) -> int:
    if len(raw) < 16 or raw[:4] != MAGIC or raw[7] not in (1, 2):
        raise CodecError("there is no GRIB message of edition 1 or 2: the magic is missing")
    return raw[7]


def _sections(raw: bytes) -> tuple[dict[int, tuple[int, int]], int]:
    """Find the last section of each kind, and count the data sections."""
    found: dict[int, tuple[int, int]] = {}
    at, n_fields = 16, 0
    while at + 5 <= len(raw) and raw[at : at + 4] != END:
        length, kind = SECTION.unpack_from(raw, at)
        if length < 5 or at + length > len(raw) or not 1 <= kind <= 7:
            raise CodecError(f"section {kind} at byte {at} of the GRIB message says that it is {length} bytes long")
        if not (kind == 6 and length > 5 and raw[at + 5] == SAME_BITMAP and 6 in found):
            found[kind] = at, at + length
        n_fields += kind == 7
        at += length
    return found, n_fields


def _check_2(raw: bytes, sections: dict[int, tuple[int, int]]) -> None:
    for kind, check in _CHECKS.items():
        if kind in sections:
            check(raw[slice(*sections[kind])])


def _check_1(raw: bytes) -> None:
    at = 8 + int.from_bytes(raw[8:11], "big")
    if raw[15] & 0x80:
        check_grid_1(raw[at : at + int.from_bytes(raw[at : at + 3], "big")])


def _data_1(message: bytes) -> int:
    """Find section 4 of a message of GRIB 1."""
    at = 8
    for is_there in (True, message[15] & 0x80, message[15] & 0x40):
        if is_there:
            length = int.from_bytes(message[at : at + 3], "big")
            if length < _MIN_SECTION_BYTES_1:
                raise CodecError(f"a section at byte {at} of the GRIB message says that it is {length} bytes long")
            at += length
    if at + 11 > len(message):
        raise CodecError("the GRIB message has no data: it is cut short")
    return at


def message_1(description: bytes, data: bytes, /) -> bytes:
    """Make a message of GRIB 1 without a bitmap from sections 1 and 2, and section 4."""
    # bit 2 of the flags is set if there is a bitmap
    body = b"".join((description[:7], bytes((description[7] & ~0x40,)), description[8:], data, END))
    return MAGIC + (8 + len(body)).to_bytes(3, "big") + b"\1" + body


def message_2(discipline: int, sections: Iterable[bytes], /) -> bytes:
    """Make a message of GRIB 2 from its sections."""
    body = b"".join((*sections, END))
    return MAGIC + b"\0\0" + bytes((discipline, 2)) + (16 + len(body)).to_bytes(8, "big") + body
