"""Credentials of AWS as boto3 finds them: profiles, roles, processes and the machine's role."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.servers import RangeServer
from tests.storage.sso import SSO_LEGACY_PROFILE, SSO_PROFILE, sso_portal
from virtualstack.errors import StorageError
from virtualstack.storage import Storage, open_source
from virtualstack.storage.identities import aws
from virtualstack.storage.identities.identity import identities

DATA = bytes(range(256)) * 400
PRIVATE = "s3://bucket/data/private.nc"
KEYS = "aws_access_key_id = {0}\naws_secret_access_key = s\n"


@pytest.fixture
def files(monkeypatch, tmp_path):
    """Writes the two files of AWS."""

    def write(config="", credentials=""):
        for name, text, variable in (
            ("config", config, "AWS_CONFIG_FILE"),
            ("credentials", credentials, "AWS_SHARED_CREDENTIALS_FILE"),
        ):
            (tmp_path / name).write_text(text)
            monkeypatch.setenv(variable, str(tmp_path / name))

    return write


def key(entry):
    """The key that signed a request, or None."""
    signed = entry[3].get("authorization", "")
    return signed.partition("Credential=")[2].partition("/")[0] or None


def at(server, **options):
    return {"s3://b": {"endpoint": server.root, "max_retries": 0, **options}}


@pytest.mark.parametrize("place", ["config", "credentials"])
def test_a_profile_given_as_option(files, place):
    """It is the only identity, and its region is used."""
    section = {"config": "[profile mine]\n", "credentials": "[mine]\n"}[place]
    region = "region = eu-west-3\n"
    files(**{place: section + KEYS.format("MINE") + region}, **({"credentials": ""} if place == "config" else {}))
    with RangeServer({"b/k": DATA}) as server:
        assert open_source("s3://b/k", storage=at(server, profile="mine")).read(0, 2) == DATA[:2]
        assert "Credential=MINE/" in server.log[-1][3]["authorization"]
        assert "/eu-west-3/" in server.log[-1][3]["authorization"]
        server.mode = "refuse_signed"
        message = (
            f"tried: profile 'mine' of the AWS {place} file: the server answered 403 Forbidden: InvalidAccessKeyId"
        )
        with pytest.raises(StorageError, match=message):
            open_source("s3://b/k", storage=at(server, profile="mine"))


def test_a_profile_that_does_not_exist_is_named_with_those_that_do(files):
    files("[default]\nregion = r\n[profile a]\n[sso-session x]\n[services y]\n", "[b]\n")
    with pytest.raises(
        StorageError, match=r"the profile 'nope', which does not exist in the files of AWS.*They have: a, b, default\."
    ):
        open_source("s3://b/k", storage={"s3://b": {"profile": "nope"}})


def test_two_profiles_of_one_bucket_in_threads(files):
    """Each user's requests are signed by that user only."""
    files(credentials="".join(f"[{name}]\n{KEYS.format(name.upper())}" for name in ("ann", "bob")))
    with RangeServer({f"b/{name}{n}": DATA for name in ("ann", "bob") for n in range(20)}) as server:

        def read(name, n):
            storage = Storage.from_option(at(server, profile=name))
            return storage.source(f"s3://b/{name}{n}").read(50_000 + n, 2)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: read(("ann", "bob")[i % 2], i // 2), range(40)))
        signed = {(entry[1].lstrip("/")[2:5], key(entry)) for entry in server.log}
        assert signed == {("ann", "ANN"), ("bob", "BOB")}


def process(tmp_path, *, lives=3600):
    """A program that prints keys: P1 when it is first run, then P2, ..."""
    script, count = tmp_path / "keys.py", tmp_path / "count"
    script.write_text(
        "import datetime, json, pathlib\n"
        f"file = pathlib.Path({str(count)!r})\n"
        "n = int(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text(str(n))\n"
        f"ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds={lives})\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': f'P{n}', 'SecretAccessKey': 's', 'SessionToken': f'T{n}',"
        " 'Expiration': ends.isoformat()}))\n"
    )
    return f"credential_process = {sys.executable} {script}\n"


def test_a_credential_process_is_asked_once(files, tmp_path):
    files("[default]\n" + process(tmp_path))
    with RangeServer({"b/k": DATA, "b/l": DATA}, mode="refuse_anonymous") as server:
        for name in ("k", "l"):
            open_source(f"s3://b/{name}", storage=at(server)).read(50_000, 2)
        assert {key(entry) for entry in server.log} == {"P1"}
        assert {entry[3]["x-amz-security-token"] for entry in server.log} == {"T1"}


def test_credentials_that_expire_are_refreshed(files, tmp_path):
    """Before they expire, and also where the server says so earlier."""
    files("[default]\n" + process(tmp_path, lives=300))
    body = b"<Error><Code>ExpiredToken</Code></Error>"
    with RangeServer({"b/k": DATA}, mode="status", status=400, times=1, body=body) as server:
        assert open_source("s3://b/k", storage=at(server)).read(0, 2) == DATA[:2]
        first, second = (key(entry) for entry in server.log)
        assert first != second
        assert second.startswith("P")
        server.times = None  # for ever
        with pytest.raises(StorageError, match=r"\(credential_process\): the server answered 400 .*ExpiredToken"):
            open_source("s3://b/k", storage=at(server))


def test_a_process_that_fails_is_named(files):
    """Then anonymous is tried."""
    files(f"[profile p]\ncredential_process = {sys.executable} -c 'import sys; sys.exit(\"log in first\")'\n")
    with RangeServer({"b/k": DATA}) as server:
        message = (
            r"profile 'p' of the AWS config file \(credential_process\): no credentials were found: .*log in first"
        )
        with pytest.raises(StorageError, match=message):
            open_source("s3://b/k", storage=at(server, profile="p"))
        assert server.n_requests == 0


@pytest.mark.parametrize("setting", ["role_arn", "sso_session", "sso_start_url", "credential_process"])
def test_boto3_is_asked_for_what_it_knows(files, setting):
    files(f"[profile p]\n{setting} = x\n")
    found = identities("s3", {"profile": "p"}, {**aws_environ(), "AWS_PROFILE": "other"})
    assert [identity.name for identity in found] == [f"profile 'p' of the AWS config file ({setting})"]


def aws_environ():
    import os

    return {name: value for name, value in os.environ.items() if name.startswith("AWS_")}


def test_keys_are_preferred_as_boto3_does(files):
    """A role beats keys, and keys in the credentials file beat a process."""
    environ = aws_environ
    files("[default]\nrole_arn = x\n", "[default]\n" + KEYS.format("K"))
    assert aws.profile(environ()).asked == "role_arn"
    files("[default]\ncredential_process = x\n", "[default]\n" + KEYS.format("K"))
    assert (aws.profile(environ()).asked, aws.profile(environ()).keys["access_key_id"]) == (None, "K")
    files("[default]\n" + KEYS.format("C") + "credential_process = x\n")
    assert aws.profile(environ()).asked == "credential_process"


def test_without_boto3_a_profile_that_needs_it_says_so(files, monkeypatch):
    """And anonymous access goes on."""
    files("[default]\nsso_session = x\n")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with RangeServer({"b/k": DATA}, mode="refuse_anonymous") as server:
        message = r"\(sso_session\): no credentials were found: boto3 is needed .*; anonymous: the server"
        with pytest.raises(StorageError, match=message):
            open_source("s3://b/k", storage=at(server))
        server.mode = "normal"
        assert open_source("s3://b/k", storage=at(server)).read(0, 2) == DATA[:2]


@pytest.mark.parametrize("way", ["profile", "option"])
def test_a_role_is_assumed(s3, files, monkeypatch, way):
    """By moto's STS; the keys that it gives sign the requests."""
    role = "arn:aws:iam::123456789012:role/reader"
    files(
        f"[profile r]\nrole_arn = {role}\nsource_profile = base\nregion = us-east-1\n",
        "[base]\n" + KEYS.format("BASE"),
    )
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint)
    options = {"profile": "r"} if way == "profile" else {"role_arn": role, "profile": "base", "region": "us-east-1"}
    with RangeServer({"b/k": DATA}) as server:
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        open_source("s3://b/k", storage=at(server, **options))
        assert key(server.log[-1]).startswith("ASIA")
        assert server.log[-1][3]["x-amz-security-token"]
    assert open_source(PRIVATE, storage={"s3://bucket": {"endpoint": s3.endpoint, **options}}).read(0, 4) == DATA[:4]


