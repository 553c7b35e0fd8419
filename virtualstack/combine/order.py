"""The order of files by their coordinates: dimensions to join along, and files as tiles of a grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex

from virtualstack.combine.align import ReindexTarget, align, reindex_part
from virtualstack.combine.concat import concat_parts, may_follow, merge_parts
from virtualstack.combine.conflicts import Rules
from virtualstack.combine.part import Part
from virtualstack.combine.planned import facts_of
from virtualstack.errors import CombineError, Remedy
from virtualstack.manifests import ABSENT
from virtualstack.planning.labels import all_labels, distinct_labels, span
from virtualstack.planning.places import find_places, labelled_in_all
from virtualstack.planning.questions import at_one_place, overlapping
from virtualstack.storage import Storage

_MAX_ABSENT = 100_000


def _incomplete(tiles: Mapping[tuple[int, ...], Part], shape: Sequence[int], dims: Sequence[str]) -> CombineError:
    """Return the error on a grid in which tiles are absent."""
    first = next(place for place in np.ndindex(*shape) if place not in tiles)
    like = [next(part for place, part in tiles.items() if place[axis] == i) for axis, i in enumerate(first)]
    where = ", ".join(f"{dim} {span(part.indexes[dim].index)}" for dim, part in zip(dims, like, strict=True))
    n_others = math.prod(shape) - len(tiles) - 1
    return CombineError(
        f"{len(tiles):,} files do not fill a grid of {' x '.join(map(str, shape))} along {list(dims)}: no "
        f"file for {where}{f', and for {n_others:,} more' if n_others else ''}",
        Remedy(f"{{}} fills up to {_MAX_ABSENT:,} missing files with missing values", join="outer"),
        property="hypercube",
        left=tuple(shape),
        right=len(tiles),
    )


def join_tiles(
    tiles: Mapping[tuple[int, ...], Part],
    shape: Sequence[int],
    dims: Sequence[str | None],
    rules: Rules,
    storage: Storage,
    /,
) -> Part:
    """Join the tiles of a grid dimension by dimension, beginning with the first, as xarray does."""
    lines = [{place[axis]: part for place, part in tiles.items()} for axis in range(len(dims))]
    names = {name for part in tiles.values() for name in part.coordinates - part.indexes.keys()}
    members = ((name, part.variables[name]) for part in tiles.values() for name in names & part.variables.keys())
    fixed = {name for name, variable in members if not may_follow(variable)}

    def join(place: tuple[int, ...]) -> Part | None:
        """Join the tiles whose last positions are given."""
        axis = len(dims) - len(place) - 1
        if axis < 0:
            return tiles.get(place)
        found, dim = [join((i, *place)) for i in range(shape[axis])], dims[axis]
        parts = [part for part in found if part is not None]
        if not parts:
            return None
        if dim is None:
            return merge_parts(parts, rules, storage)
        if len(dims) > 1:  # tiles of this line may have other labels along the other dimensions than the first line
            parts = align(parts, rules, but=[dim])
        joined = concat_parts(parts, dim, rules, storage, followers=names - fixed)
        return joined if len(parts) == len(found) else _with_holes(joined, dim, found, lines[axis], rules)

    return cast(Part, join(()))


def _with_holes(
    joined: Part, dim: str, found: Sequence[Part | None], line: Mapping[int, Part], rules: Rules, /
) -> Part:
    """Return a joined line of tiles with ABSENT elements where tiles are absent, whose labels other lines have."""
    index = PandasIndex.concat([(line[i] if x is None else x).indexes[dim] for i, x in enumerate(found)], dim)
    is_there = [np.full((line[i] if x is None else x).sizes[dim], x is not None) for i, x in enumerate(found)]
    mask = np.concatenate(is_there)
    positions = np.where(mask, np.cumsum(mask) - 1, -1)
    return reindex_part(joined, {dim: ReindexTarget(index, positions, joined.sizes[dim])}, rules, code=ABSENT)


def combine_by_coords(parts: Sequence[Part], rules: Rules, storage: Storage, /) -> Part:
    """Order files by their coordinates and join them, as :func:`xarray.combine_by_coords` does.

    Files with different variables are joined in separate groups and merged if the groups have the same coordinates, or
    no variable in common. Otherwise some files lack variables: this is an error, or ABSENT with ``join="outer"``.
    """
    groups: dict[frozenset[str], list[Part]] = {}
    for part in parts:
        groups.setdefault(frozenset(part.variables.keys() - part.coordinates), []).append(part)
    if len(groups) > 1 and not _stand_side_by_side(groups, rules):
        return _join_all(parts, rules, storage)
    return merge_parts([_join_all(group, rules, storage) for group in groups.values()], rules, storage)


def _stand_side_by_side(groups: Mapping[frozenset[str], Sequence[Part]], rules: Rules) -> bool:
    names = list(groups)
    if sum(map(len, names)) == len(frozenset[str]().union(*names)):
        return True
    places = [{_place(part) for part in group} for group in groups.values()]
    if len(frozenset[object]().union(*places)) < sum(map(len, places)):
        return True
    spans = [_span(group, rules) for group in groups.values()]
    return all(
        dim not in other or labels.equals(other[dim])
        for span in spans
        for other in spans
        for dim, labels in span.items()
    )


def _place(part: Part) -> object:
    """Return a key that distinguishes the labels of a part from the labels of most other parts."""
    labels = ((dim, index.index) for dim, index in part.indexes.items())
    return frozenset((dim, len(x), x[0], x[-1]) for dim, x in labels if len(x))


def _span(parts: Sequence[Part], rules: Rules) -> dict[str, pd.Index[Any]]:
    """Return the sorted labels of all files along each dimension."""
    return {dim: all_labels([part.indexes[dim].index for part in parts], rules.tolerance) for dim in _labelled(parts)}


def have_an_order(parts: Sequence[Part], rules: Rules, /) -> bool:
    """Return whether the labels of any dimension differ between parts."""
    return any(
        len(distinct_labels([part.indexes[dim].index for part in parts], rules.tolerance).labels) > 1
        for dim in _labelled(parts)
    )


def _labelled(parts: Sequence[Part]) -> list[str]:
    return labelled_in_all([part.indexes for part in parts])


# -- one hypercube --------------------------------------------------------------------------------------------


def _join_all(parts: Sequence[Part], rules: Rules, storage: Storage) -> Part:
    if len(parts) == 1:
        return parts[0]
    labels = [{dim: index.index for dim, index in part.indexes.items()} for part in parts]
    places = find_places(parts, labels, rules.tolerance)
    axes = [place for place in places if place.is_disjoint]
    dims = [axis.dim for axis in axes]
    tiles = {tuple(int(axis.rank[number]) for axis in axes): part for number, part in enumerate(parts)}
    if len(tiles) < len(parts) and len(axes) < len(places):
        raise overlapping(parts, places, rules.tolerance)
    if len(tiles) < len(parts):
        raise at_one_place([facts_of(part) for part in parts])
    order = sorted(tiles)
    tiles = dict(zip(order, align([tiles[at] for at in order], rules, but=dims), strict=True))
    shape = [int(axis.rank.max()) + 1 for axis in axes]
    n_absent = math.prod(shape) - len(tiles)
    if n_absent and (rules.join != "outer" or n_absent > _MAX_ABSENT):
        raise _incomplete(tiles, shape, dims)
    joined = join_tiles(tiles, shape, dims, rules, storage)
    return _without_holes(joined, tiles, dims, rules, storage) if n_absent else joined


def _without_holes(
    joined: Part, tiles: Mapping[tuple[int, ...], Part], dims: Sequence[str], rules: Rules, storage: Storage
) -> Part:
    """Take variables that lack dimensions of the grid from other tiles: integers need no room for missing values."""
    dims_of = {name: frozenset(map(str, x.dims)).intersection(dims) for name, x in joined.variables.items()}
    whole: dict[str, xr.Variable] = {}
    for own in set(dims_of.values()) - {frozenset(), frozenset(dims)}:
        axes = [axis for axis, dim in enumerate(dims) if dim in own]
        found = {
            tuple(place[axis] for axis in axes): part.without_dims([dim for dim in dims if dim not in own])
            for place, part in tiles.items()
        }
        shape = [len({place[axis] for place in tiles}) for axis in axes]
        if len(found) == math.prod(shape):
            variables = join_tiles(found, shape, [dims[axis] for axis in axes], rules, storage).variables
            kept = {name: x for name, x in variables.items() if dims_of[name] == own and name not in joined.indexes}
            whole |= {name: x for name, x in kept.items() if x.dtype != joined.variables[name].dtype}
    return joined.with_variables(whole)
