"""Placing parts in what a store holds by their labels: new ones between those that are there, others over them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from xarray.indexes import PandasIndex

from virtualstack.combine.labels import check_kinds
from virtualstack.combine.part import Part, over_index
from virtualstack.combine.same import the_same
from virtualstack.dataset import virtual_array
from virtualstack.errors import ChunkAlignmentError, CombineError, SourceChangedError
from virtualstack.location import Location
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.repository.boxes import Side
from virtualstack.repository.fitting import TEXT, Fitting, check_presence, fitted, joint_dtype, lacking, part_of
from virtualstack.repository.nodes import bundled_in, each_node, group_from, labels_by_path, with_labels
from virtualstack.repository.region import overlay_on, with_dims
from virtualstack.storage.concurrently import concurrently
from virtualstack.storage.source import check_version
from virtualstack.writers.manifest_store.write import Overlay

__all__ = ["updated"]

type _Index = pd.Index[Any]


def updated(
    stored: ManifestGroup,
    groups: Sequence[ManifestGroup],
    dim: str,
    labels: Any,
    fitting: Fitting,
    /,
) -> tuple[ManifestGroup, dict[str, Sequence[Overlay]]]:
    """Give what a store holds with other groups in their places, and what comes over its virtual variables.

    Parameters
    ----------
    stored
        Of a store, its labels ascending.
    groups
        With the same children; of two with one label the later one is seen.
    dim
        Dimension along which labels tell the place.
    labels
        More labels that should be there; elements that no group has are MISSING.
    fitting
        What is done where they differ.

    Raises
    ------
    CombineError
        They do not fit; a note names the group.
    ChunkAlignmentError
        Chunks of a group would have to be joined.
    """
    if not isinstance(dim, str) or not any(dim in node.arrays for _, node in stored.walk()):
        raise CombineError(
            f"'{stored.url}' has no coordinate {dim!r}, by whose labels parts are placed",
            variable=str(dim),
            property="labels",
            left_url=stored.url,
        )
    if labels is not None:
        labels = _listed(labels, dim, stored.url)
    overlays: dict[str, Sequence[Overlay]] = {}
    labels_of = [labels_by_path(group, dim) for group in (stored, *groups)]

    def change(path: str, node: ManifestGroup, others: Sequence[ManifestGroup]) -> ManifestGroup:
        whole = [with_labels(x, dim, each[path]) for x, each in zip((node, *others), labels_of, strict=True)]
        made, over = _updated(whole[0], whole[1:], dim, labels, fitting)
        overlays.update({f"{path}/{name}": items for name, items in over.items()})
        return made if dim in node.arrays else _without(made, dim)

    return each_node(stored, groups, change), overlays


def _listed(labels: Any, dim: str, url: str | None) -> NDArray[Any]:
    """Give labels as an array with one axis."""
    try:
        found = np.atleast_1d(np.asarray(labels))
    except ValueError:  # lists of several lengths
        found = None
    if found is None or found.ndim > 1:
        raise CombineError(
            f"labels= is {str(labels)[:100]!r}, and takes a list of labels of '{dim}', each of them one value",
            variable=dim,
            property="labels",
            left_url=url,
        )
    return found


def _without(group: ManifestGroup, name: str) -> ManifestGroup:
    arrays = {key: array for key, array in group.arrays.items() if key != name}
    return replace(group, arrays=arrays, loaded=group.loaded - {name}, coordinates=group.coordinates - {name})


def _updated(
    stored: ManifestGroup, groups: Sequence[ManifestGroup], dim: str, labels: Any, fitting: Fitting
) -> tuple[ManifestGroup, dict[str, list[Overlay]]]:
    loaded = bundled_in(stored) | stored.loaded
    old = part_of(stored, fitting.storage, loaded)
    read = partial(_part, loaded=loaded | {dim}, fitting=fitting)
    parts = list(concurrently(read, groups, urls=[group.url for group in groups]))
    for part in parts:
        check_presence(old, part, [name for name in part.variables if name not in old.variables])
    if dim in old.sizes:
        _check_labels(dim, [old, *parts])
    single = {dim: Side(0, 1, True)}
    parts = [fitted(with_dims(part, old, single), old, fitting, but=[dim]) for part in parts]
    changed: dict[str, xr.Variable] = {}
    for name, variable in old.variables.items():
        having = [part for part in parts if name in part.variables]
        if dim not in variable.dims and not all(name in part.indexes for part in (old, *having)):
            newer = [part for part in having if _is_newer(part.variables[name], variable)]
            first = newer[-1] if newer else old
            the_same(name, [first, *having], fitting.storage, fitting.rules, why=f"has not the dimension '{dim}'")
            if newer:
                changed[name] = first.variables[name]
    if dim not in old.sizes:
        return _group(old, changed, stored), {}
    plan = _Plan.of(dim, old, parts, labels)
    overlays: dict[str, list[Overlay]] = {}
    for name, variable in old.variables.items():
        if dim not in variable.dims or name == dim:
            continue
        if virtual_array(variable) is None:
            made = _loaded(name, plan, fitting)
            if not (plan.is_same and made.identical(variable)):  # type: ignore[no-untyped-call]
                changed[name] = made
        else:
            over = _virtual(name, plan, fitting)
            if isinstance(over, xr.Variable):
                changed[name] = over
            elif over:
                overlays[name] = over
    if not plan.is_same:
        index = PandasIndex(plan.labels, dim, coord_dtype=plan.dtype)
        changed[dim] = over_index(dim, index, old.variables[dim])
        old = replace(old, sizes={**old.sizes, dim: len(plan.labels)}, indexes={**old.indexes, dim: index})
    return _group(old, changed, stored), overlays


def _group(old: Part, changed: Mapping[str, xr.Variable], stored: ManifestGroup) -> ManifestGroup:
    """Give a group of the store with some variables changed."""
    if not changed:
        return stored
    part = replace(old, variables={**old.variables, **changed})
    return group_from(part, stored, stored.arrays.keys() - changed.keys())


def _part(group: ManifestGroup, *, loaded: set[str], fitting: Fitting) -> Part:
    return part_of(group, fitting.storage, loaded | group.loaded)


# -- labels ---------------------------------------------------------------------------------------------------


def _check_labels(dim: str, parts: Sequence[Part]) -> None:
    """Check that labels are there, ascend, and compare."""
    for part in parts:
        found = part.variables.get(dim)
        if found is None or found.ndim > 1 or virtual_array(found) is not None:
            raise CombineError(
                f"{part.called} has no loaded coordinate '{dim}', by whose labels it is placed: give it one with "
                f"assign_coords({dim}=...)",
                variable=dim,
                property="labels",
                right_url=part.source,
            )
        index = part.indexes[dim].index if dim in part.indexes else None
        if index is not None and not (index.is_monotonic_increasing and index.is_unique):
            raise CombineError(
                f"labels of '{dim}' do not ascend in {part.called}, each once, so that they do not tell a place: sort "
                f"it with sortby('{dim}')",
                variable=dim,
                property="order",
                right_url=part.source,
            )
    check_kinds(dim, parts, [_index(part, dim) for part in parts])


def _index(part: Part, dim: str) -> _Index:
    if dim in part.indexes:
        return part.indexes[dim].index
    return _index_of(dim, part.variables[dim].values)


def _index_of(dim: str, labels: Any) -> _Index:
    return xr.Variable((dim,), np.atleast_1d(labels)).to_index()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Plan:
    """Where elements of all parts belong.

    Parameters
    ----------
    dim
        The dimension.
    parts
        What the store has, and then what is placed.
    labels
        Of the result.
    dtype
        Of these in xarray.
    at
        For each part, the elements of the result that it has.
    """

    dim: str
    parts: Sequence[Part]
    labels: _Index
    dtype: np.dtype[Any]
    at: Sequence[NDArray[np.intp]]

    @classmethod
    def of(cls, dim: str, old: Part, parts: Sequence[Part], more: Any) -> _Plan:
        """Find labels and places."""
        own = old.indexes[dim].index
        indexes = [own, *(part.indexes[dim].index for part in parts)]
        wanted = [*indexes]
        dtypes = [part.variables[dim].dtype for part in (old, *parts)]
        if more is not None:
            wanted.append(_index_of(dim, more))
            dtypes.append(more.dtype)
            if wanted[-1].hasnans:
                raise CombineError(
                    f"labels= has NaN or NaT, which has no place among the labels of '{dim}': leave it out",
                    variable=dim,
                    property="labels",
                    left_url=old.source,
                )
            check_kinds(dim, [old, replace(old, source="labels=")], [own, wanted[-1]])
        labels = own.append(wanted[1:]).unique().sort_values()
        labels = labels if labels.dtype == own.dtype else labels.astype(own.dtype)
        if not labels.is_unique or any(len(x.difference(labels)) for x in wanted):
            raise CombineError(
                f"labels of '{dim}' have no place among those of {old.called} in their dtype '{own.dtype}'",
                variable=dim,
                property="labels",
                left=own.dtype,
                left_url=old.source,
            )
        dtype = joint_dtype(dtypes) if dtypes[0].kind in TEXT else old.indexes[dim].coord_dtype
        at = [labels.get_indexer(x) for x in indexes]
        return cls(dim=dim, parts=[old, *parts], labels=labels, dtype=dtype, at=at)

    @property
    def is_same(self) -> bool:
        """Whether there are no labels that the store has not."""
        return len(self.labels) == len(self.at[0])

    def owners(self, name: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Give for each element of the result the part that shows it in a variable (or -1), and its element there."""
        owner = np.full(len(self.labels), -1, np.intp)
        element = np.zeros(len(self.labels), np.intp)
        for number, (part, at) in enumerate(zip(self.parts, self.at, strict=True)):
            if name in part.variables:
                owner[at] = number
                element[at] = np.arange(len(at))
        return owner, element


