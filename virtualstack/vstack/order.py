"""Whether chunks lie in a store in the order of their file, by which alone elements without labels are told apart."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import CombineError
from virtualstack.manifests import INLINE, ChunkGrid, ChunkManifest
from virtualstack.manifests.rows import distinct_rows
from virtualstack.vstack.cells import WRITE_AGAIN

__all__ = ["check_order"]


def check_order(
    was: ChunkManifest, now: ChunkManifest, own: NDArray[np.bool_], grid: ChunkGrid, axes: Collection[int], /
) -> None:
    """Refuse chunks that lay in a store turned round or in another order, where those of the file do not.

    The file as it was is gone: that chunks lie one behind the other in it is as they are written. Where they did not,
    the new ones must lie as they did.

    Parameters
    ----------
    was, now
        Cells of the store, and those of the file that would take their places.
    own
        Which of them are of the file.
    grid
        Of these cells.
    axes
        Without labels.

    Raises
    ------
    CombineError
        Elements would come to other places.
    """
    both = own & (was.entries["location"] >= INLINE) & (now.entries["location"] >= INLINE)
    if not both.any():
        return
    new = both & ~_same_places(was, now)  # a file that is changed in place has its other chunks where they were
    for axis in axes:
        lengths = grid.axes[axis].lengths().reshape([-1 if i == axis else 1 for i in range(both.ndim)])
        is_turned = (lengths > 1) & (_directions(was, both, axis) != _directions(now, both, axis))
        is_in_order = (~new | (_ranks(was, new, axis) == np.cumsum(new, axis) - 1)).all(axis, keepdims=True)
        is_other = ~is_in_order & (_ranks(was, both, axis) != _ranks(now, both, axis))
        if (both & (is_turned | is_other)).any():
            raise CombineError(
                "its chunks lay in another order than they do now, along a dimension without labels, so that it is not "
                f"known where its elements belong: {WRITE_AGAIN}"
            )


def _same_places(was: ChunkManifest, now: ChunkManifest) -> NDArray[np.bool_]:
    """Tell which cells are in the same bytes of the file."""
    is_same = was.entries["offset"] == now.entries["offset"]
    is_same &= was.entries["length"] == now.entries["length"]
    starts = [np.int64(0) if x.starts is None else x.starts for x in (was, now)]
    return np.asarray(is_same & (starts[0] == starts[1]), np.bool_)


def _directions(manifest: ChunkManifest, stored: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    """Give the sign of the stride of stored cells along an axis."""
    signs = np.array([np.sign(encoding.strides[axis]) for encoding in manifest.encodings], np.int64)
    return signs[np.where(stored, manifest.entries["encoding"], 0)]


def _ranks(manifest: ChunkManifest, stored: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    """Count from 0 where stored cells lie among those of their line along an axis; in the same place they are equal."""
    starts = np.zeros(stored.shape, np.int64) if manifest.starts is None else manifest.starts
    places = [manifest.entries["offset"][stored], starts[stored]]
    keys = np.full(stored.shape, len(places[0]), np.int64)  # others come behind
    keys[stored] = distinct_rows(places)[1]
    order = np.argsort(keys, axis, kind="stable")
    in_order = np.take_along_axis(keys, order, axis)
    found = np.empty_like(keys)
    np.put_along_axis(
        found, order, np.cumsum(np.diff(in_order, axis=axis, prepend=in_order.min(axis, keepdims=True)) > 0, axis), axis
    )
    return found
