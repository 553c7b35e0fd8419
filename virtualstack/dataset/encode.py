"""Conversion of a dataset to a group: virtual arrays stay unchanged, loaded variables are encoded as in xarray.

`set_encoding` changes the attributes by which stored numbers become values.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions

from virtualstack.codecs.cf_times import CODING_ERRORS, datetime_units
from virtualstack.dataset.declared import (
    copy_times_to_bounds,
    declared_dataset,
    is_same_word,
    is_unpacked,
    with_edits,
)
from virtualstack.dataset.decode import get_refusals, get_unlimited_dims, get_version
from virtualstack.dataset.variables import virtual_array, virtual_variable
from virtualstack.errors import Remedy, WriterError
from virtualstack.manifests import CF_KEYS, ManifestArray, ManifestGroup, inline_array, same_value, value_changing
from virtualstack.printable import first_names


def to_group(dataset: xr.Dataset, /) -> ManifestGroup:
    """Make the group of a dataset: virtual arrays stay unchanged, loaded variables are encoded as INLINE chunks.

    Stored numbers become values by the attributes that the dataset has now.
    """
    dataset = declared_dataset(dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)
        variables, attributes = conventions.encode_dataset_coordinates(_with_present_coordinates(dataset))
    arrays = {}
    for name, variable in variables.items():
        if not isinstance(name, str) or "/" in name or not name:
            raise WriterError(
                f"variable {name!r} has a name that no format can store. Names are text, are not empty, and "
                "have no '/'",
                Remedy("rename it"),
                variable=str(name),
                feature="name",
            )
        for dim in variable.dims:
            if not isinstance(dim, str):
                raise WriterError(
                    f"variable '{name}' has the dimension {dim!r}, but names must be text",
                    Remedy("rename it, for example with", f"vds.rename_dims({{{dim!r}: '...'}})"),
                    variable=name,
                    feature="name",
                )
        array = virtual_array(variable)
        arrays[name] = _inline_array(name, variable) if array is None else _restored(name, variable, array)
    return ManifestGroup(
        arrays=_without_inherited_units(arrays, variables),
        attributes=attributes,
        dimensions={str(dim): int(n) for dim, n in dataset.sizes.items()},
        unlimited=get_unlimited_dims(dataset),
        loaded=frozenset(name for name, variable in variables.items() if virtual_array(variable) is None),
        refusals=get_refusals(dataset),
        url=dataset.encoding.get("source"),
        version=get_version(dataset),
    )


def _without_inherited_units(
    arrays: Mapping[str, ManifestArray], variables: Mapping[Hashable, xr.Variable]
) -> dict[str, ManifestArray]:
    """Remove units and calendar that bounds inherited from their coordinate and that still equal the coordinate's."""
    changed = dict(arrays)
    for array in arrays.values():
        bounds = array.attributes.get("bounds")
        if not isinstance(bounds, str) or bounds not in changed:
            continue
        source = virtual_array(variables[bounds])
        if source is None:
            continue
        own = changed[bounds]
        inherited = {
            key
            for key in ("units", "calendar")
            if key in own.attributes
            and key not in (*source.attributes, *variables[bounds].attrs)
            and key in array.attributes
            and same_value(array.attributes[key], own.attributes[key])
        }
        kept = {key: value for key, value in own.attributes.items() if key not in inherited}
        changed[bounds] = replace(own, attributes=kept)
    return changed


def _with_present_coordinates(dataset: xr.Dataset) -> xr.Dataset:
    """Remove data variables from the encoded ``coordinates``, so that they do not become coordinates again."""
    changed = dataset.copy()
    for variable in changed.variables.values():
        names = variable.encoding.get("coordinates")
        if isinstance(names, str):
            kept = [name for name in names.split() if name not in dataset.data_vars]
            variable.encoding = {**variable.encoding, "coordinates": " ".join(kept)}
            if not kept:
                del variable.encoding["coordinates"]
    return changed


def _restored(name: str, variable: xr.Variable, array: ManifestArray) -> ManifestArray:
    """Return an array with the dimensions and attributes of its variable."""
    attributes = {**variable.attrs, **array.cf}
    cf = {**value_changing(attributes), **array.cf}
    return replace(array, name=name, dimension_names=tuple(map(str, variable.dims)), attributes=attributes, cf=cf)


def _inline_array(name: str, variable: xr.Variable) -> ManifestArray:
    encoded = encoded_variable(name, variable)
    values = np.asarray(encoded.values)
    if values.dtype.kind in "OUT":
        values = _text(name, values)
    if values.dtype.kind == "T" and isinstance(encoded.attrs.get("_FillValue"), bytes):
        del encoded.attrs["_FillValue"]  # equals no text
    return inline_array(values, name=name, dims=encoded.dims, attributes=encoded.attrs)


