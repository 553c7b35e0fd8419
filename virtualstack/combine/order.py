"""The order of files by their coordinates: dimensions to join along, and files as tiles of a grid."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import pandas as pd

from virtualstack.combine.absent import EVERYTHING, Absent, absent_by_name, missing_variable
from virtualstack.combine.align import align
from virtualstack.combine.concat import concat_parts, merge_parts
from virtualstack.combine.conflicts import Rules
from virtualstack.combine.part import Part
from virtualstack.combine.planned import facts_of
from virtualstack.errors import CombineError
from virtualstack.planning.labels import distinct_labels, is_jitter, misfit, span
from virtualstack.planning.places import Place, find_places, highest, labelled_in_all, lowest
from virtualstack.planning.questions import at_one_place
from virtualstack.storage import Storage

__all__ = ["combine_by_coords", "complete", "have_an_order", "join_tiles"]

_MAX_ABSENT = 100_000


def complete(
    tiles: Mapping[tuple[int, ...], Part], shape: Sequence[int], dims: Sequence[str], rules: Rules, /
) -> dict[tuple[int, ...], Part]:
    """Add ABSENT tiles at the places of a grid that have no file.

    Parameters
    ----------
    tiles
        Tiles by their position along each dimension, in order; they are aligned along the other dimensions.
    shape
        Shape of the grid.
    dims
        Dimensions along which the tiles are joined.
    rules
        Rules with ``join``.

    Raises
    ------
    CombineError
        ``join`` is not "outer", or too many tiles are absent.
    """
    absent = islice((place for place in np.ndindex(*shape) if place not in tiles), _MAX_ABSENT)
    n_absent = math.prod(shape) - len(tiles)
    lines = [{place[axis]: part for place, part in tiles.items()} for axis in range(len(dims))]

    def where(place: tuple[int, ...]) -> str:
        at = zip(dims, lines, place, strict=True)
        return ", ".join(f"{dim} {span(line[i].indexes[dim].index)}" for dim, line, i in at)

    if rules.join != "outer" or n_absent > _MAX_ABSENT:
        first = where(next(absent))
        raise CombineError(
            f"{len(tiles):,} files do not fill a grid of {' x '.join(map(str, shape))} along {list(dims)}: no "
            f"file for {first}{f', and for {n_absent - 1:,} more' if n_absent > 1 else ''}. join='outer' "
            f"fills up to {_MAX_ABSENT:,} missing files with missing values",
            property="hypercube",
            left=tuple(shape),
            right=len(tiles),
        )
    some = next(iter(tiles.values()))
    in_line = _InLine(tiles, dims)
    return {**tiles, **{place: _absent_tile(some, place, in_line, rules) for place in absent}}


class _InLine:
    """Finder of tiles with the same position along some dimensions.

    Parameters
    ----------
    tiles, dims
        Tiles by their position along each dimension, and these dimensions.
    """

    def __init__(self, tiles: Mapping[tuple[int, ...], Part], dims: Sequence[str]) -> None:
        self.tiles = tiles
        self.dims = dims
        self._found: dict[tuple[int, ...], dict[tuple[int, ...], Part]] = {}

    def find(self, place: tuple[int, ...], dims: Iterable[Hashable]) -> Part | None:
        """Return a tile with the same position along the given dimensions, or ``None`` if there is none."""
        wanted = set(dims)
        axes = tuple(axis for axis, dim in enumerate(self.dims) if dim in wanted)
        if axes not in self._found:
            self._found[axes] = {tuple(x[axis] for axis in axes): part for x, part in self.tiles.items()}
        return self._found[axes].get(tuple(place[axis] for axis in axes))


def _absent_tile(like: Part, place: tuple[int, ...], in_line: _InLine, rules: Rules) -> Part:
    """Make a tile without values; a variable that lacks some dimensions is copied from a tile at the same position."""
    ends = {dim: part for dim in in_line.dims if (part := in_line.find(place, [dim])) is not None}
    sizes = {**like.sizes, **{dim: part.sizes[dim] for dim, part in ends.items()}}
    variables = {}
    absent: dict[str, Absent | None] = {}
    for name, variable in like.variables.items():
        having = in_line.find(place, variable.dims)
        if having is not None and name in having.variables:
            variables[name] = having.variables[name]
            absent[name] = having.absent
        else:
            variables[name] = missing_variable(name, variable, sizes, rules.fill(name))
            absent[name] = EVERYTHING
    indexes = {**like.indexes, **{dim: part.indexes[dim] for dim, part in ends.items()}}
    return replace(
        like,
        variables=variables,
        sizes=sizes,
        indexes=indexes,
        refusals=(),
        source=None,
        n_files=0,
        absent=absent_by_name(None, absent),
    )


def join_tiles(
    tiles: Mapping[tuple[int, ...], Part],
    shape: Sequence[int],
    dims: Sequence[str | None],
    rules: Rules,
    storage: Storage,
    /,
) -> Part:
    """Join the tiles of a grid dimension by dimension, beginning with the first, as xarray does.

    Parameters
    ----------
    tiles
        Tiles by their position along each dimension; they are aligned along all other dimensions.
    shape
        Shape of the grid.
    dims
        Dimensions along which the tiles are joined; ``None`` to merge them.
    rules, storage
        Arguments of :func:`concat_parts`.

    Raises
    ------
    CombineError
        The tiles do not fit.
    StorageError
        Values to be compared cannot be read.
    """

    def join(place: tuple[int, ...]) -> Part:
        """Join the tiles whose last positions are given."""
        axis = len(dims) - len(place) - 1
        if axis < 0:
            return tiles[place]
        parts, dim = [join((i, *place)) for i in range(shape[axis])], dims[axis]
        if dim is None:
            return merge_parts(parts, rules, storage)
        if len(dims) > 1:  # tiles of this line may have other labels along the other dimensions than the first line
            parts = align(parts, rules, but=[dim])
        return concat_parts(parts, dim, rules, storage)

    return join(())


def combine_by_coords(parts: Sequence[Part], rules: Rules, storage: Storage, /) -> Part:
    """Order files by their coordinates and join them, as :func:`xarray.combine_by_coords` does.

    Files with different variables are joined in separate groups and merged if the groups have the same coordinates, or
    no variable in common. Otherwise some files lack variables: this is an error, or ABSENT with ``join="outer"``.

    Raises
    ------
    CombineError
        Coordinates overlap, are not sorted, or leave a gap in the hypercube, or files differ.
    StorageError
        Values to be compared cannot be read.
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
    spans = {}
    for dim in _labelled(parts):
        found = distinct_labels([part.indexes[dim].index for part in parts], rules.tolerance)
        merged = found.labels[0].append(list(found.labels[1:])) if len(found.labels) > 1 else found.labels[0]
        spans[dim] = merged.unique().sort_values() if len(found.labels) > 1 else merged.sort_values()
    return spans


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
    axes = [place for place in _places(parts, rules) if place.is_disjoint]
    dims = [axis.dim for axis in axes]
    tiles = {tuple(int(axis.rank[number]) for axis in axes): part for number, part in enumerate(parts)}
    if len(tiles) < len(parts):
        raise _overlap(parts, _places(parts, rules), rules.tolerance)
    places = sorted(tiles)
    tiles = dict(zip(places, align([tiles[place] for place in places], rules, but=dims), strict=True))
    shape = [int(axis.rank.max()) + 1 for axis in axes]
    if len(tiles) != math.prod(shape):
        tiles = complete(tiles, shape, dims, rules)
    return join_tiles(tiles, shape, dims, rules, storage)


