"""Join arrays and manifests along an axis, and find the simplest description of the result; no bytes are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.equivalence import tells_values
from virtualstack.errors import CombineError
from virtualstack.location import Location
from virtualstack.manifests.cells import CellNumbers, ManifestSummary, along, begins_run, replaced
from virtualstack.manifests.chunk_manifest import ENTRY, FIRST, INLINE, ChunkManifest
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid, union
from virtualstack.manifests.indexing import Chunks, refine
from virtualstack.manifests.manifest import Manifest, Overlay, UnreadManifest
from virtualstack.manifests.paged import map_in_threads
from virtualstack.manifests.unify import join, unify


@dataclass(frozen=True)
class JoinedManifest(UnreadManifest):
    """Manifests joined along an axis; a box is read from the parts that it meets, which are found by bisection.

    Parameters
    ----------
    parts
        Manifests whose shapes differ only along ``axis``.
    axis
        Axis of the chunk grid.
    fill
        Fill value of the array.
    """

    parts: tuple[Manifest, ...]
    axis: int
    fill: Fill

    @classmethod
    def from_parts(cls, parts: Sequence[Manifest], axis: int, /) -> JoinedManifest:
        """Join parts, with the fill value of the first part; a part joined along the same axis is split up."""
        flat: list[Manifest] = []
        for part in parts:
            flat += part.parts if isinstance(part, JoinedManifest) and part.axis == axis else [part]
        return cls(tuple(flat), axis, parts[0].tables.fill)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.parts, self.axis, self.fill)  # without cached properties

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([part.shape[self.axis] for part in self.parts])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid, in cells."""
        return replaced(self.parts[0].shape, self.axis, int(self._ends[-1]))

    @property
    def url(self) -> str | None:
        """URL of the first part that has one."""
        return next((url for part in self.parts if (url := part.url) is not None), None)

    @cached_property
    def tables(self) -> ChunkManifest:
        """Fills and encodings of all parts."""
        tables = [part.tables for part in self.parts]
        return ChunkManifest(
            entries=np.zeros(0, ENTRY),
            fills=tuple(dict.fromkeys((self.fill, *(fill for x in tables for fill in x.fills)))),
            encodings=tuple(dict.fromkeys(encoding for x in tables for encoding in x.encodings)),
        )

    def summary(self) -> ManifestSummary | None:
        """Return the sum of the counts of the parts, or ``None`` if a count is not known."""
        known = [count for part in self.parts if (count := part.summary()) is not None]
        return ManifestSummary.sum(known) if len(known) == len(self.parts) else None

    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the entries of some cells, on shared tables; parts are read in parallel."""
        cells = tuple(numbers.reshape((1,) * (len(shape) + 1 - numbers.ndim) + numbers.shape) for numbers in cells)
        along, *others = [i for i, n in enumerate(cells[self.axis].shape) if n > 1] or [0]
        if others:
            return self.pick(tuple(np.broadcast_to(x, (1, *shape)).reshape(-1) for x in cells)).reshape(shape)
        part = np.searchsorted(self._ends, cells[self.axis].reshape(-1), "right")
        order = np.argsort(part, kind="stable")
        begin = np.flatnonzero(begins_run(part.size, part[order]))
        wanted = [self._of_part(int(part[at[0]]), cells, at, along) for at in np.split(order, begin[1:])]
        found = map_in_threads(lambda x: x[0].pick(x[1]), wanted)
        joined = found[0]
        if len(found) > 1 or joined.fill != self.fill:
            own = ChunkManifest.empty(replaced(joined.shape, along, 0), self.fill)
            joined = join([own, *found], along)  # its fill becomes the first one
        if (order[1:] < order[:-1]).any():
            back = [np.argsort(order) if i == along else np.arange(n) for i, n in enumerate(joined.shape)]
            joined = joined.pick(np.ix_(*back))
        return joined.reshape(shape)

    def _of_part(self, i: int, cells: CellNumbers, at: NDArray[np.intp], along: int) -> tuple[Manifest, CellNumbers]:
        """Return part ``i``, and the cells at the positions ``at`` as cells of part ``i``."""
        own = [numbers.take(at, along) if numbers.shape[along] > 1 else numbers for numbers in cells]
        part = self.parts[i]
        own[self.axis] = own[self.axis] - (self._ends[i] - part.shape[self.axis])
        return part, tuple(own)

    def between(self, start: int, stop: int, /) -> tuple[Manifest, int]:
        """Drop the parts that have no cell from ``start`` to before ``stop``."""
        low = int(np.searchsorted(self._ends, start, "right"))
        high = int(np.searchsorted(self._ends, stop, "left")) + 1
        if high - low == len(self.parts):
            return self, 0
        skipped = int(self._ends[low - 1]) if low else 0
        parts = self.parts[low:high]
        is_one = len(parts) == 1 and parts[0].tables.fill == self.fill
        return (parts[0] if is_one else replace(self, parts=parts)), skipped


def overlaid(below: ChunkManifest, overlays: Sequence[Overlay], /) -> ChunkManifest:
    """Return a manifest with the chunks of overlays instead of its own; later overlays are above earlier ones."""
    read = [x.manifest.read(tuple(slice(0, n) for n in x.manifest.shape)) for x in overlays]
    below, *above = unify([below, *read])
    entries = below.entries.copy()
    starts = below.all_starts.copy() if any(x.starts is not None for x in (below, *above)) else None
    for overlay, over in zip(overlays, above, strict=True):
        box: Any = (*(slice(a, a + n) for a, n in zip(overlay.begin, over.shape, strict=True)), ...)
        entries[box] = over.entries
        if starts is not None:
            starts[box] = over.all_starts
    return replace(below, entries=entries, starts=starts)


def collapse(chunks: Chunks, /) -> Chunks:
    """Drop the grid lines that divide nothing, and the rows of tables that no cell uses.

    A line is dropped if every pair of cells across it continues one stored chunk, or is EMPTY or ABSENT alike on both
    sides. At least one pair must be a chunk.
    """
    for axis, cells in enumerate(chunks.grid.axes):
        if cells.n_cells > 1:
            chunks = drop_lines(chunks, axis, np.arange(1, cells.n_cells))
    return Chunks(chunks.manifest.compact(), chunks.grid)


def drop_lines(chunks: Chunks, axis: int, lines: NDArray[np.intp], /) -> Chunks:
    """Drop the given lines across an axis that divide nothing; line i is before cell i."""
    manifest, grid = chunks
    if not manifest.entries.size:
        return chunks
    row = manifest.entries[tuple(slice(0, None if i == axis else 1) for i in range(manifest.entries.ndim))]
    for entries in (row, manifest.entries):  # checking one row first usually excludes most lines
        lines = _of_same_bytes(entries, axis, lines)
        if not lines.size:
            return chunks
    lines = _continued(chunks, axis, lines)
    if not lines.size:
        return chunks
    keep = np.ones(manifest.shape[axis], np.bool_)
    keep[lines] = False
    begin = np.flatnonzero(keep)
    lengths = np.add.reduceat(grid.axes[axis].lengths(), begin)
    return Chunks(
        manifest.map_cells(lambda x: x.take(begin, axis)), grid.replace(axis, ChunkAxis.from_lengths(lengths))
    )


def _of_same_bytes(entries: NDArray[np.void], axis: int, lines: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the lines across which every pair of cells shows the same bytes."""
    if lines.size == entries.shape[axis] - 1:
        before = (slice(None),) * axis
        a, b = entries[(*before, slice(None, -1))], entries[(*before, slice(1, None))]
    else:
        a, b = entries.take(lines - 1, axis), entries.take(lines, axis)
    others = tuple(i for i in range(entries.ndim) if i != axis)
    same = (a["offset"] == b["offset"]).all(axis=others)
    if same.any():
        same &= (a["location"] == b["location"]).all(axis=others)
    found: NDArray[np.intp] = lines[same]
    return found


