"""Segments: finished results for partitions of the files of a recipe, made by any worker, and placed by one commit.

A segment is a small vstack below the store: a cube for files that are alike, and a ledger of all files.
"""

from __future__ import annotations

import hashlib
import os
import platform
import threading
import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import orjson
import pandas as pd

from virtualstack.errors import ConflictError, MalformedFileError, ReaderError, SourceNotFoundError
from virtualstack.location import Location
from virtualstack.manifests import ManifestGroup
from virtualstack.progress import progress_shown
from virtualstack.scanning.job import Outcome, Work
from virtualstack.scanning.workers import Schedule, find_workers
from virtualstack.storage import LocalTarget, ObjectStore, read_allowed_urls
from virtualstack.storage.folders import MAGIC
from virtualstack.storage.threads import concurrently
from virtualstack.vstack.files import (
    Opened,
    Placing,
    Runs,
    Sync,
    fit_together,
    may_pass,
    open_files,
    opening_by,
    reason_of,
    runs_of,
)
from virtualstack.vstack.format.history import OpenStore, read_snapshot
from virtualstack.vstack.format.ledger import Entry, State
from virtualstack.vstack.format.names import INCOMING, snapshot_key
from virtualstack.vstack.ledger import ledger_of
from virtualstack.vstack.reader import permission_for_snapshot
from virtualstack.vstack.recipe import Recipe
from virtualstack.vstack.save import Stored
from virtualstack.vstack.write.commit import EMPTY_STORE, commit
from virtualstack.vstack.write.write import make_edit

N_FILES = 256
"""Largest number of files of a partition; so few files are opened without one."""

_FILES = "virtualstack_files"
"""Attribute of a cube: its files, and where their elements are."""


def folder_of(recipe: Recipe, /) -> str:
    """Return the folder of the segments of a recipe in a store."""
    return f"{INCOMING}/{_digest(replace(recipe, text='').text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _name(files: Sequence[Location]) -> str:
    """Return the name of the segment of some versions of files."""
    return _digest("\n".join(f"{x.url}\t{x.size}\t{x.etag}\t{x.last_modified}" for x in files))


# -- making ---------------------------------------------------------------------------------------------------


def make_segment(
    url: str, recipe: Recipe, files: Sequence[Location], how: Sync, /, errors: Mapping[str, Exception] | None = None
) -> ManifestGroup:
    """Open files, join those that are alike, and write the result below a store; return a group that names it.

    Nothing is opened if the errors of the files are known.
    """
    begin = time.time()
    own = f"{url.rstrip('/')}/{folder_of(recipe)}/{_name(files)}"
    objects = ObjectStore(own, how.storage, _reachable(recipe, how))
    store = OpenStore(objects, permission_for_snapshot(objects.url, EMPTY_STORE, objects.allow))
    if _is_made(store):
        return ManifestGroup(url=own)
    by_url = {x.url: x for x in files}
    parts, errors = open_files(by_url, recipe, how, together=True) if errors is None else ([], dict(errors))
    placing = Placing(Stored(store, EMPTY_STORE), replace(recipe, prefer=None), how, lambda _: False)
    cubes: dict[str, ManifestGroup] = {}
    placed: list[str] = []

    def put(cube: ManifestGroup, within: _Within, scalars: Collection[str]) -> None:
        told = orjson.dumps({"files": within, "scalars": sorted(scalars)}).decode()
        cubes[str(len(cubes))] = replace(cube, attributes={**cube.attributes, _FILES: told})
        placed.extend(x for x, _ in within)

    for part in parts:
        if len(part.files) > 1:
            put(placing.group(part), [(url, part.runs[url]) for url in part.files], part.scalars)
    for alike in _alike([part for part in parts if len(part.files) == 1], recipe.dim):
        rest = alike
        while rest:
            kept, made, misfits = fit_together(rest, placing)
            if made is None:
                errors |= misfits
                break
            for cube, within in _located(kept, made[0], placing, how):
                dims = {dim for _, runs in within for dim in runs}
                put(cube, within, {dim for dim in dims if not kept[0].dataset[dim].ndim})
            rest = [part for part in rest if part.url in misfits]
    rows = [Entry.of(by_url[x], "placed", since=begin) for x in placed]
    for bad, error in errors.items():
        state: State = "pending" if may_pass(error, bad) else "quarantined"
        rows.append(Entry.of(by_url[bad], state, reason_of(error), since=begin))
    edit = make_edit(store, EMPTY_STORE, ManifestGroup(groups=cubes), {}, relative=False, checksums=recipe.checksums)
    with suppress(ConflictError):  # another worker has made the same
        commit(store, EMPTY_STORE, replace(edit, recipe=recipe.text, ledger=tuple(rows)), has_hint=False)
    return ManifestGroup(url=own)


