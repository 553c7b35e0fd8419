"""Keys of fields as eccodes gives them, asked for once for all fields that share what they depend on."""

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
"""The value of keys that a field does not have, as cfgrib writes it."""

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
    | {"number", "stepType", "subCentre", "paramId", "typeOfLevel", QUALIFIER, TRIPLET}
)
# Keys of what is neither a time nor a level
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
    """What has keys, and raises for those that it does not have."""

    def __getitem__(self, name: str, /) -> Any:
        """Give the value of a key."""


class Asking:
    """Asks for keys of the fields of a file, one after the other.

    Parameters
    ----------
    names
        Of keys in eccodes' and cfgrib's words, such as ``"level:float"``. Times that stand in the header are not asked
        for.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._open: dict[bytes, _Message] = {}

    def field_keys(self, field: Field, header: GribHeader, stub: bytes, /) -> tuple[Any, ...]:
        """Give the values of keys.

        Parameters
        ----------
        field, header, stub
            The field, what tells it apart, and a message of it without data; equal headers have equal values.

        Returns
        -------
        tuple
            One value a name: text, numbers, or tuples of them; `UNDEFINED` where the field has no such key.
        """
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
        """Ask for the keys of the parts of a header; for none where eccodes does not find all sections."""
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
        """Ask for the keys of a part; of a message that is open already, where only the parameter is another one."""
        if part.parameter is not None:
            found = self._open.get(part.parameter.others)
            if found is not None and found.write(part.parameter):
                message = found
            elif len(self._open) < _MAX_OPEN_MESSAGES:
                self._open[part.parameter.others] = message
        return {name: message.scalar(name) for name in part.names}


def cfgrib_field(stub: bytes, /) -> Any:
    """Return what cfgrib takes for a field: keys of eccodes, and those that cfgrib makes of them.

    Coordinates are computed in a child process: keys of these raise `LibraryError` or `ChildDiedError`, too.
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
    """A message that eccodes takes apart, and cfgrib's view of it, once they are needed, as that takes time."""

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
        """Ask for a key of one value: cfgrib asks how many there are first."""
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
        handle = self._handle  # what cannot be opened has no keys
        from_grib_step = import_cfgrib("cfmessage").from_grib_step
        # minutes that are no whole hours have no step at first; eccodes then counts in minutes, and cfgrib asks twice
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
        """Give cfgrib's view."""
        if self._field is None:
            self._field = cfgrib_field(self._stub)
        return self._field

    def write(self, parameter: Parameter) -> bool:
        """Make it a message of another parameter; whether it is one now, and no other byte has changed."""
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


def ask(field: SupportsItem, name: str, /) -> Any:
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


def name_text(value: Any, /) -> str:
    """Give what stands for a value in a name."""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).replace("/", "_")
