"""A vstack at one of its snapshots: what it holds, changes of its data, and maintenance."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from inspect import Parameter, signature
from threading import Event
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, cast

import xarray as xr

from virtualstack.api.one import TreeOptions, VirtualOptions, open_virtual_dataset, open_virtual_datatree
from virtualstack.api.values import VALUE_OPTIONS, ValueOptions
from virtualstack.combine.addition import Addition, growing_dimension
from virtualstack.combine.align import LABELS_REMEDY
from virtualstack.combine.fitting import Fitting
from virtualstack.combine.members import with_members
from virtualstack.combine.precedence import Prefer, check_prefer
from virtualstack.combine.update import updated
from virtualstack.drawing.axes import plot_timeline
from virtualstack.errors import (
    ForbiddenLocationError,
    RecipeError,
    Remedy,
    SourceNotFoundError,
    StorageError,
    check_type,
    folding_methods,
)
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.location import Location, absolute_url, local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.options import OPENING, VALUES, OnMissing, with_options
from virtualstack.printable import printable
from virtualstack.progress import Progress
from virtualstack.scanning.workers import ExecutorLike
from virtualstack.storage import ObjectStore, Storage, StorageLike, read_allowed_urls
from virtualstack.storage.listing import find_urls
from virtualstack.storage.permission import Allow
from virtualstack.surveying.cube import cube_timeline
from virtualstack.surveying.picture import Picture
from virtualstack.vstack.compact import compact
from virtualstack.vstack.diff import Diff, diff
from virtualstack.vstack.display import snapshot_html
from virtualstack.vstack.expire import Expired, expire
from virtualstack.vstack.files import RunOptions, Sync, open_files, with_run_options
from virtualstack.vstack.format.archive import ReadPermission
from virtualstack.vstack.format.history import OpenStore
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.names import Moment, format_time
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.health import Health, health
from virtualstack.vstack.ledger import Ledger, ledger_of
from virtualstack.vstack.log import Log, read_log
from virtualstack.vstack.overwrite import write
from virtualstack.vstack.parts import PartLike, groups_from, is_part, with_coordinates
from virtualstack.vstack.reader import At, open_snapshot, permission_for_snapshot, snapshot_group
from virtualstack.vstack.rechunk import rechunk
from virtualstack.vstack.recipe import Recipe, covers, found_prefer, found_reader, functions
from virtualstack.vstack.refresh import Refreshed, refresh
from virtualstack.vstack.relocate import relocate
from virtualstack.vstack.rescan import Rescan
from virtualstack.vstack.save import Stored, base_of, placed, save
from virtualstack.vstack.sync import Synced, segment, sync
from virtualstack.vstack.verify import StoreVerification, verify
from virtualstack.vstack.watch import watch
from virtualstack.vstack.write.commit import GRACE_SECONDS
from virtualstack.vstack.write.write import write_group

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

_MAX_SHOWN_VARIABLES = 50
"""Number of variables that ``repr`` lists at most."""


def _options_of(function: Callable[..., Any]) -> list[Parameter]:
    """Return the options of a function that opens a source; the store itself gives the others."""
    given = ("url", "reader", "storage", "allow")
    return [x for x in signature(function).parameters.values() if x.name not in given]


def _recipe(given: Recipe | str | os.PathLike[str]) -> Recipe:
    return given if isinstance(given, Recipe) else Recipe.read(os.fspath(given))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SnapshotReader:
    """A reader of a snapshot that is in memory; see :class:`~virtualstack.vstack.reader.VStack`."""

    name: ClassVar[str] = "vstack"

    snapshot: Snapshot
    is_chosen: bool

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        objects = ObjectStore(url, storage, options.allow)
        return snapshot_group(objects, self.snapshot, options, is_chosen=self.is_chosen)


@dataclass(frozen=True, repr=False)
@folding_methods
class Repository:
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

    objects: ObjectStore
    snapshot: Snapshot
    allow: Allow = ()
    is_chosen: bool = False

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

        Data that are added later must fit it: each variable needs the same dimensions.

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
            If true, sources are written relative to the store, so that both can be moved together. Those on the server
            of the store must be in the folder that holds it.
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
        return cls(ObjectStore(absolute_url(url), reached, allow), made, allow)

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
        objects = ObjectStore(found, reached, allow)
        return cls(objects, open_snapshot(objects, at), allow, at is not None)

    @classmethod
    @with_run_options
    def build(
        cls,
        url: str | os.PathLike[str],
        recipe: Recipe | str | os.PathLike[str],
        /,
        *,
        allow: Allow = (),
        storage: StorageLike = None,
        **options: Unpack[RunOptions],
    ) -> Synced[Repository]:
        """Write a new store by a recipe, which the store keeps. :meth:`sync` brings it up to date later.

        Files that do not fit are quarantined; see :meth:`sync` for the options.

        Parameters
        ----------
        url
            Local path or URL of the store.
        recipe
            The recipe, or the path of a file of TOML.
        allow
            URLs or paths that a store from a network may name; see :meth:`open`.
        storage
            Access to the store and its sources.

        Returns
        -------
        Synced
            A report. Go on with its ``repository``.

        Raises
        ------
        RecipeError
            The recipe is not valid.
        CombineError
            No file fits, or one does not and the recipe says ``misfit = "raise"``.
        SourceNotFoundError
            A pattern matches no file.
        WriterError
            The store exists already.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> built = vs.Repository.build("rain.vstack", vs.Recipe(["day*.nc"], dim="time"))
        >>> len(built.placed), built.repository.open_dataset()["rain"].values
        (2, array([1., 2.]))
        """
        (found,), reached = Storage.from_option(storage).with_users([absolute_url(url)])
        objects = ObjectStore(found, reached, allow)
        base = base_of(objects, ManifestGroup(), "w-")
        how = Sync(storage=reached, allow=allow, **options)
        return cls(objects, base, allow)._synced(_recipe(recipe), how)

    @classmethod
    def segment(
        cls,
        url: str | os.PathLike[str],
        recipe: Recipe | str | os.PathLike[str] | None = None,
        /,
        *,
        partition: tuple[int, int] = (1, 1),
        allow: Allow = (),
        storage: StorageLike = None,
        executor: ExecutorLike = None,
        cache: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        progress: Progress | bool | None = None,
    ) -> int:
        """Open and join a part of the new files of a store, and keep the results below it, for a later :meth:`sync`.

        Many machines may do this at the same time. A :meth:`build` or :meth:`sync` then places all results in one
        commit, and opens only what is missing.

        Parameters
        ----------
        url
            Local path or URL of the store, which need not exist yet.
        recipe
            The recipe, or the path of a file of TOML. By default that of the store.
        partition
            Number of the part, from 1, and number of all parts.
        allow, storage
            As in :meth:`open`.
        executor, cache, timeout, progress
            As in :meth:`sync`.

        Returns
        -------
        int
            Number of files of this part that were new.

        Raises
        ------
        RecipeError
            The store has no recipe, or the recipe is not valid.
        SourceNotFoundError
            A pattern matches no file, or there is neither a store nor a recipe.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(4):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> recipe = vs.Recipe(["day*.nc"], dim="time")
        >>> [vs.Repository.segment("rain.vstack", recipe, partition=(n, 2)) for n in (1, 2)]
        [2, 2]
        >>> vs.Repository.build("rain.vstack", recipe, only_segments=True).repository.ledger()
        <ledger of 4 files: 4 placed>
        """
        (found,), reached = Storage.from_option(storage).with_users([absolute_url(url)])
        objects = ObjectStore(found, reached, allow)
        try:
            repository = cls(objects, open_snapshot(objects, None), allow)
        except SourceNotFoundError:
            if recipe is None:
                raise
            repository = cls(objects, base_of(objects, ManifestGroup(), "w-"), allow)
        used = repository._own_recipe() if recipe is None else _recipe(recipe)
        named = reached.with_users([absolute_url(x) for x in used.files])[1]
        how = Sync(storage=named, allow=allow, executor=executor, cache=cache, timeout=timeout, progress=progress)
        return segment(repository._stored, used, partition, how)

    @property
    def recipe(self) -> Recipe | None:
        """The recipe that the store keeps, or ``None``.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf("day0.nc", engine="netcdf4")
        >>> vs.Repository.build("rain.vstack", vs.Recipe(["day*.nc"], dim="time")).repository.recipe.dim
        'time'
        """
        return None if self.snapshot.recipe is None else Recipe.from_toml(self.snapshot.recipe)

    def ledger(self) -> Ledger:
        """Return what became of each file that the recipe of the store names.

        Returns
        -------
        Ledger
            ``counts`` has the number of files by state, and ``table`` one row for each file.

        Raises
        ------
        StorageError
            The store cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf("day0.nc", engine="netcdf4")
        >>> vs.Repository.build("rain.vstack", vs.Recipe(["day*.nc"], dim="time")).repository.ledger().counts
        {'placed': 1}
        """
        return ledger_of(self._opened, self.snapshot)

    def health(self) -> Health:
        """Return what is late or missing, what does not fit, and how the store grows. No file is opened.

        Files are those of the ledger. Labels are compared with what the recipe says by ``expected``
        (docs/reference/recipe.md).

        Returns
        -------
        Health
            It shows itself as text; ``to_prometheus()`` is the text format of Prometheus.

        Raises
        ------
        RecipeError
            The recipe expects labels that are not like those of the store.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf("day0.nc", engine="netcdf4")
        >>> expected = {"time": {"labels": [0, 1]}}
        >>> recipe = vs.Recipe(["day*.nc"], dim="time", expected=expected)
        >>> vs.Repository.build("rain.vstack", recipe).repository.health().missing
        (LabelRange(first='time 1', last='time 1', n=1),)
        """
        return health(
            self.url, self.snapshot.number, self._stored.group, self.ledger(), self.recipe, self.objects.storage
        )

    @with_run_options
    def sync(
        self,
        *,
        recipe: Recipe | str | os.PathLike[str] | None = None,
        retry: bool = False,
        reopen: bool = False,
        **options: Unpack[RunOptions],
    ) -> Synced[Repository]:
        """Bring the store up to date with the files of its recipe: list them, and place those that are new or changed.

        Files that the ledger knows are not opened. All files that fit are placed in one commit. A file that does not
        fit is quarantined with the reason, and opened again when it has changed, or when a file that the reason names
        has changed or vanished. A file that only lacks others waits for them. If a file of the store has changed,
        its new version replaces the old one; if that does not fit, its cells become ABSENT
        (docs/explanation/chunk-states.md). Cells of files that vanish stay. If a run is killed, the store is as before.
        If nothing is new, no snapshot is written.

        Parameters
        ----------
        recipe
            A new recipe to keep, or the path of a file of TOML. By default that of the store.
        retry
            If true, quarantined files are opened again. A new recipe does so, too.
        reopen
            If true, placed files are opened again, too, for example because the recipe takes more variables. If one
            does not fit any more, nothing is committed.

        Returns
        -------
        Synced
            A report. Go on with its ``repository``.

        Raises
        ------
        RecipeError
            The store has no recipe, or the recipe is not valid.
        CombineError
            A file does not fit, and the recipe says ``misfit = "raise"``.
        SourceNotFoundError
            A pattern matches no file.
        ForbiddenLocationError
            The store is not on this machine, and its recipe names functions, or files at a place that is not allowed.
        ConflictError
            Another writer has changed the same data since this snapshot.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf("day0.nc", engine="netcdf4")
        >>> repo = vs.Repository.build("rain.vstack", vs.Recipe(["day*.nc"], dim="time")).repository
        >>> xr.Dataset({"rain": ("time", [2.0])}, {"time": [1]}).to_netcdf("day1.nc", engine="netcdf4")
        >>> done = repo.sync()
        >>> done.exit_code, done.repository.open_dataset()["rain"].values
        (0, array([1., 2.]))
        >>> done.repository.sync()
        snapshot 1: nothing new
        """
        used = self._own_recipe() if recipe is None else _recipe(recipe)
        how = Sync(storage=self.objects.storage, allow=self.allow, retry=retry, reopen=reopen, **options)
        return self._synced(used, how)

    @with_run_options
    def watch(
        self,
        *,
        recipe: Recipe | str | os.PathLike[str] | None = None,
        interval: float | None = None,
        queue: str | None = None,
        stop: Event | None = None,
        **options: Unpack[RunOptions],
    ) -> Iterator[Synced[Repository] | StorageError]:
        """Bring the store up to date now, and again whenever its files change.

        If watchfiles is installed (``pip install 'virtualstack[watch]'``), changes of folders on this machine begin a
        run at once. So do messages of a queue. Else the files are listed again and again.

        Parameters
        ----------
        recipe
            A recipe to keep in the store, as in :meth:`sync`.
        interval
            Seconds between two listings. By default: 1 for folders of this machine that are not watched or have files
            that are not settled, 3600 with a queue, else 60. A listing that takes longer is followed by a pause of the
            same length.
        queue
            URL of a queue of Amazon SQS that gets the notifications of the buckets of the files
            (``pip install 'virtualstack[queue]'``). Each message begins a run, and is deleted after it. The credentials
            are those that boto3 finds.
        stop
            Ends the iteration if it is set; a run that has begun is finished.

        Yields
        ------
        Synced or StorageError
            The report of the first run, and of each later one that finds something new. After the first run, an error
            of a server is yielded, and the next run tries again.

        Raises
        ------
        RecipeError
            The store has no recipe, or the recipe is not valid.
        StorageError
            The first run fails.
        MissingDependencyError
            There is a ``queue``, and boto3 is not installed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf("day0.nc", engine="netcdf4")
        >>> repo = vs.Repository.build("rain.vstack", vs.Recipe(["day*.nc"], dim="time")).repository
        >>> for done in repo.watch():
        ...     print(done)
        ...     break
        snapshot 0: nothing new
        """
        used = self._own_recipe() if recipe is None else _recipe(recipe)

        def run() -> Synced[Repository]:
            newest = type(self).open(self.url, allow=self.allow, storage=self.objects.storage)
            return newest.sync(recipe=used, **options)

        yield from watch(run, used, stop or Event(), interval, queue)

    def _own_recipe(self) -> Recipe:
        """Return the recipe of the store; one from a network may name no functions, and only files that are allowed."""
        recipe = self.recipe
        if recipe is None:
            raise RecipeError(f"'{self.url}' has no recipe", Remedy("give one with", recipe=...))
        if local_path(self.url) is None and not self.url.startswith("memory://"):
            if functions(recipe):
                raise ForbiddenLocationError(
                    f"the recipe of '{self.url}' names the function '{functions(recipe)[0]}', and a store from a "
                    "network may not run code",
                    Remedy("if you trust it, give the recipe with", recipe=...),
                    url=self.url,
                )
            self._permission.check(list(recipe.files))
        return recipe

    def _synced(self, recipe: Recipe, how: Sync) -> Synced[Repository]:
        named = how.storage.with_users([absolute_url(x) for x in recipe.files])[1]
        return sync(self._stored, recipe, replace(how, storage=named), self._at)

    # -- content ----------------------------------------------------------------------------------------------

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

    @with_options(VALUES, passed_on=VALUE_OPTIONS)
    def open_dataset(
        self, *, group: str | None = None, chunks: Any = None, **options: Unpack[ValueOptions]
    ) -> xr.Dataset:
        """Open the snapshot as a lazy dataset with values. No chunk is read until values are used.

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

    @with_options(VALUES, passed_on=VALUE_OPTIONS)
    def open_datatree(
        self, *, group: str | None = None, chunks: Any = None, **options: Unpack[ValueOptions]
    ) -> xr.DataTree:
        """Open the snapshot with all groups as a tree of lazy datasets. No chunk is read until values are used.

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

    @with_options(OPENING, passed_on=_options_of(open_virtual_dataset))
    def open_virtual_dataset(self, **options: Unpack[VirtualOptions]) -> xr.Dataset:
        """Open the snapshot as a virtual dataset, to change what it refers to or to write it elsewhere.

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
        return open_virtual_dataset(self.url, **options, **self._virtual)

    @with_options(OPENING, passed_on=_options_of(open_virtual_datatree))
    def open_virtual_datatree(self, **options: Unpack[TreeOptions]) -> xr.DataTree:
        """Open the snapshot with all groups as a virtual tree, to change what it refers to or to write it elsewhere.

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
        return open_virtual_datatree(self.url, **options, **self._virtual)

    def chunks(self) -> pa.RecordBatchReader:
        """Return a table of all chunks of the snapshot, as a stream of Arrow.

        Returns
        -------
        pyarrow.RecordBatchReader
            The table of :meth:`virtualstack.accessor.VirtualTreeAccessor.chunks`, which describes its columns.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", vs.open_virtual_dataset("day.nc"))
        >>> repo.chunks().read_all().select(["variable", "state", "length", "time_max"]).to_pylist()
        [{'variable': 'rain', 'state': 'referenced', 'length': 16, 'time_max': 1}]
        """
        reader: pa.RecordBatchReader = self.open_virtual_datatree().virtual.chunks()
        return reader

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

    def diff(self, before: At | None = None, after: At | None = None, /) -> Diff:
        """Compare two snapshots: variables, attributes, and boxes of elements.

        Loaded variables are compared by value. For other variables, a box differs if its chunks were written again,
        even with the same references. No references are read.

        Parameters
        ----------
        before, after
            Snapshots in the form that ``at=`` of :meth:`Repository.open` takes. By default ``after`` is this
            snapshot, and ``before`` the one before it.

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
        b = self.snapshot if after is None else open_snapshot(self.objects, after)
        if before is None and not b.number:
            raise SourceNotFoundError(f"snapshot 0 is the first of '{self.url}': there is none before it", url=self.url)
        a = open_snapshot(self.objects, b.number - 1 if before is None else before)
        store = self._opened
        return diff(a, b, (store.archive(a), store.archive(b)))

    # -- changes ----------------------------------------------------------------------------------------------

    @with_options(OPENING)
    def append(
        self,
        part: PartLike,
        /,
        dim: str | None = None,
        *,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] | None = None,
        combine_options: Mapping[str, Any] | None = None,
        drop_variables: str | Iterable[str] = (),
        message: str | None = None,
        relative: bool = False,
        checksums: bool = False,
    ) -> Repository:
        """Append a dataset, a tree or a file to the store, along a dimension.

        Everything is checked before anything is written. References that the store has are neither read nor written,
        unless the part has another packing, dtype or chunk shape: then the variable is decoded by its chunks, in the
        dtype that xarray gives to all files joined, and earlier snapshots stay as they are. If another writer was
        faster, the part is appended to its snapshot, and not read again.

        Parameters
        ----------
        part
            A dataset or tree, virtual or with values in memory, or the URL of a file, which is opened (by the recipe of
            the store if it has one).
        dim
            Dimension to append along; by default that of the recipe, or the one along which the store was built.
            Variables without it must be the same, and the store keeps its attributes.
        ordered
            If true, labels along ``dim`` must ascend.
        join
            Treatment of labels along other dimensions; by default that of the recipe, or ``"exact"``. ``"exact"``: they
            must be the labels of the store. ``"left"``: labels that the store lacks are left out, and elements at
            labels that the part lacks are ABSENT: they should exist, but have no source, and read as missing.
            ``"outer"``: such labels are added, and so are variables that only one side has, which are ABSENT on the
            other one. See docs/explanation/chunk-states.md.
        combine_options
            Options of joining as a dict, such as ``{"compat": "override"}``: ``compat``, ``combine_attrs`` and
            ``fill_value``, as in :func:`virtualstack.open_virtual_mfdataset`.
        message
            Message of the snapshot, for the log.
        relative
            If true, sources are written relative to the store, so that both can be moved together. Those on the server
            of the store must be in the folder that holds it.
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
        ConflictError
            This snapshot was chosen with ``at=`` and is not the newest.
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
        check_type("dim", dim, str | None, "the name of a dimension")
        storage, store = self.objects.storage, self._stored
        recipe, rows = self._kept_recipe(), list[Entry]()
        parts: Sequence[PartLike] = [part]
        if recipe is not None:
            dim, join, combine_options = (
                dim or recipe.dim,
                join or recipe.join,
                combine_options or recipe.combine_options,
            )
            parts, rows = self._opened_by(recipe, parts)
        dim = growing_dimension(store.group) if dim is None else dim
        fitting = Fitting.from_options(join=join or "exact", options=combine_options or None, storage=storage)
        addition = Addition(append_dim=dim, region=None, ordered=ordered, fitting=fitting)
        is_tree = bool(store.group.groups)
        (group,) = groups_from(parts, storage, self.allow, is_tree=is_tree, drop_variables=drop_variables)

        def place(store: Stored) -> Snapshot:
            how: dict[str, Any] = {"message": message, "relative": relative, "checksums": checksums}
            return store.add(group, addition, ledger=rows, **how)

        return self._placed(store, place)

    def edit(
        self,
        change: Callable[[xr.Dataset], xr.Dataset],
        /,
        *,
        group: str | None = None,
        message: str | None = None,
    ) -> Repository:
        """Change names, attributes, encodings or variables of a group, as one new snapshot.

        References that stay are not written again, and no chunk is read.

        Parameters
        ----------
        change
            Function that gets the group as a virtual dataset, and returns what the group becomes. For example, it calls
            ``drop_vars``, ``rename`` or ``assign_attrs`` of xarray, or ``.virtual.set_encoding``.
        group
            Path of the group. By default: the root. Other groups stay as they are.
        message
            Message of the snapshot, for the log.

        Returns
        -------
        Repository
            The repository at the new snapshot; the same one if nothing has changed.

        Raises
        ------
        ConflictError
            Another writer has changed the same variables meanwhile.
        WriterError
            Groups below the group have labels of another length than a dimension that was changed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", vs.open_virtual_dataset("day.nc"))
        >>> repo = repo.edit(lambda vds: vds.rename(rain="precipitation").assign_attrs(title="Two days"))
        >>> repo.open_dataset()["precipitation"].values
        array([1., 2.])
        """
        path, stored = (group or "").strip("/"), self._stored
        stored.node(path)
        groups = cast(ManifestGroup, stored.whole[path]).groups
        vds = cast(xr.DataTree, self.open_virtual_datatree()[f"/{path}"]).to_dataset(inherit=False)
        made: ManifestGroup = change(vds).virtual.to_group()
        new = replace(made, groups=groups)
        tree = with_members(stored.whole, new, path, "w", self.objects.storage)
        saved = write_group(stored.opened, stored.snapshot, tree, message=message, always=False, keep_layouts=True)
        return self._at(saved)

    def rechunk(
        self,
        variable: str,
        chunks: Mapping[str, int],
        /,
        *,
        name: str,
        max_bytes: int | str = "256 MiB",
        message: str | None = None,
    ) -> Repository:
        """Write a variable again in other chunks, as a second variable that the store keeps up to date.

        The files have one layout, such as a map for each time. The second variable, the *layout*, can have another one,
        such as long time series of small areas. Its values are compressed chunks in the store. Every later change of
        the variable, such as :meth:`append`, :meth:`update`, :meth:`sync`, :meth:`refresh` or :meth:`write`, changes
        the layout in the same snapshot. It reads what has changed, and writes each chunk of the layout again that
        shows some of it (docs/how-to/maps-and-series.md).

        Each chunk of the files is read once. If the layout does not fit into ``max_bytes``, a temporary file takes the
        uncompressed values.

        Parameters
        ----------
        variable
            Path of the variable, ``"group/name"`` in a tree.
        chunks
            Lengths of chunks by dimension; ``-1`` is the length that the dimension has now. Dimensions that are not
            named keep the chunks of the variable.
        name
            Name of the layout, in the group of the variable.
        max_bytes
            Bytes of values to have in memory, such as ``"256 MiB"`` or a number of bytes.
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
        ValueError
            A chunk length is not valid, or ``max_bytes`` is too little for one chunk.
        WriterError
            The store has the name already, or the variable is text or loaded.
        ConflictError
            Another writer has changed the variable since this snapshot.
        StorageError
            Chunks cannot be read, or the store cannot be written.

        Examples
        --------
        >>> import numpy as np
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": (("time", "x"), np.full((1, 4), day))}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> repo = vs.Repository.create("rain.vstack", "day0.nc")
        >>> repo = repo.rechunk("rain", {"time": 100, "x": 2}, name="rain_series")
        >>> repo = repo.append("day1.nc", "time")
        >>> repo.open_dataset()["rain_series"].isel(x=0).values
        array([0, 1])
        """
        made = rechunk(self._stored, variable, chunks, name, max_bytes=max_bytes, message=message)
        return self._at(made)

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

    @with_options(OPENING)
    def update(
        self,
        parts: PartLike | Iterable[PartLike],
        /,
        dim: str | None = None,
        *,
        labels: Any = None,
        join: Literal["exact", "left", "outer"] | None = None,
        prefer: Prefer = None,
        combine_options: Mapping[str, Any] | None = None,
        drop_variables: str | Iterable[str] = (),
        message: str | None = None,
        relative: bool = False,
        checksums: bool = False,
        progress: Progress | bool | None = None,
    ) -> Repository:
        """Add files at the places that their labels name, and replace elements that the store has.

        Use it if files come late, come twice or are processed again. :meth:`append` is for files that come in order.

        The labels of a file, such as its times, decide its place along all dimensions that have labels. New labels go
        between the labels of the store, which may ascend or descend; behind them if they do neither. Elements at labels
        that the store has stay unchanged if the file lacks them. New elements that no file has are ABSENT: their data
        should exist, but have no source (docs/explanation/chunk-states.md). To replace values by missing values, use
        :meth:`write`.

        If the store already has a label, the result depends on the file that the label came from:

        - The same version of the same file: nothing changes. URL, size and etag must be the same. For local files the
          modification time must be the same too, unless they were relocated or are written relative to the store.
        - Another version of the same file: the new version replaces the old one.
        - Another file: ``prefer`` decides.

        Values written by :meth:`write` stay if the file is the one that they were written over. References that the
        store has are not written again. If the store has a recipe, its files are noted in the ledger, and a version
        that the ledger knows as placed is not opened again; it is if ``prefer="last"`` may show it over another file,
        or if ``join``, ``combine_options``, ``drop_variables`` or a function as ``prefer`` are given.

        If another writer was faster, the parts are placed in its snapshot by the same rules, and not read again.

        Parameters
        ----------
        parts
            Datasets or trees, virtual or with values in memory, or URLs of files, which are opened (by the recipe of
            the store if it has one). One or several.
        dim
            Dimension whose labels are added; by default that of the recipe, or the one along which the store was built.
        labels
            More labels that the store should have along ``dim``, for example the times of files that are still to come.
            Elements at these labels are ABSENT until a part has them.
        join
            Treatment of labels along other dimensions; by default that of the recipe, or ``"exact"``. ``"exact"``: they
            must be the labels of the store. ``"left"``: labels that the store lacks are left out. ``"outer"``: such
            labels and new variables are added to the store. With ``"left"`` and ``"outer"``, new elements that no file
            has are ABSENT, and elements that the store has stay unchanged.
        prefer
            The file that is shown if two have the same labels. ``"first"``: the one in the store, or the first of
            ``parts``. ``"last"``: the last of ``parts``. ``"newest"``: the one that was modified last. A function gets
            each file, with ``url``, ``last_modified`` and ``attributes``, and returns a key: the file with the greater
            key is shown. By default the recipe decides; without one this is an error, so that a late original does not
            replace a reprocessed file.
        combine_options
            Options of joining as a dict, such as ``{"compat": "override"}``: ``compat``, ``combine_attrs`` and
            ``fill_value``, as in :func:`virtualstack.open_virtual_mfdataset`.
        message
            Message of the snapshot, for the log.
        relative
            If true, sources are written relative to the store, so that both can be moved together. Those on the server
            of the store must be in the folder that holds it.
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
            Another writer has changed the same variables since this snapshot, and the parts replace elements of it, or
            it was chosen with ``at=``.
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
        storage, recipe = self.objects.storage, self._kept_recipe()
        rows: list[Entry] = []
        if recipe is not None:
            is_usual = join is None and not combine_options and not drop_variables and not callable(prefer)
            dim, join = dim or recipe.dim, join or recipe.join
            prefer = found_prefer(recipe) if prefer is None else prefer
            combine_options = combine_options or recipe.combine_options or None
            given = [parts] if is_part(parts) else list(cast(Iterable[PartLike], parts))
            parts, rows = self._opened_by(recipe, given, progress, skips=is_usual and prefer != "last")
            if given and not parts and labels is None:
                return self
        fitting = Fitting.from_options(join=join or "exact", options=combine_options, storage=storage)
        fitting = fitting.with_remedies(
            LABELS_REMEDY,
            Remedy("leave out labels that the store does not have with", join="left"),
            Remedy("add them with", join="outer"),
        )
        check_prefer(prefer)
        store = self._stored
        grows = growing_dimension(store.group) if dim is None else dim
        is_tree = bool(store.group.groups)
        groups = groups_from(
            parts, storage, self.allow, is_tree=is_tree, drop_variables=drop_variables, progress=progress
        )
        replaces = False

        def n_labels(group: ManifestGroup) -> int:
            return sum(node.arrays[grows].size for _, node in group.walk() if grows in node.arrays)

        def place(store: Stored) -> Snapshot:
            nonlocal replaces
            made, overlays = updated(store.group, groups, grows, labels, fitting, prefer)
            if store.snapshot is self.snapshot and prefer not in (None, "first"):
                replaces = labels is not None or n_labels(made) < n_labels(store.group) + sum(map(n_labels, groups))
            return store.write(
                made, overlays=overlays, message=message, relative=relative, checksums=checksums, ledger=rows
            )

        return self._placed(store, place, lambda: not replaces)  # its values may be made of those that it replaces

    def _kept_recipe(self) -> Recipe | None:
        return None if self.snapshot.recipe is None else self._own_recipe()

    def _opened_by(
        self, recipe: Recipe, parts: Sequence[PartLike], progress: Any = None, *, skips: bool = False
    ) -> tuple[list[PartLike], list[Entry]]:
        """Return parts with the files among them opened by a recipe, and entries of the ledger for its own files.

        With ``skips``, versions that the ledger has as placed are left out.
        """
        storage, begin = self.objects.storage, time.time()
        listed: list[PartLike] = []
        for part in parts:
            listed += find_urls([part], storage=storage) if isinstance(part, str | os.PathLike) else [part]
        urls = [x for x in listed if isinstance(x, str)]
        now = zip(urls, storage.look_up(urls), strict=True)
        files = {url: x if isinstance(x, Location) else Location(url) for url, x in now}
        if skips and files:
            for row in self.ledger().where(["placed"], files).entries():
                if row.is_version(files[row.url]):
                    del files[row.url]
        found, errors = open_files(files, recipe, Sync(storage=storage, allow=self.allow, progress=progress))
        for error in errors.values():
            raise error
        opened: dict[str, PartLike] = {x.url: x.dataset for x in found}
        placed = [Entry.of(x, "placed", since=begin) for url, x in files.items() if covers(recipe.files, url)]
        return [opened[x] if isinstance(x, str) else x for x in listed if not isinstance(x, str) or x in opened], placed

    # -- maintenance ----------------------------------------------------------------------------------------------

    def _at(self, snapshot: Snapshot) -> Repository:
        return self if snapshot is self.snapshot else replace(self, snapshot=snapshot, is_chosen=False)

    def _placed(
        self, store: Stored, place: Callable[[Stored], Snapshot], may_repeat: Callable[[], bool] = lambda: True
    ) -> Repository:
        """Place parts, again if another writer was faster; never in a newer snapshot than one that was chosen."""
        return self._at(placed(store, self.allow, place, lambda: not self.is_chosen and may_repeat()))

    @property
    def _stored(self) -> Stored:
        return Stored(self._opened, self.snapshot)

    def _repr_html_(self) -> str:
        title = f"snapshot {self.snapshot.number} of '{self.url}', {format_time(self.snapshot.time)}"
        return snapshot_html(title, self.snapshot, *self._shown)

    @cached_property
    def _shown(self) -> tuple[OpenStore, Picture]:
        """The store and the map of the snapshot, which are read once for all times that this object is shown."""
        store = self._opened
        return store, Picture(partial(store.group, self.snapshot), store.objects.storage.only(store.permission))

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
        changed: OnMissing = "keep",
        reader: str | Reader | None = None,
        executor: ExecutorLike = None,
        message: str | None = None,
        progress: Progress | bool | None = None,
    ) -> Refreshed[Repository]:
        """Scan changed sources again, and replace their chunks, all in one snapshot.

        A source that does not fit is reported in ``left``: its shape, chunk boundaries or dtype would change the store,
        or values that the store holds itself (such as coordinates) differ. Place it again with :meth:`update`, or mask
        it with ``changed``. Values that you wrote with ``write`` stay with their chunks, and so do earlier snapshots.

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
        changed
            Treatment of changed sources that do not fit or are damaged. ``"keep"``: the references stay, and reading
            them is an error. ``"mask"``: their chunks become ABSENT, so that all others can be read together.
        reader
            Name of a reader (see :func:`virtualstack.list_readers`), or a reader with options. By default it is that of
            the recipe of the store, or detected for each source.
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
        if reader is None and self.recipe is not None:
            reader = found_reader(self.recipe)
        how = Rescan(reader=reader, executor=executor, allow=allow, progress=progress)
        return refresh(
            self._stored, self.objects.storage, how, self._at, missing=missing, changed=changed, message=message
        )
