"""Plain records in which the child describes an HDF5 file; the parent converts most of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["FoundAttribute", "FoundDataset", "FoundLink", "Scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAttribute:
    """An attribute.

    Parameters
    ----------
    name
        Name as stored.
    kind
        ``"text"``, ``"references"`` to objects, ``"numbers"``, or ``"unread"`` for a datatype that is not read.
    datatype
        Datatype as ``H5Tencode`` encodes it.
    shape
        Shape; ``None`` for a null dataspace.
    value
        Texts are a list of bytes, references are an array of addresses of shape ``(n,)``, and numbers are an array.
    is_fixed
        If true, texts are stored in place and have equal lengths.
    error
        Reason why the attribute cannot be read, or ``""``.
    """

    name: bytes
    kind: Literal["text", "references", "numbers", "unread"] = "unread"
    datatype: bytes = b""
    shape: tuple[int, ...] | None = ()
    value: Any = None
    is_fixed: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The dimension scale that the attributes of a dataset describe.

    Parameters
    ----------
    is_scale
        If true, the dataset is a dimension scale.
    name
        Name of the scale as stored.
    number
        Number of the dimension in netCDF-4 (``_Netcdf4Dimid``).
    coordinates
        Numbers of the dimensions of the axes in netCDF-4 (``_Netcdf4Coordinates``).
    attached
        Addresses of the scales attached to each axis; ``None`` if the attribute does not exist.
    fault
        Description of damage in the list of attached scales, or ``""``.
    """

    is_scale: bool = False
    name: bytes = b""
    number: int | None = None
    coordinates: tuple[int, ...] = ()
    attached: tuple[tuple[int, ...], ...] | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLink:
    """A link of a group.

    Parameters
    ----------
    name
        Name as stored.
    kind
        Kind of the target. ``"nothing"``: a soft link that leads nowhere. ``"elsewhere"``: a link to another file.
        ``"lost"``: an object that cannot be opened.
    address
        Address of the object header.
    is_soft
        If true, the link is a path.
    target
        The path, after the file for a link to another file; empty if it is unknown.
    error
        Reason why the object cannot be opened.
    """

    name: bytes
    kind: Literal["group", "dataset", "datatype", "nothing", "elsewhere", "lost"]
    address: int = -1
    is_soft: bool = False
    target: tuple[bytes, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDataset:
    """A dataset.

    Parameters
    ----------
    address
        Address of the object header.
    datatype
        Datatype as ``H5Tencode`` encodes it.
    is_committed
        If true, the datatype is a committed datatype.
    shape, maxshape
        Lengths in elements. The shape is ``None`` for a null dataspace; a length is ``None`` for an unlimited axis.
    filters
        Number, name and parameters of each filter.
    has_fill, is_fill_undefined, is_fill_written
        If true: the user gave a fill value; the fill value is undefined; chunks are filled with it.
    external
        Name, offset and size in bytes of each external file that holds values.
    attributes, scale
        Attributes and dimension scale of the dataset.
    """

    address: int
    datatype: bytes
    is_committed: bool
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]
    filters: tuple[tuple[int, bytes, tuple[int, ...]], ...]
    has_fill: bool
    is_fill_undefined: bool
    is_fill_written: bool
    external: tuple[tuple[bytes, int, int], ...]
    attributes: tuple[FoundAttribute, ...]
    scale: Scale
