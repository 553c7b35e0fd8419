"""Values of a selection of a virtual array."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import UnsupportedFeatureError
from virtualstack.manifests import ManifestArray
from virtualstack.reading.cell import read_cell
from virtualstack.reading.decode import DecodeBatch, fill_holes
from virtualstack.reading.fetch import StoredBytes, batches, fetch
from virtualstack.reading.plan import Plan, make_plan
from virtualstack.reading.selection import OuterKey, Selection, expand, select, select_points
from virtualstack.reading.threads import decode_pool, n_decoders, read_ahead_pool
from virtualstack.storage import Storage, StorageLike

__all__ = ["check_absent", "read_array", "read_points"]


def read_array(
    array: ManifestArray,
    key: OuterKey,
    storage: StorageLike = None,
    /,
    *,
    absent: Literal["fill", "raise"] = "fill",
) -> NDArray[Any]:
    """Read a selection of a virtual array.

    Every stored chunk behind it is fetched and decoded once; of uncompressed chunks only the bytes from the first to
    the last selected element are fetched. Stored bytes of about 128 MiB are in memory at a time, besides the result.

    Parameters
    ----------
    array
        Any virtual array.
    key
        One integer, slice or 1-D array of integers or booleans an axis, or ``...``. Arrays select along their own
        axis alone (outer indexing), in any order, with repetitions.
    storage
        How sources are reached; see :meth:`~virtualstack.storage.Storage.of`.
    absent
        What ABSENT chunks are: their fill value, or an error. EMPTY chunks are always their fill value.

    Returns
    -------
    numpy.ndarray
        New, writeable, in native byte order; integers of the key drop their axis.

    Raises
    ------
    IndexError
        The key does not fit the array.
    StorageError
        A source is missing, shorter than the manifest says, or has changed; or a chunk is ABSENT and ``absent`` is
        "raise". A chunk that does not decode is a `ChunkDecodeError`.
    ManifestError
        A cell reaches outside of its decoded chunk.
    UnsupportedFeatureError
        A codec is not installed.
    """
    check_absent(absent)
    storage = Storage.of(storage)
    items = expand(key, array.ndim)
    values = read_cell(array, items, storage)
    if values is not None:
        return values.reshape([n for n, item in zip(values.shape, items, strict=True) if isinstance(item, slice)])
    selection = select(array.grid, items)
    return _read(array, selection, storage, absent).reshape(selection.shape)


def read_points(
    array: ManifestArray,
    items: Sequence[slice | NDArray[np.integer[Any]]],
    storage: StorageLike = None,
    /,
    *,
    absent: Literal["fill", "raise"] = "fill",
) -> NDArray[Any]:
    """Read points of a virtual array, each chunk behind them once.

    Parameters
    ----------
    array
        Any virtual array.
    items
        For each axis a slice, or the indexes of the points along it; at least one axis has them. They are broadcast
        against each other.
    storage, absent
        As in :func:`read_array`.

    Returns
    -------
    numpy.ndarray
        New; the axes of the points come first, then those of slices, as xarray's vectorized indexing has them.

    Raises
    ------
    IndexError, StorageError, ManifestError, UnsupportedFeatureError
        As :func:`read_array`.
    """
    check_absent(absent)
    points = np.broadcast_arrays(*(item for item in items if not isinstance(item, slice)))
    flat = iter([x.reshape(-1) for x in points])
    selection = select_points(array.grid, [item if isinstance(item, slice) else next(flat) for item in items])
    out = _read(array, selection, Storage.of(storage), absent)
    return out.reshape(points[0].shape + out.shape[1:])


def _read(
    array: ManifestArray, selection: Selection, storage: Storage, absent: Literal["fill", "raise"]
) -> NDArray[Any]:
    out = np.ndarray(selection.whole_shape, array.dtype)  # np.empty makes 'S1' of 'S0'
    if not out.size:
        return out
    try:
        plan = make_plan(array, selection, absent=absent)
        fill_holes(plan, out)
        _read_chunks(plan, out, storage)
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(
            f"variable '{array.name}': {error}", url=array.a_url(), variable=array.name, feature=error.feature
        ) from error
    return out


def check_absent(absent: str, /) -> None:
    """Raise `ValueError` for an option that is not there: a typing error must not read ABSENT chunks as fill."""
    if absent not in ("fill", "raise"):
        raise ValueError(f"absent={absent!r}; it is 'fill' or 'raise'")


def _read_chunks(plan: Plan, out: NDArray[Any], storage: Storage) -> None:
    """Fetch batch after batch, one ahead of the one that is decoded."""
    runs = list(batches(plan))
    if not runs:
        return
    if len(runs) == 1:
        _place(DecodeBatch(plan, *runs[0], fetch(plan, *runs[0], storage), out))
        return
    pool = read_ahead_pool()
    ahead: Future[list[StoredBytes]] = pool.submit(fetch, plan, *runs[0], storage)
    try:
        for number, run in enumerate(runs):
            batch = DecodeBatch(plan, *run, ahead.result(), out)
            if number + 1 < len(runs):
                ahead = pool.submit(fetch, plan, *runs[number + 1], storage)
            _place(batch)
            del batch
    finally:
        ahead.cancel()


def _place(batch: DecodeBatch) -> None:
    """Decode all chunks of a batch; each thread takes the next ones that nobody has."""
    runs = list(batch.runs())
    n_threads = min(n_decoders(), len(runs))
    if n_threads < 2 or batch.nbytes < _WORTH_A_THREAD:
        for run in runs:
            batch.place(*run)
        return
    left = iter(runs)

    def work() -> None:
        for run in left:
            batch.place(*run)

    tasks = [decode_pool().submit(work) for _ in range(1, n_threads)]
    try:
        work()
        for task in tasks:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        for _ in left:  # after an error: nothing else is begun
            pass


_WORTH_A_THREAD = 1 << 16
