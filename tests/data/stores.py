"""Stores and references as tests read them, and what is put into memory for them to read."""

import xarray as xr

from virtualstack.storage import MemoryTarget

__all__ = ["concatenated", "load", "publish"]


def load(url, **options):
    """Read a whole dataset through the engine."""
    return xr.load_dataset(url, engine="virtualstack", **options)


def concatenated(*parts, dim="time", **options):
    """Join datasets as a cube is: what has not the dimension is the first one's, and labels of others are the same."""
    given = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "exact"}
    return xr.concat(parts, dim, **(given | options))


def publish(sources):
    """Put sources into this process's memory, by their URLs."""
    for url, data in sources.items():
        folder, _, name = url.rpartition("/")
        MemoryTarget(folder).put(name, data)
