"""Bring a store up to date with the files of its recipe: list, compare with the ledger, open, place, check, report."""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol

import numpy as np
import pandas as pd
import xarray as xr

from virtualstack.combine.precedence import is_changed
from virtualstack.dataset import virtual_array
from virtualstack.errors import (
    CombineError,
    ConflictError,
    MissingDependencyError,
    SourceNotFoundError,
    WriterError,
)
from virtualstack.location import Location
from virtualstack.manifests.manifest import Overlay
from virtualstack.printable import MAX_SHOWN_ITEMS, counted, printable
from virtualstack.storage import ObjectStore
from virtualstack.storage.dry_run import active_dry_run
from virtualstack.storage.listing import list_files
from virtualstack.storage.threads import concurrently
from virtualstack.verify.chunks import SampledChunk, compare_sample
from virtualstack.vstack import recipe as recipes
from virtualstack.vstack.expire import expire
from virtualstack.vstack.files import (
    Made,
    Old,
    Opened,
    Placing,
    Sync,
    apart,
    fit_together,
    may_pass,
    open_files,
    reason_of,
    waits,
)
from virtualstack.vstack.format.ledger import Entry, State
from virtualstack.vstack.format.names import INCOMING, SEGMENTS
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.ledger import Ledger, grouped, ledger_of
from virtualstack.vstack.recipe import Recipe
from virtualstack.vstack.refresh import masks
from virtualstack.vstack.save import Stored, placed
from virtualstack.vstack.segments import N_FILES, make_segments, ready_segments, remove_segments
from virtualstack.vstack.shown import Use, cells_of_sources, shown_in
from virtualstack.vstack.write.commit import GRACE_SECONDS