def _runs(owner: NDArray[np.intp], element: NDArray[np.intp]) -> Iterator[tuple[int, int, int, int]]:
    """Give the runs of elements that follow each other in one part: part, its element, and begin and end of the run."""
    if not len(owner):
        return
    follows = (owner[1:] == owner[:-1]) & ((element[1:] == element[:-1] + 1) | (owner[1:] < 0))
    begins = np.append(0, np.flatnonzero(~follows) + 1)
    ends = np.append(begins[1:], len(owner))
    yield from zip(owner[begins].tolist(), element[begins].tolist(), begins.tolist(), ends.tolist(), strict=True)


# -- variables ------------------------------------------------------------------------------------------------


def _loaded(name: str, plan: _Plan, fitting: Fitting) -> xr.Variable:
    """Put values of a variable together."""
    old = plan.parts[0]
    owner, element = plan.owners(name)
    members = [part.variables.get(name) for part in plan.parts]
    sizes = [0 if x is None else x.sizes[plan.dim] for x in members]
    found = [x.to_base_variable() for x in members if x is not None]
    take = (np.cumsum(sizes) - sizes)[owner] + element
    if (owner < 0).any():
        hole = lacking(name, old, {**old.sizes, plan.dim: 1}, fitting)
        take[owner < 0] = sum(sizes)
        found.append(hole.to_base_variable())
    joined: xr.Variable = xr.Variable.concat(found, plan.dim).isel({plan.dim: take})  # type: ignore[no-untyped-call]
    joined.attrs, joined.encoding = dict(old.variables[name].attrs), dict(old.variables[name].encoding)
    return joined


