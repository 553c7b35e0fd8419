"""Boxes of an array: what a user names, and the cells that it meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Side", "read_region", "read_side"]


@dataclass(frozen=True, slots=True)
class Side:
    """Elements of a box along an axis; ``is_one`` where a number named a single one."""

    start: int
    stop: int
    is_one: bool = False

    @property
    def length(self) -> int:
        """Number of elements."""
        return self.stop - self.start

    @property
    def slice(self) -> slice:
        """As a slice."""
        return slice(self.start, self.stop)


def read_side(dim: str, item: object, length: int, /) -> Side:
    """Read an integer or a slice without steps, of an axis of some length, as numpy does.

    Raises
    ------
    IndexError
        The integer is out of bounds.
    ValueError
        It is neither, or has a step.
    """
    if isinstance(item, int | np.integer) and not isinstance(item, bool):
        if not -length <= item < length:
            raise IndexError(f"index {int(item)} is out of bounds for dimension '{dim}' of {length} elements")
        start = int(item) % length
        return Side(start, start + 1, True)
    if not isinstance(item, slice) or item.step not in (None, 1):
        raise ValueError(f"region of '{dim}' is {item!r}; it is an integer, or a slice without a step")
    start, stop, _ = item.indices(length)
    return Side(start, max(start, stop))


def read_region(region: object, dims: Sequence[str], shape: Sequence[int], /) -> list[Side]:
    """Read a region: a map from dimension to what :func:`read_side` takes, or a sequence of that, or one alone.

    Raises
    ------
    IndexError
        An integer is out of bounds, or there are more items than dimensions.
    ValueError
        There is no such dimension, or an item is none.
    """
    if isinstance(region, Mapping):
        unknown = sorted(map(str, region.keys() - set(dims)))
        if unknown:
            raise ValueError(f"region names {unknown}; the dimensions are {list(dims)}")
        items: list[Any] = [region.get(dim, slice(None)) for dim in dims]
    else:
        items = list(region) if isinstance(region, Sequence) else [region]
        if items.count(...) > 1 or len(items) - items.count(...) > len(dims):
            raise IndexError(f"region has {len(items)} items; the dimensions are {list(dims)}")
        at = items.index(...) if ... in items else len(items)
        rest = items[at + 1 :]
        items = [*items[:at], *[slice(None)] * (len(dims) - at - len(rest)), *rest]
    return [read_side(dim, item, n) for dim, item, n in zip(dims, items, shape, strict=True)]
