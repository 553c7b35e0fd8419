"""The chunk key encoding of virtual arrays in a vstack, for zarr: there are no keys, and it says so.

zarr loads all installed chunk key encodings when it opens its first array, so nothing but zarr is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from zarr.core.chunk_key_encodings import ChunkKeyEncoding

__all__ = ["ManifestKeys"]


@dataclass(frozen=True)
class ManifestKeys(ChunkKeyEncoding):
    """Chunks that a manifest lists, somewhere else than under keys of the array.

    With it zarr opens virtual arrays and shows their metadata. Whatever needs a chunk, or would write metadata that the
    next commit to the store undoes, raises :class:`~virtualstack.errors.VirtualValuesError`.
    """

    name: ClassVar[str] = "virtualstack.manifest"

    def encode_chunk_key(self, chunk_coords: tuple[int, ...]) -> NoReturn:
        """Refuse: zarr asks for the key of a chunk that it is about to read, write or delete."""
        _refuse("its chunks are not in the store but where its manifest says, and zarr can neither read nor write them")

    def decode_chunk_key(self, chunk_key: str) -> NoReturn:
        """Refuse."""
        _refuse("its chunks have no keys")

    def to_dict(self) -> dict[str, Any]:
        """Refuse: zarr asks for it where it is about to write metadata, or to compare those of two arrays."""
        _refuse("its metadata show the last commit, and zarr can neither write nor compare them")


def _refuse(why: str) -> NoReturn:
    from virtualstack.errors import VirtualValuesError  # now, since it imports the package

    raise VirtualValuesError(
        f'this array of a vstack is virtual: {why}. Open the store, as in "x.vstack", with '
        'xr.open_dataset("x.vstack", engine="virtualstack")'
    )
