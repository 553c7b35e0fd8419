"""Fetch the stored bytes of a plan: one list of byte ranges for each source, from several sources at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import StorageError
from virtualstack.manifests import FIRST, INLINE
from virtualstack.manifests.cells import begins_run
from virtualstack.reading.plan import Plan
from virtualstack.storage import Bytes, DirectSource, Source, Storage
from virtualstack.storage.threads import thread_pool
from virtualstack.system import Threads, n_cpus

_IO_THREADS = 64


def n_decoders() -> int:
    """Return the number of processors that this process may use."""
    return n_cpus()


def decode_pool() -> Threads:
    """Return the threads that decode; tasks in them must not wait for each other."""
    return thread_pool("decode", n_decoders())


def io_pool() -> Threads:
    """Return the threads that wait for sources."""
    return thread_pool("io", _IO_THREADS)


def read_ahead_pool() -> Threads:
    """Return the threads that fetch the next batch of a read; they wait for the threads of `io_pool`."""
    return thread_pool("read-ahead", 8)


BATCH_BYTES = 32 << 20
"""Stored bytes that are fetched together; twice as many are in memory at once."""

_MAX_BATCH_CHUNKS = 4096
"""Maximum number of chunks that are fetched together."""

_MAX_BATCH_FILES = 48
"""Maximum number of local files that are read together: they stay open until they have been read."""

_FILES_PER_TASK = 6
"""Maximum number of local files that one task opens: one task for each file would cost more than opening the file."""


type StoredBytes = Bytes | DirectSource
"""Result of `fetch` for a chunk: its bytes, or a source from which the decoder of the chunk reads the bytes."""


def batches(plan: Plan, /) -> Iterator[tuple[int, int]]:
    """Divide the chunks of a plan into runs of at most :data:`BATCH_BYTES` bytes; a larger chunk is a separate run."""
    if not len(plan.chunks):
        return
    total = np.cumsum(plan.chunks.length)
    location = plan.chunks.location
    is_new = begins_run(location.size, location)
    is_new[is_new] = [_is_file(plan, code) for code in location[is_new].tolist()]
    files = np.cumsum(is_new)
    begin = 0
    while begin < len(plan.chunks):
        done = int(total[begin - 1]) if begin else 0
        end = int(np.searchsorted(total, done + BATCH_BYTES, "right"))
        end = min(end, int(np.searchsorted(files, files[begin] + _MAX_BATCH_FILES)), begin + _MAX_BATCH_CHUNKS)
        end = max(end, begin + 1)
        yield begin, end
        begin = end


class _Run(NamedTuple):
    """Consecutive chunks of one location."""

    begin: int
    end: int
    code: int


def fetch(plan: Plan, begin: int, end: int, storage: Storage, /) -> list[StoredBytes]:
    """Read the stored bytes of chunks ``begin`` to ``end``, each with exactly the length in the plan.

    For a `DirectSource`, the result is the source itself, and nothing is read yet.
    """
    codes = plan.chunks.location[begin:end]
    lines = begin + np.flatnonzero(begins_run(codes.size, codes))
    runs = [_Run(a, b, int(plan.chunks.location[a])) for a, b in pairwise([*lines.tolist(), end])]
    if len(runs) == 1:
        return _fetch_runs(plan, runs, storage)
    pool = io_pool()
    tasks = list(_tasks(plan, runs))
    waiting: list[Future[list[StoredBytes]]] = [pool.submit(_fetch_runs, plan, task, storage) for task in tasks]
    try:
        return [data for answer in waiting for data in answer.result()]
    finally:
        for answer in waiting:
            answer.cancel()


def _tasks(plan: Plan, runs: list[_Run]) -> Iterator[list[_Run]]:
    """Yield tasks in order: a few local files make one task; any other source makes a separate task."""
    task: list[_Run] = []
    for run in runs:
        is_local = run.code == INLINE or _is_file(plan, run.code)
        if task and (not is_local or len(task) == _FILES_PER_TASK):
            yield task
            task = []
        task.append(run)
        if not is_local:
            yield task
            task = []
    if task:
        yield task


def _is_file(plan: Plan, code: int) -> bool:
    return code >= FIRST and plan.locations[code - FIRST].url.startswith("file://")


def _fetch_runs(plan: Plan, runs: Sequence[_Run], storage: Storage) -> list[StoredBytes]:
    return [data for run in runs for data in _fetch_run(plan, run, storage)]


def _fetch_run(plan: Plan, run: _Run, storage: Storage) -> list[StoredBytes]:
    offset, length = plan.chunks.offset[run.begin : run.end], plan.chunks.length[run.begin : run.end]
    if run.code == INLINE:
        heap = memoryview(plan.inline)
        return [heap[at : at + n] for at, n in zip(offset.tolist(), length.tolist(), strict=True)]
    location = plan.locations[run.code - FIRST]
    culprit = run.begin
    try:
        source = storage.source(location.url, expected=location)
        beyond = offset > source.size - length
        if beyond.any():
            culprit = run.begin + int(beyond.argmax())
        elif isinstance(source, DirectSource):
            return [source] * offset.size
        return _ranges(source, offset, length)
    except StorageError as error:
        raise named(plan, culprit, error, n_others=run.end - run.begin - 1) from error


def _ranges(source: Source, offset: NDArray[np.int64], length: NDArray[np.int64]) -> list[StoredBytes]:
    if offset.size == 1:
        return [source.read(int(offset[0]), int(length[0]))]
    return list(source.read_ranges(np.stack([offset, length], axis=1)))


def named(plan: Plan, chunk: int, error: StorageError, /, *, n_others: int = 0) -> StorageError:
    """Return the same error with the variable, the cell and its byte range in the message."""
    offset, length = int(plan.chunks.offset[chunk]), int(plan.chunks.length[chunk])
    return error.of_chunk(plan.name, plan.cell(chunk), offset=offset, length=length, n_others=n_others)
