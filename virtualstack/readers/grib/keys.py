"""Keys of fields as eccodes gives them, asked for once for all fields that share a header."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from virtualstack.codecs.grib.library import cfgrib_of, eccodes_of

__all__ = ["TRIPLET", "UNDEFINED", "ask", "field_of", "keys_of"]

UNDEFINED = "undef"
"""The value of keys that a field does not have, as cfgrib writes it."""

TRIPLET = "virtualstack:parameter"
"""A key of ours: discipline, category and number of GRIB 2, or table and number of GRIB 1."""

_TRIPLET_2 = ["discipline", "parameterCategory", "parameterNumber"]
_MOST = 1 << 16
_CACHE: OrderedDict[tuple[tuple[str, ...], bytes], tuple[Any, ...]] = OrderedDict()
_LOCK = threading.Lock()


def keys_of(stub: bytes, key: bytes, names: tuple[str, ...], /) -> tuple[Any, ...]:
    """Give the values of keys.

    Parameters
    ----------
    stub
        A message without data.
    key
        Of its header; equal ones have equal values.
    names
        Of keys in eccodes' and cfgrib's words, such as ``"level:float"``.

    Returns
    -------
    tuple
        One value a name: text, numbers, or tuples of them; `UNDEFINED` where the field has no such key.
    """
    with _LOCK:
        found = _CACHE.get((names, key))
    if found is None:
        found = _asked(field_of(stub), names)
        with _LOCK:
            _CACHE[names, key] = found
            while len(_CACHE) > _MOST:
                _CACHE.popitem(last=False)
    return found


def field_of(stub: bytes, /) -> Any:
    """Give what cfgrib takes for a field: keys of eccodes, and those that cfgrib makes of them."""
    eccodes = eccodes_of()
    return cfgrib_of("cfmessage").CfMessage(eccodes.codes_new_from_message(stub), errors="ignore")


def _asked(field: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(ask(field, name) for name in names)


def ask(field: Mapping[str, Any], name: str, /) -> Any:
    """Ask for a key as cfgrib's index does: one that has no such type is taken as it is."""
    if name == TRIPLET:
        is_old = ask(field, "edition") == 1
        keys = ["table2Version", "indicatorOfParameter"] if is_old else _TRIPLET_2
        return tuple(ask(field, f"{key}:int") for key in keys)
    try:
        try:
            value = field[name]
        except KeyError:
            if ":" not in name:
                raise
            value = field[name.partition(":")[0]]
    except Exception:  # noqa: BLE001 - eccodes has an exception for each of its error codes; all mean: not this key
        return UNDEFINED
    if isinstance(value, np.ndarray):
        value = value.tolist()
    return UNDEFINED if value is None else tuple(value) if isinstance(value, list) else value
