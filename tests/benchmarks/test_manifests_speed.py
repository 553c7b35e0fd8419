"""Joining and renaming manifests beside VirtualiZarr; run with VIRTUALSTACK_BENCHMARK=full for the real sizes."""

import numpy as np
import pytest
import xarray as xr

from tests.benchmarks.rivals import needs, virtualizarr_array
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.arrays import referenced_array

N_PARTS, N_CHUNKS = (1000, 1000) if IS_FULL else (5, 7)
pytestmark = needs("virtualizarr")


def ours(i: int):
    return referenced_array((N_CHUNKS, 5, 6), (1, 5, 6), urls=f"s3://bucket/model/output/file-{i:06d}.nc")


def theirs(i: int):
    grid = (N_CHUNKS, 1, 1)
    urls = np.full(grid, f"s3://bucket/model/output/file-{i:06d}.nc", np.dtypes.StringDType())
    offsets = np.arange(N_CHUNKS).reshape(grid) * 1000
    return virtualizarr_array((N_CHUNKS, 5, 6), (1, 5, 6), urls, offsets, np.full(grid, 900))


@pytest.fixture(scope="module")
def parts():
    return [ours(i) for i in range(N_PARTS)]


@pytest.fixture(scope="module")
def their_parts():
    return [theirs(i) for i in range(N_PARTS)]


def as_datasets(arrays):
    return [xr.Dataset({"v": (("t", "y", "x"), array)}) for array in arrays]


def concat(datasets):
    return xr.concat(datasets, "t", data_vars="all", coords="minimal", compat="override", join="override")


def test_join_of_manifests(parts, their_parts):
    """1,000 manifests of 1,000 chunks become one array."""
    best = interleaved(
        f"join {N_PARTS} manifests of {N_CHUNKS} chunks: np.concatenate",
        {
            "virtualstack": lambda: np.concatenate(parts, axis=0),
            "VirtualiZarr": lambda: np.concatenate(their_parts, axis=0),
        },
    )
    joined = best["virtualstack"].result
    assert joined.shape == best["VirtualiZarr"].result.shape == (N_PARTS * N_CHUNKS, 5, 6)
    assert joined.in_memory().entries.nbytes == 24 * N_PARTS * N_CHUNKS


def test_join_of_datasets(parts, their_parts):
    """The same through xr.concat."""
    mine, others = as_datasets(parts), as_datasets(their_parts)
    best = interleaved(
        f"join {N_PARTS} datasets of {N_CHUNKS} chunks: xr.concat",
        {"virtualstack": lambda: concat(mine), "VirtualiZarr": lambda: concat(others)},
    )
    assert best["virtualstack"].result.sizes["t"] == N_PARTS * N_CHUNKS


def test_rename(parts, their_parts):
    """New URLs for 10^6 chunks."""
    mine, others = np.concatenate(parts, axis=0), np.concatenate(their_parts, axis=0)
    best = interleaved(
        f"rename the sources of {N_PARTS * N_CHUNKS} chunks",
        {
            "virtualstack": lambda: mine.rename_locations(lambda url: url.replace("bucket", "mirror")),
            "VirtualiZarr": lambda: others.rename_paths(lambda url: url.replace("bucket", "mirror")),
        },
        repeats=2,
    )
    assert best["virtualstack"].result.in_memory().locations[0].url.startswith("s3://mirror/")
