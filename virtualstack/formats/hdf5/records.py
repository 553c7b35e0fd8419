"""Variables that have fewer records than their unlimited dimension: netCDF-C reads fill values in their place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from virtualstack.formats.hdf5.fills import given_fill
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout
from virtualstack.formats.hdf5.tree import Variable
from virtualstack.manifests import ENTRY, ChunkGrid, ChunkManifest, Fill, ManifestArray
from virtualstack.manifests.functions import concatenate
from virtualstack.manifests.manifest import MAX_CELLS

__all__ = ["extend_records"]

# netCDF-C, netcdf.h: NC_FILL_BYTE and so on; that of characters is 0, as HDF5's
_DEFAULT_FILLS = {
    "i1": -127,
    "u1": 255,
    "i2": -32767,
    "u2": 65535,
    "i4": -2147483647,
    "u4": 4294967295,
    "i8": -9223372036854775806,
    "u8": 18446744073709551614,
    "f4": 9.969209968386869e36,
    "f8": 9.969209968386869e36,
}


def extend_records(
    array: ManifestArray, variable: Variable, lengths: Mapping[str, int], library: Library, /
) -> ManifestArray:
    """Extend an array to the lengths of its dimensions with EMPTY chunks.

    In netCDF-4 a dataset reaches as far as it was written; its unlimited dimensions are as long as the longest
    dataset along them. What lies between reads as the fill value that the dataset was given, and where it was given
    none (NC_NOFILL) as netCDF's default for the type; the dataset itself keeps the fill value of HDF5.

    Parameters
    ----------
    array
        As long as the dataset.
    variable
        Where the array is from.
    lengths
        Of the unlimited dimensions, by name, in elements.
    library
        Of the file.
    """
    names = array.dimension_names or ()
    shape = tuple(max(n, lengths.get(name, n)) for n, name in zip(array.shape, names, strict=True))
    if shape == array.shape:
        return array
    missing = _missing_records(array, variable, library)
    chunks = variable.layout.chunk if isinstance(variable.layout, ChunkedLayout) else None
    manifest = array.in_memory()
    # What a stored chunk holds past the end of its dataset is fill values: HDF5 itself relies on it when a
    # dataset grows (H5Dset_extent). Only where filling is switched off it is anything.
    is_filled = missing == manifest.fill and variable.fill.is_written
    if missing != manifest.fill and not manifest.holes.any():
        array = replace(array, manifest=replace(manifest, fills=(missing, *manifest.fills[1:])))
    if chunks is not None and len(chunks) == array.ndim and _is_prefix(array, chunks):
        grid = ChunkGrid.regular(shape, chunks)
        is_whole = all(n % c == 0 or n == m for n, c, m in zip(array.shape, chunks, shape, strict=True))
        if (is_filled or is_whole) and math.prod(grid.shape) <= MAX_CELLS:
            return _in_grid(array, grid, missing)
    return _with_holes(array, shape, missing)


def _missing_records(array: ManifestArray, variable: Variable, library: Library) -> Fill:
    """Give what records past the end of a dataset read as."""
    fill = array.in_memory().fill
    if array.dtype.kind not in "iuf" or variable.element.subshape:
        return fill
    given = given_fill(variable, array.dtype, library)
    if given is None:  # netCDF-C, get_fill_info and nc4_get_fill_value: HDF5's own default does not count
        default = _DEFAULT_FILLS.get(array.dtype.str[1:])
        return fill if default is None else Fill.of(default, array.dtype)
    return given


def _is_prefix(array: ManifestArray, chunks: tuple[int, ...]) -> bool:
    """Whether the cells of an array are whole chunks from its first element on; inlined ones are not."""
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
