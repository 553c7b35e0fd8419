"""Open many sources as one virtual dataset or tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, Literal

import xarray as xr

from virtualstack.api.each import Path, open_all
from virtualstack.api.one import open_virtual_dataset, open_virtual_datatree
from virtualstack.combine import Combine, CombineOptions, Labelling, Nested, combine_trees
from virtualstack.combine import combine_datasets as combine_by
from virtualstack.dataset import get_refusals, with_refusals
from virtualstack.dataset.opening import Opening
from virtualstack.dataset.variables import DecodeTimes
from virtualstack.errors import folding
from virtualstack.formats.base import Reader
from virtualstack.manifests import ManifestGroup
from virtualstack.options import JOINING, OPENING, Join, OnError, Unsupported, with_options
from virtualstack.planning import Duplicates
from virtualstack.storage import Allow, Stale, StorageLike


@with_options(JOINING, OPENING)
@folding
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
    labels: Mapping[str, str] | None = None,
    duplicates: Duplicates | None = None,
    unpack: bool | Literal["differing"] | None = None,
    combine_options: Mapping[str, Any] | None = None,
    executor: Any = None,
    on_error: OnError = "raise",
    cache: Path | None = None,
    progress: Any = None,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    loadable_variables: str | Iterable[str] | None = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: DecodeTimes = None,
    unsupported: Unsupported = "inline",
    inline_limit: int | str = "1 MiB",
    allow: Allow = (),
    stale: Stale | None = None,
) -> xr.Dataset:
    """Open many files as one dataset of virtual variables, whose values stay in the files.

    Virtual datasets that are already open may stand among the files, and are joined with them. Options of opening and
    ``unpack=True`` do not change them. Data are dropped, filled in or overridden only if you ask for it. The call reads
    the metadata of all files, and their loadable variables. It also reads the values of variables that must be the same
    in all files, unless their references already prove it.

    Parameters
    ----------
    urls
        A pattern such as ``"data/*.nc"`` or ``"s3://bucket/2020/**/*.nc"``, or a list of paths, URLs and patterns. Use
        lists of lists to join along several dimensions with ``combine="nested"``. The matches of a pattern are in
        natural order. A virtual dataset may stand in place of a URL; it is joined as it is, after ``preprocess``.

    Returns
    -------
    xarray.Dataset
        One virtual dataset of all files. Read values with ``.virtual.open()``, or write references with
        ``.virtual.to_kerchunk()``, ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

    Raises
    ------
    CombineError
        The files do not fit together. The message names the files, what differs and by how much, and what to do.
    SourceNotFoundError
        No file matches a pattern, or a file does not exist.
    ForbiddenLocationError
        A file refers to a place that is not allowed.
    ReaderError, StorageError
        A file cannot be opened and ``on_error`` is ``"raise"``, or no file can be opened.
    KeyError
        ``loadable_variables`` names a variable that no file has.
    TypeError
        Options for opening files are given, but all items are datasets that are already open.

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
        labels=labels,
        duplicates=duplicates,
        unpack=unpack,
        decode_times=decode_times,
        combine_options=combine_options,
    )
    opening = Opening.from_options(
        group=group,
        storage=storage,
        drop_variables=drop_variables,
        decode_times=decode_times,
        unpack=unpack is True,
        unsupported=unsupported,
        inline_limit=inline_limit,
        allow=allow,
        stale=stale,
    )
    wanted = (
        None
        if loadable_variables is None
        else {loadable_variables}
        if isinstance(loadable_variables, str)
        else set(loadable_variables)
    )
    unknown = set(wanted or ())

    def open_one(node: ManifestGroup, opening: Opening) -> xr.Dataset:
        unknown.difference_update(node.arrays)
        its = (wanted & node.arrays.keys() or None) if wanted else wanted
        return opening.dataset(node, loadable_variables=its)

    opened = open_all(
        xr.Dataset,
        urls,
        open_one,
        opening,
        preprocess=preprocess,
        given=_given(
            open_virtual_dataset,
            unpack=unpack is True,
            reader=reader,
            group=group,
            loadable_variables=loadable_variables,
            drop_variables=drop_variables,
            unsupported=unsupported,
            inline_limit=inline_limit,
            allow=allow,
            stale=stale,
        ),
        is_one_index=how.dims is None and preprocess is None and not (new_dim or labels or duplicates),
        reader=reader,
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        with_children=False,
    )
    left_out = opened.left_out()
    if unknown:
        raise KeyError(f"loadable_variables names {sorted(unknown)}, which no file has")
    combined = combine_by(opened.nested, how, storage=opened.storage)
    return with_refusals(combined, (*get_refusals(combined), *left_out))


