"""Small archives to try virtualstack with: ``vs.sample.hourly("data")`` writes files, and returns their paths.

Each function makes the same files every time, of less than 2 MB, without a network. The fields look like weather.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from virtualstack.sample.grib import analyses, forecasts
    from virtualstack.sample.hdf5 import plain_hdf5
    from virtualstack.sample.installed import nemo, scenarios
    from virtualstack.sample.netcdf import flawed, hourly, model, monthly, stations, steps
    from virtualstack.sample.tiff import scenes

__all__ = [
    "analyses",
    "flawed",
    "forecasts",
    "hourly",
    "model",
    "monthly",
    "nemo",
    "plain_hdf5",
    "scenarios",
    "scenes",
    "stations",
    "steps",
]

_MODULES = {
    "analyses": "grib",
    "flawed": "netcdf",
    "forecasts": "grib",
    "hourly": "netcdf",
    "model": "netcdf",
    "monthly": "netcdf",
    "nemo": "installed",
    "plain_hdf5": "hdf5",
    "scenarios": "installed",
    "scenes": "tiff",
    "stations": "netcdf",
    "steps": "netcdf",
}
"""The module of each function: it is imported when the function is first used."""

INSTALLED = tuple(name for name, module in _MODULES.items() if module == "installed")
"""Samples of real data, whose files are part of an installed package."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'; the samples are {__all__}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
