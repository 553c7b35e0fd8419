"""Placement of parts in a store by their labels: new labels are inserted, and existing ones are overwritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.indexes import PandasIndex

from virtualstack.codecs.codec import shortened
from virtualstack.combine.align import united
from virtualstack.combine.concat import joining_remedies
from virtualstack.combine.conflicts import of_one_dtype, unpack_differing
from virtualstack.combine.equal_variables import the_same
from virtualstack.combine.fitting import (
    TEXT,
    WITH_OUTER,
    Fitting,
    check_dimension,
    check_presence,
    completed,
    fitted,
    incomplete,
    joint_dtype,
    labels_of_a_variable,
    load_part,
)
from virtualstack.combine.part import Part, bundled_in, each_node, group_from, over_index
from virtualstack.combine.placing import Placing, StoreAxis
from virtualstack.combine.planned import facts_of, planned, with_labels_as_in
from virtualstack.combine.precedence import IsGone, Prefer, is_changed
from virtualstack.combine.region import check_time, following
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError, Remedy
from virtualstack.manifests import ManifestGroup, Refusal
from virtualstack.manifests.manifest import Overlay
from virtualstack.planning import make_plan
from virtualstack.planning.labels import check_kinds, distinct_labels, is_jitter, misfit
from virtualstack.storage.threads import concurrently

type _Index = pd.Index[Any]


def updated(
    stored: ManifestGroup,
    groups: Sequence[ManifestGroup],
    dim: str,
    labels: Any,
    fitting: Fitting,
    prefer: Prefer = None,
    is_gone: IsGone = lambda source: False,
    /,
) -> tuple[ManifestGroup, dict[str, Sequence[Overlay]]]:
    """Return a store's group with other groups placed in it, and overlays on its virtual variables."""
    if not isinstance(dim, str) or not any(dim in node.arrays for _, node in stored.walk()):
        raise CombineError(
            f"'{stored.url}' has no coordinate {dim!r}, whose labels determine the position of parts",
            variable=str(dim),
            property="labels",
            left_url=stored.url,
        )
    check_dimension(stored, dim)
    if labels is not None:
        labels = _listed(labels, dim, stored.url)
    overlays: dict[str, Sequence[Overlay]] = {}

    def change(path: str, node: ManifestGroup, others: Sequence[ManifestGroup]) -> ManifestGroup:
        made, over = _updated(node, others, dim, labels, fitting, prefer, is_gone)
        overlays.update({f"{path}/{name}": items for name, items in over.items()})
        return made

    return each_node(stored, groups, change, inherits=True), overlays


def _listed(labels: Any, dim: str, url: str | None) -> NDArray[Any]:
    """Return labels as an array with one axis."""
    try:
        found = np.atleast_1d(np.asarray(labels))
    except ValueError:  # lists of several lengths
        found = None
    if found is None or found.ndim > 1:
        raise CombineError(
            f"labels= must be a list of labels of '{dim}', each of them one value, not {shortened(labels)}",
            variable=dim,
            property="labels",
            left_url=url,
        )
    return found


