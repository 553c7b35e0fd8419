"""Where the values of each variable lie: one after another, or a slab in each record."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from virtualstack.formats.netcdf3.header import NetCDF3Header, NetCDF3Variable, malformed

__all__ = ["DataLayout", "Extent", "check_inside", "lay_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The bytes of a variable.

    Parameters
    ----------
    variable
        Whose they are.
    shape
        In elements.
    record_step
        Bytes from a record to the next, where its slabs do not follow each other; ``None`` where all is contiguous.
    """

    variable: NetCDF3Variable
    shape: tuple[int, ...]
    record_step: int | None

    @property
    def end(self) -> int:
        """Byte offset behind the last value; 0 where there is none."""
        if 0 in self.shape:
            return 0
        n_apart, step = (1, 0) if self.record_step is None else (self.shape[0], self.record_step)
        together = self.shape if self.record_step is None else self.shape[1:]
        length = math.prod(together) * self.variable.dtype.itemsize
        return self.variable.begin + (n_apart - 1) * step + length


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayout:
    """The data part of a file.

    Parameters
    ----------
    n_records
        Length of the record dimension.
    n_left
        Bytes behind the last whole record of a file that does not say how many records it has.
    extents
        Of the variables, in the order of the header.
    """

    n_records: int
    n_left: int
    extents: tuple[Extent, ...]


def lay_out(header: NetCDF3Header, size: int, /) -> DataLayout:
    """Find the bytes of all variables from their shapes; ``size`` of the file in bytes.

    Raises
    ------
    MalformedFileError
        The header contradicts itself: the record dimension is not the first of a variable, or variables overlap.
    """
    slabs = [_slab(header, variable) for variable in header.variables]
    records = [slab for slab in slabs if slab.has_records]
    # CDF, "Note on padding": the records of the only record variable are not padded
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
    """Check that all values are there; netCDF-C gives zeros for those behind the end of a file.

    Raises
    ------
    MalformedFileError
        A variable reaches past the end of the file, at ``size`` bytes.
    """
    cut = [extent for extent in extents if extent.end > size]
    if cut:
        names = [extent.variable.name for extent in cut]
        raise malformed(
            url,
            f"'{names[0]}' has values up to offset {cut[0].end}, but the file ends at {size}; without what is cut it "
            f"opens with drop_variables={names}",
            cut[0].variable.begin,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slab:
    """A variable, or one record of it: shape in elements, length in bytes without padding."""

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
    """Check that the data follow the header and each other in order, as netCDF-C does."""
    before, end = "the header", header.length
    for slab in (*fixed, *records):
        begin = slab.variable.begin
        if begin < end:
            raise malformed(
                header.url, f"'{slab.variable.name}' begins at offset {begin}, but {before} ends at {end}", begin
            )
        before, end = f"'{slab.variable.name}'", begin + slab.padded


def _count_records(records: list[_Slab], record_step: int, size: int) -> tuple[int, int]:
    """Count the records that are there as a whole, and the bytes behind them; the last one may lack its padding."""
    if not records:
        return 0, 0
    n = max(min((size - slab.end) // record_step + 1 for slab in records), 0)
    return n, max(size - records[0].variable.begin - n * record_step, 0)
