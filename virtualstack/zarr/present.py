"""Decide in which form a program that knows zarr, but not virtualstack, can have an array."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.pipeline import CodecError
from virtualstack.errors import StorageError, UnsupportedFeatureError, WriterError
from virtualstack.location import Access, Location, is_remote
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    FIRST,
    INLINE,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    ManifestArray,
)
from virtualstack.manifests.plain import PlainArray
from virtualstack.manifests.serialised.headers import ArrayHeader, from_array_header, from_encoding
from virtualstack.manifests.serialised.values import Heap, UnstorableError
from virtualstack.reading import read_array
from virtualstack.storage import Bytes, Source, Storage, WatchfulSource
from virtualstack.zarr.client import Client
from virtualstack.zarr.documents import array_document, codec_documents, encode_chunk, why_refused
from virtualstack.zarr.metadata.encode import can_encode, encode_cell, filled_up
from virtualstack.zarr.metadata.version2 import describe_array
from virtualstack.zarr.uniform import MAX_CHUNK_BYTES, count_overlaps, merged_chunks, uniform_chunks

_MAX_CELLS = 64
"""Largest number of cells from which one chunk is made."""

_MAX_SOURCES = 1024

_MAX_HOW = 8 << 10
"""Characters of the description of a cell, which is a header of an answer."""


class KeptSources:
    """Sources; remote ones stay open for the next chunk if they notice themselves that they have changed."""

    def __init__(self, storage: Storage, /) -> None:
        self.storage = storage
        self._sources: dict[tuple[Location, int], Source] = {}

    def read(self, offset: int, length: int, /, *, expected: Location, access: Access | None) -> Bytes:
        """Read one range of a source."""
        storage = self.storage.with_access(access)
        if not is_remote(expected.url):
            return storage.read(offset, length, expected=expected)
        source = self._sources.get((expected, id(access)))
        if source is None:
            source = storage.source(expected.url, expected=expected)
            if isinstance(source, WatchfulSource) and source.is_watchful:
                if len(self._sources) >= _MAX_SOURCES:
                    self._sources = {}
                self._sources[expected, id(access)] = source
        return source.read(offset, length)


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Bytes of a chunk that is served as it is stored: a range of a source, or INLINE if there is no source."""

    location: Location | None
    offset: int
    length: int
    inline: Bytes = b""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Chunk:
    """A chunk of an array that exists.

    Parameters
    ----------
    array
        The array in the form of the client.
    cell
        Position of the chunk in the chunk grid.
    stored
        Range of its bytes; ``None`` if they are made by decoding.
    how
        JSON that says how the bytes of a cell become values; ``None`` if they are the values, or the metadata say it.
    """

    array: ZarrArray
    cell: tuple[int, ...]
    stored: StoredRange | None = None
    how: str | None = None

    @property
    def length(self) -> int | None:
        """Size in bytes, or ``None`` if it is only known once the chunk is made: text, and chunks encoded again."""
        if self.stored is not None:
            return self.stored.length
        if self.array.plain is not None or self.array.array.dtype.kind == "T":
            return None
        return self.array.values_nbytes(self.cell)

    def read(self, sources: KeptSources, begin: int = 0, stop: int | None = None, /) -> Bytes:
        """Read the bytes of the chunk, or from ``begin`` to ``stop``."""
        if self.stored is None:
            return memoryview(self.array.make(self.cell, sources.storage))[begin:stop]
        stored, stop = self.stored, self.stored.length if stop is None else stop
        if stored.location is None:
            return memoryview(stored.inline)[begin:stop]
        try:
            access = self.array.array.access
            return sources.read(stored.offset + begin, stop - begin, expected=stored.location, access=access)
        except StorageError as error:
            raise error.of_chunk(self.array.path, self.cell, offset=stored.offset, length=stored.length) from error


