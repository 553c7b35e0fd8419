"""Register the chunk key encoding in the zarr documents of a vstack: zarr gets an error that says how to open it.

zarr loads all installed chunk key encodings when it opens its first array, so nothing but zarr is imported here.
"""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from zarr.core.chunk_key_encodings import ChunkKeyEncoding


class ManifestKeys(ChunkKeyEncoding):
    """Chunk key encoding of chunks that have no keys of zarr, because a manifest lists them."""

    name: ClassVar[str] = "virtualstack.manifest"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NoReturn:
        """Raise an error: zarr calls this before it opens an array."""
        from virtualstack.errors import VirtualValuesError  # now, since it imports the package

        raise VirtualValuesError(
            'this is a vstack, not a zarr store: open it, as in xr.open_dataset("x.vstack", engine="virtualstack")'
        )
