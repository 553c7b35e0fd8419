import errno
import multiprocessing
import os
import pickle
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from virtualstack.errors import SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import LocalSource, LocalTarget, Source, Storage, local, open_source

DATA = bytes(range(256)) * 40


@pytest.fixture
def path(tmp_path) -> Path:
    file = tmp_path / "ä b%20#?.nc"
    file.write_bytes(DATA)
    return file


def test_ranges_of_a_file(path):
    """Ranges come in the order asked for, overlapping and empty ones too."""
    source = open_source(path)
    assert isinstance(source, Source)
    assert source.size == len(DATA)
    assert source.location == Location(f"file://{path}", len(DATA), None, path.stat().st_mtime)
    assert source.read(5, 10) == DATA[5:15]
    ranges = [(300, 7), (0, 0), (0, 400), (len(DATA), 0), (len(DATA) - 1, 1)]
    assert source.read_ranges(ranges) == [DATA[o : o + n] for o, n in ranges]
    assert source.read_ranges(np.array(ranges)) == [DATA[o : o + n] for o, n in ranges]
    assert source.read_ranges([]) == []
    assert repr(source) == f"LocalSource('file://{path}', 10240 bytes)"


def test_a_range_past_the_end(path):
    """The size is known before reading."""
    with pytest.raises(StorageError, match=r"has 10240 bytes, but 2 bytes from offset 10239 were requested"):
        open_source(path).read(10239, 2)
    with pytest.raises(StorageError, match=r"has 10240 bytes, but 1 byte from offset 20000 were requested"):
        open_source(path).read_ranges([(0, 1), (20000, 1)])


def test_a_pickled_source_opens_its_file_again(path):
    """Also after the first one is gone."""
    source = open_source(path)
    text = pickle.dumps(source)
    del source
    assert pickle.loads(text).read(1, 3) == DATA[1:4]


def test_a_file_that_shrank_or_went_while_closed(path):
    """A file that is opened again must be as long as before."""
    source = pickle.loads(pickle.dumps(open_source(path)))
    path.write_bytes(b"short")
    with pytest.raises(SourceChangedError, match=r"5 B instead of 10\.2 kB"):
        source.read(0, 1)
    path.unlink()
    with pytest.raises(SourceNotFoundError, match=r"there is no file at"):
        source.read(0, 1)


def test_a_file_that_shrank_while_open(path):
    """A short read is an error, never zeros."""
    source = open_source(path)
    os.truncate(path, 100)
    with pytest.raises(StorageError, match=r"20 bytes were requested, but 10 arrived. The source became shorter"):
        source.read(90, 20)


def test_expectations_are_compared(path):
    """A manifest's size is checked on opening."""
    assert open_source(path, expected=Location("", 10240)).size == 10240
    with pytest.raises(SourceChangedError, match=r"10\.2 kB instead of 7 B"):
        open_source(path, expected=Location("", 7))


def read_one(path, offset=0, length=1, **version):
    """Read one range, as single chunks are read."""
    return Storage.from_option().read(offset, length, expected=Location(f"file://{path}", **version))


def test_one_range(path):
    """The version is compared, and the range must lie in the file that is there."""
    status = path.stat()
    known = {"size": len(DATA), "last_modified": status.st_mtime}
    for version in ({}, {"size": len(DATA)}, known):
        assert read_one(path, 5, 10, **version) == DATA[5:15]
        assert read_one(path, len(DATA), 0, **version) == b""
        for offset, length in ((10239, 2), (20000, 1), (-1, 1), (0, -1)):
            with pytest.raises(StorageError, match=rf"has 10240 bytes, but {length} bytes? from offset {offset} were"):
                read_one(path, offset, length, **version)
    with pytest.raises(SourceChangedError, match=r"10\.2 kB instead of 7 B"):
        read_one(path, size=7)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
    with pytest.raises(SourceChangedError, match=r"modified .* instead of"):
        read_one(path, **known)


def test_one_range_of_a_file_that_shrinks(path, monkeypatch):
    """A short read is an error, never zeros."""
    opened = os.open

    def shrink(*args: object) -> int:
        os.truncate(path, 100)
        return opened(*args)

    monkeypatch.setattr(os, "open", shrink)
    with pytest.raises(StorageError, match=r"20 bytes were requested, but 10 arrived. The source became shorter"):
        read_one(path, 90, 20)


