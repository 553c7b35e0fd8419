"""Find the sources that a snapshot shows, the cells that refer to them, and the order of their chunks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import CombineError, ManifestError, Remedy
from virtualstack.location import Location
from virtualstack.manifests import FIRST, INLINE, ChunkGrid, ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.manifests.cells import CellBox, blocks, distinct_rows
from virtualstack.storage.threads import concurrently
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.manifest import StoredManifest
from virtualstack.vstack.format.rows import Placements
from virtualstack.vstack.format.sources import PAGE_SOURCES

_BATCH_CELLS = 1 << 19  # cells that are read at a time
_BATCH_PAGES = 1 << 12  # pages of sources that are requested at a time


@dataclass(frozen=True, slots=True)
class Use:
    """A placement that may show rows of a segment.

    Parameters
    ----------
    path
        Path of the array.
    array
        The array.
    low, high
        First cell of the box in the chunk grid, and the cell after its last.
    rows
        First row, and the row after the last, if the rows are a run and all cells are visible for sure; else ``None``.
    """

    path: str
    array: ManifestArray
    low: tuple[int, ...]
    high: tuple[int, ...]
    rows: tuple[int, int] | None

    def boxes(self) -> Iterator[CellBox]:
        """Yield boxes of bounded size that cover the cells."""
        for box in blocks(tuple(b - a for a, b in zip(self.low, self.high, strict=True)), _BATCH_CELLS):
            yield tuple(slice(a + x.start, a + x.stop) for a, x in zip(self.low, box, strict=True))


@dataclass(frozen=True, slots=True)
class Shown:
    """The segments of a snapshot, and the placements that use them."""

    archive: Archive
    uses: Mapping[int, tuple[Use, ...]]

    def sources(self) -> dict[int, list[Location]]:
        """Return the sources of each segment; the pages that hold them are read concurrently.

        Later changes may hide some of these sources: see :meth:`still`.
        """
        archive = self.archive
        pages = ((number, page) for number in self.uses for page in range(archive.segment(number).n_pages))

        def read(item: tuple[int, int]) -> list[Location]:
            segment = archive.segment(item[0])
            begin = item[1] * PAGE_SOURCES
            end = segment.n_sources if segment.sources is not None else min(begin + PAGE_SOURCES, segment.n_sources)
            return archive.locations(segment, np.arange(begin, end))

        found: dict[int, list[Location]] = {number: [] for number in self.uses}
        for some in itertools.batched(pages, _BATCH_PAGES):  # a small store may claim many
            for (number, _), read_now in zip(some, concurrently(read, some, [archive.url]), strict=True):
                found[number] += read_now
        return found

    def still_shown(
        self, sources: Mapping[int, Iterable[Location]], suspects: Set[Location], /
    ) -> dict[int, frozenset[Location]]:
        """Return the suspects among the sources of segments that cells still refer to."""
        found = {number: self.still(number, own) for number, its in sources.items() if (own := suspects & set(its))}
        return {number: frozenset(own) for number, own in found.items() if own}

    def still(self, number: int, suspects: Collection[Location], /) -> set[Location]:
        """Return the given sources of a segment that cells still refer to.

        If no row of the segment is hidden, these are all. Otherwise cells are read until all sources were found.
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
    """Find the placements of a snapshot that show rows of each segment; placements are read, but no rows."""
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
    is_apart = found.are_apart
    shape = np.array(manifest.shape, np.int64)
    ends = found.ends  # of all, once
    lows, highs, is_inside = found.begins, np.minimum(ends, shape), (ends <= shape).all(1)
    for i, (low, high) in enumerate(zip(lows.tolist(), highs.tolist(), strict=True)):
        if all(a < b for a, b in zip(low, high, strict=True)):
            rows = _run(found, i) if is_apart and is_inside[i] else None
            yield int(found.table[i, 0]), Use(path, array, tuple(low), tuple(high), rows)


def _run(placements: Placements, i: int) -> tuple[int, int] | None:
    """Return the first row of a placement and the row after its last, if its rows are a run; else ``None``."""
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
    """Return whether runs of rows cover all rows."""
    end = 0
    for begin, stop in sorted(runs):
        if begin > end:
            return False
        end = max(end, stop)
    return end >= n


WRITE_AGAIN = Remedy("write the store again, from all of its files, with", "vds.virtual.to_vstack", mode="w")
"""The remedy if elements of a source do not fit into a store."""

_MAX_FOUND_CHUNKS = 1 << 27  # number of cells: a small store may claim many


@dataclass(frozen=True, slots=True)
class Cells:
    """Some cells of an array.

    Parameters
    ----------
    array
        The array.
    numbers
        Numbers of the cells: int64, shape ``(n, ndim)``, without duplicates.
    """

    array: ManifestArray
    numbers: NDArray[np.int64]

    @property
    def low(self) -> tuple[int, ...]:
        """First cell of the box around the cells."""
        return tuple(self.numbers.min(0).tolist())

    @property
    def high(self) -> tuple[int, ...]:
        """Cell after the last cell of the box around the cells."""
        return tuple((self.numbers.max(0) + 1).tolist())

    def mask(self) -> NDArray[np.bool_]:
        """Return a mask of the box around the cells that is true at the cells."""
        low = np.array(self.low, np.int64)
        found = np.zeros(tuple(np.array(self.high, np.int64) - low), np.bool_)
        found[tuple((self.numbers - low).T)] = True
        return found


