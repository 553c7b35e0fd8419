"""Checks that cells are within their stored chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ManifestError
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding

__all__ = ["check_reach", "fit", "fits"]


def fits(encoding: ChunkEncoding, largest: Sequence[int], /) -> bool:
    """Return whether cells of at most ``largest`` elements along each axis, with start 0, are in the decoded chunk."""
    reach = sum((n - 1) * step for n, step in zip(largest, encoding.strides, strict=True))
    return all(step >= 0 for step in encoding.strides) and reach < encoding.size


def fit(encodings: Iterable[ChunkEncoding], largest: Sequence[int], /) -> bool:
    """Return whether :func:`fits` holds for all encodings."""
    return all(fits(encoding, largest) for encoding in encodings)


def check_reach(
    manifest: ChunkManifest,
    lengths: Sequence[NDArray[np.int64]],
    /,
    *,
    name: str | None,
    find_cell: Callable[[NDArray[np.bool_]], tuple[int, ...]],
) -> None:
    """Check that cells show only elements of their decoded chunks."""
    if not manifest.encodings:
        return
    row = manifest.encoding_rows
    low = manifest.all_starts.copy()
    high = low.copy()
    for i, n in enumerate(lengths):
        extent = (n - 1) * np.array([x.strides[i] for x in manifest.encodings], np.int64)[row]
        low += np.minimum(extent, 0)
        high += np.maximum(extent, 0)
    sizes = np.array([x.size for x in manifest.encodings], np.int64)[row]
    bad: NDArray[Any] = ((low < 0) | (high >= sizes)) & ~manifest.holes
    if bad.any():
        at = np.unravel_index(int(bad.argmax()), bad.shape)
        raise ManifestError(
            f"cell {find_cell(bad)} of '{name}' shows elements {int(low[at])} to {int(high[at])} of a decoded chunk of "
            f"{int(sizes[at])}"
        )
