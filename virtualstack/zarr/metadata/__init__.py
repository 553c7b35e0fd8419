"""Translate zarr metadata of version 2 and 3. Nothing here reads or writes files."""
