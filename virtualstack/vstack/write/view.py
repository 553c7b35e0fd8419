"""Write the zarr view of the newest snapshot, after the commit and apart from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import orjson

from virtualstack.errors import MalformedFileError, SourceNotFoundError, VirtualStackError
from virtualstack.manifests import ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.manifests.serialised.headers import same_header
from virtualstack.storage import LocalTarget, ObjectStore
from virtualstack.storage.target import Puts
from virtualstack.vstack.format.history import (
    MAX_HINT_BYTES,
    VIEW,
    OpenStore,
    hint,
    newest,
    read_snapshot,
    snapshot_bytes,
)
from virtualstack.vstack.format.names import HINT, snapshot_key
from virtualstack.vstack.format.snapshot import ArrayNode, Snapshot
from virtualstack.warning import warn
from virtualstack.zarr.view import find_folders, is_inline, make_view, view_keys


def write_view(
    store: OpenStore,
    head: Snapshot,
    made: Snapshot,
    data: bytes,
    /,
) -> None:
    """Write the zarr view of a snapshot that was committed after another one, and the hint, which carries it.

    If the view shows the snapshot ``head``, only differences are written. At the end each writer checks whether a newer
    snapshot exists, and if so writes its view. So the last of several concurrent writers leaves the view of the newest
    one. If the view cannot be written, a warning is issued, because the snapshot is committed.
    """
    objects = store.objects
    try:
        shown = _shown(objects)
        if shown == head.number:
            group = store.group(made)
            previous = _sharing(store.group(head), group, _unchanged(head, made))
            _put(objects, make_view(group, _is_bundled, previous=previous, storage=objects.storage))
            objects.target.put(HINT, hint(made.number, data))
        else:
            _write_all(store, _since(store, shown, made), made, data)
        while (number := newest(objects) or 0) > made.number:
            shown, (made, data) = made.number, _read(objects, number)
            _write_all(store, _since(store, shown, made), made, data)
    except VirtualStackError as error:
        warn(
            f"snapshot {made.number} of '{objects.url}' is committed, but its view for zarr could not be written: "
            f"{error}. The next commit tries again",
            UserWarning,
        )


def follow(store: OpenStore, /) -> None:
    """Write the view and the hint of the newest snapshot if a killed writer left those of an older one.

    If that fails, the hint does not carry a snapshot: it may be deleted, and a reader that takes it from the hint would
    not notice.
    """
    number, shown = newest(store.objects), _shown(store.objects)
    if number is not None and shown != number:
        if shown is not None:
            store.objects.target.put(HINT, hint(shown))
        made, data = _read(store.objects, number)
        write_view(store, made, made, data)


def _read(objects: ObjectStore, number: int) -> tuple[Snapshot, bytes]:
    """Return a snapshot, and the bytes of its object."""
    data = snapshot_bytes(objects, number)
    return Snapshot.decode(data, number=number, url=objects.url + snapshot_key(number)), data


def _shown(objects: ObjectStore) -> int | None:
    """Return the number of the snapshot that the view shows; ``None`` if it is not known, or shown by another rule."""
    try:
        said = orjson.loads(objects.get(HINT, most=MAX_HINT_BYTES))["attributes"]["virtualstack"]
        return int(said["snapshot"]) if said.get("view") == VIEW else None
    except (SourceNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None


_MAX_LEFT_VIEWS = 16
"""Maximum number of snapshots whose views are searched for objects that killed writers left."""


def _since(store: OpenStore, shown: int | None, made: Snapshot) -> set[str]:
    """Return the keys of all views that may exist in part, from the one shown on, because their writers were killed."""
    first = shown or 0
    there = _keys(store, first) if first < made.number else set()
    for number in range(max(first + 1, made.number - _MAX_LEFT_VIEWS), made.number):
        with suppress(MalformedFileError):  # a damaged snapshot is not the one that the view shows
            there |= _keys(store, number)
    return there


def _keys(store: OpenStore, number: int) -> set[str]:
    """Return the keys of the view of a snapshot; an empty set if it was expired."""
    try:
        group = store.group(read_snapshot(store.objects, number))
        return view_keys(group, _once_loaded_in(group))
    except SourceNotFoundError:
        return set()


def _write_all(store: OpenStore, there: set[str], made: Snapshot, data: bytes) -> None:
    """Write a whole view, and delete the remains of other views; other files are not touched."""
    objects, group = store.objects, store.group(made)
    _put(objects, make_view(group, _is_bundled, existing=there, storage=objects.storage))
    objects.target.put(HINT, hint(made.number, data))


def _is_bundled(array: ManifestArray) -> bool:
    """Return whether an array has chunks in the view: the bundle has its values, and no other object has."""
    return isinstance(array.manifest, ChunkManifest)


_MAX_LOADED_BYTES = 1 << 32
"""Maximum bytes of all arrays that had chunks in the views of earlier versions."""


def _once_loaded_in(group: ManifestGroup) -> Callable[[ManifestArray], bool]:
    """Return a function that returns whether an array had chunks in the view by the rule of earlier versions.

    These were arrays that were written as values; if they were too large together, only the smallest ones.
    """
    nodes = [node for _, node in group.walk()]
    arrays = [(name in node.loaded, array) for node in nodes for name, array in node.arrays.items()]
    sizes = [
        (array.size * max(array.itemsize, 1), id(array))
        for was, array in arrays
        if was or (isinstance(array.manifest, ChunkManifest) and is_inline(array))
    ]
    loaded, left = set[int](), _MAX_LOADED_BYTES
    for size, array in sorted(sizes, key=itemgetter(0)):
        left -= size
        if left >= 0:
            loaded.add(array)
    return lambda array: id(array) in loaded


def _unchanged(head: Snapshot, made: Snapshot) -> frozenset[str]:
    """Return the paths of the arrays with unchanged placements and metadata."""
    both = head.arrays.keys() & made.arrays.keys()
    pairs = {path: (head.arrays[path], made.arrays[path]) for path in both}
    return frozenset(path for path, (a, b) in pairs.items() if b.bundled is None and _is_same(a, b))


def _is_same(a: ArrayNode, b: ArrayNode) -> bool:
    """Return whether two arrays have the same placements, tables, grid and metadata, and are not bundled."""
    x, y = a.header, b.header
    tables = (x.encodings, x.fills) == (y.encodings, y.fills)
    return a.placements == b.placements and a.bundled is None and tables and same_header(x, y)


def _sharing(group: ManifestGroup, other: ManifestGroup, paths: frozenset[str], at: str = "") -> ManifestGroup:
    """Return a group with the arrays of another group at some paths, so that their values need not be compared."""
    arrays = {name: other.arrays[name] if f"{at}/{name}" in paths else array for name, array in group.arrays.items()}
    groups = {
        name: _sharing(child, other.groups[name], paths, f"{at}/{name}") if name in other.groups else child
        for name, child in group.groups.items()
    }
    return replace(group, arrays=arrays, groups=groups)


def _put(objects: ObjectStore, changes: Iterable[tuple[str, bytes | None]]) -> None:
    """Write and delete in the given order; consecutive objects of one kind are written concurrently."""
    for is_there, run in groupby(changes, lambda change: (change[1] is not None, change[0].endswith("zarr.json"))):
        if not is_there[0]:
            keys = [key for key, _ in run]
            for key in keys:
                objects.target.delete(key)
            if isinstance(objects.target, LocalTarget):  # a file may replace a folder
                for folder in {x for key in keys for x in find_folders(key) if x.endswith("/c")}:
                    objects.target.delete_folder(folder)
            continue
        puts = Puts(objects.target)
        for key, data in run:
            if data is not None:
                puts.put(key, data)
        puts.close()
