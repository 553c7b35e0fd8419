"""Parse the datatype message, which describes an element of a dataset or attribute.

HDF5 File Format Specification, IV.A.2.d. Versions 1 to 5 of the message are supported. Version 1 has arrays only as
members of compounds. Version 2 has array types. Version 3 packs names and offsets. Version 4 has the references of
HDF5 1.12. Version 5 has the complex numbers of HDF5 2.0. A message that contradicts the specification, or is unusual,
is an error: the HDF5 library then reads it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from operator import le
from typing import Literal, NamedTuple

from virtualstack.formats.hdf5.structures.requests import StructureError, decode_text

__all__ = ["Datatype", "FloatLayout", "Member", "parse_datatype"]

type Kind = Literal[
    "integer",
    "float",
    "time",
    "string",
    "bitfield",
    "opaque",
    "compound",
    "reference",
    "enum",
    "vlen",
    "array",
    "complex",
]
type Order = Literal["<", ">", "vax", ""]
type Padding = Literal["nullterm", "nullpad", "spacepad", ""]
type Charset = Literal["ascii", "utf-8", ""]
type Variant = Literal["sequence", "string", "object", "region", "object2", "region2", "attribute", ""]
type Normalisation = Literal["none", "msbset", "implied"]

_MAX_DEPTH = 32
_MAX_RANK = 32  # H5S_MAX_RANK
_MAX_CACHED_BYTES = 4096
_POINTERS = frozenset({8, *(4 + n + 4 for n in (2, 4, 8, 16))})
"""Sizes of an element of variable length: length, address of a heap, and number in the heap; in memory 8 or 16."""
_ORDERS: tuple[Order, ...] = ("<", ">", "", "vax")
_PADDINGS: tuple[Padding, ...] = ("nullterm", "nullpad", "spacepad")
_CHARSETS: tuple[Charset, ...] = ("ascii", "utf-8")
_REFERENCES: tuple[Variant, ...] = ("object", "region", "object2", "region2", "attribute")
_NORMALISATIONS: tuple[Normalisation, ...] = ("none", "msbset", "implied")


class FloatLayout(NamedTuple):
    """Positions of the parts of a floating-point number; bit 0 is the least significant bit of the element."""

    sign: int
    exponent: int
    exponent_size: int
    mantissa: int
    mantissa_size: int
    bias: int
    normalisation: Normalisation


class Member(NamedTuple):
    """A member of a compound.

    Parameters
    ----------
    name
        Name, decoded as UTF-8, or as latin-1 if it is not UTF-8.
    offset
        Offset in bytes from the beginning of the compound.
    datatype
        Datatype of the member.
    """

    name: str
    offset: int
    datatype: Datatype


@dataclass(frozen=True, slots=True, kw_only=True)
class Datatype:
    """The datatype of an element, in the words of the format."""

    kind: Kind
    size: int
    order: Order = ""
    is_signed: bool = False
    bit_offset: int = 0
    precision: int = 0
    layout: FloatLayout | None = None
    padding: Padding = ""
    charset: Charset = ""
    tag: bytes = b""
    members: tuple[Member, ...] = ()
    base: Datatype | None = None
    dims: tuple[int, ...] = ()
    names: tuple[bytes, ...] = ()
    values: bytes = b""
    variant: Variant = ""


def parse_datatype(body: bytes, /) -> tuple[Datatype, int]:
    """Parse a datatype message.

    Examples
    --------
    >>> datatype, length = parse_datatype(bytes.fromhex("100800000400000000002000"))
    >>> datatype.kind, datatype.size, datatype.order, datatype.is_signed, length
    ('integer', 4, '<', True, 12)
    """
    return _cached(body) if len(body) <= _MAX_CACHED_BYTES else _checked(body)


def _checked(body: bytes) -> tuple[Datatype, int]:
    try:
        return _parse(body, 0, 0)
    except (struct.error, IndexError) as error:
        raise StructureError(f"the datatype message ends after {len(body)} bytes, in the middle of it") from error


_cached = lru_cache(maxsize=512)(_checked)


def _parse(body: bytes, at: int, depth: int) -> tuple[Datatype, int]:
    """Parse the datatype at an offset; return it and the offset of its end."""
    if depth > _MAX_DEPTH:
        raise StructureError(f"datatypes are nested more than {_MAX_DEPTH} deep")
    first, low, high, size = struct.unpack_from("<BBHI", body, at)
    version, number = first >> 4, first & 15
    if not 1 <= version <= 5 or number >= len(_CLASSES):
        raise StructureError(f"version {version} and class {number} of a datatype message are not known")
    if not size:
        raise StructureError(f"elements of datatype class {number} have 0 bytes")
    datatype, end = _CLASSES[number](body, at + 8, low | high << 8, size, version, depth)
    return datatype, end


def _only(flags: int, known: int, what: str) -> None:
    """Raise `StructureError` if bits are set that the specification reserves."""
    if flags & ~known:
        raise StructureError(f"{what} have reserved bits set: {flags:#x}")


def _integer(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0b1111, "integers")
    return _bits("integer", body, at, flags, size)


def _bitfield(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0b111, "bitfields")
    return _bits("bitfield", body, at, flags, size)


def _bits(kind: Literal["integer", "bitfield"], body: bytes, at: int, flags: int, size: int) -> tuple[Datatype, int]:
    offset, precision = struct.unpack_from("<HH", body, at)
    _check_precision(offset, precision, size)
    datatype = Datatype(
        kind=kind,
        size=size,
        order=">" if flags & 1 else "<",
        is_signed=bool(flags & 8),
        bit_offset=offset,
        precision=precision,
    )
    return datatype, at + 4


def _check_precision(offset: int, precision: int, size: int) -> None:
    if not precision or offset + precision > 8 * size:
        raise StructureError(f"{precision} bits from bit {offset} are none of {size} bytes")


def _float(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    # bit 0, and 6 since version 3: byte order; 1 to 3: padding bits; 4, 5: normalisation; 8 to 15: position of the sign
    _only(flags, 0xFF7F if version >= 3 else 0xFF3F, "floats")
    offset, precision, exponent, exponent_size, mantissa, mantissa_size, bias = struct.unpack_from("<HHBBBBI", body, at)
    normalisation = flags >> 4 & 3
    order = flags >> 5 & 2 | flags & 1
    if normalisation > 2 or order == 2:
        raise StructureError(f"normalisation {normalisation} and byte order {order} of floats are not known")
    _check_precision(offset, precision, size)
    sign = flags >> 8
    parts = sorted([(sign, 1), (exponent, exponent_size), (mantissa, mantissa_size)])
    ends = [start + n for start, n in parts]
    starts = [start for start, _ in parts]
    is_apart = offset <= starts[0] and all(map(le, ends, (*starts[1:], offset + precision)))
    if not exponent_size or not mantissa_size or not is_apart:
        raise StructureError(f"sign, exponent and mantissa at {parts} do not fit {precision} bits from bit {offset}")
    datatype = Datatype(
        kind="float",
        size=size,
        order=_ORDERS[order],
        bit_offset=offset,
        precision=precision,
        layout=FloatLayout(
            sign,
            exponent,
            exponent_size,
            mantissa,
            mantissa_size,
            bias,
            _NORMALISATIONS[normalisation],
        ),
    )
    return datatype, at + 12


def _time(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 1, "times")
    (precision,) = struct.unpack_from("<H", body, at)
    _check_precision(0, precision, size)
    return Datatype(kind="time", size=size, order=">" if flags & 1 else "<", precision=precision), at + 2


def _string(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0xFF, "strings")
    padding, charset = flags & 15, flags >> 4
    if padding >= len(_PADDINGS) or charset >= len(_CHARSETS):
        raise StructureError(f"padding {padding} and character set {charset} of strings are not known")
    datatype = Datatype(
        kind="string",
        size=size,
        padding=_PADDINGS[padding],
        charset=_CHARSETS[charset],
    )
    return datatype, at


def _opaque(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0xFF, "opaque elements")
    end = at + flags
    if end > len(body) or flags % 8:
        raise StructureError(f"a tag of {flags} bytes of opaque elements goes past the end of the message, or of its 8")
    return Datatype(kind="opaque", size=size, tag=body[at:end].split(b"\0")[0]), end


def _compound(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0xFFFF, "compounds")
    if not flags:
        raise StructureError("a compound has no members")
    members = []
    width = (size.bit_length() + 7) // 8
    for _ in range(flags):
        raw, at = _name(body, at, version)
        dims: tuple[int, ...] = ()
        if version < 3:
            (offset,) = struct.unpack_from("<I", body, at)
            at += 4
        else:
            offset, at = int.from_bytes(body[at : at + width], "little"), at + width
        if version == 1:
            dims, at = _member_dims(body, at)
        datatype, at = _parse(body, at, depth + 1)
        if dims:
            datatype = Datatype(kind="array", size=datatype.size * math.prod(dims), base=datatype, dims=dims)
        members.append(Member(decode_text(raw), offset, datatype))
    _check_members(members, size)
    return Datatype(kind="compound", size=size, members=tuple(members)), at


def _check_members(members: list[Member], size: int) -> None:
    if len({member.name for member in members}) < len(members):
        raise StructureError("two members of a compound have one name")
    end, before = 0, ""
    for name, offset, datatype in sorted(members, key=lambda member: member.offset):
        if offset < end:
            raise StructureError(f"the members '{before}' and '{name}' of a compound overlap")
        end, before = offset + datatype.size, name
    if end > size:
        raise StructureError(f"the member '{before}' of a compound of {size} bytes ends at {end}")


def _member_dims(body: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Read the shape of a member, which version 1 stores beside the member."""
    # rank, 3 bytes reserved, permutation (never used), 4 bytes reserved, 4 lengths
    rank = body[at]
    if rank > 4:
        raise StructureError(f"a member of a compound has {rank} axes")
    dims = struct.unpack_from("<4I", body, at + 12)[:rank]
    _check_dims(dims)
    return dims, at + 28


