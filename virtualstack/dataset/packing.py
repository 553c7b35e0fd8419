"""Conversion of values to the stored numbers of an array, encoded as in xarray and checked to read back unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.codecs.cf_times import quiet
from virtualstack.errors import Remedy, WriterError
from virtualstack.manifests import ManifestArray

_TEXT_KINDS = "STUO"


def stored_values(array: ManifestArray, values: NDArray[Any], /, *, raw: bool = False) -> NDArray[Any]:
    """Return values in the dtype of an array, packed by its attributes.

    Packed numbers are rounded to the nearest number that the packing can express, and floats to the precision of the
    array. All other values must read back unchanged.
    """
    dims = tuple(f"dim_{i}" for i in range(values.ndim))
    if raw or not array.cf:
        stored = _cast(array, values)
        _check(array, values, stored, 0.0)
        return stored
    encoding = {**array.cf, **({} if array.dtype.kind in _TEXT_KINDS else {"dtype": array.dtype})}
    try:
        with quiet():
            made = conventions.encode_cf_variable(
                xr.Variable(dims, _fine(array, values), {}, encoding), name=array.name
            )
            stored = _cast(array, np.asarray(made.values))
            read = conventions.decode_cf_variable(
                array.name, xr.Variable(dims, stored, dict(array.cf)), stack_char_dim=False
            ).values
    except (ValueError, TypeError, OverflowError, NotImplementedError, KeyError) as error:
        raise WriterError(
            f"values cannot be stored in variable '{array.name}' of dtype '{array.dtype}' with "
            f"{dict(array.cf)}: {error}",
            Remedy("give values as they are read"),
            Remedy("give stored numbers with", raw=True),
            variable=array.name,
            feature="values",
        ) from error
    is_packed = array.cf.keys() & {"scale_factor", "add_offset"}
    scale = float(np.ravel(array.cf.get("scale_factor", 1))[0]) if is_packed and array.dtype.kind in "iu" else 0.0
    _check(array, values, read, abs(scale) / 2)
    return stored


def _fine(array: ManifestArray, values: NDArray[Any]) -> NDArray[Any]:
    """Return times as nanoseconds if the array counts nanoseconds, and integers as floats if they must be packed.

    xarray turns coarser times into NaT, and it divides integers in place.
    """
    if values.dtype.kind in "iu" and array.cf.keys() & {"scale_factor", "add_offset"}:
        return values.astype("f8")
    if values.dtype.kind != "M" or not str(array.cf.get("units", "")).startswith("nanosecond"):
        return values
    fine = values.astype("M8[ns]")
    return fine if bool(((fine.astype(values.dtype) == values) | np.isnat(values)).all()) else values


def _cast(array: ManifestArray, values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype == array.dtype:
        return values
    kinds = values.dtype.kind + array.dtype.kind
    is_text = kinds[0] in _TEXT_KINDS and kinds[1] in _TEXT_KINDS
    if not is_text and not (set(kinds) <= set("biufc") and (kinds[1] == "b") <= (kinds[0] == "b")):
        raise WriterError(
            f"values of dtype '{values.dtype}' cannot be stored in variable '{array.name}' of dtype '{array.dtype}'",
            variable=array.name,
            feature="dtype",
        )
    try:
        with np.errstate(all="ignore"), quiet():
            return values.astype(array.dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise WriterError(
            f"values of dtype '{values.dtype}' cannot be stored in variable '{array.name}' of dtype "
            f"'{array.dtype}': {error}",
            variable=array.name,
            feature="dtype",
        ) from error


def _check(array: ManifestArray, values: NDArray[Any], read: NDArray[Any], tolerance: float) -> None:
    """Check that values read back unchanged, except for rounding."""
    same = _same(values, read, tolerance, array.dtype)
    if same.all():
        return
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    holds = ""
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        holds = f", which can store numbers from {limits.min} to {limits.max}"
    raise WriterError(
        f"{int(np.count_nonzero(~same))} of {same.size} values cannot be stored in variable '{array.name}' of "
        f"dtype '{array.dtype}' with {dict(array.cf)}{holds}: {values[at]!r} at {at} would read as "
        f"{read[at]!r}",
        Remedy("write values that it can store"),
        Remedy("replace the variable by one of another dtype with", "vds.virtual.to_vstack(..., mode='w')"),
        variable=array.name,
        feature="values",
    )


def _same(a: NDArray[Any], b: NDArray[Any], tolerance: float, dtype: np.dtype[Any]) -> NDArray[np.bool_]:
    if a.dtype.kind in "iufc" and b.dtype.kind in "iufc":
        if dtype.kind not in "fc" and not tolerance:
            return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))
        rounding = float(np.finfo(dtype if dtype.kind in "fc" else np.float32).eps)
        with np.errstate(all="ignore"):
            return np.asarray(np.isclose(b, a, rounding, tolerance * (1 + 1e-6), equal_nan=True))
    if a.dtype.kind in "mM" or b.dtype.kind in "mM":
        if a.dtype.kind != b.dtype.kind:
            return np.zeros(a.shape, np.bool_)
        return np.asarray((a == b) | (np.isnat(a) & np.isnat(b)))
    if a.dtype.kind in _TEXT_KINDS or b.dtype.kind in _TEXT_KINDS:
        x, y = a.astype(object), b.astype(object)
        try:
            return np.asarray((x == y) | (np.asarray(pd.isnull(x)) & np.asarray(pd.isnull(y))), np.bool_)
        except TypeError:  # dates of two calendars
            return np.zeros(a.shape, np.bool_)
    return np.asarray(a == b, np.bool_)
