"""Joining and renaming manifests beside VirtualiZarr; run with VIRTUALSTACK_BENCHMARK=full for the real sizes."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray

sys.path.insert(0, str(Path(__file__).parent))
from timing import IS_FULL, interleaved

N_PARTS, N_CHUNKS = (1000, 1000) if IS_FULL else (5, 7)
needs_virtualizarr = pytest.mark.skipif(
    importlib.util.find_spec("virtualizarr") is None, reason="VirtualiZarr is not installed: pip install virtualizarr"
)


def ours(i: int) -> ManifestArray:
    grid = ChunkGrid.regular((N_CHUNKS, 5, 6), (1, 5, 6))
    manifest = ChunkManifest.from_arrays(
        np.arange(N_CHUNKS).reshape(grid.shape) * 100,
        np.full(grid.shape, 100),
        location=f"s3://bucket/model/output/file-{i:06d}.nc",
        encoding=ChunkEncoding.c_order("<f4", (1, 5, 6)),
        fill=Fill.from_value(0, "f4"),
    )
    return ManifestArray(manifest=manifest, grid=grid, dtype=np.dtype("f4"), name="v")


def theirs(i: int):
    from virtualizarr.manifests import ChunkManifest as TheirManifest
    from virtualizarr.manifests import ManifestArray as TheirArray
    from virtualizarr.manifests.utils import create_v3_array_metadata

    shape = (N_CHUNKS, 1, 1)
    manifest = TheirManifest.from_arrays(
        paths=np.full(shape, f"s3://bucket/model/output/file-{i:06d}.nc", np.dtypes.StringDType()),
        offsets=(np.arange(N_CHUNKS, dtype="u8") * 100).reshape(shape),
        lengths=np.full(shape, 100, "u8"),
    )
    metadata = create_v3_array_metadata(
        shape=(N_CHUNKS, 5, 6), data_type=np.dtype("f4"), chunk_shape=(1, 5, 6), fill_value=0.0, codecs=[]
    )
    return TheirArray(metadata=metadata, chunkmanifest=manifest)


@pytest.fixture(scope="module")
def parts():
    return [ours(i) for i in range(N_PARTS)]


@pytest.fixture(scope="module")
def their_parts():
    pytest.importorskip("virtualizarr")
    return [theirs(i) for i in range(N_PARTS)]


def as_datasets(arrays):
    return [xr.Dataset({"v": (("t", "y", "x"), array)}) for array in arrays]


def concat(datasets):
    return xr.concat(datasets, "t", data_vars="all", coords="minimal", compat="override", join="override")


@needs_virtualizarr
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


@needs_virtualizarr
def test_join_of_datasets(parts, their_parts):
    """The same through xr.concat."""
    mine, others = as_datasets(parts), as_datasets(their_parts)
    best = interleaved(
        f"join {N_PARTS} datasets of {N_CHUNKS} chunks: xr.concat",
        {"virtualstack": lambda: concat(mine), "VirtualiZarr": lambda: concat(others)},
    )
    assert best["virtualstack"].result.sizes["t"] == N_PARTS * N_CHUNKS


@needs_virtualizarr
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
