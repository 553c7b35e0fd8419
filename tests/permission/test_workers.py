"""Credentials and permission on workers of dask: no cube leaks to another one in the same process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from tests.two_users import KINDS, USERS, serving_two_users
from tests.vstack.archive import as_read, days, join
from virtualstack.errors import ForbiddenLocationError, StorageError

distributed = pytest.importorskip("distributed", reason="needs distributed: pip install 'virtualstack[dask]'")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tornado")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Two workers in processes of their own."""
    options = {"n_workers": 2, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    variables = {"AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        client.run(use, variables)
        yield client


def use(variables: dict[str, str]) -> None:
    os.environ.update(variables)


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    with serving_two_users() as url:
        yield url


def cube(kind: str, root: str, name: str) -> xr.Dataset:
    """Open the file of a user, as tasks of dask."""
    url, storage = KINDS[kind](root, name)
    return xr.open_dataset(url, engine="virtualstack", storage=storage, chunks={})


@pytest.mark.parametrize("kind", KINDS)
def test_each_cube_is_read_with_its_own_login(kind, root, client):
    """Two users have the same URL; their tasks are mixed on the same workers, and computed again in turn."""
    cubes = {name: cube(kind, root, name) for name in USERS}
    for _ in range(2):
        futures = {name: client.compute(found["t"]) for name, found in cubes.items()}
        for name, future in futures.items():
            assert np.unique(future.result()).tolist() == [USERS[name]]
    both = client.compute(xr.concat(list(cubes.values()), "user")["t"].max(("time", "x"))).result()
    assert both.values.tolist() == list(USERS.values())
    opened = {
        name: vs.open_virtual_dataset(KINDS[kind](root, name)[0], storage=KINDS[kind](root, name)[1]) for name in USERS
    }
    for name, vds in opened.items():
        found = client.compute(vds.virtual.open(chunks={})["t"].mean()).result()
        assert float(found) == USERS[name]


@pytest.mark.parametrize("kind", ["s3", "gs", "az"])
def test_a_stranger_in_the_same_worker_gets_nothing(kind, root, client, tmp_path):
    """Neither with the same URL, nor through references, after the workers have read with a login."""
    url, storage = KINDS[kind](root, "ann")
    prefix, options = next(iter(storage.items()))
    plain = {name: value for name, value in options.items() if name in ("endpoint", "account_name")}
    vds = vs.open_virtual_dataset(url, storage=storage)
    refs = tmp_path / "refs.json"
    vds.virtual.to_kerchunk(refs, inline_limit=0)
    assert float(client.compute(cube(kind, root, "ann")["t"].mean()).result()) == USERS["ann"]
    for given in ({prefix: plain}, {"": plain}):
        stranger = xr.open_dataset(json.loads(refs.read_text()), engine="virtualstack", storage=given, chunks={})
        with pytest.raises(StorageError, match="access denied"):
            client.compute(stranger["t"].mean()).result()


def test_logs_of_workers_have_no_secrets(root, client):
    """The task that failed is in them, with its arguments."""
    with serving_two_users() as gone:
        found = xr.open_dataset(
            f"{gone}/f.nc", engine="virtualstack", storage={gone: {"auth": ("ann", "s3cret")}}, chunks={}
        )
    with pytest.raises(StorageError, match="connection was refused") as caught:
        client.compute(found["t"].mean()).result()
    logs = str(client.get_worker_logs()) + str(client.get_scheduler_logs())
    assert "Compute Failed" in logs
    assert f"{gone}/f.nc" in logs
    for text in (logs, str(caught.value), repr(found["t"].data.dask), " ".join(map(str, found["t"].data.dask))):
        assert "s3cret" not in text


@pytest.fixture
def data(tmp_path: Path) -> list[Path]:
    return days(tmp_path / "data", 2)


@pytest.mark.parametrize("form", ["json", "parq", "vstack"])
def test_what_one_cube_is_allowed_serves_no_other(form, data, client, tmp_path):
    """A cube brings the places with which it was opened to the workers."""
    store, vds = tmp_path / "theirs" / f"x.{form}", join(data)
    store.parent.mkdir()
    getattr(vds.virtual, "to_vstack" if form == "vstack" else "to_kerchunk")(store)
    options: dict[str, Any] = {"engine": "virtualstack", "chunks": {}}
    expected = float(as_read(data)["t"].sum())
    with RangeServer(store.parent) as server:
        allowed = xr.open_dataset(server.url(store.name), **options, allow=[str(tmp_path / "data")])
        assert float(client.compute(allowed["t"].sum()).result()) == expected
        for worker in client.scheduler_info()["workers"]:
            with pytest.raises(ForbiddenLocationError, match="which is a local file"):
                client.submit(total, server.url(store.name), workers=[worker], pure=False).result()
        assert float(client.compute(allowed["t"].sum() + 0).result()) == expected


def total(store: str) -> float:
    """Open references in a worker."""
    return float(xr.open_dataset(store, engine="virtualstack")["t"].sum())
