"""Read object headers: the messages that describe a group, dataset or committed datatype."""

from __future__ import annotations

import struct
from typing import NamedTuple

from virtualstack.formats.hdf5.structures.requests import (
    Parse,
    Span,
    StructureError,
    Widths,
    check,
    read_span,
    unsigned,
    verified,
)

__all__ = ["Message", "read_object_header"]

_FIRST_READ_BYTES = 512
"""Size of the first read in bytes: the headers of most datasets are shorter."""
_CONTINUATION = 0x10
_REFERENCE_COUNT = 0x16
_LAST_KNOWN = 0x18
_FAIL_IF_UNKNOWN = 0x80
_SHARED = 0x42  # shared, or may be
_MAY_BE_SHARED = frozenset({0x01, 0x03, 0x04, 0x05, 0x0B, 0x0C})
_OLD_PREFIX = struct.Struct("<HHB").unpack_from
_NEW_PREFIX = struct.Struct("<BHB").unpack_from
_ORDERED_PREFIX = struct.Struct("<BHBH").unpack_from
_MAX_HEADER_BYTES = 1 << 26  # all blocks of a header together; a message has at most 64 KiB


class Message(NamedTuple):
    """A header message.

    Parameters
    ----------
    kind
        Type number (HDF5 spec IV.A.2).
    is_shared
        If true, the body is only a reference to the message.
    body
        Body as stored.
    order
        Order of creation; 0 if it is not tracked.
    """

    kind: int
    is_shared: bool
    body: bytes
    order: int


def read_object_header(address: int, widths: Widths) -> Parse[list[Message]]:
    """Read all messages of an object header from all of its blocks (HDF5 spec IV.A.1)."""
    (head,) = yield (Span(address, _FIRST_READ_BYTES, is_clipped=True),)
    if head[:4] == b"OHDR":
        return (yield from _read_new(address, head, widths))
    check(head[:2] == b"\x01\x00", "there is no object header where one should be")
    return (yield from _read_old(address, head, widths))


def _read_old(address: int, head: bytes, widths: Widths) -> Parse[list[Message]]:
    """Read a header of version 1, which has no signatures and no checksums."""
    if len(head) < 16:
        raise StructureError("an object header ends before its fields do")
    # prefix of 12 bytes, padded to 16
    n_messages, n_links, size = struct.unpack_from("<HII", head, 2)
    check(
        n_links > 0 and size <= _MAX_HEADER_BYTES,
        f"an object header has {n_links} links and {size} bytes; expected a link, and at most {_MAX_HEADER_BYTES} "
        "bytes",
    )
    if 16 + size > len(head):
        head = yield from read_span(address, 16 + size)
    messages: list[Message] = []
    blocks = [head[16 : 16 + size]]
    seen = {address}
    n_found, n_bytes = 0, size
    while blocks:
        following: list[tuple[int, int]] = []
        for block in blocks:
            n_found += _split_old(block, messages, following, widths)
        n_bytes += _check_blocks(following, seen)
        check(n_bytes <= _MAX_HEADER_BYTES, "an object header is too long")
        blocks = list((yield [Span(where, length) for where, length in following])) if following else []
    check(n_found == n_messages, f"an object header has {n_found} messages, but says {n_messages}")
    return messages


def _split_old(block: bytes, messages: list[Message], following: list[tuple[int, int]], widths: Widths) -> int:
    at = n_found = 0
    end = len(block)
    while at + 8 <= end:
        kind, size, flags = _OLD_PREFIX(block, at)
        at += 8
        if at + size > end or size % 8:
            raise StructureError("a header message reaches past its block")
        if flags > 1:
            _check_flags(kind, flags)
        check(kind != _REFERENCE_COUNT, "an object header of version 1 has a reference count, which only version 2 has")
        if kind == _CONTINUATION:
            following.append(_continuation(block[at : at + size], widths))
        elif kind:
            messages.append(Message(kind, bool(flags & 2), block[at : at + size], 0))
        at += size
        n_found += 1
    check(at == end, "bytes are left over after the header messages")
    return n_found


