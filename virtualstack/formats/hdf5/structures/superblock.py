"""Read the superblock: where a file begins and ends, and where its root group is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

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

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_FIRST_USER_BLOCK_BYTES = 512
_BTREE_K = 32  # HDF5 spec III.A.1 and H5Bprivate.h: default of the "indexed storage internal node K"
_BTREE_K_VALUES = 0x13
_FILE_SPACE = 0x17
_LAST_STRATEGY = 3
_N_SPACE_MANAGERS = 13
_FIRST_NEW = 2
_PAGE_SIZES = range(512, (1 << 30) + 1)  # H5F_FILE_SPACE_PAGE_SIZE_MIN and _MAX
_STATUS = "<=7"  # H5F_SUPER_ALL_FLAGS
_VERSIONS = (
    "9x, free_version B=0, root_version B=0, 1x, shared_version B=0, 3x, group_leaf_k H>0, group_internal_k H>0,"
    f"flags I{_STATUS}"
)
# HDF5 spec III.C: the symbol table entry of the root begins with the offset of its name. A driver would distribute
# the bytes over several files.
_PLACES = "base A, free_space A=none, end A, driver A=none, name L, root A, cache_type I<=2"
_TABLES = {
    0: Table(f"{_VERSIONS}, {_PLACES}", "superblock"),
    1: Table(f"{_VERSIONS}, chunk_k H>0, 2x, {_PLACES}", "superblock"),
    # flags of version 2 have no meaning; flags of version 3 are set while a writer has the file open
    2: Table(f"11x, flags B{_STATUS}, base A, extension A, end A, root A", "superblock"),
    3: Table("11x, flags B=0, base A, extension A, end A, root A", "superblock"),
}
_K_VALUES = Table("version B=0, chunk_k H>0, group_internal_k H>0, group_leaf_k H>0", "B-tree 'K' values")
_FREE_SPACE = Table(
    f"version B=1, strategy B<={_LAST_STRATEGY}, persists B<=1, threshold L, page_size L, 2x, tail A", "file space info"
)


class Superblock(NamedTuple):
    """Facts about a whole file."""

    base: int
    end: int
    widths: Widths
    root: int
    group_leaf_k: int = 4
    group_internal_k: int = 16
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
    check(version in _TABLES, f"version {version} of the superblock is not known")
    table = _TABLES[version]
    if version < _FIRST_NEW:
        widths = Widths(body[13], body[14])
        fields = table.parse(body, widths)
    else:
        widths = Widths(body[9], body[10])
        fields = table.parse(verified(body[: table.size(widths) + 4]), widths)
    end = fields["end"] + base - fields["base"]
    # both are counted from the beginning of the file when it was written; since then, the superblock and all bytes
    # after it may have been moved (H5F__super_read)
    check(base <= end <= size, f"the file should have {end} bytes, but has {size}: it is truncated")
    superblock = Superblock(base=base, end=end - base, widths=widths, root=fields["root"])
    superblock = _with_k(superblock, fields)
    if fields.get("extension", widths.undefined) == widths.undefined:
        return superblock
    return _extended(superblock, (yield from read_object_header(fields["extension"], widths)))


def _with_k(superblock: Superblock, fields: Mapping[str, int]) -> Superblock:
    """Set the numbers of entries for which nodes of B-trees have room, as far as fields have them."""
    return superblock._replace(
        chunk_k=fields.get("chunk_k", superblock.chunk_k),
        group_leaf_k=fields.get("group_leaf_k", superblock.group_leaf_k),
        group_internal_k=fields.get("group_internal_k", superblock.group_internal_k),
    )


def _extended(superblock: Superblock, messages: Sequence[Message]) -> Superblock:
    """Apply the messages of the superblock extension (HDF5 spec II.C)."""
    widths = superblock.widths
    for message in messages:
        if message.kind == _BTREE_K_VALUES:
            superblock = _with_k(superblock, _K_VALUES.parse(message.body, widths))
        elif message.kind == _FILE_SPACE:  # what the HDF5 library checks of free space, which is not needed here
            found = _FREE_SPACE.parse(message.body, widths)
            n_more = _N_SPACE_MANAGERS - 1 if found["persists"] else 0
            is_whole = len(message.body) >= _FREE_SPACE.size(widths) + n_more * widths.address
            check(is_whole and found["page_size"] in _PAGE_SIZES, "the file space info is cut off, or not valid")
        else:
            # such as a table of shared messages, which the HDF5 library reads when it opens the file
            raise StructureError(f"the superblock extension has the unknown message {message.kind:#x}")
    return superblock
