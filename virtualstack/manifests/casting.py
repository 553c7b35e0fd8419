"""Reading the chunks of an array in another dtype; no bytes are read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from virtualstack.codecs.cast import cast_codec, cast_numbers
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import Fill

__all__ = ["can_cast", "cast"]


def can_cast(old: np.dtype[Any], new: np.dtype[Any], /) -> bool:
    """Tell whether both are numbers, or truth values; complex ones stay complex. Text of fixed length gets longer.

    >>> can_cast(np.dtype("f4"), np.dtype("f8")), can_cast(np.dtype("c8"), np.dtype("f4"))
    (True, False)
    >>> can_cast(np.dtype("S3"), np.dtype("S5")), can_cast(np.dtype("S5"), np.dtype("S3"))
    (True, False)
    """
    if old.kind in "SU":
        return new.kind == old.kind and new.itemsize >= old.itemsize
    return old.kind in "biufc" and new.kind in ("c" if old.kind == "c" else "biufc")


def cast(manifest: ChunkManifest, dtype: np.dtype[Any], /) -> ChunkManifest:
    """Put a cast in front of the codecs of all chunks, and cast the fill values; ``dtype`` is native.

    The chain of casts is kept: one through integers truncates, and so must the whole.

    Raises
    ------
    ValueError
        A hole reads as a value that has no place in the dtype.
    """
    fills = []
    for row, fill in enumerate(manifest.fills):
        try:
            fills.append(Fill(dtype, cast_numbers(np.asarray(fill.value, fill.dtype), dtype).tobytes()))
        except ValueError:
            if (manifest.holes & (manifest.entries["encoding"] == row)).any():
                raise
            fills.append(Fill.zero(dtype))
    encodings = tuple(
        replace(x, dtype=dtype, codecs=(cast_codec(x.dtype, dtype), *x.codecs)) for x in manifest.encodings
    )
    return replace(manifest, fills=tuple(fills), encodings=encodings)
