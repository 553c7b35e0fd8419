"""Read the links of a group, in the three forms of the format."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.formats.hdf5.structures.heaps import name_in_heap, read_dense, read_local_heap
from virtualstack.formats.hdf5.structures.object_header import Message
from virtualstack.formats.hdf5.structures.requests import (
    Fields,
    Parse,
    StructureError,
    check,
    check_signature,
    read_blocks,
    read_both,
    unsigned,
)
from virtualstack.formats.hdf5.structures.superblock import Superblock
from virtualstack.formats.hdf5.structures.tables import Table

LINK_INFO, _LINK, SYMBOL_TABLE = 0x02, 0x06, 0x11
_GROUP_INFO = 0x0A
_LINKS_BY_NAME = 5  # B-tree version 2, type of records: hash of the name, identifier in the heap
_CACHED_SOFT_LINK = 2
_MAX_DEPTH = 32
_MAX_LINKS = 1 << 24
_GROUP = Table("version B=0", "group info")
_INFO = Table("version B=0, flags B<=3", "link info")
_ENTRY = Table("key L, child A", "TREE")
_SYMBOL = Table("name L, address A, kind I, 4x, target I, 12x", "SNOD")


class Link(NamedTuple):
    """One link."""

    name: bytes
    kind: Literal["hard", "soft", "external", "other"]
    address: int = -1
    target: tuple[bytes, ...] = ()
    order: int = 0


def read_links(messages: Sequence[Message], superblock: Superblock) -> Parse[list[Link]]:
    """Read the links of a group in order of creation if the group tracks it, else in order of names."""
    links: list[Link] = []
    is_tracked = False
    for message in messages:
        check(not (message.is_shared and message.kind in (LINK_INFO, _LINK, SYMBOL_TABLE)), "a link is shared")
        if message.kind == _LINK:
            links.append(_parse_link(message.body, superblock))
        elif message.kind == _GROUP_INFO:
            _GROUP.parse(message.body, superblock.widths)
        elif message.kind == LINK_INFO:
            is_tracked = bool(_INFO.parse(message.body, superblock.widths)["flags"] & 1)
            links += yield from _read_dense(message.body, superblock)
        elif message.kind == SYMBOL_TABLE:
            links += yield from _read_symbol_table(message.body, superblock)
    check(len({link.name for link in links}) == len(links), "two links of a group have one name")
    return sorted(links, key=(lambda link: link.order) if is_tracked else (lambda link: link.name))


def _parse_link(body: bytes, superblock: Superblock) -> Link:
    """Parse a link message (HDF5 spec IV.A.2.g)."""
    fields = Fields(body, "a link")
    version, flags = fields.unpack("BB")
    check(version == 1 and flags < 0x20, f"version {version} of a link, flags {flags:#x}, is not known")
    kind = fields.number(1) if flags & 0x08 else 0
    order = fields.number(8) if flags & 0x04 else 0
    check(not flags & 0x10 or fields.number(1) <= 1, "the name of a link is in an unknown character set")
    name = fields.take(fields.number(1 << (flags & 3)))
    check(bool(name), "a link without a name")
    if kind == 0:
        address = superblock.known(fields.number(superblock.widths.address))
        return Link(name=name, kind="hard", address=address, order=order)
    if kind not in (1, 64):
        return Link(name=name, kind="other", order=order)
    value = fields.take(fields.number(2))
    check(bool(value), "a link has no target")
    if kind == 1:
        return Link(name=name, kind="soft", target=(value,), order=order)
    # external: version and flags, then two texts, each with a final NUL
    parts = value[1:].split(b"\0")
    check(
        value[0] == 0 and len(parts) >= 3,
        f"an external link has the unknown flags {value[0]:#x}, or lacks a file or path",
    )
    return Link(name=name, kind="external", target=(parts[0], parts[1]), order=order)


def _read_dense(body: bytes, superblock: Superblock) -> Parse[list[Link]]:
    """Read the links in a fractal heap (HDF5 spec IV.A.2.c)."""
    at = 2 + (8 if body[1] & 1 else 0)
    records, heap = yield from read_dense(body, at, superblock, kind=_LINKS_BY_NAME)
    return [_parse_link(heap.object(record[4:]), superblock) for record in records]


class _TreeNode(NamedTuple):
    """A node of the B-tree of a group."""

    address: int
    bounds: tuple[tuple[int, int], ...]


def _read_symbol_table(body: bytes, superblock: Superblock) -> Parse[list[Link]]:
    """Read links in the old form: a version 1 B-tree of symbol table nodes (HDF5 spec III.A.1, III.B, III.C)."""
    width = superblock.widths.address
    heap, tables = yield from read_both(
        read_local_heap(superblock.known_address(body, width), superblock),
        _read_tables(superblock.known_address(body, 0), superblock),
    )
    links: list[Link] = []
    for node, table in tables:
        found = _symbols(table, heap, superblock)
        names = [link.name for link in found]
        # the HDF5 library finds a name by binary search, and misses a name at another position
        is_sorted = all(a < b for a, b in pairwise(names))
        keys = [(name_in_heap(heap, after), name_in_heap(heap, until)) for after, until in node.bounds]
        is_sorted &= all(after < names[0] and names[-1] <= until for after, until in keys if names)
        check(is_sorted, "the names of a group are out of order")
        links += found
    return links


def _read_tables(root: int, superblock: Superblock) -> Parse[list[tuple[_TreeNode, bytes]]]:
    """Read all symbol table nodes under the root of a B-tree."""
    width = superblock.widths.address
    nodes = [_TreeNode(root, ())]
    size = 8 + 2 * width + 2 * superblock.group_internal_k * _ENTRY.size(superblock.widths)
    size += superblock.widths.length
    level: int | None = None
    for _ in range(_MAX_DEPTH):
        blocks = yield from read_blocks(_addresses(nodes), size)
        bodies = [block.tobytes() for block in blocks]
        level = bodies[0][5] if level is None else level - 1
        nodes = [
            child
            for node, text in zip(nodes, bodies, strict=True)
            for child in _children(text, level, node, superblock)
        ]
        check(
            len({node.address for node in nodes}) == len(nodes) <= _MAX_LINKS,
            "a group has a duplicate node, or too many nodes",
        )
        if not nodes:
            return []
        if not level:
            break
    else:
        raise StructureError("the B-tree of a group is too deep")
    tables = yield from read_blocks(
        _addresses(nodes), 8 + 2 * superblock.group_leaf_k * _SYMBOL.size(superblock.widths)
    )
    return [(node, table.tobytes()) for node, table in zip(nodes, tables, strict=True)]


def _addresses(nodes: Sequence[_TreeNode]) -> NDArray[np.int64]:
    return np.array([node.address for node in nodes], np.int64)


def _children(body: bytes, level: int, node: _TreeNode, superblock: Superblock) -> list[_TreeNode]:
    check(body[:5] == b"TREE\0" and body[5] == level, "a node of the B-tree of a group does not begin as one")
    n_entries = unsigned(body, 6, 2)
    check(
        n_entries <= 2 * superblock.group_internal_k,
        f"a node of a B-tree has {n_entries} entries, more than {2 * superblock.group_internal_k}",
    )
    first = 8 + 2 * superblock.widths.address  # after the siblings
    entries = list(_ENTRY.rows(body, first, n_entries, superblock.widths))
    last = superblock.length(body, first + n_entries * _ENTRY.size(superblock.widths))
    keys = [*(entry["key"] for entry in entries), last]
    return [
        _TreeNode(superblock.known(entry["child"]), (*node.bounds, bounds))
        for entry, bounds in zip(entries, pairwise(keys), strict=True)
    ]


def _symbols(body: bytes, heap: bytes, superblock: Superblock) -> list[Link]:
    check_signature(body, b"SNOD", 1)
    n_entries = unsigned(body, 6, 2)
    check(
        n_entries <= 2 * superblock.group_leaf_k,
        f"a symbol table node has {n_entries} entries, more than {2 * superblock.group_leaf_k}",
    )
    links = []
    for entry in _SYMBOL.rows(body, 8, n_entries, superblock.widths):
        name, kind = name_in_heap(heap, entry["name"]), entry["kind"]
        check(bool(name), "a link without a name")
        check(kind <= _CACHED_SOFT_LINK, f"a symbol table entry has the unknown kind {kind}")
        if kind == _CACHED_SOFT_LINK:
            target = name_in_heap(heap, entry["target"])
            links.append(Link(name=name, kind="soft", target=(target,)))
        else:
            links.append(Link(name=name, kind="hard", address=superblock.known(entry["address"])))
    return links
