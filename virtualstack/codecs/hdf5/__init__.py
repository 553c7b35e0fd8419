"""Filters of HDF5 as codecs: each undoes one step of a filter pipeline and returns bytes."""

FOREIGN_CODECS = {"imagecodecs_lz4h5": "virtualstack.lz4", "imagecodecs_szip": "virtualstack.szip"}
"""Codecs of other packages, by id in numcodecs' registry, and the codec of this folder that decodes the same bytes."""
