"""What references that came over a network may make their reader touch: no local files, and no private hosts."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import h5py
import icechunk
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.icechunk.repositories import may_refer_to
from tests.servers import RangeServer
from virtualstack.cli.command import main
from virtualstack.errors import ForbiddenLocationError
from virtualstack.kerchunk.reader import read_references
from virtualstack.storage import Storage

SECRET = b"root:x:0:"
ZARRAY = {"shape": [9], "chunks": [9], "dtype": "|u1", "compressor": None, "filters": None, "fill_value": None}
ZATTRS = {"_ARRAY_DIMENSIONS": ["x"]}


def text(*reference: object, **more: object) -> bytes:
    """Return kerchunk references of one coordinate, whose one chunk is a reference."""
    refs = {".zgroup": '{"zarr_format": 2}', "x/.zarray": json.dumps(ZARRAY), "x/.zattrs": json.dumps(ZATTRS)}
    return json.dumps({"version": 1, **more, "refs": {**refs, "x/0": [*reference]}}).encode()


def parquet(folder: Path, url: str) -> None:
    """Write the same references as parquet, as fsspec does."""
    (folder / "x").mkdir(parents=True)
    metadata = {".zgroup": {"zarr_format": 2}, "x/.zarray": ZARRAY, "x/.zattrs": ZATTRS}
    (folder / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": 10}))
    row = {"path": [url], "offset": [0], "size": [9], "raw": pa.array([None], pa.binary())}
    pq.write_table(pa.table(row), folder / "x/refs.0.parq")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A local file that no reference from elsewhere may show."""
    path = tmp_path / "here/secret"
    path.parent.mkdir()
    path.write_bytes(SECRET)
    return path


