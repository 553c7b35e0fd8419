"""NASA Earthdata: logins over redirects, cookies and tokens that go nowhere else, and keys of buckets that refresh."""

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.earthdata_server import Earthdata
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.storage import Storage, open_source
from virtualstack.storage.identities import earthdata

DATA = bytes(range(256)) * 400
FILES = dict.fromkeys(("d/a.nc", "d/b.nc", "public/a.nc"), DATA)


@pytest.fixture(params=[False, True], ids=["401", "page"])
def page(request):
    return request.param


@pytest.fixture
def server(monkeypatch, page):
    with Earthdata(FILES, page=page) as server:
        monkeypatch.setenv("EARTHDATA_HOST", server.login_host)
        yield server


@pytest.fixture
def of_nasa(server, monkeypatch):
    """The archive is found from its host, as NASA's own are."""
    monkeypatch.setattr(earthdata, "_ARCHIVES", ("127.0.0.1",))
    return server


def use_netrc(monkeypatch, tmp_path, server, user="ann", password="pw-ann"):
    path = tmp_path / "netrc"
    host = server.login_host.partition(":")[0]
    path.write_text(f"machine elsewhere login x password y\nmachine {host} login {user} password {password}\n")
    monkeypatch.setenv("NETRC", str(path))
    return path


def test_netrc_is_enough(of_nasa, monkeypatch, tmp_path):
    """With no storage= at all; one login serves all files of the host."""
    use_netrc(monkeypatch, tmp_path, of_nasa)
    source = open_source(of_nasa.root + "d/a.nc")
    assert source.read(50_000, 4) == DATA[50_000:50_004]
    n = of_nasa.counts()["login"]
    assert open_source(of_nasa.root + "d/b.nc").read(50_000, 4) == DATA[50_000:50_004]
    assert of_nasa.counts()["login"] == n


def test_secrets_go_only_where_they_belong(of_nasa, monkeypatch, tmp_path):
    """Name and password to the login server, the cookie to the archive, nothing to the data."""
    use_netrc(monkeypatch, tmp_path, of_nasa)
    open_source(of_nasa.root + "d/a.nc").read(50_000, 4)
    assert {value.partition(" ")[0] for value in of_nasa.secrets_at("login")} == {"Basic"}
    assert all(value.startswith("session=") for value in of_nasa.secrets_at("archive"))
    assert of_nasa.secrets_at("data") == set()


@pytest.mark.parametrize("knows_tokens", [False, True])
def test_a_token(of_nasa, monkeypatch, knows_tokens):
    """The archive takes it without the login server, or sends the client there."""
    of_nasa.knows_tokens = knows_tokens
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    assert open_source(of_nasa.root + "d/a.nc").read(50_000, 4) == DATA[50_000:50_004]
    assert (of_nasa.counts()["login"] == 0) == knows_tokens
    assert "Bearer tok-ann" in of_nasa.secrets_at("archive")
    assert of_nasa.secrets_at("data") == set()
    if knows_tokens:
        assert of_nasa.counts() == {"archive": 2, "data": 2}


def test_public_files_take_no_login(of_nasa, monkeypatch, tmp_path):
    """Not one request more than without one."""
    use_netrc(monkeypatch, tmp_path, of_nasa)
    open_source(of_nasa.root + "public/a.nc")
    assert of_nasa.counts() == {"archive": 1, "data": 1}


def test_a_login_that_expires_is_renewed(of_nasa, monkeypatch, tmp_path):
    """While a file is read."""
    use_netrc(monkeypatch, tmp_path, of_nasa)
    source = open_source(of_nasa.root + "d/a.nc")
    of_nasa.sessions.clear()
    parts = source.read_ranges([(n * 20_000, 10) for n in range(1, 6)])
    assert [bytes(part) for part in parts] == [DATA[n * 20_000 : n * 20_000 + 10] for n in range(1, 6)]
    assert len(of_nasa.sessions) == 1


