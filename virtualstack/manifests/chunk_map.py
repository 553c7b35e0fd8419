"""Count the chunks of arrays for a map of boxes, and by source; manifests are read block by block."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec, shortened
from virtualstack.codecs.pipeline import codec_names
from virtualstack.drawing.facts import ChunkMap, SourceFacts, StoredKind, common_prefix
from virtualstack.location import Location
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.cells import CellBox, along, begins_run, blocks
from virtualstack.manifests.chunk_manifest import ABSENT, EMPTY, FIRST, INLINE
from virtualstack.manifests.encoding import ChunkEncoding, stored_dtype
from virtualstack.manifests.manifest import Manifest

MAX_BOXES = 4096
"""Number of boxes of a chunk map, by default."""

_BLOCK_CELLS = 1 << 19  # cells that are read at a time
_MAX_ENCODINGS = 64
_MAX_VARIABLES = 20
_STATES = FIRST + 1


class Numbering[T]:
    """Numbers of the rows of tables in the order in which they are first used; rows with equal keys share a number."""

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self._key = key
        self._table: tuple[T, ...] = ()
        self._known = np.zeros(0, np.int32)
        self.rows: dict[Hashable, T] = {}
        self._number: dict[Hashable, int] = {}

    def numbers(self, table: tuple[T, ...], rows: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
        """Return the number of each of some rows of a table."""
        if table is not self._table:
            self._table, self._known = table, np.full(len(table), -1, np.int32)
        used = np.bincount(rows, minlength=len(table))
        for row in np.flatnonzero((used > 0) & (self._known < 0)).tolist():
            key = self._key(table[row])
            self.rows.setdefault(key, table[row])
            self._known[row] = self._number.setdefault(key, len(self._number))
        numbers: NDArray[np.int32] = self._known[rows]
        return numbers


@dataclass(frozen=True, slots=True, eq=False)
class ChunkNumbers:
    """Chunks of a box of the grid, as columns in C order of the box."""

    box: CellBox
    state: NDArray[np.uint32]
    source: NDArray[np.int32]
    encoding: NDArray[np.int32]
    length: NDArray[np.int64]


def number_blocks(
    manifest: Manifest, sources: Numbering[Location], encodings: Numbering[ChunkEncoding], /
) -> Iterator[ChunkNumbers]:
    """Yield the chunks of a manifest block by block; each block has at most 2^19 cells."""
    for box in blocks(manifest.shape, _BLOCK_CELLS):
        part = manifest.read(box)
        entries = part.entries.reshape(-1)
        location, length = entries["location"], entries["length"]
        state = np.minimum(location, FIRST)
        is_referenced, is_stored = state == FIRST, state >= INLINE
        source = np.full(len(state), -1, np.int32)
        source[is_referenced] = sources.numbers(part.locations, location[is_referenced] - np.uint32(FIRST))
        encoding = np.full(len(state), -1, np.int32)
        encoding[is_stored] = encodings.numbers(part.encodings, entries["encoding"][is_stored])
        yield ChunkNumbers(box, state, source, encoding, length)


def stored_alike(encoding: ChunkEncoding, /) -> tuple[str, tuple[int, ...], tuple[Codec, ...]]:
    """Return what chunks that are stored alike share: dtype, chunk shape and the codecs as far as they decode."""
    return encoding.dtype.str, encoding.shape, encoding.decoding().codecs


def _url(location: Location) -> str:
    return location.url


def map_chunks(
    array: ManifestArray,
    /,
    *,
    name: str | None = None,
    dims: Iterable[str] | None = None,
    max_boxes: int = MAX_BOXES,
) -> ChunkMap:
    """Count the chunks of an array in boxes of its chunk grid.

    No chunk is read. A manifest that is not in memory is read block by block, and not kept.

    Examples
    --------
    >>> import virtualstack as vs
    >>> chunks = {"0": {"path": "s3://bucket/day.nc", "offset": 4000, "length": 40}}
    >>> how = {"encoding": vs.ChunkEncoding.c_order("<f4", (10,)), "fill": vs.Fill.zero("f4")}
    >>> manifest = vs.ChunkManifest.from_dict(chunks, shape=(2,), **how)
    >>> found = map_chunks(vs.ManifestArray(manifest=manifest, grid=vs.ChunkGrid.regular((20,), (10,)), dtype="f4"))
    >>> found.states.tolist()
    [[[0, 0, 0, 1], [1, 0, 0, 0]]]
    >>> found.source.tolist(), found.source_prefix, found.sources
    ([[0, -1]], 's3://bucket/', ('day.nc',))
    """
    shape = array.grid.shape
    boxes = _Boxes(shape, max_boxes)
    sources, encodings = Numbering(_url), Numbering(stored_alike)
    states = np.zeros(boxes.size * _STATES, np.int64)
    source, encoding = _Dominant(boxes.size), _Dominant(boxes.size)
    n_stored, nbytes = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for block in number_blocks(array.manifest, sources, encodings):
        box = boxes.numbers(block.box)
        states += np.bincount(box * _STATES + block.state, minlength=states.size)
        source.add(box, block.source)
        encoding.add(box, block.encoding)
        n_stored = _added(n_stored, np.bincount(block.encoding + 1)[1:])
        nbytes = _added(nbytes, np.bincount(block.encoding + 1, block.length)[1:].astype(np.int64))
    table = states.reshape(boxes.n_rows, boxes.n_columns, _STATES)
    total = table.sum((0, 1)).tolist()
    urls = tuple(row.url for row in sources.rows.values())
    shown, order = _renumbered(source.numbers())
    prefix = common_prefix(tuple(urls[i] for i in order))
    x = boxes.axis
    return ChunkMap(
        name=name if name is not None else array.name or "",
        dims=tuple(dims or ()) or array.dimension_names or tuple(f"axis {i}" for i in range(array.ndim)),
        shape=array.shape,
        grid_shape=shape,
        dtype=str(array.dtype),
        column_axis=x,
        row_axes=tuple(i for i in range(len(shape)) if i != x),
        column_edges=boxes.column_edges,
        row_edges=boxes.row_edges,
        column_elements=_elements(array, x, boxes.column_edges),
        states=table,
        source=shown.reshape(boxes.n_rows, boxes.n_columns),
        encoding=encoding.numbers().reshape(boxes.n_rows, boxes.n_columns),
        n_chunks=math.prod(shape),
        n_empty=total[EMPTY],
        n_absent=total[ABSENT],
        n_inline=total[INLINE],
        n_referenced=total[FIRST],
        nbytes=int(nbytes.sum()),
        sources=tuple(urls[i][len(prefix) :] for i in order),
        source_prefix=prefix,
        n_sources=len(urls),
        encodings=tuple(
            _stored(row, int(n), int(size))
            for row, n, size in list(zip(encodings.rows.values(), n_stored, nbytes, strict=True))[:_MAX_ENCODINGS]
        ),
        n_encodings=len(encodings.rows),
    )


def _elements(array: ManifestArray, axis: int | None, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    if axis is None:
        return edges
    lines = array.grid.axes[axis]
    return np.append(lines.starts(edges[:-1]), lines.length)


def _stored(encoding: ChunkEncoding, n_chunks: int, nbytes: int) -> StoredKind:
    codecs = encoding.decoding().codecs
    settings = (
        codec.name + (f"({', '.join(f'{k}={v}' for k, v in options.items())})" if options else "")
        for codec in codecs
        for options in [codec.options()]
    )
    return StoredKind(
        dtype=stored_dtype(encoding).str,
        chunk_shape=encoding.shape,
        codecs=codec_names(codecs),
        settings=shortened(", ".join(settings)),
        n_chunks=n_chunks,
        nbytes=nbytes,
    )


def _added(total: NDArray[np.int64], more: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of two arrays, of which the shorter one is filled with zeros."""
    found = np.zeros(max(total.size, more.size), np.int64)
    found[: total.size] += total
    found[: more.size] += more
    return found


