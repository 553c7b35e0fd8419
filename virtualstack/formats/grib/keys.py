"""Read keys of fields with eccodes, once for all fields whose keys must have the same values."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.cache import ByteCache, each
from virtualstack.child.pool import run_in_child
from virtualstack.codecs.grib.library import import_cfgrib, import_eccodes, message_owner
from virtualstack.formats.grib.headers import (
    PARAMETER_KEYS,
    QUALIFIER,
    STEP,
    TRIPLET,
    WHOLE,
    GribHeader,
    HeaderPart,
    Parameter,
    header_parts,
)
from virtualstack.formats.grib.messages import Field

__all__ = ["OF_VALUES", "QUALIFIER", "TRIPLET", "UNDEFINED", "Asking", "ask", "cfgrib_field", "name_text"]

UNDEFINED = "undef"
"""Value of a key that a field does not have, as cfgrib writes it."""

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
"""Keys of values, or of their packing. They differ from field to field, and no header here contains them."""

_TRIPLET_2 = ["discipline", "parameterCategory", "parameterNumber"]
_GRID = ("gridType", "md5GridSection", "numberOfPoints", "uvRelativeToGrid")
_SCALARS = frozenset(
    {"centre", "centreDescription", "dataType", "directionNumber", "edition", "frequencyNumber", "level:float"}
    | {"number", "stepType", "subCentre", "paramId", "typeOfLevel", QUALIFIER, TRIPLET}
)
# Keys that are neither times nor levels
_QUALIFIERS = {
    "percentile": ("percentileValue",),
    "probability": ("probabilityType", "lowerLimit", "upperLimit"),
    "derived": ("derivedForecast",),
}

_COORDINATES = ("latitudes", "longitudes", "distinctLatitudes", "distinctLongitudes")

_MAX_CACHED_HEADERS, _MAX_CACHED_PARTS, _MAX_OPEN_MESSAGES = 1 << 16, 1 << 16, 64


_HEADERS: ByteCache[tuple[Any, ...]] = ByteCache(_MAX_CACHED_HEADERS, each)
_PARTS: ByteCache[dict[str, Any]] = ByteCache(_MAX_CACHED_PARTS, each)


class SupportsItem(Protocol):
    """An object that has keys, and raises an error for a key that it does not have."""

    def __getitem__(self, name: str, /) -> Any:
        """Return the value of a key."""


class Asking:
    """Reader of the keys of the fields of a file, one field after another."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._open: dict[bytes, _Message] = {}

    def field_keys(self, field: Field, header: GribHeader, stub: bytes, /) -> tuple[Any, ...]:
        """Return the values of the keys of a field."""
        return _HEADERS.get((self._names, header.key), lambda: self._asked(field, header, stub))

    def _asked(self, field: Field, header: GribHeader, stub: bytes) -> tuple[Any, ...]:
        message = _Message(stub)
        known: dict[str, Any] = {"stepUnits": 1}  # cfgrib counts in hours
        if header.time is not None:
            known["time"] = UNDEFINED
        if header.step is not None:
            known[STEP] = UNDEFINED
        known |= self._of_parts(field, header, message)
        if STEP not in known:
            known[STEP] = message.scalar(STEP)
        for name in self._names:
            if name not in known:
                known[name] = message.scalar(name) if name in _SCALARS else ask(message.field(), name)
        return tuple(known[name] for name in self._names)

    def _of_parts(self, field: Field, header: GribHeader, message: _Message) -> dict[str, Any]:
        """Return the keys of the parts of a header; an empty dict if eccodes does not find all sections."""
        known: dict[str, Any] = {}
        for part in header_parts(field, header):
            known |= _PARTS.get(part.key, lambda part=part: self._of_part(part, message))  # type: ignore[misc]
            if not known[WHOLE]:
                return {}
        grid = field.sections[2] if field.edition == 2 else field.sections[1]
        if grid and not field.form and (known or message.scalar(WHOLE)):
            known |= _PARTS.get((field.edition, grid), lambda: {name: message.scalar(name) for name in _GRID})
        return known

    def _of_part(self, part: HeaderPart, message: _Message) -> dict[str, Any]:
        """Read the keys of a part, from a message that is open already if only its parameter differs."""
        if part.parameter is not None:
            found = self._open.get(part.parameter.others)
            if found is not None and found.write(part.parameter):
                message = found
            elif len(self._open) < _MAX_OPEN_MESSAGES:
                self._open[part.parameter.others] = message
        return {name: message.scalar(name) for name in part.names}


def cfgrib_field(stub: bytes, /) -> Any:
    """Return a field as cfgrib sees it: the keys of eccodes, and the keys that cfgrib computes.

    Coordinates are computed in a child process, so their keys may also raise `LibraryError` or `ChildDiedError`.
    """
    messages = import_cfgrib("cfmessage")
    computed = messages.COMPUTED_KEYS | {key: (functools.partial(_coordinates, key), None) for key in _COORDINATES}
    handle = import_eccodes().codes_new_from_message(stub)
    return messages.CfMessage(handle, errors="ignore", computed_keys=computed)


