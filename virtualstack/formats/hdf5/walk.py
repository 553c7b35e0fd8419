"""Read the objects of a file level by level, so that bytes that are far apart are fetched together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from virtualstack.formats.hdf5.fetch import MetadataSource, Scheduler
from virtualstack.formats.hdf5.structures.attribute_messages import (
    AttributeMessage,
    pointers,
    read_attributes,
    read_datatype,
)
from virtualstack.formats.hdf5.structures.chunk_index import ChunkTable, read_chunk_index
from virtualstack.formats.hdf5.structures.datatype_message import Datatype
from virtualstack.formats.hdf5.structures.heaps import name_in_heap, read_global_heap, read_local_heap
from virtualstack.formats.hdf5.structures.layout_message import (
    ChunkedLayout,
    ContiguousLayout,
    Layout,
    VirtualLayout,
    parse_layout,
)
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
from virtualstack.formats.hdf5.structures.requests import LostValuesError, OutsideError, Parse, StructureError, Widths
from virtualstack.formats.hdf5.structures.superblock import Superblock, find_superblock, read_superblock
from virtualstack.formats.hdf5.structures.virtual_mappings import VirtualMapping, parse_mappings

_DATASPACE, _DATATYPE, _OLD_FILL, _FILL, _EXTERNAL, _LAYOUT, _FILTERS = 0x01, 0x03, 0x04, 0x05, 0x07, 0x08, 0x0B
_OLD_TIME, _TIME = 0x0E, 0x12
_MAX_OBJECTS = 1 << 22


class DatasetHeader(NamedTuple):
    """The header of a dataset without its attributes."""

    datatype: Datatype
    is_committed: bool
    space: Dataspace
    layout: Layout
    filters: tuple[FilterMessage, ...]
    fill: FillMessage
    external: tuple[tuple[bytes, int, int], ...]


@dataclass(slots=True, kw_only=True)
class FileObject:
    """A group, dataset or committed datatype."""

    kind: Literal["group", "dataset", "datatype"]
    links: Sequence[Link] = ()
    header: DatasetHeader | StructureError | None = None
    attributes: Sequence[AttributeMessage] | StructureError = ()
    chunks: ChunkTable | StructureError | None = None


@dataclass(slots=True, kw_only=True)
class FileObjects:
    """All objects that links lead to, by the address of their headers."""

    superblock: Superblock
    by_address: dict[int, FileObject] = field(default_factory=dict)
    heaps: dict[int, Mapping[int, bytes] | StructureError] = field(default_factory=dict)


def walk(metadata: MetadataSource, wants_chunks: Callable[[bytes], bool], /) -> FileObjects:
    """Read the metadata of a file; chunk indexes only of datasets at paths that are wanted."""
    return _Walk(metadata, open_objects(metadata), wants_chunks).run()


def open_objects(metadata: MetadataSource, /) -> FileObjects:
    """Read the superblock of a file, and none of its objects."""
    metadata.base = metadata.run(find_superblock(metadata.size))
    superblock = metadata.run(read_superblock(metadata.base, metadata.size))
    metadata.end = superblock.base + superblock.end
    return FileObjects(superblock=superblock)


def read_object(metadata: MetadataSource, objects: FileObjects, address: int, /) -> FileObject:
    """Read one object if no walk has read it, with its links or its header, without attributes."""
    if address not in objects.by_address:
        one = _Walk(metadata, objects, lambda _: True)
        messages = metadata.run(read_object_header(address, objects.superblock.widths))
        node = FileObject(kind=_kind(messages))
        if node.kind == "group":
            node.links = metadata.run(read_links(messages, objects.superblock))
        elif node.kind == "dataset":
            one.scheduler.spawn(_read_dataset(messages, objects.superblock), partial(one.on_dataset, node, b""))
            one.scheduler.run()
        objects.by_address[address] = node
    return objects.by_address[address]


class _Walk:
    """A walk that starts parsers as the results of other parsers require."""

    def __init__(self, metadata: MetadataSource, found: FileObjects, wants_chunks: Callable[[bytes], bool]) -> None:
        self.found = found
        self.superblock = found.superblock
        self.wants_chunks = wants_chunks
        self.scheduler = Scheduler(metadata)

    def run(self) -> FileObjects:
        self._visit(self.superblock.root, b"")
        self.scheduler.run()
        return self.found

    def _visit(self, address: int, path: bytes) -> None:
        if address in self.found.by_address:
            return
        if len(self.found.by_address) >= _MAX_OBJECTS:
            raise StructureError(f"there are more than {_MAX_OBJECTS} objects")
        self.found.by_address[address] = FileObject(kind="group")
        header = read_object_header(address, self.superblock.widths)
        self.scheduler.spawn(header, partial(self._on_header, address, path))

    def _on_header(self, address: int, path: bytes, messages: list[Message] | StructureError) -> None:
        if isinstance(messages, StructureError):
            raise messages
        node = self.found.by_address[address]
        node.kind = _kind(messages)
        if node.kind != "dataset":
            _check_unread(messages)
        self.scheduler.spawn(read_attributes(messages, self.superblock), partial(self._on_attributes, node))
        if node.kind == "group":
            self.scheduler.spawn(read_links(messages, self.superblock), partial(self._on_links, node, path))
        elif node.kind == "dataset":
            self.scheduler.spawn(_read_dataset(messages, self.superblock), partial(self.on_dataset, node, path))

    def _on_links(self, node: FileObject, path: bytes, links: list[Link] | StructureError) -> None:
        if isinstance(links, StructureError):
            raise links
        node.links = links
        for link in links:
            if link.kind == "hard":
                self._visit(link.address, path + b"/" + link.name)

    def on_dataset(self, node: FileObject, path: bytes, header: DatasetHeader | StructureError) -> None:
        """Keep the header of a dataset, and read what it refers to."""
        node.header = header
        if not isinstance(header, DatasetHeader):
            return
        if isinstance(header.layout, VirtualLayout):
            if header.layout.address is not None:
                self._need_heap(header.layout.address)
        elif not isinstance(header.layout, ChunkedLayout):
            return
        elif math.prod(header.space.shape or (0,)) and self.wants_chunks(path):
            parser = read_header_chunks(header, self.superblock)
            self.scheduler.spawn(parser, partial(setattr, node, "chunks"))

    def _on_attributes(self, node: FileObject, attributes: Sequence[AttributeMessage] | StructureError) -> None:
        node.attributes = attributes
        if isinstance(attributes, StructureError):
            return
        for attribute in attributes:
            if attribute.datatype.kind == "vlen" and attribute.data:
                n_elements = len(attribute.data) // attribute.datatype.size
                try:
                    found = pointers(attribute.data, n_elements, self.superblock)
                except StructureError as error:
                    node.attributes = error
                    return
                for pointer in found:
                    if pointer.heap is not None:
                        self._need_heap(pointer.heap)

    def _need_heap(self, address: int) -> None:
        if address not in self.found.heaps:
            self.found.heaps[address] = {}
            parser = read_global_heap(address, self.superblock)
            self.scheduler.spawn(parser, partial(self.found.heaps.__setitem__, address))


def _kind(messages: Sequence[Message]) -> Literal["group", "dataset", "datatype"]:
    kinds = {message.kind for message in messages}
    # in the order in which the HDF5 library checks (H5O_obj_class_g)
    if SYMBOL_TABLE in kinds or LINK_INFO in kinds:
        return "group"
    if _DATATYPE in kinds:
        return "dataset" if _DATASPACE in kinds else "datatype"
    raise StructureError("an object is neither group, dataset nor datatype")


def _check_unread(messages: Sequence[Message]) -> None:
    """Check messages that are unused here, but that the HDF5 library reads: it fails if they are damaged."""
    for kind, is_shared, body, _ in messages:
        if (kind == _TIME and body[:1] != b"\1") or (kind == _OLD_TIME and not body[:14].isdigit()):
            raise StructureError("a time of modification that is not a time")
        if kind == _FILTERS and not is_shared:
            parse_filters(body)


def _read_dataset(messages: Sequence[Message], superblock: Superblock) -> Parse[DatasetHeader]:
    _check_unread(messages)
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


def read_header_chunks(header: DatasetHeader, superblock: Superblock) -> Parse[ChunkTable]:
    """Read the chunk index of a dataset from its header."""
    space = header.space
    return read_chunks(header.layout, space.shape, space.maxshape, superblock, is_filtered=bool(header.filters))


def read_chunks(
    layout: Layout,
    shape: tuple[int, ...] | None,
    maxshape: tuple[int | None, ...],
    superblock: Superblock,
    *,
    is_filtered: bool,
) -> Parse[ChunkTable]:
    """Read the chunk index of a dataset."""
    if not isinstance(layout, ChunkedLayout) or shape is None:
        raise StructureError("it has no chunks")
    return (
        yield from read_chunk_index(
            layout,
            shape,
            maxshape,
            is_filtered=is_filtered,
            btree1_k=superblock.chunk_k,
            widths=superblock.widths,
            end=superblock.end,
        )
    )


def located(found: ChunkTable | StructureError, base: int, /) -> ChunkTable:
    """Return chunks with their offsets from the start of the file; ``base`` is the size of the user block in bytes."""
    if isinstance(found, OutsideError):
        raise found
    if isinstance(found, StructureError):
        raise LostValuesError(f"its chunk index is damaged: {found}")
    return found._replace(offset=found.offset + base) if base else found


def mappings_in(
    heap: Mapping[int, bytes] | StructureError, layout: VirtualLayout, widths: Widths, /
) -> tuple[VirtualMapping, ...]:
    """Parse the mappings of a virtual dataset in the global heap collection of its layout."""
    try:
        if isinstance(heap, StructureError):
            raise heap
        if layout.index not in heap:
            raise StructureError("there is no such object in the global heap")
        return parse_mappings(heap[layout.index], widths)
    except StructureError as error:
        raise StructureError(f"the mappings of a virtual dataset (VDS) are damaged: {error}") from error
