"""Write values into a store as compressed chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numcodecs.shuffle import Shuffle
from numcodecs.zstd import Zstd
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, INLINE, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray
from virtualstack.manifests.cells import begins_run
from virtualstack.manifests.paged import map_in_threads
from virtualstack.reading import read_array
from virtualstack.reading.blocks import boxes
from virtualstack.storage import ObjectStore, Storage
from virtualstack.vstack.format.names import values_key
from virtualstack.zarr.metadata.encode import encode_chunk, filled_up

CHUNK_BYTES = 1 << 20
"""Largest size in bytes of a loaded array with a single chunk."""

_ZSTD_LEVEL = 3
_OBJECT_BYTES = 64 << 20  # size in bytes at which an object is complete, and the next one begins


def cut(values: NDArray[Any], lines: Sequence[NDArray[np.int64]], /) -> list[NDArray[Any]]:
    """Cut values into cells, in C order, at the elements at which chunks begin along each axis."""
    cells: Iterable[Any] = boxes(lines)
    return [values[(*box, ...)] for box in cells]


def compressed(cells: Sequence[NDArray[Any]], /) -> tuple[list[ChunkEncoding], list[bytes]]:
    """Encode cells as chunks with a checksum; bytes of numbers are shuffled before."""
    dtype = cells[0].dtype
    zstd = Codec.from_config("zstd", level=_ZSTD_LEVEL, checksum=True)
    first: tuple[Codec, ...] = ()
    if dtype.kind == "T":
        first = (Codec("vlen-utf8"),)
    elif dtype.kind in "iufcmM" and dtype.itemsize > 1:
        first = (Codec.from_config("numcodecs.shuffle", elementsize=dtype.itemsize),)
    encodings = {cell.shape: ChunkEncoding.c_order(dtype, cell.shape, (*first, zstd)) for cell in cells}
    shuffle, compress = Shuffle(dtype.itemsize), Zstd(level=_ZSTD_LEVEL, checksum=True)

    def encode(cell: NDArray[Any]) -> bytes:
        if dtype.kind == "T":
            return encode_chunk(cell, encodings[cell.shape])
        raw = np.ascontiguousarray(cell).reshape(-1).view(np.uint8)
        data: bytes = compress.encode(shuffle.encode(raw) if first else raw)
        return data

    return [encodings[cell.shape] for cell in cells], map_in_threads(encode, cells)


def manifest_of(
    chunks: list[bytes],
    encodings: list[ChunkEncoding],
    fill: Fill,
    shape: Sequence[int],
    put: Callable[[int, bytes], Location],
    most: int,
    /,
) -> ChunkManifest:
    """Put chunks one after another into objects, each complete with ``most`` bytes, and return their manifest."""
    rows = {encoding: row for row, encoding in enumerate(dict.fromkeys(encodings))}
    lengths = np.array([len(chunk) for chunk in chunks], np.int64)
    begins = np.cumsum(lengths) - lengths
    is_first = begins_run(begins.size, begins // most)
    first, number = np.flatnonzero(is_first), np.cumsum(is_first) - 1
    ends = [*first[1:].tolist(), len(chunks)]
    locations = [put(i, b"".join(chunks[a:b])) for i, (a, b) in enumerate(zip(first.tolist(), ends, strict=True))]
    entries = np.zeros(len(chunks), ENTRY)
    entries["location"] = FIRST + number
    entries["encoding"] = [rows[encoding] for encoding in encodings]
    entries["length"] = lengths
    entries["offset"] = begins - begins[first][number]
    return ChunkManifest(entries.reshape(shape), (fill,), tuple(rows), tuple(locations))


def chunk_shape(shape: tuple[int, ...], itemsize: int, /) -> tuple[int, ...]:
    """Return the chunks of a loaded array; if there are several, they do not depend on the length of the first axis.

    >>> chunk_shape((180, 360), 8), chunk_shape((10**6,), 8), chunk_shape((2, 4096, 4096), 4)
    ((180, 360), (131072,), (1, 64, 4096))
    """
    chunks = [max(n, 1) for n in shape]
    for i in range(len(shape)):
        n_rows = -(-CHUNK_BYTES // max(math.prod(chunks[i + 1 :]) * itemsize, 1))
        chunks[i] = min(chunks[i], 1 << (n_rows - 1).bit_length())
        if n_rows > 1:
            break
    return tuple(chunks)


def in_chunks(array: ManifestArray, storage: Storage, /) -> ManifestArray:
    """Return an array of one uncompressed INLINE chunk in compressed ones of about 1 MiB.

    Others stay as they are, and so does a chunk of another length, which cannot be decoded.
    """
    manifest = array.manifest
    if not isinstance(manifest, ChunkManifest) or manifest.entries.size != 1 or array.dtype.kind == "T":
        return array
    if manifest.entries["location"].item() != INLINE or any(x.codecs for x in manifest.encodings):
        return array
    if manifest.entries["length"].item() != array.nbytes:
        return array
    lengths = chunk_shape(array.shape, array.itemsize)
    grid = ChunkGrid.regular(array.shape, lengths)
    cells = cut(read_array(array, (), storage), [axis.lines() for axis in grid.axes])
    (encoding, *_), chunks = compressed([filled_up(cell, lengths) for cell in cells])
    made = ChunkManifest.from_bytes(chunks, shape=grid.shape, encoding=encoding, fill=manifest.fill)
    return replace(array, manifest=made, grid=grid)


@dataclass(slots=True)
class ValuesWriter:
    """A writer of compressed chunks as objects of a segment; nothing is visible before a snapshot names the segment."""

    objects: ObjectStore
    segment: str
    n_objects: int = 0

    def write(self, values: NDArray[Any], lines: Sequence[NDArray[np.int64]], fill: Fill, /) -> ChunkManifest:
        """Write values, one chunk for each cell between lines, and return their manifest."""
        encodings, chunks = compressed(cut(values, lines))
        return manifest_of(chunks, encodings, fill, [len(x) - 1 for x in lines], self._put, _OBJECT_BYTES)

    def _put(self, number: int, data: bytes) -> Location:
        key = values_key(self.segment, self.n_objects)
        self.objects.target.put(key, data)
        self.n_objects += 1
        return Location(self.objects.url + key, len(data))
