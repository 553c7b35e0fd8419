"""Values and coordinates of GRIB messages, which eccodes decodes and computes.

Damaged messages may make eccodes crash or hang. So the parent calls this module in a child process, unless it knows
beforehand that a message is safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import eccodes
import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.codecs.codec import check_size

__all__ = ["coordinates", "kerchunk_values", "plain_values", "values"]

_MISSING_VALUE = float(np.finfo(np.float32).max)
_MAX_EXACT_BITS = 24
_EXACT = ("grid_simple", "grid_ccsds")
_MAX_BITS = 64
_SIMPLE = (*_EXACT, "grid_jpeg", "grid_png")


@contextmanager
def _opened(message: bytes) -> Iterator[Any]:
    """Open a message, and turn errors of eccodes into `LibraryError`."""
    handle = None
    try:
        handle = eccodes.codes_new_from_message(message)
        yield handle
    except (eccodes.CodesInternalError, MemoryError, ValueError) as error:
        raise LibraryError(str(error)) from None
    finally:
        if handle is not None:
            eccodes.codes_release(handle)


def coordinates(message: bytes, key: str, n_points: int | None = None, /) -> NDArray[np.float64] | None:
    """Return coordinates of the grid of a message."""
    with _opened(message) as handle:
        try:
            found = eccodes.codes_get_size(handle, key)
            if n_points is not None and found != n_points:
                raise LibraryError(f"the GRIB message has {found} points; {n_points} are expected")
            return np.asarray(eccodes.codes_get_double_array(handle, key))
        except eccodes.KeyValueNotFoundError:
            return None


def values(message: bytes, size: int | None, row: int, is_whole: bool, /) -> NDArray[np.float32]:
    """Return the values of a message of one field as cfgrib does: in float32, with NaN for missing values."""
    with _opened(message) as handle:
        return _values(handle, size, row, is_whole=is_whole)


def plain_values(message: bytes, key: str, /) -> NDArray[np.float32] | NDArray[np.float64]:
    """Return what eccodes returns for a key, without the changes that `values` and `coordinates` make."""
    with _opened(message) as handle:
        if key != "values":
            return np.asarray(eccodes.codes_get_double_array(handle, key))
        if _number(handle, "alternativeRowScanning"):
            raise LibraryError("it returns every other row of the field backwards")
        eccodes.codes_set_double(handle, "missingValue", _MISSING_VALUE)
        found = eccodes.codes_get_double_array(handle, "values")
        with np.errstate(over="ignore"):
            return np.where(found == _MISSING_VALUE, np.nan, found).astype(np.float32)


def kerchunk_values(message: bytes, key: str, dtype: np.dtype[Any], size: int | None, limit: int, /) -> NDArray[Any]:
    """Return the numbers to which kerchunk's codec ``grib`` decodes a message."""
    with _opened(message) as handle:
        check_size("the GRIB message", dtype.itemsize * eccodes.codes_get_size(handle, key), size, limit)
        found = eccodes.codes_get_double_array(handle, key)
        if key == "values":
            found[found == eccodes.codes_get_double(handle, "missingValue")] = np.nan
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(found.astype(dtype, copy=False))


def _values(handle: Any, size: int | None, row: int, *, is_whole: bool) -> NDArray[Any]:
    found = eccodes.codes_get_size(handle, "values")
    if (size is not None and found != size) or found % row:
        raise LibraryError(f"the GRIB message has {found} points; {size or f'rows of {row}'} are expected")
    if is_whole:
        with np.errstate(over="ignore"):
            return np.asarray(eccodes.codes_get_double_array(handle, "values")).astype(np.float32)
    packing = _packing(handle)
    if packing is not None and packing.is_constant:
        with np.errstate(over="ignore"):
            one = np.float64(eccodes.codes_get_double_element(handle, "values", 0)).astype(np.float32)
        return np.full(found, np.nan if one == np.float32(_MISSING_VALUE) else one, np.float32)
    eccodes.codes_set_double(handle, "missingValue", _MISSING_VALUE)
    if packing is not None and packing.is_exact:
        values = np.asarray(eccodes.codes_get_float_array(handle, "values"))
    else:
        with np.errstate(over="ignore"):
            values = np.asarray(eccodes.codes_get_double_array(handle, "values")).astype(np.float32)
    if packing is None or packing.may_miss:
        # from bitmaps, and from packings that support missing values
        values[values == np.float32(_MISSING_VALUE)] = np.nan
    if row > 1 and _number(handle, "alternativeRowScanning") not in (0, None):
        lines = values.reshape(-1, row)
        lines[1::2] = lines[1::2, ::-1].copy()
    return values


def _number(handle: Any, key: str) -> int | None:
    try:
        return int(eccodes.codes_get_long(handle, key))
    except eccodes.KeyValueNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class _Packing:
    """How values are packed as numbers: a value is (reference + number * 2^binary) / 10^decimal."""

    kind: str
    bits: int
    binary: int
    decimal: int
    reference: float
    has_bitmap: bool

    @property
    def is_constant(self) -> bool:
        """True if all points have the same value, which needs no bits."""
        return self.kind == "grid_simple" and self.bits == 0 and not self.has_bitmap

    @property
    def may_miss(self) -> bool:
        """True if values may be missing, or may be as large as the number that marks a missing value."""
        if self.has_bitmap or not -500 <= self.binary <= 500:
            return True
        largest = abs(self.reference) + 2.0 ** (_MAX_BITS + self.binary)
        return not largest < _MISSING_VALUE / 2 * 10.0 ** min(self.decimal, 0)

    @property
    def is_exact(self) -> bool:
        """True if eccodes' arithmetic in float32 has the same result as its arithmetic in float64 after rounding.

        If D = 0 and float32 can hold the packed number, only the sum is rounded. If float64 holds the sum exactly, both
        rounded results are the same.
        """
        if self.kind not in _EXACT or self.decimal != 0:
            return False
        bits, scale, reference = self.bits, self.binary, self.reference
        if not 0 < bits <= _MAX_EXACT_BITS or not -100 <= scale <= 100 or abs(reference) > _MISSING_VALUE:
            return False
        if reference == 0:
            return True
        exponent = math.frexp(reference)[1]
        lowest, highest = min(scale, exponent - 24), max(scale + bits, exponent) + 1
        return bool(lowest > -120 and highest - lowest <= 53 and float(np.float32(reference)) == reference)


def _packing(handle: Any) -> _Packing | None:
    """Read the packing of values; return ``None`` if values are not packed one by one."""
    kind = eccodes.codes_get_string(handle, "packingType")
    if kind not in _SIMPLE:
        return None
    names = "bitsPerValue", "binaryScaleFactor", "decimalScaleFactor"
    bits, binary, decimal = (eccodes.codes_get_long(handle, name) for name in names)
    reference = eccodes.codes_get_double(handle, "referenceValue")
    return _Packing(kind, bits, binary, decimal, reference, eccodes.codes_get_long(handle, "bitmapPresent") != 0)
