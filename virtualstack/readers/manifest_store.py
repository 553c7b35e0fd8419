"""Manifest stores become groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from virtualstack.errors import SourceNotFoundError
from virtualstack.formats.manifest_store.history import archive_of, group_of, newest, read_snapshot
from virtualstack.formats.manifest_store.snapshot import Snapshot
from virtualstack.formats.manifest_store.sources import Prefixes
from virtualstack.manifests import ManifestGroup
from virtualstack.readers.base import ReadOptions
from virtualstack.storage import ObjectStore, Storage
from virtualstack.storage.permission import Allow, Permission
from virtualstack.storage.trust import is_signed

__all__ = ["ManifestStore", "open_snapshot", "permission_of"]


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
    allow: Allow = ()

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


def permission_of(url: str, snapshot: Snapshot, allow: Allow) -> Permission:
    """Say what a snapshot may make its reader touch: more, where this account has written what places it names.

    Raises
    ------
    ForbiddenLocationError
        It names a place that it may not.
    """
    prefixes = Prefixes(store=url, table=snapshot.prefixes, moved=snapshot.moved)
    signed = prefixes.signed()
    is_trusted = any(is_signed(signed, signature) for signature in snapshot.signatures)
    permission = Permission.of(url, allow, is_trusted=is_trusted)
    for begin in prefixes.begins():
        permission.check_prefix(prefixes.root(begin))
    return permission
