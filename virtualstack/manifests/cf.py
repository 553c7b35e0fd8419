"""Which attributes change what stored numbers mean, by the CF conventions and xarray's reading of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["same_meaning", "same_value", "value_changing"]

_PACKING = ("scale_factor", "add_offset")
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
