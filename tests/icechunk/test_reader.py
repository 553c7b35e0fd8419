"""Icechunk repositories, written by icechunk, zarr and virtualstack, beside what xarray reads of them."""

import pickle
import sys

import netCDF4
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.core.buffer import cpu
from zarr.storage import MemoryStore

import virtualstack as vs
from tests.amount import examples
from tests.azurite import ACCOUNT, KEY, find_program, shared
from tests.data.watching import recorded_calls
from tests.icechunk.repositories import WARNINGS, icechunk, months, netcdf, references, repository
from tests.object_server import ObjectServer
from tests.servers import RangeServer
from tests.zarr.test_reader import random_sharding, write_boxes
from virtualstack.errors import (
    MalformedFileError,
    MissingDependencyError,
    SourceNotFoundError,
    UnsupportedFeatureError,
    VirtualStackError,
)
from virtualstack.icechunk.format import url_from_icechunk, url_to_icechunk
from virtualstack.icechunk.reader import read_session
from virtualstack.manifests import FIRST, INLINE

pytestmark = WARNINGS


@pytest.fixture
def repo(tmp_path):
    """Three snapshots: of one file, of another one with chunks of zarr, and of nothing."""
    repo = repository(tmp_path / "repo", tmp_path)
    repo.create_branch("empty", repo.lookup_branch("main"))
    session = repo.writable_session("main")
    vs.open_virtual_dataset(netcdf(tmp_path / "1.nc", start=1, zlib=True)).virtual.to_icechunk(session.store)
    repo.create_tag("one", session.commit("one"))
    session = repo.writable_session("main")
    vs.open_virtual_dataset(
        netcdf(tmp_path / "2.nc", start=2, n=9, fill=np.float32(-1), written=5)
    ).virtual.to_icechunk(session.store, mode="w")
    large = zarr.create_array(
        session.store, name="large", shape=(40, 300), chunks=(10, 300), dtype="f8", dimension_names=["a", "b"]
    )
    large[:20] = np.random.default_rng(0).random((20, 300))
    session.commit("two")
    return repo


def expected(path):
    with xr.open_dataset(path, engine="h5netcdf") as file:
        return file.load()


def test_virtual_native_and_inline_chunks(repo, tmp_path):
    """Each kind of chunk is where it is: in the file, in a file of the repository, in the manifest."""
    vds = vs.open_virtual_dataset(tmp_path / "repo", loadable_variables=[])
    whole = xr.open_zarr(repo.readonly_session("main").store, consolidated=False, chunks=None)
    xr.testing.assert_identical(vds.virtual.open().load(), whole.load())
    xr.testing.assert_identical(vds.drop_vars("large").virtual.open().load(), expected(tmp_path / "2.nc"))
    manifests = {name: vds[name].variable._data.in_memory() for name in vds.variables}
    assert {x.url for x in manifests["t"].locations} == {f"file://{tmp_path}/2.nc"}
    assert (manifests["time"].entries["location"] == INLINE).all()
    locations = {x.url.rpartition("/")[0] for x in manifests["large"].locations}
    assert locations == {f"file://{tmp_path}/repo/chunks"}
    assert manifests["large"].summary().n_empty == 2
    assert manifests["t"].summary().n_empty > 0


@pytest.mark.parametrize("version", ["branch", "tag", "snapshot"])
def test_branches_tags_and_snapshots(repo, tmp_path, version):
    named = {"branch": "main", "tag": "one", "snapshot": repo.lookup_tag("one")}[version]
    vds = vs.open_virtual_dataset(tmp_path / "repo", reader=vs.readers.Icechunk(**{version: named}))
    path = tmp_path / ("2.nc" if version == "branch" else "1.nc")
    xr.testing.assert_identical(vds.drop_vars("large", errors="ignore").virtual.open().load(), expected(path))
    with pytest.raises(SourceNotFoundError, match=r"branches \['empty', 'main'\] and the tags \['one'\]"):
        vs.open_virtual_dataset(tmp_path / "repo", reader=vs.readers.Icechunk(**{version: "other"}))


def test_what_is_no_repository_or_empty(repo, tmp_path):
    assert not vs.open_virtual_dataset(tmp_path / "repo", reader=vs.readers.Icechunk(branch="empty")).variables
    (tmp_path / "folder").mkdir()
    for name in ("folder", "nothing", "1.nc"):
        with pytest.raises(SourceNotFoundError, match="n Icechunk repository"):
            vs.open_virtual_dataset(tmp_path / name, reader="icechunk")
    with pytest.raises(ValueError, match="branch and tag"):
        vs.readers.Icechunk(branch="main", tag="one")


