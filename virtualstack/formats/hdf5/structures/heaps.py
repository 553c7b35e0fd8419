"""Local heaps, which hold names, and global heaps, which hold values of variable length."""

from __future__ import annotations

from collections.abc import Mapping

from virtualstack.formats.hdf5.structures.checks import check, check_signature, unsigned
from virtualstack.formats.hdf5.structures.requests import Parse, read_span
from virtualstack.formats.hdf5.structures.superblock import Superblock

__all__ = ["name_in_heap", "read_global_heap", "read_local_heap"]

_MAX_SIZE = 1 << 28
_NO_FREE_BLOCK = 1  # H5HL_FREE_NULL
_COLLECTION = 4096
"""Bytes of a global heap collection at least (H5HG_MINSIZE)."""


def read_local_heap(address: int, superblock: Superblock) -> Parse[bytes]:
    """Read the data segment of a local heap (HDF5 spec III.D)."""
    widths = superblock.widths
    body = yield from read_span(address, 8 + 2 * widths.length + widths.address)
    check_signature(body, b"HEAP", 0)
    size, free = superblock.length(body, 8), superblock.length(body, 8 + widths.length)
    check(size <= _MAX_SIZE, "a local heap is too long")
    heap = yield from read_span(superblock.known_address(body, 8 + 2 * widths.length), size)
    _check_free_list(heap, free, superblock)
    return heap


def _check_free_list(heap: bytes, free: int, superblock: Superblock) -> None:
    """Check that the free blocks lie in the heap; each says where the next one is, and how long it is."""
    left = len(heap) // superblock.widths.length
    while free != _NO_FREE_BLOCK:
        following, length = superblock.length(heap, free), superblock.length(heap, free + superblock.widths.length)
        left -= 1
        check(bool(following) and free + length <= len(heap) and left >= 0, "the free list of a local heap is damaged")
        free = following


def name_in_heap(heap: bytes, at: int, /) -> bytes:
    """Give the text that ends with a NUL at an offset of a local heap."""
    end = heap.find(b"\0", at)
    check(0 <= at < len(heap) and end >= 0, "a name lies outside of its heap")
    return heap[at:end]


def read_global_heap(address: int, superblock: Superblock) -> Parse[Mapping[int, bytes]]:
    """Read the objects of a global heap collection by their index (HDF5 spec III.E)."""
    body = yield from read_span(address, _COLLECTION)
    check_signature(body, b"GCOL", 1)
    width = superblock.widths.length
    size = superblock.length(body, 8)
    check(_COLLECTION <= size <= _MAX_SIZE, "a global heap collection is too short or too long")
    if size > _COLLECTION:
        body = yield from read_span(address, size)
    objects: dict[int, bytes] = {}
    at = -(-(8 + width) // 8) * 8
    prefix = -(-(8 + width) // 8) * 8
    while at + prefix <= size:
        index, length = unsigned(body, at, 2), unsigned(body, at + 8, width)
        if not index:  # the free space, at the end; its length counts what stands before it, too
            check(length == size - at, "the free space of a global heap is out of bounds")
            break
        check(index not in objects and length <= size - at - prefix, "an object of a global heap is out of bounds")
        objects[index] = body[at + prefix : at + prefix + length]
        at += prefix + -(-length // 8) * 8
    return objects
