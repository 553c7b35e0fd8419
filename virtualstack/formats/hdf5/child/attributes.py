"""Read attributes and dimension scales with the HDF5 library, in the child process."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5g, h5r, h5s, h5t

from virtualstack.child.errors import LibraryError, library_errors
from virtualstack.formats.hdf5.child.records import FoundAttribute, Scale

__all__ = ["identity", "plain", "read_attribute", "read_attributes", "read_scale"]

_MAX_RANK = 32  # H5S_MAX_RANK
_ADDRESS = np.dtype("<u8")
_SCALE = b"DIMENSION_SCALE"


def identity(oid: Any, /) -> tuple[tuple[int, ...], int]:
    """Return the numbers of file and object header. Unlike `h5o.get_info`, this does not read a chunk index."""
    info = h5g.get_objinfo(oid)
    return tuple(map(int, info.fileno)), int(info.objno[0])


def plain(dtype: np.dtype[Any], /) -> np.dtype[Any]:
    """Return a dtype without h5py's metadata, which names classes of h5py; for an array type, return its base."""
    if dtype.subdtype is not None:
        return plain(dtype.subdtype[0])
    if dtype.hasobject:
        return np.dtype(object)
    return np.dtype(dtype.str) if dtype.names is None else _plain_fields(dtype)


def _plain_fields(dtype: np.dtype[Any]) -> np.dtype[Any]:
    found = [(name, field, offset) for name, (field, offset, *_) in (dtype.fields or {}).items()]
    formats = [
        plain(field) if field.subdtype is None else np.dtype((plain(field), field.subdtype[1])) for _, field, _ in found
    ]
    names, offsets = [name for name, _, _ in found], [offset for _, _, offset in found]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": dtype.itemsize})


def read_attributes(oid: Any, /) -> Iterator[FoundAttribute]:
    """Yield the attributes of an object in order of creation if the object tracks it, else in order of names."""
    for name in _names(oid):
        yield read_attribute(oid, name)


def _names(oid: Any) -> list[bytes]:
    names: list[bytes] = []
    with contextlib.suppress(LibraryError), library_errors():  # the object may not track the order of creation
        h5a.iterate(oid, names.append, index_type=h5py.h5.INDEX_CRT_ORDER)
        return names
    names.clear()
    with library_errors():
        h5a.iterate(oid, names.append, index_type=h5py.h5.INDEX_NAME)
    return names


def read_attribute(oid: Any, name: bytes, /) -> FoundAttribute:
    """Read one attribute of an object; if this fails, the result contains the reason."""
    found = FoundAttribute(name=name)
    try:
        with library_errors():
            attribute = h5a.open(oid, name)
            tid, shape = attribute.get_type(), _shape(attribute)
            found = FoundAttribute(name=name, datatype=tid.encode(), shape=shape)
            return _read_attribute(attribute, tid, found)
    except LibraryError as error:
        return FoundAttribute(name=name, datatype=found.datatype, shape=found.shape, error=str(error))


def _shape(attribute: h5a.AttrID) -> tuple[int, ...] | None:
    is_null = attribute.get_space().get_simple_extent_type() == h5s.NULL
    return None if is_null else tuple(map(int, attribute.shape))


def _read_attribute(attribute: h5a.AttrID, tid: h5t.TypeID, found: FoundAttribute) -> FoundAttribute:
    kind, shape = tid.get_class(), found.shape
    if kind == h5t.STRING:
        n_texts = 0 if shape is None else math.prod(shape)
        texts = _texts(attribute, tid, shape or ()) if n_texts else []
        is_fixed = not tid.is_variable_str()
        return FoundAttribute(
            name=found.name, kind="text", datatype=found.datatype, shape=shape, value=texts, is_fixed=is_fixed
        )
    if kind == h5t.REFERENCE and tid.equal(h5t.STD_REF_OBJ) and shape is not None:
        raw = np.zeros(shape, f"V{_ADDRESS.itemsize}")
        if raw.size:
            attribute.read(raw, tid)
        addresses = np.frombuffer(raw.tobytes(), _ADDRESS)
        return FoundAttribute(name=found.name, kind="references", datatype=found.datatype, shape=shape, value=addresses)
    if kind in (h5t.COMPOUND, h5t.OPAQUE, h5t.VLEN, h5t.REFERENCE, h5t.TIME) or tid.dtype.hasobject:
        return found
    base = plain(tid.dtype)
    if shape is None:
        values = np.empty(0, base)
    else:
        values = np.empty(shape, tid.dtype)  # if elements are arrays, numpy appends their shape
        if values.size:
            attribute.read(values)
        values = values.astype(base, copy=False)
    return FoundAttribute(name=found.name, kind="numbers", datatype=found.datatype, shape=shape, value=values)


