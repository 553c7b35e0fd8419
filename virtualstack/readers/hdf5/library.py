"""A file as the HDF5 library sees it; opened only when it is asked."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal

import h5py
import numpy as np
from h5py import h5a, h5d, h5ds, h5g, h5l, h5o, h5s, h5t
from numpy.typing import NDArray

from virtualstack.manifests import Refusal
from virtualstack.readers.hdf5.attributes import (
    ADDRESS,
    HIDDEN,
    NoCounterpartError,
    UnreadAttributeError,
    one_or_many,
    texts_of,
)
from virtualstack.readers.hdf5.chunks import UnlistableChunksError, list_chunks
from virtualstack.readers.hdf5.datatypes import ElementType, element_type, of_library, packed
from virtualstack.readers.hdf5.elsewhere import names_elsewhere
from virtualstack.readers.hdf5.faults import LibraryError, library_errors
from virtualstack.readers.hdf5.fetch import Metadata
from virtualstack.readers.hdf5.filters import filters_of
from virtualstack.readers.hdf5.library_mappings import read_mappings
from virtualstack.readers.hdf5.netcdf_types import is_read_by_netcdf
from virtualstack.readers.hdf5.structures.chunk_table import ChunkTable
from virtualstack.readers.hdf5.structures.layout_message import (
    ChunkedLayout,
    CompactLayout,
    ContiguousLayout,
    Layout,
    VirtualLayout,
    parse_layout,
)
from virtualstack.readers.hdf5.structures.messages import FillMessage
from virtualstack.readers.hdf5.structures.object_header import read_object_header
from virtualstack.readers.hdf5.structures.requests import StructureError, Widths
from virtualstack.readers.hdf5.tree import Attributes, Group, LostObjectError, Scale, Target, Variable, decode_text

__all__ = ["Library"]

_MAX_RANK = 32  # H5S_MAX_RANK
_LAYOUT = 0x08


class Library:
    """The `FileView` of the HDF5 library.

    Parameters
    ----------
    metadata
        Of the file.
    target
        What h5py opens: a path, or a Python file over the metadata.
    is_alone
        Whether the library must open no other file, as it would by links.
    """

    def __init__(self, metadata: Metadata, target: Any, *, is_alone: bool = False) -> None:
        self._metadata = metadata
        self._place = target
        self.is_alone = is_alone
        self._opened: h5py.File | None = None
        self._file_number: tuple[int, ...] = ()

    @property
    def file(self) -> h5py.File:
        """The file.

        Raises
        ------
        LibraryError
            The library cannot open it, or might open others with it.
        """
        if self._opened is None:
            with library_errors():
                self._opened = h5py.File(self._place, "r")
                if self.is_alone and (found := names_elsewhere(self._opened, values=False)) is not None:
                    self.close()
                    raise LibraryError(f"{found}, which it may not open")
            self._metadata.base = int(self._opened.userblock_size)
        return self._opened

    def close(self) -> None:
        """Close the file, where it was opened."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # -- the tree ---------------------------------------------------------------------------------------------

    @property
    def root(self) -> Target:
        """The root group."""
        with library_errors():
            group = self.file["/"].id
            self._file_number, address = _identity(group)
        return Target(kind="group", address=address, handle=group)

    def links(self, group: Target, node: Group, /) -> Iterable[tuple[bytes, Target]]:
        """Give the links of a group, in order; a group whose links cannot be read has none."""
        # The address in `objno` comes without a walk of the chunk index, which `h5o.get_info` would make.
        for raw, kind in _links(group.handle, node):
            yield raw, self._target(group.handle, raw, kind)

    def _target(self, group: h5g.GroupID, raw: bytes, kind: int) -> Target:
        try:
            with library_errors():
                oid = None if kind == h5l.TYPE_EXTERNAL else h5o.open(group, raw)
                number, address = (None, -1) if oid is None else _identity(oid)
        except LibraryError as error:
            if kind == h5l.TYPE_SOFT:
                return Target(kind="nothing", reason=f"a soft link to '{_named(group, raw)}', where there is nothing")
            return Target(kind="lost", reason=str(error))
        if number != self._file_number:
            return Target(kind="nothing", reason=f"a link to '{_named(group, raw)}', which is in another file")
        what: Literal["group", "dataset", "datatype"] = "datatype"
        if isinstance(oid, h5g.GroupID | h5d.DatasetID):
            what = "group" if isinstance(oid, h5g.GroupID) else "dataset"
        return Target(kind=what, address=address, is_soft=kind == h5l.TYPE_SOFT, handle=oid)

    def variable(self, dataset: Target, name: str, raw_path: bytes, path: str, /) -> Variable:
        """Describe a dataset."""
        try:
            return self._variable(h5py.Dataset(dataset.handle), dataset.address, name, raw_path, path)
        except LibraryError as error:
            raise LostObjectError(str(error)) from error

    def variable_at(self, address: int, name: str, raw_path: bytes, path: str, /) -> Variable:
        """Describe a dataset by its path."""
        try:
            return self._variable(self.dataset(raw_path), address, name, raw_path, path)
        except LibraryError as error:
            raise LostObjectError(str(error)) from error

    def find(self, path: str, /) -> Variable | None:
        """Give the dataset at a path; ``None`` where there is none, or where it is in another file.

        Raises
        ------
        LibraryError
            It cannot be opened.
        """
        with library_errors():
            self._file_number, _ = _identity(self.file["/"].id)
            if path not in self.file:
                return None
            oid = h5o.open(self.file.id, path.encode())
            number, address = _identity(oid)
        if number != self._file_number or not isinstance(oid, h5d.DatasetID):
            return None
        dataset = h5py.Dataset(oid)
        name = path.rpartition("/")[2]
        return self._variable(dataset, address, name, path.encode(), path)

    def dataset(self, raw_path: bytes, /) -> h5py.Dataset:
        """Open a dataset.

        Raises
        ------
        LibraryError
            It cannot.
        """
        with library_errors():
            return h5py.Dataset(h5d.open(self.file.id, raw_path))

    def _variable(self, dataset: h5py.Dataset, address: int, name: str, raw_path: bytes, path: str) -> Variable:
        with library_errors():
            tid = dataset.id.get_type()
            dcpl = dataset.id.get_create_plist()
            space = dataset.shape
            element = element_type(tid)
            layout = self._layout(dataset, address, element)
            filters = filters_of(dcpl)
            return Variable(
                name=name,
                path=path,
                raw_path=raw_path,
                address=address,
                element=element,
                is_read_by_netcdf=bool(tid.committed()) or _is_read_by_netcdf(tid),
                space=None if space is None else tuple(map(int, space)),
                shape=None if space is None else (*map(int, space), *element.subshape),
                maxshape=() if space is None else (*dataset.maxshape, *element.subshape),
                layout=layout,
                filters=filters,
                fill=_fill(dataset, element),
                external=tuple(dcpl.get_external(i) for i in range(dcpl.get_external_count())),
                attributes=_attributes(dataset, path),
                scale=_scale(dataset),
                list_chunks=lambda: self._chunks(dataset, layout),
                list_mappings=lambda: read_mappings(dcpl),
            )

    def _layout(self, dataset: h5py.Dataset, address: int, element: ElementType) -> Layout:
        kind = dataset.id.get_create_plist().get_layout()
        if kind == h5d.VIRTUAL:
            return VirtualLayout(address=None, index=0)
        if kind == h5d.COMPACT:
            return CompactLayout(
                data=_stored_bytes(dataset) if element.kind == "bytes" and dataset.shape is not None else b""
            )
        if kind == h5d.CONTIGUOUS:
            offset, base = dataset.id.get_offset(), self._metadata.base
            # the library adds the user block to "undefined", all bits set, too (2.0)
            never = offset is None or offset == base - 1
            return ContiguousLayout(address=None if never else int(offset) - base, size=None)
        widths = Widths(*self.file.id.get_create_plist().get_sizes())
        with contextlib.suppress(StructureError):
            for message in self._metadata.run(read_object_header(address, widths)):
                if message.kind == _LAYOUT and not message.is_shared:
                    layout = parse_layout(message.body, widths)
                    if isinstance(layout, ChunkedLayout) and layout.chunk == tuple(dataset.chunks):
                        return layout
        raise LibraryError("its chunks may be stored in ways that the library does not tell: its header is odd")

    def _chunks(self, dataset: h5py.Dataset, layout: Layout) -> ChunkTable:
        if not isinstance(layout, ChunkedLayout):
            raise UnlistableChunksError("it has no chunks")
        return list_chunks(dataset, layout, self._metadata.base)

    # -- parts of objects that the parsers here do not know -----------------------------------------------------

    def chunks(self, raw_path: bytes, layout: ChunkedLayout, /) -> ChunkTable:
        """List the chunks of a dataset."""
        return self._chunks(self.dataset(raw_path), layout)

    def attributes(self, group: Target, raw_path: bytes, path: str, /) -> Attributes:
        """Give the attributes of a group."""
        return _attributes(h5py.Group(group.handle), path)

    def attributes_at(self, raw_path: bytes, path: str, /) -> Attributes:
        """Give the attributes of an object by its path."""
        try:
            with library_errors():
                oid = h5o.open(self.file.id, raw_path)
        except LibraryError as error:
            reason = f"the attributes cannot be read: {error}"
            return Attributes(notes=(Refusal(path=path, reason=reason, kind="noted"),))
        return _attributes(h5py.Dataset(oid) if isinstance(oid, h5d.DatasetID) else h5py.Group(oid), path)

    def attribute(self, raw_path: bytes, name: bytes, /) -> Any:
        """Give the value of one attribute.

        Raises
        ------
        UnreadAttributeError, NoCounterpartError
            See there.
        """
        try:
            with library_errors():
                return _value(h5a.open(h5o.open(self.file.id, raw_path), name))
        except LibraryError as error:
            raise UnreadAttributeError(str(error)) from error

    def scale(self, raw_path: bytes, /) -> Scale:
        """Give what a dataset says of dimension scales."""
        try:
            return _scale(self.dataset(raw_path))
        except LibraryError:
            return Scale()


