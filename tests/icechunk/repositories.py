"""Icechunk repositories, and small files of netCDF-4 that they refer to; importing it skips where icechunk is not."""

import netCDF4
import numpy as np
import pytest
import xarray as xr
from packaging.version import Version

icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed: pip install 'virtualstack[icechunk]'")

WARNINGS = [
    pytest.mark.filterwarnings("ignore:.*not part of the Zarr format 3 spec"),
    pytest.mark.filterwarnings("ignore:.*in the Zarr version 3 spec"),
]
"""Marks of tests that write to repositories."""

opens_rectilinear_grids = pytest.mark.skipif(
    Version(xr.__version__) < Version("2026.9"), reason="xarray before 2026.9 opens no chunks of different lengths"
)


def may_refer_to(*folders):
    """Return the configuration of a repository that may point into folders; each by its path, or by prefix and path."""
    config = icechunk.RepositoryConfig.default()
    for folder in folders:
        prefix, path = folder if isinstance(folder, tuple) else (f"file://{folder}/", folder)
        config.set_virtual_chunk_container(
            icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(path)))
        )
    return config


def repository(folder, *sources, create=True):
    """Make, or open, a repository in memory (``None``) or in a folder, which may point into folders."""
    config = may_refer_to(*sources)
    access = {f"file://{source}/": icechunk.credentials.LocalFileSystemAccess for source in sources}
    storage = icechunk.in_memory_storage() if folder is None else icechunk.local_filesystem_storage(str(folder))
    make = icechunk.Repository.create if create else icechunk.Repository.open
    return make(storage, config, authorize_virtual_chunk_access=access)


def references(session, name):
    """All chunks of an array, by cell."""
    found = {}
    for cells, kinds, paths, offsets, lengths, inlined in session.store.array_chunk_iterator(f"/{name}"):
        for i, row in enumerate(zip(cells.tolist(), kinds, paths, offsets, lengths, strict=True)):
            found[tuple(row[0])] = (*row[1:], inlined.get(i))
    return found


def kinds_of(session, name):
    """Where the chunks of an array are: 1 in the repository, 2 in files, 3 in the manifest."""
    return [int(row[0]) for row in references(session, name).values()]


def months(folder):
    """Write files of 3, 4 and 2 days, each in one chunk along time."""
    lengths = ((0, 3), (3, 4), (7, 2))
    return [netcdf(folder / f"{start}.nc", start=start, n=n, chunk=n, zlib=True) for start, n in lengths]


def netcdf(path, start=0, n=4, *, chunk=2, dtype="f4", fill=None, written=None, attrs=None, time=True, **options):
    """Write a cube with a time axis, a static variable and a scalar; rows from ``written`` on stay unwritten."""
    values = np.random.default_rng(start).integers(-100, 100, (n, 3, 4))
    with netCDF4.Dataset(path, "w") as file:
        for name, length in (("time", n), ("y", 3), ("x", 4)):
            file.createDimension(name, length)
        if time:
            variable = file.createVariable("time", "i4", ("time",))
            variable.units = "days since 2001-01-01"
            variable[:] = np.arange(start, start + n)
        file.createVariable("x", "f8", ("x",))[:] = np.arange(4) / 2
        variable = file.createVariable(
            "t", dtype, ("time", "y", "x"), chunksizes=(min(chunk, n), 3, 2), fill_value=fill, **options
        )
        variable.set_auto_maskandscale(False)
        variable.setncatts(attrs or {})
        variable[:written] = values[:written].astype(dtype)
        static = file.createVariable("mask", "i2", ("y", "x"), zlib=True)
        static[:] = np.arange(12).reshape(3, 4)
        file.createVariable("crs", "i4", ())[...] = 7
        file.title = "a small file"
    return path
