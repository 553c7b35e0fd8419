"""Packed numbers to the values that the CF conventions mean, as xarray decodes them: one elementwise codec.

The steps and their order are the same as in xarray: signed and unsigned, missing values, scale and offset, times,
booleans. Each step depends only on the stored dtype and on attributes, never on the values. So each chunk can be
decoded alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.cf_times import (
    DURATIONS,
    check_calendar,
    datetime_units,
    decode_datetimes,
    decode_timedeltas,
    timedelta_dtype,
)
from virtualstack.codecs.codec import Codec, shortened
from virtualstack.errors import ManifestError

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_PYTHON = "python"


def attributes_to_json(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Convert attributes to JSON: text stays text, and numbers are written with their dtype.

    >>> attributes_to_json({"units": "K", "_FillValue": np.int16(-1), "missing_value": np.array([1.5, np.nan], "f4")})
    {'units': 'K', '_FillValue': {'int16': -1}, 'missing_value': {'float32': [1.5, 'NaN']}}
    """
    return {name: _to_json(name, value) for name, value in attributes.items()}


def _to_json(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        return {_PYTHON: _finite(value)}
    array = np.asarray(value)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8 or array.ndim > 1:
        raise ValueError(f"attribute '{name}' is {value!r}; expected text, numbers or a row of numbers")
    if isinstance(value, list):
        return {_PYTHON: [_finite(x) for x in array.tolist()]}
    numbers = array.tolist()
    return {array.dtype.name: [_finite(x) for x in numbers] if array.ndim else _finite(numbers)}


def _finite(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def attributes_from_json(data: Mapping[str, Any], /) -> dict[str, Any]:
    """Read attributes that :func:`attributes_to_json` has written.

    >>> attributes_from_json({"units": "K", "_FillValue": {"int16": -1}})
    {'units': 'K', '_FillValue': np.int16(-1)}
    """
    return {name: _from_json(name, value) for name, value in data.items()}


def _from_json(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value
    try:
        if not isinstance(value, Mapping) or len(value) != 1:
            raise ValueError("it is neither text nor an object with one member")
        ((kind, coded),) = value.items()
        numbers = [_number_from_json(x) for x in coded] if isinstance(coded, list) else _number_from_json(coded)
        if kind == _PYTHON:
            return numbers
        dtype = np.dtype(kind)
        if dtype.kind not in "iuf":
            raise ValueError(f"dtype '{dtype}' is not a dtype of numbers")
        array = np.array(numbers, dtype)
        return array if array.ndim else array[()]
    except (ValueError, TypeError, KeyError, OverflowError, SyntaxError) as error:  # numpy parses odd dtypes
        raise ValueError(f"attribute '{name}' is written as {value!r} in the metadata of a codec: {error}") from error


def _number_from_json(value: Any) -> Any:
    if isinstance(value, str):
        return _NON_FINITE[value]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return value


CF = "virtualstack.cf"
"""Name of the codec in zarr v3 metadata."""

NAT = np.iinfo(np.int64).min
"""Integer that is a missing time."""


def cf_codec(stored: np.dtype[Any], attributes: Mapping[str, Any], /) -> Codec:
    """Return the metadata of the codec that unpacks numbers of a dtype, byte order included, by some attributes."""
    return Codec.from_config(CF, data_type=stored.str, attributes=attributes_to_json(attributes))


@lru_cache(maxsize=4096)
def parse_packing(codec: Codec, /) -> Packing:
    """Read the metadata of the codec."""
    options = codec.options()
    stored, attributes = options.get("data_type"), options.get("attributes")
    if not isinstance(stored, str) or not isinstance(attributes, dict) or len(options) > 2:
        raise ManifestError(
            f"codec '{CF}' is configured with 'data_type' and 'attributes', not {shortened(codec.configuration)}"
        )
    try:
        dtype = np.dtype(stored)
    except (TypeError, ValueError, SyntaxError) as error:
        raise ManifestError(
            f"codec '{CF}' has data_type {shortened(repr(stored))}; expected a numpy dtype such as '<i2'"
        ) from error
    try:
        return Packing.from_attributes(dtype, attributes_from_json(attributes))
    except (ValueError, TypeError, KeyError, OverflowError) as error:  # an attribute has an unexpected type
        raise ManifestError(f"attributes {shortened(attributes)} do not unpack '{dtype}': {error}") from error


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Packing:
    """How stored numbers become decoded values.

    Parameters
    ----------
    stored
        Dtype of the packed numbers, byte order included.
    attributes
        Attributes that describe the packing.
    dtype
        Dtype of the decoded values, in native byte order.
    unsigned
        Integer dtype as which stored numbers are read, or ``None``.
    fills
        Stored numbers that are missing values.
    masked, missing
        Dtype that can hold missing values, and the value that marks a missing one; ``None`` if no values are masked.
    scaled, scale, offset
        Dtype in which values are scaled, scale and offset; ``None`` if absent.
    units, calendar
        Units and calendar of dates and durations, or ``None``.
    """

    stored: np.dtype[Any]
    attributes: Mapping[str, Any]
    dtype: np.dtype[Any]
    unsigned: np.dtype[Any] | None
    fills: tuple[Any, ...]
    masked: np.dtype[Any] | None
    missing: Any
    scaled: np.dtype[Any] | None
    scale: Any
    offset: Any
    units: str | None
    calendar: str | None

    @classmethod
    def from_attributes(cls, stored: np.dtype[Any], attributes: Mapping[str, Any], /) -> Packing:
        """Find the steps by the rules of xarray (2026.9, ``coding/variables.py`` and ``coding/times.py``)."""
        if stored.kind not in "iuf" or stored.itemsize > 8:
            raise ValueError(f"values of dtype '{stored}' are not packed numbers")
        native = stored.newbyteorder("=")
        kept, fills = _fills(attributes, native)
        unsigned = _unsigned(attributes, native)
        if unsigned is not None and "_FillValue" in kept:
            own = kept["_FillValue"]
            fills.pop(own)
            fills[np.array(own, native).view(unsigned).item() if unsigned.kind == "u" else unsigned.type(own)] = None
        dtype = unsigned or native
        units = attributes.get("units")
        is_date = datetime_units(units)
        is_duration = units in DURATIONS and str(attributes.get("dtype")).startswith("timedelta64")
        masked, missing = None, None
        if fills:
            masked, missing = _masked(dtype, attributes, is_time=is_date or units in DURATIONS)
            dtype = masked
        scaled = None
        if "scale_factor" in attributes or "add_offset" in attributes:
            scaled = dtype if kept and not is_date and units not in DURATIONS else _float_dtype(dtype, attributes)
            dtype = scaled
        if is_date:
            check_calendar(attributes.get("calendar"))
            dtype = np.dtype("M8[ns]")
        elif is_duration:
            dtype = timedelta_dtype(str(units), attributes["dtype"], dtype)
        elif attributes.get("dtype") == "bool":
            dtype = np.dtype(np.bool_)
        return cls(
            stored=stored,
            attributes=dict(attributes),
            dtype=dtype,
            unsigned=unsigned,
            fills=tuple(fills),
            masked=masked,
            missing=missing,
            scaled=scaled,
            scale=_number(attributes.get("scale_factor")),
            offset=_number(attributes.get("add_offset")),
            units=units if is_date or is_duration else None,
            calendar=attributes.get("calendar") if is_date else None,
        )

    @property
    def is_identity(self) -> bool:
        """True if decoding does not change values."""
        return self.dtype == self.stored.newbyteorder("=") and self.masked is None and self.scaled is None

    def __call__(self, values: NDArray[Any], /) -> NDArray[Any]:
        """Decode values of any shape and byte order into a new array."""
        with np.errstate(all="ignore"):
            out = self.numbers(values)
            if self.dtype.kind == "M":
                return decode_datetimes(out, str(self.units), self.calendar)
            if self.dtype.kind == "m":
                return decode_timedeltas(out, str(self.units), self.dtype)
            return out.astype(self.dtype, copy=out is values)

    def numbers(self, values: NDArray[Any], /) -> NDArray[Any]:
        """Mask and scale values, the steps before times."""
        data = values if self.unsigned is None else np.asarray(values, self.unsigned)
        out = data
        if self.masked is not None:
            out = np.array(data, self.masked)
            # As in xarray, values are compared after the cast: a fill value that float32 cannot hold masks nothing.
            is_missing = out == self.fills[0]
            for fill in self.fills[1:]:
                is_missing |= out == fill
            np.putmask(out, is_missing, self.missing)
        if self.scaled is not None:
            out = out.astype(self.scaled, copy=out is data)
            if self.scale is not None:
                out *= self.scale
            if self.offset is not None:
                out += self.offset
        return out


def _fills(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> tuple[dict[str, Any], dict[Any, None]]:
    """Return the attributes of missing values that have an effect, and all their values once; NaN masks nothing."""
    kept: dict[str, Any] = {}
    fills: dict[Any, None] = {}
    for key in ("missing_value", "_FillValue"):
        if key not in attributes:
            continue
        found = [value for value in np.ravel(attributes[key]) if value == value]
        if found or dtype.kind not in "iu":
            kept[key] = attributes[key]
            for value in found:
                fills.setdefault(value)
    return kept, fills


def _unsigned(attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the other integer dtype of the same size if ``_Unsigned`` asks for it (netCDF best practices)."""
    wanted = {("i", "true"): "u", ("u", "false"): "i"}.get((dtype.kind, str(attributes.get("_Unsigned"))))
    return None if wanted is None else np.dtype(f"{wanted}{dtype.itemsize}")


def _masked(dtype: np.dtype[Any], attributes: Mapping[str, Any], *, is_time: bool) -> tuple[np.dtype[Any], Any]:
    """Return the dtype that can hold missing values, and the value that marks a missing one."""
    if "scale_factor" in attributes or "add_offset" in attributes:
        return _float_dtype(dtype, attributes), np.nan
    if is_time and dtype.kind in "iu":
        return np.dtype(np.int64), NAT
    if dtype.kind == "f":
        return dtype, np.nan
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64), np.nan


def _float_dtype(dtype: np.dtype[Any], attributes: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the dtype of scaled values.

    CF conventions 8.1 ask for a scale and an offset of one float dtype, which is then the dtype of the values.
    """
    scale, offset = (attributes.get(key) for key in ("scale_factor", "add_offset"))
    scale_dtype, offset_dtype = (np.dtype(type(x)) for x in (scale, offset))
    floats = (np.dtype(np.float32), np.dtype(np.float64))
    if scale is not None and offset is not None and scale_dtype == offset_dtype and scale_dtype in floats:
        return floats[1] if dtype.kind in "iu" and dtype.itemsize == 4 else scale_dtype
    if offset is not None:
        return floats[1]
    if scale_dtype.kind not in "iuf":
        raise ValueError(f"scale_factor {scale!r} is not a single number")
    return scale_dtype


def _number(value: Any) -> Any:
    return np.asarray(value).item() if np.ndim(value) else value
