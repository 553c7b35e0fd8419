"""Icechunk repositories, and small files of netCDF-4 that they refer to."""

import icechunk
import netCDF4
import numpy as np


def repository(folder, *sources, create=True):
    """Make, or open, a repository in memory (``None``) or in a folder, which may point into folders."""
    config = icechunk.RepositoryConfig.default()
    access = {}
    for source in sources:
        prefix = f"file://{source}/"
        config.set_virtual_chunk_container(
            icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(str(source)))
        )
        access[prefix] = icechunk.credentials.LocalFileSystemAccess
    storage = icechunk.in_memory_storage() if folder is None else icechunk.local_filesystem_storage(str(folder))
    make = icechunk.Repository.create if create else icechunk.Repository.open
    return make(storage, config, authorize_virtual_chunk_access=access)


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