def test_whole_objects_are_no_pages(of_nasa, monkeypatch, tmp_path):
    """A page of the login server is not the object."""
    use_netrc(monkeypatch, tmp_path, of_nasa)
    assert Storage.from_option(None).target(of_nasa.root + "d/").get("a.nc") == DATA


def test_without_a_login_the_error_says_where_it_looked(of_nasa):
    message = r"access denied: .*tried: no Earthdata login \(EARTHDATA_TOKEN, EARTHDATA_USERNAME and ~/.netrc have"
    with pytest.raises(StorageError, match=message):
        open_source(of_nasa.root + "d/a.nc")


def test_a_wrong_password_is_told_with_its_place(of_nasa, monkeypatch, tmp_path):
    """And with what the login server answered; the password is not shown."""
    path = use_netrc(monkeypatch, tmp_path, of_nasa, password="wrong-pw")
    with pytest.raises(StorageError) as caught:
        open_source(of_nasa.root + "d/a.nc")
    message = str(caught.value)
    assert f"the Earthdata user 'ann' in '{path}': '{of_nasa.login_host}' did not accept it (status 401)" in message
    assert "wrong-pw" not in message


def test_a_wrong_password_is_not_tried_for_each_file(of_nasa, monkeypatch, tmp_path):
    """The login server would lock the user out."""
    use_netrc(monkeypatch, tmp_path, of_nasa, password="wrong-pw")
    for _ in range(5):
        with pytest.raises(StorageError, match=r"did not accept it \(status 401\)"):
            open_source(of_nasa.root + "d/a.nc")
    tried = [headers for name, _, headers in of_nasa.log if name == "login" and "Authorization" in headers]
    assert len(tried) == 1


@pytest.mark.parametrize("options", [{"token": "tok-bob"}, {"username": "bob", "password": "pw-bob"}])
def test_a_login_given_as_options(of_nasa, monkeypatch, tmp_path, options):
    """It is the only one, and is not in the repr of the storage."""
    use_netrc(monkeypatch, tmp_path, of_nasa)
    of_nasa.knows_tokens = False
    storage = Storage.from_option({of_nasa.root: options})
    assert storage.source(of_nasa.root + "d/a.nc").read(50_000, 4) == DATA[50_000:50_004]
    assert set(of_nasa.sessions.values()) == {"bob"}
    assert "bob" not in repr(storage)


def test_the_word_earthdata_is_for_nasas_hosts_only(server, monkeypatch):
    """Another host never gets the token; a host that is named with the option does."""
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    with RangeServer({"x": DATA}) as other:
        open_source(other.url("x"), storage="earthdata")
        assert "authorization" not in {key.lower() for key in other.log[-1][3]}
    storage = {server.root: {"earthdata": True}}
    assert open_source(server.root + "d/a.nc", storage=storage).read(50_000, 4) == DATA[50_000:50_004]
    with pytest.raises(TypeError, match=r"is a str\. Give a mapping .* one of the words earthdata"):
        open_source(server.root + "d/a.nc", storage="earthdta")


def test_anonymous_sends_no_login(of_nasa, monkeypatch):
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    storage = {of_nasa.root: {"anonymous": True}}
    open_source(of_nasa.root + "public/a.nc", storage=storage)
    assert of_nasa.secrets_at("archive") == set()
    with pytest.raises(StorageError):
        open_source(of_nasa.root + "d/a.nc", storage=storage)


def test_a_login_server_elsewhere_gets_nothing(server, monkeypatch):
    """An archive that sends clients to a host that is not the login server."""
    monkeypatch.setenv("EARTHDATA_USERNAME", "ann")
    monkeypatch.setenv("EARTHDATA_PASSWORD", "pw-ann")
    monkeypatch.setenv("EARTHDATA_HOST", "localhost:9")
    with pytest.raises(StorageError):
        open_source(server.root + "d/a.nc", storage={server.root: {"earthdata": True}})
    assert server.secrets_at("login") == set()


