"""Credentials stay at the places that the user named: references of every form, and places of every kind.

The bytes lie in the bucket ``lab``, or on the web server, of a server on loopback. The user has credentials for them.
The references come over a network, or are local.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import h5py
import numpy as np
import obstore
import pytest

import virtualstack as vs
from tests import azurite
from tests.earthdata_server import Earthdata
from tests.permission import hostile
from tests.permission.hostile import (
    NUMBERS,
    SECRET,
    external,
    growing,
    link,
    parquet,
    template,
    version_1,
    virtual,
    vstack,
    whole_file,
)
from tests.servers import RangeServer
from virtualstack.errors import StorageError, VirtualStackError
from virtualstack.storage import hosts
from virtualstack.storage.identities import earthdata

pytestmark = pytest.mark.filterwarnings("ignore")

PUBLIC = "127.0.0.2"  # the address of loopback that counts as public here
KEY = base64.b64encode(b"key").decode()


@dataclass(frozen=True)
class Place:
    """Where the bytes lie.

    Parameters
    ----------
    url
        URL of the bytes.
    server
        Server of the place. It refuses requests without credentials, or those with them.
    own
        ``storage=`` with the credentials of the place, if they are not in the environment.
    elsewhere
        ``storage=`` with credentials of another place.
    """

    url: str
    server: RangeServer
    own: Mapping[str, Any] | None = None
    elsewhere: Mapping[str, Any] | None = None

    @property
    def folder(self) -> str:
        return self.url.rpartition("/")[0]

    def secrets(self) -> set[str]:
        """Return all that the server was sent of credentials."""
        return {secret for entry in self.server.log for secret in secrets_of(entry[1], entry[3])}


def secrets_of(path: str, headers: Mapping[str, str]) -> set[str]:
    named = {value for name, value in headers.items() if name.lower() in ("authorization", "cookie", "x-api-key")}
    return named | {x for key, values in parse_qs(urlsplit(path).query).items() if key == "sig" for x in values}


@contextlib.contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[RangeServer]:
    with RangeServer(dict(files), mode="refuse_anonymous", host=PUBLIC) as server:
        yield server


# -- places: each puts credentials of the user into the environment, or into `own` --------------------------------


@contextlib.contextmanager
def bucket(scheme: str, patch: pytest.MonkeyPatch, **environment: str) -> Iterator[Place]:
    with serving({"lab/d/secret": SECRET, "given/none": b""}) as server:
        for name, value in environment.items():
            patch.setenv(name, value.format(root=server.root.rstrip("/")))
        yield Place(f"{scheme}://lab/d/secret", server)


def s3(patch: pytest.MonkeyPatch) -> Any:
    keys = {"AWS_ACCESS_KEY_ID": "MINE", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": "t"}
    return bucket("s3", patch, AWS_ENDPOINT_URL="{root}", **keys)


def gs(patch: pytest.MonkeyPatch) -> Any:
    return bucket("gs", patch, STORAGE_EMULATOR_HOST="{root}", GOOGLE_BEARER_TOKEN="mine")


def az(patch: pytest.MonkeyPatch, scheme: str = "az", secret: str = f"AccountKey={KEY}") -> Any:
    text = f"AccountName=a;BlobEndpoint={{root}};{secret}"
    return bucket(scheme, patch, AZURE_STORAGE_CONNECTION_STRING=text)


def az_sas(patch: pytest.MonkeyPatch) -> Any:
    return az(patch, "abfs", "SharedAccessSignature=sv=1&sig=mine")


def az_variables(patch: pytest.MonkeyPatch) -> Any:
    names = {"NAME": "a", "KEY": KEY}
    variables = {f"AZURE_STORAGE_ACCOUNT_{name}": value for name, value in names.items()}
    return bucket("az", patch, AZURE_STORAGE_ENDPOINT="{root}", AZURE_ALLOW_HTTP="true", **variables)


@contextlib.contextmanager
def web(options: Mapping[str, Any]) -> Iterator[Place]:
    with serving({"lab/d/secret": SECRET}) as server:
        elsewhere = {"http://127.0.0.1:1/": options, f"{server.root}other/": options}
        yield Place(server.url("lab/d/secret"), server, {server.root: options}, elsewhere)


def basic(patch: pytest.MonkeyPatch) -> Any:
    return web({"username": "ann", "password": "pw"})


def bearer(patch: pytest.MonkeyPatch) -> Any:
    return web({"token": "mine"})


def header(patch: pytest.MonkeyPatch) -> Any:
    return web({"headers": {"X-Api-Key": "mine", "Authorization": "Own x"}})


PLACES = {"s3": s3, "gs": gs, "az": az, "abfs, SAS": az_sas, "az, variables": az_variables, "web, user": basic,
          "web, token": bearer, "web, headers": header}  # fmt: skip


# -- references ---------------------------------------------------------------------------------------------------


def dmrpp(folder: Path, place: str) -> Path:
    """Return a document of OPeNDAP whose chunk begins at the first byte."""
    path = hostile.dmrpp(folder, place)
    path.write_text(re.sub('offset="[0-9]+"', 'offset="0"', path.read_text()))
    return path


FORMS = [version_1, template, whole_file, parquet, vstack, dmrpp]


@pytest.fixture(autouse=True)
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one address of loopback be public."""
    kind = hosts._kind
    monkeypatch.setattr(hosts, "_kind", lambda address: None if str(address) == PUBLIC else kind(address))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """Return a function that serves references, and returns their URL."""
    with RangeServer(tmp_path) as server:
        yield lambda path: server.url(str(path.relative_to(tmp_path)))


