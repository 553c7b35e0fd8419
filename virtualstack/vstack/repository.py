"""A vstack and its history."""

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

    :meth:`append`, :meth:`update`, :meth:`write`, :meth:`relocate` and :meth:`compact` return the repository at the new
    snapshot, and leave this one where it is. :meth:`refresh` returns a report that has the new one as ``repository``.
    :meth:`log`, :meth:`diff`, :meth:`verify` and :meth:`expire` make no snapshot and return what they found or deleted.
    Everything that is opened or read through a repository is reached as it was: ``storage`` and ``allow`` are given
    once.

    Parameters
    ----------
    objects
        Objects of the store.
    snapshot
        The snapshot that is looked at, and that changes are made to.
    allow
        What it may read beyond what any store may.
    is_chosen
        Whether the snapshot was asked for with ``at=``.

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
        """Write a new store, whose first snapshot is a dataset or tree; all that is added later must fit it.

        Parameters
        ----------
        url
            Local path or URL of the store, such as ``"x.vstack"``.
        part
            A virtual dataset or tree, or the URL of a file, which is opened.
        allow, storage
            As for :meth:`open`.
        message, relative
            As for :meth:`update`.

        Raises
        ------
        WriterError
            There is a store already, or an attribute has no form in it.
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
        """Open a store at its newest snapshot, or at another one.

        Parameters
        ----------
        url
            Local path or URL of the store.
        at
            A snapshot by its number (``-1`` for the newest, ``-2`` for the one before it), or by a time at which it was
            the newest: ISO 8601 or `numpy.datetime64`, in UTC where it has no time zone, or a `datetime` that has one.
        allow
            URLs of folders and files that chunks may be read from, beyond those that a store may name.
        storage
            See :func:`virtualstack.open_virtual_dataset`.

        Raises
        ------
        SourceNotFoundError
            There is no store, or no such snapshot.
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
        """Put a dataset, a tree or a file behind what the store holds along a dimension.

        Everything is checked first. No reference in the store is read or written again.

        Parameters
        ----------
        part
            A virtual dataset or tree, or the URL of a file, which is opened.
        dim
            Dimension to append along. Variables without it must be the same, and attributes stay the store's.
        ordered
            Whether labels along ``dim`` must ascend.
        join, combine_options
            As in ``vds.virtual.to_vstack(..., append_dim=...)``.
        message, relative
            As for :meth:`update`.

        Returns
        -------
        Repository
            At the new snapshot.

        Raises
        ------
        CombineError
            The part does not fit what the store holds; the message has both.
        ChunkAlignmentError
            Its chunks end elsewhere along another dimension.
        ConflictError
            Another writer has changed the same since this snapshot.
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
        """Say that sources lie in other folders now; no reference is read or written, however many there are.

        Sources that are added later under an old folder are where they are added. Earlier snapshots look for sources
        where they were.

        Parameters
        ----------
        folders
            Old folders and new ones, as URLs or local paths: ``{"file:///data/": "s3://bucket/"}``. Sources that are
            written relative to the store move with it; ``"../data/"`` names them, and is a new place that does so.
            What lies in the new ones may be read by the repository that this gives, whatever ``allow`` was; who opens
            a store in a bucket whose sources are local gives them as ``allow``.
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
        ConflictError
            Another writer has relocated the same since this snapshot.
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
        """Place files by their labels: new ones where they belong, in any order, others over those that are there.

        The labels of all dimensions that a file has labels for tell its place. What a file does not have is left as it
        is: absence never replaces presence. To replace values by nothing, use :meth:`write`.

        A label that is there with the same source (URL, size and etag; of local files the time of the last
        modification too, unless they were relocated or are written relative to the store) is left alone; where all
        are, there is no new snapshot. A source that has changed replaces what the store has of it. Values that
        :meth:`write` put into the store stay where the file is the one they were written over. No reference in the
        store is written again.

        Parameters
        ----------
        parts
            Virtual datasets or trees, or URLs of files, which are opened.
        dim
            Dimension along which labels tell the place and are added; they ascend in the store, and in each part.
        labels
            More labels that should be there. Elements that no part has are ABSENT, as are those of variables that a
            part with new labels has not; at labels that are there such variables stay as they are.
        join
            What becomes of labels along other dimensions: they must be the store's (``"exact"``), those that the store
            lacks are left out (``"left"``), or are added to it (``"outer"``). Combinations of labels that no file has
            are ABSENT, such as the steps of a forecast that have not come yet.
        prefer
            Which of two different sources is shown that have the same labels: what is there already (``"first"``),
            what is placed later (``"last"``), or the file that was modified last (``"newest"``). A function is given
            each file, with ``url``, ``last_modified`` and ``attributes``, and the one with the greater key is shown. By
            default it is an error, so that a late original does not replace a file that was processed again.
        combine_options
            ``compat``, ``combine_attrs`` and ``fill_value`` as in :func:`virtualstack.open_virtual_mfdataset`.
        message
            What the snapshot is, for its log.
        relative
            Write the locations of sources in the folder that holds the store relative to it.

        Returns
        -------
        Repository
            At the new snapshot, or this one where nothing changes.

        Raises
        ------
        CombineError
            A part does not fit to what the store holds, or has labels that are there from another source; the message
            has both.
        ConflictError
            Another writer has changed the same since this snapshot.
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
        """Delete old snapshots, then what none uses that is left, and what writers left that were killed.

        The newest snapshot stays, whatever is asked for, and so does one that was the newest within the grace period:
        readers and writers may still be at work with it.

        Parameters
        ----------
        keep
            How many of the newest snapshots stay.
        older_than
            A duration, or a time (a text is in UTC where it has no time zone): what was the newest at any moment since
            stays. Where ``keep`` is given too, what either of them keeps stays; where neither is, all snapshots do.
        grace
            For how long objects stay that no snapshot uses, and snapshots that were the newest: longer than writers
            take from opening a store to the commit. A shorter one is safe only where nobody is at work.
        dry_run
            Whether to say what would be deleted, and delete nothing.

        Returns
        -------
        Expired
            Numbers of the snapshots and keys of the objects.

        Raises
        ------
        MalformedFileError
            The store is damaged; nothing was deleted.
        StorageError
            It cannot be read, listed or written.
        """
        return expire(self.objects, self._permission, keep=keep, older_than=older_than, grace=grace, dry_run=dry_run)

    def compact(self, variables: str | Iterable[str] | None = None, /, *, message: str | None = None) -> Repository:
        """Write what many commits wrote of a variable anew, in file order and in one place, in a new snapshot.

        Values and references are the same, and reading many of them is faster. Earlier snapshots still use what was
        written before, until :meth:`expire` deletes them. Other writers may append meanwhile.

        Parameters
        ----------
        variables
            Names, or paths such as ``"/group/name"``; all by default.
        message
            What the snapshot is, for its log.

        Returns
        -------
        Repository
            At the new snapshot; at this one where there was nothing to do.

        Raises
        ------
        WriterError
            There is no such variable.
        ConflictError
            Another writer has made one of them anew meanwhile, or relocated their sources.
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
        """Scan sources that have changed again, and put their new chunks in the place of the old ones.

        All of them in one snapshot. A source whose new chunks do not fit is left as it is, and told: it has other
        lengths, chunk lines, dtypes, or attributes that change values; or values of it that stand in the store itself,
        such as coordinates, are others now. Chunks that were overwritten in the store stay overwritten. Earlier
        snapshots refer to the sources as they were. References are read only of segments that hold changed sources.

        Variables are those of the same names in the source, and elements those of the same labels, or where a dimension
        has none of the same place. Where chunks lay in the store turned round or in another order than in the source
        along a dimension without labels, it is left. What was renamed to the name of another variable, or shifted along
        such a dimension, before it was written, must not be refreshed but written anew: that cannot be seen.

        Parameters
        ----------
        missing
            What becomes of sources that are not there any more: they are left (``"keep"``), or their chunks are
            ABSENT, which read as missing values, or where a variable has none as fill values (``"mask"``).
        reader, executor
            See :func:`virtualstack.scanning.scan`.
        unpack
            Whether the store was written from files that were opened with ``unpack=True``.
        message
            What the snapshot is, for its log.

        Returns
        -------
        Refreshed
            The repository at the new snapshot (``repository``), and the sources that were left (``left``).

        Raises
        ------
        ConflictError
            Another writer has changed the same since this snapshot.
        StorageError
            The store cannot be read or written.
        """
        how = Rescan(reader=reader, executor=executor, unpack=unpack, allow=read_allowed_urls(self.allow))
        made, refreshed, masked, left = refresh(
            self._stored, self.objects.storage, how, missing=missing, message=message
        )
        return Refreshed(repository=self._at(made), refreshed=tuple(refreshed), masked=tuple(masked), left=tuple(left))
