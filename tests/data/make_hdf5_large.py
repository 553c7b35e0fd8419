"""HDF5 files whose metadata is scattered: one variable after another, and a large one of holes."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5t

from tests.data.hdf5_parts import dataset_of, properties

__all__ = ["make_one_after_another", "make_sparse"]


def make_one_after_another(path: Path, *, libver: str = "earliest", n_variables: int = 30, n_times: int = 41) -> Path:
    """Make a file of variables of ``(time, lat, lon)``, each written as a whole before the next one is made.

    So the headers and chunk indexes of each lie behind the values of the one before. There are four chunks of 16.6 KB
    to a time: 4,920 chunks and 82 MB with the default sizes.
    """
    rng = np.random.default_rng(0)
    n = 130
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["Conventions"] = "CF-1.8"
        for name, length, units in (
            ("time", n_times, "hours since 1970-01-01"),
            ("lat", n, "degrees_north"),
            ("lon", n, "degrees_east"),
        ):
            file[name] = np.linspace(0.0, 40.0, length)
            file[name].make_scale(name)
            file[name].attrs["units"] = units
        for number in range(n_variables):
            name = f"variable_{number:02d}"
            values = file.create_dataset(name, (n_times, n, n), "f4", chunks=(1, n // 2, n // 2))
            values[...] = rng.standard_normal(values.shape, "f4")
            for axis, dim in enumerate(("time", "lat", "lon")):
                values.dims[axis].attach_scale(file[dim])
            values.attrs.update(
                {
                    "long_name": f"a variable that has the number {number} and a long name",
                    "units": "kg m-2 s-1",
                    "valid_range": np.array([-9.0, 9.0], "f4"),
                    "cell_methods": "time: mean (interval: 1 hour)",
                }
            )
    return path


def make_sparse(path: Path, *, libver: str = "earliest", n_chunks: int = 150_000) -> Path:
    """Make a file of one variable of chunks of 100 kB that were never written: 15 GB, of which the disk has few.

    All chunks have their place in the file, and the nodes of the chunk index lie among them.
    """
    times = {"alloc_time": (h5d.ALLOC_TIME_EARLY,), "fill_time": (h5d.FILL_TIME_NEVER,)}
    with h5py.File(path, "w", libver=libver) as file:
        dcpl = properties(chunk=((1, 25_000),), **times)
        dataset_of(file, "values", h5t.IEEE_F32LE, (n_chunks, 25_000), dcpl)
    return path