def test_icechunk_is_named_where_it_is_not_installed(repo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "icechunk", None)
    with pytest.raises(MissingDependencyError, match=r"virtualstack\[icechunk\]"):
        vs.open_virtual_dataset(tmp_path / "repo")


def test_chunks_are_looked_up_when_they_are_asked_for_and_pickle(repo, tmp_path, monkeypatch):
    """Opening looks at no chunk but those of coordinates; a copy in another place reads what the first one does."""
    store = icechunk.IcechunkStore
    asked = recorded_calls(monkeypatch, store, "array_chunk_iterator", lambda self, path, *rest: path)
    vds = vs.open_virtual_dataset(tmp_path / "repo")
    assert sorted(asked) == ["/time", "/x"]
    part = pickle.loads(pickle.dumps(vds.isel(time=slice(2, 7))))
    assert sorted(asked) == ["/time", "/x"]
    np.testing.assert_array_equal(part.virtual.open()["t"], expected(tmp_path / "2.nc")["t"][2:7])
    assert asked.count("/t") == 1


def test_groups_are_a_tree(tmp_path):
    repo = repository(tmp_path / "repo.icechunk", tmp_path)
    session = repo.writable_session("main")
    for i, group in enumerate((None, "a", "a/b")):
        vds = vs.open_virtual_dataset(netcdf(tmp_path / f"{i}.nc", start=i, time=False)).drop_vars("x")
        vds.virtual.to_icechunk(session.store, group=group)
    session.commit("three")
    tree = vs.open_virtual_datatree(tmp_path / "repo.icechunk")
    for i, group in enumerate(("/", "/a", "/a/b")):
        got = tree[group].to_dataset(inherit=False).virtual.open().load()
        xr.testing.assert_identical(got, expected(tmp_path / f"{i}.nc").drop_vars("x"))
    one = vs.open_virtual_dataset(tmp_path / "repo.icechunk", group="a/b")
    xr.testing.assert_identical(one.virtual.open().load(), expected(tmp_path / "2.nc").drop_vars("x"))


def test_references_go_there_and_back(tmp_path):
    """From kerchunk to Icechunk and back nothing changes: references, attributes, dtypes, inline chunks, holes."""
    attrs = {"valid_range": np.array([-5, 5], "i2"), "scale_factor": np.float32(0.1), "add_offset": 2.5, "note": "µ"}
    path = netcdf(
        tmp_path / "a b#.nc", n=7, dtype="i2", fill=np.int16(-9), written=4, attrs=attrs, zlib=True, shuffle=True
    )
    before = vs.open_virtual_dataset(path).virtual.to_kerchunk()
    session = repository(tmp_path / "repo", tmp_path).writable_session("main")
    vs.open_virtual_dataset(path).virtual.to_icechunk(session.store)
    session.commit("a")
    again = vs.open_virtual_dataset(tmp_path / "repo")
    assert again["t"].attrs["valid_range"].dtype == np.int16
    assert again.virtual.to_kerchunk() == before
    other = repository(None, tmp_path).writable_session("main")
    again.virtual.to_icechunk(other.store)
    for name in again.variables:
        assert references(other, name) == references(session, name)


def test_rectilinear_grids_go_there_and_back(tmp_path):
    """Chunks of different lengths have an encoding for each, and values and references are the same again."""
    vds = vs.open_virtual_mfdataset(months(tmp_path))
    session = repository(tmp_path / "repo", tmp_path).writable_session("main")
    vds.virtual.to_icechunk(session.store, inline_limit=0)
    session.commit("months")
    again = vs.open_virtual_dataset(tmp_path / "repo")
    array = again["t"].variable._data
    assert array.grid == vds["t"].variable._data.grid
    xr.testing.assert_identical(again.virtual.open().load(), vds.virtual.open().load())
    array.whole().validate()
    xr.testing.assert_equal(again.isel(time=slice(2, 8, 3)).virtual.open().t.load(), vds.virtual.open().t[2:8:3].load())


def test_chunks_beyond_the_end_of_an_array_are_left_out(tmp_path):
    """Icechunk keeps the chunks of an array that became shorter."""
    session = repository(tmp_path / "repo").writable_session("main")
    array = zarr.create_array(session.store, name="v", shape=(20,), chunks=(5,), dtype="i4", dimension_names=["x"])
    array[:] = np.arange(20)
    session.commit("long")
    session = repository(tmp_path / "repo", create=False).writable_session("main")
    zarr.open_array(session.store, path="v").resize((8,))
    session.commit("short")
    vds = vs.open_virtual_dataset(tmp_path / "repo")
    np.testing.assert_array_equal(vds.virtual.open()["v"], np.arange(8))


