"""Many virtual datasets as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import xarray as xr

from virtualstack.combine.align import align
from virtualstack.combine.concat import concat_parts
from virtualstack.combine.differing import unpack_differing
from virtualstack.combine.how import How
from virtualstack.combine.merge import merge_parts
from virtualstack.combine.new_dim import with_new_dims
from virtualstack.combine.order import combine_by_coords
from virtualstack.combine.part import Part
from virtualstack.combine.rules import Rules
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
    datasets: Nested[xr.Dataset], how: How | None = None, /, *, storage: StorageLike = None
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
    how = how or How()
    parts = with_new_dims([Part.of(dataset) for dataset in flatten(datasets)], how.new_dim)
    if how.unpack_where_differing:
        parts = unpack_differing(parts, decode_times=how.decode_times)
    return combine_parts(nest_like(datasets, parts), parts, how.dims, how.rules, Storage.of(storage)).dataset()


def combine_parts(
    nested: Nested[Part], flat: Sequence[Part], dims: Sequence[str | None] | None, rules: Rules, storage: Storage, /
) -> Part:
    """Combine parts by their coordinates, or as they are nested."""
    if dims is None:
        return combine_by_coords(flat, rules, storage)
    _check_levels(nested, dims)
    return _nest(nest_like(nested, align(flat, rules, but=dims)), dims, rules, storage)


def _check_levels(item: Nested[Part], dims: Sequence[str | None]) -> None:
    if isinstance(item, Part):
        if dims:
            raise CombineError(
                f"{item.called} stands where a list is needed: concat_dim names {list(dims)} below it, one for each "
                "level of nested lists"
            )
        return
    if not dims:
        raise CombineError("lists are nested deeper than concat_dim has dimensions; name one for each level")
    if not item:
        raise CombineError("there are no datasets to combine")
    for x in item:
        _check_levels(x, dims[1:])


def _nest(item: Nested[Part], dims: Sequence[str | None], rules: Rules, storage: Storage) -> Part:
    if isinstance(item, Part):
        return item
    parts = [_nest(x, dims[1:], rules, storage) for x in item]
    return merge_parts(parts, rules, storage) if dims[0] is None else concat_parts(parts, dims[0], rules, storage)


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
