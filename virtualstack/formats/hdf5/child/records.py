"""What the child reports about an HDF5 file, as plain records; the parent converts most of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["FoundAttribute", "FoundChunks", "FoundDataset", "FoundLink", "FoundMapping", "FoundSelection", "Scale"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAttribute:
    """An attribute.

    Parameters
    ----------
    name
        As stored.
    kind
        ``"text"``, ``"references"`` to objects, ``"numbers"``, or ``"unread"``: of a datatype that is not read.
    datatype
        As ``H5Tencode`` gives it.
    shape
        ``None`` for a null dataspace.
    value
        Texts: a list of bytes. References: shape ``(n,)`` of addresses. Numbers: an array.
    is_fixed
        Whether texts are stored in place, all of one length.
    error
        Why it cannot be read, or ``""``.
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
    """What a dataset says of dimension scales.

    Parameters
    ----------
    is_scale
        Whether the dataset is a dimension scale.
    name
        Name of the scale, as stored.
    number
        Number of the dimension, by netCDF-4 (``_Netcdf4Dimid``).
    coordinates
        Numbers of the dimensions of its axes, by netCDF-4 (``_Netcdf4Coordinates``).
    attached
        Addresses of the scales that are attached to each axis; ``None`` if there are none.
    fault
        What is wrong with that list, or ``""``.
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
        As stored.
    kind
        What it leads to. ``"nothing"``: a soft link that leads nowhere. ``"elsewhere"``: to another file. ``"lost"``:
        the object cannot be opened.
    address
        Of the object header.
    is_soft
        Whether it is a path.
    target
        That path, and the file before it; empty where it is unknown.
    error
        Why an object cannot be opened.
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
        Of the object header.
    datatype
        As ``H5Tencode`` gives it.
    is_committed
        Whether that is a committed datatype.
    shape, maxshape
        In elements; ``None`` for a null dataspace, and for unlimited.
    layout
        How its values are stored.
    offset
        Of contiguous values, in bytes from the start of the file; ``None`` where there are none.
    chunks
        Shape of a chunk.
    filters
        Number, name and parameters of each.
    has_fill, is_fill_undefined, is_fill_written
        Whether a fill value was given, or that there is none; and whether chunks are filled with it.
    external
        Name, offset and bytes of the files that hold its values.
    attributes, scale
        What else it says.
    """

    address: int
    datatype: bytes
    is_committed: bool
    shape: tuple[int, ...] | None
    maxshape: tuple[int | None, ...]
    layout: Literal["virtual", "compact", "contiguous", "chunked"]
    offset: int | None
    chunks: tuple[int, ...]
    filters: tuple[tuple[int, bytes, tuple[int, ...]], ...]
    has_fill: bool
    is_fill_undefined: bool
    is_fill_written: bool
    external: tuple[tuple[bytes, int, int], ...]
    attributes: tuple[FoundAttribute, ...]
    scale: Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChunks:
    """The allocated chunks of a dataset, as the HDF5 library lists them.

    Parameters
    ----------
    rows
        Shape ``(chunks, rank + 3)``: the first element of each, its offset in the file and its length in bytes, and
        its filter mask.
    chunks, shape, maxshape
        Of the dataset.
    lists_moved_axes, counts_user_block
        Peculiarities of this release of the library.
    """

    rows: NDArray[np.uint64]
    chunks: tuple[int, ...]
    shape: tuple[int, ...]
    maxshape: tuple[int | None, ...]
    lists_moved_axes: bool
    counts_user_block: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSelection:
    """The selection of a dataspace.

    Parameters
    ----------
    kind
        ``"boxes"`` are too many where ``boxes`` is ``None``.
    axes
        Of a regular hyperslab: start, stride, count and block of each axis; ``None`` for unlimited.
    boxes
        Shape ``(n, 2, rank)``: first and last element.
    n_boxes
        Their number.
    """

    kind: Literal["all", "points", "regular", "boxes"]
    axes: tuple[tuple[int, int, int | None, int | None], ...] = ()
    boxes: NDArray[np.int64] | None = None
    n_boxes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMapping:
    """One mapping of a virtual dataset: the file and dataset of the source, and the places in both."""

    file: str
    dataset: str
    place: FoundSelection
    source: FoundSelection
