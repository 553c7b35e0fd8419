"""Read GRIB 1 and 2: own code walks the sections, eccodes reads keys from headers, and cubes are those of cfgrib."""
