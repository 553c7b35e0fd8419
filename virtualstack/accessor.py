"""``vds.virtual``: what a virtual dataset can do beyond xarray."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestArray, ManifestGroup
    from virtualstack.storage import Allow, StorageLike

# ``import virtualstack`` imports this module to register the accessors. What they call is imported when it is called.

__all__ = ["VirtualAccessor", "VirtualTreeAccessor"]


class _Writers:
    """What datasets and trees write alike."""

    @abstractmethod
    def to_group(self) -> ManifestGroup:
        """Give the plain group that writers and :class:`virtualstack.ManifestStore` take."""

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
        options: dict[str, Any] = {
            "storage": storage,
            "relative": relative,
            "fill_budget": fill_budget,
            "inline_limit": inline_limit,
            "rewrite": rewrite,
            "absent": absent,
        }
        if append_dim is not None:
            from virtualstack.kerchunk.append import append_references

            append_references(
                self.to_group(),
                target,
                append_dim,
                ordered=ordered,
                join=join,
                combine_options=combine_options,
                **options,
            )
            return None
        if join != "exact" or not ordered or combine_options is not None:
            raise ValueError("ordered=, join= and combine_options= say how append_dim= adds to references")
        from virtualstack.kerchunk.writer import write_kerchunk

        return write_kerchunk(self.to_group(), target, **options)

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
        options: dict[str, Any] = {
            "path": group,
            "storage": storage,
            "inline_limit": inline_limit,
            "rewrite": rewrite,
            "absent": absent,
        }
        if append_dim is None and (join != "exact" or not ordered):
            raise ValueError(f"join={join!r} and ordered={ordered} say how append_dim= adds, which is not given")
        if append_dim is None and region is None:
            if combine_options is not None:
                raise ValueError("combine_options say how append_dim= or region= add, and neither is given")
            from virtualstack.icechunk.writer import write_icechunk

            write_icechunk(self.to_group(), store, mode=mode, **options)
            return
        if mode != "w-" or (append_dim is not None and region is not None):
            raise ValueError(
                f"append_dim={append_dim!r} and region={region!r} each add to the group, and mode='w' replaces it "
                f"(mode={mode!r}): give one of them"
            )
        from virtualstack.icechunk.append import append_icechunk, place_icechunk

        if append_dim is None:
            place_icechunk(self.to_group(), store, region, combine_options=combine_options, **options)
            return
        append_icechunk(
            self.to_group(),
            store,
            append_dim,
            ordered=ordered,
            join=join,
            combine_options=combine_options,
            **options,
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
        from virtualstack.vstack import append, place, save

        group = self.to_group()
        options: dict[str, Any] = {"storage": storage, "allow": allow, "message": message, "relative": relative}
        if append_dim is None and (join != "exact" or not ordered):
            raise ValueError(
                f"join={join!r} and ordered={ordered} say how append_dim= adds to a store, which is not given"
            )
        if append_dim is None and region is None:
            if combine_options is not None:
                raise ValueError("combine_options say how append_dim= or region= add to a store, and neither is given")
            save(group, target, mode=mode, **options)
            return
        if mode != "w-" or (append_dim is not None and region is not None):
            raise ValueError(
                f"append_dim={append_dim!r} and region={region!r} each add to the store, and mode='w' replaces what it "
                f"holds (mode={mode!r}): give one of them"
            )
        if append_dim is None:
            place(group, target, region, combine_options=combine_options, **options)
            return
        append(group, target, append_dim, ordered=ordered, join=join, combine_options=combine_options, **options)


def _require_dask(chunks: object) -> None:
    from virtualstack.errors import MissingDependencyError

    if chunks is not None and find_spec("dask") is None:
        raise MissingDependencyError("vds.virtual.open(chunks=...)", extra="dask")


@xr.register_dataset_accessor("virtual")  # type: ignore[no-untyped-call]
class VirtualAccessor(_Writers):
    """Values, writers and facts of a dataset with virtual variables."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    # -- values -----------------------------------------------------------------------------------------------

    def open(
        self,
        *,
        chunks: Any = None,
        storage: StorageLike = None,
        absent: Literal["fill", "raise"] = "fill",
        **decoding: Any,
    ) -> xr.Dataset:
        """Give an ordinary lazy dataset with values, decoded as ``xr.open_dataset`` decodes the source.

        No chunk is read until values are asked for.

        Parameters
        ----------
        chunks
            As in :func:`xarray.open_dataset`: ``{}`` for dask arrays along stored chunks.
        storage
            See :func:`virtualstack.open_virtual_dataset`; what an open was given is remembered.
        absent
            Whether ABSENT chunks read as the fill value, or ``"raise"``.
        **decoding
            ``mask_and_scale``, ``decode_times`` and the like, as in :func:`xarray.open_dataset`. Variables that were
            opened with ``unpack=True`` are decoded whatever they say, and characters are text, or are not, since then:
            ``concat_characters=False`` leaves out ``_Encoding`` alone.
        """
        from virtualstack.dataset import to_group
        from virtualstack.engine import VirtualStackBackendEntrypoint

        _require_dask(chunks)
        group: Any = _without_refusals(to_group(self._dataset))
        return xr.open_dataset(
            group,
            engine=VirtualStackBackendEntrypoint,
            join_characters=False,
            chunks=chunks,
            storage=storage,
            absent=absent,
            **decoding,
        )

    def load(self, names: str | Iterable[str], /, *, storage: StorageLike = None) -> xr.Dataset:
        """Give the dataset with some virtual variables loaded and decoded; the others stay virtual.

        Raises
        ------
        KeyError
            There is no such variable.
        """
        from virtualstack.dataset import loaded_variable, to_group, virtual_array
        from virtualstack.storage import Storage

        wanted = [names] if isinstance(names, str) else list(names)
        group = to_group(self._dataset)
        changed = {}
        for name in wanted:
            array = group.arrays[name]
            if virtual_array(self._dataset.variables[name]) is not None:
                variable = loaded_variable(name, array, Storage.of(storage), url=group.url)
                variable.attrs.pop("coordinates", None)
                changed[name] = variable
        dataset = self._dataset.assign({k: v for k, v in changed.items() if k not in self._dataset.coords})
        return dataset.assign_coords({k: v for k, v in changed.items() if k in self._dataset.coords})

    def to_group(self) -> ManifestGroup:
        """Give the dataset as the plain group that writers and :class:`virtualstack.ManifestStore` take."""
        from virtualstack.dataset import to_group

        return _checked(to_group(self._dataset))

    # -- changes ----------------------------------------------------------------------------------------------

    def set_encoding(self, encodings: Mapping[str, Mapping[str, Any]], /) -> xr.Dataset:
        """Return a dataset that says otherwise how stored numbers become values; the bytes of files stay as they are.

        Values are those that xarray decodes from the stored numbers by these attributes. Say it before files are
        joined: each keeps its own. Editing ``vds["a"].attrs`` says the same, but ``xr.concat`` takes the attributes of
        the first dataset for all.

        Parameters
        ----------
        encodings
            By the name of a variable, some of ``_FillValue``, ``missing_value``, ``scale_factor``, ``add_offset``,
            ``_Unsigned``, ``_Encoding``, ``units`` and ``calendar``; ``None`` takes one away. Those that are not named
            stay. Bounds of times that have no units of their own follow their coordinate. A loaded variable is decoded
            anew from the stored numbers that its encoding gives back.

        Raises
        ------
        KeyError
            There is no such variable.
        ValueError
            An attribute is none that says how stored numbers become values.
        WriterError
            It cannot be said of all chunks of a variable: some were opened with ``unpack=True`` and are packed in
            several ways, or an earlier join or ``reindex`` has filled in what would not be missing any more.

        Examples
        --------
        >>> import numpy as np
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"a": ("x", np.array([1, 2, -9], "i2"))}).to_netcdf("no_fill_value.nc", engine="netcdf4")
        >>> vds = vs.open_virtual_dataset("no_fill_value.nc")
        >>> vds = vds.virtual.set_encoding({"a": {"_FillValue": np.int16(-9), "scale_factor": 0.5}})
        >>> vds.virtual.open()["a"].values
        array([0.5, 1. , nan])
        """
        from virtualstack.dataset import set_encoding

        return set_encoding(self._dataset, encodings)

    def reindex(
        self,
        indexers: Mapping[Any, Any] | None = None,
        *,
        fill_value: Any = None,
        method: Literal["nearest", "pad", "ffill", "backfill", "bfill"] | None = None,
        tolerance: Any = None,
        **indexers_kwargs: Any,
    ) -> xr.Dataset:
        """Give the dataset other labels; variables stay virtual, and no mask of their elements is made.

        Values are those that :meth:`xarray.Dataset.reindex` gives on the dataset that :meth:`open` gives, where
        variables are decoded.

        Parameters
        ----------
        indexers, **indexers_kwargs
            Labels by dimension.
        fill_value
            Of decoded values where there is none; one, or one a variable. By default missing values: for packed
            numbers a stored one that decodes to NaN is looked for, plain integers become floats.
        method, tolerance
            How labels that are not there are looked up, as in :meth:`xarray.Dataset.reindex`.

        Raises
        ------
        CombineError
            A variable has no missing value; give it one with ``fill_value``.
        ValueError
            The labels cannot be looked up.
        """
        from virtualstack.combine import reindex_dataset

        labels = {**(indexers or {}), **indexers_kwargs}
        return reindex_dataset(self._dataset, labels, method=method, tolerance=tolerance, fill_value=fill_value)

    def write(
        self,
        name: str,
        region: Any,
        values: Any,
        /,
        *,
        to: str | os.PathLike[str],
        raw: bool = False,
        storage: StorageLike = None,
    ) -> xr.Dataset:
        """Give the dataset with other values of a virtual variable; the files that it refers to stay as they are.

        New chunks go into a file beside them. Save the dataset that this gives under a new name, and the references
        there were go on giving the old values.

        They are stored as the variable's chunks are, so that kerchunk takes them, where these are all stored alike and
        can hold the values without loss; else they are compressed with zstd. Chunks that the region covers in part are
        read and written whole.

        Parameters
        ----------
        name
            Of the variable.
        region
            What is overwritten: ``{"time": slice(10, 20), "lat": 3}``, all of other dimensions, or a tuple of slices
            and integers, or ``...``.
        values
            Of the region, as ``xr.open_dataset`` gives them, or one value. They are packed as the variable is: numbers
            with a ``scale_factor`` are rounded to the nearest that it has, floats to their dtype, and what has no place
            is an error.
        to
            Local path or URL of a new file for the chunks; anything but one that is there.
        raw
            Whether values are stored numbers, not to be packed.
        storage
            See :func:`virtualstack.open_virtual_dataset`.

        Raises
        ------
        KeyError
            There is no such variable.
        ValueError, IndexError
            The region is none of the variable's, or its values are loaded: change these as xarray does.
        WriterError
            Values have another shape, or no place in the variable; or there is a file already.
        StorageError
            Chunks cannot be read, or the file not be written.
        """
        from virtualstack.dataset import declared_dataset
        from virtualstack.vstack import overwrite

        dataset = declared_dataset(self._dataset).copy()
        array = _arrays(dataset).get(name)
        if array is None:
            if name not in dataset.variables:
                raise KeyError(f"no variable '{name}'; the virtual ones are {sorted(_arrays(dataset))}")
            raise ValueError(f"the values of variable '{name}' are loaded: change them as those of any xarray dataset")
        dims = tuple(map(str, dataset.variables[name].dims))
        array = replace(array, dimension_names=dims)
        dataset.variables[name].data = overwrite(array, name, region, values, to, raw=raw, storage=storage)
        return dataset

    def rename_locations(self, change: Mapping[str, str] | Callable[[str], str], /) -> xr.Dataset:
        """Give the dataset with other URLs of its sources; chunks are not touched.

        Parameters
        ----------
        change
            A map from old URL to new, or a function of the URL.
        """
        dataset = self._dataset.copy()
        for name, array in _arrays(self._dataset).items():
            variable = dataset.variables[name]
            variable.data = array.rename_locations(change)
        return dataset

    # -- facts ------------------------------------------------------------------------------------------------

    @property
    def nrefs(self) -> int:
        """Number of chunks that point into sources; counting them reads the pages of references opened lazily."""
        counts = [
            (array.manifest.summary() or array.in_memory().summary()) for array in _arrays(self._dataset).values()
        ]
        return sum(count.n_references for count in counts)

    @property
    def nbytes(self) -> int:
        """Bytes that the manifests take in memory; pages of references opened lazily are kept apart, in a cache."""
        from virtualstack.manifests import ChunkManifest

        manifests = [x for array in _arrays(self._dataset).values() if isinstance(x := array.manifest, ChunkManifest)]
        return sum(x.entries.nbytes + (0 if x.starts is None else x.starts.nbytes) + len(x.inline) for x in manifests)

    @property
    def locations(self) -> pd.DataFrame:
        """Sources: columns ``url``, ``size`` (bytes, if known), ``refs`` and ``bytes`` used of it."""
        from virtualstack.manifests import FIRST

        refs: dict[str, int] = {}
        used: dict[str, int] = {}
        sizes: dict[str, int | None] = {}
        for array in _arrays(self._dataset).values():
            manifest = array.in_memory()
            code = manifest.entries["location"].reshape(-1)
            counts = np.bincount(code, minlength=len(manifest.locations) + FIRST)
            lengths = np.bincount(code, manifest.entries["length"].reshape(-1), minlength=len(counts))
            for row, location in enumerate(manifest.locations, start=FIRST):
                if counts[row]:
                    refs[location.url] = refs.get(location.url, 0) + int(counts[row])
                    used[location.url] = used.get(location.url, 0) + int(lengths[row])
                    sizes[location.url] = location.size
        return pd.DataFrame(
            {
                "url": list(refs),
                "size": pd.array([sizes[url] for url in refs], dtype="Int64"),
                "refs": list(refs.values()),
                "bytes": list(used.values()),
            }
        )

    def report(self) -> pd.DataFrame:
        """Account for every variable; reads no chunk, but the pages of references opened lazily.

        Columns:

        ``variable``
            Its name.
        ``state``
            ``virtual``, ``loaded``, ``inlined`` where the reader put values into the manifest, ``packed`` where
            ``unpack=True`` has no form for them, or what the reader did with what it could not take over: ``refused``
            or ``noted``, by its path in the source.
        ``form``
            What its chunks are: ``plain``, which any target takes as it is, or some of ``rectilinear`` (lengths
            differ along an axis), ``mixed encodings``, ``unaligned`` (cut, seen with steps, reversed or repeated) and
            ``mixed fills``.
        ``chunks``
            Their number.
        ``kerchunk``
            What ``to_kerchunk`` does with it: ``as it is``, ``inline``, or which ``rewrite`` budget it needs for how
            many chunks.
        ``detail``
            Shape, sources and codecs, and the differences with the number of chunks concerned.
        """
        from virtualstack.dataset import refusals_of, virtual_array
        from virtualstack.kerchunk.writer import how_taken
        from virtualstack.manifests import describe
        from virtualstack.manifests.plain import ArrayForm

        rows: list[tuple[Any, ...]] = []
        refusals = refusals_of(self._dataset)
        kept = {x.path: x for x in refusals if x.kind in ("inlined", "packed")}
        for name, variable in self._dataset.variables.items():
            array = virtual_array(variable)
            if array is None:
                detail = f"{variable.dtype} {variable.shape}"
                rows.append((str(name), "loaded", "", None, f"inline: {variable.nbytes:,} bytes", detail))
                continue
            array = array.whole()
            refusal = kept.get(array.name or "")
            detail = describe(replace(array, name=str(name)))
            state, text = ("virtual", detail) if refusal is None else (refusal.kind, f"{refusal.reason}\n{detail}")
            form = ArrayForm.of(array)
            rows.append((str(name), state, ", ".join(form.kinds), form.n_chunks, how_taken(array), text))
        rows += [(x.path, x.kind, "", None, "", x.reason) for x in refusals if x.kind in ("refused", "noted")]
        table = pd.DataFrame(rows, columns=["variable", "state", "form", "chunks", "kerchunk", "detail"])
        return table.astype({"chunks": "Int64"})

    def __repr__(self) -> str:
        arrays = _arrays(self._dataset)
        loaded = len(self._dataset.variables) - len(arrays)
        counts = [array.manifest.summary() for array in arrays.values()]
        n = sum(count.n_references for count in counts if count is not None)
        references = f"{n} references" + (" and others that are not counted" if None in counts else "")
        return f"<virtual: {len(arrays)} virtual and {loaded} loaded variables, {references}>"


