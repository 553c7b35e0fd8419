"""Describe the changes of a writer as an edit, and apply it to a snapshot: again if another writer was faster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from virtualstack.errors import ManifestError
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.serialised.headers import ArrayHeader
from virtualstack.storage import Target
from virtualstack.vstack.format.archive import Archive, Segment
from virtualstack.vstack.format.counts import Counts
from virtualstack.vstack.format.documents import FULL_PAGE_ROWS, MAX_TAIL_ROWS, PageRef, Table, dump
from virtualstack.vstack.format.history import array_in
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.names import new_id, page_key, values_key
from virtualstack.vstack.format.rows import Placements, width
from virtualstack.vstack.format.snapshot import ArrayNode, Layout, Snapshot
from virtualstack.vstack.format.sources import Prefixes
from virtualstack.vstack.write.placing import OWN, PlacedPart


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayEdit:
    """The new state of an array."""

    header: ArrayHeader
    parts: Sequence[PlacedPart] = ()
    keeps: bool = False
    merges: int = 0
    chunk: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The changes of a writer to a snapshot.

    Parameters
    ----------
    arrays
        Edits of arrays by path.
    groups
        New or changed groups by path, without arrays and child groups.
    removed
        Paths of removed arrays and groups.
    segment
        The segment that was written.
    prefixes
        Prefixes that sources of the segment refer to by number.
    n_values
        Number of objects of values that were written to the segment before; they are its sources.
    moved
        Relocations in order: old and new beginning of locations.
    recipe
        The new recipe; ``None`` keeps the one of the store.
    ledger
        New entries of the ledger.
    layouts
        The new declarations of layouts; ``None`` keeps those of the store.
    """

    arrays: Mapping[str, ArrayEdit] = field(default_factory=dict)
    groups: Mapping[str, ManifestGroup] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    segment: Segment | None = None
    prefixes: tuple[str, ...] = ()
    n_values: int = 0
    moved: tuple[tuple[str, str], ...] = ()
    recipe: str | None = None
    ledger: tuple[Entry, ...] = ()
    layouts: Mapping[str, Layout] | None = None

    @property
    def keys(self) -> list[str]:
        """Keys of all objects of the segment."""
        if self.segment is None:
            return []
        return self.segment.keys() + [values_key(self.segment.name, part) for part in range(self.n_values)]

    @property
    def is_empty(self) -> bool:
        """True if the edit changes nothing."""
        changed = self.arrays or self.groups or self.removed or self.segment or self.moved or self.ledger
        return not changed and self.recipe is None and self.layouts is None


