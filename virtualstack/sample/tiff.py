"""Scenes of a satellite as tiled GeoTIFF files with overviews, written with tifffile."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MissingDependencyError
from virtualstack.sample.fields import texture
from virtualstack.sample.hdf5 import make_folder

_N = 256
_METRES = 10.0
_CORNER = (600000.0, 5300040.0)
_DATES = (date(2024, 4, 6), date(2024, 5, 11), date(2024, 6, 20), date(2024, 8, 4))


def scenes(folder: str | os.PathLike[str], /) -> list[str]:
    r"""Write four scenes in the red and in the near infrared, as Sentinel-2 takes them: one GeoTIFF for each band.

    Each file has 256 x 256 pixels of 10 metres in UTM zone 32N as unsigned 16-bit integers (reflectance times 10000;
    0 means no data). The tiles have 128 x 128 pixels, compressed with deflate and a predictor, and there are two
    overviews, as in cloud-optimized GeoTIFFs (COG). Fields turn green, each at its own time, and there
    are clouds.

    Parameters
    ----------
    folder
        Where to write the files. The folder is created; files of the same names are replaced.

    Returns
    -------
    list[str]
        The paths of the eight files, sorted.

    Raises
    ------
    MissingDependencyError
        The package tifffile is not installed; the extra ``tiff`` has it.

    Examples
    --------
    >>> import virtualstack as vs
    >>> files = vs.sample.scenes("scenes")
    >>> files[:2]
    ['scenes/T32UPU_2024-04-06_B04.tif', 'scenes/T32UPU_2024-04-06_B08.tif']
    >>> time = vs.FromName(r"\d{4}-\d\d-\d\d", format="%Y-%m-%d")
    >>> red = vs.open_virtual_mfdataset("scenes/*_B04.tif", new_dim={"time": time})
    >>> dict(red.sizes)
    {'time': 4, 'band': 1, 'y': 256, 'x': 256}
    """
    try:
        tifffile = importlib.import_module("tifffile")
    except ModuleNotFoundError as error:
        raise MissingDependencyError("writing TIFF", extra="tiff") from error
    where, paths = make_folder(folder), []
    for day, red, infrared in _reflectances():
        for band, values in (("B04", red), ("B08", infrared)):
            path = where / f"T32UPU_{day}_{band}.tif"
            _write(tifffile, path, np.round(10000 * values).astype("u2"))
            paths.append(str(path))
    return paths


def _reflectances() -> Iterator[tuple[date, NDArray[np.floating], NDArray[np.floating]]]:
    """Yield red and near infrared of each day: fields that turn green, each at its own time, a river, and clouds."""
    y, x = np.mgrid[0:_N, 0:_N].astype("f4") / 64
    column = np.floor(1.7 * (x + 0.3 * texture(y / 3, x / 9, seed=3, waves=12)))
    row = np.floor(2.9 * (y + 0.2 * texture(x / 3, y / 9, seed=4, waves=12)) + 0.4 * column)
    crop = (7 * column + 3 * row) * (5**0.5 - 1) / 2 % 1
    soil = 0.08 * texture(2 * x, 2 * y, seed=7)
    river = np.abs(x - 2.2 - 0.5 * np.sin(1.3 * y) - 0.1 * texture(y[:, :1], 0, seed=8)) < 0.07
    for day in _DATES:
        days = (day - date(2024, 1, 1)).days
        green = np.clip(np.exp(-(((days - 120 - 90 * crop) / 45) ** 2)) + soil, 0, 1)
        cloud = np.clip(1.5 * texture(x / 3, y / 3, seed=days) - 0.9, 0, 1)
        red = np.where(river, 0.04, 0.16 - 0.12 * green)
        infrared = np.where(river, 0.02, 0.22 + 0.26 * green)
        yield day, red * (1 - cloud) + 0.6 * cloud, infrared * (1 - cloud) + 0.6 * cloud


def _write(tifffile: Any, path: Path, values: NDArray[np.uint16]) -> None:
    keys = (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32632)  # projected, pixels are areas, EPSG:32632
    georeference = [
        (33550, "d", 3, (_METRES, _METRES, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, *_CORNER, 0.0), True),
        (34735, "H", len(keys), keys, True),
        (42113, "s", 0, "0", True),
    ]
    options = {"tile": (128, 128), "compression": "zlib", "predictor": 2, "photometric": "minisblack"}
    with tifffile.TiffWriter(path) as file:
        file.write(values, metadata=None, software=False, extratags=georeference, **options)
        for factor in (2, 4):
            blocks = values.reshape(_N // factor, factor, _N // factor, factor)
            overview = blocks.mean(axis=(1, 3)).astype("u2")
            file.write(overview, metadata=None, software=False, subfiletype=1, extratags=georeference[3:], **options)
