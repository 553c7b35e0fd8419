"""Parts as a plan says: with new dimensions, with what decides their order, and without labels that others have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex

from virtualstack.combine.align import align
from virtualstack.combine.concat import concat_parts, may_follow, merge_parts
from virtualstack.combine.conflicts import Rules, unpack_differing
from virtualstack.combine.new_dim import with_new_dim
from virtualstack.combine.part import Part
from virtualstack.dataset import expand_dims, get_groups_below, loaded_variable, virtual_array
from virtualstack.errors import CombineError, ReaderError, Remedy
from virtualstack.planning import Duplicates, FileFacts, Grid, Plan, make_plan
from virtualstack.planning.labels import is_dates
from virtualstack.reading import read_array
from virtualstack.storage import Storage


def _is_text(variable: xr.Variable) -> bool:
    """Return whether the values of a variable are text: dates of other calendars are objects, too."""
    if variable.dtype.kind != "O" or virtual_array(variable) is not None:
        return variable.dtype.kind in "OSTU"
    return bool(variable.size) and all(isinstance(x, str | bytes) for x in variable.values.flat)


def _is_time(variable: xr.Variable) -> bool:
    array = virtual_array(variable)
    return variable.dtype.kind == "M" if array is None else " since " in str(array.cf.get("units", ""))


def facts_of(*parts: Part) -> FileFacts:
    """Return the facts of a file from the parts of its groups, of which earlier ones count first; no value is read."""
    names: set[str] = set()
    dims: tuple[str, ...] = ()
    axes: dict[str, int] = {}
    sizes: dict[str, int] = {}
    labels: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    along: dict[str, dict[str, Any]] = {}
    attributes: dict[str, Any] = {}
    for k, part in enumerate(parts):
        sizes = {**part.sizes, **sizes}
        labels = {**{dim: index.index for dim, index in part.indexes.items()}, **labels}
        attributes = {**part.inherited, **part.attributes, **attributes}
        for name, variable in part.variables.items():
            own = tuple(map(str, variable.dims))
            if name not in part.coordinates:
                names.add(f"{k}/{name}" if len(parts) > 1 else name)
                dims = max(dims, own, key=len)
                for axis, dim in enumerate(own):
                    axes[dim] = min(axis, axes.get(dim, axis))
            is_loaded = virtual_array(variable) is None and name in part.coordinates
            if is_loaded and not own:
                scalars.setdefault(name, variable.values[()])
            elif is_loaded and len(own) == 1 and name not in part.indexes and not _is_text(variable):
                along.setdefault(own[0], {}).setdefault(name, variable.to_index())
    return FileFacts(
        source=parts[0].source,
        names=frozenset(names),
        dims=dims,
        axes=axes,
        sizes=sizes,
        coordinates=frozenset(labels),
        times=frozenset(dim for dim, x in labels.items() if is_dates(x)),
        scalar_times=frozenset(name for name, x in scalars.items() if is_dates(pd.Index([x]))),
        labels=labels,
        scalars=scalars,
        identities=frozenset(name for part in parts for name, x in part.variables.items() if "cf_role" in x.attrs),
        along=along,
        unlimited=frozenset(str(dim) for part in parts for dim in part.encoding.get("unlimited_dims", ())),
        attributes=attributes,
        groups=get_groups_below(parts[0].encoding) if len(parts) == 1 else (),
    )


type Nodes = Mapping[str, Sequence[Part]]
"""Parts of the files by the path of their group."""


def plan_of(nodes: Nodes, how: Planning, rules: Rules, storage: Storage, /) -> tuple[Nodes, list[FileFacts], Plan]:
    """Return the plan of files and their facts, and their parts with what was read for it.

    Coordinates are read if nothing else tells the files apart.
    """
    nodes = with_dims_of_others(nodes, rules)
    facts = _facts(nodes)
    plan = how.plan(facts, rules)
    if plan.is_crowded:
        nodes = {path: [_with_small(part, storage) for part in parts] for path, parts in nodes.items()}
        files = [*zip(*nodes.values(), strict=True)]
        facts = [_with_times(x, parts, storage) for x, parts in zip(_facts(nodes), files, strict=True)]
        plan = how.plan(facts, rules)
        if plan.question is not None:
            facts = [_with_grid(x, parts, storage) for x, parts in zip(facts, files, strict=True)]
            facts = [
                replace(x, texts=_values_along(parts, storage, _is_text)) for x, parts in zip(facts, files, strict=True)
            ]
            plan = how.plan(facts, rules)
    return nodes, facts, plan


def with_dims_of_others(nodes: Nodes, rules: Rules, /) -> Nodes:
    """Return nodes in which a scalar coordinate is a dimension if it is one of the same variables in other files."""
    return {path: _with_dims_of_others(parts, rules) for path, parts in nodes.items()}


def _with_dims_of_others(parts: Sequence[Part], rules: Rules) -> Sequence[Part]:
    for dim, like in {dim: part.variables for part in reversed(parts) for dim in part.indexes}.items():
        with_dim = {name for name, variable in like.items() if dim in variable.dims} - {dim}
        parts = [
            with_new_dim(part, dim, part.variables[dim].values[()], rules, like)
            if dim in part.coordinates
            and not part.variables[dim].ndim
            and virtual_array(part.variables[dim]) is None
            and not with_dim.isdisjoint(part.variables)
            else part
            for part in parts
        ]
    return parts


def _facts(nodes: Nodes) -> list[FileFacts]:
    return [facts_of(*parts) for parts in zip(*nodes.values(), strict=True)]


def plan_parts(nodes: Nodes, how: Planning, rules: Rules, storage: Storage, /) -> tuple[dict[str, list[Part]], Plan]:
    """Return the parts as the plan of their facts says, and the plan."""
    nodes, _, plan = plan_of(nodes, how, rules, storage)
    if plan.question is not None:
        raise plan.question
    left_out = set(plan.left_out)
    made = {}
    for path, parts in nodes.items():
        whole = [planned(part, i, plan, rules) for i, part in enumerate(parts) if i not in left_out]
        for i in plan.empty:
            part = planned(parts[i], i, plan, rules)
            whole = _with_empty(whole, part, plan.dims, rules, storage) if whole else [part]
        made[path] = whole
    return made, plan


def _with_empty(
    parts: Sequence[Part], empty: Part, dims: Collection[str], rules: Rules, storage: Storage
) -> list[Part]:
    """Return parts of which one is joined with a part without elements along a dimension."""
    names = empty.variables.keys()
    alike = [k for k, part in enumerate(parts) if part.variables.keys() == names]
    labels = {dim: index.index for dim, index in empty.indexes.items() if dim in dims and empty.sizes[dim]}
    there = [k for k in alike if all(x.equals(parts[k].indexes[dim].index) for dim, x in labels.items())]
    if not there:
        rules = replace(rules, join="exact", remedies=(Remedy("leave the file without elements out"),))
    k = next(iter(there or alike), 0)
    dim = next((dim for dim, n in empty.sizes.items() if not n and parts[k].sizes.get(dim)), None)
    if dim is None:  # another group of a tree
        joined = merge_parts([parts[k], empty], rules, storage)
    else:
        other, empty = unpack_differing([parts[k], empty], storage)
        empty = _with_dim_of(empty, other, dim)
        followers = {name for name in empty.coordinates if may_follow(empty.variables[name])}
        joined = concat_parts(align([other, empty], rules, but=[dim]), dim, rules, storage, followers=followers)
        parts = [_with_dim_of(part, joined, dim) for part in parts]
    return [*parts[:k], joined, *parts[k + 1 :]]


def _with_dim_of(part: Part, other: Part, dim: str) -> Part:
    """Return a part whose variables have a dimension of the part if those of another part have it."""
    if dim not in part.sizes:
        return part
    got = {name for name, x in other.variables.items() if dim in x.dims}
    lacking = {name: x for name, x in part.variables.items() if name in got and dim not in x.dims}
    return part.with_variables({name: expand_dims(x, {dim: part.sizes[dim]}) for name, x in lacking.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """What a user says about the plan."""

    along: tuple[str, ...] = ()
    duplicates: Duplicates | None = None

    def plan(self, facts: Sequence[FileFacts], rules: Rules, /) -> Plan:
        """Return the plan."""
        return make_plan(
            facts,
            along=self.along,
            tolerance=rules.tolerance,
            duplicates=self.duplicates,
            is_exact=rules.join == "exact",
        )


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


def _with_times(facts: FileFacts, parts: Sequence[Part], storage: Storage, /) -> FileFacts:
    """Return facts with the times of data variables along dimensions without labels, as those of profiles."""
    times = _values_along(parts, storage, _is_time)
    return replace(facts, along={**facts.along, **{dim: {**x, **facts.along.get(dim, {})} for dim, x in times.items()}})


def _values_along(
    parts: Sequence[Part], storage: Storage, is_wanted: Callable[[xr.Variable], bool]
) -> dict[str, dict[str, Any]]:
    """Return the values of small variables along one dimension without labels, by dimension and name."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        for name, variable in part.variables.items():
            dim = str(variable.dims[0]) if variable.ndim == 1 else name
            if dim in (name, *part.indexes) or variable.nbytes > _MAX_LOADED_BYTES or not is_wanted(variable):
                continue
            with suppress(ReaderError):  # what cannot be decoded is no label
                labels = with_labels_from(part, {dim: name}, storage).indexes[dim].index
                found.setdefault(dim, {}).setdefault(name, labels)
    return found


