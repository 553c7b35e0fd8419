"""HDF4: scientific data sets, and coordinates of the grids of HDF-EOS2."""
