"""NetCDF files written by netCDF4 from a table, and what xarray reads from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import netCDF4
import xarray as xr

__all__ = ["netcdf4_file", "opened"]


def netcdf4_file(
    path: Path,
    sizes: Mapping[str, int | None],
    variables: Mapping[str, tuple[Any, ...]],
    *,
    kind: str = "NETCDF4",
    **attributes: Any,
) -> Path:
    """Write a file of dimensions with their sizes, ``None`` for unlimited ones, and of variables.

    A variable is its dtype, its dimensions in one text, its stored values (``None``: nothing is written), its
    attributes, and options of ``createVariable``; the last two may be left out. Names have the path of their group.
    """
    with netCDF4.Dataset(path, "w", format=kind) as file:
        for place, size in sizes.items():
            group, _, name = place.rpartition("/")
            (file.createGroup(group) if group else file).createDimension(name, size)
        for name, (dtype, dims, values, *more) in variables.items():
            described = dict(more[0]) if more else {}
            options = dict(*more[1:]) | {"fill_value": described.pop("_FillValue", None)}
            variable = file.createVariable(name, dtype, dims.split(), **options)
            variable.set_auto_maskandscale(False)
            variable.setncatts(described)
            if values is not None:
                variable[...] = values
        for place, value in attributes.items():
            group, _, name = place.rpartition("/")
            (file[group] if group else file).setncattr(name, value)
    return path


def opened(path: Path, **options: Any) -> xr.Dataset:
    """Read a file with xarray and netCDF4, into memory."""
    with xr.open_dataset(path, engine="netcdf4", **options) as dataset:
        return dataset.load()
