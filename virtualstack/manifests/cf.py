"""Find the attributes that change the meaning of stored numbers, by the CF conventions and as xarray reads them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from virtualstack.codecs.cf_times import DURATIONS, datetime_units, same_dates

_PACKING = ("scale_factor", "add_offset")
_MISSING = frozenset({"_FillValue", "missing_value"})
_TIMES = frozenset({"units", "calendar"})
_ALWAYS = (*_PACKING, "_FillValue", "missing_value", "_Unsigned", "_Encoding", "dtype")
CF_KEYS = (*_ALWAYS, "units", "calendar")
"""Attributes that may define how stored numbers become values."""
RASTER_DECODING = "gdal_decoding"
"""Attribute of rasters: what GDAL decodes and CF has no attribute for, such as ``"mask=mask scales"``."""
PER_BAND = ("nodatavals", "scales", "offsets")
"""Attributes of rasters with a number for each band, which count if `RASTER_DECODING` has their names."""


def value_changing(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Return the attributes that change values: packing, fill values, text encoding, and units and calendar of times.

    ``dtype`` is included: xarray writes it with durations and booleans, and decodes by it.

    >>> value_changing({"units": "days since 2000-01-01", "long_name": "time"})
    {'units': 'days since 2000-01-01'}
    >>> value_changing({"units": "K", "scale_factor": 0.5})
    {'scale_factor': 0.5}
    """
    picked = {key: attributes[key] for key in _ALWAYS if key in attributes}
    if RASTER_DECODING in attributes:
        picked |= {key: attributes[key] for key in (RASTER_DECODING, *PER_BAND) if key in attributes}
    units = attributes.get("units")
    if isinstance(units, str) and (" since " in units or units in DURATIONS):
        picked.update({key: attributes[key] for key in ("units", "calendar") if key in attributes})
    return picked


def decoding_keys(cf: Mapping[str, Any], /) -> Set[str]:
    """Return the attributes by which xarray decodes numbers by default: units of durations alone are none.

    >>> decoding_keys({"units": "milliseconds"}), decoding_keys({"units": "milliseconds", "_FillValue": -1})
    (set(), {'_FillValue'})
    """
    is_plain = "dtype" not in cf and not datetime_units(cf.get("units"))
    return cf.keys() - ({"units"} if is_plain else set())


def differing_key(left: Mapping[str, Any], right: Mapping[str, Any], dtype: np.dtype[Any], /) -> str | None:
    """Return the name of an attribute by which stored numbers mean different values on two sides, or ``None``.

    Meanings are compared, not spellings: the dates of units and calendars, and the set of missing values.
    For packing attributes the dtypes count too, because xarray chooses the dtype of the result by them.

    >>> days = {"units": "days since 1970-01-01"}
    >>> calendar = {"units": "days since 1970-01-01 00:00:00", "calendar": "proleptic_gregorian"}
    >>> differing_key(days, calendar, np.dtype("f8")), differing_key({"scale_factor": 2.0}, {}, np.dtype("i2"))
    (None, 'scale_factor')
    """
    keys = {key for each in (left, right) for key, value in each.items() if value is not None}
    order = [*sorted(keys - _TIMES), "units", "calendar"]
    differing = [key for key in order if key in keys and not _same_meaning(key, left.get(key), right.get(key), dtype)]
    if not _TIMES.isdisjoint(differing) and same_dates_in(left, right):
        differing = [key for key in differing if key not in _TIMES]
    if not _MISSING.isdisjoint(differing):
        # NaN among floats is always missing; but for packed floats, an attribute for it changes the dtype of the result
        but_nan = dtype.kind == "f" and keys <= {*_MISSING, "_Encoding"}
        sides = [{key: _missing_values(x, key, but_nan=but_nan) for key in _MISSING} for x in (left, right)]
        is_same = set.union(*sides[0].values()) == set.union(*sides[1].values())
        differing = [x for x in differing if x not in _MISSING or not (is_same or sides[0][x] == sides[1][x])]
    return differing[0] if differing else None


