"""Datasets in memory whose chunks went through filters of HDF5, and their chunks beside what the library reads."""

import itertools
from collections.abc import Callable

import h5py
import numpy as np
from h5py import h5d, h5f, h5p

from virtualstack.codecs.pipeline import decode
from virtualstack.formats.hdf5.filters import Filter, filter_codecs, make_filter, obstacle, passed

NAMES = itertools.count()


def filters_of(dcpl: h5p.PropDCID, /) -> tuple[Filter, ...]:
    """Return the pipeline of a dataset as h5py has it, in the order of encoding."""
    steps = (dcpl.get_filter(i) for i in range(dcpl.get_nfilters()))
    return tuple(make_filter(code, name, values) for code, _, values, name in steps)


def in_memory(fill: Callable[[h5py.File], object], change: Callable[[bytes], bytes] = bytes) -> h5py.Dataset:
    """Make dataset ``x`` of a file in memory, and open it anew: the library keeps no decoded chunk of it."""
    with h5py.File(f"{next(NAMES)}.h5", "w", driver="core", backing_store=False) as file:
        fill(file)
        file.flush()
        image = file.id.get_file_image()
    return h5py.File(h5f.open_file_image(change(image)))["x"]


def check_chunks(dataset: h5d.DatasetID, expected: np.ndarray, *, may_skip: bool = False) -> tuple[Filter, ...]:
    """Decode all chunks as they are stored, compare them with what the library reads, and return their filters."""
    dcpl = dataset.get_create_plist()
    filters, chunks = filters_of(dcpl), dcpl.get_chunk()
    assert obstacle(filters) is None
    for corner in itertools.product(*(range(0, n, c) for n, c in zip(expected.shape, chunks, strict=True))):
        mask, raw = dataset.read_direct_chunk(corner)
        assert may_skip or not mask
        got = decode(raw, filter_codecs(passed(filters, mask)), expected.dtype, chunks)
        part = expected[tuple(slice(a, a + c) for a, c in zip(corner, chunks, strict=True))]
        assert got[tuple(slice(n) for n in part.shape)].tobytes() == part.tobytes(), (corner, filters)
    return filters
