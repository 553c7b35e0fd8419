"""How many cells operations leave: chunks are cut where they must be, and nowhere else."""

import tracemalloc

import numpy as np
import pytest

from virtualstack.errors import ManifestError
from virtualstack.manifests import (
    MISSING,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    reindex,
    why_not_plain,
)
from virtualstack.manifests.taking import _runs


def array(shape=(100, 40, 60), chunks=(10, 20, 20), url="file:///a.nc"):
    grid = ChunkGrid.regular(shape, chunks)
    manifest = ChunkManifest.from_arrays(
        np.arange(np.prod(grid.shape)).reshape(grid.shape) * 1000,
        np.full(grid.shape, 900),
        location=url,
        encoding=ChunkEncoding.of("<i2", chunks),
        fill=Fill.of(0, "<i2"),
    )
    return ManifestArray(manifest=manifest, grid=grid, dtype=np.dtype("i2"), name="/v")


def test_runs_inside_a_chunk_are_one_cell():
    """Of any step, also backwards and repeated."""
    v = array()
    assert v[np.r_[0:10, 30:40]].grid.shape == (2, 2, 3)
    assert v[np.r_[3:25, 60:62]].grid.shape == (4, 2, 3)
    assert v[np.array([9, 7, 5, 12, 15, 18, 40, 40, 40])].grid.shape == (3, 2, 3)
    assert v[:, np.arange(40) % 4 == 1].grid.shape == (10, 2, 3)
    assert why_not_plain(v[np.r_[0:10, 30:40]]) is None
    assert v[np.r_[0:50, 50:100]].equals(v)


@pytest.mark.parametrize("seed", range(40))
def test_runs_are_as_long_as_a_greedy_search_finds(seed):
    """The vectorised search against the plain one: each run takes all that it can."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([-2, -1, 0, 1, 1, 1, 2, 5], rng.integers(1, 60))
    index = np.cumsum(np.append(100, np.repeat(steps, rng.choice([1, 1, 2, 3], steps.size))))
    cell = index // rng.integers(3, 50)
    begin = [0]
    for i in range(1, index.size):
        in_run = i - begin[-1]
        is_new = cell[i] != cell[i - 1] or (in_run > 1 and index[i] - index[i - 1] != index[i - 1] - index[i - 2])
        if is_new:
            begin.append(i)
    assert _runs(np.diff(index), cell[1:] != cell[:-1]).tolist() == begin


def test_a_hole_is_one_cell_however_long():
    """Reindexing to 10^9 elements takes no memory for them; the holes keep what they are."""
    tracemalloc.start()
    wanted = np.full(1_000_000, -1)
    wanted[500_000:500_100] = np.arange(100)
    made = reindex(array(), {0: wanted}, -9, code=MISSING)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert made.shape == (1_000_000, 40, 60)
    assert made.grid.shape == (12, 2, 3)
    assert made.manifest.summary().n_missing == 12
    assert made[500_000:500_100].equals(array())
    assert made.in_memory().fill.value == 0
    assert made[0, 0, 0].in_memory().compact().fills[-1].value == -9
    assert peak < 100e6
    with pytest.raises(IndexError, match="positions from 0 to 100 are out of bounds for axis 0 of 100"):
        reindex(array(), {0: np.array([0, 100])}, 0)
    with pytest.raises(ManifestError, match="does not fit dtype 'int16'"):
        reindex(array(), {0: np.array([0, -1])}, np.nan)


def test_conditions_cut_only_where_they_change():
    """A condition along one axis leaves the others whole; one that is true everywhere cuts nothing."""
    v, w = array(), array(url="file:///b.nc")
    t = np.arange(100)[:, None, None]
    assert np.where(np.broadcast_to(t < 50, v.shape), v, w).grid.shape == (10, 2, 3)
    assert np.where(np.broadcast_to(t < 55, v.shape), v, w).grid.shape == (11, 2, 3)
    assert np.where(t < 200, v, w).equals(v)
    assert np.where(t < 200, v, w).grid == v.grid
    assert np.where(t < 0, v, w).equals(w)


def test_padding_by_whole_chunks_stays_regular():
    """And plain, where holes read as the array's own fill value."""
    padded = np.pad(array(), [(20, 30), (0, 0), (0, 20)])
    assert padded.grid == ChunkGrid.regular((150, 40, 80), (10, 20, 20))
    assert why_not_plain(padded) is None
    assert why_not_plain(np.pad(array(), 10, constant_values=1)) == "holes have other fill values than the array"
    assert np.pad(array(), [(0, 10**9), (0, 0), (0, 0)]).grid.shape[0] == 11


def test_reshape_keeps_whole_chunks_whole():
    """Merging axes whose chunks are whole rows cuts nothing, nor does splitting on chunk lines."""
    v = array(chunks=(10, 40, 60))
    assert np.reshape(v, (100, 2400)).grid.shape == (10, 1)
    assert np.reshape(v, -1).grid.shape == (10,)
    assert np.reshape(array(), (10, 10, 40, 60)).grid.shape == (10, 1, 2, 3)
    assert np.reshape(np.reshape(array(), (10, 10, 40, 60)), (100, 40, 60)).equals(array())
    assert np.reshape(array(), (100, 2, 20, 60)).grid.shape == (10, 2, 1, 3)
    assert np.reshape(array(), (100, 2400)).grid.shape == (10, 120)


def test_what_was_cut_and_joined_is_as_it_was():
    """Lines at seams that divide nothing go, and the grid is regular again."""
    v = array()
    for cut in (1, 10, 15, 99):
        joined = np.concatenate([v[:cut], v[cut:]])
        assert joined.grid == v.grid
        assert why_not_plain(joined) is None
    assert np.roll(np.roll(v, 7, 0), -7, 0).grid == v.grid
    holes = ManifestArray(
        manifest=ChunkManifest.empty((10,), Fill.zero("i2")),
        grid=ChunkGrid.regular((100,), (10,)),
        dtype=np.dtype("i2"),
    )
    assert np.concatenate([holes[:50], holes[50:]]).grid == holes.grid
