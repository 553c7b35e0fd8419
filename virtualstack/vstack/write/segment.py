"""Write a segment: rows, sources and inline chunks, page by page."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from virtualstack.location import Location
from virtualstack.storage import Target
from virtualstack.storage.permission import named_in
from virtualstack.storage.target import Puts
from virtualstack.storage.threads import concurrently
from virtualstack.vstack.format.archive import CHECKSUM_BYTES, HEAP_PART_STRIDE, Segment
from virtualstack.vstack.format.documents import dump
from virtualstack.vstack.format.names import heap_key, heap_seed, new_id, refs_key, shard_mark, sources_key
from virtualstack.vstack.format.rows import (
    SHARD_PAGES,
    encode_page,
    encode_shard,
    page_rows,
)
from virtualstack.vstack.format.sources import MAX_LISTED_SOURCES, PAGE_SOURCES, Prefixes, SourcePage, SourceRow

_HEAP_PART_BYTES = 64 << 20
_MAX_SAMPLES = 1 << 18  # rows that are kept in memory to choose chunks for fingerprints


class SegmentWriter:
    """A writer of one segment; nothing is visible before a snapshot names the segment."""

    def __init__(
        self,
        target: Target,
        *,
        columns: int,
        n_rows: int,
        fingerprint: Callable[[Location, NDArray[np.int64]], Location],
        name: str | None = None,
    ) -> None:
        self.name = name or new_id()
        self.row = 0
        self._url = target.url
        self._puts = Puts(target)
        self._fingerprint = fingerprint
        self._columns = columns
        self._n_rows = n_rows
        self._page = page_rows(n_rows)
        self._n_pages = min(-(-n_rows // self._page), SHARD_PAGES)
        self._waiting: list[NDArray[np.int64]] = []
        self._n_waiting = 0
        self._pages: list[bytes] = []
        self._shards: list[int] = []
        self._sources: dict[Location, int] = {}
        self._samples: list[NDArray[np.int64]] = []
        self._heap: list[bytes] = []
        self._heap_size = 0
        self._heap_parts: list[int] = []

    def number_sources(self, locations: Iterable[Location], /) -> list[int]:
        """Return the numbers of sources; new sources are added."""
        sources = self._sources
        return [sources.setdefault(self._named(location), len(sources)) for location in locations]

    def _named(self, location: Location) -> Location:
        url = named_in(self._url, location.url)
        return location if url == location.url else replace(location, url=url)

    @property
    def sources(self) -> Collection[Location]:
        """The sources that were added so far."""
        return self._sources.keys()

    def keep(self, chunks: NDArray[np.uint8], lengths: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Append chunks to the heap, each with its checksum, and return their offsets there."""
        n = chunks.size + CHECKSUM_BYTES * len(lengths)
        if self._heap_size and self._heap_size + n > _HEAP_PART_BYTES:
            self._put_heap()
        part = len(self._heap_parts)
        ends, seed, view = np.cumsum(lengths), heap_seed(self.name, part), memoryview(chunks)
        begins = ends - lengths
        sums = [zlib.crc32(view[a:b], seed) for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        before = CHECKSUM_BYTES * np.arange(len(lengths))
        is_sum = np.zeros(n, np.bool_)
        is_sum[(ends + before)[:, None] + np.arange(CHECKSUM_BYTES)] = True
        data = np.empty(n, np.uint8)
        data[is_sum] = np.array(sums, "<u4").view(np.uint8)
        data[~is_sum] = chunks
        offsets = part * HEAP_PART_STRIDE + self._heap_size + begins + before
        self._heap.append(data.tobytes())
        self._heap_size += n
        return offsets

    def _put_heap(self) -> None:
        self._puts.put(heap_key(self.name, len(self._heap_parts)), b"".join(self._heap))
        self._heap_parts.append(self._heap_size)
        self._heap, self._heap_size = [], 0

    def add(self, rows: NDArray[np.int64], /) -> None:
        """Add rows: shape ``(columns, n)``, with absolute offsets."""
        self._waiting.append(rows)
        self._samples.append(rows[:3, :: max(1, self._n_rows // _MAX_SAMPLES)])
        self._n_waiting += rows.shape[1]
        self.row += rows.shape[1]
        if self._n_waiting >= self._page:
            rows = np.concatenate(self._waiting, 1)
            whole = self._n_waiting // self._page * self._page
            for begin in range(0, whole, self._page):
                self._add_page(rows[:, begin : begin + self._page])
            self._waiting, self._n_waiting = [rows[:, whole:]], rows.shape[1] - whole

    def _add_page(self, rows: NDArray[np.int64]) -> None:
        self._pages.append(encode_page(rows, self._page))
        if len(self._pages) == self._n_pages:
            self._put_shard()

    def _put_shard(self) -> None:
        shard = encode_shard(self._pages, self._n_pages, shard_mark(self.name, len(self._shards)))
        self._puts.put(refs_key(self.name, len(self._shards)), shard)
        self._shards.append(len(shard))
        self._pages = []

    def close(self, prefixes: Prefixes, /, *, relative: bool) -> tuple[Segment, tuple[str, ...]]:
        """Write the remaining objects."""
        if self._n_waiting:
            self._add_page(np.concatenate(self._waiting, 1))
        if self._pages:
            self._put_shard()
        if self._heap_size:
            self._put_heap()
        sources = list(concurrently(lambda x: self._fingerprint(*x), self._ends(), [x.url for x in self._sources]))
        chosen, rows = prefixes.rows(sources, relative=relative)
        few = SourcePage(tuple(rows)) if len(rows) <= MAX_LISTED_SOURCES else None
        if few is None:
            self._put_sources(rows)
        self._puts.close()
        segment = Segment(
            name=self.name,
            rows=self._n_rows,
            columns=self._columns,
            shards=tuple(self._shards),
            n_sources=len(rows),
            sources=few,
            heap=tuple(self._heap_parts),
        )
        return segment, chosen

    def _ends(self) -> list[tuple[Location, NDArray[np.int64]]]:
        """Return each source with the offset of the byte after some of its chunks."""
        sources, offsets, lengths = np.concatenate([np.empty((3, 0), np.int64), *self._samples], 1)
        order = np.argsort(sources, kind="stable")
        cuts = np.searchsorted(sources[order], np.arange(len(self._sources) + 1))
        ends = (offsets + lengths)[order]
        return [(x, ends[a:b]) for x, (a, b) in zip(self._sources, pairwise(cuts.tolist()), strict=True)]

    def _put_sources(self, rows: Sequence[SourceRow]) -> None:
        for page, begin in enumerate(range(0, len(rows), PAGE_SOURCES)):
            document = SourcePage(tuple(rows[begin : begin + PAGE_SOURCES])).document()
            self._puts.put(sources_key(self.name, page), dump({"segment": self.name, "page": page, **document}))
