"""Manifests whose entries are all found out at once, when one is asked for."""

from __future__ import annotations

import math

from virtualstack.errors import ManifestError, UnsupportedFeatureError
from virtualstack.manifests import ChunkManifest, PagedManifest
from virtualstack.manifests.paged import PageSource
from virtualstack.zarr.metadata.array import ArrayMetadata

__all__ = ["one_page"]


def one_page(source: PageSource, metadata: ArrayMetadata, /, *, path: str, where: str) -> PagedManifest:
    """Give the manifest of an array whose source has one page; nothing is read.

    Parameters
    ----------
    source
        Gives all cells, in C order.
    metadata
        Of the array.
    path
        Of the array in ``where``.
    where
        The store, for messages.

    Raises
    ------
    UnsupportedFeatureError
        The grid has more chunks than can be counted.
    """
    tables = ChunkManifest.empty((0,), metadata.fill)
    shape = metadata.grid.shape
    try:
        return PagedManifest(
            source=source,
            shape=shape,
            page_size=max(math.prod(shape), 1),
            tables=ChunkManifest(entries=tables.entries, fills=tables.fills, encodings=metadata.encodings()),
            url=f"{where}/{path}",
        )
    except ManifestError as error:
        raise UnsupportedFeatureError(f"'{path}' of '{where}': {error}", variable=path, feature="chunk grid") from error
