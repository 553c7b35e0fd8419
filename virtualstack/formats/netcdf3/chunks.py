"""The byte range of each variable, or of its records."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from virtualstack.errors import Remedy
from virtualstack.formats.netcdf3.header import NetCDF3Header, NetCDF3Variable, malformed
from virtualstack.formats.rows import row_chunks


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


def chunk_shape(extent: Extent, chunk_size: int | None, /, *, is_equal: bool) -> tuple[int, ...]:
    """Choose the shape of chunks: whole rows; if records are not contiguous, each record is one chunk or several."""
    if 0 in extent.shape:
        return extent.shape
    n_leading = 0 if extent.record_step is None else 1
    inner = extent.shape[n_leading:]
    return (1,) * n_leading + row_chunks(inner, extent.variable.dtype.itemsize, chunk_size, is_equal=is_equal)
