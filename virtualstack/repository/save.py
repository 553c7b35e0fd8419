"""Datasets and trees become the newest snapshot of a store."""

from __future__ import annotations

import os
from typing import Literal

from virtualstack.errors import WriterError
from virtualstack.formats.manifest_store.history import newest, read_snapshot
from virtualstack.formats.manifest_store.snapshot import Snapshot
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.readers.manifest_store import permission_of
from virtualstack.storage import ObjectStore, Storage, StorageLike
from virtualstack.writers.manifest_store.commit import EMPTY_STORE
from virtualstack.writers.manifest_store.write import write_group

__all__ = ["save"]


def save(
    group: ManifestGroup,
    target: str | os.PathLike[str],
    /,
    *,
    storage: StorageLike = None,
    mode: Literal["w-", "w"] = "w-",
    message: str | None = None,
    relative: bool = False,
) -> Snapshot:
    """Make a group the newest snapshot of a store, of a new one with ``mode="w-"``.

    Raises
    ------
    WriterError
        There is a store already, with ``mode="w-"``; or an attribute has no form in it.
    ConflictError
        Another writer has changed the same meanwhile.
    StorageError
        The store cannot be written.
    """
    objects = ObjectStore(absolute_url(target).rstrip("/") + "/", Storage.of(storage))
    base = _base(objects, mode)
    return write_group(objects, base, group, permission_of(objects.url, base, ()), message=message, relative=relative)


def _base(objects: ObjectStore, mode: Literal["w-", "w"]) -> Snapshot:
    number = newest(objects)
    if number is None:
        return EMPTY_STORE
    if mode == "w-":
        url = objects.url.rstrip("/")
        raise WriterError(
            f"'{url}' is a manifest store already, of {number + 1} snapshots: give append_dim= to append to it, or "
            "mode='w' to put this into its place in a new snapshot",
            feature="existing target",
        )
    return read_snapshot(objects, number)
