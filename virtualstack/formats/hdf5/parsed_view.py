"""Describe a file from the results of the parsers.

The HDF5 library reads the parts that the parsers do not know.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import NoReturn

from virtualstack.formats.hdf5.attributes import UNUSED, StoredAttributes
from virtualstack.formats.hdf5.datatypes import element_type, is_read_by_netcdf
from virtualstack.formats.hdf5.fetch import MetadataSource
from virtualstack.formats.hdf5.filters import make_filter
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.objects import DatasetHeader, FileObject
from virtualstack.formats.hdf5.structures.attribute_messages import AttributeMessage, elements, pointers
from virtualstack.formats.hdf5.structures.chunk_table import ChunkTable
from virtualstack.formats.hdf5.structures.heaps import read_global_heap
from virtualstack.formats.hdf5.structures.layout_message import ChunkedLayout, ContiguousLayout, VirtualLayout
from virtualstack.formats.hdf5.structures.links import Link
from virtualstack.formats.hdf5.structures.messages import Dataspace
from virtualstack.formats.hdf5.structures.requests import LostValuesError, StructureError
from virtualstack.formats.hdf5.structures.virtual_mappings import VirtualMapping
from virtualstack.formats.hdf5.tree import (
    Attributes,
    HDF5Group,
    HDF5Variable,
    LinkTarget,
    LostObjectError,
    Scale,
    decode_text,
)
from virtualstack.formats.hdf5.values import check_size
from virtualstack.formats.hdf5.walk import (
    FileObjects,
    located,
    mappings_in,
    read_header_chunks,
    read_object,
)

_OUTSIDE = -1
"""Address of any object in another file."""

_MAX_SOFT_LINKS = 16  # H5L_NUM_LINKS: largest number of soft links in a chain


type FindExtent = Callable[[str, Sequence[VirtualMapping], tuple[int, ...]], tuple[int, ...]]
"""Function that returns the shape of a virtual dataset that may grow, from its path, mappings and stored shape."""


class ParsedView:
    """`FileView` of a walk; the objects on a path can be found without one."""

    def __init__(
        self, objects: FileObjects, metadata: MetadataSource, library: Library, extent: FindExtent | None = None
    ) -> None:
        self._objects = objects
        self._metadata = metadata
        self._library = library
        self._extent = extent
        self._links: dict[int, dict[bytes, Link]] = {}

    @property
    def root(self) -> LinkTarget:
        """The root group."""
        return self._at(self._objects.superblock.root)

    def links(self, group: LinkTarget, node: HDF5Group, /) -> Iterable[tuple[bytes, LinkTarget]]:
        """Yield the links of a group in order."""
        for link in self._objects.by_address[group.address].links:
            yield link.name, self._target(link, group.address)

    @cached_property
    def numbers(self) -> Mapping[int, int]:
        """The number of each object by its address, in the order in which links lead to them."""
        return {address: number for number, address in enumerate(self._objects.by_address)}

    @cached_property
    def _nodes(self) -> Sequence[FileObject]:
        return list(self._objects.by_address.values())

    def likeness(self) -> tuple[object, ...] | None:
        """Return what decides everything in the group of this file but chunks and the attributes of groups.

        ``None`` if it is not known, such as for an object without a template.
        """
        with contextlib.suppress(StructureError):
            parts = [self._likeness(node) for node in self._nodes]
            return None if None in parts else tuple(parts)
        return None

    def _likeness(self, node: FileObject) -> tuple[object, ...] | None:
        if isinstance(node.attributes, StructureError):
            return None
        if node.kind == "group":
            is_hard = all(link.kind == "hard" and b"/" not in link.name for link in node.links)
            return tuple([(link.name, self.numbers[link.address]) for link in node.links]) if is_hard else None
        if node.likeness is None or not isinstance(node.header, DatasetHeader):
            return None
        if node.header.external or not isinstance(node.header.layout, ChunkedLayout | ContiguousLayout):
            return None
        values = [self._referred(node.attributes[number]) for number in node.likeness.attributes]
        return None if None in values else (node.likeness, *values)

    def _referred(self, attribute: AttributeMessage) -> object:
        """Return the value of an attribute as stored, with numbers of objects; ``None`` if it is not known."""
        kind, base = attribute.datatype.kind, attribute.datatype.base
        if attribute.name in UNUSED:
            return ()
        if kind == "reference":
            return self._numbered(attribute.data) if attribute.datatype.variant == "object" else None
        if kind != "vlen":
            return attribute.data
        if attribute.fault or base is None or base.kind not in ("string", "integer", "float", "reference"):
            return None
        found = self._elements(attribute)
        if base.kind != "reference":
            return tuple(found)
        return tuple([self._numbered(raw) for raw in found]) if base.variant == "object" else None

    def _numbered(self, raw: bytes) -> tuple[int, ...]:
        return tuple([self.numbers.get(address, -1) for address in memoryview(raw).cast("Q")])

    def moved(self, variable: HDF5Variable, number: int, /) -> HDF5Variable:
        """Return a variable of a file like this one with the places that it has here."""
        node = self._nodes[number]
        header = node.header
        if not isinstance(header, DatasetHeader):
            raise LostValuesError("it is damaged")
        return variable._replace(layout=header.layout, list_chunks=lambda: self._chunks(node, header))

    def attributes_of(self, number: int, path: str, /) -> Attributes:
        """Return the attributes of a group by its number."""
        return self._stored(self._nodes[number], path.encode() or b"/").values(path or "/")

    def attributes(self, group: LinkTarget, raw_path: bytes, path: str, /) -> Attributes:
        """Return the attributes of a group."""
        return self._stored(self._objects.by_address[group.address], raw_path).values(path)

    def variable(self, dataset: LinkTarget, name: str, raw_path: bytes, path: str, /) -> HDF5Variable:
        """Describe a dataset."""
        node = self._objects.by_address[dataset.address]
        header = node.header
        if not isinstance(header, DatasetHeader):
            return self._library.variable(dataset, name, raw_path, path)
        element = element_type(header.datatype)
        space = header.space.shape
        list_mappings: Callable[[], Sequence[VirtualMapping]] = tuple
        if isinstance(header.layout, VirtualLayout):
            space, list_mappings = self._virtual(header.layout, header.space, path)
        stored = self._stored(node, raw_path)
        is_of_characters = element.stored is not None and element.stored.kind == "S"
        return HDF5Variable(
            name=name,
            path=path,
            raw_path=raw_path,
            address=dataset.address,
            element=element,
            is_read_by_netcdf=header.is_committed or is_read_by_netcdf(header.datatype),
            space=space,
            limits=header.space.maxshape,
            layout=header.layout,
            filters=tuple(make_filter(x.id, x.name, x.values) for x in header.filters),
            fill=header.fill,
            external=header.external,
            attributes=stored.values(path, is_of_characters=is_of_characters),
            scale=self._known(stored.scale(len(space or ()))),
            list_chunks=lambda: self._chunks(node, header),
            list_mappings=list_mappings,
            read_texts=self._texts,
        )

    def find(self, path: str, /) -> HDF5Variable | None:
        """Return the dataset at a path; ``None`` if no dataset exists there."""
        raw_path = path.encode("utf-8", "surrogateescape")
        try:
            address = self._follow(raw_path, self._objects.superblock.root)
            if address == _OUTSIDE:
                raise LostValuesError(f"a virtual dataset (VDS) whose source '{path}' is a link to another file")
            if address is None or self._object(address).kind != "dataset":
                return None
            return self.variable(self._at(address), decode_text(raw_path.rpartition(b"/")[2]), raw_path, path)
        except StructureError:
            return self._library.find(path)
        except LostObjectError as error:
            raise LostValuesError(f"a virtual dataset (VDS) whose source '{path}' is damaged: {error}") from error

    def _virtual(
        self, layout: VirtualLayout, space: Dataspace, path: str
    ) -> tuple[tuple[int, ...] | None, Callable[[], Sequence[VirtualMapping]]]:
        """Return the shape of a virtual dataset, and a function that returns its mappings.

        The HDF5 library is not used, because it may hang on damaged mappings.
        """
        mappings, shape = self._mappings(layout), space.shape
        if shape is None or self._extent is None or all(mapping.growing_axis is None for mapping in mappings):
            return shape, lambda: mappings
        try:
            grown = self._extent(path, mappings, shape)
        except LostValuesError as error:
            return shape, partial(_raise, error)
        if any(most is not None and n > most for n, most in zip(grown, space.maxshape, strict=True)):
            raise LostObjectError(f"its sources fill {grown}, and it grows to {space.maxshape} at most")
        return grown, lambda: mappings

    def _mappings(self, layout: VirtualLayout) -> Sequence[VirtualMapping]:
        if layout.address is None:
            return ()
        try:
            return mappings_in(self._objects.heaps[layout.address], layout, self._objects.superblock.widths)
        except StructureError as error:
            raise LostObjectError(str(error)) from error

    def _known(self, scale: Scale) -> Scale:
        """Return a scale without the attached scales of any axis that has a reference to nowhere."""
        known = self._objects.by_address.keys()
        if scale.attached is None or known >= set().union(*scale.attached):
            return scale
        return scale._replace(attached=tuple(axis if known >= set(axis) else () for axis in scale.attached))

    def _stored(self, node: FileObject, raw_path: bytes) -> StoredAttributes:
        if isinstance(node.attributes, StructureError):
            return self._library.stored_attributes(raw_path)
        return StoredAttributes(node.attributes, self._elements, partial(self._library.attribute, raw_path))

    def _elements(self, attribute: AttributeMessage) -> list[bytes]:
        data, base = attribute.data, attribute.datatype.base
        count, width = len(data) // attribute.datatype.size, 1 if base is None else base.size
        return elements(data, count, width, self._objects.superblock, self._objects.heaps)

    def _texts(self, data: bytes, limit: int) -> list[bytes]:
        """Return the strings that elements of variable length point to."""
        superblock = self._objects.superblock
        count = len(data) // (8 + superblock.widths.address)
        found = pointers(data, count, superblock)
        length = sum(pointer.length for pointer in found if pointer.heap is not None)
        if length > limit:
            check_size(length + 4 * (len(found) + 1), limit, of=" of strings")  # the size in zarr's vlen-utf8
        heaps = self._objects.heaps
        missing = sorted({x.heap for x in found if x.heap is not None} - heaps.keys())
        read = self._metadata.run_all([read_global_heap(address, superblock) for address in missing])
        heaps.update(zip(missing, read, strict=True))
        return [text.split(b"\0")[0] for text in elements(data, count, 1, superblock, heaps)]

    def _chunks(self, node: FileObject, header: DatasetHeader) -> ChunkTable:
        found = node.chunks
        if found is None:
            (found,) = self._metadata.run_all([read_header_chunks(header, self._objects.superblock)])
        return located(found, self._metadata.base)

    # -- links ------------------------------------------------------------------------------------------------

    def _object(self, address: int) -> FileObject:
        return read_object(self._metadata, self._objects, address)

    def _at(self, address: int) -> LinkTarget:
        return LinkTarget(kind=self._objects.by_address[address].kind, address=address)

    def _target(self, link: Link, group: int) -> LinkTarget:
        if b"/" in link.name:
            return LinkTarget(kind="lost", reason="its name has a slash, so that no path leads to it")
        if link.kind == "hard":
            return self._at(link.address)
        named = " of ".join(decode_text(x) for x in reversed(link.target))
        if link.kind == "external":
            return LinkTarget(kind="nothing", outside=(link.target[0], link.target[1]))
        if link.kind == "other":
            return LinkTarget(kind="lost", reason="a kind of link that a user has defined leads to it")
        address = self._follow(link.target[0], group)
        if address == _OUTSIDE:
            return LinkTarget(kind="nothing", reason=f"a link to '{named}', which is in another file")
        if address is None:
            return LinkTarget(kind="nothing", reason=f"a soft link to '{named}', which does not exist")
        return self._at(address)._replace(is_soft=True)

    def _follow(self, path: bytes, group: int, n_links: int = 0) -> int | None:
        """Return the address of the object header that a path leads to; ``None`` if it leads nowhere."""
        if n_links >= _MAX_SOFT_LINKS:
            return None
        here = self._objects.superblock.root if path.startswith(b"/") else group
        for part in path.split(b"/"):
            if part in (b"", b"."):
                continue
            link = self._names(here).get(part)
            if link is None or link.kind == "other":
                return None
            if link.kind == "external":
                return _OUTSIDE
            below = link.address if link.kind == "hard" else self._follow(link.target[0], here, n_links + 1)
            if below is None or below == _OUTSIDE:
                return below
            here = below
        return here

    def _names(self, group: int) -> dict[bytes, Link]:
        if group not in self._links:
            self._links[group] = {link.name: link for link in self._object(group).links}
        return self._links[group]


def _raise(error: LostValuesError) -> NoReturn:
    raise error
