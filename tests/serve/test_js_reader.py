"""The JavaScript reader gives what xarray reads from the files: from web servers and S3, in node and in a page."""

import base64
import contextlib
import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_mixed import Recipe, write
from tests.data.stores import concatenated
from tests.serve.javascript import ROOT, JavaScriptError, put_together, through_zarrita, url_of
from tests.serve.running import serving_by_nginx
from tests.servers import RangeServer
from tests.vstack.archive import change_snapshot, newest_snapshot
from virtualstack.vstack.format.history import hint
from virtualstack.vstack.format.names import HINT

UNLIKE = [
    Recipe(n=3, dtype="i2", scale=np.float64(0.5), offset=np.float64(280), fill=-1, chunks=(2, 3, 4), codec="zlib1"),
    Recipe(n=1, first=3, dtype="i4", scale=np.float64(0.25), offset=np.float64(10), codec="zstd", shuffle=True),
    Recipe(n=5, first=4, dtype="u1", scale=np.float64(2), fill=255, missing=7, chunks=(1, 4, 6), fletcher32=True),
    Recipe(n=2, first=9, dtype="f8", fill=-9999.0, writer="netcdf3"),
    Recipe(n=4, first=11, dtype="i2", unsigned="true", scale=np.float64(0.1), fill=-1, endian="big", chunks=(3, 2, 5)),
    Recipe(n=2, first=15, dtype="f8", chunks="contiguous", endian="big"),
]  # fmt: skip


@pytest.fixture(scope="session")
def unlike(tmp_path_factory):
    """A cube of files that differ in length, codec, chunks, format and packing; with what xarray reads from them."""
    folder = tmp_path_factory.mktemp("unlike")
    with warnings.catch_warnings(action="ignore"):  # on the byte order of a file, and two fill values
        files = [write(x, folder / f"{i}%a b.nc") for i, x in enumerate(UNLIKE)]
        wanted = concatenated(*(xr.load_dataset(x, engine="netcdf4") for x in files))
        cube = concatenated(*(vs.open_virtual_dataset(x, unpack=True) for x in files))
    cube.virtual.to_vstack(folder / "x.vstack", relative=True)
    return folder / "x.vstack", wanted


