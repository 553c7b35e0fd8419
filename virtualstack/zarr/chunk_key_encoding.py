"""Register the chunk key encoding of virtual arrays in a vstack: they have no chunk keys, and zarr gets an error.

zarr loads all installed chunk key encodings when it opens its first array, so nothing but zarr is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from zarr.core.chunk_key_encodings import ChunkKeyEncoding


@dataclass(frozen=True)
class ManifestKeys(ChunkKeyEncoding):
    """Chunk key encoding of chunks that a manifest lists, which have no keys in the store.

    With it zarr opens virtual arrays and shows their metadata. Every read of a chunk, and every write of metadata that
    the next commit would undo, raises :class:`~virtualstack.errors.VirtualValuesError`.
    """

    name: ClassVar[str] = "virtualstack.manifest"

    def encode_chunk_key(self, chunk_coords: tuple[int, ...]) -> NoReturn:
        """Raise an error: zarr asks for the key of a chunk before it reads, writes or deletes the chunk."""
        _refuse(
            "its chunks are where its manifest says, such as in files outside the store, and zarr can neither read "
            "nor write them"
        )

    def decode_chunk_key(self, chunk_key: str) -> NoReturn:
        """Raise an error: the chunks have no keys."""
        _refuse("its chunks have no keys")

    def to_dict(self) -> dict[str, Any]:
        """Raise an error: zarr calls this before it writes metadata, or compares the metadata of two arrays."""
        _refuse("its metadata show the last commit, and zarr can neither write nor compare them")


def _refuse(why: str) -> NoReturn:
    from virtualstack.errors import VirtualValuesError  # now, since it imports the package

    raise VirtualValuesError(
        f'this array of a vstack is virtual: {why}. Open the store, as in "x.vstack", with '
        'xr.open_dataset("x.vstack", engine="virtualstack")'
    )
