"""Check a store against its sources: whether they have changed, and whether chunks hold the right values."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pandas as pd

from virtualstack.errors import SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.printable import MAX_SHOWN_ITEMS, counted, printable
from virtualstack.progress import Progress
from virtualstack.storage import Storage, check_version
from virtualstack.storage.source import are_replicas, etags_differ
from virtualstack.verify.chunks import STATUSES, SampledChunk, compare_sample
from virtualstack.vstack.checksums import wrong_digests
from virtualstack.vstack.format.history import OpenStore, read_group
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.manifest import StoredManifest
from virtualstack.vstack.format.names import SEGMENTS
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.ledger import Ledger, ledger_of
from virtualstack.vstack.shown import Shown, shown_in

type _Status = Literal["unchanged", "unknown", "changed", "missing", "unreachable"]

SOURCE_STATUSES: tuple[_Status, ...] = "unchanged", "unknown", "changed", "missing", "unreachable"
"""Statuses of a source, from the best to the worst. A source with several versions has that of the worst one."""


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A source that differs from the version that was indexed."""

    url: str
    status: Literal["changed", "missing", "unreachable"]
    reason: str
    recorded: Location
    found: Location | None


@dataclass(frozen=True, slots=True)
class StaleSources:
    """The result of looking up all sources."""

    n_sources: int
    n_touched: int
    n_unknown: int
    problems: tuple[SourceProblem, ...]
    statuses: Mapping[str, _Status]
    segments: Mapping[int, frozenset[Location]]


def stale_sources(shown: Shown, ledger: Ledger, storage: Storage, /) -> StaleSources:
    """Look up all sources that a snapshot shows, in listings of their folders where possible.

    A run has compared the versions of the ledger, and left no older ones in the store.
    """
    by_segment = shown.sources()
    every = dict.fromkeys(location for each in by_segment.values() for location in each).keys()
    n_versions = Counter(location.url for location in every)
    urls = list(n_versions)
    now = dict(zip(urls, storage.look_up(urls), strict=True))
    same = {x.url for x in ledger.where(["placed"]).entries() if _is_now(x, now.get(x.url)) and n_versions[x.url] == 1}
    open_ones = [x for x in every if x.url not in same]
    suspects = {x: problem for x in open_ones if (problem := _problem(x, now[x.url], storage)) is not None}
    still = shown.still_shown(by_segment, suspects.keys()) if suspects else {}
    seen = set[Location]().union(*still.values())
    problems = sorted((problem for x, problem in suspects.items() if x in seen), key=lambda x: x.url)
    n_unknown = sum(_is_unknown(x) for x in every if x not in suspects)
    statuses: dict[str, _Status] = {}
    for x in every:
        if x not in suspects or x in seen:
            status = suspects[x].status if x in suspects else "unknown" if _is_unknown(x) else "unchanged"
            statuses[x.url] = max(statuses.get(x.url, status), status, key=SOURCE_STATUSES.index)
    n_touched = _count_touched(every - suspects.keys(), now)
    return StaleSources(len(every), n_touched, n_unknown, tuple(problems), statuses, still)


def _is_now(entry: Entry, now: Location | StorageError | None) -> bool:
    return isinstance(now, Location) and entry.is_version(now)


def _is_unknown(recorded: Location) -> bool:
    """Return whether the store knows nothing by which a change could be detected."""
    known = {recorded.size, recorded.etag, recorded.last_modified, recorded.unmodified_since, recorded.fingerprint}
    return known == {None}


def _problem(recorded: Location, now: Location | StorageError, storage: Storage) -> SourceProblem | None:
    if isinstance(now, SourceNotFoundError):
        return SourceProblem(recorded.url, "missing", str(now), recorded, None)
    if isinstance(now, StorageError):
        return SourceProblem(recorded.url, "unreachable", str(now), recorded, None)

    def ask() -> Location:
        again = storage.look_up([recorded.url])[0]
        return now if isinstance(again, StorageError) else again

    expected = recorded
    if etags_differ(recorded.etag, now.etag) and are_replicas(recorded, now, ask):
        expected = replace(recorded, etag=None)
    try:
        check_version(expected, now, lambda *span: storage.source(recorded.url).read(*span))
    except SourceChangedError as error:
        return SourceProblem(recorded.url, "changed", str(error), recorded, now)
    except StorageError as error:  # the file can be listed, but not read
        return SourceProblem(recorded.url, "unreachable", str(error), recorded, now)
    return None


def _count_touched(unchanged: Iterable[Location], now: Mapping[str, Location | StorageError]) -> int:
    return sum(
        isinstance(found := now[x.url], Location)
        and None not in (x.last_modified, found.last_modified)
        and x.last_modified != found.last_modified
        for x in unchanged
    )


