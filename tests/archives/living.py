"""Archives that live: files come night by night, and go wrong as files do; what a loop of xarray over them gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr

from tests.data.make_grib import message, write
from tests.data.netcdf4 import netcdf4_file

_DAY = 86400
_SENTINEL = 9.969209968386869e36
_GRID = 12

CYCLE = 30
"""Nights after which the faults come again."""


@dataclass
class Archive:
    """A folder of files, the recipe of a store of them, and what a plain loop reads from them."""

    folder: Path
    recipe: str
    dim: str
    _night: Callable[[Archive, int], None]
    _read: Callable[[str], xr.Dataset]
    _unfit: Callable[[int], Mapping[int, set[str]]] = lambda cycle: {}
    """Names of the files of a cycle that do not fit, from a night of it on until another night says otherwise."""
    whole: bytes = b""
    """A file as it was before it was cut off."""

    def night(self, number: int) -> None:
        """Let a night pass: files come, change and go."""
        self._night(self, number)

    def expected_unfit(self, number: int) -> set[str]:
        """Return the names of the files that do not fit after a night."""
        found = set[str]()
        for cycle in range(number // CYCLE + 1):
            unfit = self._unfit(cycle)
            found |= unfit[max(n for n in unfit if n <= number - CYCLE * cycle)]
        return found

    def truth(self, number: int) -> xr.Dataset:
        """Return what a loop over the files gives: of files with the same labels, the newest counts."""
        paths = sorted((x for x in self.folder.iterdir()), key=lambda x: (x.stat().st_mtime_ns, x.name))
        unfit = self.expected_unfit(number)
        by_label: dict[tuple[object, ...], xr.Dataset] = {}
        for path in paths:
            if path.name not in unfit:
                for part in _elements(self._opened(path), self.dims):
                    by_label[tuple(part[dim].values.item() for dim in self.dims)] = part
        parts = [by_label[key] for key in sorted(by_label)]
        if len(self.dims) == 1:
            return xr.combine_by_coords(parts, combine_attrs="override")
        return xr.merge(parts, join="outer", compat="no_conflicts", combine_attrs="override")

    @property
    def dims(self) -> tuple[str, ...]:
        """Dimensions whose labels tell the files apart."""
        return tuple(self.dim.split())

    def _opened(self, path: Path) -> xr.Dataset:
        status = path.stat()
        return _loaded(self._read, str(path), status.st_mtime_ns, status.st_size)


@cache
def _loaded(read: Callable[[str], xr.Dataset], path: str, _: int, __: int) -> xr.Dataset:
    return read(path)


def _read_netcdf(path: str) -> xr.Dataset:
    with xr.open_dataset(path, engine="h5netcdf") as found:
        return found.load()


def _elements(dataset: xr.Dataset, dims: Iterable[str]) -> list[xr.Dataset]:
    found = [dataset]
    for dim in dims:
        found = [x.expand_dims(dim) if dim not in x.dims else x for x in found]
        found = [x.isel({dim: slice(i, i + 1)}) for x in found for i in range(x.sizes[dim])]
    return found


def written(path: Path, when: float) -> None:
    """Say when a file was written, which the clock of a fast test does not tell."""
    os.utime(path, (when, when))


def truncated(path: Path, when: float) -> bytes:
    """Leave half of a file, as an upload that is under way does, and return the whole one."""
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    written(path, when)
    return whole


# -- scenes of a satellite ------------------------------------------------------------------------------------


def scenes(folder: Path) -> Archive:
    """Three scenes a night with a scalar time; packing changes in mid-archive.

    Faults of each cycle: late (night 3), reprocessed under a new name (5) and in place (7), half-uploaded (9, whole in
    10), vanished (12), a sentinel for the time (14), a new packing (from 16 on), a file of another grid (20), a file of
    the store that is cut off (22, whole again in 23).
    """
    folder.mkdir()
    recipe = f"""
