"""Files that differ in length, codecs, chunks and packing, and what xarray reads from them."""

import numpy as np
import xarray as xr

import virtualstack as vs

FORMS = (
    (31, {"zlib": True, "chunksizes": (1, 5, 6)}),
    (28, {"chunksizes": (7, 5, 6)}),
    (31, {"zlib": True, "shuffle": False, "complevel": 1, "chunksizes": (1, 5, 6)}),
    (
        30,
        {
            "dtype": "i2",
            "scale_factor": 0.01,
            "add_offset": 280.0,
            "zlib": True,
            "_FillValue": -9999,
            "chunksizes": (5, 5, 6),
        },
    ),
)
"""Number of times and encoding of each file."""


def write_files(folder):
    """Write the files, and return their paths."""
    rng, first, paths = np.random.default_rng(0), 0, []
    for number, (n, encoding) in enumerate(FORMS):
        values = (280 + rng.standard_normal((n, 5, 6))).astype("f4")
        values[0, 0, 0] = np.nan
        labels = {
            "time": ("time", np.arange(first, first + n), {"units": "days since 2000-01-01"}),
            "x": np.arange(6.0),
        }
        dataset = xr.Dataset({"t": (("time", "y", "x"), values, {"units": "K"})}, labels, {"title": f"part {number}"})
        paths.append(str(folder / f"part{number}.nc"))
        dataset.to_netcdf(paths[-1], engine="netcdf4", encoding={"t": encoding})
        first += n
    return paths


def joined(paths):
    """Return the values that xarray joins, with netCDF4 as reader."""
    parts = [xr.load_dataset(path, engine="netcdf4") for path in paths]
    return xr.concat(parts, "time", combine_attrs="drop_conflicts").drop_attrs()


def cube(paths):
    """Return the virtual cube of the files."""
    return vs.open_virtual_mfdataset(paths, unpack="differing", combine_options={"combine_attrs": "drop_conflicts"})
