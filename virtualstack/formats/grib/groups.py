"""Make variables, coordinates and groups of fields: one dataset as in cfgrib, or a tree."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.grib.codec import DTYPES, GRIB
from virtualstack.codecs.grib.library import import_cfgrib
from virtualstack.errors import Code, CombineError, Remedy, UnsupportedFeatureError, advised
from virtualstack.formats.grib.cube import (
    GribVariable,
    GroupLayout,
    listed,
    make_coordinates,
    make_variables,
    with_common_axes,
    with_grids,
)
from virtualstack.formats.grib.duplicates import Values, keys_apart, parts_apart, sharing_a_place
from virtualstack.formats.grib.grids import Coordinate, Grid
from virtualstack.formats.grib.keys import OF_VALUES, QUALIFIER, UNDEFINED, name_text
from virtualstack.formats.grib.records import FieldTable
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
    ManifestGroup,
    Refusal,
    value_changing,
)
from virtualstack.manifests.cells import distinct_rows
from virtualstack.manifests.inline import inline_array
from virtualstack.printable import counted
from virtualstack.warning import warn

__all__ = [
    "GroupLayout",
    "common_attributes",
    "coordinate_array",
    "dataset_group",
    "group_variables",
    "tree_group",
    "variable_array",
]

_FLOAT = DTYPES["values"]
_KEYS = {"latitude": "latitudes", "longitude": "longitudes"}
_NAN = Fill.from_value(np.nan, _FLOAT)


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
    """Return the array of a variable, with one chunk for each field.

    A cell without a field is ABSENT if each of its coordinate values occurs in some field of the variable. It is EMPTY
    if one of its coordinate values occurs in no field. Along ``extra_dims``, each position is judged separately.
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
    packings, packing_of = np.unique([table.packings[i] for i in used], return_inverse=True)
    entries["encoding"][rows >= 0] = packing_of[codes]
    grid = variable.grid
    is_plain = bool(fields["plain"].all())
    ones = (1,) * rows.ndim
    attributes = {**variable.attributes, "coordinates": " ".join(coordinates)}
    # fields whose points are not known join only if the sections that describe their grids are equal
    described = {} if grid.obstacle is None else {"GRIB_md5GridSection": grid.md5}
    attributes |= described
    return ManifestArray(
        manifest=ChunkManifest(
            entries=entries.reshape(*rows.shape, *(1,) * len(grid.shape)),
            fills=(_NAN,),
            encodings=tuple(_encoding(grid, ones, packing, is_plain=is_plain) for packing in packings.tolist()),
            locations=tuple(table.locations[i] for i in used),
        ),
        grid=ChunkGrid.regular((*rows.shape, *grid.shape), (*ones, *grid.shape)),
        dtype=_FLOAT,
        name=f"/{variable.name}",
        dimension_names=(*(axis.name for axis in kept), *grid.dims),
        attributes=attributes,
        cf={**value_changing(attributes), **described},
    )


def _expected(rows: NDArray[np.int64], is_extra: Sequence[bool]) -> NDArray[np.bool_]:
    """Return which cells have a field at each of their positions, separately for each position along extra axes."""
    own = tuple(i for i in range(rows.ndim) if not is_extra[i])
    expected = np.broadcast_to((rows >= 0).any(axis=own, keepdims=True), rows.shape).copy()
    for axis in own:
        expected &= (rows >= 0).any(axis=tuple(i for i in own if i != axis), keepdims=True)
    return expected


def _encoding(grid: Grid, ones: tuple[int, ...], packing: str, *, is_plain: bool) -> ChunkEncoding:
    row = grid.stored[-1]
    codec = Codec.from_config(GRIB, row=row, plain=True) if is_plain else Codec.from_config(GRIB, row=row)
    encoding = ChunkEncoding.c_order(_FLOAT, (*ones, *grid.stored), (codec, *_unpacking(packing)))
    return _turned(encoding) if grid.by_columns else encoding


def _unpacking(packing: str) -> tuple[Codec, ...]:
    """Return the codec of a compressed file, if it is compressed; its level does not matter to decoders."""
    return (Codec.from_config(packing, level=9),) if packing else ()


