"""Small netCDF files, and stores that are made of them."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

import virtualstack as vs
from tests.data.stores import concatenated, load


def dataset(days, *, seed=0, lat=6, units="K", step="D"):
    """Temperatures and packed rain on some days since 2000, and a mask that never changes."""
    rng = np.random.default_rng(seed)
    days = np.atleast_1d(np.asarray(days))
    times = pd.Timestamp("2000-01-01") + pd.to_timedelta(days, "D")
    made = xr.Dataset(
        {
            "t": (("time", "lat", "lon"), rng.normal(size=(len(days), lat, 8)).astype("f4"), {"units": units}),
            "rain": (("time", "lat"), rng.integers(0, 100, (len(days), lat)) * 0.5, {"units": "mm"}),
            "mask": (("lat", "lon"), np.arange(lat * 8, dtype="i4").reshape(lat, 8)),
        },
        coords={"time": times, "lat": np.arange(float(lat)), "lon": np.arange(8.0)},
        attrs={"history": f"seed {seed}", "title": "made up"},
    )
    made["rain"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    made["time"].encoding = {"units": "days since 2000-01-01", "dtype": "i8"}
    return made


def write(path, made, **encodings):
    """Write a file; ``encodings`` by variable, chunks of 3 latitudes and 4 longitudes unless they say otherwise."""
    path, key = Path(path), pickle.dumps((made, encodings))
    path.unlink(missing_ok=True)
    if key in _WRITTEN:
        path.write_bytes(_WRITTEN[key])
    else:
        _write(path, made, encodings)
        _WRITTEN[key] = path.read_bytes()
    return str(path)


_WRITTEN: dict[bytes, bytes] = {}
"""Bytes of the files that were written: many tests begin with the same ones."""


def _write(path, made, encodings):
    made = made.copy()
    sizes = {"lat": 3, "lon": 4}
    for name in made.data_vars:
        own = encodings.get(name, {})
        dims = made[name].dims
        chunks = own.get("chunksizes", [sizes.get(dim, 2) for dim in dims])
        chunks = [min(a, b) for a, b in zip(chunks, made[name].shape, strict=True)]
        made[name].encoding = {"zlib": True, **made[name].encoding, **own, "chunksizes": chunks}
    if "time" in encodings:
        made["time"].encoding = encodings["time"]
    made.to_netcdf(path, engine="netcdf4")


def write_tree(path, days, seed):
    """Write a file of two groups, ``a`` with temperatures and ``b`` with rain."""
    nodes = {"/a": dataset(days, seed=seed)[["t"]], "/b": dataset(days, seed=10 + seed)[["rain"]]}
    xr.DataTree.from_dict(nodes).to_netcdf(path, engine="netcdf4")
    return path


def begin(url, days):
    """Begin a store with a file of some days beside it, and return what xarray reads from the file."""
    path = write(Path(url).with_name("0.nc"), dataset(days))
    virtual(path).virtual.to_vstack(url)
    return xr.load_dataset(path)


def virtual(path, **options):
    return vs.open_virtual_dataset(path, **options)


def values(url, at=None):
    """Read what a store holds, at a snapshot."""
    return load(url, **({} if at is None else {"reader": vs.readers.VStack(at=at)}))


def n_snapshots(url):
    return len(list((Path(url) / ".vstack" / "snapshots").iterdir()))


def objects(url):
    """Give the bytes of all that snapshots of a store are made of, by name: the view of zarr is none of it."""
    root, hint = Path(url), Path(url) / ".vstack/zarr.json"
    found = [x for x in (root / ".vstack").rglob("*") if x.is_file() and x != hint]
    return {str(x.relative_to(root)): x.read_bytes() for x in found}


def joined(*parts):
    """Join datasets as a store does: attributes and what has not the dimension are the first's."""
    return concatenated(*parts, combine_attrs="override")


def check(url, wanted, at=None):
    """Compare values, coordinates and attributes."""
    xr.testing.assert_identical(values(url, at), wanted)
