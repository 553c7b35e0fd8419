"""Read the objects that manifests of a store need; each is read on demand, and cached for a while."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.cache import ByteCache
from virtualstack.errors import MalformedFileError, Remedy
from virtualstack.location import Location
from virtualstack.manifests.serialised.headers import to_text
from virtualstack.manifests.serialised.values import to_count
from virtualstack.printable import counted
from virtualstack.vstack.format.documents import MAX_DOCUMENT_BYTES, PageRef, Table, load
from virtualstack.vstack.format.ledger import LedgerPage
from virtualstack.vstack.format.names import (
    heap_key,
    heap_seed,
    ledger_key,
    page_key,
    refs_key,
    shard_mark,
    sources_key,
)
from virtualstack.vstack.format.rows import (
    SHARD_PAGES,
    PageIndex,
    Placements,
    decode_page,
    index_length,
    page_length,
    page_rows,
    parse_index,
)
from virtualstack.vstack.format.sources import MAX_LISTED_SOURCES, PAGE_SOURCES, Prefixes, SourcePage, SourceRow

HEAP_PART_STRIDE = 1 << 40
"""Factor of the part number in an offset in the heap; the rest of the offset is the byte in the part."""

CHECKSUM_BYTES = 4
"""Bytes of the CRC-32 after each chunk in the heap."""

_MAX_COLUMNS = 5
_MAX_SOURCES = 1 << 40


class Objects(Protocol):
    """The place that objects are read from; it can be pickled, and used from many threads."""

    @property
    def url(self) -> str:
        """URL of the store, ending in ``/``."""

    def get(self, key: str, /, *, most: int) -> bytes:
        """Read a whole object of at most ``most`` bytes."""

    def read_ranges(self, key: str, size: int, ranges: Sequence[tuple[int, int]], /) -> Sequence[bytes | memoryview]:
        """Read ranges (offset and length in bytes) of an object of ``size`` bytes."""


class ReadPermission(Protocol):
    """A rule that decides which URLs may be read; it can be pickled."""

    def check(self, urls: Sequence[str], /) -> None:
        """Raise `ForbiddenLocationError` for the first URL that may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment, as a row of the table of segments describes it."""

    name: str
    rows: int
    columns: int
    shards: tuple[int, ...]
    n_sources: int
    sources: SourcePage | None = None
    heap: tuple[int, ...] = ()
    prefixes: tuple[int, ...] = ()

    @property
    def n_pages(self) -> int:
        """Number of pages of its sources."""
        return 1 if self.sources is not None else -(-self.n_sources // PAGE_SOURCES)

    def keys(self) -> list[str]:
        """Return the keys of its objects, except for the objects that its sources name."""
        found = [refs_key(self.name, shard) for shard in range(len(self.shards))]
        if self.sources is None:
            found += [sources_key(self.name, page) for page in range(self.n_pages)]
        return found + [heap_key(self.name, part) for part in range(len(self.heap))]

    def document(self) -> dict[str, Any]:
        """Return the segment as JSON."""
        return {
            "name": self.name,
            "rows": self.rows,
            "columns": self.columns,
            "shards": self.shards,
            "n_sources": self.n_sources,
            "sources": None if self.sources is None else self.sources.document(),
            "heap": self.heap,
            "prefixes": self.prefixes,
        }

    @classmethod
    def from_json(cls, document: Any, /, *, where: str) -> Segment:
        """Read a segment from JSON."""
        try:
            few = document["sources"]
            segment = cls(
                name=to_text(document["name"]),
                rows=to_count(document["rows"]),
                columns=to_count(document["columns"]),
                shards=tuple(map(to_count, document["shards"])),
                n_sources=to_count(document["n_sources"]),
                sources=None if few is None else SourcePage.from_json(few, where=where),
                heap=tuple(map(to_count, document["heap"])),
                prefixes=tuple(map(to_count, document["prefixes"])),
            )
            pages = -(-segment.rows // page_rows(segment.rows))
            n_sources = segment.n_sources if segment.sources is None else len(segment.sources.rows)
            if (
                not 3 <= segment.columns <= _MAX_COLUMNS
                or len(segment.shards) != -(-pages // SHARD_PAGES)
                or not segment.n_sources == n_sources < _MAX_SOURCES
            ):
                raise ValueError("its sizes contradict each other")
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise MalformedFileError(f"'{where}' has an invalid segment: {error}", Remedy("restore it")) from error
        return segment


def _estimate_size(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes + 128
    if isinstance(value, PageIndex):
        return value.spots.nbytes
    return 512 * len(value.rows) if isinstance(value, SourcePage) else sys.getsizeof(value)


_KEPT: ByteCache[Any] = ByteCache(256 << 20, _estimate_size)


_MAX_KEPT_SOURCES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The segments of a snapshot, and the objects that they refer to.

    Parameters
    ----------
    objects
        Objects of the store.
    segments
        Table of segments.
    prefixes
        Prefixes of the URLs of sources.
    permission
        The URLs that may be read.
    """

    objects: Objects
    segments: Table
    prefixes: Prefixes
    permission: ReadPermission
    _tail: dict[int, Segment] = field(default_factory=dict, compare=False, repr=False)
    _last: dict[tuple[str, bytes], list[Location]] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.objects, self.segments, self.prefixes, self.permission)

    @property
    def url(self) -> str:
        """URL of the store, ending in ``/``."""
        return self.objects.url

    def _kept[T](self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        kept: T = _KEPT.get((self.url, *key), make)
        return kept

    # -- tables -----------------------------------------------------------------------------------------------

    def page(self, ref: PageRef, /) -> list[Any]:
        """Return the rows of a page of a table, as JSON."""
        key = page_key(ref.name)
        document = load(self.objects.get(key, most=MAX_DOCUMENT_BYTES), url=self.url + key)
        rows = document.get("rows")
        if document.get("name") != ref.name or not isinstance(rows, list) or len(rows) != ref.n:
            raise MalformedFileError(
                f"'{self.url}{key}' is not a page of {ref.n} rows", Remedy("restore it"), url=self.url + key
            )
        return rows

    def ledger_page(self, page: LedgerPage, /) -> bytes:
        """Return the bytes of a page of the ledger."""
        return self.objects.get(ledger_key(page.name), most=page.size)

    def read_placements(self, ref: PageRef, ndim: int, /) -> Placements:
        """Return the placements of a page."""
        make = partial(self._read_placements, ref, ndim)
        return Placements(self._kept((ref.name, ndim), make))

    def _read_placements(self, ref: PageRef, ndim: int) -> NDArray[np.int64]:
        return Placements.from_json(self.page(ref), ndim, where=self.url + page_key(ref.name)).table

    def segment(self, number: int, /) -> Segment:
        """Return a segment by its number."""
        found = self._tail.get(number)
        if found is None:
            found = self._tail[number] = self._find_segment(number)
        return found

    def _find_segment(self, number: int) -> Segment:
        at = number
        for ref in self.segments.pages:
            if at < ref.n:
                rows = self._kept((ref.name, "segments"), partial(self.page, ref))
                return Segment.from_json(rows[at], where=self.url + page_key(ref.name))
            at -= ref.n
        if not 0 <= at < len(self.segments.tail):
            raise MalformedFileError(
                f"'{self.url}' has no segment {number}", Remedy("restore it, or open another snapshot")
            )
        return Segment.from_json(self.segments.tail[at], where=self.url)

    # -- rows -------------------------------------------------------------------------------------------------

    def rows(self, segment: Segment, page: int, /) -> NDArray[np.int64]:
        """Return a page of rows, shape ``(columns, rows)``; see :mod:`~virtualstack.vstack.format.rows`."""
        return self._kept((segment.name, page), partial(self._read_rows, segment, page))

    def has_rows(self, segment: Segment, page: int, /) -> bool:
        """Return whether a page is in the cache now."""
        return (self.url, segment.name, page) in _KEPT

    def _read_rows(self, segment: Segment, page: int) -> NDArray[np.int64]:
        n = page_rows(segment.rows)
        n_pages = -(-segment.rows // n)
        if not 0 <= page < n_pages:
            raise MalformedFileError(
                f"'{self.url}' has rows beyond those of the segment {segment.name}", Remedy("restore it")
            )
        shard, at = divmod(page, SHARD_PAGES)
        key, size = refs_key(segment.name, shard), segment.shards[shard]
        where = f"'{self.url}{key}'"
        pages, mark = min(n_pages, SHARD_PAGES), shard_mark(segment.name, shard)
        if pages == 1:
            most = page_length(segment.columns, n) + index_length(1)
            if size > most:
                raise MalformedFileError(
                    f"{where} is recorded with {size} bytes, but can have at most {most}", Remedy("restore it")
                )
            data: bytes | memoryview = self.objects.get(key, most=most)
            if len(data) != size:
                raise MalformedFileError(f"{where} has {len(data)} bytes, but should have {size}", Remedy("restore it"))
            index = parse_index(data[-index_length(1) :], size, mark, where=where)
            offset, length = index.spots[0].tolist()
            return decode_page(data[offset : offset + length], segment.columns, n, where=where)
        index = self._kept((segment.name, "index", shard), partial(self._read_index, key, size, pages, mark))
        offset, length = index.spots[at].tolist()
        if length > page_length(segment.columns, n):
            raise MalformedFileError(
                f"{where} has a page of {length} bytes, but can have at most {page_length(segment.columns, n)}: "
                "restore it"
            )
        (data,) = self.objects.read_ranges(key, size, [(offset, length)])
        return decode_page(data, segment.columns, n, where=where)

    def _read_index(self, key: str, size: int, n_pages: int, mark: bytes) -> PageIndex:
        length = index_length(n_pages)
        if size < length:
            raise MalformedFileError(
                f"'{self.url}{key}' has {size} bytes, fewer than the {length} of its index", Remedy("restore it")
            )
        (data,) = self.objects.read_ranges(key, size, [(size - length, length)])
        return parse_index(data, size, mark, where=f"'{self.url}{key}'")

    # -- sources and heap -------------------------------------------------------------------------------------

    def source_rows(self, segment: Segment, page: int, /) -> tuple[SourceRow, ...]:
        """Return a page of the sources of a segment."""
        if segment.sources is not None:
            return segment.sources.rows
        found: SourcePage = self._kept((segment.name, "sources", page), partial(self._read_sources, segment, page))
        return found.rows

    def written_sources(self, segment: Segment, /) -> Iterator[str]:
        """Yield all sources of a segment in their written form, after relocations."""
        for page in range(segment.n_pages):
            for row in self.source_rows(segment, page):
                yield self.prefixes.written(row, segment.prefixes)

    def _read_sources(self, segment: Segment, page: int) -> SourcePage:
        key = sources_key(segment.name, page)
        document = load(self.objects.get(key, most=MAX_DOCUMENT_BYTES), url=self.url + key)
        found = SourcePage.from_json(document, where=self.url + key)
        n = min(PAGE_SOURCES, segment.n_sources - page * PAGE_SOURCES)
        if (document.get("segment"), document.get("page")) != (segment.name, page):
            raise MalformedFileError(
                f"'{self.url}{key}' contains another page than its name says", Remedy("restore it")
            )
        if len(found.rows) != n:
            raise MalformedFileError(
                f"'{self.url}{key}' has {counted(len(found.rows), 'source')}, but should have {n}", Remedy("restore it")
            )
        return found

    def locations(self, segment: Segment, numbers: NDArray[np.intp], /) -> list[Location]:
        """Return sources of a segment by their numbers, which ascend.

        Variables of the same files ask for the same sources one after another, so the last ones are kept.
        """
        key = segment.name, numbers.tobytes()
        if (kept := self._last.get(key)) is not None:
            return kept
        found: list[Location] = []
        page = numbers // (PAGE_SOURCES if segment.sources is None else MAX_LISTED_SOURCES + segment.n_sources)
        for number in np.unique(page).tolist():
            rows = self.source_rows(segment, number)
            at = numbers[page == number] - number * PAGE_SOURCES
            found += [self.prefixes.location(rows[i], segment.prefixes) for i in at.tolist()]
        self.permission.check([location.url for location in found])
        self._last.clear()
        if len(found) <= _MAX_KEPT_SOURCES:
            self._last[key] = found
        return found

    def heap(self, segment: Segment, offsets: NDArray[np.int64], lengths: NDArray[np.int64], /) -> list[bytes]:
        """Return bytes of the heap of a segment."""
        lengths = lengths + CHECKSUM_BYTES
        part, begin = offsets // HEAP_PART_STRIDE, offsets % HEAP_PART_STRIDE
        sizes = np.array([*segment.heap, 0], np.int64)
        bad = (part >= len(segment.heap)) | (offsets < 0) | (lengths < CHECKSUM_BYTES)
        if bad.any() or (begin > sizes[part] - lengths).any():
            raise MalformedFileError(
                f"'{self.url}' has inline chunks beyond the heap of {segment.name}", Remedy("restore it")
            )
        found: list[bytes] = [b""] * len(offsets)
        for number in np.unique(part).tolist():
            at = np.flatnonzero(part == number)
            ranges = np.stack([begin[at], lengths[at]], 1)
            data = self.objects.read_ranges(
                heap_key(segment.name, number), segment.heap[number], [(o, n) for o, n in ranges.tolist()]
            )
            seed = heap_seed(segment.name, number)
            for i, x in zip(at.tolist(), data, strict=True):
                found[i] = bytes(x[:-CHECKSUM_BYTES])
                if zlib.crc32(found[i], seed) != int.from_bytes(x[-CHECKSUM_BYTES:], "little"):
                    raise MalformedFileError(
                        f"'{self.url}' has damaged inline chunks in {segment.name}", Remedy("restore it")
                    )
        return found


def _restore(objects: Objects, segments: Table, prefixes: Prefixes, permission: ReadPermission) -> Archive:
    return Archive(objects=objects, segments=segments, prefixes=prefixes, permission=permission)
