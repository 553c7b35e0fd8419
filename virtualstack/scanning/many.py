"""Scan many sources: workers, errors, the cache, progress and the result."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from threading import TIMEOUT_MAX
from typing import Any, overload

import pandas as pd
import xarray as xr

from virtualstack.dataset.opening import (
    OnError,
    Opening,
    Unsupported,
    account_for,
    as_one,
    open_each,
    open_whole,
)
from virtualstack.errors import StorageError, VirtualStackError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.formats.registry import find_reader
from virtualstack.location import split_url
from virtualstack.manifests import ManifestGroup
from virtualstack.scanning.cache import ScanCache
from virtualstack.scanning.job import DEFAULT_RETRIES, Job, Outcome, with_retries
from virtualstack.scanning.workers import ExecutorLike, Schedule, find_workers
from virtualstack.storage import Storage, StorageLike, remember
from virtualstack.storage.listing import found_url
from virtualstack.storage.threads import forget_frames
from virtualstack.warning import warn

__all__ = ["Progress", "ScanResult", "scan", "show_progress"]

type Progress = Callable[[int, int], Any]
"""Called with the number of sources that are done, and of all."""

_BAR_CHARACTERS = 30
_REDRAW_SECONDS = 0.1  # seconds between two pictures


def show_progress(label: str = "scan", /) -> Progress:
    """Give what draws a bar on stderr, in terminals and notebooks: done, time that went by, and time that is left."""
    began = time.monotonic()
    drawn = 0.0

    def show(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if done < total and now - drawn < _REDRAW_SECONDS:
            return
        drawn = now
        left = (now - began) / max(done, 1) * (total - done)
        bar = f"{'#' * (_BAR_CHARACTERS * done // max(total, 1)):.<{_BAR_CHARACTERS}}"
        text = f"\r{label} [{bar}] {done}/{total}, {_clock(now - began)}"
        text += f", {_clock(left)} left" if done < total else " " * 14 + "\n"
        sys.stderr.write(text)
        sys.stderr.flush()

    return show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


@dataclass(frozen=True, eq=False)
class ScanResult(Sequence[ManifestGroup]):
    """Groups in the order of the URLs, and what failed.

    Parameters
    ----------
    groups
        One for each source that could be described.
    errors
        Pairs of URL and error for those that could not.
    urls
        One for each group: the URL that was given, made absolute.
    reader, storage, options
        What the sources were described with.
    """

    groups: tuple[ManifestGroup, ...]
    errors: tuple[tuple[str, Exception], ...] = ()
    urls: tuple[str, ...] = ()
    reader: Reader | None = None
    storage: Storage = field(default_factory=Storage.from_option)
    options: ReadOptions = field(default_factory=ReadOptions)

    @overload
    def __getitem__(self, index: int, /) -> ManifestGroup: ...
    @overload
    def __getitem__(self, index: slice, /) -> ScanResult: ...
    def __getitem__(self, index: int | slice, /) -> ManifestGroup | ScanResult:
        """Give one group, or the result with some of them and the same errors."""
        if isinstance(index, slice):
            return replace(self, groups=self.groups[index], urls=self.urls[index])
        return self.groups[index]

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[ManifestGroup]:
        return iter(self.groups)

    def datasets(
        self,
        *,
        loadable_variables: str | Iterable[str] | None = None,
        decode_times: bool | None = None,
        unpack: bool = False,
        unsupported: Unsupported = "inline",
        on_error: OnError = "raise",
    ) -> list[xr.Dataset]:
        """Open the groups as virtual datasets, which :func:`virtualstack.combine_datasets` joins.

        Values of loadable variables are read, and nothing else. Each dataset names its source in
        ``dataset.encoding["source"]``.

        Parameters
        ----------
        loadable_variables, decode_times, unpack
            See :func:`virtualstack.open_virtual_dataset`. Which group is opened, what is dropped and how many bytes of
            a variable may be inlined was said to the scan, by ``options=``.
        unsupported
            What to do with variables that the reader refused: raise, or leave them out with a warning (``"skip"``).
        on_error
            Whether the first group that cannot be opened raises, or is left out with a warning that
            names it (``"skip"``).

        Returns
        -------
        list of xarray.Dataset
            One for each group, in their order; or a single one of all, where the scan asked for the parts of one index
            (``ReadOptions(is_part=True)``) and the reader puts them together.

        Raises
        ------
        ReaderError, StorageError
            A variable was refused, or values cannot be read or decoded; or with ``on_error="skip"``, in all of them.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> found = vs.scan(["day0.nc", "day1.nc"])
        >>> vs.combine_datasets(found.datasets()).sizes["time"]
        2
        """
        opening = Opening(
            options=self.options,
            storage=self.storage,
            unsupported=unsupported,
            decode_times=decode_times,
            unpack=unpack,
        )

        def open_node(root: ManifestGroup) -> xr.Dataset:
            node = opening.node(root)
            account_for(node, unsupported, with_children=False)
            return opening.dataset(node, loadable_variables=loadable_variables)

        outcomes = open_each(self, self.urls, lambda root: open_whole(root, open_node), on_error=on_error)
        opened = [x for x in outcomes if not isinstance(x, Exception)]
        for url, error in zip(self.urls, outcomes, strict=True):
            if isinstance(error, Exception):
                if not opened:
                    raise error
                warn(f"left out '{url}': {error}")
        return as_one(opened, open_node, opening, self.reader)[0]

    @property
    def failures(self) -> pd.DataFrame:
        """What failed: columns ``url``, ``error`` (its class) and ``message``."""
        rows = [(url, type(error).__name__, str(error)) for url, error in self.errors]
        return pd.DataFrame(rows, columns=["url", "error", "message"])

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"ScanResult({len(self.groups)} groups{failed})"


_MAX_CHARACTERS = 1000  # letters of what is no URL


def scan(
    urls: Iterable[str | os.PathLike[str]],
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
    """Describe many sources; what a source's reader could not take over is in its ``refusals``.

    Reads metadata and chunk indexes, no chunk.

    Parameters
    ----------
    urls
        URLs or local paths; ``file://`` URLs may be percent-encoded, as :meth:`pathlib.Path.as_uri` writes them.
    reader
        Name of a reader or a reader with options; found out for each source by default.
    storage
        See :func:`open_virtual_dataset`; workers get it too.
    executor
        Who does the work: ``"threads"`` of this process, ``"processes"`` of this machine, ``"dask"`` (the client of
        this session), a ``distributed.Client``, or any ``concurrent.futures.Executor``. By default, remote sources are
        read in 64 threads, as that is mostly waiting, and local ones one after the other. What an executor that comes
        to its end was not given yet has failed. A scan within a task of an executor must not use that one: where all
        its workers wait for scans, it waits for ever.
    on_error
        ``"raise"`` the first error, in the order of the URLs; or ``"skip"`` the source and keep the error in
        ``failures``, whatever went wrong.
    cache
        Directory or URL of one, where what is found is kept: a later call reads what is new or has changed, which it
        finds out by one request a source. Workers must reach it, too.
    recheck
        Whether to ask sources that are in the cache for their size, etag and times, local ones for their inode too.
        Without, no request is made for them: for archives that do not change.
    progress
        ``True`` for a bar on stderr, or what is called with the number done and the number of all, in this thread.
    retries
        How often a request is repeated, after pauses that grow, where it failed for a reason that may pass (the server
        is busy, an answer is cut short). By default 5 times, or as ``max_retries`` in ``storage=`` says.
    timeout
        Seconds that one source may take, all requests included; a source that takes longer has failed. With
        ``executor="processes"`` its process is ended; a thread goes on until it comes to its end or the interpreter
        does, and may hold up other threads, as no more than one at a time is in the HDF5 library.
    options
        What the readers are told.

    Returns
    -------
    ScanResult
        A sequence of groups in the order of the URLs.

    Raises
    ------
    ReaderError, StorageError
        A source cannot be read, and ``on_error`` is ``"raise"``.
    RuntimeError
        Worker processes do not start.
    KeyboardInterrupt, SystemExit
        Ctrl-C, and readers that ask to end. What waits is cancelled at once.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}; it is 'raise' or 'skip'")
    _check_kinds(reader, retries, timeout, options)
    if retries is not None and retries < 0:
        raise ValueError(f"retries={retries} is negative")
    if timeout is not None and not 0 < timeout <= TIMEOUT_MAX:
        raise ValueError(f"timeout={timeout} is no time to wait, in seconds")
    if cache == "":
        raise ValueError("cache='' is no directory; give one, or None")
    listed, bad = _absolute(urls, is_raising=on_error == "raise")
    store = Storage.from_option(storage)
    options = options or ReadOptions()
    if isinstance(reader, str):
        reader = find_reader("", store, reader)
    job = Job(
        reader=reader,
        storage=store if retries is None else with_retries(store, listed, int(retries)),
        options=options,
        retries=DEFAULT_RETRIES if retries is None else int(retries),
        cache=None if cache is None else ScanCache.at(cache, store, reader, options, is_checked=recheck),
        timeout=None if timeout is None else float(timeout),
    )
    outcomes = _collect(job, listed, executor, show_progress() if progress is True else progress or None, on_error)
    found = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, ManifestGroup)}
    failed = {i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, Exception)}
    if storage is not None:
        for url in {split_url(listed[i])[0]: listed[i] for i in found}.values():
            remember(storage, url=url)
    return ScanResult(
        tuple(found.values()),
        (*bad, *((listed[i], error) for i, error in failed.items())),
        tuple(listed[i] for i in found),
        reader,
        store,
        options,
    )