def values(path: Path | str, **options: Any) -> np.ndarray:
    return vs.open_virtual_dataset(path, loadable_variables=[], **options).virtual.open()["x"].values


def named(error: pytest.ExceptionInfo[StorageError]) -> list[str]:
    """Return the ``allow=`` that an error names."""
    return list(json.loads(re.search(r"allow=(\[.*?\])", str(error.value))[1]))


def check_named(public: str, private: str, bucket: str) -> None:
    """Check that references to a public object are read, and those to a private one once its bucket is named."""
    np.testing.assert_array_equal(values(public), NUMBERS)
    with pytest.raises(StorageError, match=f"Only references name '{bucket}'") as caught:
        values(private)
    np.testing.assert_array_equal(values(private, allow=named(caught)), NUMBERS)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_references_from_a_network_get_no_credentials(place, form, served, tmp_path, monkeypatch):
    """They are read anonymously, or refused with the option with which the credentials are sent."""
    with PLACES[place](monkeypatch) as found:
        path = served(form(tmp_path, found.url))
        with pytest.raises(StorageError, match="Only references name ") as caught:
            values(path, storage=found.elsewhere)
        found.server.mode = "refuse_signed"
        np.testing.assert_array_equal(values(path, storage=found.elsewhere), NUMBERS)
        assert found.server.n_requests >= 2
        assert found.secrets() == set()
        found.server.mode = "refuse_anonymous"
        np.testing.assert_array_equal(values(path, storage=found.own, allow=named(caught)), NUMBERS)
        assert found.secrets()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_local_references_are_read_as_a_url_that_is_typed(place, form, tmp_path, monkeypatch):
    """With the credentials of the environment, and with logins of ``storage=`` for their own hosts only."""
    with PLACES[place](monkeypatch) as found:
        path = form(tmp_path, found.url)
        np.testing.assert_array_equal(values(path, storage=found.own), NUMBERS)
        assert found.secrets()
        if found.own is not None:
            found.server.reset()
            found.server.mode = "refuse_signed"
            np.testing.assert_array_equal(values(path, storage=found.elsewhere), NUMBERS)
            assert found.secrets() == set()


