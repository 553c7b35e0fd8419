"""Where the values of a dataset lie, by its layout: chunked, contiguous, compact, external or virtual."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
from h5py import h5d
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill
from virtualstack.readers.hdf5.chunks import ChunkTable, UnlistableChunksError, chunk_table
from virtualstack.readers.hdf5.contiguous import Segment, contiguous_chunks
from virtualstack.readers.hdf5.datatypes import ElementType, packed
from virtualstack.readers.hdf5.external import external_segments
from virtualstack.readers.hdf5.faults import library_errors
from virtualstack.readers.hdf5.filters import Filter, codecs_of, filters_of, missing_plugin, obstacle, passed
from virtualstack.readers.hdf5.layout import ChunkLayout, read_chunk_layout
from virtualstack.readers.hdf5.obstacles import LostValuesError, NoReferencesError
from virtualstack.readers.hdf5.tree import Variable
from virtualstack.readers.hdf5.values import one_cell
from virtualstack.readers.hdf5.virtual_datasets import read_mappings, virtual_chunks
from virtualstack.readers.hdf5.virtual_sources import Chain, Datasets

__all__ = ["MAX_CELLS", "FileContext", "LostValuesError", "NoReferencesError", "references"]

MAX_CELLS = 1 << 28
"""Cells of a chunk grid. So many take some seconds to open, and no memory but for chunks that were written; what copies
the entries, such as joining, takes 24 bytes a cell: 6 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileContext:
    """What reading a dataset needs of its file.

    Parameters
    ----------
    location
        Of the file.
    read
        Gives ``length`` bytes at an offset of the file.
    base
        Bytes of the user block, which addresses do not count.
    inline_limit
        Bytes of values that one variable may put into the manifest.
    locate
        Gives the location of another file by its path.
    object_paths
        Gives the path of each object of the file by its address.
    contiguous_chunk_size
        Bytes of the chunks into which contiguous values are cut, at most; ``None`` for one chunk.
    datasets, chain
        Of any files, for virtual datasets; and those virtual datasets of which this file holds a source.
    """

    location: Location
    read: Callable[[int, int], bytes]
    base: int
    inline_limit: int
    locate: Callable[[str], Location]
    object_paths: Callable[[], Mapping[int, str]]
    contiguous_chunk_size: int | None = None
    datasets: Datasets
    chain: Chain = ()


def references(
    variable: Variable, found: ElementType, shape: tuple[int, ...], fill: Fill, context: FileContext, /
) -> tuple[ChunkManifest, ChunkGrid]:
    """Give the byte ranges of a dataset, and its chunk grid.

    Parameters
    ----------
    variable
        With a dataspace.
    found
        What its elements are.
    shape
        In elements, with the axes of an array type.
    fill
        Of the dataset.
    context
        Of its file.

    Raises
    ------
    NoReferencesError
        Its bytes are no byte ranges of a source, or not those of its values.
    LostValuesError
        Its values are out of reach.
    """
    dataset = variable.dataset
    dcpl = dataset.id.get_create_plist()
    layout = dcpl.get_layout()
    if layout == h5d.VIRTUAL:
        return _virtual(variable, found, shape, fill, context)
    if found.stored is None:
        raise NoReferencesError(found.reason)
    if found.subshape and dcpl.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED:
        raise NoReferencesError("an array type with a fill value")
    if layout == h5d.COMPACT:
        return _compact(dataset, found.stored, shape, fill), one_cell(shape)
    if dcpl.get_external_count():
        return _external(dataset, found.stored, shape, fill, context)
    if layout == h5d.CONTIGUOUS:
        return _contiguous(variable, found.stored, shape, fill, context)
    return _chunked(variable, found, shape, fill, context)


def _compact(dataset: h5py.Dataset, stored: np.dtype[Any], shape: tuple[int, ...], fill: Fill) -> ChunkManifest:
    """Take the values out of the object header."""
    grid = one_cell(shape)
    if not math.prod(shape):
        return ChunkManifest.empty(grid.shape, fill)
    dtype = packed(stored)
    with library_errors():
        values = np.ascontiguousarray(dataset[()]).reshape(shape).astype(dtype)
    return ChunkManifest.from_bytes(
        [values.tobytes()], shape=grid.shape, encoding=ChunkEncoding.of(dtype, shape), fill=fill
    )


def _contiguous(
    variable: Variable, stored: np.dtype[Any], shape: tuple[int, ...], fill: Fill, context: FileContext
) -> tuple[ChunkManifest, ChunkGrid]:
    dataset = variable.dataset
    with library_errors():
        offset = dataset.id.get_offset()
    # The HDF5 library adds the user block to "undefined", all bits set, too (2.0).
    if offset is None or offset == context.base - 1 or not math.prod(shape):
        return _nothing(shape, fill)
    length = math.prod(shape) * stored.itemsize
    _check_inside(np.array([offset]), np.array([length]), variable.path, context)
    segments = [Segment(context.location, offset, length)]
    return contiguous_chunks(segments, shape, stored, fill, chunk_size=context.contiguous_chunk_size)


def _external(
    dataset: h5py.Dataset, stored: np.dtype[Any], shape: tuple[int, ...], fill: Fill, context: FileContext
) -> tuple[ChunkManifest, ChunkGrid]:
    length = math.prod(shape) * stored.itemsize
    if not length:
        return _nothing(shape, fill)
    dcpl = dataset.id.get_create_plist()
    files = (dcpl.get_external(i) for i in range(dcpl.get_external_count()))
    segments = external_segments(files, length, context.location.url, context.locate)
    return contiguous_chunks(segments, shape, stored, fill, chunk_size=context.contiguous_chunk_size)