def _same_meaning(key: str, a: object, b: object, dtype: np.dtype[Any]) -> bool:
    """Return whether two values of one attribute have the same meaning, whatever the other attributes are."""
    if key == "_Unsigned":  # xarray uses "true" only for signed integers, and "false" only for unsigned ones
        counts = {"i": "true", "u": "false"}.get(dtype.kind)
        return (a == counts) == (b == counts)
    if key == "calendar":
        return _calendar(a) == _calendar(b)
    if not same_value(a, b):
        return False
    return key not in _PACKING or a is None or np.asarray(a).dtype == np.asarray(b).dtype


def _calendar(name: object) -> str:
    """Return the usual name of a calendar (CF conventions 4.4.1): some calendars have two names."""
    known = {"gregorian": "standard", "365_day": "noleap", "366_day": "all_leap"}
    text = "standard" if name is None else str(name).lower()
    return known.get(text, text)


def same_dates_in(left: Mapping[str, Any], right: Mapping[str, Any], /) -> bool:
    """Return whether the units and calendars of two mappings of attributes decode numbers to the same dates.

    >>> same_dates_in({"units": "days since 1970-01-01"}, {"units": "days since 1970-01-01", "calendar": "standard"})
    True
    """
    a, b = ((each.get("units"), each.get("calendar")) for each in (left, right))
    are_dates = all(isinstance(units, str) and "since" in units for units, _ in (a, b))
    return are_dates and all(isinstance(calendar, str | None) for _, calendar in (a, b)) and same_dates(a, b)


def _missing_values(attributes: Mapping[str, Any], key: str, *, but_nan: bool) -> set[object]:
    """Return the values that ``_FillValue`` or ``missing_value`` marks as missing, with NaN as text."""
    found = () if attributes.get(key) is None else np.ravel(attributes[key]).tolist()
    values = {"NaN" if x != x else x for x in found}
    return values - {"NaN"} if but_nan else values


def can_cast_floats(cf: Mapping[str, Any], old: np.dtype[Any], new: np.dtype[Any], /) -> bool:
    """Return whether floats decode to the same values by the same attributes after a cast.

    Missing values and units keep their meaning among floats of more digits. NaN is missing in every dtype.

    >>> can_cast_floats({"_FillValue": np.nan}, np.dtype("f8"), np.dtype("f4"))
    True
    >>> can_cast_floats({"scale_factor": 0.1}, np.dtype("f4"), np.dtype("f8"))
    False
    """
    if old.kind != "f" or new.kind != "f" or cf.keys() - {*_MISSING, "units", "calendar"}:
        return False
    return np.can_cast(old, new) or all(key in _MISSING and is_nan(value) for key, value in cf.items())


def is_nan(value: object, /) -> bool:
    """Return whether a missing value is ``None`` or NaN; NaN among floats is missing in any case."""
    found = np.asarray(value) if value is not None else None
    return found is None or (found.dtype.kind == "f" and bool(np.isnan(found).all()))


def same_value(a: object, b: object, /) -> bool:
    """Return whether two attribute values mean the same; NaN equals NaN, and ``None`` (no attribute) is not 0.

    >>> same_value(np.float32(0.5), 0.5), same_value(None, 0)
    (True, False)
    """
    if a is None or b is None:
        return a is b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_value(value, b[key]) for key, value in a.items())
    try:
        x, y = np.asarray(a), np.asarray(b)
    except ValueError:  # lists of lists that are not an array, since lengths differ or they are too deep
        if not (isinstance(a, list | tuple) and isinstance(b, list | tuple)):
            return False
        return len(a) == len(b) and all(map(same_value, a, b))
    if x.shape != y.shape:
        return False
    both_nan = (x != x) & (y != y)
    return bool(((x == y) | both_nan).all())
