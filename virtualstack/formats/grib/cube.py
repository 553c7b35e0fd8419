"""Make cubes of fields: find the coordinates of each variable, and the cell of each of its fields."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.cache import ByteCache, each
from virtualstack.child.pool import ChildDiedError
from virtualstack.codecs.grib.library import import_cfgrib
from virtualstack.errors import Code, MalformedFileError, Remedy, UnsupportedFeatureError
from virtualstack.formats.grib.grids import Coordinate, Grid, GridError, read_grid
from virtualstack.formats.grib.keys import TRIPLET, UNDEFINED, cfgrib_field
from virtualstack.formats.grib.records import FieldTable
from virtualstack.manifests import Refusal
from virtualstack.manifests.cells import distinct_rows

_UNKNOWN = "unknown"
_GRID = ("md5GridSection", "gridType", "numberOfPoints")
_MAX_CACHED_NAMES = 1 << 14
_SAID: ByteCache[dict[str, Any]] = ByteCache(_MAX_CACHED_NAMES, each)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLayout:
    """Options for how fields become variables; most are options of :class:`~virtualstack.formats.grib.reader.GRIB`."""

    time_dims: tuple[str, ...]
    squeeze: bool
    by_kind: bool
    extra_dims: tuple[str, ...]
    read_keys: tuple[str, ...]
    dropped: frozenset[str]
    inline_limit: int


def listed(values: Sequence[Any], /) -> str:
    """Return the first eight values as text."""
    return ", ".join(repr(x) for x in values[:8]) + (", ..." if len(values) > 8 else "")


class _Mixed(Exception):  # noqa: N818 - ends the making of a variable, and goes no further
    def __init__(self, key: str, values: Sequence[Any]) -> None:
        super().__init__(key)
        self.key, self.values = key, values


@dataclass(frozen=True, slots=True, eq=False)
class CubeAxis:
    """A coordinate in front of the grid: time, step, number or level."""

    name: str
    values: NDArray[Any]
    attributes: Mapping[str, Any]
    positions: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class GribVariable:
    """A variable before its fields are placed in cells."""

    name: str
    attributes: Mapping[str, Any]
    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    axes: tuple[CubeAxis, ...]
    grid: Grid

    def on(self, axes: Mapping[str, CubeAxis], /) -> GribVariable:
        """Return the variable on axes that contain all values of its axes."""
        moved = []
        for axis in self.axes:
            wider = axes[axis.name]
            order = np.argsort(wider.values)
            at = order[np.searchsorted(wider.values, axis.values, sorter=order)]
            moved.append(replace(wider, positions=at[axis.positions]))
        return replace(self, axes=tuple(moved))

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes, including axes of one value."""
        return tuple(len(axis.values) for axis in self.axes)

    def flat(self) -> NDArray[np.int64]:
        """Return the number of the cell of each field, in C order."""
        flat = np.zeros(len(self.rows), np.int64)
        for axis in self.axes:
            flat = flat * len(axis.values) + axis.positions
        return flat

    def cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Place the fields in cells.

        If several fields belong to one cell, the last entry of cfgrib's index wins, and the first field in that entry,
        as in cfgrib. Entries of one cell differ in keys that are not coordinates.
        """
        flat = self.flat()
        order = np.lexsort((np.arange(len(flat)), -self.ranks, flat))
        used, begin = np.unique(flat[order], return_index=True)
        first = order[begin]
        cells = np.full(math.prod(self.shape), -1, np.int64)
        cells[used] = self.rows[first]
        others = np.ones(len(self.rows), bool)
        others[first] = False
        return cells.reshape(self.shape), self.rows[others]


def make_variables(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, /) -> Iterator[GribVariable]:
    """Yield a variable for each parameter of some fields."""
    for name, part in _named(table, rows):
        try:
            yield _variable(table, part, name, layout)
        except _Mixed as error:
            chosen = "..." if error.key == _GRID[0] else repr({error.key: error.values[0]})
            raise UnsupportedFeatureError(
                f"{table.files}: '{name}' is not one variable: its fields have several values of '{error.key}': "
                f"{listed(error.values)}",
                Remedy("open all groups with", "open_virtual_datatree"),
                Remedy("open one group with", group=...),
                Remedy("choose fields with", reader=Code(f"vs.readers.GRIB(filter_by_keys={chosen})")),
                url=table.url,
                variable=name,
                feature=error.key,
            ) from None


def with_common_axes(variables: Sequence[GribVariable], names: Collection[str] | None = None, /) -> list[GribVariable]:
    """Return the variables on axes that unite the values of all variables: all axes, or the axes of some names."""
    axes: dict[str, CubeAxis] = {}
    for variable in variables:
        for axis in variable.axes:
            is_shared = axis.name in axes and (names is None or axis.name in names)
            axes[axis.name] = _wider(axes[axis.name], axis) if is_shared else axis
    return [
        variable.on({x.name: axes[x.name] if names is None or x.name in names else x for x in variable.axes})
        for variable in variables
    ]


def _wider(a: CubeAxis, b: CubeAxis) -> CubeAxis:
    values = np.union1d(a.values, b.values)
    return replace(a, values=values[::-1] if a.attributes.get("stored_direction") == "decreasing" else values)


def _named(table: FieldTable, rows: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    parameters = table.column("paramId")
    for parameter in parameters.distinct(rows):
        own = rows[parameters.codes[rows] == parameters.values.index(parameter)]
        for name, part in _parameters(table, own, parameter):
            yield name or _name(_said(table, part)), part


def _first(table: FieldTable, rows: NDArray[np.int64]) -> Any:
    return cfgrib_field(table.stubs[table.fields["header"][rows[0]]])


def _said(table: FieldTable, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return the attributes that cfgrib reads from the first field of a variable; they are cached by its header."""
    kind = _of_first(table, rows, "gridType")
    digest = table.digests[table.fields["header"][rows[0]]]
    cfgrib = import_cfgrib("dataset")
    keys = [*cfgrib.EXTRA_DATA_ATTRIBUTES_KEYS, *cfgrib.GRID_TYPE_MAP.get(kind, ())]
    return _SAID.get((digest, kind), lambda: cfgrib.read_data_var_attrs(_first(table, rows), keys))


