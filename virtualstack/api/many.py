"""Open many sources as one virtual dataset or tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import xarray as xr

from virtualstack.api.each import Path, open_all
from virtualstack.combine import (
    Combine,
    CombineOptions,
    Join,
    Labelling,
    Nested,
    combine_trees,
    flatten,
    nest_like,
)
from virtualstack.combine import combine_datasets as combine_by
from virtualstack.dataset import declared_dataset, get_refusals, with_refusals
from virtualstack.dataset.opening import (
    OnError,
    Opening,
    Unsupported,
)
from virtualstack.formats.base import Reader
from virtualstack.manifests import ManifestGroup
from virtualstack.storage import Allow, StorageLike

__all__ = ["OpenOptions", "combine_datasets", "open_virtual_mfdataset", "open_virtual_mfdatatree"]


class _TreeOptions(TypedDict, total=False):
    reader: str | Reader | None
    group: str | None
    storage: StorageLike
    drop_variables: str | Iterable[str]
    decode_times: bool | None
    unsupported: Unsupported
    inline_limit: int | str
    allow: Allow


class OpenOptions(_TreeOptions, total=False):
    """Options for opening each file: parameters of :func:`open_virtual_dataset`."""

    loadable_variables: str | Iterable[str] | None


def open_virtual_mfdataset(
    urls: Nested[Path | xr.Dataset],
    /,
    *,
    combine: Combine = "by_coords",
    concat_dim: str | Sequence[str | None] | None = None,
    join: Join = "exact",
    tolerance: Any = None,
    preprocess: Callable[[xr.Dataset], xr.Dataset] | None = None,
    new_dim: Mapping[str, Labelling] | None = None,
    unpack: bool | Literal["differing"] = False,
    combine_options: Mapping[str, Any] | None = None,
    executor: Any = None,
    on_error: OnError = "raise",
    cache: Path | None = None,
    progress: Any = None,
    **open_options: Unpack[OpenOptions],
) -> xr.Dataset:
    """Open many files as one dataset of virtual variables.

    Virtual datasets that are already open may stand among the files, and are joined with them. Data are dropped,
    filled in or overridden only if you ask for it. The call reads the metadata of all files, and their loadable
    variables. It also reads the values of variables that must be the same in all files, unless their references
    already prove it.

    Parameters
    ----------
    urls
        A pattern such as ``"data/*.nc"`` or ``"s3://bucket/2020/**/*.nc"``, or a list of paths, URLs and patterns. Use
        lists of lists for ``combine="nested"`` along several dimensions. The matches of a pattern are in natural order.
        A virtual dataset may stand in place of a URL; it is joined as it is, after ``preprocess``.
    combine
        ``"by_coords"``: the dimension coordinates decide the order of files. ``"nested"``: files are joined in the
        order of ``urls``.
    concat_dim
        Dimension to join along with ``combine="nested"``, or one dimension for each level of lists, outermost first. At
        a level with ``None``, files with different variables are merged. A dimension that no file has is new.
    join
        Alignment of coordinates along the other dimensions. ``"exact"`` raises if they differ. ``"outer"``,
        ``"inner"``, ``"left"``, ``"right"`` and ``"override"`` work as in :func:`xarray.align`. Labels that a file
        lacks are EMPTY. With ``"outer"``, variables that a file lacks, and tiles without a file, are ABSENT.
    tolerance
        Largest difference at which coordinates count as equal, and also other floats that must be the same in all
        files. The values of the first file are used. It is a number, or a timedelta for dates.
    preprocess
        Function that is applied to the dataset of each file, and returns a dataset. The URL of the file is
        ``dataset.encoding["source"]``.
    new_dim
        New dimensions by name, each with the source of its labels: a :class:`FromName`, a :class:`FromAttribute`, or a
        function of the dataset.
    unpack
        If true, virtual variables are decoded as ``xr.open_dataset`` decodes them: missing values, scale and offset,
        and times. ``"differing"`` does this only for variables that the files pack differently.
    combine_options
        ``data_vars``, ``coords``, ``compat`` ("equals" or "override"), ``combine_attrs`` and ``fill_value``, as in
        :func:`xarray.concat`. By default attributes that differ are left out, and noted in ``.virtual.report()``.
        ``units`` that differ are an error.
    executor
        Executor that scans the files: ``"threads"``, ``"processes"``, ``"dask"``, a ``distributed.Client`` or a
        ``concurrent.futures.Executor``. By default remote files use 64 threads, and local files the calling thread.
    on_error
        ``"raise"`` raises the error of a file that cannot be opened. ``"skip"`` leaves the file out, with one warning
        and a row in ``.virtual.report()``.
    cache
        Directory or URL that keeps scan results. A later call reads only files that are new or have changed.
    progress
        ``True`` for a progress bar on stderr, or a function of the number of finished files and of all files.
    **open_options
        Options for opening each file, as in :func:`open_virtual_dataset`:

        - ``reader``: name of a reader, or a reader with options; detected by default.
        - ``group``: path of a group in each file; the root by default.
        - ``storage``: credentials, endpoint and retries, such as ``{"s3://bucket/": {...}}``.
        - ``loadable_variables``: names of variables to load; the dimension coordinates by default.
        - ``drop_variables``: names or paths of variables to leave out.
        - ``decode_times``: if true, loaded and unpacked times become dates; this is the default.
        - ``unsupported``: ``"inline"``, ``"raise"`` or ``"skip"`` for variables that cannot be referenced.
        - ``inline_limit``: largest size of the inlined values of one variable; ``"1 MiB"`` by default.
        - ``allow``: URLs or paths that files may refer to, in addition to the default places.

        These options and ``unpack=True`` do not change datasets that are already open.

    Returns
    -------
    xarray.Dataset
        One virtual dataset of all files. Read values with ``.virtual.open()``, or write references with
        ``.virtual.to_kerchunk()``, ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

    Raises
    ------
    CombineError
        The files do not fit together. The message names the files, what differs and by how much, and what to do.
    ReaderError, StorageError
        A file cannot be opened and ``on_error`` is ``"raise"``, no file can be opened, or no file matches a pattern.
    KeyError
        ``loadable_variables`` names a variable that no file has.
    TypeError
        An option is not known, or is about opening files although only open datasets are given.

    See Also
    --------
    combine_datasets : Join datasets that are already open.
    open_virtual_mfdatatree : Join files with groups.
    survey : Look over files before they are joined.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in range(2):
    ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
    ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
    >>> vds = vs.open_virtual_mfdataset("day*.nc", loadable_variables=["time"])
    >>> vds.virtual.open()["rain"].values
    array([1., 2.])
    """
    how = CombineOptions.from_options(
        combine=combine,
        concat_dim=concat_dim,
        join=join,
        tolerance=tolerance,
        new_dim=new_dim,
        unpack=unpack,
        decode_times=open_options.get("decode_times"),
        combine_options=combine_options,
    )
    opening = _opening("open_virtual_mfdataset", open_options, OpenOptions, unpack is True, is_tree=False)
    loadable = open_options.get("loadable_variables")
    wanted = None if loadable is None else {loadable} if isinstance(loadable, str) else set(loadable)
    unknown = set(wanted or ())

    def open_one(node: ManifestGroup) -> xr.Dataset:
        unknown.difference_update(node.arrays)
        its = None if wanted is None else wanted & node.arrays.keys()
        return opening.dataset(node, loadable_variables=its)

    opened = open_all(
        xr.Dataset,
        urls,
        open_one,
        opening,
        preprocess=preprocess,
        given=_given(open_options, unpack is True),
        is_one_index=how.dims is None and preprocess is None and not new_dim,
        reader=open_options.get("reader"),
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        with_children=False,
    )
    if unknown:
        raise KeyError(f"loadable_variables names {sorted(unknown)}, which no file has")
    combined = combine_by(opened.nested, how, storage=opening.storage)
    return with_refusals(combined, (*get_refusals(combined), *opened.left_out))


def combine_datasets(
    datasets: Nested[xr.Dataset],
    /,
    *,
    combine: Combine = "by_coords",
    concat_dim: str | Sequence[str | None] | None = None,
    join: Join = "exact",
    tolerance: Any = None,
    new_dim: Mapping[str, Labelling] | None = None,
    unpack: Literal[False, "differing"] = False,
    combine_options: Mapping[str, Any] | None = None,
    storage: StorageLike = None,
) -> xr.Dataset:
    """Combine virtual datasets that are already open.

    The rules are those of :func:`open_virtual_mfdataset`. The call reads only the values of variables that must be the
    same in all datasets, unless their references already prove it.

    Parameters
    ----------
    datasets
        A list of datasets, or lists of lists for ``combine="nested"`` along several dimensions.
    combine
        ``"by_coords"``: the dimension coordinates decide the order. ``"nested"``: datasets are joined in the order of
        the list.
    concat_dim
        Dimension to join along with ``combine="nested"``, or one dimension for each level of lists, outermost first. At
        a level with ``None``, datasets with different variables are merged. A dimension that no dataset has is new.
    join
        Alignment of coordinates along the other dimensions. ``"exact"`` raises if they differ. ``"outer"``,
        ``"inner"``, ``"left"``, ``"right"`` and ``"override"`` work as in :func:`xarray.align`. Labels that a dataset
        lacks are EMPTY. With ``"outer"``, variables that a dataset lacks, and tiles without a dataset, are ABSENT.
    tolerance
        Largest difference at which coordinates count as equal, and also other floats that must be the same. The values
        of the first dataset are used. It is a number, or a timedelta for dates.
    new_dim
        New dimensions by name, each with the source of its labels: a :class:`FromName`, a :class:`FromAttribute`, or a
        function of the dataset.
    unpack
        ``"differing"`` unpacks the variables that the datasets pack differently. ``False`` unpacks none.
    combine_options
        ``data_vars``, ``coords``, ``compat`` ("equals" or "override"), ``combine_attrs`` and ``fill_value``, as in
        :func:`xarray.concat`. By default attributes that differ are left out, and noted in ``.virtual.report()``.
    storage
        Access to the sources if values must be compared, such as ``{"s3://bucket/": {...}}``. By default the storage
        that the datasets were opened with is used.

    Returns
    -------
    xarray.Dataset
        One virtual dataset. Read values with ``.virtual.open()``, or write references with ``.virtual.to_kerchunk()``,
        ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

    Raises
    ------
    CombineError
        The datasets do not fit together. The message says what differs and by how much, and what to do.
    StorageError
        Values that must be compared cannot be read.
    TypeError
        An item is not a dataset.
    ValueError
        An option has a value that is not known.

    See Also
    --------
    open_virtual_mfdataset : Open files and join them in one call.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in range(2):
    ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
    ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
    >>> days = [vs.open_virtual_dataset(f"day{day}.nc") for day in range(2)]
    >>> vs.combine_datasets(days).virtual.open()["rain"].values
    array([1., 2.])
    """
    if unpack not in (False, "differing"):
        raise ValueError(f"unpack={unpack!r}; for datasets that are open it is False or 'differing'")
    how = CombineOptions.from_options(
        combine=combine,
        concat_dim=concat_dim,
        join=join,
        tolerance=tolerance,
        new_dim=new_dim,
        unpack=unpack,
        combine_options=combine_options,
    )
    nested: Nested[Any] = [datasets] if isinstance(datasets, xr.Dataset) else datasets
    for item in flatten(nested):
        if not isinstance(item, xr.Dataset):
            raise TypeError(
                f"combine_datasets() takes datasets, not a {type(item).__name__}: open_virtual_mfdataset takes URLs "
                "and datasets, open_virtual_mfdatatree URLs and trees"
            )
    return combine_by(nest_like(nested, map(declared_dataset, flatten(nested))), how, storage=storage)


def open_virtual_mfdatatree(
    urls: Nested[Path | xr.DataTree],
    /,
    *,
    combine: Combine = "by_coords",
    concat_dim: str | Sequence[str | None] | None = None,
    join: Join = "exact",
    tolerance: Any = None,
    preprocess: Callable[[xr.DataTree], xr.DataTree] | None = None,
    new_dim: Mapping[str, Labelling] | None = None,
    unpack: bool | Literal["differing"] = False,
    combine_options: Mapping[str, Any] | None = None,
    executor: Any = None,
    on_error: OnError = "raise",
    cache: Path | None = None,
    progress: Any = None,
    **open_options: Unpack[_TreeOptions],
) -> xr.DataTree:
    """Open many files with groups as one tree of virtual datasets, joined group by group.

    Virtual trees that are already open may stand among the files. All files must have the same groups. A group without
    the dimension that others are joined along must be the same in all files.

    Parameters
    ----------
    urls
        A pattern such as ``"data/*.nc"``, or a list of paths, URLs, patterns and virtual trees. Use lists of lists for
        ``combine="nested"`` along several dimensions.
    combine
        ``"by_coords"``: the dimension coordinates decide the order of files. ``"nested"``: files are joined in the
        order of ``urls``.
    concat_dim
        Dimension to join along with ``combine="nested"``, or one dimension for each level of lists, outermost first. At
        a level with ``None``, files with different variables are merged.
    join
        Alignment of coordinates along the other dimensions. ``"exact"`` raises if they differ. ``"outer"``,
        ``"inner"``, ``"left"``, ``"right"`` and ``"override"`` work as in :func:`xarray.align`.
    tolerance
        Largest difference at which coordinates count as equal, and also other floats that must be the same in all
        files. It is a number, or a timedelta for dates.
    preprocess
        Function that is applied to the tree of each file, and returns a tree. The URL of the file is
        ``tree.encoding["source"]``.
    new_dim
        New dimensions by name, each with the source of its labels: a :class:`FromName`, a :class:`FromAttribute`, or a
        function of the dataset of the root group.
    unpack
        If true, virtual variables are decoded as ``xr.open_dataset`` decodes them. ``"differing"`` does this only for
        variables that the files pack differently.
    combine_options
        ``data_vars``, ``coords``, ``compat`` ("equals" or "override"), ``combine_attrs`` and ``fill_value``, as in
        :func:`xarray.concat`.
    executor
        Executor that scans the files: ``"threads"``, ``"processes"``, ``"dask"``, a ``distributed.Client`` or a
        ``concurrent.futures.Executor``. By default remote files use 64 threads, and local files the calling thread.
    on_error
        ``"raise"`` raises the error of a file that cannot be opened. ``"skip"`` leaves the file out, with one warning
        and a row in ``.virtual.report()``.
    cache
        Directory or URL that keeps scan results. A later call reads only files that are new or have changed.
    progress
        ``True`` for a progress bar on stderr, or a function of the number of finished files and of all files.
    **open_options
        Options for opening each file, as in :func:`open_virtual_datatree`: ``reader``, ``group``, ``storage``,
        ``drop_variables``, ``decode_times``, ``unsupported``, ``inline_limit`` and ``allow``. See
        :func:`open_virtual_mfdataset` for one line on each.

    Returns
    -------
    xarray.DataTree
        One tree of virtual datasets. Read values with ``.virtual.open()``, or write references with
        ``.virtual.to_kerchunk()``, ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

    Raises
    ------
    CombineError
        A group is absent in some files, or groups do not fit together. A note on the error names the group.
    ReaderError, StorageError
        A file cannot be opened and ``on_error`` is ``"raise"``, no file can be opened, or no file matches a pattern.
    TypeError
        An option is not known, or is about opening files although only open trees are given.

    See Also
    --------
    open_virtual_mfdataset : Join one group of many files.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in range(2):
    ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
    ...     xr.DataTree.from_dict({"/gauge": part}).to_netcdf(f"day{day}.nc", engine="netcdf4")
    >>> tree = vs.open_virtual_mfdatatree("day*.nc")
    >>> tree.virtual.open()["gauge/rain"].values
    array([1., 2.])
    """
    how = CombineOptions.from_options(
        combine=combine,
        concat_dim=concat_dim,
        join=join,
        tolerance=tolerance,
        new_dim=new_dim,
        unpack=unpack,
        decode_times=open_options.get("decode_times"),
        combine_options=combine_options,
    )
    opening = _opening("open_virtual_mfdatatree", open_options, _TreeOptions, unpack is True, is_tree=True)

    def open_one(node: ManifestGroup) -> xr.DataTree:
        return opening.tree(node)

    opened = open_all(
        xr.DataTree,
        urls,
        open_one,
        opening,
        preprocess=preprocess,
        given=_given(open_options, unpack is True),
        is_one_index=how.dims is None and preprocess is None and not new_dim,
        reader=open_options.get("reader"),
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        with_children=True,
    )
    combined = combine_trees(opened.nested, how, storage=opening.storage)
    if opened.left_out:
        root = combined.to_dataset()
        combined.dataset = with_refusals(root, (*get_refusals(root), *opened.left_out))
    return combined


def _opening(function: str, options: Mapping[str, Any], known: Any, unpack: bool, *, is_tree: bool) -> Opening:
    """Return how files are opened, without the options for describing and combining them.

    Raises
    ------
    TypeError
        An option is not known.
    """
    unknown = sorted(options.keys() - known.__optional_keys__)
    if unknown:
        raise TypeError(
            f"{function}() got the unexpected keywords {unknown}; those of how files are joined belong into "
            f"combine_options=, and each file is opened with {sorted(known.__optional_keys__)}"
        )
    rest = {key: value for key, value in options.items() if key not in ("reader", "loadable_variables")}
    return Opening.from_options(unpack=unpack, is_tree=is_tree, **rest)


def _given(options: Mapping[str, Any], is_unpacking: bool) -> list[str]:
    """Return the given options that only apply to opening files; ``storage`` also applies to reading values."""
    return [*sorted(options.keys() - {"storage", "decode_times"}), *(["unpack=True"] if is_unpacking else [])]
