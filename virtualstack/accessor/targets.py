"""Writers of the accessors. Each method calls one function of the folder of its target."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from virtualstack.errors import folding_methods

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestGroup
    from virtualstack.storage import Allow, Storage, StorageLike


@folding_methods
class Targets:
    """Base of both accessors: writes a dataset or a tree."""

    @abstractmethod
    def to_group(self) -> ManifestGroup:
        """Return the group that :class:`virtualstack.ManifestStore` serves and that writers take."""

    def to_kerchunk(
        self,
        target: str | os.PathLike[str] | None = None,
        /,
        *,
        storage: StorageLike = None,
        allow: Allow = None,
        relative: bool = False,
        fill_budget: int | str = "16 MiB",
        inline_limit: int | str = "1 MiB",
        rewrite: str | float | None = None,
        absent: Literal["raise", "fill"] = "fill",
        zarr_format: Literal[2, 3] = 2,
        record_size: int = 100_000,
        group: str | None = None,
        mode: Literal["w-", "w", "a"] = "w",
        append_dim: str | None = None,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Write kerchunk references, or add to existing ones.

        ``xr.open_dataset(target, engine="virtualstack")`` opens the references, and so does ``engine="kerchunk"``.
        References point to chunks in the source files, which must stay where they are, or move with the references if
        ``relative`` is true. Loaded variables are stored in the references, and so are INLINE chunks, whose bytes are
        in the manifest itself.

        EMPTY chunks were never written and read as the fill value. ABSENT chunks should exist, and no source has them.
        docs/explanation/chunk-states.md explains these states.

        Three limits hold for chunks to which kerchunk cannot refer, each per variable. ``fill_budget`` is for chunks
        without bytes, ``inline_limit`` for small variables, and ``rewrite`` for some chunks of larger ones. The error
        names the limit to raise.

        When to use: other programs read kerchunk references, or somebody without virtualstack must read the data.
        Alternatives: :meth:`to_vstack` takes every chunk as it is and has a history, and :meth:`to_icechunk` writes
        into an Icechunk repository.

        Parameters
        ----------
        target
            Local path or URL to write to. The suffix decides the format: ``.json``, ``.json.gz``, ``.json.zst`` or
            ``.parq``. With ``None``, the references are returned as a dict.
        storage
            Access to the sources and the target: credentials, endpoint and retries, such as ``{"s3://bucket/":
            {...}}``. Other URLs are reached with the storage with which the sources were opened.
        allow
            URLs or paths that existing references on a network may name when appending, although they are local files
            or private hosts (docs/explanation/permission.md).
        relative
            If true, locations of sources are written relative to the folder of the target, so that you can move both
            together. Only virtualstack resolves such locations; other programs need absolute ones, the default.
        fill_budget
            Largest size per variable, such as ``"16 MiB"`` or a number of bytes, of EMPTY and ABSENT chunks that are
            written as values. A chunk that is left out reads as the fill value, and xarray shows the fill value as
            missing. So if the fill value is a real value, such as 0, these chunks must be written.
        inline_limit
            Largest size, such as ``"1 MiB"`` or a number of bytes, of a variable that is read and written into the
            references as a whole, because kerchunk cannot express its chunks. An example is a time series whose chunks
            are longer than the files.
        rewrite
            Largest size per variable of the chunks that are encoded again, if kerchunk can refer to only some of its
            chunks. The other chunks are read, encoded like most chunks of the variable, and written into the
            references. Use ``"1%"`` or ``0.01`` of the stored bytes, or a size such as ``"64 MiB"``. If it is too
            small, nothing is read or written. By default nothing is encoded again, and such a variable is an error.
        absent
            Treatment of ABSENT chunks: ``"fill"`` treats them like EMPTY chunks, and ``"raise"`` raises `WriterError`.
        zarr_format
            Version of zarr of the metadata in the references. Version 3 keeps ``_FillValue`` apart from the value of
            EMPTY chunks, so it needs no ``fill_budget``. It is for JSON alone, and is read by zarr 3, VirtualiZarr
            and virtualstack. References that are added to are written again in this version.
        record_size
            Number of references in each file of a ``.parq`` directory. Readers fetch a file for each of its chunks.
        group
            Path of the group of the references that is written; groups above it and beside it stay. By default: the
            root.
        mode
            ``"w"`` replaces the references, or the group of them. ``"w-"`` raises `WriterError` if they exist. ``"a"``
            adds variables, groups and attributes, and replaces those of the same names; what the data lack stays.
            Labels that other variables of the references have must be equal.
        append_dim
            Dimension to append along. Everything is checked before anything is written: the data must fit the existing
            references, and kerchunk must be able to express both together. JSON is written again as a whole. Record
            files of parquet that do not change are kept.
        ordered
            If true, labels along ``append_dim`` must ascend. This is the default.
        join
            Treatment of labels along other dimensions when appending. ``"exact"``: they must be the existing labels.
            ``"left"``: labels that are not among the existing ones are left out, and elements at labels that the data
            lack are ABSENT and read as missing. ``"outer"``: such elements are ABSENT, too, but a new label is an
            error, unlike in xarray. Only with ``"outer"`` may one side lack a variable, which is then ABSENT there.
        combine_options
            Options of appending as a dict, such as ``{"compat": "override"}``: ``compat``, ``combine_attrs`` and
            ``fill_value``, as in :func:`virtualstack.open_virtual_mfdataset`.

        Returns
        -------
        dict or None
            The references, for ``fsspec.filesystem("reference", fo=...)``, if ``target`` is ``None``. Otherwise
            ``None``.

        Raises
        ------
        WriterError
            Kerchunk cannot express a variable. The message names the variable and the reason, counts the chunks and
            bytes that would be encoded again, and names a limit that is large enough.
        CombineError
            The data do not fit the existing references. The message shows both.
        SourceNotFoundError
            ``append_dim`` is given, and there are no references to append to.
        ForbiddenLocationError
            The existing references name local files or private hosts without ``allow=``, and do not lie on this
            machine.
        StorageError
            Values cannot be read, or the references cannot be written.
        ValueError
            ``rewrite`` is not a budget, or an option for appending is given without ``append_dim``.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day0.nc").virtual.to_kerchunk("refs.json")
        >>> vs.open_virtual_dataset("day1.nc").virtual.to_kerchunk("refs.json", append_dim="time")
        >>> xr.open_dataset("refs.json", engine="virtualstack")["rain"].values
        array([1., 2.])
        """
        from virtualstack.kerchunk.append import to_kerchunk
        from virtualstack.sizes import byte_count

        inline_limit = byte_count(inline_limit, option="inline_limit")
        made = self.to_group()
        reached = _with_access(storage, made)
        return to_kerchunk(
            _named(made, reached, inline_limit),
            target,
            path=group,
            mode=mode,
            append_dim=append_dim,
            ordered=ordered,
            join=join,
            combine_options=combine_options,
            storage=reached,
            allow=allow,
            relative=relative,
            fill_budget=byte_count(fill_budget, option="fill_budget"),
            inline_limit=inline_limit,
            rewrite=rewrite,
            absent=absent,
            zarr_format=zarr_format,
            record_size=record_size,
        )

    def to_icechunk(
        self,
        store: str | os.PathLike[str] | Any,
        /,
        *,
        group: str | None = None,
        mode: Literal["w-", "w", "a"] = "w-",
        append_dim: str | None = None,
        region: Any = None,
        storage: StorageLike = None,
        inline_limit: int | str = "1 MiB",
        rewrite: str | float | None = None,
        absent: Literal["raise", "fill"] = "raise",
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write references into an Icechunk repository or a session of it, or add to a group of it.

        With a path or URL, the call commits. With a session, commit it yourself afterwards.
        ``xr.open_zarr(session.store)`` opens what was written. Everything is checked
        before anything is written: if a check fails, the session is as it was. If Icechunk fails during the write, the
        changes are undone, unless the session already had other changes. Each reference has a checksum if one is known:
        the etag on S3, otherwise the modification time. With it, Icechunk refuses to read files that have changed.
        Loaded variables become chunks of the repository.

        Files whose chunks differ in length become a rectilinear grid. zarr opens such an array after
        ``zarr.config.set({"array.rectilinear_chunks": True})``.

        Parameters
        ----------
        store
            Local path or S3 URL of a repository, such as ``"x.icechunk"``: the call commits to its branch ``"main"``. A
            repository that does not exist is created, with a virtual chunk container for each folder or bucket of
            sources. Or the store of a session, ``session.store``, with ``session = repo.writable_session("main")``. An
            existing repository needs the containers. The error names those that are missing.
        group
            Path of the group in the repository. By default: the root group.
        mode
            ``"w-"`` writes a new group. ``"w"`` replaces a group and everything below it. ``"a"`` adds variables,
            groups and attributes, and replaces those of the same names; what the data lack stays, and is not written
            again. Labels that other variables of the group have must be equal.
        append_dim
            Dimension to append along. The data must fit the existing group, and Icechunk must be able to express
            both together. Existing chunks are not written again.
        region
            Part of the existing group that the data replace: ``{"time": slice(10, 20)}``, integers or slices by
            dimension, or ``"auto"`` to find it by labels. Its chunks must begin and end where chunks of the group do.
        storage
            Access to the sources if values are read, such as ``{"s3://bucket/": {...}}``. Other URLs are read with the
            storage with which the sources were opened.
        inline_limit
            Largest size, such as ``"1 MiB"`` or a number of bytes, of a variable that is read and stored in the
            repository as a whole, because Icechunk cannot express its chunks.
        rewrite
            Largest size per variable of the chunks that are encoded again, if Icechunk can refer to only some of its
            chunks. The other chunks are read, encoded like most chunks of the variable, and stored in the repository.
            Use ``"1%"`` or ``0.01`` of the stored bytes, or a size such as ``"64 MiB"``. By default nothing is encoded
            again, and such a variable is an error.
        absent
            Treatment of ABSENT chunks, which should exist but have no source (docs/explanation/chunk-states.md).
            Icechunk cannot tell them from EMPTY chunks, which were never written. ``"raise"`` raises `WriterError`, and
            ``"fill"`` leaves them out, so that they read as the fill value.
        ordered
            If true, labels along ``append_dim`` must ascend. This is the default.
        join
            Treatment of labels along other dimensions when appending. ``"exact"``: they must be the existing labels.
            ``"left"``: labels that are not among the existing ones are left out, and elements at labels that the data
            lack are ABSENT and read as missing. ``"outer"``: such elements are ABSENT, too, but a new label is an
            error, unlike in xarray. Only with ``"outer"`` may one side lack a variable, which is then ABSENT there.
            ABSENT elements need ``absent="fill"``.
        combine_options
            Options of appending as a dict, such as ``{"compat": "override"}``: ``compat``, ``combine_attrs`` and
            ``fill_value``, as in :func:`virtualstack.open_virtual_mfdataset`.

        Raises
        ------
        WriterError
            Icechunk cannot express a variable, a virtual chunk container is missing, or the group already exists.
        CombineError
            The data do not fit the existing group. The message shows both.
        ChunkAlignmentError
            The chunks end elsewhere than those of the group, along another dimension or in a region.
        SourceNotFoundError
            The group to add to does not exist.
        ValueError
            An option has a value that is not known, or ``rewrite`` is not a budget.
        MissingDependencyError
            Icechunk is not installed.

        Examples
        --------
        >>> import os
        >>> import icechunk
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> folder = f"file://{os.getcwd()}/"
        >>> config = icechunk.RepositoryConfig.default()
        >>> files = icechunk.local_filesystem_store(os.getcwd())
        >>> config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(folder, files))
        >>> access = {folder: icechunk.credentials.LocalFileSystemAccess}
        >>> storage = icechunk.in_memory_storage()
        >>> repo = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)
        >>> session = repo.writable_session("main")
        >>> vs.open_virtual_dataset("day.nc").virtual.to_icechunk(session.store)
        >>> xr.open_zarr(session.store, consolidated=False)["rain"].values
        array([1., 2.])
        """
        from virtualstack.icechunk.append import to_icechunk
        from virtualstack.icechunk.repositories import save_icechunk
        from virtualstack.sizes import byte_count

        inline_limit = byte_count(inline_limit, option="inline_limit")
        made = self.to_group()
        reached = _with_access(storage, made)
        write: Callable[..., Any] = save_icechunk if isinstance(store, str | os.PathLike) else to_icechunk
        write(
            _named(made, reached, inline_limit),
            store,
            path=group,
            mode=mode,
            append_dim=append_dim,
            region=region,
            ordered=ordered,
            join=join,
            combine_options=combine_options,
            storage=reached,
            inline_limit=inline_limit,
            rewrite=rewrite,
            absent=absent,
        )

    def to_vstack(
        self,
        target: str | os.PathLike[str],
        /,
        *,
        storage: StorageLike = None,
        allow: Allow = None,
        group: str | None = None,
        mode: Literal["w-", "w", "a"] = "w-",
        append_dim: str | None = None,
        region: Any = None,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
        message: str | None = None,
        relative: bool = False,
        checksums: bool = False,
    ) -> None:
        """Write a vstack, or add a snapshot to an existing one.

        Datasets and trees have this method. ``xr.open_dataset(target, engine="virtualstack")`` opens one group of the
        store, and ``xr.open_datatree`` all groups. Without ``append_dim``, ``region`` and ``mode``, the store or the
        group must be new. Give at most one of these three; ``ordered`` and ``join`` need ``append_dim``, and
        ``combine_options`` needs ``append_dim`` or ``region``.

        Parameters
        ----------
        target
            Local path or URL of the store, such as ``"x.vstack"``.
        storage
            Access to the store and the sources: credentials, endpoint and retries, such as ``{"s3://bucket/": {...}}``.
            Other URLs are reached with the storage with which the sources were opened.
        allow
            URLs or paths that a store from a network may name, although they are local files or private hosts. With
            `vs.Listed`, only these may be read, and the folder of the store (docs/explanation/permission.md).
        group
            Path of the group of the store that is written; groups above it and beside it stay. By default: the root.
        mode
            ``"w-"`` writes a new store or group, or adds to an existing one by ``append_dim`` or ``region``. ``"a"``
            adds variables, groups and attributes, and replaces those of the same names; what the data lack stays, and
            is not written again. Labels that other variables of the store have must be equal. ``"w"`` makes the data
            the newest snapshot of a store that may exist already, and keeps its earlier snapshots. Chunks that are
            already in the store are not written again. If the data were opened from the newest snapshot, commits of
            others since then are kept; if both changed the same variables, the call raises `ConflictError`. If the data
            were opened from an earlier snapshot (``at=``), they replace everything that was committed after it.
        append_dim
            Dimension to append along, in a new snapshot. Everything is checked first. Of the existing store, only the
            coordinates are read and written again. Variables without the dimension must be the same, and the attributes
            of the store are kept.
        region
            Part of the store that the data replace, in a new snapshot: ``{"time": slice(10, 20)}``, integers or slices
            by dimension, or ``"auto"`` to find it by labels. Its chunks must begin and end where chunks of the store
            do. Variables that the data lack are kept, and so are attributes. Variables without any of the dimensions
            must be the same.
        ordered
            If true, labels along ``append_dim`` must ascend. This is the default.
        join
            Treatment of labels along other dimensions when appending. ``"exact"``: they must be the labels of the
            store. ``"left"``: labels that the store lacks are left out, and elements at labels that the data lack are
            ABSENT: they should exist, but have no source, and read as missing. ``"outer"``: such elements are ABSENT,
            too, but a new label is an error, unlike in xarray; :meth:`virtualstack.Repository.update` adds new labels.
            Only with ``"outer"`` may one side lack a variable, which is then ABSENT there. See
            docs/explanation/chunk-states.md.
        combine_options
            Options of adding as a dict: ``compat``, ``combine_attrs`` and ``fill_value``, as in
            :func:`virtualstack.open_virtual_mfdataset`. With ``{"compat": "override"}``, values that must be the same
            are not compared.
        message
            Message of the snapshot, for the log.
        relative
            If true, locations of sources inside the folder that holds the store are written relative to it, so that
            both can be moved together.
        checksums
            If true, a checksum of all bytes of each source is recorded, which reads every source once. It is compared
            if the time of a local source differs, and by ``Repository.verify(sample=...)``. By default the checksum of
            a local source covers its metadata and a sample of its chunks (docs/how-to/check-a-vstack.md).

        Raises
        ------
        WriterError
            The store already exists, and nothing says how to add to it; or it cannot store an attribute.
        CombineError
            The data do not fit the store. The message shows both.
        ChunkAlignmentError
            The chunks end elsewhere than those of the store, along another dimension or in a region.
        ConflictError
            Another writer has changed the same variables meanwhile.
        ForbiddenLocationError
            The store refers to a place that is not allowed.
        SourceNotFoundError
            The store to add to does not exist.
        StorageError
            The store cannot be written.
        ValueError
            ``mode`` is not known, or options exclude each other or need one that is not given.

        See Also
        --------
        virtualstack.Repository : History and maintenance of a vstack.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day0.nc").virtual.to_vstack("rain.vstack")
        >>> vs.open_virtual_dataset("day1.nc").virtual.to_vstack("rain.vstack", append_dim="time")
        >>> xr.open_dataset("rain.vstack", engine="virtualstack")["rain"].values
        array([1., 2.])
        """
        from virtualstack.vstack.save import save

        made = self.to_group()
        reached = _with_access(storage, made)
        save(
            _named(made, reached),
            target,
            path=group,
            storage=reached,
            allow=allow,
            mode=mode,
            append_dim=append_dim,
            region=region,
            ordered=ordered,
            join=join,
            combine_options=combine_options,
            message=message,
            relative=relative,
            checksums=checksums,
        )


def _named(group: ManifestGroup, storage: Storage, inline_limit: int = 1 << 20) -> ManifestGroup:
    """Return the group without chunks that references cannot name."""
    from virtualstack.reading.nameless import inline_nameless

    return inline_nameless(group, storage=storage, inline_limit=inline_limit)


def _with_access(storage: StorageLike, group: ManifestGroup) -> Storage:
    """Return the storage of a call, together with the accesses of the arrays of the group."""
    from virtualstack.storage import Storage

    return Storage.from_option(storage).with_entries(*group.accesses())
