"""Detect that a user has called `.load()` or `.compute()` on a virtual variable, which xarray would ignore."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["is_loaded_by_user"]

_METHODS = frozenset({"load", "compute", "load_async"})
_STEPS = _METHODS | {"is_chunked_array", "to_duck_array", "async_to_duck_array"}


def is_loaded_by_user() -> bool:
    """Return whether xarray asks for an attribute because code outside xarray has called `.load()` or `.compute()`.

    xarray takes any duck array for an array in memory, and gives it no call in which it could load itself or refuse.
    But `Dataset.load` and `Variable.load` first ask each array whether it has ``chunks``. At that moment the array can
    raise an error. xarray also calls these methods on its own, for example to compare variables in `xarray.concat`. To
    raise then would break structural operations, so this function looks at the calling functions.
    """
    frame: FrameType | None = sys._getframe(2)
    is_load = False
    while frame is not None and frame.f_globals.get("__name__", "").startswith("xarray."):
        name = frame.f_code.co_name
        if name not in _STEPS:
            return False
        is_load = is_load or name in _METHODS
        frame = frame.f_back
    return is_load
