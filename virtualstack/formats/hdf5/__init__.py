"""Read HDF5 and netCDF-4 files; `reader` describes the steps from a file to a group."""
