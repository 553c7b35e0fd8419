"""Combining thousands of datasets beside xarray on arrays that cost nothing; VIRTUALSTACK_BENCHMARK=full: real ones."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr
from numpy.lib.mixins import NDArrayOperatorsMixin

from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.arrays import referenced_array
from virtualstack.combine import CombineOptions, combine_datasets

N_DATASETS, N_CHUNKS = (10_000, 100) if IS_FULL else (8, 5)


class Nothing(NDArrayOperatorsMixin):
    """An array of a shape and a dtype and nothing else: what is left is the cost of xarray."""

    __array_priority__ = 1000

    def __init__(self, shape):
        self.shape, self.dtype, self.ndim, self.size = shape, np.dtype("f4"), len(shape), 1

    def __getitem__(self, key):
        raise NotImplementedError

    def __array_ufunc__(self, *args, **kwargs):
        raise NotImplementedError

    def __array_function__(self, function, types, args, kwargs):
        if function is np.result_type:
            return self.dtype
        assert function is np.concatenate
        arrays, axis = args[0], kwargs["axis"]
        first = arrays[0].shape
        return Nothing((*first[:axis], sum(x.shape[axis] for x in arrays), *first[axis + 1 :]))


def virtual(i):
    return referenced_array((N_CHUNKS, 50, 60), (1, 50, 60), urls=f"s3://bucket/model/output/file-{i:06d}.nc")


def datasets(make):
    made = []
    for i in range(N_DATASETS):
        time = np.datetime64("2000-01-01", "ns") + np.arange(i * N_CHUNKS, (i + 1) * N_CHUNKS) * np.timedelta64(1, "h")
        coords = {"time": time, "y": np.arange(50.0), "x": np.arange(60.0)}
        dataset = xr.Dataset({"v": (("time", "y", "x"), make(i))}, coords=coords, attrs={"title": "t", "run": i})
        dataset["v"].attrs.update(units="K", long_name="air temperature")
        made.append(dataset)
    return made


@pytest.fixture(scope="module")
def ours():
    return datasets(virtual)


@pytest.fixture(scope="module")
def nothing():
    return datasets(lambda i: Nothing((N_CHUNKS, 50, 60)))


EXACT = dict.fromkeys(("data_vars", "coords"), "minimal") | {"join": "exact"}
EXACT |= dict.fromkeys(("compat", "combine_attrs"), "override")


def test_concat_of_datasets(ours, nothing):
    """At most five times what xarray needs for arrays that cost nothing."""
    best = interleaved(
        f"join {N_DATASETS} datasets of {N_CHUNKS} chunks in order",
        {
            "xarray alone": lambda: xr.concat(nothing, "time", **EXACT),
            "xr.concat": lambda: xr.concat(ours, "time", **EXACT),
            "virtualstack": lambda: combine_datasets(
                ours, CombineOptions.from_options(combine="nested", concat_dim="time")
            ),
        },
        repeats=3,
    )
    assert best["virtualstack"].result.equals(best["xr.concat"].result)


def test_combine_by_coords(ours, nothing):
    """The same in any order."""
    order = np.random.default_rng(0).permutation(N_DATASETS)
    best = interleaved(
        f"order and join {N_DATASETS} datasets of {N_CHUNKS} chunks",
        {
            "xarray alone": lambda: xr.combine_by_coords([nothing[i] for i in order], **EXACT),
            "virtualstack": lambda: combine_datasets([ours[i] for i in order]),
        },
        repeats=3,
    )
    assert best["virtualstack"].result.sizes["time"] == N_DATASETS * N_CHUNKS
    assert best["virtualstack"].result.indexes["time"].is_monotonic_increasing


def test_outer_join_of_a_trillion_elements():
    """Labels are aligned on the chunk grid: memory is that of the chunks, not of a mask of the elements."""
    n = 10_000 if IS_FULL else 100

    def part(time, first):
        cf = {"_FillValue": np.int16(-1), "scale_factor": 0.5}
        shape, how = (n // 2, n, n), {"urls": f"s3://bucket/{time}.nc", "fill": -1, "attributes": cf, "cf": cf}
        array = referenced_array(shape, (n // 10,) * 3, "<i2", **how)
        labels = np.arange(first, first + n)
        coords = {"time": np.arange(n // 2) + time, "y": labels, "x": labels[::-1]}
        return xr.Dataset({"v": (("time", "y", "x"), array)}, coords=coords)

    parts = [part(0, 0), part(n // 2, 7)]
    tracemalloc.start()
    try:
        made = combine_datasets(parts, CombineOptions.from_options(join="outer"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"\nouter join of {n**3:.0e} elements: {peak / 1e6:.1f} MB")
    assert made.sizes == {"time": n, "y": n + 7, "x": n + 7}
    assert peak < 100e6
