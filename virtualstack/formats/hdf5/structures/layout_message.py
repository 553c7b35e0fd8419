"""Parse the data layout message: how and where the values of a dataset are stored."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

from virtualstack.formats.hdf5.structures.requests import Fields, StructureError, Widths

_COMPACT, _CONTIGUOUS, _CHUNKED, _VIRTUAL = range(4)
_MAX_DIMENSIONS = 33  # including a dimension for the bytes of an element
_LEAVES_EDGES_UNFILTERED, _SINGLE_WITH_FILTER = 0x01, 0x02


class CompactLayout(NamedTuple):
    """Values in the object header itself."""

    data: bytes


class ContiguousLayout(NamedTuple):
    """Values in one byte range of the file, or in external files if another message names them."""

    address: int | None
    size: int | None


class ExtensibleArrayParameters(NamedTuple):
    """Parameters that divide an extensible array into blocks; its header must have the same parameters."""

    n_bits: int
    n_index_block: int
    n_pointers: int
    n_data_block: int
    n_page_bits: int


class ChunkedLayout(NamedTuple):
    """Values in chunks of one shape, with a chunk index."""

    version: int
    chunk: tuple[int, ...]
    element_size: int
    kind: Literal["btree1", "single", "implicit", "fixed", "extensible", "btree2"]
    address: int | None
    leaves_edges_unfiltered: bool = False
    single_size: int | None = None
    single_mask: int = 0
    n_page_bits: int | None = None
    array: ExtensibleArrayParameters | None = None
    node_size: int | None = None

    @property
    def chunk_bytes(self) -> int:
        """Size of a chunk without filters in bytes."""
        return math.prod(self.chunk) * self.element_size


class VirtualLayout(NamedTuple):
    """Values in datasets of other files, which an object in the global heap lists."""

    address: int | None
    number: int


type Layout = CompactLayout | ContiguousLayout | ChunkedLayout | VirtualLayout


def parse_layout(body: bytes, widths: Widths) -> Layout:
    """Parse a data layout message of version 1 to 5."""
    fields = _Fields(body, widths)
    version = fields.number(1)
    if version in (1, 2):
        return _parse_old(fields, version)
    if version not in (3, 4, 5):
        raise StructureError(f"the data layout message has the unknown version {version}")
    # HDF5 spec IV.A.2.i, versions 3 and 4
    kind = fields.number(1)
    if kind == _COMPACT:
        return CompactLayout(data=fields.take(fields.number(2)))
    if kind == _CONTIGUOUS:
        return ContiguousLayout(address=fields.address(), size=fields.length())
    if kind == _CHUNKED:
        return _parse_btree1(fields) if version == 3 else _parse_chunked(fields, version)
    if kind == _VIRTUAL and version >= 4:
        return VirtualLayout(address=fields.address(), number=fields.number(4))
    raise _unknown_class(kind)


class _Fields(Fields):
    """Reader of little-endian fields, one after another."""

    def __init__(self, body: bytes, widths: Widths) -> None:
        super().__init__(body, "the data layout message")
        self._widths = widths

    def length(self) -> int:
        return self.number(self._widths.length)

    def address(self) -> int | None:
        address = self.number(self._widths.address)
        return None if address == self._widths.undefined else address

    def dimensions(self, n_dims: int, width: int) -> tuple[tuple[int, ...], int]:
        """Return the shape of a chunk in elements, and the size of an element in bytes."""
        if not 2 <= n_dims <= _MAX_DIMENSIONS:
            raise StructureError(f"the data layout message says that chunks have {n_dims - 1} dimensions")
        return _chunk_lengths(self.take(width * n_dims), width)


@lru_cache(maxsize=512)  # the datasets of an archive share few shapes of chunks
def _chunk_lengths(raw: bytes, width: int) -> tuple[tuple[int, ...], int]:
    lengths = Fields(raw).numbers(width, len(raw) // width)
    if not all(lengths):
        raise StructureError("the data layout message says that a chunk has a length of 0")
    if math.prod(lengths) >= 1 << 63:
        raise StructureError("the data layout message says that a chunk has 2^63 bytes or more")
    return lengths[:-1], lengths[-1]


def _unknown_class(kind: int) -> StructureError:
    return StructureError(f"the data layout message has the unknown class {kind}")


def _parse_old(fields: _Fields, version: int) -> Layout:
    # HDF5 spec IV.A.2.i, versions 1 and 2
    n_dims, kind = fields.number(1), fields.number(1)
    if not 0 < n_dims <= _MAX_DIMENSIONS:
        raise StructureError(f"the data layout message has {n_dims} dimensions")
    fields.take(5)
    if kind == _CONTIGUOUS:
        return ContiguousLayout(address=fields.address(), size=None)
    if kind == _CHUNKED:
        address = fields.address()
        chunk, element_size = fields.dimensions(n_dims, 4)
        return ChunkedLayout(version=version, chunk=chunk, element_size=element_size, kind="btree1", address=address)
    if kind == _COMPACT:
        fields.take(4 * n_dims)
        return CompactLayout(data=fields.take(fields.number(4)))
    raise _unknown_class(kind)


def _parse_btree1(fields: _Fields) -> ChunkedLayout:
    n_dims, address = fields.number(1), fields.address()
    chunk, element_size = fields.dimensions(n_dims, 4)
    return ChunkedLayout(version=3, chunk=chunk, element_size=element_size, kind="btree1", address=address)


def _parse_chunked(fields: _Fields, version: int) -> ChunkedLayout:
    # HDF5 spec IV.A.2.i, version 4, chunked; version 5 differs in the index only
    flags, n_dims, width = fields.number(1), fields.number(1), fields.number(1)
    if flags & ~(_LEAVES_EDGES_UNFILTERED | _SINGLE_WITH_FILTER):
        raise StructureError(f"the data layout message has unknown flags: {flags:#04x}")
    if not 1 <= width <= 8:
        raise StructureError(f"the data layout message has lengths of {width} bytes")
    chunk, element_size = fields.dimensions(n_dims, width)
    kind = fields.number(1)
    single_size, single_mask, n_page_bits, array, node_size = None, 0, None, None, None
    index: Literal["single", "implicit", "fixed", "extensible", "btree2"]
    if kind == 1:
        index = "single"
        if flags & _SINGLE_WITH_FILTER:
            single_size, single_mask = fields.length(), fields.number(4)
    elif kind == 2:
        index = "implicit"
    elif kind == 3:
        index, n_page_bits = "fixed", fields.number(1)
    elif kind == 4:
        index, array = "extensible", ExtensibleArrayParameters(*fields.take(5))
    elif kind == 5:
        index, node_size = "btree2", fields.number(4)
        fields.take(2)  # percentages at which nodes are split and merged
    else:
        raise StructureError(f"the data layout message has the unknown chunk index type {kind}")
    return ChunkedLayout(
        version=version,
        chunk=chunk,
        element_size=element_size,
        kind=index,
        address=fields.address(),
        leaves_edges_unfiltered=bool(flags & _LEAVES_EDGES_UNFILTERED),
        single_size=single_size,
        single_mask=single_mask,
        n_page_bits=n_page_bits,
        array=array,
        node_size=node_size,
    )
