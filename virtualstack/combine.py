"""Joining virtual datasets of many files along a dimension, with everything else checked to be the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError
from virtualstack.manifests import ManifestArray, same_meaning
from virtualstack.reading import read_array
from virtualstack.storage import Storage, StorageLike

__all__ = ["concat_datasets"]


def concat_datasets(datasets: Sequence[xr.Dataset], dim: str, /, *, storage: StorageLike = None) -> xr.Dataset:
    """Join datasets along a dimension that all of them have.

    Variables without the dimension must be the same in all: virtual ones by what they point to or, where that does
    not settle it, by their values, which are read. The first dataset's are kept. Order is that of ``datasets``.

    Parameters
    ----------
    datasets
        Virtual datasets with the same variables.
    dim
        Name of the dimension.
    storage
        How values are reached; see :func:`virtualstack.open_virtual_dataset`.

    Raises
    ------
    CombineError
        A variable is not in all of them, differs where it must not, or cannot be joined; or nothing has the dimension.
    """
    if not datasets:
        raise CombineError("there are no datasets to join")
    first = datasets[0]
    for other in datasets:
        if dim not in other.dims:
            raise CombineError(
                f"{_source(other)} has no dimension '{dim}' to join along; it has {sorted(map(str, other.dims))}",
                property="dimension",
                left=dim,
                right=None,
            )
    store = Storage.of(storage)
    constant: dict[Hashable, NDArray[Any]] = {}
    for other in datasets[1:]:
        _check_names(first, other)
        for name in first.variables:
            if dim not in first.variables[name].dims:
                _check_same(str(name), first, other, store, constant)
            else:
                _check_extents(str(name), first, other, dim)
    joined: xr.Dataset = xr.concat(
        datasets,
        dim,
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="override",
        combine_attrs="override",
    )
    joined.encoding = {key: value for key, value in first.encoding.items() if key != "source"}
    return joined


def _source(dataset: xr.Dataset) -> str:
    return f"'{dataset.encoding.get('source', 'a dataset')}'"


def _check_names(first: xr.Dataset, other: xr.Dataset) -> None:
    if first.variables.keys() == other.variables.keys():
        return
    only_first = sorted(map(str, first.variables.keys() - other.variables.keys()))
    only_other = sorted(map(str, other.variables.keys() - first.variables.keys()))
    name = (only_first or only_other)[0]
    raise CombineError(
        f"{_source(first)} and {_source(other)} have other variables: {only_first} are only in the first, {only_other} "
        "only in the second; leave them out with drop_variables",
        variable=name,
        property="presence",
        left=name in only_first,
        right=name in only_other,
        left_url=first.encoding.get("source"),
        right_url=other.encoding.get("source"),
    )


def _check_same(
    name: str, first: xr.Dataset, other: xr.Dataset, storage: Storage, read: dict[Hashable, NDArray[Any]]
) -> None:
    """Check that a variable is the same in two datasets; values of the first are read once, into ``read``."""
    left, right = first.variables[name], other.variables[name]
    a, b = virtual_array(left), virtual_array(right)
    if left.dims != right.dims or left.shape != right.shape or left.dtype != right.dtype:
        difference = f"{left.dims} {left.shape} '{left.dtype}' and {right.dims} {right.shape} '{right.dtype}'"
    elif a is not None and b is not None and a.equals(b):
        difference = _cf_difference(a, b)
    else:
        if name not in read:
            read[name] = _values(left, storage)
        difference = _cf_difference(a, b) or _value_difference(read[name], _values(right, storage))
    if difference:
        raise CombineError(
            f"variable '{name}' has not the dimension that files are joined along, and differs between "
            f"{_source(first)} and {_source(other)}: {difference}; leave it out with drop_variables, or join the files "
            "that agree",
            variable=name,
            property="values",
            left_url=first.encoding.get("source"),
            right_url=other.encoding.get("source"),
        )


def _check_extents(name: str, first: xr.Dataset, other: xr.Dataset, dim: str) -> None:
    """Check that a variable to be joined has the same dimensions in both, as long but for ``dim``."""
    left, right = (dict(x.variables[name].sizes) for x in (first, other))
    if list(left) != list(right) or any(left[x] != right[x] for x in left if x != dim):
        raise CombineError(
            f"variable '{name}' has dimensions {left} in {_source(first)} and {right} in {_source(other)}; but for "
            f"'{dim}' they must be equal: leave it out with drop_variables, or load it if it is text",
            variable=name,
            property="dimensions",
            left=left,
            right=right,
            left_url=first.encoding.get("source"),
            right_url=other.encoding.get("source"),
        )


def _cf_difference(a: ManifestArray | None, b: ManifestArray | None) -> str:
    if a is None or b is None:
        return ""
    for key in sorted(a.cf.keys() | b.cf.keys()):
        if not same_meaning(key, a.cf.get(key), b.cf.get(key)):
            return f"{key} is {a.cf.get(key)!r} and {b.cf.get(key)!r}"
    return ""


def _values(variable: xr.Variable, storage: Storage) -> NDArray[Any]:
    array = virtual_array(variable)
    values: NDArray[Any] = variable.values if array is None else read_array(array, (), storage)
    return values


def _value_difference(a: NDArray[Any], b: NDArray[Any]) -> str:
    if a.dtype.names or a.dtype.kind == "V":
        return "" if a.tobytes() == b.tobytes() else "stored records differ"
    same = np.asarray((a == b) | ((a != a) & (b != b)))
    if same.all():
        return ""
    n_different = int(np.count_nonzero(~same))
    if a.dtype.kind in "iufc":
        far = np.abs(a[~same].astype(np.complex128 if a.dtype.kind == "c" else np.float64) - b[~same]).max()
        return f"{n_different} of {same.size} values differ, by up to {far:g}"
    return f"{n_different} of {same.size} values differ"
