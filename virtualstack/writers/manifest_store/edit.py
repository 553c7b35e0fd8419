"""What a writer changes, and what becomes of a snapshot by it: computed again where another writer was faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import ConflictError
from virtualstack.formats.manifest_store.archive import Archive, Segment
from virtualstack.formats.manifest_store.documents import dump
from virtualstack.formats.manifest_store.names import new_id, page_key
from virtualstack.formats.manifest_store.placements import Placements, width
from virtualstack.formats.manifest_store.snapshot import ArrayNode, Snapshot
from virtualstack.formats.manifest_store.sources import Prefixes
from virtualstack.formats.manifest_store.tables import FULL, TAIL, PageRef, Table
from virtualstack.formats.plain_headers import ArrayHeader, same_group_header, same_header
from virtualstack.manifests import ManifestGroup
from virtualstack.storage import Target
from virtualstack.writers.manifest_store.placing import OWN, Part

__all__ = ["ArrayEdit", "Edit", "applied", "check_conflicts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayEdit:
    """An array as it shall be.

    Parameters
    ----------
    header
        Of it; of its encodings and fills the first fill alone counts.
    parts
        Placements to add, over those that there are.
    keeps
        Whether those that there are stay.
    chunk
        All its values as one compressed chunk for the bundle, in place of placements.
    """

    header: ArrayHeader
    parts: Sequence[Part] = ()
    keeps: bool = False
    chunk: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """What a writer changes in a snapshot.

    Parameters
    ----------
    arrays
        By path.
    groups
        By path; without arrays and children.
    removed
        Paths of arrays and groups that are gone.
    segment
        That was written, and the prefixes that its sources count.
    prefixes
        The same.
    moved
        Old and new beginning of the locations of sources, in order.
    """

    arrays: Mapping[str, ArrayEdit] = field(default_factory=dict)
    groups: Mapping[str, ManifestGroup] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    segment: Segment | None = None
    prefixes: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not (self.arrays or self.groups or self.removed or self.segment)


def applied(edit: Edit, head: Snapshot, archive: Archive, target: Target, /) -> Snapshot:
    """Give the snapshot that an edit makes of another one; pages that become full are written.

    The bundle is not looked at.
    """
    number = head.segments.n
    segments = head.segments
    prefixes = Prefixes(store=archive.url, table=head.prefixes, moved=head.moved)
    for old, new in edit.moved:
        prefixes = prefixes.relocated(old, new)
    if edit.segment is not None:
        prefixes, numbers = prefixes.numbers_of(edit.prefixes)
        row = replace(edit.segment, prefixes=numbers).document()
        segments = _with_rows(segments, [row], archive, target)
    arrays = {path: node for path, node in head.arrays.items() if path not in edit.removed}
    for path, change in edit.arrays.items():
        arrays[path] = _changed(path, change, head.arrays.get(path), number, head.number + 1, archive, target)
    groups = {path: group for path, group in head.groups.items() if path not in edit.removed}
    return replace(
        head,
        arrays=arrays,
        groups={**groups, **edit.groups},
        segments=segments,
        prefixes=prefixes.table,
        moved=prefixes.moved,
    )


def _changed(
    path: str, change: ArrayEdit, old: ArrayNode | None, own: int, number: int, archive: Archive, target: Target
) -> ArrayNode:
    header = change.header
    if change.chunk is not None:
        return ArrayNode(header=header, generation=number)
    keeps = change.keeps and old is not None
    table = old.placements if keeps and old is not None else Table()
    encodings = list(old.header.encodings) if keeps and old is not None else []
    fills = list(old.header.fills) if keeps and old is not None else [header.fills[0]]
    rows = []
    for part in change.parts:
        added = part.rows.copy()
        added[:, 0] = np.where(added[:, 0] == OWN, own, added[:, 0])
        added[:, 2] += _base(encodings, part.encodings)
        added[:, 3] += _base(fills, part.fills)
        rows.append(added)
    new = np.concatenate(rows) if rows else np.zeros((0, width(len(header.grid.axes))), np.int64)
    return ArrayNode(
        header=replace(header, encodings=tuple(encodings), fills=tuple(fills)),
        placements=_with_rows(table, new.tolist(), archive, target, ndim=len(header.grid.axes)),
        generation=old.generation if keeps and old is not None else number,
    )


def _base[T](table: list[T], items: Sequence[T]) -> int:
    """Give where items stand in a table, one behind the other; they are added where they do not."""
    n = len(items)
    for base in range(len(table) - n + 1):
        if table[base : base + n] == list(items):
            return base
    table += items
    return len(table) - n


def _with_rows(
    table: Table, rows: Sequence[object], archive: Archive, target: Target, *, ndim: int | None = None
) -> Table:
    """Give a table with more rows; those that the snapshot has no place for go to pages."""
    tail = [*table.tail, *rows]
    pages = list(table.pages)
    if len(tail) > TAIL:
        if pages and pages[-1].n < FULL:
            tail = [*archive.page(pages.pop()), *tail]
        while len(tail) > TAIL:
            pages.append(_put_page(tail[:FULL], target, ndim))
            tail = tail[FULL:]
    return Table(tuple(pages), tuple(tail))


def _put_page(rows: Sequence[object], target: Target, ndim: int | None) -> PageRef:
    name = new_id()
    target.put(page_key(name), dump({"rows": rows}))
    if ndim is None:
        return PageRef(name, len(rows))
    placements = Placements(np.array(rows, np.int64).reshape(len(rows), width(ndim)))
    low, high = placements.begins.min(0).tolist(), placements.ends.max(0).tolist()
    return PageRef(name, len(rows), tuple(low), tuple(high))


# -- conflicts ------------------------------------------------------------------------------------------------


def check_conflicts(edit: Edit, base: Snapshot, head: Snapshot, archive: Archive, /) -> None:
    """Check that nothing that an edit is about has changed since the snapshot that it was made for.

    Raises
    ------
    ConflictError
        Another writer has changed the same.
    """
    url = archive.url.rstrip("/")
    for path in (*edit.groups, *(path for path in edit.removed if path in base.groups)):
        before, now = base.groups.get(path), head.groups.get(path)
        if before is not now and (before is None or now is None or not same_group_header(before, now)):
            raise _conflict(f"group '{path or '/'}'", url, head)
    for path in (*edit.arrays, *(path for path in edit.removed if path in base.arrays)):
        old, new = base.arrays.get(path), head.arrays.get(path)
        if old is None and new is None:
            continue
        change = edit.arrays.get(path)
        if old is not None and new is not None and _is_same(old, new):
            continue
        if old is None or new is None or change is None or not change.keeps or not _is_grown(old, new):
            raise _conflict(f"variable '{path}'", url, head)
        theirs = _rows_from(new.placements, old.placements.n, len(new.header.grid.axes), archive)
        if any(_overlap(theirs, Placements(part.rows)) for part in change.parts):
            raise _conflict(f"the same chunks of variable '{path}'", url, head)
    _check_tree(edit, head, url)


def _conflict(what: str, url: str, head: Snapshot) -> ConflictError:
    return ConflictError(
        f"another writer has changed {what} of '{url}' (snapshot {head.number}) since this change was begun, and "
        "nothing of it was committed: open the store again, and make the change there"
    )


def _is_same(before: ArrayNode, now: ArrayNode) -> bool:
    return before.generation == now.generation and before.placements == now.placements and _same_header(before, now)


def _is_grown(before: ArrayNode, now: ArrayNode) -> bool:
    """Whether nothing but placements were added."""
    is_array = before.bundled is None and now.bundled is None
    return is_array and before.generation == now.generation and _same_header(before, now)


def _same_header(before: ArrayNode, now: ArrayNode) -> bool:
    return before.header.grid == now.header.grid and same_header(before.header, now.header)


def _check_tree(edit: Edit, head: Snapshot, url: str) -> None:
    """Check that what is there after both changes forms a tree, and that dimensions of a group have one length."""
    groups = (head.groups.keys() - edit.removed) | edit.groups.keys()
    headers = {path: node.header for path, node in head.arrays.items()}
    after = {path: header for path, header in headers.items() if path not in edit.removed}
    after.update({path: change.header for path, change in edit.arrays.items()})
    for path in (*after, *groups):
        if path and (path.rpartition("/")[0] not in groups or (path in after and path in groups)):
            raise _conflict(f"the groups around '{path}'", url, head)
    was = _lengths(headers)
    for (folder, dim), lengths in _lengths(after).items():
        if len(lengths) > 1 and len(was.get((folder, dim), ())) < 2:
            raise _conflict(f"the length of dimension '{dim}' in group '{folder or '/'}'", url, head)


def _lengths(headers: Mapping[str, ArrayHeader]) -> dict[tuple[str, str], set[int]]:
    """Give the lengths that each dimension has in a group and those above it."""
    own: dict[tuple[str, str], set[int]] = {}
    for path, header in headers.items():
        for dim, axis in zip(header.dimension_names or (), header.grid.axes, strict=False):
            own.setdefault((path.rpartition("/")[0], dim), set()).add(axis.length)
    found = {}
    for folder, dim in own:
        above = [folder[:i] for i, letter in enumerate(folder) if letter == "/"]
        found[folder, dim] = own[folder, dim].union(*(own.get((x, dim), ()) for x in above))
    return found


def _rows_from(table: Table, n: int, ndim: int, archive: Archive) -> Placements:
    """Give the placements from the n-th on."""
    rows: list[object] = []
    first = 0
    for page in table.pages:
        if first + page.n > n:
            rows += archive.page(page)[max(n - first, 0) :]
        first += page.n
    rows += table.tail[max(n - first, 0) :]
    return Placements.of(rows, ndim, where=archive.url)  # type: ignore[arg-type]


def _overlap(a: Placements, b: Placements) -> bool:
    low = np.maximum(a.begins[:, None], b.begins)
    high = np.minimum(a.ends[:, None], b.ends)
    meets: NDArray[np.bool_] = (low < high).all(2)
    return bool(meets.any())
