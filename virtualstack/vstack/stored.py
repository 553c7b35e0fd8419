"""The newest snapshot of a store as a group that changes are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from virtualstack.combine.addition import Addition
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.manifest import Overlay
from virtualstack.storage import Allow, ObjectStore
from virtualstack.vstack.format.archive import Permission
from virtualstack.vstack.format.history import archive_of, group_of
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.reader import check_labels, open_snapshot, permission_of
from virtualstack.vstack.write.write import write_group

__all__ = ["Stored"]


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
    """

    objects: ObjectStore
    snapshot: Snapshot
    permission: Permission

    @classmethod
    def newest(cls, objects: ObjectStore, allow: Allow = None, /) -> Stored:
        """Read the newest snapshot.

        Raises
        ------
        SourceNotFoundError
            There is no store.
        """
        snapshot = open_snapshot(objects, None)
        return cls(objects, snapshot, permission_of(objects.url, snapshot, allow))

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
        return group_of(self.snapshot, archive_of(self.snapshot, self.objects, self.permission))

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
        )