@pytest.mark.parametrize("text", [SSO_PROFILE, SSO_LEGACY_PROFILE], ids=["session", "legacy"])
def test_a_profile_of_sso(files, monkeypatch, tmp_path, text):
    """With the token that ``aws sso login`` left in the cache; the portal is asked once."""
    files(text.format("profile corp"))
    with RangeServer({"b/k": DATA, "b/l": DATA}) as server, sso_portal(monkeypatch, tmp_path / "cache") as portal:
        for name in ("k", "l"):
            open_source(f"s3://b/{name}", storage=at(server, profile="corp")).read(50_000, 2)
        assert {key(entry) for entry in server.log} == {"SSO"}
        assert {entry[3]["x-amz-security-token"] for entry in server.log} == {"t"}
        assert [entry[3]["x-amz-sso_bearer_token"] for entry in portal.log] == ["token of ann"]


@pytest.mark.parametrize(("hours", "is_logged_in"), [(-1, True), (8, False)])
def test_a_login_of_sso_that_is_over_is_named(files, monkeypatch, tmp_path, hours, is_logged_in):
    """With what to do, which botocore says."""
    files(SSO_PROFILE.format("profile corp"))
    with RangeServer({"b/k": DATA}) as server, sso_portal(monkeypatch, tmp_path / "cache", hours=hours):
        for path in [] if is_logged_in else (tmp_path / "cache").iterdir():
            path.unlink()
        why = "expired and refresh failed" if is_logged_in else "Token for corp does not exist"
        message = rf"profile 'corp' of the AWS config file \(sso_session\): no credentials were found: .*{why}"
        with pytest.raises(StorageError, match=message) as caught:
            open_source("s3://b/k", storage=at(server, profile="corp"))
        assert "aws sso login --profile corp" in str(caught.value)
        assert server.n_requests == 0