def _coordinates(key: str, field: Any) -> NDArray[np.float64]:
    message = import_eccodes().codes_get_message(field.codes_id)
    found: NDArray[np.float64] | None = run_in_child("virtualstack.codecs.grib.child:coordinates", message, key)
    if found is None:
        raise KeyError(key)
    return found


class _Message:
    """A message that eccodes parses, and cfgrib's view of it. Both are slow to make, and are made on first use."""

    def __init__(self, stub: bytes) -> None:
        self._eccodes = import_eccodes()
        self._field: Any = None
        self._stub = stub
        self._opened: Any = None
        self._owner: Any = None

    @property
    def _handle(self) -> Any:
        if self._opened is None:
            self._opened = self._eccodes.codes_new_from_message(self._stub)
            self._owner = message_owner(self._opened)
        return self._opened

    def __getitem__(self, name: str) -> Any:
        key, _, kind = name.partition(":")
        try:
            return self._eccodes.codes_get(self._handle, key, int if kind == "int" else float if kind else None)
        except self._eccodes.KeyValueNotFoundError:
            raise KeyError(name) from None

    def scalar(self, name: str) -> Any:
        """Return the value of a key that has one value. cfgrib would first ask eccodes for the number of values."""
        if name == STEP:
            return self._step()
        if name == QUALIFIER:
            return self._qualifier()
        if name == WHOLE:
            return self.scalar("7777") == "7777"
        if name == TRIPLET:
            return ask(self, TRIPLET) if self.scalar("paramId") == 0 else UNDEFINED
        try:
            return self[name]
        except (KeyError, self._eccodes.CodesInternalError):
            return UNDEFINED

    def _step(self) -> Any:
        handle = self._handle  # a message that eccodes cannot open has no keys
        from_grib_step = import_cfgrib("cfmessage").from_grib_step
        # minutes that are not whole hours have no step at first; eccodes then counts in minutes, so cfgrib asks twice
        for _ in range(2):
            try:
                return from_grib_step(self) if handle is not None else UNDEFINED
            except Exception:  # noqa: BLE001 - as in `ask`
                continue
        return UNDEFINED

    def _qualifier(self) -> str:
        if self._stub[7] == 2:
            for name, keys in _QUALIFIERS.items():
                if self.scalar(keys[0]) != UNDEFINED:
                    return "_".join([name, *(name_text(ask(self.field(), key)) for key in keys)])
        return ""

    def field(self) -> Any:
        """Return cfgrib's view of the message."""
        if self._field is None:
            self._field = cfgrib_field(self._stub)
        return self._field

    def write(self, parameter: Parameter) -> bool:
        """Write another parameter into the message; return whether the parameter, and no other byte, has changed."""
        discipline, *place = parameter.values
        stub = bytearray(self._stub)
        stub[6], stub[parameter.at : parameter.at + len(place)] = discipline, bytes(place)
        self._stub, self._field = bytes(stub), None
        try:
            for key, value in zip(PARAMETER_KEYS, parameter.values, strict=True):
                self._eccodes.codes_set_long(self._handle, key, value)
            return bool(self._eccodes.codes_get_message(self._handle) == self._stub)
        except self._eccodes.CodesInternalError:
            return False


def _plain_bytes(field: SupportsItem, name: str) -> str | None:
    """Return a key that is bytes, such as ``section2Padding``, in hexadecimal; ``None`` if it is of another type.

    eccodes writes the text of such a key beyond its memory.
    """
    message = getattr(field, "codes_id", None)
    eccodes = import_eccodes()
    try:
        is_bytes = message is not None and eccodes.codes_get_native_type(message, name.partition(":")[0]) is bytes
    except eccodes.CodesInternalError:  # a key that cfgrib computes
        return None
    if not is_bytes:
        return None
    begin = eccodes.codes_get_offset(message, name)
    return bytes(eccodes.codes_get_message(message)[begin : begin + eccodes.codes_get_size(message, name)]).hex()


def ask(field: SupportsItem, name: str, /) -> Any:
    """Return a key as cfgrib's index does: a key that does not have the wanted type is returned with its own type."""
    if name == TRIPLET:
        is_old = ask(field, "edition") == 1
        keys = ["table2Version", "indicatorOfParameter"] if is_old else _TRIPLET_2
        return tuple(ask(field, f"{key}:int") for key in keys)
    try:
        if (data := _plain_bytes(field, name)) is not None:
            return data
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


def name_text(value: Any, /) -> str:
    """Return the text that represents a value in a name."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).replace("/", "_")
