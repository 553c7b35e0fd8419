"""Virtual datasets of HDF5 (VDS), and files that are their sources."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

U = h5s.UNLIMITED


def space(shape: tuple[int, ...], *slabs: Any, maxshape: tuple[int, ...] | None = None) -> h5s.SpaceID:
    """Make a dataspace, with hyperslabs selected: ``(start, count, stride, block)`` each, or all of it."""
    found = h5s.create_simple(shape, maxshape or shape)
    for i, slab in enumerate(slabs):
        found.select_hyperslab(*slab, op=h5s.SELECT_OR if i else h5s.SELECT_SET)
    return found


def make_virtual(
    path: Path,
    shape: tuple[int, ...],
    mappings: Iterable[tuple[h5s.SpaceID, str, str, h5s.SpaceID]],
    *,
    maxshape: tuple[int, ...] | None = None,
    dtype: str = "i8",
    fill: Any = -1,
    name: str = "x",
    mode: str = "w",
    libver: str = "latest",
) -> None:
    """Write a virtual dataset of ``(place, file, dataset, source)``, spaces first and last."""
    with h5py.File(path, mode, libver=(libver, "latest")) as file:
        dcpl = h5p.create(h5p.DATASET_CREATE)
        if fill is not None:
            dcpl.set_fill_value(np.array(fill, dtype))
        for place, source_file, dataset, source in mappings:
            dcpl.set_virtual(place, str(source_file).encode(), dataset.encode(), source)
        tid = h5t.py_create(np.dtype(dtype), logical=True)
        h5d.create(file.id, name.encode(), tid, h5s.create_simple(shape, maxshape or shape), dcpl)


def make_virtual_of_one(
    path: Path,
    file: str,
    dataset: str = "x",
    *,
    shape: tuple[int, ...] = (6,),
    source: h5s.SpaceID | None = None,
    **options: Any,
) -> None:
    """Write a virtual dataset that shows one other dataset, of which all six elements unless told otherwise."""
    make_virtual(path, shape, [(space(shape), file, dataset, space((6,)) if source is None else source)], **options)


def make_sources(folder: Path, n: int, shape: tuple[int, ...] = (6,), *, dtype: str = "i8", **options: Any) -> None:
    """Write dataset ``x`` of files ``s0.h5``, ``s1.h5`` and so on, each with other numbers."""
    for i in range(n):
        with h5py.File(folder / f"s{i}.h5", "w") as file:
            values = np.arange(np.prod(shape)).reshape(shape) + 100 * i
            file.create_dataset("x", data=values.astype(dtype), **options)
