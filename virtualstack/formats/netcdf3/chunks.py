"""The byte ranges of each variable, and their division into chunks of useful size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import Remedy
from virtualstack.formats.netcdf3.header import NetCDF3Header, NetCDF3Variable, malformed
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill
from virtualstack.sizes import equal_chunk_length

__all__ = ["DataLayout", "Extent", "check_inside", "chunk_shape", "lay_out", "references"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The bytes of a variable."""

    variable: NetCDF3Variable
    shape: tuple[int, ...]
    record_step: int | None

    @property
    def end(self) -> int:
        """Byte offset after the last value; 0 if there are no values."""
        if 0 in self.shape:
            return 0
        n_apart, step = (1, 0) if self.record_step is None else (self.shape[0], self.record_step)
        together = self.shape if self.record_step is None else self.shape[1:]
        length = math.prod(together) * self.variable.dtype.itemsize
        return self.variable.begin + (n_apart - 1) * step + length


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayout:
    """The data part of a file."""

    n_records: int
    n_left: int
    extents: tuple[Extent, ...]


def lay_out(header: NetCDF3Header, size: int, /) -> DataLayout:
    """Compute the byte ranges of all variables from their shapes; ``size`` of the file is in bytes."""
    slabs = [_slab(header, variable) for variable in header.variables]
    records = [slab for slab in slabs if slab.has_records]
    # CDF, "Note on padding": the records of a single record variable are not padded
    record_step = records[0].length if len(records) == 1 else sum(slab.padded for slab in records)
    _check_order(header, [slab for slab in slabs if not slab.has_records], records)
    n_records, n_left = header.n_records, 0
    if n_records is None:
        n_records, n_left = _count_records(records, record_step, size)
    if n_records > 1 and records and records[-1].end > records[0].variable.begin + record_step:
        raise malformed(
            header.url, f"'{records[-1].variable.name}' reaches into the next record, {record_step} bytes on"
        )
    extents = []
    for slab in slabs:
        is_apart = slab.has_records and slab.length != record_step
        shape = (n_records, *slab.shape) if slab.has_records else slab.shape
        extents.append(Extent(variable=slab.variable, shape=shape, record_step=record_step if is_apart else None))
    return DataLayout(n_records=n_records, n_left=n_left, extents=tuple(extents))