def _turned(encoding: ChunkEncoding) -> ChunkEncoding:
    """Return an encoding that shows points stored column by column as rows."""
    *ones, n_columns, n_rows = encoding.shape
    return encoding.with_strides((n_columns * n_rows,) * len(ones) + (1, n_rows))


def coordinate_array(
    table: FieldTable, variable: GribVariable, name: str, coordinate: Coordinate, /, *, inline_limit: int
) -> ManifestArray:
    """Return the array of a coordinate, whose values are INLINE.

    A coordinate of all points of a grid is a reference instead if it is longer than ``inline_limit`` bytes. It refers
    to the beginning of the first field of the variable, which describes the grid.
    """
    array = inline_array(coordinate.values, name=f"/{name}", dims=coordinate.dims, attributes=coordinate.attributes)
    grid = variable.grid
    is_of_points = name in _KEYS and coordinate is grid.coordinates.get(name) and coordinate.dims == grid.dims
    if array.nbytes <= inline_limit or not is_of_points:
        return array
    row = variable.rows[0]
    source = table.sources[row]
    codecs = Codec.from_config(GRIB, key=_KEYS[name], grid=grid.md5), *_unpacking(table.packings[source])
    if grid.lists_columns:
        encoding = _turned(ChunkEncoding.c_order(array.dtype, grid.stored, codecs))
    else:
        encoding = ChunkEncoding.c_order(array.dtype, grid.shape, codecs)
    manifest = ChunkManifest.from_arrays(
        np.full(array.grid.shape, table.fields["offset"][row]),
        np.full(array.grid.shape, table.fields["described"][row]),
        location=table.locations[source],
        encoding=encoding,
        fill=Fill.from_value(np.nan, array.dtype),
    )
    return replace(array, manifest=manifest)


_MAX_CELLS = 1 << 26
"""Largest number of cells of one variable."""

_MAX_CELLS_PER_FIELD, _SMALL_CUBE_CELLS = 32, 4096
_APART = (
    Remedy("open all groups with", "open_virtual_datatree"),
    Remedy("open one group with", group=...),
    Remedy("choose fields with", reader=Code("vs.readers.GRIB(filter_by_keys=...)")),
)
"""What opens fields that do not fit into one dataset."""


def dataset_group(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, /) -> ManifestGroup:
    """Make one group of fields, as cfgrib makes a dataset.

    A variable is refused if its coordinates contradict the coordinates of an earlier variable. Times and steps of
    several files do not contradict each other: a variable that is not in all files has EMPTY cells. Fields are refused
    if their grid cannot be read.
    """
    whole, (rows, unknown) = rows, with_grids(table, rows)
    variables = [x for x in make_variables(table, rows, layout) if x.name not in layout.dropped]
    _check_places(table, variables)
    variables = with_common_axes(variables, (*layout.extra_dims, *(() if table.url else layout.time_dims)))
    node = group_variables(table, variables, layout)
    refusals = (*(x for x in unknown if x.path[1:] not in layout.dropped), *node.refusals)
    return replace(node, attributes=common_attributes(table, whole), refusals=refusals, url=table.url)


def _check_places(table: FieldTable, variables: Sequence[GribVariable]) -> None:
    """Check that no field would be left out because another field has the same coordinates."""
    values = Values(table)
    sets = {variable.name: sharing_a_place(table, variable, with_times=False) for variable in variables}
    keys = keys_apart(values, [some for of_name in sets.values() for some in of_name])
    if not keys:
        return
    name, of_name = next((name, some) for name, some in sets.items() if keys_apart(values, some))

    def distinct(rows: Sequence[int], key: str) -> list[Any]:
        return list(dict.fromkeys(values(row, key) for row in rows))

    told = [key for key in keys if any(len(distinct(rows, key)) > 1 for rows in of_name)]
    rows = next(rows for rows in of_name if len(distinct(rows, told[0])) > 1)
    words = [f"'{key}' ({listed(distinct(rows, key))})" for key in told]
    remedies = [Remedy("open all of them as a tree, with", "open_virtual_datatree")]
    affected = [x for x in variables if sets[x.name]]
    if not OF_VALUES & set(keys) and not any(values(r, k) == UNDEFINED for x in affected for r in x.rows for k in keys):
        by_keys = Code(f"vs.readers.GRIB(extra_dims={keys!r})")
        remedies.append(Remedy("make dimensions of the keys, with", reader=by_keys))
    chosen = {key: values(rows[0], key) for key in told}
    remedies.append(Remedy("choose fields, with", reader=Code(f"vs.readers.GRIB(filter_by_keys={chosen!r})")))
    raise UnsupportedFeatureError(
        f"{table.files}: fields of '{name}' have the same coordinates and differ in {' and '.join(words)}",
        *remedies,
        url=table.url,
        variable=name,
        feature=told[0],
    )


