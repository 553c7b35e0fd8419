"""Read the manifest of an array in a store: find cells in placements, and read their rows in pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, ManifestError
from virtualstack.location import Location
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    ENTRY,
    FIRST,
    INLINE,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestSummary,
)
from virtualstack.manifests.cells import CellNumbers, begins_run, distinct_rows
from virtualstack.manifests.chunk_manifest import Usage
from virtualstack.manifests.manifest import UnreadManifest
from virtualstack.manifests.paged import map_in_threads
from virtualstack.vstack.format.archive import Archive, Segment
from virtualstack.vstack.format.counts import Counts
from virtualstack.vstack.format.documents import Table
from virtualstack.vstack.format.rows import ABSENT_ROW, EMPTY_ROW, INLINE_ROW, Placements, page_rows

type Token = tuple[str, int, float, str]
"""URL of the store, number and time of the snapshot, path of the array."""

_COLUMNS = 5
_MAX_PAGES = 1 << 17  # maximum number of pages that are read at once


@dataclass(frozen=True, kw_only=True)
class StoredManifest(UnreadManifest):
    """The manifest of an array in a store.

    A cell without a placement is ABSENT. The process caches pages of rows for a while.

    Parameters
    ----------
    archive
        Archive that rows, sources and inline chunks are read from.
    path
        Path of the array, for messages.
    grid
        Chunk grid.
    encodings, fills
        Tables that codes in rows point into.
    placements
        Table of placements.
    counts
        Counts of the cells, if the snapshot has them.
    token
        Store, snapshot and array; two manifests with the same token have the same chunks.
    is_chosen
        If true, the snapshot was chosen, not taken as the newest.
    """

    archive: Archive = field(compare=False)
    path: str = field(compare=False)
    grid: ChunkGrid = field(compare=False)
    encodings: tuple[ChunkEncoding, ...] = field(compare=False)
    fills: tuple[Fill, ...] = field(compare=False)
    placements: Table = field(compare=False)
    counts: Counts | None = field(default=None, compare=False)
    token: Token
    is_chosen: bool = field(default=False, compare=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the grid, in cells."""
        return self.grid.shape

    @property
    def url(self) -> str:
        """URL of the store."""
        return self.archive.url

    @cached_property
    def tables(self) -> ChunkManifest:
        """A manifest without entries, with the fills and encodings."""
        return ChunkManifest(entries=np.zeros(0, ENTRY), fills=self.fills, encodings=self.encodings)

    def summary(self) -> ManifestSummary | None:
        """Return the counts of the snapshot, or ``None`` if it has none."""
        return None if self.counts is None else self.counts.summary()

    @cached_property
    def usage(self) -> Usage:
        """What the entries use; nothing is read if the snapshot has counts, and its tables say the rest."""
        counts = self.counts
        if counts is None or len(self.encodings) > 1 or len(self.fills) > 1:
            return super().usage
        n_holes = counts.n_empty + counts.n_absent
        used = self.encodings if n_holes < counts.n_cells else ()
        return Usage(used, n_holes, counts.n_absent, n_other_fill=0, is_cut=counts.n_cut > 0)

    @cached_property
    def _tail(self) -> Placements:
        return Placements.from_json(self.placements.tail, len(self.shape), where=self.url)

    def placements_in(self, low: Sequence[int], high: Sequence[int], /) -> Placements:
        """Return the placements that may show a cell of a box, in their order; pages that have some are read."""
        ndim = len(self.shape)
        pages = [
            ref
            for ref in self.placements.pages
            if all(a < y and x < b for a, b, x, y in zip(low, high, ref.low, ref.high, strict=True))
        ]
        parts = map_in_threads(lambda ref: self.archive.read_placements(ref, ndim), pages)
        table = np.concatenate([*(part.table for part in parts), self._tail.table]) if parts else self._tail.table
        return Placements(table).within(np.array(low, np.int64), np.array(high, np.int64))

    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the entries of some cells; the pages of rows that hold them are read, several at a time."""
        numbers = [x.astype(np.int64, copy=False) for x in cells]
        low = [int(x.min()) for x in numbers]
        high = [int(x.max()) + 1 for x in numbers]
        found = self.placements_in(low, high)
        try:
            picked = self._gather(found, numbers, low, high, shape).manifest(self, shape)
            picked.validate_entries()
        except MalformedFileError:
            raise
        except ManifestError as error:
            raise MalformedFileError(
                f"array '{self.path}' of '{self.url}' is damaged: {error}", url=self.url
            ) from error
        return picked

    def _gather(
        self,
        found: Placements,
        cells: Sequence[NDArray[np.int64]],
        low: list[int],
        high: list[int],
        shape: tuple[int, ...],
    ) -> _Rows:
        """Read the rows of cells."""
        n = math.prod(shape)
        table = found.table
        last = len(table) - 1
        if last >= 0 and bool((found.begins[last] <= low).all() and (found.ends[last] >= high).all()):
            rows = np.broadcast_to(found.find_rows(last, cells), shape).reshape(-1)
            return self._read_segments([int(table[last, 0])], None, rows, int(table[last, 2]), int(table[last, 3]), n)
        flat = [np.broadcast_to(x, shape).reshape(-1) for x in cells]
        which = found.find(flat)
        at = np.flatnonzero(which >= 0)
        seen = which[at]
        rows = found.find_rows(seen, [x[at] for x in flat])
        numbers, segment = np.unique(table[seen, 0], return_inverse=True)
        read = self._read_segments(numbers.tolist(), segment, rows, table[seen, 2], table[seen, 3], len(at))
        return read if len(at) == n else read.spread(at, n)

    def _read_segments(
        self,
        numbers: list[int],
        segment: NDArray[np.intp] | None,
        rows: NDArray[np.int64],
        encoding_base: NDArray[np.int64] | int,
        fill_base: NDArray[np.int64] | int,
        n: int,
    ) -> _Rows:
        """Read rows of some segments; ``segment`` is the segment of each row, or ``None`` if there is only one."""
        segments = [self.archive.segment(number) for number in numbers]
        sizes = np.array([page_rows(x.rows) for x in segments], np.int64)
        counts = np.array([x.rows for x in segments], np.int64)
        each = 0 if segment is None else segment
        if n and ((rows < 0) | (rows >= counts[each])).any():
            raise ManifestError("a placement points beyond the rows of its segment")
        page, row = np.divmod(rows, sizes[each]) if n else (rows, rows)
        pages = -(-counts // np.maximum(sizes, 1))
        key = page if segment is None else page + (np.cumsum(pages) - pages)[segment]
        columns = np.zeros((_COLUMNS, n), np.int64)
        if n:
            order = None if (key[1:] >= key[:-1]).all() else np.argsort(key, kind="stable")
            sorted_key = key if order is None else key[order]
            begins = np.flatnonzero(begins_run(n, sorted_key))
            if len(begins) > _MAX_PAGES:
                raise ManifestError(f"{len(begins)} pages were requested at once, but at most {_MAX_PAGES} are read")
            runs = list(zip(begins.tolist(), [*begins[1:].tolist(), n], strict=True))

            def fill(run: tuple[int, int]) -> None:
                at: Any = slice(*run) if order is None else order[run[0] : run[1]]
                first = run[0] if order is None else int(order[run[0]])
                own = segments[0 if segment is None else int(segment[first])]
                read = self.archive.rows(own, int(page[first]))
                columns[: len(read), at] = read[:, row[at]]

            kept = all(
                self.archive.has_rows(segments[0 if segment is None else int(segment[i])], int(page[i]))
                for i in (begins if order is None else order[begins]).tolist()
            )
            map_in_threads(fill, runs, at_once=1 if kept else _MAX_THREADS)
        source = columns[0]
        columns[3] += np.where((source == EMPTY_ROW) | (source == ABSENT_ROW), fill_base, encoding_base)
        return _Rows(columns, segments, segment)


_MAX_THREADS = 32
_MAX_SPAN_ROWS = 1 << 16


class _Rows(NamedTuple):
    """Rows of cells: int64, shape ``(5, n)``, and the segment of each row (``None``: the first segment for all)."""

    columns: NDArray[np.int64]
    segments: list[Segment]
    segment: NDArray[np.intp] | None

    def spread(self, at: NDArray[np.intp], n: int) -> _Rows:
        """Return ``n`` rows: these rows at the places ``at``, and ABSENT rows elsewhere."""
        columns = np.zeros((_COLUMNS, n), np.int64)
        columns[0] = ABSENT_ROW
        columns[:, at] = self.columns
        segment = np.zeros(n, np.intp)
        if self.segment is not None:
            segment[at] = self.segment
        return _Rows(columns, self.segments, segment)

    def manifest(self, stored: StoredManifest, shape: tuple[int, ...]) -> ChunkManifest:
        """Make a manifest of the rows; its entries are not checked."""
        source, offset, length, code, start = self.columns
        if ((code < 0) | (code >= 1 << 32)).any():
            raise ManifestError("a row has a code beyond its table")
        _check_lengths(length, code, source, stored.encodings)
        entries = np.zeros(len(source), ENTRY)
        entries["encoding"] = code
        entries["offset"] = offset
        entries["length"] = length
        locations: tuple[Location, ...] = ()
        inline = b""
        if source.size and source.min() >= 0:
            codes, locations = self._locations(stored.archive, source, None)
            entries["location"] = codes
        else:
            if source.min() < INLINE_ROW:
                raise ManifestError("a row has an invalid source")
            location = np.where(source == ABSENT_ROW, ABSENT, np.where(source == EMPTY_ROW, EMPTY, INLINE))
            at = np.flatnonzero(source >= 0)
            if len(at):
                location[at], locations = self._locations(stored.archive, source[at], at)
            entries["location"] = location
            at = np.flatnonzero(source == INLINE_ROW)
            if len(at):
                first, back = self._distinct(at)
                parts = self._heap(stored.archive, at[first])
                sizes = np.array([len(part) for part in parts], np.int64)
                entries["offset"][at] = (np.cumsum(sizes) - sizes)[back]
                inline = b"".join(parts)
        return ChunkManifest(
            entries=entries.reshape(shape),
            fills=stored.fills,
            encodings=stored.encodings,
            locations=locations,
            starts=start.reshape(shape) if start.any() else None,
            inline=inline,
        )

    def _locations(
        self, archive: Archive, source: NDArray[np.int64], at: NDArray[np.intp] | None
    ) -> tuple[NDArray[Any], tuple[Location, ...]]:
        """Return the codes of sources, and the locations that the codes refer to."""
        counts = np.array([x.n_sources for x in self.segments], np.int64)
        bases = np.cumsum(counts) - counts
        own = None if self.segment is None else self.segment if at is None else self.segment[at]
        if (source >= (counts[0] if own is None else counts[own])).any():
            raise ManifestError("a row has a source beyond those of its segment")
        number = source if own is None else source + bases[own]
        wanted, back = _numbered(number)
        table: dict[Location, int] = {}
        codes = np.zeros(len(wanted), np.int64)
        ends = np.searchsorted(wanted, np.append(bases, bases[-1] + counts[-1]))
        for segment, base, begin, end in zip(self.segments, bases.tolist(), ends[:-1], ends[1:], strict=True):
            if begin < end:
                found = archive.locations(segment, wanted[begin:end] - base)
                codes[begin:end] = [table.setdefault(x, len(table)) for x in found]
        return codes[back] + FIRST, tuple(table)

    def _distinct(self, at: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first row of each range of bytes, and for each row the number of its range.

        A large chunk is then read once, even if many rows show parts of it.
        """
        segment = [] if self.segment is None else [self.segment[at]]
        return distinct_rows([*segment, self.columns[1, at], self.columns[2, at]])

    def _heap(self, archive: Archive, at: NDArray[np.intp]) -> list[bytes]:
        """Read the inline chunks of some rows."""
        parts: list[bytes] = [b""] * len(at)
        own = np.zeros(len(at), np.intp) if self.segment is None else self.segment[at]
        for number in np.unique(own).tolist():
            mine = np.flatnonzero(own == number)
            rows = self.columns[:, at[mine]]
            for i, data in zip(mine.tolist(), archive.heap(self.segments[number], rows[1], rows[2]), strict=True):
                parts[i] = data
        return parts


