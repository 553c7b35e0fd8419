"""CF attributes and encoding of virtual variables that a user edits.

The attributes of a variable begin as the attributes of its array. A difference between the two is an edit.
An edit holds for all chunks: xarray decodes the stored numbers by the attributes that the variable has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr

from virtualstack.codecs.cf import CF
from virtualstack.dataset.variables import is_foreign, virtual_array, virtual_variable
from virtualstack.errors import Remedy, WriterError
from virtualstack.manifests import (
    CF_KEYS,
    ManifestArray,
    Unpacked,
    is_nan,
    reads_as,
    repack,
    same_value,
    unpack,
    value_changing,
)

_KNOWN = frozenset(CF_KEYS)
_MISSING = ("_FillValue", "missing_value")
_TIMES = ("units", "calendar")
_ENCODED = _KNOWN - {"dtype"}
"""Keys of an encoding that define how numbers are stored; ``dtype`` is left out, since it is the stored data type."""


def declared_dataset(dataset: xr.Dataset, /) -> xr.Dataset:
    """Return a dataset whose arrays are packed as the attributes and encoding of its variables define.

    Without edits, the dataset itself is returned. No bytes are read. Arrays of VirtualiZarr become virtual arrays.
    """
    dataset = without_foreign_arrays(dataset)
    edits: dict[str, dict[str, Any]] = {}
    for name, variable in dataset.variables.items():
        array = virtual_array(variable)
        if array is None:
            continue
        found = _edited_attributes(variable, array)
        if variable.encoding and not _ENCODED.isdisjoint(variable.encoding):
            found |= _edited_encoding(str(name), variable, array, found)
        if found:
            edits[str(name)] = found
    return with_edits(dataset, edits) if edits else dataset


def without_foreign_arrays(dataset: xr.Dataset, /) -> xr.Dataset:
    """Return a dataset in which arrays of VirtualiZarr are virtual arrays; without such arrays, the dataset itself."""
    names = [name for name, variable in dataset.variables.items() if is_foreign(variable)]
    if not names:
        return dataset
    from virtualstack.zarr.virtualizarr import array_of

    made = {name: virtual_variable(array_of(str(name), dataset.variables[name])) for name in names}
    coords = xr.Coordinates({name: x for name, x in made.items() if name in dataset.coords}, indexes={})
    return dataset.assign({name: x for name, x in made.items() if name not in coords}).assign_coords(coords)


def with_edits(
    dataset: xr.Dataset,
    edits: Mapping[str, Mapping[str, Any]],
    packings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    /,
) -> xr.Dataset:
    """Return a dataset with virtual variables whose numbers are packed in another way."""
    changed = dataset.copy()
    for name, its in edits.items():
        variable = changed.variables[name]
        array = virtual_array(variable)
        if array is not None:
            variable.data = _edited(name, variable, array, its)
            variable.attrs = {key: x for key, x in {**variable.attrs, **its}.items() if x is not None}
            variable.encoding = {key: x for key, x in variable.encoding.items() if key not in its}
            copy_times_to_bounds(changed, name, its, array.cf)
    for name, its in packings.items():
        variable = changed.variables[name]
        array = virtual_array(variable)
        if array is not None:
            unpacked = _with_other_packing(name, array, its)
            kept = {key: x for key, x in variable.encoding.items() if key not in _ENCODED}
            variable.data, variable.encoding = unpacked.array, {**kept, **unpacked.encoding}
    return changed


def is_unpacked(array: ManifestArray, /) -> bool:
    """Return whether the chunks unpack their numbers themselves, by codecs that replace the attributes."""
    encodings = array.manifest.tables.encodings
    return any(codec.name == CF for encoding in encodings for codec in encoding.codecs)


def copy_times_to_bounds(
    dataset: xr.Dataset, name: str, edits: Mapping[str, Any], before: Mapping[str, Any], /
) -> None:
    """Copy edited units and calendar to the virtual bounds of a variable; this changes the dataset.

    Bounds follow their variable if they do not have the attribute and previously decoded by the same value. CF
    conventions 7.1: attributes that a boundary variable lacks are inherited from its parent variable.
    """
    bounds = dataset.variables[name].attrs.get("bounds", dataset.variables[name].encoding.get("bounds"))
    variable = dataset.variables.get(bounds) if isinstance(bounds, str) else None
    array = None if variable is None else virtual_array(variable)
    if variable is None or array is None:
        return
    inherited = {
        key: edits[key]
        for key in _TIMES
        if key in edits
        and key not in (*array.attributes, *variable.attrs)
        and is_same_word(key, array.cf.get(key), before.get(key))
    }
    if inherited:
        cf = {key: x for key, x in {**array.cf, **inherited}.items() if x is not None}
        variable.data = replace(array, cf=cf)


def _edited(name: str, variable: xr.Variable, array: ManifestArray, edits: Mapping[str, Any]) -> ManifestArray:
    """Return an array with the attributes of its variable after the edits."""
    added = [key for key, x in edits.items() if x is not None]
    if array.dtype.kind in "mM" and added:
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' contains decoded times of dtype '{array.dtype}', but "
            f"{added[0]} = {edits[added[0]]!r} was set, which is for numbers",
            Remedy(
                "remove it, and set what the stored numbers mean with",
                f"vds.virtual.set_encoding({{{name!r}: {{{added[0]!r}: ...}}}})",
            ),
            variable=name,
            feature=added[0],
        )
    attributes = {key: x for key, x in {**variable.attrs, **edits}.items() if x is not None}
    own = {key: x for key, x in array.cf.items() if key not in edits}
    others = {key: attributes[key] for key in array.cf.keys() & edits.keys() - _KNOWN if key in attributes}
    changed = replace(array, attributes=attributes, cf={**value_changing({**attributes, **own}), **own, **others})
    if array.dimension_names is None and array.dtype.kind in "iuf" and _loses_missing(array, changed):
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' has elements that are in no file or were never written, "
            f"and read as the missing value of {dict(array.cf)}. With {dict(changed.cf)} they would become "
            "values",
            Remedy("call {} for each file before you join, reindex or mask", "vds.virtual.set_encoding"),
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    return changed


def _loses_missing(array: ManifestArray, changed: ManifestArray) -> bool:
    """Return whether chunks without bytes read as missing values now, and would read as values after the change."""
    fills = [fill.value for fill in array.manifest.tables.fills]
    if not any(reads_as(fill, array.cf) and not reads_as(fill, changed.cf) for fill in fills):
        return False
    return bool(array.in_memory().holes.any())


# -- attributes -----------------------------------------------------------------------------------------------


def _edited_attributes(variable: xr.Variable, array: ManifestArray) -> dict[str, Any]:
    """Return the attributes that a user has added, changed or removed (``None``)."""
    now, was, own = variable.attrs, array.attributes, array.cf
    edits = {}
    for key in CF_KEYS if own.keys() <= _KNOWN else dict.fromkeys((*CF_KEYS, *own)):
        value, before = now.get(key), was.get(key)
        if value is not before and not is_same_word(key, value, before) and not is_same_word(key, value, own.get(key)):
            edits[key] = value
    return {} if edits and _have_gone(now, array) else edits


def is_same_word(key: str, a: object, b: object, /) -> bool:
    """Return whether two values of an attribute are the same; attributes of packing need the same dtype, too."""
    if a is b:
        return True
    if a is None or b is None or not same_value(a, b):
        return False
    return key not in ("scale_factor", "add_offset") or np.asarray(a).dtype == np.asarray(b).dtype


def _have_gone(attributes: Mapping[str, Any], array: ManifestArray) -> bool:
    """Return whether a variable has lost all attributes of its array at once, which is not an edit by a user.

    xarray drops all attributes in ``xr.combine_nested``, ``drop_attrs`` and ``to_dataarray``. The stored numbers keep
    their meaning then. However, if a variable had only attributes that decode values when it was opened, their loss is
    an edit.
    """
    if not array.attributes or not attributes.keys().isdisjoint((*array.attributes, *CF_KEYS)):
        return False
    return array.dimension_names is None or bool(array.attributes.keys() - array.cf.keys())


# -- encoding -------------------------------------------------------------------------------------------------


def _edited_encoding(
    name: str, variable: xr.Variable, array: ManifestArray, edits: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the edits in the encoding of a variable whose numbers are packed by attributes.

    If chunks unpack their numbers themselves, the encoding only describes how they were packed, and there are no edits:
    a part of joined files may have the encoding of another file. If ``unpack=True`` had nothing to unpack, edits count.
    """
    if is_unpacked(array) or not array.manifest.tables.encodings:
        return {}
    said = {key: variable.encoding[key] for key in sorted(_ENCODED & variable.encoding.keys())}
    found = {}
    for key, value in said.items():
        known = variable.attrs.get(key, array.cf.get(key))
        is_nothing = array.dtype.kind == "f" and key in _MISSING and value is not None and is_nan(value)
        if is_same_word(key, value, known) or is_nothing:
            continue
        if edits.get(key) is not None:
            raise WriterError(
                f"variable '{name}' of '{array.a_url()}' has {key} = {known!r} in its attributes and "
                f"{value!r} in its encoding, and both were set",
                Remedy("remove one of them"),
                variable=name,
                feature=key,
            )
        found[key] = value
    return found


def _with_other_packing(name: str, array: ManifestArray, edits: Mapping[str, Any]) -> Unpacked:
    """Return an array opened with ``unpack=True`` whose chunks unpack their numbers by edited attributes."""
    packed = repack(array)
    if is_unpacked(packed):
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' was opened with unpack=True, and {dict(edits)} cannot "
            "hold for all of its chunks. They are packed in several ways, or some are in no file",
            Remedy("call {} for each file before you join them", "vds.virtual.set_encoding"),
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    variable = xr.Variable([f"dim_{i}" for i in range(packed.ndim)], packed, packed.attributes)
    unpacked = unpack(_edited(name, variable, packed, edits))
    if unpacked.obstacle is not None:
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' cannot be unpacked with {dict(edits)}: {unpacked.obstacle}",
            Remedy("open the file with", unpack=False),
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    return unpacked
