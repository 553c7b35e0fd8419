import ftplib
import pickle

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.servers import RangeServer
from virtualstack.errors import SourceChangedError, SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import Source, Storage, open_source

DATA = bytes(range(256)) * 10


class Failing(MemoryFileSystem):
    """Fails as it is told."""

    protocol = "failing"
    cachable = False

    def __init__(self, error=None, info=None):
        super().__init__()
        self.error = error
        self.told = info

    def info(self, path, **kwargs):
        if self.told is None and self.error is not None:
            raise self.error
        return self.told or super().info(path, **kwargs)

    def cat_ranges(self, paths, starts, ends, max_gap=None, on_error="return", **kwargs):
        return [self.error if self.error is not None else b"x"] * len(paths)


def test_files_of_a_filesystem(tmp_path):
    """Ranges are right, a copy reads too, and the location has what the filesystem tells."""
    path = tmp_path / "a b.nc"
    path.write_bytes(DATA)
    source = open_source(path, storage=fsspec.filesystem("file"))
    assert isinstance(source, Source)
    assert source.location == Location(f"file://{path}", len(DATA), None, path.stat().st_mtime)
    ranges = [(2000, 10), (0, 0), (5, 20)]
    assert source.read_ranges(np.array(ranges)) == [DATA[o : o + n] for o, n in ranges]
    assert pickle.loads(pickle.dumps(source)).read(1, 2) == DATA[1:3]
    with pytest.raises(StorageError, match=r"has 2560 bytes, but 2 bytes from offset 2559"):
        source.read(2559, 2)
    with pytest.raises(StorageError, match=r"is a directory, not a file"):
        open_source(tmp_path, storage=fsspec.filesystem("file"))
    with pytest.raises(SourceNotFoundError, match=r"there is nothing at 'file://.*nope'"):
        open_source(tmp_path / "nope", storage=fsspec.filesystem("file"))


def test_files_of_a_web_server():
    """Asynchronous filesystems are used from synchronous code."""
    with RangeServer({"x": DATA}) as server:
        filesystem = fsspec.filesystem("http", skip_instance_cache=True)
        source = open_source(server.url("x"), storage={server.root: filesystem})
        assert source.read_ranges([(2000, 10), (5, 20)]) == [DATA[2000:2010], DATA[5:25]]
        assert source.location.etag is not None


def test_expectations_are_compared():
    """On opening, whatever is known: a longer file would give bytes, and of another version."""
    filesystem = MemoryFileSystem()
    filesystem.pipe_file("/expected/x", DATA)
    storage = Storage.from_option({"memory://expected": filesystem})
    for size in (2000, 3000):
        with pytest.raises(SourceChangedError, match=r"2\.56 kB instead of "):
            storage.source("memory://expected/x", expected=Location("", size))
    told = Failing(info={"size": 3, "ETag": "b", "type": "file"})
    with pytest.raises(SourceChangedError, match=r"its ETag is b instead of a"):
        open_source("failing://x", storage=told, expected=Location("", None, "a"))


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (FileNotFoundError("gone"), SourceNotFoundError, "there is nothing at 'failing://x': gone"),
        (PermissionError("no"), StorageError, "'failing://x': access denied: no. Give storage= a filesystem whose"),
        (TimeoutError("slow"), StorageError, "'failing://x' cannot be reached: .*slow.*Check the URL, and"),
        (NotImplementedError("never"), StorageError, "'failing://x' cannot be reached: .*never"),
        (ftplib.error_perm("530 no"), StorageError, "'failing://x' cannot be reached: .*530 no"),
    ],
)
def test_failures_of_a_filesystem(error, kind, message):
    """Errors get the URL and a remedy, on opening and on reading."""
    with pytest.raises(kind, match=message):
        open_source("failing://x", storage=Failing(error))
    source = open_source("failing://x", storage=Failing(error, {"size": 10, "type": "file"}))
    with pytest.raises(kind, match=message):
        source.read(0, 5)


def test_answers_that_are_short():
    """A filesystem is not trusted either."""
    source = open_source("failing://x", storage=Failing(info={"size": 10, "type": "file"}))
    with pytest.raises(StorageError, match=r"5 bytes were requested, but 1 arrived"):
        source.read(0, 5)


def test_a_file_of_unknown_size():
    """Servers without Content-Length have no ranges to speak of."""
    with pytest.raises(StorageError, match=r"'failing://x': its server does not report its size. Download it first"):
        open_source("failing://x", storage=Failing(info={"size": None, "type": "file"}))


class WholeFiles(MemoryFileSystem):
    """A filesystem that has no ranges, as that of sshfs."""

    cachable = False

    def cat_file(self, path, **kwargs):
        return super().cat_file(path)


def test_a_filesystem_that_reads_whole_files():
    """Ranges are read from the open file."""
    filesystem = WholeFiles()
    filesystem.pipe_file("/whole/x", DATA)
    source = open_source("memory://whole/x", storage={"memory://whole": filesystem})
    assert source.read_ranges([(2000, 10), (0, 0), (5, 20)]) == [DATA[2000:2010], b"", DATA[5:25]]


def test_the_filesystem_of_references_says_what_to_open():
    with pytest.raises(StorageError, match=r"'reference://x': .*Open the references themselves"):
        open_source("reference://x")
