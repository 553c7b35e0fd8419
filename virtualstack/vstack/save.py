"""Datasets and trees become the newest snapshot of a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from virtualstack.combine.append import appended
from virtualstack.combine.fitting import Fitting
from virtualstack.combine.region import Region, placed
from virtualstack.errors import WriterError
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.storage import Allow, ObjectStore, Storage, StorageLike
from virtualstack.vstack.format.history import newest, read_snapshot
from virtualstack.vstack.format.names import FOLDER
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.reader import permission_of
from virtualstack.vstack.stored import Stored
from virtualstack.vstack.write.commit import EMPTY_STORE, check_there
from virtualstack.vstack.write.placing import stored_in
from virtualstack.vstack.write.write import write_group

__all__ = ["append", "place", "save"]


def save(
    group: ManifestGroup,
    target: str | os.PathLike[str],
    /,
    *,
    storage: StorageLike = None,
    allow: Allow = None,
    mode: Literal["w-", "w"] = "w-",
    message: str | None = None,
    relative: bool = False,
) -> Snapshot:
    """Make a group the newest snapshot of a store, of a new one with ``mode="w-"``.

    What the store that is there may refer to is as ``allow`` has it; see `Permission`.

    Raises
    ------
    ValueError
        There is no such mode.
    WriterError
        There is a store already, with ``mode="w-"``; or an attribute has no form in it.
    ConflictError
        Another writer has changed the same meanwhile.
    StorageError
        The store cannot be written.
    """
    if mode not in ("w-", "w"):
        raise ValueError(
            f"mode={mode!r}; it is 'w-' for a new store, or 'w' to replace what one holds in a new snapshot; "
            "append_dim= and region= add to it"
        )
    objects = ObjectStore(absolute_url(target).rstrip("/") + "/", Storage.of(storage), allow)
    base = _base(objects, group, mode)
    permission = permission_of(objects.url, base, allow)
    return write_group(objects, base, group, permission, message=message, relative=relative)


def append(
    group: ManifestGroup,
    target: str | os.PathLike[str],
    dim: str,
    /,
    *,
    storage: StorageLike = None,
    allow: Allow = None,
    ordered: bool = True,
    join: Literal["exact", "left", "outer"] = "exact",
    combine_options: Mapping[str, Any] | None = None,
    message: str | None = None,
    relative: bool = False,
) -> Snapshot:
    """Put a group behind what a store holds along a dimension.

    Parameters
    ----------
    group, target, dim
        What is added, and where.
    allow
        See :class:`~virtualstack.storage.Permission`.
    ordered
        Whether labels must ascend.
    join, combine_options
        See :class:`~virtualstack.combine.fitting.Fitting`.

    Raises
    ------
    CombineError
        They do not fit.
    SourceNotFoundError
        There is no store.
    ConflictError
        Another writer has changed the same meanwhile.
    StorageError
        The store cannot be written.
    """
    store, fitting = _opened(target, storage, allow, join, combine_options)
    made = appended(store.group, group, dim, fitting, ordered=ordered)
    return store.write(made, message=message, relative=relative)


def place(
    group: ManifestGroup,
    target: str | os.PathLike[str],
    region: Region,
    /,
    *,
    storage: StorageLike = None,
    allow: Allow = None,
    combine_options: Mapping[str, Any] | None = None,
    message: str | None = None,
    relative: bool = False,
) -> Snapshot:
    """Put a group over a region of what a store holds.

    Parameters
    ----------
    group, target, region
        What is put where.
    allow
        See :class:`~virtualstack.storage.Permission`.
    combine_options
        See :class:`~virtualstack.combine.fitting.Fitting`.

    Raises
    ------
    CombineError
        They do not fit.
    SourceNotFoundError
        There is no store.
    ConflictError
        Another writer has changed the same meanwhile.
    StorageError
        The store cannot be written.
    """
    store, fitting = _opened(target, storage, allow, "exact", combine_options)
    made, overlays = placed(store.group, group, region, fitting)
    return store.write(made, overlays=overlays, message=message, relative=relative)


def _opened(
    target: str | os.PathLike[str], storage: StorageLike, allow: Allow, join: str, options: Mapping[str, Any] | None
) -> tuple[Stored, Fitting]:
    reached = Storage.of(storage)
    fitting = Fitting.of(join=join, options=options, storage=reached)
    return Stored.newest(ObjectStore(absolute_url(target).rstrip("/") + "/", reached, allow), allow), fitting


def _base(objects: ObjectStore, group: ManifestGroup, mode: Literal["w-", "w"]) -> Snapshot:
    """Give the snapshot that a group was made of: what was committed since is not to be lost.

    It is the newest for a group of a snapshot that was asked for, which is to come into the place of all since.
    """
    number = newest(objects)
    if number is None:
        found = objects.first("")
        if found is not None and not found.startswith(f"{FOLDER}/"):
            raise WriterError(
                f"'{objects.url}' holds other files, such as '{found}', and a vstack is a folder of its own: "
                "write it to another place, such as a folder in that one",
                feature="existing target",
            )
        return EMPTY_STORE
    url = objects.url.rstrip("/")
    if mode == "w-":
        raise WriterError(
            f"'{url}' is a vstack already, of {number + 1} snapshots: give append_dim= to append to it, or "
            "mode='w' to put this into its place in a new snapshot",
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
