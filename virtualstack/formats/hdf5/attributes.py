"""Decode attributes to the values that netCDF-4 shows."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.codecs.pipeline import decode
from virtualstack.formats.hdf5.child.records import Scale
from virtualstack.formats.hdf5.datatypes import element_type, packed
from virtualstack.formats.hdf5.structures.attribute_messages import AttributeMessage, Pointer, pointers
from virtualstack.formats.hdf5.structures.requests import StructureError
from virtualstack.formats.hdf5.structures.superblock import Superblock
from virtualstack.formats.hdf5.tree import Attributes, decode_text
from virtualstack.formats.hdf5.walk import Heaps
from virtualstack.manifests import Refusal

__all__ = [
    "HIDDEN",
    "AttributeReader",
    "NoCounterpartError",
    "collect_attributes",
    "decode_texts",
    "one_or_many",
]

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
"""Names of the attributes that netCDF-4 and HDF5's dimension scales reserve, as in netCDF-C's list."""

_ADDRESS = np.dtype("<u8")
"""Data type of an element that is an object reference."""

_SCALE = b"DIMENSION_SCALE\0"
"""Text that H5DSis_scale requires: 15 characters and a final NUL, in one element."""

_MAX_RANK = 32  # H5S_MAX_RANK


class NoCounterpartError(Exception):
    """xarray has no counterpart of the values of an attribute; the message describes the values."""


class _Named(Protocol):
    """An attribute of one of the views of a file."""

    @property
    def name(self) -> bytes:
        """Name as the file stores it."""


def collect_attributes[A: _Named](
    stored: Sequence[A],
    path: str,
    references: Callable[[A], NDArray[np.uint64] | None],
    value: Callable[[A], Any],
    /,
    *,
    is_of_characters: bool = False,
) -> Attributes:
    """Return the attributes of an object, with notes on those that have no value in xarray."""
    values: dict[str, Any] = {}
    notes: list[Refusal] = []
    addresses: dict[str, NDArray[np.uint64]] = {}
    damaged: dict[str, str] = {}
    for attribute in stored:
        name = decode_text(attribute.name)
        if name in HIDDEN:
            continue
        found = references(attribute)
        if found is not None:
            addresses[name] = found
            continue
        try:
            values[name] = value(attribute)
        except NoCounterpartError as error:
            notes.append(Refusal(path=f"{path}@{name}", reason=f"attribute of {error}", kind="noted"))
        except (StructureError, LibraryError) as error:
            notes.append(Refusal(path=f"{path}@{name}", reason=f"the attribute cannot be read: {error}", kind="noted"))
            damaged[name] = str(error)
    if is_of_characters and isinstance(values.get("_FillValue"), str):
        values["_FillValue"] = values["_FillValue"].encode()  # as netCDF4 does for the fill value of characters
    return Attributes(values=values, notes=tuple(notes), references=addresses, damaged=damaged)


def _references(attribute: AttributeMessage) -> NDArray[np.uint64] | None:
    datatype, shape = attribute.datatype, attribute.space.shape
    if datatype.variant != "object" or datatype.size != _ADDRESS.itemsize or shape is None:
        return None
    return np.frombuffer(attribute.data, _ADDRESS, math.prod(shape))


class AttributeReader:
    """Reader of the values of attributes from their stored bytes."""

    def __init__(self, superblock: Superblock, heaps: Heaps) -> None:
        self._superblock = superblock
        self._heaps = heaps

    def values(
        self,
        stored: Sequence[AttributeMessage],
        path: str,
        ask_library: Callable[[bytes], Any],
        *,
        is_of_characters: bool = False,
    ) -> Attributes:
        """Return the attributes of an object.

        A text is a `str`, and several texts are a list. One number is a numpy scalar, and several numbers are an array.
        """

        def value(attribute: AttributeMessage) -> Any:
            found = self._value(attribute)
            return ask_library(attribute.name) if found is None else found

        return collect_attributes(stored, path, _references, value, is_of_characters=is_of_characters)

    def _value(self, attribute: AttributeMessage) -> Any:
        """Return the value of an attribute; ``None`` if only the HDF5 library can decode it."""
        if attribute.datatype.variant == "string":
            count = math.prod(attribute.space.shape or ())
            if attribute.space.shape is None or not count:
                return [] if attribute.space.shape else ""
            found = pointers(attribute.data, count, self._superblock)
            texts = [self.bytes_at(pointer).split(b"\0")[0] for pointer in found]
            return decode_texts(texts, attribute.space.shape)
        value = _value_in_place(attribute)
        return copy.deepcopy(value) if isinstance(value, np.ndarray | list) else value

    def bytes_at(self, pointer: Pointer, width: int = 1) -> bytes:
        """Return the bytes of an element of variable length; its own elements have ``width`` bytes each."""
        if pointer.heap is None:
            return b""
        heap = self._heaps[pointer.heap]
        if isinstance(heap, StructureError):
            raise heap
        raw = heap.get(pointer.number)
        if raw is None or len(raw) != pointer.length * width:  # the HDF5 library (2.0) checks this too
            raise StructureError("an element of variable length is not in its heap, or has another length there")
        return raw

    def scale(self, stored: Sequence[AttributeMessage], rank: int, /) -> Scale | None:
        """Return the dimension scale that attributes describe; ``None`` if only the library can decode them."""
        by_name = {attribute.name: attribute for attribute in stored if attribute.name in _SCALE_ATTRIBUTES}
        if not by_name:
            return _NO_SCALE
        kind, name = by_name.get(b"CLASS"), by_name.get(b"NAME")
        number = _integers(by_name.get(b"_Netcdf4Dimid"))
        coordinates = _integers(by_name.get(b"_Netcdf4Coordinates"))
        if number is None or coordinates is None:
            return None
        attached, fault = self._attached(by_name.get(b"DIMENSION_LIST"), rank)
        return Scale(
            is_scale=_one_text(kind) == _SCALE and kind is not None and kind.datatype.padding == "nullterm",
            name=_one_text(name).split(b"\0")[0],
            number=number[0] if number and number[0] >= 0 else None,
            coordinates=coordinates,
            attached=attached,
            fault=fault,
        )

    def _attached(
        self, attribute: AttributeMessage | None, rank: int
    ) -> tuple[tuple[tuple[int, ...], ...] | None, str]:
        """Return the addresses of the scales attached to each axis, and a description of any damage."""
        if attribute is None:
            return None, ""
        base, width = attribute.datatype.base, self._superblock.widths.address
        if attribute.space.shape != (rank,) or base is None or base.variant != "object" or base.size != width:
            return ((),) * rank, "the list of its dimension scales is of an unknown form"
        axes, fault = [], ""
        try:
            found = pointers(attribute.data, rank, self._superblock)
        except StructureError as error:
            return ((),) * rank, f"the list of its dimension scales is damaged: {error}"
        for pointer in found:
            try:
                raw = self.bytes_at(pointer, width)
            except StructureError as error:  # the HDF5 library may hang there
                raw, fault = b"", f"the list of its dimension scales is damaged: {error}"
            axes.append(tuple(int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)))
        return tuple(() for _ in axes) if fault else tuple(axes), fault


@functools.lru_cache(maxsize=4096)
def _value_in_place(attribute: AttributeMessage) -> Any:
    """Return the value of an attribute of fixed size; ``None`` if only the HDF5 library can decode it."""
    datatype, shape = attribute.datatype, attribute.space.shape
    if datatype.kind == "string":
        return "" if shape is None else _text_in_place(attribute, shape)
    found = element_type(datatype)
    if found.kind in ("refused", "text", "paths") or datatype.kind in ("compound", "opaque"):
        raise NoCounterpartError(found.reason or ("compounds" if datatype.kind == "compound" else "opaque bytes"))
    if found.stored is None:
        return None
    dtype = packed(found.stored)
    if shape is None:
        return np.empty(0, dtype)
    return one_or_many(decode(attribute.data, found.codecs, found.stored, shape + found.subshape), dtype)


def _text_in_place(attribute: AttributeMessage, shape: tuple[int, ...]) -> Any:
    data, size, count = attribute.data, attribute.datatype.size, math.prod(shape)
    if not shape:  # NC_CHAR: netCDF4 removes all NULs
        return decode_text(data.replace(b"\0", b""))
    texts = [data[at : at + size].split(b"\0")[0] for at in range(0, count * size, size)]
    return decode_texts(texts, shape) if texts else []


_SCALE_ATTRIBUTES = frozenset({b"CLASS", b"NAME", b"_Netcdf4Dimid", b"_Netcdf4Coordinates", b"DIMENSION_LIST"})
_NO_SCALE = Scale()


def _one_text(attribute: AttributeMessage | None) -> bytes:
    """Return the single text of fixed length in an attribute; empty bytes if the attribute has other values."""
    if attribute is None or attribute.datatype.kind != "string" or attribute.space.shape is None:
        return b""
    return attribute.data[: attribute.datatype.size] if math.prod(attribute.space.shape) == 1 else b""


@functools.lru_cache(maxsize=4096)
def _integers(attribute: AttributeMessage | None) -> tuple[int, ...] | None:
    """Return whole numbers; no numbers for other values, and ``None`` if only the library can decode them."""
    if attribute is None or attribute.datatype.kind != "integer" or attribute.space.shape is None:
        return ()
    if math.prod(attribute.space.shape) > _MAX_RANK:
        return ()
    stored = element_type(attribute.datatype).stored
    return None if stored is None else tuple(np.frombuffer(attribute.data, stored).tolist())


def decode_texts(raw: Sequence[bytes], shape: tuple[int, ...], /) -> Any:
    """Return one text as a string, several texts as a list, and texts of several axes as nested lists."""
    texts = [decode_text(x) for x in raw]
    if len(texts) == 1:
        return texts[0]
    return texts if len(shape) < 2 else np.array(texts, object).reshape(shape).tolist()


def one_or_many(stored: NDArray[Any], dtype: np.dtype[Any], /) -> Any:
    """Return one number as a numpy scalar, and several numbers as an array."""
    values = stored.astype(dtype)
    return values.reshape(-1)[0] if values.size == 1 and values.ndim <= 1 else values
