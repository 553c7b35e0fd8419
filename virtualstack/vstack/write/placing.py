"""Make placements of arrays: refer to rows that the store has, and write other chunks as rows of a segment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.manifests import (
    FIRST,
    INLINE,
    ChunkEncoding,
    ChunkManifest,
    Fill,
    Manifest,
    ManifestArray,
)
from virtualstack.manifests.cells import blocks, distinct_rows, replaced
from virtualstack.manifests.chunk_manifest import MAX_SPARE_ROWS
from virtualstack.manifests.joining import JoinedManifest
from virtualstack.manifests.view import ManifestView
from virtualstack.vstack.format.archive import ReadPermission
from virtualstack.vstack.format.counts import Counts
from virtualstack.vstack.format.manifest import StoredManifest
from virtualstack.vstack.format.rows import ABSENT_ROW, EMPTY_ROW, INLINE_ROW, width
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.format.sources import Prefixes
from virtualstack.vstack.write.segment import SegmentWriter

OWN = -1
"""Number of the segment that is written now; its commit assigns the real number."""

_BATCH_CELLS = 1 << 19  # cells that are written at a time


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of an array, and the manifest of its cells."""

    manifest: Manifest
    begin: tuple[int, ...]
    low: tuple[int, ...] | None = None
    high: tuple[int, ...] | None = None

    @property
    def is_stored(self) -> bool:
        """True if the manifest is in the store."""
        return self.low is not None


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """Placements whose codes point into separate tables; the box of their cells, and its counts if they are known."""

    rows: NDArray[np.int64]
    encodings: tuple[ChunkEncoding, ...]
    fills: tuple[Fill, ...]
    begin: tuple[int, ...]
    shape: tuple[int, ...]
    counts: Counts | None


def stored_in(manifest: Manifest, url: str, /) -> Iterator[StoredManifest]:
    """Yield the manifests in the store at a URL that a manifest is made of; nothing is read."""
    match manifest:
        case JoinedManifest():
            for part in manifest.parts:
                yield from stored_in(part, url)
        case ManifestView():
            yield from stored_in(manifest.base, url)
        case StoredManifest() if manifest.url == url:
            yield manifest


def split_into_pieces(array: ManifestArray, url: str, /, *, base: Snapshot, permission: ReadPermission) -> list[Piece]:
    """Divide an array into boxes that are in the store at a URL, and other boxes.

    Sources of boxes that are written again have the relocations of ``base``, even if they come from an earlier
    snapshot.
    """
    ndim = array.ndim
    manifest = _with_relocations(array.manifest, url, base, permission)
    return list(_pieces(manifest, url, (0,) * ndim, (0,) * ndim, manifest.shape))


def _with_relocations(manifest: Manifest, url: str, base: Snapshot, permission: ReadPermission) -> Manifest:
    """Return a manifest with the relocations of a snapshot; its parts may be from earlier snapshots."""
    if all(x.token[1] >= base.number for x in stored_in(manifest, url)):
        return manifest
    match manifest:
        case JoinedManifest():
            return replace(
                manifest, parts=tuple(_with_relocations(part, url, base, permission) for part in manifest.parts)
            )
        case ManifestView():
            return replace(manifest, base=_with_relocations(manifest.base, url, base, permission))
        case StoredManifest():
            prefixes = Prefixes(store=url, table=base.prefixes, moved=base.moved)
            return replace(manifest, archive=replace(manifest.archive, prefixes=prefixes, permission=permission))
    return manifest


def _pieces(
    manifest: Manifest, url: str, begin: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]
) -> Iterator[Piece]:
    """Yield the pieces of a box of a manifest, whose first cell becomes ``begin``."""
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return
    match manifest:
        case JoinedManifest():
            axis, first = manifest.axis, 0
            for part in manifest.parts:
                n = part.shape[axis]
                own_low, own_high = max(low[axis] - first, 0), min(high[axis] - first, n)
                start = begin[axis] + max(first - low[axis], 0)
                yield from _pieces(
                    part,
                    url,
                    replaced(begin, axis, start),
                    replaced(low, axis, own_low),
                    replaced(high, axis, own_high),
                )
                first += n
            return
        case ManifestView() if manifest.is_box:
            moved = [tuple(a + b for a, b in zip(corner, manifest.begins, strict=True)) for corner in (low, high)]
            yield from _pieces(manifest.base, url, begin, moved[0], moved[1])
            return
        case StoredManifest() if manifest.url == url:
            yield Piece(manifest, begin, low, high)
            return
    whole = low == (0,) * len(low) and high == manifest.shape
    box = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    yield Piece(manifest if whole else manifest.read(box), begin)


