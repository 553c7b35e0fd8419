"""Chunks, blocks and one contiguous range as manifests."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.formats.dmrpp.document import BadValueError, Columns, RefusedError, Rows, read_number
from virtualstack.formats.hdf5.filters import Filter, filter_codecs, obstacle, passed
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkAxis, ChunkEncoding, ChunkGrid, ChunkManifest, Fill
from virtualstack.manifests.cells import MAX_READ_CELLS

# HDF5's numbers of the filters that DMR++ knows; it has no others
_FILTERS = {"deflate": 1, "shuffle": 2, "fletcher32": 3}
_OLD_ORDER = "shuffle", "deflate", "fletcher32"
_MAX_FILTERS = 32  # H5Z_MAX_NFILTERS
_MAX_MASKS = 64
_CHECKSUM_BYTES = 4  # of fletcher32

type Locate = Callable[[str], Location]
"""Function that makes a location from a URL in a document; ``""`` is the document's own source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DmrppChunkedLayout:
    """Properties that all chunks of a variable share."""

    dtype: np.dtype[Any]
    codecs: tuple[Codec, ...]
    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    fill: Fill
    no_fill: str | None


def read_filters(text: str, levels: str, itemsize: int, /, *, is_ordered: bool) -> tuple[Filter, ...]:
    """Read ``compressionType``."""
    names = text.split()
    unknown = [name for name in names if name not in _FILTERS]
    if unknown:
        raise RefusedError(f"no codec for the filter '{unknown[0][:40]}' of compressionType '{text[:80]}'")
    if len(names) > _MAX_FILTERS:
        raise BadValueError(f"compressionType has {len(names)} filters; HDF5 has at most {_MAX_FILTERS}")
    if not is_ordered:
        names = [name for name in _OLD_ORDER if name in names]
    given = iter(levels.split())
    filters = []
    for name in names:
        values: tuple[int, ...] = ()
        if name == "shuffle":
            values = (itemsize,)
        elif name == "deflate":
            values = tuple(read_number(x, "deflateLevel") for x in (next(given, None),) if x is not None)
        filters.append(Filter(id=_FILTERS[name], name=name, values=values))
    return tuple(filters)


def place_chunks(rows: Rows | None, layout: DmrppChunkedLayout, locate: Locate, /) -> tuple[ChunkManifest, ChunkGrid]:
    """Put chunks on their grid; cells without a chunk are EMPTY."""
    chunks = layout.chunks or tuple(max(n, 1) for n in layout.shape)
    if len(chunks) != len(layout.shape) or min(chunks, default=1) < 1:
        raise BadValueError(f"chunkDimensionSizes is {chunks} for an array of shape {layout.shape}")
    grid = ChunkGrid.regular(layout.shape, chunks)
    n_cells = math.prod(grid.shape)
    if not math.prod(layout.shape):
        return ChunkManifest.empty(grid.shape, layout.fill), grid
    if n_cells > MAX_READ_CELLS:
        raise RefusedError(f"a chunk grid of {n_cells} cells; a manifest has at most {MAX_READ_CELLS}")
    columns = _known_columns(rows)
    n = len(columns.offset)
    cells = _cells(columns, grid, chunks)
    if n < n_cells and layout.no_fill is not None:
        raise RefusedError(f"{n_cells - n} of {n_cells} chunks were never written, and {layout.no_fill}")
    entries = np.zeros(grid.shape, ENTRY)  # EMPTY; memory that is not touched
    if not n:
        return ChunkManifest(entries=entries, fills=(layout.fill,)), grid
    encodings, encoding_rows = _encodings(columns, layout, chunks)
    stored = np.empty(n, ENTRY)
    stored["location"], locations = _locations(columns, locate)
    stored["encoding"], stored["offset"], stored["length"] = encoding_rows, columns.offset, columns.length
    entries.reshape(-1)[cells] = stored
    manifest = ChunkManifest(entries=entries, fills=(layout.fill,), encodings=encodings, locations=locations)
    return manifest, grid


def place_blocks(rows: Rows, layout: DmrppChunkedLayout, locate: Locate, /) -> tuple[ChunkManifest, ChunkGrid]:
    """Put blocks, which hold consecutive values, on a grid along the first axis."""
    shape, itemsize = layout.shape, layout.dtype.itemsize
    columns = _known_columns(rows)
    if layout.filters:
        raise RefusedError("linked blocks that were compressed as a whole")
    if layout.chunks not in (None, shape):
        raise RefusedError(f"linked blocks of chunks of shape {layout.chunks}")
    total, length = sum(columns.length.tolist()), math.prod(shape) * itemsize
    if total != length or (columns.length < 1).any():
        raise BadValueError(f"its blocks have {total} bytes, its values {length}")
    row_length = math.prod(shape[1:]) * itemsize
    if not shape or (columns.length % row_length).any():
        raise RefusedError(f"linked blocks that do not end where its rows of {row_length} bytes do")
    n_rows = columns.length // row_length
    grid = ChunkGrid((ChunkAxis.from_lengths(n_rows), *(ChunkAxis.regular(n, n) for n in shape[1:])))
    distinct, encoding_rows = np.unique(n_rows, return_inverse=True)
    entries = np.empty(len(n_rows), ENTRY)  # at once: a document may list 10^6 blocks
    entries["location"], locations = _locations(columns, locate)
    entries["encoding"], entries["offset"], entries["length"] = encoding_rows, columns.offset, columns.length
    encodings = tuple(ChunkEncoding.c_order(layout.dtype, (n, *shape[1:]), layout.codecs) for n in distinct.tolist())
    manifest = ChunkManifest(
        entries=entries.reshape(grid.shape), fills=(layout.fill,), encodings=encodings, locations=locations
    )
    return manifest, grid


