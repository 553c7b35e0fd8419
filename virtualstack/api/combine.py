"""Combine datasets that are already open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import xarray as xr

from virtualstack.combine import Combine, CombineOptions, Labelling, Nested, flatten, nest_like
from virtualstack.combine import combine_datasets as combine_by
from virtualstack.dataset import declared_dataset
from virtualstack.errors import check_word, folding
from virtualstack.options import JOINING, Join, with_options
from virtualstack.planning import Duplicates
from virtualstack.storage import StorageLike


@with_options(JOINING)
@folding
def combine_datasets(
    datasets: Nested[xr.Dataset],
    /,
    *,
    combine: Combine = "by_coords",
    concat_dim: str | Sequence[str | None] | None = None,
    join: Join = "exact",
    tolerance: Any = None,
    new_dim: Mapping[str, Labelling] | None = None,
    labels: Mapping[str, str] | None = None,
    duplicates: Duplicates | None = None,
    unpack: Literal[False, "differing"] | None = None,
    combine_options: Mapping[str, Any] | None = None,
    storage: StorageLike = None,
) -> xr.Dataset:
    """Combine virtual datasets that are already open.

    The datasets are joined as :func:`open_virtual_mfdataset` joins files. The call reads only the values of variables
    that must be the same in all datasets, unless their references already prove it.

    Parameters
    ----------
    datasets
        A list of datasets, or lists of lists for ``combine="nested"`` along several dimensions.
    new_dim
        New dimensions by name, each with the source of its labels: a :class:`FromName` (of
        ``dataset.encoding["source"]``), a :class:`FromAttribute`, a function of the dataset, or a list with one label
        for each dataset. Data variables get them; coordinates only if ``combine_options["coords"]`` names them.
    unpack
        ``"differing"``, the default, unpacks the variables that the datasets pack differently; ``.virtual.report()``
        names them. With ``False`` these are an error.
    storage
        Access to the sources if values must be compared, such as ``{"s3://bucket/": {...}}``. Other URLs are read with
        the storage with which the sources were opened.

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
    check_word("unpack", unpack, (False, None, "differing"))
    how = CombineOptions.from_options(
        combine=combine,
        concat_dim=concat_dim,
        join=join,
        tolerance=tolerance,
        new_dim=new_dim,
        labels=labels,
        duplicates=duplicates,
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