@pytest.mark.parametrize("place", PLACES)
def test_references_in_a_bucket_or_on_a_server(place, tmp_path, monkeypatch):
    """Those beside the bytes are read with the same credentials, and those in another bucket are not."""
    with PLACES[place](monkeypatch) as found:
        text = version_1(tmp_path, found.url).read_bytes()
        found.server.files["lab/d/p.json"] = found.server.files["given/p.json"] = text
        np.testing.assert_array_equal(values(f"{found.folder}/p.json", storage=found.own), NUMBERS)
        assert any(secrets_of(x[1], x[3]) for x in found.server.log if unquote(x[1]).startswith("/lab/d/secret"))
        if found.own is not None:
            return
        found.server.reset()
        with pytest.raises(StorageError, match="Only references name "):
            values(f"{found.folder.partition('://')[0]}://given/p.json")
        sent = {path.split("/")[1]: secrets_of(path, headers) for _, path, _, headers in found.server.log}
        assert sent.keys() == {"given", "lab"}
        assert sent["given"]
        assert not sent["lab"]


OPTIONS = {
    "s3": {"key": "MINE", "secret": "s"},
    "gs": {"token": "mine"},
    "az": {"account_name": "a", "account_key": KEY},
    "abfs, SAS": {"account_name": "a", "sas_token": "sig=mine"},
    "web, user": {"username": "ann", "password": "pw"},
}


