"""The mappings of a virtual dataset, as the HDF5 library gives them."""

from __future__ import annotations

import numpy as np
from h5py import h5p, h5s

from virtualstack.readers.hdf5.faults import library_errors
from virtualstack.readers.hdf5.obstacles import LostValuesError
from virtualstack.readers.hdf5.selections import Blocks, Hyperslab, HyperslabAxis, Selection
from virtualstack.readers.hdf5.structures.virtual_mappings import Mapping

__all__ = ["read_mappings"]

_MAX_BLOCKS = 1 << 20  # boxes of an irregular selection


def read_mappings(dcpl: h5p.PropDCID, /) -> list[Mapping]:
    """Read the mappings of a virtual dataset from its creation properties; no source is opened.

    Raises
    ------
    LibraryError
        They are damaged.
    LostValuesError
        One of them is no selection of boxes.
    """
    with library_errors():
        return [
            Mapping(
                file=dcpl.get_virtual_filename(i),
                dataset=dcpl.get_virtual_dsetname(i),
                place=_selection(dcpl.get_virtual_vspace(i)),
                source=_selection(dcpl.get_virtual_srcspace(i)),
            )
            for i in range(dcpl.get_virtual_count())
        ]


def _selection(space: h5s.SpaceID) -> Selection:
    """Read the selection of a dataspace.

    Raises
    ------
    LostValuesError
        It is no union of boxes, or of too many.
    """
    kind = space.get_select_type()
    if kind == h5s.SEL_ALL:
        return None
    if kind == h5s.SEL_NONE:
        return Blocks(np.zeros((0, 2, space.get_simple_extent_ndims()), np.int64))
    if kind != h5s.SEL_HYPERSLABS:
        raise LostValuesError("a virtual dataset (VDS) of single points of its sources")
    if space.is_regular_hyperslab():
        return Hyperslab(tuple(map(_axis, *space.get_regular_hyperslab())))
    n = space.get_select_hyper_nblocks()
    if n > _MAX_BLOCKS:
        raise LostValuesError(f"a virtual dataset (VDS) of {n} boxes of one source, more than {_MAX_BLOCKS}")
    return Blocks(space.get_select_hyper_blocklist().astype(np.int64))


def _axis(start: int, stride: int, count: int, block: int) -> HyperslabAxis:
    if stride < 1 or block < 1:
        raise LostValuesError(f"a virtual dataset (VDS) of blocks of {block} elements, {stride} apart")
    return HyperslabAxis(
        int(start),
        int(stride),
        None if count == h5s.UNLIMITED else int(count),
        None if block == h5s.UNLIMITED else int(block),
    )
