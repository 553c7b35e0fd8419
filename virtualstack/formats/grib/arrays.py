"""Variables and coordinates to virtual arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.codec import DTYPES, GRIB
from virtualstack.codecs.metadata import Codec
from virtualstack.formats.grib.cube import GribVariable
from virtualstack.formats.grib.grids import Coordinate, Grid
from virtualstack.formats.grib.table import FieldTable
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    ENTRY,
    FIRST,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
)
from virtualstack.manifests import value_changing as cf_of
from virtualstack.manifests.inline import inline_array

__all__ = ["coordinate_array", "variable_array"]

_FLOAT = DTYPES["values"]
_KEYS = {"latitude": "latitudes", "longitude": "longitudes"}
_NAN = Fill.of(np.nan, _FLOAT)


def variable_array(
    table: FieldTable,
    variable: GribVariable,
    cells: NDArray[np.int64],
    coordinates: Iterable[str],
    /,
    *,
    extra_dims: tuple[str, ...],
    squeeze: bool,
) -> ManifestArray:
    """Give the array of a variable, one chunk a field.

    Cells are ABSENT where each coordinate has fields of the variable, but not all of them together; where one has
    none at all, they are EMPTY. Along ``extra_dims``, each position is looked at by itself.

    Parameters
    ----------
    table
        Has its fields.
    variable
        With axes.
    cells
        The row of the field in each of its cells, -1 where there is none.
    coordinates
        Names of its coordinates.
    extra_dims
        Names of axes that the user asked for.
    squeeze
        Whether axes of one value are left out.
    """
    kept = [axis for axis in variable.axes if not squeeze or len(axis.values) > 1]
    rows = cells.reshape([len(axis.values) for axis in kept])
    is_extra = [axis.name in extra_dims for axis in kept]
    used, codes = np.unique(table.sources[rows[rows >= 0]], return_inverse=True)
    fields = table.fields[rows[rows >= 0]]
    entries = np.zeros(rows.shape, ENTRY)
    entries["location"] = np.where(_expected(rows, is_extra), ABSENT, EMPTY)
    entries["location"][rows >= 0] = FIRST + codes
    entries["offset"][rows >= 0] = fields["offset"]
    entries["length"][rows >= 0] = fields["length"]
    grid = variable.grid
    ones = (1,) * rows.ndim
    attributes = {**variable.attributes, "coordinates": " ".join(coordinates)}
    return ManifestArray(
        manifest=ChunkManifest(
            entries=entries.reshape(*rows.shape, *(1,) * len(grid.shape)),
            fills=(_NAN,),
            encodings=(_encoding(grid, ones, is_plain=bool(fields["plain"].all())),),
            locations=tuple(table.locations[i] for i in used),
        ),
        grid=ChunkGrid.regular((*rows.shape, *grid.shape), (*ones, *grid.shape)),
        dtype=_FLOAT,
        name=f"/{variable.name}",
        dimension_names=(*(axis.name for axis in kept), *grid.dims),
        attributes=attributes,
        cf=cf_of(attributes),
    )


def _expected(rows: NDArray[np.int64], is_extra: Sequence[bool]) -> NDArray[np.bool_]:
    """Tell which cells lie on a line with a field along each axis, for each position along extra axes by itself."""
    own = tuple(i for i in range(rows.ndim) if not is_extra[i])
    expected = np.broadcast_to((rows >= 0).any(axis=own, keepdims=True), rows.shape).copy()
    for axis in own:
        expected &= (rows >= 0).any(axis=tuple(i for i in own if i != axis), keepdims=True)
    return expected


def _encoding(grid: Grid, ones: tuple[int, ...], *, is_plain: bool) -> ChunkEncoding:
    row = grid.stored[-1]
    codec = Codec.of(GRIB, row=row, plain=True) if is_plain else Codec.of(GRIB, row=row)
    encoding = ChunkEncoding.of(_FLOAT, (*ones, *grid.stored), (codec,))
    return _turned(encoding) if grid.by_columns else encoding


def _turned(encoding: ChunkEncoding) -> ChunkEncoding:
    """See points that are stored column by column in rows."""
    *ones, n_columns, n_rows = encoding.shape
    return encoding.with_strides((n_columns * n_rows,) * len(ones) + (1, n_rows))


def coordinate_array(
    table: FieldTable, variable: GribVariable, name: str, coordinate: Coordinate, /, *, inline_limit: int
) -> ManifestArray:
    """Give the array of a coordinate, whose values stand in the manifest.

    Those of all points that are longer than ``inline_limit`` bytes are referenced: as the beginning of the first field
    of the variable, which describes its grid.
    """
    array = inline_array(coordinate.values, name=f"/{name}", dims=coordinate.dims, attributes=coordinate.attributes)
    grid = variable.grid
    is_of_points = name in _KEYS and coordinate is grid.coordinates.get(name) and coordinate.dims == grid.dims
    if array.nbytes <= inline_limit or not is_of_points:
        return array
    row = variable.rows[0]
    codec = Codec.of(GRIB, key=_KEYS[name], grid=grid.md5)
    if grid.lists_columns:
        encoding = _turned(ChunkEncoding.of(array.dtype, grid.stored, (codec,)))
    else:
        encoding = ChunkEncoding.of(array.dtype, grid.shape, (codec,))
    manifest = ChunkManifest.from_arrays(
        np.full(array.grid.shape, table.fields["offset"][row]),
        np.full(array.grid.shape, table.fields["described"][row]),
        location=table.locations[table.sources[row]],
        encoding=encoding,
        fill=Fill.of(np.nan, array.dtype),
    )
    return replace(array, manifest=manifest)
