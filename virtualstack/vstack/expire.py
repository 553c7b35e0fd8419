"""Delete snapshots that are no longer wanted, and objects that no remaining snapshot uses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

import numpy as np

from virtualstack.errors import Code, MalformedFileError, Remedy, SourceNotFoundError, StorageError, check_type
from virtualstack.printable import counted
from virtualstack.storage import LocalTarget, ObjectStore
from virtualstack.storage.threads import concurrently
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.documents import MAX_DOCUMENT_BYTES, PageRef, Table
from virtualstack.vstack.format.history import OpenStore, listed_numbers, number_at, read_snapshot
from virtualstack.vstack.format.names import (
    BUNDLES,
    FOLDER,
    INCOMING,
    LEDGER,
    PAGES,
    SEGMENTS,
    Moment,
    bundle_key,
    count_seconds,
    ledger_key,
    made_at,
    new_id,
    page_key,
    segment_folder,
    snapshot_key,
)
from virtualstack.vstack.format.snapshot import Uses, decode_uses, read_document
from virtualstack.vstack.reader import no_store
from virtualstack.vstack.write.hint import follow

_NO_GRACE = Remedy("use {} if nobody reads or writes", grace=Code("timedelta(0)", "0"))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Expired:
    """The snapshots and objects that were deleted, or would be.

    Parameters
    ----------
    url
        URL of the store.
    snapshots
        Numbers of the deleted snapshots.
    objects
        Keys of the other deleted objects.
    spared
        Numbers of snapshots that can be deleted once the grace period is over.
    dry_run
        If true, nothing was deleted.
    """

    url: str
    snapshots: tuple[int, ...]
    objects: tuple[str, ...]
    spared: tuple[int, ...]
    dry_run: bool

    def __repr__(self) -> str:
        verb = "would be deleted from" if self.dry_run else "were deleted from"
        shown = (
            f"<{counted(len(self.snapshots), 'snapshot')} and {counted(len(self.objects), 'other object')} {verb} "
            f"'{self.url}'"
        )
        if self.spared:
            why = "stays for now: it was" if len(self.spared) == 1 else "stay for now: they were"
            shown += f"; {counted(len(self.spared), 'snapshot')} {why} the newest within the grace period ({_NO_GRACE})"
        return shown + ">"


def expire(
    store: OpenStore,
    /,
    *,
    keep: int | None,
    older_than: timedelta | Moment | None,
    grace: timedelta,
    dry_run: bool,
) -> Expired:
    """Delete snapshots, oldest first, then objects that no remaining snapshot uses.

    If the call is interrupted, the remaining snapshots are complete, and the next run deletes the rest.
    """
    check_type("keep", keep, int | np.integer | None, "a whole number. Give the number of snapshots to keep")
    check_type("grace", grace, timedelta, "a timedelta. Give one, for example timedelta(days=1)")
    if keep is not None and keep < 1:
        raise ValueError(f"keep={keep} is less than 1. The newest snapshot is always kept, so give at least 1")
    if grace < timedelta(0):
        raise ValueError(
            f"grace={grace} is negative. Give the longest time that readers and writers need, for example "
            "timedelta(days=1)"
        )
    objects = store.objects
    numbers = listed_numbers(objects)
    if not numbers:
        raise no_store(objects)
    clock = time.time() if dry_run else _clock(objects)
    now = min(time.time(), clock + _CLOCK_SLACK_SECONDS)
    wanted = _first_wanted(objects, numbers, keep, older_than, now)
    before = clock - grace.total_seconds()
    first = min(wanted, number_at(objects, numbers[0], now - grace.total_seconds()))
    first = _first_seen(objects, [number for number in numbers if number <= first], first, before)
    gone = sorted(number for number in numbers if number < first)
    spared = sorted(number for number in numbers if first <= number < wanted)
    keys = _unused(store, [n for n in numbers if n >= first], before)
    if not dry_run:
        if gone:
            follow(objects)
        _delete(objects, [snapshot_key(number) for number in gone])
        newer = [number for number in listed_numbers(objects) if number > numbers[0]] if gone else []
        if newer:  # a writer may have based one on a snapshot that is deleted now
            used = _used(store, newer)
            keys = [key for key in keys if _name_in(key) not in used]
        _delete(objects, keys)
        _clear_folders(objects, keys, before)
    url = objects.url.rstrip("/")
    return Expired(url=url, snapshots=tuple(gone), objects=tuple(keys), spared=tuple(spared), dry_run=dry_run)


_CLOCK_SLACK_SECONDS = 2.0
"""Seconds by which clocks may differ: object stores return whole seconds."""


def _clock(objects: ObjectStore) -> float:
    """Return the time by the clock that sets the times of objects; this computer's clock may be wrong.

    The time is that of a new object that no snapshot uses. If this process is killed, the next run deletes the object.
    """
    key = bundle_key(new_id())
    objects.target.put(key, b"")  # an empty object fits on a full disk too
    try:
        (written,) = _written(objects, [key])
    finally:
        objects.target.delete(key)
    return time.time() if written is None else written


def _written(objects: ObjectStore, keys: Sequence[str]) -> list[float | None]:
    """Return when objects were written, by the clock of their storage; ``None`` if that is not known."""
    found = objects.storage.look_up([objects.url + key for key in keys])
    return [None if isinstance(x, StorageError) else x.last_modified for x in found]


def _first_wanted(
    objects: ObjectStore,
    numbers: Sequence[int],
    keep: int | None,
    older_than: timedelta | Moment | None,
    now: float,
) -> int:
    """Return the number of the oldest snapshot that ``keep`` or ``older_than`` keeps."""
    bounds = []
    if keep is not None:
        bounds.append(numbers[min(keep, len(numbers)) - 1])
    if older_than is not None:
        moment = now - older_than.total_seconds() if isinstance(older_than, timedelta) else count_seconds(older_than)
        bounds.append(number_at(objects, numbers[0], moment))
    return min(bounds, default=0)


def _first_seen(objects: ObjectStore, numbers: Sequence[int], first: int, before: float) -> int:
    """Return the number of the oldest snapshot that was the newest after a time, until its successor was written.

    The times in snapshots come from their writers' clocks, which may have been slow.
    """
    written = _written(objects, [snapshot_key(number) for number in numbers])
    for number, seconds in zip(numbers[1:], written, strict=False):
        if seconds is None or seconds <= before:
            break
        first = number
    return first


# -- used objects -----------------------------------------------------------------------------------------------------


def _unused(store: OpenStore, numbers: Sequence[int], before: float) -> list[str]:
    """Return the keys of objects from before a time that no snapshot uses: neither the given ones nor newer ones.

    The time in a name comes from its writer's clock, and counts only if no other time is known.
    """
    objects = store.objects
    listed = list(concurrently(objects.list, [SEGMENTS, PAGES, BUNDLES, LEDGER], urls=[objects.url]))
    named = {key: name for keys in listed for key in keys if (name := _name_in(key))}
    used = _used(store, numbers) if named else set()
    unused = [key for key, name in named.items() if name not in used]
    incoming = objects.list(INCOMING)  # segments that no run has placed
    written = _written(objects, [*unused, *incoming])
    found = [
        key
        for key, seconds in zip([*unused, *incoming], written, strict=True)
        if (made_at(named[key]) if seconds is None and key in named else seconds or 0.0) <= before
    ]
    if isinstance(objects.target, LocalTarget):
        found += objects.target.leftovers("", before)
    return found


def _name_in(key: str) -> str | None:
    """Return the name in the key of a segment, page or bundle; ``None`` for any other key."""
    folder, _, rest = key.removeprefix(f"{FOLDER}/").partition("/")
    name = rest.partition("/")[0].removesuffix(".json.gz").removesuffix(".parquet")
    try:
        own = {"pages": page_key, "bundles": bundle_key, "segments": segment_folder, "ledger": ledger_key}[folder](name)
    except (KeyError, ValueError):
        return None
    return name if key == own or (folder == "segments" and key.startswith(f"{own}/")) else None


def _used(store: OpenStore, numbers: Sequence[int]) -> set[str]:
    """Return the names of the objects that snapshots use: the given ones and newer ones."""
    objects = store.objects
    last, names, pages, segments = numbers[0], set[str](), dict[str, PageRef](), set[int]()
    while numbers:
        for uses in concurrently(partial(_read_uses, objects), numbers, urls=[objects.url]):
            for table in (uses.segments, *uses.placements):
                names.update(page.name for page in table.pages)
            for table in uses.placements:
                pages |= {page.name: page for page in table.pages}
                segments.update(_segments_in(table.tail, objects))
            if uses.bundle is not None:
                names.add(uses.bundle)
            names.update(uses.ledger)
        numbers = [number for number in listed_numbers(objects) if number > last]  # committed in the meantime
        last = max(numbers, default=last)
    head = read_snapshot(objects, last)
    archive = store.archive(head)
    for rows in concurrently(archive.page, list(pages.values()), urls=[objects.url]):
        segments.update(_segments_in(rows, objects))
    within = partial(_segment_names, archive)
    for found in concurrently(within, sorted(segments), urls=[objects.url]):
        names |= found
    return names


def _read_uses(objects: ObjectStore, number: int) -> Uses:
    key = snapshot_key(number)
    url = objects.url + key
    try:
        data = objects.get(key, most=MAX_DOCUMENT_BYTES)
    except SourceNotFoundError:  # another process expires snapshots too
        return Uses(segments=Table(), placements=(), bundle=None)
    return decode_uses(read_document(data, number=number, url=url), url=url)


def _segments_in(rows: Iterable[Sequence[object]], objects: ObjectStore) -> Iterator[int]:
    """Yield the numbers of the segments that placements point to."""
    for row in rows:
        try:
            number = row[0]
        except (TypeError, IndexError, KeyError):
            number = None
        if not isinstance(number, int):
            raise MalformedFileError(
                f"'{objects.url}' has the placement {str(row)[:100]}, which is not valid", Remedy("restore it")
            )
        yield number


def _segment_names(archive: Archive, number: int) -> set[str]:
    """Return the name of a segment, and of the segments whose bytes its sources name.

    Neither relocations of sources nor the URL of the store in them matter here: the store may have been opened
    through a link or another scheme.
    """
    segment = archive.segment(number)
    names = {segment.name}
    for path in replace(archive, prefixes=replace(archive.prefixes, moved=())).written_sources(segment):
        if name := _name_in(path[path.rfind(f"{SEGMENTS}/") :]):
            names.add(name)
    return names


# -- deleting -----------------------------------------------------------------------------------------------------


def _delete(objects: ObjectStore, keys: Sequence[str]) -> None:
    for _ in concurrently(objects.target.delete, keys, urls=[objects.url]):
        pass


def _clear_folders(objects: ObjectStore, keys: Sequence[str], before: float) -> None:
    """Delete the folders of deleted segments, and empty folders that killed writers left, in a local store."""
    if isinstance(objects.target, LocalTarget):
        gone = {"/".join(key.split("/")[:3]) for key in keys if key.startswith(f"{SEGMENTS}/")}
        for folder in gone.union(objects.target.empty_folders(SEGMENTS, before)):
            objects.target.delete_folder(folder)
        if any(key.startswith(f"{INCOMING}/") for key in keys):
            objects.target.delete_folder(INCOMING)