@dataclass(frozen=True, eq=False, kw_only=True)
class ZarrArray:
    """An array in the form in which a client has it. Its chunks are served as they are stored, or decoded.

    If ``is_in_cells`` is true, the chunks are the cells of the array, and each says how it is decoded.
    """

    array: ManifestArray
    path: str
    client: Client
    documents: Mapping[str, Mapping[str, Any]]
    chunks: tuple[int, ...]
    plain: PlainArray | None
    writes_fill: bool
    is_in_cells: bool = False

    def with_references(self) -> ZarrArray:
        """Return the same array with all its references in memory."""
        return replace(self, array=replace(self.array, manifest=self.array.in_memory()))

    @cached_property
    def grid(self) -> ChunkGrid:
        """The grid of the chunks that the client has."""
        return self.array.grid if self.is_in_cells else ChunkGrid.regular(self.array.shape, self.chunks)

    @property
    def chunk_nbytes(self) -> int:
        """Size of a decoded chunk in bytes; of text, a lower limit."""
        return math.prod(self.chunks) * max(self.array.dtype.itemsize, 1)

    @property
    def _is_cut(self) -> bool:
        """If true, chunks end where the array ends; those of zarr reach beyond it."""
        return self.client.zarr_format == "cells"

    def values_nbytes(self, cell: tuple[int, ...], /) -> int:
        """Return the bytes of a chunk that is served as values."""
        shape = map(_length, self.grid.box(cell)) if self._is_cut else self.chunks
        return math.prod(shape) * self.array.dtype.itemsize

    @property
    def is_in_memory(self) -> bool:
        """If true, no references are read to find a chunk."""
        return isinstance(self.array.manifest, ChunkManifest)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return self.grid.shape

    @cached_property
    def exists(self) -> NDArray[np.bool_]:
        """Mask of the chunks that exist; of all chunks if their references are not in memory."""
        if not self.is_in_memory:
            return np.broadcast_to(np.True_, self.grid_shape)
        return np.asarray(count_overlaps(self._has_values(self.array.in_memory()), self.array.grid, self.grid) > 0)

    def find(self, cell: tuple[int, ...], /) -> Chunk | None:
        """Return a chunk, or ``None`` if it does not exist, so that it reads as the fill value."""
        if self.plain is None and not self.is_in_cells:
            box = tuple(slice(met.start, met.stop) for met in self._met(cell))
            exists = self.writes_fill or bool(self._has_values(self.array.manifest.read(box)).any())
            return Chunk(array=self, cell=cell) if exists else None
        manifest = self.array.manifest
        if isinstance(manifest, ChunkManifest):
            part, entry = manifest, manifest.entries[cell]
            start = None if manifest.starts is None else manifest.starts[cell]
        else:
            part = manifest.read(tuple(slice(i, i + 1) for i in cell))
            entry, start = part.entries.reshape(-1)[0], part.starts
        code, row, offset, length = entry.item()
        if code == ABSENT and self.client.absent == "raise":
            raise StorageError(
                f"chunk {cell} of variable '{self.path}' is ABSENT: its source should contain it, but does not. "
                "Restore the source",
                variable=self.path,
                cell=cell,
            )
        if code in (EMPTY, ABSENT):
            if self.is_in_cells:
                filled = json.dumps({"fill": base64.b64encode(part.fills[row].raw).decode()})
                return Chunk(array=self, cell=cell, stored=StoredRange(None, 0, 0), how=filled)
            is_own = part.fills[row] == manifest.tables.fill
            return None if is_own and not self.writes_fill else Chunk(array=self, cell=cell)
        begin = 0 if start is None else int(np.asarray(start).reshape(-1)[0])
        how = self._how(cell, part.encodings[row], begin, length) if self.is_in_cells else None
        if how is None if self.is_in_cells else begin:
            return Chunk(array=self, cell=cell)
        if code == INLINE:
            raw = memoryview(part.inline)[offset : offset + length]
            return Chunk(array=self, cell=cell, stored=StoredRange(None, 0, length, raw), how=how)
        stored = StoredRange(part.locations[code - FIRST], offset, length)
        return Chunk(array=self, cell=cell, stored=stored, how=how)

    def _how(self, cell: tuple[int, ...], encoding: ChunkEncoding, start: int, length: int) -> str | None:
        """Return how the client decodes a stored chunk and finds a cell in it; ``None`` if it gets the values."""
        is_known = self.array.dtype.kind in "biuf" and all(self.client.decodes(codec.name) for codec in encoding.codecs)
        if not is_known or length > self._cell_bytes(cell):
            return None
        how = json.dumps({"encoding": from_encoding(encoding), "start": start}, separators=(",", ":"))
        return how if len(how) <= _MAX_HOW else None

    def make(self, cell: tuple[int, ...], storage: Storage, /) -> bytes:
        """Return the bytes of a chunk that is not stored in this form; it is read and decoded."""
        values = read_array(self.array, self.grid.box(cell), storage, absent=self.client.absent)
        if self.plain is None or self.plain.encoding is None:
            return self._encode(values)
        try:
            return encode_cell(values, self.plain.chunks, self.plain.order, self.plain.encoding)
        except CodecError as error:
            raise StorageError(
                f"chunk {cell} of variable '{self.path}' cannot be encoded again: {error}",
                variable=self.path,
                cell=cell,
            ) from error

    def cut_cells(self, cell: tuple[int, ...], /, *, max_cell_bytes: int, max_bytes: int) -> list[tuple[int, ...]]:
        """Return the cells of the array that a chunk shows, if it cuts one of them, so that other chunks show it too.

        The result is empty if the chunk shows whole cells, or if the cells are too many or too large. One that has more
        than ``max_cell_bytes`` would not be kept. All cells and the chunk may have ``max_bytes``.
        """
        met = self._met(cell)
        is_cut = any(
            cells.span(found.start, found.stop) != grid.span(i)
            for i, found, cells, grid in zip(cell, met, self.array.grid.axes, self.grid.axes, strict=True)
        )
        if not is_cut or self.plain is not None or self.array.dtype.kind == "T":
            return []
        cells = list(product(*met)) if math.prod(map(len, met)) <= _MAX_CELLS else []
        is_kept = all(self._cell_bytes(cell) <= max_cell_bytes for cell in cells)
        return cells if is_kept and self.count_bytes(cells) <= max_bytes else []

    def count_bytes(self, cells: Sequence[tuple[int, ...]], /) -> int:
        """Return the bytes of memory that cells of the array and a chunk of them take."""
        return sum(map(self._cell_bytes, cells)) + self.chunk_nbytes

    def _cell_bytes(self, cell: tuple[int, ...]) -> int:
        return math.prod(map(_length, self.array.grid.box(cell))) * self.array.dtype.itemsize

    def read_cell(self, cell: tuple[int, ...], storage: Storage, /) -> Bytes:
        """Read the values of one cell of the array, as their bytes."""
        return read_array(self.array, self.array.grid.box(cell), storage, absent=self.client.absent).tobytes()

    def read_some(self, cell: tuple[int, ...], n: int, storage: Storage, /) -> Bytes:
        """Read a chunk, and return at most ``n`` of its values in order, from the least to the greatest."""
        box = self.grid.box(cell)
        values = np.sort(read_array(self.array, box, storage, absent=self.client.absent), axis=None)
        return encode_chunk(values[np.linspace(0, values.size - 1, min(n, values.size)).astype(int)])

    def assemble(self, cell: tuple[int, ...], parts: Mapping[tuple[int, ...], Bytes], /) -> bytes:
        """Return the bytes of a chunk from those of the cells of the array that it shows."""
        spans = self.grid.box(cell)
        values = np.empty([_length(span) for span in spans], self.array.dtype)
        for at, data in parts.items():
            own = self.array.grid.box(at)
            part = np.frombuffer(data, self.array.dtype).reshape([_length(span) for span in own])
            shared = [(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(spans, own, strict=True)]
            into = tuple(slice(low - a.start, high - a.start) for (low, high), a in zip(shared, spans, strict=True))
            values[into] = part[
                tuple(slice(low - b.start, high - b.start) for (low, high), b in zip(shared, own, strict=True))
            ]
        return self._encode(values)

    def _encode(self, values: NDArray[Any]) -> bytes:
        """Return the bytes of the values of a chunk."""
        return encode_chunk(values if self._is_cut else filled_up(values, self.chunks))

    def _met(self, cell: tuple[int, ...]) -> list[range]:
        """Return the cells of the array that a chunk shows, along each axis."""
        spans = self.grid.box(cell)
        return [axis.cover(x.start, x.stop) for axis, x in zip(self.array.grid.axes, spans, strict=True)]

    def _has_values(self, part: ChunkManifest) -> NDArray[np.bool_]:
        """Return a mask of the cells of the array that have other values than its fill value."""
        is_hole = part.entries["location"] == EMPTY if self.client.absent == "raise" else part.holes
        own = self.array.manifest.tables.fill
        is_own = np.array([fill == own for fill in part.fills], np.bool_)
        return ~(is_hole & is_own[np.where(is_hole, part.entries["encoding"], 0)])


def _length(span: slice) -> int:
    return int(span.stop - span.start)


def present(array: ManifestArray, client: Client, /, *, path: str) -> ZarrArray:
    """Return an array in the form in which a client can have it.

    Chunks are served as they are stored if, by the tables, all have one encoding whose codecs the client decodes, and
    the grid is regular. All other arrays are served decoded, as arrays of equal chunks without codecs, and so are those
    of many small chunks, which are merged. No entry of the manifest is read to decide this, so opening costs the same
    for any number of chunks.
    """
    if (reason := why_refused(array, name=path)) is not None:
        raise UnsupportedFeatureError(reason, variable=path, feature=str(array.dtype))
    if client.zarr_format == "cells":
        return _present_cells(array, client, path)
    plain = PlainArray.of_tables(array)
    if plain is not None and not _is_stored(array, plain, client):
        plain = None
    chunks = uniform_chunks(array, client.chunks) if plain is None else plain.chunks
    if client.needs_all and (merged := merged_chunks(array, chunks)) != chunks:
        plain, chunks = None, merged
    documents, writes_fill = _documents(array, path, chunks, plain, client)
    return ZarrArray(
        array=array,
        path=path,
        client=client,
        documents=documents,
        chunks=chunks,
        plain=plain,
        writes_fill=writes_fill,
    )


def _present_cells(array: ManifestArray, client: Client, path: str) -> ZarrArray:
    """Return an array as its cells; large ones are split, and come as values.

    The document is that of an array in a snapshot of a vstack, without encodings.
    """
    chunks = tuple(axis.longest for axis in array.grid.axes)
    is_small = math.prod(chunks) * array.dtype.itemsize <= MAX_CHUNK_BYTES
    chunks = chunks if is_small else uniform_chunks(array, {})
    grid = array.grid if is_small else ChunkGrid.regular(array.shape, chunks)
    heap, header = Heap(), ArrayHeader.from_array(array)
    try:
        written = from_array_header(replace(header, grid=grid, encodings=(), fills=header.fills[:1]), heap)
    except UnstorableError as error:
        raise UnsupportedFeatureError(str(error), variable=path, feature=str(array.dtype)) from error
    return ZarrArray(
        array=array,
        path=path,
        client=client,
        documents={"array.json": {"array": written, "heap": base64.b64encode(b"".join(heap.parts)).decode()}},
        chunks=chunks,
        plain=None,
        writes_fill=True,
        is_in_cells=is_small,
    )


def _is_stored(array: ManifestArray, plain: PlainArray, client: Client) -> bool:
    """Return whether the client decodes the stored chunks, and gets those that it needs but that are to be encoded."""
    if plain.encoding is None or client.why_not(plain.encoding, plain.chunks, plain.order) is not None:
        return False
    if not client.needs_all or can_encode(plain.encoding):
        return True
    return isinstance(array.manifest, ChunkManifest) and isinstance(PlainArray.from_array(array), PlainArray)


def _documents(
    array: ManifestArray, path: str, chunks: tuple[int, ...], plain: PlainArray | None, client: Client
) -> tuple[dict[str, Mapping[str, Any]], bool]:
    """Return the documents of an array, and whether EMPTY chunks must be written out."""
    if client.zarr_format == 3:
        codecs = None
        if plain is not None and plain.encoding is not None:
            codecs = codec_documents(plain.encoding, chunks, plain.order)
        return {"zarr.json": array_document(array, name=path, chunks=chunks, codecs=codecs)}, False
    try:
        zarray, zattrs, writes_fill = describe_array(array, path, chunks, plain)
    except WriterError as error:
        raise UnsupportedFeatureError(str(error), variable=path, feature=str(array.dtype)) from error
    return {".zarray": zarray, ".zattrs": zattrs}, writes_fill