def _with_grid(facts: FileFacts, parts: Sequence[Part], storage: Storage, /) -> FileFacts:
    """Return facts with the grids of the 2-D coordinates of a file; the chunks at their corners are read."""
    pairs: dict[tuple[str, str], list[xr.Variable]] = {}
    data = [x for part in parts for name, x in part.variables.items() if name not in part.coordinates]
    used = {dim for variable in data for dim in variable.dims}
    for variable in (part.variables[name] for part in parts for name in sorted(part.coordinates)):
        if variable.ndim == 2 and min(variable.shape) > 1 and variable.dtype.kind in "iuf":
            pairs.setdefault((str(variable.dims[0]), str(variable.dims[1])), []).append(variable)
    corners = {
        dims: np.stack([_corners(variable, storage) for variable in variables]).astype(np.float64)
        for dims, variables in pairs.items()
        if len(variables) == 2 and used.issuperset(dims)
    }
    grids = [Grid.from_corners(dims, values) for dims, values in corners.items()]
    return replace(facts, grids=tuple(x for x in grids if x is not None))


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
                part = part.isel(dim, plan.kept[i][dim])
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
            part = part.isel(dim, positions)
    if part.variables.keys() - part.coordinates:
        for dim in reversed([*plan.new]):
            if plan.labels[dim][i] is not None:
                part = with_new_dim(part, dim, plan.labels[dim][i], rules, like)
    return part


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
    """Return a part with dimension coordinates whose values are those of other variables, such as ``Times`` of WRF."""
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
            array = replace(array, dimension_names=(dim,))
            variable = loaded_variable(name, array, storage, url=part.source, decode_times=True)
        values = variable.values
        if _is_text(variable):
            values = _dates(values)
        made[dim] = xr.Variable((dim,), values, variable.attrs, variable.encoding)
    return part.with_variables(made, coordinates=made) if made else part


