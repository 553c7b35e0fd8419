"""Open one source as a virtual dataset or tree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import xarray as xr

from virtualstack.dataset.opening import Opening, account_for, warn_of_groups
from virtualstack.formats.base import Reader, Unsupported
from virtualstack.manifests import ManifestGroup
from virtualstack.scanning.one import read_one
from virtualstack.storage import Allow, Stale, StorageLike

__all__ = ["open_virtual_dataset", "open_virtual_datatree"]


def open_virtual_dataset(
    url: Any,
    /,
    *,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    loadable_variables: str | Iterable[str] | None = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: bool | None = None,
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
    reader
        Name of a reader (see :func:`list_readers`), or a reader with options. By default the reader is detected.
    group
        Path of a group in the file, such as ``"science/grids"``. By default the root group is opened.
    storage
        Access to the source: credentials, endpoint and retries. Local files, http(s) and buckets that the credentials
        of the environment or anonymous access can read need none. Otherwise use ``{"s3://bucket/": {...}}``, or an
        obstore or fsspec object. The dataset carries it along and uses it when values are read later.
    loadable_variables
        Names of variables to load and decode. By default dimension coordinates and small coordinates (up to
        16 KiB) are loaded.
    drop_variables
        Variables to leave out: a name drops the variable in every group, and a path (``"/science/winds"``) drops one
        variable. A dropped variable is only used to tell text from single letters.
    decode_times
        If true, loaded and unpacked times become dates. This is the default.
    unpack
        If true, the chunks of virtual variables decode to exactly the values of ``xr.open_dataset``: missing values,
        scale and offset, ``_Unsigned`` and times are applied. Files that pack differently can then be joined. A
        variable without a fixed dtype after decoding (text, dates of other calendars) stays packed, as it is stored,
        and is ``packed`` in ``report()``. Reading a date outside the years 1677 to 2262 then raises an error.
    unsupported
        Treatment of a variable that cannot be expressed as byte ranges. ``"inline"`` reads its values into the
        manifest, as INLINE chunks, if they fit in ``inline_limit``, and raises otherwise. ``"raise"`` raises.
        ``"skip"`` leaves the variable out, and names it in one warning and in ``report()``.
    inline_limit
        Largest size of the inlined values of one variable, in bytes or as text such as ``"1 MiB"``.
    allow
        URLs or paths that references from a network may name, although they are local files or private hosts. With
        `vs.Listed`, only these may be read, and the folder of the references (docs/explanation/permission.md).
    stale
        Treatment of a source that has changed since the references to it were written. ``"error"`` raises
        `SourceChangedError` when it is read; this is the default. ``"warn"`` warns once for each source and reads it as
        it is, ``"ignore"`` does so without a warning. The dataset carries it along.

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


def open_virtual_datatree(
    url: Any,
    /,
    *,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: bool | None = None,
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
    reader
        Name of a reader (see :func:`list_readers`), or a reader with options. By default the reader is detected.
    group
        Path of the group that becomes the root of the tree. By default: the root group of the file.
    storage
        Access to the source: credentials, endpoint and retries, such as ``{"s3://bucket/": {...}}``, or an obstore or
        fsspec object. The tree carries it along and uses it when values are read later.
    drop_variables
        Variables to leave out: a name drops the variable in every group, and a path (``"/science/winds"``) drops one
        variable.
    decode_times
        If true, loaded and unpacked times become dates. This is the default.
    unpack
        If true, the chunks of virtual variables decode to exactly the values of ``xr.open_datatree``: missing values,
        scale and offset, ``_Unsigned`` and times are applied.
    unsupported
        Treatment of a variable that cannot be expressed as byte ranges. ``"inline"`` reads its values into the
        manifest, as INLINE chunks, if they fit in ``inline_limit``, and raises otherwise. ``"raise"`` raises.
        ``"skip"`` leaves the variable out, and names it in one warning and in ``report()``.
    inline_limit
        Largest size of the inlined values of one variable, in bytes or as text such as ``"1 MiB"``.
    allow
        URLs or paths that references from a network may name, although they are local files or private hosts. With
        `vs.Listed`, only these may be read, and the folder of the references (docs/explanation/permission.md).
    stale
        Treatment of a source that has changed since the references to it were written. ``"error"`` raises
        `SourceChangedError` when it is read; this is the default. ``"warn"`` warns once for each source and reads it as
        it is, ``"ignore"`` does so without a warning. The dataset carries it along.

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
