"""Many virtual datasets as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import xarray as xr

from virtualstack.combine.align import align
from virtualstack.combine.conflict_rules import Rules
from virtualstack.combine.differing import unpack_differing
from virtualstack.combine.new_dim import with_new_dims
from virtualstack.combine.options import CombineOptions
from virtualstack.combine.order import combine_by_coords
from virtualstack.combine.part import Part
from virtualstack.combine.tiles import join_tiles
from virtualstack.errors import CombineError
from virtualstack.storage import Storage, StorageLike

__all__ = [
    "Nested",
    "combine_datasets",
    "combine_parts",
    "flatten",
    "nest_like",
]

type Nested[T] = T | Sequence[Nested[T]]


def combine_datasets(
    datasets: Nested[xr.Dataset], how: CombineOptions | None = None, /, *, storage: StorageLike = None
) -> xr.Dataset:
    """Combine virtual datasets.

    No bytes are read but of variables that must be the same and are not provably so.

    Raises
    ------
    CombineError
        They do not fit; the message says where, in which files, how far, and what can be done.
    StorageError
        Values to be compared cannot be read.
    """
    how = how or CombineOptions()
    parts = with_new_dims([Part.of(dataset) for dataset in flatten(datasets)], how.new_dim)
    if how.unpack_where_differing:
        parts = unpack_differing(parts, decode_times=how.decode_times)
    return combine_parts(nest_like(datasets, parts), parts, how.dims, how.rules, Storage.of(storage)).dataset()


def combine_parts(
    nested: Nested[Part],
    flat: Sequence[Part],
    dims: Sequence[str | None] | None,
    rules: Rules,
    storage: Storage,
    /,
) -> Part:
    """Combine parts by their coordinates, or as they are nested."""
    if dims is None:
        return combine_by_coords(flat, rules, storage)
    _check_dims(flat, dims)
    shape = _shape(nested, dims)
    tiles = dict(zip(np.ndindex(*shape), align(flat, rules, but=dims), strict=True))
    return join_tiles(tiles, shape, dims, rules, storage)


def _check_dims(parts: Sequence[Part], dims: Sequence[str | None]) -> None:
    for dim in dims:
        if dim is None:
            continue
        if dims.count(dim) > 1:
            raise CombineError(
                f"concat_dim={list(dims)} names '{dim}' twice; name another dimension for each level of lists",
                variable=dim,
                property="dimension",
            )
        for part in parts:
            if dim in part.variables and part.variables[dim].ndim and dim not in part.sizes:
                raise CombineError(
                    f"concat_dim names '{dim}', which is a variable of {part.called} with the dimensions "
                    f"{list(part.variables[dim].dims)}, and no dimension; files are joined along a dimension such as "
                    f"one of {sorted(part.sizes)}, or a new one of another name",
                    variable=dim,
                    property="dimension",
                    left_url=part.source,
                )


def _shape(item: Nested[Part], dims: Sequence[str | None]) -> list[int]:
    """Give the lengths of lists at each level, outermost first.

    Raises
    ------
    CombineError
        There are not as many levels as dimensions, or lists of one level differ in length.
    """
    if isinstance(item, Part):
        if dims:
            raise CombineError(
                f"{item.called} stands where a list is needed: concat_dim names {list(dims)} below it, one for each "
                "level of nested lists"
            )
        return []
    if not dims:
        raise CombineError("lists are nested deeper than concat_dim has dimensions; name one for each level")
    if not item:
        raise CombineError("there are no datasets to combine")
    shapes = [_shape(x, dims[1:]) for x in item]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            odd, first = (next(flatten(x)) for x in (item[i], item[0]))
            raise CombineError(
                f"lists along {list(dims[1:])} have lengths {shapes[0]} where {first.called} stands and {shape} where "
                f"{odd.called} stands; lists of one level must be as long as each other: fill the grid, or let "
                "coordinates tell the places (combine='by_coords', with join='outer' where there is no file for some)",
                property="hypercube",
                left=tuple(shapes[0]),
                right=tuple(shape),
                left_url=first.source,
                right_url=odd.source,
            )
    return [len(item), *shapes[0]]


def flatten[T](item: Nested[T], /) -> Iterator[T]:
    """Give what lists of lists hold, in order.

    >>> list(flatten([["a", "b"], ["c"]]))
    ['a', 'b', 'c']
    """
    if isinstance(item, Sequence) and not isinstance(item, str):
        for x in item:
            yield from flatten(x)
    else:
        yield cast(T, item)


def nest_like[T](item: Nested[Any], values: Iterable[T], /) -> Nested[T]:
    """Nest values as what they come from.

    >>> nest_like([["a", "b"], ["c"]], [1, 2, 3])
    [[1, 2], [3]]
    """
    rest = iter(values)

    def nest(x: Nested[Any]) -> Nested[T]:
        return [nest(y) for y in x] if isinstance(x, Sequence) and not isinstance(x, str) else next(rest)

    return nest(item)