def applied(edit: Edit, head: Snapshot, archive: Archive, target: Target, /) -> Snapshot:
    """Return the snapshot that an edit makes from another; pages that become full are written.

    The bundle is not changed.
    """
    number = head.segments.n
    segments, pages = head.segments, _Pages(archive, target, 1 + len(head.arrays) // MAX_TAIL_ROWS)
    prefixes = Prefixes(store=archive.url, table=head.prefixes, moved=head.moved)
    for old, new in edit.moved:
        prefixes = prefixes.relocated(old, new)
    if edit.segment is not None:
        prefixes, numbers = prefixes.number_prefixes(edit.prefixes)
        row = replace(edit.segment, prefixes=numbers).document()
        segments = pages.with_rows(segments, [row])
    arrays = {path: node for path, node in head.arrays.items() if path not in edit.removed}
    for path, change in edit.arrays.items():
        node = _changed(change, head.arrays.get(path), number, head.number + 1, archive, pages)
        arrays[path] = replace(node, counts=_counts(path, change, node, head, archive))
    groups = {path: group for path, group in head.groups.items() if path not in edit.removed}
    ledger = head.ledger
    if edit.ledger:
        from virtualstack.vstack.ledger import with_entries  # Parquet is for stores with a recipe

        ledger = with_entries(ledger, edit.ledger, archive.ledger_page, target.put)
    return replace(
        head,
        arrays=arrays,
        groups={**groups, **edit.groups},
        segments=segments,
        prefixes=prefixes.table,
        moved=prefixes.moved,
        recipe=head.recipe if edit.recipe is None else edit.recipe,
        ledger=ledger,
        layouts=head.layouts if edit.layouts is None else edit.layouts,
    )


def _changed(
    change: ArrayEdit, old: ArrayNode | None, own: int, number: int, archive: Archive, pages: _Pages
) -> ArrayNode:
    header = change.header
    if change.chunk is not None:
        return ArrayNode(header=header, generation=number)
    if not change.keeps and not change.merges:
        old = None
    table = Table() if old is None or change.merges else old.placements
    encodings = [] if old is None else list(old.header.encodings)
    fills = [header.fills[0]] if old is None else list(old.header.fills)
    rows = []
    for part in change.parts:
        added = part.rows.copy()
        added[:, 0] = np.where(added[:, 0] == OWN, own, added[:, 0])
        added[:, 2] += _base(encodings, part.encodings)
        added[:, 3] += _base(fills, part.fills)
        rows.append(added)
    new = np.concatenate(rows) if rows else np.zeros((0, width(len(header.grid.axes))), np.int64)
    merged = (0, 0) if old is None else old.merged
    if change.merges and old is not None:
        later = rows_since(old, change.merges, archive)
        if later is None:
            raise ManifestError(f"{change.merges} placements cannot be merged, because more of them were merged before")
        merged = (change.merges, len(new))
        new = np.concatenate([new, later.table])
    return ArrayNode(
        header=replace(header, encodings=tuple(encodings), fills=tuple(fills)),
        placements=pages.with_rows(table, new.tolist(), ndim=len(header.grid.axes)),
        generation=number if old is None else old.generation,
        merged=merged,
    )


def _counts(path: str, change: ArrayEdit, node: ArrayNode, head: Snapshot, archive: Archive) -> Counts | None:
    """Return the counts of the new state of an array; only rows that it hides are read for them.

    They are not known if those of a part are not, or if parts may hide each other.
    """
    if change.chunk is not None:
        return None
    old = head.arrays[path].counts if change.keeps or change.merges else Counts(0, 0, 0, 0, 0, 0)
    if change.merges:
        alone = change.parts[0].counts if node.placements.n == 1 else None
        return old or alone
    if old is None:
        return None
    ndim = len(node.header.grid.axes)
    rows = [[0] * (width(ndim) - 2 * ndim) + [*part.begin, *part.shape] for part in change.parts]
    boxes = Placements(np.array(rows, np.int64).reshape(len(rows), width(ndim)))
    if not boxes.are_apart:
        return None
    if change.keeps:
        there = array_in(head, path, archive, b"").manifest
        for low, high in zip(boxes.begins.tolist(), np.minimum(boxes.ends, there.shape).tolist(), strict=True):
            old = old.plus(Counts.in_box(there, low, high), -1)
    for part in change.parts:
        if part.counts is None:
            return None
        old = old.plus(part.counts)
    return old._replace(n_absent=old.n_absent + math.prod(node.header.grid.shape) - old.n_cells)


def rows_since(node: ArrayNode, n: int, archive: Archive, /) -> Placements | None:
    """Return the placements of an array that were made after the first n; ``None`` if they were merged with these."""
    merged, left = node.merged
    if n < merged:
        return None
    return rows_from(node.placements, n - merged + left, len(node.header.grid.axes), archive)


def rows_from(table: Table, n: int, ndim: int, archive: Archive, /) -> Placements:
    """Return the placements of a table from the n-th on."""
    rows: list[Sequence[int]] = []
    first = 0
    for page in table.pages:
        if first + page.n > n:
            rows += archive.page(page)[max(n - first, 0) :]
        first += page.n
    rows += table.tail[max(n - first, 0) :]
    return Placements.from_json(rows, ndim, where=archive.url)


def _base[T](table: list[T], items: Sequence[T]) -> int:
    """Return the position of consecutive items in a table; items that the table does not have are added."""
    n = len(items)
    for base in range(len(table) - n + 1):
        if table[base : base + n] == list(items):
            return base
    table += items
    return len(table) - n


@dataclass(slots=True)
class _Pages:
    """What rows that do not fit into the snapshot are written to.

    Tables of many variables become too long in one commit. Only some get a page then, and the others in later commits,
    unless they are twice as long as the snapshot holds.
    """

    archive: Archive
    target: Target
    n_left: int

    def with_rows(self, table: Table, rows: Sequence[object], /, *, ndim: int | None = None) -> Table:
        """Return a table with more rows."""
        tail = [*table.tail, *rows]
        pages = list(table.pages)
        if len(tail) > (MAX_TAIL_ROWS if self.n_left else 2 * MAX_TAIL_ROWS):
            self.n_left = max(self.n_left - 1, 0)
            if pages and pages[-1].n < FULL_PAGE_ROWS:
                tail = [*self.archive.page(pages.pop()), *tail]
            while len(tail) > MAX_TAIL_ROWS:
                pages.append(_put_page(tail[:FULL_PAGE_ROWS], self.target, ndim))
                tail = tail[FULL_PAGE_ROWS:]
        return Table(tuple(pages), tuple(tail))


def _put_page(rows: Sequence[object], target: Target, ndim: int | None) -> PageRef:
    name = new_id()
    target.put(page_key(name), dump({"name": name, "rows": rows}))
    if ndim is None:
        return PageRef(name, len(rows))
    placements = Placements(np.array(rows, np.int64).reshape(len(rows), width(ndim)))
    low, high = placements.begins.min(0).tolist(), placements.ends.max(0).tolist()
    return PageRef(name, len(rows), tuple(low), tuple(high))
