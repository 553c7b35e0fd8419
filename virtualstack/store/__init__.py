"""A zarr store over a group."""

from virtualstack.store.manifest_store import ManifestStore

__all__ = ["ManifestStore"]
