"""References from a network get credentials only for places that the user named; local ones as a URL that is typed."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.storage import Permission, PublicWeb, Storage
from virtualstack.storage.identities.identity import identities
from virtualstack.storage.named import EVERYWHERE, in_both, in_either, is_named

REMEDY = r'allow=\["s3://lab/"\]'


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
def web(tmp_path):
    """Return a function that serves references from another server, and returns their URL."""
    with RangeServer(tmp_path) as server:
        yield lambda path: server.url(str(path.relative_to(tmp_path)))


def write(kind: str, folder: Path) -> Path:
    """Write references to the bucket, and return their path."""
    vds = vs.open_virtual_dataset("s3://lab/day.nc")
    target = folder / f"refs.{kind}"
    if kind in ("json", "parquet"):
        vds.virtual.to_kerchunk(target, inline_limit=0)
    else:
        vds.virtual.to_vstack(target)
    return target


KINDS = "json", "parquet", "vstack"


def values(path, **options):
    return vs.open_virtual_dataset(path, **options).virtual.open()["rain"].values


@pytest.mark.parametrize("kind", KINDS)
def test_references_from_a_network_are_read_without_credentials(kind, bucket, web, tmp_path):
    """Those on this disk are read with credentials, in every home."""
    target = write(kind, tmp_path)
    np.testing.assert_array_equal(values(target), [1, 2])
    target = web(target)
    with pytest.raises(StorageError, match=REMEDY):
        values(target)
    bucket.mode = "refuse_signed"  # no signature arrives, although there are keys in the environment
    bucket.reset()
    np.testing.assert_array_equal(values(target), [1, 2])
    n_requests = bucket.n_requests
    bucket.reset()
    np.testing.assert_array_equal(values(target, storage={"s3://lab/": {"anonymous": True}}), [1, 2])
    assert n_requests == bucket.n_requests


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["allow", "storage", "environment", "configuration", "allowed", "scheme"])
def test_a_place_that_the_user_names_gets_credentials(way, kind, bucket, web, tmp_path, monkeypatch):
    target, options = web(write(kind, tmp_path)), {}
    config = tmp_path / "config.toml"
    if way == "allow":
        options["allow"] = ["s3://lab/"]
    elif way == "storage":
        options["storage"] = {"s3://lab/": {"region": "us-east-1"}}
    elif way == "scheme":
        options["storage"] = {"s3://": {"region": "us-east-1"}}
    elif way == "environment":
        monkeypatch.setenv("VIRTUALSTACK_ALLOW", "s3://lab")
    else:
        text = {"configuration": '[storage."s3://lab/"]\nregion = "us-east-1"\n', "allowed": 'allow = ["s3://lab/"]'}
        config.write_text(text[way])
        monkeypatch.setenv("VIRTUALSTACK_CONFIG", str(config))
    np.testing.assert_array_equal(values(target, **options), [1, 2])


def test_references_in_the_same_bucket_are_read_with_credentials(bucket, tmp_path):
    target = write("json", tmp_path)
    (tmp_path / "server" / "lab" / target.name).write_bytes(target.read_bytes())
    np.testing.assert_array_equal(values(f"s3://lab/{target.name}"), [1, 2])


def test_what_only_references_name_stays_so_through_operations(bucket, web, tmp_path):
    target = web(write("json", tmp_path))
    vds = vs.open_virtual_dataset(target)
    for changed in (
        pickle.loads(pickle.dumps(vds)),
        vds.isel(time=[1]),
        xr.concat([vds, vds], "time"),
        xr.merge([vds, vds.rename(rain="snow")]),
    ):
        with pytest.raises(StorageError, match=REMEDY):
            changed.virtual.open()["rain"].load()
    with pytest.raises(StorageError, match=REMEDY):
        xr.open_dataset(target, engine="virtualstack")["rain"].load()
    with pytest.raises(StorageError, match=REMEDY):
        vds.virtual.load("rain")
    with pytest.raises(Exception, match=REMEDY):
        xr.open_zarr(vs.ManifestStore(vds.virtual.to_group()), consolidated=False)["rain"].load()


def test_a_repository_looks_up_sources_without_credentials(bucket, web, tmp_path):
    target = write("vstack", tmp_path)
    assert vs.Repository.open(target).verify().is_good
    target = web(target)
    repo = vs.Repository.open(target)
    assert not repo.verify().is_good
    assert vs.Repository.open(target, allow="s3://lab/").verify().is_good
    bucket.mode = "refuse_signed"
    assert repo.verify().is_good


@pytest.mark.parametrize("other", ["s3://lab/day.nc", "local"])
def test_a_join_keeps_what_each_is_read_with(other, bucket, web, tmp_path):
    """A bucket that was opened by name, or that local references name, is named for the other references too."""
    target = write("json", tmp_path)
    refs, named = (vs.open_virtual_dataset(x) for x in (web(target), target if other == "local" else other))
    for pair in ([refs, named], [named, refs]):
        joined = xr.concat(pair, "time")
        np.testing.assert_array_equal(joined.virtual.open()["rain"], [1, 2, 1, 2])
        access = joined.virtual.to_group().arrays["rain"].access
        assert not access.is_named("s3://other/a.nc")
    merged = xr.merge([refs.rename(rain="snow"), named])
    np.testing.assert_array_equal(merged.virtual.open()["rain"], [1, 2])
    with pytest.raises(StorageError, match=REMEDY):
        merged.virtual.open()["snow"].load()


@pytest.mark.parametrize(
    "options", [{"username": "ann", "password": "pw"}, {"token": "x"}, {"headers": {"X-Key": "x"}}]
)
def test_a_login_for_every_url_is_not_sent_where_only_local_references_lead(options):
    """Tokens, logins and headers go only to the hosts that they are for; other options hold."""
    storage = Storage.from_option({"": {**options, "timeout": "5s"}, "https://lab.org/": options})
    local = storage.only(Permission.from_allow("/data/x.json"))
    assert storage.find("https://data.org/a.nc")[1] == {**options, "timeout": "5s"}
    assert local.find("https://data.org/a.nc")[1] == PublicWeb(("https://data.org/",), (("timeout", "5s"),))
    assert local.find("https://lab.org/a.nc")[1] == options
    assert local.find("s3://bucket/a.nc")[1] == {**options, "timeout": "5s"}


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
    one, two = Permission.from_allow("s3://a/x.vstack", ["s3://b/x/"]), Permission.from_allow("s3://b/y.json")
    storage = Storage().only(one)
    urls = ["s3://a/z.nc", "s3://b/x/z.nc", "s3://b/z.nc"]
    assert [storage.is_named(url) for url in urls] == [True, True, False]
    both = storage.only(two)
    assert [both.is_named(url) for url in urls] == [False, True, False]
    assert pickle.loads(pickle.dumps(both)) == both
    assert in_both(None, ("s3://a/",)) == ("s3://a/",)
    local = storage.only(Permission.from_allow("/data/z.json")), Storage().only(Permission.from_allow("/data/z.json"))
    assert [x.is_named("s3://c/z.nc") for x in local] == [False, True]
    assert in_either([(EVERYWHERE,), None]) == (EVERYWHERE,)
    assert in_either([(EVERYWHERE, "s3://a/"), ("s3://b/",)]) == ("s3://a/", "s3://b/")
    assert is_named("https://DATA.org/a.nc", ("https://data.org/",))
    assert not is_named("s3://a.b/x", ("s3://a/",))
    assert is_named("https://data.org/a.nc", ("https://",))
    assert storage.find("file:///a.nc") == ("file:///", None)


def test_a_kerchunk_document_that_names_a_whole_file_asks_for_its_size_without_credentials(bucket, web, tmp_path):
    target = tmp_path / "refs.json"
    zarray = {"shape": [1], "chunks": [1], "dtype": "<f8", "zarr_format": 2, "compressor": None, "filters": None,
              "order": "C", "fill_value": 0}  # fmt: skip
    refs = {".zgroup": '{"zarr_format": 2}', "rain/.zarray": json.dumps(zarray), "rain/0": ["s3://lab/day.nc"],
            "rain/.zattrs": '{"_ARRAY_DIMENSIONS": ["x"]}'}  # fmt: skip
    target.write_text(json.dumps({"version": 1, "refs": refs}))
    bucket.reset()
    with pytest.raises(StorageError, match=REMEDY):
        values(web(target))
