"""The table of docs/reference/identities.md: what each identity opens, tried at servers that check who asks.

``VIRTUALSTACK_TABLES=write`` writes the page anew.
"""

import base64
import io
import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import obstore
import pytest
import xarray as xr
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from moto.server import ThreadedMotoServer

import virtualstack as vs
from tests import azurite
from tests.earthdata_server import Earthdata
from tests.servers import RangeServer
from tests.storage.sso import SSO_PROFILE, sso_portal
from virtualstack.storage.identities import earthdata
from virtualstack.storage.obstore import _CONNECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "identities.md"
BEGIN, END = "<!-- table, written by tests/storage/test_identity_table.py -->\n", "<!-- end of table -->\n"
VALUES = np.arange(6_000.0)


def file(n):
    """A netCDF file whose values are beyond the bytes that are read at opening."""
    buffer = io.BytesIO()
    ds = xr.Dataset({"t": (("time", "x"), VALUES.reshape(2, 3_000)[n : n + 1])}, {"time": [n]})
    ds.to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


@dataclass
class Place:
    """Where two files are, how they are opened, and what the servers saw of the identity."""

    folder: str
    storage: object = None
    seen: Callable[[], set[object]] = lambda: {True}
    expected: set[object] = field(default_factory=lambda: {True})


def open_file(place, tmp_path):
    vds = vs.open_virtual_dataset(f"{place.folder}/f0.nc", storage=place.storage)
    return vds.virtual.open()["t"].values, VALUES[:3_000]


def join_files(place, tmp_path):
    urls = [f"{place.folder}/f{n}.nc" for n in range(2)]
    vds = vs.open_virtual_mfdataset(urls, storage=place.storage)
    return vds.virtual.open()["t"].values, VALUES


def send_to_a_worker(place, tmp_path):
    """As a worker sees it: no connection is open, and no storage= is given."""
    vds = vs.open_virtual_dataset(f"{place.folder}/f1.nc", storage=place.storage)
    data = pickle.dumps(vds)
    _CONNECTIONS.clear()
    return pickle.loads(data).virtual.open()["t"].values, VALUES[3_000:]


def open_references(place, tmp_path):
    path = str(tmp_path / "refs.json")
    vds = vs.open_virtual_dataset(f"{place.folder}/f0.nc", storage=place.storage)
    vds.virtual.to_kerchunk(path)
    allow = f"{place.folder.partition('://')[0]}://{place.folder.partition('://')[2].rpartition('@')[2]}"
    found = xr.open_dataset(path, engine="virtualstack", storage=place.storage, allow=[allow + "/"])
    return found["t"].values, VALUES[:3_000]


COLUMNS = {
    "Open a file": open_file,
    "Join files": join_files,
    "Send to a worker": send_to_a_worker,
    "Open references": open_references,
}


# -- places: each checks who asks ---------------------------------------------------------------------------------


def signers(server):
    """Who signed the requests to a bucket of S3 that were answered."""
    last = {entry[1]: entry[3] for entry in server.log}
    return {headers.get("authorization", "").partition("Credential=")[2].partition("/")[0] for headers in last.values()}


@contextmanager
def s3(expected, *, refuses="refuse_anonymous", **options):
    with RangeServer({f"b/d/f{n}.nc": file(n) for n in range(2)}, mode=refuses) as server:
        storage = {"s3://b/": {"endpoint": server.root, "max_retries": 0, **options}}
        yield Place("s3://b/d", storage, lambda: signers(server), {expected})


def aws_files(monkeypatch, tmp_path, config="", credentials=""):
    for name, text in (("AWS_CONFIG_FILE", config), ("AWS_SHARED_CREDENTIALS_FILE", credentials)):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(name, str(tmp_path / name))


ROLE = "arn:aws:iam::123456789012:role/reader"
KEYS = "aws_access_key_id = {}\naws_secret_access_key = s\n"


def s3_anonymous(monkeypatch, tmp_path):
    return s3("", refuses="refuse_signed")


def s3_options(monkeypatch, tmp_path):
    return s3("OWN", key="OWN", secret="s")


def s3_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    return s3("ENV")


def s3_default_profile(monkeypatch, tmp_path):
    aws_files(monkeypatch, tmp_path, credentials="[default]\n" + KEYS.format("DEFAULT"))
    return s3("DEFAULT")


def s3_profile(monkeypatch, tmp_path):
    aws_files(monkeypatch, tmp_path, config="[profile mine]\n" + KEYS.format("MINE"))
    return s3("MINE", profile="mine")