def _is_made(store: OpenStore) -> bool:
    """Return whether a segment is ready; one with files that could not be reached is deleted, to be made again."""
    try:
        has_pending = "pending" in ledger_of(store, read_snapshot(store.objects, 0)).counts
    except SourceNotFoundError:
        return False
    if has_pending:
        _delete(store.objects, store.objects.list(""))
    return not has_pending


def _reachable(recipe: Recipe, how: Sync) -> tuple[str, ...]:
    """Return what the references of a segment may name: the folders of the recipe, and what the user allowed."""
    folders = (f"{MAGIC.split(x, maxsplit=1)[0].rpartition('/')[0]}/" for x in recipe.files)
    return (*read_allowed_urls(how.allow), *folders)


def _alike(parts: Sequence[Opened], dim: str | None) -> list[list[Opened]]:
    """Group parts that probably join: of one kind, and without the same labels."""
    groups: dict[Any, list[Opened]] = {}
    seen: dict[Any, int] = {}
    for part in parts:
        kind, n = part.kind(dim), 0
        if dim is not None and dim in part.dataset.coords:
            others = tuple(str(x.values) for name, x in part.dataset.coords.items() if not x.dims and name != dim)
            for label in part.labels(dim).tolist():
                seen[kind, label, others] = times = seen.get((kind, label, others), -1) + 1
                n = max(n, times)
        groups.setdefault((kind, n), []).append(part)
    return list(groups.values())


type _Within = list[tuple[str, Runs]]
"""The files of a cube, and where their elements are."""


def _located(
    parts: Sequence[Opened], cube: ManifestGroup, placing: Placing, how: Sync
) -> Iterator[tuple[ManifestGroup, _Within]]:
    """Yield a cube and where the elements of its files are; if that is not known, a cube for each file."""
    within = _within(parts, opening_by(placing.recipe, how).dataset(cube).indexes) if len(parts) > 1 else []
    if within:
        yield cube, within
        return
    for part in parts:
        yield placing.group(part), [(part.url, {})]


def _within(parts: Sequence[Opened], indexes: Mapping[Any, pd.Index[Any]]) -> _Within:
    """Return where the elements of files are in their cube; an empty list if labels do not tell it."""
    within: list[tuple[str, dict[str, list[tuple[int, int]]]]] = []
    for part in parts:
        runs = {}
        for dim, index in indexes.items():
            own = part.dataset.indexes.get(dim)
            if own is not None and len(own) == len(index):
                runs[str(dim)] = [(0, len(index))]
            elif dim in part.dataset.coords and index.is_unique:
                found = np.sort(index.get_indexer(pd.Index(part.labels(str(dim)))))
                if (found >= 0).all():
                    runs[str(dim)] = runs_of(found)
        if len(runs) < len(indexes):
            return []
        within.append((part.url, runs))
    telling = {dim for _, runs in within for dim, x in runs.items() if x != [(0, len(indexes[dim]))]}
    return [(url, {dim: x for dim, x in runs.items() if dim in telling}) for url, runs in within] if telling else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making(Work):
    """Makes segments of partitions; a partition of one file has its URL as the name."""

    url: str
    recipe: Recipe
    how: Sync
    partitions: Mapping[str, Sequence[Location]]
    home: str = field(default_factory=lambda: _process())

    def read(self, url: str, /) -> ManifestGroup:
        return make_segment(self.url, self.recipe, self.partitions[url], self.how)

    def only(self, urls: Sequence[str], /) -> _Making:
        return replace(self, partitions={url: self.partitions[url] for url in urls})

    def try_read(self, url: str, /) -> Outcome:
        if self.timeout is None or self.home == _process():
            return Work.try_read(self, url)
        clock = threading.Timer(self.timeout, os._exit, [1])  # a thread that hangs may hold locks of libraries
        clock.daemon = True
        clock.start()
        try:
            return self._try(url)
        finally:
            clock.cancel()


def _process() -> str:
    return f"{platform.node()}:{os.getpid()}"


