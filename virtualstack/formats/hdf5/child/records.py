"""Plain records in which the child describes an HDF5 file; the parent converts most of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FoundAttribute", "FoundDataset", "FoundLink"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundAttribute:
    """An attribute as stored.

    ``elements`` has the texts or addresses that elements of variable length point to; ``error`` is why it was not read.
    """

    name: bytes
    datatype: bytes = b""
    shape: tuple[int, ...] | None = ()
    data: bytes = b""
    elements: tuple[bytes, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLink:
    """A link of a group."""

    name: bytes
    kind: Literal["group", "dataset", "datatype", "nothing", "elsewhere", "lost"]
    address: int = -1
    is_soft: bool = False
    target: tuple[bytes, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDataset:
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
