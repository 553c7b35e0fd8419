"""Read the superblock: where a file begins and ends, and where its root group is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from virtualstack.formats.hdf5.structures.object_header import Message, read_object_header
from virtualstack.formats.hdf5.structures.requests import (
    Parse,
    StructureError,
    Widths,
    check,
    read_span,
    unsigned,
    verified,
)
from virtualstack.formats.hdf5.structures.tables import Table

__all__ = ["Superblock", "find_superblock", "read_superblock"]

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FIRST_USER_BLOCK_BYTES = 512
_BTREE_K = 32  # HDF5 spec III.A.1 and H5Bprivate.h: default of the "indexed storage internal node K"
_BTREE_K_VALUES = 0x13
_STATUS_FLAGS = 7  # H5F_SUPER_ALL_FLAGS
_FILE_SPACE = 0x17
_LAST_STRATEGY = 3
_PAGE_SIZES = range(512, (1 << 30) + 1)  # H5F_FILE_SPACE_PAGE_SIZE_MIN and _MAX
_GROUP_LEAF_K, _GROUP_INTERNAL_K = 4, 16
_VERSIONS = "9x, free_version B, root_version B, 1x, shared_version B, 3x, leaf_k H, internal_k H, flags I"
# HDF5 spec III.C: the symbol table entry of the root begins with the offset of its name
_PLACES = "base A, free_space A, end A, driver A, name L, root A, cache_type I"
_OLD = Table(f"{_VERSIONS}, {_PLACES}"), Table(f"{_VERSIONS}, chunk_k H, 2x, {_PLACES}")
_NEW = Table("12x, base A, extension A, end A, root A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Superblock:
    """Facts about a whole file."""

    base: int
    end: int
    widths: Widths
    root: int
    group_leaf_k: int = _GROUP_LEAF_K
    group_internal_k: int = _GROUP_INTERNAL_K
    chunk_k: int = _BTREE_K

    def address(self, body: bytes, at: int, /) -> int | None:
        """Read an address; return ``None`` for the undefined address."""
        return self.widths.defined(unsigned(body, at, self.widths.address))

    def known_address(self, body: bytes, at: int, /) -> int:
        """Read an address that must be defined."""
        return self.known(unsigned(body, at, self.widths.address))

    def known(self, address: int, /) -> int:
        """Return an address, or raise `StructureError` if it is undefined or past the end of the file."""
        if address == self.widths.undefined or address > self.end:
            raise StructureError("a required address is undefined, or past the end of the file")
        return address

    def length(self, body: bytes, at: int, /) -> int:
        """Read a length in bytes."""
        return unsigned(body, at, self.widths.length)


def find_superblock(size: int) -> Parse[int]:
    """Find where a file of ``size`` bytes begins: at 0, 512, 1,024, 2,048 and so on (HDF5 spec II.A)."""
    at = 0
    while at + len(_SIGNATURE) <= size:
        if (yield from read_span(at, len(_SIGNATURE))) == _SIGNATURE:
            return at
        at = 2 * at or _FIRST_USER_BLOCK_BYTES
    raise StructureError("there is no HDF5 signature")


def read_superblock(base: int, size: int) -> Parse[Superblock]:
    """Read the superblock of a file of ``size`` bytes; addresses are counted from ``base``.

    HDF5 spec II.A, versions 0 to 3.
    """
    body = yield from read_span(0, 128, is_clipped=True)
    check(len(body) > 16 and body[:8] == _SIGNATURE, "there is no superblock")
    version = body[8]
    if version in (0, 1):
        return _parse_old(body, version, base, size)
    check(version in (2, 3), f"version {version} of the superblock is not known")
    widths = _widths(body[9], body[10])
    # flags of version 2 have no meaning; flags of version 3 are set while a writer has the file open
    check(body[11] <= (_STATUS_FLAGS if version == 2 else 0), "the file was not closed by its writer")
    fields = _NEW.parse(verified(body[: _NEW.size(widths) + 4]), widths)
    end = _end(fields["end"], base, size, fields["base"])
    superblock = Superblock(base=base, end=end, widths=widths, root=fields["root"])
    if fields["extension"] == widths.undefined:
        return superblock
    return _extended(superblock, (yield from read_object_header(fields["extension"], widths)))


def _extended(superblock: Superblock, messages: Sequence[Message]) -> Superblock:
    """Apply the messages of the superblock extension (HDF5 spec II.C)."""
    for message in messages:
        if message.kind == _BTREE_K_VALUES:
            check(message.body[0] == 0, f"version {message.body[0]} of the B-tree 'K' values is not known")
            chunk_k, internal_k, leaf_k = (unsigned(message.body, 1 + 2 * i, 2) for i in range(3))
            check(min(chunk_k, internal_k, leaf_k) > 0, "nodes of B-trees have no room for entries")
            superblock = replace(superblock, chunk_k=chunk_k, group_internal_k=internal_k, group_leaf_k=leaf_k)
        elif message.kind == _FILE_SPACE:
            _check_file_space(message.body, superblock.widths)
        else:
            # such as a table of shared messages, which the HDF5 library reads when it opens the file
            raise StructureError(f"the superblock extension has the unknown message {message.kind:#x}")
    return superblock


def _check_file_space(body: bytes, widths: Widths) -> None:
    """Check what the HDF5 library checks of free space, which is not needed here (HDF5 spec IV.A.2.x, version 1)."""
    n_addresses = 13 if body[2:3] == b"\1" else 1
    check(len(body) >= 5 + 2 * widths.length + n_addresses * widths.address, "the file space info is too short")
    check(body[0] == 1 and body[1] <= _LAST_STRATEGY and body[2] <= 1, "the file space info is not known")
    check(unsigned(body, 3 + widths.length, widths.length) in _PAGE_SIZES, "the page size of the file is not valid")


def _parse_old(body: bytes, version: int, base: int, size: int) -> Superblock:
    widths = _widths(body[13], body[14])
    fields = _OLD[version].parse(body, widths)
    versions = fields["free_version"], fields["root_version"], fields["shared_version"]
    check(not any(versions), "a part of the superblock has an unknown version")
    check(fields["flags"] <= _STATUS_FLAGS, "the superblock has unknown flags")
    check(fields["cache_type"] <= 2, "the symbol table entry of the root has an unknown kind")
    check(fields["driver"] == widths.undefined, "its bytes are distributed over several files by a file driver")
    check(
        fields["free_space"] == widths.undefined,
        "the superblock has the address of free space, which its version cannot have",
    )
    leaf_k, internal_k, chunk_k = fields["leaf_k"], fields["internal_k"], fields.get("chunk_k", _BTREE_K)
    check(leaf_k > 0 and internal_k > 0 and chunk_k > 0, "nodes of B-trees have no room for entries")
    return Superblock(
        base=base,
        end=_end(fields["end"], base, size, fields["base"]),
        widths=widths,
        root=fields["root"],
        group_leaf_k=leaf_k,
        group_internal_k=internal_k,
        chunk_k=chunk_k,
    )


def _widths(address: int, length: int) -> Widths:
    check(
        address in (2, 4, 8) and length in (2, 4, 8),
        f"addresses have {address} bytes and lengths {length}; expected 2, 4 or 8",
    )
    return Widths(address, length)


def _end(end: int, base: int, size: int, found: int) -> int:
    """Return the number of bytes after the user block, and check that the file is not truncated.

    The stored end and the stored beginning (``found``) are counted from the beginning of the file when it was written.
    The superblock, and all bytes after it, may have been moved since then (H5F__super_read).
    """
    end += base - found
    check(base <= end <= size, f"the file should have {end} bytes, but has {size}: it is truncated")
    return end - base
