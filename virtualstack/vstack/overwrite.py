"""Overwrite a region of a variable: new chunks replace the old ones, and the source files stay unchanged."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import CodecError
from virtualstack.combine.region import Side, read_region
from virtualstack.dataset.packing import stored_values
from virtualstack.errors import Remedy, StorageError, WriterError
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import (
    ChunkEncoding,
    ChunkManifest,
    ManifestArray,
    ManifestGroup,
    inlined,
)
from virtualstack.manifests.manifest import Overlay
from virtualstack.manifests.paged import map_in_threads
from virtualstack.manifests.plain import PlainArray
from virtualstack.printable import first_names
from virtualstack.reading import read_array
from virtualstack.storage import Storage, StorageLike
from virtualstack.vstack.format.names import new_id
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.save import Stored
from virtualstack.vstack.write.values import ValuesWriter, compressed, cut, manifest_of
from virtualstack.zarr.metadata.encode import encode_cell


@dataclass(frozen=True, slots=True)
class Patch:
    """New values of a region of an array."""

    array: ManifestArray
    sides: list[Side]
    values: NDArray[Any]

    @classmethod
    def from_region(cls, path: str, array: ManifestArray, region: object, values: Any, /, *, raw: bool) -> Self | None:
        """Read a region and pack its values; return ``None`` if the region is empty."""
        sides = read_region(region, array.dimension_names or (), array.shape)
        given = _values(path, array, sides, values)
        return cls(array, sides, stored_values(array, given, raw=raw)) if given.size else None

    def cells(self) -> tuple[tuple[int, ...], list[NDArray[np.int64]]]:
        """Return the first cell that the region meets, and for each axis the boundaries of all cells that it meets."""
        axes = self.array.grid.axes
        met = [axis.cover(side.start, side.stop) for axis, side in zip(axes, self.sides, strict=True)]
        lines = [axis.lines(cells.start, cells.stop) for axis, cells in zip(axes, met, strict=True)]
        return tuple(cells.start for cells in met), lines

    def whole(self, lines: list[NDArray[np.int64]], storage: Storage, /) -> NDArray[Any]:
        """Return the values of all cells that the region meets; values around the region are read."""
        low, high = [int(x[0]) for x in lines], [int(x[-1]) for x in lines]
        whole = np.empty([b - a for a, b in zip(low, high, strict=True)], self.array.dtype)
        box = [(side.start, side.stop) for side in self.sides]
        whole[_within(box, low)] = self.values
        for axis, side in enumerate(self.sides):
            rest = [(low[i], high[i]) for i in range(axis + 1, len(self.sides))]
            for begin, end in ((low[axis], side.start), (side.stop, high[axis])):
                if begin < end:
                    slab = [*box[:axis], (begin, end), *rest]
                    whole[_within(slab, low)] = _read(self.array, slab, storage)
        return whole


def _values(path: str, array: ManifestArray, sides: list[Side], values: Any) -> NDArray[Any]:
    """Return values in the shape of a region."""
    if isinstance(values, xr.DataArray | xr.Variable):
        dims = [dim for dim, side in zip(array.dimension_names or (), sides, strict=True) if not side.is_one]
        if set(values.dims) == set(dims):
            values = values.transpose(*dims)
        given = values.values
    else:  # like xarray: masked values are missing, and dates are times
        values = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
        given = xr.Variable([f"dim_{i}" for i in range(values.ndim)], values).values
        if given.dtype.kind == "f" and values.dtype.kind in "iu":
            _check_exact(path, values)
    shape = tuple(side.length for side in sides if not side.is_one)
    if given.ndim and given.shape != shape:
        raise WriterError(
            f"values of shape {given.shape} were given for a region of shape {shape} of variable '{path}', "
            f"which has shape {array.shape}",
            variable=path,
            feature="shape",
        )
    return np.broadcast_to(given, shape).reshape([side.length for side in sides])


def _check_exact(path: str, values: np.ma.MaskedArray[Any, Any]) -> None:
    """Refuse masked integers that floats cannot hold exactly: masked integers become floats with NaN."""
    own = values.compressed()
    if own.size and max(-int(own.min()), int(own.max())) > 1 << 53:
        raise WriterError(
            f"masked values for variable '{path}' have integers beyond 2^53, which become inexact because missing "
            "values are represented as NaN",
            Remedy("give stored numbers, with the fill value for masked ones, and", raw=True),
            variable=path,
            feature="masked integers",
        )


def _within(box: list[tuple[int, int]], low: list[int]) -> tuple[slice, ...]:
    return tuple(slice(a - first, b - first) for (a, b), first in zip(box, low, strict=True))


def _read(array: ManifestArray, box: list[tuple[int, int]], storage: Storage) -> NDArray[Any]:
    try:
        return read_array(array, tuple(slice(a, b) for a, b in box), storage, absent="raise")
    except StorageError as error:
        error.add_note(
            f"chunks of variable '{array.name}' that the region covers only in part are read and written whole. "
            "Nothing is read if the region covers whole chunks"
        )
        raise


def overwrite(
    array: ManifestArray,
    name: str,
    region: object,
    values: Any,
    to: str | os.PathLike[str],
    /,
    *,
    raw: bool = False,
    storage: StorageLike = None,
) -> ManifestArray:
    """Return an array with other values in a region; a manifest that is not in memory is not loaded.

    New chunks are stored like the chunks of the array if all of these are stored alike and this loses no values.
    Otherwise they are compressed with zstd. Chunks that the region covers in part are read and written as a whole.
    """
    patch = Patch.from_region(name, array, region, values, raw=raw)
    if patch is None:
        return array
    reached = Storage.from_option(storage).with_access(array.access)
    _, lines = patch.cells()
    encodings, chunks = _encoded(array, patch.whole(lines, reached), [x - x[0] for x in lines])
    url = absolute_url(to)

    def put(number: int, data: bytes) -> Location:
        folder, _, key = url.rpartition("/")
        if not reached.target(f"{folder}/").put_if_absent(key, data):
            raise WriterError(
                f"'{url}' already exists, and other references may need it",
                Remedy("give the name of a new file"),
                feature="existing target",
            )
        return Location(url, len(data))

    shape = [len(x) - 1 for x in lines]
    cells = manifest_of(chunks, encodings, array.manifest.tables.fill, shape, put, sys.maxsize)
    placed = _placed(array, cells, [(int(x[0]), int(x[-1])) for x in lines], 0).manifest
    return replace(array, manifest=placed, access=reached.access(url))


def _encoded(
    array: ManifestArray, whole: NDArray[Any], lines: list[NDArray[np.int64]]
) -> tuple[list[ChunkEncoding], list[bytes]]:
    """Encode values, one chunk for each cell, with the codecs of the array if they have encoders."""
    cells = cut(whole, lines)
    plain = PlainArray.of_tables(array)
    if plain is not None and plain.encoding is not None:
        encoding = plain.encoding
        try:
            return [encoding] * len(cells), list(
                map_in_threads(lambda cell: encode_cell(cell, plain.chunks, plain.order, encoding), cells)
            )
        except CodecError:  # a codec has no encoder, or is lossy
            pass
    return compressed(cells)


def _placed(array: ManifestArray, new: ChunkManifest, box: list[tuple[int, int]], axis: int) -> ManifestArray:
    """Put cells into an array, axis by axis, by joining them with the parts before and after."""
    if axis == len(box):
        return replace(array, manifest=new)
    start, stop = box[axis]
    before, within, behind = (
        array[(slice(None),) * axis + (slice(a, b),)] for a, b in ((0, start), (start, stop), (stop, array.shape[axis]))
    )
    parts = [before, _placed(within, new, box, axis + 1), behind]
    made: ManifestArray = np.concatenate([part for part in parts if part.shape[axis]], axis)  # type: ignore[assignment]
    return made


def write(
    store: Stored, path: str, region: object, values: Any, storage: Storage, /, *, raw: bool, message: str | None
) -> Snapshot:
    """Overwrite a region of a variable; see :meth:`~virtualstack.vstack.Repository.write`."""
    if not isinstance(path, str):
        raise TypeError(f"write() needs the name of a variable, not {path!r}")
    layout = store.snapshot.layouts.get("/" + path.strip("/"))
    if layout is not None:
        raise WriterError(
            f"'{path}' has the values of '{layout.of}' in other chunks",
            Remedy("write to that variable, which changes both"),
            variable=path,
            feature="layout",
        )
    found = store.group[path]
    if not isinstance(found, ManifestArray):
        raise KeyError(f"'{path}' is a group, not a variable; it has the variables {first_names(sorted(found.arrays))}")
    patch = Patch.from_region(path, found, region, values, raw=raw)
    if patch is None:
        return store.snapshot
    where = "/" + path.strip("/")
    if isinstance(found.manifest, ChunkManifest):
        return store.write(_with_array(store.group, where, _patched(patch, storage)), message=message)
    segment = new_id()
    first, lines = patch.cells()
    fill = found.manifest.tables.fill
    whole = patch.whole(lines, storage)
    manifest = ValuesWriter(store.opened.objects, segment).write(whole, [x - x[0] for x in lines], fill)
    return store.write(store.group, overlays={where: [Overlay(manifest, first)]}, message=message, segment=segment)


def _patched(patch: Patch, storage: Storage) -> ManifestArray:
    """Return a loaded variable with other values in a region."""
    array = patch.array
    whole = read_array(array, (), storage)
    whole[tuple(side.slice for side in patch.sides)] = patch.values
    return inlined(array, whole)


def _with_array(group: ManifestGroup, path: str, array: ManifestArray) -> ManifestGroup:
    """Replace an array of a group."""
    name, _, rest = path.removeprefix("/").partition("/")
    if not rest:
        return replace(group, arrays={**group.arrays, name: array})
    return replace(group, groups={**group.groups, name: _with_array(group.groups[name], "/" + rest, array)})
