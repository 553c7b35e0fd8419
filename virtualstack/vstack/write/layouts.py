"""Fill layouts: arrays that a snapshot declares to have the values of another one, in other chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.combine.region import find_boxes
from virtualstack.manifests import ABSENT, ENTRY, ChunkGrid, ChunkManifest, ManifestArray
from virtualstack.manifests.manifest import hollow
from virtualstack.reading import read_array
from virtualstack.reading.blocks import Box, boxes, grouped, meet, read_blocks, within
from virtualstack.storage import Storage
from virtualstack.vstack.format.history import make_token
from virtualstack.vstack.format.manifest import StoredManifest
from virtualstack.vstack.format.snapshot import Layout, Snapshot
from virtualstack.vstack.write.placing import Piece
from virtualstack.vstack.write.values import ValuesWriter

FILL_BYTES = 256 << 20
"""Default of the bytes of values that are in memory while a layout is filled."""


class Changes(NamedTuple):
    """What changes of an array: all but its first elements, of the lengths ``kept``, and boxes."""

    kept: tuple[int, ...]
    boxes: tuple[Box, ...]


def changes_of(path: str, array: ManifestArray, pieces: Sequence[Piece], base: Snapshot, /) -> Changes:
    """Find the elements of an array that differ from those of a snapshot, by the pieces that it is written from."""
    node, axes, kept = base.arrays.get(path), array.grid.axes, (0,) * array.ndim
    first = pieces[0] if pieces else None
    if node is not None and first is not None and _is_beginning(first, path, base) and first.high is not None:
        was, fill = node.header, array.manifest.tables.fill
        alike = (was.dtype, was.dimension_names, was.fills[0]) == (array.dtype, array.dimension_names, fill)
        if alike and all(
            np.array_equal(a.lines(0, n), b.lines(0, n))
            for a, b, n in zip(axes, was.grid.axes, first.high, strict=True)
        ):
            kept = tuple(axis.span(0, n).stop for axis, n in zip(axes, first.high, strict=True))
            pieces = pieces[1:]
    return Changes(kept, tuple(_elements(array.grid, x) for x in pieces))


def _is_beginning(piece: Piece, path: str, base: Snapshot) -> bool:
    """Return whether a piece is the first cells of an array of a snapshot, in their place."""
    stored, node = piece.manifest, base.arrays[path]
    if not isinstance(stored, StoredManifest) or stored.placements != node.placements:
        return False
    is_there = piece.begin == piece.low == (0,) * len(piece.begin)
    return is_there and stored.token == make_token(stored.url, base, path)


def _elements(grid: ChunkGrid, piece: Piece) -> Box:
    shape = piece.manifest.shape
    if piece.low is not None and piece.high is not None:
        shape = tuple(b - a for a, b in zip(piece.low, piece.high, strict=True))
    return tuple(axis.span(a, a + n) for axis, a, n in zip(grid.axes, piece.begin, shape, strict=True))


def fill(
    layout: Layout,
    array: ManifestArray,
    changes: Changes,
    old: ManifestArray | None,
    writer: ValuesWriter,
    storage: Storage,
    max_bytes: int,
    /,
) -> tuple[ManifestArray, list[Piece]]:
    """Write the chunks of a layout that changes of an array meet; return the layout, without chunks, and the chunks.

    Elements of these chunks that have not changed are read from ``old``, the layout as it was; without it, all are
    written.
    """
    grid = ChunkGrid.regular(array.shape, layout.chunks)
    most = max(max_bytes // 2 // max(array.itemsize, 1), math.prod(axis.longest for axis in grid.axes))
    met = np.full(grid.shape, old is None)
    for box in changes.boxes:
        met[tuple(_cells(grid, box))] = True
    has_old = np.zeros(grid.shape, np.bool_)
    if old is not None and all(changes.kept):
        has_old[tuple(_cells(grid, tuple(slice(0, n) for n in changes.kept)))] = True

    def read(box: Box) -> NDArray[Any]:
        return read_array(array, box, storage)

    def blocks() -> Iterator[tuple[Box, NDArray[Any]]]:
        for low, high in find_boxes(met & ~has_old):
            region = tuple(axis.span(a, b) for axis, a, b in zip(grid.axes, low, high, strict=True))
            yield from read_blocks(read, region, array.grid.axes, grid.axes, most)
        for low, high in find_boxes(met & has_old):
            lines = [axis.lines(a, b) for axis, a, b in zip(grid.axes, low, high, strict=True)]
            for box in boxes(grouped(lines, most)):
                yield box, _patched(read, box, changes, old, storage)

    fills = array.manifest.tables.fills[:1]
    tables = ChunkManifest(entries=np.zeros(0, ENTRY), fills=fills, encodings=())
    pieces = []
    for box, values in blocks():
        cells = _cells(grid, box)
        lines = [axis.lines(x.start, x.stop) for axis, x in zip(grid.axes, cells, strict=True)]
        manifest = writer.write(values, [x - x[0] for x in lines], fills[0])
        pieces.append(Piece(_with_absent(manifest, array, box, lines), tuple(x.start for x in cells)))
    return replace(array, manifest=hollow(tables, grid.shape), grid=grid), pieces


def _cells(grid: ChunkGrid, box: Box) -> list[slice]:
    met = [axis.cover(side.start, side.stop) for axis, side in zip(grid.axes, box, strict=True)]
    return [slice(x.start, x.stop) for x in met]


def _patched(
    read: Callable[[Box], NDArray[Any]], box: Box, changes: Changes, old: ManifestArray | None, storage: Storage
) -> NDArray[Any]:
    """Return the values of a box: changed ones from the array, others from the layout as it was."""
    found = [both for x in changes.boxes if (both := meet(x, box)) is not None]
    if old is None or box in found:
        return read(box)
    values = np.empty([side.stop - side.start for side in box], old.dtype)
    was = meet(tuple(slice(0, n) for n in changes.kept), box)
    if was is not None:
        values[within(was, box)] = read_array(old, was, storage)
    for both in found:
        values[within(both, box)] = read(both)
    return values


def _with_absent(
    manifest: ChunkManifest, array: ManifestArray, box: Box, lines: Sequence[NDArray[np.int64]]
) -> ChunkManifest:
    """Return the manifest of a box without the chunks that show only ABSENT chunks of the array."""
    cells = _cells(array.grid, box)
    source = array.manifest.read(tuple(cells))
    there = source.entries["location"] != ABSENT
    fills = {source.fills[row] for row in np.unique(source.entries["encoding"][~there])}
    if len(fills) != 1:  # chunks of several missing values are stored as values
        return manifest
    count = there.astype(np.int64)
    for number, (axis, first, own) in enumerate(zip(array.grid.axes, cells, lines, strict=True)):
        sums = np.insert(np.cumsum(count, number), 0, 0, number)
        begin, end = axis.find(own[:-1]) - first.start, axis.find(own[1:] - 1) + 1 - first.start
        count = sums.take(end, number) - sums.take(begin, number)
    entries = manifest.entries.copy()
    absent = np.zeros((), ENTRY)
    absent["location"], absent["encoding"] = ABSENT, len(manifest.fills)
    entries[count == 0] = absent
    return replace(manifest, entries=entries, fills=(*manifest.fills, *fills))
