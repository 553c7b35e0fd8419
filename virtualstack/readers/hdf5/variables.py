"""A dataset as a virtual array, or the reason why it is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
from h5py import h5d

from virtualstack.manifests import ChunkGrid, ChunkManifest, Fill, ManifestArray, Refusal
from virtualstack.manifests import value_changing as cf_of
from virtualstack.readers.hdf5.datatypes import ElementType, converted_dtype, packed
from virtualstack.readers.hdf5.faults import LibraryError, library_errors
from virtualstack.readers.hdf5.references import FileContext, LostValuesError, NoReferencesError, references
from virtualstack.readers.hdf5.tree import Variable
from virtualstack.readers.hdf5.values import (
    NotInlinedError,
    inline_paths,
    inline_stored,
    inline_text,
    inline_values,
    one_cell,
)

__all__ = ["read_variable"]


def read_variable(
    variable: Variable, dims: tuple[str, ...], attributes: Mapping[str, Any], context: FileContext, /
) -> tuple[ManifestArray | None, Refusal | None]:
    """Describe a dataset.

    Returns
    -------
    array
        ``None`` where it is refused.
    refusal
        Why it was refused, or inlined, or what is odd about it; ``None`` for the usual dataset.
    """
    dataset = variable.dataset
    found = variable.element
    if found.kind == "refused":
        return None, Refusal(path=variable.path, reason=found.reason)
    try:
        with library_errors():
            value_dtype = _value_dtype(dataset, found)
    except LibraryError as error:  # such as integers of 3 bytes
        return None, Refusal(path=variable.path, reason=f"{found.reason}; the HDF5 library cannot read it: {error}")
    shape = variable.shape or ()
    with library_errors():
        fill = _fill(dataset, found, value_dtype)
    refusal = None
    if variable.shape is None:
        manifest, grid = ChunkManifest.empty((), fill), one_cell(())
        refusal = Refusal(path=variable.path, reason="a null dataspace: it has no value, only attributes", kind="noted")
    else:
        try:
            manifest, grid = _references(variable, shape, fill, context)
        except LostValuesError as error:
            return None, Refusal(path=variable.path, reason=str(error))
        except NoReferencesError as obstacle:
            try:
                if found.kind == "text":
                    manifest = inline_text(dataset, fill, context.inline_limit)
                elif found.kind == "paths":
                    manifest = inline_paths(dataset, context.object_paths(), fill, context.inline_limit)
                elif found.kind == "bytes":
                    manifest = inline_stored(dataset, found, shape, fill, limit=context.inline_limit)
                else:
                    manifest = inline_values(dataset, value_dtype, shape, fill, context.inline_limit)
            except NotInlinedError as error:
                return None, Refusal(path=variable.path, reason=f"{obstacle}; {error}")
            grid = one_cell(shape)
            refusal = Refusal(path=variable.path, reason=str(obstacle), kind="inlined")
    array = ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=value_dtype,
        name=variable.path,
        dimension_names=dims,
        attributes=attributes,
        cf=cf_of(attributes),
    )
    array.validate()
    return array, refusal


def _references(
    variable: Variable, shape: tuple[int, ...], fill: Fill, context: FileContext
) -> tuple[ChunkManifest, ChunkGrid]:
    """Refer to stored bytes, and put the codecs of elements before those of filters."""
    found, layout = variable.element, variable.dataset.id.get_create_plist().get_layout()
    if found.stored is not None and layout == h5d.COMPACT:
        try:
            return inline_stored(variable.dataset, found, shape, fill), one_cell(shape)
        except NotInlinedError as error:
            raise NoReferencesError(str(error)) from error
    if not found.codecs or found.stored is None or layout == h5d.VIRTUAL:
        return references(variable, found, shape, fill, context)
    raw = replace(found, stored=np.dtype(f"V{found.size}"), codecs=())
    manifest, grid = references(variable, raw, shape, fill, context)
    encodings = tuple(
        replace(encoding, dtype=found.stored, codecs=(*found.codecs, *encoding.codecs))
        for encoding in manifest.encodings
    )
    return replace(manifest, encodings=encodings), grid


def _value_dtype(dataset: h5py.Dataset, found: ElementType) -> np.dtype[Any]:
    if found.kind in ("text", "paths"):
        return np.dtypes.StringDType()
    return converted_dtype(dataset) if found.stored is None else packed(found.stored)


def _fill(dataset: h5py.Dataset, found: ElementType, dtype: np.dtype[Any]) -> Fill:
    """Give what never-written chunks read as: the fill value of the dataset, which is not its ``_FillValue``."""
    dcpl = dataset.id.get_create_plist()
    # Where filling is turned off (H5Pset_fill_time), what was never written is undefined, and h5py gives zeros.
    if dcpl.fill_value_defined() != h5d.FILL_VALUE_USER_DEFINED or dcpl.get_fill_time() == h5d.FILL_TIME_NEVER:
        return Fill.zero(dtype)
    if found.kind == "text":
        value = dataset.fillvalue
        return Fill.of(value or b"", dtype)
    if found.subshape or found.kind == "paths":
        return Fill.zero(dtype)
    # integers of odd sizes have a dtype here alone
    cell = np.zeros((), dtype if found.codecs else dataset.dtype)
    dcpl.get_fill_value(cell)
    return Fill(dtype, cell.astype(dtype).tobytes())
