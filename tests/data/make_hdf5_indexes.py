"""Build HDF5 files with chunk indexes of every kind, at every boundary of their structures."""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from h5py import h5d, h5f, h5p, h5t

from tests.data.hdf5_parts import dataset_of, library, properties

LIBVERS = {
    "earliest": (h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST),
    "v108": (h5f.LIBVER_V18, h5f.LIBVER_V18),
    "v110": (h5f.LIBVER_V110, h5f.LIBVER_V110),
    "v114": (h5f.LIBVER_V114, h5f.LIBVER_V114),
    "latest": (h5f.LIBVER_LATEST, h5f.LIBVER_LATEST),
}


def create(
    path: Path, libver: str, *, widths: tuple[int, int] = (8, 8), user_block: int = 0, k: int | None = None
) -> h5py.File:
    """Create a file with addresses and lengths of some bytes, and half of the entries of B-tree nodes as given."""
    fcpl = h5p.create(h5p.FILE_CREATE)
    fcpl.set_sizes(*widths)
    fcpl.set_userblock(user_block)
    if k is not None:
        hdf5 = library()
        assert hdf5 is not None
        hdf5.H5Pset_istore_k.argtypes = [ctypes.c_int64, ctypes.c_uint]
        assert hdf5.H5Pset_istore_k(fcpl.id, k) >= 0
    fapl = h5p.create(h5p.FILE_ACCESS)
    fapl.set_libver_bounds(*LIBVERS[libver])
    return h5py.File(h5f.create(str(path).encode(), h5f.ACC_TRUNC, fcpl, fapl))


