"""Which sources a snapshot still shows: those under later placements are no part of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virtualstack.location import Location
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.manifests.cells import CellBox
from virtualstack.manifests.chunk_manifest import blocks
from virtualstack.storage.threads import concurrently
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.manifest import StoredManifest
from virtualstack.vstack.format.rows import Placements
from virtualstack.vstack.format.sources import PAGE_SOURCES

__all__ = ["Shown", "Use", "shown_in"]

_BATCH_PAIRS = 1 << 22  # placements that are compared at once
_MAX_PAIRS = 1 << 28  # and in all
_BATCH_CELLS = 1 << 19  # cells that are read at a time
_BATCH_PAGES = 1 << 12  # pages of sources that are asked for at a time


@dataclass(frozen=True, slots=True)
class Use:
    """A placement that may show rows of a segment.

    Parameters
    ----------
    path
        Of the array.
    array
        The array.
    low, high
        Box of the grid.
    rows
        First and last row and one more where they are a run, and all of its cells are shown; else ``None``.
    """

    path: str
    array: ManifestArray
    low: tuple[int, ...]
    high: tuple[int, ...]
    rows: tuple[int, int] | None

    def boxes(self) -> Iterator[CellBox]:
        """Give the cells in boxes of a bounded size."""
        for box in blocks(tuple(b - a for a, b in zip(self.low, self.high, strict=True)), _BATCH_CELLS):
            yield tuple(slice(a + x.start, a + x.stop) for a, x in zip(self.low, box, strict=True))


@dataclass(frozen=True, slots=True)
class Shown:
    """Segments of a snapshot and what uses them.

    Parameters
    ----------
    archive
        Of the store.
    uses
        By number of the segment.
    """

    archive: Archive
    uses: Mapping[int, tuple[Use, ...]]

    def sources(self) -> dict[int, list[Location]]:
        """Give the sources of each segment; the pages that hold them are read side by side.

        Some of them may be shown no more: see :meth:`still`.
        """
        archive = self.archive
        pages = ((number, page) for number in self.uses for page in range(archive.segment(number).n_pages))

        def read(item: tuple[int, int]) -> list[Location]:
            segment = archive.segment(item[0])
            begin = item[1] * PAGE_SOURCES
            end = segment.n_sources if segment.sources is not None else min(begin + PAGE_SOURCES, segment.n_sources)
            return archive.locations(segment, np.arange(begin, end))

        found: dict[int, list[Location]] = {number: [] for number in self.uses}
        for some in itertools.batched(pages, _BATCH_PAGES):  # a few bytes may say that they are many
            for (number, _), read_now in zip(some, concurrently(read, some, [archive.url]), strict=True):
                found[number] += read_now
        return found

    def still(self, number: int, suspects: Collection[Location], /) -> set[Location]:
        """Give those of some sources of a segment that cells still refer to.

        All, where nothing hides a row of the segment; else cells are read until all were seen.
        """
        uses = self.uses[number]
        if _is_all({use.rows for use in uses if use.rows is not None}, self.archive.segment(number).rows):
            return set(suspects)
        left = set(suspects)
        for use in uses:
            for box in use.boxes():
                left -= set(use.array.manifest.read(box).locations)
                if not left:
                    return set(suspects)
        return set(suspects) - left


def shown_in(group: ManifestGroup, archive: Archive, /) -> Shown:
    """Find what a snapshot shows of each segment; placements are read, and no rows."""
    uses: dict[int, list[Use]] = {}
    for path, node in group.walk():
        for name, array in node.arrays.items():
            manifest = array.manifest
            if isinstance(manifest, StoredManifest) and all(manifest.shape):
                for number, use in _list_uses(f"{path}/{name}", array, manifest):
                    uses.setdefault(number, []).append(use)
    return Shown(archive, {number: tuple(each) for number, each in uses.items()})


def _list_uses(path: str, array: ManifestArray, manifest: StoredManifest) -> Iterator[tuple[int, Use]]:
    found = manifest.placements_in((0,) * len(manifest.shape), manifest.shape)
    is_hidden, is_met = _hidden(found)
    shape = np.array(manifest.shape, np.int64)
    ends = found.ends  # of all, once
    lows, highs, is_inside = found.begins, np.minimum(ends, shape), (ends <= shape).all(1)
    for i in np.flatnonzero(~is_hidden).tolist():
        low, high = lows[i].tolist(), highs[i].tolist()
        if all(a < b for a, b in zip(low, high, strict=True)):
            rows = None if is_met[i] or not is_inside[i] else _run(found, i)
            yield int(found.table[i, 0]), Use(path, array, tuple(low), tuple(high), rows)


def _hidden(placements: Placements) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell which placements lie under one later one as a whole, and which share a cell with a later one.

    Where too many may meet to compare them all, none is said to lie under another one, and all to share a cell.
    """
    n = len(placements.table)
    is_hidden, is_met = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    if n < 2:
        return is_hidden, is_met
    if not placements.ndim:
        is_hidden[:-1] = is_met[:-1] = True
        return is_hidden, is_met
    begins, ends = placements.begins, placements.ends
    # Two that meet do so on each axis; on the one where they differ most, few others begin within one.
    axis = int(np.argmax([len(np.unique(column)) for column in begins.T]))
    order = np.argsort(begins[:, axis], kind="stable")
    first = begins[order, axis]
    counts = np.searchsorted(first, ends[order, axis], "left") - np.arange(1, n + 1)
    if counts.sum() > _MAX_PAIRS:
        is_met[:] = True
        return is_hidden, is_met
    for part in _parts(counts):
        left = np.repeat(np.arange(part.start, part.stop), counts[part])
        right = left + 1 + np.arange(len(left)) - np.repeat(np.cumsum(counts[part]) - counts[part], counts[part])
        a, b = order[left], order[right]
        under, over = np.minimum(a, b), np.maximum(a, b)
        meets = ((begins[under] < ends[over]) & (ends[under] > begins[over])).all(1)
        covers = ((begins[over] <= begins[under]) & (ends[over] >= ends[under])).all(1)
        is_met[under[meets]] = True
        is_hidden[under[covers]] = True
    return is_hidden, is_met


def _parts(counts: NDArray[np.int64]) -> Iterator[slice]:
    """Cut numbers of pairs into stretches of a bounded sum."""
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = int(ends[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(ends, done + _BATCH_PAIRS, "right")), begin + 1)
        yield slice(begin, end)
        begin = end


def _run(placements: Placements, i: int) -> tuple[int, int] | None:
    """Give the rows of a placement where they follow each other."""
    sides = sorted(
        (step, n)
        for step, n in zip(placements.strides[i].tolist(), placements.counts[i].tolist(), strict=True)
        if n > 1
    )
    n_cells = 1
    for step, n in sides:
        if step != n_cells:
            return None
        n_cells *= n
    first = int(placements.table[i, 1])
    return first, first + math.prod(n for _, n in sides)


def _is_all(runs: Collection[tuple[int, int]], n: int) -> bool:
    """Whether runs of rows are all of them."""
    end = 0
    for begin, stop in sorted(runs):
        if begin > end:
            return False
        end = max(end, stop)
    return end >= n