FORMS = {
    "file URL": lambda path: text(f"file://{path}", 0, 9),
    "file URL with a host": lambda path: text(f"file://localhost{path}", 0, 9),
    "local URL": lambda path: text(f"local://{path}", 0, 9),
    "upper case": lambda path: text(f"FILE://{path}", 0, 9),
    "path": lambda path: text(str(path), 0, 9),
    "path with two slashes": lambda path: text(f"/{path}", 0, 9),
    "whole file": lambda path: text(f"file://{path}"),
    "behind dots": lambda path: text(f"file:///etc/..{path}", 0, 9),
    "behind a cache": lambda path: text(f"simplecache::file://{path}", 0, 9),
    "template": lambda path: text("{{u}}", 0, 9, templates={"u": f"file://{path}"}),
    "part of a template": lambda path: text("{{u}}le://" + str(path), 0, 9, templates={"u": "fi"}),
    "memory": lambda path: text("memory://secret", 0, 9),
    "loopback": lambda path: text("http://127.0.0.1:1/secret", 0, 9),
    "loopback by name": lambda path: text("http://localhost/secret", 0, 9),
    "loopback as a number": lambda path: text("http://2130706433/secret", 0, 9),
    "loopback in IPv6": lambda path: text("http://[::ffff:127.0.0.1]/secret", 0, 9),
    "metadata of a cloud": lambda path: text("http://169.254.169.254/latest/meta-data/", 0, 9),
    "private host": lambda path: text("https://10.0.0.1/secret", 0, 9),
    "private host by name": lambda path: text("https://wiki.internal/secret", 0, 9),
    "user before the host": lambda path: text("http://data.org@127.0.0.1/secret", 0, 9),
    "other references": lambda path: text("reference://", 0, 9),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_engine_opens_no_references_that_leave_the_network(form, secret):
    """A kerchunk file from a web server showed a file of this machine."""
    with RangeServer({"p.json": FORMS[form](secret), "p.json.gz": gzip.compress(FORMS[form](secret))}) as server:
        for name in ("p.json", "p.json.gz"):
            with pytest.raises(vs.errors.VirtualStackError, match=r"refers to|no storage|reached through|climbs"):
                xr.open_dataset(server.url(name), engine="virtualstack").load()


@pytest.mark.parametrize("form", ["file URL", "loopback", "whole file"])
def test_no_way_of_opening_leaves_the_network(form, secret, tmp_path):
    """Every entry applies the same rule."""
    with RangeServer({"p.json": FORMS[form](secret)}) as server:
        url = server.url("p.json")
        ways = {
            "dataset": lambda: vs.open_virtual_dataset(url),
            "nothing loaded": lambda: vs.open_virtual_dataset(url, loadable_variables=[]),
            "tree": lambda: vs.open_virtual_datatree(url),
            "many": lambda: vs.open_virtual_mfdataset([url]),
            "scan": lambda: vs.scan([url]),
            "threads": lambda: vs.scan([url], executor="threads"),
            "cache": lambda: vs.scan([url], cache=tmp_path / "cache"),
            "plain tree": lambda: xr.open_datatree(url, engine="virtualstack"),
            "convert": lambda: vs.convert(url, tmp_path / "a.vstack"),
            "reader": lambda: vs.open_virtual_dataset(url, reader=vs.readers.Kerchunk()),
            "mapping": lambda: read_references(json.loads(FORMS[form](secret)), base_url=server.root.rstrip("/")),
            "dropped": lambda: vs.open_virtual_dataset(url, drop_variables="y"),
        }
        for run in ways.values():
            with pytest.raises(
                ForbiddenLocationError, match=r"p\.json' refers to|127.0.0.1:\d+/references-in-memory' refers to"
            ):
                run()
        assert vs.survey([url]).failures["error"].tolist() == ["ForbiddenLocationError"]
    assert not (tmp_path / "a.vstack").exists()


@pytest.mark.parametrize("command", ["inspect", "build", "convert"])
def test_the_command_line_reads_no_local_file_for_references_from_elsewhere(command, secret, tmp_path, capsys):
    """``build`` stored the bytes of a local file in a new store."""
    made = tmp_path / "a.vstack"
    rest = {"inspect": [], "build": ["-o", str(made)], "convert": [str(made)]}[command]
    with RangeServer({"p.json": FORMS["file URL"](secret)}) as server:
        assert main([command, server.url("p.json"), *rest]) == 1
        assert "which is a local file" in capsys.readouterr().err
        assert not made.exists()
        assert main([command, server.url("p.json"), *rest, "--allow", str(secret)]) == 0


@pytest.fixture
def url(secret):
    """References at a web server, which name the local file."""
    with RangeServer({"p.json": text(f"file://{secret}", 0, 9)}) as server:
        yield server.url("p.json")


def test_the_remedy_of_the_message_works(url):
    """What the message names as ``allow=`` lets the references be read."""
    with pytest.raises(ForbiddenLocationError, match=r"Open it with allow=\[\"(file://.*/here/)\"\]$") as caught:
        vs.open_virtual_dataset(url)
    allow = str(caught.value).partition('allow=["')[2].partition('"]')[0]
    assert vs.open_virtual_dataset(url, allow=allow)["x"].values.tobytes() == SECRET
    assert xr.open_dataset(url, engine="virtualstack", allow=[allow])["x"].values.tobytes() == SECRET
    assert vs.open_virtual_mfdataset([url], allow=allow)["x"].values.tobytes() == SECRET


def test_what_a_repository_allows_holds_for_files_that_are_added_by_url(url, secret, tmp_path):
    """The message named ``allow=``, and a repository that had it refused references that it was given by their URL."""
    target = tmp_path / "a.vstack"
    with pytest.raises(ForbiddenLocationError, match=r"which is a local file"):
        vs.Repository.create(target, url)
    repository = vs.Repository.create(target, url, allow=str(secret))
    for change in (repository.append, repository.update):
        with pytest.raises(vs.errors.CombineError, match=r"do not ascend|more than once along"):
            change(url, "x")
    with pytest.raises(ForbiddenLocationError, match=r"which is a local file"):
        vs.Repository.open(target).update(url, "x")


def test_a_changed_file_is_refreshed_where_the_repository_allows_what_it_refers_to(secret, tmp_path):
    """A reader of somebody else opens a local file that the repository allows, for a source at a web server."""

    @dataclass(frozen=True)
    class Naming:
        name: ClassVar[str] = "naming"

        def read(self, url, storage, options):
            storage.source(f"file://{secret}")
            return vs.readers.HDF5().read(url, storage, options)

    def data(values):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("d", data=values, chunks=(2,))
        return (tmp_path / "a.h5").read_bytes()

    with RangeServer({"a.h5": data([1.0, 2.0])}) as server:
        target, allow = tmp_path / "a.vstack", [str(secret), server.root]
        vs.open_virtual_dataset(server.url("a.h5"), reader=Naming(), allow=allow).virtual.to_vstack(target)
        server.files["a.h5"] = data([3.0, 4.0])
        (left,) = vs.Repository.open(target).refresh(reader=Naming()).left
        assert "which is a local file" in left[1]
        assert not vs.Repository.open(target, allow=allow).refresh(reader=Naming()).left
        repository = vs.Repository.open(target, allow=allow)
        np.testing.assert_array_equal(repository.open_dataset()["d"], [3.0, 4.0])


def test_a_survey_looks_over_references_that_are_allowed_more(url, secret, capsys):
    """The message of a file that a survey could not describe named ``allow=``, which a survey had not."""
    assert vs.survey([url]).failures["error"].tolist() == ["ForbiddenLocationError"]
    assert not len(vs.survey([url], allow=str(secret)).failures)
    assert main(["survey", url, "--allow", str(secret)]) == 0
    assert "1 file" in capsys.readouterr().out


def test_a_cache_of_scans_does_not_remember_what_was_allowed(url, secret, tmp_path):
    """References that were allowed once are refused to others who use the same cache."""
    vs.open_virtual_mfdataset([url], allow=str(secret), cache=tmp_path / "cache")
    with pytest.raises(ForbiddenLocationError):
        vs.open_virtual_mfdataset([url], cache=tmp_path / "cache")


@pytest.mark.parametrize("recheck", [True, False])
def test_a_cache_of_scans_does_not_remember_what_was_granted(url, secret, tmp_path, monkeypatch, recheck):
    """What the environment does not allow any more is not read from the cache."""
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", str(secret.parent))
    for _ in range(2):
        assert len(vs.scan([url], cache=tmp_path / "cache", recheck=recheck)) == 1
    monkeypatch.delenv("VIRTUALSTACK_ALLOW")
    with pytest.raises(ForbiddenLocationError, match="which is a local file"):
        vs.scan([url], cache=tmp_path / "cache", recheck=recheck)


def test_references_may_name_the_server_that_they_came_from():
    """A server on loopback serves references to its own files, in any folder, with empty segments too."""
    with RangeServer({"deep/refs/p.json": b"", "data//a b.raw": SECRET}) as server:
        for reference in (server.url("data//a%20b.raw"), "../../data//a%20b.raw"):
            server.files["deep/refs/p.json"] = text(server.url("data//a%20b.raw"), 0, 9)
            got = xr.open_dataset(server.url("deep/refs/p.json"), engine="virtualstack")["x"]
            assert got.values.tobytes() == SECRET, reference


def test_local_references_may_name_everything(secret, tmp_path):
    """In a file and in memory: they act with the rights of their user."""
    (tmp_path / "fetched").mkdir()
    with RangeServer({"a.raw": SECRET}) as server:
        for name, url in (("a.json", f"file://{secret}"), ("b.json", server.url("a.raw"))):
            path = tmp_path / "fetched" / name
            path.write_bytes(text(url, 0, 9))
            for opened in (path, json.loads(path.read_bytes())):
                assert xr.open_dataset(opened, engine="virtualstack")["x"].values.tobytes() == SECRET
                with pytest.raises(ForbiddenLocationError, match=r"allow=vs.Listed"):
                    xr.open_dataset(opened, engine="virtualstack", allow=vs.Listed())


def test_parquet_references_are_refused_where_they_are_read(secret, tmp_path):
    """Record files are read late, and obey the same rule."""
    parquet(tmp_path / "web/p.parq", f"file://{secret}")
    with RangeServer(tmp_path / "web") as server:
        url = server.url("p.parq")
        with pytest.raises(ForbiddenLocationError, match=r"p\.parq' refers to 'file:///.*which is a local file"):
            xr.open_dataset(url, engine="virtualstack").load()
        lazy = vs.open_virtual_dataset(url, loadable_variables=[])
        with pytest.raises(ForbiddenLocationError, match=r"which is a local file"):
            lazy.virtual.to_kerchunk()
        assert vs.open_virtual_dataset(url, allow=str(secret))["x"].values.tobytes() == SECRET


def test_references_in_a_bucket_name_no_local_files(s3, secret):
    """A bucket is a stranger as a web server is; other buckets may be named."""
    options = {"s3://bucket/": {**s3.options, "allow_http": True, "region": "us-east-1"}}
    s3.put("p.json", text(f"file://{secret}", 0, 9))
    with pytest.raises(ForbiddenLocationError, match=r"which is a local file"):
        vs.open_virtual_dataset("s3://bucket/p.json", storage=options)
    s3.put("p.json", text("s3://other/a.raw", 0, 9))
    vds = vs.open_virtual_dataset("s3://bucket/p.json", storage=options, loadable_variables=[])
    assert set(vds.virtual.locations["url"]) == {"s3://other/a.raw"}


def test_local_files_that_references_in_a_bucket_name_are_allowed_when_appending(s3, tmp_path):
    """References to local files could be written to a bucket, and never be appended to."""
    options = {"s3://bucket/": {**s3.options, "allow_http": True, "region": "us-east-1"}}
    url, parts = (
        "s3://bucket/refs.json",
        [xr.Dataset({"v": ("x", [i, 2.0])}, {"x": [2 * i, 2 * i + 1]}) for i in (0, 1)],
    )
    for i, part in enumerate(parts):
        part.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
    first, second = (vs.open_virtual_dataset(tmp_path / f"{i}.nc") for i in (0, 1))
    first.virtual.to_kerchunk(url, storage=options)
    with pytest.raises(ForbiddenLocationError, match=r"which is a local file.*allow=") as caught:
        second.virtual.to_kerchunk(url, storage=options, append_dim="x")
    allow = str(caught.value).partition('allow=["')[2].partition('"]')[0]
    second.virtual.to_kerchunk(url, storage=options, append_dim="x", allow=allow)
    got = xr.open_dataset(url, engine="virtualstack", storage=options, allow=allow)
    xr.testing.assert_equal(got.load(), xr.concat(parts, "x"))


def test_an_icechunk_repository_in_a_bucket_names_no_local_files(s3, secret):
    """A container of a repository in a bucket may be a local folder; it is read here only where that is allowed."""
    at = {"region": "us-east-1", "endpoint_url": s3.endpoint, "allow_http": True, "force_path_style": True}
    config = may_refer_to(secret.parent)
    keys = {"access_key_id": "key", "secret_access_key": "secret"}
    place = icechunk.s3_storage(bucket="bucket", prefix="cubes/hostile", **at, **keys)
    repository = icechunk.Repository.create(place, config)
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    group.create_array("x", shape=(9,), chunks=(9,), dtype="u1", dimension_names=["x"], compressors=None)
    session.store.set_virtual_ref("x/c/0", f"file://{secret}", offset=0, length=9)
    session.commit("a")
    options = {"s3://bucket/": {**s3.options, "allow_http": True, "region": "us-east-1"}}
    with pytest.raises(ForbiddenLocationError, match=r"cubes/hostile' refers to 'file:///.*which is a local file"):
        vs.open_virtual_dataset("s3://bucket/cubes/hostile", storage=options)
    got = vs.open_virtual_dataset("s3://bucket/cubes/hostile", storage=options, allow=str(secret))
    assert got["x"].values.tobytes() == SECRET


def test_a_reader_of_somebody_else_obeys_the_rule_too(secret):
    """A reader opens what a file names by the storage that it is given, which refuses what it may not read."""

    class Naming:
        name = "naming"

        def read(self, url, storage, options):
            storage.source(f"file://{secret}")

    with RangeServer({"a": b"x"}) as server, pytest.raises(ForbiddenLocationError, match=r"which is a local file"):
        vs.scan([server.url("a")], reader=Naming())


def test_what_the_user_opens_may_be_spelt_as_it_is():
    """The rule is about what files refer to, not about the URL that the user gave."""
    with RangeServer({"a//b/p.json": text("q.raw", 0, 9), "a/b/q.raw": SECRET, "a//b/q.raw": SECRET}) as server:
        got = xr.open_dataset(server.url("a//b/p.json"), engine="virtualstack")["x"]
        np.testing.assert_array_equal(got.values, np.frombuffer(SECRET, "u1"))


def test_permissions_add_up(tmp_path):
    """A storage that is limited twice reads what both permissions allow."""
    first, second = (vs.storage.Permission.from_allow("s3://bucket/x", allow) for allow in ("/a", "/b"))
    storage = Storage.from_option().only(first).only(second)
    assert not storage.may_open("file:///a/x")
    assert not storage.may_open("file:///b/x")
    assert storage.may_open("s3://bucket/y")
