"""Reading the chunks of an array in another dtype; no bytes are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from virtualstack.codecs.cast import cast_codec
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import Fill

__all__ = ["can_cast", "cast"]


def can_cast(old: np.dtype[Any], new: np.dtype[Any], /) -> bool:
    """Tell whether numbers may be cast: to a dtype of their kind or a wider one, as ``np.can_cast`` has "same_kind".

    >>> can_cast(np.dtype("f4"), np.dtype("f8")), can_cast(np.dtype("f8"), np.dtype("i4"))
    (True, False)
    """
    return old.kind in "biufc" and new.kind in "biufc" and np.can_cast(old, new, "same_kind")


def cast(manifest: ChunkManifest, dtype: np.dtype[Any], /) -> ChunkManifest:
    """Put a cast in front of the codecs of all chunks, and cast the fill values; ``dtype`` is native.

    The chain of casts is kept: one through integers truncates, and so must the whole.
    """
    with np.errstate(all="ignore"):
        fills = tuple(Fill(dtype, np.asarray(x.value, x.dtype).astype(dtype).tobytes()) for x in manifest.fills)
    encodings = tuple(
        replace(x, dtype=dtype, codecs=(cast_codec(x.dtype, dtype), *x.codecs)) for x in manifest.encodings
    )
    return replace(manifest, fills=fills, encodings=encodings)