class _AtSnapshot(Protocol):
    @property
    def snapshot(self) -> Snapshot: ...
    def open_virtual_dataset(self) -> xr.Dataset: ...


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Synced[R: _AtSnapshot]:
    """What :meth:`Repository.sync` and :meth:`Repository.build` did.

    Parameters
    ----------
    repository
        The repository at the snapshot after the run.
    placed
        URLs of new files that were placed.
    changed
        URLs of files of the store that have changed, and were placed again or masked.
    quarantined
        Files that do not fit, with the reason.
    pending
        URLs of files that may still be written.
    vanished
        URLs of files that the store shows, and that are not listed any more; their cells stay.
    failed
        Files that could not be reached now, with the reason; the next run tries them again.
    chunks
        Results for a sample of the new chunks.
    expired
        Numbers of snapshots that were deleted, as the recipe says by ``retention``.
    notes
        What a new recipe does not change by itself, and what does it.
    """

    repository: R
    placed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    quarantined: tuple[tuple[str, str], ...] = ()
    pending: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    chunks: tuple[SampledChunk, ...] = ()
    expired: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit status of ``virtualstack sync``.

        1: a file failed, or a chunk differs. 3: a file was quarantined. 4: a file of the store has changed or vanished.
        0: none of these.
        """
        if self.failed or any(x.status == "different" for x in self.chunks):
            return 1
        return 3 if self.quarantined else 4 if self.changed or self.vanished else 0

    @property
    def table(self) -> pd.DataFrame:
        """Table with one row for each file that is new, changed, pending or vanished: url, status and reason."""
        rows = [(url, name, "") for name in ("placed", "changed", "pending", "vanished") for url in getattr(self, name)]
        rows += [(url, name, why) for name in ("quarantined", "failed") for url, why in getattr(self, name)]
        return pd.DataFrame(rows, columns=["url", "status", "reason"])

    def __repr__(self) -> str:
        names = ("placed", "changed", "quarantined", "pending", "vanished", "failed")
        told = ", ".join(f"{len(getattr(self, x)):,} {x}" for x in names if getattr(self, x))
        lines = [f"snapshot {self.repository.snapshot.number}: {told or 'nothing new'}"]
        if self.chunks:
            found = Counter(x.status for x in self.chunks)
            lines.append(f"  chunks compared with their files: {', '.join(f'{n} {x}' for x, n in found.items())}")
        if self.expired:
            lines.append(f"  {counted(len(self.expired), 'old snapshot')} deleted")
        odd = [(x, *y) for x in ("quarantined", "failed") for y in getattr(self, x)]
        odd += [(x, url, "") for x in ("changed", "vanished") for url in getattr(self, x)]
        odd += [
            ("different", x.url, f"variable '{x.variable}': {x.reason}") for x in self.chunks if x.status == "different"
        ]
        return printable("\n".join([*lines, *(f"  {line}" for line in [*self.notes, *grouped(odd)])]))


def sync[R: _AtSnapshot](store: Stored, recipe: Recipe, how: Sync, open_at: Callable[[Snapshot], R], /) -> Synced[R]:
    """Bring a store up to date, or build it if it is empty; ``open_at`` opens the repository at a snapshot."""
    recipe, gathered, is_new = recipes.kept(recipe), _Gathered(), store.snapshot.number < 0

    def place(store: Stored) -> Synced[R]:
        nonlocal gathered
        if is_new and store.snapshot.number >= 0 and store.snapshot.recipe != recipe.text:
            raise WriterError(
                f"another writer has made '{store.url}' by another recipe or without one, and nothing was written. "
                "Build into another folder",
                feature="existing target",
            )
        try:
            return _synced(store, recipe, how, open_at, gathered)
        except SourceNotFoundError as error:
            if f"/{INCOMING}/" not in (error.url or ""):
                raise
            gathered = _Gathered()
            raise ConflictError(f"another run has placed the segment '{error.url}', and deleted it") from error

    done = placed(store, how.allow, place)
    remove_segments(store.opened.objects, gathered.segments)
    return done


def _synced[R: _AtSnapshot](
    store: Stored, recipe: Recipe, how: Sync, open_at: Callable[[Snapshot], R], gathered: _Gathered
) -> Synced[R]:
    begin = time.time()
    todo = _compared(store, recipe, how, begin)
    gathered.add(store, todo, recipe, how)
    parts, errors = gathered.of(todo)
    files = {url: todo.found[url] for url in todo.changed if url not in errors or not may_pass(errors[url], url)}
    replaced = dict[str, Entry]()

    def is_gone(source: Location) -> bool:
        if source.url in todo.gone:
            replaced[source.url] = todo.gone[source.url]._replace(reason="other files have labels of it")
        return source.url in todo.gone or _is_old(source, files)

    placing = Placing(store, recipe, how, is_gone)
    if parts and not placing.is_new:
        recipes.check_dimensions(recipe, store.group)
    if any(len(part.files) > 1 for part in parts):
        parts = apart(parts, placing.labels, recipe.dim, () if placing.is_new else recipes.dimensions_of(store.group))
    kept, made, misfits = fit_together(parts, placing)
    if made is not None and placing.is_new:
        recipes.check_dimensions(recipe, made[0])
    errors |= misfits
    failed = {url: error for url, error in errors.items() if may_pass(error, url)}
    bad = {url: reason_of(error) for url, error in errors.items() if url not in failed}
    if reopened := bad.keys() & todo.reopened:
        raise _do_not_fit({url: bad[url] for url in bad if url in reopened})
    waiting = {url for url in bad if url not in todo.changed and waits(errors[url])}
    bad = {url: why for url, why in bad.items() if url not in todo.resting}  # as before
    if bad and (recipe.misfit == "raise" or (placing.is_new and not kept)):
        raise _do_not_fit(bad)
    if placing.is_new and not kept:
        raise next(iter(failed.values()), _nothing_to_place(recipe, how))
    changed = {url: todo.found[url] for url in todo.changed if url not in failed}
    good = [url for part in kept for url in part.files]
    old = _old_versions(store, changed) if changed else None
    rows = [*todo.rows, *(Entry.of(todo.found[url], "placed", since=begin) for url in good)]
    left = placing.left(old, kept) if recipe.prefer is not None and old is not None else []
    if len(left):
        more, unread = open_files(_others(todo), recipe, how)
        kept, made, misfits = fit_together([*kept, *placing.showing(left, more)], placing)
        failed |= unread | misfits
        rows += [Entry.of(todo.found[url], "pending", since=begin) for url in unread.keys() | misfits.keys()]
    for url, why in bad.items():
        state: State = "masked" if url in changed else "waiting" if url in waiting else "quarantined"
        rows.append(Entry.of(todo.found[url], state, why, since=begin))
    rows = list({**{row.url: row for row in rows}, **(replaced if good else {})}.values())
    snapshot = placing.write(_masked(store, made, old) if old is not None else made, rows, len(good))
    repository = open_at(snapshot)
    expired = _expired(store, recipe) if snapshot is not store.snapshot else ()
    chunks: tuple[SampledChunk, ...] = ()
    if kept and how.sample and active_dry_run() is None:
        with contextlib.suppress(MissingDependencyError):
            chunks = _compared_with_files(repository, kept, store.opened.objects.url, how)
    return Synced(
        repository=repository,
        placed=tuple(url for url in good if url not in changed),
        changed=tuple(changed),
        quarantined=tuple(bad.items()),
        pending=tuple(todo.pending),
        vanished=tuple(todo.vanished),
        failed=tuple((url, reason_of(error)) for url, error in failed.items()),
        chunks=chunks,
        expired=expired,
        notes=tuple(_notes(store, recipe, todo)),
    )


def _expired(store: Stored, recipe: Recipe) -> tuple[int, ...]:
    """Delete the snapshots that the recipe does not keep, except those that were the newest within a day."""
    if not recipe.retention:
        return ()
    days = recipe.retention.get("days")
    return expire(
        store.opened,
        keep=recipe.retention.get("keep"),
        older_than=None if days is None else timedelta(days=days),
        grace=timedelta(seconds=GRACE_SECONDS),
        dry_run=active_dry_run() is not None,
    ).snapshots


_OPENING_KEYS = (
    "reader",
    "group",
    "drop_variables",
    "decode_times",
    "unsupported",
    "inline_limit",
    "unpack",
    "preprocess",
    "new_dim",
    "labels",
)
"""Keys of a recipe that decide what a file gives, so that placed files are not as a new recipe says."""


def _notes(store: Stored, recipe: Recipe, todo: _Todo) -> Iterator[str]:
    """Yield what a new recipe does not do by itself."""
    n_placed = todo.ledger.counts.get("placed", 0) - len(todo.reopened)
    if store.snapshot.recipe is None or recipe.text == store.snapshot.recipe or n_placed <= 0:
        return
    before, url = Recipe.from_toml(store.snapshot.recipe), store.opened.objects.url.rstrip("/")
    if odd := [key for key in _OPENING_KEYS if getattr(before, key) != getattr(recipe, key)]:
        yield (
            f"the recipe opens files in another way ({', '.join(odd)}), and {counted(n_placed, 'placed file')} stay as "
            f"before. Open them again with sync(reopen=True), or 'virtualstack sync {url} --reopen'"
        )


def segment(store: Stored, recipe: Recipe, partition: tuple[int, int], how: Sync, /) -> int:
    """Make segments of one of several parts of the new files, and return the number of its files."""
    number, n_parts = partition
    if not 1 <= number <= n_parts:
        raise ValueError(f"partition={partition} is not a number from 1 and the number of all parts, such as (17, 100)")
    recipe = recipes.kept(recipe)
    todo = _compared(store, recipe, how, time.time())
    first, end = ((len(todo.wanted) * x) // n_parts for x in (number - 1, number))
    files = [todo.found[url] for url in todo.wanted[first:end]]
    make_segments(store.opened.objects.url, recipe, files, how)
    return len(files)


# -- what is new ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Todo:
    """What a listing says, compared with the ledger."""

    ledger: Ledger
    found: Mapping[str, Location]
    wanted: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    reopened: set[str] = field(default_factory=set)
    resting: set[str] = field(default_factory=set)
    gone: dict[str, Entry] = field(default_factory=dict)
    rows: list[Entry] = field(default_factory=list)


def _compared(store: Stored, recipe: Recipe, how: Sync, now: float) -> _Todo:
    """Compare the files of a recipe with the ledger; no file is opened."""
    ledger = ledger_of(store.opened, store.snapshot)
    found: dict[str, Location] = {}
    missing: SourceNotFoundError | None = None
    complete = None if recipe.sidecar is None else set[str]()
    for pattern in recipe.files:
        try:
            found |= list_files([pattern], storage=how.storage)
        except SourceNotFoundError as error:
            missing = error
            if not any(recipes.covers([pattern], entry.url) for entry in ledger.entries()):
                raise  # else its files have vanished
        if complete is not None:
            with contextlib.suppress(SourceNotFoundError):
                complete.update(list_files([f"{pattern}{recipe.sidecar}"], storage=how.storage))
    if missing is not None and not found:
        raise missing  # a disk that is not mounted, for example
    if complete is not None:
        found = {url: file for url, file in found.items() if url not in complete}
    known, same, unfit = dict[str, Entry](), set[str](), list[Entry]()
    for entry in ledger.entries():
        file = found.get(entry.url)
        if entry.state == "placed" and not how.reopen and file is not None and entry.is_version(file):
            same.add(file.url)
        else:
            known[entry.url] = entry
    tries_again = how.retry or recipe.text != store.snapshot.recipe
    todo = _Todo(ledger, found)
    for url, file in found.items():
        if url in same:
            continue
        entry_now = known.get(url)
        state = None if entry_now is None else entry_now.state
        is_known = entry_now is not None and entry_now.is_version(file)
        if entry_now is not None and is_known and state == "vanished" and not entry_now.reason:
            todo.rows.append(Entry.of(file, "placed", since=now))
        elif entry_now is not None and is_known and state in _UNFIT and not tries_again:
            unfit.append(entry_now)
        else:
            is_shown = state in ("placed", "masked", "vanished")
            seen = entry_now.since if entry_now is not None and is_known else 0.0 if is_shown else now
            is_complete = complete is None or f"{url}{recipe.sidecar}" in complete
            if is_complete and recipes.is_settled(recipe, file, seen, now):
                todo.wanted.append(url)
                if is_known and state == "placed":
                    todo.reopened.add(url)
                elif is_shown:
                    todo.changed.append(url)
            else:
                todo.pending.append(url)
                if not is_shown and not (is_known and state == "pending"):
                    todo.rows.append(Entry.of(file, "pending", since=now))
    if recipe.prefer in (None, "first", "last"):  # else the time of a file may decide whether it is shown
        placed_before = {url: found[url] for url in todo.changed if known[url].state == "placed"}
        touched = _touched(store, placed_before) if placed_before else set()
        todo.rows.extend(Entry.of(found[url], "placed", since=known[url].since) for url in touched)
        todo.changed[:] = [url for url in todo.changed if url not in touched]
        todo.wanted[:] = [url for url in todo.wanted if url not in touched]
    todo.wanted.sort(key=lambda url: known[url].since if url in todo.reopened else now)
    lost = [x for x in known.values() if x.state == "placed" and x.url not in found]
    lost = [x for x in lost if recipes.covers(recipe.files, x.url)]
    shown = _shown_of(store, {x.url for x in lost}) if lost else set()
    todo.vanished.extend(x.url for x in lost if x.url in shown)
    todo.rows.extend(x._replace(state="vanished" if x.url in shown else "forgotten", since=now) for x in lost)
    for entry in known.values():
        if entry.state in (*_UNFIT, "pending") and entry.url not in found:
            todo.rows.append(entry._replace(state="forgotten", since=now))
    news = {*todo.wanted, *todo.vanished}
    for entry in unfit if news else ():
        if entry.state == "waiting" or not news.isdisjoint(re.findall("'([^']*)'", entry.reason)):
            todo.wanted.append(entry.url)
            todo.resting.add(entry.url)
    rows = {**known, **{row.url: row for row in todo.rows}}
    todo.gone.update({url: row for url, row in rows.items() if row.state == "vanished" and url not in found})
    return todo


_UNFIT = ("quarantined", "waiting", "masked")
"""States of files that were opened, and do not fit."""


def _touched(store: Stored, files: Mapping[str, Location]) -> set[str]:
    """Return the files of a store that have another time or etag, and the content that the store shows."""
    sources = shown_in(store.group, store.opened.archive(store.snapshot)).sources()
    own = [x for x in {x for its in sources.values() for x in its} if x.url in files]
    checked = concurrently(lambda x: is_changed(x, files[x.url]), own, [x.url for x in own])
    changed = {x.url for x, is_other in zip(own, checked, strict=True) if is_other}
    return {x.url for x in own} - changed


def _shown_of(store: Stored, urls: Set[str]) -> set[str]:
    """Return the URLs of files that cells of a store refer to."""
    shown = shown_in(store.group, store.opened.archive(store.snapshot))
    sources = shown.sources()
    suspects = {x for own in sources.values() for x in own if x.url in urls}
    return {x.url for own in shown.still_shown(sources, suspects).values() for x in own}


def _nothing_to_place(recipe: Recipe, how: Sync) -> SourceNotFoundError:
    what = "was opened by segment" if how.only_segments else "is settled yet"
    return SourceNotFoundError(f"no file of {list(recipe.files)} {what}")


def _do_not_fit(bad: Mapping[str, str]) -> CombineError:
    listed = "; ".join(f"'{url}': {why}" for url, why in list(bad.items())[:MAX_SHOWN_ITEMS])
    return CombineError(f"{counted(len(bad), 'file')} cannot be placed, and nothing was committed: {listed}")


@dataclass(slots=True)
class _Gathered:
    """Files that were opened, in this process or by workers; a second try to place them opens none again."""

    parts: list[Opened] = field(default_factory=list)
    errors: dict[str, tuple[Location, Exception]] = field(default_factory=dict)
    segments: list[str] = field(default_factory=list)

    def add(self, store: Stored, todo: _Todo, recipe: Recipe, how: Sync, /) -> None:
        """Open the wanted files that are not known yet; many of them by way of segments."""
        objects = store.opened.objects
        self._add_ready(objects, todo, recipe, how, is_last=how.only_segments)
        missing = self._missing(todo)
        if how.only_segments:
            todo.pending.extend(missing)
            todo.wanted[:] = [url for url in todo.wanted if url not in missing]
            return
        is_many = len(missing) > N_FILES or how.timeout is not None
        if missing and is_many and active_dry_run() is None:
            make_segments(objects.url, recipe, list(missing.values()), how)
            self._add_ready(objects, todo, recipe, how, is_last=True)
            missing = self._missing(todo)
        parts, errors = open_files(missing, recipe, how, together=True)
        self.parts += parts
        self.errors |= {url: (missing[url], error) for url, error in errors.items()}

    def _add_ready(self, objects: ObjectStore, todo: _Todo, recipe: Recipe, how: Sync, *, is_last: bool) -> None:
        """Add what segments have; that files could not be reached counts if no more segments are made."""
        if not todo.wanted:
            return
        found = {url: todo.found[url] for url in todo.wanted}
        rows: list[Entry] = []
        for segment in ready_segments(objects, recipe, found, how, known=self.segments):
            others = [row for row in segment.others if is_last or row.state != "pending"]
            if not (segment.parts or others or is_last):
                continue  # it is made again
            self.segments.append(segment.key)
            rows += others
            known = {url for part in self.parts for url in part.files} | self.errors.keys()
            self.parts += [each for part in segment.parts for each in part.only(part.files.keys() - known)]
        known = {url for part in self.parts for url in part.files}
        for row in rows:
            if row.url not in known:
                self.errors.setdefault(row.url, (found[row.url], _as_error(row)))

    def _missing(self, todo: _Todo) -> dict[str, Location]:
        known = {url: file for part in self.parts for url, file in part.files.items()}
        known |= {url: file for url, (file, _) in self.errors.items()}
        return {url: todo.found[url] for url in todo.wanted if known.get(url) != todo.found[url]}

    def of(self, todo: _Todo, /) -> tuple[list[Opened], dict[str, Exception]]:
        """Return what was opened of the wanted files."""
        wanted = {url: todo.found[url] for url in todo.wanted}
        errors = {url: error for url, (file, error) in self.errors.items() if wanted.get(url) == file}
        return [
            each
            for part in self.parts
            for each in part.only([url for url, file in part.files.items() if wanted.get(url) == file])
        ], errors


def _as_error(row: Entry) -> Exception:
    """Return the error that a segment tells of a file; one that may pass names no version of it."""
    if row.state == "pending":
        return SourceNotFoundError(row.reason, url=row.url)
    return CombineError(row.reason, left_url=row.url)


# -- what changed files leave -----------------------------------------------------------------------------


def _is_old(source: Location, changed: Mapping[str, Location]) -> bool:
    """Return whether a source of the store is an old version of a file."""
    return source.url in changed and is_changed(source, changed[source.url])


def _others(todo: _Todo) -> dict[str, Location]:
    """Return the files that the store shows and that have not changed, in the order in which they were placed."""
    rows = sorted(todo.ledger.where(["placed"]).entries(), key=lambda row: row.since)
    found = {row.url: todo.found[row.url] for row in rows if row.url in todo.found}
    return {url: file for url, file in found.items() if url not in todo.wanted and url not in todo.pending}


def _old_versions(store: Stored, changed: Mapping[str, Location]) -> Old:
    """Find the sources of a store that are old versions of files."""
    shown = shown_in(store.group, store.opened.archive(store.snapshot))
    gone = {number: frozenset(x for x in own if _is_old(x, changed)) for number, own in shown.sources().items()}
    return shown, {number: own for number, own in gone.items() if own}


def _masked(store: Stored, made: Made | None, old: Old) -> Made:
    """Return a group, and ABSENT chunks under what was placed for all cells that show old versions of files."""
    group, placed = (store.group, {}) if made is None else made
    shown, gone = old
    found = [(path, x) for (_, path), x in cells_of_sources(*old).items() if group.arrays[path[1:]] is x.array]
    uses = tuple(  # arrays that were assembled with new labels
        Use(f"/{name}", array, (0,) * len(array.manifest.shape), array.manifest.shape, None)
        for name, array in group.arrays.items()
        if array is not store.group.arrays.get(name)
    )
    cells = cells_of_sources(replace(shown, uses={0: uses}), {0: frozenset().union(*gone.values())})
    over: dict[str, list[Overlay]] = {}
    for path, own in [*found, *((path, x) for (_, path), x in cells.items())]:
        over.setdefault(path, []).extend(masks(own))
    return group, {path: [*over.get(path, ()), *placed.get(path, ())] for path in over.keys() | placed.keys()}


# -- checking -------------------------------------------------------------------------------------------------


def _compared_with_files(
    repository: _AtSnapshot, kept: Sequence[Opened], url: str, how: Sync
) -> tuple[SampledChunk, ...]:
    """Compare a sample of the chunks of files that were placed with what the formats' libraries read."""
    cube = repository.open_virtual_dataset()
    urls = [(part, url) for part in kept for url in part.files]
    some = [each for part, url in random.sample(urls, min(len(urls), how.sample)) for each in part.only([url])]
    found: list[SampledChunk] = []
    for part in some:
        where = {}
        for dim, index in cube.indexes.items():
            if dim in part.dataset.variables:
                at = np.flatnonzero(index.isin(part.labels(str(dim))))
                where[dim] = slice(int(at.min()), int(at.max()) + 1) if len(at) else slice(0, 0)
        arrays = {str(name): virtual_array(x) for name, x in cube.isel(where).variables.items()}
        found += compare_sample(
            {name: array for name, array in arrays.items() if array is not None and part.dataset.get(name) is not None},
            how.storage,
            sample=-(-how.sample // len(some)),
            seed=None,
            leaving_out=(),
            own=url + SEGMENTS,
        )
    return tuple(x for x in found if x.url in {part.url for part in some})
