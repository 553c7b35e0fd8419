"""The hint, which carries the newest snapshot for readers that cannot list a store."""

from __future__ import annotations

import base64
import gzip
import re
from datetime import timedelta

import numpy as np
import orjson
import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from tests.vstack.stores import opened
from virtualstack.errors import MalformedFileError, StorageError
from virtualstack.storage import LocalTarget
from virtualstack.vstack.format.history import hint
from virtualstack.vstack.format.names import HINT, bundle_key, snapshot_key
from virtualstack.vstack.repository import Repository


@pytest.fixture
def served(tmp_path):
    """A store of four files one after the other, with four snapshots."""
    days = xr.Dataset({"t": (("time", "x"), np.ones((3, 4)))}, {"time": [0, 1, 2], "x": np.arange(4.0)})
    days.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    url = tmp_path / "x.vstack"
    first = vs.open_virtual_dataset(tmp_path / "a.nc")
    first.virtual.to_vstack(url)
    for n in range(1, 4):
        first.assign_coords(time=first["time"] + 3 * n).virtual.to_vstack(url, append_dim="time")
    return url


def opened_from_a_web_server(store):
    """Return the labels of a store on a server without a listing, and the keys that were requested."""
    with RangeServer(store) as server:
        options = {"allow": [store.parent.as_uri() + "/"], "reader": "vstack"}
        with xr.open_dataset(server.root, engine="virtualstack", **options) as made:
            return made["time"].values.tolist(), [path.lstrip("/") for _, path, *_ in server.log]


def rewritten_hint(store, **changes):
    """Change fields of the hint; ``None`` deletes one."""
    found = orjson.loads((store / HINT).read_bytes())
    said = found["attributes"]["virtualstack"] | changes
    found["attributes"]["virtualstack"] = {name: value for name, value in said.items() if value is not None}
    (store / HINT).write_bytes(orjson.dumps(found))


def test_a_store_on_a_web_server_is_opened_by_three_requests(served):
    """It has no list, but a hint that carries the newest snapshot; the next number tells that it is the newest."""
    labels, keys = opened_from_a_web_server(served)
    assert labels == list(range(12))
    assert keys == [HINT, snapshot_key(4), bundle_key(opened(served, 3)[1].bundle.name)]


def test_a_hint_carries_the_snapshot_that_it_names(served):
    """Its bytes are those of the object."""
    said = orjson.loads((served / HINT).read_bytes())["attributes"]["virtualstack"]
    assert base64.b64decode(said["document"]) == (served / snapshot_key(3)).read_bytes()
    assert said["snapshot"] == 3


def test_a_hint_without_a_snapshot(served):
    """The snapshot is requested."""
    rewritten_hint(served, document=None)
    labels, keys = opened_from_a_web_server(served)
    assert labels == list(range(12))
    assert keys[:3] == [HINT, snapshot_key(4), snapshot_key(3)]


@pytest.mark.parametrize("carries", [True, False])
def test_a_hint_never_hides_a_newer_snapshot(served, carries):
    """A slower writer left it, and was killed."""
    older = (served / snapshot_key(1)).read_bytes()
    rewritten_hint(served, snapshot=1, document=base64.b64encode(older).decode() if carries else None)
    labels, keys = opened_from_a_web_server(served)
    assert labels == list(range(12))
    assert keys[:4] == [HINT, *map(snapshot_key, (2, 3, 4))]
    assert len(keys) == 5


@pytest.mark.parametrize("document", ["", "?", 7, [], "AAAA", "empty", "another", "cut"])
def test_a_damaged_snapshot_in_a_hint_is_an_error(served, document):
    """The same checks are made as for the object, and the error names the hint."""
    broken = {
        "empty": gzip.compress(b'{"vstack_format": 1, "number": 3}'),
        "another": (served / snapshot_key(2)).read_bytes(),
        "cut": (served / snapshot_key(3)).read_bytes()[:-9],
    }
    if document in ("empty", "another", "cut"):
        document = base64.b64encode(broken[document]).decode()
    rewritten_hint(served, document=document)
    with pytest.raises(MalformedFileError, match=re.escape(HINT)):
        opened_from_a_web_server(served)
    assert len(Repository.open(served).log()) == 4  # who can list the store does not need the hint


def test_a_large_snapshot_is_not_in_the_hint(tmp_path):
    """The limit holds for its compressed bytes."""
    noise = np.random.default_rng(0).bytes(300_000).hex()
    for n, carries in ((10_000, True), (600_000, False)):
        store = tmp_path / f"{n}.vstack"
        made = xr.Dataset({"t": ("time", np.ones(3))}, {"time": [0, 1, 2]}, {"noise": noise[:n]})
        made.virtual.to_vstack(store)
        assert ((store / snapshot_key(0)).stat().st_size <= 1 << 18) == carries
        said = orjson.loads((store / HINT).read_bytes())["attributes"]["virtualstack"]
        assert ("document" in said) == carries
        assert opened_from_a_web_server(store)[0] == [0, 1, 2]


def full(self, key, data):
    """Refuse to write the hint, as a disk does that is full."""
    if key == HINT:
        raise StorageError("the disk is full")
    return WRITE(self, key, data)


WRITE = LocalTarget.put


def killed_before_the_hint(store, monkeypatch):
    """Commit a snapshot, and die before the hint names it."""

    def die(self, key, data):
        if key == HINT:
            raise KeyboardInterrupt
        return WRITE(self, key, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalTarget, "put", die)
        with pytest.raises(KeyboardInterrupt):
            Repository.open(store).edit(lambda ds: ds.assign_attrs(title="new"))
    assert orjson.loads((store / HINT).read_bytes())["attributes"]["virtualstack"]["snapshot"] == 3


def test_a_writer_that_was_killed_before_the_hint(served, monkeypatch):
    """Its snapshot is found, and the hint names the newest one again before an older one is deleted."""
    killed_before_the_hint(served, monkeypatch)
    assert opened_from_a_web_server(served)[0] == list(range(12))
    Repository.open(served).expire(keep=1, grace=timedelta(0))
    assert (served / HINT).read_bytes() == hint(4, (served / snapshot_key(4)).read_bytes())
    assert opened_from_a_web_server(served)[0] == list(range(12))


def test_a_snapshot_that_the_hint_carries_is_not_deleted(served, monkeypatch):
    """If the hint cannot be written: else a reader would not notice that there are newer ones."""
    killed_before_the_hint(served, monkeypatch)
    monkeypatch.setattr(LocalTarget, "put", full)
    with pytest.raises(StorageError, match="the disk is full"):
        Repository.open(served).expire(keep=1, grace=timedelta(0))
    assert (served / snapshot_key(3)).exists()


def test_a_commit_without_a_hint_warns(served, monkeypatch):
    """It is in the store, and the next commit writes the hint."""
    with monkeypatch.context() as patch:
        patch.setattr(LocalTarget, "put", full)
        with pytest.warns(UserWarning, match="snapshot 4 .* is committed, but"):
            Repository.open(served).edit(lambda ds: ds.assign_attrs(title="new"))
    assert Repository.open(served).snapshot.number == 4
    Repository.open(served).edit(lambda ds: ds.assign_attrs(title="newer"))
    assert (served / HINT).read_bytes() == hint(5, (served / snapshot_key(5)).read_bytes())
