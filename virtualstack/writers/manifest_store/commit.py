"""Making an edit the newest snapshot of a store: at once, or not at all."""

from __future__ import annotations

import time
from dataclasses import replace

from virtualstack.errors import StorageError
from virtualstack.formats.manifest_store.archive import Permission
from virtualstack.formats.manifest_store.history import archive_of, bundle_bytes, newest, read_snapshot
from virtualstack.formats.manifest_store.names import bundle_key, new_id, snapshot_key
from virtualstack.formats.manifest_store.snapshot import Bundle, Snapshot
from virtualstack.formats.manifest_store.sources import Prefixes
from virtualstack.location import local_path
from virtualstack.storage import ObjectStore
from virtualstack.storage.trust import sign
from virtualstack.writers.manifest_store.edit import Edit, applied, check_conflicts
from virtualstack.writers.manifest_store.view import write_view

__all__ = ["EMPTY_STORE", "commit"]

EMPTY_STORE = Snapshot(number=-1, time=0.0, groups={})
"""What there is before the first commit."""


def commit(
    objects: ObjectStore, base: Snapshot, edit: Edit, permission: Permission, /, *, message: str | None = None
) -> Snapshot:
    """Make an edit of a snapshot the newest one.

    The object of the snapshot is created only where there is none of its number, which is the commit. Where another
    writer was faster, the edit is made of that one's snapshot, unless both change the same.

    Raises
    ------
    ConflictError
        Another writer has changed the same since ``base``; nothing is committed.
    StorageError
        The store cannot be written.
    """
    target, head = objects.target, base
    while True:
        archive = archive_of(head, objects, permission)
        made = applied(edit, head, archive, target)
        made = _bundled(made, edit, head, objects)
        made = replace(made, signatures=_signatures(made, head, objects.url))
        made = replace(made, number=head.number + 1, time=max(time.time(), head.time), message=message)
        data = made.encode()
        key = snapshot_key(made.number)
        if target.put_if_absent(key, data) or target.get(key) == data:  # whose answer was lost, and that was sent again
            break
        number = newest(objects)
        if number is None or number <= head.number:
            raise StorageError(f"'{objects.url}' has lost its snapshots while it was written", url=objects.url)
        head = read_snapshot(objects, number)
        check_conflicts(edit, base, head, archive_of(head, objects, permission))
    write_view(objects, head, made, permission)
    return made


def _signatures(made: Snapshot, head: Snapshot, url: str) -> tuple[str, ...]:
    """Sign which places a snapshot names, where local files are among them, and keep what others have signed so."""
    prefixes = Prefixes(store=url, table=made.prefixes, moved=made.moved)
    if not any(local_path(prefixes.root(begin)) for begin in prefixes.begins()):
        return ()
    is_same = (made.prefixes, made.moved) == (head.prefixes, head.moved)
    own = sign(prefixes.signed())
    return tuple(dict.fromkeys([*(head.signatures if is_same else ()), *([] if own is None else [own])]))


def _bundled(made: Snapshot, edit: Edit, head: Snapshot, objects: ObjectStore) -> Snapshot:
    """Put all loaded variables together into one object."""
    chunks = {path: change.chunk for path, change in edit.arrays.items() if change.chunk is not None}
    kept = {path: node.bundled for path, node in made.arrays.items() if node.bundled is not None}
    was = {path for path, node in head.arrays.items() if node.bundled is not None}
    if not chunks and kept.keys() == was:
        return made
    old = bundle_bytes(head, objects) if kept else b""
    for path, (offset, length) in kept.items():
        chunks[path] = old[offset : offset + length]
    if not chunks:
        return replace(made, bundle=None)
    arrays, offset = dict(made.arrays), 0
    for path in sorted(chunks):
        arrays[path] = replace(arrays[path], bundled=(offset, len(chunks[path])))
        offset += len(chunks[path])
    name = new_id()
    objects.target.put(bundle_key(name), b"".join(chunks[path] for path in sorted(chunks)))
    return replace(made, arrays=arrays, bundle=Bundle(name, offset))