def s3_process(monkeypatch, tmp_path):
    answer = json.dumps({"Version": 1, "AccessKeyId": "PROCESS", "SecretAccessKey": "s"})
    (tmp_path / "keys.py").write_text(f"print({answer!r})")
    aws_files(monkeypatch, tmp_path, f"[default]\ncredential_process = {sys.executable} {tmp_path / 'keys.py'}\n")
    return s3("PROCESS")


def s3_sso(monkeypatch, tmp_path):
    """A profile of ``aws configure sso``, after ``aws sso login``."""

    @contextmanager
    def place():
        with sso_portal(monkeypatch, tmp_path / "sso"), s3("SSO") as found:
            aws_files(monkeypatch, tmp_path, SSO_PROFILE.format("default"))
            yield found

    return place()


@contextmanager
def of_sts(monkeypatch):
    """A bucket, and moto's STS, whose keys begin with ASIA."""
    sts = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    sts.start()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://{}:{}".format(*sts.get_host_and_port()))
        with s3("ASIA") as found:
            seen = found.seen
            found.seen = lambda: {key[:4] for key in seen()}
            yield found
    finally:
        sts.stop()


def s3_role(monkeypatch, tmp_path):
    config = f"[default]\nrole_arn = {ROLE}\nsource_profile = base\nregion = us-east-1\n"
    aws_files(monkeypatch, tmp_path, config, "[base]\n" + KEYS.format("BASE"))
    return of_sts(monkeypatch)


def s3_web_identity(monkeypatch, tmp_path):
    (tmp_path / "jwt").write_text("token of Kubernetes")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "jwt"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    return of_sts(monkeypatch)


def s3_machine(monkeypatch, tmp_path):
    @contextmanager
    def place():
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        keys = {"Code": "Success", "AccessKeyId": "ROLE", "SecretAccessKey": "s", "Token": "t", "Expiration": ends}
        folder = "latest/meta-data/iam/security-credentials/"
        with RangeServer({folder: b"reader", folder + "reader": json.dumps(keys).encode()}) as metadata:
            monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
            monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.root)
            with s3("ROLE") as found:
                yield found

    return place()


def s3_container(monkeypatch, tmp_path):
    @contextmanager
    def place():
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        keys = {"AccessKeyId": "TASK", "SecretAccessKey": "s", "Token": "t", "Expiration": ends}
        with RangeServer({"keys": json.dumps(keys).encode()}) as service:
            (tmp_path / "token").write_text("x")
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url("keys"))
            monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
            with s3("TASK") as found:
                yield found

    return place()


def s3_nasa(monkeypatch, tmp_path):
    @contextmanager
    def place():
        with Earthdata({}) as server:
            monkeypatch.setenv("EARTHDATA_HOST", server.login_host)
            monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
            with s3("ann1", earthdata=server.root + "s3credentials") as found:
                found.seen = lambda: {bool(server.n_keys)}
                found.expected = {True}
                yield found

    return place()


@contextmanager
def gs(expected, *, refuses="refuse_anonymous", **options):
    with RangeServer({f"b/d/f{n}.nc": file(n) for n in range(2)}, mode=refuses) as server:

        def seen():
            last = {entry[1]: entry[3] for entry in server.log}
            return {headers.get("authorization", "")[: len(expected)] for headers in last.values()}

        storage = {"gs://b/": {"endpoint": server.root.rstrip("/"), "max_retries": 0, **options}}
        yield Place("gs://b/d", storage, seen, {expected})


def account(tmp_path):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, *form).decode()
    path = tmp_path / "application_default_credentials.json"
    path.write_text(json.dumps({"type": "service_account", "client_email": "me@p", "private_key": pem,
                                "private_key_id": "k"}))  # fmt: skip
    return str(path)


def gs_anonymous(monkeypatch, tmp_path):
    return gs("", refuses="refuse_signed")


def gs_token(monkeypatch, tmp_path):
    return gs("Bearer own", token="own")


def gs_account(monkeypatch, tmp_path):
    return gs("Bearer ey", service_account_path=account(tmp_path))


def gs_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", account(tmp_path))
    return gs("Bearer ey")


def gs_gcloud(monkeypatch, tmp_path):
    account(tmp_path)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    return gs("Bearer ey")


def gs_machine(monkeypatch, tmp_path):
    @contextmanager
    def place():
        answer = {"access_token": "machine", "expires_in": 3600, "token_type": "Bearer", "email": "m@p", "scopes": []}
        headers = {"Content-Type": "application/json", "Metadata-Flavor": "Google"}
        with RangeServer({}, mode="status", status=200, body=json.dumps(answer).encode(), headers=headers) as metadata:
            host = metadata.root.removeprefix("http://").rstrip("/")
            monkeypatch.delenv("NO_GCE_CHECK")
            monkeypatch.setenv("GCE_METADATA_HOST", host)
            monkeypatch.setattr("google.auth.compute_engine._metadata._GCE_METADATA_HOST", host)
            with gs("Bearer machine") as found:
                yield found

    return place()


