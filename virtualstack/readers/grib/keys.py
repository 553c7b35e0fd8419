"""Keys of fields as eccodes gives them, asked for once for all fields that share a header."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from virtualstack.codecs.grib.library import cfgrib_of, eccodes_of
from virtualstack.readers.grib.headers import Header
from virtualstack.readers.grib.messages import Field

__all__ = ["OF_VALUES", "TRIPLET", "UNDEFINED", "ask", "field_of", "keys_of"]

UNDEFINED = "undef"
"""The value of keys that a field does not have, as cfgrib writes it."""

TRIPLET = "virtualstack:parameter"
"""A key of ours: discipline, category and number of GRIB 2, or table and number of GRIB 1."""

OF_VALUES = frozenset(
    {
        "average",
        "avg",
        "bitmap",
        "bitsPerValue",
        "codedValues",
        "const",
        "isConstant",
        "kurtosis",
        "latLonValues",
        "max",
    }
    | {"maximum", "md5Data", "md5Section6", "md5Section7", "md5Headers", "min", "minimum", "numberOfCodedValues"}
    | {"numberOfMissing", "packingError", "skewness", "standardDeviation", "sd", "totalLength", "values"}
    | {"bitmapPresent", "referenceValue", "binaryScaleFactor", "decimalScaleFactor", "numberOfValues"}
    | {"referenceValueError", "packingType", "missingValuesPresent", "unpackedValues", "data", "offset"}
)
"""Keys that are of values, or of how they are packed, which differs from field to field and is in no header of ours."""

_TRIPLET_2 = ["discipline", "parameterCategory", "parameterNumber"]
_GRID = ("gridType", "md5GridSection", "numberOfPoints", "uvRelativeToGrid")
_SCALARS = frozenset(
    {"centre", "centreDescription", "dataType", "directionNumber", "edition", "frequencyNumber", "level:float"}
    | {"number", "stepType", "subCentre", "typeOfLevel"}
)
_MOST, _MOST_PARTS = 1 << 16, 1 << 10
_PARTS: OrderedDict[tuple[int, bytes], dict[str, Any]] = OrderedDict()
_CACHE: OrderedDict[tuple[tuple[str, ...], bytes], tuple[Any, ...]] = OrderedDict()
_LOCK = threading.Lock()


def keys_of(field: Field, header: Header, names: tuple[str, ...], /) -> tuple[Any, ...]:
    """Give the values of keys.

    Parameters
    ----------
    field, header
        The field, and what tells it apart; equal headers have equal values.
    names
        Of keys in eccodes' and cfgrib's words, such as ``"level:float"``. Times that stand in the header are not asked
        for.

    Returns
    -------
    tuple
        One value a name: text, numbers, or tuples of them; `UNDEFINED` where the field has no such key.
    """
    with _LOCK:
        found = _CACHE.get((names, header.key))
    if found is None:
        found = _asked(field, header, names)
        with _LOCK:
            _CACHE[names, header.key] = found
            while len(_CACHE) > _MOST:
                _CACHE.popitem(last=False)
    return found


def field_of(stub: bytes, /) -> Any:
    """Give what cfgrib takes for a field: keys of eccodes, and those that cfgrib makes of them."""
    eccodes = eccodes_of()
    return cfgrib_of("cfmessage").CfMessage(eccodes.codes_new_from_message(stub), errors="ignore")


class _Message:
    """A message that eccodes has taken apart; cfgrib's view of it is made where it is needed, as that takes time."""

    def __init__(self, stub: bytes) -> None:
        self._eccodes = eccodes_of()
        self._field: Any = None
        self._stub = stub
        self.handle = self._eccodes.codes_new_from_message(stub)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._eccodes.codes_release(self.handle)

    def __getitem__(self, name: str) -> Any:
        key, _, kind = name.partition(":")
        try:
            return self._eccodes.codes_get(self.handle, key, int if kind == "int" else float if kind else None)
        except self._eccodes.KeyValueNotFoundError:
            raise KeyError(name) from None

    def field(self) -> Any:
        """Give cfgrib's view."""
        if self._field is None:
            self._field = field_of(self._stub)
        return self._field


def _asked(field: Field, header: Header, names: tuple[str, ...]) -> tuple[Any, ...]:
    message = _Message(field.stub())
    known: dict[str, Any] = {"stepUnits": 1}  # cfgrib counts in hours
    if header.time is not None:
        known["time"] = UNDEFINED
    known["step"] = _step(message) if header.step is None else UNDEFINED
    grid = field.sections[2] if field.edition == 2 else field.sections[1]
    if grid:
        known |= _shared(message, _GRID, (field.edition, grid))
    if "paramId" in names:
        known["paramId"] = _scalar(message, "paramId")
        if known["paramId"] != 0:
            known[TRIPLET] = UNDEFINED
    for name in names:
        if name not in known:
            known[name] = _scalar(message, name) if name in _SCALARS else ask(message.field(), name)
    return tuple(known[name] for name in names)


def _step(message: _Message) -> Any:
    try:
        return cfgrib_of("cfmessage").from_grib_step(message)
    except Exception:  # noqa: BLE001 - as in `ask`
        return UNDEFINED


def _shared(message: _Message, names: tuple[str, ...], part: tuple[int, bytes]) -> dict[str, Any]:
    """Ask for keys that depend on one section alone, once for all fields that have it."""
    with _LOCK:
        found = _PARTS.get(part)
    if found is None:
        found = {name: _scalar(message, name) for name in names}
        with _LOCK:
            _PARTS[part] = found
            while len(_PARTS) > _MOST_PARTS:
                _PARTS.popitem(last=False)
    return found


def _scalar(message: _Message, name: str) -> Any:
    """Ask for a key of one value: cfgrib asks how many there are first."""
    try:
        return message[name]
    except (KeyError, eccodes_of().CodesInternalError):
        return UNDEFINED


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
