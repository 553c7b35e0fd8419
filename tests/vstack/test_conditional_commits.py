"""Commits to a bucket: no writer is told success while its snapshot is lost, whatever the server does."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import xarray as xr

import virtualstack as vs
from tests.object_server import ObjectServer
from virtualstack.errors import ConflictError, SourceNotFoundError, StorageError, WriterError
from virtualstack.vstack.format.names import BUNDLES, SNAPSHOTS

URL = "s3://b/x.vstack"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr("virtualstack.vstack.write.commit._PAUSES", (0.01, 0.02, 0.03))


def save(server, dataset, **options):
    """Write a dataset to the bucket of a server."""
    dataset.virtual.to_vstack(URL, storage={"s3://b": {**server.options, **options.pop("access", {})}}, **options)


def add(server, barrier, name):
    """Add a variable, at the same time as others; return whether this was successful."""
    storage = {"s3://b": server.options}
    dataset = vs.open_virtual_dataset(URL, storage=storage).assign({name: ("x", [1.0, 2.0])})
    barrier.wait()
    try:
        dataset.virtual.to_vstack(URL, storage=storage, mode="w", message=name)
    except (StorageError, WriterError) as error:
        return error
    return None


def race(server, n=2):
    """Let writers add variables at the same time; return the names of those that were told success, and all errors."""
    barrier = threading.Barrier(n)
    with ThreadPoolExecutor(n) as pool:
        found = list(pool.map(lambda i: add(server, barrier, f"v{i}"), range(n)))
    return {f"v{i}" for i in range(n) if found[i] is None}, [error for error in found if error is not None]


def there(server):
    """Return the names of the variables in the newest snapshot."""
    return set(vs.open_virtual_dataset(URL, storage={"s3://b": server.options}).variables) - {"q"}


def keys(server, folder):
    """Return the keys in a folder of the store."""
    return [path for path in server.objects if path.startswith(f"b/x.vstack/{folder}/")]


Q = xr.Dataset({"q": ("x", [1.0, 2.0])})


@pytest.mark.parametrize("odds", [0.0, 0.4])
def test_two_writers_of_a_good_bucket(odds):
    """Each one that is told success is in the store, also if connections break before or after a write is stored."""
    dice = random.Random(0)

    def fault(path):
        return dice.choice(["before", "after"]) if SNAPSHOTS in path and dice.random() < odds else None

    with ObjectServer() as server:
        save(server, Q)
        server.put_fault = fault
        told, errors = race(server, 6)
        server.put_fault = lambda path: None
        assert there(server) >= told
        assert len(told) + len(errors) == 6
        assert told == {f"v{i}" for i in range(6)} or odds


def test_two_writers_of_a_bucket_that_ignores_conditions():
    """Both are told that the bucket cannot have several writers, and the store is as before."""
    with ObjectServer() as server:
        save(server, Q)
    before = dict(server.objects)
    with ObjectServer("ignored") as bad:
        bad.objects.update(before)
        told, errors = race(bad)
        assert told == set()
        assert all("ignores conditions" in str(error) for error in errors)
        assert there(bad) == set()
        assert keys(bad, SNAPSHOTS) == [path for path in before if SNAPSHOTS in path]


def test_the_only_writer_of_such_a_bucket_says_so():
    """With the option of the error the store is written, and grows."""
    with ObjectServer("ignored") as server:
        with pytest.raises(WriterError, match=r'storage=\{"s3://b/": \{"conditional_put": "disabled"\}\}'):
            save(server, Q)
        with pytest.raises(SourceNotFoundError):
            there(server)
        access = {"conditional_put": "disabled"}
        save(server, Q, access=access)
        save(server, Q.assign(v=("x", [3.0, 4.0])), access=access, mode="w")
        assert there(server) == {"v"}
        assert len(keys(server, SNAPSHOTS)) == 2


def test_a_condition_that_is_always_refused():
    """A few tries with one bundle, and an error."""
    with ObjectServer("refused") as server:
        with pytest.raises(StorageError, match="the server answers that it exists, but does not return it"):
            save(server, Q)
        assert keys(server, SNAPSHOTS) == []
        assert len(keys(server, BUNDLES)) == 1


def test_a_condition_that_is_refused_for_a_moment():
    """As S3 does while another request for the key is in flight."""
    with ObjectServer() as server:
        left = [2]

        def fault(path):
            if SNAPSHOTS in path:
                left[0] -= 1
                server.conditions = "refused" if left[0] >= 0 else "heeded"

        server.put_fault = fault
        save(server, Q)
        assert there(server) == set()
        assert len(keys(server, BUNDLES)) == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_that_breaks_once(when):
    """The snapshot is committed once, with one bundle."""
    left = [1]

    def fault(path):
        if SNAPSHOTS in path and left[0]:
            left[0] -= 1
            return when
        return None

    with ObjectServer(put_fault=fault) as server:
        save(server, Q)
        assert left == [0]
        assert len(keys(server, SNAPSHOTS)) == len(keys(server, BUNDLES)) == 1
        assert there(server) == set()


def test_a_connection_that_breaks_always():
    """The error says what happened, and that it was about the snapshot."""
    with ObjectServer(put_fault=lambda path: "before" if SNAPSHOTS in path else None) as server:
        with pytest.raises(StorageError, match=rf"{SNAPSHOTS}/.*could not be accessed: the connection was reset"):
            save(server, Q)
        assert keys(server, SNAPSHOTS) == []


def test_another_writer_whose_snapshot_is_not_listed():
    """A listing that stays behind ends the commit, and does not make bundles for ever."""
    with ObjectServer() as server:
        save(server, Q)
        first = dict(server.objects)
        save(server, Q.assign(v=("x", [3.0, 4.0])), mode="w")
        hidden = {path: data for path, data in server.objects.items() if SNAPSHOTS in path and path not in first}
        server.unlisted = set(hidden)
        with pytest.raises((StorageError, ConflictError), match="is not listed"):
            save(server, Q.assign(w=("x", [5.0, 6.0])), mode="w")
