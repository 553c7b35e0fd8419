"""Elements of a joined variable that no file has: ABSENT cells, missing values and missing variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from virtualstack.dataset import virtual_array
from virtualstack.errors import Code, CombineError, ManifestError, Remedy
from virtualstack.manifests import (
    ABSENT,
    ChunkAxis,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    decoding_keys,
    stored_number,
    unpack,
)
from virtualstack.manifests.cells import replaced

type Mask = NDArray[np.bool_]


type Absent = Callable[[str, Sequence[str]], Mask | None]
"""Function of the name and the dimensions of a variable: a mask of the elements that no file has.

The mask broadcasts to the variable. ``None`` means that no element is absent.
"""


def absent_variables(rest: Absent | None, names: Collection[str], /) -> Absent | None:
    """Return all elements of some variables, and those of ``rest`` for all others."""
    if not names:
        return rest

    def mask(name: str, dims: Sequence[str]) -> Mask | None:
        if name in names:
            return np.ones((1,) * len(dims), np.bool_)
        return None if rest is None else rest(name, dims)

    return mask


def absent_moved(rest: Absent | None, positions: Mapping[str, NDArray[np.int64]], /) -> Absent | None:
    """Return the absent elements after labels are looked up."""
    if rest is None and all(bool((at >= 0).all()) for at in positions.values()):
        return None

    def mask(name: str, dims: Sequence[str]) -> Mask | None:
        found = None if rest is None else rest(name, dims)
        for axis, dim in enumerate(dims):
            if (at := positions.get(dim)) is None:
                continue
            if found is not None and found.shape[axis] > 1:
                found = found.take(at, axis, mode="clip")
            if (at < 0).any():
                own = (at < 0).reshape([-1 if i == axis else 1 for i in range(len(dims))])
                found = own if found is None else found | own
        return found

    return mask


def absent_joined(pieces: Sequence[Absent | None], dim: str | None, lengths: Sequence[int], /) -> Absent | None:
    """Return the absent elements after parts are joined along a dimension.

    A variable without the dimension is assembled from all parts, so an element is absent only if all parts lack it.
    """
    if all(piece is None for piece in pieces):
        return None

    def mask(name: str, dims: Sequence[str]) -> Mask | None:
        masks = [None if piece is None else piece(name, dims) for piece in pieces]
        having = [x for x in masks if x is not None]
        if dim not in dims:
            return reduce(np.logical_and, having) if len(having) == len(masks) else None
        if not having:
            return None
        axis = dims.index(dim)
        shape = list(np.broadcast_shapes(*(replaced(x.shape, axis, 1) for x in having)))
        filled = []
        for found, n in zip(masks, lengths, strict=True):
            shape[axis] = n
            filled.append(np.broadcast_to(np.False_ if found is None else found, shape))
        return np.concatenate(filled, axis)

    return mask


def with_missing_value(array: ManifestArray, fill_value: Any = None, /, *, name: str) -> tuple[ManifestArray, Fill]:
    """Return the array in a dtype that can hold a missing value, and the stored value that reads as missing.

    Packed numbers keep their dtype: the function finds the stored number that decodes to a missing value. Plain
    integers become floats, as in xarray's reindexing.
    """
    dtype = array.dtype
    fill_value = _unless_missing(dtype, fill_value)
    if dtype.kind in "iuf" and decoding_keys(array.cf):
        found = stored_number(dtype, array.cf, fill_value)
        if found is None:
            what = "a missing value" if fill_value is None else repr(fill_value)
            packed = ", ".join(f"{key} = {array.cf[key]!r}" for key in sorted(array.cf))
            raise _no_missing_value(array, name, f"no stored value of dtype '{dtype}' with {packed} decodes to {what}")
        return array, found
    if dtype.kind == "T" and fill_value is not None and not isinstance(fill_value, str):
        raise _no_missing_value(array, name, f"text cannot be filled with {fill_value!r}")
    if fill_value is not None:
        return _promoted(array, fill_value, name)
    if dtype.kind == "f":
        return array, Fill.from_value(np.nan, dtype)
    if dtype.kind == "c":
        return array, Fill.from_value(complex(np.nan, np.nan), dtype)
    if dtype.kind in "mM":
        return array, Fill.from_value(np.array("NaT", dtype)[()], dtype)
    if dtype.kind in "iu":
        wider = np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)
        return array.astype(wider), Fill.from_value(np.nan, wider)
    raise _no_missing_value(array, name, f"dtype '{dtype}' has no missing value")


def _unless_missing(dtype: np.dtype[Any], fill_value: Any) -> Any:
    """Return ``None`` for a missing value of numbers and times, since each dtype has its own missing value."""
    return None if dtype.kind in "iufcmM" and np.ndim(fill_value) == 0 and pd.isnull(fill_value) else fill_value


def _promoted(array: ManifestArray, fill_value: Any, name: str) -> tuple[ManifestArray, Fill]:
    """Return an array in a dtype that holds its values and the fill value; numpy chooses a Python number's type."""
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
        return array, Fill.from_value(fill_value, array.dtype)
    except (ManifestError, TypeError, ValueError, OverflowError, LookupError) as error:
        raise _no_place(name, array.dtype, fill_value, error) from error


