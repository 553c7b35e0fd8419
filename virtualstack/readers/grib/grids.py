"""The horizontal grid of a field: its dimensions and coordinates, as cfgrib names and makes them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import cfgrib_of

__all__ = ["Coordinate", "Grid", "grid_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Coordinate:
    """A coordinate and its attributes."""

    dims: tuple[str, ...]
    values: NDArray[Any]
    attributes: Mapping[str, Any]

    def same(self, other: Coordinate, /) -> bool:
        """Tell whether another one says the same, bit for bit."""
        return (
            self.dims == other.dims
            and dict(self.attributes) == dict(other.attributes)
            and self.values.dtype == other.values.dtype
            and np.array_equal(self.values, other.values, equal_nan=self.values.dtype.kind == "f")
        )


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A horizontal grid.

    Parameters
    ----------
    dims, shape
        ``(latitude, longitude)``, ``(y, x)``, or ``values`` alone, with their lengths.
    coordinates
        Latitudes and longitudes, where eccodes tells them.
    by_columns
        Whether points lie in the message column by column (``jPointsAreConsecutive``).
    md5
        Of the section that describes it.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coordinates: Mapping[str, Coordinate]
    by_columns: bool
    md5: str

    def same(self, other: Grid, /) -> bool:
        """Tell whether another one has the same points in the same order."""
        return (
            self.dims == other.dims
            and self.shape == other.shape
            and self.by_columns == other.by_columns
            and self.coordinates.keys() == other.coordinates.keys()
            and all(self.coordinates[name].same(other.coordinates[name]) for name in self.coordinates)
        )


_MOST = 64
_CACHE: OrderedDict[str, Grid] = OrderedDict()
_LOCK = threading.Lock()


def grid_of(field: Any, md5: str, /) -> Grid:
    """Give the grid of a field.

    Parameters
    ----------
    field
        With the keys of eccodes and cfgrib.
    md5
        Of its grid section; equal ones are equal grids.
    """
    with _LOCK:
        found = _CACHE.get(md5)
    if found is None:
        found = _made(field, md5)
        with _LOCK:
            _CACHE[md5] = found
            while len(_CACHE) > _MOST:
                _CACHE.popitem(last=False)
    return found


def _made(field: Any, md5: str) -> Grid:
    dims, shape, variables = cfgrib_of("dataset").build_geography_coordinates(field, ("geography",), "ignore")
    shape = tuple(int(n) for n in shape)
    by_columns = len(dims) == 2 and bool(field.get("jPointsAreConsecutive", 0))
    coordinates = {}
    for name, variable in variables.items():
        values = np.asarray(variable.data)
        if by_columns and values.ndim == 2:
            # eccodes lists the points in the order in which they lie in the message
            values = np.ascontiguousarray(values.reshape(shape[::-1]).T)
        coordinates[name] = Coordinate(tuple(variable.dimensions), values, dict(variable.attributes))
    if dims == ("latitude", "longitude") and field.get("iScansNegatively", 0):
        coordinates["longitude"] = _westwards(field, coordinates["longitude"], shape, by_columns)
    return Grid(tuple(dims), shape, coordinates, by_columns, md5)


def _westwards(field: Any, longitude: Coordinate, shape: tuple[int, ...], by_columns: bool) -> Coordinate:
    """Give longitudes in the order of the points of a row: eccodes lists distinct ones in ascending order."""
    points = np.asarray(field["longitudes"])
    row = points.reshape(shape[::-1])[:, 0] if by_columns else points.reshape(shape)[0]
    return replace(longitude, values=np.ascontiguousarray(row))
