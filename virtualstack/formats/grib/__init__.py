"""Read GRIB 1 and 2: a parser walks the sections, eccodes reads keys from headers, and cubes follow cfgrib."""
