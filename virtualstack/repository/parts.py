"""What a user adds to a store: datasets, trees or files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import xarray as xr

from virtualstack.manifests import ManifestGroup
from virtualstack.scan import scan
from virtualstack.storage import Storage

__all__ = ["Part", "groups_of"]

type Part = xr.Dataset | xr.DataTree | str | os.PathLike[str]
"""A virtual dataset or tree, or the URL of a file."""


def groups_of(parts: Part | Iterable[Part], storage: Storage, /) -> Sequence[ManifestGroup]:
    """Give the groups of parts, in their order; files are opened, many at once.

    Raises
    ------
    ReaderError, StorageError
        A file cannot be described, or not be read.
    """
    listed = [parts] if isinstance(parts, (xr.Dataset, xr.DataTree, str, os.PathLike)) else list(parts)
    urls = [x for x in listed if isinstance(x, (str, os.PathLike))]
    scanned = iter(scan(urls, storage=storage) if urls else ())
    return [next(scanned) if isinstance(x, (str, os.PathLike)) else x.virtual.to_group() for x in listed]