def _renumbered(number: NDArray[np.int32]) -> tuple[NDArray[np.int32], list[int]]:
    """Return numbers in the order in which they first appear, and the old number of each; -1 stays."""
    old, first = np.unique(number, return_index=True)
    old, first = old[old >= 0], first[old >= 0]
    order = old[np.argsort(first)]
    new = np.full(int(number.max(initial=-1)) + 2, -1, np.int32)
    new[order] = np.arange(order.size)
    return new[number], order.tolist()


class _Boxes:
    """Boxes of a chunk grid in rows and columns, as few as allowed."""

    def __init__(self, shape: tuple[int, ...], most: int) -> None:
        self.shape = shape
        self.axis = int(np.argmax(shape)) if shape else None
        n_across = shape[self.axis] if self.axis is not None else 1
        n_down = math.prod(shape) // n_across if n_across else 0
        self.n_rows = min(n_down, max(math.isqrt(most), 1))
        self.n_columns = min(n_across, most // max(self.n_rows, 1))
        self.n_rows = min(n_down, most // max(self.n_columns, 1))
        self._n_across, self._n_down = n_across, n_down
        self.column_edges = _edges(n_across, self.n_columns)
        self.row_edges = _edges(n_down, self.n_rows)

    @property
    def size(self) -> int:
        """Number of boxes."""
        return self.n_rows * self.n_columns

    def numbers(self, box: CellBox) -> NDArray[np.int64]:
        """Return the number of the box of each cell, in C order of the cells."""
        found = np.zeros((1,) * len(box), np.int64)
        step = 1
        for i in reversed(range(len(box))):
            if i != self.axis:
                found = found + self._along(box, i) * step
                step *= self.shape[i]
        found = _reduced(found, self._n_down, self.n_rows) * self.n_columns
        if self.axis is not None:
            found = found + _reduced(self._along(box, self.axis), self._n_across, self.n_columns)
        return found.reshape(-1)

    def _along(self, box: CellBox, axis: int) -> NDArray[np.int64]:
        return along(np.arange(box[axis].start, box[axis].stop), axis, len(box))


def _reduced(cells: NDArray[np.int64], n_cells: int, n_boxes: int) -> NDArray[np.int64]:
    return cells if n_cells == n_boxes else cells * n_boxes // n_cells


def _edges(n_cells: int, n_boxes: int) -> NDArray[np.int64]:
    """Return the first cell of each box, followed by the number of cells."""
    return -(-np.arange(n_boxes + 1) * n_cells // max(n_boxes, 1))


class _Dominant:
    """The number that most chunks of each box have."""

    def __init__(self, n_boxes: int) -> None:
        self._n_boxes = n_boxes
        self._pairs = np.zeros(0, np.int64)  # number of a box in the upper 32 bits, and below it that of its chunks
        self._counts = np.zeros(0, np.int64)

    def add(self, box: NDArray[np.int64], number: NDArray[np.int32]) -> None:
        """Count the chunks of a block by box and number."""
        pair = (box << 32) + number
        first = np.flatnonzero(begins_run(pair.size, pair))  # neighbours are mostly alike
        n_alike = np.diff(first, append=pair.size)
        has_number = number[first] >= 0
        pairs = np.append(self._pairs, pair[first[has_number]])
        counts = np.append(self._counts, n_alike[has_number])
        self._pairs, which = np.unique(pairs, return_inverse=True)
        self._counts = np.bincount(which, counts, self._pairs.size).astype(np.int64)

    def numbers(self) -> NDArray[np.int32]:
        """Return the number of each box, the lowest of several with one count; -1 if no chunk has a number."""
        found = np.full(self._n_boxes, -1, np.int32)
        pairs = self._pairs[np.lexsort((-self._pairs, self._counts))]  # the greatest count comes last, and stays
        found[pairs >> 32] = pairs & 0xFFFFFFFF
        return found


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SourceTable:
    """Sources of a cube in the order in which its variables first refer to them."""

    locations: tuple[Location, ...]
    n_chunks: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    variables: tuple[tuple[str, ...], ...]

    def rows(self, offset: int = 0, limit: int = 100) -> tuple[SourceFacts, ...]:
        """Return at most ``limit`` sources as plain data, beginning with number ``offset``."""
        return tuple(
            SourceFacts(
                url=location.url,
                size=location.size,
                n_chunks=int(self.n_chunks[i]),
                nbytes=int(self.nbytes[i]),
                variables=self.variables[i][:_MAX_VARIABLES],
                n_variables=len(self.variables[i]),
            )
            for i, location in islice(enumerate(self.locations), offset, offset + limit)
        )


def count_sources(arrays: Mapping[str, ManifestArray], /) -> SourceTable:
    """Count the chunks that refer to each source.

    No chunk is read. Manifests that are not in memory are read block by block, and not kept.

    Examples
    --------
    >>> import virtualstack as vs
    >>> chunks = {"0": {"path": "s3://bucket/day.nc", "offset": 4000, "length": 40}}
    >>> how = {"encoding": vs.ChunkEncoding.c_order("<f4", (10,)), "fill": vs.Fill.zero("f4")}
    >>> manifest = vs.ChunkManifest.from_dict(chunks, shape=(2,), **how)
    >>> array = vs.ManifestArray(manifest=manifest, grid=vs.ChunkGrid.regular((20,), (10,)), dtype="f4")
    >>> count_sources({"rain": array}).rows()
    (SourceFacts(url='s3://bucket/day.nc', size=None, n_chunks=1, nbytes=40, variables=('rain',), n_variables=1),)
    """
    sources, encodings = Numbering(_url), Numbering(stored_alike)
    n_chunks, nbytes = np.zeros(0, np.int64), np.zeros(0, np.int64)
    variables: dict[int, list[str]] = {}
    for path, array in arrays.items():
        own = np.zeros(0, np.int64)
        for block in number_blocks(array.manifest, sources, encodings):
            own = _added(own, np.bincount(block.source + 1)[1:])
            nbytes = _added(nbytes, np.bincount(block.source + 1, block.length)[1:].astype(np.int64))
        n_chunks = _added(n_chunks, own)
        for number in np.flatnonzero(own).tolist():
            variables.setdefault(number, []).append(path)
    return SourceTable(
        locations=tuple(sources.rows.values()),
        n_chunks=n_chunks,
        nbytes=nbytes,
        variables=tuple(tuple(variables[i]) for i in range(len(sources.rows))),
    )