files = ["{folder}/*.nc"]
dim = "t"
unpack = true
prefer = "newest"
valid.t = ["2020-01-01", "2030-01-01"]
"""

    def unfit(cycle: int) -> Mapping[int, set[str]]:
        first, sentinel, grid = 3 * CYCLE * cycle, _name(900 + 2 * cycle), _name(901 + 2 * cycle)
        return {
            0: set(),
            9: {_name(first + 27)},
            10: set(),
            14: {sentinel},
            20: {sentinel, grid},
            22: {sentinel, grid, _name(first + 60)},
            23: {sentinel, grid},
        }

    return Archive(folder, recipe, "t", _scenes_of_a_night, _read_netcdf, unfit)


def _name(number: int, version: int = 0) -> str:
    return f"s{number:03}_v{version}.nc"


def _scenes_of_a_night(archive: Archive, night: int) -> None:
    when = 1_700_000_000 + night * _DAY
    cycle, now = divmod(night, CYCLE)
    folder, first = archive.folder, 3 * CYCLE * cycle
    for number in range(3 * night, 3 * night + 3):
        if number != first + 4:
            _scene(folder, number, now, when)
    if now == 3:
        _scene(folder, first + 4, 1, when)
    if now == 5:
        _scene(folder, first + 6, now, when, version=1)
    if now == 7:
        _scene(folder, first + 9, now, when, seed=99 + cycle)
    if now in (9, 22):
        archive.whole = truncated(folder / _name(first + (27 if now == 9 else 60)), when)
    if now in (10, 23):
        path = folder / _name(first + (27 if now == 10 else 60))
        path.write_bytes(archive.whole)
        written(path, when)
    if now == 12:
        (folder / _name(first + 3)).unlink()
    if now == 14:
        (folder / _name(first + 42)).unlink()
        _scene(folder, first + 42, now, when, time=_SENTINEL, name=900 + 2 * cycle)
    if now == 20:
        _scene(folder, first + 61, now, when, n=_GRID + 4, name=901 + 2 * cycle)


def _scene(
    folder: Path,
    number: int,
    night: int,
    when: float,
    *,
    version: int = 0,
    seed: int | None = None,
    time: float | None = None,
    n: int = _GRID,
    name: int | None = None,
) -> None:
    random = np.random.default_rng(number + 1000 * version if seed is None else seed)
    scale, offset = (0.5, 0.0) if night < 16 else (0.25, 10.0)
    counts = random.integers(0, 4000, (n, n)).astype("i2")
    counts[0, 0] = -1
    packed = {
        "scale_factor": np.float32(scale),
        "add_offset": np.float32(offset),
        "_FillValue": -1,
        "_Unsigned": "true",
    }
    deflate = {"zlib": True, "chunksizes": (n // 2, n)}
    seconds = {"units": "seconds since 2024-01-01", "standard_name": "time", "axis": "T"}
    netcdf4_file(
        folder / _name(number if name is None else name, version),
        {"y": n, "x": n},
        {
            "CMI": ("i2", "y x", counts, {**packed, "coordinates": "t y x"}, deflate),
            "t": ("f8", "", 600.0 * number if time is None else time, seconds),
            "y": ("f4", "y", np.arange(n), {}),
            "x": ("f4", "x", np.arange(n), {}),
            "bad_pixels": ("f4", "", 0.01 * number, {"_FillValue": -999.0}),
        },
        platform="G16",
    )
    written(folder / _name(number if name is None else name, version), when + number % 3)


# -- days of a reanalysis -------------------------------------------------------------------------------------


def days(folder: Path) -> Archive:
    """A day of four times a night, packed day by day, first preliminary, and final ten nights later.

    Faults of each cycle: a day that comes late (6), a day that lacks a variable (8), a final file that is cut off (15,
    whole in 16), and a day that vanishes (19).
    """
    folder.mkdir()
    recipe = f"""