@with_options(JOINING, OPENING)
@folding
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
    labels: Mapping[str, str] | None = None,
    duplicates: Duplicates | None = None,
    unpack: bool | Literal["differing"] | None = None,
    combine_options: Mapping[str, Any] | None = None,
    executor: Any = None,
    on_error: OnError = "raise",
    cache: Path | None = None,
    progress: Any = None,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: DecodeTimes = None,
    unsupported: Unsupported = "inline",
    inline_limit: int | str = "1 MiB",
    allow: Allow = (),
    stale: Stale | None = None,
) -> xr.DataTree:
    """Open many files with groups as one tree of virtual datasets, joined group by group.

    Virtual trees that are already open may stand among the files. Options of opening and ``unpack=True`` do not change
    them. All files must have the same groups. A group without
    the dimension that others are joined along must be the same in all files.

    Parameters
    ----------
    urls
        A pattern such as ``"data/*.nc"``, or a list of paths, URLs, patterns and virtual trees. Use lists of lists for
        ``combine="nested"`` along several dimensions.

    Returns
    -------
    xarray.DataTree
        One tree of virtual datasets. Read values with ``.virtual.open()``, or write references with
        ``.virtual.to_kerchunk()``, ``.virtual.to_icechunk()`` or ``.virtual.to_vstack()``.

    Raises
    ------
    CombineError
        A group is absent in some files, or groups do not fit together. A note on the error names the group.
    SourceNotFoundError
        No file matches a pattern, or a file does not exist.
    ForbiddenLocationError
        A file refers to a place that is not allowed.
    ReaderError, StorageError
        A file cannot be opened and ``on_error`` is ``"raise"``, or no file can be opened.
    TypeError
        Options for opening files are given, but all items are trees that are already open.

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
        labels=labels,
        duplicates=duplicates,
        unpack=unpack,
        decode_times=decode_times,
        combine_options=combine_options,
    )
    opening = Opening.from_options(
        group=group,
        storage=storage,
        drop_variables=drop_variables,
        decode_times=decode_times,
        unpack=unpack is True,
        unsupported=unsupported,
        inline_limit=inline_limit,
        allow=allow,
        stale=stale,
        is_tree=True,
    )

    def open_one(node: ManifestGroup, opening: Opening) -> xr.DataTree:
        return opening.tree(node)

    opened = open_all(
        xr.DataTree,
        urls,
        open_one,
        opening,
        preprocess=preprocess,
        given=_given(
            open_virtual_datatree,
            unpack=unpack is True,
            reader=reader,
            group=group,
            drop_variables=drop_variables,
            unsupported=unsupported,
            inline_limit=inline_limit,
            allow=allow,
            stale=stale,
        ),
        is_one_index=how.dims is None and preprocess is None and not (new_dim or labels or duplicates),
        reader=reader,
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        with_children=True,
    )
    left_out = opened.left_out()
    combined = combine_trees(opened.nested, how, storage=opened.storage)
    if left_out:
        root = combined.to_dataset()
        combined.dataset = with_refusals(root, (*get_refusals(root), *left_out))
    return combined


def _given(opener: Callable[..., Any], /, **options: Any) -> list[str]:
    """Return the names of options whose values are not the defaults of the function that opens one file."""
    defaults = {name: x.default for name, x in signature(opener).parameters.items()}
    return sorted(name for name, x in options.items() if type(x) is not type(defaults[name]) or x != defaults[name])
