"""The accessor ``vds.virtual`` of a dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Unpack

import xarray as xr

from virtualstack.accessor.facts import AccessorFacts, checked_letters, without_refusals
from virtualstack.accessor.targets import Targets
from virtualstack.api.values import VALUE_OPTIONS, ValueOptions
from virtualstack.errors import Remedy, folding_methods
from virtualstack.options import VALUES, with_options
from virtualstack.printable import counted, first_names

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestArray, ManifestGroup
    from virtualstack.storage import StorageLike


@xr.register_dataset_accessor("virtual")  # type: ignore[no-untyped-call]
@folding_methods
class VirtualAccessor(Targets, AccessorFacts):
    """The accessor ``vds.virtual``: values, changes, writers and facts of a dataset with virtual variables.

    When to use: import :mod:`virtualstack`, and every :class:`xarray.Dataset` has it. It reads values (:meth:`open`,
    :meth:`load`), and changes references (:meth:`reindex`, :meth:`set_encoding`, :meth:`write`,
    :meth:`rename_locations`). It writes them (:meth:`to_vstack`, :meth:`to_kerchunk`, :meth:`to_icechunk`) and
    describes them (:meth:`report`). Alternatives: :class:`virtualstack.ManifestStore` serves a group to any zarr
    client.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
    >>> vs.open_virtual_dataset("day.nc").virtual
    <virtual: 1 virtual and 1 loaded variable, 1 reference>
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        from virtualstack.dataset.declared import without_foreign_arrays

        self._dataset = without_foreign_arrays(dataset)

    def _groups(self) -> dict[str, xr.Dataset]:
        return {"": self._dataset}

    # -- values -----------------------------------------------------------------------------------------------

    @with_options(VALUES, passed_on=VALUE_OPTIONS)
    def open(self, *, chunks: Any = None, storage: StorageLike = None, **options: Unpack[ValueOptions]) -> xr.Dataset:
        """Return an ordinary lazy dataset with values, decoded as ``xr.open_dataset`` decodes the source.

        No chunk is read until values are used. Variables that were opened with ``unpack=True`` are always decoded.

        Parameters
        ----------
        concat_characters
            Whether characters are text was decided when the file was opened. If false, only ``_Encoding`` is not
            applied.

        Returns
        -------
        xarray.Dataset
            A lazy dataset. Compute with it as with any other; chunks are read when values are needed.

        Raises
        ------
        MissingDependencyError
            ``chunks`` is given and dask is not installed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vds = vs.open_virtual_dataset("day.nc")
        >>> vds.virtual.open()["rain"].sum().item()
        3.0
        """
        from virtualstack.dataset import to_group
        from virtualstack.engine import OpenedGroupEntrypoint

        require_dask(chunks)
        group: Any = without_refusals(to_group(self._dataset))
        engine: Any = OpenedGroupEntrypoint
        return xr.open_dataset(group, engine=engine, chunks=chunks, storage=storage, **options)

    def load(self, names: str | Iterable[str], /, *, storage: StorageLike = None) -> xr.Dataset:
        """Return the dataset with some virtual variables loaded and decoded.

        Parameters
        ----------
        names
            Name of a variable, or several names. Variables that are already loaded stay as they are.
        storage
            Access to the sources, such as ``{"s3://bucket/": {...}}``. Other URLs are read with the storage with which
            the sources were opened.

        Returns
        -------
        xarray.Dataset
            A virtual dataset in which these variables are in memory. The other variables stay virtual.

        Raises
        ------
        KeyError
            A variable does not exist.
        StorageError
            Values cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_dataset("day.nc").virtual.load("rain")["rain"].values
        array([1., 2.])
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
        """Return the dataset as a group of manifests.

        When to use: to serve the dataset by :class:`virtualstack.ManifestStore`.

        Returns
        -------
        ManifestGroup
            The group. To write the data, use ``to_vstack``, ``to_kerchunk`` or ``to_icechunk`` instead.

        Raises
        ------
        WriterError
            A variable is an array of single characters that xarray would open as text. Leave the variable out.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> sorted(vs.open_virtual_dataset("day.nc").virtual.to_group().arrays)
        ['rain', 'time']
        """
        from virtualstack.dataset import to_group

        return checked_letters(to_group(self._dataset))

    # -- changes ----------------------------------------------------------------------------------------------

    def set_encoding(self, encodings: Mapping[str, Mapping[str, Any]], /) -> xr.Dataset:
        """Return the dataset with other CF attributes, which decode the stored numbers to other values.

        The source files do not change. Values are decoded from the stored numbers as xarray decodes them with these
        attributes. Call this before files are joined: each file then keeps its own attributes. Editing
        ``vds["a"].attrs`` has the same effect on one file, but ``xr.concat`` applies the attributes of the first
        dataset to all.

        Parameters
        ----------
        encodings
            Attributes by the name of a variable: ``_FillValue``, ``missing_value``, ``scale_factor``, ``add_offset``,
            ``_Unsigned``, ``_Encoding``, ``units`` and ``calendar``. ``None`` removes an attribute, and others are
            kept. Bounds of times without units of their own follow their coordinate. A loaded variable is decoded again
            from the stored numbers that its encoding gives.

        Returns
        -------
        xarray.Dataset
            A virtual dataset with the new attributes. Read its values with ``.virtual.open()``, or join it with others.

        Raises
        ------
        KeyError
            A variable does not exist.
        ValueError
            An attribute is not one that decodes values.
        WriterError
            The attributes cannot apply to all chunks of a variable. Either some were opened with ``unpack=True``
            and are packed in several ways. Or a join or ``reindex`` filled in values that would no longer be missing.

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
        """Return the dataset with other labels. Variables stay virtual, and no chunk is read.

        Values equal those of :meth:`xarray.Dataset.reindex` on the dataset that :meth:`open` returns. Elements with a
        new label are EMPTY: they have no bytes, and read as a fill value (docs/explanation/chunk-states.md).

        Parameters
        ----------
        indexers, **indexers_kwargs
            New labels by dimension. Indexes of these dimensions must be loaded.
        fill_value
            Decoded value of elements with a new label, or a map from variable to such a value. By default they are
            missing: they decode to NaN or NaT. Integers that are not packed and have no ``_FillValue`` become floats,
            as in xarray. Names of variables that do not exist are ignored.
        method, tolerance
            Rule for labels without an exact match, as in :meth:`xarray.Dataset.reindex`.

        Returns
        -------
        xarray.Dataset
            A virtual dataset with the new labels.

        Raises
        ------
        CombineError
            A variable has no missing value and needs a ``fill_value``, such as text, booleans, and packed integers
            without ``_FillValue``. Or a coordinate to reindex is virtual.
        ValueError
            xarray cannot look up the labels.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vds = vs.open_virtual_dataset("day.nc")
        >>> vds.virtual.reindex(time=[1, 2]).virtual.open()["rain"].values
        array([ 2., nan])
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
        """Write new values of a region into the file ``to``, and return a dataset that refers to them.

        The source files do not change. Save the returned dataset under a new name; existing references keep the old
        values. For a vstack, use :meth:`virtualstack.Repository.write`, which keeps the new chunks in the store.

        New chunks have the encoding of the variable's chunks if all of these have the same encoding, and it keeps the
        stored numbers without loss. Kerchunk can then refer to the new chunks. Otherwise they are compressed with zstd.
        Chunks that the region covers in part are read and written whole.

        Parameters
        ----------
        name
            Name of the variable.
        region
            Part of the variable to overwrite: ``{"time": slice(10, 20), "lat": 3}`` (dimensions that are not named are
            covered in full), a tuple of slices and integers, or ``...``.
        values
            Values of the region as ``xr.open_dataset`` returns them, or one value for all. They are packed like the
            variable. With a ``scale_factor``, they are rounded to the nearest value that can be stored; floats are
            rounded to their dtype. Any other value that the variable cannot store is an error.
        to
            Local path or URL of a new file for the chunks. The file must not exist.
        raw
            If true, ``values`` are stored numbers, and are not packed.
        storage
            Access to the sources and to the new file, such as ``{"s3://bucket/": {...}}``. Other URLs are reached with
            the storage with which the sources were opened.

        Returns
        -------
        xarray.Dataset
            A virtual dataset with the new values. Write its references, for example with ``.virtual.to_kerchunk()``.

        Raises
        ------
        KeyError
            The variable does not exist.
        ValueError, IndexError
            The region does not fit the variable, or the variable is loaded. Change loaded values as in any xarray
            dataset.
        WriterError
            The values have another shape, the variable cannot store them, or the new file already exists.
        StorageError
            Chunks cannot be read, or the file cannot be written.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vds = vs.open_virtual_dataset("day.nc")
        >>> vds.virtual.write("rain", {"time": 1}, 9.0, to="new_chunks.bin").virtual.open()["rain"].values
        array([1., 9.])
        """
        from virtualstack.dataset import declared_dataset
        from virtualstack.vstack.overwrite import overwrite

        dataset = declared_dataset(self._dataset).copy()
        array = VirtualAccessor(dataset)._virtual(name)
        dims = tuple(map(str, dataset.variables[name].dims))
        array = replace(array, dimension_names=dims)
        dataset.variables[name].data = overwrite(array, name, region, values, to, raw=raw, storage=storage)
        return dataset

    def subchunk(self, name: str, lengths: Mapping[str, int], /) -> xr.Dataset:
        """Return the dataset with uncompressed chunks of a variable split into smaller ones. No chunk is read.

        Readers of references fetch whole chunks, and a variable that is not compressed is often one chunk of a file.
        virtualstack reads parts of such chunks in any case.

        Parameters
        ----------
        name
            Name of the variable.
        lengths
            Number of elements of the new chunks, such as ``{"time": 1}``. The dimension is the slowest one of the
            stored chunks. Chunks begin where those of the files begin.

        Returns
        -------
        xarray.Dataset
            A virtual dataset with the same values.

        Raises
        ------
        KeyError
            There is no variable of this name.
        ValueError
            The variable is loaded, it lacks a dimension, or a length is not positive.
        WriterError
            The chunks are compressed, or parts along the dimension are not byte ranges.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> vds = vs.open_virtual_dataset("day.nc", loadable_variables=[])
        >>> vds.virtual.nrefs, vds.virtual.subchunk("rain", {"time": 1}).virtual.nrefs
        (1, 2)
        """
        from virtualstack.errors import WriterError
        from virtualstack.zarr.rewrite.split import subchunk

        dataset, array = self._dataset.copy(), self._virtual(name)
        dims = dataset.variables[name].dims
        for dim, length in lengths.items():
            if dim not in dims or length < 1:
                raise ValueError(f"{{{dim!r}: {length}}} is no length along a dimension of '{name}', which has {dims}")
            made = subchunk(array, dims.index(dim), length)
            if isinstance(made, str):
                raise WriterError(
                    f"variable '{name}' cannot be split along '{dim}': {made}",
                    Remedy("leave it as it is, or write its values"),
                    variable=name,
                    feature="subchunk",
                )
            array = made
        dataset.variables[name].data = array
        return dataset

    def _virtual(self, name: str) -> ManifestArray:
        """Return the array of a virtual variable; others are an error."""
        arrays = self._arrays()
        if name in arrays:
            return arrays[name]
        if name not in self._dataset.variables:
            raise KeyError(
                f"there is no virtual variable '{name}'; the virtual variables are {first_names(sorted(arrays))}"
            )
        raise ValueError(f"the values of variable '{name}' are loaded. Change them as in any xarray dataset")

    def rename_locations(self, change: Mapping[str, str] | Callable[[str], str], /) -> xr.Dataset:
        """Return the dataset with other URLs of its sources. No chunk is read.

        The new files must be copies. When they are read, their size is compared, but not their etag and modification
        time.

        Parameters
        ----------
        change
            A map from old URL to new URL, or a function that returns the new URL for an old one.

        Returns
        -------
        xarray.Dataset
            A virtual dataset that refers to the new URLs.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
        >>> vds = vs.open_virtual_dataset("day.nc")
        >>> vds = vds.virtual.rename_locations(lambda url: "s3://bucket/" + url.rpartition("/")[2])
        >>> vds.virtual.locations["url"].tolist()
        ['s3://bucket/day.nc']
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
        references = counted(n, "reference") + (" and others that were not counted" if None in counts else "")
        return f"<virtual: {len(arrays)} virtual and {counted(loaded, 'loaded variable')}, {references}>"


def require_dask(chunks: object, /) -> None:
    """Raise `MissingDependencyError` if ``chunks`` is given and dask is not installed."""
    from virtualstack.errors import MissingDependencyError

    if chunks is not None and find_spec("dask") is None:
        raise MissingDependencyError("vds.virtual.open(chunks=...)", extra="dask")
