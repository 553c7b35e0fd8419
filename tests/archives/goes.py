"""Scenes of the imager of GOES-16 (ABI L2 CMIP): a scalar time, a packed grid, a gap, and a scene that came twice."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from tests.archives.fields import field
from tests.data.netcdf4 import netcdf4_file

START = datetime(2024, 6, 1, 12)
N = 904
"""Lines and columns: a sixth of those of the full disk."""
EPOCH = datetime(2000, 1, 1, 12)
SCENES = ((0, 0), (1, 0), (2, 0), (2, 1), (4, 0), (5, 0))
"""Number of the scene in steps of ten minutes, and of its version: scene 3 is missing, and scene 2 came twice."""


def goes(folder: Path) -> list[str]:
    """Write six scenes of 904 x 904 pixels."""
    return [_scene(folder, number, version) for number, version in SCENES]


def scenes(folder: Path) -> list[str]:
    """Write the first version of each scene."""
    return [_scene(folder, number, version) for number, version in SCENES if version == 0]


def _scene(folder: Path, number: int, version: int) -> str:
    begin = START + timedelta(minutes=10 * number, seconds=20.5)
    end = begin + timedelta(minutes=9, seconds=37)
    created = end + timedelta(seconds=20 + 900 * version)
    t0, t1 = ((t - EPOCH).total_seconds() for t in (begin, end))
    clouds = np.clip(field(N, N, seed=number + 0.01 * version) + 0.3, 0, 1)
    cmi = np.round(4095 * clouds).astype("i2")
    cmi[0, :80] = -1  # space
    unsigned = {"_Unsigned": "true"}
    seconds = {"units": "seconds since 2000-01-01 12:00:00", "axis": "T"}
    on_grid = {"coordinates": "band_id band_wavelength t y x", "grid_mapping": "goes_imager_projection"}
    packed = {"scale_factor": np.float32(0.00024420026), "add_offset": np.float32(0.0)}
    deflate = {"zlib": True, "chunksizes": (226, 226)}
    variables = {
        "CMI": ("i2", "y x", cmi, {"_FillValue": -1, **unsigned, **packed, **on_grid, "units": "1"}, deflate),
        "DQF": (
            "i1",
            "y x",
            np.where(cmi == -1, -1, (clouds > 0.9).astype("i1")),
            {"_FillValue": -1, **unsigned, **on_grid, "flag_values": np.array([0, 1, 2], "i1")},
            deflate,
        ),
        "t": ("f8", "", (t0 + t1) / 2, {**seconds, "bounds": "time_bounds", "standard_name": "time"}),
        "time_bounds": ("f8", "number_of_time_bounds", [t0, t1]),
        "y": ("i2", "y", np.arange(N), {"scale_factor": np.float32(-3.36e-4), "add_offset": np.float32(0.151844)}),
        "x": ("i2", "x", np.arange(N), {"scale_factor": np.float32(3.36e-4), "add_offset": np.float32(-0.151844)}),
        "y_image": ("f4", "", 0.125, {"units": "rad", "axis": "Y"}),
        "x_image": ("f4", "", -0.0992, {"units": "rad", "axis": "X"}),
        "band_id": ("i1", "band", [13], {"units": "1"}),
        "band_wavelength": ("f4", "band", [10.33], {"units": "um"}),
        "nominal_satellite_subpoint_lon": ("f4", "", -75.2, {"units": "degrees_east", "_FillValue": -999.0}),
        "percent_uncorrectable_L0_errors": ("f4", "", 0.001 * number, {"_FillValue": -999.0, "units": "percent"}),
        "goes_imager_projection": (
            "i4",
            "",
            -2147483647,
            {
                "grid_mapping_name": "geostationary",
                "perspective_point_height": 35786023.0,
                "semi_major_axis": 6378137.0,
                "longitude_of_projection_origin": -75.0,
                "sweep_angle_axis": "x",
            },
        ),
    }
    stamps = [f"{t:%Y%j%H%M%S}{t.microsecond // 100000}" for t in (begin, end, created)]
    path = folder / "OR_ABI-L2-CMIPF-M6C13_G16_s{}_e{}_c{}.nc".format(*stamps)
    netcdf4_file(
        path,
        {"y": N, "x": N, "number_of_time_bounds": 2, "band": 1},
        variables,
        Conventions="CF-1.7",
        platform_ID="G16",
        scene_id="Full Disk",
        dataset_name=path.name,
        date_created=f"{created:%Y-%m-%dT%H:%M:%S.0Z}",
        time_coverage_start=f"{begin:%Y-%m-%dT%H:%M:%S.0Z}",
        time_coverage_end=f"{end:%Y-%m-%dT%H:%M:%S.0Z}",
    )
    return str(path)
