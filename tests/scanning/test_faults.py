"""A server that fails now and then: the scan completes, names the bad files, and the next one touches those alone."""

import errno
import itertools
import random
import time
from collections import Counter
from unittest.mock import Mock

import h5py
import numpy as np
import pytest

import virtualstack as vs
from tests.latency_server import LatencyServer
from tests.scanning.groups import assert_all_same, assert_same, make
from tests.servers import RangeServer
from virtualstack.errors import AccessDeniedError, MalformedFileError, SourceNotFoundError, StorageError
from virtualstack.scanning import one
from virtualstack.scanning.job import with_retries
from virtualstack.scanning.one import is_transient, retry
from virtualstack.storage import Storage

N = 80


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of which most take more than one request, and the bad ones."""
    folder = tmp_path_factory.mktemp("archive")
    for i in range(N):
        path = make(folder / f"f{i:03}.h5", i)
        if i % 4:
            with h5py.File(path, "a") as file:
                file["y"] = np.random.default_rng(i).normal(size=10_000)
                file.create_dataset("z", data=np.arange(9), chunks=(3,))
    (folder / "f010.h5").write_bytes((folder / "f010.h5").read_bytes()[:700])
    (folder / "f020.h5").unlink()
    return folder


SOON, AT_ONCE = {"retry_timeout": 5}, {"retry_timeout": 1}


class Faulty:
    """5 % are busy, 1 % are cut short, 2 % take long; one file is never served, one always cut, one forbidden."""

    def __init__(self):
        self.always = {"f030.h5": 503, "f040.h5": "cut", "f050.h5": 403}
        hundred = [503] * 5 + ["cut"] + [0.5] * 2 + [None] * 92
        random.Random(3).shuffle(hundred)
        self.drawn = itertools.cycle(hundred)
        self.is_calm = False
        self.seen = Counter()

    def __call__(self, path):
        if path in self.always or self.is_calm:
            return self.always.get(path)
        fault = next(self.drawn)
        self.seen[fault] += 1
        return fault


BAD = {
    "f010.h5": "MalformedFileError",
    "f020.h5": "SourceNotFoundError",
    "f030.h5": "StorageError",
    "f040.h5": "StorageError",
    "f050.h5": "AccessDeniedError",
}


def requests_by_file(server):
    return Counter(path.split("/")[1] for _, path, *_ in server.log)


def test_a_faulty_server(folder, tmp_path):
    """The next scan asks for what failed alone, and with ``recheck`` whether the others have changed."""
    names = [f"f{i:03}.h5" for i in range(N)]
    with RangeServer(folder, fault=Faulty()) as server:
        urls = [server.url(name) for name in names]
        result = vs.scan(urls, on_error="skip", cache=tmp_path / "cache", storage={server.root: SOON})
        found = {url.rpartition("/")[2]: error for url, error, _ in result.failures.to_numpy()}
        assert found == BAD
        assert list(result.urls) == [url for url in urls if url.rpartition("/")[2] not in BAD]
        first = requests_by_file(server)
        assert all(server.fault.seen[fault] for fault in (503, "cut", 0.5))
        assert sum(first[name] > 2 for name in names if name not in BAD) >= 3  # asked again, and they came

        server.fault.is_calm = True
        for recheck in (False, True):
            server.reset()
            options = {"cache": tmp_path / "cache", "recheck": recheck, "storage": {server.root: AT_ONCE}}
            again = vs.scan(urls, on_error="skip", **options)
            seen = requests_by_file(server)
            assert {name for name, n in seen.items() if n > 1 or not recheck} >= {"f030.h5", "f040.h5"}
            if recheck:
                assert all(seen[name] == 1 for name in names if name not in BAD)
            else:
                assert seen.keys() == BAD.keys()
            assert again.failures.error.tolist() == result.failures.error.tolist()
            assert_all_same(result, again)
        for url, group in zip(result.urls[:8], result, strict=False):
            assert_same(vs.scan([url])[0], group)


# -- how often is asked again -------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("fault", [503, 429, "cut"])
def test_a_request_is_repeated_as_often_as_said(folder, retries, fault):
    """By obstore alone, and not again by the scan."""
    with RangeServer(folder, fault=lambda path: fault) as server, pytest.raises(StorageError):
        vs.scan([server.url("f001.h5")], retries=retries)
    assert server.n_requests == 1 + retries


def test_a_short_answer_is_repeated_by_the_scan(folder):
    """Obstore takes it for an answer."""
    with RangeServer(folder, mode="short_range") as server:
        with pytest.raises(StorageError, match="Requested"):
            vs.scan([server.url("f001.h5")], retries=2)
        assert server.n_requests == 3
        server.reset()
        changed = []

        def mend(path):
            changed.append(path)
            server.mode = "short_range" if len(changed) < 3 else "normal"

        server.fault = mend
        assert len(vs.scan([server.url("f001.h5")])) == 1


@pytest.mark.parametrize(
    ("fault", "error"), [(404, SourceNotFoundError), (403, AccessDeniedError), (401, AccessDeniedError)]
)
def test_what_stays_so_is_asked_once(folder, fault, error):
    """Nothing else is asked for: folders of stores have no names of single files."""
    with RangeServer(folder, fault=lambda path: fault) as server, pytest.raises(error, match=r"f001\.h5'") as caught:
        vs.scan([server.url("f001.h5")])
    assert type(caught.value) is error
    assert [path for _, path, *_ in server.log] == ["/f001.h5"]


def test_a_damaged_file_is_asked_for_once(folder):
    with RangeServer(folder) as server, pytest.raises(MalformedFileError, match=r"f010\.h5"):
        vs.scan([server.url("f010.h5")])
    assert server.n_requests == 1


def test_options_of_storage_say_it_first(folder):
    with RangeServer(folder, fault=lambda path: 503) as server, pytest.raises(StorageError):
        vs.scan([server.url("f001.h5")], retries=9, storage={server.root: {"max_retries": 1}})
    assert server.n_requests == 2


def test_many_retries_get_the_time_that_they_take():
    url, other = "https://host/a.nc", "s3://bucket/a.nc"
    storage = Storage.from_option({"s3://bucket/": {"region": "x", "retry_timeout": 7}})
    patient = with_retries(storage, [url, other, "file:///a.nc", "memory://a"], 50)
    assert patient.find(url)[1] == {"max_retries": 50, "retry_timeout": 150.0}
    assert patient.find(other)[1] == {"max_retries": 50, "retry_timeout": 7, "region": "x"}
    assert patient.find("file:///a.nc")[1] is None
    assert storage.find(url)[1] is None


def test_a_fsspec_filesystem_is_asked_again(folder):
    fsspec = pytest.importorskip("fsspec")
    faults = iter([None, 503, 503])  # of the first request fsspec says that there is no such file
    with RangeServer(folder, fault=lambda path: next(faults, None)) as server:
        filesystem = fsspec.filesystem("http", skip_instance_cache=True)
        assert len(vs.scan([server.url("f001.h5")], storage={server.root: filesystem})) == 1


def test_pauses_grow(monkeypatch):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(one.random, "uniform", lambda low, high: (low + high) / 2)
    with pytest.raises(StorageError, match="but 4 came"):
        retry(Mock(side_effect=StorageError("'a': 5 bytes were requested, but 4 came", is_short=True)), 9)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def raised_from(cause, message="it failed"):
    error = StorageError(message)
    error.__cause__ = cause
    return error


class Answered(Exception):
    def __init__(self, status):
        super().__init__()
        self.status = status


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (raised_from(TimeoutError()), True),
        (raised_from(ConnectionResetError()), True),
        (raised_from(Answered(503)), True),
        (raised_from(Answered(400)), False),
        (raised_from(OSError(errno.ESTALE, "stale")), True),
        (raised_from(OSError(errno.ENOSPC, "full")), False),
        (raised_from(None), False),
        (SourceNotFoundError("there is nothing", is_short=True), False),
        (StorageError("5 bytes were requested, but 4 came", is_short=True), True),
        (StorageError("5 bytes were requested, but 4 came"), False),
    ],
)
def test_which_errors_may_pass(error, expected):
    assert is_transient(error) == expected


def test_what_obstore_repeated_is_not_repeated(folder):
    """Though what it raises was a time-out or a broken connection first."""
    with RangeServer(folder, mode="hang") as server, pytest.raises(StorageError) as caught:
        Storage.from_option({server.root: {"read_timeout": "0.2s", "max_retries": 0}}).source(server.url("f001.h5"))
    assert not is_transient(caught.value)


# -- many at a time -----------------------------------------------------------------------------------------------


def test_remote_files_are_read_many_at_a_time(folder):
    names = [f"f{i:03}.h5" for i in range(N) if f"f{i:03}.h5" not in BAD]
    with LatencyServer(folder, latency=0.1) as server:
        result = vs.scan([server.url(name) for name in names])
        assert server.traffic().most_at_once > 20
    assert len(result) == len(names)
