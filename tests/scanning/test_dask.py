"""A real cluster of dask: two processes on this machine."""

import os
import sys
import threading
import warnings
from unittest.mock import Mock

import pytest

import virtualstack as vs
from tests.scanning.groups import assert_all_same, make
from tests.scanning.readers import Troubled
from tests.servers import RangeServer
from virtualstack.errors import MissingDependencyError, ReaderError
from virtualstack.scanning import workers as working
from virtualstack.scanning.job import call_within

distributed = pytest.importorskip("distributed", reason="needs distributed: pip install 'virtualstack[dask]'")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:tornado"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of workers that died
]

N = 40


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def files(tmp_path):
    return [make(tmp_path / f"f{i:02}.h5", i) for i in range(N)]


@pytest.mark.parametrize("executor", ["client", "dask", "its executor"])
def test_a_cluster_gives_the_same_groups_in_order(client, files, executor):
    seen = []
    result = vs.scan(
        files,
        executor={"client": client, "its executor": client.get_executor()}.get(executor, executor),
        progress=lambda done, total: seen.append(done),
    )
    assert seen == list(range(1, N + 1))
    assert_all_same(vs.scan(files), result)


def test_options_of_storage_reach_the_cluster_and_go_with_the_groups(client, files):
    with RangeServer(files[0].parent, mode="refuse_anonymous") as server:
        urls = [server.url(path.name) for path in files]
        storage = {server.root: {"headers": {"Authorization": "letmein"}}}
        result = vs.scan(urls, executor=client, storage=storage)
        assert result.urls == tuple(urls)
        assert all(
            group["x"].access.find(url)[1] == storage[server.root] for url, group in zip(urls, result, strict=True)
        )


def test_errors_are_listed_or_raised(client, files, tmp_path):
    bad = [make(tmp_path / name) for name in ("bug.h5", "odd.h5")]
    given = [*files[:5], *bad, tmp_path / "gone.h5", *files[5:]]
    result = vs.scan(given, reader=Troubled(), executor=client, on_error="skip")
    assert len(result) == N
    assert result.failures.error.tolist() == ["KeyError", "ReaderError", "SourceNotFoundError"]
    with pytest.raises(KeyError, match="a bug"):
        vs.scan(given, reader=Troubled(), executor=client)


def test_a_reader_that_exits_ends_the_scan_and_not_the_cluster(client, files, tmp_path):
    """A task of dask that exits would never come to its end."""
    quitter = make(tmp_path / "exit.h5")
    with pytest.raises(SystemExit, match="3"):
        vs.scan([*files, quitter], reader=Troubled(), executor=client, on_error="skip")
    assert len(vs.scan(files, executor=client)) == N


def test_a_file_that_takes_too_long_is_listed(client, files, tmp_path):
    hanging = make(tmp_path / "hang.h5")
    given = [*files[:5], hanging, *files[5:]]
    result = vs.scan(given, reader=Troubled(), executor=client, on_error="skip", timeout=1)
    assert result.failures.url.str.endswith("hang.h5").tolist() == [True]
    assert len(result) == N


def test_a_second_scan_uses_the_cache(client, files, tmp_path):
    first = vs.scan(files, executor=client, cache=tmp_path / "cache")
    for path in files:
        path.unlink()
    assert_all_same(first, vs.scan(files, executor=client, cache=tmp_path / "cache", recheck=False))


@pytest.mark.apart
@pytest.mark.filterwarnings("ignore:the dask cluster of this scan has had no workers")  # until new ones are there
def test_a_worker_that_dies_loses_its_file_alone(client, files, tmp_path):
    """Dask tries a task on some workers before it gives it up; the cluster lives on."""
    killer = make(tmp_path / "killer.h5")
    given = [*files[:10], killer, *files[10:]]
    try:
        result = call_within(
            180, lambda: vs.scan(given, reader=Troubled(parent=os.getpid()), executor=client, on_error="skip")
        )
    except TimeoutError:
        if client.nthreads():
            raise
        pytest.skip("the cluster has no workers any more: this machine is too busy to start them in time")
    assert [url.rpartition("/")[2] for url in result.urls] == [path.name for path in files]
    assert result.failures.url.str.endswith("killer.h5").tolist() == [True]
    assert "KilledWorker" in result.failures.message[0]
    assert len(vs.scan(files, executor=client)) == N


def small_cluster(n_workers=1):
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    )


def test_a_client_that_is_closed_is_told(files):
    with small_cluster() as cluster:
        closed = distributed.Client(cluster)
        closed.close()
        with pytest.raises(ReaderError, match=r"could not be started .*its executor or cluster was shut down"):
            vs.scan(files, executor=closed)
        assert len(vs.scan(files, executor=closed, on_error="skip").errors) == N


def test_a_client_that_is_closed_during_a_scan_ends_it_and_keeps_what_was_done(files):
    with small_cluster() as cluster:
        client = distributed.Client(cluster)
        result = call_within(
            60, lambda: vs.scan(files, executor=client, on_error="skip", progress=lambda done, total: client.close())
        )
    assert len(result) + len(result.errors) == N
    assert len(result) > 0
    assert result.failures.message.str.contains("was shut down").all()


def test_a_cluster_that_lost_its_workers_is_told_once_and_waited_for(files, monkeypatch):
    module = pytest.importorskip("virtualstack.scanning.dask")
    monkeypatch.setattr(module, "_MAX_IDLE_SECONDS", 0.5)
    monkeypatch.setattr(working, "_WATCH_SECONDS", 0.1)
    found = []
    with small_cluster() as cluster, distributed.Client(cluster) as client, warnings.catch_warnings():
        late = threading.Timer(60, cluster.scale, [1])  # only if nothing is told

        def lose(done, total):
            if done == 1:
                cluster.scale(0)
                late.start()

        def told(message, *more, **named):
            if "has had no workers" in str(message):
                found.append(str(message))
                threading.Timer(1.5, cluster.scale, [1]).start()  # by then it would be told again

        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", told)
        assert len(vs.scan(files, executor=client, progress=lose)) == N
        late.cancel()
    assert len(found) == 1
    assert "press Ctrl-C" in found[0]


def test_a_cluster_whose_workers_are_still_to_come_is_no_matter(files, monkeypatch):
    module = pytest.importorskip("virtualstack.scanning.dask")
    monkeypatch.setattr(module, "_MAX_IDLE_SECONDS", 0.1)
    monkeypatch.setattr(working, "_WATCH_SECONDS", 0.1)
    with small_cluster(n_workers=0) as cluster, distributed.Client(cluster) as client:
        threading.Timer(2, cluster.scale, [1]).start()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert len(vs.scan(files, executor=client)) == N
    assert not [x for x in said if "has had no workers" in str(x.message)]


def test_without_a_client_dask_says_how_to_make_one(files, monkeypatch):
    module = pytest.importorskip("virtualstack.scanning.dask")
    monkeypatch.setattr(module, "default_client", Mock(side_effect=ValueError("No clients found")))
    with pytest.raises(ValueError, match=r"Create one first, client = distributed\.Client\(\)"):
        vs.scan(files, executor="dask")


def test_without_distributed_the_extra_is_named(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "virtualstack.scanning.dask", raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'virtualstack\[dask\]'$"):
        vs.scan(files, executor="dask")
