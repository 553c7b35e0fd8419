"""Plain records in which the child describes an HDF5 file; the parent converts most of them."""

from __future__ import annotations

from typing import Literal, NamedTuple


class FoundAttribute(NamedTuple):
    """An attribute as stored.

    ``elements`` has the texts or addresses that elements of variable length point to; ``error`` is why it was not read.
    """

    name: bytes
    datatype: bytes = b""
    shape: tuple[int, ...] | None = ()
    data: bytes = b""
    elements: tuple[bytes, ...] = ()
    error: str = ""


class FoundLink(NamedTuple):
    """A link of a group."""

    name: bytes
    kind: Literal["group", "dataset", "datatype", "nothing", "elsewhere", "lost"]
    address: int = -1
    is_soft: bool = False
    target: tuple[bytes, ...] = ()
    error: str = ""


class FoundDataset(NamedTuple):
    """A dataset."""

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
