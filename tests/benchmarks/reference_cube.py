"""One variable of three dimensions, whose references lie in a file for each step of time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.location import Location
from virtualstack.manifests import FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, ManifestGroup

CHUNKS = (1, 10, 10)


def group_of(
    urls: Sequence[str], offsets: NDArray[Any], lengths: NDArray[Any], codecs: Sequence[Codec] = ()
) -> ManifestGroup:
    """Give a group with the variable ``v``; columns have the shape of the grid."""
    grid = offsets.shape
    manifest = ChunkManifest.from_arrays(
        offsets,
        lengths,
        location=[Location(url) for url in urls],
        encoding=ChunkEncoding.c_order("<f4", CHUNKS, list(codecs)),
        fill=Fill.from_value(np.nan, "f4"),
        location_codes=np.broadcast_to(np.arange(grid[0])[:, None, None] + FIRST, grid),
    )
    shape = tuple(n * chunk for n, chunk in zip(grid, CHUNKS, strict=True))
    array = ManifestArray(
        manifest=manifest,
        grid=ChunkGrid.regular(shape, CHUNKS),
        dtype=np.dtype("f4"),
        dimension_names=("t", "y", "x"),
    )
    return ManifestGroup(arrays={"v": array})
