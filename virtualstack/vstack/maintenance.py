"""Maintain a vstack: take in changed sources, move them, compact references, and delete old snapshots."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from virtualstack.drawing.axes import plot_timeline
from virtualstack.formats.base import Reader
from virtualstack.progress import Progress
from virtualstack.scanning.workers import ExecutorLike
from virtualstack.storage import read_allowed_urls
from virtualstack.surveying.cube import cube_timeline
from virtualstack.vstack.compact import compact
from virtualstack.vstack.display import snapshot_html
from virtualstack.vstack.expire import Expired, expire
from virtualstack.vstack.format.names import Moment, format_time
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.refresh import OnMissing, Refreshed, refresh
from virtualstack.vstack.relocate import relocate
from virtualstack.vstack.rescan import Rescan
from virtualstack.vstack.save import Stored
from virtualstack.vstack.stored_snapshot import StoredSnapshot
from virtualstack.vstack.verify import StoreVerification, verify
from virtualstack.vstack.write.commit import GRACE_SECONDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Maintenance"]


class Maintenance(StoredSnapshot):
    """The part of :class:`virtualstack.Repository` that adds no data, and keeps what the store shows."""

    def _at(self, snapshot: Snapshot) -> Self:
        return self if snapshot is self.snapshot else replace(self, snapshot=snapshot, is_chosen=False)

    @property
    def _stored(self) -> Stored:
        return Stored(self._opened, self.snapshot)

    def _repr_html_(self) -> str:
        title = f"snapshot {self.snapshot.number} of '{self.url}', {format_time(self.snapshot.time)}"
        return snapshot_html(title, self.snapshot, self._opened)

    def plot(self, dim: str | None = None, /, *, ax: Axes | None = None) -> Axes:
        """Draw the timeline of the snapshot: eras in which chunks are stored alike, gaps and duplicate labels.

        The coordinate along the dimension and all references are read, and no other chunk. matplotlib is needed:
        ``pip install 'virtualstack[plot]'``. ``repo.open_virtual_dataset().virtual.plot_chunks("rain")`` draws the
        chunks of a variable.

        Parameters
        ----------
        dim
            Dimension; by default a time or an unlimited dimension, as :func:`survey` chooses it.
        ax
            Axes of matplotlib to draw on; by default those of a new figure.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.

        Raises
        ------
        CombineError
            No variable has the dimension ``dim``.
        MissingDependencyError
            matplotlib is not installed.
        StorageError
            The store cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> vs.Repository.create("rain.vstack", rain).plot("time").get_xlabel()
        'time'
        """
        group, storage = self._opened.group(self.snapshot), self.objects.storage.only(self._permission)
        return plot_timeline(cube_timeline(group, dim, storage=storage), ax=ax)

    def verify(
        self, *, sample: int | float = 0, seed: int | None = None, progress: Progress | bool | None = None
    ) -> StoreVerification:
        """Find the sources that have changed since they were indexed, are missing, or cannot be reached.

        Object stores are listed, a thousand sources for each request. Web servers are asked for each source. No chunk
        is read unless you give ``sample``. Sources whose chunks were all replaced later are not reported.

        A source has changed if its size or etag differs. Local files have no etag: if their modification time differs,
        a digest of their metadata and a sample of their chunks decides (docs/how-to/check-a-vstack.md).

        Parameters
        ----------
        sample
            Number of chunks, or fraction of all chunks (a float up to ``1.0``), to choose at random and to read. They
            are compared with the values that h5netcdf, netCDF4, scipy, eccodes or tifffile read from the sources. Cells
            without a source and cells in changed sources are left out.
        seed
            Seed of the random choice.
        progress
            ``True`` for a progress bar of the comparison in a notebook or on stderr, or a function of the number of
            finished sources and of all sources.

        Returns
        -------
        StoreVerification
            The result: ``is_good`` is true without problems, ``table`` lists sources, and ``chunk_table`` chunks.

        Raises
        ------
        MissingDependencyError
            No library to compare with is installed.
        ForbiddenLocationError
            A source is at a location to which the store may not refer; see ``allow``.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> found = vs.Repository.create("rain.vstack", "day.nc").verify(sample=1)
        >>> found.is_good, found.n_sources, found.chunks[0].status
        (True, 1, 'equal')
        """
        return verify(self._opened, self.snapshot, sample=sample, seed=seed, progress=progress)

    def relocate(
        self,
        folders: Mapping[str | os.PathLike[str], str | os.PathLike[str]],
        /,
        *,
        message: str | None = None,
    ) -> Self:
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
            The repository at the new snapshot. Go on with it; this one still looks in the old folders.

        Raises
        ------
        WriterError
            No source lies in an old folder, or one move would undo another.
        ConflictError
            Another writer has relocated the same sources since this snapshot.
        StorageError
            The store cannot be written.

        Examples
        --------
        >>> import os
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> os.mkdir("old")
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("old/day.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "old/day.nc")
        >>> os.rename("old", "new")
        >>> repo = repo.relocate({"old": "new"})
        >>> repo.open_dataset()["rain"].values
        array([1., 2.])
        """
        made, allow = relocate(self.objects, self.snapshot, folders, self.allow, message=message)
        return replace(self._at(made), allow=allow)

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
            Numbers of the deleted ``snapshots`` and keys of the deleted objects. With ``dry_run`` look at it before you
            delete.

        Raises
        ------
        MalformedFileError
            The store is damaged; nothing was deleted.
        StorageError
            The store cannot be read, listed or written.

        Examples
        --------
        >>> from datetime import timedelta
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> repo = vs.Repository.create("rain.vstack", xr.Dataset({"rain": ("time", [1.0, 2.0])}))
        >>> repo = repo.write("rain", {"time": 1}, 5.0)
        >>> repo.expire(keep=1, grace=timedelta(0)).snapshots
        (0,)
        >>> [entry.number for entry in repo.log()]
        [1]
        """
        return expire(self._opened, keep=keep, older_than=older_than, grace=grace, dry_run=dry_run)

    def compact(self, variables: str | Iterable[str] | None = None, /, *, message: str | None = None) -> Self:
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

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "day0.nc")
        >>> repo = repo.append("day1.nc", "time").compact(message="one place for the references")
        >>> repo.open_dataset()["rain"].values
        array([1., 2.])
        >>> [entry.number for entry in repo.log()]
        [2, 1, 0]
        """
        made = compact(self._opened, self.snapshot, variables, message=message)
        return self._at(made)

    def refresh(
        self,
        *,
        missing: OnMissing = "keep",
        reader: str | Reader | None = None,
        executor: ExecutorLike = None,
        message: str | None = None,
        progress: Progress | bool | None = None,
    ) -> Refreshed[Self]:
        """Scan changed sources again, and replace their chunks, all in one snapshot.

        A source that does not fit is left unchanged and reported in ``left``: its shape, chunk boundaries, dtype,
        attributes that decode values, or values that the store holds itself (such as coordinates) differ. Values
        that you wrote with ``write`` stay with their chunks, and so do earlier snapshots.

        Variables are matched by name, and elements by label, or by position along dimensions without labels. A source
        is left if its chunks were reversed or reordered along such a dimension. Do not use ``refresh`` if, before
        you wrote the data to the store, you gave a variable the name of another one, or shifted data along such a
        dimension. It cannot detect this. Write the store again instead.

        Parameters
        ----------
        missing
            Treatment of missing sources. ``"keep"``: the references stay. ``"mask"``: their chunks become ABSENT: the
            data should exist, but have no source (docs/explanation/chunk-states.md). Such chunks read as missing
            values, or as fill values if the variable has no missing value.
        reader
            Name of a reader (see :func:`virtualstack.list_readers`), or a reader with options. By default it is
            detected for each source.
        executor
            Executor that scans the sources: ``"threads"``, ``"processes"``, ``"dask"``, a ``distributed.Client`` or a
            ``concurrent.futures.Executor``. By default remote sources use 64 threads, and local ones the calling
            thread.
        message
            Message of the snapshot, for the log.
        progress
            ``True`` for a progress bar of the scan in a notebook or on stderr, or a function of the number of finished
            sources and of all sources.

        Returns
        -------
        Refreshed
            A report. Go on with its ``repository``, which is at the new snapshot, and look at ``left``, the sources
            that were left unchanged.

        Raises
        ------
        ConflictError
            Another writer has changed the same chunks since this snapshot.
        StorageError
            The store cannot be read or written.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "day.nc")
        >>> xr.Dataset({"rain": ("time", [1.5, 2.5])}).to_netcdf("day.nc", engine="netcdf4")
        >>> found = repo.refresh()
        >>> found.left
        ()
        >>> found.repository.open_dataset()["rain"].values
        array([1.5, 2.5])
        """
        allow = read_allowed_urls(self.allow)
        how = Rescan(reader=reader, executor=executor, allow=allow, progress=progress)
        return refresh(self._stored, self.objects.storage, how, self._at, missing=missing, message=message)