def _of_first(table: FieldTable, rows: NDArray[np.int64], key: str) -> Any:
    column = table.column(key)
    return column.values[column.codes[rows[0]]]


def _parameters(
    table: FieldTable, rows: NDArray[np.int64], parameter: Any
) -> list[tuple[str | None, NDArray[np.int64]]]:
    """Separate the parameters that eccodes does not know: for eccodes, all of them have the number 0."""
    if parameter != 0:
        return [(None, rows)]
    triplets = table.column(TRIPLET)
    distinct = triplets.distinct(rows)
    if len(distinct) == 1:
        return [(None, rows)]
    return [
        (f"{_UNKNOWN}_{'_'.join(map(str, triplet))}", rows[triplets.codes[rows] == triplets.values.index(triplet)])
        for triplet in distinct
    ]


def _name(said: Mapping[str, Any]) -> str:
    short, variable = said.get("GRIB_shortName", _UNKNOWN), said.get("GRIB_cfVarName", _UNKNOWN)
    return str(short if variable == _UNKNOWN else variable)


def _variable(
    table: FieldTable,
    rows: NDArray[np.int64],
    name: str,
    layout: GroupLayout,
) -> GribVariable:
    cfgrib = import_cfgrib("dataset")
    attributes: dict[str, Any] = {}
    for key in cfgrib.DATA_ATTRIBUTES_KEYS:
        if key in layout.extra_dims:
            continue
        values = table.column(key).distinct(rows)
        if len(values) > 1:
            raise _Mixed(key, values)
        if values[0] not in (UNDEFINED, _UNKNOWN):
            attributes[f"GRIB_{key}"] = values[0]
    said = _said(table, rows)
    if layout.read_keys:
        said = said | cfgrib.read_data_var_attrs(_first(table, rows), list(layout.read_keys))
    attributes |= {key: said[key] for key in sorted(said)}
    dims = cfgrib.encode_cf_first(attributes, ("parameter", "time", "geography", "vertical"), layout.time_dims)
    grid = _grid(table, rows)
    axes = [_axis(table, rows, dim, attributes) for dim in (*layout.extra_dims, *dims)]
    there = tuple(axis for axis in axes if axis is not None)
    return GribVariable(name, attributes, rows, table.ranks[rows], there, grid)


