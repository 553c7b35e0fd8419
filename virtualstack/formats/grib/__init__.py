"""GRIB 1 and 2: a section walker of its own, keys by eccodes from headers alone, and cubes as cfgrib makes them."""