def _virtual(
    variable: Variable, found: ElementType, shape: tuple[int, ...], fill: Fill, context: FileContext
) -> tuple[ChunkManifest, ChunkGrid]:
    dcpl = variable.dataset.id.get_create_plist()
    url = context.location.url
    chunks = virtual_chunks(
        read_mappings(dcpl),
        shape[: len(shape) - len(found.subshape)],
        fill.dtype,
        fill,
        context.datasets.sources_of(url, variable.path, context.chain),
        url=url,
        inline_limit=context.inline_limit,
        subshape=found.subshape,
        is_source=bool(context.chain),
    )
    if found.subshape and dcpl.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED:
        raise NoReferencesError("an array type with a fill value")
    return chunks.manifest, chunks.grid


def _nothing(shape: tuple[int, ...], fill: Fill) -> tuple[ChunkManifest, ChunkGrid]:
    grid = one_cell(shape)
    return ChunkManifest.empty(grid.shape, fill), grid


def _chunked(
    variable: Variable, found: ElementType, shape: tuple[int, ...], fill: Fill, context: FileContext
) -> tuple[ChunkManifest, ChunkGrid]:
    dataset, stored = variable.dataset, found.stored
    if stored is None:
        raise NoReferencesError(found.reason)
    filters = filters_of(dataset.id.get_create_plist())
    chunks = (*map(int, dataset.chunks), *found.subshape)
    grid = ChunkGrid.regular(shape, chunks)
    if not math.prod(shape):
        return ChunkManifest.empty(grid.shape, fill), grid
    if math.prod(grid.shape) > MAX_CELLS:
        raise NoReferencesError(f"a chunk grid of {math.prod(grid.shape)} cells; a manifest has at most {MAX_CELLS}")
    layout = _layout(variable, filters, context)
    try:
        table = chunk_table(dataset, layout, context.base)
    except UnlistableChunksError as error:
        raise NoReferencesError(str(error)) from error
    _check_inside(table.offset, table.length, variable.path, context)
    unfiltered = _unfiltered_edges(dataset, table, filters, layout)
    masks = np.where(unfiltered, (1 << len(filters)) - 1, table.mask)
    distinct, rows = np.unique(masks, return_inverse=True)
    pipelines = [passed(filters, int(mask)) for mask in distinct]
    for pipeline in pipelines:
        _check_pipeline(pipeline)
    encodings = [ChunkEncoding.of(stored, chunks, codecs_of(pipeline)) for pipeline in pipelines]
    manifest = ChunkManifest(
        entries=_entries(table, rows, grid.shape),
        fills=(fill,),
        encodings=tuple(encodings),
        locations=(context.location,),
    )
    return manifest, grid


def _entries(table: ChunkTable, rows: NDArray[np.intp], shape: tuple[int, ...]) -> NDArray[np.void]:
    """Place the chunks of a table in a grid of EMPTY cells, whose memory is not touched elsewhere."""
    chunks = np.empty(table.cell.shape, ENTRY)
    chunks["location"], chunks["encoding"] = FIRST, rows.reshape(-1)
    chunks["offset"], chunks["length"] = table.offset, table.length
    entries = np.zeros(shape, ENTRY)
    entries.reshape(-1)[table.cell] = chunks
    return entries


def _check_pipeline(filters: tuple[Filter, ...]) -> None:
    """Raise where no codecs decode chunks that went through these filters."""
    reason = obstacle(filters)
    if reason is not None:
        missing = missing_plugin(filters)
        raise NoReferencesError(reason) if missing is None else LostValuesError(f"{reason}, and {missing}")


def _check_inside(offsets: NDArray[Any], lengths: NDArray[Any], path: str, context: FileContext) -> None:
    """Raise `MalformedFileError` where a byte range lies outside of the file."""
    size = context.location.size
    if size is None:
        return
    outside = np.flatnonzero((offsets < 0) | (lengths < 0) | (offsets > size - lengths))
    if outside.size:
        url, at = context.location.url, int(offsets[outside[0]])
        raise MalformedFileError(
            f"'{url}' is truncated or damaged: '{path}' has {int(lengths[outside[0]])} bytes at offset {at}, but the "
            f"file ends at {size}. Compare its size with that of its origin, or fetch it again",
            url=url,
            offset=at,
        )


def _layout(variable: Variable, filters: tuple[Filter, ...], context: FileContext) -> ChunkLayout | None:
    """Read the layout message where something depends on it."""
    dataset = variable.dataset
    has_edges = any(n % c for n, c in zip(dataset.shape, dataset.chunks, strict=True))
    if not (filters and has_edges) and None not in dataset.maxshape[1:]:
        return None
    return read_chunk_layout(context.read, context.base, variable.address)


def _unfiltered_edges(
    dataset: h5py.Dataset, table: ChunkTable, filters: tuple[Filter, ...], layout: ChunkLayout | None
) -> NDArray[np.bool_]:
    """Tell which chunks reach past the array and were therefore stored without filters."""
    shape, chunks = dataset.shape, dataset.chunks
    if not filters or not any(n % c for n, c in zip(shape, chunks, strict=True)):
        return np.zeros(table.cell.shape, np.bool_)
    if layout is None:
        raise NoReferencesError("its object header could not be read, so edge chunks may be filtered or not")
    if not layout.leaves_edges_unfiltered:
        return np.zeros(table.cell.shape, np.bool_)
    grid = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
    scaled = np.unravel_index(table.cell, grid)
    past = [(i + 1) * c > n for i, c, n in zip(scaled, chunks, shape, strict=True)]
    return np.asarray(np.logical_or.reduce(past), np.bool_)
