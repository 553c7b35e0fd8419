"""Which fields the codec ``grib`` of kerchunk decodes as ours does, as far as headers tell.

It takes the first field of a whole message, leaves rows as they lie, and makes NaN of each value 9999.
"""

from __future__ import annotations

from struct import Struct

from virtualstack.formats.grib.messages import Field

__all__ = ["is_plain"]

_MISSING = 9999.0
_NEAR = 1e-3  # of the distance of two packed numbers; eccodes' arithmetic is off by far less

_PACKING_2 = Struct(">fHHB")
_SIMPLE_2 = frozenset({0, 40, 41, 42})  # WMO FM 92 GRIB2 code table 5.0: simple, JPEG 2000, PNG, CCSDS
_SCANNING_2 = {0: 71, 1: 71, 2: 71, 3: 71, 10: 59, 20: 64, 30: 64, 40: 71, 41: 71, 42: 71, 43: 71, 90: 63}
"""Code table 3.1: where a grid has its scanning mode, in its section."""
_COLUMNS, _ALTERNATE = 0x20, 0x10
_SPECTRAL_1, _COMPLEX_1, _MORE_1 = 0x80, 0x40, 0x10


def is_plain(field: Field, /) -> bool:
    """Tell whether kerchunk's codec is known to decode a field rightly."""
    return field.is_whole and (_is_plain_2(field) if field.edition == 2 else _is_plain_1(field))


def _is_plain_2(field: Field) -> bool:
    _, _, grid, _, packing = field.sections
    at = _SCANNING_2.get(int.from_bytes(grid[12:14], "big"))
    if at is None or len(grid) <= at or grid[at] & (_COLUMNS | _ALTERNATE) or len(packing) < 20:
        return False
    if int.from_bytes(packing[9:11], "big") not in _SIMPLE_2:
        return False
    reference, binary, decimal, bits = _PACKING_2.unpack_from(packing, 11)
    return not _reaches(reference, _signed(binary), _signed(decimal), bits)


def _is_plain_1(field: Field) -> bool:
    product, grid, _, data, _ = field.sections
    if data[3] & (_SPECTRAL_1 | _COMPLEX_1 | _MORE_1) or len(grid) < 28 or grid[27] & _COLUMNS:
        return False
    mantissa = int.from_bytes(data[7:10], "big")
    reference = (-1.0 if data[6] & 0x80 else 1.0) * mantissa * 16.0 ** ((data[6] & 0x7F) - 70)  # IBM's floats
    binary, decimal = int.from_bytes(data[4:6], "big"), int.from_bytes(product[26:28], "big")
    return not _reaches(reference, _signed(binary), _signed(decimal), data[10])


def _signed(number: int) -> int:
    """Read two bytes of sign and magnitude."""
    return -(number & 0x7FFF) if number & 0x8000 else number


def _reaches(reference: float, binary: int, decimal: int, bits: int) -> bool:
    """Tell whether a packed number may stand for 9999: (reference + packed * 2^binary) / 10^decimal."""
    if abs(binary) > 200 or abs(decimal) > 100 or bits > 32:
        return True
    packed = (_MISSING * 10.0**decimal - reference) / 2.0**binary
    nearest = round(packed) if abs(packed) < 2.0**40 else 0
    if not -1 <= nearest <= 2**bits or abs(packed) >= 2.0**40:
        return False
    return abs(packed - nearest) < _NEAR