def _places(parts: Sequence[Part], rules: Rules) -> list[Place]:
    labels = [{dim: index.index for dim, index in part.indexes.items()} for part in parts]
    return find_places(parts, labels, rules.tolerance)


# -- errors ---------------------------------------------------------------------------------------------------


def _overlap(parts: Sequence[Part], places: Sequence[Place], tolerance: Any) -> CombineError:
    """Return the error on files that overlap along several dimensions."""
    overlapping = [place for place in places if not place.is_disjoint]
    if not overlapping:
        raise at_one_place([facts_of(part) for part in parts])
    for place in overlapping:
        if is_jitter(place.found):
            return misfit(place.dim, parts, place.found, tolerance)
    dim, found = overlapping[0].dim, overlapping[0].found
    order = sorted(range(len(found.labels)), key=lambda n: lowest(found.labels[n]))
    a, b = next(pair for pair in pairwise(order) if not highest(found.labels[pair[0]]) < lowest(found.labels[pair[1]]))
    left, right = parts[found.first(a)], parts[found.first(b)]
    common = found.labels[a].intersection(found.labels[b])
    how = f"both have {common[0]}" if len(common) else "their labels alternate"
    how += f" and {len(common) - 1:,} more" if len(common) > 1 else ""
    return CombineError(
        f"coordinate '{dim}' overlaps: {span(found.labels[a])} in {left.called} and {span(found.labels[b])} "
        f"in {right.called} ({how}). Leave a file out, or select a part of the files with preprocess=",
        variable=dim,
        property="labels",
        left=(found.labels[a][0], found.labels[a][-1]),
        right=(found.labels[b][0], found.labels[b][-1]),
        left_url=left.source,
        right_url=right.source,
    )
