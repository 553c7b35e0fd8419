"""Chunk keys of zarr, such as ``"v/0.12"``, as cells of a grid."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.zarr.metadata.array import ArrayMetadata
from virtualstack.zarr.metadata.whole_numbers import whole_numbers

__all__ = ["cells_of_keys"]

_BLOCK = 1 << 16  # keys looked at together: what is made of them stays in the processor's cache


def cells_of_keys(keys: pa.Array, path: str, metadata: ArrayMetadata, /, *, where: str) -> NDArray[np.int64]:
    """Give the cell that each chunk key names, counted in C order of the grid; -1 where it lies outside.

    Parameters
    ----------
    keys
        Large strings.
    path
        Of the array, with which they begin.

    Raises
    ------
    MalformedFileError
        A key is no index in a grid of that many axes.
    """
    start = f"{path}/{metadata.key_prefix}" if path else metadata.key_prefix
    if not metadata.shape:
        start = start.rstrip(metadata.separator) if metadata.key_prefix else f"{start}0"
    cells = [np.zeros(0, np.int64)]
    for at in range(0, len(keys), _BLOCK):
        block = keys[at : at + _BLOCK]
        index = _index(block, start, metadata)
        if index is None:
            key = _first_bad(block, start, metadata)
            raise MalformedFileError(
                f"'{key}' of '{where}' is no chunk of an array of {len(metadata.shape)} axes: write the references anew"
            )
        cells.append(_ravel(index, metadata.object_grid))
    return np.concatenate(cells)


def _index(keys: pa.Array, start: str, metadata: ArrayMetadata) -> list[NDArray[np.int64]] | None:
    """Give the index of each key on each axis; ``None`` where one has none."""
    if not metadata.shape:
        return [np.zeros(len(keys), np.int64)] if pc.all(pc.equal(keys, start)).as_py() else None
    if not pc.all(pc.starts_with(keys, start)).as_py():
        return None
    names = pc.utf8_slice_codeunits(keys, len(start))
    return whole_numbers(names, len(metadata.shape), delimiter=metadata.separator)


def _ravel(index: list[NDArray[np.int64]], grid: tuple[int, ...]) -> NDArray[np.int64]:
    inside = np.all([numbers < n for numbers, n in zip(index, grid or (1,), strict=True)], axis=0)
    cells = np.full(inside.size, -1, np.int64)
    if inside.any():
        cells[inside] = np.ravel_multi_index([numbers[inside] for numbers in index], grid or (1,))
    return cells


def _first_bad(keys: pa.Array, start: str, metadata: ArrayMetadata) -> str:
    """Find the first key without an index among those of which one has none, half by half."""
    first, last = 0, len(keys)
    while last - first > 1:
        middle = (first + last) // 2
        if _index(keys[first:middle], start, metadata) is None:
            last = middle
        else:
            first = middle
    return str(keys[first])