def with_labels_as_in(stored: Part, part: Part, storage: Storage, /) -> Part:
    """Return a part with the labels that a store took from a variable along a dimension, as the user had asked.

    It is the only variable whose first, middle and last values are the labels of the store.
    """
    for dim in stored.indexes:
        if dim in part.variables or dim not in part.sizes or not stored.sizes[dim]:
            continue
        n = stored.sizes[dim]
        along = stored.without_dims(stored.sizes.keys() - {dim})
        some = along.isel(dim, np.unique([0, n // 2, n - 1]))
        names = [
            name
            for name in some.variables.keys() & part.variables.keys()
            if some.variables[name].dims == part.variables[name].dims == (dim,)
            and with_labels_from(some, {dim: name}, storage).indexes[dim].equals(some.indexes[dim])
        ]
        part = with_labels_from(part, {dim: names[0]}, storage) if len(names) == 1 else part
    return part


def _dates(texts: Any) -> Any:
    """Return texts such as ``2000-01-24_12:00:00`` as dates; other texts stay."""
    plain = [x.decode() if isinstance(x, bytes) else str(x) for x in texts.tolist()]
    try:
        return pd.DatetimeIndex(pd.to_datetime([x.replace("_", "T") for x in plain], format="ISO8601")).values
    except ValueError:
        return np.array(plain)
