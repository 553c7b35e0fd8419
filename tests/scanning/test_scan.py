"""Many files with many kinds of workers: the same groups, in order, and no file is lost."""

import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from unittest.mock import Mock

import h5py
import numpy as np
import pytest
import zarr
from obstore.store import MemoryStore

import virtualstack as vs
from tests.scanning.groups import assert_all_same, make
from tests.scanning.readers import Backwards, Noting, Troubled
from tests.servers import RangeServer
from virtualstack.errors import MalformedFileError, ReaderError, StorageError, UnknownFormatError
from virtualstack.readers import ReadOptions
from virtualstack.scanning.job import Job
from virtualstack.scanning.workers import find_workers
from virtualstack.storage import Storage, open_source

N = 7


@pytest.fixture
def files(tmp_path):
    return [make(tmp_path / f"f{i}.h5", i) for i in range(N)]


@pytest.fixture(scope="module")
def pool():
    """Two processes for the whole module: they take a second to start."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def threads():
    with ThreadPoolExecutor(3) as executor:
        yield executor


@pytest.fixture(params=[None, "threads", "given processes"])
def executor(request):
    return request.getfixturevalue("pool") if request.param == "given processes" else request.param


def names(result):
    return [url.rpartition("/")[2] for url in result.urls]


# -- the same with all workers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [None, "threads", "given threads", "given processes"])
def test_all_workers_give_the_same_groups_in_order(files, pool, threads, executor):
    wanted = [vs.scan([path])[0] for path in files]
    given = {"given threads": threads, "given processes": pool}.get(executor, executor)
    result = vs.scan(files, executor=given)
    assert names(result) == [path.name for path in files]
    assert result.failures.empty
    assert_all_same(wanted, result)


@pytest.mark.slow
def test_processes_of_our_own_give_the_same(files):
    assert_all_same(vs.scan(files), vs.scan(files, executor="processes"))


def test_an_executor_that_is_given_stays_open(files, threads):
    vs.scan(files, executor=threads)
    assert threads.submit(int, "3").result() == 3


def test_no_files_are_no_groups(executor):
    assert len(vs.scan([], executor=executor)) == 0


def test_one_file_is_read_in_this_thread_and_many_remote_ones_are_not(files):
    def workers(urls, cache=None):
        job = Job(reader=None, storage=Storage.from_option(), options=ReadOptions(), retries=0, cache=cache)
        found = find_workers(None, job, urls)
        if found is not None:
            found.close(is_idle=True)
        return found

    assert workers(["s3://bucket/a"]) is None
    assert workers(["file:///a", "file:///b"]) is None
    many = workers([f"s3://bucket/{i}" for i in range(100)])
    assert (many.task_length, many.is_here, many.n_tasks) == (1, True, 64)


def test_the_repr_of_a_result(files, tmp_path):
    bad = tmp_path / "bad.nc"
    bad.write_bytes(b"nonsense")
    result = vs.scan([files[0], bad, files[1]], on_error="skip")
    assert repr(result) == "ScanResult(2 groups, 1 failed)"
    part = result[1:]
    assert names(part) == ["f1.h5"]
    assert part[0] is result[1]
    assert part.failures.equals(result.failures)


# -- errors -------------------------------------------------------------------------------------------------------


@pytest.fixture
def troubled(tmp_path, files):
    """Files among which some are no files, and some make the reader fail in its own way."""
    (tmp_path / "bad.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    for name in ("bug.h5", "odd.h5", "closure.h5"):
        make(tmp_path / name)
    return [*files[:3], *(tmp_path / f"{name}.h5" for name in ("bad", "bug", "gone", "odd", "closure")), *files[3:]]


WORDS = {
    "bad.h5": ("MalformedFileError", "truncated, damaged or not an HDF5 file"),
    "bug.h5": ("KeyError", "a bug"),
    "gone.h5": ("SourceNotFoundError", "there is no file at"),
    "odd.h5": ("OddError", "1 and 2"),
}
WORDS_OF_PROCESSES = WORDS | {
    "odd.h5": ("ReaderError", r"odd.h5': its reader returned OddError('1 and 2')"),
    "closure.h5": ("ReaderError", "its reader returned a group that does not pickle"),
}


def test_whatever_goes_wrong_is_listed_under_its_file(troubled, files, executor):
    result = vs.scan(troubled, reader=Troubled(), executor=executor, on_error="skip")
    words = WORDS_OF_PROCESSES if isinstance(executor, Executor) else WORDS
    found = {url.rpartition("/")[2]: (error, message) for url, error, message in result.failures.to_numpy()}
    assert found.keys() == words.keys()
    for name, (error, message) in words.items():
        assert found[name][0] == error
        assert message in found[name][1]
    assert {path.name for path in files} <= set(names(result))


def test_the_first_error_in_order_is_raised_though_others_are_earlier(tmp_path, executor):
    paths = [make(tmp_path / f"f{i}.h5", i) for i in range(10)]
    before = threading.active_count()
    seen = []
    with pytest.raises(ValueError, match="number 2") as caught:
        vs.scan(paths, reader=Backwards(seconds=0.02), executor=executor, progress=lambda *args: seen.append(args))
    assert any("f2.h5' was scanned" in note for note in caught.value.__notes__)
    assert len(seen) <= 2
    if executor == "threads":
        for _ in range(100):  # those that run come to their end
            if threading.active_count() <= before:
                break
            time.sleep(0.02)
        assert threading.active_count() <= before


def test_after_an_error_nothing_new_is_begun(tmp_path):
    paths = [make(tmp_path / f"f{i}.h5", i) for i in range(100)]
    paths[3].write_bytes(b"\x89HDF\r\n\x1a\n")
    log = tmp_path / "log"
    with ThreadPoolExecutor(2) as executor, pytest.raises(MalformedFileError, match=r"f3\.h5"):
        vs.scan(paths, reader=Noting(log=str(log)), executor=executor)
    assert 4 <= len(log.read_text().split()) < 60


@pytest.mark.slow
def test_a_worker_that_dies_loses_its_file_alone(tmp_path, files):
    """Two files end the process that reads them; the others, under way at the same time, are read all the same."""
    killers = [make(tmp_path / f"killer{i}.h5") for i in range(2)]
    given = [*files[:2], killers[0], *files[2:5], killers[1], *files[5:]]
    result = vs.scan(given, reader=Troubled(parent=os.getpid()), executor="processes", on_error="skip")
    assert names(result) == [path.name for path in files]
    assert [url.rpartition("/")[2] for url in result.failures.url] == ["killer0.h5", "killer1.h5"]
    assert set(result.failures.error) == {"ReaderError"}
    assert result.failures.message.str.contains("the task that scanned it ended with its worker").all()


@pytest.mark.slow
def test_a_given_pool_that_breaks_is_replaced(tmp_path, files):
    killer = make(tmp_path / "killer.h5")
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        with pytest.raises(ReaderError, match=r"killer\.h5': the task that scanned it ended with its worker"):
            vs.scan([*files[:2], killer, *files[2:]], reader=Troubled(parent=os.getpid()), executor=executor)
        result = vs.scan(files, executor=executor)  # it is broken now, and says so when it is given work
    assert names(result) == [path.name for path in files]


class Flaky(Executor):
    """Loses each task of several sources."""

    def submit(self, function, job, urls):
        future = Future()
        if len(urls) > 1 or urls[0].endswith("lost.h5"):
            future.set_exception(OSError("no more"))
        else:
            future.set_result(function(job, urls))
        return future


class Cancelling(Executor):
    """Cancels each task."""

    def submit(self, function, job, urls):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


class Forgetting(Executor):
    """Gives nothing for each task."""

    def submit(self, function, job, urls):
        future = Future()
        future.set_result(None)
        return future


def test_what_an_executor_made_up_is_listed(files):
    failures = vs.scan(files, executor=Forgetting(), on_error="skip").failures
    assert len(failures) == len(files)
    assert failures.message.str.contains("was lost by its executor (TypeError", regex=False).all()


def test_tasks_that_are_lost_are_split_and_then_listed(tmp_path):
    paths = [make(tmp_path / f"f{i:03}.h5", i) for i in range(130)]
    result = vs.scan(paths, executor=Flaky(), on_error="skip")
    assert result.failures.empty
    assert names(result) == [path.name for path in paths]
    failures = vs.scan([*paths, tmp_path / "lost.h5"], executor=Flaky(), on_error="skip").failures
    assert "the task that scanned it was lost by its executor (OSError: no more)" in failures.message.item()
    failures = vs.scan(paths[:3], executor=Cancelling(), on_error="skip").failures
    assert len(failures) == 3
    assert failures.message.str.contains("was cancelled: its executor or cluster was shut down").all()


class Ending(Executor):
    """Takes some tasks, and then no more."""

    def __init__(self, n_tasks, error):
        self.n_tasks, self.error = n_tasks, error

    def submit(self, function, job, urls):
        if not self.n_tasks:
            raise self.error
        self.n_tasks -= 1
        future = Future()
        future.set_result(function(job, urls))
        return future


@pytest.mark.parametrize("error", [RuntimeError("cannot schedule"), ConnectionError("no cluster"), OSError(24, "full")])
@pytest.mark.parametrize("n_tasks", [0, 3])
def test_what_an_executor_that_ended_did_not_take_is_listed_and_the_rest_is_kept(tmp_path, n_tasks, error):
    paths = [make(tmp_path / f"f{i}.h5", i) for i in range(8)]
    result = vs.scan(paths, executor=Ending(n_tasks, error), on_error="skip")
    assert names(result) == [path.name for path in paths[:n_tasks]]
    assert [url.rpartition("/")[2] for url in result.failures.url] == [path.name for path in paths[n_tasks:]]
    assert result.failures.message.str.contains("could not be started").all()
    assert result.failures.message.str.endswith("its executor or cluster was shut down. Scan the file again").all()
    with pytest.raises(ReaderError, match=rf"f{n_tasks}\.h5.* could not be started .*was shut down") as caught:
        vs.scan(paths, executor=Ending(n_tasks, error))
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_a_pool_that_was_shut_down_is_told(files, pool):
    executor = pool(1)
    executor.shutdown()
    with pytest.raises(ReaderError, match="cannot schedule new futures after shutdown"):
        vs.scan(files, executor=executor)
    assert len(vs.scan(files, executor=executor, on_error="skip").errors) == len(files)


def test_a_pool_that_is_shut_down_during_a_scan_ends_it_early_and_keeps_what_was_done(tmp_path):
    paths = [make(tmp_path / f"f{i}.h5", i) for i in range(9)] * 100
    executor = ThreadPoolExecutor(2)
    result = vs.scan(
        paths, executor=executor, on_error="skip", progress=lambda done, total: executor.shutdown(wait=False)
    )
    assert len(result) >= 256  # those that wait in the pool
    assert len(result.errors) == len(paths) - len(result) > 0


def test_errors_that_are_listed_hold_no_frames(tmp_path):
    """Those that say where a bug is do."""
    paths = [tmp_path / "gone.h5", make(tmp_path / "bug.h5")]
    (_, ours), (_, bug) = vs.scan(paths, reader=Troubled(), on_error="skip").errors
    while ours is not None:
        assert ours.__traceback__ is None
        ours = ours.__cause__ or ours.__context__
    assert bug.__traceback__ is not None
    with pytest.raises(StorageError) as caught:
        vs.scan(paths)
    assert caught.value.__cause__.__traceback__ is not None


SCRIPT = """
import sys
import virtualstack as vs
vs.scan(sys.argv[1:], executor="processes")
"""


@pytest.mark.slow
def test_a_script_that_cannot_be_imported_is_told_so(files, tmp_path):
    """Processes import the script, which starts processes: that ends with an error, and soon."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, script, *files]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 1
    told = re.search("RuntimeError: worker processes cannot be started.*", found.stderr)
    assert told is not None
    assert "under `if __name__ == '__main__':`" in told[0]  # workers may write behind it


