"""What a commit changes, in a few words for the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtualstack.manifests import same_value
from virtualstack.manifests.serialised.headers import same_header
from virtualstack.vstack.format.snapshot import ArrayNode, Snapshot

__all__ = ["changes_of"]

_NAMED = 5  # paths in a text


def changes_of(before: Snapshot, after: Snapshot, /) -> tuple[str, ...]:
    """Say what makes one snapshot of another, a text for each kind of change."""
    found: dict[str, list[str]] = {}
    for path, what in _changes(before, after):
        found.setdefault(what, []).append(path or "/")
    return tuple(f"{_names(sorted(paths))}: {what}" for what, paths in found.items())


def _names(paths: Sequence[str]) -> str:
    """Name paths, without the ``/`` of those in the root."""
    named = [path[1:] if path.count("/") == 1 and len(path) > 1 else path for path in paths[:_NAMED]]
    return ", ".join(named) + (f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else "")


def _changes(before: Snapshot, after: Snapshot) -> Iterator[tuple[str, str]]:
    for path in after.groups.keys() - before.groups.keys() - {""}:
        yield path, "new group"
    for path, node in after.arrays.items():
        old = before.arrays.get(path)
        if old is None:
            yield path, f"new, {node.header.sizes}"
        elif old is not node:
            yield from ((path, what) for what in _changes_of_array(old, node))
    for path in (*before.arrays, *before.groups):
        if path not in after.arrays and path not in after.groups:
            yield path, "removed"
    for path, group in after.groups.items():
        if path in before.groups and not _same(before.groups[path].attributes, group.attributes):
            yield path, "attributes"
    for old_url, new_url, _ in after.moved[len(before.moved) :]:
        yield old_url, f"now {new_url}"


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a is b or (a.keys() == b.keys() and all(same_value(a[name], b[name]) for name in a))


def _changes_of_array(old: ArrayNode, new: ArrayNode) -> Iterator[str]:
    a, b = old.header, new.header
    is_anew = old.generation != new.generation
    if a.dimension_names != b.dimension_names or a.dtype != b.dtype:
        yield f"anew, {b.sizes}"
        return
    sizes = list(zip(a.dims, a.grid.array_shape, b.grid.array_shape, strict=True))
    grown = [f"{dim} {n} to {m}" for dim, n, m in sizes if n != m]
    if grown:
        yield ", ".join(grown)
    elif is_anew:
        yield "values" if old.bundled and new.bundled else "anew"
    elif new.n_placed > old.n_placed:
        yield "chunks"
    if new.merged != old.merged:
        yield "compacted"
    if not grown and a.grid == b.grid and not same_header(a, b):
        yield "attributes"
