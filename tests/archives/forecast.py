"""A run of a weather model as GRIB 2, one file for each lead time, with several kinds of levels."""

from pathlib import Path

import numpy as np

from tests.data.make_grib import message, write
from virtualstack.sample.fields import air_temperature, texture

STEPS = range(0, 25, 3)
_GRID = {
    "centre": "kwbc",
    "dataDate": 20240601,
    "dataTime": 0,
    "Ni": 24,
    "Nj": 13,
    "iDirectionIncrementInDegrees": 15,
    "jDirectionIncrementInDegrees": 15,
    "latitudeOfFirstGridPointInDegrees": 90,
    "latitudeOfLastGridPointInDegrees": -90,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 345,
}
_LAT, _LON = np.linspace(90, -90, 13)[:, None], np.arange(0.0, 360, 15)


def forecast(folder: Path) -> list[str]:
    """Write the lead times 0 to 24 hours in steps of three: fields at pressure levels, near the ground, and rain."""
    return [str(write(folder / f"gfs.t00z.pgrb2.f{step:03}", _fields(step))) for step in STEPS]


def pressure_levels(folder: Path) -> list[str]:
    """Write the fields at pressure levels alone."""
    return [str(write(folder / f"gfs.t00z.pres.f{step:03}", _at_pressure(step))) for step in STEPS]


def _at_pressure(step: int) -> list[bytes]:
    return [
        _field(step, {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": level}, values)
        for level in (850, 500, 250)
        for name, values in (("t", _temperature(step, level)), ("u", 10 * texture(_LON / 60, _LAT / 60, seed=level)))
    ]


def _fields(step: int) -> list[bytes]:
    near = _temperature(step, 1000)
    found = _at_pressure(step)
    found.append(_field(step, {"shortName": "prmsl", "typeOfLevel": "meanSea", "level": 0}, 1e5 + 100 * (near - 280)))
    found.append(_field(step, {"shortName": "2t", "typeOfLevel": "heightAboveGround", "level": 2}, near))
    for name in ("10u", "10v"):
        keys = {"shortName": name, "typeOfLevel": "heightAboveGround", "level": 10}
        found.append(_field(step, keys, 5 * texture(_LON / 60, _LAT / 60, time=step / 24, seed=ord(name[-1]))))
    if step:
        keys = {
            "productDefinitionTemplateNumber": 8,  # accumulated over an interval
            "shortName": "tp",
            "typeOfLevel": "surface",
            "level": 0,
            "stepRange": f"{(step - 1) // 6 * 6}-{step}",
        }
        found.append(_field(step, keys, np.clip(texture(_LON / 60, _LAT / 60, time=step / 24), 0, 1)))
    return found


def _temperature(step: int, pressure: int) -> np.ndarray:
    return air_temperature(_LAT, _LON, 152 + step / 24, pressure=pressure)


def _field(step: int, keys: dict[str, object], values: np.ndarray) -> bytes:
    when = {} if "stepRange" in keys else {"step": step}
    return message({**_GRID, **keys, **when}, values=values)
