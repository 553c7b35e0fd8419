"""Read a file with the HDF5 library in a child process, which opens the file at the first request."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.child.pool import ChildDiedError, InChild
from virtualstack.errors import ForbiddenLocationError, Remedy
from virtualstack.formats.base import contradiction
from virtualstack.formats.hdf5.attributes import StoredAttributes, one_or_many
from virtualstack.formats.hdf5.child.records import FoundAttribute, FoundDataset, FoundLink
from virtualstack.formats.hdf5.datatypes import (
    ElementType,
    element_type,
    is_read_by_netcdf,
    packed,
    parse_library_datatype,
)
from virtualstack.formats.hdf5.fetch import MetadataSource
from virtualstack.formats.hdf5.filters import make_filter
from virtualstack.formats.hdf5.structures.attribute_messages import AttributeMessage
from virtualstack.formats.hdf5.structures.chunk_table import ChunkTable
from virtualstack.formats.hdf5.structures.datatype_message import Datatype
from virtualstack.formats.hdf5.structures.heaps import read_global_heap
from virtualstack.formats.hdf5.structures.layout_message import (
    Layout,
    VirtualLayout,
    parse_layout,
)
from virtualstack.formats.hdf5.structures.messages import FillMessage
from virtualstack.formats.hdf5.structures.object_header import read_object_header
from virtualstack.formats.hdf5.structures.requests import LostValuesError, StructureError, Widths
from virtualstack.formats.hdf5.structures.superblock import Superblock, read_superblock
from virtualstack.formats.hdf5.structures.virtual_mappings import VirtualMapping
from virtualstack.formats.hdf5.tree import (
    Attributes,
    HDF5Group,
    HDF5Variable,
    LinkTarget,
    LostObjectError,
    decode_text,
)
from virtualstack.formats.hdf5.walk import located, mappings_in, read_chunks
from virtualstack.location import local_path
from virtualstack.manifests import Refusal
from virtualstack.storage import LocalSource, Source, Storage

_LAYOUT = 0x08
_MODULE = "virtualstack.formats.hdf5.child.files"


class Library:
    """`FileView` of the HDF5 library.

    All methods raise `LibraryError` if the library fails, and `ChildDiedError` if it crashes or hangs on the file.

    Parameters
    ----------
    metadata
        Metadata of the file.
    path
        Path of a local file, which the child opens; if ``None``, the child requests the bytes.
    find_alone
        Return whether the library must open no other file, which it would do for values in other files. Called when
        the file is first given to the library, as most files never are. Links to other files are never followed.
    is_forbidden
        If true, the library must not be used at all.
    """

    def __init__(
        self,
        metadata: MetadataSource,
        path: Path | None,
        *,
        find_alone: Callable[[], bool] = lambda: False,
        is_forbidden: bool = False,
    ) -> None:
        self._metadata = metadata
        self._path = path
        self._find_alone = find_alone
        self.is_forbidden = is_forbidden
        self._is_based = False

    @functools.cached_property
    def is_alone(self) -> bool:
        """Whether the library must open no other file."""
        return self._find_alone()

    @functools.cached_property
    def _opened(self) -> InChild:
        made = f"{_MODULE}:OpenFile"
        if self._path is None:
            return InChild(made, self.is_alone, size=self._metadata.size, read=self._metadata.read)
        return InChild(made, str(self._path), self.is_alone)

    def _ask(self, method: str, /, *arguments: Any) -> Any:
        if self.is_forbidden:
            raise LibraryError("metadata='own' leaves nothing to the HDF5 library; metadata='auto' does")
        if not self._is_based:
            self._metadata.base = self._opened.call("base")
            self._is_based = True
        return self._opened.call(method, *arguments)

    def close(self) -> None:
        """Close the file, if it was opened."""
        if "_opened" in vars(self):
            self._opened.close()

    # -- the tree ---------------------------------------------------------------------------------------------

    @property
    def root(self) -> LinkTarget:
        """The root group."""
        return LinkTarget(kind="group", address=self._ask("root"), handle=b"/")

    def links(self, group: LinkTarget, node: HDF5Group, /) -> Iterable[tuple[bytes, LinkTarget]]:
        """Yield the links of a group in order; a group whose links cannot be read gets a note, the root an error."""
        links, error = self._ask("links", group.handle)
        if error and not node.path:
            raise LibraryError(error)
        if error:
            node.notes.append(Refusal(path=node.path, reason=f"the links of the group cannot be read: {error}"))
        for link in links:
            yield link.name, _target(link, group.handle)

    def variable(self, dataset: LinkTarget, name: str, raw_path: bytes, path: str, /) -> HDF5Variable:
        """Describe a dataset."""
        try:
            return self._variable(self._ask("dataset", raw_path), dataset.address, name, raw_path, path)
        except LibraryError as error:
            raise LostObjectError(str(error)) from error

    def find(self, path: str, /) -> HDF5Variable | None:
        """Return the dataset at a path; ``None`` if no dataset exists there, or if it is in another file."""
        dataset: FoundDataset | None = self._ask("find", path)
        if dataset is None:
            return None
        return self._variable(dataset, dataset.address, path.rpartition("/")[2], path.encode(), path)

    def _variable(self, dataset: FoundDataset, address: int, name: str, raw_path: bytes, path: str) -> HDF5Variable:
        element, space = element_type(dataset.datatype), dataset.shape
        layout, stored = self._layout(address), self._stored(dataset.attributes, raw_path)
        is_of_characters = element.stored is not None and element.stored.kind == "S"
        return HDF5Variable(
            name=name,
            path=path,
            raw_path=raw_path,
            address=address,
            element=element,
            is_read_by_netcdf=dataset.is_committed or _is_read_by_netcdf(dataset.datatype),
            space=space,
            limits=dataset.maxshape,
            layout=layout,
            filters=tuple(make_filter(number, given, values) for number, given, values in dataset.filters),
            fill=self._fill(dataset, raw_path, element),
            external=dataset.external,
            attributes=stored.values(path, is_of_characters=is_of_characters),
            scale=stored.scale(len(space or ())),
            list_chunks=lambda: self._chunks(dataset, layout),
            list_mappings=lambda: self._mappings(layout) if isinstance(layout, VirtualLayout) else (),
        )

    @functools.cached_property
    def _superblock(self) -> Superblock:
        base, size = self._metadata.base, self._metadata.size
        try:
            return self._metadata.run(read_superblock(base, size))
        except StructureError:  # such as a table of shared messages, which only the library reads
            return Superblock(base=base, end=size - base, widths=Widths(*self._ask("sizes")), root=self._ask("root"))

    def _layout(self, address: int) -> Layout:
        """Read how values are stored, of which the library does not report all."""
        with contextlib.suppress(StructureError):
            widths = self._superblock.widths
            for message in self._metadata.run(read_object_header(address, widths)):
                if message.kind == _LAYOUT and not message.is_shared:
                    return parse_layout(message.body, widths)
        raise LibraryError("its values may be stored in ways that the library does not report: its header is unusual")

    def _fill(self, dataset: FoundDataset, raw_path: bytes, element: ElementType) -> FillMessage:
        raw = None
        if dataset.has_fill:
            raw = b""  # marks a fill value; for converted types, the library reads it later
            if element.stored is not None and not element.subshape and not element.codecs:
                raw = self._ask("fill", raw_path, None).astype(element.stored).tobytes()
        return FillMessage(raw=raw, is_written=dataset.is_fill_written, is_defined=not dataset.is_fill_undefined)

    def _chunks(self, dataset: FoundDataset, layout: Layout) -> ChunkTable:
        superblock, is_filtered = self._superblock, bool(dataset.filters)
        parser = read_chunks(layout, dataset.shape, dataset.maxshape, superblock, is_filtered=is_filtered)
        return located(self._metadata.run_all([parser])[0], self._metadata.base)

    def _mappings(self, layout: VirtualLayout) -> Sequence[VirtualMapping]:
        if layout.address is None:
            return ()
        heap = self._metadata.run_all([read_global_heap(layout.address, self._superblock)])[0]
        try:
            return mappings_in(heap, layout, self._superblock.widths)
        except StructureError as error:
            raise LostValuesError(str(error)) from error

    # -- parts of objects that the parsers here do not know -----------------------------------------------------

    def attributes(self, group: LinkTarget, raw_path: bytes, path: str, /) -> Attributes:
        """Return the attributes of a group."""
        return self.stored_attributes(raw_path).values(path)

    def stored_attributes(self, raw_path: bytes, /) -> StoredAttributes:
        """Return the attributes of an object by its path."""
        try:
            return self._stored(self._ask("attributes", raw_path), raw_path)
        except LibraryError as error:
            raise LostObjectError(f"its attributes cannot be read: {error}") from error

    def _stored(self, attributes: Sequence[FoundAttribute], raw_path: bytes) -> StoredAttributes:
        elements = {attribute.name: attribute.elements for attribute in attributes}
        return StoredAttributes(
            [_message(attribute) for attribute in attributes],
            lambda attribute: elements[attribute.name],
            functools.partial(self.attribute, raw_path),
        )

    def attribute(self, raw_path: bytes, name: bytes, /) -> Any:
        """Return the value of an attribute of numbers that only the library converts."""
        values: NDArray[Any] = self._ask("numbers", raw_path, name)
        return one_or_many(values, packed(values.dtype))

    # -- values -------------------------------------------------------------------------------------------------

    def dtype(self, raw_path: bytes, /) -> np.dtype[Any]:
        """Return the dtype of values to which h5py converts elements, without the shape of an array type."""
        return packed(self._ask("dtype", raw_path))

    def fill(self, raw_path: bytes, dtype: np.dtype[Any] | None, /) -> NDArray[Any]:
        """Return the fill value of a dataset, converted to a dtype; without a dtype, to the dtype of h5py."""
        found: NDArray[Any] = self._ask("fill", raw_path, dtype)
        return found

    def text_fill(self, raw_path: bytes, /) -> bytes:
        """Return the fill value of a dataset of strings."""
        found: bytes = self._ask("text_fill", raw_path)
        return found

    def values(self, raw_path: bytes, /) -> NDArray[Any]:
        """Read all values of a dataset of numbers or compounds."""
        found: NDArray[Any] = self._ask("values", raw_path)
        return found

    def stored(self, raw_path: bytes, /) -> NDArray[np.void]:
        """Read all elements in their stored form, with the filters undone."""
        found: NDArray[np.void] = self._ask("stored", raw_path)
        return found

    def texts(self, raw_path: bytes, /) -> tuple[tuple[int, ...], list[bytes]]:
        """Read all values of a dataset of strings; return its shape and the strings in order."""
        found: tuple[tuple[int, ...], list[bytes]] = self._ask("texts", raw_path)
        return found

    def linked(self) -> Mapping[int, str]:
        """Return the path of each object that hard links lead to, including committed datatypes, by its address."""
        return {address: decode_text(path) for address, path in self._ask("linked").items()}


def check_alone(source: Source, storage: Storage, /, *, only_links: bool = False) -> None:
    """Refuse a file of which the HDF5 library would read a part from another file, which it does without asking."""
    if storage.may_open("file:///"):
        return
    url, path = source.location.url, local_path(source.location.url) if isinstance(source, LocalSource) else None
    size, place = (source.size, ()) if path is None else (None, (str(path),))
    try:
        with contextlib.closing(InChild(f"{_MODULE}:OpenFile", *place, False, size=size, read=source.read)) as file:
            found: str | None = file.call("elsewhere", only_links)
    except LibraryError:
        return  # no HDF5 file, as the library says next
    except ChildDiedError as error:
        raise contradiction(url, "an HDF5", f"h5py {error}") from error
    if found is not None:
        raise ForbiddenLocationError(
            f"'{url}': {found}, and the HDF5 library would open every local file that is named there",
            Remedy("if you trust it, open it with", allow=["file:///"]),
            url=url,
        )


def _target(link: FoundLink, group: bytes) -> LinkTarget:
    named = " of ".join(decode_text(x) for x in reversed(link.target)) or "?"
    if link.kind == "lost":
        return LinkTarget(kind="lost", reason=link.error)
    if link.kind == "nothing":
        return LinkTarget(kind="nothing", reason=f"a soft link to '{named}', which does not exist")
    if link.kind == "elsewhere" and len(link.target) == 2:
        return LinkTarget(kind="nothing", outside=(link.target[0], link.target[1]))
    if link.kind == "elsewhere":
        return LinkTarget(kind="nothing", reason=f"a link to '{named}', which is in another file")
    path = group.rstrip(b"/") + b"/" + link.name
    return LinkTarget(kind=link.kind, address=link.address, is_soft=link.is_soft, handle=path)


def _is_read_by_netcdf(datatype: bytes) -> bool:
    with contextlib.suppress(StructureError):
        return is_read_by_netcdf(parse_library_datatype(datatype))
    return False


def _message(attribute: FoundAttribute) -> AttributeMessage:
    datatype, fault = Datatype(kind="opaque", size=1), attribute.error
    try:
        datatype = parse_library_datatype(attribute.datatype) if attribute.datatype else datatype
    except StructureError as error:
        fault = fault or str(error)
    return AttributeMessage(
        name=attribute.name, datatype=datatype, shape=attribute.shape, data=attribute.data, fault=fault
    )
