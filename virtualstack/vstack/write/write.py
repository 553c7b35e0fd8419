"""Write a group as the newest snapshot of a store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from virtualstack.errors import ConflictError, Remedy, SourceNotFoundError, WriterError
from virtualstack.manifests import INLINE, ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.manifests.joining import overlaid
from virtualstack.manifests.manifest import Overlay
from virtualstack.manifests.serialised.headers import ArrayHeader, same_group_header, same_header
from virtualstack.progress import Show, reported
from virtualstack.storage import ObjectStore
from virtualstack.storage.dry_run import is_pending
from virtualstack.vstack.checksums import with_fingerprint
from virtualstack.vstack.format.history import MAX_BUNDLE_BYTES, OpenStore, bundle_chunk, make_token
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.manifest import StoredManifest
from virtualstack.vstack.format.names import SEGMENTS, new_id
from virtualstack.vstack.format.snapshot import LAYOUT_OF, Layout, Snapshot, check_names
from virtualstack.vstack.format.sources import Prefixes
from virtualstack.vstack.write.commit import check_there, commit
from virtualstack.vstack.write.edit import ArrayEdit, Edit
from virtualstack.vstack.write.layouts import FILL_BYTES, changes_of, fill
from virtualstack.vstack.write.placing import Piece, count_columns, place, split_into_pieces
from virtualstack.vstack.write.segment import SegmentWriter
from virtualstack.vstack.write.values import ValuesWriter, in_chunks

_MAX_BUNDLED_BYTES = 1 << 16
"""Maximum bytes of a bundled variable that is not a dimension coordinate."""

_MAX_BUNDLED_INDEX_BYTES = 1 << 28
"""Maximum bytes of a bundled dimension coordinate."""


def write_group(
    store: OpenStore,
    base: Snapshot,
    group: ManifestGroup,
    /,
    *,
    overlays: Mapping[str, Sequence[Overlay]] | None = None,
    message: str | None = None,
    relative: bool = False,
    checksums: bool = False,
    segment: str | None = None,
    always: bool = True,
    progress: Show | None = None,
    recipe: str | None = None,
    ledger: Sequence[Entry] = (),
    layouts: Mapping[str, Layout] | None = None,
    max_bytes: int = FILL_BYTES,
    keep_layouts: bool = False,
) -> Snapshot:
    """Write a group as the newest snapshot of a store.

    References that the store already has are not written again. For manifests that are not in memory, memory does not
    grow with the number of references.
    """
    edit = make_edit(
        store,
        base,
        group,
        overlays or {},
        relative=relative,
        checksums=checksums,
        segment=segment,
        progress=progress,
        layouts=layouts,
        max_bytes=max_bytes,
        keep_layouts=keep_layouts,
    )
    edit = replace(edit, recipe=recipe, ledger=tuple(ledger))
    if edit.is_empty and not always:
        return base
    return commit(store, base, edit, message=message)


def is_bundled(path: str, array: ManifestArray, /) -> bool:
    """Return whether the bundle of a snapshot holds all values of an array: a loaded coordinate, or a small array.

    Readers refuse a bundle, and thus the store, if a chunk has no bytes or other bytes than its encoding requires.
    """
    manifest = array.manifest
    if not isinstance(manifest, ChunkManifest) or manifest.entries.size != 1 or manifest.starts is not None:
        return False
    entry = manifest.entries.reshape(-1)[0]
    if entry["location"] != INLINE or not entry["length"] or len(manifest.encodings) != 1:
        return False
    if not manifest.inline_fits():
        return False
    is_index = array.dimension_names == (path.rpartition("/")[2],)
    return len(manifest.inline) <= (_MAX_BUNDLED_INDEX_BYTES if is_index else _MAX_BUNDLED_BYTES)


def make_edit(
    store: OpenStore,
    base: Snapshot,
    group: ManifestGroup,
    overlays: Mapping[str, Sequence[Overlay]],
    /,
    *,
    relative: bool,
    checksums: bool = False,
    segment: str | None = None,
    progress: Show | None = None,
    layouts: Mapping[str, Layout] | None = None,
    max_bytes: int = FILL_BYTES,
    keep_layouts: bool = False,
) -> Edit:
    """Write the differences of a group from a snapshot, and return the edit; ``layouts`` are declared by it.

    With ``keep_layouts``, layouts of the snapshot cannot become ordinary variables.
    """
    check_names(group)
    objects, bundle = store.objects, store.bundle(base)
    groups = {path: _alone(node) for path, node in group.walk()}
    arrays = {
        f"{path}/{name}": replace(array, name=name, attributes=_own_attributes(array))
        for path, node in group.walk()
        for name, array in node.arrays.items()
    }
    edits: dict[str, ArrayEdit] = {}
    pieces: dict[str, list[Piece]] = {}
    bundled = _that_fit(arrays)
    for path, array in arrays.items():
        if path in bundled:
            change = _bundled(path, array, base, bundle)
            if change is not None:
                edits[path] = change
        else:
            array = arrays[path] = in_chunks(array, objects.storage)
            over = [Piece(x.manifest, x.begin) for x in overlays.get(path, ()) if 0 not in x.manifest.shape]
            pieces[path] = [*split_into_pieces(array, objects.url, base=base, permission=store.permission), *over]
    _check_there(pieces, base, objects)
    reached = objects.storage.with_entries(*group.accesses())
    name = segment or new_id()
    n_values = 0 if segment is None else sum(len(x.manifest.tables.locations) for y in overlays.values() for x in y)
    values = ValuesWriter(objects, name, n_values)
    kept = _kept_layouts(base, arrays, pieces)
    if keep_layouts:
        _check_ended({path: x for path, x in base.layouts.items() if path not in kept}, arrays, pieces, base)
    layouts = {**kept, **(layouts or {})}
    for path, layout in layouts.items():
        _check_layout(path, layout, arrays, bundled)
        array, above = arrays[layout.of], overlays.get(layout.of, ())
        changes = changes_of(layout.of, array, pieces[layout.of], base)
        if above:
            array = replace(array, manifest=overlaid(array.in_memory(), above))
        old = arrays.get(path)
        arrays[path], added = fill(layout, array, changes, old, values, reached, max_bytes)
        pieces[path] = [*(pieces[path] if old is not None and all(changes.kept) else ()), *added]
    own = [piece for each in pieces.values() for piece in each if not piece.is_stored]
    columns = count_columns(own)
    n_rows = sum(math.prod(piece.manifest.shape) for piece in own)
    fingerprint = partial(with_fingerprint, storage=reached, store=objects.url, checksums=checksums)
    writer = SegmentWriter(objects.target, columns=columns, n_rows=n_rows, fingerprint=fingerprint, name=name)
    for path, each in reported(pieces.items(), progress):
        keeps = bool(each) and _is_whole_array(each[0], path, base)
        if len(each) == keeps and _is_same(path, arrays[path], base):
            continue
        parts = [place(piece, writer, columns) for piece in (each[1:] if keeps else each)]
        edits[path] = ArrayEdit(header=ArrayHeader.from_array(arrays[path]), parts=parts, keeps=keeps)
    removed = frozenset(base.groups.keys() - groups.keys() | base.arrays.keys() - arrays.keys())
    changed = {
        path: node
        for path, node in groups.items()
        if path not in base.groups or not same_group_header(base.groups[path], node)
    }
    declared = None if layouts == base.layouts else layouts
    if not own:
        return Edit(arrays=edits, groups=changed, removed=removed, layouts=declared)
    _check_values(writer, objects)
    prefixes = Prefixes(store=objects.url, table=base.prefixes, moved=base.moved)
    written, chosen = writer.close(prefixes, relative=relative)
    return Edit(
        arrays=edits,
        groups=changed,
        removed=removed,
        segment=written,
        prefixes=chosen,
        n_values=values.n_objects,
        layouts=declared,
    )


def _own_attributes(array: ManifestArray) -> Mapping[str, Any]:
    """Return attributes without the one that readers add to layouts."""
    if LAYOUT_OF not in array.attributes:
        return array.attributes
    return {key: value for key, value in array.attributes.items() if key != LAYOUT_OF}


def _kept_layouts(
    base: Snapshot, arrays: Mapping[str, ManifestArray], pieces: Mapping[str, Sequence[Piece]]
) -> dict[str, Layout]:
    """Return the layouts of a snapshot whose chunks a change leaves as they are."""
    return {
        path: layout
        for path, layout in base.layouts.items()
        if path in arrays and [_is_whole_array(x, path, base) for x in pieces.get(path, ())] == [True]
    }


def _check_layout(path: str, layout: Layout, arrays: Mapping[str, ManifestArray], bundled: Set[str]) -> None:
    array, own = arrays.get(layout.of), arrays.get(path)
    if array is None or layout.of in bundled:
        what = "removes or renames it" if array is None else "replaces it by a few values"
    elif own is not None and own.dimension_names != array.dimension_names:
        what = "changes its dimensions"
    else:
        return
    raise _left_behind(path, layout, what)


def _check_ended(
    ended: Mapping[str, Layout],
    arrays: Mapping[str, ManifestArray],
    pieces: Mapping[str, Sequence[Piece]],
    base: Snapshot,
) -> None:
    """Check that a change drops the layouts that it ends, or the variables whose values they have."""
    stored = [x.manifest for each in pieces.values() for x in each if isinstance(x.manifest, StoredManifest)]
    for path, layout in ended.items():
        if path in arrays:
            raise _left_behind(path, layout, "selects, reorders or replaces them")
        if all(any(x.token == make_token(x.url, base, part) for x in stored) for part in (path, layout.of)):
            raise _left_behind(path, layout, "renames or copies them")


def _left_behind(path: str, layout: Layout, what: str) -> WriterError:
    return WriterError(
        f"'{path}' has the values of '{layout.of}' in other chunks, and this change {what}",
        Remedy("drop both, or first drop '{}' with {{}}".format(path.rpartition("/")[2]), "Repository.edit"),
        variable=path,
        feature="layout",
    )


def _that_fit(arrays: Mapping[str, ManifestArray]) -> set[str]:
    """Return the paths of the arrays that are bundled: the smallest first, up to the maximum size of a bundle."""
    sizes = {path: _nbytes(array) for path, array in arrays.items() if is_bundled(path, array)}
    smallest = sorted(sizes, key=lambda path: sizes[path])
    return {
        path
        for path, total in zip(smallest, accumulate(sizes[x] for x in smallest), strict=True)
        if total <= MAX_BUNDLE_BYTES
    }


def _nbytes(array: ManifestArray) -> int:
    return len(array.in_memory().inline)


def _check_there(pieces: Mapping[str, Sequence[Piece]], base: Snapshot, objects: ObjectStore) -> None:
    """Check that the snapshots that pieces in the store come from were not expired since they were opened."""
    stored = [x.manifest for each in pieces.values() for x in each if isinstance(x.manifest, StoredManifest)]
    for number, time in {x.token[1:3] for x in stored if x.url == objects.url} - {(base.number, base.time)}:
        check_there(objects, number, time)


def _check_values(writer: SegmentWriter, objects: ObjectStore) -> None:
    """Check that values in the store that an earlier snapshot puts back were not expired."""
    values = f"{objects.url}{SEGMENTS}/"
    urls = [x.url for x in writer.sources if x.url.startswith(values) and not is_pending(x.url)]
    for url, found in zip(urls, objects.storage.look_up(urls), strict=True):
        if isinstance(found, SourceNotFoundError):
            raise ConflictError(
                f"values that this change would store again have expired since they were opened: '{url}'. Nothing was "
                "committed",
                Remedy("open the store again, and repeat the change"),
            ) from found


def _alone(group: ManifestGroup) -> ManifestGroup:
    """Return a group without arrays and child groups; refusals of the reader become notes."""
    refusals = tuple(replace(x, kind="noted") if x.kind == "refused" else x for x in group.refusals)
    return replace(group, arrays={}, groups={}, refusals=refusals)


def _bundled(path: str, array: ManifestArray, base: Snapshot, bundle: bytes) -> ArrayEdit | None:
    """Return the edit of a loaded variable; ``None`` if the store has the variable already."""
    manifest = array.in_memory()
    entry = manifest.entries.reshape(-1)[0]
    raw = manifest.inline[int(entry["offset"]) : int(entry["offset"]) + int(entry["length"])]
    chunk = bundle_chunk(raw, array.itemsize)
    old = base.arrays.get(path)
    header = ArrayHeader.from_array(array)
    if old is not None and old.bundled is not None and same_header(old.header, header):
        offset, length = old.bundled
        if bundle[offset : offset + length] == chunk and old.header.encodings == header.encodings:
            return None
    return ArrayEdit(header=header, chunk=chunk)


def _is_whole_array(piece: Piece, path: str, base: Snapshot) -> bool:
    """Return whether a piece is the whole array of a snapshot, in its place."""
    stored, node = piece.manifest, base.arrays.get(path)
    if not isinstance(stored, StoredManifest) or node is None or node.bundled is not None:
        return False
    zeros = (0,) * len(stored.shape)
    is_whole = piece.begin == zeros and piece.low == zeros and piece.high == stored.shape
    return is_whole and stored.token == make_token(stored.url, base, path) and stored.placements == node.placements


def _is_same(path: str, array: ManifestArray, base: Snapshot) -> bool:
    node = base.arrays.get(path)
    return node is not None and node.bundled is None and same_header(node.header, ArrayHeader.from_array(array))
