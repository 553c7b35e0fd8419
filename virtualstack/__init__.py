"""Archives of netCDF/HDF5, GRIB and TIFF as one virtual xarray dataset, with no byte copied."""

__version__ = "0.1.0"
