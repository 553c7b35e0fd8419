import pytest

from virtualstack.storage.identities import identity
from virtualstack.storage.identities.identity import Identity, identities, normalise, split


@pytest.fixture(autouse=True)
def without_azure_identity(monkeypatch):
    """As where azure-identity is not installed."""
    known = identity.is_installed
    monkeypatch.setattr(identity, "is_installed", lambda *names: names[0] != "azure" and known(*names))


def names(service, options=(), environ=()):
    return [
        identity.name
        for identity in identities(
            service,
            dict(options),
            {
                "AWS_SHARED_CREDENTIALS_FILE": "/nope",
                "AWS_EC2_METADATA_DISABLED": "true",
                "CLOUDSDK_CONFIG": "/nope",
                "NO_GCE_CHECK": "true",
                **dict(environ),
            },
        )
    ]


def test_nobody_but_anonymous():
    """Without credentials anonymous is the only one, and it never signs."""
    assert names("s3") == names("gs") == names("az") == ["anonymous"]
    assert identities("gs", {"a": 1}, {"CLOUDSDK_CONFIG": "/nope"})[0].config == {"a": 1, "skip_signature": True}
    assert names("http") == ["no credentials"]
    assert names("http", {"default_headers": {}}) == ["the headers in storage="]


def test_half_a_key_counts_for_nothing():
    """Obstore would ask the instance metadata service for the other half."""
    assert names("s3", environ={"AWS_ACCESS_KEY_ID": "x"}) == ["anonymous"]


@pytest.mark.parametrize(
    ("service", "variable"),
    [
        ("s3", "AWS_ACCESS_KEY_ID"),
        ("s3", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        ("s3", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
        ("gs", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_the_environment_then_anonymous(service, variable):
    """The variable is named; an empty one counts for nothing; skipping signatures leaves it out."""
    other = {"AWS_SECRET_ACCESS_KEY": "s"}
    assert names(service, environ={variable: "x", **other}) == [
        f"the environment's credentials ({variable})",
        "anonymous",
    ]
    assert names(service, environ={variable: ""}) == ["anonymous"]
    prefix = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}[service]
    assert names(service, environ={variable: "x", **other, f"{prefix}_SKIP_SIGNATURE": "true"}) == ["anonymous"]
    assert names(service, {"skip_signature": True}, {variable: "x", **other}) == ["anonymous"]
    assert names(service, {"skip_signature": "true"}, {variable: "x", **other}) == ["anonymous"]
    assert names(service, {"skip_signature": False}) == ["anonymous"]


@pytest.mark.parametrize(("service", "option"), [("s3", "access_key_id"), ("gs", "service_account"), ("az", "sas_key")])
def test_given_credentials_are_the_only_ones(service, option):
    """Nobody else is tried."""
    assert names(service, {option: "x"}, {"AWS_ACCESS_KEY_ID": "x"}) == ["the credentials in storage="]


def test_profiles(tmp_path):
    """A profile comes with its token; a damaged file is as none."""
    file = tmp_path / "credentials"
    file.write_text(
        "[default]\naws_access_key_id=a%b\naws_secret_access_key=s\naws_session_token=t\n[half]\naws_access_key_id=a\n"
    )
    environ = {
        "AWS_SHARED_CREDENTIALS_FILE": str(file),
        "AWS_CONFIG_FILE": "/nope",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    found = identities("s3", {"region": "r"}, environ)
    assert [identity.name for identity in found] == ["profile 'default' of the AWS credentials file", "anonymous"]
    assert found[0].config == {"region": "r", "access_key_id": "a%b", "secret_access_key": "s", "session_token": "t"}
    assert names("s3", environ={**environ, "AWS_PROFILE": "half"}) == ["anonymous"]
    file.write_bytes(b"\xff[[")
    assert names("s3", environ=environ) == ["anonymous"]


def test_gcloud(tmp_path):
    """The file of `gcloud auth application-default login` is found."""
    (tmp_path / "application_default_credentials.json").write_text("{}")
    assert names("gs", environ={"CLOUDSDK_CONFIG": str(tmp_path)}) == ["gcloud's default credentials", "anonymous"]


def test_secrets_are_not_shown():
    """An identity's repr has its name only."""
    assert repr(Identity("me", {"secret": "s3cr3t"})) == "Identity(name='me')"


def test_options_are_put_in_one_set_of_words():
    """Obstore's long and upper-case forms and fsspec's plain words are one."""
    options = {"AWS_REGION": "r", "key": "k", "secret": "s", "anon": False, "client_kwargs": {"endpoint_url": "e"}}
    assert normalise("s3", options) == {
        "region": "r", "access_key_id": "k", "secret_access_key": "s", "skip_signature": False, "endpoint": "e",
    }  # fmt: skip
    assert normalise("http", {"headers": {"a": "b"}, "http1_only": True}) == {
        "default_headers": {"a": "b"}, "http1_only": True,
    }  # fmt: skip


def test_options_are_split():
    """Those of the client and of retries have defaults that end within 20 s."""
    store, client, retry = split({"region": "r", "timeout": "1s", "max_retries": 1})
    assert store == {"region": "r"}
    assert client == {"connect_timeout": "5s", "read_timeout": "10s", "timeout": "1s"}
    assert (retry["max_retries"], retry["retry_timeout"].total_seconds()) == (1, 10)