def cells_of_sources(shown: Shown, segments: Mapping[int, frozenset[Location]], /) -> dict[tuple[str, str], Cells]:
    """Find the cells that refer to some sources of some segments, by URL and path of the array.

    Only the rows of these segments are read.
    """
    found: dict[tuple[str, str], list[NDArray[np.int64]]] = {}
    arrays: dict[str, ManifestArray] = {}
    n_found = 0
    for number, wanted in segments.items():
        for use in shown.uses[number]:
            arrays[use.path] = use.array
            for box in use.boxes():
                picked = use.array.manifest.read(box)
                first = np.array([side.start for side in box], np.int64)
                wanted_rows = [i for i, location in enumerate(picked.locations) if location in wanted]
                for row, numbers in _cells_by_code(picked.entries["location"], np.array(wanted_rows, np.intp) + FIRST):
                    url = picked.locations[row - FIRST].url
                    found.setdefault((url, use.path), []).append(numbers + first)
                    n_found += len(numbers)
                    if n_found > _MAX_FOUND_CHUNKS:
                        raise ManifestError(
                            f"more than {_MAX_FOUND_CHUNKS} chunks are in sources that changed, such as '{url}' with "
                            f"chunks of '{use.path}': {WRITE_AGAIN}"
                        )
    return {(url, path): Cells(arrays[path], _each_once(np.concatenate(parts))) for (url, path), parts in found.items()}


def _each_once(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return numbers[distinct_rows(numbers.T)[0]]


def _cells_by_code(
    codes: NDArray[np.unsignedinteger[Any]], wanted: NDArray[np.intp]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the cells that have each of some codes; all codes are found in one pass."""
    is_wanted = np.zeros(int(max(codes.max(initial=0), wanted.max(initial=0))) + 1, np.bool_)
    is_wanted[wanted] = True
    cells = np.argwhere(is_wanted[codes])
    own = codes.reshape(-1)[np.flatnonzero(is_wanted[codes])]
    order = np.argsort(own, kind="stable")
    cells, own = cells[order], own[order]
    lines = [0, *(np.flatnonzero(own[1:] != own[:-1]) + 1).tolist(), len(own)]
    return ((int(own[a]), cells[a:b]) for a, b in itertools.pairwise(lines) if a < b)


def check_order(
    was: ChunkManifest, now: ChunkManifest, own: NDArray[np.bool_], grid: ChunkGrid, axes: Collection[int], /
) -> None:
    """Refuse chunks that were reversed or reordered in a store if the chunks of the file are not.

    The old version of the file is gone. Chunks that follow each other in it are taken to be in their original order. If
    they did not follow each other, the new ones must have the same order.
    """
    both = own & (was.entries["location"] >= INLINE) & (now.entries["location"] >= INLINE)
    if not both.any():
        return
    new = both & ~_same_places(was, now)  # the other chunks of a file that was changed in place did not move
    for axis in axes:
        lengths = grid.axes[axis].lengths().reshape([-1 if i == axis else 1 for i in range(both.ndim)])
        is_turned = (lengths > 1) & (_directions(was, both, axis) != _directions(now, both, axis))
        is_in_order = (~new | (_ranks(was, new, axis) == np.cumsum(new, axis) - 1)).all(axis, keepdims=True)
        is_other = ~is_in_order & (_ranks(was, both, axis) != _ranks(now, both, axis))
        if (both & (is_turned | is_other)).any():
            raise CombineError(
                "its chunks are in another order now, along a dimension without labels, so the places of its "
                f"elements are not known: {WRITE_AGAIN}"
            )


def _same_places(was: ChunkManifest, now: ChunkManifest) -> NDArray[np.bool_]:
    """Return which cells are in the same bytes of the file."""
    is_same = was.entries["offset"] == now.entries["offset"]
    is_same &= was.entries["length"] == now.entries["length"]
    return np.asarray(is_same & (was.all_starts == now.all_starts), np.bool_)


def _directions(manifest: ChunkManifest, stored: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    """Return the sign of the stride of stored cells along an axis."""
    signs = np.array([np.sign(encoding.strides[axis]) for encoding in manifest.encodings], np.int64)
    return signs[np.where(stored, manifest.entries["encoding"], 0)]


def _ranks(manifest: ChunkManifest, stored: NDArray[np.bool_], axis: int) -> NDArray[np.int64]:
    """Return the rank of stored cells by offset, along an axis, from 0; cells in the same bytes have the same rank."""
    places = [manifest.entries["offset"][stored], manifest.all_starts[stored]]
    keys = np.full(stored.shape, len(places[0]), np.int64)  # other cells come last
    keys[stored] = distinct_rows(places)[1]
    order = np.argsort(keys, axis, kind="stable")
    in_order = np.take_along_axis(keys, order, axis)
    found = np.empty_like(keys)
    np.put_along_axis(
        found, order, np.cumsum(np.diff(in_order, axis=axis, prepend=in_order.min(axis, keepdims=True)) > 0, axis), axis
    )
    return found
