"""Read one snapshot of a vstack: open it, compare it with another, and check its sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import xarray as xr

from virtualstack.api.one import open_virtual_dataset, open_virtual_datatree
from virtualstack.api.values import ValueOptions, with_value_options
from virtualstack.formats.base import ReadOptions, Unsupported
from virtualstack.manifests import ManifestGroup
from virtualstack.printable import printable
from virtualstack.storage import ObjectStore, Stale, Storage
from virtualstack.storage.permission import Allow
from virtualstack.vstack.diff import Diff, diff
from virtualstack.vstack.format.archive import ReadPermission
from virtualstack.vstack.format.history import OpenStore
from virtualstack.vstack.format.names import format_time
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.log import Log, read_log
from virtualstack.vstack.reader import At, open_snapshot, permission_for_snapshot, snapshot_group

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
        return snapshot_group(objects, self.snapshot, options, is_chosen=self.is_chosen)


@dataclass(frozen=True, repr=False)
class StoredSnapshot:
    """A vstack at one of its snapshots, for reading.

    When to use: as the part of :class:`virtualstack.Repository` that changes nothing. Alternatives:
    ``xr.open_dataset(url, engine="virtualstack", at=...)`` opens a snapshot without a repository.

    Parameters
    ----------
    objects
        Objects of the store.
    snapshot
        The snapshot that is read.
    allow
        URLs or paths of files and folders from which chunks may be read, besides those that are always allowed.
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

    @with_value_options
    def open_dataset(
        self, *, group: str | None = None, chunks: Any = None, **options: Unpack[ValueOptions]
    ) -> xr.Dataset:
        """Open the snapshot as a lazy dataset with values. No chunk is read until values are used.

        Parameters
        ----------
        group
            Path of the group to open. By default: the root group of the store.
        chunks
            Chunks of dask arrays, as in :func:`xarray.open_dataset`: ``{}`` for merges of stored chunks, see
            ``task_bytes``. By default no dask arrays are made.
        absent
            Treatment of ABSENT chunks, which should exist but have no source (docs/explanation/chunk-states.md):
            ``"fill"`` reads them as the fill value, and ``"raise"`` raises `StorageError`.
        stale
            Treatment of a source whose size, etag or (of a local file) content has changed since the scan:
            ``"error"``, the default, raises `SourceChangedError`; ``"warn"`` only warns; ``"ignore"`` compares nothing.
        task_bytes
            Decoded bytes of a dask task with ``chunks={}``, in bytes or as text: stored chunks are merged up to about
            this size. Larger chunks are not cut; 0 keeps the stored ones.
        drop_variables
            Name of a variable to leave out, or several names.
        decode_cf
            If false, nothing is decoded: values are the stored numbers.
        mask_and_scale
            If false, missing values, scale and offset are not applied. By default they are. A map from names of
            variables decides for each one.
        decode_times
            If false, times stay numbers. By default they become dates. A :class:`xarray.coders.CFDatetimeCoder` decides
            how, and a map from names of variables decides for each one.
        decode_timedelta
            If true, numbers in units such as ``"days"`` become time differences. By default, only variables that xarray
            wrote as time differences do. It also takes a :class:`xarray.coders.CFTimedeltaCoder`, or a map by variable.
        use_cftime
            If true, dates are ``cftime.datetime`` objects. xarray prefers
            ``decode_times=CFDatetimeCoder(use_cftime=True)``.
        concat_characters
            If false, characters along the last dimension are not joined to text. By default they are. A map from names
            of variables decides for each one.
        decode_coords
            If false, variables that a ``coordinates`` attribute names do not become coordinates. By default they do.
            With ``"all"``, variables that ``grid_mapping``, ``bounds`` and similar attributes name do, too.
        create_default_indexes
            If false, no index is made, so that no coordinate is read.
        cache, inline_array, chunked_array_type, from_array_kwargs
            Options of dask arrays and of xarray's cache, the same as in :func:`xarray.open_dataset`.

        Returns
        -------
        xarray.Dataset
            A lazy dataset. Chunks are read when values are needed.

        Raises
        ------
        GroupNotFoundError
            The group does not exist.
        ForbiddenLocationError
            The store refers to a place that is not allowed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> repo = vs.Repository.create("rain.vstack", xr.Dataset({"rain": ("time", [1.0, 2.0])}))
        >>> repo.open_dataset()["rain"].values
        array([1., 2.])
        """
        return xr.open_dataset(self.url, group=group, chunks=chunks, **self._reached, **options)

    @with_value_options
    def open_datatree(
        self, *, group: str | None = None, chunks: Any = None, **options: Unpack[ValueOptions]
    ) -> xr.DataTree:
        """Open the snapshot with all groups as a tree of lazy datasets. No chunk is read until values are used.

        Parameters
        ----------
        group
            Path of the group that becomes the root of the tree. By default: the root group of the store.
        chunks, absent, stale, task_bytes
            Options of reading, the same as in :meth:`open_dataset`.
        drop_variables
            Names of variables to leave out of all groups, or paths of variables, such as ``"group/name"``.
        decode_cf, mask_and_scale, decode_times, decode_timedelta, use_cftime, concat_characters, decode_coords
            Options of decoding, the same as in :meth:`open_dataset`.
        create_default_indexes, cache, inline_array, chunked_array_type, from_array_kwargs
            Options of indexes and arrays, the same as in :meth:`open_dataset`.

        Returns
        -------
        xarray.DataTree
            A tree of lazy datasets. Chunks are read when values are needed.

        Raises
        ------
        GroupNotFoundError
            The group does not exist.
        ForbiddenLocationError
            The store refers to a place that is not allowed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> tree = xr.DataTree.from_dict({"/gauges": xr.Dataset({"rain": ("time", [1.0, 2.0])})})
        >>> vs.Repository.create("rain.vstack", tree).open_datatree()["gauges/rain"].values
        array([1., 2.])
        """
        return xr.open_datatree(self.url, group=group, chunks=chunks, **self._reached, **options)

    def open_virtual_dataset(
        self,
        *,
        group: str | None = None,
        loadable_variables: str | Iterable[str] | None = None,
        drop_variables: str | Iterable[str] = (),
        decode_times: bool | None = None,
        unpack: bool = False,
        unsupported: Unsupported = "inline",
        inline_limit: int | str = "1 MiB",
        stale: Stale | None = None,
    ) -> xr.Dataset:
        """Open the snapshot as a virtual dataset, to change what it refers to or to write it elsewhere.

        Parameters
        ----------
        group
            Path of the group to open. By default: the root group of the store.
        loadable_variables
            Names of variables to load and decode. By default dimension coordinates and small coordinates (up
            to 16 KiB) are loaded.
        drop_variables
            Variables to leave out: a name drops the variable in every group, and a path (``"/science/winds"``) drops
            one variable.
        decode_times
            If true, loaded and unpacked times become dates. This is the default.
        unpack
            If true, the chunks of virtual variables decode to the values of ``xr.open_dataset``: missing values, scale
            and offset, and times are applied.
        unsupported
            Treatment of a variable that cannot be expressed as byte ranges, such as text of which a chunk holds only a
            part. ``"inline"`` reads its values into the manifest, as INLINE chunks, if they fit in ``inline_limit``,
            and raises otherwise. ``"raise"`` raises. ``"skip"`` leaves the variable out.
        inline_limit
            Largest size of the inlined values of one variable, in bytes or as text such as ``"1 MiB"``.
        stale
            Treatment of changed sources, as in :meth:`open_dataset`.

        Returns
        -------
        xarray.Dataset
            A virtual dataset. Change it with ``.virtual``, or write it with ``.virtual.to_kerchunk()``,
            ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "day.nc")
        >>> repo.open_virtual_dataset().virtual.nrefs
        1
        """
        return open_virtual_dataset(
            self.url,
            group=group,
            loadable_variables=loadable_variables,
            drop_variables=drop_variables,
            decode_times=decode_times,
            unpack=unpack,
            unsupported=unsupported,
            inline_limit=inline_limit,
            stale=stale,
            **self._virtual,
        )

    def open_virtual_datatree(
        self,
        *,
        group: str | None = None,
        drop_variables: str | Iterable[str] = (),
        decode_times: bool | None = None,
        unpack: bool = False,
        unsupported: Unsupported = "inline",
        inline_limit: int | str = "1 MiB",
        stale: Stale | None = None,
    ) -> xr.DataTree:
        """Open the snapshot with all groups as a virtual tree, to change what it refers to or to write it elsewhere.

        Parameters
        ----------
        group
            Path of the group that becomes the root of the tree. By default: the root group of the store.
        drop_variables
            Variables to leave out: a name drops the variable in every group, and a path (``"/science/winds"``) drops
            one variable.
        decode_times, unpack, unsupported, inline_limit, stale
            Options of opening, the same as in :meth:`open_virtual_dataset`.

        Returns
        -------
        xarray.DataTree
            A tree of virtual datasets. Change it with ``.virtual``, or write it with ``.virtual.to_kerchunk()``,
            ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4", group="gauges")
        >>> repo = vs.Repository.create("rain.vstack", vs.open_virtual_datatree("day.nc"))
        >>> repo.open_virtual_datatree().virtual.nrefs
        1
        """
        return open_virtual_datatree(
            self.url,
            group=group,
            drop_variables=drop_variables,
            decode_times=decode_times,
            unpack=unpack,
            unsupported=unsupported,
            inline_limit=inline_limit,
            stale=stale,
            **self._virtual,
        )

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

    @property
    def _opened(self) -> OpenStore:
        return OpenStore(self.objects, self._permission)

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
            The differences: ``added``, ``removed``, ``changed`` and ``relocated``. It is false if there are no
            differences.

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
        store = self._opened
        return diff(a, b, (store.archive(a), store.archive(b)))
