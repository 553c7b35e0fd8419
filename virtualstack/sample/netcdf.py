"""Archives of netCDF-4 files: hours of a satellite, packed months, runs of models, and stations."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.sample.fields import air_temperature, texture, zonal_wind
from virtualstack.sample.hdf5 import Variable, make_folder, write_netcdf

_DEFLATE = {"compression": 4, "shuffle": True}


def hourly(folder: str | os.PathLike[str], /) -> list[str]:
    """Write two days of satellite images, one netCDF-4 file for each hour, with gaps and with hours that came twice.

    The files are as those of a weather satellite: the brightness temperature ``tb`` with dimensions ``(time, y, x)``,
    packed as 16-bit integers. The hours 9 to 11 of the first day are missing, and hour 7 of the second day. Two hours
    were published a second time (``..._v2.nc``), with values that were corrected. The files of the second day are
    compressed with another filter.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the 46 files, sorted.

    Examples
    --------
    >>> import virtualstack as vs
    >>> files = vs.sample.hourly("satellite")
    >>> len(files), files[0]
    (46, 'satellite/tb_2024-06-01T00.nc')
    >>> found = vs.survey(files)
    >>> len(found.gaps), len(found.duplicates)
    (2, 2)
    """
    where, paths = make_folder(folder), []
    y, x = np.linspace(45, 30, 120, dtype="f4"), np.linspace(-20, 5, 200, dtype="f4")
    across, along = np.meshgrid(x / 25, y / 25)
    start = datetime(2024, 6, 1)
    missing, corrected = (9, 10, 11, 31), (5, 30)
    images = [(hour, 1) for hour in range(48) if hour not in missing] + [(hour, 2) for hour in corrected]
    for hour, version in images:
        cloud = np.clip(texture(across - 0.03 * hour, along, time=0.06 * hour, seed=2) + 0.25, 0, 1)
        ground = 296 + 7 * np.cos(2 * np.pi * (hour - 14) / 24) - 8 * along
        error = 2.5 if hour in corrected and version == 1 else 0.0
        tb = ground - 75 * cloud**1.5 - error
        when = start + timedelta(hours=hour)
        name = f"tb_{when:%Y-%m-%dT%H}{'_v2' if version == 2 else ''}.nc"
        variables = {
            "time": _time(np.array([float(hour)]), "hours since 2024-06-01 00:00:00"),
            **_places(y=y, x=x),
            "tb": Variable(
                dims=("time", "y", "x"),
                values=np.round((tb[None] - 200) / 0.1).astype("i2"),
                attributes={
                    "long_name": "brightness temperature at 10.3 um",
                    "standard_name": "toa_brightness_temperature",
                    "units": "K",
                    "scale_factor": 0.1,
                    "add_offset": 200.0,
                },
                fill=-32768,
                storage={"chunks": (1, 120, 200), "compression": 4, "shuffle": hour < 24},
            ),
        }
        paths.append(_write(where / name, "Infrared images of a satellite", variables, version=np.int32(version)))
    return sorted(paths)


def monthly(folder: str | os.PathLike[str], /) -> list[str]:
    """Write the year 2023 as twelve netCDF-4 files of one month each, as downloads of the ERA5 reanalysis were.

    Each file has the temperature ``t2m`` of each day with dimensions ``(time, latitude, longitude)``, packed as 16-bit
    integers. Each file has a ``scale_factor`` and ``add_offset`` of its own, and no unlimited dimension.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the twelve files, sorted.

    Examples
    --------
    >>> import virtualstack as vs
    >>> files = vs.sample.monthly("era5")
    >>> len(files), files[0]
    (12, 'era5/t2m_2023-01.nc')
    >>> year = vs.open_virtual_mfdataset(files, unpack="differing")
    >>> dict(year.sizes)
    {'time': 365, 'latitude': 25, 'longitude': 49}
    """
    where, paths = make_folder(folder), []
    latitude, longitude = np.linspace(72, 24, 25, dtype="f4"), np.linspace(-24, 72, 49, dtype="f4")
    for month in range(1, 13):
        first, after = datetime(2023, month, 1), datetime(2023 + month // 12, month % 12 + 1, 1)
        day = (first - datetime(2023, 1, 1)).days + np.arange((after - first).days)
        t2m = air_temperature(latitude[:, None], longitude, day[:, None, None] + 0.5)
        offset, scale = (t2m.max() + t2m.min()) / 2, (t2m.max() - t2m.min()) / 65000
        hours = (first - datetime(1900, 1, 1)).days * 24 + 12 + 24 * np.arange(len(day), dtype="i4")
        variables = {
            "longitude": _coordinate("longitude", longitude, "longitude", "degrees_east", "X"),
            "latitude": _coordinate("latitude", latitude, "latitude", "degrees_north", "Y"),
            "time": _time(hours.astype("i4"), "hours since 1900-01-01 00:00:00.0"),
            "t2m": Variable(
                dims=("time", "latitude", "longitude"),
                values=np.round((t2m - offset) / scale).astype("i2"),
                attributes={
                    "scale_factor": scale,
                    "add_offset": offset,
                    "units": "K",
                    "long_name": "2 metre temperature",
                    "standard_name": "air_temperature",
                },
                fill=-32767,
                storage={"chunks": (7, 25, 49), **_DEFLATE},
            ),
        }
        attributes = {"Conventions": "CF-1.6", "title": "Daily temperature, packed month by month"}
        paths.append(write_netcdf(where / f"t2m_{first:%Y-%m}.nc", variables, attributes))
    return paths


def model(folder: str | os.PathLike[str], /) -> list[str]:
    """Write three days of a global model, one netCDF-4 file for each day.

    Each file has the temperature ``ta`` and the wind ``ua`` with dimensions ``(time, level, lat, lon)`` every six
    hours, and the temperature near the surface ``tas`` with dimensions ``(time, lat, lon)``. The files are alike: they
    can be joined, and written to any target.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the three files, sorted.

    Examples
    --------
    >>> import virtualstack as vs
    >>> vs.sample.model("run")
    ['run/day_2024-06-01.nc', 'run/day_2024-06-02.nc', 'run/day_2024-06-03.nc']
    >>> cube = vs.open_virtual_mfdataset("run/*.nc")
    >>> dict(cube.sizes)
    {'time': 12, 'level': 5, 'lat': 30, 'lon': 60}
    """
    where, paths = make_folder(folder), []
    lat, lon = np.arange(-87.0, 90, 6), np.arange(0.0, 360, 6)
    level, dims = np.array([1000.0, 850, 700, 500, 250]), ("time", "level", "lat", "lon")
    north, east, pressure = lat[:, None], lon, level[:, None, None]
    for day in range(3):
        hours = 24.0 * day + np.arange(0, 24, 6)
        days = 152 + hours / 24
        at = days[:, None, None, None]
        variables = {
            "time": _time(hours, "hours since 2024-06-01 00:00:00"),
            "level": _coordinate("level", level, "air_pressure", "hPa", "Z", positive="down"),
            **_places(lat=lat, lon=lon),
            "ta": _field(air_temperature(north, east, at, pressure=pressure), "air_temperature", "K", dims=dims),
            "ua": _field(zonal_wind(north, east, at, pressure=pressure), "eastward_wind", "m s-1", dims=dims),
            "tas": _field(air_temperature(north, east, days[:, None, None]), "air_temperature", "K"),
        }
        path = where / f"day_{datetime(2024, 6, 1 + day):%Y-%m-%d}.nc"
        paths.append(_write(path, "A run of a global model", variables, institution="virtualstack"))
    return paths


def steps(folder: str | os.PathLike[str], /) -> list[str]:
    """Write two runs of a forecast as they arrive, one netCDF-4 file for each step.

    Each file has the temperature ``tas`` with dimensions ``(time, step, lat, lon)`` for one run and one step of 0, 6
    or 12 hours. The last step of the second run has not arrived yet.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the five files, sorted.

    Examples
    --------
    >>> import virtualstack as vs
    >>> files = vs.sample.steps("forecast")
    >>> files[:2]
    ['forecast/run_2024-06-01_step_00.nc', 'forecast/run_2024-06-01_step_06.nc']
    >>> dict(vs.open_virtual_mfdataset(files, join="outer").sizes)
    {'time': 2, 'step': 3, 'lat': 30, 'lon': 60}
    """
    where, paths = make_folder(folder), []
    lat, lon = np.arange(-87.0, 90, 6), np.arange(0.0, 360, 6)
    for day, step in ((0, 0), (0, 6), (0, 12), (1, 0), (1, 6)):
        tas = air_temperature(lat[:, None], lon, 152 + day + step / 24) + 0.05 * step
        variables = {
            "time": _time(np.array([24.0 * day]), "hours since 2024-06-01 00:00:00"),
            "step": Variable(
                dims=("step",), values=np.array([step]), attributes={"long_name": "hours since the run began"}
            ),
            **_places(lat=lat, lon=lon),
            "tas": _field(tas[None, None], "air_temperature", "K", dims=("time", "step", "lat", "lon")),
        }
        name = f"run_{datetime(2024, 6, 1 + day):%Y-%m-%d}_step_{step:02d}.nc"
        paths.append(_write(where / name, "A step of a forecast", variables))
    return paths


def stations(folder: str | os.PathLike[str], /) -> list[str]:
    """Write the rain of four days at four stations as one netCDF-4 file; two days were never written.

    The file has ``rain`` with dimensions ``(time, station)``, and ``name`` with the names of the stations as strings
    of any length. A chunk of ``rain`` holds one day. The chunks of the second and of the last day do not exist.

    Parameters
    ----------
    folder
        Where to write the file. The folder is created; a file of the same name is replaced.

    Returns
    -------
    list[str]
        The path of the file.

    Examples
    --------
    >>> import virtualstack as vs
    >>> (file,) = vs.sample.stations("data")
    >>> vs.open_virtual_dataset(file).virtual.open()["rain"].values
    array([[ 1.5,  0. ,  4. ,  2.5],
           [ nan,  nan,  nan,  nan],
           [ 3. , 12.5,  0.5,  8. ],
           [ nan,  nan,  nan,  nan]], dtype=float32)
    """
    rain = np.ma.masked_equal([[1.5, 0, 4, 2.5], 4 * [-1], [3, 12.5, 0.5, 8], 4 * [-1]], -1).astype("f4")
    variables = {
        "time": _time(np.arange(4.0), "days since 2024-06-01"),
        "rain": Variable(
            dims=("time", "station"),
            values=rain,
            attributes={"standard_name": "precipitation_amount", "long_name": "rain of the day", "units": "kg m-2"},
            fill=-1,
            storage={"chunks": (1, 4)},
        ),
        "name": Variable(
            dims=("station",),
            values=np.array(["Bern", "Davos", "Genève", "Sion"]),
            attributes={"long_name": "name of the station"},
        ),
    }
    return [_write(make_folder(folder) / "stations.nc", "Rain at stations", variables)]


def flawed(folder: str | os.PathLike[str], /) -> list[str]:
    """Write two days of rain as netCDF-4 files whose attributes are wrong.

    The rain is stored in tenths of a millimetre, with -9999 over the sea; no ``scale_factor`` and no ``_FillValue``
    say so. The times are hours, and the units say that they are days.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the two files, sorted.

    Examples
    --------
    >>> import virtualstack as vs
    >>> vs.sample.flawed("data")
    ['data/rain_2024-06-01.nc', 'data/rain_2024-06-02.nc']
    >>> vs.open_virtual_dataset("data/rain_2024-06-02.nc")["time"].values
    array(['2024-06-25T00:00:00.000000000'], dtype='datetime64[ns]')
    """
    where, paths = make_folder(folder), []
    lat, lon = np.arange(48.0, 36, -0.5), np.arange(-10.0, 10, 0.5)
    x, y = np.meshgrid(lon / 10, lat / 10)
    for day in range(2):
        rain = np.round(120 * np.clip(texture(x - 0.4 * day, y, time=0.5 * day, seed=9), 0, 1))
        rain[texture(x / 2, y / 2, seed=11) > 0.5] = -9999
        variables = {
            "time": _time(np.array([24 * day]), "days since 2024-06-01"),
            **_places(lat=lat, lon=lon),
            "rain": Variable(
                dims=("time", "lat", "lon"),
                values=rain[None].astype("i2"),
                attributes={"standard_name": "lwe_thickness_of_precipitation_amount", "units": "mm"},
                storage={"chunks": (1, *rain.shape), **_DEFLATE},
            ),
        }
        name = f"rain_{datetime(2024, 6, 1 + day):%Y-%m-%d}.nc"
        paths.append(_write(where / name, "Rain with wrong attributes", variables))
    return paths


def _field(
    values: NDArray[np.floating], standard_name: str, units: str, *, dims: tuple[str, ...] = ("time", "lat", "lon")
) -> Variable:
    """Return a variable with one chunk for each time; numbers are rounded, so that they compress."""
    return Variable(
        dims=dims,
        values=(np.round(values * 64) / 64).astype("f4"),
        attributes={"standard_name": standard_name, "long_name": standard_name.replace("_", " "), "units": units},
        fill=1e20,
        storage={"chunks": (1, *values.shape[1:]), **_DEFLATE},
    )


def _time(values: NDArray[Any], units: str) -> Variable:
    attributes = {"standard_name": "time", "axis": "T", "units": units, "calendar": "standard"}
    return Variable(dims=("time",), values=values, attributes=attributes)


def _places(**values: NDArray[Any]) -> dict[str, Variable]:
    """Return latitude and longitude, by the names of their dimensions."""
    kinds = ("latitude", "degrees_north", "Y"), ("longitude", "degrees_east", "X")
    return {name: _coordinate(name, values[name], *kind) for name, kind in zip(values, kinds, strict=True)}


def _write(path: Path, title: str, variables: dict[str, Variable], **more: Any) -> str:
    attributes = {"Conventions": "CF-1.8", "title": title, **more}
    return write_netcdf(path, variables, attributes, unlimited="time")


def _coordinate(name: str, values: NDArray[Any], standard_name: str, units: str, axis: str, **more: str) -> Variable:
    attributes = {"standard_name": standard_name, "units": units, "axis": axis, **more}
    return Variable(dims=(name,), values=values, attributes=attributes)
