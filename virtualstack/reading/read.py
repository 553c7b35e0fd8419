"""Read a selection of a virtual array, or any array as one with equal chunks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import UnsupportedFeatureError
from virtualstack.manifests import ABSENT, EMPTY, ChunkGrid, ManifestArray
from virtualstack.reading.decode import DecodeBatch, fill_holes, read_cell
from virtualstack.reading.fetch import StoredBytes, batches, decode_pool, fetch, n_decoders, read_ahead_pool
from virtualstack.reading.plan import OnAbsent, Plan, make_plan
from virtualstack.reading.selection import OuterKey, Selection, expand, select, select_points
from virtualstack.storage import Storage, StorageLike

__all__ = ["UniformArray", "absent_cells", "check_absent", "read_array", "read_points"]


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
        How sources are reached; see :meth:`~virtualstack.storage.Storage.from_option`.
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
    storage = Storage.from_option(storage)
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
    out = _read(array, selection, Storage.from_option(storage), absent)
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
    if n_threads < 2 or batch.nbytes < _MIN_THREAD_BYTES:
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


_MIN_THREAD_BYTES = 1 << 16
"""Stored bytes of a batch from which on threads decode it."""


MAX_CHUNK_BYTES = 64 << 20
"""Bytes of a decoded chunk, more or less; larger ones are split."""


def absent_cells(array: ManifestArray, /, *, absent: OnAbsent) -> NDArray[np.bool_]:
    """Tell which cells read as the array's own fill value without being stored; shape of the grid."""
    manifest = array.in_memory()
    code, row = manifest.entries["location"], manifest.entries["encoding"]
    is_hole = code == EMPTY if absent == "raise" else (code == EMPTY) | (code == ABSENT)
    return np.asarray(is_hole & np.array([fill == manifest.fill for fill in manifest.fills])[np.where(is_hole, row, 0)])


@dataclass(frozen=True, slots=True, eq=False)
class UniformArray:
    """An array over a regular grid.

    Parameters
    ----------
    array
        Any virtual array.
    grid
        Regular, of the same shape in elements.
    chunks
        Shape of all chunks in elements.
    """

    array: ManifestArray
    grid: ChunkGrid
    chunks: tuple[int, ...]

    @classmethod
    def from_array(cls, array: ManifestArray, /) -> UniformArray:
        """Choose the chunks: cells where they are equal, else the length that most elements have."""
        chunks = [axis.usual_length() for axis in array.grid.axes]
        for i, n in enumerate(chunks):
            nbytes = math.prod(chunks) * max(array.dtype.itemsize, 1)
            if nbytes > MAX_CHUNK_BYTES:
                chunks[i] = -(-n // min(-(-nbytes // MAX_CHUNK_BYTES), n))
        return cls(array, ChunkGrid.regular(array.shape, chunks), tuple(chunks))

    def present(self, *, absent: OnAbsent) -> NDArray[np.bool_]:
        """Tell which chunks show more than the array's own fill value; shape of the grid."""
        found = (~absent_cells(self.array, absent=absent)).astype(np.int64)
        for i, (axis, cells) in enumerate(zip(self.grid.axes, self.array.grid.axes, strict=True)):
            lines = axis.lines()
            low = cells.find(lines[:-1]) if axis.n_cells else np.zeros(0, np.int64)
            high = cells.find(lines[1:] - 1) + 1 if axis.n_cells else low
            total = np.concatenate([np.zeros_like(found.take([0], i)), found.cumsum(i)], i) if axis.n_cells else found
            found = ((total.take(high, i) - total.take(low, i)) > 0).astype(np.int64)
        return found.astype(np.bool_)

    def read(self, cell: Sequence[int], storage: StorageLike = None, /, *, absent: OnAbsent = "fill") -> NDArray[Any]:
        """Read one chunk, whole: what reaches past the array is filled up with its fill value.

        Raises
        ------
        StorageError
            As :func:`~virtualstack.reading.read_array`.
        """
        return self._filled_up(read_array(self.array, self._key(cell), storage, absent=absent))

    def read_each(self, cells: Iterable[Sequence[int]], storage: StorageLike = None, /) -> Iterator[NDArray[Any]]:
        """Read one chunk after the other, as :meth:`read`; what several in a row are cut from is read once.

        In memory is what the cells of the array hold that a chunk meets.
        """
        there: tuple[slice, ...] | None = None
        values: NDArray[Any] | None = None
        for cell in cells:
            key = self._key(cell)
            axes = self.array.grid.axes
            met = [axis.cover(side.start, side.stop) for axis, side in zip(axes, key, strict=True)]
            wanted = tuple(axis.span(cells.start, cells.stop) for axis, cells in zip(axes, met, strict=True))
            if values is None or wanted != there:
                values = None  # before others take memory
                there, values = wanted, read_array(self.array, wanted, storage)
            own: Any = (slice(a.start - b.start, a.stop - b.start) for a, b in zip(key, wanted, strict=True))
            yield self._filled_up(values[(*own, ...)])

    def _key(self, cell: Sequence[int]) -> tuple[slice, ...]:
        return tuple(axis.span(i) for i, axis in zip(cell, self.grid.axes, strict=True))

    def _filled_up(self, values: NDArray[Any]) -> NDArray[Any]:
        if values.shape == self.chunks:
            return values
        whole = np.empty(self.chunks, self.array.dtype)
        whole[...] = self.array.manifest.read(tuple(slice(0, 0) for _ in values.shape)).fill.value
        whole[tuple(slice(0, n) for n in values.shape)] = values
        return whole