def numbered(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Give values from 1, so that none is the fill value."""
    return (np.arange(math.prod(shape)) % 100 + 1).reshape(shape).astype(dtype)


def add(
    file: h5py.File,
    name: str,
    shape: tuple[int, ...],
    maxshape: tuple[int | None, ...],
    chunks: tuple[int, ...],
    *,
    dtype: str = "u1",
    filtered: bool = False,
    write: Callable[[h5py.Dataset], None] | None = None,
) -> None:
    """Add a dataset, filled unless it is told how."""
    dataset = file.create_dataset(
        name, shape, dtype, chunks=chunks, maxshape=maxshape, compression="lzf" if filtered else None
    )
    if write is None:
        dataset[...] = numbered(shape, dtype)
    else:
        write(dataset)


def small(file: h5py.File) -> None:
    """Datasets of a few chunks: every kind of index, whole, sparse, grown, shrunk, with filters and without."""
    cases = {
        "single": ((6, 10), (6, 10), (6, 10)),
        "edges": ((23, 31), (23, 31), (5, 7)),
        "larger": ((5,), (None,), (64,)),
        "larger_fixed": ((5, 3), (12, 10), (10, 10)),
        "fixed_max": ((20, 30), (50, 61), (3, 7)),
        "first": ((20, 30), (None, 30), (3, 7)),
        "first_max": ((20, 30), (None, 61), (3, 7)),
        "second": ((20, 30), (20, None), (3, 7)),
        "second_max": ((20, 30), (50, None), (3, 7)),
        "middle": ((6, 10, 8), (10, None, 20), (3, 3, 4)),
        "last_of_four": ((4, 3, 5, 9), (5, 9, 6, None), (2, 2, 1, 3)),
        "both": ((20, 30), (None, None), (3, 7)),
        "outer_two": ((6, 10, 8), (None, 12, None), (3, 3, 4)),
        "one_row": ((3, 50), (9, None), (3, 7)),
    }
    for (name, (shape, maxshape, chunks)), filtered in itertools.product(cases.items(), (False, True)):
        suffix = "_filtered" * filtered
        add(file, name + suffix, shape, maxshape, chunks, filtered=filtered)
        add(file, f"{name}{suffix}_none", shape, maxshape, chunks, filtered=filtered, write=lambda dataset: None)
        add(file, f"{name}{suffix}_sparse", shape, maxshape, chunks, filtered=filtered, write=write_corners)
        if None in maxshape:
            add(file, f"{name}{suffix}_grown", shape, maxshape, chunks, filtered=filtered, write=grow)
            add(file, f"{name}{suffix}_shrunk", shape, maxshape, chunks, filtered=filtered, write=shrink)
    for name, shape, maxshape in (("implicit", (20, 30), None), ("implicit_max", (20, 30), (26, 33))):
        dcpl = properties(chunk=((3, 4),), alloc_time=(h5d.ALLOC_TIME_EARLY,))
        dataset_of(file, name, h5t.STD_I32LE, shape, dcpl, maxshape=maxshape)[...] = numbered(shape, "i4")
    masked = file.create_dataset("masked", (10, 10), "u1", chunks=(5, 5), maxshape=(None, 10), compression="gzip")
    masked.id.write_direct_chunk((0, 0), bytes(25), filter_mask=1)
    masked[5:, 5:] = 1
    add(file, "no_elements", (0, 5), (None, 5), (10, 5))
    file.create_dataset("records", data=np.zeros(100, "i4,S3"), chunks=(7,))


def write_corners(dataset: h5py.Dataset) -> None:
    dataset[(0,) * dataset.ndim] = 1
    dataset[tuple(n // 2 for n in dataset.shape)] = 1
    dataset[tuple(n - 1 for n in dataset.shape)] = 1


def grow(dataset: h5py.Dataset) -> None:
    for times in (1, 2, 3):
        dataset.resize(
            tuple(n * times if m is None else n for n, m in zip(dataset.shape, dataset.maxshape, strict=True))
        )
        write_corners(dataset)


def shrink(dataset: h5py.Dataset) -> None:
    dataset[...] = numbered(dataset.shape, dataset.dtype.str)
    dataset.resize(tuple(max(1, n // 2) for n in dataset.shape))


def boundaries(file: h5py.File) -> None:
    """Numbers of chunks around the pages and blocks of arrays, and around full nodes of trees."""
    counts = [1, 4, 5, 20, 21, 1023, 1024, 1025, 2049]
    for (kind, last), n, filtered in itertools.product(
        (("fixed", 1), ("first", None), ("both", None)), counts, (False, True)
    ):
        name = f"{kind}_{last}_{n}{'_filtered' * filtered}"
        maxshape = {"fixed": (n, last), "first": (None, 1), "both": (None, None)}[kind]
        add(file, name, (n, last or 1), maxshape, (1, 1), filtered=filtered)


def paged(file: h5py.File) -> None:
    """Arrays with pages that were never written."""
    for filtered in (False, True):
        suffix = "_filtered" * filtered
        add(file, f"fixed{suffix}", (5000, 7), (5000, 7), (1, 1), filtered=filtered, write=write_some_rows)
        add(file, f"fixed_max{suffix}", (5000, 7), (6001, 9), (1, 1), filtered=filtered, write=write_some_rows)
        add(file, f"first{suffix}", (9000, 7), (None, 7), (1, 1), filtered=filtered, write=write_some_rows)
        add(file, f"second{suffix}", (7, 9000), (11, None), (1, 1), filtered=filtered, write=write_some_columns)
        add(file, f"long{suffix}", (400_000,), (None,), (1,), filtered=filtered, write=write_some_rows)
        add(file, f"both{suffix}", (5000, 7), (None, None), (1, 1), filtered=filtered, write=write_some_rows)


def write_some_rows(dataset: h5py.Dataset) -> None:
    n = len(dataset)
    dataset[17], dataset[n // 2 : n // 2 + 300], dataset[n - 1] = 1, 2, 3


def write_some_columns(dataset: h5py.Dataset) -> None:
    n = dataset.shape[1]
    dataset[:, 17], dataset[:, n // 2 : n // 2 + 300], dataset[:, n - 1] = 1, 2, 3


def deep(file: h5py.File) -> None:
    """Trees of several levels, filled in order, backwards and at random; the more axes, the fewer chunks in a node."""
    n = 250
    random = np.random.default_rng(0).permutation(n)
    orders: dict[str, np.ndarray] = {"forwards": np.arange(n), "backwards": np.arange(n)[::-1], "random": random}
    for (name, order), filtered, rank in itertools.product(orders.items(), (False, True), (2, 32)):

        def write(dataset: h5py.Dataset, order: np.ndarray = order) -> None:
            for i in order.tolist():
                dataset[i] = i % 100 + 1

        shape = (n, *(1,) * (rank - 1))
        name = f"{name}_{rank}{'_filtered' * filtered}"
        add(file, name, shape, (None,) * rank, (1,) * rank, filtered=filtered, write=write)


def limited(file: h5py.File) -> None:
    """Few datasets, none of them with an unlimited axis, which the library misreads where lengths have 4 bytes."""
    for filtered in (False, True):
        suffix = "_filtered" * filtered
        add(file, f"single{suffix}", (6, 10), (6, 10), (6, 10), filtered=filtered)
        add(file, f"fixed{suffix}", (13, 11), (13, 11), (5, 7), filtered=filtered)
        add(file, f"fixed_max{suffix}", (13, 11), (20, 15), (5, 7), filtered=filtered, write=write_corners)


def few(file: h5py.File) -> None:
    """A dataset of each kind."""
    limited(file)
    for filtered in (False, True):
        suffix = "_filtered" * filtered
        add(file, f"first{suffix}", (40, 6), (None, 6), (2, 4), filtered=filtered)
        add(file, f"second{suffix}", (3, 60), (4, None), (2, 2), filtered=filtered)
        add(file, f"both{suffix}", (16, 12), (None, None), (2, 4), filtered=filtered)


def unfiltered_edges(file: h5py.File) -> None:
    """Chunks that reach past the array are stored without filters."""
    hdf5 = library()
    assert hdf5 is not None
    hdf5.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
    for name, maxshape in {"fixed": (11, 13), "first": (None, 13), "second": (11, None), "both": (None, None)}.items():
        dcpl = properties(chunk=((4, 5),), deflate=(4,))
        assert hdf5.H5Pset_chunk_opts(dcpl.id, 2) >= 0
        dataset_of(file, name, h5t.STD_I32LE, (11, 13), dcpl, maxshape=maxshape)[...] = numbered((11, 13), "i4")


@dataclass(frozen=True)
class Build:
    """How to build one file: `path = build(folder)`."""

    content: Callable[[h5py.File], None]
    libver: str
    widths: tuple[int, int] = (8, 8)
    user_block: int = 0
    k: int | None = None

    @property
    def name(self) -> str:
        parts = [self.content.__name__, self.libver, "{}_{}".format(*self.widths), self.user_block, self.k]
        return "-".join(str(part) for part in parts)

    def __call__(self, folder: Path) -> Path:
        path = folder / f"{self.name}.h5"
        with create(path, self.libver, widths=self.widths, user_block=self.user_block, k=self.k) as file:
            self.content(file)
        return path


NEW = ("v110", "latest")  # layout versions 4 and 5
BUILDS = [
    *(Build(small, libver) for libver in LIBVERS),
    *(Build(small, libver, user_block=1024) for libver in ("earliest", "latest")),
    *(Build(boundaries, libver) for libver in NEW),
    *(Build(deep, libver) for libver in ("earliest", *NEW)),
    *(Build(paged, libver) for libver in NEW),
    *(Build(unfiltered_edges, libver) for libver in NEW),
    *(Build(few, libver, widths=(width, 8)) for width in (2, 4) for libver in ("earliest", *NEW)),
    *(Build(limited, libver, widths=(a, n)) for a in (2, 4, 8) for n in (2, 4) for libver in ("earliest", *NEW)),
    *(Build(content, libver, k=k) for content in (small, deep) for k, libver in ((2, "earliest"), (100, "v108"))),
]
