"""Which attributes change what stored numbers mean, by the CF conventions and xarray's reading of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["can_cast_floats", "is_nan", "same_meaning", "same_value", "value_changing"]

_PACKING = ("scale_factor", "add_offset")
_MISSING = ("_FillValue", "missing_value")
_ALWAYS = (*_PACKING, "_FillValue", "missing_value", "_Unsigned", "_Encoding", "dtype")

# xarray reads these units as durations (CF conventions 4.4, units of time without an epoch).
_DURATIONS = frozenset({"days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds"})


def value_changing(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Pick the attributes that change values: packing, fill values, text encoding, and units and calendar of times.

    ``dtype`` is one of them: xarray writes it beside durations and booleans, and decodes by it.

    >>> value_changing({"units": "days since 2000-01-01", "long_name": "time"})
    {'units': 'days since 2000-01-01'}
    >>> value_changing({"units": "K", "scale_factor": 0.5})
    {'scale_factor': 0.5}
    """
    picked = {key: attributes[key] for key in _ALWAYS if key in attributes}
    units = attributes.get("units")
    if isinstance(units, str) and (" since " in units or units in _DURATIONS):
        picked.update({key: attributes[key] for key in ("units", "calendar") if key in attributes})
    return picked


def same_meaning(key: str, a: object, b: object, /) -> bool:
    """Tell whether an attribute decodes values alike with either of two values; of packing the dtype counts too.

    >>> same_meaning("scale_factor", np.float32(0.5), 0.5), same_meaning("missing_value", np.int16(-1), -1)
    (False, True)
    """
    if key == "calendar":
        return _calendar(a) == _calendar(b)
    if not same_value(a, b):
        return False
    return key not in _PACKING or a is None or np.asarray(a).dtype == np.asarray(b).dtype


def _calendar(name: object) -> object:
    """CF conventions 4.4.1: the default is "standard", of which "gregorian" is the old name."""
    return "standard" if name is None or str(name).lower() in ("standard", "gregorian") else str(name).lower()


def can_cast_floats(cf: Mapping[str, Any], old: np.dtype[Any], new: np.dtype[Any], /) -> bool:
    """Tell whether floats that are cast decode to the same values by the same attributes.

    Missing values and units mean the same for floats of more digits. NaN is missing whatever the dtype is.

    >>> can_cast_floats({"_FillValue": np.nan}, np.dtype("f8"), np.dtype("f4"))
    True
    >>> can_cast_floats({"scale_factor": 0.1}, np.dtype("f4"), np.dtype("f8"))
    False
    """
    if old.kind != "f" or new.kind != "f" or cf.keys() - {*_MISSING, "units", "calendar"}:
        return False
    return np.can_cast(old, new) or all(key in _MISSING and is_nan(value) for key, value in cf.items())


def is_nan(value: object, /) -> bool:
    """Tell whether a missing value is absent, or NaN, which is missing among floats in any case."""
    found = np.asarray(value) if value is not None else None
    return found is None or (found.dtype.kind == "f" and bool(np.isnan(found).all()))


def same_value(a: object, b: object, /) -> bool:
    """Tell whether two attribute values mean the same; NaN is NaN, and one that is absent (``None``) is not 0.

    >>> same_value(np.float32(0.5), 0.5), same_value(None, 0)
    (True, False)
    """
    if a is None or b is None:
        return a is b
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_value(value, b[key]) for key, value in a.items())
    try:
        x, y = np.asarray(a), np.asarray(b)
    except ValueError:  # lists of lists that are no array: of other lengths, or deep
        if not (isinstance(a, list | tuple) and isinstance(b, list | tuple)):
            return False
        return len(a) == len(b) and all(map(same_value, a, b))
    if x.shape != y.shape:
        return False
    both_nan = (x != x) & (y != y)
    return bool(((x == y) | both_nan).all())
