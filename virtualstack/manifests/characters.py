"""Join characters along the last axis to text of one length; no bytes are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from virtualstack.codecs.pipeline import n_array_codecs
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill
from virtualstack.manifests.grid import ChunkGrid

_CHARACTER = np.dtype("S1")


def join_characters(array: ManifestArray, /) -> ManifestArray | None:
    """Join the characters along the last axis to text, as xarray and ``netCDF4.chartostring`` do.

    The stored chunks stay the same: their bytes become fewer and longer elements.
    The pages of a paged manifest are read.
    """
    if array.dtype != _CHARACTER or not array.ndim:
        raise ValueError(f"an array of dtype '{array.dtype}' and {array.ndim} axes is none of characters")
    n = array.shape[-1]
    if n >= 1 << 31:  # more than numpy's text may have
        return None
    dtype = np.dtype(f"S{max(n, 1)}")
    grid = ChunkGrid(array.grid.axes[:-1])
    names = None if array.dimension_names is None else array.dimension_names[:-1]
    if not n:
        manifest = ChunkManifest.empty(grid.shape, Fill.zero(dtype))
        return replace(array, manifest=manifest, grid=grid, dimension_names=names)
    if array.grid.axes[-1].n_cells != 1:
        return None
    whole = array.in_memory().compact()
    encodings = [_of_texts(encoding, n, dtype) for encoding in whole.encodings]
    if any(encoding is None for encoding in encodings):
        return None
    starts = None if whole.starts is None else whole.starts[..., 0]
    if starts is not None and (starts % n).any():
        return None
    manifest = ChunkManifest(
        entries=whole.entries[..., 0],
        fills=tuple(Fill(dtype, fill.raw * n) for fill in whole.fills),
        encodings=tuple(x for x in encodings if x is not None),
        locations=whole.locations,
        starts=None if starts is None else starts // n,
        inline=whole.inline,
    )
    return replace(array, manifest=manifest, grid=grid, dtype=dtype, dimension_names=names)


def _of_texts(encoding: ChunkEncoding, n: int, dtype: np.dtype[Any]) -> ChunkEncoding | None:
    """Return the encoding of chunks whose rows of ``n`` characters are texts, or ``None`` if rows are not texts."""
    *steps, step = encoding.strides
    is_whole = encoding.dtype == _CHARACTER and encoding.shape[-1:] == (n,) and (step == 1 or n == 1)
    if not is_whole or any(x % n for x in steps) or not _is_bytes(encoding):
        return None
    return ChunkEncoding(
        dtype=dtype, shape=encoding.shape[:-1], codecs=encoding.codecs, strides=tuple(x // n for x in steps)
    )


def _is_bytes(encoding: ChunkEncoding) -> bool:
    """Return whether the decoded chunk has its bytes in C order: only codecs of bytes follow."""
    try:
        n_before, is_array = n_array_codecs(encoding.codecs, encoding.dtype, encoding.shape)
    except (UnsupportedFeatureError, MissingDependencyError):
        return False
    return n_before == 0 and (not is_array or encoding.codecs[0].name == "bytes")
