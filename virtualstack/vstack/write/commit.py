"""Commit an edit as the newest snapshot of a store, atomically."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import replace

from virtualstack.errors import (
    Code,
    ConflictError,
    MalformedFileError,
    Remedy,
    SourceNotFoundError,
    StorageError,
    WriterError,
    check_type,
)
from virtualstack.storage import ObjectStore, Target
from virtualstack.vstack.format.archive import Segment
from virtualstack.vstack.format.documents import decoded_size
from virtualstack.vstack.format.history import (
    MAX_BUNDLE_BYTES,
    ROOT,
    OpenStore,
    newest,
    read_snapshot,
)
from virtualstack.vstack.format.names import HINT, ROOT_KEY, bundle_key, made_at, new_id, segment_folder, snapshot_key
from virtualstack.vstack.format.snapshot import Bundle, Snapshot
from virtualstack.vstack.write.conflicts import check_together, describe_changes, rebased
from virtualstack.vstack.write.edit import Edit, applied
from virtualstack.vstack.write.hint import write_hint
from virtualstack.warning import warn

GRACE_SECONDS = 86400.0
"""Default seconds for which expiry keeps unused objects, and snapshots that were the newest."""

EMPTY_STORE = Snapshot(number=-1, time=0.0, groups={})
"""The state of a store before the first commit."""


def commit(
    store: OpenStore,
    base: Snapshot,
    edit: Edit,
    /,
    *,
    message: str | None = None,
    has_hint: bool = True,
) -> Snapshot:
    """Commit an edit of a snapshot as the newest snapshot, and write the hint.

    The commit is the creation of the snapshot's object, which fails if another writer has created the same number. Then
    the edit is applied to the other writer's snapshot, unless both change the same metadata or cells.
    """
    check_type("message", message, str | None, "a text")
    objects, target = store.objects, store.objects.target
    if edit.segment is not None:
        _check_kept(edit.segment, edit.keys, objects)
    number = None
    while True:
        head = _head(objects, base)  # even if `base` was the newest: expiry may have freed the next number
        if number == head.number + 1:
            raise StorageError(
                f"'{objects.url}{snapshot_key(number)}' exists, but is not listed, and nothing was committed. Try "
                "again later",
                url=objects.url,
            )
        archive = store.archive(head)
        if edit.is_empty and head is not base:
            raise _nothing_to_do(objects, base)
        change = edit if head is base else rebased(edit, base, head, archive)
        made = applied(change, head, archive, target)
        if head is not base:
            check_together(made, change, base, head, archive)
        made = _bundled(made, change, head, store)
        now = _now(head.time)
        number = head.number + 1
        made = replace(made, number=number, time=now, message=message, changes=describe_changes(head, made))
        data, read = _encoded(made, objects.url)
        if _create(snapshot_key(number), data, target):
            break
    if has_hint:
        _announce(objects, number, data)
    return read


def _announce(objects: ObjectStore, number: int, data: bytes) -> None:
    """Write the hint of a new snapshot, and in a new store the object that zarr tools refuse; failing is no error."""
    try:
        if number == 0:
            objects.target.put(ROOT_KEY, ROOT)
        write_hint(objects, number, data)
    except StorageError as error:
        warn(
            f"snapshot {number} of '{objects.url}' is committed, but '{HINT}' could not be written, so that opening "
            f"the store where it cannot be listed takes more requests: {error}. The next commit tries again",
            UserWarning,
        )


def _nothing_to_do(objects: ObjectStore, base: Snapshot) -> ConflictError:
    return ConflictError(
        f"nothing was changed since snapshot {base.number} of '{objects.url.rstrip('/')}' was opened, but it is no "
        "longer the newest snapshot",
        Remedy(
            "to restore it, open it by its number, with {}, and write that",
            reader=Code(f"vs.readers.VStack(at={base.number})"),
        ),
    )


def _now(last: float) -> float:
    """Return the time now, but later than ``last``, in whole microseconds, the resolution of texts and `datetime`."""
    return max(round(time.time(), 6), round(last + 1e-6, 6), math.nextafter(last, math.inf))


def _encoded(made: Snapshot, url: str) -> tuple[bytes, Snapshot]:
    """Return the bytes of a snapshot, and the snapshot as readers of the store will have it.

    A snapshot that no reader accepts would hide the snapshots before it.
    """
    data = made.encode()
    try:
        return data, Snapshot.decode(data, number=made.number, url=url + snapshot_key(made.number))
    except MalformedFileError as error:
        raise WriterError(
            f"'{url}' could not be read with this change, and nothing was committed: {error.__cause__ or error}. "
            "Write the variables to several stores"
        ) from error


_PAUSES = 0.1, 0.5, 2.0
"""Seconds between the tries to create a snapshot."""


def _create(key: str, data: bytes, target: Target) -> bool:
    """Create an object, and return whether it has these bytes now; a lost answer to an earlier try does not matter.

    Connections break, and S3 may refuse the condition for a moment (status 409) although the key is absent.
    """
    for pause in (0.0, *_PAUSES):
        time.sleep(pause)
        try:
            if target.put_if_absent(key, data):
                return True
            error = StorageError(
                f"'{target.url}{key}' cannot be created: the server answers that it exists, but does not return it. "
                "Nothing was committed",
                url=target.url,
            )
        except StorageError as failed:
            error = failed
        with contextlib.suppress(StorageError):
            return target.get(key) == data
        if isinstance(error.__cause__, PermissionError):
            break
    raise error


def _head(objects: ObjectStore, base: Snapshot) -> Snapshot:
    """Return the newest snapshot, which is ``base`` itself if no other writer has committed."""
    number = newest(objects)
    if base.number < 0 and number is None:
        return base
    if number is None or number < base.number:
        raise StorageError(
            f"the snapshots of '{objects.url}' were deleted during this write, and nothing was committed. Restore "
            "the store, or write it again",
            url=objects.url,
        )
    if number == base.number:
        return base
    if base.number >= 0:
        check_there(objects, base.number, base.time)
    return read_snapshot(objects, number)


def check_there(objects: ObjectStore, number: int, time: float, /) -> None:
    """Check that a snapshot still exists whose objects a change refers to."""
    try:
        is_there = read_snapshot(objects, number).time == time
    except SourceNotFoundError:
        is_there = False
    if not is_there:
        raise ConflictError(
            f"this change is based on snapshot {number} of '{objects.url.rstrip('/')}', which has expired. "
            "Nothing was committed",
            Remedy("open the store again, and repeat the change"),
        )


def _check_kept(segment: Segment, keys: Sequence[str], objects: ObjectStore) -> None:
    """Check that expiry has not deleted a segment that was written long ago and is not committed yet."""
    if time.time() - made_at(segment.name) < GRACE_SECONDS / 2:
        return
    kept = objects.target.list(segment_folder(segment.name))
    if not set(keys) <= set(kept):
        raise ConflictError(
            f"files of this change were deleted from '{objects.url.rstrip('/')}' by an expire before the commit, and "
            "nothing was committed",
            Remedy("write it again, and call expire with a longer grace period than writers need"),
        )


def _bundled(made: Snapshot, edit: Edit, head: Snapshot, store: OpenStore) -> Snapshot:
    """Write all loaded variables into one object."""
    chunks = {path: change.chunk for path, change in edit.arrays.items() if change.chunk is not None}
    kept = {path: node.bundled for path, node in made.arrays.items() if node.bundled is not None}
    was = {path for path, node in head.arrays.items() if node.bundled is not None}
    if not chunks and kept.keys() == was:
        return made
    old = store.bundle(head) if kept else b""
    for path, (offset, length) in kept.items():
        chunks[path] = old[offset : offset + length]
    if not chunks:
        return replace(made, bundle=None)
    arrays, offset = dict(made.arrays), 0
    for path in sorted(chunks):
        arrays[path] = replace(arrays[path], bundled=(offset, len(chunks[path])))
        offset += len(chunks[path])
    name, data = new_id(), b"".join(chunks[path] for path in sorted(chunks))
    if max(len(data), sum(map(decoded_size, chunks.values()))) > MAX_BUNDLE_BYTES:
        raise WriterError(
            f"'{store.objects.url}' would have more than {MAX_BUNDLE_BYTES} bytes of loaded coordinates and small "
            "variables",
            Remedy("write some of them to another store"),
        )
    store.objects.target.put(bundle_key(name), data)
    store.bundles[name] = data
    return replace(made, arrays=arrays, bundle=Bundle.from_bytes(name, data))