@pytest.mark.parametrize("seed", range(examples(10)))
def test_sharded_arrays(tmp_path, seed):
    """Chunks in shards are chunks; absent ones, absent shards, shards beyond the end and in manifests among them."""
    rng = np.random.default_rng(seed)
    shape, chunks, shards = random_sharding(rng)
    session = repository(tmp_path / "repo").writable_session("main")
    array = zarr.create_array(
        session.store, name="v", shape=shape, chunks=chunks, shards=shards, dtype="i4", fill_value=3,
        dimension_names=[f"d{i}" for i in range(len(shape))],
    )  # fmt: skip
    write_boxes(array, rng)
    expected = array[...]
    session.commit("shards")
    vds = vs.open_virtual_dataset(tmp_path / "repo")
    assert vds["v"].variable._data.manifest.shape == tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
    np.testing.assert_array_equal(vds.virtual.open()["v"], expected)
    vds.virtual.to_kerchunk(tmp_path / "refs.json")
    with vs.open_virtual_dataset(tmp_path / "refs.json").virtual.open() as again:
        np.testing.assert_array_equal(again["v"], expected)


def test_nothing_is_added_to_shards(tmp_path):
    """What is appended has places among chunks, and the array has such among shards."""
    session = repository(tmp_path / "repo").writable_session("main")
    array = zarr.create_array(
        session.store, name="v", shape=(8,), chunks=(2,), shards=(4,), dtype="i4", dimension_names=["x"]
    )
    array[:] = np.arange(8)
    session.commit("shards")
    vds = vs.open_virtual_dataset(tmp_path / "repo")
    session = repository(tmp_path / "repo", create=False).writable_session("main")
    with pytest.raises(VirtualStackError, match=r"'?v'?"):
        vds.virtual.to_icechunk(session.store, append_dim="x")
    assert not session.has_uncommitted_changes


def test_sessions_have_what_is_not_committed(tmp_path):
    """Native chunks of a session come along: it does not tell where their files are."""
    session = repository(None).writable_session("main")
    array = zarr.create_array(session.store, name="g/v", shape=(20,), chunks=(5,), dtype="f8", dimension_names=["x"])
    array[:10] = np.arange(10) / 3
    manifest = read_session(session.store, "g").arrays["v"].in_memory()
    assert manifest.summary().n_inline == 2
    with pytest.raises(SourceNotFoundError, match="no group '/other'"):
        read_session(session.store, "other")


def test_metadata_that_are_no_json(tmp_path):
    """Icechunk checks what is set, and not what lies there."""
    store = MemoryStore({"g/zarr.json": cpu.Buffer.from_bytes(b'{"node_type": "array",')})
    with pytest.raises(MalformedFileError, match=r"'g/zarr\.json' is not JSON"):
        read_session(store, "g")


def test_names_of_places():
    """What is not a part of a URL by itself is percent-encoded, and back; at web servers it is already."""
    odd = "s3://bucket/a b%20c?d#e/ü(1)^'[x]~.nc"
    assert url_to_icechunk(odd) == "s3://bucket/a%20b%2520c%3Fd%23e/%C3%BC(1)^'[x]~.nc"
    assert url_from_icechunk(url_to_icechunk(odd)) == odd
    web = "https://host/a%20b.nc"
    assert url_from_icechunk(url_to_icechunk(web)) == web


def test_repositories_and_files_in_s3(s3, tmp_path):
    """A repository in a bucket is recognised, and read with the options of its URL; etags are compared by Icechunk."""
    prefix = "s3://bucket/archive/"
    s3.put("archive/a.nc", netcdf(tmp_path / "a.nc", zlib=True).read_bytes())
    storage = {"s3://bucket/": {**s3.options, "allow_http": True, "region": "us-east-1"}}
    config = icechunk.RepositoryConfig.default()
    at = {"region": "us-east-1", "endpoint_url": s3.endpoint, "allow_http": True, "force_path_style": True}
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, icechunk.s3_store(**at)))
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    place = icechunk.s3_storage(bucket="bucket", prefix="cubes/one", **at, **keys)
    access = icechunk.containers_credentials({prefix: icechunk.s3_credentials(**keys)})
    repo = icechunk.Repository.create(place, config, authorize_virtual_chunk_access=access)
    session = repo.writable_session("main")
    vds = vs.open_virtual_dataset(f"{prefix}a.nc", storage=storage)
    vds.virtual.to_icechunk(session.store)
    session.commit("a")
    again = vs.open_virtual_dataset("s3://bucket/cubes/one", storage=storage)
    xr.testing.assert_identical(again.virtual.open().load(), expected(tmp_path / "a.nc"))
    entries = again["t"].variable._data.in_memory()
    assert [x.url for x in entries.locations] == [f"{prefix}a.nc"]
    assert (entries.entries["location"] == FIRST).all()
    got = xr.open_zarr(repo.readonly_session("main").store, consolidated=False, chunks=None)
    xr.testing.assert_identical(got.load(), expected(tmp_path / "a.nc"))
    s3.put("archive/a.nc", netcdf(tmp_path / "b.nc", start=9, zlib=True).read_bytes())
    with pytest.raises(icechunk.IcechunkError):
        xr.open_zarr(repo.readonly_session("main").store, consolidated=False, chunks=None)["t"].load()
    with pytest.raises(UnsupportedFeatureError, match="'ftp://'"):
        vs.open_virtual_dataset("ftp://bucket/cubes/one", reader="icechunk")


