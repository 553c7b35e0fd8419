"""Apply an edit of one snapshot to a newer one, or refuse it if the changes of two writers conflict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ConflictError
from virtualstack.manifests import ManifestGroup, same_value
from virtualstack.manifests.serialised.headers import same_group_header, same_header
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.history import array_in, bundle_bytes
from virtualstack.vstack.format.rows import Placements
from virtualstack.vstack.format.snapshot import ArrayNode, Snapshot
from virtualstack.vstack.write.edit import ArrayEdit, Edit, rows_since


def rebased(edit: Edit, base: Snapshot, head: Snapshot, archive: Archive, /) -> Edit:
    """Return the edit of a newer snapshot that has the effect of an edit of an older one.

    Placements that both writers add must be in different cells. Metadata that only one writer changes gets that
    writer's values.
    """
    url = archive.url.rstrip("/")
    _check_places(edit, base, head, archive)
    _check_layouts(edit, base, head, url)
    for path in edit.removed:
        if path in base.groups and not _same_group(base.groups[path], head.groups.get(path)):
            raise _conflict(f"group '{path or '/'}'", url, head)
    groups = {path: _merged(path, group, base.groups.get(path), head, url) for path, group in edit.groups.items()}
    for path in edit.removed:
        if path in base.arrays and not _is_same(base.arrays[path], head.arrays.get(path)):
            raise _conflict(f"variable '{path}'", url, head)
    arrays = {
        path: _rebased(path, change, base.arrays.get(path), head, archive) for path, change in edit.arrays.items()
    }
    return replace(edit, arrays=arrays, groups=groups)


def _check_places(edit: Edit, base: Snapshot, head: Snapshot, archive: Archive) -> None:
    """Check that the edit names no source in a folder from which another writer relocated sources.

    The edit must not relocate sources from a folder from which, or to which, another writer relocated some. Rows of
    ``base`` that are written again, as compaction does, would undo the relocation.
    """
    for old, new, _ in head.moved[len(base.moved) :]:
        moves = any(_meet(x, place) for x, _ in edit.moved for place in (old, new))
        names = any(_meet(x, old) for x in edit.prefixes) and any(x.startswith(old) for x in _sources(edit, archive))
        if moves or names:
            raise _conflict(f"the relocation of '{old}'", archive.url.rstrip("/"), head)


def _check_layouts(edit: Edit, base: Snapshot, head: Snapshot, url: str) -> None:
    """Check that layouts which one writer declares do not lag behind arrays which the other one changes."""
    if edit.layouts is not None:
        arrays = {layout.of for layout in edit.layouts.values()}
        if head.layouts != base.layouts:
            raise _conflict("the layouts", url, head)
        for path in arrays & base.arrays.keys():
            if not _is_same(base.arrays[path], head.arrays.get(path)):
                raise _conflict(f"variable '{path}'", url, head)
    elif head.layouts != base.layouts:
        for path, layout in head.layouts.items():
            own = edit.arrays.get(layout.of)
            if base.layouts.get(path) != layout and ((own and not own.merges) or layout.of in edit.removed):
                raise _conflict(f"the layouts of variable '{layout.of}'", url, head)


def _meet(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a)


def _sources(edit: Edit, archive: Archive) -> Iterator[str]:
    """Yield the sources of an edit in their written form; a prefix alone may cover other folders too."""
    if edit.segment is not None:
        for page in range(edit.segment.n_pages):
            for row in archive.source_rows(edit.segment, page):
                yield edit.prefixes[row[0]] + row[1]


def _rebased(path: str, change: ArrayEdit, old: ArrayNode | None, head: Snapshot, archive: Archive) -> ArrayEdit:
    url, new = archive.url.rstrip("/"), head.arrays.get(path)
    if (old is None and new is None) or (old is not None and _is_same(old, new)):
        return change
    if old is None or new is None or change.chunk is not None or not (change.keeps or change.merges):
        raise _conflict(f"variable '{path}'", url, head)
    theirs = rows_since(new, old.n_placed, archive) if _is_grown(old, new) else None
    if theirs is None:
        raise _conflict(f"variable '{path}'", url, head)
    if not change.merges and any(_overlap(theirs, Placements(part.rows)) for part in change.parts):
        raise _conflict(f"the same chunks of variable '{path}'", url, head)
    if same_header(old.header, new.header) or same_header(change.header, new.header):
        return change
    if not same_header(change.header, old.header):
        raise _conflict(f"metadata of variable '{path}'", url, head)
    return replace(change, header=new.header)


def _conflict(what: str, url: str, head: Snapshot) -> ConflictError:
    return ConflictError(
        f"another writer changed {what} of '{url}' (snapshot {head.number}) after this change was begun, and nothing "
        "was committed. Go on with the repository that the last change returned, or open the store again"
    )


def _same_group(a: ManifestGroup, b: ManifestGroup | None) -> bool:
    return b is not None and same_group_header(a, b)


def _merged(path: str, ours: ManifestGroup, base: ManifestGroup | None, head: Snapshot, url: str) -> ManifestGroup:
    """Return a group with the changes of two writers."""
    theirs = head.groups.get(path)
    if theirs is None and base is None:
        return ours
    if theirs is None or base is None:
        if theirs is not None and same_group_header(ours, theirs):
            return ours
        raise _conflict(f"group '{path or '/'}'", url, head)
    fields: dict[str, Any] = {}
    for name in ("attributes", "dimensions"):
        before, now, wanted = (getattr(group, name) for group in (base, theirs, ours))
        changed = {key for key in before.keys() | wanted.keys() if not _same_item(key, before, wanted)}
        for key in changed:
            if not _same_item(key, before, now) and not _same_item(key, now, wanted):
                raise _conflict(f"'{key}' of the {name} of group '{path or '/'}'", url, head)
        kept = {key: value for key, value in now.items() if key not in changed}
        fields[name] = kept | {key: value for key, value in wanted.items() if key in changed}
    for name in ("coordinates", "unlimited", "not_text", "loaded"):
        before, now, wanted = (getattr(group, name) for group in (base, theirs, ours))
        fields[name] = (now - (before - wanted)) | (wanted - before)
    known = tuple(x for x in theirs.refusals if x not in base.refusals or x in ours.refusals)
    fields["refusals"] = known + tuple(x for x in ours.refusals if x not in base.refusals and x not in known)
    return replace(ours, **fields)


def _same_item(key: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return (key in a) == (key in b) and (key not in a or same_value(a[key], b[key]))


def _is_same(before: ArrayNode, now: ArrayNode | None) -> bool:
    """Return whether an array is unchanged, apart from compaction of its placements."""
    return (
        now is not None
        and before.generation == now.generation
        and before.n_placed == now.n_placed
        and same_header(before.header, now.header)
    )


def _is_grown(before: ArrayNode, now: ArrayNode) -> bool:
    """Return whether all cells are still in their places."""
    if before.bundled is not None or now.bundled is not None or before.generation != now.generation:
        return False
    a, b = before.header, now.header
    if a.dtype != b.dtype or a.dimension_names != b.dimension_names:
        return False
    return all(x.begins(y) for x, y in zip(a.grid.axes, b.grid.axes, strict=True))


def _overlap(a: Placements, b: Placements) -> bool:
    low = np.maximum(a.begins[:, None], b.begins)
    high = np.minimum(a.ends[:, None], b.ends)
    meets: NDArray[np.bool_] = (low < high).all(2)
    return bool(meets.any())


# -- relations between variables --------------------------------------------------------------------------------


def check_together(made: Snapshot, edit: Edit, base: Snapshot, head: Snapshot, archive: Archive, /) -> None:
    """Check that changes of two writers in different variables form one tree and one dataset."""
    url = archive.url.rstrip("/")
    for path in (*made.arrays, *made.groups):
        if path and (_folder(path) not in made.groups or (path in made.arrays and path in made.groups)):
            raise _conflict(f"the groups around '{path}'", url, head)
    theirs = {path: node for path, node in head.arrays.items() if not _is_kept(path, node, base)}
    for path in edit.arrays:
        mine = dict(_dims(path, made.arrays[path]))
        for other, node in theirs.items():
            if other in edit.arrays or not _in_line(path, other):
                continue
            for dim, n in _dims(other, node):
                if mine.get(dim, n) != n:
                    raise _conflict(f"the length of dimension '{dim}' in group '{_folder(other) or '/'}'", url, head)
            labels = other.rpartition("/")[2]
            if labels in mine and other in base.arrays and not _is_longer(other, base, head, archive):
                raise _conflict(f"the labels '{other}' of variable '{path}'", url, head)


def _is_kept(path: str, node: ArrayNode, base: Snapshot) -> bool:
    old = base.arrays.get(path)
    return old is not None and _is_same(old, node)


def _in_line(path: str, other: str) -> bool:
    """Return whether the group of one variable is the group of the other, or above or below it."""
    a, b = f"{_folder(path)}/", f"{_folder(other)}/"
    return a.startswith(b) or b.startswith(a)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _dims(path: str, node: ArrayNode) -> Iterator[tuple[str, int]]:
    header = node.header
    return zip(header.dimension_names or (), header.grid.array_shape, strict=header.dimension_names is not None)


def _is_longer(path: str, base: Snapshot, head: Snapshot, archive: Archive) -> bool:
    """Return whether all old labels are still in their places."""
    old, new = base.arrays[path], head.arrays[path]
    if old.bundled is None or new.bundled is None:
        return _is_grown(old, new) and rows_since(new, old.n_placed, archive) is not None
    a, b = old.header, new.header
    if not same_header(a, replace(b, grid=a.grid)) or len(a.grid.axes) != 1:
        return False
    before, now = (
        array_in(snapshot, path, archive, bundle_bytes(snapshot, archive.objects)).in_memory()
        for snapshot in (base, head)
    )
    flat = all(x.encodings[0].strides == (1,) and not x.encodings[0].codecs for x in (before, now))
    return flat and before.encodings[0].dtype == now.encodings[0].dtype and now.inline.startswith(before.inline)


_MAX_NAMED_PATHS = 5  # maximum number of paths in a text


def describe_changes(before: Snapshot, after: Snapshot, /) -> tuple[str, ...]:
    """Return the differences between two snapshots as texts, one for each kind of change."""
    found: dict[str, list[str]] = {}
    for path, what in _changes(before, after):
        found.setdefault(what, []).append(path or "/")
    return tuple(f"{_names(sorted(paths))}: {what}" for what, paths in found.items())


def _names(paths: Sequence[str]) -> str:
    """Return the first paths as text, without the ``/`` of paths in the root."""
    named = [path[1:] if path.count("/") == 1 and len(path) > 1 else path for path in paths[:_MAX_NAMED_PATHS]]
    return ", ".join(named) + (f" and {len(paths) - _MAX_NAMED_PATHS} more" if len(paths) > _MAX_NAMED_PATHS else "")


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
        if path in before.groups and not _same_attributes(before.groups[path].attributes, group.attributes):
            yield path, "attributes"
    for old_url, new_url, _ in after.moved[len(before.moved) :]:
        yield old_url, f"now {new_url}"
    if after.recipe != before.recipe:
        yield "recipe", "new" if before.recipe is None else "changed"


def _same_attributes(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a is b or (a.keys() == b.keys() and all(same_value(a[name], b[name]) for name in a))


def _changes_of_array(old: ArrayNode, new: ArrayNode) -> Iterator[str]:
    a, b = old.header, new.header
    is_anew = old.generation != new.generation
    if a.dimension_names != b.dimension_names:
        yield f"anew, {b.sizes}"
        return
    sizes = list(zip(a.dims, a.grid.array_shape, b.grid.array_shape, strict=True))
    grown = [f"dtype {a.dtype} to {b.dtype}"] if a.dtype != b.dtype else []
    grown += [f"{dim} {n} to {m}" for dim, n, m in sizes if n != m]
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