def _updated(
    stored: ManifestGroup,
    groups: Sequence[ManifestGroup],
    dim: str,
    labels: Any,
    fitting: Fitting,
    prefer: Prefer,
    is_gone: IsGone,
) -> tuple[ManifestGroup, dict[str, list[Overlay]]]:
    loaded = bundled_in(stored) | stored.loaded
    old = load_part(stored, fitting.storage, loaded)
    read = partial(_part, loaded=loaded | {dim, *old.indexes}, fitting=fitting)
    parts = list(concurrently(read, groups, urls=[group.url for group in groups]))
    parts = [with_labels_as_in(old, part, fitting.storage) for part in parts]
    plans = [make_plan([facts_of(part)], dims=old.sizes) for part in parts]
    parts = [planned(part, 0, plan, fitting.rules, old.variables) for part, plan in zip(parts, plans, strict=True)]
    if prefer is None:
        check_time(old, parts, dim)
    before = old.variables
    holes = old.variables.keys() if labels is not None else incomplete([old, *parts], dim, fitting)
    old, *parts = unpack_differing([old, *parts], fitting.storage, incomplete=holes)
    for part in parts if fitting.join == "outer" else ():
        old = completed(old, part, dim, fitting)
    apart = [] if fitting.join == "exact" else _differing(old, parts, dim)
    old, parts = following(old, parts, [dim, *apart], fitting)
    old, *parts = of_one_dtype([old, *parts])
    for part in parts:
        check_presence(old, part, sorted(part.variables.keys() - old.variables.keys()), WITH_OUTER)
    if dim in old.sizes:
        _check_labels(dim, [old, *parts])
    others = [] if fitting.join == "exact" else _differing(old, parts, dim)
    for name in others if fitting.join == "left" else ():
        parts = [_with_known_labels(name, part, old) for part in parts]
    for name in [dim, *others] if dim in old.sizes else others:
        parts = _in_order(name, old, parts)
    parts = [fitted(part, old, fitting, but=[dim, *others]) for part in parts]
    axes = [_axis(dim, old, parts, labels)] if dim in old.sizes else []
    axes += [_axis(name, old, parts, None) for name in others]
    placing = Placing(
        dim=dim,
        axes={axis.dim: axis for axis in axes},
        parts=[old, *parts],
        fitting=fitting,
        prefer=prefer,
        is_gone=is_gone,
    )
    changed = {name: x for name, x in old.variables.items() if name not in before}
    overlays: dict[str, list[Overlay]] = {}
    notes: list[Refusal] = []
    for name, variable in old.variables.items():
        if name in placing.axes:
            continue
        having = [part for part in parts if name in part.variables]
        if parts and not having and (more := [axis.dim for _, axis in placing.placed_axes(name) if not axis.is_same]):
            reason = f"files without it added labels of {' and '.join(map(repr, more))}"
            notes.append(Refusal(path=name, reason=reason, kind="noted"))
        if not placing.axes.keys() & set(variable.dims):
            if not all(name in part.indexes for part in (old, *having)):
                newer = [part for part in having if _is_newer(part.variables[name], variable, is_gone)]
                first = newer[-1] if newer else old
                why = f"does not have the dimension '{dim}'"
                remedies = joining_remedies(name, [old, *having], dim, fitting.rules, is_append=True)
                the_same(name, [first, *having], fitting.storage, fitting.rules, why=why, remedies=remedies)
                if newer:
                    changed[name] = first.variables[name]
        elif virtual_array(variable) is None:
            made = placing.loaded(name)
            if made is not variable:
                changed[name] = made
        else:
            over = placing.virtual(name, is_changed=variable is not before.get(name))
            if isinstance(over, xr.Variable):
                changed[name] = over
            elif over:
                overlays[name] = over
    for axis in axes:
        if not axis.is_same:
            index = PandasIndex(axis.labels, axis.dim, coord_dtype=axis.dtype)
            changed[axis.dim] = over_index(axis.dim, index, old.variables[axis.dim])
            sizes, indexes = {**old.sizes, axis.dim: len(axis.labels)}, {**old.indexes, axis.dim: index}
            old = replace(old, sizes=sizes, indexes=indexes)
    return _group(replace(old, refusals=(*old.refusals, *notes)), changed, stored), overlays


def _group(old: Part, changed: Mapping[str, xr.Variable], stored: ManifestGroup) -> ManifestGroup:
    """Return a group of the store with some variables changed."""
    if not changed:
        return stored
    part = replace(old, variables={**old.variables, **changed})
    return group_from(part, stored, stored.arrays.keys() - changed.keys())


def _part(group: ManifestGroup, *, loaded: set[str], fitting: Fitting) -> Part:
    return load_part(group, fitting.storage, loaded | group.loaded)


# -- labels ---------------------------------------------------------------------------------------------------


_OF_REFERENCES = (
    Remedy("use {} if the files come in order", "Repository.append"),
    Remedy("open the store with {}, which loads labels, and write it again", "vs.open_virtual_dataset"),
)


def _check_labels(dim: str, parts: Sequence[Part]) -> None:
    """Check that all parts, of which the store is the first, have distinct labels with a common order."""
    for part in parts:
        found = part.variables.get(dim)
        if found is None or found.ndim > 1 or virtual_array(found) is not None:
            is_stored = part is parts[0] and found is not None and found.ndim == 1
            why = ". The store has them as references, as after a conversion" if is_stored else ""
            assigned = Remedy("add it with", f"assign_coords({dim}=...)", new_dim=...)
            given = [labels_of_a_variable(dim), assigned] if found is None and dim in part.sizes else [assigned]
            raise CombineError(
                f"{part.called} has no loaded coordinate '{dim}', whose labels determine its position{why}",
                *(_OF_REFERENCES if is_stored else given),
                variable=dim,
                property="labels",
                right_url=part.source,
            )
        _check_distinct(dim, part, _label_index(dim, found.values))
    check_kinds(dim, parts, [_label_index(dim, part.variables[dim].values) for part in parts])


def _check_distinct(dim: str, part: Part, labels: _Index) -> None:
    """Refuse labels that do not determine one position each."""
    if labels.hasnans:
        what, call = "missing labels", f"isel({dim}=ds.{dim}.notnull())"
    elif not labels.is_unique:
        what, call = f"label {labels[labels.duplicated()][0]!s} more than once", f"drop_duplicates('{dim}')"
    else:
        return
    raise CombineError(
        f"{part.called} has {what} along '{dim}', and each label must determine one position",
        Remedy("leave them out with", call),
        variable=dim,
        property="labels",
        right_url=part.source,
    )


