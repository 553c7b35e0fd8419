"""Read attributes with the HDF5 library, in the child process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5g, h5r, h5s, h5t
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError, library_errors
from virtualstack.formats.hdf5.child.records import FoundAttribute


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
    encoded = b""
    try:
        with library_errors():
            attribute = h5a.open(oid, name)
            tid, shape = attribute.get_type(), _shape(attribute)
            encoded = tid.encode()
            data, elements = (b"", ()) if shape is None or 0 in shape else _read(attribute, tid, shape)
            return FoundAttribute(name=name, datatype=encoded, shape=shape, data=data, elements=elements)
    except LibraryError as error:
        return FoundAttribute(name=name, datatype=encoded, error=str(error))


def read_numbers(oid: Any, name: bytes, /) -> NDArray[Any]:
    """Read an attribute of numbers that only the library converts."""
    attribute = h5a.open(oid, name)
    dtype, shape = attribute.get_type().dtype, _shape(attribute)
    values = np.empty(0 if shape is None else shape, dtype)  # if elements are arrays, numpy appends their shape
    if shape is not None and values.size:
        attribute.read(values)
    return values.astype(plain(dtype), copy=False)


def _shape(attribute: h5a.AttrID) -> tuple[int, ...] | None:
    is_null = attribute.get_space().get_simple_extent_type() == h5s.NULL
    return None if is_null else tuple(map(int, attribute.shape))


def _read(attribute: h5a.AttrID, tid: h5t.TypeID, shape: tuple[int, ...]) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the stored bytes of elements, and what elements of variable length point to."""
    kind = tid.get_class()
    if kind in (h5t.COMPOUND, h5t.OPAQUE, h5t.TIME):
        return b"", ()
    if kind == h5t.VLEN and tid.get_super().equal(h5t.STD_REF_OBJ):
        # the library's functions for dimension scales (h5ds) trust types and shapes, and crash on unexpected ones
        lists = np.empty(shape, tid.dtype)
        attribute.read(lists)
        return b"", tuple(_addresses(attribute, references) for references in lists.reshape(-1))
    if kind == h5t.STRING and tid.is_variable_str():
        texts = np.empty(shape, tid.dtype)
        attribute.read(texts)
        return b"", tuple(x or b"" for x in texts.reshape(-1).tolist())
    if tid.dtype.hasobject and not tid.equal(h5t.STD_REF_OBJ):
        return b"", ()
    raw = np.zeros(shape, f"V{tid.get_size()}")
    attribute.read(raw, tid)
    return raw.tobytes(), ()


def _addresses(owner: Any, references: Any) -> bytes:
    """Return the addresses of objects; no addresses if a reference leads nowhere."""
    with contextlib.suppress(LibraryError), library_errors():
        return np.array([identity(h5r.dereference(x, owner))[1] for x in references], "<u8").tobytes()
    return b""
