"""Parse messages and their fields: sections, and the byte range of each field. No I/O, no eccodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.grib.fields import (
    EMPTY_BITMAP,
    EMPTY_DATA,
    END,
    MAGIC,
    SAME_BITMAP,
    SECTION,
    check_grid_1,
    check_grid_2,
    check_packing_2,
    check_product_2,
    message_1,
    message_2,
    short_data,
)

type Read = Callable[[int, int], bytes]
"""Function that reads a number of bytes from an offset in the file; it returns fewer only at the end of the file."""

_FRONT_BYTES = 1 << 10
_MAX_HEADER_BYTES = 1 << 26
_MAX_FIELDS = 1 << 16
_CHECKS = {3: check_grid_2, 4: check_product_2, 5: check_packing_2}

_MIN_BYTES_1, _MIN_BYTES_2 = 8 + 28 + 11 + 4, 16 + 21 + 5 + 4


class MessageError(ValueError):
    """The bytes of a message contradict each other."""


class Field(NamedTuple):
    """One field of a message: its description, and the bytes that decode to it.

    If a field is not the last field of its message, its bytes begin with the message, and end with the field's data.
    The field is then the last field in these bytes.

    Parameters
    ----------
    edition
        Edition of GRIB, 1 or 2.
    offset, length
        Byte range of the field in the file.
    number
        Number of the field in its message, from 0.
    described
        Number of bytes from the beginning of the message to the end of the description of the grid: to the end of
        section 5 in GRIB 2, of section 2 in GRIB 1.
    is_whole
        If true, the field is the only field of its message.
    discipline
        Discipline of the message in GRIB 2; 0 in GRIB 1.
    sections
        Sections that describe the field, each with its own header, in the order of their numbers: sections 1 to 5 of
        GRIB 2; sections 1 and 2 and the beginning of section 4 of GRIB 1. A section that does not exist is empty.
    """

    edition: int
    offset: int
    length: int
    number: int
    described: int
    is_whole: bool
    discipline: int
    sections: tuple[bytes, bytes, bytes, bytes, bytes]

    @property
    def form(self) -> int:
        """Flags of section 4 of GRIB 1 if they declare spherical harmonics, which are not a grid; else 0."""
        flags = self.sections[3][3] if self.edition == 1 else 0
        return flags & 0xF0 if flags & 0x80 else 0

    def stub(self) -> bytes:
        """Return a message of the field without bitmap and data. It has all keys except for the keys of values.

        A GRIB 1 message cannot have the beginning of section 4 alone: the section then declares 0 bits for each value.
        """
        if self.edition == 2:
            return message_2(self.discipline, (*self.sections, EMPTY_BITMAP, EMPTY_DATA))
        product, grid, _, data, _ = self.sections
        return message_1(product + grid, short_data(data))


def message_length(head: bytes, /) -> tuple[int, int] | None:
    """Read edition and length of a message from its first 16 bytes."""
    if len(head) < 8 or head[:4] != MAGIC:
        return None
    edition = head[7]
    if edition == 1:
        return 1, int.from_bytes(head[4:7], "big")
    if edition == 2 and len(head) >= 16:
        return 2, int.from_bytes(head[8:16], "big")
    return None


def parse_fields(read: Read, offset: int, size: int, head: bytes, /) -> tuple[int, list[Field]]:
    """Split a message into its fields."""
    found = message_length(head)
    if found is None:
        raise MessageError("there is no message of edition 1 or 2")
    edition, length = found
    if edition == 1:
        length, field = _field_1(read, offset, length, size)
        return length, [field]
    _check_length(length, _MIN_BYTES_2, offset, size)
    return length, _fields_2(read, offset, length, head[6])


def _check_length(length: int, least: int, offset: int, size: int) -> None:
    if length < least:
        raise MessageError(f"the message says that it is {length} bytes long, less than its sections take")
    if length > size - offset:
        raise MessageError(
            f"the message says that it is {length} bytes long, but the file ends {size - offset} bytes after its "
            "beginning: it is cut short"
        )


def _check_end(read: Read, offset: int, length: int) -> None:
    if read(offset + length - 4, 4) != END:
        raise MessageError(f"the message of {length} bytes does not end in '7777': its length is wrong, or it is cut")


# -- GRIB 1 -----------------------------------------------------------------------------------------------------


def _field_1(read: Read, offset: int, length: int, size: int) -> tuple[int, Field]:
    """Parse WMO FM 92 GRIB 1: sections 1, 2 and 3 as the flags of section 1 announce, then section 4."""
    at = offset + 8
    product = _section_1(read, at, size, least=28)
    at += len(product)
    grid = b""
    if product[7] & 0x80:
        grid = _section_1(read, at, size, least=32)
        at += len(grid)
        _checked(check_grid_1, grid)
    described = at - offset
    if product[7] & 0x40:
        at += _length_1(read, at, size, least=6)
    head = read(at, 11 + 21)
    if len(head) < 11:
        raise MessageError("the file ends within section 4: the message is cut short")
    data = int.from_bytes(head[:3], "big")
    if length & 0x800000 and data < 120:
        # ECMWF's rule for more than 8 MiB: the length counts 120 bytes, and the length of section 4 is the excess
        length = (length & 0x7FFFFF) * 120 - data + 4
    elif at + data + 4 != offset + length:
        raise MessageError(
            f"section 4 of {data} bytes ends {at + data + 4 - offset} bytes after the beginning of a message of "
            f"{length} bytes"
        )
    _check_length(length, _MIN_BYTES_1, offset, size)
    if at + 11 > offset + length - 4:
        raise MessageError("sections are longer than the message")
    _check_end(read, offset, length)
    head = head[: max(offset + length - 4 - at, 11)]
    return length, Field(1, offset, length, 0, described, True, 0, (product, grid, b"", head, b""))


def _checked(check: Callable[[bytes], None], section: bytes) -> None:
    try:
        check(section)
    except CodecError as error:
        raise MessageError(str(error)) from error


def _length_1(read: Read, at: int, size: int, *, least: int) -> int:
    length = int.from_bytes(read(at, 3), "big")
    if not least <= length <= size - at:
        raise MessageError(f"a section says that it is {length} bytes long")
    return length


def _section_1(read: Read, at: int, size: int, *, least: int) -> bytes:
    return read(at, _length_1(read, at, size, least=least))


# -- GRIB 2 -----------------------------------------------------------------------------------------------------


def _fields_2(read: Read, offset: int, length: int, discipline: int) -> list[Field]:
    """Parse WMO FM 92 GRIB 2: sections 2 to 7, 3 to 7, or 4 to 7 may be repeated, with one field each time."""
    at, end = offset + 16, offset + length - 4
    front = read(offset, min(_FRONT_BYTES, length))  # usually all that is needed
    now: list[bytes] = [b""] * 5
    has_bitmap = False
    number = last = described = 0
    found: list[Field] = []
    while at < end:
        begin = at - offset
        head = front[begin : begin + 6] if begin + 6 <= len(front) else read(at, 6)
        if len(head) < 5:
            raise MessageError("the file ends within a message: it is cut short")
        n, kind = SECTION.unpack_from(head)
        if n < 5 or at + n > end or not 1 <= kind <= 7:
            raise MessageError(f"section {kind} at byte {at - offset} of the message says that it is {n} bytes long")
        if (kind <= last and not (last == 7 and 2 <= kind <= 4)) or (last == 0 and kind != 1):
            raise MessageError(f"section {kind} follows section {last}")
        if kind <= 5:
            if n > _MAX_HEADER_BYTES:
                raise MessageError(
                    f"section {kind} says that it is {n} bytes long; descriptions have at most {_MAX_HEADER_BYTES}"
                )
            now[kind - 1] = front[begin : begin + n] if begin + n <= len(front) else read(at, n)
            described = begin + n
            if kind in _CHECKS:
                _checked(_CHECKS[kind], now[kind - 1])
        elif kind == 6:
            if n < 6:
                raise MessageError("section 6 has no bitmap indicator")
            if head[5] == SAME_BITMAP and not has_bitmap:
                raise MessageError("section 6 refers to a bitmap that was defined before, and none was")
            has_bitmap = has_bitmap or head[5] != 255
        elif last != 6 or not (now[2] and now[3] and now[4]):
            raise MessageError("a field has no grid, product or packing before its data")
        at, last = at + n, kind
        if kind == 7:
            sections = (now[0], now[1], now[2], now[3], now[4])
            found.append(Field(2, offset, at - offset, number, described, False, discipline, sections))
            number += 1
            if number > _MAX_FIELDS:
                raise MessageError(f"the message has more than {_MAX_FIELDS} fields")
    if last != 7:
        raise MessageError("the message has no data behind its last description")
    _check_end(read, offset, length)
    found[-1] = found[-1]._replace(length=length, is_whole=number == 1)
    return found