def test_a_repository_in_google_cloud(tmp_path):
    """Also one that asks for a login: the token is sent."""
    place = icechunk.local_filesystem_storage(str(tmp_path / "one"))
    session = icechunk.Repository.create(place).writable_session("main")
    ds = xr.Dataset({"t": ("x", np.arange(2000.0))})
    ds.to_zarr(session.store, consolidated=False)
    session.commit("values")
    with ObjectServer() as server:
        for path in (x for x in tmp_path.rglob("*") if x.is_file()):
            server.objects[f"bucket/cubes/{path.relative_to(tmp_path)}"] = path.read_bytes()
        for login in ({"skip_signature": True}, {"token": "abc"}):
            options = {"endpoint": server.root, **login}
            got = xr.open_dataset("gs://bucket/cubes/one", engine="virtualstack", storage={"gs://bucket": options})
            np.testing.assert_array_equal(got["t"].values, ds["t"].values)
        sent = {x[3].get("authorization") for x in server.log if "icechunk" in x[3]["user-agent"]}
    assert sent == {None, "Bearer abc"}


@pytest.mark.skipif(find_program() is None, reason="needs Azurite: npm install -g azurite")
def test_a_repository_in_azure(tmp_path):
    server = shared()
    server.create("cubes")
    storage = {"az://cubes": {"account_name": ACCOUNT, "account_key": KEY, "endpoint": server.endpoint}}
    place = icechunk.azure_storage(
        account=ACCOUNT,
        container="cubes",
        prefix="one",
        access_key=KEY,
        config={"azure_storage_endpoint": server.endpoint, "azure_allow_http": "true"},
    )
    session = icechunk.Repository.create(place).writable_session("main")
    ds = xr.Dataset({"t": ("x", np.arange(2000.0))})
    ds.to_zarr(session.store, consolidated=False)
    session.commit("values")
    got = xr.open_dataset("az://cubes/one", engine="virtualstack", storage=storage)
    np.testing.assert_array_equal(got["t"].values, ds["t"].values)
    for url in ("az://cubes/two", "abfs://cubes/three", f"abfss://cubes@{ACCOUNT}.dfs.core.windows.net/four"):
        place = {url: storage["az://cubes"]}
        ds.virtual.to_icechunk(url, storage=place)
        got = xr.open_dataset(url, engine="virtualstack", reader="icechunk", storage=place)
        np.testing.assert_array_equal(got["t"].values, ds["t"].values)
    with pytest.raises(UnsupportedFeatureError, match="name of the account"):
        vs.open_virtual_dataset("abfs://cubes/three", reader="icechunk", storage={"abfs://cubes": {}})


@pytest.mark.skipif(find_program() is None, reason="needs Azurite: npm install -g azurite")
def test_credentials_that_are_named_for_azure(tmp_path, monkeypatch):
    """Those of the environment are others, and Icechunk would take them."""
    server = shared()
    server.create("named")
    text = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={server.endpoint}"
    ds = xr.Dataset({"t": ("x", np.arange(2000.0))})
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "bm9uZQ==")
    storage = {"az://named": {"connection_string": text}}
    ds.virtual.to_icechunk("az://named/one", storage=storage)
    got = xr.open_dataset("az://named/one", engine="virtualstack", reader="icechunk", storage=storage)
    np.testing.assert_array_equal(got["t"].values, ds["t"].values)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    login = {"account_name": ACCOUNT, "endpoint": server.endpoint, "client_id": "me", "client_secret": "my"}
    with pytest.raises(UnsupportedFeatureError, match="does not log in with client_secret of storage="):
        vs.open_virtual_dataset("az://named/one", reader="icechunk", storage={"az://named": login})
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    storage = {"az://named": {"endpoint": server.endpoint}}
    assert vs.open_virtual_dataset("az://named/one", reader="icechunk", storage=storage).sizes == {"x": 2000}


