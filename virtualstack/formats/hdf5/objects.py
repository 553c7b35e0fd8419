"""Parse one object of a file from its header: its kind, its links or the description of a dataset, its attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from virtualstack.formats.hdf5.structures.attribute_messages import AttributeMessage, read_attributes, read_datatype
from virtualstack.formats.hdf5.structures.btree1 import KnownLeaf
from virtualstack.formats.hdf5.structures.chunk_table import ChunkTable
from virtualstack.formats.hdf5.structures.datatype_message import Datatype
from virtualstack.formats.hdf5.structures.heaps import name_in_heap, read_local_heap
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout, ContiguousLayout, Layout, parse_layout
from virtualstack.formats.hdf5.structures.links import LINK_INFO, SYMBOL_TABLE, Link, read_links
from virtualstack.formats.hdf5.structures.messages import (
    Dataspace,
    FillMessage,
    FilterMessage,
    parse_dataspace,
    parse_external_files,
    parse_fill,
    parse_filters,
    parse_old_fill,
)
from virtualstack.formats.hdf5.structures.object_header import Message, read_object_header
from virtualstack.formats.hdf5.structures.requests import Parse, StructureError
from virtualstack.formats.hdf5.structures.superblock import Superblock

_DATASPACE, _DATATYPE, _OLD_FILL, _FILL, _EXTERNAL, _LAYOUT, _FILTERS = 0x01, 0x03, 0x04, 0x05, 0x07, 0x08, 0x0B
_OLD_TIME, _TIME = 0x0E, 0x12


class DatasetHeader(NamedTuple):
    """The header of a dataset without its attributes."""

    datatype: Datatype
    is_committed: bool
    space: Dataspace
    layout: Layout
    filters: tuple[FilterMessage, ...]
    fill: FillMessage
    external: tuple[tuple[bytes, int, int], ...]


@dataclass(slots=True, eq=False)
class Likeness:
    """What is the same in all objects of a template, by its identity.

    Parameters
    ----------
    attributes
        Numbers of the attributes whose values may differ, or refer to other objects.
    leaf
        The chunk index of one of the objects, if it is a tree of one leaf.
    """

    attributes: tuple[int, ...]
    leaf: KnownLeaf | None = None


@dataclass(slots=True, kw_only=True)
class FileObject:
    """A group, dataset or committed datatype; ``likeness`` is that of its template, if it has one."""

    kind: Literal["group", "dataset", "datatype"]
    links: Sequence[Link] = ()
    header: DatasetHeader | StructureError | None = None
    attributes: Sequence[AttributeMessage] | StructureError = ()
    chunks: ChunkTable | StructureError | None = None
    likeness: Likeness | None = field(default=None, compare=False)

    @property
    def known_attributes(self) -> Sequence[AttributeMessage]:
        """The attributes; none if they could not be read."""
        return () if isinstance(self.attributes, StructureError) else self.attributes


def object_kind(messages: Sequence[Message]) -> Literal["group", "dataset", "datatype"]:
    """Return what an object is, by the messages of its header."""
    kinds = {message.kind for message in messages}
    # in the order in which the HDF5 library checks (H5O_obj_class_g)
    if SYMBOL_TABLE in kinds or LINK_INFO in kinds:
        return "group"
    if _DATATYPE in kinds:
        return "dataset" if _DATASPACE in kinds else "datatype"
    raise StructureError("an object is neither group, dataset nor datatype")


def check_unread(messages: Sequence[Message]) -> None:
    """Check messages that are unused here, but that the HDF5 library reads: it fails if they are damaged."""
    for kind, is_shared, body, _ in messages:
        if (kind == _TIME and body[:1] != b"\1") or (kind == _OLD_TIME and not body[:14].isdigit()):
            raise StructureError("a time of modification that is not a time")
        if kind == _FILTERS and not is_shared:
            parse_filters(body)


def read_dataset(messages: Sequence[Message], superblock: Superblock) -> Parse[DatasetHeader]:
    """Read what the header of a dataset describes, without its attributes."""
    check_unread(messages)
    bodies: dict[int, bytes] = {}
    is_committed = False
    for kind, is_shared, body, _ in messages:
        if kind in _DATASET_MESSAGES:
            if kind in bodies or (is_shared and kind != _DATATYPE):
                raise StructureError(f"message {kind:#x} is in a header twice, or is shared")
            bodies[kind] = body
            is_committed |= is_shared
    if not bodies.keys() >= _REQUIRED:
        raise StructureError("a dataset has no datatype, dataspace or layout")
    datatype = yield from read_datatype(bodies[_DATATYPE], superblock, is_shared=is_committed)
    space, layout = (
        parse_dataspace(bodies[_DATASPACE], superblock.widths),
        parse_layout(bodies[_LAYOUT], superblock.widths),
    )
    filters = parse_filters(bodies[_FILTERS]) if _FILTERS in bodies else ()
    fill = parse_old_fill(bodies[_OLD_FILL]) if _OLD_FILL in bodies else FillMessage()
    if _FILL in bodies:
        fill = parse_fill(bodies[_FILL])
    external: tuple[tuple[bytes, int, int], ...] = ()
    if _EXTERNAL in bodies:
        files = parse_external_files(bodies[_EXTERNAL], superblock)
        heap = yield from read_local_heap(files.heap, superblock)
        external = tuple((name_in_heap(heap, name), offset, size) for name, offset, size in files.slots)
    _check_usual(datatype)
    n_bytes = 0 if space.shape is None else math.prod(space.shape) * datatype.size
    if isinstance(layout, ChunkedLayout):
        rank = None if space.shape is None else len(space.shape)
        if layout.element_size != datatype.size or rank != len(layout.chunk):
            raise StructureError("chunks have elements of another size, or more or fewer axes, than their dataset")
    elif isinstance(layout, ContiguousLayout) and layout.address is not None and not external:
        size = n_bytes if layout.size is None else layout.size
        is_odd = (
            space.shape is not None and not n_bytes and layout.size != 0
        )  # an address although there are no elements
        if size < n_bytes or layout.address + size > superblock.end or is_odd:
            raise StructureError("the values of a dataset have a wrong size, or lie past the end of the file")
    return DatasetHeader(
        datatype=datatype,
        is_committed=is_committed,
        space=space,
        layout=layout,
        filters=filters,
        fill=fill,
        external=external,
    )


def _check_usual(datatype: Datatype) -> None:
    """Leave numbers that use less than half of their bits to the HDF5 library, which by default (2.0) refuses them."""
    is_number = datatype.kind in ("integer", "float", "bitfield")
    if is_number and datatype.size > 1 and 8 * datatype.size > 2 * (datatype.bit_offset + datatype.precision):
        raise StructureError(
            f"{datatype.precision} bits from bit {datatype.bit_offset} leave much of {datatype.size} bytes unused"
        )


_REQUIRED = frozenset({_DATASPACE, _DATATYPE, _LAYOUT})
_DATASET_MESSAGES = frozenset({_DATASPACE, _DATATYPE, _OLD_FILL, _FILL, _EXTERNAL, _LAYOUT, _FILTERS})


def read_whole(address: int, superblock: Superblock) -> Parse[FileObject]:
    """Read all of an object, without the chunks of a dataset."""
    messages = yield from read_object_header(address, superblock.widths)
    node = FileObject(kind=object_kind(messages), attributes=(yield from read_attributes(messages, superblock)))
    if node.kind == "group":
        node.links = yield from read_links(messages, superblock)
    elif node.kind == "dataset":
        node.header = yield from read_dataset(messages, superblock)
        return node
    check_unread(messages)
    return node