def _known_columns(rows: Rows | None) -> Columns:
    if rows is None:
        return Rows("dmrpp:chunk", str).columns()
    columns = rows.columns()
    if rows.is_linked:
        raise RefusedError("chunks made up of linked blocks (LinkedBlockIndex), as HDF4 has them")
    if rows.unknown:
        raise RefusedError(f"'{sorted(rows.unknown)[0]}' of {rows.kind} is not known, and may change what is read")
    return columns


def _cells(columns: Columns, grid: ChunkGrid, chunks: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the cell of each chunk, in C order of the grid."""
    n, position = len(columns.offset), columns.position
    if position is None:
        if n > 1 or (n and math.prod(grid.shape) > 1):
            raise BadValueError(f"{n} chunks without chunkPositionInArray for a grid of {math.prod(grid.shape)}")
        return np.zeros(n, np.int64)
    if position.shape[1] != len(chunks):
        raise BadValueError(
            f"chunkPositionInArray has {position.shape[1]} numbers for an array of shape {grid.array_shape}"
        )
    sizes = np.array(chunks, np.int64)
    scaled = position // sizes
    bad = (scaled * sizes != position) | (scaled >= np.array(grid.shape, np.int64))
    if bad.any():
        first = position[int(bad.any(axis=1).argmax())].tolist()
        raise BadValueError(
            f"a chunk has chunkPositionInArray {first}, where no chunk of shape {chunks} of an array of shape "
            f"{grid.array_shape} begins"
        )
    cells: NDArray[np.int64] = np.ravel_multi_index(tuple(scaled.T), grid.shape).astype(np.int64)
    if (np.diff(cells) < 1).any():  # otherwise they are sorted, as get_dmrpp writes them
        order = np.argsort(cells, kind="stable")
        twice = np.diff(cells[order]) == 0
        if twice.any():
            first = position[order[int(twice.argmax())]].tolist()
            raise BadValueError(f"two chunks have chunkPositionInArray {first}")
    return cells


def _encodings(
    columns: Columns, layout: DmrppChunkedLayout, chunks: tuple[int, ...]
) -> tuple[tuple[ChunkEncoding, ...], NDArray[np.intp]]:
    """Return one encoding for each set of filters in use, and the index of the encoding of each chunk."""
    masks, rows = np.zeros(1, np.int64), np.zeros(1, np.intp)
    if columns.mask is not None:
        masks, rows = np.unique(columns.mask & ((1 << len(layout.filters)) - 1), return_inverse=True)
    if len(masks) > _MAX_MASKS:
        raise RefusedError(f"chunks with {len(masks)} sets of filters; at most {_MAX_MASKS} are taken")
    encodings = []
    for row, mask in enumerate(masks.tolist()):
        filters = passed(layout.filters, mask)
        reason, codecs = _codecs(filters)
        if reason is not None:
            raise RefusedError(reason)
        lengths = columns.length if columns.mask is None else columns.length[rows == row]
        _check_lengths(lengths, filters, math.prod(chunks) * layout.dtype.itemsize)
        encodings.append(ChunkEncoding.c_order(layout.dtype, chunks, (*layout.codecs, *codecs)))
    return tuple(encodings), rows


@functools.lru_cache(maxsize=256)
def _codecs(filters: tuple[Filter, ...]) -> tuple[str | None, tuple[Codec, ...]]:
    """Return why no codecs decode filters, or ``None``, and the codecs; a document has few different filters."""
    reason = obstacle(filters)
    return reason, filter_codecs(filters) if reason is None else ()


def _check_lengths(lengths: NDArray[np.int64], filters: tuple[Filter, ...], length: int) -> None:
    """Raise an error if an uncompressed chunk has a different length than its values."""
    names = [step.name for step in filters]
    if "deflate" in names:
        return
    length += _CHECKSUM_BYTES * names.count("fletcher32")
    if (lengths != length).any():
        bad = int(lengths[int((lengths != length).argmax())])
        raise BadValueError(f"a chunk has {bad} bytes (nBytes), its values {length}")


def _locations(columns: Columns, locate: Locate) -> tuple[NDArray[np.int64], tuple[Location, ...]]:
    """Return the location code of each chunk, or a single code for all, and the table of locations."""
    if columns.source is None:
        return np.array([FIRST]), (locate(""),)
    used, codes = np.unique(columns.source, return_inverse=True)
    locations = tuple(locate(columns.hrefs[row] if row >= 0 else "") for row in used.tolist())
    return codes + FIRST, locations