def _check_dims(dims: tuple[int, ...]) -> None:
    if not all(dims):
        raise StructureError(f"an array type has the shape {dims}")


def _name(body: bytes, at: int, version: int) -> tuple[bytes, int]:
    """Read a name up to its NUL; before version 3 it is padded to a multiple of 8 bytes."""
    end = body.find(b"\0", at)
    if end < 0:
        raise StructureError("a name in a datatype message has no end")
    if end == at:
        raise StructureError("a name in a datatype message is empty")
    length = end + 1 - at
    return body[at:end], at + (length if version >= 3 else -(-length // 8) * 8)


def _reference(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    variant, encoding = flags & 15, flags >> 4
    # bits 4 to 7, from version 4 on: version of the encoding of the values; only 1 is known
    if variant >= (5 if version >= 4 else 2) or encoding > 1 or (encoding and variant < 2):
        raise StructureError(f"references of type {variant} in encoding {encoding} are not known")
    if variant < 2 and size != (8, 12)[variant]:
        raise StructureError(f"references of type {variant} have {size} bytes")
    return Datatype(kind="reference", size=size, variant=_REFERENCES[variant]), at


def _enum(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0xFFFF, "enumerations")
    base, at = _parse(body, at, depth + 1)
    if base.kind != "integer" or base.size != size:
        raise StructureError(f"an enumeration of {size} bytes has {base.kind} values of {base.size}")
    names = []
    for _ in range(flags):
        name, at = _name(body, at, version)
        names.append(name)
    end = at + flags * size
    if end > len(body):
        raise StructureError("the values of an enumeration go past the end of the message")
    return Datatype(kind="enum", size=size, base=base, names=tuple(names), values=body[at:end]), end


def _vlen(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0xFFF, "elements of variable length")
    variant, padding, charset = flags & 15, flags >> 4 & 15, flags >> 8
    if variant > 1 or padding >= len(_PADDINGS) or charset >= len(_CHARSETS) or (not variant and flags):
        raise StructureError(f"elements of variable length have the unknown form {flags:#x}")
    if size not in _POINTERS:
        raise StructureError(f"elements of variable length are {size} bytes")
    base, at = _parse(body, at, depth + 1)
    if not variant:
        return Datatype(kind="vlen", size=size, base=base, variant="sequence"), at
    if base.size != 1:
        raise StructureError(f"strings of variable length of {base.kind} letters of {base.size} bytes")
    datatype = Datatype(
        kind="vlen",
        size=size,
        base=base,
        variant="string",
        padding=_PADDINGS[padding],
        charset=_CHARSETS[charset],
    )
    return datatype, at


def _array(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    _only(flags, 0, "array types")
    rank = body[at]
    if version < 2 or not 1 <= rank <= _MAX_RANK:
        raise StructureError(f"an array type of {rank} axes in version {version} of the message")
    # version 2: 3 bytes reserved before the lengths, and a permutation after them that is never used
    at += 4 if version == 2 else 1
    dims = struct.unpack_from(f"<{rank}I", body, at)
    _check_dims(dims)
    base, at = _parse(body, at + 4 * rank * (2 if version == 2 else 1), depth + 1)
    if math.prod(dims) * base.size != size:
        raise StructureError(f"an array type of {size} bytes has {dims} elements of {base.size}")
    return Datatype(kind="array", size=size, base=base, dims=dims), at


def _complex(body: bytes, at: int, flags: int, size: int, version: int, depth: int) -> tuple[Datatype, int]:
    # bit 0: both parts are of one type; 1 and 2: form, where 0 is rectangular and the others are not in use
    if version < 5 or flags != 1:
        raise StructureError(f"complex numbers of form {flags:#x} in version {version} of the message")
    base, at = _parse(body, at, depth + 1)
    if base.kind != "float" or 2 * base.size != size:
        raise StructureError(f"complex numbers of {size} bytes have {base.kind} parts of {base.size}")
    return Datatype(kind="complex", size=size, base=base), at


_CLASSES: tuple[Callable[[bytes, int, int, int, int, int], tuple[Datatype, int]], ...] = (
    _integer,
    _float,
    _time,
    _string,
    _bitfield,
    _opaque,
    _compound,
    _reference,
    _enum,
    _vlen,
    _array,
    _complex,
)
