"""The archives of this folder by name, each made once for a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.archives.cmip import cmip, members, models
from tests.archives.cog import cog
from tests.archives.era5 import era5
from tests.archives.forecast import forecast, pressure_levels
from tests.archives.goes import goes, scenes
from tests.archives.hdfeos import hdfeos
from tests.archives.mixed import mixed
from tests.archives.nemo import nemo
from tests.archives.trajectories import trajectories
from tests.archives.wrf import wrf

MAKERS: dict[str, Callable[[Path], list[str]]] = {
    "era5": era5,
    "cmip": cmip,
    "cmip-members": members,
    "cmip-models": models,
    "goes": goes,
    "goes-scenes": scenes,
    "wrf": wrf,
    "nemo": nemo,
    "hdfeos": hdfeos,
    "forecast": forecast,
    "forecast-pressure": pressure_levels,
    "cog": cog,
    "mixed": mixed,
    "trajectories": trajectories,
}

MADE: dict[Path, list[str]] = {}


def make(name: str, root: Path, /) -> list[str]:
    """Write an archive into a folder of its name, unless it is there, and return its paths in their order."""
    folder = root / name
    if not folder.exists():
        folder.mkdir(parents=True)
        MADE[folder] = MAKERS[name](folder)
    return list(MADE[folder])
