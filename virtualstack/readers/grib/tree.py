"""Fields to a tree, in which each has one place that follows from its own keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import ManifestGroup
from virtualstack.readers.grib.cube import Axis, Mixture, Variable, variables_of, with_grids
from virtualstack.readers.grib.groups import Layout, common_attributes, group_of, mixed
from virtualstack.readers.grib.keys import QUALIFIER, UNDEFINED, ask, field_of, text_of
from virtualstack.readers.grib.table import Table

__all__ = ["tree_of"]

_KIND = "dataType", "gridType", "numberOfPoints", "md5GridSection"
_OPTIONAL = "number", "directionNumber", "frequencyNumber"
_N_DIGITS = 6  # of the digest of a grid, in names

# Keys that tell fields apart that share all of cfgrib's, in the order in which they are tried
_APART = (
    ("lengthOfTimeRange",),
    ("startStep",),
    ("bottomLevel",),
    ("topLevel", "bottomLevel"),
    ("startStep", "topLevel", "bottomLevel"),
    ("generatingProcessIdentifier",),
    ("typeOfGeneratingProcess",),
    ("constituentType",),
    ("aerosolType", "scaledValueOfFirstSize", "scaledValueOfSecondSize"),
    ("scaledValueOfFirstWavelength",),
    ("md5Section4",),
    ("md5Headers",),
)


def tree_of(table: Table, rows: NDArray[np.int64], layout: Layout, /, *, url: str | None) -> ManifestGroup:
    """Make a group for each type of level, and in it one for each type of step.

    Percentiles, probabilities and derived forecasts are in groups of theirs below. Variables of a group share their
    coordinates: each has all values that one of them has. Where a group has fields of several kinds (type of data,
    grid, dimensions), or where the layout says so, each kind is in a group below it; and where it has several fields
    for one place, these are in groups named by what tells them apart. All names are made of a field's own keys.

    Raises
    ------
    UnsupportedFeatureError
        Fields of one variable cannot be told apart.
    """
    whole, (rows, unknown) = rows, with_grids(table, rows)
    levels: dict[str, ManifestGroup] = {}
    for level, of_level in _parted(table, rows, "typeOfLevel"):
        steps = {}
        for step, of_step in _parted(table, of_level, "stepType"):
            steps[step] = _qualified(table, of_step, layout, url=url)
        levels[level] = ManifestGroup(groups=steps, url=url)
    refusals = tuple(x for x in unknown if x.path[1:] not in layout.dropped)
    return ManifestGroup(groups=levels, attributes=common_attributes(table, whole), refusals=refusals, url=url)


def _parted(table: Table, rows: NDArray[np.int64], key: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    column = table.column(key)
    for value in column.distinct(rows):
        yield str(value), rows[column.codes[rows] == column.values.index(value)]


def _by_header(table: Table, rows: NDArray[np.int64], name: Callable[[int], str]) -> dict[str, NDArray[np.int64]]:
    """Part fields by a text that their headers give."""
    headers = table.fields["header"][rows]
    used, codes = np.unique(headers, return_inverse=True)
    names = np.array([name(int(header)) for header in used], object)
    of_each = names[codes]
    distinct = dict.fromkeys(of_each)
    return {text: rows[of_each == text] for text in distinct}


def _qualified(table: Table, rows: NDArray[np.int64], layout: Layout, /, *, url: str | None) -> ManifestGroup:
    parts = dict(_parted(table, rows, QUALIFIER))
    plain = parts.pop("", None)
    node = ManifestGroup(url=url) if plain is None else _of_kinds(table, plain, layout, url=url)
    below = {name: _of_kinds(table, part, layout, url=url) for name, part in parts.items()}
    return replace(node, groups={**node.groups, **below})


def _of_kinds(table: Table, rows: NDArray[np.int64], layout: Layout, /, *, url: str | None) -> ManifestGroup:
    kinds = _kinds(table, rows, layout)
    nodes = {name: _without_doubles(table, part, layout, url=url) for name, part in kinds.items()}
    if len(nodes) == 1 and not layout.by_kind:
        return next(iter(nodes.values()))
    return ManifestGroup(groups=nodes, url=url)


def _kinds(table: Table, rows: NDArray[np.int64], layout: Layout) -> dict[str, NDArray[np.int64]]:
    """Part fields that cannot share coordinates or attributes, by names that follow from their keys."""
    columns = [table.column(key) for key in _KIND]
    codes = [column.codes[rows] for column in columns]
    usual = *layout.time_dims, "level:float"
    for key in (*_OPTIONAL, *usual):
        column = table.column(key)
        codes.append(np.array([value == UNDEFINED for value in column.values], np.int64)[column.codes[rows]])
    distinct, which = np.unique(np.stack(codes), axis=1, return_inverse=True)
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for n, kind in enumerate(distinct.T.tolist()):
        *known, grid = [text_of(column.values[code]) for column, code in zip(columns, kind, strict=False)]
        is_undefined = dict(zip((*_OPTIONAL, *usual), kind[len(columns) :], strict=True))
        there = [key for key in _OPTIONAL if not is_undefined[key]]
        not_there = [f"no_{key.partition(':')[0]}" for key in usual if is_undefined[key]]
        name = "_".join([*known, grid[:_N_DIGITS], *there, *not_there])
        parts.setdefault(name, []).append(rows[which.reshape(-1) == n])
    return {name: np.concatenate(part) for name, part in parts.items()}


def _without_doubles(table: Table, rows: NDArray[np.int64], layout: Layout, /, *, url: str | None) -> ManifestGroup:
    """Make a group, or several where fields that differ would have one place."""
    variables = _shared(table, rows, layout, url=url)
    if not any(_has_doubles(table, variable) for variable in variables):
        return _group(table, variables, layout, url=url)
    best: dict[str, list[Variable]] = {}
    for keys in _APART:
        parts = _by_header(table, rows, lambda header, keys=keys: _named(table.stubs[header], keys))  # type: ignore[misc]
        if len(parts) > 1 and (not best or len(parts) < len(best)):
            apart = {name: _shared(table, part, layout, url=url) for name, part in parts.items()}
            if not any(_has_doubles(table, variable) for variables in apart.values() for variable in variables):
                best = apart
    if not best:  # all keys that tell them apart are unknown here: each header for itself
        parts = _by_header(table, rows, lambda header: f"header_{header}")
        best = {name: _shared(table, part, layout, url=url) for name, part in parts.items()}
    nodes = {name: _group(table, variables, layout, url=url) for name, variables in best.items()}
    return ManifestGroup(groups=nodes, url=url)


def _named(stub: bytes, keys: tuple[str, ...]) -> str:
    field = field_of(stub)
    return "_".join(f"{key}_{text_of(ask(field, key))}" for key in keys)


def _has_doubles(table: Table, variable: Variable) -> bool:
    """Tell whether fields that are not the same stand in one cell."""
    flat = variable.flat()
    order = np.argsort(flat, kind="stable")
    headers = table.fields["header"][variable.rows]
    same = np.diff(flat[order]) == 0
    return bool((same & (np.diff(headers[order].astype(np.int64)) != 0)).any())


def _shared(table: Table, rows: NDArray[np.int64], layout: Layout, /, *, url: str | None) -> list[Variable]:
    """Make variables that share their coordinates."""
    variables = []
    for found in variables_of(table, rows, time_dims=layout.time_dims, read_keys=layout.read_keys):
        if isinstance(found, Mixture):
            raise mixed(found, url)
        variables.append(found)
    counts = Counter(variable.name for variable in variables)
    variables = [
        replace(x, name=f"{x.name}_{x.attributes['GRIB_paramId']}") if counts[x.name] > 1 else x for x in variables
    ]
    axes: dict[str, Axis] = {}
    for variable in variables:
        for axis in variable.axes:
            axes[axis.name] = _wider(axes[axis.name], axis) if axis.name in axes else axis
    return [variable.on(axes) for variable in variables]


def _wider(a: Axis, b: Axis) -> Axis:
    values = np.union1d(a.values, b.values)
    return replace(a, values=values[::-1] if a.attributes.get("stored_direction") == "decreasing" else values)


def _group(table: Table, variables: list[Variable], layout: Layout, /, *, url: str | None) -> ManifestGroup:
    return group_of(table, [x for x in variables if x.name not in layout.dropped], layout, url=url)
