"""Forecasts as GRIB files, written with eccodes."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.errors import MissingDependencyError
from virtualstack.sample.fields import air_temperature
from virtualstack.sample.hdf5 import make_folder

__all__ = ["forecasts"]

_KEYS = {
    "centre": "ecmf",
    "shortName": "t",
    "bitsPerValue": 12,
    "productDefinitionTemplateNumber": 1,  # a member of an ensemble
    "typeOfEnsembleForecast": 3,
    "numberOfForecastsInEnsemble": 3,
    "Ni": 72,
    "Nj": 37,
    "numberOfDataPoints": 72 * 37,
    "latitudeOfFirstGridPointInDegrees": 90,
    "latitudeOfLastGridPointInDegrees": -90,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 355,
    "iDirectionIncrementInDegrees": 5,
    "jDirectionIncrementInDegrees": 5,
}


def forecasts(folder: str | os.PathLike[str], /) -> list[str]:
    """Write four runs of an ensemble forecast, one GRIB2 file for each run.

    Each file has the temperature at 850 and 500 hPa for the steps 0, 6, 12 and 18 hours and for three members, on a
    global grid of 5 degrees. A run begins every twelve hours, so most times are forecast by two runs.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the four files, sorted.

    Raises
    ------
    MissingDependencyError
        The package eccodes is not installed; the extra ``grib`` has it.

    Examples
    --------
    >>> import virtualstack as vs
    >>> files = vs.sample.forecasts("forecasts")
    >>> files[:2]
    ['forecasts/run_2024060100.grib2', 'forecasts/run_2024060112.grib2']
    >>> dict(vs.open_virtual_mfdataset(files).sizes)
    {'number': 3, 'time': 4, 'step': 4, 'isobaricInhPa': 2, 'latitude': 37, 'longitude': 72}
    """
    try:
        import_eccodes()
    except ImportError as error:
        raise MissingDependencyError("writing GRIB", extra="grib") from error
    where, paths = make_folder(folder), []
    with _opened() as template:
        for run in range(4):
            start = datetime(2024, 6, 1) + timedelta(hours=12 * run)
            path = where / f"run_{start:%Y%m%d%H}.grib2"
            keys = itertools.product((0, 6, 12, 18), range(3), (850, 500))
            path.write_bytes(b"".join(_message(template, start, *key) for key in keys))
            paths.append(str(path))
    return paths


def _message(template: int, start: datetime, step: int, member: int, level: int) -> bytes:
    eccodes = import_eccodes()
    keys = {
        "dataDate": int(f"{start:%Y%m%d}"),
        "dataTime": int(f"{start:%H%M}"),
        "step": step,
        "perturbationNumber": member,
        "level": level,
    }
    with _opened(template) as message:
        for key, value in keys.items():
            eccodes.codes_set(message, key, value)
        eccodes.codes_set_values(message, _temperature(start, step, member, level).astype("f8").reshape(-1))
        return bytes(eccodes.codes_get_message(message))


@contextmanager
def _opened(template: int | None = None) -> Iterator[int]:
    """Open a copy of a message, or a message with the keys that all fields share."""
    eccodes = import_eccodes()
    if template is None:
        message = eccodes.codes_new_from_samples("regular_ll_pl_grib2", eccodes.CODES_PRODUCT_GRIB)
    else:
        message = eccodes.codes_clone(template)
    try:
        for key, value in _KEYS.items() if template is None else ():
            eccodes.codes_set(message, key, value)
        yield message
    finally:
        eccodes.codes_release(message)


def _temperature(start: datetime, step: int, member: int, level: int) -> NDArray[np.floating]:
    """Return what a member forecasts: the weather, and an error that grows with the step."""
    days = (start - datetime(2024, 1, 1)).total_seconds() / 86400 + step / 24
    truth = _air_temperature(days, level, 0)
    other = _air_temperature(days, level, 10 + member) if member else truth
    return truth + (0.02 + 0.02 * step) * (other - truth)


@functools.cache
def _air_temperature(days: float, level: int, seed: int) -> NDArray[np.floating]:
    lat, lon = np.linspace(90, -90, 37)[:, None], np.arange(0.0, 360, 5)
    return air_temperature(lat, lon, days, pressure=level, seed=seed)