def _check_kinds(reader: object, retries: object, timeout: object, options: object) -> None:
    """Refuse at once what every source would fail by."""
    if reader is not None and not isinstance(reader, str) and not callable(getattr(reader, "read", None)):
        raise TypeError(
            f"reader={reader!r:.{_MAX_CHARACTERS}} is neither the name of a reader, nor has it a method read()"
        )
    if retries is not None and not isinstance(retries, Integral):
        raise TypeError(f"retries={retries!r:.{_MAX_CHARACTERS}} is no whole number")
    if timeout is not None and not isinstance(timeout, Real):
        raise TypeError(f"timeout={timeout!r:.{_MAX_CHARACTERS}} is no number of seconds")
    if options is not None and not isinstance(options, ReadOptions):
        raise TypeError(f"options={options!r:.{_MAX_CHARACTERS}} are no ReadOptions")


def _absolute(
    urls: Iterable[str | os.PathLike[str]], *, is_raising: bool
) -> tuple[list[str], list[tuple[str, Exception]]]:
    """Give absolute URLs, and the names that cannot be one."""
    if isinstance(urls, str | bytes | os.PathLike):
        raise TypeError(f"scan() takes a list of URLs, not one: [{os.fspath(urls)!r}]")
    listed: list[str] = []
    bad: list[tuple[str, Exception]] = []
    for i, url in enumerate(urls):
        try:
            listed.append(found_url(_checked(url, i)))
        except StorageError as error:
            if is_raising:
                raise
            bad.append((repr(url)[:_MAX_CHARACTERS], error))
    return listed, bad


