"""Scenes as cloud-optimized GeoTIFF (COG) files, with the date in the name and in ``TIFFTAG_DATETIME``."""

from datetime import datetime
from pathlib import Path

import numpy as np
import tifffile

from tests.archives.fields import field

DATES = tuple(datetime(2024, month, day, 10, 30) for month, day in ((4, 6), (5, 11), (6, 20), (8, 4)))
_KEYS = (1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32632)  # projected, pixels are areas, EPSG:32632


def cog(folder: Path) -> list[str]:
    """Write four scenes of 768 x 1024 pixels in tiles of 256 x 256, with one overview."""
    return [_scene(folder, date) for date in DATES]


def _scene(folder: Path, date: datetime) -> str:
    values = np.round(1500 + 1000 * field(768, 1024, seed=date.month)).astype("u2")
    values[:100, :200] = 0  # no data
    georeference = [
        (33550, "d", 3, (10.0, 10.0, 0.0), True),
        (33922, "d", 6, (0.0, 0.0, 0.0, 600000.0, 5300040.0, 0.0), True),
        (34735, "H", len(_KEYS), _KEYS, True),
        (42113, "s", 0, "0", True),
    ]
    options = {"tile": (256, 256), "compression": "zlib", "predictor": 2, "photometric": "minisblack"}
    path = folder / f"T32UPU_{date:%Y%m%dT%H%M%S}_B04_10m.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(values, metadata=None, software=False, datetime=date, extratags=georeference, **options)
        small = values.reshape(384, 2, 512, 2).mean(axis=(1, 3)).astype("u2")
        file.write(small, metadata=None, software=False, subfiletype=1, extratags=georeference[3:], **options)
    return str(path)
