"""The data layout message of a dataset: what h5py does not tell about its chunk index.

The object header is read in place: a few hundred bytes that the HDF5 library has just read too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["ChunkLayout", "read_chunk_layout"]

EXTENSIBLE_ARRAY = 4
_LAYOUT, _CONTINUATION = 0x0008, 0x0010
_MAX_BLOCKS = 1 << 16

type Read = Callable[[int, int], bytes]
"""Read ``length`` bytes at an offset from the start of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLayout:
    """What the layout message of a chunked dataset says.

    Parameters
    ----------
    version
        Of the message; 3 and less have a version 1 B-tree as index.
    index
        Type of the chunk index: 1 single chunk, 2 implicit, 3 fixed array, 4 extensible array, 5 B-tree version 2;
        0 for a version 1 B-tree.
    leaves_edges_unfiltered
        Whether chunks that reach past the array are stored without filters.
    """

    version: int
    index: int
    leaves_edges_unfiltered: bool


def read_chunk_layout(read: Read, base: int, address: int, /) -> ChunkLayout | None:
    """Read the layout message of a chunked dataset; ``None`` where it is not where it should be.

    Parameters
    ----------
    read
        Gives bytes of the file.
    base
        Bytes before the HDF5 superblock (the user block).
    address
        Of the object header, from ``base``.
    """
    try:
        for kind, body in _messages(read, base, address):
            if kind == _LAYOUT:
                return _parse_layout(body)
    except (IndexError, struct.error):
        return None
    return None


def _parse_layout(body: bytes) -> ChunkLayout | None:
    version = body[0]
    if version <= 3:  # HDF5 spec IV.A.2.i, versions 1 to 3
        return ChunkLayout(version=version, index=0, leaves_edges_unfiltered=False)
    if version > 5 or body[1] != 2:  # class 2: chunked
        return None
    # HDF5 spec IV.A.2.i, version 4, chunked: flags, dimensionality, width of the dimension sizes, sizes, index type
    flags, n_dims, width = body[2], body[3], body[4]
    return ChunkLayout(version=version, index=body[5 + n_dims * width], leaves_edges_unfiltered=bool(flags & 1))


def _messages(read: Read, base: int, address: int) -> Iterator[tuple[int, bytes]]:
    """Give type and body of the messages of an object header, as far as asked for."""
    start = read(base + address, 16)
    if start[:4] == b"OHDR":
        yield from _messages_v2(read, base, address, start[5])
    elif start[0] == 1:
        # HDF5 spec IV.A.1.a, version 1: prefix of 12 bytes, padded to 16
        yield from _walk_v1(read, base, address + 16, struct.unpack_from("<I", start, 8)[0])


def _walk_v1(read: Read, base: int, address: int, size: int) -> Iterator[tuple[int, bytes]]:
    blocks = [(address, size)]
    for n_blocks in range(_MAX_BLOCKS):
        if n_blocks >= len(blocks):
            return
        block = read(base + blocks[n_blocks][0], blocks[n_blocks][1])
        at = 0
        while at + 8 <= len(block):
            kind, length = struct.unpack_from("<HH", block, at)
            body = block[at + 8 : at + 8 + length]
            if kind == _CONTINUATION:
                blocks.append(struct.unpack_from("<QQ", body))
            yield kind, body
            at += 8 + length


def _messages_v2(read: Read, base: int, address: int, flags: int) -> Iterator[tuple[int, bytes]]:
    # HDF5 spec IV.A.1.b, version 2: times if bit 5, phase change if bit 4, size of chunk 0 in 2^(bits 0-1) bytes
    at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
    width = 1 << (flags & 3)
    size = int.from_bytes(read(base + address + at, width), "little")
    prefix = 6 if flags & 0x04 else 4  # message headers carry a creation order if bit 2
    blocks = [(address + at + width, size)]
    for n_blocks in range(_MAX_BLOCKS):
        if n_blocks >= len(blocks):
            return
        block = read(base + blocks[n_blocks][0], blocks[n_blocks][1])
        at = 0
        while at + prefix <= len(block):
            kind, length = block[at], struct.unpack_from("<H", block, at + 1)[0]
            body = block[at + prefix : at + prefix + length]
            if kind == _CONTINUATION:
                where, n_bytes = struct.unpack_from("<QQ", body)
                blocks.append((where + 4, n_bytes - 8))  # without "OCHK" in front and the checksum behind
            yield kind, body
            at += prefix + length
