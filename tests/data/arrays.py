"""Virtual arrays of a few chunks, each described in a line; the files that they name need not be there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from virtualstack.location import Location
from virtualstack.manifests import FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray
from virtualstack.zarr.metadata.array import ArrayMetadata

__all__ = ["array_of", "bytes_metadata", "inline_chunks", "one_inline_chunk", "referenced", "referenced_array"]


def array_of(manifest, chunks, *, shape=None, dims="xyz", name="v", **options):
    """Return the array of a manifest in chunks of one shape, which are whole unless the array's shape is given."""
    shape = tuple(n * c for n, c in zip(manifest.shape, chunks, strict=True)) if shape is None else shape
    return ManifestArray(
        manifest=manifest,
        grid=ChunkGrid.regular(shape, chunks),
        dtype=manifest.tables.fill.dtype,
        name=name,
        dimension_names=tuple(dims[: len(shape)]),
        **options,
    )


def referenced(offsets, lengths, chunks, dtype="u1", *, location="s3://bucket/a.nc", codecs=(), fill=None, **options):
    """Return an array whose chunks are ranges of bytes of a source; where a length is negative there is none."""
    encoding = ChunkEncoding.c_order(dtype, chunks, codecs)
    manifest = ChunkManifest.from_arrays(
        np.asarray(offsets), np.asarray(lengths), location=location, encoding=encoding, fill=_fill(fill, dtype)
    )
    return array_of(manifest, chunks, **options)


def one_inline_chunk(raw, shape, dtype, *, codecs=(), fill=None, **options):
    """Return an array that is one chunk, whose bytes stand in the manifest."""
    encoding = ChunkEncoding.c_order(dtype, shape, codecs)
    manifest = ChunkManifest.from_bytes([raw], shape=(1,) * len(shape), encoding=encoding, fill=_fill(fill, dtype))
    return array_of(manifest, shape, shape=shape, **options)


def _fill(value, dtype):
    return Fill.zero(dtype) if value is None else Fill.from_value(value, dtype)


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


def bytes_metadata(*shape, prefix="", separator="."):
    """Return the metadata of an array of bytes, one to a chunk, with the keys of its chunks."""
    return ArrayMetadata(
        shape=shape,
        chunks=(1,) * len(shape),
        encoding=ChunkEncoding.c_order("u1", (1,) * len(shape)),
        fill=Fill.zero("u1"),
        dimension_names=None,
        key_prefix=prefix,
        separator=separator,
    )
