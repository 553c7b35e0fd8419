"""Parts as a plan says: with new dimensions, with what decides their order, and without labels that others have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex

from virtualstack.combine.conflicts import Rules
from virtualstack.combine.new_dim import with_new_dim
from virtualstack.combine.part import Part
from virtualstack.dataset import loaded_variable, virtual_array
from virtualstack.errors import CombineError
from virtualstack.planning import Duplicates, FileFacts, Grid, Plan, make_plan
from virtualstack.planning.labels import is_dates
from virtualstack.reading import read_array
from virtualstack.storage import Storage

__all__ = [
    "Planning",
    "facts_of",
    "facts_of_tree",
    "plan_of",
    "plan_parts",
    "planned",
    "with_labels_from",
    "without_order",
]


def _is_text(variable: xr.Variable) -> bool:
    """Return whether the values of a variable are text: dates of other calendars are objects, too."""
    if variable.dtype.kind != "O" or virtual_array(variable) is not None:
        return variable.dtype.kind in "OSTU"
    return bool(variable.size) and all(isinstance(x, str | bytes) for x in variable.values.flat)


def facts_of(part: Part, /) -> FileFacts:
    """Return the facts of a part; no value is read."""
    data = part.variables.keys() - part.coordinates
    dims = max((part.variables[name].dims for name in part.variables if name in data), key=len, default=())
    scalars: dict[str, Any] = {}
    along: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    for name, variable in part.variables.items():
        is_loaded = virtual_array(variable) is None
        if variable.ndim == 1 and variable.dims[0] not in part.indexes and _is_text(variable):
            texts.setdefault(str(variable.dims[0]), name)
        elif is_loaded and name in part.coordinates and not variable.ndim:
            scalars[name] = variable.values[()]
        elif is_loaded and name in part.coordinates and variable.ndim == 1 and name not in part.indexes:
            along.setdefault(str(variable.dims[0]), {})[name] = variable.to_index()
    axes: dict[str, int] = {}
    for name in data:
        for axis, dim in enumerate(part.variables[name].dims):
            axes[str(dim)] = min(axis, axes.get(str(dim), axis))
    return FileFacts(
        source=part.source,
        names=frozenset(data),
        dims=tuple(map(str, dims)),
        axes=axes,
        coordinates=frozenset(part.indexes),
        times=frozenset(dim for dim, index in part.indexes.items() if is_dates(index.index)),
        scalar_times=frozenset(name for name, x in scalars.items() if is_dates(pd.Index([x]))),
        sizes=part.sizes,
        labels={dim: index.index for dim, index in part.indexes.items()},
        scalars=scalars,
        along=along,
        texts=texts,
        unlimited=frozenset(map(str, part.encoding.get("unlimited_dims", ()))),
        attributes={**part.inherited, **part.attributes},
    )


def facts_of_tree(parts: Sequence[Part], /) -> FileFacts:
    """Return the facts of the groups of a file as those of one: what a group has counts before what later ones have."""
    each = [facts_of(part) for part in parts]

    def merged(name: str) -> dict[str, Any]:
        return {key: value for facts in reversed(each) for key, value in getattr(facts, name).items()}

    def united(name: str) -> frozenset[str]:
        return frozenset().union(*(getattr(facts, name) for facts in each))

    return FileFacts(
        source=each[0].source,
        names=frozenset(f"{k}/{name}" for k, facts in enumerate(each) for name in facts.names),
        dims=max((facts.dims for facts in each), key=len),
        unlimited=united("unlimited"),
        coordinates=united("coordinates"),
        times=united("times"),
        scalar_times=united("scalar_times"),
        axes=merged("axes"),
        sizes=merged("sizes"),
        labels=merged("labels"),
        scalars=merged("scalars"),
        along=merged("along"),
        texts=merged("texts"),
        attributes=merged("attributes"),
    )


def plan_parts(parts: Sequence[Part], how: Planning, rules: Rules, storage: Storage, /) -> tuple[list[Part], Plan]:
    """Return the parts as the plan of their facts says, and the plan.

    Raises
    ------
    CombineError
        The plan leaves something open.
    """
    parts, plan = plan_of(parts, how, rules, storage)
    if plan.question is not None:
        raise plan.question
    left_out = set(plan.left_out)
    return [planned(part, i, plan, rules) for i, part in enumerate(parts) if i not in left_out], plan


def plan_of(parts: Sequence[Part], how: Planning, rules: Rules, storage: Storage, /) -> tuple[Sequence[Part], Plan]:
    """Return the plan, and the parts with what was read for it: coordinates, if nothing else tells the files apart."""
    plan = how.plan([facts_of(part) for part in parts], rules)
    if plan.is_crowded:
        parts = [_with_small(part, storage) for part in parts]
        plan = how.plan([facts_of(part) for part in parts], rules)
    if plan.question is not None and plan.is_crowded:
        plan = how.plan([_with_grid(facts_of(part), part, storage) for part in parts], rules)
    return parts, plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What a user says about the plan.

    Parameters
    ----------
    dims
        Dimensions that the result has, such as those of a store.
    along
        Dimensions that files must be joined along.
    duplicates
        Which of several files with the same labels counts.
    """

    dims: tuple[str, ...] = ()
    along: tuple[str, ...] = ()
    duplicates: Duplicates | None = None

    def plan(self, facts: Sequence[FileFacts], rules: Rules, /) -> Plan:
        """Return the plan."""
        return make_plan(facts, dims=self.dims, along=self.along, tolerance=rules.tolerance, duplicates=self.duplicates)


