"""Write datasets and trees as the newest snapshot of a store, or add them to what it holds."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from virtualstack.combine.addition import Addition
from virtualstack.combine.region import Region
from virtualstack.errors import WriterError
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.manifest import Overlay
from virtualstack.storage import Allow, ObjectStore, Storage, StorageLike
from virtualstack.vstack.format.archive import ReadPermission
from virtualstack.vstack.format.history import Bundles, newest, open_archive, read_group, read_snapshot
from virtualstack.vstack.format.names import FOLDER
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.reader import check_labels, open_snapshot, permission_for_snapshot
from virtualstack.vstack.write.commit import EMPTY_STORE, check_there
from virtualstack.vstack.write.placing import stored_in
from virtualstack.vstack.write.write import write_group

__all__ = ["Stored", "save"]


@dataclass(frozen=True)
class Stored:
    """A store as it stands when a change of it is begun; made by :meth:`newest`.

    Parameters
    ----------
    objects
        Of the store.
    snapshot
        The newest.
    permission
        What it may read.
    bundles
        Bundles of the store that this change has read.
    """

    objects: ObjectStore
    snapshot: Snapshot
    permission: ReadPermission
    bundles: Bundles = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def newest(cls, objects: ObjectStore, allow: Allow = None, /) -> Stored:
        """Read the newest snapshot.

        Raises
        ------
        SourceNotFoundError
            There is no store.
        """
        snapshot = open_snapshot(objects, None)
        return cls(objects, snapshot, permission_for_snapshot(objects.url, snapshot, allow))

    @property
    def url(self) -> str:
        """URL of the store, without the last ``/``."""
        return self.objects.url.rstrip("/")

    @cached_property
    def group(self) -> ManifestGroup:
        """Everything in it; manifests are read when they are needed.

        Raises
        ------
        UnsupportedFeatureError
            Its coordinates are too long, which are compared and written anew with the next snapshot.
        """
        check_labels(self.snapshot, self.url)
        archive = open_archive(self.snapshot, self.objects, self.permission)
        return read_group(self.snapshot, archive, bundles=self.bundles)

    def add(
        self, group: ManifestGroup, addition: Addition, /, *, message: str | None = None, relative: bool = False
    ) -> Snapshot:
        """Commit this with a group behind it, or over a region of it.

        Raises
        ------
        CombineError
            The group does not fit what the store holds.
        ConflictError
            Another writer has changed the same meanwhile.
        """
        made, overlays = addition.add(self.group, group)
        return self.write(made, overlays=overlays, message=message, relative=relative)

    def write(
        self,
        group: ManifestGroup,
        /,
        *,
        overlays: Mapping[str, Sequence[Overlay]] | None = None,
        message: str | None = None,
        relative: bool = False,
        segment: str | None = None,
    ) -> Snapshot:
        """Commit what a group has beyond this one; where it has nothing, there is no new snapshot.

        Raises
        ------
        ConflictError
            Another writer has changed the same meanwhile.
        """
        return write_group(
            self.objects,
            self.snapshot,
            group,
            self.permission,
            overlays=overlays,
            message=message,
            relative=relative,
            segment=segment,
            always=False,
            bundles=self.bundles,
        )


def save(
    group: ManifestGroup,
    target: str | os.PathLike[str],
    /,
    *,
    storage: StorageLike = None,
    allow: Allow = None,
    mode: Literal["w-", "w"] = "w-",
    append_dim: str | None = None,
    region: Region | None = None,
    ordered: bool = True,
    join: Literal["exact", "left", "outer"] = "exact",
    combine_options: Mapping[str, Any] | None = None,
    message: str | None = None,
    relative: bool = False,
) -> Snapshot:
    """Make a group the newest snapshot of a store, or add it to what the newest snapshot holds.

    Parameters
    ----------
    group, target
        What is written, and where.
    storage
        See :func:`virtualstack.open_virtual_dataset`.
    allow
        What the store that is there may refer to: see :class:`~virtualstack.storage.Permission`.
    mode
        ``"w-"`` for a new store; ``"w"`` to replace what one holds in a new snapshot.
    append_dim, region, ordered, join, combine_options
        See :class:`~virtualstack.combine.addition.Addition`.
    message
        What the snapshot is, for the log.
    relative
        Write the locations of sources in the folder that holds the store relative to it.

    Raises
    ------
    ValueError
        There is no such mode, or options do not go together.
    WriterError
        There is a store already, with ``mode="w-"``; or an attribute has no form in it.
    CombineError
        The group does not fit what the store holds.
    SourceNotFoundError
        There is no store to add to.
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
    reached = Storage.from_option(storage)
    objects = ObjectStore(absolute_url(target).rstrip("/") + "/", reached, allow)
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
        return Stored.newest(objects, allow).add(group, addition, message=message, relative=relative)
    base = _base(objects, group, mode)
    permission = permission_for_snapshot(objects.url, base, allow)
    return write_group(objects, base, group, permission, message=message, relative=relative)


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