def count_columns(pieces: Sequence[Piece], /) -> int:
    """Return the number of columns that the rows of pieces need."""
    manifests = [piece.manifest for piece in pieces if not piece.is_stored]
    in_memory = [x for x in manifests if isinstance(x, ChunkManifest)]
    if len(in_memory) < len(manifests) or any(x.starts is not None for x in in_memory):
        return 5
    return 4 if any(len(x.encodings) > 1 or len(x.fills) > 1 for x in in_memory) else 3


def place(piece: Piece, segment: SegmentWriter, columns: int, /) -> PlacedPart:
    """Return the placements of a piece; a piece that is not in the store is written as rows of a segment."""
    return _placed_again(piece) if piece.is_stored else _written(piece, segment, columns)


def _placed_again(piece: Piece) -> PlacedPart:
    stored = piece.manifest
    if not isinstance(stored, StoredManifest) or piece.low is None or piece.high is None:
        raise TypeError("not a piece of the store")
    found = stored.placements_in(piece.low, piece.high)
    low, high = np.array(piece.low, np.int64), np.array(piece.high, np.int64)
    rows = found.table.copy()
    begins, ends = np.maximum(found.begins, low), np.minimum(found.ends, high)
    rows[:, 1] += ((begins - found.begins) * found.strides).sum(1)
    ndim = found.ndim
    rows[:, 4 + ndim : 4 + 2 * ndim] = begins - low + np.array(piece.begin, np.int64)
    rows[:, 4 + 2 * ndim :] = ends - begins
    shape = tuple((high - low).tolist())
    counts = _counts_of(stored, piece.low, piece.high)
    return PlacedPart(rows, stored.encodings, stored.fills, piece.begin, shape, counts)


_MAX_COUNTED_CELLS = 1 << 20  # cells that are read to count those of a box


def _counts_of(stored: StoredManifest, low: tuple[int, ...], high: tuple[int, ...]) -> Counts | None:
    """Return the counts of a box of a manifest in a store; few cells of the box, or around it, are read for them."""
    n, whole = math.prod(b - a for a, b in zip(low, high, strict=True)), math.prod(stored.shape)
    if stored.counts is None or whole - n > _MAX_COUNTED_CELLS:
        return Counts.in_box(stored, low, high) if n <= _MAX_COUNTED_CELLS else None
    counts = stored.counts
    for axis, length in enumerate(stored.shape):
        for a, b in ((0, low[axis]), (high[axis], length)):
            begin, end = (*low[:axis], a), (*high[:axis], b)
            rest = stored.shape[axis + 1 :]
            counts = counts.plus(Counts.in_box(stored, (*begin, *(0 for _ in rest)), (*end, *rest)), -1)
    return counts


def _written(piece: Piece, segment: SegmentWriter, columns: int) -> PlacedPart:
    manifest = piece.manifest
    if isinstance(manifest, ChunkManifest) and len(manifest.encodings) + len(manifest.locations) > MAX_SPARE_ROWS:
        manifest = manifest.compact()
    shape, first = manifest.shape, segment.row
    order = _order(manifest)
    tables = _CodeTables(dict.fromkeys(manifest.tables.encodings), dict.fromkeys(manifest.tables.fills))

    def written() -> Iterator[ChunkManifest]:
        for box in blocks(tuple(shape[axis] for axis in order), _BATCH_CELLS):
            part = manifest.read(tuple(box[order.index(axis)] for axis in range(len(shape))))
            segment.add(_rows(part, order, segment, tables, columns))
            yield part

    counts = Counts.of(written())
    strides = [0] * len(shape)
    for i, axis in enumerate(order):
        strides[axis] = math.prod(shape[other] for other in order[i + 1 :])
    row = [OWN, first, 0, 0, *strides, *piece.begin, *shape]
    rows = np.array(row, np.int64).reshape(1, width(len(shape)))
    return PlacedPart(rows, tuple(tables.encodings), tuple(tables.fills), piece.begin, shape, counts)


