"""Which attributes change what stored numbers mean, by the CF conventions and xarray's reading of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["value_changing"]

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
