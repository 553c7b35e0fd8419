"""Values and coordinates of GRIB messages, which eccodes decodes and computes.

Damaged messages may make eccodes crash or hang. So the parent calls this module in a child process, unless it knows
beforehand that a message is safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import eccodes
import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.codecs.codec import check_size

_MISSING_VALUE = float(np.finfo(np.float32).max)
_MAX_EXACT_BITS = 24
_EXACT = ("grid_simple", "grid_ccsds")


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


def values(message: bytes, size: int | None, row: int, /) -> NDArray[np.float32]:
    """Return the values of a message of one field as cfgrib does: in float32, with NaN for missing values."""
    with _opened(message) as handle:
        found = eccodes.codes_get_size(handle, "values")
        if (size is not None and found != size) or found % row:
            raise LibraryError(f"the GRIB message has {found} points; {size or f'rows of {row}'} are expected")
        eccodes.codes_set_double(handle, "missingValue", _MISSING_VALUE)
        if _is_exact_in_float32(handle):
            values = np.asarray(eccodes.codes_get_float_array(handle, "values"))
        else:
            with np.errstate(over="ignore"):
                values = np.asarray(eccodes.codes_get_double_array(handle, "values")).astype(np.float32)
        values[values == np.float32(_MISSING_VALUE)] = np.nan
        if row > 1 and _number(handle, "alternativeRowScanning") not in (0, None):
            lines = values.reshape(-1, row)
            lines[1::2] = lines[1::2, ::-1].copy()
        return values


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


def _number(handle: Any, key: str) -> int | None:
    try:
        return int(eccodes.codes_get_long(handle, key))
    except eccodes.KeyValueNotFoundError:
        return None


def _is_exact_in_float32(handle: Any) -> bool:
    """Return whether eccodes' arithmetic in float32, which is faster, has the same result as in float64 when rounded.

    A value is (reference + number * 2^binary) / 10^decimal. If decimal = 0 and float32 can hold the packed number, only
    the sum is rounded. If float64 holds the sum exactly, both rounded results are the same.
    """
    if eccodes.codes_get_string(handle, "packingType") not in _EXACT:
        return False
    names = "bitsPerValue", "binaryScaleFactor", "decimalScaleFactor"
    bits, binary, decimal = (eccodes.codes_get_long(handle, name) for name in names)
    return decimal == 0 and _is_exact_sum(eccodes.codes_get_double(handle, "referenceValue"), bits, binary)


def _is_exact_sum(reference: float, bits: int, binary: int) -> bool:
    """Return whether float64 holds the sum of a reference and any number of ``bits`` bits times 2^binary exactly."""
    if not 0 < bits <= _MAX_EXACT_BITS or not -100 <= binary <= 100 or abs(reference) > _MISSING_VALUE:
        return False
    if reference == 0:
        return True
    exponent = math.frexp(reference)[1]
    lowest, highest = min(binary, exponent - 24), max(binary + bits, exponent) + 1
    return bool(lowest > -120 and highest - lowest <= 53 and float(np.float32(reference)) == reference)