@pytest.mark.parametrize("place", OPTIONS)
def test_options_for_all_urls(place, served, tmp_path, monkeypatch):
    """They are for what the user opens by name and for buckets of local references: web servers get no login."""
    with PLACES[place](monkeypatch) as found:
        for name in [x for x in os.environ if x.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
            monkeypatch.delenv(name)
        path = version_1(tmp_path, found.url)
        if not place.startswith("web"):
            storage = {"": {"endpoint": found.server.root.rstrip("/"), **OPTIONS[place]}}
            np.testing.assert_array_equal(values(path, storage=storage), NUMBERS)
            return
        for url in (path, served(path)):
            found.server.mode = "refuse_anonymous"
            with pytest.raises(StorageError, match="access denied"):
                values(url, storage={"": OPTIONS[place]})
            found.server.mode = "refuse_signed"
            np.testing.assert_array_equal(values(url, storage={"": OPTIONS[place]}), NUMBERS)
            assert found.secrets() == set()


@pytest.mark.parametrize("options", [{"username": "ann", "password": "pw"}, {"token": "mine"}, None])
def test_the_login_of_a_server_is_not_sent_to_the_one_that_its_references_name(options, tmp_path):
    """Neither that of storage= nor that of the URL."""
    with basic(None) as found, RangeServer({"p.json": b""}, mode="refuse_anonymous") as given:
        given.files["p.json"] = version_1(tmp_path, found.url).read_bytes()
        user = "" if options else "ann:pw@"
        url = given.url("p.json").replace("://", f"://{user}")
        with pytest.raises(StorageError, match="Only references name "):
            values(url, storage=options and {given.root: options})
        found.server.mode = "refuse_signed"
        np.testing.assert_array_equal(values(url, storage=options and {given.root: options}), NUMBERS)
        assert found.secrets() == set()


@pytest.mark.parametrize("knows_tokens", [True, False])
@pytest.mark.parametrize("page", [True, False])
@pytest.mark.parametrize("form", [version_1, parquet, vstack, dmrpp])
def test_nobody_logs_in_at_an_archive_of_nasa_for_a_stranger(form, page, knows_tokens, served, tmp_path, monkeypatch):
    """Although the environment has a login; with storage="earthdata" the user names all archives."""
    with Earthdata({"d/secret": SECRET}, knows_tokens=knows_tokens, page=page, host=PUBLIC) as server:
        monkeypatch.setattr(earthdata, "_ARCHIVES", (PUBLIC,))
        monkeypatch.setattr(earthdata, "_is_private", lambda url: True)  # otherwise it sends nothing by http
        monkeypatch.setenv("EARTHDATA_HOST", server.login_host)
        monkeypatch.setenv("EARTHDATA_TOKEN", "tok-ann")
        local = form(tmp_path, f"{server.root}d/secret")
        path = served(local)
        server.log.clear()
        with pytest.raises(StorageError) as caught:
            values(path)
        assert {secret for name in server.servers for secret in server.secrets_at(name)} == set()
        assert server.sessions == {}
        np.testing.assert_array_equal(values(path, storage="earthdata"), NUMBERS)
        np.testing.assert_array_equal(values(path, allow=named(caught)), NUMBERS)
        assert server.secrets_at("archive")
        np.testing.assert_array_equal(values(local), NUMBERS)  # the token of an archive goes to this archive


def test_nobody_gets_keys_of_a_bucket_of_nasa_for_a_stranger(served, tmp_path, monkeypatch):
    """The bucket is known by its name, and keys would come from a login in the environment."""
    with Earthdata({}) as server, serving({"podaac-ops-cumulus-x/secret": SECRET}) as data:
        monkeypatch.setattr(earthdata, "credentials_url", lambda root: server.root + "s3credentials")
        for name, value in {"EARTHDATA_HOST": server.login_host, "EARTHDATA_TOKEN": "tok-ann"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", data.root)
        path = served(version_1(tmp_path, "s3://podaac-ops-cumulus-x/secret"))
        with pytest.raises(StorageError, match="Only references name ") as caught:
            values(path)
        assert server.n_keys == 0
        assert server.log == []
        np.testing.assert_array_equal(values(path, allow=named(caught)), NUMBERS)
        assert server.n_keys == 1


@pytest.mark.parametrize("form", [external, link, virtual, growing])
@pytest.mark.parametrize("place", ["s3", "gs", "az", "web, user"])
@pytest.mark.parametrize("is_local", [True, False])
def test_hdf5_files_lead_to_no_other_bucket(is_local, place, form, tmp_path, monkeypatch):
    """Not even without credentials; neither those on disk nor those in a bucket that was opened by name."""
    with PLACES[place](monkeypatch) as found:
        path = form(tmp_path, found.url)
        url = str(path)
        if not is_local:
            found.server.files["given/p.h5"] = path.read_bytes()
            url = found.server.url("given/p.h5") if found.own else f"{place}://given/p.h5"
        with contextlib.suppress(VirtualStackError, KeyError):
            values(url, storage=found.own)
        assert not [entry for entry in found.server.log if "/lab/" in entry[1]]
        assert is_local or found.server.n_requests


@pytest.mark.parametrize("place", PLACES)
def test_a_virtual_dataset_of_hdf5_beside_its_source_is_read_with_the_same_credentials(place, tmp_path, monkeypatch):
    with PLACES[place](monkeypatch) as found:
        with h5py.File(tmp_path / "source.h5", "w") as file:
            file["x"] = NUMBERS
        found.server.files |= {
            "lab/d/source.h5": (tmp_path / "source.h5").read_bytes(),
            "lab/d/p.h5": virtual(tmp_path, "source.h5").read_bytes(),
        }
        np.testing.assert_array_equal(values(f"{found.folder}/p.h5", storage=found.own), NUMBERS)


@pytest.mark.parametrize("form", FORMS)
def test_containers_of_azurite(form, served, tmp_path, monkeypatch):
    """Microsoft's own emulator refuses a private container, reads a public one, and accepts the key."""
    if azurite.find_program() is None:
        pytest.skip("needs Azurite: npm install -g azurite")
    server = azurite.shared()
    for container, is_public in (("lab", False), ("open", True)):
        server.create(container, is_public=is_public)
        obstore.put(server.store(container), "d/secret", SECRET)
    names = {"AccountName": azurite.ACCOUNT, "AccountKey": azurite.KEY, "BlobEndpoint": server.endpoint}
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", ";".join(f"{x}={value}" for x, value in names.items()))
    for folder in ("lab", "open"):
        (tmp_path / folder).mkdir()
    private, public = (served(form(tmp_path / x, f"az://{x}/d/secret")) for x in ("lab", "open"))
    check_named(public, private, "az://lab/")


@pytest.mark.parametrize("form", FORMS)
def test_buckets_of_moto(form, s3, served, tmp_path, monkeypatch):
    """A private object is refused, a public one is read, and the keys are accepted."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    for acl in ("private", "public-read"):
        s3.put(f"d/{acl}", SECRET, acl=acl)
        (tmp_path / acl).mkdir()
    private, public = (served(form(tmp_path / x, f"s3://bucket/d/{x}")) for x in ("private", "public-read"))
    check_named(public, private, "s3://bucket/")
