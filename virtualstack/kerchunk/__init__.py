"""Kerchunk references, JSON and parquet: reading, writing and adding to them."""
