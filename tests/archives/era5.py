"""Months of the ERA5 reanalysis as the Climate Data Store gives them, packed as 16-bit integers month by month."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from tests.archives.fields import field
from tests.data.netcdf4 import netcdf4_file

MONTHS = ((2023, 12), (2024, 1), (2024, 2))


def era5(folder: Path) -> list[str]:
    """Write three months: scalar ``number``, ``expver`` as text along ``valid_time``, a packing for each month."""
    return [_month(folder, year, month) for year, month in MONTHS]


def _month(folder: Path, year: int, month: int) -> str:
    first = datetime(year, month, 1)
    days = (datetime(year + month // 12, month % 12 + 1, 1) - first).days
    times = [first + timedelta(hours=12 * i) for i in range(2 * days)]
    seconds = [round((t - datetime(1970, 1, 1)).total_seconds()) for t in times]
    latitude, longitude = np.arange(60.0, 30, -0.25), np.arange(-10.0, 15, 0.25)
    shape = len(times), len(latitude), len(longitude)
    land = np.broadcast_to(np.add.outer(latitude, longitude) > 55, shape)
    fields = {
        "t2m": 285 - month + 12 * field(*shape, seed=month),
        "sst": np.ma.masked_array(288 + month / 10 + 3 * field(*shape, seed=7), land),
    }
    variables = {
        "number": ("i8", "", 0, {"long_name": "ensemble member numerical id", "units": "1"}),
        "valid_time": (
            "i8",
            "valid_time",
            seconds,
            {"standard_name": "time", "units": "seconds since 1970-01-01", "calendar": "proleptic_gregorian"},
        ),
        "latitude": ("f8", "latitude", latitude, {"units": "degrees_north", "stored_direction": "decreasing"}),
        "longitude": ("f8", "longitude", longitude, {"units": "degrees_east"}),
        # the newest months are preliminary: version 5
        "expver": (str, "valid_time", np.full(len(times), "0005" if (year, month) == MONTHS[-1] else "0001", object)),
    }
    for name, values in fields.items():
        low, high = float(values.min()), float(values.max())
        scale, offset = (high - low) / 65534 or 1.0, (high + low) / 2
        packed = np.ma.masked_array(np.round((values - offset) / scale), np.ma.getmask(values)).filled(-32767)
        attributes = {
            "scale_factor": scale,
            "add_offset": offset,
            "_FillValue": -32767,
            "units": "K",
            "GRIB_shortName": name.replace("t2m", "2t"),
            "coordinates": "number valid_time latitude longitude expver",
        }
        chunks = {"zlib": True, "shuffle": True, "chunksizes": (20, 60, 100)}
        variables[name] = ("i2", "valid_time latitude longitude", packed.astype("i2"), attributes, chunks)
    path = folder / f"era5_{year}-{month:02}.nc"
    sizes = {"valid_time": len(times), "latitude": len(latitude), "longitude": len(longitude)}
    history = f"2024-03-0{month % 9 + 1}T10:00 GRIB to CDM+CF via cfgrib"
    netcdf4_file(path, sizes, variables, Conventions="CF-1.7", GRIB_centre="ecmf", history=history)
    return str(path)