def _texts(attribute: h5a.AttrID, tid: h5t.TypeID, shape: tuple[int, ...]) -> list[bytes]:
    if tid.is_variable_str():
        objects = np.empty(shape, tid.dtype)
        attribute.read(objects)
        return [x or b"" for x in objects.reshape(-1).tolist()]
    raw = np.empty(shape, f"S{tid.get_size()}")
    attribute.read(raw, tid)
    return [cell.tobytes() for cell in raw.reshape(-1).view(f"V{tid.get_size()}")]


# -- dimension scales -----------------------------------------------------------------------------------------
# The library's functions for scales (h5ds) trust the types and shapes of attributes, and crash on unexpected ones.


def read_scale(dataset: h5py.Dataset, /) -> Scale:
    """Read the dimension scale that the attributes of a dataset describe."""
    number = _integers(dataset, b"_Netcdf4Dimid")
    attached, fault = _attached(dataset)
    return Scale(
        is_scale=_is_scale(dataset),
        name=_scale_name(dataset),
        number=number[0] if number and number[0] >= 0 else None,
        coordinates=_integers(dataset, b"_Netcdf4Coordinates"),
        attached=attached,
        fault=fault,
    )


def _is_scale(dataset: h5py.Dataset) -> bool:
    """Return whether ``H5DSis_scale`` accepts a dataset as a scale."""
    text = _one_text(dataset, b"CLASS")
    return text is not None and text[1] == h5t.STR_NULLTERM and text[0] == _SCALE + b"\0"


def _scale_name(dataset: h5py.Dataset) -> bytes:
    text = _one_text(dataset, b"NAME")
    return b"" if text is None else text[0].split(b"\0")[0]


def _one_text(dataset: h5py.Dataset, name: bytes) -> tuple[bytes, int] | None:
    """Return the single text of fixed length in an attribute, and its padding; ``None`` for other attributes."""
    with contextlib.suppress(LibraryError), library_errors():
        if h5a.exists(dataset.id, name):
            attribute = h5a.open(dataset.id, name)
            tid, shape = attribute.get_type(), _shape(attribute)
            is_one = shape is not None and math.prod(shape) == 1
            if is_one and tid.get_class() == h5t.STRING and not tid.is_variable_str():
                return _texts(attribute, tid, shape or ())[0], tid.get_strpad()
    return None


def _integers(dataset: h5py.Dataset, name: bytes) -> tuple[int, ...]:
    with contextlib.suppress(LibraryError), library_errors():
        if h5a.exists(dataset.id, name):
            attribute = h5a.open(dataset.id, name)
            shape = _shape(attribute)
            is_few = shape is not None and math.prod(shape) <= _MAX_RANK
            if is_few and attribute.get_type().get_class() == h5t.INTEGER:
                values = np.zeros(shape or (), np.int64)
                if values.size:
                    attribute.read(values)
                return tuple(int(x) for x in values.reshape(-1))
    return ()


def _attached(dataset: h5py.Dataset) -> tuple[tuple[tuple[int, ...], ...] | None, str]:
    """Return the addresses of the scales attached to each axis, and a description of any damage."""
    rank = len(dataset.shape or ())
    nothing: tuple[tuple[int, ...], ...] = ((),) * rank
    try:
        with library_errors():
            if not h5a.exists(dataset.id, b"DIMENSION_LIST"):
                return None, ""
            attribute = h5a.open(dataset.id, b"DIMENSION_LIST")
            tid = attribute.get_type()
            is_known = tid.get_class() == h5t.VLEN and tid.get_super().equal(h5t.STD_REF_OBJ)
            if not is_known or _shape(attribute) != (rank,):
                return nothing, "the list of its dimension scales is of an unknown form"
            lists = np.empty((rank,), tid.dtype)
            if rank:
                attribute.read(lists)
    except LibraryError as error:
        return nothing, f"the list of its dimension scales is damaged: {error}"
    return tuple(_addresses(dataset, references) for references in lists), ""


def _addresses(dataset: h5py.Dataset, references: Any) -> tuple[int, ...]:
    """Return the addresses of objects; no addresses if a reference leads nowhere."""
    with contextlib.suppress(LibraryError), library_errors():
        return tuple(identity(h5r.dereference(x, dataset.id))[1] for x in references)
    return ()
