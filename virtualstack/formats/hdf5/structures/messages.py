"""Parse header messages: dataspace, fill value, filters, external files, and references to shared messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from virtualstack.formats.hdf5.structures.requests import StructureError, Widths, check, unsigned
from virtualstack.formats.hdf5.structures.superblock import Superblock
from virtualstack.formats.hdf5.structures.tables import Table

__all__ = [
    "Dataspace",
    "ExternalFiles",
    "FillMessage",
    "FilterMessage",
    "parse_dataspace",
    "parse_external_files",
    "parse_fill",
    "parse_filters",
    "parse_old_fill",
    "parse_shared",
]

_SLOT = Table("name L, offset L, size L")
_MAX_RANK = 32  # H5S_MAX_RANK
_MAX_FILTERS = 32  # H5Z_MAX_NFILTERS
_FIRST_REGISTERED = 256  # filters with smaller numbers have no name in version 2 of the message


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataspace:
    """The extent of a dataset or attribute."""

    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]


def parse_dataspace(body: bytes, widths: Widths, /) -> Dataspace:
    """Parse a dataspace message (HDF5 spec IV.A.2.b)."""
    return _dataspace(body, widths.length)


@lru_cache(maxsize=512)  # the datasets and attributes of an archive share few shapes
def _dataspace(body: bytes, width: int) -> Dataspace:
    if len(body) < 4:
        raise StructureError("a dataspace ends before its fields do")
    version, rank, flags = body[0], body[1], body[2]
    check(version in (1, 2) and rank <= _MAX_RANK, f"a dataspace has version {version} and rank {rank}")
    check(flags in (0, 1), f"a dataspace has the unknown flags {flags:#x}")  # permutation indices were never used
    if version == 2:
        check(body[3] <= 2, f"a dataspace has the unknown type {body[3]}")
        if body[3] == 2:
            check(rank == 0, "a null dataspace has axes")
            return Dataspace(shape=None, maxshape=())
        check((body[3] == 0) == (rank == 0), "a scalar has axes, or an array has none")
    at = 4 if version == 2 else 8
    shape = tuple(unsigned(body, at + i * width, width) for i in range(rank))
    if not flags & 1:
        return Dataspace(shape=shape, maxshape=shape)
    at += rank * width
    unlimited = (1 << 8 * width) - 1
    longest = tuple(unsigned(body, at + i * width, width) for i in range(rank))
    maxshape = tuple(None if n == unlimited else n for n in longest)
    check(
        all(m is None or n <= m for n, m in zip(shape, maxshape, strict=True)),
        f"an axis is longer than its maximum: shape {shape}, maximum {maxshape}",
    )
    return Dataspace(shape=shape, maxshape=maxshape)


@dataclass(frozen=True, slots=True, kw_only=True)
class FillMessage:
    """The fill value of elements that were never written."""

    raw: bytes | None = None
    is_written: bool = True
    is_defined: bool = True


@lru_cache(maxsize=512)
def parse_fill(body: bytes, /) -> FillMessage:
    """Parse a fill value message (HDF5 spec IV.A.2.f)."""
    version = body[0] if body else 0
    if version in (1, 2):
        check(
            len(body) >= 4 and body[1] in (0, 1, 2, 3) and body[2] in (0, 1, 2),
            "a fill value has an unknown time of allocation or of writing",
        )
        check(body[3] in (0, 1), "a fill value is neither defined nor undefined")
        is_defined, is_never, at = bool(body[3]), body[2] == 1, 4
        has_value = is_defined or version == 1
    else:
        check(version == 3 and len(body) >= 2 and body[1] < 0x40, f"version {version} of the fill value is not known")
        flags, at = body[1], 2
        check(flags & 0x30 != 0x30 and flags & 0x0C != 0x0C, "a fill value is both defined and undefined")
        is_defined, is_never, has_value = not flags & 0x10, flags >> 2 & 3 == 1, bool(flags & 0x20)
    if not has_value:
        return FillMessage(is_written=not is_never, is_defined=is_defined)
    return FillMessage(raw=_sized(body, at), is_written=not is_never, is_defined=is_defined)


def parse_old_fill(body: bytes, /) -> FillMessage:
    """Parse an old fill value message (HDF5 spec IV.A.2.e)."""
    return FillMessage(raw=_sized(body, 0))


def _sized(body: bytes, at: int) -> bytes | None:
    size = unsigned(body, at, 4)
    raw = body[at + 4 : at + 4 + size]
    check(len(raw) == size, f"a fill value of {size} bytes is cut off after {len(raw)}")
    return raw or None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterMessage:
    """One filter of a pipeline."""

    id: int
    name: bytes
    values: tuple[int, ...]


@lru_cache(maxsize=512)
def parse_filters(body: bytes, /) -> tuple[FilterMessage, ...]:
    """Parse a filter pipeline message; return the filters in the order of encoding (HDF5 spec IV.A.2.l)."""
    if len(body) < 2:
        raise StructureError("a filter pipeline ends before its fields do")
    version, n_filters = body[0], body[1]
    check(
        version in (1, 2) and 0 < n_filters <= _MAX_FILTERS,
        f"version {version} of a pipeline of {n_filters} filters is not known",
    )
    at = 8 if version == 1 else 2
    filters = []
    for _ in range(n_filters):
        number, name_size = unsigned(body, at, 2), 0
        at += 2
        if version == 1 or number >= _FIRST_REGISTERED:
            name_size = unsigned(body, at, 2)
            at += 2
        check(version == 2 or name_size % 8 == 0, "the name of a filter is not padded")
        n_values = unsigned(body, at + 2, 2)  # after the flags
        at += 4
        end = at + name_size + 4 * n_values
        check(end <= len(body), "a filter pipeline ends before its fields do")
        values = struct.unpack_from(f"<{n_values}I", body, at + name_size)
        filters.append(FilterMessage(id=number, name=body[at : at + name_size].split(b"\0")[0], values=values))
        at = end + (4 if version == 1 and n_values % 2 else 0)
    return tuple(filters)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalFiles:
    """Files that hold the values of a dataset, one after another."""

    heap: int
    slots: tuple[tuple[int, int, int], ...]


def parse_external_files(body: bytes, superblock: Superblock, /) -> ExternalFiles:
    """Parse an external data files message (HDF5 spec IV.A.2.h)."""
    check(len(body) >= 8 and body[0] == 1, "the list of external files has an unknown version, or is cut off")
    n_slots = unsigned(body, 6, 2)
    heap = superblock.known_address(body, 8)
    unlimited = (1 << 8 * superblock.widths.length) - 1
    slots = _SLOT.rows(body, 8 + superblock.widths.address, n_slots, superblock.widths)
    sizes = ((x["name"], x["offset"], (1 << 64) - 1 if x["size"] == unlimited else x["size"]) for x in slots)
    return ExternalFiles(heap=heap, slots=tuple(sizes))


def parse_shared(body: bytes, superblock: Superblock, /) -> int:
    """Return the address of the object header with a shared message (HDF5 spec IV.A.2, "shared message")."""
    if len(body) < 2:
        raise StructureError("a shared message ends before its fields do")
    version, kind = body[0], body[1]
    check(
        version in (1, 2, 3) and (kind == 2 or (kind == 0 and version < 3)),
        "a shared message is in the heap of shared messages",
    )
    return superblock.known_address(body, 8 if version == 1 else 2)