def _identity(oid: h5g.GroupID | h5d.DatasetID) -> tuple[tuple[int, ...], int]:
    """Give the numbers of file and object header; unlike `h5o.get_info`, this does not walk a chunk index."""
    info = h5g.get_objinfo(oid)
    return tuple(map(int, info.fileno)), int(info.objno[0])


def _links(group: h5g.GroupID, node: Group) -> list[tuple[bytes, int]]:
    """Give names and types of links in order of creation where it is tracked, else of names, as netCDF-C does."""
    found: list[tuple[bytes, int]] = []
    try:
        with library_errors():
            tracked = group.get_create_plist().get_link_creation_order() & h5py.h5p.CRT_ORDER_TRACKED
            order = h5py.h5.INDEX_CRT_ORDER if tracked else h5py.h5.INDEX_NAME
            # h5py hands over one information object, changed for each link
            group.links.iterate(lambda name, info: found.append((name, int(info.type))), idx_type=order, info=True)
    except LibraryError as error:
        if not node.path:
            raise
        node.notes.append(Refusal(path=node.path, reason=f"the links of the group cannot be read: {error}"))
    return found


def _named(group: h5g.GroupID, raw: bytes) -> str:
    try:
        with library_errors():
            target = group.links.get_val(raw)
    except LibraryError:
        return "?"
    return decode_text(target) if isinstance(target, bytes) else " of ".join(decode_text(x) for x in reversed(target))


