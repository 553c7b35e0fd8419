"""Azure: keys, SAS tokens, connection strings and tokens of others, against Azurite and servers on loopback."""

import json
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import obstore
import pytest

from tests.azurite import ACCOUNT, KEY, find_program, shared
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.storage import Storage, open_source
from virtualstack.storage.identities import azure
from virtualstack.storage.obstore import connect

DATA = bytes(range(256)) * 400
URL = "az://private/d/a.nc"


@pytest.fixture(scope="session")
def azurite():
    if find_program() is None:
        pytest.skip("needs Azurite: npm install -g azurite")
    server = shared()
    for container in ("private", "public"):
        server.create(container, is_public=container == "public")
        obstore.put(server.store(container), "d/a.nc", DATA)
    return server


def at(server, **options):
    return {"az://": {"account_name": ACCOUNT, "endpoint": server.endpoint, "max_retries": 0, **options}}


def connection_string(server, secret):
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};BlobEndpoint={server.endpoint};{secret}"


@pytest.mark.parametrize("name", ["account_key", "AZURE_STORAGE_ACCOUNT_KEY", "access_key"])
def test_an_account_key(azurite, name):
    source = open_source(URL, storage=at(azurite, **{name: KEY}))
    assert pickle.loads(pickle.dumps(source)).read(50_000, 4) == DATA[50_000:50_004]


@pytest.mark.parametrize("name", ["sas_token", "sas_key"])
@pytest.mark.parametrize("begin", ["", "?"])
def test_a_sas_token(azurite, name, begin):
    """With the question mark with which the portal shows it, too; it opens the blob for which it was made."""
    storage = at(azurite, **{name: begin + azurite.sas("private", "d/a.nc")})
    assert open_source(URL, storage=storage).read(50_000, 4) == DATA[50_000:50_004]
    with pytest.raises(StorageError, match=r"tried: the credentials in storage=: the server answered 403") as caught:
        open_source("az://private/d/other.nc", storage=storage)
    assert "sig=" not in str(caught.value)


@pytest.mark.parametrize("place", ["option", "environment"])
@pytest.mark.parametrize("kind", ["key", "sas"])
def test_a_connection_string(azurite, monkeypatch, place, kind):
    secret = f"AccountKey={KEY}" if kind == "key" else f"SharedAccessSignature={azurite.sas('private', 'd/a.nc')}"
    text = connection_string(azurite, secret)
    if place == "environment":
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    storage = {"az://": {"connection_string": text}} if place == "option" else None
    assert open_source(URL, storage=storage).read(50_000, 4) == DATA[50_000:50_004]


def test_a_connection_string_that_is_none():
    """It is not shown."""
    with pytest.raises(StorageError, match="the connection string of Azure has no AccountName") as caught:
        open_source(URL, storage={"az://": {"connection_string": "s3cret"}})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UseDevelopmentStorage=true", {"account_name": ACCOUNT, "account_key": KEY,
                                        "endpoint": f"http://127.0.0.1:10000/{ACCOUNT}"}),
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=b==;EndpointSuffix=core.chinacloudapi.cn",
         {"account_name": "a", "account_key": "b==", "endpoint": "https://a.blob.core.chinacloudapi.cn"}),
        ("BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sv=1&sig=x%3D",
         {"account_name": "a", "sas_key": "sv=1&sig=x%3D", "endpoint": "https://a.blob.core.windows.net"}),
    ],
)  # fmt: skip
def test_parts_of_connection_strings(text, expected):
    assert azure.from_connection_string(text) == expected


def test_a_public_container_needs_nothing(azurite, monkeypatch):
    """Nor is anybody asked; a private one names who was tried."""
    with RangeServer({}, mode="hang") as managed:
        monkeypatch.setenv("IDENTITY_ENDPOINT", managed.url("token"))
        monkeypatch.setenv("IDENTITY_HEADER", "x")
        assert open_source("az://public/d/a.nc", storage=at(azurite)).read(50_000, 4) == DATA[50_000:50_004]
    assert managed.n_requests == 0
    with pytest.raises(StorageError, match=r"access denied: .*tried: anonymous: the server answered 403"):
        open_source(URL, storage=at(azurite, anon=True))


