"""Files as tiles of a grid: those for which there is none, and all of them joined."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from virtualstack.combine.absent import EVERYTHING, Absent, absent_by_name
from virtualstack.combine.align import align
from virtualstack.combine.concat import concat_parts
from virtualstack.combine.conflict_rules import Rules
from virtualstack.combine.labels import span
from virtualstack.combine.merge import merge_parts
from virtualstack.combine.missing import missing_variable
from virtualstack.combine.part import Part
from virtualstack.errors import CombineError
from virtualstack.storage import Storage

__all__ = ["complete", "join_tiles"]

_MAX_ABSENT = 100_000


def complete(
    tiles: Mapping[tuple[int, ...], Part], shape: Sequence[int], dims: Sequence[str], rules: Rules, /
) -> dict[tuple[int, ...], Part]:
    """Put ABSENT tiles where no file is.

    Parameters
    ----------
    tiles
        By their place along each dimension, in order; aligned along the others.
    shape
        Of the grid.
    dims
        Along which they are joined.
    rules
        With ``join``.

    Raises
    ------
    CombineError
        ``join`` is not "outer".
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
            f"{len(tiles):,} files do not fill a grid of {' x '.join(map(str, shape))} along {list(dims)}: there is "
            f"none for {first}{f', and for {n_absent - 1:,} more' if n_absent > 1 else ''}; join='outer' fills up to "
            f"{_MAX_ABSENT:,} with missing values",
            property="hypercube",
            left=tuple(shape),
            right=len(tiles),
        )
    some = next(iter(tiles.values()))
    in_line = _InLine(tiles, dims)
    return {**tiles, **{place: _absent_tile(some, place, in_line, rules) for place in absent}}


class _InLine:
    """Finds a tile with the same place along some dimensions.

    Parameters
    ----------
    tiles, dims
        Tiles by their place along each dimension.
    """

    def __init__(self, tiles: Mapping[tuple[int, ...], Part], dims: Sequence[str]) -> None:
        self.tiles = tiles
        self.dims = dims
        self._found: dict[tuple[int, ...], dict[tuple[int, ...], Part]] = {}

    def find(self, place: tuple[int, ...], dims: Iterable[Hashable]) -> Part | None:
        """Give a tile, or ``None`` where there is none."""
        wanted = set(dims)
        axes = tuple(axis for axis, dim in enumerate(self.dims) if dim in wanted)
        if axes not in self._found:
            self._found[axes] = {tuple(x[axis] for axis in axes): part for x, part in self.tiles.items()}
        return self._found[axes].get(tuple(place[axis] for axis in axes))


def _absent_tile(like: Part, place: tuple[int, ...], in_line: _InLine, rules: Rules) -> Part:
    """Make a tile without values; what does not vary along all dimensions is that of a tile in line with it."""
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
    """Join the tiles of a grid along one dimension after the other, from the first on, as xarray does.

    Parameters
    ----------
    tiles
        By their place along each dimension; aligned along all others.
    shape
        Of the grid.
    dims
        Along which they are joined; ``None`` where they are put side by side.
    rules, storage
        As for :func:`concat_parts`.

    Raises
    ------
    CombineError
        Something does not fit.
    StorageError
        Values to be compared cannot be read.
    """

    def join(place: tuple[int, ...]) -> Part:
        """Join the tiles whose last places are given."""
        axis = len(dims) - len(place) - 1
        if axis < 0:
            return tiles[place]
        parts, dim = [join((i, *place)) for i in range(shape[axis])], dims[axis]
        if dim is None:
            return merge_parts(parts, rules, storage)
        if len(dims) > 1:  # along the others, tiles of this line may have other labels than those of the first one
            parts = align(parts, rules, but=[dim])
        return concat_parts(parts, dim, rules, storage)

    return join(())
