"""A message with one field, of the bytes that a chunk refers to."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from virtualstack.codecs.decoder import CodecError
from virtualstack.codecs.grib.checks import check_grid_1, check_grid_2, check_packing_2, check_product_2
from virtualstack.codecs.grib.packings import MAX_SCALE, is_safe_packing, n_marked

__all__ = [
    "EMPTY_BITMAP",
    "EMPTY_DATA",
    "END",
    "MAGIC",
    "SAME_BITMAP",
    "SECTION",
    "described",
    "has_harmonics",
    "is_safe",
    "last_field",
    "message_1",
    "message_2",
    "short_data",
]

MAGIC, END = b"GRIB", b"7777"
EMPTY_BITMAP = b"\0\0\0\6\6\xff"
EMPTY_DATA = b"\0\0\0\5\7"

SECTION = Struct(">IB")
"""Length and number of a section of GRIB 2."""
_CHECKS = {3: check_grid_2, 4: check_product_2, 5: check_packing_2}
_HARMONICS = (50, 51)  # WMO FM 92 GRIB2, code table 5.0: spectral data, simple and complex packing
_NO_BITMAP = 255
_MIN_GRID_BYTES_1 = {0: 32, 1: 42, 3: 42, 4: 32, 5: 32, 10: 42, 14: 42, 20: 42, 24: 42, 30: 52, 34: 52}
"""Bytes that section 2 of GRIB 1 has at least, by its type of grid: WMO FM 92 GRIB1 table 6."""
_MIN_SECTION_BYTES_1 = 6  # bytes of a section of GRIB 1
SAME_BITMAP = 254  # WMO FM 92 GRIB2, section 6: the bitmap that was defined before, in the same message


def last_field(raw: bytes, /) -> bytes:
    """Make a message of the last field of another one, of which the end may be missing.

    GRIB 2 may repeat sections 2 to 7, each time with a field; what is not repeated stays as it was.

    Parameters
    ----------
    raw
        A message, or its beginning up to the end of the data of one of its fields.

    Raises
    ------
    CodecError
        The bytes are no such thing.
    """
    if _edition(raw) == 1:
        _check_1(raw)
        return raw
    sections, n_fields = _sections(raw)
    _check_2(raw, sections)
    if not n_fields or not {1, 3, 4, 5, 6} <= sections.keys():
        raise CodecError("the GRIB message has no data, or nothing that describes them: it is cut short")
    if n_fields == 1 and raw[-4:] == END and int.from_bytes(raw[8:16], "big") == len(raw):
        return raw
    return message_2(raw[6], (raw[begin:end] for _, (begin, end) in sorted(sections.items())))


def described(raw: bytes, /) -> bytes:
    """Make a message without data of the beginning of another one, up to the end of what describes its grid.

    Raises
    ------
    CodecError
        The bytes are no such thing.
    """
    if _edition(raw) == 1:
        _check_1(raw)
        return message_1(raw[8:], short_data(bytes(11)))
    sections, _ = _sections(raw)
    _check_2(raw, sections)
    kept = [raw[begin:end] for kind, (begin, end) in sorted(sections.items()) if kind < 6]
    return message_2(raw[6], [*kept, EMPTY_BITMAP, EMPTY_DATA])


def short_data(data: bytes, /) -> bytes:
    """Give a section 4 of GRIB 1 without values, with the flags, scale and reference value of another one's beginning.

    Coefficients of spherical harmonics that are stored apart are zeros.
    """
    flags, rest = data[3], data[4:10]
    if flags & 0x80:  # what is behind the width of values describes the packing
        body = bytes((flags & 0xF0,)) + rest + data[10:].ljust(64, b"\0")
        return (3 + len(body)).to_bytes(3, "big") + body
    return b"\0\0\x0c\x08" + rest + b"\0\0"


def has_harmonics(message: bytes, /) -> bool:
    """Tell whether a message of one field has spherical harmonics without a bitmap: none of its values is missing."""
    if message[7] == 1:
        return not message[15] & 0x40 and message[_data_1(message) + 3] >= 0x80
    sections, _ = _sections(message)
    return _template(message, sections) in _HARMONICS and message[sections[6][0] + 5] == _NO_BITMAP


def is_safe(message: bytes, /) -> bool:
    """Tell whether eccodes, which trusts what a message of one field says, decodes its values without a crash.

    It is safe where values are packed in one of the usual ways, and the lengths that the message names fit together.
    """
    if message[7] == 1:
        return _is_safe_1(message)
    sections, _ = _sections(message)
    grid, packing, bitmap, data = (message[slice(*sections[kind])] for kind in (3, 5, 6, 7))
    return is_safe_packing(int.from_bytes(grid[6:10], "big"), packing, bitmap, data[5:])


def _is_safe_1(message: bytes) -> bool:
    at, end = _data_1(message), len(message) - 4
    data = message[at:end]
    is_simple = not data[3] & 0xD0  # WMO FM 92 GRIB1 table 11: no harmonics, no complex packing, no more flags
    scale = int.from_bytes(data[4:6], "big") & 0x7FFF
    if not is_simple or int.from_bytes(data[:3], "big") != len(data) or scale > MAX_SCALE:
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
    n_values = n_marked(bitmap[6:], 8 * (len(bitmap) - 6) - bitmap[3])
    return bitmap[4:6] == b"\0\0" and 0 <= 8 * (len(data) - 11) - (data[3] & 0x0F) - n_values * data[10] < 32


def _edition(raw: bytes) -> int:
    if len(raw) < 16 or raw[:4] != MAGIC or raw[7] not in (1, 2):
        raise CodecError("there is no GRIB message of edition 1 or 2: the magic is missing")
    return raw[7]


def _sections(raw: bytes) -> tuple[dict[int, tuple[int, int]], int]:
    """Find the last section of each kind, and count those of data."""
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


def _template(message: bytes, sections: dict[int, tuple[int, int]]) -> int:
    return int.from_bytes(message[sections[5][0] + 9 : sections[5][0] + 11], "big")


def message_1(description: bytes, data: bytes, /) -> bytes:
    """Make a message of GRIB 1 without bitmap, of sections 1 and 2 and of 4."""
    # bit 2 of the flags says that there is a bitmap
    body = b"".join((description[:7], bytes((description[7] & ~0x40,)), description[8:], data, END))
    return MAGIC + (8 + len(body)).to_bytes(3, "big") + b"\1" + body


def message_2(discipline: int, sections: Iterable[bytes], /) -> bytes:
    """Make a message of GRIB 2 of its sections."""
    body = b"".join((*sections, END))
    return MAGIC + b"\0\0" + bytes((discipline, 2)) + (16 + len(body)).to_bytes(8, "big") + body
