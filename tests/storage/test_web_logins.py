"""Names, passwords and tokens of web servers, and where they are not sent."""

import base64
from concurrent.futures import ThreadPoolExecutor

import pytest

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