@dataclass(slots=True)
class _CodeTables:
    """Encodings and fills in the order of their codes."""

    encodings: dict[ChunkEncoding, None]
    fills: dict[Fill, None]
    _codes: dict[int, Any] = field(default_factory=dict)

    def codes(self, manifest: ChunkManifest) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the codes of the encodings and fills of a manifest; new ones are added."""
        return _number(self.encodings, manifest.encodings), _number(self.fills, manifest.fills)


def _number[T](table: dict[T, None], items: Sequence[T]) -> NDArray[np.int64]:
    for item in items:
        table.setdefault(item)
    numbers = {item: i for i, item in enumerate(table)}
    return np.array([numbers[item] for item in items], np.int64)


def _rows(
    manifest: ChunkManifest, order: tuple[int, ...], segment: SegmentWriter, tables: _CodeTables, columns: int
) -> NDArray[np.int64]:
    """Return the rows of a box of cells, with its axes in ``order``."""
    entries = np.ascontiguousarray(manifest.entries.transpose(order)).reshape(-1)
    location = entries["location"]
    rows = np.zeros((columns, len(entries)), np.int64)
    used = np.zeros(len(manifest.locations) + FIRST, np.bool_)
    used[location] = True
    codes = np.zeros(len(used), np.int64)
    codes[:FIRST] = EMPTY_ROW, ABSENT_ROW, INLINE_ROW
    which = np.flatnonzero(used[FIRST:])
    codes[which + FIRST] = segment.number_sources(manifest.locations[i] for i in which.tolist())
    rows[0], rows[1], rows[2] = codes[location], entries["offset"], entries["length"]
    if used[INLINE]:
        _keep_inline(rows, manifest.inline, segment)
    if columns > 3:
        encodings, fills = tables.codes(manifest)
        holes = location < INLINE
        row = entries["encoding"]
        rows[3] = fills[np.where(holes, row, 0)]
        if len(encodings):
            rows[3] = np.where(holes, rows[3], encodings[np.where(holes, 0, row)])
    if columns > 4 and manifest.starts is not None:
        rows[4] = manifest.starts.transpose(order).reshape(-1)
    return rows


def _keep_inline(rows: NDArray[np.int64], inline: bytes, segment: SegmentWriter) -> None:
    """Copy inline chunks to the heap of a segment, in runs of bounded size; each range of bytes is copied once."""
    at = np.flatnonzero(rows[0] == INLINE_ROW)
    first, back = distinct_rows(rows[1:3, at])
    offsets, lengths = rows[1:3, at[first]]
    new = np.zeros(len(offsets), np.int64)
    run = np.cumsum(lengths) // _INLINE_RUN_BYTES
    for number in np.unique(run).tolist():
        mine = np.flatnonzero(run == number)
        begins, ends = offsets[mine].tolist(), (offsets + lengths)[mine].tolist()
        chunks = b"".join([inline[begin:end] for begin, end in zip(begins, ends, strict=True)])
        new[mine] = segment.keep(np.frombuffer(chunks, np.uint8), lengths[mine])
    rows[1, at] = new[back.reshape(-1)]


_INLINE_RUN_BYTES = 16 << 20


def _order(manifest: Manifest) -> tuple[int, ...]:
    """Return the axes from the slowest to the fastest in the order of chunks in their files, judged by a sample.

    Rows in this order compress best, because chunks follow each other.
    """
    shape = manifest.shape
    long = [axis for axis, n in enumerate(shape) if n > 1]
    if len(long) < 2:
        return tuple(range(len(shape)))
    sides = _sample_sides([shape[axis] for axis in long])
    box = [slice(0, min(n, 1)) for n in shape]
    for axis, n in zip(long, sides, strict=True):
        box[axis] = slice(0, n)
    entries = manifest.read(tuple(box)).entries.reshape(sides)
    best = min(_permutations(len(long)), key=lambda order: _breaks(entries.transpose(order)))
    at = iter(long[i] for i in best)
    return tuple(next(at) if axis in long else axis for axis in range(len(shape)))


_SAMPLE_CELLS = 1 << 14


def _sample_sides(shape: Sequence[int]) -> list[int]:
    """Reduce a box to about :data:`_SAMPLE_CELLS` cells, by halving its longest sides."""
    sides = list(shape)
    while math.prod(sides) > _SAMPLE_CELLS:
        longest = sides.index(max(sides))
        sides[longest] = max(sides[longest] // 2, 2)
        if max(sides) == 2:
            break
    return sides


def _permutations(n: int) -> list[tuple[int, ...]]:
    """Return orders of axes, C order first; for more than four axes only C order and its reverse."""
    return list(itertools.permutations(range(n))) if n <= 4 else [tuple(range(n)), tuple(range(n))[::-1]]


def _breaks(entries: NDArray[np.void]) -> int:
    """Return a cost of an order of cells: 2 for each cell but the first, less 1 if it follows, less 1 if it is behind.

    A cell follows if its bytes begin at the end of the previous cell's; it is behind if they begin at a larger offset.
    """
    flat = np.ascontiguousarray(entries).reshape(-1)
    before, after = flat[:-1], flat[1:]
    follows = (before["location"] == after["location"]) & (
        (before["offset"] + before["length"] == after["offset"]) | (before["location"] < INLINE)
    )
    is_near = (before["location"] == after["location"]) & (after["offset"] > before["offset"])
    return int(2 * len(follows) - np.count_nonzero(follows) - np.count_nonzero(is_near))
