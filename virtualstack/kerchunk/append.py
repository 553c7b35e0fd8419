"""Writing of kerchunk references, and adding to them: existing ones are read, joined with new ones and rewritten."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from virtualstack.combine.addition import Addition, check_complete
from virtualstack.errors import WriterError
from virtualstack.formats.base import ReadOptions, access_of_source, read_permitted
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import absolute_url
from virtualstack.manifests import INLINE, ChunkManifest, ManifestGroup
from virtualstack.options import JoinToStore
from virtualstack.storage import Allow, Storage, StorageLike, read_allowed_urls


def to_kerchunk(
    group: ManifestGroup,
    target: str | os.PathLike[str] | None,
    /,
    *,
    append_dim: str | None = None,
    ordered: bool = True,
    join: JoinToStore = "exact",
    combine_options: Mapping[str, Any] | None = None,
    storage: StorageLike = None,
    allow: Allow = None,
    **options: Any,
) -> dict[str, Any] | None:
    """Write a group as kerchunk references, or append it to existing references along a dimension.

    Everything is checked before anything is written. A JSON file is rewritten as a whole. In a parquet directory, only
    files that differ are rewritten: if the dimension is the first one, record files of earlier chunks stay unchanged.
    """
    reached = Storage.from_option(storage)
    addition = Addition.from_options(
        append_dim=append_dim, ordered=ordered, join=join, combine_options=combine_options, storage=reached
    )
    if addition is None:
        return write_kerchunk(group, target, storage=reached, **options)
    if target is None:
        raise WriterError(
            "append_dim= appends to existing references, but no target was given. Pass their path or URL",
            feature="append_dim",
        )
    url, own = absolute_url(target), ReadOptions(allow=read_allowed_urls(allow))
    stored = read_permitted(Kerchunk(), url, reached, own).with_access(access_of_source(None, url, reached, own))
    check_complete(stored)
    made, _ = addition.add(stored, group, bundled=_inline_in)
    write_kerchunk(made, target, storage=reached, **options)
    return None


def _inline_in(group: ManifestGroup) -> set[str]:
    """Return the names of the dimension coordinates, and of the variables whose values are all in the references."""
    return {
        name
        for name, array in group.arrays.items()
        if array.dimension_names == (name,)
        or (isinstance(array.manifest, ChunkManifest) and bool((array.manifest.entries["location"] == INLINE).all()))
    }
