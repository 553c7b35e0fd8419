"""The zarr view of the newest snapshot: written after a commit, of which it is no part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import orjson

from virtualstack.errors import MalformedFileError, SourceNotFoundError, VirtualStackError
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.manifests.serialised.headers import same_header
from virtualstack.storage import LocalTarget, ObjectStore
from virtualstack.storage.target import Puts
from virtualstack.vstack.format.archive import ReadPermission
from virtualstack.vstack.format.documents import MAX_DOCUMENT_BYTES
from virtualstack.vstack.format.history import Bundles, hint, newest, open_archive, read_group, read_snapshot
from virtualstack.vstack.format.names import HINT
from virtualstack.vstack.format.snapshot import ArrayNode, Snapshot
from virtualstack.warning import warn
from virtualstack.zarr.view import array_at, find_folders, in_the_way, is_inline, make_view

__all__ = ["follow", "write_view"]


def write_view(
    objects: ObjectStore,
    head: Snapshot,
    made: Snapshot,
    permission: ReadPermission,
    bundles: Bundles | None = None,
    /,
) -> None:
    """Let zarr see a snapshot that was committed upon another one.

    Where the view is that of the other one, only what differs is written. Writers that are at it side by side all look
    whether theirs is the newest snapshot when they are done, so that whoever is last leaves the view of that one.
    A view that cannot be written is a warning: the snapshot is there.
    """
    try:
        shown = _shown(objects)
        if shown == head.number:
            group = _group(objects, made, permission, bundles)
            previous = _sharing(_group(objects, head, permission, bundles), group, _unchanged(head, made))
            changes = make_view(
                group,
                _loaded_in(group),
                previous=previous,
                was_loaded=_loaded_in(previous),
                storage=objects.storage,
            )
            _put(objects, changes)
            objects.target.put(HINT, hint(made.number))
        else:
            _write_all(objects, _since(objects, shown, made, permission), made, permission)
        while (number := newest(objects) or 0) > made.number:
            shown, made = made.number, read_snapshot(objects, number)
            _write_all(objects, _since(objects, shown, made, permission), made, permission)
    except VirtualStackError as error:
        warn(
            f"snapshot {made.number} of '{objects.url}' is committed, but zarr's view of it is not there: {error}. The "
            "next commit tries again",
            UserWarning,
        )


def follow(objects: ObjectStore, permission: ReadPermission, /) -> None:
    """Let zarr see the newest snapshot where a killed writer left the view of an older one, while that one is there."""
    number = newest(objects)
    if number is not None and _shown(objects) != number:
        made = read_snapshot(objects, number)
        write_view(objects, made, made, permission)


def _shown(objects: ObjectStore) -> int | None:
    """Give the number of the snapshot that the view shows, as far as it is known."""
    try:
        return int(orjson.loads(objects.get(HINT, most=MAX_DOCUMENT_BYTES))["attributes"]["virtualstack"]["snapshot"])
    except (SourceNotFoundError, ValueError, KeyError, TypeError):
        return None


_MAX_LEFT_VIEWS = 16
"""Snapshots whose views are looked at for what killed writers left of them, besides the one that is shown."""


def _since(objects: ObjectStore, shown: int | None, made: Snapshot, permission: ReadPermission) -> set[str]:
    """Give the keys of the views that may be there, in part: of snapshots whose writers were killed at it."""
    first = shown or 0
    there = _keys(objects, first, permission) if first < made.number else set()
    for number in range(max(first + 1, made.number - _MAX_LEFT_VIEWS), made.number):
        with suppress(MalformedFileError):  # what is damaged is not what is shown
            there |= _keys(objects, number, permission)
    return there


def _keys(objects: ObjectStore, number: int, permission: ReadPermission) -> set[str]:
    """Give the keys of the view of a snapshot; none where it was expired."""
    try:
        group = _group(objects, read_snapshot(objects, number), permission)
        return {key for key, _ in make_view(group, _loaded_in(group), storage=objects.storage)}
    except SourceNotFoundError:
        return set()


def _write_all(objects: ObjectStore, there: set[str], made: Snapshot, permission: ReadPermission) -> None:
    """Write all of a view, and delete what others may have had beyond; nothing else that lies there is touched.

    Metadata of arrays whose chunks are written go first, so that nobody reads those by what they were.
    """
    group = _group(objects, made, permission)
    found = list(make_view(group, _loaded_in(group), storage=objects.storage))
    keys = {key for key, _ in found}
    chunks = [array_at(key) for key in keys if not key.endswith("zarr.json")]
    hidden = {f"{path}/zarr.json" for path in chunks} & there
    gone = [*sorted(hidden), *in_the_way(there, keys)]
    before, behind = ([(key, None) for key in each] for each in (gone, sorted(there - keys - set(gone))))
    _put(objects, [*before, *found, *behind])
    objects.target.put(HINT, hint(made.number))


def _group(
    objects: ObjectStore, snapshot: Snapshot, permission: ReadPermission, bundles: Bundles | None = None
) -> ManifestGroup:
    return read_group(snapshot, open_archive(snapshot, objects, permission), bundles=bundles)


_MAX_LOADED_BYTES = 1 << 32
"""Bytes of the arrays of a view that have chunks in it: few bytes of a store may say that it has any number of them."""


def _loaded_in(group: ManifestGroup) -> Callable[[ManifestArray], bool]:
    """Give what tells which arrays have chunks in the view: those that were values when they were written.

    Where these are large together, the smallest of them have; others are shown as virtual ones.
    """
    nodes = [node for _, node in group.walk()]
    arrays = [(name in node.loaded, array) for node in nodes for name, array in node.arrays.items()]
    sizes = [(array.size * max(array.itemsize, 1), id(array)) for was, array in arrays if was or is_inline(array)]
    loaded, left = set[int](), _MAX_LOADED_BYTES
    for size, array in sorted(sizes, key=itemgetter(0)):
        left -= size
        if left >= 0:
            loaded.add(array)
    return lambda array: id(array) in loaded


def _unchanged(head: Snapshot, made: Snapshot) -> frozenset[str]:
    """Give the paths of the arrays that are as they were: chunks where they were, under the same metadata."""
    both = head.arrays.keys() & made.arrays.keys()
    pairs = {path: (head.arrays[path], made.arrays[path]) for path in both}
    return frozenset(path for path, (a, b) in pairs.items() if b.bundled is None and _is_same(a, b))


def _is_same(a: ArrayNode, b: ArrayNode) -> bool:
    """Tell whether two arrays have the same chunks, of the same form, and the same metadata."""
    x, y = a.header, b.header
    tables = (x.encodings, x.fills) == (y.encodings, y.fills)
    return a.placements == b.placements and a.bundled is None and tables and x.grid == y.grid and same_header(x, y)


def _sharing(group: ManifestGroup, other: ManifestGroup, paths: frozenset[str], at: str = "") -> ManifestGroup:
    """Give a group with those arrays of another one whose chunks are the same: nobody has to compare their values."""
    arrays = {name: other.arrays[name] if f"{at}/{name}" in paths else array for name, array in group.arrays.items()}
    groups = {
        name: _sharing(child, other.groups[name], paths, f"{at}/{name}") if name in other.groups else child
        for name, child in group.groups.items()
    }
    return replace(group, arrays=arrays, groups=groups)


def _put(objects: ObjectStore, changes: Iterable[tuple[str, bytes | None]]) -> None:
    """Write and delete in the order given; objects of one kind that follow each other side by side."""
    for is_there, run in groupby(changes, lambda change: (change[1] is not None, change[0].endswith("zarr.json"))):
        if not is_there[0]:
            keys = [key for key, _ in run]
            for key in keys:
                objects.target.delete(key)
            if isinstance(objects.target, LocalTarget):  # a file may come into the place of a folder
                for folder in {x for key in keys for x in find_folders(key) if x.endswith("/c")}:
                    objects.target.delete_folder(folder)
            continue
        puts = Puts(objects.target)
        for key, data in run:
            if data is not None:
                puts.put(key, data)
        puts.close()
