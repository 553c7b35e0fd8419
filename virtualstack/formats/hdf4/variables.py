"""Scientific data sets: shape, data type, dimensions, and where their values are."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.formats.base import netcdf_fill
from virtualstack.formats.hdf4.structure import (
    CHUNK,
    COMPRESSED,
    NDG,
    NT,
    SD,
    SDD,
    VG,
    VH,
    VS,
    Element,
    Group,
    HDF4File,
    NotReadError,
    number_type,
)
from virtualstack.formats.rows import Segment, place_segments
from virtualstack.location import Location
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Chunks, Fill

_LINKED, _COMPRESSED, _CHUNKED = 1, 3, 5
_CODERS = {1: "run lengths", 2: "nbit", 3: "skipping Huffman", 5: "szip", 7: "JPEG"}
_DEFLATE = 4
_COMPRESSED_HEADER = struct.Struct(">HHIHHH")  # code, version, length, reference of the data, model, coder
_CHUNKED_HEADER = struct.Struct(">HIBIIIIHHHHI")
_BYTE_ORDERS = {1: False, 4: True}  # chapter 9: class of the number type
_MAX_AXES = 32
_MAX_CELLS = 1 << 24
_ZLIB = Codec.from_config("numcodecs.zlib", level=6)


@dataclass(slots=True)
class Variable:
    """A data set."""

    name: str
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    dims: list[str]
    data: Element | None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def fill(self) -> Fill:
        """The value of elements that were never written."""
        return netcdf_fill(self.attributes, self.stored.newbyteorder("="))


def read_variable(file: HDF4File, group: Group, /) -> Variable:
    """Describe the data set of a Vgroup of class ``Var0.0``."""
    members = dict(group.members)
    if NDG in members:
        raw = file.bytes_of(NDG, members[NDG])
        members |= dict(struct.iter_unpack(">HH", raw[: len(raw) // 4 * 4]))
    if SDD not in members or NT not in members:
        file.fail(f"the data set '{group.name}' has no shape or no data type")
    raw = file.bytes_of(SDD, members[SDD])
    rank = int.from_bytes(raw[:2], "big")
    if rank > _MAX_AXES or len(raw) < 2 + 4 * rank:
        file.fail(f"the data set '{group.name}' has {rank} axes in {len(raw)} bytes")
    shape = struct.unpack(f">{rank}i", raw[2 : 2 + 4 * rank])
    if min(shape, default=0) < 0:
        file.fail(f"the data set '{group.name}' has the shape {shape}")
    kind = file.bytes_of(NT, members[NT])
    if len(kind) < 4:
        file.fail(f"the data type of '{group.name}' has {len(kind)} bytes")
    _, code, _, order = kind[:4]
    if order not in _BYTE_ORDERS:
        raise NotReadError(f"its numbers have the byte order {order}")
    stored = number_type(code, is_little=_BYTE_ORDERS[order])
    inner = [file.group(ref) for tag, ref in group.members if tag == VG]
    dims = [x.name for x in inner if x.kind in ("Dim0.0", "UDim0.0")]
    if len(dims) != rank:
        file.fail(f"the data set '{group.name}' has {rank} axes and {len(dims)} dimensions")
    if SD in members and file.rows(SD, np.array([members[SD]]))[0] < 0:
        file.fail(f"the values of '{group.name}' do not exist")
    data = file.find(SD, members[SD]) if SD in members else None
    found = Variable(group.name, shape, stored, dims, data)
    found.attributes = dict(x for tag, ref in group.members if tag == VH and (x := file.attribute(ref)) is not None)
    return found


def place(file: HDF4File, variable: Variable, location: Location, chunk_size: int | None, /) -> Chunks:
    """Return the chunks of a data set.

    Raises
    ------
    NotReadError
        The values are compressed or stored in a way that is not read.
    """
    shape, stored, data, fill = variable.shape, variable.stored, variable.data, variable.fill
    grid = ChunkGrid.regular(shape, [max(n, 1) for n in shape])
    if data is None or 0 in shape:
        return Chunks(ChunkManifest.empty(grid.shape, fill), grid)
    size = math.prod(shape) * stored.itemsize
    if not data.is_special:
        return _placed(file, [data], variable, location, size, chunk_size)
    code = int.from_bytes(file.read(data.offset, 2), "big")
    if code == _LINKED:
        return _placed(file, file.linked(data), variable, location, size, chunk_size)
    if code == _CHUNKED:
        return _chunked(file, variable, data, location)
    if code != _COMPRESSED:
        raise NotReadError(f"its values are stored as a special element of kind {code}")
    (offset,), (length,) = _compressed(file, np.array([data.offset]), size)
    manifest = ChunkManifest.from_arrays(
        np.full(grid.shape, offset),
        np.full(grid.shape, length),
        location=location,
        encoding=ChunkEncoding.c_order(stored, shape, [_ZLIB]),
        fill=fill,
    )
    return Chunks(manifest, grid)


def _placed(
    file: HDF4File, parts: list[Element], variable: Variable, location: Location, size: int, chunk_size: int | None
) -> Chunks:
    """Return the chunks of values that are not compressed; those that were not written are EMPTY."""
    segments, itemsize = [], variable.stored.itemsize
    for part in parts:
        length = min(part.length, size)
        if part.offset + length > file.source.size:
            file.fail(f"the values of '{variable.name}' end at {part.offset + length}, and the file at its size")
        if length % itemsize and length != size:
            raise NotReadError("its blocks end within numbers")
        segments.append(Segment(location, part.offset, length))
        size -= length
    return place_segments(segments, variable.shape, variable.stored, variable.fill, chunk_size=chunk_size)


def _compressed(file: HDF4File, offsets: NDArray[Any], size: int) -> tuple[list[int], list[int]]:
    """Read the headers of compressed elements, and return where their deflate streams are."""
    refs = []
    width = _COMPRESSED_HEADER.size
    if offsets.size and int(offsets.max()) + width > file.source.size:
        file.fail("the header of a compressed element is past the end of the file")
    for raw in file.source.read_ranges(np.stack([offsets, np.full(offsets.size, width)], 1)):
        code, _, length, ref, _, coder = _COMPRESSED_HEADER.unpack(bytes(raw))
        if code != _COMPRESSED or length != size:
            file.fail(f"a compressed element has kind {code} and {length} bytes; {size} are expected")
        if coder != _DEFLATE:
            raise NotReadError(f"its values are compressed with {_CODERS.get(coder, f'method {coder}')}")
        refs.append(ref)
    rows = file.rows(COMPRESSED, np.array(refs, np.int64))
    found = file.table[rows]
    if (rows < 0).any() or (found["offset"].astype(np.int64) + found["length"] > file.source.size).any():
        file.fail("compressed values are not in the file")
    if (found["tag"] != COMPRESSED).any():
        raise NotReadError("its compressed values are in linked blocks")
    return found["offset"].tolist(), found["length"].tolist()


def _chunked(file: HDF4File, variable: Variable, data: Element, location: Location) -> Chunks:
    shape, stored, rank = variable.shape, variable.stored, len(variable.shape)
    width = _CHUNKED_HEADER.size
    header = file.read(data.offset, width + 12 * rank + 4 + stored.itemsize)
    *_, ref, _, _, n_axes = _CHUNKED_HEADER.unpack(header[:width])
    if n_axes != rank:
        file.fail(f"the chunks of '{variable.name}' have {n_axes} axes, and its values {rank}")
    axes = np.frombuffer(header, ">i4", 3 * rank, width).reshape(rank, 3)
    chunks = tuple(axes[:, 2].tolist())
    if min(chunks) < 1 or math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True)) > _MAX_CELLS:
        file.fail(f"'{variable.name}' of shape {shape} has chunks of shape {chunks}")
    at = width + 12 * rank
    fill = variable.fill
    if int.from_bytes(header[at : at + 4], "big") == stored.itemsize:
        fill = Fill.from_value(np.frombuffer(header, stored, 1, at + 4)[0], fill.dtype)
    grid = ChunkGrid.regular(shape, chunks)
    table = np.dtype([("cell", ">i4", (rank,)), ("tag", ">u2"), ("ref", ">u2")])
    n = file.vdata(ref).n_rows
    raw = file.bytes_of(VS, ref) if n else b""
    if len(raw) < n * table.itemsize:
        file.fail(f"the table of chunks of '{variable.name}' is cut short")
    rows = np.frombuffer(raw, table, n)
    cells, found = rows["cell"].astype(np.int64), file.rows(CHUNK, rows["ref"])
    if (rows["tag"] != CHUNK).any() or (found < 0).any() or (cells < 0).any() or (cells >= grid.shape).any():
        file.fail(f"the table of chunks of '{variable.name}' names chunks that do not exist")
    if len(np.unique(cells, axis=0)) < n:
        file.fail(f"the table of chunks of '{variable.name}' names a chunk twice")
    elements = file.table[found]
    offsets, lengths = elements["offset"].astype(np.int64), elements["length"].astype(np.int64)
    size = math.prod(chunks) * stored.itemsize
    is_packed = (elements["tag"] & 0x4000) > 0
    if is_packed.any():
        offsets[is_packed], lengths[is_packed] = _compressed(file, offsets[is_packed], size)
    if (lengths[~is_packed] != size).any() or (offsets + lengths > file.source.size).any():
        file.fail(f"chunks of '{variable.name}' do not have {size} bytes, or are past the end of the file")
    entries = np.zeros((3, math.prod(grid.shape)), np.int64)
    entries[1] = -1
    entries[:, np.ravel_multi_index(tuple(cells.T), grid.shape)] = offsets, lengths, is_packed
    entries = entries.reshape(3, *grid.shape)
    manifest = ChunkManifest.from_arrays(
        entries[0],
        entries[1],
        location=location,
        encoding=[ChunkEncoding.c_order(stored, chunks), ChunkEncoding.c_order(stored, chunks, [_ZLIB])],
        encoding_codes=entries[2],
        fill=fill,
    )
    return Chunks(manifest, grid)
