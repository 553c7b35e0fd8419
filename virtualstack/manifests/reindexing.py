"""Taking elements of an array by position, with a value where there is none: what aligning arrays by labels needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.chunk_manifest import EMPTY
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.filling import reindex_axis

__all__ = ["reindex"]


def reindex(
    array: ManifestArray,
    indexers: Mapping[int, NDArray[np.integer[Any]]],
    fill_value: object,
    /,
    *,
    code: int = EMPTY,
) -> ManifestArray:
    """Take elements along axes by their positions; -1 stands for the fill value. No mask of elements is made.

    Parameters
    ----------
    array
        To be reindexed.
    indexers
        For each axis (negative ones count from the end), shape ``(n,)``, from -1 to the length of the axis.
    fill_value
        In the dtype of the array, as it is stored: of a packed array, a packed number.
    code
        Whether the elements that are not there are EMPTY or ABSENT.

    Raises
    ------
    IndexError
        A position is out of range.
    ManifestError
        The fill value has no place in the dtype; no such axis, or the same one twice; indexers that are not integers,
        or not of one axis.
    ChunkAlignmentError
        There would be too many cells.
    """
    fill = Fill.of(fill_value, array.dtype)
    chunks = array.as_chunks()
    for axis, index in _by_axis(array, indexers).items():
        n = array.shape[axis]
        if index.size and (int(index.min()) < -1 or int(index.max()) >= n):
            raise IndexError(f"positions from {index.min()} to {index.max()} are out of bounds for axis {axis} of {n}")
        chunks = reindex_axis(chunks, axis, index.astype(np.int64), fill, code=code)
    return array.with_chunks(chunks)


def _by_axis(array: ManifestArray, indexers: Mapping[int, Any]) -> dict[int, NDArray[Any]]:
    """Check indexers, and count their axes from the beginning."""
    found: dict[int, NDArray[Any]] = {}
    for key, indexer in indexers.items():
        if not isinstance(key, int | np.integer) or isinstance(key, bool) or not -array.ndim <= key < array.ndim:
            raise ManifestError(f"{key!r} is no axis of variable '{array.name}', which has {array.ndim}")
        axis = int(key) % array.ndim
        if axis in found:
            raise ManifestError(f"axis {axis} of variable '{array.name}' has two indexers")
        index = np.asarray(indexer)
        if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
            raise ManifestError(
                f"positions along axis {axis} of variable '{array.name}' are integers of shape (n,), not "
                f"'{index.dtype}' of shape {index.shape}"
            )
        found[axis] = index
    return found
