"""Which attributes change what stored numbers mean, by the CF conventions and xarray's reading of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["same_value", "value_changing"]

_ALWAYS = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned")


def value_changing(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Pick the attributes that change values: packing, fill values, and the units and calendar of times.

    >>> value_changing({"units": "days since 2000-01-01", "long_name": "time"})
    {'units': 'days since 2000-01-01'}
    >>> value_changing({"units": "K", "scale_factor": 0.5})
    {'scale_factor': 0.5}
    """
    picked = {key: attributes[key] for key in _ALWAYS if key in attributes}
    units = attributes.get("units")
    if isinstance(units, str) and " since " in units:
        picked.update({key: attributes[key] for key in ("units", "calendar") if key in attributes})
    return picked


def same_value(a: object, b: object, /) -> bool:
    """Tell whether two attribute values mean the same; NaN is NaN, and one that is absent (``None``) is not 0.

    >>> same_value(np.float32(0.5), 0.5), same_value(None, 0)
    (True, False)
    """
    if a is None or b is None:
        return a is b
    x, y = np.asarray(a), np.asarray(b)
    if x.shape != y.shape:
        return False
    both_nan = (x != x) & (y != y)
    return bool(((x == y) | both_nan).all())
