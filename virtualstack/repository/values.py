"""Overwriting a region of a variable: new bytes go into the store, and the originals stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from virtualstack.dataset.packing import stored_values
from virtualstack.errors import StorageError, WriterError
from virtualstack.formats.manifest_store.names import new_id
from virtualstack.formats.manifest_store.snapshot import Snapshot
from virtualstack.manifests import ChunkManifest, ManifestArray, ManifestGroup, inline_array
from virtualstack.reading import read_array
from virtualstack.repository.boxes import Side, cells_of, region_of
from virtualstack.repository.stored import Stored
from virtualstack.storage import Storage
from virtualstack.writers.manifest_store.values import write_values
from virtualstack.writers.manifest_store.write import Overlay

__all__ = ["write"]


def write(
    store: Stored, path: str, region: object, values: Any, storage: Storage, /, *, raw: bool, message: str | None
) -> Snapshot:
    """Overwrite a region of a variable; see :meth:`~virtualstack.repository.Repository.write`."""
    found = store.group[path]
    if not isinstance(found, ManifestArray):
        raise KeyError(f"'{path}' is a group, with the variables {sorted(found.arrays)}")
    sides = region_of(region, found.dimension_names or (), found.shape)
    given = _values(path, found, sides, values)
    if not given.size:
        return store.snapshot
    stored = stored_values(found, given, raw=raw)
    where = "/" + path.strip("/")
    if isinstance(found.manifest, ChunkManifest):
        return store.write(_with_array(store.group, where, _patched(found, sides, stored, storage)), message=message)
    segment = new_id()
    cells = [cells_of(axis, side) for axis, side in zip(found.grid.axes, sides, strict=True)]
    whole = _whole(found, sides, [lines for _, lines in cells], stored, storage)
    fill = found.manifest.tables.fill
    manifest = write_values(store.objects, segment, whole, [lines - lines[0] for _, lines in cells], fill)
    overlay = Overlay(manifest, tuple(first for first, _ in cells))
    return store.write(store.group, overlays={where: [overlay]}, message=message, segment=segment)


def _values(path: str, array: ManifestArray, sides: list[Side], values: Any) -> NDArray[Any]:
    """Give values in the shape of a region."""
    if isinstance(values, xr.DataArray | xr.Variable):
        dims = [dim for dim, side in zip(array.dimension_names or (), sides, strict=True) if not side.is_one]
        if set(values.dims) == set(dims):
            values = values.transpose(*dims)
        values = values.values
    given = np.asarray(values)
    shape = tuple(side.length for side in sides if not side.is_one)
    if given.ndim and given.shape != shape:
        raise WriterError(
            f"values of shape {given.shape} are given for a region of shape {shape} of variable '{path}', which has "
            f"shape {array.shape}",
            variable=path,
            feature="shape",
        )
    return np.broadcast_to(given, shape).reshape([side.length for side in sides])


def _patched(array: ManifestArray, sides: list[Side], stored: NDArray[Any], storage: Storage) -> ManifestArray:
    """Give a loaded variable with other values in a region."""
    whole = read_array(array, (), storage)
    whole[tuple(side.slice for side in sides)] = stored
    return inline_array(
        whole,
        name=array.name or "",
        dims=array.dimension_names or (),
        attributes=array.attributes,
        cf=array.cf,
        fill=array.manifest.tables.fill,
    )


def _whole(
    array: ManifestArray, sides: list[Side], lines: list[NDArray[np.int64]], stored: NDArray[Any], storage: Storage
) -> NDArray[Any]:
    """Give the values of all cells that a region meets; what lies around it is read."""
    low, high = [int(x[0]) for x in lines], [int(x[-1]) for x in lines]
    whole = np.empty([b - a for a, b in zip(low, high, strict=True)], array.dtype)
    box = [(side.start, side.stop) for side in sides]
    whole[_within(box, low)] = stored
    for axis, side in enumerate(sides):
        rest = [(low[i], high[i]) for i in range(axis + 1, len(sides))]
        for begin, end in ((low[axis], side.start), (side.stop, high[axis])):
            if begin < end:
                slab = [*box[:axis], (begin, end), *rest]
                whole[_within(slab, low)] = _read(array, slab, storage)
    return whole


def _within(box: list[tuple[int, int]], low: list[int]) -> tuple[slice, ...]:
    return tuple(slice(a - first, b - first) for (a, b), first in zip(box, low, strict=True))


def _read(array: ManifestArray, box: list[tuple[int, int]], storage: Storage) -> NDArray[Any]:
    try:
        return read_array(array, tuple(slice(a, b) for a, b in box), storage, missing="raise")
    except StorageError as error:
        error.add_note(
            f"chunks of variable '{array.name}' that the region covers in part are read and written whole; give a "
            "region that covers whole chunks, and nothing is read"
        )
        raise


def _with_array(group: ManifestGroup, path: str, array: ManifestArray) -> ManifestGroup:
    """Put an array into the place of another one."""
    name, _, rest = path.removeprefix("/").partition("/")
    if not rest:
        return replace(group, arrays={**group.arrays, name: array})
    return replace(group, groups={**group.groups, name: _with_array(group.groups[name], "/" + rest, array)})
