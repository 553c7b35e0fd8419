"""Forecasts as GRIB files, written with eccodes."""

from __future__ import annotations

import functools
import gzip
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.sample.fields import air_temperature, texture
from virtualstack.sample.hdf5 import make_folder

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
    import_eccodes()  # raises an error before a folder is made
    where, paths = make_folder(folder), []
    with _opened() as template:
        for run in range(4):
            start = datetime(2024, 6, 1) + timedelta(hours=12 * run)
            path = where / f"run_{start:%Y%m%d%H}.grib2"
            keys = itertools.product((0, 6, 12, 18), range(3), (850, 500))
            path.write_bytes(b"".join(_message(template, start, *key) for key in keys))
            paths.append(str(path))
    return paths


def analyses(folder: str | os.PathLike[str], /) -> list[str]:
    """Write GRIB2 files that hold more than one kind of fields, and a compressed one.

    ``analysis.grib2`` has the temperature at 850 and 500 hPa and at the surface. ``versions.grib2`` has the same field
    twice, from two experiments (``expver``). ``rain.grib2.gz`` has one field, and is compressed as a whole.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the three files, sorted.

    Raises
    ------
    MissingDependencyError
        The package eccodes is not installed; the extra ``grib`` has it.

    Examples
    --------
    >>> import virtualstack as vs
    >>> vs.sample.analyses("analyses")
    ['analyses/analysis.grib2', 'analyses/rain.grib2.gz', 'analyses/versions.grib2']
    >>> tree = vs.open_virtual_datatree("analyses/analysis.grib2")
    >>> [path for path in tree.groups if tree[path].data_vars]
    ['/isobaricInhPa/instant', '/surface/instant']
    """
    import_eccodes()  # raises an error before a folder is made
    where = make_folder(folder)
    lat, lon = np.linspace(90, -90, 37)[:, None], np.arange(0.0, 360, 5)
    rain = 5 * np.clip(texture(lon / 90, lat / 60, seed=12), 0, None)
    analysis = {"dataDate": 20240601, "productDefinitionTemplateNumber": 0}
    surface = {**analysis, "typeOfLevel": "surface", "level": 0}
    with _opened() as template:
        fields = [_field(template, _air_temperature(152, n, 0), {**analysis, "level": n}) for n in (850, 500)]
        fields.append(_field(template, _air_temperature(152, 1000, 0), surface))
        versions = [
            _field(template, _air_temperature(152, 850, n), {**surface, "setLocalDefinition": 1, "expver": f"000{n}"})
            for n in (1, 5)
        ]
        one = _field(template, rain, {**surface, "shortName": "tp"})
    for name, data in (
        ("analysis.grib2", b"".join(fields)),
        ("rain.grib2.gz", gzip.compress(one, mtime=0)),
        ("versions.grib2", b"".join(versions)),
    ):
        (where / name).write_bytes(data)
    return [str(where / name) for name in ("analysis.grib2", "rain.grib2.gz", "versions.grib2")]


def _message(template: int, start: datetime, step: int, member: int, level: int) -> bytes:
    keys = {
        "dataDate": int(f"{start:%Y%m%d}"),
        "dataTime": int(f"{start:%H%M}"),
        "step": step,
        "perturbationNumber": member,
        "level": level,
    }
    return _field(template, _temperature(start, step, member, level), keys)


def _field(template: int, values: NDArray[np.floating], keys: Mapping[str, Any]) -> bytes:
    eccodes = import_eccodes()
    with _opened(template) as message:
        for key, value in keys.items():
            eccodes.codes_set(message, key, value)
        eccodes.codes_set_values(message, values.astype("f8").reshape(-1))
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