def _arrays(dataset: xr.Dataset) -> dict[str, ManifestArray]:
    from virtualstack.dataset import virtual_array

    arrays = {str(name): virtual_array(variable) for name, variable in dataset.variables.items()}
    return {name: array for name, array in arrays.items() if array is not None}


@xr.register_datatree_accessor("virtual")  # type: ignore[no-untyped-call]
class VirtualTreeAccessor(_Writers):
    """Values and writers of a tree of virtual datasets."""

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    def to_group(self) -> ManifestGroup:
        """Give the tree as the plain group that writers and :class:`virtualstack.ManifestStore` take."""
        return _checked(_group_of_tree(self._tree))

    def set_encoding(self, encodings: Mapping[str, Mapping[str, Any]], /) -> xr.DataTree:
        """Return a tree that says otherwise how stored numbers become values: see `VirtualAccessor.set_encoding`.

        Parameters
        ----------
        encodings
            By the path of a variable, such as ``"group/name"``.

        Raises
        ------
        KeyError
            There is no such variable.
        ValueError
            An attribute is none that says how stored numbers become values.
        WriterError
            It cannot be said of all chunks of a variable.
        """
        from virtualstack.dataset import set_encoding

        tree: xr.DataTree = self._tree.copy()
        by_group: dict[str, dict[str, Mapping[str, Any]]] = {}
        for path, its in encodings.items():
            group, _, name = path.strip("/").rpartition("/")
            by_group.setdefault(group, {})[name] = its
        for group, its_variables in by_group.items():
            node: Any = tree[group] if group else tree
            node.dataset = set_encoding(node.to_dataset(inherit=False), its_variables)
        return tree

    def write(
        self, path: str, region: Any, values: Any, /, *, to: str | os.PathLike[str], **options: Any
    ) -> xr.DataTree:
        """Give the tree with other values of ``"group/name"``: see :meth:`VirtualAccessor.write`."""
        group, _, name = path.strip("/").rpartition("/")
        tree: xr.DataTree = self._tree.copy()
        node: Any = tree[group] if group else tree
        node.dataset = node.to_dataset(inherit=False).virtual.write(name, region, values, to=to, **options)
        return tree

    def open(self, *, chunks: Any = None, storage: StorageLike = None, **options: Any) -> xr.DataTree:
        """Give the tree as ordinary lazy datasets with values; parameters are those of :meth:`VirtualAccessor.open`."""
        from virtualstack.engine import VirtualStackBackendEntrypoint

        _require_dask(chunks)
        group: Any = _without_refusals(_group_of_tree(self._tree))
        return xr.open_datatree(
            group,
            engine=VirtualStackBackendEntrypoint,
            join_characters=False,
            chunks=chunks,
            storage=storage,
            **options,
        )

    def __repr__(self) -> str:
        return f"<virtual: tree of {sum(1 for _ in self._tree.subtree)} groups>"


