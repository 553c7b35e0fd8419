"""What a user says about stored numbers: CF attributes and encoding of virtual variables, wherever they were edited.

Attributes of a variable begin as those that its array came with. What differs is an edit, and it holds for all chunks:
values are those that xarray decodes from stored numbers by the attributes that the variable has now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr

from virtualstack.codecs.cf import CF
from virtualstack.dataset.variables import virtual_array
from virtualstack.errors import WriterError
from virtualstack.manifests import (
    ManifestArray,
    Unpacked,
    is_nan,
    reads_as,
    repack,
    same_value,
    unpack,
    value_changing,
)

__all__ = ["CF_KEYS", "copy_times_to_bounds", "declared_dataset", "is_same_word", "is_unpacked", "with_edits"]

CF_KEYS = (
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
    "_Encoding",
    "units",
    "calendar",
    "dtype",
)
"""Attributes that may say how stored numbers become values."""

_KNOWN = frozenset(CF_KEYS)
_MISSING = ("_FillValue", "missing_value")
_TIMES = ("units", "calendar")
_ENCODED = _KNOWN - {"dtype"}
"""Of an encoding, in which ``dtype`` is that of stored numbers."""


def declared_dataset(dataset: xr.Dataset, /) -> xr.Dataset:
    """Return a dataset whose arrays are packed as attributes and encoding of its variables say.

    It is the dataset itself where nothing was edited. No bytes are read.

    Raises
    ------
    WriterError
        It is not known what an edit means.
    """
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


def with_edits(
    dataset: xr.Dataset,
    edits: Mapping[str, Mapping[str, Any]],
    packings: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    /,
) -> xr.Dataset:
    """Return a dataset with virtual variables whose numbers are packed otherwise; ``None`` takes an attribute away.

    Parameters
    ----------
    dataset
        Stays as it is.
    edits
        Of attributes, by the name of a variable.
    packings
        Of the attributes by which chunks of variables unpack their numbers themselves, as with ``unpack=True``.

    Raises
    ------
    WriterError
        An edit cannot be made.
    """
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
    """Tell whether chunks unpack their numbers themselves, by what was in the attributes before."""
    encodings = array.manifest.tables.encodings
    return any(codec.name == CF for encoding in encodings for codec in encoding.codecs)


def copy_times_to_bounds(
    dataset: xr.Dataset, name: str, edits: Mapping[str, Any], before: Mapping[str, Any], /
) -> None:
    """Let virtual bounds follow the times of their variable, where these were theirs too; changes the dataset.

    CF conventions 7.1: attributes of a boundary variable that are absent are those of its parent.
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
    """Return an array with the attributes of its variable but for edits."""
    added = [key for key, x in edits.items() if x is not None]
    if array.dtype.kind in "mM" and added:
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' holds times that are decoded, of dtype '{array.dtype}', and has "
            f"got {added[0]} = {edits[added[0]]!r}, which is for numbers: remove it, and say what stored "
            f"numbers mean with vds.virtual.set_encoding({{{name!r}: {{{added[0]!r}: ...}}}})",
            variable=name,
            feature=added[0],
        )
    attributes = {key: x for key, x in {**variable.attrs, **edits}.items() if x is not None}
    own = {key: x for key, x in array.cf.items() if key not in edits}
    others = {key: attributes[key] for key in array.cf.keys() & edits.keys() - _KNOWN if key in attributes}
    changed = replace(array, attributes=attributes, cf={**value_changing({**attributes, **own}), **own, **others})
    if array.dimension_names is None and array.dtype.kind in "iuf" and _loses_missing(array, changed):
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' has elements that are in no file, or were never written, and hold "
            f"the missing value of {dict(array.cf)}: with {dict(changed.cf)} they would become values. Call "
            "vds.virtual.set_encoding for each file, before they are joined, reindexed or masked",
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    return changed


def _loses_missing(array: ManifestArray, changed: ManifestArray) -> bool:
    """Tell whether there are holes that were missing, and would not be any more."""
    fills = [fill.value for fill in array.manifest.tables.fills]
    if not any(reads_as(fill, array.cf) and not reads_as(fill, changed.cf) for fill in fills):
        return False
    return bool(array.in_memory().holes.any())


# -- attributes -----------------------------------------------------------------------------------------------


def _edited_attributes(variable: xr.Variable, array: ManifestArray) -> dict[str, Any]:
    """Return which attributes a user has added, changed or taken away (``None``)."""
    now, was, own = variable.attrs, array.attributes, array.cf
    edits = {}
    for key in CF_KEYS if own.keys() <= _KNOWN else dict.fromkeys((*CF_KEYS, *own)):
        value, before = now.get(key), was.get(key)
        if value is not before and not is_same_word(key, value, before) and not is_same_word(key, value, own.get(key)):
            edits[key] = value
    return {} if edits and _have_gone(now, array) else edits


def is_same_word(key: str, a: object, b: object, /) -> bool:
    """Tell whether an attribute is the same with either of two values, of packing the dtype too."""
    if a is b:
        return True
    if a is None or b is None or not same_value(a, b):
        return False
    return key not in ("scale_factor", "add_offset") or np.asarray(a).dtype == np.asarray(b).dtype


def _have_gone(attributes: Mapping[str, Any], array: ManifestArray) -> bool:
    """Tell whether a variable has lost all attributes of its array together, as no user has told it to.

    Where xarray drops them (``xr.combine_nested``, ``drop_attrs``, ``to_dataarray``), stored numbers mean what they
    meant. A user deletes some: of a variable as it was opened, all if there are none but these.
    """
    if not array.attributes or not attributes.keys().isdisjoint((*array.attributes, *CF_KEYS)):
        return False
    return array.dimension_names is None or bool(array.attributes.keys() - array.cf.keys())


# -- encoding -------------------------------------------------------------------------------------------------


def _edited_encoding(
    name: str, variable: xr.Variable, array: ManifestArray, edits: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a user has set in the encoding of a variable whose numbers attributes pack.

    Of numbers that chunks unpack themselves, it says how they were packed: to xarray those are values already.
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
                f"variable '{name}' of '{array.a_url()}' has {key} = {known!r} in its attributes and {value!r} in its "
                "encoding, and both were set: remove one of them",
                variable=name,
                feature=key,
            )
        found[key] = value
    return found


def _with_other_packing(name: str, array: ManifestArray, edits: Mapping[str, Any]) -> Unpacked:
    """Let chunks that were opened with ``unpack=True`` unpack their numbers otherwise."""
    packed = repack(array)
    if is_unpacked(packed):
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' was opened with unpack=True, and {dict(edits)} cannot be said of "
            "all of its chunks: they are packed in several ways, or some are in no file. Call "
            "vds.virtual.set_encoding for each file, before they are joined",
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    variable = xr.Variable([f"dim_{i}" for i in range(packed.ndim)], packed, packed.attributes)
    unpacked = unpack(_edited(name, variable, packed, edits))
    if unpacked.obstacle is not None:
        raise WriterError(
            f"variable '{name}' of '{array.a_url()}' cannot be unpacked with {dict(edits)}: {unpacked.obstacle}. Open "
            "the file with unpack=False",
            variable=name,
            feature=", ".join(sorted(edits)),
        )
    return unpacked
