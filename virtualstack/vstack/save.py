"""Write datasets and trees as the newest snapshot of a store, or add them to the newest snapshot."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from virtualstack.combine.addition import Addition
from virtualstack.combine.members import Mode, with_members
from virtualstack.combine.region import Region
from virtualstack.errors import ConflictError, Remedy, WriterError
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.manifest import Overlay
from virtualstack.options import JoinToStore
from virtualstack.progress import Show
from virtualstack.storage import Allow, ObjectStore, Storage, StorageLike
from virtualstack.vstack.format.history import OpenStore, newest, read_snapshot
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.names import FOLDER
from virtualstack.vstack.format.snapshot import Layout, Snapshot
from virtualstack.vstack.reader import check_labels, open_snapshot, permission_for_snapshot
from virtualstack.vstack.write.commit import EMPTY_STORE, check_there
from virtualstack.vstack.write.layouts import FILL_BYTES
from virtualstack.vstack.write.placing import stored_in
from virtualstack.vstack.write.write import write_group


@dataclass(frozen=True)
class Stored:
    """A store at the snapshot that a change is based on.

    Parameters
    ----------
    opened
        The store.
    snapshot
        The snapshot that the change is based on.
    """

    opened: OpenStore
    snapshot: Snapshot

    @classmethod
    def newest(cls, objects: ObjectStore, allow: Allow = None, /) -> Stored:
        """Read the newest snapshot."""
        snapshot = open_snapshot(objects, None)
        return cls(OpenStore(objects, permission_for_snapshot(objects.url, snapshot, allow)), snapshot)

    @property
    def url(self) -> str:
        """URL of the store, without the last ``/``."""
        return self.opened.objects.url.rstrip("/")

    @cached_property
    def group(self) -> ManifestGroup:
        """Group of the snapshot without layouts, which follow the arrays whose values they have."""
        return _without(self.whole, self.snapshot.layouts)

    @cached_property
    def whole(self) -> ManifestGroup:
        """Group of the snapshot; its manifests are read when they are needed."""
        check_labels(self.snapshot, self.url)
        objects = self.opened.objects
        access = objects.storage.only(self.opened.permission).access(objects.url)
        return self.opened.group(self.snapshot).with_access(access)

    def node(self, path: str, /) -> ManifestGroup:
        """Return the group at a path."""
        found = self.group if not path else self.group[path]
        if isinstance(found, ManifestGroup):
            return found
        raise KeyError(f"'{path}' is a variable of '{self.url}', and no group")

    def add(
        self,
        group: ManifestGroup,
        addition: Addition,
        /,
        *,
        path: str = "",
        message: str | None = None,
        relative: bool = False,
        checksums: bool = False,
        ledger: Sequence[Entry] = (),
    ) -> Snapshot:
        """Commit this snapshot with a group appended to the group at a path, or written over a region of it."""
        made, overlays = addition.add(self.node(path), group)
        if path:
            made = with_members(self.group, made, path, "w", self.opened.objects.storage)
            overlays = {f"/{path}{key}": x for key, x in overlays.items()}
        how: dict[str, Any] = {"message": message, "relative": relative, "checksums": checksums}
        return self.write(made, overlays=overlays, ledger=ledger, **how)

    def write(
        self,
        group: ManifestGroup,
        /,
        *,
        overlays: Mapping[str, Sequence[Overlay]] | None = None,
        message: str | None = None,
        relative: bool = False,
        checksums: bool = False,
        segment: str | None = None,
        recipe: str | None = None,
        ledger: Sequence[Entry] = (),
        layouts: Mapping[str, Layout] | None = None,
        max_bytes: int = FILL_BYTES,
    ) -> Snapshot:
        """Commit the differences of a group from `group`; without differences, no snapshot is made.

        ``layouts`` are new ones; those of the snapshot stay.
        """
        return write_group(
            self.opened,
            self.snapshot,
            _with(group, self.whole, self.snapshot.layouts) if self.snapshot.layouts else group,
            overlays=overlays,
            message=message,
            relative=relative,
            checksums=checksums,
            segment=segment,
            always=False,
            recipe=recipe,
            ledger=ledger,
            layouts=layouts,
            max_bytes=max_bytes,
        )


_MAX_TRIES = 500
"""How often parts are placed if other writers are faster; of several writers at least one succeeds each time."""

_MAX_WAIT = 16
"""Longest pause between two tries, in the time of one."""


def placed[T](
    store: Stored, allow: Allow, place: Callable[[Stored], T], may_repeat: Callable[[], bool] = lambda: True, /
) -> T:
    """Return what placing parts in a store gives; if another writer was faster, they are placed in its snapshot.

    The parts are not read again. A try that fails costs as much as one that succeeds, so the pauses between tries grow
    with the number of writers that meet. If it fails twice at one snapshot, no other writer is the reason.
    """
    last: int | None = None
    for n in range(_MAX_TRIES):
        begin = time.monotonic()
        try:
            return place(store)
        except ConflictError:
            if not may_repeat() or store.snapshot.number == last:
                raise
            last = store.snapshot.number
            time.sleep(random.uniform(0, (time.monotonic() - begin) * min(1 << n, _MAX_WAIT)))
            store = Stored.newest(store.opened.objects, allow)
    return place(store)


def _without(group: ManifestGroup, layouts: Collection[str], path: str = "") -> ManifestGroup:
    if not layouts:
        return group
    arrays = {name: array for name, array in group.arrays.items() if f"{path}/{name}" not in layouts}
    groups = {name: _without(child, layouts, f"{path}/{name}") for name, child in group.groups.items()}
    return replace(group, arrays=arrays, groups=groups)


def _with(group: ManifestGroup, whole: ManifestGroup, layouts: Collection[str], path: str = "") -> ManifestGroup:
    """Return a group with the layouts of another one."""
    found = {name: array for name, array in whole.arrays.items() if f"{path}/{name}" in layouts}
    for name in found.keys() & group.arrays.keys():
        raise WriterError(
            f"variable '{name}' is new, but the store has it as a layout of another variable",
            Remedy("rename it"),
            variable=name,
            feature="layout",
        )
    groups = {
        name: _with(child, whole.groups[name], layouts, f"{path}/{name}") if name in whole.groups else child
        for name, child in group.groups.items()
    }
    return replace(group, arrays={**group.arrays, **found}, groups=groups)


def save(
    group: ManifestGroup,
    target: str | os.PathLike[str],
    /,
    *,
    storage: StorageLike = None,
    allow: Allow = None,
    path: str | None = None,
    mode: Mode = "w-",
    append_dim: str | None = None,
    region: Region | None = None,
    ordered: bool = True,
    join: JoinToStore = "exact",
    combine_options: Mapping[str, Any] | None = None,
    message: str | None = None,
    relative: bool = False,
    checksums: bool = False,
    progress: Show | None = None,
) -> Snapshot:
    """Make a group the newest snapshot of a store, or add it to the newest snapshot."""
    if mode not in ("w-", "w", "a"):
        raise ValueError(
            f"mode={mode!r}; it must be 'w-', 'w' or 'a'. 'w-' makes a new store or group, 'w' replaces its content in "
            "a new snapshot, and 'a' adds variables to it. append_dim= and region= add to variables"
        )
    path = (path or "").strip("/")
    reached = Storage.from_option(storage)
    objects = ObjectStore(absolute_url(target), reached, allow)
    addition = Addition.from_options(
        mode=mode,
        append_dim=append_dim,
        region=region,
        ordered=ordered,
        join=join,
        combine_options=combine_options,
        storage=reached,
    )
    if addition is not None:

        def place(store: Stored) -> Snapshot:
            return store.add(group, addition, path=path, message=message, relative=relative, checksums=checksums)

        store = Stored.newest(objects, allow)
        return place(store) if region is not None else placed(store, allow, place)
    base = base_of(objects, group, "a" if path else mode)
    opened = OpenStore(objects, permission_for_snapshot(objects.url, base, allow))
    if path or mode == "a":
        stored = ManifestGroup() if base is EMPTY_STORE else Stored(opened, base).whole
        group = with_members(stored, group, path, mode, reached)
    return write_group(opened, base, group, message=message, relative=relative, checksums=checksums, progress=progress)


def base_of(objects: ObjectStore, group: ManifestGroup, mode: Mode) -> Snapshot:
    """Return the snapshot that a group was made from, so that later commits of other writers are not lost.

    If the snapshot of the group was chosen with ``at=``, this is the newest snapshot, because the group replaces all
    later ones.
    """
    number = newest(objects)
    if number is None:
        found = objects.first("")
        if found is not None and not found.startswith(f"{FOLDER}/"):
            raise WriterError(
                f"'{objects.url}' contains other files, such as '{found}', but a vstack needs its own folder. Write "
                "it to another location, for example a new folder in this one",
                feature="existing target",
            )
        return EMPTY_STORE
    url = objects.url.rstrip("/")
    if mode == "w-":
        raise WriterError(
            f"'{url}' is already a vstack; its newest snapshot is {number}",
            Remedy("use {} to append to it", append_dim=...),
            Remedy("use {} to add variables to it", mode="a"),
            Remedy("use {} to replace its content in a new snapshot", mode="w"),
            feature="existing target",
        )
    arrays = (array for _, node in group.walk() for array in node.arrays.values())
    stored = [x for array in arrays for x in stored_in(array.manifest, objects.url)]
    versions = [x.token[1:3] for x in stored if not x.is_chosen]
    if group.version is not None and group.url == url:  # of one whose variables are all loaded
        versions.append(group.version)
    seen = max(versions, default=None)
    if seen is None:
        return read_snapshot(objects, number)
    check_there(objects, *seen)
    return read_snapshot(objects, seen[0])
