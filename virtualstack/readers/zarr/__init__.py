"""Zarr stores of version 2 and 3, in folders and zip archives."""
