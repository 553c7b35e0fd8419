"""Cells of a chunk grid: boxes, indexes, counts, limits on cells read at once, and equal rows of tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError

_BLOCK_CELLS = 1 << 16  # cells that are checked at a time: their 1.5 MB stay in the cache of the processor

type CellBox = tuple[slice, ...]
"""A box of the chunk grid: one slice with start and stop and no step for each axis, in cells."""

type CellNumbers = tuple[NDArray[np.integer[Any]], ...]
"""Some cells of the grid: their indexes along each axis, which are broadcast together as in numpy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestSummary:
    """Counts over a manifest."""

    n_chunks: int
    n_references: int
    n_inline: int
    n_empty: int
    n_absent: int
    nbytes: int

    @classmethod
    def sum(cls, parts: Iterable[ManifestSummary], /) -> ManifestSummary:
        """Return the counts of several manifests together."""
        counts = list(parts)
        return cls(**{field.name: sum(getattr(x, field.name) for x in counts) for field in fields(cls)})


_MAX_WORK_CELLS = 1 << 34
"""Largest number of cells that are processed block by block; that takes minutes."""

MAX_READ_CELLS = 1 << 28
"""Largest number of cells that are read at once: 6.4 GB of entries. Metadata of a few bytes can claim any number."""


def along(values: NDArray[Any], axis: int, ndim: int, /) -> NDArray[Any]:
    """Reshape a 1-D array so that it broadcasts along one axis."""
    return values.reshape((-1,) + (1,) * (ndim - axis - 1))


def mesh(box: CellBox, url: str | None, /) -> CellNumbers:
    """Return the cells of a box by their indexes along each axis."""
    check_count(math.prod(max(side.stop - side.start, 0) for side in box), url)
    return tuple(np.ogrid[box])


def check_work(n_cells: int, /) -> None:
    """Refuse to process more than 2^34 cells block by block."""
    if n_cells > _MAX_WORK_CELLS:
        raise ManifestError(
            f"the chunk grid has {n_cells} cells, and at most {_MAX_WORK_CELLS} are processed. Its metadata are "
            "probably damaged; otherwise select a part of the variable first"
        )


def check_count(n_cells: int, url: str | None, /) -> None:
    """Refuse to read more than :data:`MAX_READ_CELLS` cells at once; ``url`` is the URL of the manifest."""
    if n_cells > MAX_READ_CELLS:
        raise ManifestError(
            f"{n_cells} chunks of '{url}' are requested at once, and at most {MAX_READ_CELLS} are read into memory: "
            "select a part of the variable first"
        )


def blocks(shape: tuple[int, ...], /, n: int = _BLOCK_CELLS) -> Iterator[CellBox]:
    """Yield boxes of at most ``n`` cells that cover a grid in C order.

    >>> [tuple((side.start, side.stop) for side in box) for box in blocks((2, 3), 2)]
    [((0, 1), (0, 2)), ((0, 1), (2, 3)), ((1, 2), (0, 2)), ((1, 2), (2, 3))]
    """
    if not shape:
        yield ()
        return
    check_work(math.prod(shape))
    cut = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= n)
    step = max(n // max(math.prod(shape[cut + 1 :]), 1), 1)
    whole = tuple(slice(0, length) for length in shape[cut + 1 :])
    for leading in np.ndindex(shape[:cut]):
        for first in range(0, shape[cut], step):
            yield (*(slice(i, i + 1) for i in leading), slice(first, min(first + step, shape[cut])), *whole)


def first_cell(box: CellBox, bad: NDArray[np.bool_], /) -> tuple[int, ...]:
    """Return the grid index of the first marked cell of a box, in C order."""
    found = np.unravel_index(int(bad.argmax()), bad.shape)
    return tuple(side.start + int(i) for side, i in zip(box, found, strict=True))


def replaced[T](values: tuple[T, ...], at: int, value: T, /) -> tuple[T, ...]:
    """Return values, such as the index of a cell, with another value for one axis."""
    return (*values[:at], value, *values[at + 1 :])


def outer(key: Sequence[slice | NDArray[np.integer[Any]]], /) -> tuple[Any, ...]:
    """Write slices with start and stop, and index arrays, as a key that numpy reads as an outer product."""
    if sum(not isinstance(item, slice) for item in key) < 2:
        return tuple(key)
    # slices between arrays would move axes, so all become arrays
    return np.ix_(*(np.arange(item.start, item.stop) if isinstance(item, slice) else item for item in key))


def begins_run(n: int, /, *columns: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of ``n`` rows differ from the previous row in some column; the first row does.

    >>> begins_run(4, np.array([1, 1, 1, 2]), np.array([0, 0, 5, 5])).tolist()
    [True, False, True, True]
    """
    found = np.zeros(n, np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def distinct_rows(columns: Sequence[NDArray[Any]] | NDArray[Any], /) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first row of each distinct value, and the number of the value of each row.

    ``numpy.unique(axis=...)`` makes one structured value of each row, for which numpy calls Python code. It loses a
    KeyboardInterrupt that is raised there. It is also slower for many rows of few columns.

    >>> first, number = distinct_rows([np.array([2, 1, 2, 1]), np.array([0, 5, 0, 4])])
    >>> first.tolist(), number.tolist()
    ([3, 1, 0], [2, 1, 2, 0])
    """
    order = np.lexsort(tuple(reversed(columns))) if len(columns) else np.arange(np.shape(columns)[-1])  # stable
    is_new = begins_run(order.size, *(column[order] for column in columns))
    number = np.empty(order.size, np.intp)
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number