def test_a_token_of_web_identity(s3, monkeypatch, tmp_path):
    """As in Kubernetes; moto's STS gives keys for it. If it does not, anonymous is tried."""
    (tmp_path / "jwt").write_text("token")
    for name, value in {"WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "jwt"), "ENDPOINT_URL_STS": s3.endpoint}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with RangeServer({"b/k": DATA}) as server:
        open_source("s3://b/k", storage=at(server))
        assert key(server.log[-1]) is None
        server.mode = "refuse_anonymous"
        message = r"credentials \(AWS_WEB_IDENTITY_TOKEN_FILE\): no credentials were found: .*AWS_ROLE_ARN env var"
        with pytest.raises(StorageError, match=message):
            open_source("s3://b/k", storage=at(server))
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
        open_source("s3://b/k", storage=at(server)).read(50_000, 1)
        assert key(server.log[-1]).startswith("ASIA")


@pytest.mark.parametrize("words", [{"requester_pays": True}, {"request_payer": True}, {"request_payer": "requester"}])
def test_requester_pays_in_every_spelling(words):
    with RangeServer({"b/k": DATA}) as server:
        open_source("s3://b/k", storage=at(server, key="k", secret="s", **words)).read(50_000, 1)
        assert {entry[3].get("x-amz-request-payer") for entry in server.log} == {"requester"}
        server.reset()
        open_source("s3://b/k", storage=at(server, key="k", secret="s"))
        assert "x-amz-request-payer" not in server.log[0][3]


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        ("[default]\nendpoint_url = http://p\n", {}, "http://p"),
        ("[default]\nendpoint_url = http://p\n", {"AWS_ENDPOINT_URL": "http://e"}, "http://e"),
        (
            "[default]\nservices = m\nendpoint_url = http://p\n[services m]\ns3 =\n  endpoint_url = http://s\n",
            {},
            "http://s",
        ),
        ("[default]\nendpoint_url = http://p\n", {"AWS_ENDPOINT_URL_S3": "http://3"}, "http://3"),
        ("[default]\nendpoint_url = http://p\n", {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, None),
        ("[profile x]\nendpoint_url = http://p\n", {"AWS_PROFILE": "x"}, "http://p"),
        ("", {}, None),
    ],
)
def test_endpoints_are_those_of_botocore(files, monkeypatch, config, environ, expected):
    import botocore.session

    files(config)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert aws.endpoint({}, aws_environ()) == expected
    session = botocore.session.Session()
    client = session.create_client("s3", region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    assert client.meta.endpoint_url == (expected or "https://s3.eu-west-1.amazonaws.com")


def test_the_endpoint_of_a_profile_is_used(files, s3):
    """As MinIO's and R2's is."""
    files(f"[profile minio]\nendpoint_url = {s3.endpoint}\n{KEYS.format('key')}")
    assert open_source(PRIVATE, storage={"s3://bucket": {"profile": "minio"}}).read(0, 4) == DATA[:4]


class Metadata(RangeServer):
    """The metadata service of EC2, with one role."""

    def __init__(self, **options):
        keys = {"Code": "Success", "AccessKeyId": "ROLE", "SecretAccessKey": "s", "Token": "t"}
        role = "latest/meta-data/iam/security-credentials/"
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        super().__init__(
            {role: b"reader", role + "reader": json.dumps({**keys, "Expiration": ends}).encode()}, **options
        )


def test_the_role_of_the_machine_comes_last(monkeypatch, tmp_path):
    """A public bucket does not ask for it; a private one asks once."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_V1_DISABLED", "false")
    with Metadata() as metadata, RangeServer({"b/k": DATA}) as server:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.root)
        open_source("s3://b/k", storage=at(server))
        assert (server.n_requests, metadata.n_requests) == (1, 0)
        server.mode = "refuse_anonymous"
        open_source("s3://b/k", storage=at(server))
        assert [key(entry) for entry in server.log] == [None, None, "ROLE"]
        n = metadata.n_requests
        open_source("s3://b/k", storage=at(server)).read(50_000, 1)
        assert {key(entry) for entry in server.log[3:]} == {"ROLE"}
        assert metadata.n_requests == n


def test_no_role_where_there_is_no_metadata_service(monkeypatch):
    """It is said quickly."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    with RangeServer({}, mode="status", status=404) as nothing, RangeServer({}, mode="refuse_anonymous") as server:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", nothing.root)
        message = "anonymous: the server answered 403 .*; the role of this machine: no credentials were found: the meta"
        with pytest.raises(StorageError, match=message):
            open_source("s3://b/k", storage=at(server))


@pytest.mark.parametrize("needs", [False, True])
def test_boto3_is_imported_only_where_it_is_needed(files, needs):
    """Its import takes longer than most files."""
    files("[default]\n" + (f"credential_process = {sys.executable} -c 1\n" if needs else KEYS.format("K")))
    with RangeServer({"b/k": DATA}) as server:
        code = (
            "import sys\nfrom virtualstack.storage import open_source\n"
            f"open_source('s3://b/k', storage={{'s3://b': {{'endpoint': {server.root!r}}}}})\n"
            "print('boto3' in sys.modules)"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(needs)
