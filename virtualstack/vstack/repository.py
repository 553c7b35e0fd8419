"""Open a vstack at a snapshot, change it, and maintain its history."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import EllipsisType
from typing import Any, Literal

from virtualstack.combine.addition import Addition
from virtualstack.combine.fitting import Fitting
from virtualstack.combine.precedence import Prefer, check_prefer
from virtualstack.combine.update import updated
from virtualstack.formats.base import Reader
from virtualstack.location import absolute_url
from virtualstack.scanning.workers import ExecutorLike
from virtualstack.storage import ObjectStore, Storage, StorageLike, read_allowed_urls
from virtualstack.storage.permission import Allow
from virtualstack.vstack.compact import compact
from virtualstack.vstack.expire import Expired, expire
from virtualstack.vstack.format.names import Moment
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.overwrite import write
from virtualstack.vstack.parts import PartLike, groups_from, with_coordinates
from virtualstack.vstack.reader import At, open_snapshot
from virtualstack.vstack.refresh import OnMissing, Refreshed, Rescan, refresh
from virtualstack.vstack.relocate import relocate
from virtualstack.vstack.save import Stored, save
from virtualstack.vstack.stored_snapshot import StoredSnapshot
from virtualstack.vstack.write.commit import GRACE_SECONDS

__all__ = ["Repository"]

_JOIN_REMEDY = (
    "give it the store's labels with assign_coords where they mean the same; join='outer' adds labels that the store "
    "lacks, join='left' leaves them out, and both leave what the file does not have as it is"
)


class Repository(StoredSnapshot):
    """A vstack at one of its snapshots; made by :meth:`create` or :meth:`open`.

    :meth:`append`, :meth:`update`, :meth:`write`, :meth:`relocate` and :meth:`compact` return a repository at the new
    snapshot; this object stays at its own. The report of :meth:`refresh` has the new one as ``repository``.
    :meth:`log`, :meth:`diff`, :meth:`verify` and :meth:`expire` make no snapshot. They return what they found or
    deleted. ``storage`` and ``allow`` are given once, and hold for everything that the repository opens or reads.

    When to use: for a store that grows or changes, and to look at its history.
    Alternatives: ``vds.virtual.to_vstack`` writes one dataset, and ``xr.open_dataset(url, engine="virtualstack")`` only
    reads. An Icechunk repository has a history too.

    Parameters
    ----------
    objects
        Objects of the store.
    snapshot
        The snapshot that is read, and that changes are based on.
    allow
        Folders and files that chunks may be read from, beyond those that every store may name.
    is_chosen
        If true, the snapshot was chosen with ``at=``.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in range(2):
    ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
    ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
    >>> repo = vs.Repository.create("rain.vstack", "day0.nc")
    >>> repo = repo.append("day1.nc", "time", message="the second day")
    >>> repo.open_dataset()["rain"].values
    array([1., 2.])
    >>> repo = repo.write("rain", {"time": 0}, 5.0)
    >>> repo.open_dataset()["rain"].values
    array([5., 2.])
    >>> vs.Repository.open("rain.vstack", at=0).open_dataset().sizes["time"]
    1
    """

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        part: PartLike,
        /,
        *,
        allow: Allow = (),
        storage: StorageLike = None,
        message: str | None = None,
        relative: bool = False,
    ) -> Repository:
        """Write a new store, whose first snapshot is a dataset or tree; everything that is added later must fit it.

        Parameters
        ----------
        url
            Local path or URL of the store, such as ``"x.vstack"``.
        part
            A virtual dataset or tree, or the URL of a file, which is opened.
        allow, storage
            The same as in :meth:`open`.
        message, relative
            The same as in :meth:`update`.

        Returns
        -------
        Repository
            The repository at snapshot 0.

        Raises
        ------
        WriterError
            The store exists already, or it cannot hold an attribute.
        StorageError
            The file cannot be read, or the store cannot be written.
        """
        reached = Storage.from_option(storage)
        (group,) = groups_from([part], reached, allow)
        group = with_coordinates(group, reached)
        made = save(group, url, storage=reached, allow=allow, message=message, relative=relative)
        return cls(ObjectStore(absolute_url(url).rstrip("/") + "/", reached, allow), made, allow)

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        /,
        *,
        at: At | None = None,
        allow: Allow = (),
        storage: StorageLike = None,
    ) -> Repository:
        """Open a store at its newest snapshot, or at an earlier one.

        Parameters
        ----------
        url
            Local path or URL of the store.
        at
            Number of the snapshot (``-1`` is the newest, ``-2`` the one before it), or a time at which it was the
            newest: ISO 8601 or `numpy.datetime64`, in UTC if it has no time zone, or a `datetime` with a time zone.
        allow
            URLs of folders and files that chunks may be read from, beyond those that every store may name.
        storage
            Options to reach the store and its sources, as in :func:`virtualstack.open_virtual_dataset`.

        Raises
        ------
        SourceNotFoundError
            The store or the snapshot does not exist.
        """
        objects = ObjectStore(absolute_url(url).rstrip("/") + "/", Storage.from_option(storage), allow)
        return cls(objects, open_snapshot(objects, at), allow, at is not None)

    # -- changes ----------------------------------------------------------------------------------------------

    def append(
        self,
        part: PartLike,
        /,
        dim: str,
        *,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
        message: str | None = None,
        relative: bool = False,
    ) -> Repository:
        """Append a dataset, a tree or a file to the store, along a dimension.

        Everything is checked before anything is written. References that the store has are neither read nor written.

        Parameters
        ----------
        part
            A virtual dataset or tree, or the URL of a file, which is opened.
        dim
            Dimension to append along. Variables without it must be the same, and the store keeps its attributes.
        ordered
            If true, labels along ``dim`` must ascend.
        join, combine_options
            The same as in ``vds.virtual.to_vstack(..., append_dim=...)``.
        message, relative
            The same as in :meth:`update`.

        Returns
        -------
        Repository
            The repository at the new snapshot.

        Raises
        ------
        CombineError
            The part does not fit what the store holds; the message names both.
        ChunkAlignmentError
            Chunks of the part end in other places along another dimension.
        ConflictError
            Another writer has changed the same part of the store since this snapshot.
        StorageError
            The file cannot be read, or the store cannot be written.
        """
        if not isinstance(dim, str):
            raise TypeError(f"dim={dim!r}; it is the name of the dimension to append along")
        storage, store = self.objects.storage, self._stored
        fitting = Fitting.from_options(join=join, options=combine_options, storage=storage)
        addition = Addition(append_dim=dim, region=None, ordered=ordered, fitting=fitting)
        (group,) = groups_from([part], storage, self.allow, is_tree=bool(store.group.groups))
        return self._at(store.add(group, addition, message=message, relative=relative))

    def relocate(
        self,
        folders: Mapping[str | os.PathLike[str], str | os.PathLike[str]],
        /,
        *,
        message: str | None = None,
    ) -> Repository:
        """Record that sources are in other folders now; no reference is read or written, however many there are.

        Sources that are added later under an old folder stay where they are added. Earlier snapshots keep the old
        folders.

        Parameters
        ----------
        folders
            Old and new folders, as URLs or local paths: ``{"file:///data/": "s3://bucket/"}``. Sources that are written
            relative to the store move with it. ``"../data/"`` names such a folder, as old or as new one. The repository
            that is returned may read the new folders, whatever ``allow`` was. If a store in a bucket has local sources,
            each later reader must list their folders in ``allow``.
        message
            Message of the snapshot, for the log.

        Returns
        -------
        Repository
            The repository at the new snapshot.

        Raises
        ------
        WriterError
            No source lies in an old folder, or one move would undo another.
        ConflictError
            Another writer has relocated the same sources since this snapshot.
        StorageError
            The store cannot be written.
        """
        made, allow = relocate(self.objects, self.snapshot, folders, self.allow, message=message)
        return replace(self._at(made), allow=allow)

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
        """Overwrite values of a variable; source files and earlier snapshots stay unchanged.

        New chunks go into the store, compressed. Chunks that the region covers in part are read and written whole.

        Parameters
        ----------
        name
            Path of the variable, ``"group/name"`` in a tree.
        region
            The region to overwrite: ``{"time": slice(10, 20), "lat": 3}`` (other dimensions are covered whole), a tuple
            of slices and integers, or ``...``.
        values
            Values of the region, decoded as by ``xr.open_dataset``, or one value. They are packed like the variable:
            with a ``scale_factor`` they are rounded to the nearest number, and floats to the dtype.
        raw
            If true, the values are stored numbers, and are not packed.
        message
            Message of the snapshot, for the log.

        Returns
        -------
        Repository
            The repository at the new snapshot.

        Raises
        ------
        KeyError
            The variable does not exist.
        ValueError, IndexError
            The region does not fit the variable.
        WriterError
            The values have another shape, or the variable cannot store one of them.
        ConflictError
            Another writer has changed the same chunks since this snapshot.
        StorageError
            Chunks around the region cannot be read or are ABSENT, or the store cannot be written.
        """
        made = write(self._stored, name, region, values, self.objects.storage, raw=raw, message=message)
        return self._at(made)

    def update(
        self,
        parts: PartLike | Iterable[PartLike],
        /,
        dim: str,
        *,
        labels: Any = None,
        join: Literal["exact", "left", "outer"] = "exact",
        prefer: Prefer = None,
        combine_options: Mapping[str, Any] | None = None,
        message: str | None = None,
        relative: bool = False,
    ) -> Repository:
        """Place files by their labels: add new labels in order, and replace elements that the store has.

        The labels of all dimensions that a file has labels for determine its place. Variables and labels that a file
        lacks stay unchanged. To replace values by missing values, use :meth:`write`.

        A label is left alone if the store has it from the same source. The same source means the same URL, size and
        etag. For local files the modification time counts too, unless they were relocated or are written relative to
        the store. A source that has changed replaces its old version. Values written by :meth:`write` stay if the file
        is the one that they were written over. References that the store has are not written again.

        Parameters
        ----------
        parts
            Virtual datasets or trees, or URLs of files, which are opened.
        dim
            Dimension whose labels are added. They ascend in the store, and must ascend in each part.
        labels
            More labels that the store should have. Elements that no part has are ABSENT. So are variables that a part
            lacks, at its new labels; at labels that the store has, such variables stay unchanged.
        join
            Treatment of other labels along other dimensions. They are an error (``"exact"``), are left out
            (``"left"``), or are added to the store (``"outer"``). Combinations of labels that no file has are ABSENT.
        prefer
            The source that is shown if two have the same labels: the one in the store (``"first"``), the one that is
            placed later (``"last"``), or the file that was modified last (``"newest"``). A function gets each file,
            with ``url``, ``last_modified`` and ``attributes``; the file with the greater key is shown. By default this
            is an error, so that a late original does not replace a reprocessed file.
        combine_options
            ``compat``, ``combine_attrs`` and ``fill_value`` as in :func:`virtualstack.open_virtual_mfdataset`.
        message
            Message of the snapshot, for the log.
        relative
            If true, sources in the folder that holds the store are written relative to the store.

        Returns
        -------
        Repository
            The repository at the new snapshot, or this one if nothing changes.

        Raises
        ------
        CombineError
            A part does not fit what the store holds, or has labels that the store has from another source.
        ConflictError
            Another writer has changed the same part of the store since this snapshot.
        StorageError
            A file cannot be read, or the store cannot be written.
        """
        storage = self.objects.storage
        fitting = Fitting.from_options(join=join, options=combine_options, storage=storage).with_remedy(_JOIN_REMEDY)
        check_prefer(prefer)
        store = self._stored
        groups = groups_from(parts, storage, self.allow, is_tree=bool(store.group.groups))
        made, overlays = updated(store.group, groups, dim, labels, fitting, prefer)
        return self._at(store.write(made, overlays=overlays, message=message, relative=relative))

    def _at(self, snapshot: Snapshot) -> Repository:
        return self if snapshot is self.snapshot else replace(self, snapshot=snapshot, is_chosen=False)

    @property
    def _stored(self) -> Stored:
        return Stored(self.objects, self.snapshot, self._permission)

    def expire(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | Moment | None = None,
        grace: timedelta = timedelta(seconds=GRACE_SECONDS),
        dry_run: bool = False,
    ) -> Expired:
        """Delete old snapshots, objects that no remaining snapshot uses, and files that killed writers left.

        The newest snapshot always stays. Snapshots that were the newest within the grace period stay too, because
        readers and writers may still use them.

        Parameters
        ----------
        keep
            Number of the newest snapshots to keep.
        older_than
            A duration, or a time (in UTC if a text has no time zone). Snapshots that were the newest at any moment
            since then stay. With ``keep`` too, a snapshot is deleted only if neither keeps it; without both, all
            snapshots stay.
        grace
            Time for which unused objects, and snapshots that were the newest, stay. It must be longer than a writer
            takes from opening a store to the commit. A shorter one is safe only while nobody reads or writes.
        dry_run
            If true, nothing is deleted, and the result lists what would be.

        Returns
        -------
        Expired
            Numbers of the snapshots and keys of the objects that were deleted.

        Raises
        ------
        MalformedFileError
            The store is damaged; nothing was deleted.
        StorageError
            The store cannot be read, listed or written.
        """
        return expire(self.objects, self._permission, keep=keep, older_than=older_than, grace=grace, dry_run=dry_run)

    def compact(self, variables: str | Iterable[str] | None = None, /, *, message: str | None = None) -> Repository:
        """Put references that many commits wrote into file order in one place, in a new snapshot.

        Values and references stay the same, and long selections are read faster. Earlier snapshots use the old objects
        until :meth:`expire` deletes them. Other writers may append or overwrite at the same time.

        Parameters
        ----------
        variables
            Names of variables, or paths such as ``"/group/name"``; all by default.
        message
            Message of the snapshot, for the log.

        Returns
        -------
        Repository
            The repository at the new snapshot, or at this one if there was nothing to do.

        Raises
        ------
        WriterError
            A variable does not exist.
        ConflictError
            Another writer has replaced or compacted one of the variables, or relocated its sources, since this
            snapshot.
        StorageError
            The store cannot be read or written.
        """
        made = compact(self.objects, self.snapshot, self._permission, variables, message=message)
        return self._at(made)

    def refresh(
        self,
        *,
        missing: OnMissing = "keep",
        reader: str | Reader | None = None,
        executor: ExecutorLike = None,
        unpack: bool = False,
        message: str | None = None,
    ) -> Refreshed[Repository]:
        """Scan changed sources again, and replace their chunks, all in one snapshot.

        A source that does not fit is left unchanged and reported in ``left``: its shape, chunk boundaries, dtype,
        attributes that decode values, or values that the store holds itself (such as coordinates) differ. Overwritten
        chunks stay, and so do earlier snapshots. Only segments that hold changed sources are read.

        Variables are matched by name, and elements by label, or by position along dimensions without labels. A source
        is left if its chunks were reversed or reordered along such a dimension. Do not use ``refresh`` if a variable
        was renamed to another variable's name, or shifted along such a dimension, before writing: this cannot be
        detected. Write the store again instead.

        Parameters
        ----------
        missing
            Treatment of missing sources: they are left (``"keep"``), or their chunks become ABSENT (``"mask"``). Such
            chunks read as missing values, or as fill values if the variable has no missing value.
        reader, executor
            The same as in :func:`virtualstack.scanning.scan`.
        unpack
            If true, the store was written from files that were opened with ``unpack=True``.
        message
            Message of the snapshot, for the log.

        Returns
        -------
        Refreshed
            The repository at the new snapshot (``repository``), and the sources that were left (``left``).

        Raises
        ------
        ConflictError
            Another writer has changed the same chunks since this snapshot.
        StorageError
            The store cannot be read or written.
        """
        how = Rescan(reader=reader, executor=executor, unpack=unpack, allow=read_allowed_urls(self.allow))
        made, refreshed, masked, left = refresh(
            self._stored, self.objects.storage, how, missing=missing, message=message
        )
        return Refreshed(repository=self._at(made), refreshed=tuple(refreshed), masked=tuple(masked), left=tuple(left))
