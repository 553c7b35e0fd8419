"""Read the parts that a user adds to a store: datasets, trees or files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import xarray as xr

from virtualstack.dataset import loaded_dataset, to_group
from virtualstack.dataset.opening import account_for
from virtualstack.errors import UnsupportedFeatureError
from virtualstack.formats.base import ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.progress import Progress
from virtualstack.reading.nameless import inline_nameless
from virtualstack.scanning.many import scan
from virtualstack.storage import Allow, Storage
from virtualstack.storage.handles import Handle, is_one
from virtualstack.storage.listing import find_urls, is_pattern

type PartLike = xr.Dataset | xr.DataTree | str | os.PathLike[str] | Any
"""A virtual dataset or tree, the URL of a file, or another object that opens."""

_OPEN = xr.Dataset, xr.DataTree


def is_part(parts: PartLike | Iterable[PartLike], /) -> bool:
    """Return whether parts are one; so is what is none, of which `groups_from` tells."""
    return isinstance(parts, _OPEN) or is_one(parts) or not isinstance(parts, Iterable)


def groups_from(
    parts: PartLike | Iterable[PartLike],
    storage: Storage,
    allow: Allow = (),
    /,
    *,
    is_tree: bool | None = None,
    drop_variables: str | Iterable[str] = (),
    progress: Progress | bool | None = None,
) -> Sequence[ManifestGroup]:
    """Return the groups of parts, in their order; many files are opened at once, as trees if ``is_tree`` is true.

    Files may refer to the locations in ``allow`` too, as the store may.
    """
    given: list[Any] = [parts] if is_part(parts) else list(cast(Iterable[Any], parts))
    for x in given:
        if not isinstance(x, _OPEN) and not is_one(x):
            raise TypeError(f"{x!r} is neither a virtual dataset or tree nor the URL of a file")
    listed: list[Any] = []
    for x in given:
        is_some = isinstance(x, str | os.PathLike) and is_pattern(x)
        listed += map(Handle, find_urls([x], storage=storage)) if is_some else [x]
    urls = [x for x in listed if not isinstance(x, _OPEN)]
    options = ReadOptions.from_options(is_tree=is_tree, drop_variables=drop_variables, allow=allow)
    scanned = iter(scan(urls, storage=storage, options=options, progress=progress) if urls else ())
    groups = [
        options.without_dropped(x.virtual.to_group()) if isinstance(x, _OPEN) else _accounted(next(scanned))
        for x in listed
    ]
    return [inline_nameless(group, storage=storage.with_entries(*group.accesses())) for group in groups]


def _accounted(group: ManifestGroup) -> ManifestGroup:
    """Check that no variable of a file is lost."""
    try:
        account_for(group, "inline", with_children=True)
    except UnsupportedFeatureError as error:
        opened = f"vs.open_virtual_dataset('{group.url}', ...)"
        error.add_note(f"These are options of {opened}: pass the dataset that it returns instead of the URL")
        raise
    return group


def with_coordinates(group: ManifestGroup, storage: Storage, /) -> ManifestGroup:
    """Return the group of a file with its dimension coordinates loaded, as in a file that is opened."""
    groups = {name: with_coordinates(child, storage) for name, child in group.groups.items()}
    return replace(to_group(loaded_dataset(replace(group, groups={}), storage, None)), groups=groups)
