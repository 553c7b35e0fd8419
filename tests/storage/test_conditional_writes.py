"""Targets find out whether their server heeds the condition that a key must not exist."""

from weakref import WeakSet

import fsspec
import obstore.store
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.object_server import ObjectServer
from virtualstack.errors import StorageError, WriterError
from virtualstack.storage import Storage


def target_of(kind, server, **options):
    """Return a target of a folder in a bucket that no test has used before."""
    match kind:
        case "s3":
            url, found = "s3://b/x", {**server.options, **options}
        case "gs":
            url, found = "gs://b/x", {"endpoint": server.root.rstrip("/"), "token": "t", "max_retries": 0}
        case "az":
            account = {"account_name": "acc", "account_key": "a2V5"}
            url, found = "az://b/x", {"endpoint": f"{server.root}acc", "max_retries": 0, **account}
        case "store":
            config = {**server.options, **options}
            del config["max_retries"]
            url, found = "s3://b/x", obstore.store.S3Store("b", config=config, client_options={"allow_http": True})
        case "fsspec":
            filesystem = fsspec.filesystem(
                "s3", key="key", secret="secret", endpoint_url=server.root, skip_instance_cache=True
            )
            url, found = "s3://b/x", filesystem
    return Storage.from_option({url.rpartition("/")[0]: found}).target(url)


KINDS = ["s3", "gs", "az", "store", "fsspec"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_heeds_conditions(kind):
    """Three requests in a process show it, the first writer wins, and nothing stays beside files of users."""
    with ObjectServer() as server:
        target = target_of(kind, server)
        assert target.put_if_absent("k", b"1") is True
        probing = server.requests.total()
        assert probing <= 4
        assert target.put_if_absent("k", b"2") is False
        assert target.put_if_absent("l", b"3") is True
        assert server.requests.total() == probing + 2
        assert sorted(path.rpartition("/")[2] for path in server.objects) == ["k", "l"]
        assert target.get("k") == b"1"


@pytest.mark.parametrize("kind", KINDS)
def test_one_request_of_a_process_shows_it_in_a_store(kind, monkeypatch):
    """An object stays in the folder of the store, which the next process finds."""
    with ObjectServer() as server:
        assert target_of(kind, server).put_if_absent(".s/a/k", b"1") is True
        before, n_puts = dict(server.objects), server.requests["PUT"]
        monkeypatch.setattr("virtualstack.storage.target._CHECKED", WeakSet())  # as in another process
        assert target_of(kind, server).put_if_absent(".s/a/l", b"1") is True
        assert server.requests["PUT"] == n_puts + 2
        assert server.requests["DELETE"] == server.requests["POST"] == 0
        (path,) = server.objects.keys() - before.keys()
        assert path.endswith("b/x/.s/a/l")


@pytest.mark.parametrize(
    ("kind", "conditions"), [*((kind, "ignored") for kind in KINDS), ("s3", "unknown"), ("store", "unknown")]
)
def test_a_server_without_conditions(kind, conditions):
    """The writer is told before it writes, and no object of anybody is replaced."""
    with ObjectServer(conditions) as server:
        target = target_of(kind, server)
        target.put("k", b"1")
        for _ in range(2):
            with pytest.raises(WriterError, match=r"the server .* conditions such as") as caught:
                target.put_if_absent("k", b"2")
        assert ("conditional_put" in str(caught.value)) == target.url.startswith("s3")
        assert list(server.objects.values()) == [b"1"]


def test_a_filesystem_that_ignores_the_mode():
    """It is told apart from one that heeds it."""

    class Careless(MemoryFileSystem):
        cachable = False

        def pipe_file(self, path, value, mode="overwrite", **kwargs):
            super().pipe_file(path, value)

    target = Storage.from_option({"memory://": Careless()}).target("memory://careless")
    with pytest.raises(WriterError, match="ignores conditions"):
        target.put_if_absent("k", b"1")
    assert target.list() == []


@pytest.mark.parametrize("kind", ["s3", "store"])
def test_the_only_writer_of_such_a_bucket(kind):
    """The option of the object store for this says that nobody else writes; what exists still stays."""
    with ObjectServer("ignored") as server:
        target = target_of(kind, server, conditional_put="disabled")
        assert target.put_if_absent("k", b"1") is True
        assert target.put_if_absent("k", b"2") is False
        assert server.objects == {"b/x/k": b"1"}


def test_a_writer_that_may_not_delete():
    """The probe stays, and the write goes on."""
    with ObjectServer() as server:
        target = target_of("s3", server)
        server.may_delete = False
        assert target.put_if_absent("k", b"1") is True
        assert len(server.objects) == 2


def test_what_a_failed_write_says():
    """A reset is no refusal, and a write is no read."""
    with ObjectServer(put_fault=lambda path: "before") as server:
        target = target_of("s3", server)
        with pytest.raises(StorageError) as caught:
            target.put("k", b"1")
        assert str(caught.value) == ("'s3://b/x/k' could not be accessed: the connection was reset. Try again later")
    with pytest.raises(StorageError, match=r"could not be accessed: the connection was refused. Try again later$"):
        target.put("k", b"1")
