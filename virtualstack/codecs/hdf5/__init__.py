"""Filters of HDF5 as codecs: each decodes what one step of a filter pipeline stored, to bytes."""