_COLUMNS = ["url", "status", "reason", "size", "etag", "modified", "size_now", "etag_now", "modified_now"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreVerification:
    """The result of :meth:`Repository.verify`.

    Parameters
    ----------
    url
        URL of the store.
    snapshot
        Number of the snapshot.
    time
        Seconds since 1970-01-01 (UTC) when the check began.
    n_sources
        Number of sources that were looked up: each version of a file that may hold chunks of the snapshot.
    n_touched
        Number of sources with another modification time that have not changed.
    n_unknown
        Number of sources that exist, but whose size, etag and time the store does not have, so that a change cannot be
        detected. Kerchunk references and DMR++ documents do not have them.
    problems
        Sources that differ from the versions that were indexed.
    chunks
        Results for a sample of chunks.
    statuses
        Status of each source by URL: ``"unchanged"``, that of its problem, or ``"unknown"`` if a change cannot be
        detected. Of a source with several versions, the worst.
    """

    url: str
    snapshot: int
    time: float
    n_sources: int
    n_touched: int = 0
    n_unknown: int = 0
    problems: tuple[SourceProblem, ...] = ()
    chunks: tuple[SampledChunk, ...] = ()
    statuses: Mapping[str, _Status] = field(default_factory=dict, hash=False)

    @property
    def is_good(self) -> bool:
        """True if no source has changed, is missing or is unreachable, and no chunk differs."""
        return not self.problems and not any(chunk.status == "different" for chunk in self.chunks)

    @property
    def table(self) -> pd.DataFrame:
        """Table with one row for each source with a problem: its versions then and now."""
        rows = []
        for x in self.problems:
            now = (None, None, None) if x.found is None else (x.found.size, x.found.etag, _time(x.found.last_modified))
            was = (x.recorded.size, x.recorded.etag, _time(x.recorded.last_modified))
            rows.append((x.url, x.status, x.reason, *was, *now))
        return pd.DataFrame(rows, columns=_COLUMNS)

    @property
    def chunk_table(self) -> pd.DataFrame:
        """Table with one row for each chunk of the sample."""
        columns = ["variable", "cell", "url", "status", "reason"]
        return pd.DataFrame([(x.variable, x.cell, x.url, x.status, x.reason) for x in self.chunks], columns=columns)

    def _summary(self) -> list[str]:
        """Return what was found about the sources, about times, and about the chunks of the sample."""
        statuses = Counter(x.status for x in self.problems)
        counts = [f"{n} {status}" for status, n in sorted(statuses.items())]
        if self.n_unknown:
            counts.append(f"{self.n_unknown} may have changed: the store records neither size nor etag nor time")
        told = ", ".join(counts) or "all as they were indexed"
        lines = [f"snapshot {self.snapshot} of '{self.url}': {counted(self.n_sources, 'source')}, {told}"]
        if self.n_touched:
            lines.append(f"{self.n_touched} with another modification time, but otherwise as they were")
        if self.chunks:
            results = [(x, sum(chunk.status == x for chunk in self.chunks)) for x in STATUSES]
            told = ", ".join(f"{n} {status}" for status, n in results if n)
            lines.append(f"chunks compared with their sources: {told}")
        return lines

    def __repr__(self) -> str:
        first, *more = self._summary()
        lines = [first, *(f"  {line}" for line in more)]
        lines += [f"  {x.status}: {x.url}" for x in self.problems[:MAX_SHOWN_ITEMS]]
        n_more = len(self.problems) - MAX_SHOWN_ITEMS
        lines += [f"  ... {n_more} more"] * (n_more > 0)
        odd = [x for x in self.chunks if x.status != "equal"]
        lines += [f"  {x.status}: variable '{x.variable}', cell {x.cell}: {x.reason}" for x in odd[:MAX_SHOWN_ITEMS]]
        return printable("\n".join(lines))


def _time(seconds: float | None) -> pd.Timestamp | None:
    return None if seconds is None else pd.Timestamp(seconds, unit="s", tz="UTC")


def verify(
    store: OpenStore,
    snapshot: Snapshot,
    /,
    *,
    sample: int | float,
    seed: int | None,
    progress: Progress | bool | None = None,
) -> StoreVerification:
    """Look up the sources of a snapshot, and compare a sample of its chunks; see :meth:`Repository.verify`."""
    sample = sample.item() if isinstance(sample, np.number) else sample
    is_number = isinstance(sample, int | float) and not isinstance(sample, bool)
    if not (is_number and sample >= 0) or (isinstance(sample, float) and sample > 1):
        raise ValueError(
            f"sample={sample!r} is neither a number of chunks nor a fraction up to 1.0. Give one such as 100 or 0.01"
        )
    begin = time.time()
    archive = store.archive(snapshot)
    group = read_group(snapshot, archive, bundles=store.bundles)
    storage, own = store.objects.storage.only(store.permission), store.objects.url + SEGMENTS
    stale = stale_sources(shown_in(group, archive), ledger_of(store, snapshot), storage)
    bad = {problem.recorded for problem in stale.problems}
    arrays = {
        f"{path}/{name}".lstrip("/"): array
        for path, node in group.walk()
        for name, array in node.arrays.items()
        if isinstance(array.manifest, StoredManifest)
    }
    chunks: tuple[SampledChunk, ...] = ()
    if sample:
        chunks = compare_sample(
            arrays,
            storage,
            sample=sample,
            seed=seed,
            leaving_out=bad,
            own=own,
            find_changed=lambda sources: wrong_digests(sources, storage),
            progress=progress,
        )
    return StoreVerification(
        url=store.objects.url.rstrip("/"),
        snapshot=snapshot.number,
        time=begin,
        n_sources=stale.n_sources,
        n_touched=stale.n_touched,
        n_unknown=stale.n_unknown,
        problems=stale.problems,
        chunks=chunks,
        statuses=stale.statuses,
    )
