"""What a user adds to a store: datasets, trees or files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import xarray as xr

from virtualstack.formats.base import ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.scanning import scan
from virtualstack.storage import Storage

__all__ = ["Part", "groups_of"]

type Part = xr.Dataset | xr.DataTree | str | os.PathLike[str]
"""A virtual dataset or tree, or the URL of a file."""

_ONE = xr.Dataset, xr.DataTree, str, os.PathLike


def groups_of(
    parts: Part | Iterable[Part], storage: Storage, /, *, is_tree: bool | None = None
) -> Sequence[ManifestGroup]:
    """Give the groups of parts, in their order; files are opened, many at once, as trees where these are wanted.

    Raises
    ------
    TypeError
        One is no part.
    ReaderError, StorageError
        A file cannot be described, or not be read.
    """
    listed = list(parts) if isinstance(parts, Iterable) and not isinstance(parts, _ONE) else [parts]
    for x in listed:
        if not isinstance(x, _ONE):
            raise TypeError(f"{x!r} is neither a virtual dataset or tree nor the URL of a file")
    urls = [x for x in listed if isinstance(x, (str, os.PathLike))]
    options = ReadOptions(is_tree=is_tree)
    scanned = iter(scan(urls, storage=storage, options=options) if urls else ())
    return [next(scanned) if isinstance(x, (str, os.PathLike)) else x.virtual.to_group() for x in listed]