def common_attributes(table: FieldTable, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Return the attributes that all fields have in common, with cfgrib's names."""
    found: dict[str, Any] = {}
    for key in import_cfgrib("dataset").GLOBAL_ATTRIBUTES_KEYS:
        values = table.column(key).distinct(rows)
        if len(values) == 1 and values[0] not in (UNDEFINED, "unknown"):
            found[f"GRIB_{key}"] = values[0]
    found["Conventions"] = "CF-1.7"
    if "GRIB_centreDescription" in found:
        found["institution"] = found["GRIB_centreDescription"]
    return found


def group_variables(table: FieldTable, variables: Sequence[GribVariable], layout: GroupLayout, /) -> ManifestGroup:
    """Make a group of variables that share their coordinates; variables with other coordinates are refused."""
    coordinates: dict[str, Coordinate] = {}
    arrays: dict[str, ManifestArray] = {}
    refusals: list[Refusal] = []
    made: dict[str, ManifestArray] = {}
    grids: dict[tuple[str, ...], Grid] = {}
    for variable in [x for x in variables if x.name not in layout.dropped]:
        path = f"/{variable.name}"
        own = make_coordinates(variable, squeeze=layout.squeeze)
        grid = grids.setdefault(variable.grid.dims, variable.grid)
        obstacle = _obstacle(variable, own, coordinates, arrays)
        if obstacle is None and not variable.grid.same(grid):
            obstacle = advised("its points differ from those of others", *_APART)
        if obstacle is not None:
            refusals.append(Refusal(path=path, reason=obstacle))
            continue
        if grid.obstacle is not None:
            reason = f"its values have no latitude and longitude: {grid.obstacle}"
            refusals.append(Refusal(path=path, reason=reason, kind="noted"))
        _warn_if_sparse(table, variable)
        for name, coordinate in own.items():
            if name not in coordinates and name not in layout.dropped:
                made[name] = coordinate_array(table, variable, name, coordinate, inline_limit=layout.inline_limit)
        coordinates |= own
        cells, others = variable.cells()
        arrays[variable.name] = variable_array(
            table, variable, cells, own, extra_dims=layout.extra_dims, squeeze=layout.squeeze
        )
        if len(others):
            _check_one_source(table, variable, cells, others)
            reason = (
                f"{len(others)} of {len(variable.rows)} fields {'has' if len(others) == 1 else 'have'} the same "
                "coordinates as another field, which is used instead"
            )
            refusals.append(Refusal(path=path, reason=reason, kind="noted"))
    return ManifestGroup(
        arrays={**made, **arrays},
        coordinates=frozenset(made),
        loaded=frozenset(name for name, array in made.items() if array.in_memory().inline),
        unlimited=_growing(table, variables, layout),
        refusals=tuple(refusals),
        url=table.url,
    )


def _check_one_source(
    table: FieldTable, variable: GribVariable, cells: NDArray[np.int64], others: NDArray[np.int64]
) -> None:
    """Refuse two files that have the same field: cfgrib's choice is that among the fields of one file."""
    used = cells.ravel()[variable.flat()[np.isin(variable.rows, others)]]
    apart = np.flatnonzero(table.sources[used] != table.sources[others])
    if not len(apart):
        return
    left, right = (table.locations[table.sources[rows[apart[0]]]].url for rows in (used, others))
    raise CombineError(
        f"'{left}' and '{right}' have {counted(len(apart), 'field')} of '{variable.name}' at the same coordinates",
        Remedy("{} keeps the first of them", duplicates="first"),
        Remedy("{} keeps the last of them", duplicates="last"),
        variable=variable.name,
        property="labels",
        left_url=left,
        right_url=right,
    )


def _growing(table: FieldTable, variables: Sequence[GribVariable], layout: GroupLayout) -> frozenset[str]:
    """Return the dimension that later files continue, if labels differ between files: times before members and levels.

    Files of one member or level each have the same times, which later files continue.
    """
    differ, levels, several = set(), set(), set()
    for variable in variables:
        sources = table.sources[variable.rows]
        levels.add(variable.attributes.get("GRIB_typeOfLevel"))
        for axis in variable.axes:
            pairs, _ = distinct_rows([sources, axis.positions])
            if len(pairs) < len(np.unique(sources)) * len(np.unique(axis.positions)):
                differ.add(axis.name)
            if len(axis.values) > 1:
                several.add(axis.name)
    times = [dim for dim in layout.time_dims if dim in several]
    found = sorted(differ, key=lambda dim: (dim in levels, dim))
    if differ:
        found = [*(dim for dim in times if dim in differ), *times, *found]
    return frozenset(found[:1])


def _obstacle(
    variable: GribVariable,
    own: Mapping[str, Coordinate],
    coordinates: Mapping[str, Coordinate],
    arrays: Mapping[str, ManifestArray],
) -> str | None:
    """Return why a variable cannot be in a group with the variables before it; ``None`` if it can."""
    if variable.name in arrays or variable.name in coordinates or arrays.keys() & own.keys():
        return advised("there are two variables or coordinates of that name", *_APART)
    for name, coordinate in own.items():
        other = coordinates.get(name)
        if other is not None and not coordinate.same(other):
            return advised(f"its coordinate '{name}' is {_shown(coordinate)}, but {_shown(other)} for others", *_APART)
    n_cells = math.prod(variable.shape)
    if n_cells > _MAX_CELLS:
        return advised(
            f"its {len(variable.rows)} fields lie in {n_cells} cells of {_axes(variable)}, more than {_MAX_CELLS}",
            Remedy("choose other dimensions with", reader=Code("vs.readers.GRIB(time_dims=...)")),
            _APART[-1],
        )
    return None


def _shown(coordinate: Coordinate) -> str:
    values = coordinate.values
    if str(coordinate.attributes.get("units")).startswith("seconds since 1970-01-01"):
        values = values.astype("M8[s]")
    return f"{values}" if values.ndim == 0 else f"{values.flat[0]} to {values.flat[-1]} ({values.size} values)"


def _axes(variable: GribVariable) -> str:
    return " x ".join(f"{len(axis.values)} {axis.name}" for axis in variable.axes if len(axis.values) > 1)


def _warn_if_sparse(table: FieldTable, variable: GribVariable) -> None:
    n_cells, n_fields = math.prod(variable.shape), len(variable.rows)
    if n_cells > _SMALL_CUBE_CELLS and n_cells > _MAX_CELLS_PER_FIELD * n_fields:
        other = Code("vs.readers.GRIB(time_dims=('valid_time',))")
        warn(
            advised(
                f"{table.files}: the {n_fields} fields of '{variable.name}' lie in {n_cells} cells of "
                f"{_axes(variable)}",
                Remedy("other dimensions may leave fewer cells without a field, such as with", reader=other),
            )
        )


_KIND = "dataType", "gridType", "numberOfPoints", "md5GridSection"
_OPTIONAL = "number", "directionNumber", "frequencyNumber"
_N_DIGITS = 6  # digits of the digest of a grid in names


def tree_group(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, /) -> ManifestGroup:
    """Make a group for each type of level, and in it a group for each type of step.

    Percentiles, probabilities and derived forecasts are in separate groups below. Variables of a group share their
    coordinates: each coordinate has the values of all variables. Three rules add groups:

    - Each kind of field (type of data, grid, dimensions) is in a separate group if there are several kinds.
    - The same holds if groups below have other labels, or if the layout asks for it.
    - Fields with the same coordinates are in groups named by the keys that distinguish them.

    All names are made of the keys of the fields in the group.
    """
    whole, (rows, unknown) = rows, with_grids(table, rows)
    levels: dict[str, ManifestGroup] = {}
    for level, of_level in _parted(table, rows, "typeOfLevel"):
        steps = {}
        for step, of_step in _parted(table, of_level, "stepType"):
            steps[step] = _qualified(table, of_step, layout)
        levels[level] = ManifestGroup(groups=steps, url=table.url)
    refusals = tuple(x for x in unknown if x.path[1:] not in layout.dropped)
    return ManifestGroup(groups=levels, attributes=common_attributes(table, whole), refusals=refusals, url=table.url)


def _parted(table: FieldTable, rows: NDArray[np.int64], key: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    column = table.column(key)
    for value in column.distinct(rows):
        yield str(value), rows[column.codes[rows] == column.values.index(value)]


def _qualified(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, /) -> ManifestGroup:
    parts = dict(_parted(table, rows, QUALIFIER))
    plain = parts.pop("", None)
    node = ManifestGroup(url=table.url) if plain is None else _of_kinds(table, plain, layout)
    below = {name: _of_kinds(table, part, layout) for name, part in parts.items()}
    if plain is not None and not all(_is_aligned(node, part) for part in below.values()):
        node = _of_kinds(table, plain, replace(layout, by_kind=True))
    return replace(node, groups={**node.groups, **below})


def _is_aligned(node: ManifestGroup, below: ManifestGroup) -> bool:
    """Return whether groups can be below another group: xarray requires equal labels along a shared dimension."""
    own = _labels(node)
    return all(own.get(dim, labels) == labels for _, each in below.walk() for dim, labels in _labels(each).items())


def _labels(node: ManifestGroup) -> dict[str, tuple[int, bytes]]:
    """Return the length and the stored labels of each dimension."""
    arrays = node.arrays.values()
    found = {dim: (n, b"") for array in arrays for dim, n in zip(array.dimension_names or (), array.shape, strict=True)}
    labels = {dim: node.arrays[dim] for dim in found if dim in node.arrays and node.arrays[dim].shape}
    return found | {dim: (array.shape[0], array.in_memory().inline) for dim, array in labels.items()}


def _of_kinds(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, /) -> ManifestGroup:
    kinds = _kinds(table, rows, layout)
    nodes = {name: _without_doubles(table, part, layout) for name, part in kinds.items()}
    if len(nodes) == 1 and not layout.by_kind:
        return next(iter(nodes.values()))
    return ManifestGroup(groups=nodes, url=table.url)


def _kinds(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout) -> dict[str, NDArray[np.int64]]:
    """Split fields that cannot share coordinates or attributes, by names made of their keys."""
    columns = [table.column(key) for key in _KIND]
    codes = [column.codes[rows] for column in columns]
    usual = *layout.time_dims, "level:float", *layout.extra_dims
    for key in (*_OPTIONAL, *usual):
        column = table.column(key)
        codes.append(np.array([value == UNDEFINED for value in column.values], np.int64)[column.codes[rows]])
    first, which = distinct_rows(codes)
    distinct = np.stack(codes)[:, first]
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for n, kind in enumerate(distinct.T.tolist()):
        *known, grid = [name_text(column.values[code]) for column, code in zip(columns, kind, strict=False)]
        is_undefined = dict(zip((*_OPTIONAL, *usual), kind[len(columns) :], strict=True))
        there = [key for key in _OPTIONAL if not is_undefined[key]]
        not_there = [f"no_{key.partition(':')[0]}" for key in usual if is_undefined[key]]
        name = "_".join([*known, grid[:_N_DIGITS], *there, *not_there])
        parts.setdefault(name, []).append(rows[which == n])
    return {name: np.concatenate(part) for name, part in parts.items()}


def _without_doubles(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, /) -> ManifestGroup:
    """Make a group, or several groups if different fields have the same coordinates."""
    variables = _shared(table, rows, layout)
    sets = [some for variable in variables for some in sharing_a_place(table, variable, with_times=True)]
    values = Values(table)
    keys = keys_apart(values, sets)
    if not keys:
        return group_variables(table, variables, layout)
    parts = parts_apart(values, rows, keys)
    nodes = {name: group_variables(table, _shared(table, part, layout), layout) for name, part in parts.items()}
    return ManifestGroup(groups=nodes, url=table.url)


def _shared(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, /) -> list[GribVariable]:
    """Make variables that share their coordinates."""
    variables = list(make_variables(table, rows, layout))
    counts = Counter(variable.name for variable in variables)
    variables = [
        replace(x, name=f"{x.name}_{x.attributes['GRIB_paramId']}") if counts[x.name] > 1 else x for x in variables
    ]
    return with_common_axes(variables)
