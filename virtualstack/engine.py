"""Open references, stores and virtual datasets in xarray as ordinary lazy datasets with values."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import xarray as xr
from xarray import conventions
from xarray.backends import AbstractDataStore, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint

from virtualstack.dataset import text_coordinates
from virtualstack.dataset.opening import Opening, account_for, tree_of, warn_of_groups
from virtualstack.errors import ReaderError, Remedy
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.formats.registry import BUILT_IN, find_reader
from virtualstack.lazy import decode_by_chunks, lazy_variable
from virtualstack.location import absolute_url, split_url
from virtualstack.manifests import ManifestGroup, text_arrays
from virtualstack.options import OPENING, VALUES, Unsupported, with_options
from virtualstack.rasters import raster_variable
from virtualstack.scanning.one import read_one
from virtualstack.storage import Allow, Stale, Storage, StorageLike
from virtualstack.zarr.metadata.attributes import with_coordinates

if TYPE_CHECKING:
    from virtualstack.vstack.reader import At

_NO_NAME = "__values__"
"""Name in a file of the variable that xarray shows without a name, under the key ``None``."""


_GUESSED = "dmrpp", "icechunk", "kerchunk", "vstack"
"""Formats that xarray finds this engine for by their suffixes."""


class _GroupDataStore(AbstractDataStore):
    """A data store of one group for xarray's decoding, with raw lazy variables; arrays in ``letters`` are strings."""

    def __init__(
        self,
        group: ManifestGroup,
        storage: Storage,
        letters: frozenset[str],
        absent: Literal["fill", "raise"],
        task_bytes: int | str,
    ) -> None:
        self._group = group
        self._letters = letters
        self._storage = storage
        self._absent = absent
        self._task_bytes = task_bytes

    def get_variables(self) -> dict[str, xr.Variable]:
        variables = {}
        for name, array in self._group.arrays.items():
            variables[name] = lazy_variable(array, self._storage, absent=self._absent, task_bytes=self._task_bytes)
            variables[name].attrs = text_coordinates(variables[name].attrs)
            if name in self._letters:
                variables[name] = _as_strings(name, variables[name])
        return variables

    def get_attrs(self) -> dict[str, Any]:
        return with_coordinates(dict(self._group.attributes), self._group)  # readers may have taken the names out

    def get_encoding(self) -> dict[str, Any]:
        encoding: dict[str, Any] = {"unlimited_dims": set(self._group.unlimited)}
        if self._group.url is not None:
            encoding["source"] = self._group.url
        return encoding

    def close(self) -> None:
        """Nothing is held open."""


def _as_strings(name: str, variable: xr.Variable) -> xr.Variable:
    """Decode bytes by their ``_Encoding`` alone: xarray has one option for this decoding and for joining characters."""
    decoded: xr.Variable = conventions.decode_cf_variable(
        name,
        variable,
        mask_and_scale=False,
        decode_times=False,
        decode_timedelta=False,
        decode_endianness=False,
        stack_char_dim=False,
    )
    return decoded