def _virtual(name: str, plan: _Plan, fitting: Fitting) -> xr.Variable | list[Overlay]:
    """Give what comes over a variable that stays as long as it is, or where it does not, the variable of its pieces."""
    old, dim = plan.parts[0], plan.dim
    variable = old.variables[name]
    array, axis = cast(ManifestArray, virtual_array(variable)), variable.dims.index(dim)
    found = [part.variables.get(name) for part in plan.parts]
    members = [None if x is None else virtual_array(x) for x in found]
    owner, element = plan.owners(name)
    _keep_same(array, members, axis, plan, owner, element)
    if plan.is_same:
        try:
            return [
                overlay_on(
                    name,
                    array,
                    cast(ManifestArray, members[number])[_along(axis, first, first + end - begin)],
                    {dim: Side(begin, end)},
                    variable.dims,
                )
                for number, first, begin, end in _runs(owner, element)
                if number > 0
            ]
        except ChunkAlignmentError:
            pass  # the chunks of the store are cut
    pieces: list[ManifestArray] = []
    for number, first, begin, end in _runs(owner, element):
        n = end - begin
        if number < 0:
            hole = lacking(name, old, {**old.sizes, dim: n}, fitting)
            pieces.append(cast(ManifestArray, virtual_array(hole)))
        elif number == 0:
            pieces += [array[_along(axis, a, b)] for a, b in _cut(array, axis, first, first + n)]
        else:
            pieces.append(cast(ManifestArray, members[number])[_along(axis, first, first + n)])
    data: Any = np.concatenate(cast(Any, pieces), axis)
    return xr.Variable(variable.dims, data, variable.attrs, variable.encoding)


