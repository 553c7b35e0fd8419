"""Datatypes, properties and datasets of HDF5 for which h5py's usual interface has no words."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

ANY_TEXT = h5t.py_create(h5py.string_dtype(), logical=True)


def library() -> ctypes.CDLL | None:
    """Return the HDF5 library of h5py's wheel, for functions that h5py does not wrap."""
    found = list(Path(h5py.__file__).parents[1].glob("h5py.libs/libhdf5-*"))
    return ctypes.CDLL(str(found[0])) if found else None


def reduced(base: h5t.TypeID, precision: int, offset: int = 0, size: int | None = None) -> h5t.TypeID:
    """Make a number of some bits only, which begin at a bit, in some bytes."""
    tid = base.copy()
    tid.set_precision(precision)
    tid.set_offset(offset)
    if size is not None:
        tid.set_size(size)
    return tid


def bfloat16(base: h5t.TypeID = h5t.IEEE_F32LE) -> h5t.TypeID:
    """Make a float of 16 bits with the exponent of one of 32."""
    tid = base.copy()
    tid.set_fields(15, 7, 8, 0, 7)
    tid.set_size(2)
    return tid


def text(size: int, padding: int = h5t.STR_NULLTERM, charset: int = h5t.CSET_ASCII) -> h5t.TypeID:
    """Make text of a fixed length."""
    tid = h5t.C_S1.copy()
    tid.set_size(size)
    tid.set_strpad(padding)
    tid.set_cset(charset)
    return tid


def opaque(size: int, tag: bytes) -> h5t.TypeID:
    """Make bytes of no meaning but that of a tag."""
    tid = h5t.create(h5t.OPAQUE, size)
    tid.set_tag(tag)
    return tid


def compound(size: int, *members: tuple[str, int, h5t.TypeID]) -> h5t.TypeID:
    """Make a record of some bytes, with members at places."""
    tid = h5t.create(h5t.COMPOUND, size)
    for name, offset, member in members:
        tid.insert(name.encode(), offset, member)
    return tid


def enumeration(base: h5t.TypeID, **names: int) -> h5t.TypeID:
    """Make an enumeration of names."""
    tid = h5t.enum_create(base)
    for name, value in names.items():
        tid.enum_insert(name.encode(), value)
    return tid


def properties(**steps: tuple[Any, ...]) -> h5p.PropDCID:
    """Make properties of a dataset by h5py's setters, in their order: ``chunk=((2, 3),), shuffle=()``."""
    dcpl = h5p.create(h5p.DATASET_CREATE)
    for name, arguments in steps.items():
        getattr(dcpl, f"set_{name}")(*arguments)
    return dcpl


def dataset_of(
    group: h5py.Group,
    name: str,
    tid: h5t.TypeID,
    shape: tuple[int, ...] | None,
    dcpl: h5p.PropDCID | None = None,
    *,
    maxshape: tuple[int | None, ...] | None = None,
    raw: np.ndarray | None = None,
) -> h5py.Dataset:
    """Make a dataset, and write elements as they are stored; without a shape it has a null dataspace."""
    if shape:
        most = tuple(h5s.UNLIMITED if n is None else n for n in maxshape or shape)
        space = h5s.create_simple(shape, most)
    else:
        space = h5s.create(h5s.NULL if shape is None else h5s.SCALAR)
    dataset = h5d.create(group.id, name.encode(), tid, space, dcpl)
    if raw is not None:
        dataset.write(h5s.ALL, h5s.ALL, raw, tid)
    return h5py.Dataset(dataset)
