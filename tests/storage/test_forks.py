"""Children that are forked when remote sources have been read."""

import gc
import subprocess
import sys
import weakref

import fsspec
import obstore
import obstore.store
import pytest

from tests.forks import forked, forking
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.storage import Storage
from virtualstack.storage import obstore as connections
from virtualstack.storage.threads import is_ending, wait_for

DATA = bytes(range(256)) * 400
REFUSED = r"cannot be reached: this process was forked .* obstore, .*multiprocessing_context=.forkserver."


def read_all(source):
    """Read a source in four requests."""
    quarter = len(DATA) // 4
    parts = source.read_ranges([(n * quarter, quarter) for n in range(4)])
    return b"".join(bytes(part) for part in parts)


@forking
def test_a_child_is_refused_what_its_parent_opened():
    """The threads of obstore end at a fork, and a request would wait for ever."""
    with RangeServer({"a": DATA, "b": DATA[::-1]}) as server:
        opened = Storage.from_option(None).source(server.url("a"))
        assert read_all(opened) == DATA

        def child():
            with pytest.raises(StorageError, match=REFUSED):
                read_all(opened)
            with pytest.raises(StorageError, match=REFUSED):
                Storage.from_option(None).source(server.url("b"))

        assert forked(child)
        assert read_all(opened) == DATA


@forking
def test_a_child_is_refused_where_somebody_else_used_obstore():
    """Its threads were started by that, too."""
    with RangeServer({"a": DATA}) as server:
        store = obstore.store.HTTPStore(server.root, client_options={"allow_http": True})
        assert len(obstore.get_range(store, "a", start=0, length=5)) == 5

        def child():
            with pytest.raises(StorageError, match=REFUSED):
                Storage.from_option({server.root: store}).source(server.url("a"))

        assert forked(child)


@forking
def test_a_child_neither_writes_nor_lists(s3):
    target = Storage.from_option({"s3://bucket": s3.options}).target("s3://bucket/forked")
    target.put("parent", b"1")

    def child():
        for ask in (target.list, lambda: target.get("parent"), lambda: target.put_if_absent("child", b"2")):
            with pytest.raises(StorageError, match=REFUSED):
                ask()

    assert forked(child)
    assert target.list() == ["parent"]


PROGRAM = """
import multiprocessing, sys
import virtualstack as vs
from virtualstack.storage import Storage

def child(depth):
    assert "obstore" not in sys.modules
    if depth:
        return fork(depth - 1)
    assert Storage.from_option(None).source(sys.argv[1]).read(0, 4) == bytes(range(4))

def fork(depth):
    process = multiprocessing.get_context("fork").Process(target=child, args=(depth,))
    process.start()
    process.join(30)
    process.kill()
    assert process.exitcode == 0

fork(0)
fork(1)
assert Storage.from_option(None).source(sys.argv[1]).read(0, 4) == bytes(range(4))
"""


@forking
def test_children_read_where_the_parent_has_not_used_obstore():
    """So do theirs, and afterwards the parent."""
    with RangeServer({"a": DATA}) as server:
        ran = subprocess.run([sys.executable, "-c", PROGRAM, server.url("a")], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@forking
def test_filesystems_of_users_are_made_again():
    pytest.importorskip("aiohttp")
    with RangeServer({"a": DATA}) as server:
        filesystem = fsspec.filesystem("http", skip_instance_cache=True)
        storage = Storage.from_option({server.root: filesystem})
        opened = storage.source(server.url("a"))
        assert read_all(opened) == DATA

        def child():
            assert read_all(opened) == DATA
            assert read_all(storage.source(server.url("a"))) == DATA
            assert storage.look_up([server.url("a")])[0].size == len(DATA)

        assert forked(child)


@forking
def test_a_child_reads_local_files(tmp_path):
    """Also with descriptors that its parent has opened."""
    (tmp_path / "a").write_bytes(DATA)
    opened = Storage.from_option(None).source(tmp_path / "a")
    assert read_all(opened) == DATA
    assert forked(lambda: [read_all(opened), read_all(Storage.from_option(None).source(tmp_path / "a"))])


@forking
def test_a_child_drops_no_connection():
    """That would wake threads that it does not have, by a lock that one of them may have had: it waited for ever."""
    with RangeServer({"a": bytes(1000)}) as server:
        Storage.from_option(None).source(server.url("a")).read(0, 9)
        there = [weakref.ref(x) for x in connections._CONNECTIONS.values()]
        assert all(ref() is not None for ref in there)

        def child():
            gc.collect()
            assert all(ref() is not None for ref in there)

        assert forked(child)


@forking
def test_a_child_waits_for_calls_of_its_own():
    """It inherited the pool of threads that make calls, but not the threads, and its first call never ended."""
    assert wait_for(lambda: 1) == 1

    def child():
        assert wait_for(lambda: 2) == 2
        assert not is_ending()

    assert forked(child)
