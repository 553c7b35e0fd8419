"""A manifest whose entries are in pages, which are read when cells in them are needed."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.cache import ByteCache
from virtualstack.errors import ManifestError
from virtualstack.location import is_remote
from virtualstack.manifests.cells import CellNumbers, ManifestSummary, begins_run
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import c_strides
from virtualstack.manifests.grid import MAX_AXIS_LENGTH
from virtualstack.manifests.manifest import UnreadManifest
from virtualstack.manifests.unify import join
from virtualstack.system import Threads

_MAX_PAGES = 1 << 17
"""Largest number of pages that one call reads."""

_MAX_PARALLEL_PAGES = 8  # pages that are read in parallel


def _nbytes(page: ChunkManifest) -> int:
    starts = 0 if page.starts is None else page.starts.nbytes
    locations = sum(128 + sys.getsizeof(location.url) for location in page.locations)
    return page.entries.nbytes + starts + len(page.inline) + locations


_PAGES: ByteCache[ChunkManifest] = ByteCache(256 << 20, _nbytes)


class PageSource(Protocol):
    """What a :class:`PagedManifest` reads its pages from, such as the record files of kerchunk parquet.

    The entries of an array form one table, with a row for each cell. A page is a part of this table that is read
    together. A page source can be pickled, and many threads use it.
    """

    def read(self, page: int, /) -> ChunkManifest:
        """Read one page, by its number. The result is cached and must not change."""

    def complete(self, entries: ChunkManifest, rows: NDArray[np.int64], /) -> ChunkManifest:
        """Return entries with the details that `read` left out, because they cost a request for each entry.

        `PagedManifest` calls it after `read`, only with the entries that a caller asked for. For example, the pages of
        kerchunk parquet name some files without a length, and this method looks up the sizes of these files. Return
        ``entries`` unchanged if `read` leaves out nothing.
        """


@dataclass(frozen=True, kw_only=True)
class PagedManifest(UnreadManifest):
    """A manifest in pages of a fixed number of rows: cell ``i`` is in row ``first_row + sum(i * strides)``.

    The process caches pages that were read, at most 256 MB for all manifests together.

    Parameters
    ----------
    source
        Source of the pages.
    shape
        Shape of the chunk grid, in cells.
    page_size
        Number of rows of a page; the last page may have fewer.
    tables
        The fills and encodings that pages may have.
    url
        URL of the object that holds the pages, for messages.
    strides
        Number of rows from a cell to the next along each axis; by default cells are in C order.
    first_row
        Row of the first cell.
    counts
        Counts of the cells in each state, if they are known.
    token
        Name of the pages in the cache. Copies, pickled or not, have the same token and so the same pages.

    Raises
    ------
    ManifestError
        There are more cells than can be counted, or cells before the first row.
    """

    source: PageSource = field(compare=False)
    shape: tuple[int, ...]
    page_size: int
    tables: ChunkManifest = field(compare=False)
    url: str | None = None
    strides: tuple[int, ...] = ()
    first_row: int = 0
    counts: ManifestSummary | None = field(default=None, compare=False)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        if not self.strides:
            object.__setattr__(self, "strides", c_strides(self.shape))
        spans = [max(n - 1, 0) * step for n, step in zip(self.shape, self.strides, strict=True)]
        first = self.first_row + sum(span for span in spans if span < 0)
        if first < 0:
            raise ManifestError(f"a grid of {self.shape} chunks begins in row {first}, before the first of all pages")
        if self.first_row + sum(span for span in spans if span > 0) >= MAX_AXIS_LENGTH:
            raise ManifestError(f"a grid of {self.shape} chunks has more of them than can be counted")

    def summary(self) -> ManifestSummary | None:
        """Return the counts, or ``None`` if they are not known."""
        return self.counts

    def read_entries(self, cells: CellNumbers, shape: tuple[int, ...], /) -> ChunkManifest:
        """Return the entries of some cells. The pages that hold them are read, several at a time."""
        rows = np.full((1,) * len(shape), self.first_row, np.int64)
        for numbers, step in zip(cells, self.strides, strict=True):
            rows = rows + numbers * np.int64(step)
        return self.source.complete(self._read_rows(rows), rows)

    def _read_rows(self, rows: NDArray[np.int64]) -> ChunkManifest:
        """Return rows in any order, in their shape."""
        first_page = int(rows.min()) // self.page_size
        if int(rows.max()) // self.page_size == first_page:
            return self._read_page((first_page, rows))
        flat = rows.reshape(-1)
        page = flat // self.page_size
        order = None if (page[1:] >= page[:-1]).all() else np.argsort(page, kind="stable")
        if order is not None:
            flat, page = flat[order], page[order]
        begin = np.flatnonzero(begins_run(page.size, page))
        pages = page[begin].tolist()
        if len(pages) > _MAX_PAGES:
            raise ManifestError(
                f"{len(pages)} pages of '{self.url}' are requested at once, and at most {_MAX_PAGES} are read: select "
                "a part of the variable first"
            )
        del page
        wanted = list(zip(pages, np.split(flat, begin[1:]), strict=True))
        is_kept = all((self.token, n) in _PAGES for n in pages)
        parts = map_in_threads(self._read_page, wanted, at_once=1 if is_kept else self._at_once)
        joined = join(parts, 0)
        return (joined if order is None else joined.pick((np.argsort(order),))).reshape(rows.shape)

    @property
    def _at_once(self) -> int:
        """Number of pages to read in parallel; on a local disk at most one a processor."""
        is_local = self.url is not None and not is_remote(self.url)
        return min(_MAX_PARALLEL_PAGES, os.cpu_count() or 1) if is_local else _MAX_PARALLEL_PAGES

    def _read_page(self, wanted: tuple[int, NDArray[np.int64]]) -> ChunkManifest:
        page, rows = wanted[0], wanted[1] - wanted[0] * self.page_size
        held = _PAGES.get((self.token, page), partial(self.source.read, page))
        if rows.max() >= held.entries.size:
            raise ManifestError(
                f"page {page} of '{self.url}' has {held.entries.size} rows; {rows.max() + 1} are needed"
            )
        is_run = rows.ndim == 1 and rows[-1] - rows[0] == rows.size - 1 and bool((rows[1:] > rows[:-1]).all())
        return held.read((slice(int(rows[0]), int(rows[-1]) + 1),)) if is_run else held.pick((rows,))


def map_in_threads[S, T](
    function: Callable[[S], T], items: Sequence[S], /, *, at_once: int = _MAX_PARALLEL_PAGES
) -> list[T]:
    """Call a function for all items, in parallel if there are several; the first error is raised."""
    if min(at_once, len(items)) < 2:
        return [function(item) for item in items]
    with Threads(min(at_once, len(items)), thread_name_prefix="virtualstack-pages") as pool:
        return list(pool.map(function, items))