def _label_index(dim: str, labels: Any) -> _Index:
    values = np.atleast_1d(labels)
    is_plain = values.dtype.kind in "iuf" or values.dtype == "M8[ns]"
    return xr.Variable((dim,), values, fastpath=is_plain).to_index()


def _differing(old: Part, parts: Sequence[Part], dim: str) -> list[str]:
    """Return the other dimensions along which some part has other labels than a store."""
    found = []
    for name, index in old.indexes.items():
        having = [part for part in parts if name in part.indexes]
        if name == dim or all(part.indexes[name].index.equals(index.index) for part in having):
            continue
        check_kinds(name, [old, *having], [part.indexes[name].index for part in (old, *having)])
        for part in (old, *having):
            labels = part.indexes[name].index
            _check_distinct(name, part, labels)
            labels_of_two = distinct_labels([index.index, labels])
            if len(labels_of_two.labels) > 1 and is_jitter(labels_of_two):
                remedy = Remedy("give it the store's labels with", f"assign_coords({name}=...)")
                raise misfit(name, [old, part], labels_of_two, None, remedies=[remedy])
        found.append(name)
    return found


def _with_known_labels(dim: str, part: Part, old: Part) -> Part:
    """Return a part without labels that the store does not have."""
    if dim not in part.indexes:
        return part
    index = part.indexes[dim].index
    keep = np.flatnonzero(old.indexes[dim].index.get_indexer(index) >= 0)
    if len(index) and not len(keep):
        raise CombineError(
            f"{part.called} has no label of '{dim}' in common with {old.called}, so join='left' would "
            "leave all of it out",
            Remedy("add its labels with", join="outer"),
            variable=dim,
            property="labels",
            left_url=old.source,
            right_url=part.source,
        )
    return part if len(keep) == len(index) else part.isel(dim, keep)


def _in_order(dim: str, old: Part, parts: Sequence[Part]) -> list[Part]:
    """Return parts with their labels in the order that the store will have."""
    indexes = [part.indexes[dim].index if dim in part.indexes else None for part in parts]
    labels = united(old.indexes[dim].index, [x for x in indexes if x is not None])
    made = []
    for part, index in zip(parts, indexes, strict=True):
        at = np.arange(0) if index is None else labels.get_indexer(index)
        made.append(part if (np.diff(at) > 0).all() else part.isel(dim, np.argsort(at)))
    return made


def _axis(dim: str, old: Part, parts: Sequence[Part], more: Any) -> StoreAxis:
    """Return the labels along a dimension, and the positions of all parts among them."""
    own = old.indexes[dim].index
    having = [part for part in parts if dim in part.indexes]
    indexes = [own, *(part.indexes[dim].index for part in having)]
    wanted = [*indexes]
    dtypes = [part.variables[dim].dtype for part in (old, *having)]
    if more is not None:
        wanted.append(_label_index(dim, more))
        dtypes.append(more.dtype)
        if wanted[-1].hasnans:
            raise CombineError(
                f"labels= contains NaN or NaT, which cannot be a label of '{dim}'",
                Remedy("leave it out"),
                variable=dim,
                property="labels",
                left_url=old.source,
            )
        check_kinds(dim, [old, replace(old, source="labels=")], [own, wanted[-1]])
    labels = united(own, wanted[1:])
    labels = labels if labels.dtype == own.dtype else labels.astype(own.dtype)
    if not labels.is_unique or any(len(x.difference(labels)) for x in wanted):
        raise CombineError(
            f"labels of '{dim}' cannot be stored among those of {old.called}, whose dtype is '{own.dtype}'",
            variable=dim,
            property="labels",
            left=own.dtype,
            left_url=old.source,
        )
    dtype = joint_dtype(dtypes) if dtypes[0].kind in TEXT else old.indexes[dim].coord_dtype
    at = [labels.get_indexer(part.indexes[dim].index if dim in part.indexes else own) for part in (old, *parts)]
    return StoreAxis.from_labels(dim, labels, dtype, at)


# -- existing chunks ------------------------------------------------------------------------------------------


def _is_newer(variable: xr.Variable, old: xr.Variable, is_gone: IsGone) -> bool:
    """Return whether the old variable refers to a file that is gone, or that the variable has a changed version of."""
    mine, its = virtual_array(variable), virtual_array(old)
    if mine is None or its is None:
        return False
    known = {x.url: x for x in mine.in_memory().compact().locations}
    return any(
        is_gone(x) or (x.url in known and is_changed(x, known[x.url])) for x in its.in_memory().compact().locations
    )
