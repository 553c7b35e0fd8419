"""Names, passwords and tokens of web servers, and where they are not sent."""

import base64
import io
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.storage import Storage, open_source

DATA = bytes(range(256)) * 400


def basic(name, password):
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"username": "ann", "password": "p:ß"}, basic("ann", "p:ß")),
        ({"auth": ("ann", "pw")}, basic("ann", "pw")),
        ({"auth": ["ann", "pw"]}, basic("ann", "pw")),
        ({"token": "t"}, "Bearer t"),
        ({"bearer_token": "t", "headers": {"X-Api-Key": "k"}}, "Bearer t"),
        ({"headers": {"Authorization": "Own x"}}, "Own x"),
        ({"anonymous": True}, None),
    ],
)
def test_what_is_given_is_sent(options, expected):
    with RangeServer({"x": DATA}) as server:
        storage = Storage.from_option({server.root: options})
        storage.source(server.url("x")).read(50_000, 1)
        assert {entry[3].get("authorization") for entry in server.log} == {expected}
        assert {entry[3].get("x-api-key") for entry in server.log} == {options.get("headers", {}).get("X-Api-Key")}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("more", [{}, {"token": "t"}, {"timeout": "20s"}])
def test_headers_do_not_follow_a_redirect_to_another_origin(host, more):
    """An API key is for one server: its own redirects within it keep the key, those to another port lose it."""
    with (
        RangeServer({"x": DATA}) as data,
        RangeServer({"y": DATA}, fault=lambda path: 302 if path == "x" else None) as server,
    ):
        storage = Storage.from_option({server.root: {"headers": {"X-Api-Key": "k"}, **more}})
        server.body = b""
        server.headers = {"Location": data.url("x").replace("127.0.0.1", host)}
        source = storage.source(server.url("x"))
        assert source.read(50_000, 9) == source.read_ranges([(50_000, 9)])[0] == DATA[50_000:50_009]
        assert storage.target(server.root).get("x") == DATA
        assert storage.look_up([server.url("x")])[0].size == len(DATA)
        assert {entry[3].get("x-api-key") for entry in server.log} == {"k"}
        assert {(entry[3].get("x-api-key"), entry[3].get("authorization")) for entry in data.log} == {(None, None)}
        server.reset()
        server.headers = {"Location": server.url("y")}
        assert storage.source(server.url("x")).read(50_000, 9) == DATA[50_000:50_009]
        assert {entry[3].get("x-api-key") for entry in server.log if entry[1].endswith("y")} == {"k"}


@pytest.mark.parametrize("options", [{"username": "ann", "password": "s3cret"}, {"token": "s3cret"}])
def test_a_redirect_to_another_host_gets_nothing(options):
    """And the error names the user, not the password."""
    with RangeServer({"x": DATA}) as data, RangeServer({}, mode="status", status=302) as server:
        server.headers = {"Location": data.url("x").replace("127.0.0.1", "localhost")}
        open_source(server.url("x"), storage={server.root: options})
        assert "authorization" in server.log[-1][3]
        assert "authorization" not in data.log[-1][3]
        server.status, server.headers = 401, {}
        with pytest.raises(StorageError, match=r"tried: the (user 'ann'|token) in storage=: the server") as caught:
            open_source(server.url("x"), storage={server.root: options})
        assert "s3cret" not in str(caught.value)


@pytest.fixture(scope="module")
def dataset():
    buffer = io.BytesIO()
    xr.Dataset({"t": ("x", np.arange(30_000.0))}, {"x": np.arange(30_000)}).to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


def with_user(url, user="ann:p%40ss"):
    return url.replace("://", f"://{user}@")


