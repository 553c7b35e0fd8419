"""URLs, chunk columns and checksums of virtual chunks in Icechunk.

Icechunk keeps checksums in its manifest files; its Python interface does not return them.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, MissingDependencyError, Remedy
from virtualstack.location import Location, is_http
from virtualstack.manifests import ENTRY, FIRST, INLINE, ChunkManifest
from virtualstack.manifests.cells import check_count
from virtualstack.zarr.metadata.array import ArrayMetadata

type Checksum = tuple[str | None, int | None]
"""An etag, or a modification time in whole seconds since 1970."""

# Icechunk specification, "File headers": magic, implementation, version of the specification, file type, compression
_MAGIC = b"ICE\xf0\x9f\xa7\x8aCHUNK"
_HEADER_BYTES = 39
_VERSIONS = 1, 2
_MANIFEST = 2
_PLAIN, _ZSTD = 0, 1

_MAX_BYTES = 1 << 31
"""Largest size in bytes of a flatbuffer, whose offsets are signed numbers of 32 bits."""

_MAX_ETAG_BYTES = 1024
_BATCH_REFS = 1 << 17

# Icechunk specification, "Manifest files": numbers of the fields of each table
_MANIFEST_ARRAYS = 1
_ARRAY_NODE_ID, _ARRAY_REFS = 0, 1
_REF_INDEX, _REF_ETAG, _REF_LAST_MODIFIED = 0, 6, 7

_CROCKFORD = {c: i for i, c in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}


type Checksums = tuple[NDArray[np.int64], NDArray[np.object_]]
"""The index of each chunk that has a checksum, one a row; and its checksum, an etag as text or a time as a number."""


def join_checksums(parts: Iterable[Checksums], n_axes: int, /) -> Checksums:
    """Join the checksums of several parts or files."""
    cells, keys = [np.zeros((0, n_axes), np.int64)], [np.zeros(0, object)]
    for part in parts:
        cells.append(part[0])
        keys.append(part[1])
    return np.concatenate(cells), np.concatenate(keys)


def node_id(text: str, /) -> bytes:
    """Return the eight bytes of a node's id, which Icechunk shows as text in base 32.

    >>> node_id("0000000000028").hex()
    '0000000000000024'
    """
    try:
        number = 0
        for character in text:
            number = number * 32 + _CROCKFORD[character]
        return (number >> 1).to_bytes(8)
    except (KeyError, OverflowError) as error:
        raise MalformedFileError(f"'{text}' is not the id of an Icechunk node; update virtualstack") from error


def read_checksums(data: bytes, node: bytes, n_axes: int, /, *, where: str) -> Checksums:
    """Read the checksums of the chunks of one array.

    A million chunks with etags take about a second.
    """
    buffer = _Flatbuffer(_unpacked(data, where), where)
    arrays = buffer.vector(buffer.field(buffer.root(), _MANIFEST_ARRAYS))
    parts = []
    for table in buffer.tables(arrays):
        at = buffer.field(table[None], _ARRAY_NODE_ID)
        if buffer.take(at, "V8")[0].tobytes() == node:
            refs = buffer.vector(buffer.field(table[None], _ARRAY_REFS))
            batches = (refs[begin : begin + _BATCH_REFS] for begin in range(0, len(refs), _BATCH_REFS))
            parts += [_checksums(buffer, buffer.tables(batch), n_axes) for batch in batches]
    return join_checksums(parts, n_axes)


def _unpacked(data: bytes, where: str) -> bytes:
    """Return the flatbuffer of a manifest file."""
    header = data[:_HEADER_BYTES]
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC) or header[37] != _MANIFEST:
        raise MalformedFileError(f"'{where}' is not a manifest file of Icechunk", Remedy("restore it"))
    if header[36] not in _VERSIONS or header[38] not in (_PLAIN, _ZSTD):
        raise MalformedFileError(
            f"'{where}' has version {header[36]} of the specification and compression {header[38]}; versions "
            f"{_VERSIONS} and compressions {(_PLAIN, _ZSTD)} are supported",
            Remedy("update virtualstack, or restore the file"),
        )
    if header[38] == _PLAIN:
        return data[_HEADER_BYTES:]
    try:
        with pa.CompressedInputStream(pa.BufferReader(memoryview(data)[_HEADER_BYTES:]), "zstd") as stream:
            unpacked: bytes = stream.read(_MAX_BYTES)
    except OSError as error:
        raise MalformedFileError(f"'{where}' cannot be decompressed: {error}", Remedy("restore it")) from error
    return unpacked


class _Flatbuffer:
    """Reader of the columns of a flatbuffer: it takes the positions of many records at once and checks each of them."""

    # FlatBuffers internals, "Format components": positions are relative; a table begins with its vtable's position

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.where = where

    def take(self, at: NDArray[np.int64], kind: str, /) -> NDArray[np.generic]:
        """Return the values at some positions."""
        n = len(self.data) - np.dtype(kind).itemsize + 1
        if at.size and (n < 1 or int(at.min()) < 0 or int(at.max()) >= n):
            raise MalformedFileError(
                f"'{self.where}' is damaged: it refers to bytes past its end", Remedy("restore it")
            )
        if not at.size:
            return np.zeros(0, kind)
        found: NDArray[np.generic] = np.ndarray((n,), kind, self.data, strides=(1,))[at]
        return found

    def numbers(self, at: NDArray[np.int64], kind: str = "<u4", /) -> NDArray[np.int64]:
        """Return the integers at some positions."""
        return self.take(at, kind).astype(np.int64)

    def root(self) -> NDArray[np.int64]:
        """Return the position of the root table."""
        return self.numbers(np.zeros(1, np.int64))

    def field(self, tables: NDArray[np.int64], number: int, /, *, required: bool = True) -> NDArray[np.int64]:
        """Return the positions of one field of some tables; 0 for a table without the field."""
        vtables = tables - self.numbers(tables, "<i4")
        slot = 4 + 2 * number
        has = np.flatnonzero(self.numbers(vtables, "<u2") >= slot + 2)
        offsets = np.zeros(len(tables), np.int64)
        offsets[has] = self.numbers(vtables[has] + slot, "<u2")
        if required and not offsets.all():
            raise MalformedFileError(
                f"'{self.where}' is damaged: it lacks a field that every manifest has", Remedy("restore it")
            )
        return np.where(offsets > 0, tables + offsets, 0)

    def follow(self, at: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the positions that references at some positions point to."""
        return at + self.numbers(at)

    def vector(self, at: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the positions of the items of a vector of references, which one field points to."""
        begin = self.follow(at)
        n = int(self.numbers(begin)[0])
        self.take(begin + 4 * n, "<u4")  # check the declared length before creating so many positions
        return begin + 4 + 4 * np.arange(n, dtype=np.int64)

    def tables(self, items: NDArray[np.int64], /) -> NDArray[np.int64]:
        """Return the positions of the tables that items of a vector point to."""
        return self.follow(items)


def _checksums(buffer: _Flatbuffer, refs: NDArray[np.int64], n_axes: int) -> Checksums:
    etags = buffer.field(refs, _REF_ETAG, required=False)
    times = buffer.field(refs, _REF_LAST_MODIFIED, required=False)
    modified = np.zeros(len(refs), np.int64)
    modified[times > 0] = buffer.numbers(times[times > 0])
    rows = np.flatnonzero((etags > 0) | (modified > 0))
    index = buffer.follow(buffer.field(refs[rows], _REF_INDEX))
    if (buffer.numbers(index) != n_axes).any():
        raise MalformedFileError(
            f"'{buffer.where}' is damaged: its chunks should have indexes of {n_axes} numbers, as the array has axes",
            Remedy("restore it"),
        )
    cells = [buffer.numbers(index + 4 + 4 * axis) for axis in range(n_axes)]
    keys = np.full(len(refs), None, object)
    keys[modified > 0] = modified[modified > 0].astype(object)
    keys[etags > 0] = _texts(buffer, buffer.follow(etags[etags > 0]))
    return np.stack(cells, 1) if cells else np.zeros((len(rows), 0), np.int64), keys[rows]


def _texts(buffer: _Flatbuffer, at: NDArray[np.int64]) -> NDArray[np.object_]:
    """Return the texts at some positions."""
    lengths = buffer.numbers(at)
    if lengths.size and int(lengths.max()) > _MAX_ETAG_BYTES:
        raise MalformedFileError(
            f"'{buffer.where}' has an etag of {int(lengths.max())} bytes; at most {_MAX_ETAG_BYTES} are read; "
            "restore it"
        )
    found = np.full(len(at), "", object)
    for length in np.unique(lengths[lengths > 0]).tolist():
        own = np.flatnonzero(lengths == length)
        try:
            found[own] = [x.tobytes().decode() for x in buffer.take(at[own] + 4, f"V{length}")]
        except UnicodeDecodeError as error:
            raise MalformedFileError(f"'{buffer.where}' has an etag that is not UTF-8", Remedy("restore it")) from error
    return found


type PlaceBatch = tuple[NDArray[Any], NDArray[Any], list[str], NDArray[Any], NDArray[Any], dict[int, bytes]]
"""Chunks of ``IcechunkStore.array_chunk_iterator``: cells, kinds, paths, offsets, lengths and inline bytes."""

NATIVE = "icechunk-chunk://"
"""Root of the URLs of repository chunks whose files are not known; such URLs cannot be read."""

KIND_NATIVE, _KIND_VIRTUAL, _KIND_INLINE = 1, 2, 3

_KEPT = "/!$&'()*+,;=:@~[]|^-._"
"""Characters that are not percent-encoded in the path of a URL, nor in the prefixes of Icechunk's containers."""


def import_icechunk(what: str, /, *, url: str | None = None) -> Any:
    """Return the module ``icechunk``."""
    try:
        return importlib.import_module("icechunk")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(what, extra="icechunk", url=url) from error


def read_reason(error: Exception, /) -> str:
    """Return the first line of an Icechunk error, without the trace of Icechunk's own code."""
    return str(error).strip().partition("\n")[0]


def url_to_icechunk(url: str, /) -> str:
    """Return the URL of a source as Icechunk writes it: percent-encoded. Web URLs are encoded already.

    >>> url_to_icechunk("file:///data/a b#1.nc")
    'file:///data/a%20b%231.nc'
    """
    if is_http(url):
        return url
    root = re.match(r"[^:]+://[^/]*", url)
    start = root.end() if root else 0
    return url[:start] + quote(url[start:], safe=_KEPT)


def url_from_icechunk(url: str, /) -> str:
    """Return the URL of a source from an Icechunk URL: only web URLs stay percent-encoded.

    >>> url_from_icechunk("s3://bucket/a%20b.nc")
    's3://bucket/a b.nc'
    """
    if is_http(url):
        return url
    try:
        return unquote(url, errors="strict")
    except UnicodeDecodeError as error:
        raise MalformedFileError(
            f"'{url}' has percent-encoded bytes that are not UTF-8", Remedy("write the reference again")
        ) from error


def choose_checksum(location: Location, /) -> str | datetime | None:
    """Return the checksum that Icechunk compares before it reads from a source, or ``None`` if it is not known.

    In S3 the checksum is the etag. Elsewhere it is the modification time, since Icechunk and servers quote etags
    differently. Icechunk compares whole seconds, so times are rounded up. An existing checksum of a source in a
    repository is kept.

    >>> choose_checksum(Location("s3://bucket/a.nc", etag='"9a"', last_modified=7.5))
    '"9a"'
    >>> choose_checksum(Location("file:///a.nc", last_modified=7.5))
    datetime.datetime(1970, 1, 1, 0, 0, 8, tzinfo=datetime.timezone.utc)
    """
    if location.etag and location.url.startswith(("s3://", "s3a://")) and not location.etag.startswith("W/"):
        return location.etag
    time = location.last_modified if location.unmodified_since is None else location.unmodified_since
    if time is None or time <= 0:
        return location.etag if location.url.startswith("file://") else None  # only Icechunk has etags of local files
    return datetime.fromtimestamp(math.ceil(time), UTC)


def place_batches(
    batches: Iterable[PlaceBatch],
    metadata: ArrayMetadata,
    /,
    *,
    checksums: Callable[[], Checksums],
    root: str,
    where: str,
) -> ChunkManifest:
    """Make the manifest of an array from its chunks; the manifest has one axis, with chunks (or shards) in C order.

    Files of the repository are below ``root``. Chunks outside the grid are left out: Icechunk keeps the chunks of an
    array that became shorter, and nothing reads them.
    """
    grid = metadata.object_grid
    check_count(math.prod(grid), where)
    entries = np.zeros(math.prod(grid) + 1, ENTRY)  # the last one is for chunks outside the grid
    locations: dict[Location, int] = {}
    heap: list[bytes] = []
    end = 0
    known: tuple[NDArray[np.int64], Sequence[Checksum]] | None = None
    for cells, kinds, paths, offsets, lengths, inlined in batches:
        rows = _rows(cells, grid, where)
        if max(int(offsets.max(initial=0)), int(lengths.max(initial=0))) >= 1 << 62:
            raise MalformedFileError(
                f"'{where}' has a chunk with an offset or length of 2^62 bytes or more",
                Remedy("write the references again"),
            )
        found = np.zeros(len(kinds), ENTRY)
        found["offset"], found["length"] = offsets, lengths
        virtual, native = np.flatnonzero(kinds == _KIND_VIRTUAL), np.flatnonzero(kinds == KIND_NATIVE)
        names = np.array(paths, object)
        if virtual.size:
            known = known or _by_cell(checksums(), grid, where)
            by_cell, table = known
            found["location"][virtual] = _codes(names[virtual], by_cell[rows[virtual]], table, _locate, locations)
        if native.size:
            none = np.zeros(native.size, np.int64)
            found["location"][native] = _codes(
                names[native], none, [(None, None)], lambda name, _: Location(f"{root}{name}"), locations
            )
        for row, data in inlined.items():
            found[row] = (INLINE, 0, end, len(data))
            heap.append(data)
            end += len(data)
        found[found["location"] < INLINE] = np.zeros((), ENTRY)
        entries[rows] = found
    entries = entries[:-1]
    written = entries["location"] >= INLINE
    if metadata.shards is None:
        entries["encoding"][written] = metadata.encoding_rows().reshape(-1)[written]
    return ChunkManifest(
        entries=entries,
        fills=(metadata.fill,),
        encodings=metadata.encodings(),
        locations=tuple(locations),
        inline=b"".join(heap),
    )


def _rows(cells: NDArray[Any], grid: Sequence[int], where: str) -> NDArray[np.int64]:
    """Return the numbers of cells in C order; -1 for cells outside the grid."""
    if cells.ndim != 2 or cells.shape[1] != len(grid):
        raise MalformedFileError(
            f"'{where}' has chunk indexes of shape {cells.shape} for a grid of {tuple(grid)} chunks. Write the "
            "references again"
        )
    rows = np.zeros(len(cells), np.int64)
    for axis, n in enumerate(grid):
        rows = rows * n + cells[:, axis]
    return np.where((cells < grid).all(1), rows, -1)


def _by_cell(checksums: Checksums, grid: Sequence[int], where: str) -> tuple[NDArray[np.int64], Sequence[Checksum]]:
    """Return the position of each cell's checksum in a table, whose first entry means none; and the table."""
    cells, keys = checksums
    codes, table = pd.factorize(keys)
    by_cell = np.zeros(math.prod(grid) + 1, np.int64)
    by_cell[_rows(cells, grid, where)] = codes + 1
    by_cell[-1] = 0
    return by_cell, [(None, None), *((key, None) if isinstance(key, str) else (None, int(key)) for key in table)]


def _locate(url: str, checksum: Checksum) -> Location:
    etag, modified = checksum
    return Location(url_from_icechunk(url), etag=etag, unmodified_since=modified)


def _codes(
    names: NDArray[np.object_],
    checksums: NDArray[np.int64],
    table: Sequence[Checksum],
    place: Callable[[str, Checksum], Location],
    locations: dict[Location, int],
) -> NDArray[np.int64]:
    """Return the location codes of rows by their names and checksums; new locations are added to the table."""
    codes, unique = pd.factorize(names)
    numbers, pairs = pd.factorize(codes * len(table) + checksums)
    found = [place(unique[pair // len(table)], table[pair % len(table)]) for pair in np.asarray(pairs).tolist()]
    return np.array([locations.setdefault(x, len(locations) + FIRST) for x in found], np.int64)[numbers]