_MAX_LOADED_BYTES = 1 << 14


def _with_small(part: Part, storage: Storage) -> Part:
    """Return a part whose small coordinates along one dimension or none are loaded."""
    loaded = {
        name: loaded_variable(name, array, storage, url=part.source, decode_times=True)
        for name in part.coordinates
        if (array := virtual_array(part.variables[name])) is not None
        and array.ndim < 2
        and array.nbytes <= _MAX_LOADED_BYTES
    }
    return part.with_variables(loaded) if loaded else part


def _with_grid(facts: FileFacts, part: Part, storage: Storage, /) -> FileFacts:
    """Return facts with the grid of the 2-D coordinates of a part; the chunks at their corners are read."""
    pairs: dict[tuple[str, str], list[xr.Variable]] = {}
    for name in sorted(part.coordinates):
        variable = part.variables[name]
        if variable.ndim == 2 and min(variable.shape) > 1 and variable.dtype.kind in "iuf":
            pairs.setdefault((str(variable.dims[0]), str(variable.dims[1])), []).append(variable)
    for dims, variables in pairs.items():
        if len(variables) == 2 and set(dims) <= set(facts.dims):
            corners = np.stack([_corners(variable, storage) for variable in variables])
            return replace(facts, grid=Grid.from_corners(dims, corners.astype(np.float64)))
    return facts


def _corners(variable: xr.Variable, storage: Storage) -> Any:
    """Return the values of the first two and the last two points along both dimensions."""
    array = virtual_array(variable)
    values = variable.values if array is None else read_array(array, (), storage)
    rows, columns = (np.array([0, 1, n - 2, n - 1]) for n in variable.shape)
    return values[np.ix_(rows, columns)]


def planned(
    part: Part, i: int, plan: Plan, rules: Rules, /, like: Mapping[str, xr.Variable] = MappingProxyType({})
) -> Part:
    """Return a part of file `i` as the plan says; variables that ``like`` has without a new dimension do not get it."""
    for dim, its in plan.along.items():
        if i in its and dim in part.sizes and dim not in part.indexes:
            labels = its[i]
            if len(labels) < part.sizes[dim]:
                part = _selected(part, dim, plan.kept[i][dim])
            index = PandasIndex(labels, dim)
            variable = index.create_variables()[dim]
            part = replace(
                part,
                variables={**part.variables, dim: variable},
                indexes={**part.indexes, dim: index},
                coordinates=part.coordinates | {dim},
            )
    for dim, positions in plan.kept.get(i, {}).items():
        if dim in part.sizes and len(positions) < part.sizes[dim]:
            part = _selected(part, dim, positions)
    if part.variables.keys() - part.coordinates:
        for dim in reversed([*plan.new]):
            if plan.labels[dim][i] is not None:
                part = with_new_dim(part, dim, plan.labels[dim][i], rules, like)
    return part


def _selected(part: Part, dim: str, positions: Any) -> Part:
    """Return a part with some of its elements along a dimension."""
    at = positions
    if len(at) and (np.diff(at) == 1).all():
        at = slice(int(at[0]), int(at[-1]) + 1)
    variables = {name: x.isel({dim: at}) if dim in x.dims else x for name, x in part.variables.items()}
    indexes = dict(part.indexes)
    if dim in indexes:
        indexes[dim] = PandasIndex(indexes[dim].index[at], dim, coord_dtype=indexes[dim].coord_dtype)
    return replace(part, variables=variables, indexes=indexes, sizes={**part.sizes, dim: len(positions)})


def without_order(part: Part, plan: Plan, /) -> Part:
    """Return a joined part without the labels that only decided the order, and with the dimension that grows."""
    gone = plan.along.keys()
    unlimited = set(part.encoding.get("unlimited_dims", ())) | ({plan.grows} if plan.grows else set())
    return replace(
        part,
        variables={name: x for name, x in part.variables.items() if name not in gone},
        indexes={name: x for name, x in part.indexes.items() if name not in gone},
        coordinates=part.coordinates - gone,
        encoding={**part.encoding, "unlimited_dims": unlimited & part.sizes.keys()},
    )


def with_labels_from(part: Part, labels: Mapping[str, str], storage: Storage, /) -> Part:
    """Return a part with dimension coordinates whose values are those of other variables, such as ``Times`` of WRF.

    Raises
    ------
    CombineError
        The variable is not there, or has other dimensions.
    """
    made = {}
    for dim, name in labels.items():
        variable = part.variables.get(name)
        if variable is None or variable.dims != (dim,):
            if dim not in part.sizes:
                continue  # another group of a tree
            raise CombineError(
                f"labels= names '{name}', which is no variable along '{dim}' alone in {part.called}",
                variable=name,
                property="labels",
                left_url=part.source,
            )
        array = virtual_array(variable)
        if array is not None:
            variable = loaded_variable(name, array, storage, url=part.source, decode_times=True)
        values = variable.values
        if _is_text(variable):
            values = _dates(values)
        made[dim] = xr.Variable((dim,), values, variable.attrs, variable.encoding)
    return part.with_variables(made, coordinates=made) if made else part


def _dates(texts: Any) -> Any:
    """Return texts such as ``2000-01-24_12:00:00`` as dates; other texts stay."""
    plain = [x.decode() if isinstance(x, bytes) else str(x) for x in texts.tolist()]
    try:
        return pd.DatetimeIndex(pd.to_datetime([x.replace("_", "T") for x in plain], format="ISO8601")).values
    except ValueError:
        return np.array(plain)
