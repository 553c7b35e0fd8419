"""A dataset as a virtual array, or the reason why it is none."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np

from virtualstack.child.errors import LibraryError
from virtualstack.formats.hdf5.datatypes import packed
from virtualstack.formats.hdf5.fills import fill_of
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.obstacles import LostValuesError, NoReferencesError
from virtualstack.formats.hdf5.references import FileContext, references
from virtualstack.formats.hdf5.structures.layout_message import CompactLayout, VirtualLayout
from virtualstack.formats.hdf5.texts import inline_own_text
from virtualstack.formats.hdf5.tree import Variable
from virtualstack.formats.hdf5.values import (
    NotInlinedError,
    inline_paths,
    inline_stored,
    inline_text,
    inline_values,
    one_cell,
)
from virtualstack.manifests import ABSENT, ENTRY, ChunkGrid, ChunkManifest, Fill, ManifestArray, Refusal
from virtualstack.manifests import value_changing as cf_of

__all__ = ["read_variable"]


def read_variable(
    variable: Variable, dims: tuple[str, ...], context: FileContext, /
) -> tuple[ManifestArray | None, Refusal | None]:
    """Describe a dataset.

    Returns
    -------
    array
        ``None`` where it is refused.
    refusal
        Why it was refused, or inlined, or what is odd about it; ``None`` for the usual dataset.
    """
    found = variable.element
    if found.kind == "refused":
        return None, Refusal(path=variable.path, reason=found.reason)
    try:
        value_dtype = _value_dtype(variable, context.library)
    except LibraryError as error:  # such as integers of 3 bytes
        return None, Refusal(path=variable.path, reason=f"{found.reason}; the HDF5 library cannot read it: {error}")
    if value_dtype.hasobject and value_dtype.kind != "T":  # h5py makes Python objects of the elements
        return None, Refusal(path=variable.path, reason=found.reason)
    shape = variable.shape or ()
    fill = fill_of(variable, value_dtype, context.library)
    refusal = None
    if variable.shape is None:
        manifest, grid = _nothing(value_dtype), one_cell(())
        refusal = Refusal(path=variable.path, reason="a null dataspace: it has no value, only attributes", kind="noted")
    else:
        try:
            manifest, grid = _references(variable, shape, fill, context)
        except LostValuesError as error:
            return None, Refusal(path=variable.path, reason=str(error))
        except NoReferencesError as obstacle:
            try:
                manifest = _inlined(variable, value_dtype, shape, fill, context)
            except NotInlinedError as error:
                return None, Refusal(path=variable.path, reason=f"{obstacle}; {error}", inline_size=error.size)
            grid = one_cell(shape)
            refusal = Refusal(path=variable.path, reason=str(obstacle), kind="inlined")
    array = ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=value_dtype,
        name=variable.path,
        dimension_names=dims,
        attributes=variable.attributes.values,
        cf=cf_of(variable.attributes.values),
    )
    return array, refusal


def _nothing(dtype: np.dtype[Any]) -> ChunkManifest:
    """Give the manifest of an array that has no value: one ABSENT cell."""
    entry = np.zeros((), ENTRY)
    entry["location"] = ABSENT
    fill = Fill.of(np.nan, dtype) if dtype.kind in "fc" else Fill.zero(dtype)
    return ChunkManifest(entries=entry, fills=(fill,), encodings=(), locations=())


def _inlined(
    variable: Variable, dtype: np.dtype[Any], shape: tuple[int, ...], fill: Fill, context: FileContext
) -> ChunkManifest:
    """Read all values, which have no byte-range form."""
    found, limit = variable.element, context.inline_limit
    if found.kind == "text" and variable.read_texts is not None and not isinstance(variable.layout, VirtualLayout):
        with contextlib.suppress(NoReferencesError, LostValuesError):  # the library may have the filters
            return inline_own_text(variable, variable.read_texts, fill, context)
    if context.library.is_alone and (variable.external or isinstance(variable.layout, VirtualLayout)):
        raise NotInlinedError("they are in other files, which the HDF5 library may not open")
    if found.kind == "text":
        return inline_text(variable, context.library, fill, limit)
    if found.kind == "paths":
        return inline_paths(variable, context.library, context.object_paths(), fill, limit)
    if found.kind == "bytes":
        return inline_stored(variable, context.library, shape, fill, limit)
    return inline_values(variable, context.library, dtype, shape, fill, limit)


def _references(
    variable: Variable, shape: tuple[int, ...], fill: Fill, context: FileContext
) -> tuple[ChunkManifest, ChunkGrid]:
    """Refer to stored bytes, and put the codecs of elements before those of filters."""
    found = variable.element
    if not found.codecs or found.stored is None or isinstance(variable.layout, CompactLayout | VirtualLayout):
        return references(variable, shape, fill, context)
    raw = replace(found, stored=np.dtype(f"V{found.size}"), codecs=())
    manifest, grid = references(replace(variable, element=raw), shape, fill, context)
    encodings = tuple(
        replace(encoding, dtype=found.stored, codecs=(*found.codecs, *encoding.codecs))
        for encoding in manifest.encodings
    )
    return replace(manifest, encodings=encodings), grid


def _value_dtype(variable: Variable, library: Library) -> np.dtype[Any]:
    found = variable.element
    if found.kind in ("text", "paths"):
        return np.dtypes.StringDType()
    return library.dtype(variable.raw_path) if found.stored is None else packed(found.stored)