def _continued(chunks: Chunks, axis: int, lines: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the given lines that divide nothing."""
    manifest, grid = chunks
    ndim = manifest.entries.ndim
    a, b = manifest.entries.take(lines - 1, axis), manifest.entries.take(lines, axis)
    same = a == b  # location, encoding or fill, offset and length
    is_hole = b["location"] < INLINE
    if manifest.encodings:
        strides = np.array([x.strides[axis] for x in manifest.encodings], np.int64)
        lengths = grid.axes[axis].lengths(lines - 1)
        advance = along(lengths, axis, ndim) * strides[np.where(is_hole, 0, b["encoding"])]
        if manifest.starts is not None:
            advance = advance + manifest.starts.take(lines - 1, axis) - manifest.starts.take(lines, axis)
        same &= is_hole | (advance == 0)
    others = tuple(i for i in range(ndim) if i != axis)
    found: NDArray[np.intp] = lines[same.all(axis=others) & (~is_hole).any(axis=others)]
    return found


MAX_CELL_GROWTH = 16
"""Largest number of cells after grids are aligned, as a multiple of the cells before."""


def concatenate(parts: Sequence[Chunks], axis: int, /) -> Chunks:
    """Join along one axis; shapes must match on the other axes. The entries are copied."""
    parts = align(parts, skip=axis)
    joined = join([part.manifest for part in parts], axis)
    chunks = Chunks(joined, parts[0].grid.replace(axis, join_axes([part.grid.axes[axis] for part in parts])))
    seams = np.cumsum([part.grid.axes[axis].n_cells for part in parts])[:-1]
    return drop_lines(chunks, axis, union(seams[(seams > 0) & (seams < joined.shape[axis])]))


def join_axes(axes: Sequence[ChunkAxis], /) -> ChunkAxis:
    """Join the cells of several axes into one axis."""
    chunk = axes[0].chunk
    if chunk and all(x.chunk == chunk and x.length % chunk == 0 for x in axes[:-1]):
        last = axes[-1]
        if last.chunk == chunk or (last.n_cells == 1 and last.length <= chunk):
            return ChunkAxis.regular(sum(x.length for x in axes), chunk)
    return ChunkAxis.from_lengths(np.concatenate([x.lengths() for x in axes]))


def align(parts: Sequence[Chunks], /, *, skip: int | None = None) -> Sequence[Chunks]:
    """Cut the cells of all parts at the union of their grid lines, on every axis but ``skip``."""
    unions: dict[int, NDArray[np.int64]] = {}
    for axis in range(len(parts[0].grid.axes)):
        axes = {id(part.grid.axes[axis]): part.grid.axes[axis] for part in parts}.values()
        first = parts[0].grid.axes[axis]
        if axis != skip and any(other != first for other in axes):
            unions[axis] = union(*(x.lines() for x in set(axes)))
    if not unions:
        return parts
    before = sum(math.prod(part.grid.shape) for part in parts)
    after = sum(
        math.prod(len(unions[i]) - 1 if i in unions else x.n_cells for i, x in enumerate(part.grid.axes))
        for part in parts
    )
    if after > MAX_CELL_GROWTH * max(before, 1):
        raise CombineError(
            f"the chunk grids of {len(parts)} arrays differ on axes {sorted(unions)}. Cut at all their lines, they "
            f"would have {after} cells instead of {before}. At most {MAX_CELL_GROWTH} times as many are allowed. "
            "Join the arrays of one chunk shape first, or rewrite the odd ones",
            property="chunks",
            left=before,
            right=after,
        )
    aligned = list(parts)
    for axis, lines in unions.items():
        aligned = [refine(part, axis, lines) for part in aligned]
    return aligned


def equal(a: Chunks, b: Chunks, /) -> bool:
    """Return whether every element provably comes from the same element of the same stored chunk.

    Elements without a chunk are equal if they have one state and one fill. ``False`` means "not provably equal".
    """
    if a.manifest is b.manifest and a.grid == b.grid:
        return True
    try:
        a, b = align([a, b])
    except CombineError:
        return False
    left, right = _without_known_values(*unify(_without_unknown_versions(a.manifest, b.manifest)))
    x, y = left.entries, right.entries
    if not bool((x["location"] == y["location"]).all()):
        return False
    holes = left.holes
    if bool((holes & (x["encoding"] != y["encoding"])).any()):
        return False
    if not bool(((x["length"] == y["length"]) & (left.all_starts == right.all_starts)).all()):
        return False
    if not _same_bytes(left, right):
        return False
    return _same_decoding(left, right, a.grid)


def _without_unknown_versions(a: ChunkManifest, b: ChunkManifest) -> list[ChunkManifest]:
    """Treat sources with the same URL as equal if one side does not know their size, etag or times."""
    if a.locations is b.locations:
        return [a, b]
    known = {x.url: x for x in a.locations}
    agreed: dict[str, Location] = {}
    for other in b.locations:
        mine = known.get(other.url)
        if mine is not None and mine != other:
            pairs = list(zip(_version(mine), _version(other), strict=True))
            if all(x is None or y is None or x == y for x, y in pairs):
                agreed[other.url] = Location(other.url)
    if not agreed:
        return [a, b]
    return [replace(x, locations=tuple(agreed.get(y.url, y) for y in x.locations)) for x in (a, b)]


def _version(location: Location) -> tuple[int | float | str | None, ...]:
    known = location.fingerprint
    time = location.last_modified if known is None else known.last_modified
    return location.size, location.etag, time, location.unmodified_since


def _without_known_values(left: ChunkManifest, right: ChunkManifest) -> tuple[ChunkManifest, ChunkManifest]:
    """Set one byte range for chunks whose codecs alone define their values; the manifests have shared tables."""
    tells = np.array([tells_values(x.codecs) for x in left.encodings], np.bool_)
    if not tells.any():
        return left, right
    known = ~left.holes & ~right.holes
    for manifest in (left, right):
        known &= tells[manifest.encoding_rows]
    changed = []
    for manifest in (left, right):
        entries = manifest.entries.copy()
        for name, value in (("location", FIRST), ("offset", 0), ("length", 1)):
            entries[name][known] = value
        changed.append(replace(manifest, entries=entries))
    return changed[0], changed[1]


def _same_bytes(left: ChunkManifest, right: ChunkManifest) -> bool:
    """Return whether offsets are equal; INLINE bytes are compared by value. Locations and lengths are equal already."""
    x, y = left.entries, right.entries
    differ = x["offset"] != y["offset"]
    if not differ.any():
        return True
    if bool((differ & (x["location"] != INLINE)).any()):
        return False
    heap = memoryview(left.inline)
    return all(
        heap[i : i + n] == heap[j : j + n]
        for i, j, n in zip(
            x["offset"][differ].tolist(), y["offset"][differ].tolist(), x["length"][differ].tolist(), strict=True
        )
    )


def _same_decoding(left: ChunkManifest, right: ChunkManifest, grid: ChunkGrid) -> bool:
    """Return whether chunks have equal encodings; strides count only on axes where a cell is longer than 1."""
    if not left.encodings or bool(left.holes.all()):
        return True
    i, j = left.encoding_rows, right.encoding_rows
    if bool((i == j).all()):
        return True
    parts: dict[Any, int] = {}
    decoding = np.array([parts.setdefault(x.decoding().with_strides(()), len(parts)) for x in left.encodings])
    differ = decoding[i] != decoding[j]
    strides = np.array([x.strides for x in left.encodings], np.int64).reshape(len(left.encodings), len(grid.axes))
    for axis, cells in enumerate(grid.axes):
        long = along(cells.lengths() > 1, axis, len(grid.axes))
        differ = differ | (long & (strides[i, axis] != strides[j, axis]))
    return not bool((differ & ~left.holes).any())