def check_inside(extents: Iterable[Extent], size: int, url: str, /) -> None:
    """Check that the file holds all values. netCDF-C returns zeros for values after the end of a file."""
    cut = [extent for extent in extents if extent.end > size]
    if cut:
        names = [extent.variable.name for extent in cut]
        raise malformed(
            url,
            f"'{names[0]}' has values up to offset {cut[0].end}, but the file ends at {size}",
            cut[0].variable.begin,
            Remedy("open it without what is cut with", drop_variables=names),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slab:
    """A variable, or one record of it: shape in elements, and length in bytes without padding."""

    variable: NetCDF3Variable
    shape: tuple[int, ...]
    length: int
    has_records: bool

    @property
    def padded(self) -> int:
        return self.length + -self.length % 4

    @property
    def end(self) -> int:
        return self.variable.begin + self.length


def _slab(header: NetCDF3Header, variable: NetCDF3Variable) -> _Slab:
    lengths = [header.dimensions[number].length for number in variable.dimensions]
    if None in lengths[1:]:  # CDF, "vsize": the record dimension must be the first
        raise malformed(header.url, f"the record dimension is not the first one of '{variable.name}'")
    shape = tuple(n for n in lengths if n is not None)
    length = math.prod(shape) * variable.dtype.itemsize
    return _Slab(variable=variable, shape=shape, length=length, has_records=None in lengths)


def _check_order(header: NetCDF3Header, fixed: list[_Slab], records: list[_Slab]) -> None:
    """Check that the data follows the header in the order of variables, as netCDF-C does."""
    before, end = "the header", header.length
    for slab in (*fixed, *records):
        begin = slab.variable.begin
        if begin < end:
            raise malformed(
                header.url, f"'{slab.variable.name}' begins at offset {begin}, but {before} ends at {end}", begin
            )
        before, end = f"'{slab.variable.name}'", begin + slab.padded


def _count_records(records: list[_Slab], record_step: int, size: int) -> tuple[int, int]:
    """Count the complete records, and the bytes after them; the last record may lack its padding."""
    if not records:
        return 0, 0
    n = max(min((size - slab.end) // record_step + 1 for slab in records), 0)
    return n, max(size - records[0].variable.begin - n * record_step, 0)


def chunk_shape(extent: Extent, chunk_size: int | None, /, *, is_exact: bool) -> tuple[int, ...]:
    """Choose the shape of chunks: whole rows along the leading axes, each one contiguous range.

    If records are not contiguous, each record is one chunk or several. Lengths that divide their axis are preferred:
    all chunks are then stored alike, as kerchunk references need.

    Examples
    --------
    >>> from virtualstack.formats.netcdf3.header import NetCDF3Variable
    >>> x = NetCDF3Variable(name="x", dimensions=(0, 1), attributes={}, dtype=np.dtype(">f4"), begin=0)
    >>> extent = Extent(variable=x, shape=(365, 1000), record_step=None)
    >>> chunk_shape(extent, 100_000, is_exact=True), chunk_shape(extent, 100_000, is_exact=False)
    ((25, 1000), (5, 1000))
    """
    shape = extent.shape
    if 0 in shape:
        return shape
    n_leading = 0 if extent.record_step is None else 1
    chunks = [1] * n_leading + list(shape[n_leading:])
    row = math.prod(chunks) * extent.variable.dtype.itemsize
    if chunk_size is None:
        return tuple(chunks)
    for axis in range(n_leading, len(shape)):
        if row <= chunk_size:
            break
        row //= shape[axis]
        most = max(chunk_size // row, 1)
        if is_exact:
            chunks[axis] = equal_chunk_length(shape[axis], most // 2, most) or most
        else:
            chunks[axis] = equal_chunk_length(shape[axis], most // 256, most) or shape[axis]
        if chunks[axis] > 1:
            break
    return tuple(chunks)


def references(
    extent: Extent, chunks: tuple[int, ...], fill: Fill, location: Location, /
) -> tuple[ChunkManifest, ChunkGrid]:
    """Return the chunk grid of a variable, and the byte range of each of its chunks."""
    shape, dtype = extent.shape, extent.variable.dtype
    grid = ChunkGrid.regular(shape, [max(n, 1) for n in chunks])
    if not math.prod(shape):
        return ChunkManifest.empty(grid.shape, fill), grid
    entries = np.empty(grid.shape, ENTRY)
    entries["location"], entries["encoding"] = FIRST, 0
    entries["offset"], entries["length"] = extent.variable.begin, math.prod(chunks) * dtype.itemsize
    encodings = [ChunkEncoding.c_order(dtype, chunks)]
    step = dtype.itemsize
    for axis in reversed(range(len(shape))):
        if grid.shape[axis] > 1:
            _place(entries, axis, chunks[axis] * (extent.record_step if axis == 0 and extent.record_step else step))
        if shape[axis] % chunks[axis]:
            encodings.append(_cut_last(entries, axis, shape, chunks, dtype))
        step *= shape[axis]
    return ChunkManifest(entries=entries, fills=(fill,), encodings=tuple(encodings), locations=(location,)), grid


def _place(entries: NDArray[np.void], axis: int, step: int) -> None:
    """Move the chunks along an axis to their positions, ``step`` bytes apart."""
    offsets = np.arange(entries.shape[axis], dtype=np.int64) * step
    entries["offset"] += offsets.reshape(-1, *[1] * (entries.ndim - axis - 1))


def _cut_last(
    entries: NDArray[np.void], axis: int, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any]
) -> ChunkEncoding:
    """Set encoding and length of the last chunks along the axis that chunks do not divide; return the encoding."""
    cut = (*chunks[:axis], shape[axis] % chunks[axis], *chunks[axis + 1 :])
    last = entries[(*[slice(None)] * axis, slice(-1, None))]
    last["encoding"], last["length"] = 1, math.prod(cut) * dtype.itemsize
    return ChunkEncoding.c_order(dtype, cut)
