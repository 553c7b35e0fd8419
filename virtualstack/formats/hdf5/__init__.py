"""HDF5 and netCDF-4 files; `reader` tells the way from a file to a group."""
