"""Open one source as a virtual dataset or tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypedDict

import xarray as xr

from virtualstack.dataset.opening import Opening, account_for, warn_of_groups
from virtualstack.dataset.variables import DecodeTimes
from virtualstack.errors import folding
from virtualstack.formats.base import Reader
from virtualstack.manifests import ManifestGroup
from virtualstack.options import OPENING, Unsupported, with_options
from virtualstack.scanning.one import read_one
from virtualstack.storage import Allow, Stale, StorageLike


class TreeOptions(TypedDict, total=False):
    """Options of :func:`open_virtual_datatree` that a function passes on, if it opens one source only."""

    group: str | None
    drop_variables: str | Iterable[str]
    decode_times: DecodeTimes
    unpack: bool
    unsupported: Unsupported
    inline_limit: int | str
    stale: Stale | None


class VirtualOptions(TreeOptions, total=False):
    """Options of :func:`open_virtual_dataset` that a function passes on, if it opens one source only."""

    loadable_variables: str | Iterable[str] | None


@with_options(OPENING)
@folding
def open_virtual_dataset(
    url: Any,
    /,
    *,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    loadable_variables: str | Iterable[str] | None = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: DecodeTimes = None,
    unpack: bool = False,
    unsupported: Unsupported = "inline",
    inline_limit: int | str = "1 MiB",
    allow: Allow = (),
    stale: Stale | None = None,
) -> xr.Dataset:
    """Open one file as a dataset of virtual variables, whose values stay in the file.

    The call reads the metadata of the file and the chunks of the variables that are loaded, and no other chunk.
    Whether characters along the last dimension are text depends on all variables of the file, as in
    ``xr.open_dataset``. Characters that are text there stay text in every later step.

    Parameters
    ----------
    url
        Local path or URL of the file, or an object: an open file, bytes, a dict of references, a store with a path.
        docs/how-to/what-opens.md lists all of them.

    Returns
    -------
    xarray.Dataset
        A dataset whose variables are virtual, except the loaded ones. Join it with others by ``xr.concat`` or
        :func:`combine_datasets`, read values with ``.virtual.open()``, or write references with
        ``.virtual.to_kerchunk()``, ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

    Raises
    ------
    ReaderError
        No reader knows the file, the file is damaged, or a variable cannot be referenced. The message names the
        variable and what to do.
    GroupNotFoundError
        The group does not exist.
    ForbiddenLocationError
        The source refers to a place that is not allowed.
    StorageError
        The source cannot be read.

    See Also
    --------
    open_virtual_datatree : Open all groups of a file.
    open_virtual_mfdataset : Open many files as one dataset.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]}).to_netcdf("day.nc", engine="netcdf4")
    >>> vds = vs.open_virtual_dataset("day.nc")
    >>> vds.virtual
    <virtual: 1 virtual and 1 loaded variable, 1 reference>
    >>> vds.virtual.open()["rain"].values
    array([1., 2.])
    """
    opening = Opening.from_options(
        group=group,
        storage=storage,
        drop_variables=drop_variables,
        decode_times=decode_times,
        unpack=unpack,
        unsupported=unsupported,
        inline_limit=inline_limit,
        allow=allow,
        stale=stale,
    )
    node, opening = _read(url, reader, opening)
    account_for(node, unsupported, with_children=False)
    warn_of_groups(node, group)
    return opening.dataset(node, loadable_variables=loadable_variables)


@with_options(OPENING)
@folding
def open_virtual_datatree(
    url: Any,
    /,
    *,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: DecodeTimes = None,
    unpack: bool = False,
    unsupported: Unsupported = "inline",
    inline_limit: int | str = "1 MiB",
    allow: Allow = (),
    stale: Stale | None = None,
) -> xr.DataTree:
    """Open one file with groups as a tree of virtual datasets.

    Dimension coordinates and small coordinates of all groups are loaded; the other variables are virtual.

    Parameters
    ----------
    url
        Local path or URL of the file, or an object: an open file, bytes, a dict of references, a store with a path.
        docs/how-to/what-opens.md lists all of them.

    Returns
    -------
    xarray.DataTree
        A tree of virtual datasets. Read values with ``.virtual.open()``, or write references with
        ``.virtual.to_kerchunk()``, ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

    Raises
    ------
    ReaderError
        No reader knows the file, the file is damaged, its groups do not form one tree, or a variable cannot be
        referenced. The message says what to do.
    GroupNotFoundError
        The group does not exist.
    ForbiddenLocationError
        The source refers to a place that is not allowed.
    StorageError
        The source cannot be read.

    See Also
    --------
    open_virtual_dataset : Open one group of a file.
    open_virtual_mfdatatree : Open many files as one tree.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0])}, {"time": [0, 1]})
    >>> xr.DataTree.from_dict({"/gauge": rain}).to_netcdf("day.nc", engine="netcdf4")
    >>> tree = vs.open_virtual_datatree("day.nc")
    >>> tree.virtual.open()["gauge/rain"].values
    array([1., 2.])
    """
    opening = Opening.from_options(
        group=group,
        storage=storage,
        drop_variables=drop_variables,
        decode_times=decode_times,
        unpack=unpack,
        unsupported=unsupported,
        inline_limit=inline_limit,
        allow=allow,
        stale=stale,
        is_tree=True,
    )
    node, opening = _read(url, reader, opening, with_children=True)
    account_for(node, unsupported, with_children=True)
    return opening.tree(node)


def _read(
    source: Any, reader: str | Reader | None, opening: Opening, *, with_children: bool = False
) -> tuple[ManifestGroup, Opening]:
    """Return the group of a source, and the opening whose storage has the user that its URL may name."""
    root, storage = read_one(source, reader=reader, storage=opening.storage, options=opening.options)
    return opening.node(root, with_children=with_children), replace(opening, storage=storage)
