"""Variables and coordinates to virtual arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.codec import DTYPES, GRIB
from virtualstack.codecs.metadata import Codec
from virtualstack.manifests import (
    EMPTY,
    ENTRY,
    FIRST,
    MISSING,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
)
from virtualstack.manifests import value_changing as cf_of
from virtualstack.readers.grib.cube import Variable
from virtualstack.readers.grib.grids import Coordinate, Grid
from virtualstack.readers.grib.table import Table

__all__ = ["variable_array"]

_FLOAT = DTYPES["values"]
_NAN = Fill.of(np.nan, _FLOAT)


def variable_array(
    table: Table, variable: Variable, coordinates: Mapping[str, Coordinate] | Iterable[str], /, *, squeeze: bool
) -> ManifestArray:
    """Give the array of a variable, one chunk a field.

    Cells are MISSING where each coordinate has fields of the variable, but not all of them together; where one has
    none at all, they are EMPTY.

    Parameters
    ----------
    table
        Has its fields.
    variable
        With axes.
    coordinates
        Names of its coordinates.
    squeeze
        Whether axes of one value are left out.
    """
    rows = variable.cells()[0]
    kept = [axis for axis in variable.axes if not squeeze or len(axis.values) > 1]
    rows = rows.reshape([len(axis.values) for axis in kept])
    used, codes = np.unique(table.sources[rows[rows >= 0]], return_inverse=True)
    fields = table.fields[rows[rows >= 0]]
    entries = np.zeros(rows.shape, ENTRY)
    entries["location"] = np.where(_expected(rows), MISSING, EMPTY)
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


def _expected(rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which cells lie on a line with a field along each axis."""
    expected = np.ones(rows.shape, bool)
    for axis in range(rows.ndim):
        others = tuple(i for i in range(rows.ndim) if i != axis)
        expected &= (rows >= 0).any(axis=others, keepdims=True)
    return expected


def _encoding(grid: Grid, ones: tuple[int, ...], *, is_plain: bool) -> ChunkEncoding:
    stored = grid.shape[::-1] if grid.by_columns else grid.shape
    codec = Codec.of(GRIB, row=stored[-1], plain=True) if is_plain else Codec.of(GRIB, row=stored[-1])
    encoding = ChunkEncoding.of(_FLOAT, (*ones, *stored), (codec,))
    if not grid.by_columns:
        return encoding
    return encoding.with_strides((math.prod(stored),) * len(ones) + (1, stored[-1]))
