"""Parse header messages: dataspace, fill value, filters, external files, and references to shared messages."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from virtualstack.formats.hdf5.structures.requests import Fields, Widths, check
from virtualstack.formats.hdf5.structures.superblock import Superblock

_MAX_RANK = 32  # H5S_MAX_RANK
_NULL = 2  # the type of a dataspace without a value
_NEVER = 1  # the time at which a fill value is written
_MAX_FILTERS = 32  # H5Z_MAX_NFILTERS
_FIRST_REGISTERED = 256  # filters with smaller numbers have no name in version 2 of the message


class Dataspace(NamedTuple):
    """The extent of a dataset or attribute."""

    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]


def parse_dataspace(body: bytes, widths: Widths, /) -> Dataspace:
    """Parse a dataspace message (HDF5 spec IV.A.2.b)."""
    return _dataspace(body, widths.length)


@lru_cache(maxsize=512)  # the datasets and attributes of an archive share few shapes
def _dataspace(body: bytes, width: int) -> Dataspace:
    fields = Fields(body, "a dataspace")
    version, rank, flags, kind = fields.unpack("4B")
    # the flag of permutation indices was never used
    is_known = version in (1, 2) and rank <= _MAX_RANK and flags in (0, 1)
    check(is_known, f"a dataspace has version {version}, rank {rank} and flags {flags:#x}")
    if version == 1:
        fields.take(4)
    elif kind == _NULL and not rank:
        return Dataspace(shape=None, maxshape=())
    else:
        check(kind == (rank > 0), f"a dataspace of type {kind} has {rank} axes")
    shape = fields.numbers(width, rank)
    if not flags:
        return Dataspace(shape=shape, maxshape=shape)
    unlimited = (1 << 8 * width) - 1
    maxshape = tuple(None if n == unlimited else n for n in fields.numbers(width, rank))
    check(
        all(m is None or n <= m for n, m in zip(shape, maxshape, strict=True)),
        f"an axis is longer than its maximum: shape {shape}, maximum {maxshape}",
    )
    return Dataspace(shape=shape, maxshape=maxshape)


class FillMessage(NamedTuple):
    """The fill value of elements that were never written."""

    raw: bytes | None = None
    is_written: bool = True
    is_defined: bool = True


@lru_cache(maxsize=512)
def parse_fill(body: bytes, /) -> FillMessage:
    """Parse a fill value message (HDF5 spec IV.A.2.f)."""
    fields = Fields(body, "a fill value")
    version, form = fields.unpack("BB")
    if version in (1, 2):
        written, defined = fields.unpack("BB")
        check(form <= 3 and written <= 2, "a fill value has an unknown time of allocation or of writing")
        check(defined <= 1, "a fill value is neither defined nor undefined")
        is_defined, has_value = bool(defined), bool(defined) or version == 1
    else:
        check(version == 3 and form < 0x40, f"version {version} of the fill value is not known")
        check(form & 0x30 != 0x30 and form & 0x0C != 0x0C, "a fill value is both defined and undefined")
        is_defined, written, has_value = not form & 0x10, form >> 2 & 3, bool(form & 0x20)
    raw = fields.take(fields.number(4)) if has_value else b""
    return FillMessage(raw=raw or None, is_written=written != _NEVER, is_defined=is_defined)


def parse_old_fill(body: bytes, /) -> FillMessage:
    """Parse an old fill value message (HDF5 spec IV.A.2.e)."""
    fields = Fields(body, "a fill value")
    return FillMessage(raw=fields.take(fields.number(4)) or None)


class FilterMessage(NamedTuple):
    """One filter of a pipeline."""

    id: int
    name: bytes
    values: tuple[int, ...]


@lru_cache(maxsize=512)
def parse_filters(body: bytes, /) -> tuple[FilterMessage, ...]:
    """Parse a filter pipeline message; return the filters in the order of encoding (HDF5 spec IV.A.2.l)."""
    fields = Fields(body, "a filter pipeline")
    version, n_filters = fields.unpack("BB")
    check(
        version in (1, 2) and 0 < n_filters <= _MAX_FILTERS,
        f"version {version} of a pipeline of {n_filters} filters is not known",
    )
    if version == 1:
        fields.take(6)
    filters = []
    for _ in range(n_filters):
        number = fields.number(2)
        name_size = fields.number(2) if version == 1 or number >= _FIRST_REGISTERED else 0
        check(version == 2 or name_size % 8 == 0, "the name of a filter is not padded")
        _, n_values = fields.unpack("HH")  # flags
        name, values = fields.take(name_size), fields.unpack(f"{n_values}I")
        filters.append(FilterMessage(id=number, name=name.split(b"\0")[0], values=values))
        if version == 1 and n_values % 2:
            fields.take(4)
    return tuple(filters)


class ExternalFiles(NamedTuple):
    """Files that hold the values of a dataset, one after another."""

    heap: int
    slots: tuple[tuple[int, int, int], ...]


def parse_external_files(body: bytes, superblock: Superblock, /) -> ExternalFiles:
    """Parse an external data files message (HDF5 spec IV.A.2.h)."""
    fields, widths = Fields(body, "the list of external files"), superblock.widths
    version, n_slots = fields.unpack("B5xH")
    check(version == 1, f"the list of external files has the unknown version {version}")
    heap = superblock.known(fields.number(widths.address))
    slots = [fields.numbers(widths.length, 3) for _ in range(n_slots)]
    unlimited = (1 << 8 * widths.length) - 1
    sizes = ((name, offset, (1 << 64) - 1 if size == unlimited else size) for name, offset, size in slots)
    return ExternalFiles(heap=heap, slots=tuple(sizes))


def parse_shared(body: bytes, superblock: Superblock, /) -> int:
    """Return the address of the object header with a shared message (HDF5 spec IV.A.2, "shared message")."""
    fields = Fields(body, "a shared message")
    version, kind = fields.unpack("BB")
    check(
        version in (1, 2, 3) and (kind == 2 or (kind == 0 and version < 3)),
        "a shared message is in the heap of shared messages",
    )
    if version == 1:
        fields.take(6)
    return superblock.known(fields.number(superblock.widths.address))