def _grid(table: FieldTable, rows: NDArray[np.int64]) -> Grid:
    """Return the common grid of all fields; grids count as one if dimensions, shape and points are the same."""
    first, *others = _by_grid(table, rows)
    grid = _read_grid(table, first)
    if not all(grid.same(_read_grid(table, other)) for other in others):
        raise _Mixed(_GRID[0], table.column(_GRID[0]).distinct(rows))
    return grid


def _by_grid(table: FieldTable, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split fields by their grid section, type of grid and number of points, in order of first occurrence."""
    first, which = distinct_rows([table.column(key).codes[rows] for key in _GRID])
    return [rows[which == i] for i in np.argsort(first)]


def _read_grid(table: FieldTable, rows: NDArray[np.int64]) -> Grid:
    md5 = table.column(_GRID[0])
    n_bytes = int(table.fields["length"][md5.codes == md5.codes[rows[0]]].max())
    kind = tuple(_of_first(table, rows, key) for key in (_GRID[0], "edition", *_GRID[1:]))
    try:
        return read_grid(lambda: _first(table, rows), kind, n_bytes=n_bytes)
    except ChildDiedError as error:
        offset, url = int(table.fields["offset"][rows[0]]), table.locations[table.sources[rows[0]]].url
        raise MalformedFileError(
            f"'{url}' is damaged: eccodes {error}, when it computed the coordinates of the grid of the message at byte "
            f"{offset}",
            Remedy("fetch the file again"),
            url=url,
            offset=offset,
        ) from error


def with_grids(table: FieldTable, rows: NDArray[np.int64], /) -> tuple[NDArray[np.int64], list[Refusal]]:
    """Separate the fields whose grids can be read from the other fields."""
    is_good = np.ones(len(table.fields), bool)
    refusals = []
    for part in _by_grid(table, rows):
        try:
            _read_grid(table, part)
        except GridError as error:
            is_good[part] = False
            refusals += [_refusal(table, name, own, error) for name, own in _named(table, part)]
    return rows[is_good[rows]], refusals


def _refusal(table: FieldTable, name: str, rows: NDArray[np.int64], error: GridError) -> Refusal:
    offset, location = table.fields["offset"][rows[0]], table.locations[table.sources[rows[0]]]
    reason = f"{len(rows)} of its fields, the first one at byte {offset} of '{location.url}': {error}"
    return Refusal(path=f"/{name}", reason=reason)


def _axis(table: FieldTable, rows: NDArray[np.int64], key: str, attributes: Mapping[str, Any]) -> CubeAxis | None:
    """Make the coordinate of a key; return ``None`` if no field has the key."""
    cfgrib = import_cfgrib("dataset")
    column = table.column(key)
    codes, positions = np.unique(column.codes[rows], return_inverse=True)
    values = [column.values[code] for code in codes]
    if values == [UNDEFINED]:
        return None
    if UNDEFINED in values or len({isinstance(x, str) for x in values}) > 1 or isinstance(values[0], tuple):
        raise _Mixed(key, values)
    plain = key.partition(":")[0]
    dim = attributes.get("GRIB_typeOfLevel", plain) if plain == "level" else plain
    said = {"long_name": f"original GRIB coordinate for key: {plain}({dim})", "units": "1"}
    said |= cfgrib.COORD_ATTRS.get(dim, {})
    order = sorted(range(len(values)), key=values.__getitem__, reverse=said.get("stored_direction") == "decreasing")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return CubeAxis(dim, np.array([values[i] for i in order]), said, place[positions])


def make_coordinates(variable: GribVariable, /, *, squeeze: bool) -> dict[str, Coordinate]:
    """Return the coordinates of a variable in cfgrib's order; ``squeeze`` makes scalars of coordinates of one value."""
    cfgrib, messages = import_cfgrib("dataset"), import_cfgrib("cfmessage")
    found: dict[str, Coordinate] = {}
    for axis in variable.axes:
        is_scalar = squeeze and len(axis.values) == 1
        values = axis.values[0] if is_scalar else axis.values
        found[axis.name] = Coordinate(() if is_scalar else (axis.name,), np.asarray(values), axis.attributes)
    found |= variable.grid.coordinates
    if "time" in found and "step" in found:
        dims, values = messages.build_valid_time(found["time"].values, found["step"].values)
        found["valid_time"] = Coordinate(tuple(dims), np.asarray(values), cfgrib.COORD_ATTRS["valid_time"])
    return found
