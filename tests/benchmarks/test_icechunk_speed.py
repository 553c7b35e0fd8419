"""Writing references to Icechunk beside its own call for arrays; run with VIRTUALSTACK_BENCHMARK=full for 10^6."""

import numpy as np
import pytest
import zarr

from tests.benchmarks.reference_cube import CHUNKS, group_of
from tests.benchmarks.timing import IS_FULL, interleaved
from virtualstack.icechunk.append import to_icechunk
from virtualstack.icechunk.reader import read_session

icechunk = pytest.importorskip("icechunk", reason="Icechunk is not installed: pip install 'virtualstack[icechunk]'")

GRID = (1000, 100, 10) if IS_FULL else (5, 4, 3)
SHAPE = (GRID[0], GRID[1] * 10, GRID[2] * 10)
PREFIX = "s3://bucket/"


def test_write():
    """All references of a variable into an empty session: metadata, and one call for its chunks."""
    rng = np.random.default_rng(0)
    urls = [f"{PREFIX}model/output/file-{i:06d}.nc" for i in range(GRID[0])]
    offsets, lengths = rng.integers(0, 2**40, GRID), rng.integers(1000, 100_000, GRID)
    group = group_of(urls, offsets, lengths)

    def ours():
        store = session().store
        to_icechunk(group, store)
        return store

    def theirs():
        store = session().store
        zarr.create_array(
            store,
            name="v",
            shape=SHAPE,
            chunks=CHUNKS,
            dtype="f4",
            compressors=None,
            fill_value=np.nan,
            dimension_names=("t", "y", "x"),
        )
        store.set_virtual_refs_arr(
            "v",
            GRID,
            [url for url in urls for _ in range(GRID[1] * GRID[2])],
            offsets.reshape(-1).astype("u8"),
            lengths.reshape(-1).astype("u8"),
        )
        return store

    results = interleaved(
        f"write {np.prod(GRID)} references to Icechunk",
        {"virtualstack": ours, "set_virtual_refs_arr": theirs},
        repeats=9,
    )
    mine, other = (read_session(timing.result, "")["v"].in_memory() for timing in results.values())
    np.testing.assert_array_equal(mine.entries, other.entries)
    assert mine.locations == other.locations


def session():
    """Give a session of a new repository in memory."""
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(PREFIX, icechunk.s3_store(region="us-east-1")))
    return icechunk.Repository.create(icechunk.in_memory_storage(), config).writable_session("main")
