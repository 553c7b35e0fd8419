"""Virtual arrays of references; the files that these name need not be there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from virtualstack.location import Location
from virtualstack.manifests import FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray

__all__ = ["inline_chunks", "referenced_array"]


def referenced_array(
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: str = "<f4",
    *,
    urls: str | Location | Sequence[str | Location] = "s3://bucket/a.nc",
    offsets: ArrayLike | None = None,
    lengths: ArrayLike = 900,
    codecs: Sequence[Any] = (),
    fill: Any = 0,
    **parts: Any,
) -> ManifestArray:
    """Make an array of regular chunks in one file, or in one file for each row of chunks.

    Without ``offsets`` chunks begin 1,000 bytes apart. ``parts`` are those of :class:`ManifestArray`.
    """
    grid = ChunkGrid.regular(shape, chunks)
    files = [urls] if isinstance(urls, str | Location) else urls
    numbers = np.arange(len(files)).reshape(-1, *(1,) * (len(shape) - 1)) + FIRST
    hole = Fill.from_value(fill, dtype)
    manifest = ChunkManifest.from_arrays(
        np.reshape(np.arange(math.prod(grid.shape)) * 1000 if offsets is None else offsets, grid.shape),
        np.broadcast_to(np.reshape(lengths, np.shape(lengths) and grid.shape), grid.shape),
        location=[x if isinstance(x, Location) else Location(x) for x in files],
        location_codes=np.broadcast_to(numbers, grid.shape),
        encoding=ChunkEncoding.c_order(dtype, chunks, list(codecs)),
        fill=hole,
    )
    return ManifestArray(manifest=manifest, grid=grid, dtype=hole.dtype, **{"name": "v"} | parts)


def inline_chunks(
    chunk_shape: tuple[int, ...],
    dtype: Any,
    *stored: bytes,
    codecs: Sequence[Any] = (),
    fill: Any = 0,
    **parts: Any,
) -> ManifestArray:
    """Make an array whose chunks stand in the manifest as they are stored, behind each other along the first axis."""
    shape = (len(stored) * chunk_shape[0], *chunk_shape[1:])
    grid = ChunkGrid.regular(shape, chunk_shape)
    encoding = ChunkEncoding.c_order(dtype, chunk_shape, list(codecs))
    hole = Fill.from_value(fill, dtype)
    manifest = ChunkManifest.from_bytes(list(stored), shape=grid.shape, encoding=encoding, fill=hole)
    return ManifestArray(manifest=manifest, grid=grid, dtype=hole.dtype, **{"name": "v"} | parts)
