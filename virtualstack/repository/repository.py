"""A manifest store and its history."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

from virtualstack.formats.manifest_store.snapshot import Snapshot
from virtualstack.location import absolute_url
from virtualstack.readers.manifest_store import open_snapshot, permission_of
from virtualstack.repository.relocate import relocate
from virtualstack.repository.stored import Stored
from virtualstack.repository.values import write
from virtualstack.storage import ObjectStore, Storage, StorageLike
from virtualstack.storage.permission import Allow

__all__ = ["Repository"]


@dataclass(frozen=True)
class Repository:
    """A manifest store at one of its snapshots; made by :meth:`open`.

    Parameters
    ----------
    objects
        Of the store.
    snapshot
        That is looked at, and that changes are made to.
    allow
        What it may read beyond what any store may.
    """

    objects: ObjectStore
    snapshot: Snapshot
    allow: Allow = ()

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        /,
        *,
        at: int | None = None,
        allow: Allow = (),
        storage: StorageLike = None,
    ) -> Repository:
        """Open a store at its newest snapshot, or at another one.

        Parameters
        ----------
        url
            Local path or URL of the store.
        at
            Number of a snapshot.
        allow
            URLs of folders and files that chunks may be read from, beyond those that a store may name.
        storage
            See :func:`virtualstack.open_virtual_dataset`.

        Raises
        ------
        SourceNotFoundError
            There is no store, or no such snapshot.
        """
        objects = ObjectStore(absolute_url(url).rstrip("/") + "/", Storage.of(storage))
        return cls(objects, open_snapshot(objects, at), allow)

    def relocate(
        self,
        folders: Mapping[str | os.PathLike[str], str | os.PathLike[str]],
        /,
        *,
        message: str | None = None,
    ) -> Repository:
        """Say that sources lie in other folders now; no reference is read or written, however many there are.

        Sources that are added later under an old folder are where they are added. Earlier snapshots look for sources
        where they were.

        Parameters
        ----------
        folders
            Old folders and new ones, as URLs or local paths: ``{"file:///data/": "s3://bucket/"}``. Sources that are
            written relative to the store move with it; ``"../data/"`` names them, and is a new place that does so.
        message
            What the snapshot is, for its log.

        Returns
        -------
        Repository
            At the new snapshot.

        Raises
        ------
        WriterError
            No source lies in an old folder, or one move would undo another.
        StorageError
            The store cannot be written.
        """
        permission = permission_of(self.objects.url, self.snapshot, self.allow)
        return replace(self, snapshot=relocate(self.objects, self.snapshot, folders, permission, message=message))

    def write(
        self,
        name: str,
        region: Mapping[str, slice | int] | Sequence[slice | int] | slice | int | EllipsisType,
        values: Any,
        /,
        *,
        raw: bool = False,
        message: str | None = None,
    ) -> Repository:
        """Overwrite values of a variable; the files that it refers to, and earlier snapshots, stay as they are.

        New chunks go into the store, compressed. Chunks that the region covers in part are read and written whole.

        Parameters
        ----------
        name
            Of the variable, ``"group/name"`` in a tree.
        region
            What is overwritten: ``{"time": slice(10, 20), "lat": 3}``, all of other dimensions, or a tuple of slices
            and integers, or ``...``.
        values
            Of the region, as ``xr.open_dataset`` gives them, or one value. They are packed as the variable is:
            numbers with a ``scale_factor`` are rounded to the nearest that it has, floats to their dtype, and what has
            no place is an error.
        raw
            Whether they are stored numbers, not to be packed.
        message
            What the snapshot is, for its log.

        Returns
        -------
        Repository
            At the new snapshot.

        Raises
        ------
        KeyError
            There is no such variable.
        ValueError, IndexError
            The region is none of the variable's.
        WriterError
            Values have another shape, or no place in the variable.
        ConflictError
            Another writer has changed the same since this snapshot.
        StorageError
            Chunks around the region cannot be read or are MISSING, or the store cannot be written.
        """
        made = write(self._stored, name, region, values, self.objects.storage, raw=raw, message=message)
        return replace(self, snapshot=made)

    @property
    def _stored(self) -> Stored:
        permission = permission_of(self.objects.url, self.snapshot, self.allow)
        return Stored(self.objects, self.snapshot, permission)