def all_virtual(name: str, variables: Sequence[xr.Variable], /) -> list[xr.Variable]:
    """Return variables of which none is loaded, unless all are: loaded ones become INLINE, encoded as the virtual ones.

    Which variables are loaded when a file is opened depends on their size, so it may differ from file to file.
    """
    arrays = [virtual_array(variable) for variable in variables]
    like = next((x for x in arrays if x is not None), None)
    if like is None or all(x is not None for x in arrays):
        return list(variables)

    def stored(variable: xr.Variable) -> xr.Variable:
        if like.cf:
            return virtual_variable(_inline_array(name, variable), variable.encoding)
        data = inline_array(variable.values, name=name, dims=variable.dims, attributes=variable.attrs)
        return virtual_variable(data, variable.encoding)

    return [x if array is not None else stored(x) for x, array in zip(variables, arrays, strict=True)]


def _text(name: str, values: NDArray[Any]) -> NDArray[Any]:
    flat = values.reshape(-1).tolist()
    if flat and all(isinstance(x, bytes) for x in flat):
        return np.array(flat, np.bytes_).reshape(values.shape)
    for odd in (x for x in flat if not isinstance(x, str)):
        raise WriterError(
            f"loaded variable '{name}' contains objects such as {odd!r}, but only numbers, dates and strings "
            "can be written",
            Remedy("convert them, or drop the variable"),
            variable=name,
            feature="object dtype",
        )
    try:
        return np.array(flat, np.dtypes.StringDType()).reshape(values.shape)
    except UnicodeEncodeError as error:
        raise WriterError(
            f"loaded variable '{name}' contains a string that is not valid text: {error}. Replace the character",
            variable=name,
            feature="surrogate",
        ) from error


_CF_ENCODING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar", "dtype", "_Unsigned")
_PACKING = ("scale_factor", "add_offset", "units", "dtype", "_Unsigned", "_FillValue", "missing_value")


def encoded_variable(name: str, variable: xr.Variable, /) -> xr.Variable:
    """Encode a loaded variable by its own encoding, or without packing if the encoding does not restore the values.

    The encoding of one file may not suit values that were joined to it: whole days cannot express hours.
    """
    encoding = {key: value for key, value in variable.encoding.items() if key in _CF_ENCODING}
    try:
        values = np.asarray(variable.values)
    except (ValueError, OverflowError) as error:  # xarray decodes times lazily
        raise WriterError(
            f"loaded variable '{name}' cannot be decoded: {error}",
            Remedy("open the file with", decode_times=False),
            Remedy("leave it out with", drop_variables=[name]),
            variable=name,
        ) from error
    loaded = xr.Variable(variable.dims, values, variable.attrs, fastpath=True)
    _check_unpacked(name, loaded)
    how: dict[str, Any] = {"stack_char_dim": False, "concat_characters": loaded.dtype.kind not in "biufcmM"}
    if loaded.dtype.kind == "O":
        how["decode_times"] = xr.coders.CFDatetimeCoder(use_cftime=True)
    for drop in ((), _PACKING):
        kept = {key: value for key, value in encoding.items() if key not in drop}
        # xarray adds a _FillValue of NaN to floats if the encoding does not have one; None prevents this.
        loaded.encoding = {"_FillValue": None, **kept} if loaded.dtype.kind in "fcmM" else kept
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                encoded = conventions.encode_cf_variable(loaded, name=name)
                if encoded.attrs.keys() == loaded.attrs.keys() and encoded.dtype == loaded.dtype:
                    return encoded  # the values are stored unchanged
                encoded.encoding = {}  # a _FillValue of None in the encoding would count as a fill value
                # the decoding of text, called in vain, would import dask; it copies attributes, which others take out
                decoded = conventions.decode_cf_variable(name, encoded.copy(deep=False), **how)
            except (ValueError, TypeError, KeyError, OverflowError, NotImplementedError):  # KeyError: "nanoseconds"
                continue
        if _same_values(decoded, loaded):
            return encoded
    raise WriterError(
        f"loaded variable '{name}' of dtype '{variable.dtype}' cannot be encoded so that it reads back "
        "unchanged. Drop it, or cast it to a dtype that CF conventions can express",
        variable=name,
        feature=str(variable.dtype),
    )


def _check_unpacked(name: str, loaded: xr.Variable) -> None:
    """Refuse a loaded variable whose attributes describe packed values, since readers would unpack them.

    xarray leaves such attributes when it computes values of a virtual variable without elements.
    """
    if loaded.dtype.kind in "mM" and "units" in loaded.attrs:
        units = loaded.attrs["units"]
        raise WriterError(
            f"loaded variable '{name}' contains decoded times, but units = {units!r} was set, which is for numbers",
            Remedy(
                "remove it, and set what the stored numbers mean with",
                f"vds.virtual.set_encoding({{{name!r}: {{'units': ...}}}})",
            ),
            variable=name,
            feature="units",
        )
    packing = {key: value for key, value in loaded.attrs.items() if key in _PACKING and key != "units"}
    if str(packing.get("dtype", "")).startswith("timedelta64"):
        del packing["dtype"]  # a duration that was opened with decode_times=False
    if not packing:
        return
    try:
        decoded = conventions.decode_cf_variable(name, xr.Variable(loaded.dims, loaded.values, packing))
        if _same_values(decoded, loaded):
            return
    except (ValueError, TypeError, OverflowError, NotImplementedError):
        pass
    raise WriterError(
        f"loaded variable '{name}' has the attributes {packing}, with which readers would unpack its values",
        Remedy("remove them if the values are already correct"),
        Remedy("join files with", "vs.open_virtual_mfdataset", join="outer"),
        variable=name,
        feature=", ".join(packing),
    )


