"""Days of rain, the first as netCDF-4 files, later ones as zarr stores."""

from pathlib import Path

import numpy as np
import xarray as xr

from tests.archives.fields import field


def mixed(folder: Path) -> list[str]:
    """Write five days: three netCDF-4 files, and two zarr stores."""
    return [_day(folder, number) for number in range(5)]


def _day(folder: Path, number: int) -> str:
    lat, lon = np.arange(60.0, 35, -0.125), np.arange(-10.0, 35, 0.125)
    hours = 24 * number + np.arange(0, 24, 6)
    rain = np.clip(field(4, len(lat), len(lon), seed=number), 0, 1)
    rain[:, lat > 58] = np.nan
    time = ("time", hours, {"units": "hours since 2024-06-01", "calendar": "standard", "standard_name": "time"})
    day = xr.Dataset(
        {"rain": (("time", "lat", "lon"), rain, {"units": "mm", "long_name": "rain"})},
        {
            "time": time,
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "lon": ("lon", lon, {"units": "degrees_east"}),
        },
        {"title": "Rain", "Conventions": "CF-1.8"},
    )
    name = f"rain_2024-06-{1 + number:02}"
    if number < 3:
        encoding = {"rain": {"zlib": True, "chunksizes": (2, 100, 180), "_FillValue": np.float32(np.nan)}}
        day.to_netcdf(folder / f"{name}.nc", engine="netcdf4", encoding=encoding, unlimited_dims=["time"])
        return str(folder / f"{name}.nc")
    encoding = {"rain": {"chunks": (2, 100, 180), "_FillValue": np.float32(np.nan)}}
    day.to_zarr(folder / f"{name}.zarr", mode="w", consolidated=False, encoding=encoding)
    return str(folder / f"{name}.zarr")
