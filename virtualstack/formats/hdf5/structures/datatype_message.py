"""Parse the datatype message, which describes an element of a dataset or attribute.

HDF5 File Format Specification, IV.A.2.d. Versions 1 to 5 of the message are supported. Version 1 has arrays only as
members of compounds. Version 2 has array types. Version 3 packs names and offsets. Version 4 has the references of
HDF5 1.12. Version 5 has the complex numbers of HDF5 2.0. A message that contradicts the specification, or is unusual,
is an error: the HDF5 library then reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import le
from typing import Literal, NamedTuple

from virtualstack.formats.hdf5.structures.requests import Fields, StructureError, decode_text

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


class Datatype(NamedTuple):
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


def parse_datatype(body: bytes, /) -> Datatype:
    """Parse a datatype message; further bytes may follow.

    Examples
    --------
    >>> datatype = parse_datatype(bytes.fromhex("100800000400000000002000"))
    >>> datatype.kind, datatype.size, datatype.order, datatype.is_signed
    ('integer', 4, '<', True)
    """
    return _cached(body) if len(body) <= _MAX_CACHED_BYTES else _parse(Fields(body, "the datatype message"), 0)


@lru_cache(maxsize=512)
def _cached(body: bytes) -> Datatype:
    return _parse(Fields(body, "the datatype message"), 0)


class _Head(NamedTuple):
    """The fields before the properties of each class, and how deep the datatype is in others."""

    flags: int
    size: int
    version: int
    depth: int


type _ParseClass = Callable[[Fields, _Head], Datatype]


def _parse(fields: Fields, depth: int) -> Datatype:
    if depth > _MAX_DEPTH:
        raise StructureError(f"datatypes are nested more than {_MAX_DEPTH} deep")
    first, low, high, size = fields.unpack("BBHI")
    version, number = first >> 4, first & 15
    if not 1 <= version <= 5 or number >= len(_CLASSES):
        raise StructureError(f"version {version} and class {number} of a datatype message are not known")
    if not size:
        raise StructureError(f"elements of datatype class {number} have 0 bytes")
    what, known_flags, parse = _CLASSES[number]
    flags = low | high << 8
    if flags & ~known_flags:
        raise StructureError(f"{what} have reserved bits set: {flags:#x}")
    datatype: Datatype = parse(fields, _Head(flags, size, version, depth))
    return datatype


def _integer(fields: Fields, head: _Head) -> Datatype:
    return _bits("integer", fields, head)


def _bitfield(fields: Fields, head: _Head) -> Datatype:
    return _bits("bitfield", fields, head)


def _bits(kind: Literal["integer", "bitfield"], fields: Fields, head: _Head) -> Datatype:
    offset, precision = fields.unpack("HH")
    _check_precision(offset, precision, head.size)
    return Datatype(
        kind=kind,
        size=head.size,
        order=">" if head.flags & 1 else "<",
        is_signed=bool(head.flags & 8),
        bit_offset=offset,
        precision=precision,
    )


def _check_precision(offset: int, precision: int, size: int) -> None:
    if not precision or offset + precision > 8 * size:
        raise StructureError(f"{precision} bits from bit {offset} are none of {size} bytes")


def _float(fields: Fields, head: _Head) -> Datatype:
    # bit 0, and 6 since version 3: byte order; 1 to 3: padding bits; 4, 5: normalisation; 8 to 15: position of the sign
    flags = head.flags
    offset, precision, exponent, exponent_size, mantissa, mantissa_size, bias = fields.unpack("HHBBBBI")
    normalisation = flags >> 4 & 3
    order = flags >> 5 & 2 | flags & 1
    if normalisation > 2 or order == 2 or (order == 3 and head.version < 3):
        raise StructureError(f"normalisation {normalisation} and byte order {order} of floats are not known")
    _check_precision(offset, precision, head.size)
    sign = flags >> 8
    parts = sorted([(sign, 1), (exponent, exponent_size), (mantissa, mantissa_size)])
    ends = [start + n for start, n in parts]
    starts = [start for start, _ in parts]
    is_apart = offset <= starts[0] and all(map(le, ends, (*starts[1:], offset + precision)))
    if not exponent_size or not mantissa_size or not is_apart:
        raise StructureError(f"sign, exponent and mantissa at {parts} do not fit {precision} bits from bit {offset}")
    layout = FloatLayout(sign, exponent, exponent_size, mantissa, mantissa_size, bias, _NORMALISATIONS[normalisation])
    return Datatype(
        kind="float", size=head.size, order=_ORDERS[order], bit_offset=offset, precision=precision, layout=layout
    )


def _time(fields: Fields, head: _Head) -> Datatype:
    precision = fields.number(2)
    _check_precision(0, precision, head.size)
    return Datatype(kind="time", size=head.size, order=">" if head.flags & 1 else "<", precision=precision)


def _string(fields: Fields, head: _Head) -> Datatype:
    padding, charset = head.flags & 15, head.flags >> 4
    if padding >= len(_PADDINGS) or charset >= len(_CHARSETS):
        raise StructureError(f"padding {padding} and character set {charset} of strings are not known")
    return Datatype(kind="string", size=head.size, padding=_PADDINGS[padding], charset=_CHARSETS[charset])


def _opaque(fields: Fields, head: _Head) -> Datatype:
    if head.flags % 8:
        raise StructureError(f"a tag of {head.flags} bytes of opaque elements is not padded")
    return Datatype(kind="opaque", size=head.size, tag=fields.take(head.flags).split(b"\0")[0])


def _compound(fields: Fields, head: _Head) -> Datatype:
    if not head.flags:
        raise StructureError("a compound has no members")
    members = []
    width = 4 if head.version < 3 else (head.size.bit_length() + 7) // 8
    for _ in range(head.flags):
        raw, offset = _name(fields, head.version), fields.number(width)
        # version 1: rank, 3 bytes reserved, permutation (never used), 4 bytes reserved, 4 lengths
        rank, *lengths = fields.unpack("B11x4I") if head.version == 1 else (0,)
        if rank > 4:
            raise StructureError(f"a member of a compound has {rank} axes")
        datatype, dims = _parse(fields, head.depth + 1), _dims(lengths[:rank])
        if dims:
            datatype = Datatype(kind="array", size=datatype.size * math.prod(dims), base=datatype, dims=dims)
        members.append(Member(decode_text(raw), offset, datatype))
    _check_members(members, head.size)
    return Datatype(kind="compound", size=head.size, members=tuple(members))


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


def _dims(lengths: Sequence[int]) -> tuple[int, ...]:
    if not all(lengths):
        raise StructureError(f"an array type has the shape {tuple(lengths)}")
    return tuple(lengths)


def _name(fields: Fields, version: int) -> bytes:
    """Read a name up to its NUL; before version 3 it is padded to a multiple of 8 bytes."""
    name = fields.text()
    if not name:
        raise StructureError("a name in a datatype message is empty")
    if version < 3:
        fields.take(-(len(name) + 1) % 8)
    return name


def _reference(fields: Fields, head: _Head) -> Datatype:
    variant, encoding = head.flags & 15, head.flags >> 4
    # bits 4 to 7, from version 4 on: version of the encoding of the values; only 1 is known
    if variant >= (5 if head.version >= 4 else 2) or encoding > 1 or (encoding and variant < 2):
        raise StructureError(f"references of type {variant} in encoding {encoding} are not known")
    if variant < 2 and head.size != (8, 12)[variant]:
        raise StructureError(f"references of type {variant} have {head.size} bytes")
    return Datatype(kind="reference", size=head.size, variant=_REFERENCES[variant])


def _enum(fields: Fields, head: _Head) -> Datatype:
    base = _parse(fields, head.depth + 1)
    if base.kind != "integer" or base.size != head.size:
        raise StructureError(f"an enumeration of {head.size} bytes has {base.kind} values of {base.size}")
    names = tuple(_name(fields, head.version) for _ in range(head.flags))
    return Datatype(kind="enum", size=head.size, base=base, names=names, values=fields.take(head.flags * head.size))


def _vlen(fields: Fields, head: _Head) -> Datatype:
    flags, size = head.flags, head.size
    variant = flags & 15
    if variant > 1 or (not variant and flags):
        raise StructureError(f"elements of variable length have the unknown form {flags:#x}")
    if size not in _POINTERS:
        raise StructureError(f"elements of variable length are {size} bytes")
    base = _parse(fields, head.depth + 1)
    if not variant:
        return Datatype(kind="vlen", size=size, base=base, variant="sequence")
    if base.size != 1:
        raise StructureError(f"strings of variable length of {base.kind} letters of {base.size} bytes")
    form = _string(fields, _Head(flags >> 4, size, head.version, head.depth))
    return form._replace(kind="vlen", base=base, variant="string")


def _array(fields: Fields, head: _Head) -> Datatype:
    rank = fields.number(1)
    if head.version < 2 or not 1 <= rank <= _MAX_RANK:
        raise StructureError(f"an array type of {rank} axes in version {head.version} of the message")
    # version 2: 3 bytes reserved before the lengths, and a permutation after them that is never used
    dims = _dims(fields.unpack(f"3x{rank}I{4 * rank}x" if head.version == 2 else f"{rank}I"))
    base = _parse(fields, head.depth + 1)
    if math.prod(dims) * base.size != head.size:
        raise StructureError(f"an array type of {head.size} bytes has {dims} elements of {base.size}")
    return Datatype(kind="array", size=head.size, base=base, dims=dims)


def _complex(fields: Fields, head: _Head) -> Datatype:
    # bit 0: both parts are of one type; 1 and 2: form, where 0 is rectangular and the others are not in use
    if head.version < 5 or head.flags != 1:
        raise StructureError(f"complex numbers of form {head.flags:#x} in version {head.version} of the message")
    base = _parse(fields, head.depth + 1)
    if base.kind != "float" or 2 * base.size != head.size:
        raise StructureError(f"complex numbers of {head.size} bytes have {base.kind} parts of {base.size}")
    return Datatype(kind="complex", size=head.size, base=base)


_ANY = 0xFFFFFF
_CLASSES: tuple[tuple[str, int, _ParseClass], ...] = (
    ("integers", 0b1111, _integer),
    ("floats", 0xFF7F, _float),
    ("times", 1, _time),
    ("strings", 0xFF, _string),
    ("bitfields", 0b111, _bitfield),
    ("opaque elements", 0xFF, _opaque),
    ("compounds", 0xFFFF, _compound),
    ("references", _ANY, _reference),
    ("enumerations", 0xFFFF, _enum),
    ("elements of variable length", 0xFFF, _vlen),
    ("array types", 0, _array),
    ("complex numbers", _ANY, _complex),
)
"""Name, known flags and parser of each class."""
