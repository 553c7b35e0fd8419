"""Drifting buoys as contiguous ragged arrays: files with another number of observations each."""

from pathlib import Path

import numpy as np

from tests.data.netcdf4 import netcdf4_file

LENGTHS = ((5000, 9100), (12300,), (7000, 3000, 4400))
"""Numbers of observations of the buoys of each file."""


def trajectories(folder: Path) -> list[str]:
    """Write three files with one to three buoys, and 14100, 12300 and 14400 observations."""
    return [_file(folder, number, lengths) for number, lengths in enumerate(LENGTHS)]


def _file(folder: Path, number: int, lengths: tuple[int, ...]) -> str:
    ids = 101143 + 100 * number + np.arange(len(lengths))
    obs = np.arange(sum(lengths))
    time = np.concatenate([3600 * 6 * np.arange(n) + 86400 * 40 * number for n in lengths])
    temperature = np.where(obs % 5 == 4, -1e34, 290 + 1e-3 * obs + number).astype("f4")
    seconds = {"units": "seconds since 2020-01-01 00:00:00", "calendar": "gregorian"}
    along = {"coordinates": "time lat lon"}
    variables = {
        "ID": ("i8", "traj", ids, {"cf_role": "trajectory_id", "long_name": "Global Drifter Program buoy id"}),
        "rowsize": ("i4", "traj", lengths, {"sample_dimension": "obs", "long_name": "number of observations"}),
        "WMO": ("i4", "traj", 4_400_000 + ids % 1000),
        "deploy_date": (
            "f4",
            "traj",
            18262.0 + 40 * number + np.arange(len(lengths)),
            {"units": "days since 1970-01-01"},
        ),
        "platform": ("S1", "traj strlen", np.array([[*"SVP"]] * len(lengths), "S1"), {"_Encoding": "utf-8"}),
        "ids": ("i8", "obs", np.repeat(ids, lengths)),
        "time": ("i8", "obs", time, {**seconds, "standard_name": "time"}),
        "lat": ("f4", "obs", 30 + 1e-4 * obs + number, {"units": "degrees_north", "_FillValue": -1e34}),
        "lon": ("f4", "obs", -40 + 1e-4 * obs, {"units": "degrees_east", "_FillValue": -1e34}),
        "sst": ("f4", "obs", temperature, {**along, "units": "Kelvin", "_FillValue": -1e34}, {"zlib": True}),
    }
    path = folder / f"drifters_{number}.nc"
    sizes = {"traj": len(lengths), "obs": len(obs), "strlen": 3}
    netcdf4_file(path, sizes, variables, Conventions="CF-1.6", featureType="trajectory", id=f"part {number}")
    return str(path)
