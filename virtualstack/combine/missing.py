"""What stands for a missing value in a virtual array: what reads as one after decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray import conventions

from virtualstack.codecs.cf_times import quiet
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError, ManifestError
from virtualstack.manifests import MISSING, ChunkAxis, ChunkGrid, ChunkManifest, Fill, ManifestArray

__all__ = ["missing_variable", "with_missing_value"]

_INT64_NAT = np.iinfo(np.int64).min


def with_missing_value(array: ManifestArray, fill_value: Any = None, /, *, name: str) -> tuple[ManifestArray, Fill]:
    """Find what reads as missing, and the array in a dtype that has a place for it, as xarray's own reindexing does.

    Numbers that attributes pack keep their dtype: the stored number that decodes to a missing value is looked for.
    Plain integers become floats, as with xarray.

    Parameters
    ----------
    array
        Virtual.
    fill_value
        Of values once they are decoded; a missing value (NaN, NaT) by default.
    name
        Of the variable, for messages.

    Raises
    ------
    CombineError
        No stored value reads as that.
    """
    dtype = array.dtype
    fill_value = _unless_missing(dtype, fill_value)
    if array.cf and dtype.kind in "iuf":
        return array, _packed(array, fill_value, name)
    if dtype.kind == "T" and fill_value is not None and not isinstance(fill_value, str):
        raise _no_missing_value(array, name, f"text cannot be filled with {fill_value!r}")
    if fill_value is not None:
        return _promoted(array, fill_value, name)
    if dtype.kind == "f":
        return array, Fill.of(np.nan, dtype)
    if dtype.kind == "c":
        return array, Fill.of(complex(np.nan, np.nan), dtype)
    if dtype.kind in "mM":
        return array, Fill.of(np.array("NaT", dtype)[()], dtype)
    if dtype.kind in "iu":
        wider = np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
        return array.astype(wider), Fill.of(np.nan, wider)
    raise _no_missing_value(array, name, f"dtype '{dtype}' has no missing value")


def _unless_missing(dtype: np.dtype[Any], fill_value: Any) -> Any:
    """Give ``None`` for what is a missing value to numbers and times, each of which has its own."""
    return None if dtype.kind in "iufcmM" and np.ndim(fill_value) == 0 and pd.isnull(fill_value) else fill_value


def _promoted(array: ManifestArray, fill_value: Any, name: str) -> tuple[ManifestArray, Fill]:
    """Take a dtype that holds both; a Python number is as narrow as numpy takes it to be."""
    if array.dtype.kind == "S" and not isinstance(fill_value, type(_no_text(array))):
        raise _no_missing_value(array, name, f"text cannot be filled with {fill_value!r}")
    try:
        if array.dtype.kind == "S":
            if isinstance(fill_value, str):
                fill_value = fill_value.encode(str(array.cf["_Encoding"]))
            declared = (x for key in ("_FillValue", "missing_value") for x in np.ravel(array.cf.get(key, ())).tolist())
            if any(fill_value == (x.encode() if isinstance(x, str) else x) for x in declared):
                raise ValueError("its attributes say that it is missing")
            array = array.astype(np.result_type(array.dtype, np.array(fill_value)))
        if array.dtype.kind in "biufc":
            array = array.astype(np.result_type(array.dtype, fill_value))
        return array, Fill.of(fill_value, array.dtype)
    except (ManifestError, TypeError, ValueError, OverflowError, LookupError) as error:
        raise _no_place(name, array.dtype, fill_value, error) from error


def _packed(array: ManifestArray, fill_value: Any, name: str) -> Fill:
    key = tuple((k, _frozen(v)) for k, v in sorted(array.cf.items()))
    found = _stored(array.dtype, key, _Attributes(array.cf), None if fill_value is None else _plain(fill_value))
    if found is None:
        what = "a missing value" if fill_value is None else repr(fill_value)
        packed = ", ".join(f"{key} = {array.cf[key]!r}" for key in sorted(array.cf))
        raise _no_missing_value(array, name, f"no stored '{array.dtype}' with {packed} is known to decode to {what}")
    return found


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
        variable = xr.Variable((), np.asarray(candidate), dict(attributes))
        try:
            with quiet():
                decoded = conventions.decode_cf_variable("v", variable).values
        except (ValueError, TypeError, OverflowError, KeyError):
            continue
        if bool(pd.isnull(decoded)) if wanted is None else bool(decoded == wanted):
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


def _no_text(array: ManifestArray) -> str | bytes:
    """Give an empty text as xarray reads it."""
    return "" if "_Encoding" in array.cf else b""


def _no_missing_value(array: ManifestArray, name: str, why: str) -> CombineError:
    value, or_else = "...", ", or open the files with unpack=True, which decodes numbers"
    if array.dtype.kind in "ST":
        value, or_else = "''" if array.dtype.kind == "T" else repr(_no_text(array)), ""
    elif array.dtype.kind == "b" or array.cf.get("dtype") == "bool":
        value, or_else = "False", f", or load it with loadable_variables=[..., '{name}']"
    return CombineError(
        f"variable '{name}' has elements to be filled in, but {why}; give fill_value={{'{name}': {value}}}, of "
        f"open_virtual_mfdataset in combine_options={{'fill_value': ...}}{or_else}",
        variable=name,
        property="fill_value",
        left=array.dtype,
        left_url=array.a_url(),
    )


def missing_variable(name: str, like: xr.Variable, sizes: Mapping[str, int], fill_value: Any, /) -> xr.Variable:
    """Make a variable of other sizes whose values are missing, in the dtype that xarray takes for them.

    Parameters
    ----------
    name, like
        What it stands for; a virtual one is MISSING, in chunks of as many elements.
    sizes
        Of its dimensions; of one that holds values, there is at least one.
    fill_value
        A missing value for ``None``.

    Raises
    ------
    CombineError
        A virtual variable has no missing value, or a loaded one no place for the value that is given.
    """
    array = virtual_array(like)
    if array is None:
        return _loaded(name, like, sizes, fill_value)
    array, fill = with_missing_value(array, fill_value, name=name)
    data = _hole(array, [sizes[str(dim)] for dim in like.dims], fill)
    return xr.Variable(like.dims, data, like.attrs, like.encoding)


def _hole(like: ManifestArray, shape: Sequence[int], fill: Fill) -> ManifestArray:
    axes = (
        axis if axis.length == n else ChunkAxis.regular(n, axis.chunk or max(n, 1))
        for axis, n in zip(like.grid.axes, shape, strict=True)
    )
    grid = ChunkGrid(tuple(axes))
    manifest = ChunkManifest.empty(grid.shape, fill, code=MISSING)
    return replace(like, manifest=manifest, grid=grid, dimension_names=None)


def _loaded(name: str, like: xr.Variable, sizes: Mapping[str, int], fill_value: Any) -> xr.Variable:
    """Let xarray fill all of an array of one element, as it takes no dtype into account where there is none."""
    fill_value = _unless_missing(like.dtype, fill_value)
    options = {} if fill_value is None else {"fill_value": fill_value}
    elsewhere = {str(dim): [-1] for dim in like.dims}
    one = xr.DataArray(np.zeros((1,) * like.ndim, like.dtype), elsewhere, like.dims)
    try:
        with np.errstate(over="ignore"):
            made: xr.Variable = one.reindex({dim: np.arange(sizes[dim]) for dim in elsewhere}, **options).variable
        if options and made.size and _is_other(made.values.flat[0], fill_value):
            raise OverflowError("it would be another value there")
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_place(name, like.dtype, fill_value, error) from error
    made.attrs, made.encoding = dict(like.attrs), dict(like.encoding)
    return made


def _is_other(value: Any, given: Any) -> bool:
    """Tell whether a value has become another one in its dtype, and not only one of fewer digits."""
    if value.dtype.kind == "f":
        return bool(np.isinf(value) and not np.isinf(given))
    return value.dtype.kind in "iumM" and bool(value != given)


def _no_place(name: str, dtype: np.dtype[Any], fill_value: Any, why: Exception) -> CombineError:
    return CombineError(
        f"variable '{name}' has dtype '{dtype}', which has no place for fill_value={fill_value!r}: {why}",
        variable=name,
        property="fill_value",
        left=dtype,
        right=fill_value,
    )