def _stored_bytes(dataset: h5py.Dataset) -> bytes:
    tid = dataset.id.get_type()
    raw = np.zeros(dataset.shape, f"V{tid.get_size()}")
    dataset.id.read(h5s.ALL, h5s.ALL, raw, tid)
    return raw.tobytes()


def _is_read_by_netcdf(tid: h5t.TypeID) -> bool:
    with contextlib.suppress(StructureError):
        return is_read_by_netcdf(of_library(tid))
    return False


def _fill(dataset: h5py.Dataset, element: ElementType) -> FillMessage:
    dcpl = dataset.id.get_create_plist()
    defined = dcpl.fill_value_defined()
    raw = None
    if defined == h5d.FILL_VALUE_USER_DEFINED:
        raw = b""  # there is one; of types that are converted, the library gives the value later
        if element.stored is not None and not element.subshape and not element.codecs:
            cell = np.zeros((), dataset.dtype)
            dcpl.get_fill_value(cell)
            raw = cell.astype(element.stored).tobytes()
    return FillMessage(
        raw=raw,
        is_written=dcpl.get_fill_time() != h5d.FILL_TIME_NEVER,
        is_defined=defined != h5d.FILL_VALUE_UNDEFINED,
    )


# -- attributes -----------------------------------------------------------------------------------------------


def _attributes(loc: h5py.Group | h5py.Dataset, path: str) -> Attributes:
    values: dict[str, Any] = {}
    notes: list[Refusal] = []
    references: dict[str, NDArray[np.uint64]] = {}
    for raw_name in _names(loc):
        name = decode_text(raw_name)
        if name in HIDDEN:
            continue
        try:
            with library_errors():
                attribute = h5a.open(loc.id, raw_name)
                addresses = _references(attribute)
                if addresses is not None:
                    references[name] = addresses
                    continue
                value = _value(attribute)
            if name == "_FillValue" and isinstance(value, str) and loc.dtype.kind == "S":
                value = value.encode()  # as netCDF4 gives that of characters
        except NoCounterpartError as error:
            notes.append(Refusal(path=f"{path}@{name}", reason=f"attribute of {error}", kind="noted"))
        except LibraryError as error:
            notes.append(Refusal(path=f"{path}@{name}", reason=f"the attribute cannot be read: {error}", kind="noted"))
        else:
            values[name] = value
    return Attributes(values=values, notes=tuple(notes), references=references)


