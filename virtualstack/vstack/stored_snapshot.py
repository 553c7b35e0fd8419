"""One snapshot of a vstack: what it holds, what it differs from, and whether its sources are as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import xarray as xr

from virtualstack.api import open_virtual_dataset, open_virtual_datatree
from virtualstack.formats.base import ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.printable import printable
from virtualstack.storage import ObjectStore, Storage
from virtualstack.storage.permission import Allow
from virtualstack.vstack.diff import Diff, diff
from virtualstack.vstack.format.archive import ReadPermission
from virtualstack.vstack.format.history import open_archive
from virtualstack.vstack.format.names import format_time
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.log import Log, read_log
from virtualstack.vstack.reader import At, open_snapshot, permission_for_snapshot, snapshot_group
from virtualstack.vstack.verify import StoreVerification, verify

__all__ = ["StoredSnapshot"]

_MAX_SHOWN_VARIABLES = 50
"""Variables that a representation lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SnapshotReader:
    """Reads a store at a snapshot that is in memory; see :class:`~virtualstack.vstack.reader.VStack`."""

    name: ClassVar[str] = "vstack"

    snapshot: Snapshot
    is_chosen: bool

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        objects = ObjectStore(url.rstrip("/") + "/", storage, options.allow)
        return snapshot_group(objects, self.snapshot, options.allow, options, is_chosen=self.is_chosen)


@dataclass(frozen=True, repr=False)
class StoredSnapshot:
    """A vstack at one of its snapshots, to be read.

    Parameters
    ----------
    objects
        Objects of the store.
    snapshot
        The snapshot that is looked at.
    allow
        What it may read beyond what any store may.
    is_chosen
        Whether the snapshot was asked for with ``at=``.
    """

    objects: ObjectStore
    snapshot: Snapshot
    allow: Allow = ()
    is_chosen: bool = False

    @property
    def url(self) -> str:
        """URL of the store, without the last ``/``."""
        return self.objects.url.rstrip("/")

    def __repr__(self) -> str:
        snapshot = self.snapshot
        named = [f"  {path.removeprefix('/')}: {node.header.sizes}" for path, node in snapshot.arrays.items()]
        more = [f"  ... {len(named) - _MAX_SHOWN_VARIABLES} more"] * (len(named) > _MAX_SHOWN_VARIABLES)
        first = f"<snapshot {snapshot.number} of '{self.url}', {format_time(snapshot.time)}>"
        return printable("\n".join([first, *named[:_MAX_SHOWN_VARIABLES], *more]))

    def open_dataset(self, *, group: str | None = None, chunks: Any = None, **options: Any) -> xr.Dataset:
        """Open the snapshot as a lazy dataset with values; no chunk is read.

        Parameters
        ----------
        group
            Path of a group; the root by default.
        chunks
            As in :func:`xarray.open_dataset`: ``{}`` for dask arrays along stored chunks.
        **options
            ``absent``, ``stale``, ``drop_variables``, ``decode_times`` and other options of
            ``xr.open_dataset(url, engine="virtualstack")``; ``at``, ``allow`` and ``storage`` are the repository's.
        """
        return xr.open_dataset(self.url, group=group, chunks=chunks, **self._reached, **options)

    def open_datatree(self, *, group: str | None = None, chunks: Any = None, **options: Any) -> xr.DataTree:
        """Open the snapshot with all groups as a tree of lazy datasets; parameters are as for :meth:`open_dataset`."""
        return xr.open_datatree(self.url, group=group, chunks=chunks, **self._reached, **options)

    def open_virtual_dataset(self, *, group: str | None = None, **options: Any) -> xr.Dataset:
        """Open the snapshot as a virtual dataset, to change what it refers to or to write it elsewhere.

        Parameters
        ----------
        group
            Path of a group; the root by default.
        **options
            ``loadable_variables``, ``drop_variables``, ``unpack`` and other options of
            :func:`virtualstack.open_virtual_dataset`; ``reader``, ``allow`` and ``storage`` are the repository's.
        """
        return open_virtual_dataset(self.url, group=group, **self._virtual, **options)

    def open_virtual_datatree(self, *, group: str | None = None, **options: Any) -> xr.DataTree:
        """Open the snapshot with all groups as a virtual tree; parameters are those of :meth:`open_virtual_dataset`."""
        return open_virtual_datatree(self.url, group=group, **self._virtual, **options)

    @property
    def _reached(self) -> dict[str, Any]:
        number, storage = self.snapshot.number, self.objects.storage
        return {"engine": "virtualstack", "at": number, "allow": self.allow, "storage": storage}

    @property
    def _virtual(self) -> dict[str, Any]:
        reader = _SnapshotReader(snapshot=self.snapshot, is_chosen=self.is_chosen)
        return {"reader": reader, "allow": self.allow, "storage": self.objects.storage}

    @property
    def _permission(self) -> ReadPermission:
        return permission_for_snapshot(self.objects.url, self.snapshot, self.allow)

    def log(self, limit: int | None = None) -> Log:
        """Return the snapshots of the store, newest first: number, time, message, and what each changed.

        Nothing but these is read.

        Parameters
        ----------
        limit
            How many of the newest; all by default.

        Raises
        ------
        StorageError
            The store cannot be read.
        """
        return read_log(self.objects, limit)

    def diff(self, before: At, after: At | None = None, /) -> Diff:
        """Compare two snapshots: variables, attributes, and boxes of elements.

        Loaded variables are compared by their values, others by where their chunks were placed: a box that was
        overwritten with the same references is one that differs. Rows of references are not read.

        Parameters
        ----------
        before, after
            Snapshots as for :meth:`open`; this one by default.

        Raises
        ------
        SourceNotFoundError
            There is no such snapshot.
        StorageError
            The store cannot be read.
        """
        a = open_snapshot(self.objects, before)
        b = self.snapshot if after is None else open_snapshot(self.objects, after)
        archives = open_archive(a, self.objects, self._permission), open_archive(b, self.objects, self._permission)
        return diff(a, b, archives)

    def verify(self, *, sample: int | float = 0, seed: int | None = None) -> StoreVerification:
        """Find the sources that have changed since they were indexed, are missing, or cannot be reached.

        They are looked up in listings of object stores, a thousand a request, and one by one at web servers; none is
        read. Sources that later changes of the store hide are not reported, as they are no part of the snapshot. Rows
        of references are read only for segments that have both sources with problems and hidden rows.

        Size and etag decide, and for local files, which have no etag, the time of the last modification, unless they
        were relocated or are written relative to the store.

        Parameters
        ----------
        sample
            How many chunks, or which fraction of them (up to ``1.0``), are chosen at random, read, and compared with
            what h5netcdf, netCDF4, scipy, eccodes or tifffile read from their sources. Cells without a source, and
            those in sources that have changed, are left out of it.
        seed
            Seed of the random choice.

        Raises
        ------
        MissingDependencyError
            The library to compare with is not installed.
        ForbiddenLocationError
            A source lies where the store may not refer to; see ``allow``.
        """
        return verify(self.objects, self.snapshot, self._permission, sample=sample, seed=seed)
