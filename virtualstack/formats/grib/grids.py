"""Read the horizontal grid of a field: its dimensions and coordinates, with cfgrib's names and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.cache import ByteCache, each
from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError
from virtualstack.codecs.grib.library import import_cfgrib, import_eccodes
from virtualstack.formats.grib.keys import UNDEFINED, ask

_MAX_POINTS = 1 << 27
"""Largest number of points of a grid: eccodes lists all points, 8 bytes each, and aborts if memory runs out."""

_STEPS = "DxInMetres", "DiInMetres", "xDirectionGridLengthInMillimetres"  # a projection has one of these keys
_USUAL = {"iScansNegatively": 0, "jScansPositively": 1}
_MAX_COMPUTED_POINTS = 1 << 25
"""Number of points that a message of any length may have."""
_MAX_POINTS_PER_BYTE = 1 << 12
"""Number of points for each byte that a longer message may have."""


class GridError(ValueError):
    """A field has no grid, or too many points."""


class _NoPointsError(ValueError):
    """The coordinates of a grid cannot be computed; the message is half a sentence."""


@dataclass(frozen=True, slots=True, eq=False)
class Coordinate:
    """A coordinate: its dimensions, values and attributes."""

    dims: tuple[str, ...]
    values: NDArray[Any]
    attributes: Mapping[str, Any]

    def same(self, other: Coordinate, /) -> bool:
        """Return whether another coordinate has the same dimensions, attributes, data type and values."""
        return (
            self.dims == other.dims
            and dict(self.attributes) == dict(other.attributes)
            and self.values.dtype == other.values.dtype
            and np.array_equal(self.values, other.values, equal_nan=self.values.dtype.kind == "f")
        )


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A horizontal grid."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coordinates: Mapping[str, Coordinate]
    by_columns: bool
    lists_columns: bool
    md5: str
    obstacle: str | None = None

    @property
    def stored(self) -> tuple[int, ...]:
        """Shape of the points as the message stores them."""
        return self.shape[::-1] if self.by_columns else self.shape

    def same(self, other: Grid, /) -> bool:
        """Return whether another grid has the same points in the same order; unknown points are equal by their MD5."""
        return (
            self.dims == other.dims
            and (self.md5 == other.md5 or self.obstacle is other.obstacle is None)
            and self.shape == other.shape
            and self.by_columns == other.by_columns
            and self.coordinates.keys() == other.coordinates.keys()
            and all(self.coordinates[name].same(other.coordinates[name]) for name in self.coordinates)
        )


_MAX_CACHED_GRIDS = 64
_GRIDS: ByteCache[Grid] = ByteCache(_MAX_CACHED_GRIDS, each)


def read_grid(open_field: Callable[[], Any], kind: tuple[Any, ...], /, *, n_bytes: int) -> Grid:
    """Return the grid of a field."""
    if kind[0] == UNDEFINED:
        raise GridError("it has no grid")
    return _GRIDS.get(kind, lambda: _tried(open_field(), kind[0], n_bytes))


def _tried(field: Any, md5: str, n_bytes: int) -> Grid:
    """Return the grid of a field, without coordinates if they cannot be computed."""
    _check_points(field, n_bytes)
    try:
        return _computed(field, md5)
    except _NoPointsError as error:
        n, lengths = _count(field, "numberOfPoints"), (ask(field, "Ny"), ask(field, "Nx"))
        is_flat = ask(field, "gridType") not in _kinds_of_rows() or lengths[0] * lengths[1] != n
        by_columns = not is_flat and bool(field.get("jPointsAreConsecutive", 0))
        dims, shape = (("values",), (n,)) if is_flat else (("y", "x"), lengths)
        return Grid(dims, shape, {}, by_columns, by_columns, md5, str(error))


def _kinds_of_rows() -> set[str]:
    """Return the types of grids that have rows and columns."""
    cfgrib = import_cfgrib("dataset")
    return cfgrib.GRID_TYPES_DIMENSION_COORDS | cfgrib.GRID_TYPES_2D_NON_DIMENSION_COORDS  # type: ignore[no-any-return]


def _computed(field: Any, md5: str) -> Grid:
    try:
        return _made(field, md5)
    except (_NoPointsError, ChildDiedError):
        raise
    except LibraryError as error:
        kind = ask(field, "gridType")
        raise _NoPointsError(f"its grid of type '{kind}' cannot be interpreted: {error}") from error
    except Exception as error:  # eccodes has an exception for each of its error codes; cfgrib checks nothing
        kind = ask(field, "gridType")
        raise _NoPointsError(f"its grid of type '{kind}' cannot be interpreted: {error!r}") from error


def _made(field: Any, md5: str) -> Grid:
    dims, shape, variables = import_cfgrib("dataset").build_geography_coordinates(field, ("geography",), "ignore")
    shape = tuple(int(n) for n in shape)
    if not variables and (kind := ask(field, "gridType")) != "sh":  # spherical harmonics have no points
        raise _NoPointsError(f"eccodes computes no points of its grid of type '{kind}'")
    listed = {name: np.asarray(variable.data) for name, variable in variables.items()}
    is_consecutive = bool(field.get("jPointsAreConsecutive", 0))
    by_columns = is_consecutive and len(dims) == 2
    rows = _by_rows(field, listed, len(dims)) if is_consecutive else listed
    lists_columns = any(not np.array_equal(rows[name], listed[name]) for name in listed)
    if is_consecutive and listed and not by_columns and not lists_columns and _has_columns(field):
        raise _NoPointsError("its points lie column by column, and eccodes lists their coordinates row by row")
    if listed and _is_listed_backwards(field):
        raise _NoPointsError("its first point is not in the south-west, and eccodes lists coordinates as if it were")
    coordinates = {}
    for name, variable in variables.items():
        values = rows[name] if by_columns else listed[name]
        coordinates[name] = Coordinate(tuple(variable.dimensions), values, dict(variable.attributes))
        lengths = tuple(n for dim, n in zip(dims, shape, strict=True) if dim in variable.dimensions)
        if values.shape != lengths:
            raise _NoPointsError(f"its grid of {shape} points has {values.size} values of '{name}'")
    if dims == ("latitude", "longitude") and field.get("iScansNegatively", 0):
        coordinates["longitude"] = _westwards(field, coordinates["longitude"], shape)
    return Grid(tuple(dims), shape, coordinates, by_columns, lists_columns, md5)


def _by_rows(field: Any, listed: Mapping[str, NDArray[Any]], n_dims: int) -> dict[str, NDArray[Any]]:
    """Return the coordinates of all points row by row, by telling eccodes that the points are stored row by row."""
    _set(field, {"jPointsAreConsecutive": 0})
    return {
        name: np.asarray(field[f"{name}s"]).reshape(values.shape) if values.ndim == n_dims else values
        for name, values in listed.items()
    }


def _is_listed_backwards(field: Any) -> bool:
    """Return whether eccodes ignores that the points of a projection run westwards or southwards.

    Its iterator ignores this too, and lists values in another order: the coordinates then belong to other points.
    """
    if not any(isinstance(ask(field, key), int | float) for key in _STEPS):
        return False
    usual = {key: n for key, n in _USUAL.items() if ask(field, key) != n}
    if not usual:
        return False
    was = {key: field[key] for key in usual}
    points = _points(field)
    _set(field, usual)
    as_usual = _points(field)
    _set(field, was)
    return np.array_equal(points, as_usual)


def _points(field: Any) -> NDArray[Any]:
    return np.stack([field["latitudes"], field["longitudes"]])


def _set(field: Any, keys: Mapping[str, int]) -> None:
    for key, n in keys.items():
        import_eccodes().codes_set_long(field.codes_id, key, n)


def _has_columns(field: Any) -> bool:
    lengths = [ask(field, key) for key in ("Nx", "Ny")]
    return all(isinstance(n, int) and n > 1 for n in lengths)


def _check_points(field: Any, n_bytes: int) -> None:
    """Check the number of points, before eccodes makes lists that would fill the memory."""
    n = _count(field, "numberOfPoints")
    if ask(field, "gridType") in _kinds_of_rows():
        n = max(n, _count(field, "Nx") * _count(field, "Ny"))
    most = min(_MAX_POINTS, max(_MAX_COMPUTED_POINTS, _MAX_POINTS_PER_BYTE * n_bytes))
    if n > most:
        raise GridError(f"its grid has {n} points; those of a message of {n_bytes} bytes are {most} at most")


def _count(field: Any, key: str) -> int:
    value = ask(field, key)
    if not isinstance(value, int) or value < 0:
        raise GridError(f"its grid has {value!r} as '{key}'")
    return value


def _westwards(field: Any, longitude: Coordinate, shape: tuple[int, ...]) -> Coordinate:
    """Return longitudes in the order of the points of a row: eccodes lists distinct longitudes in ascending order."""
    return replace(longitude, values=np.asarray(field["longitudes"]).reshape(shape)[0].copy())
