"""``vds.virtual`` of a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import xarray as xr

from virtualstack.accessor.facts import AccessorFacts, checked_letters, without_refusals
from virtualstack.accessor.targets import Targets

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestGroup
    from virtualstack.storage import StorageLike

__all__ = ["VirtualAccessor", "require_dask"]


@xr.register_dataset_accessor("virtual")  # type: ignore[no-untyped-call]
class VirtualAccessor(Targets, AccessorFacts):
    """``vds.virtual``: values, writers and facts of a dataset with virtual variables."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def _groups(self) -> dict[str, xr.Dataset]:
        return {"": self._dataset}

    # -- values -----------------------------------------------------------------------------------------------

    def open(
        self,
        *,
        chunks: Any = None,
        storage: StorageLike = None,
        absent: Literal["fill", "raise"] = "fill",
        **decoding: Any,
    ) -> xr.Dataset:
        """Return an ordinary lazy dataset with values, decoded as ``xr.open_dataset`` decodes the source.

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
        from virtualstack.engine import OpenedGroupEntrypoint

        require_dask(chunks)
        group: Any = without_refusals(to_group(self._dataset))
        return xr.open_dataset(
            group,
            engine=OpenedGroupEntrypoint,
            chunks=chunks,
            storage=storage,
            absent=absent,
            **decoding,
        )

    def load(self, names: str | Iterable[str], /, *, storage: StorageLike = None) -> xr.Dataset:
        """Return the dataset with some virtual variables loaded and decoded; the others stay virtual.

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
                variable = loaded_variable(name, array, Storage.from_option(storage), url=group.url)
                variable.attrs.pop("coordinates", None)
                changed[name] = variable
        dataset = self._dataset.assign({k: v for k, v in changed.items() if k not in self._dataset.coords})
        return dataset.assign_coords({k: v for k, v in changed.items() if k in self._dataset.coords})

    def to_group(self) -> ManifestGroup:
        """Return the dataset as the plain group that writers and :class:`virtualstack.ManifestStore` take."""
        from virtualstack.dataset import to_group

        return checked_letters(to_group(self._dataset))

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
        """Return the dataset with other labels; variables stay virtual, and no mask of their elements is made.

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
        """Return the dataset with other values of a virtual variable; the files that it refers to stay as they are.

        New chunks go into a file beside them. Save the dataset that this gives under a new name, and the references
        there were go on giving the old values.

        They are stored as the variable's chunks are, so that kerchunk takes them, where these are all stored alike and
        can hold the values without loss; else they are compressed with zstd. Chunks that the region covers in part are
        read and written whole.

        Parameters
        ----------
        name
            Name of the variable.
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
        arrays = VirtualAccessor(dataset)._arrays()
        array = arrays.get(name)
        if array is None:
            if name not in dataset.variables:
                raise KeyError(f"no variable '{name}'; the virtual ones are {sorted(arrays)}")
            raise ValueError(f"the values of variable '{name}' are loaded: change them as those of any xarray dataset")
        dims = tuple(map(str, dataset.variables[name].dims))
        array = replace(array, dimension_names=dims)
        dataset.variables[name].data = overwrite(array, name, region, values, to, raw=raw, storage=storage)
        return dataset

    def rename_locations(self, change: Mapping[str, str] | Callable[[str], str], /) -> xr.Dataset:
        """Return the dataset with other URLs of its sources; chunks are not touched.

        Parameters
        ----------
        change
            A map from old URL to new, or a function of the URL.
        """
        dataset = self._dataset.copy()
        for name, array in self._arrays().items():
            dataset.variables[name].data = array.rename_locations(change)
        return dataset

    def __repr__(self) -> str:
        arrays = self._arrays()
        loaded = len(self._dataset.variables) - len(arrays)
        counts = [array.manifest.summary() for array in arrays.values()]
        n = sum(count.n_references for count in counts if count is not None)
        references = f"{n} references" + (" and others that are not counted" if None in counts else "")
        return f"<virtual: {len(arrays)} virtual and {loaded} loaded variables, {references}>"


def require_dask(chunks: object, /) -> None:
    """Raise `MissingDependencyError` where chunks are asked for and dask is not installed."""
    from virtualstack.errors import MissingDependencyError

    if chunks is not None and find_spec("dask") is None:
        raise MissingDependencyError("vds.virtual.open(chunks=...)", extra="dask")