def test_names_that_are_no_url_fail_alone(files):
    bad = os.fsdecode(b"/data/\xff.nc")
    with pytest.raises(StorageError, match="is not UTF-8"):
        vs.scan([files[0], bad])
    result = vs.scan([files[0], bad, files[1]], on_error="skip")
    assert names(result) == ["f0.h5", "f1.h5"]
    assert result.failures.error.tolist() == ["StorageError"]


def test_urls_of_paths_are_decoded_as_for_one_file(tmp_path):
    paths = [make(tmp_path / name) for name in ("b c.h5", "50%.h5", "d%20e.h5")]
    as_they_are = [f"file://{path}" for path in paths]
    assert list(vs.scan([path.as_uri() for path in paths]).urls) == as_they_are
    assert list(vs.scan(as_they_are).urls) == as_they_are


def test_numbers_of_numpy_are_numbers(files):
    assert len(vs.scan(files, retries=np.int64(1), timeout=np.float32(50), executor="threads")) == len(files)


@pytest.mark.parametrize("odd", [None, 5, "", 1.5, ["/a.nc"], {3, 4}], ids=lambda x: type(x).__name__)
def test_what_is_no_url_fails_alone_and_is_named(files, odd):
    with pytest.raises(
        StorageError, match=r"item 1 \(from 0\) of the URLs (cannot be opened|is not a URL or path): "
    ) as caught:
        vs.scan([files[0], odd])
    assert repr(odd)[:99] in str(caught.value)
    result = vs.scan([files[0], odd, files[1]], on_error="skip")
    assert names(result) == ["f0.h5", "f1.h5"]
    assert result.failures.error.tolist() == ["StorageError"]
    assert result.failures.url[0] == repr(odd)[:1000]
    assert len(result.failures.message[0]) < 1100


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"executor": "fork"},
            ValueError,
            "executor='fork'; it must be 'threads', 'processes', 'dask', or an executor",
        ),
        ({"executor": 3}, TypeError, r"executor= is of type 'int'. Give 'threads'"),
        ({"on_error": "warn"}, ValueError, "on_error='warn'; it must be 'raise' or 'skip'"),
        ({"retries": -1}, ValueError, "retries=-1 is negative"),
        ({"retries": 1.5}, TypeError, r"retries=1\.5 is not a whole number"),
        ({"retries": "3"}, TypeError, "retries='3' is not a whole number"),
        ({"timeout": "5"}, TypeError, "timeout='5' is not a number of seconds"),
        ({"reader": 5, "on_error": "skip"}, TypeError, "reader=5 is neither the name of a reader"),
        ({"options": {}, "on_error": "skip"}, TypeError, r"options=\{\} is not a vs.readers.ReadOptions"),
        ({"cache": ""}, ValueError, "cache='' is not a directory"),
        ({"timeout": 0}, ValueError, "timeout=0 is not a positive number of seconds"),
        ({"timeout": float("nan")}, ValueError, "timeout=nan is not a positive number of seconds"),
        ({"timeout": float("inf")}, ValueError, "timeout=inf is not a positive number of seconds"),
        ({"reader": "hdf6", "on_error": "skip"}, UnknownFormatError, "there is no reader 'hdf6'"),
    ],
)
def test_wrong_options_are_refused_at_once(files, options, error, message):
    with pytest.raises(error, match=message):
        vs.scan(files, **options)


