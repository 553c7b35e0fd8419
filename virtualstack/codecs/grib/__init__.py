"""GRIB messages to values, by eccodes."""
