"""Manifest stores become groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from virtualstack.errors import SourceNotFoundError
from virtualstack.formats.manifest_store.history import archive_of, group_of, newest, read_snapshot
from virtualstack.formats.manifest_store.snapshot import Snapshot
from virtualstack.manifests import ManifestGroup
from virtualstack.readers.base import ReadOptions
from virtualstack.storage import ObjectStore, Storage

__all__ = ["ManifestStore", "open_snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestStore:
    """Reads a manifest store: its newest snapshot, or another one.

    Parameters
    ----------
    at
        Number of the snapshot; the newest by default.
    allow
        URLs of folders and files that chunks may be read from, beyond what a store may name without:
        see :mod:`~virtualstack.storage.permission`.
    """

    name: ClassVar[str] = "manifest_store"

    at: int | None = None
    allow: str | Sequence[str] = ()

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Describe a store: three requests, whatever its size.

        Raises
        ------
        SourceNotFoundError
            There is no store, or no such snapshot.
        MalformedFileError
            It is damaged.
        ForbiddenLocationError
            It names places that are not allowed.
        """
        objects = ObjectStore(url.rstrip("/") + "/", storage)
        snapshot = open_snapshot(objects, self.at)
        permission = permission_of(objects.url, snapshot, self.allow)
        return group_of(snapshot, archive_of(snapshot, objects, permission))


def open_snapshot(objects: ObjectStore, at: int | None, /) -> Snapshot:
    """Read a snapshot of a store, the newest for ``None``.

    Raises
    ------
    SourceNotFoundError
        There is no store, or no such snapshot.
    MalformedFileError
        It is damaged.
    """
    url = objects.url.rstrip("/")
    number = newest(objects) if at is None else at
    if number is None:
        raise SourceNotFoundError(
            f"'{url}' is no manifest store: it has no snapshot. Check the URL, or write one with "
            "vds.virtual.to_manifest_store(...)",
            url=url,
        )
    try:
        return read_snapshot(objects, number)
    except SourceNotFoundError as error:
        raise SourceNotFoundError(
            f"'{url}' has no snapshot {number}: it was expired, or never made; see vs.Repository.open('{url}').log()",
            url=url,
        ) from error


class _All:
    def check(self, urls: Sequence[str], /) -> None:
        pass


def permission_of(url: str, snapshot: Snapshot, allow: str | Sequence[str]) -> _All:
    return _All()