# -- what workers get ---------------------------------------------------------------------------------------------


def test_options_of_storage_reach_processes_and_go_with_the_groups(files, pool):
    with RangeServer(files[0].parent, mode="refuse_anonymous") as server:
        urls = [server.url(path.name) for path in files]
        storage = {server.root: {"headers": {"Authorization": "letmein"}}}
        with pytest.raises(StorageError, match="access denied: "):
            vs.scan(urls, executor=pool)
        result = vs.scan(urls, executor=pool, storage=storage)
        assert result.urls == tuple(urls)
        assert all(
            group["x"].access.find(url)[1] == storage[server.root] for url, group in zip(urls, result, strict=True)
        )
        with pytest.raises(StorageError, match="access denied"):
            open_source(urls[0])


def test_what_does_not_pickle_is_refused_for_processes_and_taken_by_threads(files, pool):
    store = MemoryStore()
    store.put("f0.h5", files[0].read_bytes())
    urls = ["s3://bucket/f0.h5"] * 2
    with pytest.raises(TypeError, match=r"cannot be pickled, so other processes cannot use it: .*executor='threads'"):
        vs.scan(urls, storage={"s3://bucket/": store}, executor=pool)
    result = vs.scan(urls, storage={"s3://bucket/": store}, executor="threads")
    assert len(result) == 2