def _along(axis: int, begin: int, end: int) -> tuple[slice, ...]:
    return (*(slice(None),) * axis, slice(begin, end))


def _cut(array: ManifestArray, axis: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Part elements of what lies in a store where its first whole chunk begins: what is before must be read."""
    if (begin, end) == (0, array.shape[axis]):
        return [(begin, end)]
    cells = array.grid.axes[axis]
    first = int(cells.find(begin))
    line = int(cells.edges[first + 1]) if cells.edges is not None else (first + 1) * (cells.chunk or 1)
    begins_chunk = begin == (int(cells.edges[first]) if cells.edges is not None else first * (cells.chunk or 1))
    return [(begin, end)] if begins_chunk or line >= end else [(begin, line), (line, end)]


# -- what is there already ------------------------------------------------------------------------------------


def _keep_same(
    array: ManifestArray,
    members: Sequence[ManifestArray | None],
    axis: int,
    plan: _Plan,
    owner: NDArray[np.intp],
    element: NDArray[np.intp],
) -> None:
    """Let the store show what a part has of the same sources."""
    place = np.full(len(plan.labels), -1, np.intp)
    place[plan.at[0]] = np.arange(len(plan.at[0]))
    is_there = (owner > 0) & (place >= 0)
    for number, first, begin, end in list(_runs(np.where(is_there, owner, -1), element)):
        if number < 0:
            continue
        at = int(place[begin])
        mine = array[_along(axis, at, at + end - begin)]
        its = cast(ManifestArray, members[number])[_along(axis, first, first + end - begin)]
        changed = {now.url for then, now in _in_both(mine, its) if _is_changed(then, now)}
        mine, its = _without_times(mine, changed), _without_times(its, changed)
        for a, b in _same_runs(mine, its, axis, 0, end - begin):
            owner[begin + a : begin + b] = 0
            element[begin + a : begin + b] = at + np.arange(a, b)


def _is_newer(variable: xr.Variable, old: xr.Variable) -> bool:
    """Whether a variable refers to another version of a file that the old one refers to, which is gone."""
    mine, its = virtual_array(variable), virtual_array(old)
    if mine is None or its is None:
        return False
    return any(_is_changed(then, now) for then, now in _in_both(its, mine))


def _in_both(old: ManifestArray, new: ManifestArray) -> list[tuple[Location, Location]]:
    """Give what two arrays say of the sources that both refer to."""
    known = {x.url: x for x in new.in_memory().compact().locations}
    return [(x, known[x.url]) for x in old.in_memory().compact().locations if x.url in known]


def _is_changed(then: Location, now: Location) -> bool:
    """Whether a source is no more what a store says of it, so that the store cannot be read."""
    try:
        check_version(then, now)
    except SourceChangedError:
        return True
    return False


def _without_times(array: ManifestArray, but: Collection[str]) -> ManifestArray:
    """Leave out when sources were modified, but for some URLs: size and etag tell whether others are the same."""
    manifest = array.in_memory()
    locations = tuple(x if x.url in but else replace(x, last_modified=None) for x in manifest.locations)
    return replace(array, manifest=replace(manifest, locations=locations))


def _same_runs(a: ManifestArray, b: ManifestArray, axis: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Find by halves which elements of two arrays come from the same."""
    if a[_along(axis, begin, end)].equals(b[_along(axis, begin, end)]):
        yield begin, end
        return
    lines = b.grid.axes[axis].lines()
    inner = lines[(lines > begin) & (lines < end)]
    if len(inner):
        middle = int(inner[len(inner) // 2])
        yield from _same_runs(a, b, axis, begin, middle)
        yield from _same_runs(a, b, axis, middle, end)