files = ["{folder}/era_*.nc"]
dim = "valid_time"
unpack = true
prefer = "newest"
settle = "1h"
"""

    def unfit(cycle: int) -> Mapping[int, set[str]]:
        lacks, cut = f"era_{CYCLE * cycle + 8:03}_pre.nc", f"era_{CYCLE * cycle + 5:03}_fin.nc"
        return {0: set(), 8: {lacks}, 15: {lacks, cut}, 16: {lacks}}

    return Archive(folder, recipe, "valid_time", _day_of_a_night, _read_netcdf, unfit)


def _day_of_a_night(archive: Archive, night: int) -> None:
    when = 1_700_000_000 + night * _DAY
    cycle, now = divmod(night, CYCLE)
    first = CYCLE * cycle
    cut = archive.folder / f"era_{first + 5:03}_fin.nc"
    if now != 4:
        _day(archive.folder, night, "pre", when)
    if now == 6:
        _day(archive.folder, first + 4, "pre", when)
    if night >= 10:
        _day(archive.folder, night - 10, "fin", when + 60)
    if now == 15:
        archive.whole = truncated(cut, when)
    if now == 16:
        cut.write_bytes(archive.whole)
        written(cut, when)
    if now == 19:
        (archive.folder / f"era_{first + 17:03}_pre.nc").unlink()


def _day(folder: Path, number: int, kind: str, when: float) -> None:
    random = np.random.default_rng(2 * number + (kind == "fin"))
    times = number * _DAY + 6 * 3600 * np.arange(4)
    counts = random.integers(-30000, 30000, (4, 5, 6)).astype("i2")
    packed = {"scale_factor": 0.001 * (1 + number), "add_offset": 280.0 + number, "_FillValue": -32767}
    chunks = {"zlib": True, "chunksizes": (2, 5, 6)}
    variables = {
        "valid_time": ("i8", "valid_time", times, {"units": "seconds since 2024-01-01", "standard_name": "time"}),
        "latitude": ("f8", "latitude", np.linspace(60, 40, 5), {"units": "degrees_north"}),
        "longitude": ("f8", "longitude", np.arange(6.0), {"units": "degrees_east"}),
        "t2m": ("i2", "valid_time latitude longitude", counts, packed, chunks),
        "expver": ("i4", "valid_time", np.full(4, 1 if kind == "fin" else 5), {}),
        "sst": (
            "f4",
            "valid_time latitude longitude",
            random.random((4, 5, 6)),
            {"_FillValue": np.float32(-1)},
            chunks,
        ),
    }
    if (number % CYCLE, kind) == (8, "pre"):
        variables["t2m"] = ("i2", "valid_time latitude", counts[..., 0], packed, {"zlib": True})
    path = folder / f"era_{number:03}_{kind}.nc"
    netcdf4_file(path, {"valid_time": 4, "latitude": 5, "longitude": 6}, variables)
    written(path, when)


# -- runs of a forecast ---------------------------------------------------------------------------------------


def runs(folder: Path) -> Archive:
    """A run of three steps a night as GRIB, one file a step; the last step comes with the run after.

    Faults of each cycle: a step that comes two nights late (5), one that is written again (9), and one that is cut off
    (11, whole in 12).
    """
    folder.mkdir()
    recipe = f"""
files = ["{folder}/*.grib2"]
dim = "time"
join = "outer"
reader = "grib"
"""

    def unfit(cycle: int) -> Mapping[int, set[str]]:
        return {0: set(), 11: {f"run{CYCLE * cycle + 11:03}_f00.grib2"}, 12: set()}

    return Archive(folder, recipe, "time step", _run_of_a_night, _read_grib, unfit)


def _read_grib(path: str) -> xr.Dataset:
    found = xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""}).load()
    return found.drop_vars("valid_time")


def _run_of_a_night(archive: Archive, night: int) -> None:
    when = 1_700_000_000 + night * _DAY
    cycle, now = divmod(night, CYCLE)
    first = CYCLE * cycle
    cut = archive.folder / f"run{first + 11:03}_f00.grib2"
    for run, step in ((night, 0), (night, 6), (night - 1, 12)):
        if run >= 0 and (run % CYCLE, step) != (3, 6):
            _step(archive.folder, run, step, when)
    if now == 5:
        _step(archive.folder, first + 3, 6, when)
    if now == 9:
        _step(archive.folder, first + 2, 6, when, seed=77 + cycle)
    if now == 11:
        archive.whole = truncated(cut, when)
    if now == 12:
        cut.write_bytes(archive.whole)
        written(cut, when)


def _step(folder: Path, run: int, step: int, when: float, *, seed: int | None = None) -> None:
    random = np.random.default_rng(100 * run + step if seed is None else seed)
    keys = {
        "dataDate": int((np.datetime64("2024-01-01") + np.timedelta64(run, "D")).astype(str).replace("-", "")),
        "dataTime": 0,
        "step": step,
        "shortName": "2t",
        "typeOfLevel": "heightAboveGround",
        "level": 2,
    }
    path = folder / f"run{run:03}_f{step:02}.grib2"
    write(path, [message(keys, values=280 + random.random((4, 6)))])
    written(path, when)