def _references(attribute: h5a.AttrID) -> NDArray[np.uint64] | None:
    """Give the addresses of references to objects; ``None`` where it has others, or no value."""
    tid = attribute.get_type()
    is_null = attribute.get_space().get_simple_extent_type() == h5s.NULL
    if is_null or tid.get_class() != h5t.REFERENCE or not tid.equal(h5t.STD_REF_OBJ):
        return None
    raw = np.zeros(attribute.shape, f"V{ADDRESS.itemsize}")
    if raw.size:
        attribute.read(raw, tid)
    return np.frombuffer(raw.tobytes(), ADDRESS)


def _names(loc: h5py.Group | h5py.Dataset) -> Iterable[bytes]:
    names: list[bytes] = []
    for order in (h5py.h5.INDEX_CRT_ORDER, h5py.h5.INDEX_NAME):
        names.clear()
        with contextlib.suppress(LibraryError), library_errors():  # creation order may not be tracked
            h5a.iterate(loc.id, names.append, index_type=order)
            return names
    return names


def _value(attribute: h5a.AttrID) -> Any:
    tid, space = attribute.get_type(), attribute.get_space()
    kind = tid.get_class()
    is_null = space.get_simple_extent_type() == h5s.NULL
    shape = () if is_null else tuple(attribute.shape)
    if kind == h5t.STRING:
        return "" if is_null else _text(attribute, tid, shape)
    found = element_type(tid)
    if found.kind in ("refused", "text", "paths") or kind in (h5t.COMPOUND, h5t.OPAQUE):
        raise NoCounterpartError(found.reason or ("compounds" if kind == h5t.COMPOUND else "opaque bytes"))
    dtype = packed(tid.dtype.subdtype[0] if tid.dtype.subdtype is not None else tid.dtype)
    if is_null:
        return np.empty(0, dtype)
    array = np.empty(shape, tid.dtype)  # where elements are arrays, numpy appends their shape
    if array.size:
        attribute.read(array)
    return one_or_many(array, dtype)


def _text(attribute: h5a.AttrID, tid: h5t.TypeID, shape: tuple[int, ...]) -> Any:
    if not math.prod(shape):
        return [] if shape else ""
    if tid.is_variable_str():
        objects = np.empty(shape, tid.dtype)
        attribute.read(objects)
        return texts_of([x or b"" for x in objects.reshape(-1).tolist()], shape)
    raw = np.empty(shape, f"S{tid.get_size()}")
    attribute.read(raw, tid)
    cells = raw.reshape(-1).view(f"V{tid.get_size()}")
    if not shape:  # NC_CHAR: netCDF4 leaves NULs out wherever they are
        return decode_text(cells[0].tobytes().replace(b"\0", b""))
    return texts_of([cell.tobytes().split(b"\0")[0] for cell in cells], shape)


# -- dimension scales -----------------------------------------------------------------------------------------


def _scale(dataset: h5py.Dataset) -> Scale:
    number = _integers(dataset, b"_Netcdf4Dimid")
    return Scale(
        is_scale=_asked(lambda: bool(h5ds.is_scale(dataset.id)), default=False),
        name=_asked(lambda: _scale_name(dataset), default=b""),
        number=number[0] if number and number[0] >= 0 else None,
        coordinates=_integers(dataset, b"_Netcdf4Coordinates"),
        attached=_attached(dataset),
    )


def _asked[T](question: Callable[[], T], *, default: T) -> T:
    """Give the answer of the library, or a default where it fails."""
    with contextlib.suppress(LibraryError), library_errors():
        return question()
    return default


def _scale_name(dataset: h5py.Dataset) -> bytes:
    return h5ds.get_scale_name(dataset.id) or b"" if h5a.exists(dataset.id, b"NAME") else b""


def _integers(dataset: h5py.Dataset, name: bytes) -> tuple[int, ...]:
    with contextlib.suppress(LibraryError), library_errors():
        if h5a.exists(dataset.id, name):
            attribute = h5a.open(dataset.id, name)
            if attribute.get_type().get_class() == h5t.INTEGER and math.prod(attribute.shape) <= _MAX_RANK:
                values = np.zeros(attribute.shape, np.int64)
                if values.size:
                    attribute.read(values)
                return tuple(int(x) for x in values.reshape(-1))
    return ()


def _attached(dataset: h5py.Dataset) -> tuple[tuple[int, ...], ...] | None:
    """Give the addresses of the scales attached to each axis."""
    if not _asked(lambda: bool(h5a.exists(dataset.id, b"DIMENSION_LIST")), default=False):
        return None
    axes: list[tuple[int, ...]] = []
    for axis in range(len(dataset.shape or ())):
        scales: list[int] = []

        def visit(scale: h5d.DatasetID, scales: list[int] = scales) -> None:
            scales.append(_identity(scale)[1])

        try:
            with library_errors():
                h5ds.iterate(dataset.id, axis, visit)
        except LibraryError:
            scales.clear()  # a reference that leads nowhere
        axes.append(tuple(scales))
    return tuple(axes)