class Managed(RangeServer):
    """The service of a machine in Azure that gives tokens."""

    def __init__(self):
        answer = {"access_token": "azure-token", "expires_on": str(int(time.time()) + 7200), "resource": "r",
                  "token_type": "Bearer"}  # fmt: skip
        super().__init__({"token": json.dumps(answer).encode()}, mode="normal")


def test_default_azure_credential(monkeypatch):
    """After anonymous was refused; then it is the first, and its token is kept."""
    with Managed() as managed, RangeServer({"private/d/a.nc": DATA}, mode="refuse_anonymous") as server:
        monkeypatch.setenv("IDENTITY_ENDPOINT", managed.url("token"))
        monkeypatch.setenv("IDENTITY_HEADER", "x")
        options = {"account_name": "a", "endpoint": server.root.rstrip("/"), "max_retries": 0}
        source = open_source(URL, storage={"az://": options})
        assert source.read(50_000, 4) == DATA[50_000:50_004]
        sent = [entry[3].get("authorization") for entry in server.log]
        assert sent == [None, "Bearer azure-token", "Bearer azure-token"]
        assert managed.n_requests == 1


def test_two_accounts_in_threads(azurite):
    """One with the key, one with none."""

    def read(n):
        secret = {"account_key": KEY} if n % 2 else {"anon": True}
        try:
            return bool(open_source(URL, storage=at(azurite, **secret)))
        except StorageError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, range(24))) == [bool(n % 2) for n in range(24)]


@pytest.fixture
def planetary(azurite, monkeypatch):
    """Planetary Computer's service of tokens."""
    ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = json.dumps({"msft:expiry": ends, "token": azurite.sas("private", "d/a.nc")}).encode()
    with RangeServer({f"{ACCOUNT}/private": answer}) as server:
        monkeypatch.setenv("PC_SDK_SAS_URL", server.root.rstrip("/"))
        yield server


def test_planetary_computer_signs(azurite, planetary):
    """One token serves the container."""
    storage = at(azurite, planetary_computer=True)
    for _ in range(2):
        assert open_source(URL, storage=storage).read(50_000, 4) == DATA[50_000:50_004]
    assert planetary.n_requests == 1
    message = r"Planetary Computer: no credentials were found: HTTPError: 404 .*; anonymous: the server answered 40"
    with pytest.raises(StorageError, match=message):
        open_source("az://unknown/x.nc", storage=storage)


@pytest.mark.parametrize(
    "storage", ["planetary_computer", {"https://acct.blob.core.windows.net/": {"sas_token": "sig=x"}}]
)
def test_https_urls_of_blobs_are_blobs_where_options_are_for_these(storage):
    """As STAC items of Planetary Computer have them; without such options they are files of a web server."""
    url = "https://acct.blob.core.windows.net/container/a%20b/c.nc"
    prefix, backend = Storage.from_option(storage).find(url)
    connection, key = connect(url, backend, prefix)
    assert (connection.root, key) == ("https://acct.blob.core.windows.net/container/", "a b/c.nc")
    assert not connection.is_web
    assert connect(url, None, "")[0].is_web


@pytest.mark.parametrize(
    "root",
    [
        "https://acct.blob.core.windows.net/cont/",
        "abfs://cont@acct.dfs.core.windows.net/",
        "abfss://cont@acct.dfs.core.windows.net/",
    ],
)
def test_urls_name_account_and_container(root):
    """For Planetary Computer's tokens."""
    provider = azure.planetary_computer(root, {})
    assert provider.config == {"account_name": "acct", "container_name": "cont"}
    with pytest.raises(StorageError, match="'az://cont/' does not name its account"):
        azure.planetary_computer("az://cont/", {})


def test_conditional_writes(azurite):
    """The first writer of a key wins, and the probe of the server leaves no blob."""
    target = Storage.from_option(at(azurite, account_key=KEY)).target("az://private/conditional/x")
    assert [target.put_if_absent("a/k", data) for data in (b"1", b"2")] == [True, False]
    assert target.list() == ["a/k"]