_MAX_UNCHECKED_BYTES = 1 << 28


def _check_lengths(
    length: NDArray[np.int64], code: NDArray[np.int64], source: NDArray[np.int64], encodings: Sequence[ChunkEncoding]
) -> None:
    """Check that no chunk has many more bytes than it decodes to, before memory is taken for it."""
    longest = int(length.max(initial=0))
    if longest <= _MAX_UNCHECKED_BYTES or not encodings:
        return
    most = np.array([_most_stored(x) for x in encodings], np.int64)
    is_stored = (source >= 0) | (source == INLINE_ROW)
    over = is_stored & (code < len(most)) & (length > most.take(code, mode="clip"))
    if over.any():
        raise ManifestError(f"a row has a chunk of {int(length[over].max())} bytes, more than its encoding can have")


def _most_stored(encoding: ChunkEncoding) -> int:
    slack = 4 * _MAX_UNCHECKED_BYTES if encoding.dtype.kind == "T" else _MAX_UNCHECKED_BYTES
    return min(2 * encoding.size * encoding.dtype.itemsize + slack, 1 << 62)


def _numbered(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct numbers, ascending, and for each number its place among them."""
    least = int(numbers.min())
    span = int(numbers.max()) - least + 1
    if span > _MAX_SPAN_ROWS + 8 * len(numbers):  # a small store may claim a large range
        wanted, back = np.unique(numbers, return_inverse=True)
        return wanted, back
    places = np.zeros(span, np.int64)
    places[numbers - least] = 1
    wanted = np.flatnonzero(places) + least
    places[wanted - least] = np.arange(len(wanted))
    return wanted, places[numbers - least]
