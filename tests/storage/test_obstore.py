"""What keeps obstore honest beside lengths: panics, stores that users bring."""

from unittest.mock import Mock

import obstore
import pytest
from obstore.store import HTTPStore, LocalStore, MemoryStore, S3Store

from tests.servers import RangeServer
from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.storage import Storage, open_source
from virtualstack.storage.obstore import connect


def panicking(*args, **kwargs):
    class PanicException(BaseException):
        pass

    raise PanicException("range start must not be greater than end")


def test_a_panic_becomes_an_error(monkeypatch):
    """Rust panics pass `except Exception`; they must not pass storage."""
    with RangeServer({"x": b"abc"}) as server:
        monkeypatch.setattr(obstore, "get", panicking)
        with pytest.raises(StorageError, match=r"obstore failed unexpectedly .range start must.*Please report this"):
            open_source(server.url("x"))


def test_an_interrupt_stays_one(monkeypatch):
    """Ctrl-C is not taken for a failure of the server."""
    monkeypatch.setattr(obstore, "get", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        open_source("http://127.0.0.1:9/x")


def test_obstore_still_needs_to_be_kept_honest():
    """The faults that the checks are for; when this fails, some of them may go."""
    with RangeServer({"x": b"0123456789"}) as server:
        store = HTTPStore(server.root, client_options={"allow_http": True})
        assert len(obstore.get_range(store, "x", start=5, length=10)) == 5
        with pytest.raises(BaseException, match=r"range start must not be greater than end") as caught:
            obstore.get_ranges(store, "x", starts=[0, 20], lengths=[2, 5])
        assert not isinstance(caught.value, Exception)


def test_stores_of_users(s3, tmp_path):
    """A store may stand at the root or have a prefix of its own, with or without a URL prefix."""
    options = {"endpoint": s3.endpoint, "access_key_id": "key", "secret_access_key": "secret"}
    client = {"allow_http": True}
    root, deep = (S3Store("bucket", prefix=p, client_options=client, **options) for p in (None, "data"))
    url = "s3://bucket/data/private.nc"
    for storage in (root, deep, {"s3://bucket": root}, {"s3://bucket/data/": deep}):
        assert open_source(url, storage=storage).read(0, 2) == b"\0\1"
    target = Storage.from_option(deep).target("s3://bucket/data/out")
    target.put("x", b"1")
    assert target.list() == ["x"]
    assert s3.client.get_object(Bucket="bucket", Key="data/out/x")["Body"].read() == b"1"
    (tmp_path / "x").write_bytes(b"local")
    assert open_source(tmp_path / "x", storage={str(tmp_path): LocalStore(tmp_path)}).read(0, 5) == b"local"
    store = MemoryStore()
    obstore.put(store, "k", b"memory")
    assert open_source("memory://any/k", storage={"memory://any/": store}).read(0, 6) == b"memory"
    with pytest.raises(SourceNotFoundError, match=r"there is nothing at 'memory://any/other'"):
        open_source("memory://any/other", storage={"memory://any/": store})


def test_http_stores_of_users():
    """A store below a path of its host serves the URLs below that path."""
    with RangeServer({"deep/a b": b"abc"}) as server:
        client = {"allow_http": True}
        for base in (server.root, server.url("deep")):
            store = HTTPStore(base, client_options=client)
            assert open_source(server.url("deep/a%20b"), storage=store).read(0, 3) == b"abc"


def test_keys_that_obstore_cannot_express(s3):
    """Empty parts of S3 keys are refused with a remedy."""
    with pytest.raises(StorageError, match=r"Could not parse path.*give an fsspec filesystem in storage="):
        open_source("s3://bucket/a//b", storage={"s3://bucket": s3.options})


def test_connections_are_bounded(monkeypatch):
    """Presigned URLs do not pile up connections."""
    monkeypatch.setattr("virtualstack.storage.obstore._MAX_CONNECTIONS", 3)
    monkeypatch.setattr("virtualstack.storage.obstore._CONNECTIONS", {})
    made = [connect(f"http://host/x?{n}", None, "")[0] for n in range(10)]
    assert connect("http://host/x?9", None, "")[0] is made[9]
    assert connect("http://host/x?0", None, "")[0] is not made[0]