def _checked(url: object, position: int) -> str:
    """Give a URL or path as text; bytes are none, and an empty path is the working directory."""
    text = os.fspath(url) if isinstance(url, os.PathLike) else url
    if not isinstance(text, str) or not text:
        raise StorageError(f"number {position} (from 0) of the URLs is no URL or path: {url!r:.{_MAX_CHARACTERS}}")
    return text


def _collect(
    job: Job,
    urls: Sequence[str],
    executor: ExecutorLike,
    show: Progress | None,
    on_error: OnError,
) -> list[Outcome | None]:
    """Give what became of each source; raise the first error, if that is asked for."""
    outcomes: list[Outcome | None] = [None] * len(urls)
    workers = find_workers(executor, job, urls)
    schedule = None if workers is None else Schedule(urls, workers)
    first_failed = len(urls)
    with closing(_in_turn(job, urls) if schedule is None else schedule.outcomes()) as finished:
        for done, (i, outcome) in enumerate(finished, start=1):
            if not isinstance(outcome, ManifestGroup | Exception):
                raise outcome
            outcomes[i] = outcome
            if isinstance(outcome, Exception) and on_error == "raise" and i < first_failed:
                first_failed = i
                if schedule is None:
                    break
                schedule.drop_after(i)  # an earlier one may fail still, and that is the one to raise
            elif isinstance(outcome, VirtualStackError):
                forget_frames(outcome)
            if show is not None and first_failed == len(urls):
                show(done, len(urls))
    if first_failed < len(urls):
        error = outcomes[first_failed]
        if isinstance(error, Exception):
            raise error
    return outcomes


def _in_turn(job: Job, urls: Sequence[str]) -> Generator[tuple[int, Outcome]]:
    for i, url in enumerate(urls):
        yield i, job.try_read(url)
