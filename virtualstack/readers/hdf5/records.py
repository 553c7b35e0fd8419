"""Variables that have fewer records than their unlimited dimension, which netCDF-4 reads as fill values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import h5py
import numpy as np
from h5py import h5d

from virtualstack.manifests import ENTRY, ChunkGrid, ChunkManifest, ManifestArray
from virtualstack.manifests.functions import concatenate

__all__ = ["extend_records"]


def extend_records(array: ManifestArray, dataset: h5py.Dataset, lengths: Mapping[str, int], /) -> ManifestArray:
    """Extend an array to the lengths of its dimensions with EMPTY chunks.

    In netCDF-4 a dataset reaches as far as it was written; its unlimited dimensions are as long as the longest
    dataset along them, and what lies between reads as the fill value of the dataset.

    Parameters
    ----------
    array
        As long as the dataset.
    dataset
        Where the array is from.
    lengths
        Of the unlimited dimensions, by name, in elements.
    """
    names = array.dimension_names or ()
    shape = tuple(max(n, lengths.get(name, n)) for n, name in zip(array.shape, names, strict=True))
    if shape == array.shape:
        return array
    dcpl = dataset.id.get_create_plist()
    chunks = dataset.chunks
    if chunks is not None and len(chunks) == array.ndim and _is_prefix(array, chunks):
        # What a stored chunk holds past the end of its dataset is fill values: HDF5 itself relies on it when a
        # dataset grows (H5Dset_extent). Only where filling is switched off it is anything.
        is_filled = dcpl.get_fill_time() != h5d.FILL_TIME_NEVER
        if is_filled or all(n % c == 0 or n == m for n, c, m in zip(array.shape, chunks, shape, strict=True)):
            return _in_grid(array, ChunkGrid.regular(shape, chunks))
    return _with_holes(array, shape)


def _is_prefix(array: ManifestArray, chunks: tuple[int, ...]) -> bool:
    """Whether the cells of an array are whole chunks from its first element on; inlined ones are not."""
    return array.grid == ChunkGrid.regular(array.shape, chunks) and all(
        encoding.shape == chunks for encoding in array.in_memory().encodings
    )


def _in_grid(array: ManifestArray, grid: ChunkGrid) -> ManifestArray:
    manifest = array.in_memory()
    entries = np.zeros(grid.shape, ENTRY)
    entries[tuple(slice(0, n) for n in manifest.shape)] = manifest.entries
    return replace(array, manifest=replace(manifest, entries=entries), grid=grid)


def _with_holes(array: ManifestArray, shape: tuple[int, ...]) -> ManifestArray:
    names, extended = array.dimension_names, array
    for axis, n in enumerate(shape):
        missing = n - extended.shape[axis]
        if not missing:
            continue
        hole_shape = [*extended.shape[:axis], missing, *extended.shape[axis + 1 :]]
        grid = ChunkGrid.regular(hole_shape, [max(length, 1) for length in hole_shape])
        hole = replace(array, manifest=ChunkManifest.empty(grid.shape, array.in_memory().fill), grid=grid)
        extended = concatenate([replace(extended, dimension_names=None), hole], axis)
    return replace(extended, dimension_names=names)
