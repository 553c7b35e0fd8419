"""Virtual arrays of a few chunks, each described in a line."""

import numpy as np

from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray
from virtualstack.zarr.metadata.array import ArrayMetadata

__all__ = ["array_of", "bytes_metadata", "one_inline_chunk", "referenced"]


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
