"""Segments on a cluster whose workers share nothing but a bucket: what dies or hangs costs nothing else."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from tests.vstack import syncing

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.apart,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tornado"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of workers that died
]

N = 60


@pytest.fixture
def files(s3):
    """Put the files of sixty days into the bucket."""
    with tempfile.TemporaryDirectory() as folder:
        for day in range(N):
            path = Path(folder, f"day{day:02}.nc")
            rain = ("f8", "time x", np.arange(4.0).reshape(1, 4) + day, {}, {"zlib": True})
            netcdf4_file(path, {"time": None, "x": 4}, {"time": ("i4", "time", [day], {}), "rain": rain})
            s3.put(f"cluster/{path.name}", path.read_bytes())
    return {"s3://bucket/": s3.options}


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_cluster_loses_nothing(n_workers, files, s3, monkeypatch):
    """One file ends its worker, one hangs; one worker is killed, and one of two is stopped for good."""
    signals = [signal.SIGKILL, signal.SIGSTOP][:n_workers]
    monkeypatch.setattr("virtualstack.vstack.segments.N_FILES", 8)
    monkeypatch.setattr("virtualstack.vstack.sync.N_FILES", 8)
    body = s3.client.get_object(Bucket="bucket", Key="cluster/day59.nc")["Body"].read()
    for name in ("kill", "hang"):
        s3.put(f"cluster/{name}.nc", body)
    pattern, function = "s3://bucket/cluster/*.nc", "tests.vstack.recipes:deadly"
    url, recipe = f"s3://bucket/cluster{n_workers}.vstack", vs.Recipe([pattern], dim="time", preprocess=function)
    done = []
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-ttl": "10s"}
    with (
        dask.config.set(settings),
        distributed.LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):

        def harm():
            for number in signals:
                time.sleep(3)
                pids = list(client.run(os.getpid).values())
                done.append(number)
                os.kill(pids[0], number)

        thread = threading.Thread(target=harm, daemon=True)
        thread.start()
        made = vs.Repository.build(url, recipe, storage=files, executor=client, timeout=8)
        thread.join()
        assert done == signals
    assert len(made.placed) == N
    assert sorted(x.rpartition("/")[2] for x, _ in made.quarantined) == ["hang.nc", "kill.nc"]
    cube = made.repository.open_dataset()
    np.testing.assert_array_equal(cube["rain"].values, np.arange(4.0) + np.arange(N)[:, None])
    assert not s3.client.list_objects_v2(Bucket="bucket", Prefix=f"cluster{n_workers}.vstack/.vstack/incoming")[
        "KeyCount"
    ]


def test_eight_writers(files):
    """Each process opens other files, and commits what is ready; commits of others come between."""
    url, recipe = "s3://bucket/eight.vstack", vs.Recipe(["s3://bucket/cluster/day*.nc"], dim="time")
    vs.Repository.build(url, vs.Recipe(["s3://bucket/cluster/day00.nc"], dim="time"), storage=files)
    with ProcessPoolExecutor(8, mp_context=syncing.CONTEXT) as pool:
        made = [pool.submit(syncing.segment_and_commit, n, 8, url, recipe, files) for n in range(1, 9)]
        assert max(x.result() for x in made) >= 1
    done = vs.Repository.open(url, storage=files).sync(sample=0)
    assert done.repository.ledger().counts == {"placed": N}
    np.testing.assert_array_equal(done.repository.open_dataset()["rain"].values[:, 0], np.arange(N))
