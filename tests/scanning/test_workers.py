"""Lazy datasets in other threads and processes: what users' schedulers do with them."""

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.forks import forking
from tests.servers import RangeServer
from virtualstack.errors import StorageError

STEPS = 12


@pytest.fixture
def archive(tmp_path):
    """References to three files of different codecs, as a path, and the values."""
    rng = np.random.default_rng(0)
    parts = []
    for i in range(3):
        part = xr.Dataset(
            {"v": (("t", "y", "x"), rng.random((STEPS // 3, 40, 30)).astype("f4"))},
            {"t": np.arange(STEPS // 3) + i * (STEPS // 3)},
        )
        part.to_netcdf(
            tmp_path / f"{i}.nc",
            engine="netcdf4",
            encoding={"v": {"zlib": i != 1, "shuffle": i == 2, "chunksizes": (2, 20, 30)}},
        )
        parts.append(part)
    return tmp_path, xr.concat(parts, "t")["v"].values


def lazily(folder, **options):
    cube = xr.concat([vs.open_virtual_dataset(folder / f"{i}.nc") for i in range(3)], "t")
    return cube.virtual.open(**options)


def total(dataset, at):
    return float(dataset["v"].isel(t=at).sum())


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_schedulers_read_the_same(archive, scheduler):
    dask = pytest.importorskip("dask")
    folder, values = archive
    opened = lazily(folder, chunks={})
    with dask.config.set(scheduler=scheduler, num_workers=2):
        np.testing.assert_array_equal(opened["v"].values, values)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tornado")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of workers that ended
def test_a_cluster_reads_the_same(archive):
    distributed = pytest.importorskip("distributed")
    folder, values = archive
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster),
    ):
        np.testing.assert_array_equal(lazily(folder, chunks={"t": 4})["v"].values, values)


@pytest.mark.parametrize("method", [pytest.param("spawn", marks=pytest.mark.apart), "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_processes_read_the_same(archive, method):
    """Also where the parent has read before, with threads that a forked child does not have."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not {method}")
    folder, values = archive
    opened = lazily(folder)
    np.testing.assert_array_equal(opened["v"][:].values, values)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        found = list(pool.map(total, [opened] * STEPS, range(STEPS), timeout=60))
    assert found == [float(plane.sum()) for plane in values]


def test_many_threads_read_one_dataset(archive):
    folder, values = archive
    opened = lazily(folder)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda at: opened["v"].isel(t=at % STEPS).values, range(200)))
    for at, plane in enumerate(found):
        np.testing.assert_array_equal(plane, values[at % STEPS])


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_read_over_http(archive, method):
    """What is needed to reach a server goes along; nothing that is open does."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system does not {method}")
    folder, values = archive
    with RangeServer({f"{i}.nc": (folder / f"{i}.nc").read_bytes() for i in range(3)}) as server:
        cube = xr.concat([vs.open_virtual_dataset(server.url(f"{i}.nc")) for i in range(3)], "t")
        opened = cube.virtual.open()
        assert len(pickle.dumps(opened)) < values.nbytes // 2
        np.testing.assert_array_equal(opened["v"].isel(t=5).values, values[5])
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            found = list(pool.map(total, [opened] * STEPS, range(STEPS), timeout=60))
    assert found == [float(plane.sum()) for plane in values]


@forking
def test_forked_processes_say_that_they_cannot_read_over_http(archive):
    """The parent has read, and its threads do not survive the fork."""
    folder, _ = archive
    with RangeServer({"0.nc": (folder / "0.nc").read_bytes()}) as server:
        opened = vs.open_virtual_dataset(server.url("0.nc")).virtual.open()
        with (
            ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool,
            pytest.raises(StorageError, match="cannot be reached: this process was forked"),
        ):
            pool.submit(total, opened, 0).result(60)


def test_a_pickled_dataset_holds_no_values(archive):
    folder, values = archive
    assert len(pickle.dumps(lazily(folder))) < values.nbytes // 2
