"""Tiles of the ocean model NEMO as XIOS writes them: one file for each process, on a grid whose coordinates are 2-D."""

from itertools import pairwise, product
from pathlib import Path

import numpy as np

from tests.archives.fields import field
from tests.data.netcdf4 import netcdf4_file

ROWS, COLUMNS = (0, 160, 300), (0, 150, 300, 420)


def nemo(folder: Path) -> list[str]:
    """Write six tiles of a grid of 300 x 420 points: two rows of three, of different sizes."""
    places = list(product(pairwise(ROWS), pairwise(COLUMNS)))
    return [_tile(folder, number, *place) for number, place in enumerate(places)]


def _tile(folder: Path, number: int, rows: tuple[int, int], columns: tuple[int, int]) -> str:
    j, i = np.mgrid[slice(*rows), slice(*columns)]
    lat, lon = (30 + 0.1 * j + 0.002 * i).astype("f4"), (-20 + 0.1 * i - 0.005 * j).astype("f4")
    sizes = {"axis_nbounds": 2, "x": i.shape[1], "y": i.shape[0], "deptht": 8, "time_counter": None}
    days = np.array([0.5, 1.5]) * 86400
    depth = np.arange(0.5, 9, 1.1, "f4")
    sst = 18 + 4 * field(2, *i.shape, seed=number)
    deep = (sst[:, None] - depth[:, None, None]).astype("f4")
    sst[:, (lat > 50) & (lon < -16)] = 1e20  # land
    seconds = {"units": "seconds since 2024-01-01 00:00:00", "calendar": "gregorian"}
    on_grid = {"coordinates": "time_centered nav_lat nav_lon", "_FillValue": 1e20, "online_operation": "average"}
    packed = {"zlib": True, "chunksizes": (1, *i.shape)}
    variables = {
        "nav_lat": ("f4", "y x", lat, {"standard_name": "latitude", "units": "degrees_north"}),
        "nav_lon": ("f4", "y x", lon, {"standard_name": "longitude", "units": "degrees_east"}),
        "deptht": ("f4", "deptht", depth, {"units": "m", "positive": "down", "bounds": "deptht_bounds"}),
        "deptht_bounds": ("f4", "deptht axis_nbounds", np.stack([depth - 0.5, depth + 0.6], 1)),
        "time_centered": ("f8", "time_counter", days, {**seconds, "bounds": "time_centered_bounds"}),
        "time_centered_bounds": ("f8", "time_counter axis_nbounds", np.stack([days - 43200, days + 43200], 1)),
        "time_counter": ("f8", "time_counter", days, {**seconds, "axis": "T", "standard_name": "time"}),
        "sosstsst": ("f4", "time_counter y x", sst, {**on_grid, "units": "degC"}, packed),
        "votemper": (
            "f4",
            "time_counter deptht y x",
            deep,
            {**on_grid, "units": "degC"},
            {"zlib": True, "chunksizes": (1, 8, *i.shape)},
        ),
    }
    path = folder / f"ORCA2_1d_20240101_20240102_grid_T_{number:04}.nc"

    def pair(x: int, y: int) -> np.ndarray:
        return np.array([x, y], "i4")

    netcdf4_file(
        path,
        sizes,
        variables,
        name=path.stem,
        Conventions="CF-1.6",
        timeStamp=f"2024-Jan-03 10:00:0{number} GMT",
        ibegin=np.int32(columns[0]),
        ni=np.int32(i.shape[1]),
        jbegin=np.int32(rows[0]),
        nj=np.int32(i.shape[0]),
        DOMAIN_number_total=np.int32(6),
        DOMAIN_number=np.int32(number),
        DOMAIN_dimensions_ids=pair(2, 3),  # of x and y, counted from 1 in the order of the file
        DOMAIN_size_global=pair(COLUMNS[-1], ROWS[-1]),
        DOMAIN_size_local=pair(i.shape[1], i.shape[0]),
        DOMAIN_position_first=pair(columns[0] + 1, rows[0] + 1),
        DOMAIN_position_last=pair(columns[1], rows[1]),
        DOMAIN_halo_size_start=pair(0, 0),
        DOMAIN_halo_size_end=pair(0, 0),
        DOMAIN_type="box",
    )
    return str(path)