@contextmanager
def az(container="private", secret=lambda server: {}):
    server = azurite.shared()
    server.create(container, is_public=container == "public")
    for n in range(2):
        obstore.put(server.store(container), f"d/f{n}.nc", file(n))
    base = {"account_name": azurite.ACCOUNT, "endpoint": server.endpoint, "max_retries": 0}
    yield Place(f"az://{container}/d", {f"az://{container}/": {**base, **secret(server)}})


def az_anonymous(monkeypatch, tmp_path):
    return az("public")


def az_key(monkeypatch, tmp_path):
    return az(secret=lambda server: {"account_key": azurite.KEY})


def az_sas(monkeypatch, tmp_path):
    return az(secret=lambda server: {"sas_token": azurite.sas_of_container("private")})


def az_connection_string(monkeypatch, tmp_path):
    parts = f"AccountName={azurite.ACCOUNT};AccountKey={azurite.KEY};BlobEndpoint={{}}"
    return az(secret=lambda server: {"connection_string": parts.format(server.endpoint)})


def az_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.KEY)
    return az()


def az_planetary(monkeypatch, tmp_path):
    @contextmanager
    def place():
        with RangeServer({}) as service, az(secret=lambda server: {"planetary_computer": True}) as found:
            ends = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
            answer = {"msft:expiry": ends, "token": azurite.sas_of_container("private")}
            service.files = {f"{azurite.ACCOUNT}/private": json.dumps(answer).encode()}
            monkeypatch.setenv("PC_SDK_SAS_URL", service.root.rstrip("/"))
            yield found

    return place()


def az_default(monkeypatch, tmp_path):
    @contextmanager
    def place():
        answer = {"access_token": "azure", "expires_on": str(int(time.time()) + 7200), "resource": "r",
                  "token_type": "Bearer"}  # fmt: skip
        files = {f"c/d/f{n}.nc": file(n) for n in range(2)}
        with (
            RangeServer({"t": json.dumps(answer).encode()}) as service,
            RangeServer(files, mode="refuse_anonymous") as server,
        ):
            monkeypatch.setenv("IDENTITY_ENDPOINT", service.url("t"))
            monkeypatch.setenv("IDENTITY_HEADER", "x")

            def seen():
                return {headers.get("authorization") for headers in {e[1]: e[3] for e in server.log}.values()}

            options = {"account_name": "a", "endpoint": server.root.rstrip("/"), "max_retries": 0}
            yield Place("az://c/d", {"az://c/": options}, seen, {"Bearer azure"})

    return place()


@contextmanager
def web(expected, options=None, user=""):
    refuses = "refuse_anonymous" if expected else "refuse_signed"
    with RangeServer({f"d/f{n}.nc": file(n) for n in range(2)}, mode=refuses) as server:
        storage = None if options is None else {server.root: options}
        if user:
            storage = {server.root: {"username": "ann", "password": "pw"}}  # references are opened with it
        root = server.root.replace("://", f"://{user}")
        yield Place(root + "d", storage, lambda: {e[3].get("authorization", "") for e in server.log}, {expected})


BASIC = f"Basic {base64.b64encode(b'ann:pw').decode()}"


def web_anonymous(monkeypatch, tmp_path):
    return web("")


def web_user(monkeypatch, tmp_path):
    return web(BASIC, {"username": "ann", "password": "pw"})


def web_url(monkeypatch, tmp_path):
    return web(BASIC, user="ann:pw@")


def web_token(monkeypatch, tmp_path):
    return web("Bearer t", {"token": "t"})


def web_headers(monkeypatch, tmp_path):
    return web("Own t", {"headers": {"Authorization": "Own t"}})


@contextmanager
def nasa(monkeypatch, **options):
    with Earthdata(
        {f"d/f{n}.nc": file(n) for n in range(2)}, knows_tokens="token" in options.pop("login", "")
    ) as server:
        monkeypatch.setenv("EARTHDATA_HOST", server.login_host)
        monkeypatch.setattr(earthdata, "_ARCHIVES", ("127.0.0.1",))
        storage = {server.root: options} if options else "earthdata"
        yield Place(server.root + "d", storage, lambda: server.secrets_at("data"), set())


