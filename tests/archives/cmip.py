"""Historical runs of CMIP6: two models, two members each, two periods; one of the models has years of 360 days."""

from collections.abc import Iterable
from itertools import product
from pathlib import Path

import numpy as np

from tests.archives.fields import field
from tests.data.netcdf4 import netcdf4_file

MODELS = {"CESM2": ("noleap", "gn"), "UKESM1-0-LL": ("360_day", "gn")}
MEMBERS = ("r1i1p1f2", "r2i1p1f2")
PERIODS = (1850, 1851)
_MONTHS = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365])


def cmip(folder: Path, models: Iterable[str] = MODELS, members: Iterable[str] = MEMBERS) -> list[str]:
    """Write files of twelve months: bounds, scalar ``height``, member and model in attributes and in names."""
    return [_file(folder, *which) for which in product(models, members, PERIODS)]


def members(folder: Path) -> list[str]:
    """Write the files of the model whose years have 360 days: two members."""
    return cmip(folder, models=["UKESM1-0-LL"])


def models(folder: Path) -> list[str]:
    """Write the files of one member of each model; the models have the same grid, and different calendars."""
    return cmip(folder, members=MEMBERS[:1])


def _file(folder: Path, model: str, member: str, year: int) -> str:
    calendar, grid = MODELS[model]
    edges = (np.arange(13) * 30 if calendar == "360_day" else _MONTHS) + (year - 1850) * (
        360 if calendar == "360_day" else 365
    )
    lat, lon = np.arange(-89.375, 90, 1.25), np.arange(0.9375, 360, 1.875)
    time = (edges[:-1] + edges[1:]) / 2
    seed = 10 * list(MODELS).index(model) + MEMBERS.index(member)
    tas = 280 + 20 * field(12, len(lat), len(lon), seed=seed + year / 10)
    units = {"units": "days since 1850-01-01", "calendar": calendar}
    variables = {
        "time": ("f8", "time", time, {**units, "bounds": "time_bnds", "standard_name": "time", "axis": "T"}),
        "time_bnds": ("f8", "time bnds", np.stack([edges[:-1], edges[1:]], 1)),
        "lat": ("f8", "lat", lat, {"bounds": "lat_bnds", "units": "degrees_north", "axis": "Y"}),
        "lat_bnds": ("f8", "lat bnds", np.stack([lat - 0.625, lat + 0.625], 1)),
        "lon": ("f8", "lon", lon, {"bounds": "lon_bnds", "units": "degrees_east", "axis": "X"}),
        "lon_bnds": ("f8", "lon bnds", np.stack([lon - 0.9375, lon + 0.9375], 1)),
        "height": ("f8", "", 2.0, {"units": "m", "axis": "Z", "positive": "up", "standard_name": "height"}),
        "tas": (
            "f4",
            "time lat lon",
            tas,
            {
                "standard_name": "air_temperature",
                "units": "K",
                "cell_methods": "area: time: mean",
                "coordinates": "height",
                "_FillValue": 1e20,
                "missing_value": np.float32(1e20),
            },
            {"zlib": True, "shuffle": True, "chunksizes": (1, len(lat), len(lon))},
        ),
    }
    path = folder / f"tas_Amon_{model}_historical_{member}_{grid}_{year}01-{year}12.nc"
    realization = int(member[1])
    netcdf4_file(
        path,
        {"time": None, "lat": len(lat), "lon": len(lon), "bnds": 2},
        variables,
        Conventions="CF-1.7 CMIP-6.2",
        source_id=model,
        variant_label=member,
        realization_index=np.int32(realization),
        experiment_id="historical",
        table_id="Amon",
        grid_label=grid,
        parent_variant_label="r1i1p1f2",
        tracking_id=f"hdl:21.14100/{model.lower()}-{member}-{year}",
        creation_date=f"2019-0{realization}-1{year - 1850}T12:00:00Z",
    )
    return str(path)
