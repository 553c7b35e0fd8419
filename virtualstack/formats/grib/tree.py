"""Fields to a tree, in which each has one place that follows from its own keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.grib.apart import Values, keys_apart, parts_apart, sharing_a_place
from virtualstack.formats.grib.cube import Mixture, Variable, variables_of, with_common_axes, with_grids
from virtualstack.formats.grib.groups import Layout, common_attributes, group_of, mixed
from virtualstack.formats.grib.keys import QUALIFIER, UNDEFINED, text_of
from virtualstack.formats.grib.table import Table
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.rows import distinct_rows

__all__ = ["tree_of"]

_KIND = "dataType", "gridType", "numberOfPoints", "md5GridSection"
_OPTIONAL = "number", "directionNumber", "frequencyNumber"
_N_DIGITS = 6  # of the digest of a grid, in names


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
    usual = *layout.time_dims, "level:float", *layout.extra_dims
    for key in (*_OPTIONAL, *usual):
        column = table.column(key)
        codes.append(np.array([value == UNDEFINED for value in column.values], np.int64)[column.codes[rows]])
    first, which = distinct_rows(codes)
    distinct = np.stack(codes)[:, first]
    parts: dict[str, list[NDArray[np.int64]]] = {}
    for n, kind in enumerate(distinct.T.tolist()):
        *known, grid = [text_of(column.values[code]) for column, code in zip(columns, kind, strict=False)]
        is_undefined = dict(zip((*_OPTIONAL, *usual), kind[len(columns) :], strict=True))
        there = [key for key in _OPTIONAL if not is_undefined[key]]
        not_there = [f"no_{key.partition(':')[0]}" for key in usual if is_undefined[key]]
        name = "_".join([*known, grid[:_N_DIGITS], *there, *not_there])
        parts.setdefault(name, []).append(rows[which == n])
    return {name: np.concatenate(part) for name, part in parts.items()}


def _without_doubles(table: Table, rows: NDArray[np.int64], layout: Layout, /, *, url: str | None) -> ManifestGroup:
    """Make a group, or several where fields that differ would have one place."""
    variables = _shared(table, rows, layout, url=url)
    sets = [some for variable in variables for some in sharing_a_place(table, variable, with_times=True)]
    values = Values(table)
    keys = keys_apart(values, sets)
    if not keys:
        return _group(table, variables, layout, url=url)
    parts = parts_apart(values, rows, keys)
    nodes = {
        name: _group(table, _shared(table, part, layout, url=url), layout, url=url) for name, part in parts.items()
    }
    return ManifestGroup(groups=nodes, url=url)


def _shared(table: Table, rows: NDArray[np.int64], layout: Layout, /, *, url: str | None) -> list[Variable]:
    """Make variables that share their coordinates."""
    variables = []
    for found in variables_of(
        table, rows, time_dims=layout.time_dims, extra_dims=layout.extra_dims, read_keys=layout.read_keys
    ):
        if isinstance(found, Mixture):
            raise mixed(found, url)
        variables.append(found)
    counts = Counter(variable.name for variable in variables)
    variables = [
        replace(x, name=f"{x.name}_{x.attributes['GRIB_paramId']}") if counts[x.name] > 1 else x for x in variables
    ]
    return with_common_axes(variables)


def _group(table: Table, variables: list[Variable], layout: Layout, /, *, url: str | None) -> ManifestGroup:
    return group_of(table, [x for x in variables if x.name not in layout.dropped], layout, url=url)
