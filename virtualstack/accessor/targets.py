"""What datasets and trees are written to; each method calls one function of the folder of its target."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestGroup
    from virtualstack.storage import Allow, StorageLike

__all__ = ["Targets"]


class Targets:
    """Writes a dataset or a tree."""

    @abstractmethod
    def to_group(self) -> ManifestGroup:
        """Return the plain group that writers and :class:`virtualstack.ManifestStore` take."""

    def to_kerchunk(
        self,
        target: str | os.PathLike[str] | None = None,
        /,
        *,
        storage: StorageLike = None,
        relative: bool = False,
        fill_budget: int = 1 << 24,
        inline_limit: int = 1 << 20,
        rewrite: str | float | None = None,
        absent: Literal["raise", "fill"] = "fill",
        append_dim: str | None = None,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Write kerchunk references, which ``xr.open_dataset(target, engine="kerchunk")`` opens, or add to some.

        Parameters
        ----------
        target
            ``"refs.json"``, ``"refs.json.gz"``, ``"refs.json.zst"`` or ``"refs.parq"``, a local path or URL: the suffix
            decides; ``None`` gives the dict.
        storage
            See :func:`virtualstack.open_virtual_dataset`.
        relative
            Write the locations of sources relative to the folder of the target, so that both can be moved together;
            only virtualstack reads them so.
        fill_budget
            Bytes that absent chunks of one variable may take where kerchunk cannot leave them out, because their fill
            value is no missing value.
        inline_limit
            Bytes of values of a variable that is read and written into the references where kerchunk cannot express
            its chunks: a time series whose chunks are longer than the files, for example.
        rewrite
            How much of each variable may be read, encoded as most of its chunks are, and written into the references,
            where kerchunk takes only a part of its chunks as they lie: ``"1%"`` or ``0.01`` of its stored bytes, or
            bytes as a number or such as ``"64 MiB"``. Counted before anything is read, and nothing is written where
            it does not suffice. By default chunks are referenced as they lie, or the variable is refused.
        absent
            Whether chunks that should be there and are not are refused, or left out as those that were never written.
        append_dim
            Dimension along which this is put behind what the target refers to. Everything is checked before anything
            is written: what is there must fit, and the two together must have a form in kerchunk. JSON is written anew;
            record files of parquet that would be the same stay.
        ordered, join, combine_options
            As in :meth:`to_vstack`, where this is appended.

        Returns
        -------
        dict or None
            The references where ``target`` is ``None``.

        Raises
        ------
        WriterError
            Kerchunk cannot express a variable; the message names it and says why, how many of its chunks and bytes
            would be rewritten, and which budget would do.
        CombineError
            This does not fit to what the target refers to; the message has both.
        ValueError
            ``rewrite`` is no budget, or options of appending are given without ``append_dim``.
        """
        from virtualstack.kerchunk.append import to_kerchunk

        return to_kerchunk(
            self.to_group(),
            target,
            append_dim=append_dim,
            ordered=ordered,
            join=join,
            combine_options=combine_options,
            storage=storage,
            relative=relative,
            fill_budget=fill_budget,
            inline_limit=inline_limit,
            rewrite=rewrite,
            absent=absent,
        )

    def to_icechunk(
        self,
        store: Any,
        /,
        *,
        group: str | None = None,
        mode: Literal["w-", "w"] = "w-",
        append_dim: str | None = None,
        region: Any = None,
        storage: StorageLike = None,
        inline_limit: int = 1 << 20,
        rewrite: str | float | None = None,
        absent: Literal["raise", "fill"] = "raise",
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write references into a session of Icechunk, which ``xr.open_zarr(session.store)`` opens, or add to some.

        Commit the session then. Everything is checked before anything is written: an error leaves the session as it
        was. Each reference has a checksum where one is known (the etag of S3, else the time of the last modification),
        so that Icechunk does not read from files that changed. Loaded variables become chunks of the repository.

        Files whose chunks differ in length become a rectilinear grid, which zarr opens where
        ``zarr.config.set({"array.rectilinear_chunks": True})``.

        Parameters
        ----------
        store
            ``session.store``, where ``session = repo.writable_session("main")``. The repository needs a virtual chunk
            container for each place where chunks lie; the error names those that it lacks.
        group
            Path of the group in the repository; the root by default.
        mode
            ``"w-"`` for a new group; ``"w"`` to put this in the place of one, and of all below it.
        append_dim
            Dimension along which this is put behind what the group holds. What is there must fit, and the two together
            must have a form in Icechunk. Chunks that are there are not written again.
        region
            What this is put over of what the group holds: as in :meth:`to_vstack`.
        storage
            See :func:`virtualstack.open_virtual_dataset`.
        inline_limit, rewrite
            As in :meth:`to_kerchunk`; what is encoded anew is stored in the repository.
        absent
            ABSENT chunks cannot be told from those that were never written there: they are an error (``"raise"``), or
            read as the fill value (``"fill"``).
        ordered, join, combine_options
            As in :meth:`to_vstack`, where this is appended.

        Raises
        ------
        WriterError
            Icechunk cannot hold a variable, a container is lacking, or the group is there already.
        CombineError
            This does not fit to what the group holds; the message has both.
        ChunkAlignmentError
            Its chunks end elsewhere than those of the group, beside or in a region.
        ValueError
            An option is none of its words, or ``rewrite`` is no budget.
        MissingDependencyError
            Icechunk is not installed.
        """
        from virtualstack.icechunk.append import to_icechunk

        to_icechunk(
            self.to_group(),
            store,
            path=group,
            mode=mode,
            append_dim=append_dim,
            region=region,
            ordered=ordered,
            join=join,
            combine_options=combine_options,
            storage=storage,
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
        mode: Literal["w-", "w"] = "w-",
        append_dim: str | None = None,
        region: Any = None,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
        message: str | None = None,
        relative: bool = False,
    ) -> None:
        """Write a vstack, which ``xr.open_dataset(target, engine="virtualstack")`` opens, or add to one.

        Parameters
        ----------
        target
            Local path or URL of the store, such as ``"x.vstack"``.
        storage
            See :func:`virtualstack.open_virtual_dataset`.
        allow
            What the store that is there may refer to besides, as for :meth:`virtualstack.Repository.open`: local files
            for one in a bucket, which others may write to.
        mode
            ``"w-"`` for a new store; ``"w"`` makes this the newest snapshot of one that may be there, whose earlier
            snapshots stay. What lies in the store already is not written again. Where this was opened from its newest
            snapshot, what others have committed since stays too, or is a `ConflictError` where both change the same;
            where it was opened by ``at=``, it comes into the place of all since.
        append_dim
            Dimension along which this is put behind what the store holds, in a new snapshot. Everything is checked
            first; nothing in the store is read or written again but its coordinates. Variables without the dimension
            must be the same, and attributes stay the store's.
        region
            What this is put over of what the store holds, in a new snapshot: ``{"time": slice(10, 20)}``, integers or
            slices by dimension, or ``"auto"`` where its labels are; it must begin, end and have chunks where chunks of
            the store do. Variables that this has not stay, and so do attributes; what has none of the dimensions must
            be the same.
        ordered
            Whether labels along ``append_dim`` must ascend.
        join
            What is done, where this is appended, with other labels along other dimensions: none are allowed
            (``"exact"``), or the store's hold (``"left"``): others are left out, and those that are not there are
            missing. ``"outer"`` allows for missing ones alone, and for variables that only the store has or only this,
            which are ABSENT in the other.
        combine_options
            ``compat``, ``combine_attrs`` and ``fill_value`` as in :func:`virtualstack.open_virtual_mfdataset`; with
            ``{"compat": "override"}`` values that must be the same are not compared.
        message
            What the snapshot is, for its log.
        relative
            Write the locations of sources in the folder that holds the store relative to it, so that both can be moved
            together.

        Raises
        ------
        WriterError
            There is a store already; or an attribute has no form in it.
        CombineError
            This does not fit to what the store holds; the message has both.
        ChunkAlignmentError
            Its chunks end elsewhere along another dimension.
        ConflictError
            Another writer has changed the same meanwhile.
        StorageError
            The store cannot be written.
        """
        from virtualstack.vstack import save

        save(
            self.to_group(),
            target,
            storage=storage,
            allow=allow,
            mode=mode,
            append_dim=append_dim,
            region=region,
            ordered=ordered,
            join=join,
            combine_options=combine_options,
            message=message,
            relative=relative,
        )
