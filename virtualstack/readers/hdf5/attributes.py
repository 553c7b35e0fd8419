"""Attributes as netCDF-4 shows them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5s, h5t

from virtualstack.manifests import Refusal
from virtualstack.readers.hdf5.datatypes import element_type, packed
from virtualstack.readers.hdf5.faults import LibraryError, library_errors

__all__ = ["HIDDEN", "decode_text", "read_attributes"]

HIDDEN = frozenset(
    {
        "CLASS",
        "DIMENSION_LIST",
        "NAME",
        "REFERENCE_LIST",
        "_Format",
        "_IsNetcdf4",
        "_NCCOPY",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_SuperblockVersion",
        "_nc3_strict",
    }
)
"""What netCDF-4 and the dimension scales of HDF5 keep for themselves: netCDF-C's list of reserved attributes."""


def decode_text(raw: bytes, /) -> str:
    """Read text as UTF-8, and as latin-1 where it is not, so that no letter is lost."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def read_attributes(loc: h5py.Group | h5py.Dataset, path: str, /) -> tuple[dict[str, Any], list[Refusal]]:
    """Give the attributes of an object, and notes on those that have no counterpart.

    Text is `str`, several texts a list of them; one number is a numpy scalar, several are an array.
    """
    values: dict[str, Any] = {}
    notes: list[Refusal] = []
    for raw_name in _names(loc):
        name = decode_text(raw_name)
        if name in HIDDEN:
            continue
        try:
            with library_errors():
                value = _read(h5a.open(loc.id, raw_name))
            if name == "_FillValue" and isinstance(value, str) and loc.dtype.kind == "S":
                value = value.encode()  # as netCDF4 gives that of characters
        except _NoCounterpartError as error:
            notes.append(Refusal(path=f"{path}@{name}", reason=f"attribute of {error}", kind="noted"))
        except LibraryError as error:
            notes.append(Refusal(path=f"{path}@{name}", reason=f"the attribute cannot be read: {error}", kind="noted"))
        else:
            values[name] = value
    return values, notes


class _NoCounterpartError(Exception):
    pass


def _names(loc: h5py.Group | h5py.Dataset) -> Iterable[bytes]:
    names: list[bytes] = []
    for order in (h5py.h5.INDEX_CRT_ORDER, h5py.h5.INDEX_NAME):
        names.clear()
        with contextlib.suppress(LibraryError), library_errors():  # creation order may not be tracked
            h5a.iterate(loc.id, names.append, index_type=order)
            return names
    return names


def _read(attribute: h5a.AttrID) -> Any:
    tid, space = attribute.get_type(), attribute.get_space()
    kind = tid.get_class()
    is_null = space.get_simple_extent_type() == h5s.NULL
    shape = () if is_null else tuple(attribute.shape)
    if kind == h5t.STRING:
        return "" if is_null else _read_text(attribute, tid, shape)
    found = element_type(tid)
    if found.kind == "refused" or kind == h5t.COMPOUND or found.kind in ("text", "paths") or kind == h5t.OPAQUE:
        raise _NoCounterpartError(found.reason or ("compounds" if kind == h5t.COMPOUND else "opaque bytes"))
    dtype = packed(tid.dtype.subdtype[0] if tid.dtype.subdtype is not None else tid.dtype)
    if is_null:
        return np.empty(0, dtype)
    array = np.empty(shape, tid.dtype)  # where elements are arrays, numpy appends their shape
    if array.size:
        attribute.read(array)
    values = array.astype(dtype)
    return values.reshape(-1)[0] if values.size == 1 and values.ndim <= 1 else values


def _read_text(attribute: h5a.AttrID, tid: h5t.TypeID, shape: tuple[int, ...]) -> str | list[str]:
    if not math.prod(shape):
        return [] if shape else ""
    if tid.is_variable_str():
        objects = np.empty(shape, tid.dtype)
        attribute.read(objects)
        texts = [decode_text(x or b"") for x in objects.reshape(-1).tolist()]
    else:
        raw = np.empty(shape, f"S{tid.get_size()}")
        attribute.read(raw, tid)
        cells = raw.reshape(-1).view(f"V{tid.get_size()}")
        if not shape:  # NC_CHAR: netCDF4 leaves NULs out wherever they are
            return decode_text(cells[0].tobytes().replace(b"\0", b""))
        texts = [decode_text(cell.tobytes().split(b"\0")[0]) for cell in cells]
    return texts[0] if len(texts) == 1 else texts
