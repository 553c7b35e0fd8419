"""Parsers for the structures of the HDF5 file format, from raw bytes; modules here do no input or output."""