def test_one_range_leaves_nothing_open(path):
    """Nor does it where reading fails."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    read_one(path)
    with pytest.raises(StorageError):
        read_one(path, 20000)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before  # others of the process may close theirs


@pytest.mark.parametrize("open_source", [open_source, read_one])
def test_what_is_not_a_file(tmp_path, open_source):
    """Missing, directory, FIFO and device each have their error; none waits."""
    with pytest.raises(SourceNotFoundError, match=r"there is no file at .*nope.*Check the path"):
        open_source(tmp_path / "nope")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SourceNotFoundError, match=r"there is no file at"):
        open_source(tmp_path / "file" / "below")
    with pytest.raises(StorageError, match=r"is a directory, not a file"):
        open_source(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(StorageError, match=r"is a pipe, socket or device"):
        open_source(tmp_path / "fifo")
    with pytest.raises(StorageError, match=r"is a pipe, socket or device"):
        open_source("/dev/zero")
    with pytest.raises(StorageError, match=r"read failed: .*null|has a NUL, which no path has"):
        open_source("/a\0b")
    with pytest.raises(StorageError, match=r"read failed: .*File name too long"):
        open_source("/" + "x" * 300)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "no"), "cannot be read: permission denied"),
        (IsADirectoryError(errno.EISDIR, "no"), "is a directory, not a file"),
        (OSError(errno.EIO, "disk is broken"), "read failed: .*disk is broken. Check the file system"),
    ],
)
@pytest.mark.parametrize("open_source", [open_source, read_one])
def test_errors_of_the_file_system(path, monkeypatch, error, message, open_source):
    """As root no mode forbids reading, so the errors are made."""
    monkeypatch.setattr(os, "open", Mock(side_effect=error))
    with pytest.raises(StorageError, match=message):
        open_source(path)


def test_a_url_of_another_scheme():
    """Only file:// is local."""
    with pytest.raises(StorageError, match=r"is not the URL of a local file"):
        local.open_source("s3://bucket/key", None, "", None)
    with pytest.raises(StorageError, match=r"is not the URL of a local directory"):
        LocalTarget("s3://bucket/key")
    with pytest.raises(ValueError, match=r"not the location of a local file with its size"):
        LocalSource(Location("file:///x"))


def test_the_root_is_a_folder_too(tmp_path):
    """As in containers, where people put files there."""
    target = LocalTarget("file:///")
    target.put(f"{str(tmp_path)[1:]}/a", b"here")
    assert (target.url, (tmp_path / "a").read_bytes()) == ("file:///", b"here")
    assert target.get(f"{str(tmp_path)[1:]}/a") == b"here"


def test_short_preads_are_continued(path, monkeypatch):
    """Linux gives at most 2 GiB at a time, network file systems less."""
    monkeypatch.setattr(local, "pread", lambda number, length, offset: os.pread(number, min(length, 100), offset))
    assert open_source(path).read(10, 1234) == DATA[10:1244]


def test_many_sources_share_few_descriptors(tmp_path, monkeypatch):
    """More sources than descriptors can be open and read, from many threads, in any order."""
    monkeypatch.setattr(local, "_MAX_OPEN", 4)
    local._OPEN.clear()  # of what earlier tests still hold
    for n in range(20):
        (tmp_path / f"{n}").write_bytes(b"%02d" % n)
    sources = [open_source(tmp_path / f"{n}") for n in range(20)]
    order = np.random.default_rng(0).integers(0, 20, 500).tolist()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: sources[n].read(0, 2), order)) == [b"%02d" % n for n in order]
    assert len(local._OPEN) <= 4
    sources.clear()
    assert not local._OPEN


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_descriptors_survive_a_fork(path):
    """A forked child reads through its parent's descriptor without moving a position."""
    source = open_source(path)
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=lambda: send.send(source.read(7, 5)))
    child.start()
    assert receive.poll(10)
    assert receive.recv() == DATA[7:12]
    child.join()


def test_writing_is_atomic_and_leaves_nothing_behind(tmp_path, monkeypatch):
    """A failed write keeps the old object and no temporary file; modes follow the umask."""
    target = LocalTarget(f"file://{tmp_path}")
    target.put("a", b"old")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) & 0o600 == 0o600
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(errno.ENOSPC, "disk is full")))
    with pytest.raises(StorageError, match=r"write failed: .*disk is full"):
        target.put("a", b"new")
    assert target.get("a") == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_a_target_that_may_not_be_written(tmp_path, monkeypatch):
    """The error says written, not read."""
    monkeypatch.setattr(Path, "mkdir", Mock(side_effect=PermissionError(errno.EACCES, "no")))
    with pytest.raises(
        StorageError, match=r"a/b' cannot be written: permission denied. Change its folder's mode or owner"
    ):
        LocalTarget(f"file://{tmp_path}").put("a/b", b"")


def test_what_is_being_written_is_not_listed(tmp_path):
    """Temporary files have no keys, and a folder of nothing else is empty."""
    target = LocalTarget(f"file://{tmp_path}")
    (tmp_path / ".virtualstack-0").write_bytes(b"half")
    assert target.first() is None
    assert target.list() == []
    target.put("a", b"")
    assert target.first() == "a"


