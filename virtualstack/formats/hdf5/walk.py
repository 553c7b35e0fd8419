"""Read the objects of a file level by level, so that bytes that are far apart are fetched together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from virtualstack.formats.hdf5.fetch import MetadataSource, Scheduler
from virtualstack.formats.hdf5.objects import (
    DatasetHeader,
    FileObject,
    Likeness,
    check_unread,
    object_kind,
    read_dataset,
)
from virtualstack.formats.hdf5.structures.attribute_messages import AttributeMessage, pointers, read_attributes
from virtualstack.formats.hdf5.structures.btree1 import KnownLeaf, known_leaf_size
from virtualstack.formats.hdf5.structures.chunk_index import ChunkTable, read_chunk_index
from virtualstack.formats.hdf5.structures.heaps import read_global_heap
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout, Layout, VirtualLayout
from virtualstack.formats.hdf5.structures.links import Link, read_links
from virtualstack.formats.hdf5.structures.object_header import Message, read_object_header
from virtualstack.formats.hdf5.structures.requests import (
    LostValuesError,
    OutsideError,
    Parse,
    StructureError,
    Widths,
    read_span,
)
from virtualstack.formats.hdf5.structures.superblock import Superblock, find_superblock, read_superblock
from virtualstack.formats.hdf5.structures.virtual_mappings import VirtualMapping, parse_mappings
from virtualstack.formats.hdf5.templates import TEMPLATES, Sample, Template

_MAX_OBJECTS = 1 << 22


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
        node = FileObject(kind=object_kind(messages))
        if node.kind == "group":
            node.links = metadata.run(read_links(messages, objects.superblock))
        elif node.kind == "dataset":
            one.scheduler.spawn(read_dataset(messages, objects.superblock), partial(one.on_dataset, node, b""))
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
        self.parsed: list[tuple[bytes, Sample]] = []

    def run(self) -> FileObjects:
        self._visit(self.superblock.root, b"")
        self.scheduler.run()
        for path, sample in self.parsed:
            TEMPLATES.learn(path, sample, self.found.by_address[sample.address], self.superblock)
        return self.found

    def _visit(self, address: int, path: bytes) -> None:
        if address in self.found.by_address:
            return
        if len(self.found.by_address) >= _MAX_OBJECTS:
            raise StructureError(f"there are more than {_MAX_OBJECTS} objects")
        self.found.by_address[address] = FileObject(kind="group")
        templates = TEMPLATES.find(path)
        self._look(address, path, templates) if templates else self._parse(address, path)

    def _look(self, address: int, path: bytes, templates: list[Template]) -> None:
        template, *others = templates

        def use(found: FileObject | StructureError | None) -> None:
            if isinstance(found, FileObject):
                self.found.by_address[address] = found
                self._on_attributes(found, found.attributes)
                self._on_links(found, path, found.links)
                if found.header is not None:
                    self.on_dataset(found, path, found.header)
            elif others:
                self._look(address, path, others)
            else:
                self._parse(address, path)

        self.scheduler.spawn(template.read(address, self.superblock), use)

    def _parse(self, address: int, path: bytes) -> None:
        sample = Sample(address, {})
        self.parsed.append((path, sample))
        header = sample.recorded(read_object_header(address, self.superblock.widths))
        self.scheduler.spawn(header, partial(self._on_header, sample, path))

    def _on_header(self, sample: Sample, path: bytes, messages: list[Message] | StructureError) -> None:
        if isinstance(messages, StructureError):
            raise messages
        node = self.found.by_address[sample.address]
        node.kind = object_kind(messages)
        if node.kind != "dataset":
            check_unread(messages)
        attributes = sample.recorded(read_attributes(messages, self.superblock))
        self.scheduler.spawn(attributes, partial(self._on_attributes, node))
        if node.kind == "group":
            links = sample.recorded(read_links(messages, self.superblock))
            self.scheduler.spawn(links, partial(self._on_links, node, path))
        elif node.kind == "dataset":
            dataset = sample.recorded(read_dataset(messages, self.superblock))
            self.scheduler.spawn(dataset, partial(self.on_dataset, node, path))

    def _on_links(self, node: FileObject, path: bytes, links: Sequence[Link] | StructureError) -> None:
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
            parser = read_header_chunks(header, self.superblock, node.likeness)
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


def read_header_chunks(
    header: DatasetHeader, superblock: Superblock, likeness: Likeness | None = None, /
) -> Parse[ChunkTable]:
    """Read the chunk index of a dataset from its header; fewer steps are needed if it is like one that was read."""
    space, layout, is_filtered = header.space, header.layout, bool(header.filters)
    every = read_chunks(layout, space.shape, space.maxshape, superblock, is_filtered=is_filtered)
    if likeness is None or not isinstance(layout, ChunkedLayout) or layout.kind != "btree1" or layout.address is None:
        return (yield from every)
    root = yield from read_span(layout.address, known_leaf_size(len(layout.chunk), superblock.chunk_k))
    found = None if likeness.leaf is None else likeness.leaf.chunks(root, superblock.end)
    if found is None:
        found = yield from every
        if likeness.leaf is None:
            likeness.leaf = KnownLeaf.learn(root, len(layout.chunk), found, None if is_filtered else layout.chunk_bytes)
    return found


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
        if layout.number not in heap:
            raise StructureError("there is no such object in the global heap")
        return parse_mappings(heap[layout.number], widths)
    except StructureError as error:
        raise StructureError(f"the mappings of a virtual dataset (VDS) are damaged: {error}") from error
