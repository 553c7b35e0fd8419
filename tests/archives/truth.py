"""What the formats' own libraries read of the archives, and whether a cube has every file in its place."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr

from tests.archives import cmip, cog, goes, hdfeos, nemo

type Place = dict[str, int | slice]

NEW = "*"
"""In a place: the dimension that no file has, whatever its name is."""


def own_engine(path: str) -> dict[str, Any]:
    """Return the options by which xarray opens a file without virtualstack."""
    name = Path(path).name
    if name.endswith(".zarr"):
        return {"engine": "zarr", "consolidated": False}
    if name.endswith(".tif"):
        return {"engine": "rasterio"}
    if name.startswith("gfs"):
        return {"engine": "cfgrib", "backend_kwargs": {"indexpath": ""}}
    return {"engine": "netcdf4"}


def opened(path: str, *, group: str | None = None) -> xr.Dataset:
    """Read a file into memory with its own library; a swath is read with h5py, and its dimensions get their names."""
    if path.endswith(".he5"):
        return _swath(path, group)
    logging.getLogger("cfgrib").setLevel(logging.CRITICAL)  # it says with tracebacks what it leaves out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with xr.open_dataset(path, **own_engine(path)) as dataset:
            return dataset.load()


def _swath(path: str, group: str | None) -> xr.Dataset:
    geolocation = [f"{hdfeos.SWATH}/Geolocation Fields"] if group is None else []
    with h5py.File(path) as file:
        variables, coordinates = {}, []
        for where in [*geolocation, group or f"{hdfeos.SWATH}/Data Fields"]:
            for name, dataset in file[where].items():
                attributes = {key: _plain(value) for key, value in dataset.attrs.items()}
                variables[name] = (hdfeos.DIMS[: dataset.ndim], dataset[()], attributes)
                if where in geolocation:
                    coordinates.append(name)
        attributes = {key: _plain(value) for key, value in file[group or hdfeos.SWATH].attrs.items()}
        return xr.decode_cf(xr.Dataset(variables, attrs=attributes)).set_coords(coordinates)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return value[0] if value.shape == (1,) else value


# -- datasets that must be equal ------------------------------------------------------------------------------


def differences(found: xr.Dataset, expected: xr.Dataset, *, attributes: bool = True) -> list[str]:
    """Say in what a dataset differs from another one: names, dimensions, types, values, attributes."""
    said = []
    if set(found.variables) != set(expected.variables):
        return [f"variables {sorted(map(str, set(found.variables) ^ set(expected.variables)))}"]
    if set(found.coords) != set(expected.coords):
        said.append(f"coordinates {sorted(map(str, set(found.coords) ^ set(expected.coords)))}")
    if set(found.indexes) != set(expected.indexes):
        said.append(f"indexes {sorted(map(str, set(found.indexes) ^ set(expected.indexes)))}")
    if dict(found.sizes) != dict(expected.sizes):
        said.append(f"sizes {dict(found.sizes)}, not {dict(expected.sizes)}")
    for name in expected.variables:
        said += [f"{name}: {x}" for x in _different(found.variables[name], expected.variables[name])]
        if attributes:
            said += [f"{name}: {x}" for x in _unequal(found[name].attrs, expected[name].attrs)]
    return said + (list(_unequal(found.attrs, expected.attrs)) if attributes else [])


def _different(found: xr.Variable, expected: xr.Variable) -> Iterable[str]:
    if found.dims != expected.dims:
        yield f"dimensions {found.dims}, not {expected.dims}"
        return
    if found.shape != expected.shape:
        yield f"shape {found.shape}, not {expected.shape}"
        return
    one, other = found.values, expected.values
    if one.dtype != other.dtype and {one.dtype.kind, other.dtype.kind} - {"U", "T", "O"}:
        yield f"dtype {one.dtype}, not {other.dtype}"
    try:
        np.testing.assert_array_equal(one, other)
    except AssertionError as error:
        yield "values " + " ".join(str(error).split())[:200]


def _unequal(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> Iterable[str]:
    for name in found.keys() | expected.keys():
        if name == _OPENING_TIME or (name in _OURS_ALONE and name not in expected):
            continue
        if name not in found or name not in expected or not _is_equal(found[name], expected[name]):
            yield f"attribute {name} = {found.get(name)!r}, not {expected.get(name)!r}"


_OURS_ALONE = {
    "grid_mapping",  # rasterio's engine keeps it in the encoding
    "AREA_OR_POINT",
    "TIFFTAG_DATETIME",
    "TIFFTAG_RESOLUTIONUNIT",
    "TIFFTAG_XRESOLUTION",
    "TIFFTAG_YRESOLUTION",
}
_OPENING_TIME = "history"  # cfgrib's has the time at which the file was opened


def _is_equal(one: Any, other: Any) -> bool:
    return bool(np.array_equal(one, other)) and np.asarray(one).dtype.kind == np.asarray(other).dtype.kind


# -- cubes in which every file has its place ------------------------------------------------------------------


def places(name: str, files: Sequence[xr.Dataset]) -> list[Place]:
    """Return where each file of an archive stands in a cube of them."""

    def rows(dim: str) -> list[slice]:
        ends = np.cumsum([0, *(x.sizes[dim] for x in files)]).tolist()
        return [slice(*pair) for pair in pairwise(ends)]

    if name == "nemo":
        tiles = product(pairwise(nemo.ROWS), pairwise(nemo.COLUMNS))
        return [{"y": slice(*y), "x": slice(*x)} for y, x in tiles]
    if name == "cmip-members":
        years = rows("time")[: len(cmip.PERIODS)]
        return [{NEW: i, "time": year} for i in range(len(cmip.MEMBERS)) for year in years]
    if name == "trajectories":
        return [{"obs": obs, "traj": traj} for obs, traj in zip(rows("obs"), rows("traj"), strict=True)]
    along = {"era5": "valid_time", "wrf": "Time", "hdfeos": "nTimes", "mixed": "time"}.get(name)
    return [{along: x} for x in rows(along)] if along else [{NEW: i} for i in range(len(files))]


_LABELS = {"wrf": ("Time", "XTIME")}
"""Labels that a dimension without a coordinate may have got, and the variable that they must be."""


def labels_of(name: str) -> list[Any] | None:
    """Return the labels that a new dimension must have."""
    if name == "cmip-members":
        return list(cmip.MEMBERS)
    return [np.datetime64(date) for date in cog.DATES] if name == "cog" else None


def misplaced(name: str, cube: xr.Dataset, files: Sequence[xr.Dataset]) -> list[str]:
    """Say in what a cube is not the files, each in its place, with labels that are unique and in order."""
    if not any(x.variables for x in files):
        return ["there is nothing in the files"]
    said, found = [], places(name, files)
    known = set().union(*(x.dims for x in files))
    new = sorted(map(str, set(cube.dims) - known))
    for label, index in cube.indexes.items():
        if not (index.is_unique and (index.is_monotonic_increasing or index.is_monotonic_decreasing)):
            said.append(f"labels of {label} are not unique and in order")
    if NEW not in found[0]:
        if new:
            said.append(f"new dimensions {new}")
    elif len(new) != 1:
        return [f"one new dimension was expected, not {new}"]
    else:
        found = [{(new[0] if dim == NEW else dim): at for dim, at in place.items()} for place in found]
        wanted = labels_of(name)
        if wanted is not None and (new[0] not in cube.coords or list(cube[new[0]].values) != wanted):
            said.append(f"labels of {new[0]} are {cube.coords.get(new[0], 'absent')}")
        n = 1 + max(place[new[0]] for place in found)
        if cube.sizes[new[0]] != n:
            said.append(f"{cube.sizes[new[0]]} along {new[0]}, not {n}")
    for dim in known & set(found[0]):
        n = max(place[dim].stop for place in found)
        if cube.sizes.get(dim) != n:
            said.append(f"{cube.sizes.get(dim)} along {dim}, not {n}")
    if said:
        return said
    shared = [_shared([x.attrs for x in files])]
    shared += [_shared([x[v].attrs for x in files if v in x.variables]) for v in cube.variables]
    names = set().union(*(x.variables for x in files))
    for place, file in zip(found, files, strict=True):
        part = cube.isel(place).drop_vars([x for x in new if x not in file.variables], errors="ignore")
        label, source = _LABELS.get(name, (None, None))
        if label in part.coords and label not in file.variables:
            if not np.array_equal(part[label].values, file[source].values):
                said.append(f"labels {label} are not those of {source}")
            part = part.drop_vars(label)
        absent = [x for x in names - set(file.variables) if x in part.variables]
        filled = [x for x in absent if set(place) & set(cube[x].dims) and not part[x].isnull().all()]
        said += [f"{x} has values where its file has none" for x in filled]
        part = part.drop_vars(absent)
        for variable in set(part.variables) & set(file.variables):
            unlike = [dim for dim in part[variable].dims if dim not in file[variable].dims]
            if unlike:
                said.append(f"{variable} has got {unlike}")
        said += differences(part.drop_indexes([]), file, attributes=False)
        if said:
            return said
    for name_, kept in zip([None, *cube.variables], shared, strict=True):
        attrs = cube.attrs if name_ is None else cube[name_].attrs
        said += [f"attribute {x} of {name_ or 'the cube'}" for x in kept if not _is_equal(attrs.get(x), kept[x])]
    return said


def _shared(attributes: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
    """Return the attributes that are the same in all files."""
    first = attributes[0] if attributes else {}
    return {
        key: value
        for key, value in first.items()
        if key not in (*_OURS_ALONE, _OPENING_TIME) and all(key in x and _is_equal(x[key], value) for x in attributes)
    }


def without_duplicates(name: str, files: Sequence[xr.Dataset], keep: str) -> list[xr.Dataset]:
    """Leave out the first or the last of two files of an archive that have the same label."""
    if name != "goes":
        return list(files)
    again = goes.SCENES.index((2, 1))
    return [x for i, x in enumerate(files) if i != (again if keep == "first" else again - 1)]
