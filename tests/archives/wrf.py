"""Output of the Weather Research and Forecasting model: times as text, no coordinate of ``Time``, grids in 2-D."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from tests.archives.fields import field
from tests.data.netcdf4 import netcdf4_file

START = datetime(2024, 6, 1)


def wrf(folder: Path) -> list[str]:
    """Write four files of three hours each."""
    return [_history(folder, START + timedelta(hours=3 * i)) for i in range(4)]


def _history(folder: Path, first: datetime) -> str:
    times = [first + timedelta(hours=i) for i in range(3)]
    minutes = np.array([(t - START) / timedelta(minutes=1) for t in times])
    text = np.array([[*f"{t:%Y-%m-%d_%H:%M:%S}"] for t in times], "S1")
    y, x = np.mgrid[0:150, 0:200]
    lat, lon = (46 + 0.01 * y - 0.0004 * x).astype("f4"), (7 + 0.014 * x + 0.0003 * y).astype("f4")
    t2 = 280 + 10 * field(3, *lat.shape, seed=minutes[0] / 60)
    wind = np.stack([t2 - 280, t2 - 275, t2 - 270, t2 - 268], 1)
    staggered = np.concatenate([wind, wind[..., -1:]], -1)

    def on_grid(description: str, units: str, stagger: str = "") -> dict[str, object]:
        suffix = f"_{stagger}" if stagger else ""
        return {
            "FieldType": np.int32(104),
            "MemoryOrder": "XY ",
            "description": description,
            "units": units,
            "stagger": stagger,
            "coordinates": f"XLONG{suffix} XLAT{suffix} XTIME",
        }

    horizontal, deflate = "Time south_north west_east", {"zlib": True}
    half = np.concatenate([lon, lon[:, -1:] + 0.014], 1) - 0.007
    variables = {
        "Times": ("S1", "Time DateStrLen", text),
        "XLAT": ("f4", horizontal, [lat] * 3, {"units": "degree_north", "coordinates": "XLONG XLAT"}),
        "XLONG": ("f4", horizontal, [lon] * 3, {"units": "degree_east", "coordinates": "XLONG XLAT"}),
        "XLAT_U": ("f4", f"{horizontal}_stag", [np.concatenate([lat, lat[:, -1:]], 1)] * 3, {"units": "degree_north"}),
        "XLONG_U": ("f4", f"{horizontal}_stag", [half] * 3, {"units": "degree_east"}),
        "XTIME": (
            "f4",
            "Time",
            minutes,
            {"description": f"minutes since {START:%Y-%m-%d %H:%M:%S}", "units": f"minutes since {START}"},
        ),
        "ZNU": ("f4", "Time bottom_top", [[0.99, 0.96, 0.93, 0.9]] * 3, {"units": ""}),
        "T2": ("f4", horizontal, t2, on_grid("TEMP at 2 M", "K"), deflate),
        "U": (
            "f4",
            "Time bottom_top south_north west_east_stag",
            staggered,
            on_grid("x-wind component", "m s-1", "U"),
            deflate,
        ),
        "RAINC": ("f4", horizontal, 0 * t2 + minutes[:, None, None] / 100, on_grid("CUMULUS RAIN", "mm"), deflate),
        "P_TOP": ("f4", "Time", [5000.0] * 3, {"units": "Pa"}),
    }
    path = folder / f"wrfout_d01_{first:%Y-%m-%d_%H:%M:%S}"
    netcdf4_file(
        path,
        {"Time": None, "DateStrLen": 19, "south_north": 150, "west_east": 200, "bottom_top": 4, "west_east_stag": 201},
        variables,
        TITLE=" OUTPUT FROM WRF V4.5 MODEL",
        START_DATE=f"{first:%Y-%m-%d_%H:%M:%S}",
        SIMULATION_START_DATE=f"{START:%Y-%m-%d_%H:%M:%S}",
        DX=np.float32(11000),
        DY=np.float32(11000),
        MAP_PROJ=np.int32(1),
    )
    return str(path)
