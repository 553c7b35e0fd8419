"""Decode attributes to the values that netCDF-4 shows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from virtualstack.child.errors import LibraryError
from virtualstack.codecs.pipeline import decode
from virtualstack.formats.hdf5.datatypes import element_type, packed
from virtualstack.formats.hdf5.structures.attribute_messages import AttributeMessage
from virtualstack.formats.hdf5.structures.requests import StructureError
from virtualstack.formats.hdf5.tree import Attributes, Scale, decode_text
from virtualstack.manifests import Refusal

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

_HIDDEN = frozenset(name.encode() for name in HIDDEN)
_MAX_SHARED_BYTES = 4096  # of the attributes of an object

_ADDRESS = np.dtype("<u8")
"""Data type of an element that is an object reference."""

_SCALE = b"DIMENSION_SCALE\0"
"""Text that H5DSis_scale requires: 15 characters and a final NUL, in one element."""

_MAX_RANK = 32  # H5S_MAX_RANK


class NoCounterpartError(Exception):
    """xarray has no counterpart of the values of an attribute; the message describes the values."""


class StoredAttributes(NamedTuple):
    """The attributes of an object as stored.

    Parameters
    ----------
    messages
        Attributes in netCDF-C's order.
    elements
        Function that returns what the elements of an attribute of variable length point to.
    ask_library
        Function that returns the value of an attribute by name, for elements that only the HDF5 library decodes.
    """

    messages: Sequence[AttributeMessage]
    elements: Callable[[AttributeMessage], Sequence[bytes]]
    ask_library: Callable[[bytes], Any]

    def values(self, path: str, /, *, is_of_characters: bool = False) -> Attributes:
        """Return the values, with notes on attributes that have no value in xarray.

        A text is a `str`, and several texts are a list. One number is a numpy scalar, and several numbers are an array.
        """
        parts = tuple([self._part(x) for x in self.messages if x.name not in _HIDDEN])
        is_small = sum([len(x.name) + len(x.data) for x in parts]) <= _MAX_SHARED_BYTES
        values = _shared_values(parts) if is_small else _values(parts)
        found = self._one_by_one(parts, path) if values is None else Attributes(values=values)
        if is_of_characters and isinstance(fill := found.values.get("_FillValue"), str):
            # as netCDF4 does for the fill value of characters
            return replace(found, values={**found.values, "_FillValue": fill.encode()})
        return found

    def _part(self, attribute: AttributeMessage) -> _Part:
        """Return what the value of an attribute depends on; it is equal for equal attributes of many files."""
        if attribute.datatype.variant != "string" or attribute.fault:
            return attribute
        try:
            texts = self.elements(attribute) if math.prod(attribute.shape or ()) and attribute.shape is not None else ()
        except StructureError as error:
            return replace(attribute, fault=str(error))
        return _Texts(attribute.name, attribute.shape, b"\0".join([text.split(b"\0")[0] for text in texts]))

    def _one_by_one(self, parts: Sequence[_Part], path: str) -> Attributes:
        """Return values with notes, where some attributes have no value or only the HDF5 library can decode them."""
        values: dict[str, Any] = {}
        notes: list[Refusal] = []
        addresses: dict[str, NDArray[np.uint64]] = {}
        damaged: dict[str, str] = {}
        for part in parts:
            name = decode_text(part.name)
            try:
                if isinstance(part, AttributeMessage) and _is_reference(part):
                    addresses[name] = np.frombuffer(part.data, _ADDRESS)
                else:
                    value = _value(part)
                    values[name] = self.ask_library(part.name) if value is None else value
            except NoCounterpartError as error:
                notes.append(Refusal(path=f"{path}@{name}", reason=f"attribute of {error}", kind="noted"))
            except (StructureError, LibraryError) as error:
                reason = f"the attribute cannot be read: {error}"
                notes.append(Refusal(path=f"{path}@{name}", reason=reason, kind="noted"))
                damaged[name] = str(error)
        return Attributes(values=values, notes=tuple(notes), references=addresses, damaged=damaged)

    def scale(self, rank: int, /) -> Scale:
        """Return the dimension scale that the attributes of a dataset of ``rank`` axes describe."""
        by_name = {attribute.name: attribute for attribute in self.messages if attribute.name in _SCALE_ATTRIBUTES}
        if not by_name:
            return _NO_SCALE
        kind, number = by_name.get(b"CLASS"), _integers(by_name.get(b"_Netcdf4Dimid"))
        attached, fault = self._attached(by_name.get(b"DIMENSION_LIST"), rank)
        return Scale(
            is_scale=_one_text(kind) == _SCALE and kind is not None and kind.datatype.padding == "nullterm",
            name=_one_text(by_name.get(b"NAME")).split(b"\0")[0],
            number=number[0] if number and number[0] >= 0 else None,
            coordinates=_integers(by_name.get(b"_Netcdf4Coordinates")),
            attached=attached,
            fault=fault,
        )

    def _attached(
        self, attribute: AttributeMessage | None, rank: int
    ) -> tuple[tuple[tuple[int, ...], ...] | None, str]:
        """Return the addresses of the scales attached to each axis, and a description of any damage."""
        if attribute is None:
            return None, ""
        base, nothing = attribute.datatype.base, ((),) * rank
        try:
            if attribute.fault:
                raise StructureError(attribute.fault)
            if attribute.shape != (rank,) or base is None or base.variant != "object":
                return nothing, "the list of its dimension scales is of an unknown form"
            lists = self.elements(attribute)
        except StructureError as error:  # the HDF5 library may hang there
            return nothing, f"the list of its dimension scales is damaged: {error}"
        return tuple(tuple(np.frombuffer(raw, _ADDRESS).tolist()) for raw in lists), ""


class _Texts(NamedTuple):
    """An attribute of strings of variable length: ``data`` has them with a NUL between two."""

    name: bytes
    shape: tuple[int, ...] | None
    data: bytes


type _Part = AttributeMessage | _Texts


def _values(parts: Sequence[_Part]) -> dict[str, Any] | None:
    """Return the values of all attributes; ``None`` if one has no value, or only the HDF5 library can decode it."""
    try:
        values = {decode_text(part.name): _value(part) for part in parts}
    except (NoCounterpartError, StructureError):
        return None
    return None if any(value is None for value in values.values()) else values


_shared_values = functools.lru_cache(maxsize=4096)(_values)


def _value(part: _Part) -> Any:
    if isinstance(part, AttributeMessage):
        return _value_in_place(part)
    if not math.prod(part.shape or ()) or part.shape is None:
        return [] if part.shape else ""
    return decode_texts(part.data.split(b"\0"), part.shape)


def _is_reference(attribute: AttributeMessage) -> bool:
    datatype = attribute.datatype
    is_address = datatype.variant == "object" and datatype.size == _ADDRESS.itemsize
    return is_address and attribute.shape is not None and not attribute.fault


@functools.lru_cache(maxsize=4096)
def _value_in_place(attribute: AttributeMessage) -> Any:
    """Return the value of an attribute of fixed size; ``None`` if only the HDF5 library can decode it."""
    if attribute.fault:
        raise StructureError(attribute.fault)
    datatype, shape = attribute.datatype, attribute.shape
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
UNUSED = _HIDDEN - _SCALE_ATTRIBUTES
"""Names of attributes whose values change nothing."""


def _one_text(attribute: AttributeMessage | None) -> bytes:
    """Return the single text of fixed length in an attribute; empty bytes if the attribute has other values."""
    if attribute is None or attribute.datatype.kind != "string" or attribute.shape is None:
        return b""
    return attribute.data[: attribute.datatype.size] if math.prod(attribute.shape) == 1 else b""


@functools.lru_cache(maxsize=4096)
def _integers(attribute: AttributeMessage | None) -> tuple[int, ...]:
    """Return whole numbers; no numbers for other values."""
    if attribute is None or attribute.datatype.kind != "integer" or attribute.shape is None:
        return ()
    stored = element_type(attribute.datatype).stored
    if stored is None or math.prod(attribute.shape) > _MAX_RANK:
        return ()
    return tuple(np.frombuffer(attribute.data, stored).tolist())


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
