"""Google Cloud: tokens, files of credentials and the machine's account, against servers on loopback.

The emulators of PyPI neither check who asks nor answer HEAD and listings of the XML interface, which obstore speaks.
"""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests import servers
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.storage import Storage, open_source
from virtualstack.storage.identities import google_cloud
from virtualstack.storage.listing import find_urls

DATA = bytes(range(256)) * 400
URL = "gs://b/d/a.nc"
FILES = {"b/d/a.nc": DATA}


@pytest.fixture
def server():
    with RangeServer(dict(FILES), mode="refuse_anonymous") as server:
        yield server


def at(server, **options):
    return {"gs://b": {"endpoint": server.root.rstrip("/"), "max_retries": 0, **options}}


def sent(server):
    return [entry[3].get("authorization") for entry in server.log]


@pytest.fixture(scope="module")
def account():
    """A file of a service account, as Google gives it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return {"type": "service_account", "client_email": "me@p.iam.gserviceaccount.com", "private_key": pem,
            "private_key_id": "k1", "project_id": "p", "token_uri": "http://127.0.0.1:9/token"}  # fmt: skip


@pytest.mark.parametrize("name", ["token", "bearer_token"])
def test_a_token(server, name):
    assert open_source(URL, storage=at(server, **{name: "t0ken"})).read(50_000, 4) == DATA[50_000:50_004]
    assert set(sent(server)) == {"Bearer t0ken"}
    server.mode = "refuse_signed"
    with pytest.raises(StorageError, match=r"tried: the credentials in storage=: the server answered 403") as caught:
        open_source(URL, storage=at(server, **{name: "t0ken"}))
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize("place", ["variable", "gcloud", "path", "token", "content", "word"])
def test_a_service_account(server, account, monkeypatch, tmp_path, place):
    """Its key signs a token, without a request."""
    path = tmp_path / "application_default_credentials.json"
    path.write_text(json.dumps(account))
    options = {
        "path": {"service_account_path": str(path)}, "token": {"token": str(path)}, "content": {"token": account},
    }.get(place, {})  # fmt: skip
    if place == "variable":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    if place in ("gcloud", "word"):
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
        options = {"token": "google_default"} if place == "word" else {}
    open_source(URL, storage=at(server, **options)).read(50_000, 1)
    assert {value.partition(".")[0].partition(" ")[0] for value in sent(server)} == {"Bearer"}
    server.mode, server.status = "status", 403
    with pytest.raises(StorageError, match=r"the credentials in storage=|\(GOOGLE_APPLICATION_CREDENTIALS\)|gcloud's"):
        open_source(URL, storage=at(server, **options))


def test_a_file_that_obstore_does_not_know_is_read_by_google_auth(server, monkeypatch, tmp_path):
    """Such as that of another cloud's identity, whose token is exchanged."""
    (tmp_path / "subject").write_text("subject-token")
    answer = {"access_token": "exchanged", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
              "token_type": "Bearer", "expires_in": 3600}  # fmt: skip

    with RangeServer({}, mode="status", status=200, body=json.dumps(answer).encode()) as exchange:
        monkeypatch.setattr(servers.Handler, "do_POST", servers.Handler.do_GET, raising=False)
        path = tmp_path / "external.json"
        file = {"type": "external_account", "audience": "a", "token_url": exchange.url("v1/token")}
        file["subject_token_type"] = "urn:ietf:params:oauth:token-type:jwt"
        file["credential_source"] = {"file": str(tmp_path / "subject")}
        path.write_text(json.dumps(file))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        for _ in range(2):
            open_source(URL, storage=at(server)).read(50_000, 1)
        assert set(sent(server)) == {"Bearer exchanged"}
        assert exchange.n_requests == 1


class Metadata(RangeServer):
    """The metadata service of Google Cloud, with one account; one answer has all that is asked for."""

    def __init__(self):
        answer = {"access_token": "machine", "expires_in": 3600, "token_type": "Bearer", "email": "m@p", "scopes": []}
        headers = {"Content-Type": "application/json", "Metadata-Flavor": "Google"}
        super().__init__({}, mode="status", status=200, body=json.dumps(answer).encode(), headers=headers)


def test_the_account_of_the_machine_comes_last(server, monkeypatch):
    """A public bucket does not ask for it."""
    monkeypatch.delenv("NO_GCE_CHECK")
    with Metadata() as metadata:
        host = metadata.root.removeprefix("http://").rstrip("/")
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", host)
        server.mode = "normal"
        open_source(URL, storage=at(server))
        assert (sent(server), metadata.n_requests) == ([None], 0)
        server.mode = "refuse_anonymous"
        server.reset()
        open_source(URL, storage=at(server)).read(50_000, 1)
        assert sent(server) == [None, "Bearer machine", "Bearer machine"]


def test_where_there_is_no_metadata_service_it_is_said_quickly(server, monkeypatch):
    """Without google-auth, which would try for 9 s."""
    monkeypatch.delenv("NO_GCE_CHECK")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    monkeypatch.setattr("google.auth.compute_engine.Credentials", lambda: pytest.fail("google-auth is asked"))
    with pytest.raises(StorageError, match=r"anonymous: .*; the service account of this machine: no credentials were"):
        open_source(URL, storage=at(server))


@pytest.mark.parametrize("options", [{"token": "anon"}, {"anon": True}, {"anonymous": True}, {"skip_signature": True}])
def test_anonymous_in_every_spelling(server, options):
    server.mode = "normal"
    open_source(URL, storage=at(server, **options))
    assert sent(server) == [None]


@pytest.mark.parametrize("name", ["endpoint", "endpoint_url", "base_url", "GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"])
@pytest.mark.parametrize("begin", ["http://", ""])
def test_endpoints(server, monkeypatch, name, begin):
    """As options, and the one of Google's own libraries in the environment, which may have no scheme."""
    server.mode = "normal"
    place = server.root.rstrip("/")
    if name == "STORAGE_EMULATOR_HOST":
        monkeypatch.setenv(name, place if begin else place.removeprefix("http://"))
        assert open_source(URL).size == len(DATA)
    elif begin:
        assert open_source(URL, storage={"gs://b": {name: place}}).size == len(DATA)


def test_two_users_in_threads(server):
    server.files |= {f"b/{user}{n}": DATA for user in ("ann", "bob") for n in range(16)}

    def read(i):
        user, n = ("ann", "bob")[i % 2], i // 2
        storage = Storage.from_option(at(server, token=f"{user}-token"))
        return storage.source(f"gs://b/{user}{n}").read(50_000, 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(32)))
    pairs = {(path.partition("/b/")[2][:3], headers["authorization"]) for _, path, _, headers in server.log}
    assert pairs == {("ann", "Bearer ann-token"), ("bob", "Bearer bob-token")}


def test_listings(server):
    """Are signed, too."""
    server.files["b"] = (
        b"<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents><Key>d/a.nc"
        b"</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><Size>4</Size><ETag>x</ETag></Contents>"
        b"</ListBucketResult>"
    )
    assert find_urls(["gs://b/d/*.nc"], storage=at(server, token="t")) == [URL]


def test_kinds_of_files(tmp_path):
    """obstore reads two of them itself; a file that cannot be read is left to it, whose message names it."""
    for kind, expected in (("service_account", None), ("authorized_user", None), ("external_account",) * 2):
        (tmp_path / "x").write_text(json.dumps({"type": kind}))
        assert google_cloud.foreign_kind(tmp_path / "x") == expected
    (tmp_path / "x").write_text("[")
    assert google_cloud.foreign_kind(tmp_path / "x") is google_cloud.foreign_kind(tmp_path / "nope") is None
