"""Where the chunks of a dataset lie, from the bytes of its chunk index of any kind."""

from __future__ import annotations

from virtualstack.readers.hdf5.structures.chunk_table import ChunkTable
from virtualstack.readers.hdf5.structures.layout_message import ChunkedLayout
from virtualstack.readers.hdf5.structures.requests import Parse, StructureError, Widths

__all__ = ["ChunkTable", "read_chunk_index"]


def read_chunk_index(
    layout: ChunkedLayout,
    shape: tuple[int, ...],
    maxshape: tuple[int | None, ...],
    *,
    is_filtered: bool,
    btree1_k: int,
    widths: Widths,
    end: int,
) -> Parse[ChunkTable]:
    """List the allocated chunks of a dataset.

    Chunks outside of the current shape are left out, as are those that were never allocated.

    Parameters
    ----------
    layout
        Of the dataset.
    shape, maxshape
        Elements; ``None`` in `maxshape` is an unlimited axis.
    is_filtered
        Whether the dataset has a filter pipeline.
    btree1_k
        Half of the most entries in a node of a version 1 B-tree of chunks: the "indexed storage internal node K" of
        the superblock.
    end
        Bytes of the file after the user block.

    Raises
    ------
    StructureError
        The index contradicts the format, the layout or the size of the file, or is of a form not known here.
    """
    raise StructureError("not yet")
    yield