def make_segments(url: str, recipe: Recipe, files: Sequence[Location], how: Sync, /) -> None:
    """Make segments of all files on an executor.

    A partition whose worker dies, or that takes too long, is made again in halves, until the file is found. The segment
    of this file says so.
    """
    own = replace(how, executor="threads" if how.executor == "threads" else None, progress=None, timeout=None)
    todo = [files[i : i + N_FILES] for i in range(0, len(files), N_FILES)]
    n_done = n_failed = 0
    with progress_shown(how.progress, "segments") as show:
        while todo:
            partitions = {x[0].url if len(x) == 1 else _name(x): x for x in todo}
            todo = []
            work = _Making(timeout=how.timeout, url=url, recipe=recipe, how=own, partitions=partitions)
            with closing(_outcomes(work, list(partitions), how)) as outcomes:
                for name, outcome in outcomes:
                    its = partitions[name]
                    if isinstance(outcome, ManifestGroup):
                        n_done += len(its)
                    elif not _is_of_a_file(outcome):
                        raise outcome
                    elif len(its) == 1 and isinstance(outcome, Exception):
                        make_segment(url, recipe, its, own, {its[0].url: outcome})
                        n_done, n_failed = n_done + 1, n_failed + 1
                    else:
                        todo += [its[: len(its) // 2], its[len(its) // 2 :]]
                    if show is not None:
                        show(n_done, len(files), n_failed)


def _outcomes(work: _Making, names: Sequence[str], how: Sync) -> Generator[tuple[str, Outcome]]:
    workers = None if how.executor in (None, "threads") else find_workers(how.executor, work, names)
    if workers is None:
        yield from ((name, work.try_read(name)) for name in names)
        return
    for number, outcome in Schedule(names, workers).outcomes():
        yield names[number], outcome


def _is_of_a_file(error: BaseException) -> bool:
    """Return whether a worker died or took too long, and was not shut down."""
    cause = error.__cause__
    is_death = isinstance(cause, BrokenExecutor) or type(cause).__name__ == "KilledWorker"
    return isinstance(error, ReaderError) and (cause is None or is_death)


# -- using ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that is ready: its key, its cubes, and what became of other files."""

    key: str
    parts: Sequence[Opened]
    others: Sequence[Entry]


def ready_segments(
    store: ObjectStore, recipe: Recipe, found: Mapping[str, Location], how: Sync, /, *, known: Collection[str]
) -> list[Segment]:
    """Read the segments of a recipe in a store, without files that have changed since, or are not listed any more."""
    folder, last = folder_of(recipe), snapshot_key(0)
    keys = [key.removesuffix(f"/{last}") for key in store.list(folder) if key.endswith(f"/{last}")]
    keys = [key for key in keys if key not in known]
    read = partial(_read, store, recipe, found, how)
    return list(concurrently(read, keys, urls=[store.url]))


def _read(store: ObjectStore, recipe: Recipe, found: Mapping[str, Location], how: Sync, key: str) -> Segment:
    objects = ObjectStore(store.url + key, how.storage, _reachable(recipe, how))
    snapshot = read_snapshot(objects, 0)
    stored = Stored(OpenStore(objects, permission_for_snapshot(objects.url, snapshot, objects.allow)), snapshot)
    rows = list(ledger_of(stored.opened, snapshot).entries())
    now = {row.url: found[row.url] for row in rows if row.url in found and row.is_version(found[row.url])}
    opening, parts = opening_by(recipe, how), []
    for cube in stored.group.groups.values():
        attributes = dict(cube.attributes)
        try:
            told = orjson.loads(attributes.pop(_FILES))
            scalars = frozenset(map(str, told["scalars"]))
            runs = {
                str(url): {str(dim): [(a, b) for a, b in x] for dim, x in its.items()} for url, its in told["files"]
            }
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise MalformedFileError(f"the segment '{objects.url}' is damaged: delete it") from error
        dataset = opening.dataset(replace(cube, attributes=attributes))
        whole = Opened(next(iter(runs)), dataset, {url: now.get(url, Location(url)) for url in runs}, runs, scalars)
        dataset.encoding["source"] = whole.url
        parts += whole.only([url for url in runs if url in now])
    return Segment(key, parts, [row for row in rows if row.state != "placed" and row.url in now])


def remove_segments(store: ObjectStore, keys: Sequence[str], /) -> None:
    """Delete segments that were placed."""
    _delete(store, [key for folder in keys for key in store.list(folder)])
    if isinstance(store.target, LocalTarget):
        store.target.delete_folder(INCOMING)


def _delete(store: ObjectStore, keys: Sequence[str]) -> None:
    for _ in concurrently(store.target.delete, keys, urls=[store.url]):
        pass
