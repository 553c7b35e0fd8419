"""Writing a group into an Icechunk session, or adding it to a group: only chunks that differ are stored.

Everything is checked before anything is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from virtualstack.combine.addition import Addition, check_complete
from virtualstack.combine.members import Mode, with_members
from virtualstack.combine.region import Region
from virtualstack.errors import check_word
from virtualstack.icechunk.reader import SessionSources, read_session
from virtualstack.icechunk.writer import all_or_nothing, check_store, group_path, has_group, write_group
from virtualstack.manifests import INLINE, ManifestArray, ManifestGroup
from virtualstack.manifests.joining import overlaid
from virtualstack.manifests.manifest import Overlay
from virtualstack.options import JoinToStore, OnAbsent
from virtualstack.progress import Show
from virtualstack.storage import Storage, StorageLike
from virtualstack.zarr.client import Client
from virtualstack.zarr.forms import takes_grid, with_text_fill
from virtualstack.zarr.rewrite.rewrite import fitting

ICECHUNK = Client(name="references of Icechunk", takes_grid=takes_grid)
"""What Icechunk can express."""

_MAX_LOADED_BYTES = 64 << 20
"""Largest size in bytes of a variable of one chunk that is taken into memory if the repository holds the chunk."""


def to_icechunk(group: ManifestGroup, store: Any, /, **options: Any) -> None:
    """Write a group into a session, or add it to a group of the session.

    Existing chunks stay unchanged, with their checksums.
    """
    writing(**options)(group, store)


def writing(
    *,
    path: str | None = None,
    mode: Mode = "w-",
    append_dim: str | None = None,
    region: Region | None = None,
    ordered: bool = True,
    join: JoinToStore = "exact",
    combine_options: Mapping[str, Any] | None = None,
    storage: StorageLike = None,
    absent: OnAbsent = "raise",
    inline_limit: int = 1 << 20,
    rewrite: str | float | None = None,
    progress: Show | None = None,
) -> Callable[[ManifestGroup, Any], None]:
    """Check options, and return a function that writes a group into a store with them; see :func:`to_icechunk`."""
    sources = SessionSources()
    reached = Storage.from_option(storage).only(sources)
    addition = Addition.from_options(
        mode=mode,
        append_dim=append_dim,
        region=region,
        ordered=ordered,
        join=join,
        combine_options=combine_options,
        storage=reached,
    )
    check_word("mode", mode, ("w-", "w", "a"))
    fitted = fitting(ICECHUNK, inline_limit=inline_limit, rewrite=rewrite, absent=absent, storage=reached)
    at = group_path(path)

    def write(group: ManifestGroup, store: Any) -> None:
        store, group = check_store(store), group.map_arrays(with_text_fill)
        with all_or_nothing(store):
            if addition is not None:
                stored = _stored(store, at, sources)
                check_complete(stored)
                made, overlays = addition.add(stored, group)
                previous = _by_path(stored, at)
                write_group(_overlaid(made, overlays), store, at, fitted, previous=previous, progress=progress)
            elif not has_group(store, at) or mode == "w":
                write_group(group, store, at, fitted, replaces=mode == "w", progress=progress)
            else:
                stored = _stored(store, at, sources)
                made = with_members(stored, group, "", mode, reached)
                kept = {id(x) for x in _by_path(made, at).values()}
                previous = {where: x for where, x in _by_path(stored, at).items() if id(x) in kept}
                write_group(made, store, at, fitted, previous=previous, progress=progress)

    return write


def _stored(store: Any, path: str, sources: SessionSources) -> ManifestGroup:
    """Read a group of a session; coordinates and variables of one inline chunk are in memory."""
    return read_session(store, path, sources=sources).map_arrays(_loaded)


def _loaded(array: ManifestArray) -> ManifestArray:
    """Return an array in memory if it is a dimension coordinate, or small with one chunk that the repository holds."""
    leaf = (array.name or "").rpartition("/")[2]
    if array.dimension_names == (leaf,):
        return array.whole()
    if array.nbytes > _MAX_LOADED_BYTES or math.prod(array.grid.shape) != 1:
        return array
    whole = array.whole()
    return whole if bool((whole.in_memory().entries["location"] == INLINE).all()) else array


def _by_path(group: ManifestGroup, path: str) -> dict[str, ManifestArray]:
    return {
        f"{path}{below}/{name}".strip("/"): array for below, node in group.walk() for name, array in node.arrays.items()
    }


def _overlaid(group: ManifestGroup, overlays: Mapping[str, Sequence[Overlay]], path: str = "") -> ManifestGroup:
    """Return a group whose arrays have the chunks of overlays instead of their own."""
    over = {name: overlays.get(f"{path}/{name}", ()) for name in group.arrays}
    arrays = {
        name: replace(array, manifest=overlaid(array.in_memory(), over[name])) if over[name] else array
        for name, array in group.arrays.items()
    }
    groups = {name: _overlaid(child, overlays, f"{path}/{name}") for name, child in group.groups.items()}
    return replace(group, arrays=arrays, groups=groups)
