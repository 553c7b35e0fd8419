"""Values in memory as a virtual array with one chunk in the manifest."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numcodecs.vlen import VLenUTF8
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.cf import value_changing
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill, native
from virtualstack.manifests.grid import ChunkGrid


def inline_array(
    values: NDArray[Any],
    /,
    *,
    name: str,
    dims: Iterable[Hashable],
    attributes: Mapping[str, Any],
    cf: Mapping[str, Any] | None = None,
    fill: Fill | None = None,
) -> ManifestArray:
    """Make an array of one INLINE chunk; without values, the array has no chunks."""
    values = np.asarray(values, native(values.dtype))
    codecs: tuple[Codec, ...] = ()
    if values.dtype.kind == "T":
        codecs = (Codec("vlen-utf8"),)
        raw = bytes(VLenUTF8().encode(values.reshape(-1).astype(object)))
    else:
        raw = values.tobytes()
    fill = fill or Fill.zero(values.dtype)
    grid = ChunkGrid.regular(values.shape, [max(n, 1) for n in values.shape])
    if values.size:
        encoding = ChunkEncoding.c_order(values.dtype, values.shape, codecs)
        manifest = ChunkManifest.from_bytes([raw], shape=grid.shape, encoding=encoding, fill=fill)
    else:
        manifest = ChunkManifest.empty(grid.shape, fill)
    return ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=values.dtype,
        name=name,
        dimension_names=tuple(map(str, dims)),
        attributes=dict(attributes),
        cf=value_changing(attributes) if cf is None else cf,
    )


def inlined(array: ManifestArray, values: NDArray[Any], /) -> ManifestArray:
    """Return an array like another one, but with its values in the manifest, as one INLINE chunk."""
    return inline_array(
        values,
        name=array.name or "",
        dims=array.dimension_names or (),
        attributes=array.attributes,
        cf=array.cf,
        fill=array.manifest.tables.fill,
    )
