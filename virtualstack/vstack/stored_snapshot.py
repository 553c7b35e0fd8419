"""Read one snapshot of a vstack: open it, compare it with another one, and check its sources."""

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
"""Number of variables that ``repr`` lists at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SnapshotReader:
    """A reader of a snapshot that is in memory; see :class:`~virtualstack.vstack.reader.VStack`."""

    name: ClassVar[str] = "vstack"

    snapshot: Snapshot
    is_chosen: bool

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        objects = ObjectStore(url.rstrip("/") + "/", storage, options.allow)
        return snapshot_group(objects, self.snapshot, options.allow, options, is_chosen=self.is_chosen)


@dataclass(frozen=True, repr=False)
class StoredSnapshot:
    """A vstack at one of its snapshots, for reading.

    When to use: as the part of :class:`~virtualstack.vstack.Repository` that changes nothing. Alternatives:
    ``xr.open_dataset(url, engine="virtualstack", at=...)`` opens a snapshot without a repository.

    Parameters
    ----------
    objects
        Objects of the store.
    snapshot
        The snapshot that is read.
    allow
        Folders and files that chunks may be read from, beyond those that every store may name.
    is_chosen
        If true, the snapshot was chosen with ``at=``.
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
            The same as in :func:`xarray.open_dataset`: ``{}`` makes dask arrays along stored chunks.
        **options
            ``absent``, ``stale``, ``drop_variables``, ``decode_times`` and other options of ``xr.open_dataset(url,
            engine="virtualstack")``; ``at``, ``allow`` and ``storage`` are the repository's.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> repo = vs.Repository.create("rain.vstack", xr.Dataset({"rain": ("time", [1.0, 2.0])}))
        >>> repo.open_dataset()["rain"].values
        array([1., 2.])
        """
        return xr.open_dataset(self.url, group=group, chunks=chunks, **self._reached, **options)

    def open_datatree(self, *, group: str | None = None, chunks: Any = None, **options: Any) -> xr.DataTree:
        """Open the snapshot with all groups as a tree of lazy datasets.

        The parameters are those of :meth:`open_dataset`.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> tree = xr.DataTree.from_dict({"/gauges": xr.Dataset({"rain": ("time", [1.0, 2.0])})})
        >>> vs.Repository.create("rain.vstack", tree).open_datatree()["gauges/rain"].values
        array([1., 2.])
        """
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

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "day.nc")
        >>> repo.open_virtual_dataset().virtual.nrefs
        1
        """
        return open_virtual_dataset(self.url, group=group, **self._virtual, **options)

    def open_virtual_datatree(self, *, group: str | None = None, **options: Any) -> xr.DataTree:
        """Open the snapshot with all groups as a virtual tree.

        The parameters are those of :meth:`open_virtual_dataset`.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4", group="gauges")
        >>> repo = vs.Repository.create("rain.vstack", vs.open_virtual_datatree("day.nc"))
        >>> repo.open_virtual_datatree().virtual.nrefs
        1
        """
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
        """Return the snapshots of the store, newest first: number, time, message, and the changes of each.

        Only snapshots are read, no references.

        Parameters
        ----------
        limit
            Number of the newest snapshots to return; all by default.

        Returns
        -------
        Log
            Sequence of entries with ``number``, ``time``, ``message`` and ``changes``; ``print`` shows it.

        Raises
        ------
        StorageError
            The store cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> repo = vs.Repository.create("rain.vstack", xr.Dataset({"rain": ("time", [1.0, 2.0])}), message="first")
        >>> [(entry.number, entry.message) for entry in repo.log()]
        [(0, 'first')]
        """
        return read_log(self.objects, limit)

    def diff(self, before: At, after: At | None = None, /) -> Diff:
        """Compare two snapshots: variables, attributes, and boxes of elements.

        Loaded variables are compared by value. For other variables, a box differs if its chunks were written again,
        even with the same references. No references are read.

        Parameters
        ----------
        before, after
            Snapshots in the form that ``at=`` of :meth:`Repository.open` takes. ``after`` is this snapshot by default.

        Returns
        -------
        Diff
            The differences: ``added``, ``removed``, ``changed`` and ``relocated``. It is false if there are none.

        Raises
        ------
        SourceNotFoundError
            A snapshot does not exist.
        StorageError
            The store cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> repo = vs.Repository.create("rain.vstack", xr.Dataset({"rain": ("time", [1.0, 2.0])}))
        >>> repo.write("rain", {"time": 1}, 5.0).diff(0).changed["rain"].overwritten
        ({'time': slice(1, 2, None)},)
        """
        a = open_snapshot(self.objects, before)
        b = self.snapshot if after is None else open_snapshot(self.objects, after)
        archives = open_archive(a, self.objects, self._permission), open_archive(b, self.objects, self._permission)
        return diff(a, b, archives)

    def verify(self, *, sample: int | float = 0, seed: int | None = None) -> StoreVerification:
        """Find the sources that have changed since they were indexed, are missing, or cannot be reached.

        Object stores are listed, a thousand sources a request, and web servers are asked for each source; no source is
        read. Sources that later changes of the store hide are not part of the snapshot, and are not reported.
        References are read only of segments that have both sources with problems and hidden references.

        A source has changed if its size or etag differs. Local files have no etag, so their modification time counts,
        unless they were relocated or are written relative to the store. Then a digest counts if the time differs.

        Parameters
        ----------
        sample
            Number of chunks, or fraction of all chunks (a float up to ``1.0``), to choose at random and to read. They
            are compared with the values that h5netcdf, netCDF4, scipy, eccodes or tifffile read from the sources. Cells
            without a source and cells in changed sources are left out.
        seed
            Seed of the random choice.

        Returns
        -------
        StoreVerification
            The result: ``is_good`` is true without problems, ``table`` lists sources, and ``chunk_table`` chunks.

        Raises
        ------
        MissingDependencyError
            No library to compare with is installed.
        ForbiddenLocationError
            A source lies where the store may not refer to; see ``allow``.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> found = vs.Repository.create("rain.vstack", "day.nc").verify(sample=1)
        >>> found.is_good, found.n_sources, found.chunks[0].status
        (True, 1, 'equal')
        """
        return verify(self.objects, self.snapshot, self._permission, sample=sample, seed=seed)
