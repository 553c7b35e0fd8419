"""Credentials are sent only to places that the user named or granted, and not to those that only references name."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.readers import Icechunk
from virtualstack.storage import Permission, Storage, places
from virtualstack.storage.identities.identity import identities
from virtualstack.storage.named import in_both, is_named

COMMAND = r"virtualstack allow s3://lab/"


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The server of a bucket ``s3://lab/`` with one file, for which the environment has credentials."""
    folder = tmp_path / "server"
    (folder / "lab").mkdir(parents=True)
    xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf(folder / "lab" / "day.nc", engine="netcdf4")
    with RangeServer(folder, mode="refuse_anonymous") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.root)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield server


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """Return a function after which this is another account, with a record of its own."""

    def become() -> None:
        monkeypatch.setenv("VIRTUALSTACK_PLACES", str(tmp_path / "other" / "places.txt"))

    return become


def write(kind: str, folder: Path) -> Path:
    """Write references to the bucket, and return their path."""
    vds = vs.open_virtual_dataset("s3://lab/day.nc")
    target = folder / f"refs.{kind}"
    if kind in ("json", "parquet"):
        vds.virtual.to_kerchunk(target, inline_limit=0)
    elif kind == "vstack":
        vds.virtual.to_vstack(target)
    else:
        vds.virtual.to_icechunk(target)
    return target


KINDS = "json", "parquet", "vstack", "icechunk"


def values(path, **options):
    if str(path).endswith("icechunk"):
        options["reader"] = Icechunk()
    return vs.open_virtual_dataset(path, **options).virtual.open()["rain"].values


@pytest.mark.parametrize("kind", KINDS)
def test_references_of_a_stranger_are_read_without_credentials(kind, bucket, stranger, tmp_path):
    target = write(kind, tmp_path)
    np.testing.assert_array_equal(values(target), [1, 2])  # the account that wrote them
    stranger()
    with pytest.raises(StorageError, match=COMMAND):
        values(target)
    bucket.mode = "refuse_signed"  # no signature arrives, although there are keys in the environment
    bucket.reset()
    np.testing.assert_array_equal(values(target), [1, 2])
    n_requests = bucket.n_requests
    bucket.reset()
    np.testing.assert_array_equal(values(target, storage={"s3://lab/": {"anonymous": True}}), [1, 2])
    assert n_requests == bucket.n_requests


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["allow", "storage", "environment", "configuration", "allowed", "command", "scheme"])
def test_a_place_that_the_user_names_gets_credentials(way, kind, bucket, stranger, tmp_path, monkeypatch):
    target, options = write(kind, tmp_path), {}
    stranger()
    config = tmp_path / "config.toml"
    if way == "allow":
        options["allow"] = ["s3://lab/"]
    elif way == "storage":
        options["storage"] = {"s3://lab/": {"region": "us-east-1"}}
    elif way == "scheme":
        options["storage"] = {"s3://": {"region": "us-east-1"}}
    elif way == "environment":
        monkeypatch.setenv("VIRTUALSTACK_ALLOW", "s3://lab")
    elif way == "command":
        places.grant(["s3://lab/"])
    else:
        text = {"configuration": '[storage."s3://lab/"]\nregion = "us-east-1"\n', "allowed": 'allow = ["s3://lab/"]'}
        config.write_text(text[way])
        monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(config))
    np.testing.assert_array_equal(values(target, **options), [1, 2])


@pytest.mark.parametrize("kind", ["json", "vstack"])
def test_references_in_the_same_bucket_are_read_with_credentials(kind, bucket, stranger, tmp_path):
    target = write(kind, tmp_path)
    copy = tmp_path / "server" / "lab" / target.name
    (shutil.copytree if target.is_dir() else shutil.copy)(target, copy)
    stranger()
    if kind == "json":  # the server cannot list keys, as opening the newest snapshot of a store needs
        np.testing.assert_array_equal(values(f"s3://lab/{target.name}"), [1, 2])
    named = Permission.from_allow(f"s3://lab/{target.name}").named
    assert "s3://lab/" in named


def test_what_only_references_name_stays_so_through_operations(bucket, stranger, tmp_path):
    target = write("json", tmp_path)
    stranger()
    vds = vs.open_virtual_dataset(target)
    for changed in (
        pickle.loads(pickle.dumps(vds)),
        vds.isel(time=[1]),
        xr.concat([vds, vds], "time"),
        xr.merge([vds, vds.rename(rain="snow")]),
    ):
        with pytest.raises(StorageError, match=COMMAND):
            changed.virtual.open()["rain"].load()
    with pytest.raises(StorageError, match=COMMAND):
        xr.open_dataset(target, engine="virtualstack")["rain"].load()
    with pytest.raises(StorageError, match=COMMAND):
        vds.virtual.load("rain")
    with pytest.raises(Exception, match="virtualstack allow"):
        xr.open_zarr(vs.ManifestStore(vds.virtual.to_group()), consolidated=False)["rain"].load()
    with pytest.raises(StorageError, match=COMMAND):
        vs.Repository.create(tmp_path / "a.vstack", vds).open_dataset()["rain"].load()
    assert "s3://lab/" not in places.granted().roots  # to write references again names no place


