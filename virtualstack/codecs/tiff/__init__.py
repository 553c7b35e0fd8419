"""Strips and tiles of TIFF to values, by imagecodecs."""
