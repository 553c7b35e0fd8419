"""Read object headers: the messages that describe a group, dataset or committed datatype."""

from __future__ import annotations

import struct
from typing import NamedTuple

from virtualstack.formats.hdf5.structures.requests import (
    Fields,
    Parse,
    Span,
    StructureError,
    Widths,
    check,
    read_span,
    verified,
)

_FIRST_READ_BYTES = 512
"""Size of the first read in bytes: the headers of most datasets are shorter."""
_CONTINUATION = 0x10
_REFERENCE_COUNT = 0x16
_LAST_KNOWN = 0x18
_FAIL_IF_UNKNOWN = 0x80
_SHARED = 0x42  # shared, or may be
_MAY_BE_SHARED = frozenset({0x01, 0x03, 0x04, 0x05, 0x0B, 0x0C})
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
    form, first, size, n_messages = _new_prefix(head) if head[:4] == b"OHDR" else _old_prefix(head)
    end = first + size + form.checksum_bytes
    if end > len(head):
        head = yield from read_span(address, end)
    messages: list[Message] = []
    blocks = [head[:end]]
    seen = {address}
    n_found, n_bytes = 0, size
    while blocks:
        following: list[tuple[int, int]] = []
        for block in blocks:
            content = verified(block) if form.checksum_bytes else block
            n_found += _split(content[first:], form, messages, following, widths)
        if not following:
            break
        n_bytes += _check_blocks(following, seen)
        check(n_bytes <= _MAX_HEADER_BYTES, "an object header is too long")
        blocks = list((yield [Span(where, length) for where, length in following]))
        first = len(form.signature)
        check(all(block.startswith(form.signature) for block in blocks), "there is no 'OCHK' where one should be")
    check(n_messages in (n_found, None), f"an object header has {n_found} messages, but says {n_messages}")
    return messages


def first_block_size(head: bytes, /) -> int:
    """Return the size of the first block of an object header, checksum included, from its first bytes."""
    form, first, size, _ = _new_prefix(head) if head[:4] == b"OHDR" else _old_prefix(head)
    return first + size + form.checksum_bytes


class _Form(NamedTuple):
    """What differs between the versions: the prefix of a message, and what is around the messages of a block."""

    prefix: struct.Struct
    signature: bytes
    checksum_bytes: int


_OLD_PREFIX = struct.Struct("<2xHII4x")
_OLD = _Form(struct.Struct("<HHB3x"), b"", 0)
_NEW = _Form(struct.Struct("<BHB"), b"OCHK", 4)
_ORDERED = _Form(struct.Struct("<BHBH"), b"OCHK", 4)


def _old_prefix(head: bytes) -> tuple[_Form, int, int, int | None]:
    """Return form, beginning, size and number of the messages of a header of version 1."""
    check(head[:2] == b"\x01\x00", "there is no object header where one should be")
    check(len(head) >= _OLD_PREFIX.size, "an object header ends before its fields do")
    n_messages, n_links, size = _OLD_PREFIX.unpack_from(head)
    check(
        n_links > 0 and size <= _MAX_HEADER_BYTES,
        f"an object header has {n_links} links and {size} bytes; expected a link, and at most {_MAX_HEADER_BYTES} "
        "bytes",
    )
    return _OLD, _OLD_PREFIX.size, size, n_messages


def _new_prefix(head: bytes) -> tuple[_Form, int, int, None]:
    """Return the same for a header of version 2, which does not say how many messages it has."""
    fields = Fields(head[4:], "an object header")
    version, flags = fields.unpack("BB")
    check(version == 2 and flags < 0x40, f"version {version} of the object header, flags {flags:#x}, is not known")
    if flags & 0x20:
        fields.take(16)  # times
    most_compact, least_dense = fields.unpack("HH") if flags & 0x10 else (0, 0)
    check(most_compact >= least_dense, "an object header has attributes that are neither compact nor dense")
    size = fields.number(1 << (flags & 3))
    check(size <= _MAX_HEADER_BYTES, "an object header is too long")
    form = _ORDERED if flags & 4 else _NEW
    check(size == 0 or size >= form.prefix.size, "the first block of an object header has no room for a message")
    return form, len(head) - len(fields.rest), size, None


def _split(block: bytes, form: _Form, messages: list[Message], following: list[tuple[int, int]], widths: Widths) -> int:
    """Add the messages of a block, and the blocks to which it leads; return the number of all its messages."""
    prefix, unpack, is_old = form.prefix.size, form.prefix.unpack_from, form is _OLD
    at, end, n_found, has_null = 0, len(block), 0, False
    while at + prefix <= end:
        kind, size, flags, *order = unpack(block, at)
        first = at + prefix
        at = first + size
        if at > end or (is_old and (size % 8 or kind == _REFERENCE_COUNT)):
            raise StructureError(f"message {kind:#x} of {size} bytes reaches past its block, or is none of version 1")
        if flags > 1:
            _check_flags(kind, flags)
        if kind == _CONTINUATION:
            following.append(_continuation(block[first:at], widths))
        elif kind:
            messages.append(Message(kind, bool(flags & 2), block[first:at], order[0] if order else 0))
        else:
            has_null = True
        n_found += 1
    # only in version 2, fewer bytes than a message needs are a gap, and a null message would have filled it
    if at < end and (has_null or is_old):
        raise StructureError("bytes are left over after the header messages")
    return n_found


def _continuation(body: bytes, widths: Widths) -> tuple[int, int]:
    """Return address and length of a further block (HDF5 spec IV.A.2.q)."""
    fields = Fields(body, "an object header")
    return fields.number(widths.address), fields.number(widths.length)


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