def test_a_repository_looks_up_sources_without_credentials(bucket, stranger, tmp_path):
    target = write("vstack", tmp_path)
    assert vs.Repository.open(target).verify().is_good
    stranger()
    repo = vs.Repository.open(target)
    assert not repo.verify().is_good
    assert vs.Repository.open(target, allow="s3://lab/").verify().is_good
    bucket.mode = "refuse_signed"
    assert repo.verify().is_good


def test_a_bucket_that_was_opened_by_name_is_named_after_a_join(bucket, stranger, tmp_path):
    target = write("json", tmp_path)
    stranger()
    refs, named = vs.open_virtual_dataset(target), vs.open_virtual_dataset("s3://lab/day.nc")
    for pair in ([refs, named], [named, refs]):
        np.testing.assert_array_equal(xr.concat(pair, "time").virtual.open()["rain"], [1, 2, 1, 2])
    merged = xr.merge([refs.rename(rain="snow"), named])
    np.testing.assert_array_equal(merged.virtual.open()["rain"], [1, 2])
    with pytest.raises(StorageError, match=COMMAND):
        merged.virtual.open()["snow"].load()


def test_web_servers_that_only_references_name_get_no_login(tmp_path):
    """A login for NASA is found by host; it is not looked for."""
    root = "https://data.nsidc.earthdatacloud.nasa.gov/"
    environ = {"EARTHDATA_TOKEN": "secret"}
    assert identities("http", {}, environ, root)[0].session is not None
    assert all(x.session is None for x in identities("http", {}, environ, root, is_named=False))
    asked = {"earthdata": "known"}
    assert identities("http", asked, environ, root, is_named=False)[0].session is not None  # storage="earthdata"
    assert identities("http", {}, environ, root, is_named=False)[0].config == {}


@pytest.mark.parametrize("service", ["s3", "gs", "az"])
def test_no_identity_of_the_account_is_looked_for(service):
    environ = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_PROFILE": "p",
               "AZURE_STORAGE_SAS_TOKEN": "c", "GOOGLE_BEARER_TOKEN": "d", "EARTHDATA_TOKEN": "e",
               "AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=k=="}  # fmt: skip
    found = identities(service, {}, environ, "s3://podaac-ops-cumulus-protected/", is_named=False)
    assert [(x.name, x.config["skip_signature"], x.provider) for x in found] == [("anonymous", True, None)]
    assert "k==" not in str(found[0].config)


def test_a_storage_names_what_all_permissions_name():
    one, two = Permission.from_allow("s3://a/x.vstack", ["s3://b/x/"]), Permission.of_document("s3://b/y.json")
    storage = Storage().only(one)
    urls = ["s3://a/z.nc", "s3://b/x/z.nc", "s3://b/z.nc"]
    assert [storage.is_named(url) for url in urls] == [True, True, False]
    both = storage.only(two)
    assert [both.is_named(url) for url in urls] == [False, True, False]
    assert pickle.loads(pickle.dumps(both)) == both
    assert in_both(None, ("s3://a/",)) == ("s3://a/",)
    assert is_named("https://DATA.org/a.nc", ("https://data.org/",))
    assert not is_named("s3://a.b/x", ("s3://a/",))
    assert is_named("https://data.org/a.nc", ("https://",))
    assert storage.find("file:///a.nc") == ("file:///", None)


def test_a_kerchunk_document_that_names_a_whole_file_asks_for_its_size_without_credentials(bucket, stranger, tmp_path):
    target = tmp_path / "refs.json"
    zarray = {"shape": [1], "chunks": [1], "dtype": "<f8", "zarr_format": 2, "compressor": None, "filters": None,
              "order": "C", "fill_value": 0}  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "rain/.zarray": json.dumps(zarray), "rain/0": ["s3://lab/day.nc"],
            "rain/.zattrs": '{"_ARRAY_DIMENSIONS": ["x"]}'}  # fmt: skip
    target.write_text(json.dumps({"version": 1, "refs": refs}))
    stranger()
    bucket.reset()
    with pytest.raises(StorageError, match=COMMAND):
        values(target)
