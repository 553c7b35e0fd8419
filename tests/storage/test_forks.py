"""Children that are forked when remote sources have been read."""

import gc
import os
import pickle
import sys
import tempfile
import threading
import weakref

import fsspec
import obstore
import obstore.store
import pytest

from tests.forks import forked, forking
from tests.servers import RangeServer
from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import Location
from virtualstack.storage import Storage, library
from virtualstack.storage import obstore as connections
from virtualstack.storage.remote import RemoteSource

DATA = bytes(range(256)) * 400


def read_all(source):
    """Read a source in four requests."""
    quarter = len(DATA) // 4
    parts = source.read_ranges([(n * quarter, quarter) for n in range(4)])
    return b"".join(bytes(part) for part in parts)


@forking
def test_a_child_reads_what_its_parent_opened():
    with RangeServer({"a": DATA, "b": DATA[::-1]}) as server:
        opened = Storage.of(None).source(server.url("a"))
        assert read_all(opened) == DATA

        def child():
            assert read_all(opened) == DATA
            assert read_all(Storage.of(None).source(server.url("b"))) == DATA[::-1]
            with pytest.raises(SourceNotFoundError, match="there is nothing at"):
                Storage.of(None).source(server.url("c"))

        assert forked(child)
        assert read_all(opened) == DATA


@forking
def test_a_child_reads_where_somebody_else_used_obstore():
    """Its threads were started by that, too."""
    with RangeServer({"a": DATA}) as server:
        store = obstore.store.HTTPStore(server.root, client_options={"allow_http": True})
        assert len(obstore.get_range(store, "a", start=0, length=5)) == 5
        assert forked(lambda: read_all(Storage.of(None).source(server.url("a"))))


@forking
def test_children_of_children_read():
    with RangeServer({"a": DATA}) as server:
        opened = Storage.of(None).source(server.url("a"))

        def grandchild():
            assert read_all(opened) == DATA

        def child():
            assert read_all(opened) == DATA
            assert forked(grandchild)
            assert read_all(opened) == DATA

        assert read_all(opened) == DATA
        assert forked(child)


@forking
def test_children_read_while_threads_of_the_parent_do():
    """A fork takes place anywhere in the library's work."""
    with RangeServer({"a": DATA}) as server:
        opened, done = Storage.of(None).source(server.url("a")), threading.Event()

        def go_on():
            while not done.is_set():
                read_all(opened)

        threads = [threading.Thread(target=go_on) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            assert all(forked(lambda: read_all(opened)) for _ in range(10))
        finally:
            done.set()
            for thread in threads:
                thread.join()


@forking
def test_a_child_waits_for_no_thread_of_its_parent():
    """One that was fetching a whole object, as servers without ranges make it."""
    with RangeServer({"a": DATA}, mode="ignore_ranges") as server:
        opened = RemoteSource(Location(server.url("a"), len(DATA)), None, "")
        with opened._own_lock():
            assert forked(lambda: read_all(opened))


@forking
def test_a_child_writes_and_lists(s3):
    target = Storage.of({"s3://bucket": s3.options}).target("s3://bucket/forked")
    target.put("parent", b"1")

    def child():
        assert target.list() == ["parent"]
        assert not target.put_if_absent("parent", b"2")
        assert target.put_if_absent("child", b"2")
        assert target.get("parent") == b"1"

    assert forked(child)
    assert target.get("child") == b"2"


@forking
def test_stores_of_users_are_opened_again(s3, tmp_path):
    (tmp_path / "x").write_bytes(DATA)
    with RangeServer({"deep/a": DATA}) as server:
        client = {"allow_http": True}
        web = obstore.store.HTTPStore(server.url("deep"), client_options=client)
        keys = obstore.store.S3Store(
            "bucket",
            prefix="data",
            endpoint=s3.endpoint,
            client_options=client,
            credential_provider=lambda: {"access_key_id": "key", "secret_access_key": "secret", "expires_at": None},
        )
        sources = [
            Storage.of({server.root: web}).source(server.url("deep/a")),
            Storage.of(keys).source("s3://bucket/data/private.nc"),
            Storage.of({str(tmp_path): obstore.store.LocalStore(tmp_path)}).source(str(tmp_path / "x")),
        ]
        expected = [source.read(0, 20) for source in sources]

        def child():
            assert [source.read(0, 20) for source in sources] == expected
            listed = Storage.of(keys).target("s3://bucket/data").list()
            assert {"private.nc", "public.nc"} <= {*listed}  # other tests write there, too

        assert forked(child)


@forking
def test_a_store_in_memory_is_not_there():
    """Nothing but waiting for ever would come of it."""
    store = obstore.store.MemoryStore()
    obstore.put(store, "k", DATA)
    opened = Storage.of({"memory://any": store}).source("memory://any/k")
    assert read_all(opened) == DATA

    def child():
        with pytest.raises(StorageError, match=r"'memory://any/'.* MemoryStore in storage= was opened by the process"):
            read_all(opened)

    assert forked(child)


@forking
def test_filesystems_of_users_are_made_again():
    pytest.importorskip("aiohttp")
    with RangeServer({"a": DATA}) as server:
        filesystem = fsspec.filesystem("http", skip_instance_cache=True)
        storage = Storage.of({server.root: filesystem})
        opened = storage.source(server.url("a"))
        assert read_all(opened) == DATA

        def child():
            assert read_all(opened) == DATA
            assert read_all(storage.source(server.url("a"))) == DATA
            assert storage.look_up([server.url("a")])[0].size == len(DATA)

        assert forked(child)


@forking
def test_a_child_leaves_the_modules_as_they_are():
    """What it loads is its own; others find what they had."""
    with RangeServer({"a": DATA}) as server:
        opened = Storage.of(None).source(server.url("a"))
        before = {name: module for name, module in sys.modules.items() if name.startswith("obstore")}
        finders = list(sys.meta_path)

        def child():
            assert read_all(opened) == DATA
            assert {name: module for name, module in sys.modules.items() if name.startswith("obstore")} == before
            assert sys.meta_path == finders
            assert library.library() is library.library() is not obstore
            pickle.dumps(opened)

        assert forked(child)
    assert library.library() is obstore


@forking
def test_a_child_reads_where_no_file_can_be_in_memory(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with RangeServer({"a": DATA}) as server:
        opened = Storage.of(None).source(server.url("a"))
        assert forked(lambda: read_all(opened))
    assert not list(tmp_path.iterdir())


@forking
def test_a_child_that_cannot_load_it_says_so(monkeypatch):
    with RangeServer({"a": DATA}) as server:
        opened = Storage.of(None).source(server.url("a"))

        def child():
            monkeypatch.setattr(sys.modules["obstore._obstore"], "__file__", "nowhere/obstore.so")
            with pytest.raises(StorageError, match=r"could not load it again .*get_context\(.spawn.\)"):
                read_all(opened)

        assert forked(child)


@forking
def test_a_child_drops_no_connection():
    """That would wake threads that it does not have, by a lock that one of them may have had: it waited for ever."""
    with RangeServer({"a": bytes(1000)}) as server:
        Storage.of(None).source(server.url("a")).read(0, 9)
        there = [weakref.ref(x) for x in connections._STATE.connections.values()]
        assert all(ref() is not None for ref in there)

        def child():
            gc.collect()
            assert all(ref() is not None for ref in there)

        assert forked(child)
