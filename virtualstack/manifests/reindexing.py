"""Taking elements of an array by position, with a value where there is none: what aligning arrays by labels needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        For each axis, shape ``(n,)``, from -1 to the length of the axis.
    fill_value
        In the dtype of the array, as it is stored: of a packed array, a packed number.
    code
        Whether the elements that are not there are EMPTY or MISSING.

    Raises
    ------
    IndexError
        A position is out of range.
    ManifestError
        The fill value has no place in the dtype.
    ChunkAlignmentError
        There would be too many cells.
    """
    fill = Fill.of(fill_value, array.dtype)
    chunks = array.chunks_of()
    for axis, indexer in indexers.items():
        index = np.asarray(indexer, np.int64)
        n = array.shape[axis]
        if index.size and (int(index.min()) < -1 or int(index.max()) >= n):
            raise IndexError(f"positions from {index.min()} to {index.max()} are out of bounds for axis {axis} of {n}")
        chunks = reindex_axis(chunks, axis, index, fill, code=code)
    return array.with_chunks(chunks)
