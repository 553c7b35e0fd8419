"""Stored numbers that read as a missing value, or as some other, once attributes have unpacked them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray import conventions

from virtualstack.codecs.cf_times import quiet
from virtualstack.manifests.encoding import Fill

__all__ = ["reads_as", "stored_number"]

_INT64_NAT = np.iinfo(np.int64).min


def stored_number(dtype: np.dtype[Any], cf: Mapping[str, Any], value: Any = None, /) -> Fill | None:
    """Return a number of a dtype that attributes unpack to a value, or to a missing one; ``None`` where none is known.

    Parameters
    ----------
    dtype
        Of the numbers that are stored.
    cf
        Attributes that say how they are packed.
    value
        Once decoded: a number or a time; ``None`` is a missing value.

    >>> stored_number(np.dtype("i2"), {"_FillValue": np.int16(-9), "scale_factor": 0.5}).value
    np.int16(-9)
    >>> stored_number(np.dtype("i2"), {"scale_factor": 0.5}, 2.0).value
    np.int16(4)
    """
    key = tuple((k, _frozen(v)) for k, v in sorted(cf.items()))
    return _stored(dtype, key, _Attributes(cf), None if value is None else _plain(value))


def reads_as(number: Any, cf: Mapping[str, Any], value: Any = None, /) -> bool:
    """Tell whether a stored number decodes to a value, or to a missing one; what xarray does not decode does not."""
    try:
        with quiet():
            decoded = conventions.decode_cf_variable("v", xr.Variable((), np.asarray(number), dict(cf))).values
    except (ValueError, TypeError, OverflowError, KeyError):
        return False
    return bool(pd.isnull(decoded)) if value is None else bool(decoded == value)


def _plain(fill_value: Any) -> Any:
    """Give one value in a form that is compared with decoded ones: a Python number, or a date of numpy or cftime."""
    if isinstance(fill_value, date) and getattr(fill_value, "tzinfo", None) is None:  # a datetime is one too
        return pd.Timestamp(fill_value).asm8
    if isinstance(fill_value, timedelta):
        return np.timedelta64(fill_value)
    value = np.asarray(fill_value)
    return value[()] if value.dtype.kind in "mM" else value.item()


class _Attributes(dict[str, Any]):
    """Attributes that do not count in a cache: they stand in its key in another form."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attributes)

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


def _frozen(value: object) -> object:
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes() if array.dtype.kind != "O" else repr(value)


@lru_cache(maxsize=1024)
def _stored(dtype: np.dtype[Any], key: object, attributes: _Attributes, wanted: Any) -> Fill | None:
    """Find a stored number that xarray decodes to a missing value, or to the one wanted."""
    for candidate in _candidates(dtype, attributes, wanted):
        if reads_as(candidate, attributes, wanted):
            return Fill(dtype, np.asarray(candidate, dtype).tobytes())
    return None


def _candidates(dtype: np.dtype[Any], attributes: Mapping[str, Any], wanted: Any) -> list[Any]:
    numbers: list[Any] = []
    if wanted is None:
        numbers = [x for key in ("_FillValue", "missing_value") for x in np.ravel(attributes.get(key, ()))]
        numbers += [np.nan] if dtype.kind == "f" else [_INT64_NAT] if dtype == np.int64 else []
    elif np.asarray(wanted).dtype.kind in "iufb":
        scale, offset = (float(np.ravel(attributes.get(k, d))[0]) for k, d in (("scale_factor", 1), ("add_offset", 0)))
        if scale:
            number = (float(wanted) - offset) / scale
            numbers = [int(np.rint(number)) if dtype.kind in "iu" and np.isfinite(number) else number]
    else:
        numbers = _encoded(dtype, attributes, wanted)
    found = []
    for number in numbers:
        value = np.asarray(number)
        if value.dtype.kind in "iu" and dtype.kind in "iu":  # as stored: 255 of an unsigned byte is -1
            size = 1 << (8 * dtype.itemsize)
            limits = np.iinfo(dtype)
            value = np.asarray(next((x for x in (int(value), int(value) - size) if limits.min <= x <= limits.max), 0))
        elif value.dtype.kind not in "iuf":
            continue
        with np.errstate(all="ignore"):
            found.append(value.astype(dtype)[()])
    return found


def _encoded(dtype: np.dtype[Any], attributes: Mapping[str, Any], wanted: Any) -> list[Any]:
    """Give what xarray writes for a date or a duration, if it can."""
    encoding = {key: value for key, value in attributes.items() if key != "dtype"}
    try:
        with quiet():
            variable = xr.Variable((), np.asarray(wanted), encoding={**encoding, "dtype": dtype})
            return [conventions.encode_cf_variable(variable, name="v").values[()]]
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError):
        return []
