"""A manifest store and its history."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from virtualstack.formats.manifest_store.snapshot import Snapshot
from virtualstack.location import absolute_url
from virtualstack.readers.manifest_store import open_snapshot
from virtualstack.storage import ObjectStore, Storage, StorageLike

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
    allow: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        /,
        *,
        at: int | None = None,
        allow: str | Sequence[str] = (),
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
        allowed = (allow,) if isinstance(allow, str) else tuple(allow)
        return cls(objects, open_snapshot(objects, at), allowed)
