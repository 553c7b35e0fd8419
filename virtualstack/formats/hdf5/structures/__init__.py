"""The structures of the HDF5 file format, read from raw bytes; no input or output here."""
