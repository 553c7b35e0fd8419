"""Writing netCDF-4 and HDF5 files with h5py, which the core of virtualstack has; and files of plain HDF5."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from virtualstack.sample.fields import texture


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a netCDF-4 file: its values as they are stored, and how they are stored."""

    dims: tuple[str, ...]
    values: NDArray[Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fill: Any = None
    storage: Mapping[str, Any] = field(default_factory=dict)
    """Options of h5py, such as ``chunks`` and ``compression``."""


def make_folder(folder: str | os.PathLike[str], /) -> Path:
    """Make a folder, unless it exists, and return its path."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_netcdf(
    path: Path, variables: Mapping[str, Variable], attributes: Mapping[str, Any], /, *, unlimited: str | None = None
) -> str:
    """Write a netCDF-4 file; a dimension that has no variable of its name is one of the netCDF library without values.

    Chunks of a masked array whose elements are all masked are not written.
    """
    # The netCDF library, too, keeps the order of variables, and writes the structures of HDF5 1.8.
    with h5py.File(path, "w", libver=("v108", "v108"), track_order=True) as file:
        _set_attributes(file, attributes)
        sizes = {dim: n for v in variables.values() for dim, n in zip(v.dims, v.values.shape, strict=True)}
        for i, (dim, n) in enumerate(sizes.items()):
            if dim not in variables:
                dataset = file.create_dataset(dim, shape=(n,), dtype=">f4", track_order=True)
                dataset.make_scale(f"This is a netCDF dimension but not a netCDF variable.{n:>10}")
                dataset.attrs["_Netcdf4Dimid"] = np.int32(i)
        for name, variable in variables.items():
            dataset = _write_variable(file, name, variable, unlimited)
            if name in sizes:
                dataset.make_scale(name)
                dataset.attrs["_Netcdf4Dimid"] = np.int32(list(sizes).index(name))
        for name, variable in variables.items():
            for axis, dim in enumerate(variable.dims):
                if name not in sizes:
                    file[name].dims[axis].attach_scale(file[dim])
    return str(path)


def _write_variable(file: Any, name: str, variable: Variable, unlimited: str | None) -> Any:
    values = variable.values
    maxshape = tuple(None if dim == unlimited else n for dim, n in zip(variable.dims, values.shape, strict=True))
    options = {"chunks": values.shape} if None in maxshape else {}
    is_text = values.dtype.kind == "U"
    dataset = file.create_dataset(
        name,
        shape=values.shape,
        dtype=h5py.string_dtype() if is_text else values.dtype,
        maxshape=maxshape,
        fillvalue=variable.fill,
        track_order=True,
        **{**options, **variable.storage},
    )
    if not isinstance(values, np.ma.MaskedArray):
        dataset[...] = values.astype(object) if is_text else values
    elif dataset.chunks is not None:
        for chunk in dataset.iter_chunks():
            if not values[chunk].mask.all():
                dataset[chunk] = values[chunk].filled()
    if variable.fill is not None:
        dataset.attrs["_FillValue"] = np.array([variable.fill], values.dtype)
    _set_attributes(dataset, variable.attributes)
    return dataset


def _set_attributes(target: Any, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        target.attrs[name] = np.bytes_(value) if isinstance(value, str) else np.atleast_1d(value)


def plain_hdf5(folder: str | os.PathLike[str], /) -> list[str]:
    """Write three granules of a satellite as HDF5 files whose dimensions have no names.

    Each file has a group ``science`` with the soil moisture of a swath as ``(row, column)``, its latitude and its
    longitude, and the time of each row. No HDF5 dimension scales say which axes belong together.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the files, sorted.

    Examples
    --------
    >>> import virtualstack as vs
    >>> vs.sample.plain_hdf5("granules")
    ['granules/orbit_1.h5', 'granules/orbit_2.h5', 'granules/orbit_3.h5']
    >>> vds = vs.open_virtual_dataset("granules/orbit_1.h5", group="science")
    >>> vds["soil_moisture"].dims
    ('phony_dim_0', 'phony_dim_1')
    """
    where, paths = make_folder(folder), []
    along, across = np.mgrid[0:120, 0:60] / 60
    for orbit in range(1, 4):
        moisture = np.clip(0.25 + 0.15 * texture(across + orbit, along, seed=5), 0.02, 0.6).astype("f4")
        moisture[texture(across, along + orbit, seed=6) > 1.2] = -9999
        latitude = (60 - 20 * along - 2 * across).astype("f4")
        longitude = (-15 * orbit + 15 * across - 4 * along).astype("f4")
        path = where / f"orbit_{orbit}.h5"
        with h5py.File(path, "w", track_order=True) as file:
            _set_attributes(file, {"title": "Soil moisture of a swath", "orbit": orbit})
            group = file.create_group("science", track_order=True)
            for name, values, attributes in (
                ("time", 5400.0 * orbit + np.arange(120.0), {"units": "seconds since 2024-06-01 00:00:00"}),
                ("latitude", latitude, {"units": "degrees_north", "standard_name": "latitude"}),
                ("longitude", longitude, {"units": "degrees_east", "standard_name": "longitude"}),
                ("soil_moisture", moisture, {"units": "m3 m-3", "long_name": "volumetric soil moisture"}),
            ):
                storage = {"chunks": (40, 60), "compression": 4, "shuffle": True} if values.ndim == 2 else {}
                dataset = group.create_dataset(name, data=values, **storage)
                _set_attributes(dataset, attributes)
            dataset.attrs["_FillValue"] = np.float32(-9999)
        paths.append(str(path))
    return paths