def test_options_for_readers_reach_processes(files, pool):
    (group, *_) = vs.scan(files, executor=pool, options=ReadOptions(drop_variables=frozenset({"x"})))
    assert "x" not in group.arrays


# -- progress -----------------------------------------------------------------------------------------------------


def test_progress_counts_to_the_end_in_the_calling_thread(files, executor):
    seen = []
    vs.scan(files, executor=executor, progress=lambda *counts: seen.append((*counts, threading.get_ident())))
    assert seen == [(i + 1, N, threading.get_ident()) for i in range(N)]


def test_a_bar_is_drawn_on_stderr(files, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    vs.scan([*files, "/nowhere/a.h5"], progress=True, on_error="skip")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(rf"scan .* {N + 1}/{N + 1} .*/s 1 failed .* elapsed, .* left\n$", shown.err)
    vs.scan(files, progress=False)
    assert capsys.readouterr().err == ""


def test_an_interrupt_ends_the_scan(files):
    """As Ctrl-C does while progress is shown."""
    with pytest.raises(KeyboardInterrupt):
        vs.scan(files * 50, executor="threads", progress=Mock(side_effect=KeyboardInterrupt))


def test_values_can_be_read_afterwards(files, pool):
    for path, group in zip(files, vs.scan(files, executor=pool), strict=True):
        with h5py.File(path) as file:
            np.testing.assert_array_equal(zarr.open_group(vs.ManifestStore(group), mode="r")["x"][:], file["x"][:])
