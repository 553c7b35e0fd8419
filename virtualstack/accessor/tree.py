"""The accessor ``tree.virtual``: the members of the accessor of a dataset, for all groups of a tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Unpack

import xarray as xr

from virtualstack.accessor.dataset import VirtualAccessor, require_dask
from virtualstack.accessor.facts import AccessorFacts, checked_letters, tree_to_group, without_refusals
from virtualstack.accessor.targets import Targets
from virtualstack.api.values import VALUE_OPTIONS, ValueOptions
from virtualstack.errors import folding_methods, naming_group
from virtualstack.options import VALUES, with_options
from virtualstack.printable import counted, first_names

if TYPE_CHECKING:
    from virtualstack.manifests import ManifestGroup
    from virtualstack.storage import StorageLike


@xr.register_datatree_accessor("virtual")  # type: ignore[no-untyped-call]
@folding_methods
class VirtualTreeAccessor(Targets, AccessorFacts):
    """The accessor ``tree.virtual``: values, changes, writers and facts of a tree of virtual datasets.

    When to use: import :mod:`virtualstack`, and every :class:`xarray.DataTree` has it. It has the members of
    `VirtualAccessor`. Variables are named by their path, such as ``"group/name"``. Alternatives:
    ``tree["group"].to_dataset().virtual`` for one group.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
    >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
    >>> vs.open_virtual_datatree("day.nc").virtual
    <virtual: tree of 2 groups>
    """

    def __init__(self, tree: xr.DataTree) -> None:
        self._tree = tree

    def _groups(self) -> dict[str, xr.Dataset]:
        return {_path(key): node.to_dataset(inherit=False) for key, node in self._tree.subtree_with_keys}

    def _changed(self, groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
        """Return the tree made of changed groups."""
        return xr.DataTree.from_dict({path or "/": x for path, x in groups.items()}, name=self._tree.name)

    # -- values -----------------------------------------------------------------------------------------------

    @with_options(VALUES, passed_on=VALUE_OPTIONS)
    def open(self, *, chunks: Any = None, storage: StorageLike = None, **options: Unpack[ValueOptions]) -> xr.DataTree:
        """Return the tree with ordinary lazy datasets, decoded as ``xr.open_datatree`` decodes the source.

        No chunk is read until values are used. Variables that were opened with ``unpack=True`` are always decoded.

        Parameters
        ----------
        concat_characters
            Whether characters are text was decided when the file was opened. If false, only ``_Encoding`` is not
            applied.

        Returns
        -------
        xarray.DataTree
            A tree of lazy datasets. Chunks are read when values are needed.

        Raises
        ------
        MissingDependencyError
            ``chunks`` is given and dask is not installed.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_datatree("day.nc").virtual.open()["gauge/rain"].values
        array([1., 2.])
        """
        from virtualstack.engine import OpenedGroupEntrypoint

        require_dask(chunks)
        group: Any = without_refusals(tree_to_group(self._tree))
        engine: Any = OpenedGroupEntrypoint
        return xr.open_datatree(group, engine=engine, chunks=chunks, storage=storage, **options)

    def load(self, names: str | Iterable[str], /, *, storage: StorageLike = None) -> xr.DataTree:
        """Return the tree with some virtual variables loaded and decoded.

        Parameters
        ----------
        names
            Path of a variable, such as ``"group/name"``, or several paths.
        storage
            Access to the sources, such as ``{"s3://bucket/": {...}}``. Other URLs are read with the storage with which
            the sources were opened.

        Returns
        -------
        xarray.DataTree
            A virtual tree in which these variables are in memory. The other variables stay virtual.

        Raises
        ------
        KeyError
            A group or a variable does not exist.
        StorageError
            Values cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_datatree("day.nc").virtual.load("gauge/rain")["gauge/rain"].values
        array([1., 2.])
        """
        wanted = dict.fromkeys([names] if isinstance(names, str) else names)
        groups = self._groups()
        for path, its in self._by_group(wanted).items():
            with naming_group(path):
                groups[path] = VirtualAccessor(groups[path]).load(its, storage=storage)
        return self._changed(groups)

    def to_group(self) -> ManifestGroup:
        """Return the tree as a group of manifests.

        When to use: to serve the tree by :class:`virtualstack.ManifestStore`.

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
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> sorted(vs.open_virtual_datatree("day.nc").virtual.to_group()["gauge"].arrays)
        ['rain', 'time']
        """
        return checked_letters(tree_to_group(self._tree))

    # -- changes ----------------------------------------------------------------------------------------------

    def set_encoding(self, encodings: Mapping[str, Mapping[str, Any]], /) -> xr.DataTree:
        """Return the tree with other CF attributes, which decode the stored numbers to other values.

        Parameters
        ----------
        encodings
            Attributes by the path of a variable: ``_FillValue``, ``missing_value``, ``scale_factor``, ``add_offset``,
            ``_Unsigned``, ``_Encoding``, ``units`` and ``calendar``. ``None`` removes an attribute, and others are
            kept.

        Returns
        -------
        xarray.DataTree
            A virtual tree with the new attributes. The source files do not change.

        Raises
        ------
        KeyError
            A group or a variable does not exist.
        ValueError
            An attribute is not one that decodes values.
        WriterError
            The attributes cannot apply to all chunks of a variable, as in :meth:`VirtualAccessor.set_encoding`.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> tree = vs.open_virtual_datatree("day.nc").virtual.set_encoding({"gauge/rain": {"scale_factor": 10.0}})
        >>> tree.virtual.open()["gauge/rain"].values
        array([10., 20.])
        """
        groups = self._groups()
        for path, its in self._by_group(encodings).items():
            with naming_group(path):
                groups[path] = VirtualAccessor(groups[path]).set_encoding(its)
        return self._changed(groups)

    def reindex(
        self,
        indexers: Mapping[Any, Any] | None = None,
        *,
        fill_value: Any = None,
        method: Literal["nearest", "pad", "ffill", "backfill", "bfill"] | None = None,
        tolerance: Any = None,
        **indexers_kwargs: Any,
    ) -> xr.DataTree:
        """Return the tree with other labels in each group that has at least one of the dimensions.

        Groups that inherit a coordinate get its new labels, too. Variables stay virtual, and no chunk is read. Elements
        with a new label are EMPTY: they have no bytes, and read as a fill value (docs/explanation/chunk-states.md).

        Parameters
        ----------
        indexers, **indexers_kwargs
            New labels by dimension.
        fill_value
            Decoded value of elements with a new label, or a map from the path of a variable to such a value. By default
            they are missing: they decode to NaN or NaT. Integers that are not packed and have no ``_FillValue`` become
            floats, as in xarray. Names of variables that do not exist are ignored.
        method, tolerance
            Rule for labels without an exact match, as in :meth:`xarray.Dataset.reindex`.

        Returns
        -------
        xarray.DataTree
            A virtual tree with the new labels.

        Raises
        ------
        CombineError
            A variable has no missing value and needs a ``fill_value``, such as text, booleans, and packed integers
            without ``_FillValue``. Or a coordinate to reindex is virtual.
        KeyError
            ``fill_value`` names a group that does not exist.
        ValueError
            A dimension exists in no group, or xarray cannot look up the labels.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.open_virtual_datatree("day.nc").virtual.reindex(time=[1, 2]).virtual.open()["gauge/rain"].values
        array([ 2., nan])
        """
        labels = {**(indexers or {}), **indexers_kwargs}
        nodes = {_path(key): node.to_dataset() for key, node in self._tree.subtree_with_keys}
        if unknown := sorted(map(str, labels.keys() - {dim for node in nodes.values() for dim in node.dims})):
            raise ValueError(
                f"labels were given for {unknown}, but no group of the tree has such dimensions. Check the names"
            )
        fills = self._by_group(fill_value) if isinstance(fill_value, Mapping) else dict.fromkeys(nodes, fill_value)
        groups = self._groups()
        for path, node in nodes.items():
            its = {dim: x for dim, x in labels.items() if dim in node.dims}
            if its:
                with naming_group(path):
                    changed = VirtualAccessor(node).reindex(
                        its, fill_value=fills.get(path), method=method, tolerance=tolerance
                    )
                groups[path] = changed.drop_vars(node.variables.keys() - groups[path].variables.keys())
        return self._changed(groups)

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
    ) -> xr.DataTree:
        """Write new values of a region into the file ``to``, and return a tree that refers to them.

        The source files do not change. New chunks are encoded as in :meth:`VirtualAccessor.write`.

        Parameters
        ----------
        name
            Path of the variable, such as ``"group/name"``.
        region
            Part of the variable to overwrite: ``{"time": slice(10, 20), "lat": 3}`` (dimensions that are not named are
            covered in full), a tuple of slices and integers, or ``...``.
        values
            Values of the region as ``xr.open_datatree`` returns them, or one value for all. They are packed like the
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
        xarray.DataTree
            A virtual tree with the new values. Write its references, for example with ``.virtual.to_kerchunk()``.

        Raises
        ------
        KeyError
            The group or the variable does not exist.
        ValueError, IndexError
            The region does not fit the variable, or the variable is loaded.
        WriterError
            The values have another shape, the variable cannot store them, or the new file already exists.
        StorageError
            Chunks cannot be read, or the file cannot be written.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> tree = vs.open_virtual_datatree("day.nc")
        >>> tree = tree.virtual.write("gauge/rain", {"time": 1}, 9.0, to="new_chunks.bin")
        >>> tree.virtual.open()["gauge/rain"].values
        array([1., 9.])
        """
        groups = self._groups()
        ((path, (leaf,)),) = self._by_group({name: None}).items()
        with naming_group(path):
            groups[path] = VirtualAccessor(groups[path]).write(leaf, region, values, to=to, raw=raw, storage=storage)
        return self._changed(groups)

    def subchunk(self, name: str, lengths: Mapping[str, int], /) -> xr.DataTree:
        """Return the tree with uncompressed chunks of a variable split, as :meth:`VirtualAccessor.subchunk` does it.

        Parameters
        ----------
        name
            Path of the variable, such as ``"group/name"``.
        lengths
            Number of elements of the new chunks, such as ``{"time": 1}``.

        Returns
        -------
        xarray.DataTree
            A virtual tree with the same values.

        Raises
        ------
        KeyError
            The group or the variable does not exist.
        ValueError
            The variable is loaded, it lacks a dimension, or a length is not positive.
        WriterError
            The chunks are compressed, or parts along the dimension are not byte ranges.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> tree = vs.open_virtual_datatree("day.nc")
        >>> tree.virtual.subchunk("gauge/rain", {"time": 1}).virtual.nrefs
        2
        """
        groups = self._groups()
        ((path, (leaf,)),) = self._by_group({name: None}).items()
        with naming_group(path):
            groups[path] = VirtualAccessor(groups[path]).subchunk(leaf, lengths)
        return self._changed(groups)

    def rename_locations(self, change: Mapping[str, str] | Callable[[str], str], /) -> xr.DataTree:
        """Return the tree with other URLs of its sources. No chunk is read.

        The new files must be copies. When they are read, their size is compared, but not their etag and modification
        time.

        Parameters
        ----------
        change
            A map from old URL to new URL, or a function that returns the new URL for an old one.

        Returns
        -------
        xarray.DataTree
            A virtual tree that refers to the new URLs.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> tree = vs.open_virtual_datatree("day.nc")
        >>> tree = tree.virtual.rename_locations(lambda url: "s3://bucket/" + url.rpartition("/")[2])
        >>> tree.virtual.locations["url"].tolist()
        ['s3://bucket/day.nc']
        """
        groups = self._groups()
        return self._changed({path: VirtualAccessor(x).rename_locations(change) for path, x in groups.items()})

    def _by_group[T](self, by_path: Mapping[str, T]) -> dict[str, dict[str, T]]:
        """Return items that are given by the path of a variable, by group and then by name.

        Raises
        ------
        KeyError
            A group does not exist.
        """
        known = {_path(key) for key, _ in self._tree.subtree_with_keys}
        found: dict[str, dict[str, T]] = {}
        for path, x in by_path.items():
            group, _, name = path.strip("/").rpartition("/")
            if group not in known:
                raise KeyError(
                    f"there is no group '{group}' for variable '{path}'; the groups are {first_names(sorted(known))}"
                )
            found.setdefault(group, {})[name] = x
        return found

    def __repr__(self) -> str:
        return f"<virtual: tree of {counted(sum(1 for _ in self._tree.subtree), 'group')}>"


def _path(key: str) -> str:
    """Return the path of a group from xarray's key for it, which is ``"."`` for the root."""
    return "" if key == "." else key
