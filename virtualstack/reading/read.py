"""Read a selection of a virtual array: directly if it is in one chunk, otherwise by a plan."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import CodecError
from virtualstack.errors import ReaderError, Remedy, StorageError, UnsupportedFeatureError, check_word
from virtualstack.manifests import FIRST, INLINE, ChunkAxis, ChunkEncoding, ChunkManifest, ManifestArray
from virtualstack.options import OnAbsent
from virtualstack.reading.decode import DecodeBatch, fill_holes, unpack_into
from virtualstack.reading.fetch import StoredBytes, batches, decode_pool, fetch, n_decoders, read_ahead_pool
from virtualstack.reading.plan import Plan, Steps, find_decoding, make_plan, only_fill, strided, undecodable
from virtualstack.reading.selection import OuterKey, Selection, expand_outer, select, select_points
from virtualstack.storage import Storage, StorageLike


def read_array(
    array: ManifestArray,
    key: OuterKey,
    storage: StorageLike = None,
    /,
    *,
    absent: OnAbsent = "fill",
    steps: Steps = (),
    dtype: np.dtype[Any] | None = None,
) -> NDArray[Any]:
    """Read a selection of a virtual array.

    Every stored chunk of the selection is fetched and decoded once. For uncompressed chunks, only the bytes from the
    first to the last selected element are fetched. About 64 MiB of stored bytes are in memory at a time, in addition to
    the result. The threads that decode chunks make values of ``dtype`` from decoded ones by ``steps``.
    """
    check_absent(absent)
    storage = Storage.from_option(storage).with_access(array.access)
    items = expand_outer(key, array.shape)
    dtype = dtype or array.dtype
    values = _read_cell(array, items, storage, steps, dtype)
    if values is not None:
        return values.reshape([n for n, item in zip(values.shape, items, strict=True) if isinstance(item, slice)])
    selection = select(array.grid, items)
    return _read(array, selection, storage, absent, steps, dtype).reshape(selection.shape)


def read_points(
    array: ManifestArray,
    items: Sequence[slice | NDArray[np.integer[Any]]],
    storage: StorageLike = None,
    /,
    *,
    absent: OnAbsent = "fill",
    steps: Steps = (),
    dtype: np.dtype[Any] | None = None,
) -> NDArray[Any]:
    """Read points of a virtual array; each chunk that holds points is read once. ``steps`` are as in `read_array`."""
    check_absent(absent)
    points = np.broadcast_arrays(*(item for item in items if not isinstance(item, slice)))
    flat = iter([x.reshape(-1) for x in points])
    selection = select_points(array.grid, [item if isinstance(item, slice) else next(flat) for item in items])
    storage = Storage.from_option(storage).with_access(array.access)
    out = _read(array, selection, storage, absent, steps, dtype or array.dtype)
    return out.reshape(points[0].shape + out.shape[1:])


def _read(
    array: ManifestArray,
    selection: Selection,
    storage: Storage,
    absent: OnAbsent,
    steps: Steps,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    try:
        out = np.ndarray(selection.whole_shape, dtype)  # np.empty makes 'S1' of 'S0'
    except MemoryError as error:  # a few bytes of metadata may declare any shape
        raise ReaderError(
            f"variable '{array.name}': values of shape {selection.whole_shape} and dtype {dtype} do not fit in memory",
            Remedy("select less of it"),
            Remedy("leave it out with", drop_variables=...),
            url=array.a_url(),
        ) from error
    if not out.size:
        return out
    try:
        plan = make_plan(array, selection, absent=absent)
        plan = plan._replace(decodings=tuple(decoding.then(steps) for decoding in plan.decodings))
        fill_holes(plan, out, steps)
        _read_chunks(plan, out, storage)
    except UnsupportedFeatureError as error:
        raise UnsupportedFeatureError(
            f"variable '{array.name}': {error}", url=array.a_url(), variable=array.name, feature=error.feature
        ) from error
    return out


def check_absent(absent: str, /) -> None:
    """Raise `ValueError` for an unknown option: a typing error must not read ABSENT chunks as fill."""
    check_word("absent", absent, OnAbsent)


def _read_chunks(plan: Plan, out: NDArray[Any], storage: Storage) -> None:
    """Fetch and decode all batches; while one batch is decoded, the next one is fetched."""
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
    """Decode all chunks of a batch; each thread takes the next run that no other thread has taken."""
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

    # steps may warn of overflows, unless the user has told numpy not to
    tasks = [decode_pool().submit(copy_context().run, work) for _ in range(1, n_threads)]
    try:
        work()
        for task in tasks:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        for _ in left:  # after an error: nothing else is started
            pass


_MIN_THREAD_BYTES = 1 << 16
"""Stored bytes of a batch from which on several threads decode it."""


_MAX_ALONE_BYTES = 1 << 20
"""Maximum bytes of uncompressed values that are read without a plan; of more, a plan may need only a few."""


def _read_cell(
    array: ManifestArray, items: list[Any], storage: Storage, steps: Steps, dtype: np.dtype[Any]
) -> NDArray[Any] | None:
    """Read a selection of integers and slices that is in one stored chunk."""
    ranges = list(_ranges(array.shape, items))
    if len(ranges) != len(items):
        return None
    cells, first = [], []
    for axis, picked in zip(array.grid.axes, ranges, strict=True):
        found = _find_cell(axis, picked)
        if found is None:
            return None
        cells.append(found[0])
        first.append(picked[0] - found[1])
    manifest, at = array.manifest, tuple(cells)
    if not isinstance(manifest, ChunkManifest):
        manifest, at = manifest.read(tuple([slice(i, i + 1) for i in cells])), (0,) * len(cells)
    code, row, offset, length = manifest.entries[at].item()
    if code < INLINE or not row < len(manifest.encodings):
        return None
    encoding = manifest.encodings[row]
    base = int(manifest.starts[at]) if manifest.starts is not None else 0
    base += sum(map(operator.mul, first, encoding.strides))
    shape = tuple(map(len, ranges))
    strides = [picked.step * step for picked, step in zip(ranges, encoding.strides, strict=True)]
    stored, view = (cells, code, offset, length), (base, shape, strides)
    return _values(array, manifest, encoding, stored, view, storage, steps, dtype)


def _ranges(shape: tuple[int, ...], items: list[Any]) -> Iterator[range]:
    """Yield the elements that keys pick, up to the first key that is not an integer or a non-empty slice."""
    for n, item in zip(shape, items, strict=True):
        if isinstance(item, slice):
            picked = range(n)[item]
            if not picked:
                return
            # the step of a single element may be longer than can be counted
            yield picked if len(picked) > 1 else range(picked[0], picked[0] + 1)
        elif isinstance(item, int):
            yield range(item, item + 1)
        else:
            return


def _find_cell(axis: ChunkAxis, picked: range) -> tuple[int, int] | None:
    """Return the only cell with all elements, and its first element; ``None`` if the elements are in several cells."""
    low, high = (picked[0], picked[-1]) if picked.step > 0 else (picked[-1], picked[0])
    met = axis.cover(low, high + 1)
    return (met.start, axis.span(met.start).start) if len(met) == 1 else None


def _values(
    array: ManifestArray,
    manifest: ChunkManifest,
    encoding: ChunkEncoding,
    stored: tuple[list[int], int, int, int],
    view: tuple[int, tuple[int, ...], list[int]],
    storage: Storage,
    steps: Steps,
    dtype: np.dtype[Any],
) -> NDArray[Any] | None:
    (cells, code, offset, length), (base, shape, strides) = stored, view
    extents = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    low, high = base + sum(x for x in extents if x < 0), base + sum(x for x in extents if x > 0)
    size = encoding.size
    if low < 0 or high >= size:
        return None
    try:
        decoding = find_decoding(encoding.dtype, encoding.shape, encoding.codecs, only_fill(manifest.fills)).then(steps)
        if decoding.is_raw:
            itemsize = decoding.itemsize
            if length != size * itemsize:
                return None
            if code == INLINE or manifest.locations[code - FIRST].checksums is None:
                offset, length, base = offset + low * itemsize, (high - low + 1) * itemsize, base - low
            if length > _MAX_ALONE_BYTES:
                return None
        if code == INLINE:
            raw: Any = memoryview(manifest.inline)[offset : offset + length]
        else:
            raw = storage.read(offset, length, expected=manifest.locations[code - FIRST])
        out = np.ndarray(shape, dtype)
        unpack_into(out, strided(decoding.numbers(raw), base, shape, strides), decoding.elementwise)
        return out
    except (UnsupportedFeatureError, MemoryError):
        return None
    except CodecError as error:
        where = manifest.locations, code, offset, length
        raise undecodable(array.name, tuple(cells), where, str(error), error.remedy) from error
    except StorageError as error:
        raise error.of_chunk(array.name, tuple(cells), offset=offset, length=length) from error
