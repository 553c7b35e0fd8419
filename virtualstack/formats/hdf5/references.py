"""Find the byte ranges of the values of a dataset by its layout: chunked, contiguous, compact, external or virtual."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import decode
from virtualstack.errors import CombineError, MalformedFileError
from virtualstack.formats.base import contradiction
from virtualstack.formats.hdf5.datatypes import packed
from virtualstack.formats.hdf5.external_files import external_segments
from virtualstack.formats.hdf5.filters import Filter, filter_codecs, is_nonsense, missing_plugin, obstacle, passed
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.structures.chunk_table import ChunkTable
from virtualstack.formats.hdf5.structures.layout_message import (
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    VirtualLayout,
)
from virtualstack.formats.hdf5.structures.requests import LostValuesError, NoReferencesError, OutsideError
from virtualstack.formats.hdf5.tree import HDF5Variable
from virtualstack.formats.hdf5.values import inline_chunk, one_cell
from virtualstack.formats.hdf5.virtual_datasets import virtual_chunks
from virtualstack.formats.hdf5.virtual_sources import Chain, Datasets
from virtualstack.formats.rows import place_rows, place_segments, row_chunks
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Chunks, Fill
from virtualstack.manifests.cells import MAX_READ_CELLS
from virtualstack.storage import Storage


class FileContext(NamedTuple):
    """The properties of a file that reading a dataset needs."""

    location: Location
    library: Library
    base: int
    inline_limit: int
    locate: Callable[[str], Location]
    storage: Storage
    object_paths: Callable[[], Mapping[int, str]]
    datasets: Datasets
    contiguous_chunk_size: int | None = None
    chain: Chain = ()


def references(variable: HDF5Variable, shape: tuple[int, ...], fill: Fill, context: FileContext, /) -> Chunks:
    """Return the byte ranges of a dataset, and its chunk grid."""
    layout, found, stored = variable.layout, variable.element, variable.element.stored
    if isinstance(layout, VirtualLayout):
        return _virtual(variable, shape, fill, context)
    if stored is None:
        raise NoReferencesError(found.reason)
    if found.subshape and variable.fill.raw is not None:
        raise NoReferencesError("an array type with a fill value")
    length = math.prod(shape) * variable.element.size
    if isinstance(layout, ChunkedLayout):
        return _chunked(variable, layout, stored, shape, fill, context)
    if not length or (isinstance(layout, ContiguousLayout) and layout.address is None and not variable.external):
        return Chunks(ChunkManifest.empty(one_cell(shape).shape, fill), one_cell(shape))
    if isinstance(layout, CompactLayout):
        if len(layout.data) < length:
            what = f"'{variable.path}' has {len(layout.data)} bytes, and {length} are needed"
            raise damaged(context.location.url, what, offset=0)
        values = decode(layout.data[:length], variable.element.codecs, stored, shape).astype(packed(stored))
        return Chunks(inline_chunk(values, fill), one_cell(shape))
    chunks = row_chunks(shape, stored.itemsize, context.contiguous_chunk_size)
    if chunks != shape:
        _check_cells(math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True)))
    if variable.external or layout.address is None:
        return _external(variable, length, stored, shape, fill, context)
    offset, size = layout.address + context.base, context.location.size
    if size is not None and offset > size - length:
        what = f"'{variable.path}' has {length} bytes at offset {offset}, but the file ends at {size}"
        raise damaged(context.location.url, what, offset=offset)
    return place_rows(context.location, offset, stored, shape, chunks, fill)


def _external(
    variable: HDF5Variable, length: int, stored: np.dtype[Any], shape: tuple[int, ...], fill: Fill, context: FileContext
) -> Chunks:
    segments = external_segments(variable.external, length, context.location.url, context.locate)
    odd = next((x for x in segments if x.length % stored.itemsize), None)
    if odd is not None:
        raise NoReferencesError(f"'{odd.location.url}' ends within an element of {stored.itemsize} bytes")
    try:
        return place_segments(segments, shape, stored, fill, chunk_size=context.contiguous_chunk_size)
    except CombineError as error:
        raise NoReferencesError(f"its {len(segments)} external files end within rows: {error}") from error


def _virtual(variable: HDF5Variable, shape: tuple[int, ...], fill: Fill, context: FileContext) -> Chunks:
    url, subshape = context.location.url, variable.element.subshape
    chunks = virtual_chunks(
        variable.list_mappings(),
        shape[: len(shape) - len(subshape)],
        fill.dtype,
        fill,
        context.datasets.open_sources(url, variable.path, context.chain),
        url=url,
        inline_limit=context.inline_limit,
        subshape=subshape,
        is_source=bool(context.chain),
    )
    if subshape and variable.fill.raw is not None:
        raise NoReferencesError("an array type with a fill value")
    return chunks


def _chunked(
    variable: HDF5Variable,
    layout: ChunkedLayout,
    stored: np.dtype[Any],
    shape: tuple[int, ...],
    fill: Fill,
    context: FileContext,
) -> Chunks:
    filters, chunks = variable.filters, (*layout.chunk, *variable.element.subshape)
    if len(chunks) != len(shape):
        raise LostValuesError(f"its chunks have {len(chunks)} axes, and it has {len(shape)}: it is damaged")
    grid = _grid(shape, chunks)
    if not math.prod(shape):
        return Chunks(ChunkManifest.empty(grid.shape, fill), grid)
    _check_cells(math.prod(grid.shape))
    try:
        table = variable.list_chunks()
    except OutsideError as error:
        raise damaged(context.location.url, f"of '{variable.path}', {error}") from error
    masks = table.mask
    if filters and layout.leaves_edges_unfiltered:
        masks = np.where(_edges(variable.space or (), layout.chunk, table), (1 << len(filters)) - 1, masks)
    rows: NDArray[np.intp] | int
    if not len(masks) or (masks == masks[0]).all():
        distinct, rows = masks[:1], 0
    else:
        distinct, rows = np.unique(masks, return_inverse=True)
    pipelines = tuple([passed(filters, int(mask)) for mask in distinct]) or (filters,)
    try:
        entries = _entries(table, rows, grid.shape)
    except MemoryError as error:
        n = math.prod(grid.shape)
        raise NoReferencesError(
            f"a chunk grid of {n} cells, whose {n * ENTRY.itemsize} bytes do not fit into memory"
        ) from error
    describe = _encodings if len(pipelines) == 1 else _encodings.__wrapped__  # a damaged file may have any number
    manifest = ChunkManifest(
        entries=entries,
        fills=_fills(fill),
        encodings=describe(stored, chunks, pipelines, not context.library.is_forbidden),
        locations=(context.location,),
    )
    return Chunks(manifest, grid)


# Equal datasets of an archive share what is equal in them: it is made, compared and pickled once.


@functools.lru_cache(maxsize=1024)
def _grid(shape: tuple[int, ...], chunks: tuple[int, ...]) -> ChunkGrid:
    return ChunkGrid.regular(shape, chunks)


@functools.lru_cache(maxsize=1024)
def _fills(fill: Fill) -> tuple[Fill]:
    return (fill,)


@functools.lru_cache(maxsize=1024)
def _encodings(
    stored: np.dtype[Any], chunks: tuple[int, ...], pipelines: tuple[tuple[Filter, ...], ...], asks_library: bool
) -> tuple[ChunkEncoding, ...]:
    return tuple(ChunkEncoding.c_order(stored, chunks, _codecs(pipeline, asks_library)) for pipeline in pipelines)


def _check_cells(n: int) -> None:
    if n > MAX_READ_CELLS:
        raise NoReferencesError(f"a chunk grid of {n} cells; a manifest has at most {MAX_READ_CELLS}")


def _entries(table: ChunkTable, rows: NDArray[np.intp] | int, shape: tuple[int, ...]) -> NDArray[np.void]:
    """Return the chunks of a table as entries of a grid; other cells are EMPTY, and their memory is never written."""
    is_full = table.cell.size == math.prod(shape) and bool((table.cell == np.arange(table.cell.size)).all())
    chunks = np.empty(table.cell.shape, ENTRY)
    chunks["location"], chunks["encoding"] = FIRST, rows
    chunks["offset"], chunks["length"] = table.offset, table.length
    if is_full:
        return chunks.reshape(shape)
    entries = np.zeros(shape, ENTRY)
    entries.reshape(-1)[table.cell] = chunks
    return entries


@functools.lru_cache(maxsize=256)
def _codecs(filters: tuple[Filter, ...], asks_library: bool) -> tuple[Codec, ...]:
    """Return the codecs that decode chunks with these filters, or raise an error if they do not exist."""
    reason = obstacle(filters)
    if reason is not None:
        missing = missing_plugin(filters) if asks_library else None
        if missing is not None:
            raise LostValuesError(f"{reason}, and {missing}")
        raise LostValuesError(reason) if is_nonsense(filters) else NoReferencesError(reason)
    return filter_codecs(filters)


def damaged(url: str, what: str, /, *, offset: int | None = None) -> MalformedFileError:
    """Make an error that names what is wrong, and where."""
    return contradiction(url, "an HDF5", what, offset=offset)


def _edges(shape: tuple[int, ...], chunks: tuple[int, ...], table: ChunkTable) -> NDArray[np.bool_]:
    """Return which chunks extend past the array."""
    grid = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
    scaled = np.unravel_index(table.cell, grid)
    past = [(i + 1) * c > n for i, c, n in zip(scaled, chunks, shape, strict=True)]
    return np.asarray(np.logical_or.reduce(past), np.bool_)