@pytest.mark.parametrize("ask", ["first", "list"])
def test_a_folder_that_may_not_be_listed(tmp_path, monkeypatch, ask):
    """It is not taken for an empty one."""
    fail = Mock(side_effect=PermissionError(errno.EACCES, "no"))
    monkeypatch.setattr(os, "listdir", fail)
    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(StorageError, match=r"cannot be read: permission denied") as caught:
        getattr(LocalTarget(f"file://{tmp_path}"), ask)("")
    assert not isinstance(caught.value, SourceNotFoundError)


def test_of_many_writers_one_wins(tmp_path):
    """put_if_absent is decided by the file system."""
    target = LocalTarget(f"file://{tmp_path}")
    barrier = threading.Barrier(8)

    def write(n: int) -> bool:
        barrier.wait()
        return target.put_if_absent("commit/1", b"%d" % n)

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(write, range(8)))
    assert sum(wins) == 1
    assert target.get("commit/1") == b"%d" % wins.index(True)
    assert target.list() == ["commit/1"]


@pytest.mark.parametrize("error", [PermissionError(errno.EPERM, "no links"), OSError(errno.EIO, "broken")])
def test_put_if_absent_without_hard_links(tmp_path, monkeypatch, error):
    """A file system without hard links still lets one writer win; other errors are errors."""
    target = LocalTarget(f"file://{tmp_path}")
    monkeypatch.setattr(Path, "hardlink_to", Mock(side_effect=error))
    if error.errno == errno.EIO:
        with pytest.raises(StorageError, match=r"write failed: .*broken"):
            target.put_if_absent("a", b"1")
        return
    assert target.put_if_absent("a", b"1") is True
    assert target.put_if_absent("a", b"2") is False
    assert target.get("a") == b"1"


def test_what_writers_wait_at_is_no_link(tmp_path, monkeypatch):
    """It would make a file elsewhere, or open a device there."""
    target = LocalTarget(f"file://{tmp_path}/store")
    monkeypatch.setattr(Path, "hardlink_to", Mock(side_effect=PermissionError(errno.EPERM, "no links")))
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".virtualstack-lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="write failed"):
        target.put_if_absent("a", b"1")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_one_of_many_wins_without_hard_links(tmp_path, monkeypatch):
    """At any moment there is nothing, or what the winner wrote; a writer that is gone holds nobody up."""
    target = LocalTarget(f"file://{tmp_path}")
    monkeypatch.setattr(Path, "hardlink_to", Mock(side_effect=PermissionError(errno.EPERM, "no links")))
    (tmp_path / ".virtualstack-lock").touch()
    seen: set[bytes] = set()

    def write(n: int) -> bool:
        won = target.put_if_absent("a", b"%d" % n)
        seen.add(target.get("a"))
        return won

    with ThreadPoolExecutor(8) as pool:
        wins = list(pool.map(write, range(64)))
    assert sum(wins) == 1
    assert seen == {b"%d" % wins.index(True)}
    assert target.list() == ["a"]


def test_what_killed_writers_left(tmp_path):
    """Temporary files are told, and folders that are empty are deleted; files are not."""
    target = LocalTarget(f"file://{tmp_path}")
    target.put("x/y/a", b"")
    for name in ("x/y/.virtualstack-1", "x/.virtualstack-2", "x/.virtualstack-lock"):
        (tmp_path / name).touch()
    later = time.time() + 1
    assert target.leftovers("x", later - 100) == []
    assert target.leftovers("x", later) == ["x/.virtualstack-2", "x/y/.virtualstack-1"]
    assert target.leftovers("z", later) == []
    (tmp_path / "x/z/z").mkdir(parents=True)
    assert target.empty_folders("x", later - 100) == []
    assert target.empty_folders("x", later) == ["x/z"]
    assert target.empty_folders("z", later) == []
    (tmp_path / "elsewhere/z").mkdir(parents=True)
    (tmp_path / "x/link").symlink_to(tmp_path / "elsewhere")
    assert target.empty_folders("x", later) == ["x/z"]
    (tmp_path / "x/link").unlink()
    target.delete_folder("x/z")
    target.delete_folder("x/y")
    assert target.list() == ["x/y/a"]
    for key in ("x/y/a", "x/y/.virtualstack-1"):
        target.delete(key)
    target.delete_folder("x/y")
    target.delete_folder("x/y")
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == [".virtualstack-2", ".virtualstack-lock"]


def test_a_target_under_a_file(tmp_path):
    """Where a folder is needed and a file stands, which is named, nothing is written."""
    (tmp_path / "file").write_bytes(b"")
    target = LocalTarget(f"file://{tmp_path}/file")
    for key in ("a", "b/a"):
        with pytest.raises(StorageError, match=f"'file://{tmp_path}/file' is a file, not a folder"):
            target.put(key, b"")
