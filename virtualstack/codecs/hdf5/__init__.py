"""Filters of HDF5 as codecs: each undoes one step of a filter pipeline and returns bytes."""