def _no_text(array: ManifestArray) -> str | bytes:
    """Return an empty text as xarray reads it."""
    return "" if "_Encoding" in array.cf else b""


def _no_missing_value(array: ManifestArray, name: str, why: str) -> CombineError:
    value: Any = ...
    others = [Remedy("open the files with {}, which decodes numbers", unpack=True)]
    if unpack(array).obstacle is not None:  # no number is a missing date of cftime
        others = [Remedy("leave it out with", drop_variables=[name])]
    if array.dtype.kind in "ST":
        value, others = "" if array.dtype.kind == "T" else _no_text(array), []
    elif array.dtype.kind == "b" or array.cf.get("dtype") == "bool":
        value, others = False, [Remedy("load it with", loadable_variables=Code(f"[..., '{name}']"))]
    return CombineError(
        f"variable '{name}' has missing elements to fill, but {why}",
        Remedy(
            "set {}, or in open_virtual_mfdataset combine_options={'fill_value': ...}",
            fill_value={name: Code("...") if value is ... else value},
        ),
        *others,
        variable=name,
        property="fill_value",
        left=array.dtype,
        left_url=array.a_url(),
    )


def missing_variable(name: str, like: xr.Variable, sizes: Mapping[str, int], fill_value: Any, /) -> xr.Variable:
    """Make a variable of other sizes whose values are missing, in the dtype that xarray chooses for them."""
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
    manifest = ChunkManifest.empty(grid.shape, fill, code=ABSENT)
    return replace(like, manifest=manifest, grid=grid, dimension_names=None)


def _loaded(name: str, like: xr.Variable, sizes: Mapping[str, int], fill_value: Any) -> xr.Variable:
    """Return a loaded variable that xarray fills by reindexing one element, as it ignores the dtype of empty arrays."""
    fill_value = _unless_missing(like.dtype, fill_value)
    options = {} if fill_value is None else {"fill_value": fill_value}
    elsewhere = {str(dim): [-1] for dim in like.dims}
    one = xr.DataArray(np.zeros((1,) * like.ndim, like.dtype), elsewhere, like.dims)
    try:
        with np.errstate(over="ignore"):
            made: xr.Variable = one.reindex({dim: np.arange(sizes[dim]) for dim in elsewhere}, **options).variable
        if options and made.size and _is_other(made.values.flat[0], fill_value):
            raise OverflowError("it would become another value")
    except (TypeError, ValueError, OverflowError) as error:
        raise _no_place(name, like.dtype, fill_value, error) from error
    made.attrs, made.encoding = dict(like.attrs), dict(like.encoding)
    return made


def _is_other(value: Any, given: Any) -> bool:
    """Return whether a value has changed in its dtype by more than rounding."""
    if value.dtype.kind == "f":
        return bool(np.isinf(value) and not np.isinf(given))
    return value.dtype.kind in "iumM" and bool(value != given)


def _no_place(name: str, dtype: np.dtype[Any], fill_value: Any, why: Exception) -> CombineError:
    return CombineError(
        f"variable '{name}' has dtype '{dtype}', which cannot store fill_value={fill_value!r}: {why}",
        variable=name,
        property="fill_value",
        left=dtype,
        right=fill_value,
    )
