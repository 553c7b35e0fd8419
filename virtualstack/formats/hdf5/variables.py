"""Make a virtual array of a dataset, with its fill value, strings and missing records, or return why it is refused."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from virtualstack.child.errors import LibraryError
from virtualstack.errors import ChunkDecodeError
from virtualstack.formats.base import NETCDF_FILLS
from virtualstack.formats.hdf5.datatypes import ElementType, decode_element, packed
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.references import FileContext, references
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout, CompactLayout, VirtualLayout
from virtualstack.formats.hdf5.structures.requests import LostValuesError, NoReferencesError, StructureError
from virtualstack.formats.hdf5.tree import HDF5Variable
from virtualstack.formats.hdf5.values import (
    NotInlinedError,
    check_number_of_strings,
    inline_paths,
    inline_stored,
    inline_strings,
    inline_text,
    inline_values,
    one_cell,
)
from virtualstack.manifests import ABSENT, ENTRY, ChunkGrid, ChunkManifest, Fill, ManifestArray, Refusal, value_changing
from virtualstack.manifests.cells import MAX_READ_CELLS
from virtualstack.manifests.functions import concatenate
from virtualstack.reading import read_array

_MAX_TEXT_BYTES = 1 << 20


def fill_value(variable: HDF5Variable, dtype: np.dtype[Any], library: Library, /) -> Fill:
    """Return the value that chunks which were never written read as."""
    # If filling is off (H5Pset_fill_time), elements that were never written are undefined, and h5py returns zeros.
    given = declared_fill(variable, dtype, library) if variable.fill.is_written else None
    return Fill.zero(dtype) if given is None else given


def declared_fill(variable: HDF5Variable, dtype: np.dtype[Any], library: Library, /) -> Fill | None:
    """Return the fill value with which a dataset was created, used or not; ``None`` if no value was given."""
    raw, element = variable.fill.raw, variable.element
    if raw is None:
        return None
    if element.subshape or element.kind == "paths":
        return Fill.zero(dtype)
    if element.stored is not None and len(raw) == element.size:
        is_value = not element.codecs and element.stored == dtype
        return Fill(dtype, raw if is_value else decode_element(raw, element).tobytes())
    if element.kind == "text" and variable.read_texts is not None:
        try:
            return Fill.from_value(variable.read_texts(raw, _MAX_TEXT_BYTES)[0], dtype)
        except StructureError as error:
            raise LibraryError(f"its fill value is damaged: {error}") from error
    if element.kind == "text":
        return Fill.from_value(library.text_fill(variable.raw_path), dtype)
    if raw and len(raw) != element.size:  # the library would return the memory after it
        raise LibraryError(f"its fill value has {len(raw)} bytes, and its elements {element.size}")
    # only virtualstack has a dtype for integers of odd sizes
    cell = library.fill(variable.raw_path, dtype if element.codecs else None)
    return Fill(dtype, cell.astype(dtype).tobytes())


def inline_own_text(
    variable: HDF5Variable, read_texts: Callable[[bytes, int], list[bytes]], fill: Fill, context: FileContext, /
) -> ChunkManifest:
    """Read all strings as one INLINE chunk, without the HDF5 library, which may hang on damaged heaps."""
    shape, limit = variable.space or (), context.inline_limit
    check_number_of_strings(shape, limit)
    dtype = np.dtype(f"V{variable.element.size}")
    nothing = variable.fill.raw if variable.fill.is_written else None
    raw = variable._replace(element=ElementType(kind="bytes", stored=dtype, size=dtype.itemsize))
    manifest, grid = references(raw, shape, Fill(dtype, nothing or bytes(dtype.itemsize)), context)
    array = ManifestArray(manifest=manifest, grid=grid, dtype=dtype, name=variable.path)
    try:
        found = read_texts(read_array(array, (), context.storage).tobytes(), limit)
    except (StructureError, ChunkDecodeError) as error:
        raise NotInlinedError(f"they are damaged: {error}") from error
    return inline_strings(found, shape, fill, limit)


def extend_records(
    array: ManifestArray, variable: HDF5Variable, lengths: Mapping[str, int], library: Library, /
) -> ManifestArray:
    """Extend an array to the lengths of its dimensions with EMPTY chunks.

    In netCDF-4 a dataset is only as long as it was written. Its unlimited dimensions are as long as the longest dataset
    along them. The elements between read as the fill value that the dataset was given. If it was given no fill value
    (NC_NOFILL), they read as netCDF's default for the type; the dataset itself keeps the fill value of HDF5.
    """
    if not lengths:
        return array
    names = array.dimension_names or ()
    shape = tuple(max(n, lengths.get(name, n)) for n, name in zip(array.shape, names, strict=True))
    if shape == array.shape:
        return array
    missing = _missing_records(array, variable, library)
    chunks = variable.layout.chunk if isinstance(variable.layout, ChunkedLayout) else None
    manifest = array.in_memory()
    # A stored chunk has fill values past the end of its dataset: HDF5 itself relies on them when a
    # dataset grows (H5Dset_extent). Only if filling is off, these values are arbitrary.
    is_filled = missing == manifest.fill and variable.fill.is_written
    if missing != manifest.fill and not manifest.holes.any():
        array = replace(array, manifest=replace(manifest, fills=(missing, *manifest.fills[1:])))
    if chunks is not None and len(chunks) == array.ndim and _is_prefix(array, chunks):
        grid = ChunkGrid.regular(shape, chunks)
        is_whole = all(n % c == 0 or n == m for n, c, m in zip(array.shape, chunks, shape, strict=True))
        if (is_filled or is_whole) and math.prod(grid.shape) <= MAX_READ_CELLS:
            return _in_grid(array, grid, missing)
    return _with_holes(array, shape, missing)


def _missing_records(array: ManifestArray, variable: HDF5Variable, library: Library) -> Fill:
    """Return the fill value of records past the end of a dataset."""
    fill = array.in_memory().fill
    if array.dtype.kind not in "iuf" or variable.element.subshape:
        return fill
    given = declared_fill(variable, array.dtype, library)
    if given is None:  # netCDF-C, get_fill_info and nc4_get_fill_value: HDF5's own default does not count
        default = NETCDF_FILLS.get(array.dtype.str[1:])
        return fill if default is None else Fill.from_value(default, array.dtype)
    return given


def _is_prefix(array: ManifestArray, chunks: tuple[int, ...]) -> bool:
    """Return whether the cells of an array are whole chunks from its first element on; INLINE values are not."""
    return array.grid == ChunkGrid.regular(array.shape, chunks) and all(
        encoding.shape == chunks for encoding in array.in_memory().encodings
    )


def _in_grid(array: ManifestArray, grid: ChunkGrid, missing: Fill) -> ManifestArray:
    manifest = array.in_memory()
    entries = np.zeros(grid.shape, ENTRY)
    fills = manifest.fills
    if missing != fills[0]:
        entries["encoding"] = len(fills)
        fills = (*fills, missing)
    entries[tuple(slice(0, n) for n in manifest.shape)] = manifest.entries
    return replace(array, manifest=replace(manifest, entries=entries, fills=fills), grid=grid)


def _with_holes(array: ManifestArray, shape: tuple[int, ...], missing: Fill) -> ManifestArray:
    names, extended = array.dimension_names, array
    for axis, n in enumerate(shape):
        n_absent = n - extended.shape[axis]
        if not n_absent:
            continue
        hole_shape = [*extended.shape[:axis], n_absent, *extended.shape[axis + 1 :]]
        grid = ChunkGrid.regular(hole_shape, [max(length, 1) for length in hole_shape])
        hole = replace(array, manifest=ChunkManifest.empty(grid.shape, missing), grid=grid)
        extended = concatenate([replace(extended, dimension_names=None), hole], axis)
    return replace(extended, dimension_names=names)


def read_variable(
    variable: HDF5Variable, dims: tuple[str, ...], context: FileContext, /
) -> tuple[ManifestArray | None, Refusal | None]:
    """Make the array of a dataset."""
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
    fill = fill_value(variable, value_dtype, context.library)
    refusal = None
    if variable.shape is None:
        manifest, grid = _nothing(value_dtype), one_cell(())
        refusal = Refusal(path=variable.path, reason="a null dataspace: it has no value, only attributes", kind="noted")
    else:
        try:
            manifest, grid = read_references(variable, shape, fill, context)
        except LostValuesError as error:
            return None, Refusal(path=variable.path, reason=str(error))
        except NoReferencesError as obstacle:
            try:
                manifest = _inlined(variable, value_dtype, shape, fill, context)
            except NotInlinedError as error:
                return None, Refusal(path=variable.path, reason=f"{obstacle}; {error}", inline_size=error.size)
            grid = one_cell(shape)
            refusal = Refusal(path=variable.path, reason=str(obstacle), kind="inlined")
    attributes = variable.attributes.own_values()
    array = ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=value_dtype,
        name=variable.path,
        dimension_names=dims,
        attributes=attributes,
        cf=value_changing(attributes),
    )
    return array, refusal


def _nothing(dtype: np.dtype[Any]) -> ChunkManifest:
    """Return the manifest of an array that has no value: one ABSENT cell."""
    entry = np.zeros((), ENTRY)
    entry["location"] = ABSENT
    fill = Fill.from_value(np.nan, dtype) if dtype.kind in "fc" else Fill.zero(dtype)
    return ChunkManifest(entries=entry, fills=(fill,), encodings=(), locations=())


def _inlined(
    variable: HDF5Variable, dtype: np.dtype[Any], shape: tuple[int, ...], fill: Fill, context: FileContext
) -> ChunkManifest:
    """Read all values of a variable that has no byte ranges."""
    if not math.prod(shape):
        return ChunkManifest.empty(one_cell(shape).shape, fill)
    found, limit = variable.element, context.inline_limit
    if found.kind == "text" and variable.read_texts is not None and not isinstance(variable.layout, VirtualLayout):
        with contextlib.suppress(NoReferencesError, LostValuesError):  # the library may have the missing filters
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


def read_references(
    variable: HDF5Variable, shape: tuple[int, ...], fill: Fill, context: FileContext, /
) -> tuple[ChunkManifest, ChunkGrid]:
    """Return references to stored bytes, with the codecs of elements before the codecs of filters."""
    found = variable.element
    if not found.codecs or found.stored is None or isinstance(variable.layout, CompactLayout | VirtualLayout):
        return references(variable, shape, fill, context)
    raw = found._replace(stored=np.dtype(f"V{found.size}"), codecs=())
    manifest, grid = references(variable._replace(element=raw), shape, fill, context)
    encodings = tuple(
        replace(encoding, dtype=found.stored, codecs=(*found.codecs, *encoding.codecs))
        for encoding in manifest.encodings
    )
    return replace(manifest, encodings=encodings), grid


def _value_dtype(variable: HDF5Variable, library: Library) -> np.dtype[Any]:
    found = variable.element
    if found.kind in ("text", "paths"):
        return np.dtypes.StringDType()
    return library.dtype(variable.raw_path) if found.stored is None else packed(found.stored)
