"""GRIB messages to values, by eccodes."""

FOREIGN_CODECS = {"grib": "virtualstack.grib"}
"""Codecs of other packages, by id in numcodecs' registry, and the codec of this folder that decodes the same bytes."""
