"""Values of small virtual arrays, which are read when somebody asks for them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.cache import ByteCache
from virtualstack.codecs.cf_times import CODING_ERRORS, datetime_units
from virtualstack.errors import Remedy, VirtualValuesError
from virtualstack.manifests.cf import decoding_keys
from virtualstack.sizes import human_bytes

MAX_VALUES_BYTES = 1 << 24
"""Bytes of values up to which a virtual array is read when its values are needed."""

_NAT = np.iinfo(np.int64).min
"""The number that xarray writes and reads for a missing date."""

_MISSING = ("_FillValue", "missing_value")
_KEPT_BYTES = 1 << 26
_kept: ByteCache[tuple[object, NDArray[Any]]] = ByteCache(_KEPT_BYTES, lambda pair: int(pair[1].nbytes))


class _Array(Protocol):
    """A virtual array, whose module imports this one."""

    @property
    def nbytes(self) -> int: ...
    @property
    def name(self) -> str | None: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def cf(self) -> Mapping[str, Any]: ...


def values_of(array: _Array, what: str, /) -> NDArray[Any]:
    """Return all values of a small array, read-only."""
    packing = sorted(decoding_keys(array.cf) - ({*_MISSING} if array.dtype.kind == "f" else {"_Encoding"}))
    if packing:
        raise needs_values(array, f"{what}. Its numbers are packed by {packing}", Remedy("open with", unpack=True))
    values = numbers_of(array, what)
    return _decoded(values, {"_Encoding": array.cf["_Encoding"]}) if array.cf and array.dtype.kind == "S" else values


def decoded_values(array: _Array, what: str, /) -> NDArray[Any]:
    """Return all values of a small array as xarray decodes them."""
    numbers = numbers_of(array, what)
    try:
        return _decoded(numbers, {key: array.cf[key] for key in decoding_keys(array.cf)})
    except CODING_ERRORS as error:
        raise needs_values(array, f"{what}. It cannot be decoded: {error}") from error


def numbers_of(array: _Array, what: str, /) -> NDArray[Any]:
    """Return the stored numbers of a small array, read-only; missing floats are NaN.

    xarray compares an array and asks which of its values are missing, so they are kept for some time.
    """
    if array.nbytes > MAX_VALUES_BYTES:
        raise needs_values(array, f"{what}. It has {human_bytes(array.nbytes)}, more than is read unasked")

    def read() -> tuple[object, NDArray[Any]]:
        reading = importlib.import_module("virtualstack.reading")  # a layer above; it uses the access of the array
        values = reading.read_array(array, ())
        if values.dtype.kind in "fT":
            values = values.astype(object) if values.dtype.kind == "T" else _decoded(values, _missing(array))
        values.flags.writeable = False
        return array, values  # with the array, so that no other one gets its id

    return _kept.get(id(array), read)[1]


def missing_in(array: _Array, what: str, /) -> NDArray[np.bool_]:
    """Return which values of a small array are missing: by its attributes, or because they are NaN or NaT."""
    numbers = numbers_of(array, what)
    missing = np.asarray(pd.isnull(_decoded(numbers, _missing(array))))
    is_date = numbers.dtype == np.int64 and datetime_units(array.cf.get("units"))
    return missing | (numbers == _NAT) if is_date else missing


def check_not_dates(array: _Array, /) -> None:
    """Refuse numbers computed from stored dates: xarray keeps the attributes, which would make dates of them."""
    if datetime_units(array.cf.get("units")):
        what = "which of its dates are missing is asked for. The numbers would keep its units"
        raise needs_values(array, what, Remedy("open with", unpack=True))


def _missing(array: _Array) -> dict[str, Any]:
    return {key: array.cf[key] for key in (*_MISSING, "_Unsigned") if key in array.cf}


def _decoded(values: NDArray[Any], attributes: dict[str, Any]) -> NDArray[Any]:
    raw = xr.Variable(tuple(map(str, range(values.ndim))), values, attributes, fastpath=True)
    is_text = "_Encoding" in attributes  # the decoding of text, called in vain, would import dask.array
    return np.asarray(conventions.decode_cf_variable("v", raw, stack_char_dim=False, concat_characters=is_text).values)


def plain_name(array: _Array, /) -> str:
    """Return the name without that of the group, as options of opening take it."""
    return (array.name or "...").rpartition("/")[2]


def needs_values(array: _Array, what: str, /, *more: Remedy) -> VirtualValuesError:
    """Return the error for a virtual array whose values are not read."""
    return VirtualValuesError(
        f"variable '{array.name}' is virtual: {what}",
        Remedy("use {} for a lazy dataset with values", "vds.virtual.open()"),
        Remedy("open with", loadable_variables=[plain_name(array)]),
        *more,
    )


class NotWrittenError(VirtualValuesError, AttributeError):
    """The array has no ``chunks`` of xarray: it is an `AttributeError` for who looks, and a reason for who needs them.

    xarray asks for them before it creates the file of ``to_netcdf``.
    """
