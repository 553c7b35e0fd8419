"""A small archive of netCDF-4 files, a day each, and a vstack of it."""

from __future__ import annotations

import base64
import gzip
import io
import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import xarray as xr

import virtualstack as vs
from tests.data.stores import concatenated
from virtualstack.vstack.format.names import HINT

__all__ = ["as_read", "days", "join", "values_of", "write_day"]


def values_of(day: int, seed: int = 0) -> np.ndarray:
    """Values of a day, shape ``(2, 6, 4)``."""
    return np.random.default_rng([day, seed]).integers(0, 1000, (2, 6, 4)).astype("f4")


def write_day(path: Path, day: int, *, seed: int = 0, chunks: tuple[int, ...] = (1, 3, 4), level: int = 4) -> Path:
    """Write the file of a day: times, latitudes, a compressed variable and one that is not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(_bytes_of_day(day, seed, chunks, level))
    return path


@cache
def _bytes_of_day(day: int, seed: int, chunks: tuple[int, ...], level: int) -> bytes:
    values = values_of(day, seed)
    made = io.BytesIO()
    with h5netcdf.File(made, "w") as file:
        file.dimensions = {"time": 2, "lat": 6, "lon": 4}
        time = file.create_variable("time", ("time",), "i4", data=np.arange(2, dtype="i4") * 12 + day * 24)
        time.attrs["units"] = "hours since 2000-01-01"
        file.create_variable("lat", ("lat",), "f8", data=np.linspace(-50, 50, 6))
        file.create_variable(
            "t", ("time", "lat", "lon"), "f4", data=values, chunks=chunks, compression="gzip", compression_opts=level
        )
        file.create_variable("flag", ("time", "lat"), "i2", data=values[..., 0].astype("i2"))
    return made.getvalue()


def days(folder: Path, n: int = 4) -> list[Path]:
    """Write the files of some days."""
    return [write_day(folder / f"{day:03}.nc", day) for day in range(n)]


def join(urls: Sequence[object], **options: object) -> xr.Dataset:
    """Join files along time, virtually."""
    return vs.open_virtual_mfdataset(urls, combine="nested", concat_dim="time", **options)


def as_read(paths: Sequence[Path]) -> xr.Dataset:
    """Give what h5netcdf reads from files."""
    return _as_read(*(Path(path).read_bytes() for path in paths)).copy(deep=True)


@cache
def _as_read(*files: bytes) -> xr.Dataset:
    parts = [xr.load_dataset(io.BytesIO(data), engine="h5netcdf") for data in files]
    return concatenated(*parts, compat="equals")


def change_snapshot(store: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the document of the newest snapshot of a store, and that of its hint, if this is the same snapshot.

    Chunks are not counted in it, as in stores of earlier versions, so that any grid can be claimed.
    """
    head = newest_snapshot(store)
    before = head.read_bytes()
    document = json.loads(gzip.decompress(before))
    for array in document["arrays"].values():
        array.pop("counts", None)
    edit(document)
    head.write_bytes(gzip.compress(json.dumps(document).encode()))
    file = store / HINT
    old, new = (base64.b64encode(data).decode() for data in (before, head.read_bytes()))
    file.write_text(file.read_text().replace(old, new))


def newest_snapshot(store: Path) -> Path:
    """Return the file of the newest snapshot: numbers are counted down."""
    return min((store / ".vstack" / "snapshots").iterdir())


def copy_with_other_times(old: Path, new: Path) -> None:
    """Copy a folder; its files get the time of now."""
    shutil.copytree(old, new, copy_function=shutil.copyfile)