def _group_of_tree(tree: xr.DataTree) -> ManifestGroup:
    from virtualstack.dataset import to_group

    own = to_group(tree.to_dataset(inherit=False))
    return replace(own, groups={name: _group_of_tree(child) for name, child in tree.children.items()})


def _checked(group: ManifestGroup) -> ManifestGroup:
    """Refuse letters that whoever reads the group would join to text, as xarray does; what is text is joined already.

    Raises
    ------
    WriterError
        There are such.
    """
    from virtualstack.errors import WriterError
    from virtualstack.manifests import text_arrays

    for path, node in group.walk():
        for name in sorted(text_arrays(node)):
            dim = (node.arrays[name].dimension_names or ())[-1]
            raise WriterError(
                f"variable '{path}/{name}' holds letters along '{dim}', which xarray would join to one text when it "
                f"reads what is written, as no other variable has '{dim}': give the dimension a coordinate with "
                f"vds.assign_coords({dim}=...), or the variable another dtype with vds['{name}'].astype('S2')",
                variable=name,
                feature="letters",
            )
    return group


def _without_refusals(group: ManifestGroup) -> ManifestGroup:
    """Leave out refusals, which were told when the files were opened."""
    groups = {name: _without_refusals(child) for name, child in group.groups.items()}
    return replace(group, groups=groups, refusals=())