def _same_values(a: xr.Variable, b: xr.Variable) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "mM" or b.dtype.kind in "mM":
        return a.dtype.kind == b.dtype.kind and bool(a.equals(b))  # type: ignore[no-untyped-call]
    if a.dtype.kind in "SU" or b.dtype.kind in "SU":
        return bool((a.values.astype(object) == b.values.astype(object)).all())
    if a.dtype != b.dtype and not {a.dtype.kind, b.dtype.kind} & set("OT"):
        return False
    return bool(a.equals(b))  # type: ignore[no-untyped-call]


_SETTABLE = tuple(key for key in CF_KEYS if key != "dtype")


def set_encoding(dataset: xr.Dataset, encodings: Mapping[str, Mapping[str, Any]], /) -> xr.Dataset:
    """Return a dataset whose stored numbers are decoded by other attributes; no bytes are read or written."""
    dataset = declared_dataset(dataset)
    virtual: dict[str, Mapping[str, Any]] = {}
    packings: dict[str, Mapping[str, Any]] = {}
    loaded: dict[str, Mapping[str, Any]] = {}
    for name, its in encodings.items():
        if name not in dataset.variables:
            raise KeyError(
                f"no variable '{name}'; the variables are {first_names(sorted(map(str, dataset.variables)))}"
            )
        unknown = sorted(its.keys() - set(_SETTABLE))
        if unknown:
            raise ValueError(
                f"set_encoding defines how stored numbers become values, but {unknown} of variable '{name}' "
                f"do not. It takes {list(_SETTABLE)}. The bytes of files cannot change; set other attributes "
                "as in xarray"
            )
        array = virtual_array(dataset.variables[name])
        (loaded if array is None else packings if is_unpacked(array) else virtual)[name] = its
    changed = with_edits(dataset, virtual, packings)
    decoded: dict[Hashable, xr.Variable] = {}
    for name, its in loaded.items():
        before = changed.variables[name].encoding
        copy_times_to_bounds(changed, name, its, before)
        for other in (name, *_loaded_bounds(changed, name, its, loaded)):
            decoded[other] = _decoded(other, changed.variables[other], its)
    changed = changed.assign({name: x for name, x in decoded.items() if name not in changed.coords})
    return changed.assign_coords({name: x for name, x in decoded.items() if name in changed.coords})


def _loaded_bounds(
    dataset: xr.Dataset, name: str, edits: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the name of the loaded bounds whose units and calendar change with those of their variable, if any."""
    variable = dataset.variables[name]
    bounds = variable.attrs.get("bounds", variable.encoding.get("bounds"))
    if not isinstance(bounds, str) or bounds in others:
        return ()
    found = dataset.variables.get(bounds)
    if found is None or virtual_array(found) is not None or not edits.keys() & {"units", "calendar"}:
        return ()
    is_alike = all(
        is_same_word(key, variable.encoding.get(key), found.encoding.get(key)) for key in ("units", "calendar")
    )
    return (bounds,) if is_alike else ()


def _decoded(name: str, variable: xr.Variable, edits: Mapping[str, Any]) -> xr.Variable:
    """Return a loaded variable as xarray decodes its stored numbers by edited attributes."""
    stored = encoded_variable(name, variable)
    said = {key: variable.encoding[key] for key in _SETTABLE if variable.encoding.get(key) is not None}
    is_known = all(is_same_word(key, value, stored.attrs.get(key)) for key, value in said.items())
    if not is_known or (variable.dtype.kind in "mMO" and "units" not in said):
        raise WriterError(
            f"the stored numbers of loaded variable '{name}' are no longer known",
            Remedy("call {} for each file before you join them", "vds.virtual.set_encoding"),
            Remedy("open it with {} so that it stays virtual", loadable_variables=[]),
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    # times that were opened with decode_times=False stay numbers
    are_decoded = not datetime_units(variable.attrs.get("units"))
    stored.attrs = {key: x for key, x in {**stored.attrs, **edits}.items() if x is not None}
    try:
        return conventions.decode_cf_variable(name, stored, decode_times=are_decoded, stack_char_dim=False)
    except CODING_ERRORS as error:
        raise WriterError(
            f"loaded variable '{name}' cannot be decoded with {dict(edits)}: {error}", variable=name
        ) from error
