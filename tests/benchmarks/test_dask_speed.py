"""Reading with dask, as ``chunks={}`` asks for, beside reading the same values without it."""

import math

import dask
import h5py
import numcodecs
import numpy as np
import pytest
import xarray as xr
from distributed import Client, LocalCluster

import virtualstack as vs
from tests.benchmarks.reference_cube import CHUNKS, group_of
from tests.benchmarks.timing import IS_FULL, interleaved
from virtualstack.vstack.save import save

N_FILES = 1000 if IS_FULL else 6
GRID = (1000, 100, 10) if IS_FULL else (6, 10, 10)

pytestmark = pytest.mark.filterwarnings("ignore")


def write(path, start, n, n_rows):
    """Write ``n`` times of 240 x 30 values, of which a chunk has ``n_rows`` rows."""
    rng = np.random.default_rng(start)
    with h5py.File(path, "w") as file:
        variable = file.create_dataset(
            "v", (n, 240, 30), "<f4", chunks=(1, n_rows, 30), compression="gzip", shuffle=True
        )
        variable[:] = rng.random((n, 240, 30), dtype="f4").round(2)
        for axis, (name, values) in enumerate(
            {"t": np.arange(start, start + n), "y": range(240), "x": range(30)}.items()
        ):
            file[name] = np.asarray(values, "f8")
            file[name].make_scale(name)
            variable.dims[axis].attach_scale(file[name])


def cube(folder, n_rows):
    """Join files of two times each into a vstack; ``n_rows`` gives the rows of a chunk of each file."""
    folder.mkdir()
    for i, rows in enumerate(n_rows):
        write(folder / f"{i:04}.nc", 2 * i, 2, rows)
    vds = vs.open_virtual_mfdataset(sorted(folder.glob("*.nc")), combine="nested", concat_dim="t")
    vds.virtual.to_vstack(folder / "cube.vstack")
    return folder / "cube.vstack"


@pytest.fixture(scope="module")
def cubes(tmp_path_factory):
    """The same values in chunks of one shape, and in chunks whose rows no common grid fits but that of single rows."""
    folder = tmp_path_factory.mktemp("dask")
    return {
        "alike": cube(folder / "alike", [20] * N_FILES),
        "unlike": cube(folder / "unlike", [(16, 20, 24, 15, 30, 48)[i % 6] for i in range(N_FILES)]),
    }


@pytest.mark.parametrize("chunks", ["alike", "unlike"])
def test_chunks_of_many_files(cubes, chunks):
    """Reading 24,000 chunks of 1,000 files with ``chunks={}`` gives the values that reading without dask gives."""

    def mean(**options):
        with xr.open_dataset(cubes[chunks], engine="virtualstack", **options) as opened:
            return float(opened["v"].mean())

    rivals = {"without dask": mean, "chunks={}": lambda: mean(chunks={})}
    timings = interleaved(f"mean of {N_FILES:,} files, chunks {chunks}", rivals)
    assert math.isclose(timings["without dask"].result, timings["chunks={}"].result, rel_tol=1e-5)


JOBS = {
    "mean": lambda v: v.mean(),
    "point": lambda v: v[:, 90, 10],
    "climatology": lambda v: v.groupby("t.month").mean(),
    "anomaly": lambda v: (v.groupby("t.month") - v.groupby("t.month").mean().compute()).std("t"),
    "rolling": lambda v: v.rolling(t=5).mean().max("t"),
    "rechunk": lambda v: (v.chunk(t=-1, y=60) if v.chunks else v).median("t"),
}


@pytest.fixture(scope="module", params=["threads", "distributed"])
def scheduler(request):
    """Threads of this process, or two workers of a cluster."""
    if request.param == "threads":
        yield request.param
        return
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        yield request.param


@pytest.mark.parametrize("job", JOBS)
def test_what_users_write(job, cubes, scheduler, tmp_path):
    """Reductions along time with ``chunks={}`` beside none, and beside zarr of the same chunks."""
    times = xr.date_range("2001-01-01", periods=2 * N_FILES)

    def run(path, **options):
        with xr.open_dataset(path, **options) as opened:
            return JOBS[job](opened["v"].assign_coords(t=times)).compute()

    copy = tmp_path / "copy.zarr"
    whole = xr.open_dataset(cubes["alike"], engine="virtualstack").load().drop_encoding()
    how = {"chunks": (1, 20, 30), "filters": [numcodecs.Shuffle(4)], "compressors": [numcodecs.Zlib(4)]}
    whole.to_zarr(copy, zarr_format=2, encoding={"v": how})
    found = interleaved(
        f"{job}, {scheduler}",
        {
            "without dask": lambda: run(cubes["alike"], engine="virtualstack", chunks=None),
            "chunks={}": lambda: run(cubes["alike"], engine="virtualstack", chunks={}),
            "zarr, no dask": lambda: run(copy, engine="zarr", chunks=None),
        },
        repeats=3,
    )
    expected = found["zarr, no dask"].result
    for timing in found.values():
        xr.testing.assert_allclose(
            timing.result.drop_vars("t", errors="ignore"), expected.drop_vars("t", errors="ignore")
        )


def test_graph_of_many_chunks(tmp_path):
    """A graph over 10^6 stored chunks has tasks of merged chunks, and one task a chunk if that is asked for."""
    n_chunks = math.prod(GRID)
    offsets = 1000 * np.arange(n_chunks).reshape(GRID)
    urls = [f"file:///archive/{i:04}.nc" for i in range(GRID[0])]
    save(group_of(urls, offsets, np.full(GRID, 400)), tmp_path / "a.vstack")

    tenth = slice(GRID[0] // 10 + 1)

    def open_chunks(times=slice(None), **options):
        cube = xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack", chunks={}, **options)
        (tasks,) = dask.optimize(cube["v"].isel(t=times).data)
        return len(dict(tasks.dask))

    rivals = {"merged": open_chunks, "a tenth, stored": lambda: open_chunks(tenth, task_bytes=0)}
    timings = interleaved(f"graph of {n_chunks:,} chunks of {CHUNKS}", rivals, repeats=2)
    assert timings["a tenth, stored"].result >= n_chunks // 10
    assert timings["merged"].result <= max(2, n_chunks // 1000)