def nasa_token(monkeypatch, tmp_path):
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    return nasa(monkeypatch, login="token")


def nasa_token_at_login(monkeypatch, tmp_path):
    monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
    return nasa(monkeypatch)


def nasa_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("EARTHDATA_USERNAME", "ann")
    monkeypatch.setenv("EARTHDATA_PASSWORD", "pw-ann")
    return nasa(monkeypatch)


def nasa_netrc(monkeypatch, tmp_path):
    (tmp_path / "netrc").write_text("machine localhost login ann password pw-ann\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return nasa(monkeypatch)


def nasa_options(monkeypatch, tmp_path):
    return nasa(monkeypatch, username="ann", password="pw-ann")


ROWS = {
    ("S3", "anonymous"): s3_anonymous,
    ("S3", "keys in `storage=`"): s3_options,
    ("S3", "keys in the environment"): s3_environment,
    ("S3", "keys of the default profile"): s3_default_profile,
    ("S3", "option `profile`"): s3_profile,
    ("S3", "`credential_process` of a profile"): s3_process,
    ("S3", "SSO session of a profile"): s3_sso,
    ("S3", "`role_arn` of a profile"): s3_role,
    ("S3", "`AWS_WEB_IDENTITY_TOKEN_FILE`"): s3_web_identity,
    ("S3", "role of a container"): s3_container,
    ("S3", "role of the machine"): s3_machine,
    ("S3 of NASA", "keys from an Earthdata login"): s3_nasa,
    ("Azure", "anonymous"): az_anonymous,
    ("Azure", "account key in `storage=`"): az_key,
    ("Azure", "account key in the environment"): az_environment,
    ("Azure", "SAS token"): az_sas,
    ("Azure", "connection string"): az_connection_string,
    ("Azure", "`DefaultAzureCredential`"): az_default,
    ("Azure", "token of Planetary Computer"): az_planetary,
    ("Google Cloud", "anonymous"): gs_anonymous,
    ("Google Cloud", "token"): gs_token,
    ("Google Cloud", "file of a service account"): gs_account,
    ("Google Cloud", "`GOOGLE_APPLICATION_CREDENTIALS`"): gs_environment,
    ("Google Cloud", "login of `gcloud`"): gs_gcloud,
    ("Google Cloud", "service account of the machine"): gs_machine,
    ("Web server", "none"): web_anonymous,
    ("Web server", "`username` and `password`"): web_user,
    ("Web server", "`https://user:password@host/`"): web_url,
    ("Web server", "token"): web_token,
    ("Web server", "headers"): web_headers,
    ("Web server of NASA", "token in the environment"): nasa_token,
    ("Web server of NASA", "token, for archives that do not take one"): nasa_token_at_login,
    ("Web server of NASA", "name and password in the environment"): nasa_environment,
    ("Web server of NASA", "`.netrc`"): nasa_netrc,
    ("Web server of NASA", "`username` and `password`"): nasa_options,
}


RAN = {}
"""The columns whose values were right and whose identity was the expected one, for each row that ran."""


@pytest.mark.parametrize("row", ROWS, ids=": ".join)
def test_an_identity_opens_everything(row, monkeypatch, tmp_path):
    """Files, several files, in workers, and through references; and no other identity was used."""
    if row[0] == "Azure" and row[1] != "`DefaultAzureCredential`" and azurite.find_program() is None:
        pytest.skip("needs Azurite: npm install -g azurite")
    RAN[row] = []
    with ROWS[row](monkeypatch, tmp_path) as place:
        for column, try_it in COLUMNS.items():
            found, expected = try_it(place, tmp_path)
            np.testing.assert_array_equal(np.ravel(found), expected)
            assert place.seen() == place.expected
            RAN[row].append(column)


def line(row, columns):
    """A line of the table."""
    return f"| {' | '.join(row)} | {' | '.join('yes' if column in columns else 'no' for column in COLUMNS)} |"


def test_the_page_says_what_ran():
    """A line for each identity; the lines of those that were tried in this run say what was right."""
    if not RAN:
        pytest.skip("no identity was tried in this run")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    text, _, after = rest.partition(END)
    title, rule, *found = text.splitlines()
    known = {tuple(x.strip() for x in shown.split("|")[1:3]): shown for shown in found}
    expected = [line(row, RAN[row]) if row in RAN else known.get(row, line(row, [])) for row in ROWS]
    if os.environ.get("VIRTUALSTACK_TABLES") == "write":
        PAGE.write_text("\n".join([before + BEGIN + title, rule, *expected, END + after]))
    assert found == expected
    assert " ".join(found).count("| yes") >= 60
