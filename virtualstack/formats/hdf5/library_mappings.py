"""The mappings of a virtual dataset, as the HDF5 library gives them."""

from __future__ import annotations

from virtualstack.formats.hdf5.child.records import FoundMapping, FoundSelection
from virtualstack.formats.hdf5.obstacles import LostValuesError
from virtualstack.formats.hdf5.selections import BoxSelection, Hyperslab, HyperslabAxis, Selection
from virtualstack.formats.hdf5.structures.virtual_mappings import VirtualMapping

__all__ = ["mapping_of"]


def mapping_of(found: FoundMapping, /) -> VirtualMapping:
    """Return a mapping.

    Raises
    ------
    LostValuesError
        It is no selection of boxes, or of too many.
    """
    return VirtualMapping(
        file=found.file, dataset=found.dataset, place=_selection(found.place), source=_selection(found.source)
    )


def _selection(found: FoundSelection) -> Selection:
    if found.kind == "all":
        return None
    if found.kind == "points":
        raise LostValuesError("a virtual dataset (VDS) of single points of its sources")
    if found.kind == "regular":
        return Hyperslab(tuple(_axis(*axis) for axis in found.axes))
    if found.boxes is None:
        raise LostValuesError(f"a virtual dataset (VDS) of {found.n_boxes} boxes of one source, which are too many")
    return BoxSelection(found.boxes)


def _axis(start: int, stride: int, count: int | None, block: int | None) -> HyperslabAxis:
    if stride < 1 or (block is not None and block < 1):
        raise LostValuesError(f"a virtual dataset (VDS) of blocks of {block} elements, {stride} apart")
    return HyperslabAxis(start, stride, count, block)