def test_a_profile_that_is_named_for_s3(tmp_path, monkeypatch):
    """Not the keys of the environment."""
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id = MINE\naws_secret_access_key = s\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OTHER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    with RangeServer({}) as server:
        options = {"endpoint": server.root, "region": "us-east-1", "profile": "mine", "allow_http": True}
        with pytest.raises(SourceNotFoundError):
            vs.open_virtual_dataset("s3://b/cube", reader="icechunk", storage={"s3://b": options})
        sent = [entry[3]["authorization"].partition("Credential=")[2].partition("/")[0] for entry in server.log]
    assert set(sent) == {"MINE"}


@pytest.mark.parametrize("version", [1, 2])
def test_repositories_of_both_specifications_are_found(tmp_path, version):
    """By their files, in a folder and on a web server; those of version 1 have no file named repo."""
    folder = tmp_path / "plain"
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(folder)), spec_version=version)
    session = made.writable_session("main")
    xr.Dataset({"v": ("x", np.arange(4.0))}).to_zarr(session.store, consolidated=False)
    session.commit("made")
    with RangeServer(tmp_path) as server:
        for url in (str(folder), server.url("plain"), server.url("plain/")):
            assert vs.open_virtual_dataset(url).virtual.open().v.values.tolist() == [0, 1, 2, 3]


TEXTS = {
    "vlen": (str, "none", ["one", "none", ""]),
    "vlen_missing": (str, None, ["one", "zz", ""]),
    "letters": ("S1", b"-", ["ab", "-", "c-"]),
    "dashes": ("S1", b"-", ["ab", "----", "c-"]),
    "encoded": ("S1", b"-", ["ab", "-", "c-"]),
}


@pytest.mark.parametrize(("kind", "fill"), [("S1", b"x"), ("U1", "x"), ("U3", "xyz")])
def test_fixed_text_of_zarr_with_a_fill_value(tmp_path, kind, fill):
    """Single letters and longer texts of a zarr store are written, and read as xarray reads the store."""
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    array = group.create_array("v", shape=(4,), chunks=(2,), dtype=kind, fill_value=fill)
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    array[:2] = np.array(["a", fill], kind)
    expected = xr.open_zarr(tmp_path / "a.zarr", consolidated=False).v.values.tolist()
    expected = [x.decode() if isinstance(x, bytes) else x for x in np.atleast_1d(expected).tolist()]
    vs.open_virtual_dataset(tmp_path / "a.zarr").virtual.to_icechunk(tmp_path / "a.icechunk")
    found = xr.open_dataset(tmp_path / "a.icechunk", engine="virtualstack").v.values.tolist()
    assert repr(np.atleast_1d(found).tolist()) == repr(expected)


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_text_with_a_fill_value_is_read_as_in_its_file(tmp_path, name, is_loaded):
    """By xarray from the repository and by virtualstack; bytes become text, because zarr masks no bytes."""
    kind, fill, texts = TEXTS[name]
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 3)
        if kind is str:
            file.createVariable("v", str, ("x",), fill_value=fill)[:] = np.array(texts, object)
            if fill is None:
                file["v"].missing_value = "zz"
        else:
            file.createDimension("n", 4)
            variable = file.createVariable("v", kind, ("x", "n"), fill_value=fill)
            variable.set_auto_chartostring(False)
            variable[:] = np.array([list(x.ljust(4, "\0")) for x in texts], "S1")
            if name == "encoded":
                variable._Encoding = "utf-8"
    expected = xr.open_dataset(tmp_path / "a.nc", engine="netcdf4").v.values.tolist()
    texts = [x.decode() if isinstance(x, bytes) else x for x in expected]
    vds = vs.open_virtual_dataset(tmp_path / "a.nc", loadable_variables=["v"] if is_loaded else [])
    repo = repository(None, tmp_path)
    session = repo.writable_session("main")
    vds.virtual.to_icechunk(session.store)
    session.commit("made")
    store = repo.readonly_session("main").store
    assert repr(xr.open_zarr(store, consolidated=False).v.values.tolist()) == repr(texts)
    for target in ("a.json", "a.parq", "a.vstack"):
        write = vds.virtual.to_vstack if target == "a.vstack" else vds.virtual.to_kerchunk
        write(tmp_path / target)
        found = xr.open_dataset(tmp_path / target, engine="virtualstack").v.values.tolist()
        assert repr(found) == repr(texts if is_loaded and name == "encoded" else expected)
