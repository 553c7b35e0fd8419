"""An S3 server of moto on loopback, and an environment without credentials."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import boto3
import hypothesis
import pytest
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

hypothesis.settings.register_profile(
    "virtualstack", deadline=None
)  # how long an example takes depends on who else runs
hypothesis.settings.load_profile("virtualstack")


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are processors: a quarter of the time, tests wait for servers and processes."""
    return (os.cpu_count() or 1) + 1


DATA = bytes(range(256)) * 400
BUCKET = "bucket"


@dataclass(frozen=True)
class S3:
    endpoint: str
    options: dict[str, str]

    def put(self, key: str, data: bytes, *, acl: str = "private", bucket: str = BUCKET) -> None:
        self.client.put_object(Bucket=bucket, Key=key, Body=data, ACL=acl)

    @cached_property
    def client(self):
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="key",
            aws_secret_access_key="secret",
        )


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's handler of Ctrl-C, here and in processes started here: a background shell makes them ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[str]]:
    """Give the paths of an archive of ``tests/archives`` by its name; nobody changes these files."""
    from tests.archives.usual import make  # loads eccodes and tifffile, which most tests do not need

    root = tmp_path_factory.mktemp("archives")
    return lambda name: make(name, root)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    put, lock = S3Response.put_object, Lock()

    def put_alone(self):
        with lock:
            return put(self)

    S3Response.put_object = put_alone  # or two writes on the condition that there is no object both pass
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        s3 = S3(endpoint, {"endpoint": endpoint, "access_key_id": "key", "secret_access_key": "secret"})
        s3.client.create_bucket(Bucket=BUCKET)
        yield s3
    finally:
        S3Response.put_object = put
        server.stop()


@pytest.fixture
def s3(s3_server: S3) -> S3:
    """A bucket with a public and a private object."""
    s3_server.put("data/public.nc", DATA, acl="public-read")
    s3_server.put("data/private.nc", DATA)
    return s3_server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No credentials in the environment, and no proxies."""
    for name in os.environ:
        if name.startswith(
            ("AWS_", "GOOGLE_", "AZURE_", "CLOUDSDK_", "EARTHDATA_", "PC_SDK_", "IDENTITY_", "STORAGE_EMULATOR_HOST")
        ) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    nowhere = tmp_path_factory.getbasetemp() / "nowhere"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(nowhere))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(nowhere))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(nowhere))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("NETRC", str(nowhere))
    monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(nowhere))