@pytest.fixture(params=["node", "browser"])
def reader(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def nginx(unlike, tmp_path_factory):
    """An nginx that serves the cube, with CORS."""
    with serving_by_nginx(unlike[0].parent, tmp_path_factory.mktemp("nginx")) as url:
        yield url


def assert_same_cube(found, wanted):
    """Compare variables with those that xarray reads, and coordinates with their numbers."""
    arrays = {x["path"][1:]: x for x in found["arrays"]}
    assert arrays.keys() == set(wanted.variables)
    v = arrays["v"]
    assert v["zarr"]["dtype"] == "float64"
    np.testing.assert_array_equal(through_zarrita(v), wanted["v"].values)
    np.testing.assert_array_equal(put_together(v, np.dtype("<f8")), wanted["v"].values)
    for name in ("x", "y"):
        np.testing.assert_array_equal(through_zarrita(arrays[name]), wanted[name].values)
    times = xr.Variable(["time"], through_zarrita(arrays["time"]), dict(arrays["time"]["zarr"]["attributes"]["dict"]))
    decoded = xr.conventions.decode_cf_variable("time", times)
    np.testing.assert_array_equal(decoded.values, wanted["time"].values)


def test_a_cube_of_unlike_files_from_a_web_server(reader, disk, unlike):
    """Files beside the store, whose names have to be escaped."""
    assert_same_cube(reader("everything", url_of(disk.root, unlike[0])), unlike[1])
    assert all(x["headers"].keys() <= {"Range"} for x in reader.requests)


def test_a_web_server_that_shows_pages_of_others_no_errors(reader, unlike):
    """It does not tell them that there is no newer snapshot."""
    with RangeServer(unlike[0].parent, cors="found") as server:
        assert_same_cube(reader("everything", server.url("x.vstack")), unlike[1])


def test_a_cube_of_unlike_files_from_nginx(reader, nginx, unlike):
    assert_same_cube(reader("everything", nginx + "x.vstack"), unlike[1])


@pytest.fixture(scope="session")
def in_s3(s3_server, unlike):
    """The cube and its files in a bucket of moto that everybody may list."""
    folder = unlike[0].parent
    client = s3_server.client
    client.create_bucket(Bucket="cubes", ACL="public-read")
    policy = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": ["arn:aws:s3:::cubes", "arn:aws:s3:::cubes/*"],
    }
    client.put_bucket_policy(Bucket="cubes", Policy=json.dumps({"Version": "2012-10-17", "Statement": [policy]}))
    for file in folder.rglob("*"):
        if file.is_file():
            s3_server.put(f"my data/{file.relative_to(folder)}", file.read_bytes(), acl="public-read", bucket="cubes")
    return f"{s3_server.endpoint}/cubes"


@pytest.mark.parametrize("listed", [True, False])
def test_a_cube_of_unlike_files_from_s3(listed, reader, in_s3, unlike):
    """With a listing of the bucket, and without."""
    options = {"bucket": in_s3} if listed else {}
    assert_same_cube(reader("everything", f"{in_s3}/my%20data/x.vstack", options=options), unlike[1])
    assert ("list-type=2" in reader.requests[0]["url"]) == listed


def test_snapshots_are_found_by_number_message_and_listing(reader, in_s3, disk, tmp_path, s3_server):
    """Those that have been deleted are left out."""
    store = tmp_path / "x.vstack"
    for i in range(4):
        cube = xr.Dataset({"n": ("x", np.arange(3) + i)})
        file = tmp_path / f"{i}.nc"
        cube.to_netcdf(file)
        if i:
            vs.open_virtual_dataset(file).virtual.to_vstack(store, append_dim="x", message=f"add {i}")
        else:
            vs.open_virtual_dataset(file).virtual.to_vstack(store, message="begin")
    (store / ".vstack" / "snapshots" / "999999999998.json.gz").unlink()
    for file in store.rglob("*"):
        if file.is_file():
            s3_server.put(f"s/{file.relative_to(tmp_path)}", file.read_bytes(), acl="public-read", bucket="cubes")
    url = url_of(disk.root, store)
    by_probing = reader("snapshots", url)
    by_listing = reader("snapshots", f"{in_s3}/s/x.vstack", options={"bucket": in_s3})
    assert by_probing == by_listing
    assert [x["number"] for x in by_listing] == [3, 2, 0]
    assert [x["message"] for x in by_listing] == ["add 3", "add 2", "begin"]
    log = vs.Repository.open(store).log()
    assert [(x["time"], x["changes"]) for x in by_listing] == [(entry.time, list(entry.changes)) for entry in log]
    moves = {"moves": [["file:///", disk.root]]}
    for asked, n in [({}, 12), ({"snapshot": 2}, 9), ({"snapshot": "begin"}, 3)]:
        assert reader("zarr", url, options=moves | asked, path="n")["shape"] == [n]
    with pytest.raises(JavaScriptError, match="no snapshot 1"):
        reader("zarr", url, options={"snapshot": 1}, path="n")
    with pytest.raises(JavaScriptError, match="no snapshot with the message 'end'"):
        reader("zarr", url, options={"snapshot": "end"}, path="n")


def test_a_hint_that_is_behind(node, disk, unlike, tmp_path):
    """The reader asks for the next numbers, though the hint carries an older snapshot."""
    store = shutil.copytree(unlike[0], tmp_path / "x.vstack")
    for i in range(1, 4):
        head = newest_snapshot(store)
        shutil.copy(head, head.with_name(f"{10**12 - 1 - i}.json.gz"))
        change_snapshot(store, lambda document, i=i: document.update(number=i))
    found = node("snapshots", url_of(disk.root, store))
    assert [x["number"] for x in found] == [3, 2, 1, 0]
    with RangeServer(tmp_path) as server:
        server.fault = lambda path: 403 if path.endswith("5.json.gz") else None
        assert len(node("snapshots", server.url("x.vstack"))) == 4  # a bucket that nobody may list
        for number in (0, 1):
            (store / f".vstack/snapshots/{10**12 - 1 - number}.json.gz").unlink()
        (store / HINT).write_bytes(hint(0))  # as `expire` does before it deletes a snapshot
        with pytest.raises(JavaScriptError, match="neither snapshot 0, which its hint names, nor the next one"):
            node("snapshots", server.url("x.vstack"))
        assert len(node("snapshots", server.url("x.vstack"), options={"snapshot": 3})) == 2


def test_a_bucket_that_nobody_may_list(node, unlike, tmp_path):
    """It answers 403 for what does not exist: a snapshot may be missing, and a source must not be."""
    for file in unlike[0].parent.glob("*.nc"):
        shutil.copy(file, tmp_path)
    store = shutil.copytree(unlike[0], tmp_path / "x.vstack")
    change_snapshot(store, lambda document: document.update(message="first"))
    for i in range(1, 4):
        head = newest_snapshot(store)
        shutil.copy(head, head.with_name(f"{10**12 - 1 - i}.json.gz"))
        change_snapshot(store, lambda document, i=i: document.update(number=i, message=f"number {i}"))
    for number in (1, 2):
        (store / f".vstack/snapshots/{10**12 - 1 - number}.json.gz").unlink()
    with RangeServer(tmp_path) as server:
        server.fault = lambda path: None if (tmp_path / path).is_file() else 403
        url = server.url("x.vstack")
        (store / HINT).write_bytes(hint(2))  # which has been deleted
        assert [x["number"] for x in node("snapshots", url)] == [3, 0]
        (store / HINT).write_bytes(hint(1))
        with pytest.raises(JavaScriptError, match="neither snapshot 1, which its hint names, nor the next one"):
            node("snapshots", url)
        (store / HINT).write_bytes(hint(3))
        assert [x["number"] for x in node("snapshots", url)] == [3, 0]
        assert_same_cube(node("everything", url, options={"snapshot": "first"}), unlike[1])
        with pytest.raises(JavaScriptError, match="has no snapshot with the message 'no'"):
            node("snapshots", url, options={"snapshot": "no"})
        for change, path in [({"snapshot": 1}, "999999999998"), ({}, "0%25a%20b.nc")]:
            (tmp_path / "0%a b.nc").unlink(missing_ok=True)
            with pytest.raises(JavaScriptError, match=r"HTTP status 403 .*no such object in a bucket") as caught:
                node("cells", url, options=change, path="/v", cells=[[0, 0, 0]])
            assert (caught.value.name, caught.value.status) == ("StorageError", 403)
            assert path in caught.value.url


def test_zarrita_lists_what_a_store_has(reader, disk, unlike):
    """By consolidated metadata."""
    found = reader("contents", url_of(disk.root, unlike[0]))
    assert sorted((x["path"], x["kind"]) for x in found) == [
        ("/", "group"),
        *((f"/{n}", "array") for n in ("time", "v", "x", "y")),
    ]


def test_ranges_near_each_other_come_with_one_request(reader, tmp_path):
    """Of one file; a chunk of another is far from them."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        values = file.create_dataset("v", data=np.arange(4000).reshape(40, 100), chunks=(1, 100))[:]
        file.create_dataset("far", data=np.zeros(100_000))
        file.create_dataset("w", data=np.arange(10), chunks=(5,))
    vds = vs.open_virtual_dataset(tmp_path / "a.h5", loadable_variables=[])
    vds.virtual.to_vstack(tmp_path / "x.vstack", relative=True)
    with RangeServer(tmp_path, cors="always") as server:
        found = reader("zarr", server.url("x.vstack"), path="v")
        np.testing.assert_array_equal(np.frombuffer(base64.b64decode(found["bytes"]), "i8").reshape(40, 100), values)
        assert len([path for _, path, *_ in server.log if path.endswith(".h5")]) == 1
        reader("everything", server.url("x.vstack"))
        assert len([path for _, path, *_ in server.log if path.endswith(".h5")]) <= 4


def test_one_who_gives_up_leaves_others_their_chunk(reader, unlike):
    """Both wait for the same request."""
    with RangeServer(unlike[0].parent, cors="always") as server:
        server.fault = lambda path: 0.4 if path.endswith(".nc") else None
        first, second = reader("twice", server.url("x.vstack"), key="/v/c/0/0/0")
    assert first == "AbortError"
    assert second > 0


@pytest.fixture
def states(tmp_path):
    """A store of chunks of all states: references, one that was never written, one that is lost, and written values."""
    with vs_file(tmp_path / "a.nc") as file:
        v = file.createVariable("v", "i4", ("x",), chunksizes=(2,), fill_value=-5)
        v[:2], v[4:6] = [1, 2], [3, 4]
        v[6:] = [5, 6]
    store = tmp_path / "x.vstack"
    vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(store)
    change_snapshot(store, lambda x: x["arrays"]["/v"]["placements"]["tail"][0].__setitem__(-1, 3))
    return store


def vs_file(path):
    import netCDF4

    file = netCDF4.Dataset(path, "w")
    file.createDimension("x", 8)
    return file


def test_states_of_chunks(reader, disk, states):
    """EMPTY chunks have the fill value; ABSENT ones raise an error, or have it if this is asked for."""
    options = {"moves": [["file:///", disk.root]]}
    url = url_of(disk.root, states)
    found = reader("states", url, options=options, path="/v")
    assert list(base64.b64decode(found["state"])) == [3, 1, 3, 0]
    source = np.frombuffer(base64.b64decode(found["source"]), "i4")
    assert source.tolist() == [0, -1, 0, -1]
    assert [x["location"] for x in found["sources"]] == [f"file://{states.parent}/a.nc"]
    length = np.frombuffer(base64.b64decode(found["length"]), "f8")
    assert length.tolist() == [8, 0, 8, 0]
    assert reader("sources", url, options=options) == found["sources"]
    values = np.frombuffer(
        base64.b64decode(reader("zarr", url, options=options, path="v", selection=[[0, 6]])["bytes"]), "i4"
    )
    assert values.tolist() == [1, 2, -5, -5, 3, 4]
    with pytest.raises(JavaScriptError, match="it is ABSENT") as caught:
        reader("zarr", url, options=options, path="v")
    assert (caught.value.name, caught.value.variable, caught.value.cell) == ("AbsentChunkError", "/v", [3])
    found = reader("zarr", url, options=options | {"absent": "fill"}, path="v")
    assert np.frombuffer(base64.b64decode(found["bytes"]), "i4")[6:].tolist() == [-5, -5]
    keys = ["/v/c/4", "/v/c/0/0", "/w/zarr.json", "/v/.zarray", "/c/0"]
    assert reader("keys", url, keys=keys) == dict.fromkeys(keys)


def fetched(reader, disk, store, **options):
    """Read one chunk of the cube."""
    return reader("cells", url_of(disk.root, store), options=options, path="/v", cells=[[0, 0, 0]])


def test_a_source_of_another_size_or_etag_is_refused(reader, unlike, tmp_path):
    """The error names variable, cell and URL."""
    shutil.copytree(unlike[0].parent, tmp_path / "a")
    with RangeServer(tmp_path / "a", cors="always") as server:
        path = "0%25a%20b.nc"
        fetched(reader, server, "x.vstack")
        name = tmp_path / "a" / "0%a b.nc"
        before = name.read_bytes()
        name.write_bytes(before + b"more")
        with pytest.raises(JavaScriptError, match=rf"its size is {len(before) + 4}, and was {len(before)}") as caught:
            fetched(reader, server, "x.vstack")
        assert (caught.value.name, caught.value.variable, caught.value.cell) == ("SourceChangedError", "/v", [0, 0, 0])
        assert caught.value.url == server.url(path)
        name.unlink()
        with pytest.raises(JavaScriptError, match="HTTP status 404") as caught:
            fetched(reader, server, "x.vstack")
        assert (caught.value.name, caught.value.status) == ("SourceNotFoundError", 404)


def test_etags_of_the_store_are_compared(reader, unlike, tmp_path):
    """Of files on a web server, whose etags virtualstack recorded."""
    shutil.copy(unlike[0].parent / "0%a b.nc", tmp_path / "0.nc")
    with RangeServer(tmp_path, cors="always") as server:
        store = tmp_path / "y.vstack"
        vs.open_virtual_dataset(server.url("0.nc")).virtual.to_vstack(store)
        with RangeServer(tmp_path, cors="always") as other, pytest.raises(JavaScriptError) as caught:
            fetched(reader, other, "y.vstack")
        assert caught.value.name == "ForbiddenLocationError"
        fetched(reader, server, "y.vstack")
        change_snapshot(store, lambda x: x["segments"]["tail"][0]["sources"].update(unmodified_since=[1_700_000_000]))
        fetched(reader, server, "y.vstack")
        change_snapshot(store, lambda x: x["segments"]["tail"][0]["sources"].update(unmodified_since=[1_699_999_999]))
        with pytest.raises(JavaScriptError, match=r"its time of modification is 2023-11-14T22:13:20.000Z, and was not"):
            fetched(reader, server, "y.vstack")
        data = bytearray((tmp_path / "0.nc").read_bytes())
        data[-1] ^= 1
        (tmp_path / "0.nc").write_bytes(data)
        with pytest.raises(JavaScriptError, match=r"its etag is \w{32}, and was \w{32}"):
            fetched(reader, server, "y.vstack")


def test_weak_etags_are_not_compared(reader, unlike, tmp_path):
    """A weak etag is of a page, not of bytes: neither that of the store nor that of the answer counts."""
    shutil.copy(unlike[0].parent / "0%a b.nc", tmp_path / "0.nc")
    with RangeServer(tmp_path, cors="always") as server:
        vs.open_virtual_dataset(server.url("0.nc")).virtual.to_vstack(tmp_path / "y.vstack")
        server.tag = lambda etag: 'W/"another"'
        fetched(reader, server, "y.vstack")


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("ignore_ranges", "HTTP status 200 instead of 206: the server ignores ranges of bytes"),
        ("short_body", r"answers with \d+ bytes instead of \d+"),
        ("short_range", r"answers with bytes \d+ to \d+ instead of \d+ to \d+"),
        ("long_body", r"answers with more than \d+ bytes"),
        ("cut_body", "breaks off|cannot be requested"),
        ("status", "HTTP status 500 instead of 206"),
    ],
)  # fmt: skip
def test_wrong_answers_are_errors(mode, message, reader, unlike):
    """No byte of them becomes a value."""
    with RangeServer(unlike[0].parent, cors="always") as server:
        url = server.url("x.vstack")
        asked = []

        def then(path):
            if not path.endswith(".nc"):
                return None
            server.mode = mode
            asked.append(path)
            return 500 if mode == "status" else None

        server.fault = then
        with pytest.raises(JavaScriptError, match=message) as caught:
            reader("cells", url, path="/v", cells=[[0, 0, 0]])
        assert caught.value.name == "StorageError"
        assert (caught.value.variable, caught.value.cell) == ("/v", [0, 0, 0])
        assert len(asked) == 1


def test_no_file_and_no_private_host_is_read(reader, disk, unlike, tmp_path):
    """A store of a stranger makes nobody's browser read what only it can reach, with no headers of the caller."""
    store = shutil.copytree(unlike[0], tmp_path / "x.vstack")
    for i, (prefix, message) in enumerate(
        [
            (f"file://{unlike[0].parent}/", "not on a web server"),
            ("http://127.0.0.1:1/", "in a private network"),
            ("http://10.0.0.1/", "in a private network"),
            ("http://2130706433/", "in a private network"),
            ("http://[::1]/", "in a private network"),
            ("http://[::ffff:127.0.0.1]/", "in a private network"),
            ("http://localhost/", "in a private network"),
            ("http://router/", "in a private network"),
            ("http://user:password@example.com/", "has credentials"),
            ("javascript://example.com/", "not on a web server"),
            ("../../", "not a path inside a folder"),
            (".././", "not a path inside a folder"),
            ("..//", "not a path inside a folder"),
            ("./%2e%2e/", "not a path inside a folder"),
            ("./a%5c..%5c", "not a path inside a folder"),
        ]
    ):
        change_snapshot(store, lambda x, prefix=prefix: x.update(prefixes=[prefix]))
        with pytest.raises(JavaScriptError, match=message) as caught:
            fetched(reader, disk, store)
        assert caught.value.name == "ForbiddenLocationError", i
        assert all(x["url"].startswith(disk.root) for x in reader.requests)


def test_headers_go_to_objects_of_the_store_alone(node, unlike, tmp_path):
    with RangeServer(unlike[0].parent) as first, RangeServer(unlike[0].parent) as second:
        store = shutil.copytree(unlike[0], tmp_path / "x.vstack")
        first.files = tmp_path
        change_snapshot(store, lambda x: x.update(prefixes=["file:///d/"]))
        options = {"headers": {"Authorization": "Bearer 1"}, "moves": [["file:///d/", second.root]]}
        node("cells", first.url("x.vstack"), options=options, path="/v", cells=[[0, 0, 0]])
        assert all(headers["Authorization"] == "Bearer 1" for *_, headers in first.log)
        assert [path for _, path, *_ in second.log] == ["/0%25a%20b.nc"]
        assert not any(x in headers for *_, headers in second.log for x in ("Authorization", "Cookie", "Referer"))
        shutil.copy(unlike[0].parent / "0%a b.nc", tmp_path)
        for prefix in ("../", first.root, f"{first.url('x.vstack/')}..%2f"):  # somebody else's files on the same server
            change_snapshot(store, lambda x, prefix=prefix: x.update(prefixes=[prefix]))
            first.reset()
            with contextlib.suppress(JavaScriptError):
                node("cells", first.url("x.vstack"), options=options, path="/v", cells=[[0, 0, 0]])
            had = {path: "Authorization" in headers for _, path, _, headers in first.log}
            assert had
            assert any(not x for x in had.values())
            assert all(has == ("/.vstack/" in path) for path, has in had.items()), had


def test_damage_is_an_error(node, disk, unlike, tmp_path):
    """A flipped bit in any object of the store, and contradictions in the snapshot."""
    for i, file in enumerate(sorted(x for x in (unlike[0] / ".vstack").rglob("*") if x.is_file())):
        if file.name == "zarr.json" and file.parent.name == "refs":
            continue
        options = {"snapshot": 0} if file.parent.name == "snapshots" else {}  # else the hint has it
        store = shutil.copytree(unlike[0], tmp_path / f"{i}.vstack")
        path = store / file.relative_to(unlike[0])
        data = bytearray(path.read_bytes())
        for at in (len(data) // 3, 2 * len(data) // 3):
            changed = data.copy()
            changed[at] ^= 16
            path.write_bytes(changed)
            for sibling in unlike[0].parent.glob("*.nc"):
                shutil.copy(sibling, tmp_path)
            with pytest.raises(JavaScriptError) as caught:
                node("everything", url_of(disk.root, store), options=options)
            assert caught.value.name == "ManifestError", (file, caught.value)
            assert (HINT in caught.value.message) == (file.name == "zarr.json")


def packing(document):
    """Return the attributes that unpack the first encoding."""
    return document["arrays"]["/v"]["encodings"][0]["codecs"][0]["configuration"]["attributes"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda x: packing(x).update(_FillValue={"int16": 1.5}),
        lambda x: packing(x).update(_FillValue={"int16": 2**15}),
        lambda x: packing(x).update(_FillValue={"int16": {}}),
        lambda x: packing(x).update(_FillValue={"int16": "nan"}),
        lambda x: packing(x).update(scale_factor=None),
        lambda x: packing(x).update(scale_factor={"float64": []}),
        lambda x: packing(x).update(scale_factor={"float64": [1, 2]}),
        lambda x: x["arrays"]["/v"].pop("bundled"),
        lambda x: x.pop("message"),
        lambda x: x.update(vstack_format=2),
        lambda x: x.update(number=7),
        lambda x: x["arrays"]["/v"].update(dtype="|O8"),
        lambda x: x["arrays"]["/v"]["chunk_shapes"].__setitem__(1, 0),
        lambda x: x["arrays"]["/v"]["fill_values"].__setitem__(0, [10**6, 8]),
        lambda x: x["arrays"]["/v"]["placements"]["tail"][0].__setitem__(0, 9),
        lambda x: x["arrays"]["/v"]["placements"]["tail"][0].__setitem__(1, 10**6),
        lambda x: x["arrays"]["/v"]["placements"]["tail"][0].__setitem__(2, 99),
        lambda x: x["arrays"]["/v"]["encodings"][0].update(dtype="<f4"),
        lambda x: x["arrays"]["/v"]["encodings"][0].update(strides=[10**6, 1, 1]),
        lambda x: x["arrays"].update({"/no/v": x["arrays"]["/v"]}),
        lambda x: x["arrays"].update({"/..": x["arrays"]["/v"]}),
        lambda x: x["segments"]["tail"][0].update(shards=[10]),
        lambda x: x["segments"]["tail"][0].update(n_sources=1),
        lambda x: x["bundle"].update(size=3),
        lambda x: x["arrays"]["/x"].update(chunk_shapes=[1]),
        lambda x: x["arrays"]["/x"]["encodings"].append(x["arrays"]["/x"]["encodings"][0]),
        lambda x: x.update(prefixes=[]),
        lambda x: x.update(arrays=[]),
    ],
)  # fmt: skip
def test_contradictions_are_errors(edit, node, disk, unlike, tmp_path):
    store = shutil.copytree(unlike[0], tmp_path / "x.vstack")
    for file in unlike[0].parent.glob("*.nc"):
        shutil.copy(file, tmp_path)
    change_snapshot(store, edit)
    with pytest.raises(JavaScriptError) as caught:
        node("everything", url_of(disk.root, store))
    assert caught.value.name in {"ManifestError", "StorageError"}
    assert caught.value.name == "ManifestError" or "more than 3 bytes" in caught.value.message


def test_the_reader_refuses_a_folder_that_is_no_vstack(reader, disk, tmp_path):
    with pytest.raises(JavaScriptError, match="is no vstack") as caught:
        reader("snapshots", url_of(disk.root, tmp_path))
    assert caught.value.name == "SourceNotFoundError"
    with pytest.raises(JavaScriptError, match="not the URL of a web server"):
        reader("snapshots", "file:///x.vstack")
    with pytest.raises(JavaScriptError, match="cannot be requested"):
        reader("snapshots", "http://127.0.0.1:1/x.vstack")


def test_the_package_names_exact_versions():
    """So that what is tested is what is installed."""
    package = json.loads((Path(vs.__file__).parent / "serve" / "js" / "package.json").read_text())
    for versions in (package["dependencies"], package["devDependencies"]):
        assert all(version[0].isdigit() for version in versions.values())


def test_parts_that_need_no_store(built):
    """What ``npm test`` runs after it has compiled the reader."""
    done = subprocess.run(
        ["node", "--test", "test/unit.test.js"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_examples_of_the_page_run(built, tmp_path, monkeypatch):
    """The store that the page writes is read as the page does, from another port."""
    page = (Path(vs.__file__).parents[1] / "docs" / "how-to" / "read-a-vstack-in-javascript.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), {})
    code = "\n".join(re.findall(r"```js\n(.*?)```", page, re.DOTALL))
    code += "\nconsole.log(JSON.stringify([shape, [...data], resolve('file:///data/a.nc')]));"
    with RangeServer(tmp_path / "site") as server:
        code = code.replace("http://127.0.0.1:8000/model.vstack", server.url("model.vstack"))
        done = subprocess.run(
            ["node", "--input-type=module", "-e", code], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    shape, values, url = json.loads(done.stdout)
    tas = xr.open_dataset("site/model.vstack", engine="virtualstack")["tas"]
    np.testing.assert_array_equal(np.reshape(np.array(values, "f4"), shape), tas[0, :2])
    assert url == "https://data.example.org/files/a.nc"
