"""Make or open a vstack, and change its data."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType
from typing import Any, Literal

from virtualstack.combine.addition import Addition, growing_dimension
from virtualstack.combine.fitting import LABELS_REMEDY, Fitting
from virtualstack.combine.precedence import Prefer, check_prefer
from virtualstack.combine.update import updated
from virtualstack.location import absolute_url
from virtualstack.progress import Progress
from virtualstack.storage import ObjectStore, Storage, StorageLike
from virtualstack.storage.permission import Allow
from virtualstack.vstack.maintenance import Maintenance
from virtualstack.vstack.overwrite import write
from virtualstack.vstack.parts import PartLike, groups_from, with_coordinates
from virtualstack.vstack.reader import At, open_snapshot
from virtualstack.vstack.save import save

__all__ = ["Repository"]


class Repository(Maintenance):
    """A vstack at one of its snapshots; made by :meth:`create` or :meth:`open`.

    :meth:`append`, :meth:`update`, :meth:`write`, :meth:`relocate` and :meth:`compact` return a repository at the new
    snapshot; this object stays at its own. The report of :meth:`refresh` has the new one as ``repository``.
    :meth:`log`, :meth:`diff`, :meth:`verify` and :meth:`expire` make no snapshot. They return what they found or
    deleted. ``storage`` and ``allow`` are given once, and hold for everything that the repository opens or reads.

    When to use: a store grows or changes, or you want to look at its history.
    Alternatives: ``vds.virtual.to_vstack`` writes one dataset, and ``xr.open_dataset(url, engine="virtualstack")`` only
    reads. An Icechunk repository has a history too, and other programs can write to it.

    Parameters
    ----------
    objects
        Objects of the store.
    snapshot
        The snapshot that is read, and that changes are based on.
    allow
        URLs or paths of files and folders from which chunks may be read, besides those that are always allowed; see
        :meth:`open`.
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
        checksums: bool = False,
    ) -> Repository:
        """Write a new store, whose first snapshot is a dataset or tree.

        Data that are added later must fit it: each variable needs the same dtype and dimensions.

        Parameters
        ----------
        url
            Local path or URL of the store, such as ``"x.vstack"``.
        part
            A dataset or tree, virtual or with values in memory, or the URL of a file, which is opened.
        allow
            URLs or paths that a store from a network may name, although they are local files or private hosts. With
            `vs.Listed`, only these may be read, and the folder of the store (docs/explanation/permission.md).
        storage
            Access to the store and its sources: credentials, endpoint and retries, such as
            ``{"s3://bucket/": {...}}``.
        message
            Message of the snapshot, for the log.
        relative
            If true, sources in the folder that holds the store are written relative to the store, so that both can be
            moved together.
        checksums
            If true, a checksum of all bytes of each source is recorded, which reads every source once
            (docs/how-to/check-a-vstack.md).

        Returns
        -------
        Repository
            The repository at snapshot 0. Add to it with :meth:`append` or :meth:`update`.

        Raises
        ------
        WriterError
            The store exists already, or it cannot hold an attribute.
        ForbiddenLocationError
            The file refers to a place that is not allowed.
        StorageError
            The file cannot be read, or the store cannot be written.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> repo = vs.Repository.create("rain.vstack", rain, message="two days")
        >>> repo.open_dataset()["rain"].values
        array([1., 2.])
        >>> repo.log()[0].message
        'two days'
        """
        reached = Storage.from_option(storage)
        (group,) = groups_from([part], reached, allow)
        group = with_coordinates(group, reached)
        made = save(group, url, storage=reached, allow=allow, message=message, relative=relative, checksums=checksums)
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
            Number of the snapshot, or a time. Numbers begin at 0; ``-1`` is the newest snapshot, ``-2`` the one before
            it. A time means the snapshot that was the newest then: a text in ISO 8601 or a `numpy.datetime64`, in UTC
            if it has no time zone, or a `datetime` with a time zone. A change of a repository at an earlier snapshot
            raises `ConflictError` if later snapshots changed the same data.
        allow
            URLs or paths that a store from a network may name, although they are local files or private hosts. With
            `vs.Listed`, only these may be read, and the folder of the store (docs/explanation/permission.md).
        storage
            Access to the store and its sources: credentials, endpoint and retries, such as
            ``{"s3://bucket/": {...}}``.

        Returns
        -------
        Repository
            The repository at the snapshot. Read it with :meth:`open_dataset`, or add data with :meth:`update`, which
            returns a repository at the new snapshot.

        Raises
        ------
        SourceNotFoundError
            The store or the snapshot does not exist.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> repo = vs.Repository.create("rain.vstack", rain)
        >>> repo = repo.write("rain", {"time": 1}, 9.0)
        >>> vs.Repository.open("rain.vstack").open_dataset()["rain"].values
        array([1., 9.])
        >>> vs.Repository.open("rain.vstack", at=0).open_dataset()["rain"].values
        array([1., 2.])
        """
        (found,), reached = Storage.from_option(storage).with_users([absolute_url(url)])
        objects = ObjectStore(found.rstrip("/") + "/", reached, allow)
        return cls(objects, open_snapshot(objects, at), allow, at is not None)

    # -- changes ----------------------------------------------------------------------------------------------

    def append(
        self,
        part: PartLike,
        /,
        dim: str | None = None,
        *,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
        message: str | None = None,
        relative: bool = False,
        checksums: bool = False,
    ) -> Repository:
        """Append a dataset, a tree or a file to the store, along a dimension.

        Everything is checked before anything is written. References that the store has are neither read nor written.

        Parameters
        ----------
        part
            A dataset or tree, virtual or with values in memory, or the URL of a file, which is opened.
        dim
            Dimension to append along; by default the one along which the store was built. Variables without it must be
            the same, and the store keeps its attributes.
        ordered
            If true, labels along ``dim`` must ascend.
        join
            Treatment of labels along other dimensions. ``"exact"``: they must be the labels of the store. ``"left"``:
            labels that the store lacks are left out, and elements at labels that the part lacks are ABSENT: they should
            exist, but have no source, and read as missing. ``"outer"``: such elements are ABSENT, too, but a new label
            is an error, unlike in xarray and :meth:`update`. Only with ``"outer"`` may one side lack a variable, which
            is then ABSENT there. See docs/explanation/chunk-states.md.
        combine_options
            Options of joining as a dict, such as ``{"compat": "override"}``: ``compat``, ``combine_attrs`` and
            ``fill_value``, as in :func:`virtualstack.open_virtual_mfdataset`.
        message
            Message of the snapshot, for the log.
        relative
            If true, sources in the folder that holds the store are written relative to the store, so that both can be
            moved together.
        checksums
            If true, a checksum of all bytes of each source is recorded, which reads every source once
            (docs/how-to/check-a-vstack.md).

        Returns
        -------
        Repository
            The repository at the new snapshot. Go on with it; this one stays at the old snapshot.

        Raises
        ------
        CombineError
            The part does not fit the store. The message names both.
        ChunkAlignmentError
            Chunks of the part end in other places along another dimension.
        ConflictError
            Another writer has changed the same variables since this snapshot.
        StorageError
            The file cannot be read, or the store cannot be written.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "day0.nc")
        >>> repo = repo.append("day1.nc")
        >>> repo.open_dataset()["rain"].values
        array([1., 2.])
        """
        if not isinstance(dim, str | None):
            raise TypeError(f"dim={dim!r}; it is the name of the dimension to append along")
        storage, store = self.objects.storage, self._stored
        dim = growing_dimension(store.group) if dim is None else dim
        fitting = Fitting.from_options(join=join, options=combine_options, storage=storage)
        addition = Addition(append_dim=dim, region=None, ordered=ordered, fitting=fitting)
        (group,) = groups_from([part], storage, self.allow, is_tree=bool(store.group.groups))
        return self._at(store.add(group, addition, message=message, relative=relative, checksums=checksums))

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
        """Write new values of a region into the store; source files and earlier snapshots stay unchanged.

        New chunks are compressed. Chunks that the region covers in part are read and written whole: all their values
        belong to the store from then on, so :meth:`refresh` does not replace them. For references that are not in
        a vstack, use ``vds.virtual.write``, which writes new chunks into a file.

        Parameters
        ----------
        name
            Path of the variable, ``"group/name"`` in a tree.
        region
            Part of the variable to overwrite: ``{"time": slice(10, 20), "lat": 3}`` (dimensions that are not named are
            covered in full), a tuple of slices and integers, or ``...``.
        values
            Values of the region as ``xr.open_dataset`` returns them, or one value for all. They are packed like the
            variable. With a ``scale_factor``, they are rounded to the nearest value that can be stored; floats are
            rounded to their dtype. Any other value that the variable cannot store is an error.
        raw
            If true, ``values`` are stored numbers, and are not packed.
        message
            Message of the snapshot, for the log.

        Returns
        -------
        Repository
            The repository at the new snapshot. Go on with it; this one stays at the old snapshot.

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

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> repo = vs.Repository.create("rain.vstack", rain)
        >>> repo = repo.write("rain", {"time": slice(0, 1)}, [5.0], message="gauge was blocked")
        >>> repo.open_dataset()["rain"].values
        array([5., 2.])
        """
        made = write(self._stored, name, region, values, self.objects.storage, raw=raw, message=message)
        return self._at(made)

    def update(
        self,
        parts: PartLike | Iterable[PartLike],
        /,
        dim: str | None = None,
        *,
        labels: Any = None,
        join: Literal["exact", "left", "outer"] = "exact",
        prefer: Prefer = None,
        combine_options: Mapping[str, Any] | None = None,
        message: str | None = None,
        relative: bool = False,
        checksums: bool = False,
        progress: Progress | bool | None = None,
    ) -> Repository:
        """Add files at the places that their labels name, and replace elements that the store has.

        Use it if files come late, come twice or are processed again. :meth:`append` is for files that come in order.

        The labels of a file, such as its times, decide its place along all dimensions that have labels. New labels go
        between the labels of the store, in ascending order. Elements at labels that the store has stay unchanged if the
        file lacks them. New elements that no file has are ABSENT: their data should exist, but have no source
        (docs/explanation/chunk-states.md). To replace values by missing values, use :meth:`write`.

        If the store already has a label, the result depends on the file that the label came from:

        - The same version of the same file: nothing changes. URL, size and etag must be the same. For local files the
          modification time must be the same too, unless they were relocated or are written relative to the store.
        - Another version of the same file: the new version replaces the old one.
        - Another file: ``prefer`` decides.

        Values written by :meth:`write` stay if the file is the one that they were written over. References that the
        store has are not written again.

        Parameters
        ----------
        parts
            Datasets or trees, virtual or with values in memory, or URLs of files, which are opened. One or several.
        dim
            Dimension whose labels are added; by default the one along which the store was built. These labels ascend in
            the store, and must ascend in each part.
        labels
            More labels that the store should have along ``dim``, for example the times of files that are still to come.
            Elements at these labels are ABSENT until a part has them.
        join
            Treatment of labels along other dimensions. ``"exact"``: they must be the labels of the store. ``"left"``:
            labels that the store lacks are left out. ``"outer"``: such labels are added to the store. With ``"left"``
            and ``"outer"``, new elements that no file has are ABSENT, and elements that the store has stay unchanged.
        prefer
            The file that is shown if two have the same labels. ``"first"``: the one in the store, or the first of
            ``parts``. ``"last"``: the last of ``parts``. ``"newest"``: the one that was modified last. A function gets
            each file, with ``url``, ``last_modified`` and ``attributes``, and returns a key: the file with the greater
            key is shown. By default this is an error, so that a late original does not replace a reprocessed file.
        combine_options
            Options of joining as a dict, such as ``{"compat": "override"}``: ``compat``, ``combine_attrs`` and
            ``fill_value``, as in :func:`virtualstack.open_virtual_mfdataset`.
        message
            Message of the snapshot, for the log.
        relative
            If true, sources in the folder that holds the store are written relative to the store, so that both can be
            moved together.
        checksums
            If true, a checksum of all bytes of each source is recorded, which reads every source once
            (docs/how-to/check-a-vstack.md).
        progress
            ``True`` for a progress bar of the scan in a notebook or on stderr, or a function of the number of finished
            files and of all files.

        Returns
        -------
        Repository
            The repository at the new snapshot, or this one if nothing changes. Go on with it.

        Raises
        ------
        CombineError
            A part does not fit the store, or the store has its labels from another file and there is no ``prefer``.
        ConflictError
            Another writer has changed the same variables since this snapshot.
        StorageError
            A file cannot be read, or the store cannot be written.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(3):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "day0.nc")
        >>> repo = repo.update("day2.nc")
        >>> repo = repo.update("day1.nc", message="a day that came late")
        >>> repo.open_dataset()["rain"].values
        array([1., 2., 3.])

        A reprocessed file replaces the day that the store has:

        >>> xr.Dataset({"rain": ("time", [7.0])}, {"time": [1]}).to_netcdf("day1_v2.nc", engine="netcdf4")
        >>> repo.update("day1_v2.nc", prefer="last").open_dataset()["rain"].values
        array([1., 7., 3.])
        """
        storage = self.objects.storage
        fitting = Fitting.from_options(join=join, options=combine_options, storage=storage)
        fitting = fitting.with_remedy(
            f"{LABELS_REMEDY}, and join='outer' adds them. Both leave what the file does not have as it is"
        )
        check_prefer(prefer)
        store = self._stored
        dim = growing_dimension(store.group) if dim is None else dim
        groups = groups_from(parts, storage, self.allow, is_tree=bool(store.group.groups), progress=progress)
        made, overlays = updated(store.group, groups, dim, labels, fitting, prefer)
        return self._at(store.write(made, overlays=overlays, message=message, relative=relative, checksums=checksums))
