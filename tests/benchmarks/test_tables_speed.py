"""Operations that make many parts of an array, or many cells of a chunk: CPU time, and what tables are left.

Run with VIRTUALSTACK_BENCHMARK=full for the real sizes.
"""

import pickle

import numpy as np
import pandas as pd
import xarray as xr

from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.arrays import referenced_array
from virtualstack.manifests import inline_array
from virtualstack.reading import read_array
from virtualstack.storage import MemoryTarget
from virtualstack.testing.strategies import store_array

N_ELEMENTS, N_SIDE, N_PARTS, N_SOURCES = (1_000_000, 1500, 5000, 20_000) if IS_FULL else (1000, 30, 20, 100)


def array(shape, chunks, n_sources=1):
    urls = [f"s3://bucket/model/file-{i:06d}.nc" for i in range(n_sources)]
    return referenced_array(shape, chunks, "<i2", urls=urls)


def test_shuffled_takes_of_a_large_chunk():
    """Observations sorted by another variable; rows and columns in any order."""
    rng = np.random.default_rng(0)
    line, plane = array((N_ELEMENTS,), (N_ELEMENTS,)), array((N_SIDE, N_SIDE), (N_SIDE, N_SIDE))
    dataset = xr.Dataset({"v": ("obs", line)}, {"time": ("obs", rng.permutation(N_ELEMENTS))})
    rows, columns = rng.permutation(N_SIDE), rng.permutation(N_SIDE)
    best = interleaved(
        f"shuffle {N_ELEMENTS} observations, and {N_SIDE} rows and columns, of one chunk",
        {"sortby": lambda: dataset.sortby("time").v.variable._data, "np.ix_": lambda: plane[np.ix_(rows, columns)]},
    )
    for timing in best.values():
        assert len(timing.result.manifest.encodings) < 100
    assert len(pickle.dumps(best["sortby"].result[5:15])) < 2000
    if IS_FULL:
        assert all(timing.cpu < 0.5 for timing in best.values())


def test_loops_over_parts_that_share_tables():
    """Single steps, groups and slices, joined again."""
    cube = xr.Dataset(
        {"v": (("t", "x"), array((N_SOURCES, 10), (1, 10), N_SOURCES))}, {"t": pd.date_range("2000", periods=N_SOURCES)}
    )
    inline = inline_array(np.arange(float(N_PARTS)), name="i", dims=("t",), attributes={})
    values = xr.Dataset({"v": ("t", inline)})
    best = interleaved(
        f"parts of {N_SOURCES} sources, and {N_PARTS} slices of values in the manifest",
        {
            "300 steps": lambda: xr.concat([cube.isel(t=slice(i, i + 1)) for i in range(N_SOURCES)[:300]], "t"),
            "by day of year": lambda: cube.groupby("t.dayofyear").map(lambda part: part),
            "inline slices": lambda: xr.concat([values.isel(t=slice(i, i + 1)) for i in range(N_PARTS)], "t"),
        },
    )
    joined = {name: timing.result.v.variable._data.manifest for name, timing in best.items()}
    assert len(joined["300 steps"].locations) == min(300, N_SOURCES)
    assert len(joined["by day of year"].locations) == N_SOURCES
    assert joined["inline slices"].inline == inline.manifest.inline
    assert joined["inline slices"].shape == (1,)
    if IS_FULL:
        assert best["300 steps"].cpu < 0.5
        assert best["by day of year"].cpu < 1


def test_reading_a_shuffled_chunk():
    """Single elements of one chunk are written together."""
    rng = np.random.default_rng(0)
    known = store_array(rng.integers(0, 99, (N_SIDE, N_SIDE)).astype("i2"), (N_SIDE, N_SIDE), url="memory://tables/a")
    MemoryTarget("memory://tables").put("a", known.sources["memory://tables/a"])
    rows, columns = rng.permutation(N_SIDE), rng.permutation(N_SIDE)
    shuffled = known.array[np.ix_(rows, columns)]
    best = interleaved(
        f"read {N_SIDE} rows and columns of one chunk, shuffled", {"read": lambda: read_array(shuffled, ())}
    )
    np.testing.assert_array_equal(best["read"].result, known.values[np.ix_(rows, columns)])