class VirtualStackBackendEntrypoint(BackendEntrypoint):
    """The backend ``engine="virtualstack"``, which opens stores, references, files that a reader knows, and groups.

    Values are read on demand and equal what the format's own library reads from the source.

    When to use: with ``xr.open_dataset`` and ``xr.open_datatree``, which call it by its name. Alternatives:
    :func:`virtualstack.open_virtual_dataset` opens a file to write its references, and its
    ``.virtual.open()`` reads values too.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
    >>> vs.open_virtual_dataset("day.nc").virtual.to_kerchunk("refs.json")
    >>> xr.open_dataset("refs.json", engine="virtualstack")["rain"].values
    array([1., 2.])
    """

    description = "Open virtual references and archive files with virtualstack"
    joins_characters: ClassVar[bool] = True
    """True if characters are joined to text when ``concat_characters`` asks for it."""

    @with_options(VALUES, OPENING)
    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        reader: str | Reader | None = None,
        storage: StorageLike = None,
        drop_variables: str | Iterable[str] | None = None,
        unsupported: Unsupported = "inline",
        inline_limit: int | str = "1 MiB",
        at: At | None = None,
        allow: Allow = (),
        absent: Literal["fill", "raise"] = "fill",
        stale: Stale | None = None,
        task_bytes: int | str = "64 MiB",
        mask_and_scale: bool | Mapping[str, bool] = True,
        decode_times: bool | xr.coders.CFDatetimeCoder | Mapping[str, bool | xr.coders.CFDatetimeCoder] = True,
        decode_timedelta: bool | xr.coders.CFTimedeltaCoder | Mapping[str, Any] | None = None,
        use_cftime: bool | Mapping[str, bool] | None = None,
        concat_characters: bool | Mapping[str, bool] = True,
        decode_coords: bool | Literal["coordinates", "all"] = True,
        **others: Any,
    ) -> xr.Dataset:
        """Open references, a store or a file as a lazy dataset.

        No chunk is read until values are used, except those of variables that have to be inlined (``unsupported``).

        Parameters
        ----------
        filename_or_obj
            URL or path of references, of a store or of a file, a dict of kerchunk references, or a
            :class:`ManifestGroup`.

        Returns
        -------
        xarray.Dataset
            A lazy dataset. xarray makes indexes and dask arrays of it.

        Raises
        ------
        ReaderError
            No reader knows the input, or a variable was refused.
        ForbiddenLocationError
            The store or the references refer to a place that is not allowed.
        StorageError
            The references cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> xr.open_dataset("day.nc", engine="virtualstack", group="gauge")["rain"].values
        array([1., 2.])
        """
        node, opening = _opened(
            filename_or_obj,
            others,
            group=group,
            reader=reader,
            at=at,
            storage=storage,
            stale=stale,
            drop_variables=drop_variables,
            unsupported=unsupported,
            inline_limit=inline_limit,
            allow=allow,
        )
        dropped = _dropped(node, group or "", opening.options)
        _check_sizes(node, dropped)
        letters = _letters(node, self.joins_characters, concat_characters)
        store = _GroupDataStore(node, opening.storage, letters, absent, task_bytes)
        if letters:
            given = concat_characters if isinstance(concat_characters, Mapping) else {}
            concat_characters = {**given, **dict.fromkeys(map(_key, letters), False)}
        dataset = StoreBackendEntrypoint().open_dataset(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=set(map(_key, dropped)),
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )
        for variable in dataset.variables.values():
            decode_by_chunks(variable)
        _take_units(dataset, node)
        decodes = mask_and_scale if isinstance(mask_and_scale, Mapping) else {}
        rasters = {
            name: raster
            for name in dataset.data_vars
            if decodes.get(str(name), mask_and_scale) is not False
            and (raster := raster_variable(dataset, name)) is not None
        }
        return dataset.assign(rasters) if rasters else dataset

    open_dataset_parameters = tuple(inspect.signature(open_dataset).parameters)[1:-1]
    supports_groups: ClassVar[bool] = True

    @with_options(VALUES, OPENING, passed_on=inspect.signature(open_dataset).parameters.values())
    def open_groups_as_dict(self, filename_or_obj: Any, **options: Any) -> dict[str, xr.Dataset]:
        """Open all groups as lazy datasets, by their paths; the parameters are those of :meth:`open_datatree`.

        Parameters
        ----------
        filename_or_obj
            The same as in :meth:`open_dataset`.
        group
            Path of the group below which groups are opened. By default: the root group.

        Returns
        -------
        dict
            One lazy dataset for each group, by its path below ``group``. The path of ``group`` itself is ``"/"``.

        Raises
        ------
        ReaderError
            No reader knows the input, or a variable was refused.
        StorageError
            The references cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> sorted(xr.open_groups("day.nc", engine="virtualstack"))
        ['/', '/gauge']
        """
        known = self.open_dataset_parameters
        others = {name: options.pop(name) for name in options.keys() - set(known)}
        opening_options = {name: options.pop(name) for name in options.keys() & _OPENING_OPTIONS}
        node, opening = _opened(filename_or_obj, others, is_tree=True, **opening_options)
        group = opening.options.group or ""
        return {
            path or "/": self.open_dataset(
                replace(child, groups={}, refusals=()),
                storage=opening.storage,
                drop_variables=_dropped(child, f"{group}{path}", opening.options),
                **options,
            )
            for path, child in node.walk()
        }

    @with_options(VALUES, OPENING, passed_on=inspect.signature(open_dataset).parameters.values())
    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """Open all groups as a tree of lazy datasets.

        No chunk is read until values are used, except those of variables that have to be inlined (``unsupported``).

        Parameters
        ----------
        filename_or_obj
            The same as in :meth:`open_dataset`.

        Returns
        -------
        xarray.DataTree
            A tree of lazy datasets. xarray makes indexes and dask arrays of it.

        Raises
        ------
        ReaderError
            No reader knows the input, or a variable was refused.
        StorageError
            The references cannot be read.

        Examples
        --------
        >>> import xarray as xr
        >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
        >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
        >>> xr.open_datatree("day.nc", engine="virtualstack")["gauge/rain"].values
        array([1., 2.])
        """
        groups = self.open_groups_as_dict(filename_or_obj, **options)
        return tree_of(groups, groups["/"].encoding.get("source"), has_indexes=False)

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return true for groups in memory, references and stores that are no plain zarr, by their suffixes.

        Other engines open files and zarr. The one of kerchunk is asked before this one if it is installed.
        """
        if not isinstance(filename_or_obj, str | os.PathLike):
            return isinstance(filename_or_obj, ManifestGroup)
        name = os.fspath(filename_or_obj).rstrip("/").lower()
        return any(name.endswith(row.suffixes) for row in BUILT_IN if row.name in _GUESSED)


class OpenedGroupEntrypoint(VirtualStackBackendEntrypoint):
    """A backend for the group of a virtual dataset, whose characters were joined to text when it was opened.

    Variables that still have characters keep them as single letters.
    """

    joins_characters: ClassVar[bool] = False


def _check_sizes(group: ManifestGroup, dropped: frozenset[str]) -> None:
    """Check that dimensions have one size each; xarray checks it too, but its error does not name the file."""
    first: dict[str, tuple[int, str]] = {}
    for name in sorted(group.arrays.keys() - dropped):
        array = group.arrays[name]
        for dim, n in zip(array.dimension_names or (), array.shape, strict=False):
            size, other = first.setdefault(dim, (n, name))
            if n != size:
                raise ReaderError(
                    f"dimension '{dim}' of '{group.url}' has {size} elements in variable '{other}' and {n} in "
                    f"'{name}', which form no dataset",
                    Remedy("leave one of them out with", drop_variables=...),
                    url=group.url,
                )


def _key(name: str) -> Any:
    """Return the name in xarray of a variable of a file."""
    return None if name == _NO_NAME else name


def _take_units(dataset: xr.Dataset, group: ManifestGroup) -> None:
    """Move units that xarray has added to bounds into their encoding, if the bounds are dates already.

    xarray adds units and calendar to decode bounds, and removes them only from bounds that it has decoded.
    """
    for name, variable in dataset.variables.items():
        array = group.arrays[_NO_NAME if name is None else str(name)]
        if array.dtype.kind == "M":
            for key in ("units", "calendar"):
                if key in variable.attrs and key not in array.attributes:
                    variable.encoding.setdefault(key, variable.attrs.pop(key))


def _letters(
    group: ManifestGroup, join_characters: bool, concat_characters: bool | Mapping[str, bool]
) -> frozenset[str]:
    """Return the names of character arrays that xarray might join to text although they are not text."""
    texts = text_arrays(group) if join_characters else frozenset()
    if not isinstance(concat_characters, Mapping):
        concat_characters = dict.fromkeys(group.arrays, concat_characters)
    return frozenset(
        name
        for name, array in group.arrays.items()
        if array.dtype == "S1" and array.ndim and name not in texts and concat_characters.get(name, True)
    )


def _choose_reader(reader: str | Reader | None, at: At | None) -> str | Reader | None:
    """Return the reader of vstacks if ``at`` names a snapshot, else the reader that the user chose."""
    if at is None:
        return reader
    if reader not in (None, "vstack"):
        raise ValueError(f"at= is an option of vstacks, not of reader={reader!r}")
    from virtualstack.vstack.reader import VStack

    return VStack(at=at)


def _dropped(node: ManifestGroup, path: str, options: ReadOptions) -> frozenset[str]:
    """Return the names of arrays to drop from a group at a path; no reader has dropped arrays of groups in memory."""
    return frozenset(name for name in node.arrays if options.drops(f"{path.strip('/')}/{name}"))


_OPENING_OPTIONS = frozenset(
    ["group", "reader", "at", "storage", "stale", "drop_variables", "unsupported", "inline_limit", "allow"]
)


def _opened(
    obj: Any,
    others: Mapping[str, Any],
    /,
    *,
    reader: str | Reader | None = None,
    at: At | None = None,
    storage: StorageLike = None,
    is_tree: bool = False,
    **options: Any,
) -> tuple[ManifestGroup, Opening]:
    """Return the chosen group of a source, and the opening whose storage has the user that its URL may name."""
    is_url = isinstance(obj, str | os.PathLike)
    if storage is not None and others.get("storage_options") is not None:
        raise TypeError(
            "storage= and storage_options= were given; leave out storage_options=, and put it into storage="
        )
    if is_url and storage is None and "storage_options" in others:
        storage = {split_url(absolute_url(obj))[0]: others["storage_options"] or {}}
    if is_url and os.fspath(obj).startswith("reference://"):  # fsspec's way to open kerchunk references with zarr
        refs = (others.get("storage_options") or {}).get("fo", "refs.json")
        raise TypeError(f"give the references themselves: xr.open_dataset({refs!r}, engine='virtualstack')")
    opening = Opening.from_options(storage=storage, is_tree=is_tree, **options)
    reader = _choose_reader(reader, at)
    for name, value in others.items():
        reader = _with_other_option(name, value, obj if is_url else None, reader, opening.storage)
    if isinstance(obj, ManifestGroup):
        root = obj
    else:
        root, storage = read_one(obj, reader=reader, storage=opening.storage, options=opening.options)
        opening = replace(opening, storage=storage)
    node = opening.node(root, with_children=is_tree)
    account_for(node, opening.unsupported, with_children=is_tree, options=opening.options)
    if not is_tree:
        warn_of_groups(node, opening.options.group)
    return node, opening


_READERS = {"filter_by_keys": "grib", "consolidated": "zarr"}
"""Options of other engines that are options of a reader."""

_WITHOUT_EFFECT = frozenset(("consolidated", "indexpath", "storage_options"))
"""Options that change nothing elsewhere: no index is written, and storage options were taken before."""


def _with_other_option(
    name: str, value: object, url: str | os.PathLike[str] | None, reader: str | Reader | None, storage: Storage
) -> str | Reader | None:
    """Return the reader with an option of another engine, for code in which only ``engine=`` was changed.

    Raises
    ------
    TypeError
        The option has no meaning for this source.
    """
    if name in _READERS and url is not None:
        reader = find_reader(url, storage, reader)
        if reader.name == _READERS[name]:
            return cast(Reader, replace(cast(Any, reader), **{name: value}))
    if name in _WITHOUT_EFFECT:
        return reader
    what = f"is for {_READERS[name]}" if name in _READERS else "is no option of engine='virtualstack'"
    raise TypeError(f"{name}={value!r} {what}. Leave it out; help(vs.open_virtual_dataset) lists what there is")
