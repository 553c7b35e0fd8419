"""Present virtual arrays to programs that know zarr, but not virtualstack: zarr 2 and 3, with common codecs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np

from virtualstack.codecs.pipeline import CodecError
from virtualstack.errors import StorageError, UnsupportedFeatureError, WriterError
from virtualstack.location import Location
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    FIRST,
    INLINE,
    ChunkGrid,
    ChunkManifest,
    ManifestArray,
    ManifestGroup,
    PlainArray,
)
from virtualstack.reading import OnAbsent, read_array
from virtualstack.storage import Bytes, Storage
from virtualstack.zarr.documents import (
    codec_documents,
    decoded_document,
    encode_chunk,
    group_document,
    stored_document,
    why_refused,
)
from virtualstack.zarr.metadata.version2 import describe_array
from virtualstack.zarr.rewrite.encode import can_encode
from virtualstack.zarr.rewrite.encode import encode_chunk as encode_as
from virtualstack.zarr.uniform import UniformArray

__all__ = ["PortableArray", "StoredRange", "ZarrFormat", "group_documents"]

type ZarrFormat = Literal[2, 3]
"""Version of the zarr specification."""

_CODECS_3 = frozenset({"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "vlen-utf8"})
"""Codecs of zarr 3 that zarr-python, tensorstore, zarrita and GDAL decode."""

_CODECS_2 = frozenset({"blosc", "gzip", "vlen-utf8", "zlib", "zstd"})
"""Codecs of zarr 2 that zarr-python, tensorstore, zarrita and GDAL decode: GDAL 3.10 and tensorstore lack shuffle."""


_MAX_CELLS = 64
"""Largest number of cells from which one chunk is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRange:
    """A chunk that is served as it is stored.

    Parameters
    ----------
    location
        Source of the bytes; ``None`` if they are INLINE.
    offset, length
        Range of the bytes in the source.
    inline
        The bytes, if they are INLINE.
    """

    location: Location | None
    offset: int
    length: int
    inline: Bytes = b""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PortableArray:
    """An array in one version of zarr. Its chunks are served as they are stored, or decoded.

    Chunks are served as they are stored if all have one encoding whose codecs are common, and the grid is regular.
    All other arrays are served decoded, as arrays of equal chunks without codecs. No entry of the manifest is read to
    decide this, so opening costs the same for any number of chunks.

    Parameters
    ----------
    array
        The virtual array.
    path
        Its path in the hierarchy, such as ``"science/wind"``.
    zarr_format
        Version of zarr.
    documents
        Metadata documents by key: ``zarr.json``, or ``.zarray`` and ``.zattrs``.
    uniform
        The array on its regular grid.
    plain
        Form of stored chunks; ``None`` if chunks are served decoded.
    writes_fill
        If true, EMPTY chunks are served as chunks full of the fill value, as zarr 2 cannot express their value.
    """

    array: ManifestArray
    path: str
    zarr_format: ZarrFormat
    documents: Mapping[str, Mapping[str, Any]]
    uniform: UniformArray
    plain: PlainArray | None
    writes_fill: bool = False

    @classmethod
    def from_array(
        cls,
        array: ManifestArray,
        /,
        *,
        path: str,
        zarr_format: ZarrFormat,
        chunks: Mapping[str, int] | None = None,
        any_codec: bool = False,
    ) -> PortableArray:
        """Choose the form of an array.

        Parameters
        ----------
        array
            Any virtual array.
        path
            Path in the hierarchy, for messages.
        zarr_format
            Version of zarr.
        chunks
            Length of chunks by dimension, for arrays that are served decoded.
        any_codec
            If true, stored chunks may have any codec that zarr-python knows, also those of numcodecs.

        Raises
        ------
        UnsupportedFeatureError
            Zarr has no data type for the values, or the name is reserved.
        """
        if (reason := why_refused(array, name=path)) is not None:
            raise UnsupportedFeatureError(reason, variable=path, feature=str(array.dtype))
        plain = PlainArray.of_tables(array)
        found = None
        if plain is not None and plain.encoding is not None and can_encode(plain.encoding):
            found = _stored(array, path, plain, zarr_format, any_codec)
        if plain is not None and found is not None:
            uniform = UniformArray(array, ChunkGrid.regular(array.shape, plain.chunks), plain.chunks)
        else:
            plain, uniform = None, UniformArray.from_array(array, chunks)
            found = _decoded(array, path, uniform.chunks, zarr_format)
        return cls(
            array=array,
            path=path,
            zarr_format=zarr_format,
            documents=found[0],
            uniform=uniform,
            plain=plain,
            writes_fill=found[1],
        )

    def with_references(self) -> PortableArray:
        """Return the same array with all its references in memory."""
        array = replace(self.array, manifest=self.array.in_memory())
        return replace(self, array=array, uniform=replace(self.uniform, array=array))

    @property
    def chunk_nbytes(self) -> int:
        """Size of a decoded chunk in bytes; of text, a lower limit."""
        return math.prod(self.uniform.chunks) * max(self.array.dtype.itemsize, 1)

    @property
    def is_in_memory(self) -> bool:
        """If true, no references are read to find a chunk."""
        return isinstance(self.array.manifest, ChunkManifest)

    @property
    def grid_shape(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return self.uniform.grid.shape

    def find(self, cell: tuple[int, ...], /, *, absent: OnAbsent) -> StoredRange | Literal["made"] | None:
        """Return where the bytes of a chunk are stored.

        Returns
        -------
        StoredRange, "made", or None
            ``"made"``: :meth:`make` makes the bytes. ``None``: the chunk does not exist, and reads as the fill value.

        Raises
        ------
        StorageError
            The chunk is ABSENT and ``absent="raise"``, or references cannot be read.
        """
        if self.plain is None:
            return "made" if self.writes_fill or self._has_values(cell, absent) else None
        manifest = self.array.manifest
        if isinstance(manifest, ChunkManifest):
            part, entry = manifest, manifest.entries[cell]
            start = None if manifest.starts is None else manifest.starts[cell]
        else:
            part = manifest.read(tuple(slice(i, i + 1) for i in cell))
            entry, start = part.entries.reshape(-1)[0], part.starts
        code, row, offset, length = entry.item()
        if code == ABSENT and absent == "raise":
            raise StorageError(
                f"chunk {cell} of variable '{self.path}' is ABSENT: its source should contain it, but does not. "
                "Restore the source",
                variable=self.path,
                cell=cell,
            )
        if code in (EMPTY, ABSENT):
            is_own = part.fills[row] == self.array.manifest.tables.fill
            return None if is_own and not self.writes_fill else "made"
        if start is not None and np.any(start):
            return "made"
        if code == INLINE:
            return StoredRange(
                location=None, offset=0, length=length, inline=memoryview(part.inline)[offset : offset + length]
            )
        return StoredRange(location=part.locations[code - FIRST], offset=offset, length=length)

    def make(self, cell: tuple[int, ...], storage: Storage, /, *, absent: OnAbsent) -> bytes:
        """Return the bytes of a chunk that is not stored in this form; it is read and decoded.

        Raises
        ------
        StorageError
            Values cannot be read or decoded.
        """
        values = self.uniform.read(cell, storage, absent=absent)
        if self.plain is None or self.plain.encoding is None:
            return encode_chunk(values)
        if self.plain.order is not None:
            values = values.transpose(self.plain.order)
        try:
            return encode_as(values, self.plain.encoding)
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
            for i, found, cells, grid in zip(cell, met, self.array.grid.axes, self.uniform.grid.axes, strict=True)
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
        spans = (axis.span(i) for i, axis in zip(cell, self.array.grid.axes, strict=True))
        return math.prod(map(_length, spans)) * self.array.dtype.itemsize

    def read_cell(self, cell: tuple[int, ...], storage: Storage, /, *, absent: OnAbsent) -> Bytes:
        """Read the values of one cell of the array, as their bytes.

        Raises
        ------
        StorageError
            Values cannot be read or decoded.
        """
        spans = tuple(axis.span(i) for i, axis in zip(cell, self.array.grid.axes, strict=True))
        return read_array(self.array, spans, storage, absent=absent).tobytes()

    def assemble(self, cell: tuple[int, ...], parts: Mapping[tuple[int, ...], Bytes], /) -> bytes:
        """Return the bytes of a chunk from those of the cells of the array that it shows."""
        spans = [grid.span(i) for i, grid in zip(cell, self.uniform.grid.axes, strict=True)]
        values = np.empty([_length(span) for span in spans], self.array.dtype)
        for at, data in parts.items():
            own = [axis.span(i) for i, axis in zip(at, self.array.grid.axes, strict=True)]
            part = np.frombuffer(data, self.array.dtype).reshape([_length(span) for span in own])
            shared = [(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(spans, own, strict=True)]
            into = tuple(slice(low - a.start, high - a.start) for (low, high), a in zip(shared, spans, strict=True))
            values[into] = part[
                tuple(slice(low - b.start, high - b.start) for (low, high), b in zip(shared, own, strict=True))
            ]
        return encode_chunk(self.uniform.filled_up(values))

    def _met(self, cell: tuple[int, ...]) -> list[range]:
        """Return the cells of the array that a chunk shows, along each axis."""
        spans = (grid.span(i) for i, grid in zip(cell, self.uniform.grid.axes, strict=True))
        return [axis.cover(x.start, x.stop) for axis, x in zip(self.array.grid.axes, spans, strict=True)]

    def read_stored(
        self, cell: tuple[int, ...], stored: StoredRange, storage: Storage, begin: int, length: int, /
    ) -> Bytes:
        """Read a part of the bytes of a chunk that is stored in a source.

        Raises
        ------
        StorageError
            The source has changed, or cannot be read.
        """
        assert stored.location is not None
        try:
            reach = storage.with_access(self.array.access)
            return reach.read(stored.offset + begin, length, expected=stored.location)
        except StorageError as error:
            raise error.of_chunk(self.path, cell, offset=stored.offset, length=stored.length) from error

    def _has_values(self, cell: tuple[int, ...], absent: OnAbsent) -> bool:
        """Return whether any cell of the array below a chunk has values other than the array's fill value."""
        box = tuple(slice(met.start, met.stop) for met in self._met(cell))
        part = self.array.manifest.read(box)
        holes = part.entries["location"] == EMPTY
        if absent != "raise":
            holes |= part.entries["location"] == ABSENT
        if not holes.all():
            return True
        own = self.array.manifest.tables.fill
        return any(part.fills[row] != own for row in np.unique(part.entries["encoding"]).tolist())


def _length(span: slice) -> int:
    return int(span.stop - span.start)


def _stored(
    array: ManifestArray, path: str, plain: PlainArray, zarr_format: ZarrFormat, any_codec: bool
) -> tuple[dict[str, Mapping[str, Any]], bool] | None:
    """Return the documents of an array whose chunks are served as they are stored; ``None`` if a codec is rare.

    The second value tells whether EMPTY chunks must be written out.
    """
    assert plain.encoding is not None
    if zarr_format == 3:
        codecs = codec_documents(plain.encoding, plain.chunks, plain.order)
        if codecs is None or not (any_codec or _CODECS_3.issuperset(codec["name"] for codec in codecs)):
            return None
        return {"zarr.json": stored_document(array, name=path, chunks=plain.chunks, codecs=codecs)}, False
    try:
        zarray, zattrs, writes_fill = describe_array(array, path, plain.chunks, plain)
    except WriterError:
        return None
    used = [codec["id"] for codec in (*(zarray["filters"] or ()), zarray["compressor"]) if codec]
    if not (any_codec or _CODECS_2.issuperset(used)):
        return None
    return {".zarray": zarray, ".zattrs": zattrs}, writes_fill


def _decoded(
    array: ManifestArray, path: str, chunks: tuple[int, ...], zarr_format: ZarrFormat
) -> tuple[dict[str, Mapping[str, Any]], bool]:
    if zarr_format == 3:
        return {"zarr.json": decoded_document(array, name=path, chunks=chunks)}, False
    try:
        zarray, zattrs, writes_fill = describe_array(array, path, chunks, None)
    except WriterError as error:
        raise UnsupportedFeatureError(str(error), variable=path, feature=str(array.dtype)) from error
    return {".zarray": zarray, ".zattrs": zattrs}, writes_fill


def group_documents(group: ManifestGroup, /, *, zarr_format: ZarrFormat) -> dict[str, Mapping[str, Any]]:
    """Return the metadata documents of a group by key, without those of its members."""
    if zarr_format == 3:
        return {"zarr.json": group_document(group)}
    return {".zgroup": {"zarr_format": 2}, ".zattrs": group_document(group)["attributes"]}
