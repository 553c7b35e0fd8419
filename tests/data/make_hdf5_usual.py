"""Files such as archives are made of, for benchmarks: many small ones, many variables, many groups, many chunks."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np

RNG = np.random.default_rng(0)


def daily(path: Path, n_variables: int = 10) -> Path:
    """Write one day of packed variables, with three coordinates, as a weather service does."""
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"title": "Daily means", "institution": "x", "history": "made " * 20, "Conventions": "CF-1.8"})
        file.createDimension("time", None)
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": "days since 2000-01-01", "calendar": "standard", "standard_name": "time", "axis": "T"})
        time[:] = [1.0]
        for name, length in (("lat", 180), ("lon", 360)):
            file.createDimension(name, length)
            axis = file.createVariable(name, "f4", (name,))
            axis.setncatts({"units": "degrees", "standard_name": name, "long_name": name})
            axis[:] = np.arange(length)
        for i in range(n_variables):
            how = {"zlib": True, "shuffle": True, "chunksizes": (1, 90, 180), "fill_value": -999}
            variable = file.createVariable(f"v{i}", "i2", ("time", "lat", "lon"), **how)
            variable.setncatts({"units": "K", "long_name": f"variable {i}", "cell_methods": "time: mean"})
            variable.setncatts({"scale_factor": 0.01, "add_offset": 273.15, "standard_name": "air_temperature"})
            variable.set_auto_maskandscale(False)
            variable[:] = RNG.integers(0, 1000, (1, 180, 360))
    return path


def many_variables(path: Path, n_variables: int = 30, n_chunks: int = 164) -> Path:
    """Write variables of many chunks, one after another."""
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", None), ("lat", 64), ("lon", 64)):
            file.createDimension(name, length)
            axis = file.createVariable(name, "f8", (name,))
            axis.units = "days since 2000-01-01" if length is None else "degrees"
            axis[:] = np.arange(length or n_chunks)
        for i in range(n_variables):
            variable = file.createVariable(f"v{i}", "f4", ("time", "lat", "lon"), zlib=True, chunksizes=(1, 64, 64))
            variable.setncatts({"units": "K", "long_name": f"variable {i}", "standard_name": "air_temperature"})
            variable[:] = RNG.integers(0, 9, (n_chunks, 64, 64))
    return path


def many_groups(path: Path, n_groups: int = 100, n_variables: int = 4) -> Path:
    """Write groups of small variables, as satellites' products have."""
    with netCDF4.Dataset(path, "w") as file:
        for number in range(n_groups):
            group = file.createGroup(f"beam{number:03d}")
            group.description = "one beam"
            group.createDimension("x", 50)
            for i in range(n_variables):
                variable = group.createVariable(f"v{i}", "f4", ("x",), zlib=True, chunksizes=(25,))
                variable.setncatts({"units": "m", "long_name": "height"})
                variable[:] = np.arange(50)
    return path


INDEXES = {
    "btree1": ("earliest", (None, None)),
    "fixed array": ("v110", (0, 0)),
    "extensible array": ("v110", (None, 0)),
    "btree2": ("v110", (None, None)),
}
"""Chunk index: how it is asked for, by the format version and the longest extent (0: the extent itself)."""


def many_chunks(path: Path, n_chunks: int, index: str) -> Path:
    """Write one dataset of chunks of one byte each, compressed or not: with a fixed array the index alone matters."""
    version, longest = INDEXES[index]
    rows = max(n_chunks // 1000, 1)
    shape = (rows, n_chunks // rows)
    with h5py.File(path, "w", libver=("earliest" if version == "earliest" else version, "latest")[:2]) as file:
        maxshape = tuple(n if m == 0 else None for n, m in zip(shape, longest, strict=True))
        dataset = file.create_dataset("x", shape, "u1", chunks=(1, 1), maxshape=maxshape)
        dataset[...] = 1
    return path