def test_a_user_in_a_url_is_kept_nowhere(dataset, tmp_path):
    """It is sent, and is neither in references, nor in the dataset's repr, nor in messages."""
    with RangeServer({"a.nc": dataset}, mode="refuse_anonymous") as server:
        vds = vs.open_virtual_dataset(with_user(server.url("a.nc")))
        np.testing.assert_array_equal(vds.virtual.open()["t"].values, np.arange(30_000.0))
        assert {entry[3].get("authorization") for entry in server.log} == {basic("ann", "p@ss")}
        again = pickle.loads(pickle.dumps(vds))
        assert again.virtual.open()["t"].values[-1] == 29_999
        vds.virtual.to_kerchunk(str(tmp_path / "refs.json"))
        text = (tmp_path / "refs.json").read_text()
        assert server.url("a.nc") in text
        for shown in (text, repr(vds), repr(vds["t"].variable._data)):
            assert "ss" + "@" not in shown
            assert "p%40ss" not in shown
        server.mode, server.status = "status", 403
        with pytest.raises(StorageError, match="the user 'ann' in storage=") as caught:
            vs.open_virtual_dataset(with_user(server.url("b.nc")))
        assert "p%40ss" not in str(caught.value)
        assert "p@ss" not in str(caught.value)


WAYS = {
    "dataset": lambda url, storage: vs.open_virtual_dataset(url, storage=storage).virtual.open(),
    "tree": lambda url, storage: vs.open_virtual_datatree(url, storage=storage).virtual.open().to_dataset(),
    "many": lambda url, storage: vs.open_virtual_mfdataset([url], storage=storage).virtual.open(),
    "many trees": lambda url, storage: vs.open_virtual_mfdatatree([url], storage=storage).virtual.open().to_dataset(),
    "engine": lambda url, storage: xr.open_dataset(url, engine="virtualstack", storage=storage),
    "engine, tree": lambda url, storage: xr.open_datatree(url, engine="virtualstack", storage=storage).to_dataset(),
    "scan": lambda url, storage: vs.scan([url], storage=storage).datasets()[0].virtual.open(),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_user_of_a_url_is_added_to_the_options_of_its_host(way, dataset):
    """Loaded and virtual variables are read with both."""
    with RangeServer({"a.nc": dataset}, mode="refuse_anonymous") as server:
        storage = {server.root: {"headers": {"X-Api-Key": "k"}}}
        found = WAYS[way](with_user(server.url("a.nc")), storage)
        np.testing.assert_array_equal(found["t"], np.arange(30_000.0))
        sent = {(entry[3].get("x-api-key"), entry[3].get("authorization")) for entry in server.log}
        assert sent == {("k", basic("ann", "p@ss"))}


def test_users_in_urls_of_sources_and_targets():
    """Everywhere where a URL is opened."""
    with RangeServer({"x": DATA}, mode="refuse_anonymous") as server:
        source = open_source(with_user(server.url("x")))
        assert source.location.url == server.url("x")
        assert source.read(50_000, 2) == DATA[50_000:50_002]
        assert Storage.from_option(None).target(with_user(server.root)).get("x") == DATA
        with pytest.raises(StorageError, match="name different users"):
            vs.scan([with_user(server.url("x")), with_user(server.url("x"), "bob:x")])
        storage = {server.root: {"headers": {"X-Api-Key": "k"}}}
        server.reset()
        open_source(with_user(server.url("x")), storage=storage)
        assert (server.log[0][3]["x-api-key"], server.log[0][3]["authorization"]) == ("k", basic("ann", "p@ss"))


def test_two_users_in_threads():
    """Neither sees the other's."""
    with RangeServer({f"{user}{n}": DATA for user in ("ann", "bob") for n in range(16)}) as server:

        def read(i):
            user, n = ("ann", "bob")[i % 2], i // 2
            storage = {server.root: {"username": user, "password": "pw"}}
            return open_source(server.url(f"{user}{n}"), storage=storage).read(50_000, 1)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(read, range(32)))
        sent = {(path.lstrip("/")[:3], headers["authorization"]) for _, path, _, headers in server.log}
    assert sent == {(user, basic(user, "pw")) for user in ("ann", "bob")}
