"""A run of a weather model as GRIB 2, one file for each lead time, with several kinds of levels."""

from pathlib import Path

import numpy as np

from tests.archives.fields import field
from tests.data.make_grib import message, write

STEPS = range(0, 25, 3)
_GRID = {
    "centre": "kwbc",
    "dataDate": 20240601,
    "dataTime": 0,
    "Ni": 240,
    "Nj": 121,
    "iDirectionIncrementInDegrees": 1.5,
    "jDirectionIncrementInDegrees": 1.5,
    "latitudeOfFirstGridPointInDegrees": 90,
    "latitudeOfLastGridPointInDegrees": -90,
    "longitudeOfFirstGridPointInDegrees": 0,
    "longitudeOfLastGridPointInDegrees": 358.5,
}
_SHAPE = (_GRID["Nj"], _GRID["Ni"])


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
        for name, values in (("t", _temperature(step, level)), ("u", 10 * field(*_SHAPE, seed=level + step)))
    ]


def _fields(step: int) -> list[bytes]:
    near = _temperature(step, 1000)
    found = _at_pressure(step)
    found.append(_field(step, {"shortName": "prmsl", "typeOfLevel": "meanSea", "level": 0}, 1e5 + 100 * (near - 280)))
    found.append(_field(step, {"shortName": "2t", "typeOfLevel": "heightAboveGround", "level": 2}, near))
    for name in ("10u", "10v"):
        keys = {"shortName": name, "typeOfLevel": "heightAboveGround", "level": 10}
        found.append(_field(step, keys, 5 * field(*_SHAPE, seed=step + ord(name[-1]))))
    if step:
        keys = {
            "productDefinitionTemplateNumber": 8,  # accumulated over an interval
            "shortName": "tp",
            "typeOfLevel": "surface",
            "level": 0,
            "stepRange": f"{(step - 1) // 6 * 6}-{step}",
        }
        found.append(_field(step, keys, np.clip(field(*_SHAPE, seed=step), 0, 1)))
    return found


def _temperature(step: int, pressure: int) -> np.ndarray:
    return 230 + pressure / 20 + 10 * field(*_SHAPE, seed=step + pressure / 100)


def _field(step: int, keys: dict[str, object], values: np.ndarray) -> bytes:
    when = {} if "stepRange" in keys else {"step": step}
    return message({**_GRID, **keys, **when}, values=values)
