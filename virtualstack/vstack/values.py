"""Overwriting a region of a variable: new bytes go into the store, and the originals stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from virtualstack.manifests import ChunkManifest, ManifestArray, ManifestGroup, inline_array
from virtualstack.manifests.manifest import Overlay
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.vstack.format.names import new_id
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.stored import Stored
from virtualstack.vstack.touched import Patch
from virtualstack.vstack.write.values import write_values

__all__ = ["write"]


def write(
    store: Stored, path: str, region: object, values: Any, storage: Storage, /, *, raw: bool, message: str | None
) -> Snapshot:
    """Overwrite a region of a variable; see :meth:`~virtualstack.vstack.Repository.write`."""
    if not isinstance(path, str):
        raise TypeError(f"write() takes the name of a variable, not {path!r}")
    found = store.group[path]
    if not isinstance(found, ManifestArray):
        raise KeyError(f"'{path}' is a group, with the variables {sorted(found.arrays)}")
    patch = Patch.of(path, found, region, values, raw=raw)
    if patch is None:
        return store.snapshot
    where = "/" + path.strip("/")
    if isinstance(found.manifest, ChunkManifest):
        return store.write(_with_array(store.group, where, _patched(patch, storage)), message=message)
    segment = new_id()
    first, lines = patch.cells()
    fill = found.manifest.tables.fill
    whole = patch.whole(lines, storage)
    manifest = write_values(store.objects, segment, whole, [x - x[0] for x in lines], fill)
    return store.write(store.group, overlays={where: [Overlay(manifest, first)]}, message=message, segment=segment)


def _patched(patch: Patch, storage: Storage) -> ManifestArray:
    """Give a loaded variable with other values in a region."""
    array = patch.array
    whole = read_array(array, (), storage)
    whole[tuple(side.slice for side in patch.sides)] = patch.values
    return inline_array(
        whole,
        name=array.name or "",
        dims=array.dimension_names or (),
        attributes=array.attributes,
        cf=array.cf,
        fill=array.manifest.tables.fill,
    )


def _with_array(group: ManifestGroup, path: str, array: ManifestArray) -> ManifestGroup:
    """Put an array into the place of another one."""
    name, _, rest = path.removeprefix("/").partition("/")
    if not rest:
        return replace(group, arrays={**group.arrays, name: array})
    return replace(group, groups={**group.groups, name: _with_array(group.groups[name], "/" + rest, array)})