def _read_new(address: int, head: bytes, widths: Widths) -> Parse[list[Message]]:
    """Read a header of version 2, in which each block has a signature and a checksum."""
    if len(head) < 16:
        raise StructureError("an object header ends before its fields do")
    flags = head[5]
    if head[4] != 2 or flags >= 0x40:
        raise StructureError(f"version {head[4]} of the object header, flags {flags:#x}, is not known")
    # four times if bit 5, phase change of attributes if bit 4, size of the first block in 2^(bits 0-1) bytes
    at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    size = unsigned(head, at, width)
    at += width
    check(size <= _MAX_HEADER_BYTES, "an object header is too long")
    least = 6 if flags & 4 else 4
    check(size == 0 or size >= least, "the first block of an object header has no room for a message")
    if flags & 0x10:
        most_compact, least_dense = struct.unpack_from("<HH", head, at - width - 4)
        check(most_compact >= least_dense, "an object header has attributes that are neither compact nor dense")
    if at + size + 4 > len(head):
        head = yield from read_span(address, at + size + 4)
    messages: list[Message] = []
    blocks = [verified(head[: at + size + 4])[at:]]
    seen = {address}
    n_bytes = size
    while blocks:
        following: list[tuple[int, int]] = []
        for block in blocks:
            _split_new(block, bool(flags & 4), messages, following, widths)
        if not following:
            break
        n_bytes += _check_blocks(following, seen)
        check(n_bytes <= _MAX_HEADER_BYTES, "an object header is too long")
        answers = yield [Span(where, length) for where, length in following]
        check(all(answer[:4] == b"OCHK" for answer in answers), "there is no 'OCHK' where one should be")
        blocks = [verified(answer)[4:] for answer in answers]
    return messages


def _split_new(
    block: bytes, has_order: bool, messages: list[Message], following: list[tuple[int, int]], widths: Widths
) -> None:
    at, end, has_null = 0, len(block), False
    prefix = 6 if has_order else 4
    while at + prefix <= end:  # fewer bytes are a gap
        kind, size, flags, order = _ORDERED_PREFIX(block, at) if has_order else (*_NEW_PREFIX(block, at), 0)
        first = at + prefix
        at = first + size
        if at > end:
            raise StructureError("a header message reaches past its block")
        if flags > 1:
            _check_flags(kind, flags)
        if kind == _CONTINUATION:
            following.append(_continuation(block[first:at], widths))
        elif kind:
            messages.append(Message(kind, bool(flags & 2), block[first:at], order))
        else:
            has_null = True
    if at < end and has_null:
        raise StructureError("a block of an object header has a gap, and a null message that should fill it")


def _continuation(body: bytes, widths: Widths) -> tuple[int, int]:
    """Return address and length of a further block (HDF5 spec IV.A.2.q)."""
    return unsigned(body, 0, widths.address), unsigned(body, widths.address, widths.length)


def _check_flags(kind: int, flags: int) -> None:
    """Check the flags of a message as the HDF5 library does (H5O__chunk_deserialize); flags of 0 and 1 are right."""
    is_unknown = kind > _LAST_KNOWN
    if is_unknown and flags & _FAIL_IF_UNKNOWN:
        raise StructureError(f"message {kind:#x} is not known")
    is_contrary = flags & 0x06 == 0x06 or flags & 0x28 == 0x28 or flags & 0x30 == 0x20
    if is_contrary or (flags & _SHARED and not is_unknown and kind not in _MAY_BE_SHARED):
        raise StructureError(f"message {kind:#x} has the flags {flags:#x}, which contradict each other or its kind")


def _check_blocks(blocks: list[tuple[int, int]], seen: set[int]) -> int:
    """Check that no block was read before; return the number of bytes of all blocks."""
    for where, length in blocks:
        check(
            where not in seen and 0 < length <= _MAX_HEADER_BYTES,
            "a block of an object header is empty, too long, or a duplicate",
        )
        seen.add(where)
    return sum(length for _, length in blocks)