def test_two_users_in_threads(of_nasa):
    """Each has an own login."""

    def read(n):
        user = ("ann", "bob")[n % 2]
        storage = {of_nasa.root: {"username": user, "password": f"pw-{user}"}}
        return open_source(f"{of_nasa.root}d/{'ab'[n % 2]}.nc", storage=storage).read(1000 * n + 20_000, 2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(32)))
    users = {
        (path, of_nasa.sessions[headers["cookie"].partition("=")[2]])
        for name, path, headers in of_nasa.log
        if name == "archive" and path.startswith("/d/") and "cookie" in headers
    }
    assert users == {("/d/a.nc", "ann"), ("/d/b.nc", "bob")}


def test_a_dataset(of_nasa, monkeypatch):
    """Opened, and its values read."""
    buffer = io.BytesIO()
    xr.Dataset({"t": ("x", np.arange(30_000.0))}).to_netcdf(buffer, engine="h5netcdf")
    of_nasa.files["d/t.nc"] = buffer.getvalue()
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    vds = vs.open_virtual_dataset(of_nasa.root + "d/t.nc", storage="earthdata")
    np.testing.assert_array_equal(vds.virtual.open()["t"].values, np.arange(30_000.0))


@pytest.mark.parametrize("login", ["token", "netrc"])
def test_keys_of_buckets(server, monkeypatch, tmp_path, login):
    """The archive gives them to who is logged in; they sign the requests."""
    if login == "token":
        monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    else:
        use_netrc(monkeypatch, tmp_path, server)
    with RangeServer({"nasa/k": DATA, "nasa/l": DATA}) as bucket:
        options = {"endpoint": bucket.root, "max_retries": 0, "earthdata": server.root + "s3credentials"}
        for name in ("k", "l"):
            open_source(f"s3://nasa/{name}", storage={"s3://nasa/": options}).read(50_000, 1)
        assert all("Credential=ann1/" in entry[3]["authorization"] for entry in bucket.log)
        assert all("/us-west-2/" in entry[3]["authorization"] for entry in bucket.log)
    assert server.n_keys == 1


def test_keys_of_buckets_are_refreshed(server, monkeypatch):
    """Before they expire."""
    server.key_seconds = 1
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    with RangeServer({"nasa/k": DATA}) as bucket:
        options = {"endpoint": bucket.root, "max_retries": 0, "earthdata": server.root + "s3credentials"}
        source = open_source("s3://nasa/k", storage={"s3://nasa/": options})
        import time

        time.sleep(1.1)
        source.read(50_000, 1)
        used = [entry[3]["authorization"].partition("Credential=")[2].partition("/")[0] for entry in bucket.log]
    assert used == ["ann1", "ann2"]


def test_buckets_are_known_by_name(server, monkeypatch):
    """With a login, without options; others need the URL."""
    monkeypatch.setattr(
        earthdata, "credentials_url", lambda root: server.root + "s3credentials" if "podaac" in root else None
    )
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    with RangeServer({"podaac/k": DATA, "other/k": DATA}, mode="refuse_anonymous") as bucket:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.root)
        open_source("s3://podaac/k")
        assert "Credential=ann1/" in bucket.log[-1][3]["authorization"]
        with pytest.raises(
            StorageError, match=r"anonymous: .*; NASA Earthdata: .*Give the URL at which its archive issues"
        ):
            open_source("s3://other/k", storage="earthdata")
        monkeypatch.delenv("EARTHDATA_TOKEN")
        with pytest.raises(StorageError, match=r"temporary keys from .*: no credentials were found: EARTHDATA_TOKEN, "):
            open_source("s3://podaac/k", storage="earthdata")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://archive.podaac.earthdata.nasa.gov/", True),
        ("https://n5eil01u.ecs.nsidc.org/", True),
        ("https://hydro1.gesdisc.eosdis.nasa.gov/", True),
        ("https://sentinel1.asf.alaska.edu/", True),
        ("https://archive.podaac.earthdata.nasa.gov.evil.org/", False),
        ("https://evilearthdata.nasa.gov/", False),
        ("https://earthdata.nasa.gov@evil.org/", False),
        ("https://nasa.gov/", False),
    ],
)
def test_hosts_of_archives(url, expected):
    assert earthdata.is_archive(url) == expected
