"""Scan many sources: workers, errors, the cache, progress and the result."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from numbers import Integral
from typing import Any

from virtualstack.errors import StorageError, VirtualStackError, check_type, check_word, folding
from virtualstack.formats.base import Reader, ReadOptions, access_of_source, is_alone
from virtualstack.formats.registry import find_reader
from virtualstack.location import outermost, split_url
from virtualstack.manifests import ManifestGroup
from virtualstack.options import OnError
from virtualstack.progress import Progress, Show, progress_shown
from virtualstack.scanning.cache import ScanCache
from virtualstack.scanning.job import Job, Outcome, check_timeout, with_retries
from virtualstack.scanning.one import DEFAULT_RETRIES, reach_all
from virtualstack.scanning.result import ScanResult
from virtualstack.scanning.workers import ExecutorLike, Schedule, find_workers
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.handles import Handle, find_handle, is_one
from virtualstack.storage.listing import find_urls
from virtualstack.storage.threads import forget_frames

_MAX_CHARACTERS = 1000  # longest excerpt of a value in messages


@folding
def scan(
    urls: Iterable[Any],
    /,
    *,
    reader: str | Reader | None = None,
    storage: StorageLike = None,
    executor: ExecutorLike = None,
    on_error: OnError = "raise",
    cache: str | os.PathLike[str] | None = None,
    recheck: bool = True,
    progress: Progress | bool | None = None,
    retries: int | None = None,
    timeout: float | None = None,
    options: ReadOptions | None = None,
) -> ScanResult:
    """Describe many sources: read their metadata and chunk indexes, and no chunk.

    Objects that the reader of a source could not describe are in the ``refusals`` of its group.

    Parameters
    ----------
    urls
        URLs, local paths, patterns such as ``"data/*.nc"``, open files, and all other objects that
        docs/how-to/what-opens.md lists. ``file://`` URLs may be percent-encoded, as :meth:`pathlib.Path.as_uri` writes
        them.
    reader
        Name of a reader (see :func:`list_readers`), or a reader with options. By default it is detected for each
        source.
    storage
        Access to the sources: credentials, endpoint and retries, such as ``{"s3://bucket/": {...}}``, or an obstore or
        fsspec object. Workers get it too, and the groups carry it along, to be used when their
        values are read.
    executor
        Executor that runs the work: ``"threads"`` of this process, ``"processes"`` of this machine, ``"dask"`` (the
        client of this session), a ``distributed.Client``, or any ``concurrent.futures.Executor``. By default, remote
        sources are read in 64 threads, and local sources sequentially; with ``cache``, local ones use threads too. If
        the executor is shut down during the scan, sources that were not submitted fail. Do not call ``scan`` from a
        task of the same executor: the scan waits forever if all workers wait for scans.
    on_error
        ``"raise"`` raises the first error in the order of the URLs. ``"skip"`` leaves the source out and lists its
        error in ``failures``, whatever the error is.
    cache
        Directory or URL that keeps scan results. A later scan reads only sources that are new or have changed, which it
        checks with one request for each file. Workers must be able to reach it, too. The cache has one
        result for each source and each set of ``options``. To fill the cache for :func:`open_virtual_mfdataset`, scan
        with its options: ``ReadOptions(is_tree=False, is_part=True)``.
    recheck
        If true, the size, etag and times of files in the cache are checked, and the inode of local files. If false, no
        request is made for them; use this for archives that do not change.
    progress
        ``True`` for a progress bar in a notebook or on stderr, or a function of the number of finished sources and of
        all sources.
        It is called in this thread.
    retries
        Number of times a request is repeated, with growing pauses, after a temporary failure (the server is busy, an
        answer is cut short). By default it is 5, or ``max_retries`` of ``storage``.
    timeout
        Largest number of seconds for one source, with all its requests. A source that takes longer fails. With
        ``executor="processes"`` its process is ended. A thread runs on until it finishes or the interpreter ends. It
        may delay other threads, because only one thread at a time can be in the HDF5 library.
    options
        `ReadOptions` for the readers: group, dropped variables, inline limit and permissions.

    Returns
    -------
    ScanResult
        A sequence of groups in the order of the URLs. Open them with :meth:`ScanResult.datasets`, and see
        ``failures`` for sources that were skipped.

    Raises
    ------
    ReaderError, StorageError
        A source cannot be read and ``on_error`` is ``"raise"``, or the cache cannot be used.
    RuntimeError
        Worker processes do not start.
    KeyboardInterrupt, SystemExit
        Ctrl-C was pressed, or a reader asked to exit. Waiting work is cancelled at once.
    TypeError, ValueError
        An argument has a wrong type or value, or cannot be pickled for other processes.

    See Also
    --------
    open_virtual_mfdataset : Scan files and join them in one call.
    survey : Compare files before they are joined.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in range(2):
    ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
    ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
    >>> groups = vs.scan(["day0.nc", "day1.nc"], cache="scans")
    >>> [sorted(group.arrays) for group in groups]
    [['rain', 'time'], ['rain', 'time']]
    """
    check_word("on_error", on_error, OnError)
    check_type("retries", retries, Integral | None, "a whole number. Give one from 0")
    check_timeout(timeout)
    check_type("options", options, ReadOptions | None, "a vs.readers.ReadOptions")
    if retries is not None and retries < 0:
        raise ValueError(f"retries={retries} is negative. Give 0 or more")
    if cache == "":
        raise ValueError("cache='' is not a directory. Give one, or None")
    store = Storage.from_option(storage)
    handles, bad = _find_handles(urls, store, is_raising=on_error == "raise")
    listed, store = reach_all(handles, store)
    options = options or ReadOptions()
    if reader is not None:
        reader = find_reader("", store, reader)
    job = Job(
        reader=reader,
        storage=store if retries is None else with_retries(store, listed, int(retries)),
        options=options,
        retries=DEFAULT_RETRIES if retries is None else int(retries),
        cache=None if cache is None else ScanCache.at(cache, store, reader, options, is_checked=recheck),
        timeout=None if timeout is None else float(timeout),
    )
    with progress_shown(progress, "scan") as show:
        outcomes = _collect(job, listed, executor, show, on_error)
    found = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, ManifestGroup)}
    failed = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, Exception)}
    root_of = [split_url(outermost(url))[0] for url in listed]
    alone = {i: is_alone(group, listed[i]) for i, group in found.items()}
    kinds = {(root_of[i], alone[i]): listed[i] for i in found}
    accesses = {
        kind: store.access(url) if kind[1] else access_of_source(reader, url, store, options)
        for kind, url in kinds.items()
    }
    found = {i: group.with_access(accesses[root_of[i], alone[i]]) for i, group in found.items()}
    return ScanResult(
        tuple(found.values()),
        (*bad, *((listed[i], error) for i, error in failed.items())),
        tuple(listed[i] for i in found),
        reader,
        store,
        options,
    )


def _find_handles(
    urls: Iterable[Any], storage: Storage, *, is_raising: bool
) -> tuple[list[Handle], list[tuple[str, Exception]]]:
    """Return what is listed as URLs, with patterns replaced by their matches, and what does not open with its error."""
    if is_one(urls):
        raise TypeError(f"scan() needs a list of URLs, not a single one. Pass [{urls!r:.{_MAX_CHARACTERS}}]")
    listed: list[Handle] = []
    bad: list[tuple[str, Exception]] = []
    given = list(urls)
    for i, url in enumerate(given):
        place = f"item {i} (from 0) of the URLs" if len(given) > 1 else ""
        try:
            if isinstance(url, str | os.PathLike):
                listed += map(Handle, find_urls([_checked(url, place)], storage=storage))
            else:
                listed.append(_handle(url, place))
        except StorageError as error:
            if is_raising:
                raise
            bad.append((repr(url)[:_MAX_CHARACTERS], error))
    return listed, bad


def _handle(url: object, place: str) -> Handle:
    try:
        return find_handle(url)
    except StorageError as error:
        if not place:
            raise
        raise StorageError(f"{place} cannot be opened: {error}") from error


def _checked(url: str | os.PathLike[str], place: str) -> str:
    """Return a URL or path as text."""
    text = os.fspath(url)
    if not isinstance(text, str) or not text:
        raise StorageError(f"{place or 'the source'} is not a URL or path: {url!r:.{_MAX_CHARACTERS}}")
    return text


def _collect(
    job: Job,
    urls: Sequence[str],
    executor: ExecutorLike,
    show: Show | None,
    on_error: OnError,
) -> list[Outcome | None]:
    """Return the outcome of each source.

    With ``on_error="raise"``, the first error in the order of the URLs is raised.
    """
    outcomes: list[Outcome | None] = [None] * len(urls)
    workers = find_workers(executor, job, urls)
    schedule = None if workers is None else Schedule(urls, workers)
    first_failed, n_failed = len(urls), 0
    with closing(_in_turn(job, urls) if schedule is None else schedule.outcomes()) as finished:
        for done, (i, outcome) in enumerate(finished, start=1):
            if not isinstance(outcome, ManifestGroup | Exception):
                raise outcome
            outcomes[i] = outcome
            n_failed += isinstance(outcome, Exception)
            if isinstance(outcome, Exception) and on_error == "raise" and i < first_failed:
                first_failed = i
                if schedule is None:
                    break
                schedule.drop_after(i)  # an earlier source may still fail, and its error is the one to raise
            elif isinstance(outcome, VirtualStackError):
                forget_frames(outcome)
            if show is not None and first_failed == len(urls):
                show(done, len(urls), n_failed)
    if first_failed < len(urls):
        error = outcomes[first_failed]
        if isinstance(error, Exception):
            raise error
    return outcomes


def _in_turn(job: Job, urls: Sequence[str]) -> Generator[tuple[int, Outcome]]:
    for i, url in enumerate(urls):
        yield i, job.try_read(url)
