"""Writing of kerchunk references, and adding to them: existing ones are read, joined with new ones and rewritten."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from virtualstack.combine.addition import Addition, check_complete
from virtualstack.combine.members import Mode, with_members
from virtualstack.errors import Remedy, SourceNotFoundError, WriterError, check_word
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
    path: str | None = None,
    mode: Mode = "w",
    append_dim: str | None = None,
    ordered: bool = True,
    join: JoinToStore = "exact",
    combine_options: Mapping[str, Any] | None = None,
    storage: StorageLike = None,
    allow: Allow = None,
    **options: Any,
) -> dict[str, Any] | None:
    """Write a group as kerchunk references, or add it to existing references by name or along a dimension.

    Everything is checked before anything is written. A JSON file is rewritten as a whole. In a parquet directory, only
    files that differ are rewritten: if the dimension is the first one, record files of earlier chunks stay unchanged.
    """
    check_word("mode", mode, ("w-", "w", "a"))
    reached, path = Storage.from_option(storage), (path or "").strip("/")
    addition = Addition.from_options(
        mode="w-" if mode == "w" else mode,
        append_dim=append_dim,
        ordered=ordered,
        join=join,
        combine_options=combine_options,
        storage=reached,
    )
    if target is None and (append_dim is not None or mode == "a"):
        raise WriterError(
            "append_dim= and mode='a' add to existing references, but no target was given",
            Remedy("pass their path or URL"),
            feature="append_dim",
        )
    if target is None or (addition is None and mode == "w" and not path):
        group = with_members(ManifestGroup(), group, path, mode, reached) if path else group
        return write_kerchunk(group, target, storage=reached, **options)
    try:
        stored = _stored(absolute_url(target), reached, ReadOptions(allow=read_allowed_urls(allow)))
    except SourceNotFoundError:
        if addition is not None:
            raise
        stored = ManifestGroup()
    if addition is not None:
        old = stored[path] if path else stored
        if not isinstance(old, ManifestGroup):
            raise WriterError(
                f"'{path}' is a variable of '{target}', and no group", Remedy("give another", group=...), variable=path
            )
        group, _ = addition.add(old, group, bundled=_inline_in)
        mode = "w"
    write_kerchunk(with_members(stored, group, path, mode, reached), target, storage=reached, **options)
    return None


def _stored(url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
    stored = read_permitted(Kerchunk(), url, storage, options).with_access(
        access_of_source(None, url, storage, options)
    )
    check_complete(stored)
    return stored


def _inline_in(group: ManifestGroup) -> set[str]:
    """Return the names of the dimension coordinates, and of the variables whose values are all in the references."""
    return {
        name
        for name, array in group.arrays.items()
        if array.dimension_names == (name,)
        or (isinstance(array.manifest, ChunkManifest) and bool((array.manifest.entries["location"] == INLINE).all()))
    }
