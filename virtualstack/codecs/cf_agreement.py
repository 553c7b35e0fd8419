"""What xarray makes of packed numbers, seen by letting it decode some: our own steps must give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cftime
import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.codecs.cf import NAT, Packing, parse_packing
from virtualstack.codecs.cf_times import datetime_scale, quiet
from virtualstack.codecs.metadata import Codec

__all__ = ["Decoded", "decoded_by_xarray"]


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Where xarray puts the attributes of a variable that it decodes.

    Parameters
    ----------
    attributes
        Those that stay with the values.
    encoding
        Those that say how the values were packed, and the stored ``dtype``.
    """

    attributes: Mapping[str, Any]
    encoding: Mapping[str, Any]


@lru_cache(maxsize=4096)
def decoded_by_xarray(codec: Codec, /) -> Decoded:
    """Compare our decoding with that of the xarray that is installed, on numbers of all sizes.

    Takes about a millisecond, once for each packing.

    Parameters
    ----------
    codec
        Of :func:`~virtualstack.codecs.cf.cf_codec`.

    Raises
    ------
    ValueError
        Values have no fixed dtype, xarray does not decode them, or it gives other ones.
    """
    packing = parse_packing(codec)
    try:
        numbers = _numbers(packing)
        with quiet():
            variable = conventions.decode_cf_variable("v", xr.Variable(("i",), numbers, dict(packing.attributes)))
            expected = variable.values
        found = packing(numbers)
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
        raise ValueError(f"xarray does not decode it: {error}") from error
    if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
        raise ValueError(f"this version of xarray ({xr.__version__}) decodes it to '{expected.dtype}' by other rules")
    encoding = dict(variable.encoding)
    if encoding.get("dtype") == numbers.dtype:
        encoding["dtype"] = packing.stored
    return Decoded(variable.attrs, encoding)


def _numbers(packing: Packing) -> NDArray[Any]:
    """Give stored numbers that show what decoding does: the missing values, their neighbours, small and large ones.

    For dates only those of 1900 to 2100, and none that is missing where cftime has no date for it.
    """
    native = packing.stored.newbyteorder("=")
    if native.kind == "f":
        limits = np.finfo(native)
        numbers = np.array([0, -0.0, 1, -1, 0.5, 1 / 3, 1e3, -1e3, limits.tiny, limits.max, np.inf, np.nan], native)
    else:
        least, most = np.iinfo(native).min, np.iinfo(native).max
        numbers = np.array([x for x in (0, 1, 2, 3, 7, 100, 1000, -1, -2, -100, -1000) if least <= x <= most], native)
        numbers = np.concatenate([numbers, np.array([least, least + 1, most // 2, most - 1, most], native)])
    with np.errstate(all="ignore"):
        fills = np.array([np.asarray(x).astype(native) for x in packing.fills if not isinstance(x, str)], native)
    # Native: of unsigned ones of the other byte order xarray 2026.9 masks a fill value with its bytes swapped.
    numbers = np.concatenate([fills, numbers])
    if packing.dtype.kind == "m":
        return _between(packing, numbers, -1e5, 1e5)  # so many days are not too long for nanoseconds
    if packing.dtype.kind == "M":
        return _dates(packing, numbers)
    return numbers


def _dates(packing: Packing, numbers: NDArray[Any]) -> NDArray[Any]:
    """Give stored numbers that decode to dates of 1900 to 2100, ``numbers`` and others."""
    units, calendar = str(packing.units), packing.calendar
    line = datetime_scale(units, calendar)
    if line is None:
        days = [cftime.DatetimeGregorian(year, 1, 1) for year in (1900, 2100)]
        low, high = (float(x) for x in cftime.date2num(days, units, calendar or "standard"))
    else:
        origin, step = line
        bounds = np.array(["1900", "2100"], "M8[ns]").view(np.int64).tolist()
        # no more than 285 years from the reference date: xarray has 64 bits for the nanoseconds between
        low, high = (min(max((x - origin) / step, -9e18 / step), 9e18 / step) for x in bounds)
    wanted = (np.linspace(low, high, 50) - float(packing.offset or 0)) / float(packing.scale or 1)
    if numbers.dtype.kind in "iu":
        limits = np.iinfo(numbers.dtype)
        wanted = np.rint(wanted[(wanted > limits.min) & (wanted < limits.max)])
    with np.errstate(all="ignore"):
        stored = np.concatenate([numbers, np.arange(100, dtype=numbers.dtype), wanted.astype(numbers.dtype)])
    stored = _between(packing, stored, low, high, with_missing=line is not None)
    if not stored.size:
        raise ValueError(f"no stored number is a date of the years 1900 to 2100 in '{units}'")
    return stored


def _between(
    packing: Packing, stored: NDArray[Any], low: float, high: float, *, with_missing: bool = True
) -> NDArray[Any]:
    """Pick stored numbers by their masked and scaled values, and those that are missing."""
    with np.errstate(all="ignore"):
        numbers = packing.numbers(stored)
        is_missing = np.isnan(numbers) if numbers.dtype.kind == "f" else numbers == NAT
        numbers = numbers.astype(np.float64)  # limits are out of range for float16
        is_between = (numbers >= low) & (numbers <= high)
    return stored[is_between | (is_missing & with_missing)]
