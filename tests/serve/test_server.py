"""Answers of the server: keys, ranges, ETags, snapshots, who may read, and errors."""

import gzip
import json
import shutil
from dataclasses import replace
from urllib.parse import quote, unquote, urljoin

import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import virtualstack as vs
from tests.serve.unlike import cube, joined, write_files
from tests.servers import RangeServer
from virtualstack.serve.http import error_body

TIMES = 6


@pytest.fixture
def rain(tmp_path):
    """A file with chunks of one time, and references to it as vstack."""
    values = np.arange(TIMES * 20.0).reshape(TIMES, 4, 5)
    dataset = xr.Dataset({"rain": (("time", "y", "x"), values, {"units": "mm"})}, {"time": np.arange(TIMES)})
    dataset.to_netcdf(
        tmp_path / "rain.nc", encoding={"rain": {"chunksizes": (1, 4, 5), "zlib": True, "shuffle": False}}
    )
    vs.open_virtual_dataset(tmp_path / "rain.nc").virtual.to_vstack(tmp_path / "rain.vstack")
    return tmp_path / "rain.vstack"


def served(cubes, **options):
    """A client of a server; errors of the application are raised here."""
    return TestClient(vs.serve.app(cubes, **options), base_url="http://localhost")


def opened(client, path):
    """Read all keys that a listing of a zarr 3 cube names, and open them with zarr-python."""
    store = zarr.storage.MemoryStore()
    group = zarr.open_group(store, mode="w")
    del group

    def copy(prefix):
        for name in client.get(f"{path}{prefix}", headers={"accept": "application/json"}).json()["names"]:
            if name.endswith("/"):
                copy(f"{prefix}{name}")
            elif (answer := client.get(f"{path}{prefix}{name}")).status_code == 200:
                store._store_dict[f"{prefix}{name}"] = zarr.core.buffer.cpu.Buffer.from_bytes(answer.content)

    copy("")
    return zarr.open_group(store, mode="r")


def values_of(vds, name="rain", **options):
    """Return a variable of a virtual dataset as zarr-python reads it from the server."""
    with served({"cube": vds}, **options) as client:
        return opened(client, "/cube/")[name][...]


def test_stored_chunks_are_sent_as_they_are(rain):
    """In zarr 2, a chunk of the file; in zarr 3, where zlib has no name, its values."""
    (group,) = vs.scan([rain.with_name("rain.nc")])
    manifest = group.arrays["rain"].manifest
    entry = manifest.entries[2, 0, 0]
    stored = rain.with_name("rain.nc").read_bytes()[entry["offset"] :][: entry["length"]]
    with served({"rain": rain}) as client:
        assert client.get("/zarr2/rain/rain/2.0.0").content == stored
        assert client.get("/rain/rain/c/2/0/0").content == np.arange(40.0, 60).tobytes()
    with served({"rain": rain}, codecs="any") as client:
        assert client.get("/rain/rain/c/2/0/0").content == stored


@pytest.mark.parametrize("key", ["/rain/rain/c/2/0/0", "/zarr2/rain/rain/2.0.0", "/rain/zarr.json"])
@pytest.mark.parametrize(
    ("asked", "part"), [("bytes=3-9", slice(3, 10)), ("bytes=7-", slice(7, None)), ("bytes=-5", slice(-5, None))]
)
def test_ranges(rain, key, asked, part):
    """One range has status 206; HEAD has the headers of GET."""
    with served({"rain": rain}) as client:
        whole = client.get(key, headers={"accept-encoding": "identity"})
        found = client.get(key, headers={"range": asked})
        assert (found.status_code, found.content) == (206, whole.content[part])
        begin, stop, _ = part.indices(len(whole.content))
        assert found.headers["content-range"] == f"bytes {begin}-{stop - 1}/{len(whole.content)}"
        head = client.head(key, headers={"accept-encoding": "identity"})
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.content))
        assert head.headers["etag"] == whole.headers["etag"]


@pytest.mark.parametrize("asked", ["bytes=5-3", "bytes=0-1,4-5", "lines=1-2", "bytes=-"])
def test_ranges_that_are_ignored(rain, asked):
    """What RFC 9110 lets a server ignore has the whole value."""
    with served({"rain": rain}) as client:
        found = client.get("/rain/rain/c/2/0/0", headers={"range": asked})
        assert (found.status_code, len(found.content)) == (200, 160)


@pytest.mark.parametrize("asked", ["bytes=160-", "bytes=-0"])
def test_ranges_without_a_byte(rain, asked):
    """Status 416 says how long the value is."""
    with served({"rain": rain}) as client:
        found = client.get("/rain/rain/c/2/0/0", headers={"range": asked})
        assert (found.status_code, found.headers["content-range"]) == (416, "bytes */160")


@pytest.mark.parametrize("key", ["/rain/rain/c/2/0/0", "/zarr2/rain/rain/2.0.0"])
def test_chunks_that_are_sent_again(rain, key):
    """An answer from the cache is that of the first time, and conditions, ranges and origins count as then."""
    with served({"rain": rain}, refresh=0) as client:
        first, again = client.get(key), client.get(key)
        assert again.content == first.content
        assert again.headers == first.headers
        assert again.headers["vary"] == "Origin"
        assert client.get(key, headers={"range": "bytes=3-9"}).content == first.content[3:10]
        assert client.get(key, headers={"if-none-match": first.headers["etag"]}).status_code == 304
        assert client.get(key, headers={"host": "evil.example"}).status_code == 400
        assert client.head(key).content == b""
        page = client.get(key, headers={"origin": "http://localhost:8888"})
        assert page.headers["access-control-allow-origin"] == "http://localhost:8888"
        vs.Repository.open(rain).write("rain", {"time": 2}, np.full((4, 5), -1.0))
        assert client.get("/rain/rain/c/2/0/0").content == np.full(20, -1.0).tobytes()
        for _ in range(2):
            assert client.get(key.replace("/rain/", "/rain@0/", 1)).content == first.content


def test_etags(rain):
    """A client that has a value gets status 304; ETags of stored chunks stay when the store grows."""
    with served({"rain": rain}, refresh=0) as client:
        stored, made, document = "/zarr2/rain/rain/2.0.0", "/rain/rain/c/2/0/0", "/rain/zarr.json"
        first = {key: client.get(key).headers["etag"] for key in (stored, made, document)}
        for key, etag in first.items():
            assert client.get(key, headers={"if-none-match": f'"x", W/{etag}'}).status_code == 304
            assert client.get(key, headers={"if-none-match": '"x"'}).status_code == 200
        part = {"range": "bytes=0-3", "if-range": first[made]}
        assert client.get(made, headers=part).status_code == 206
        assert client.get(made, headers=part | {"if-range": '"x"'}).status_code == 200
        later = xr.Dataset({"rain": (("time", "y", "x"), np.ones((1, 4, 5)))}, {"time": [9]})
        encoding = {"rain": {"chunksizes": (1, 4, 5), "zlib": True, "shuffle": False}}
        later.to_netcdf(rain.with_name("later.nc"), encoding=encoding)
        vs.Repository.open(rain).append(vs.open_virtual_dataset(rain.with_name("later.nc")), "time")
        second = {key: client.get(key).headers["etag"] for key in first}
        assert [first[key] == second[key] for key in first] == [True, False, False]


def test_a_store_that_grows(rain):
    """The newest version is served, and snapshots by number, whose keys never change."""
    with served({"rain": rain}, refresh=0) as client:
        assert client.get("/rain/rain/zarr.json").json()["shape"][0] == TIMES
        vs.Repository.open(rain).append(
            xr.Dataset({"rain": (("time", "y", "x"), np.ones((1, 4, 5)))}, {"time": [9]}), "time"
        )
        newest = client.get("/rain/rain/zarr.json")
        assert newest.json()["shape"][0] == TIMES + 1
        assert newest.headers["cache-control"] == "public, no-cache"
        old = client.get("/rain@0/rain/zarr.json")
        assert old.json()["shape"][0] == TIMES
        assert "immutable" in old.headers["cache-control"]
        assert "immutable" in client.get("/rain@0/rain/c/2/0/0").headers["cache-control"]
        for at in ("7", "-1", "x", "", "00"):
            missing = client.get(f"/rain@{at}/zarr.json")
            assert (missing.status_code, missing.json()["cube"]) == (404, "rain")


def test_other_cubes_that_change(tmp_path):
    """References that are written anew are seen; those of Icechunk have ids of snapshots."""
    for n in (1, 2):
        xr.Dataset({"a": ("x", np.arange(n * 1.0))}).virtual.to_kerchunk(tmp_path / "refs.json")
        xr.Dataset({"a": ("x", np.arange(n * 1.0))}).virtual.to_icechunk(tmp_path / "a.icechunk", mode="w")
        if n == 1:
            client = served({"k": tmp_path / "refs.json", "i": tmp_path / "a.icechunk"}, refresh=0)
            client.__enter__()
        for name in "ki":
            assert client.get(f"/{name}/a/zarr.json").json()["shape"] == [n]
    client.__exit__(None, None, None)


@pytest.mark.parametrize(("accepted", "decode"), [("gzip", gzip.decompress), ("zstd, gzip", numcodecs.Zstd().decode)])
def test_metadata_are_compressed(rain, accepted, decode):
    """As the client accepts it."""
    with served({"rain": rain}) as client:
        with client.stream("GET", "/rain/zarr.json", headers={"accept-encoding": accepted}) as answer:
            data = b"".join(answer.iter_raw())
        plain = client.get("/rain/zarr.json", headers={"accept-encoding": "gzip;q=0"})
        assert answer.headers["content-encoding"] == accepted.partition(",")[0]
        assert decode(data) == plain.content
        assert "content-encoding" not in plain.headers


@pytest.mark.parametrize("path", ["/rain/zarr.json", "/-/facts/rain/variables", "/-/assets/page.js"])
def test_documents_are_compressed_once(rain, path, monkeypatch):
    """Not for each request."""
    compress, done = gzip.compress, []
    monkeypatch.setattr(gzip, "compress", lambda *args, **options: done.append(1) or compress(*args, **options))
    with served({"rain": rain}) as client:
        for _ in range(3):
            assert client.get(path, headers={"accept-encoding": "gzip"}).headers["content-encoding"] == "gzip"
    assert len(done) <= 1  # the page may be compressed by a test before this one


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nothing/zarr.json", 404),
        ("/nothing/rain/c/0/0/0", 400),
        ("/rain/nothing", 404),
        ("/rain/nothing/c/0/0/0", 400),
        ("/rain/rain/c/6/0/0", 400),
        ("/rain/rain/c/00/0/0", 400),
        ("/rain/rain/c/0/0", 400),
        ("/rain/rain/0.0.0", 400),
        ("/zarr2/rain/rain/c/0/0/0", 400),
        ("/zarr2/rain/zarr.json", 404),
        ("/rain/.zmetadata", 404),
        ("/rain/../../etc/passwd", 404),
        ("/rain/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/rain/rain/c/" + "9" * 5000, 400),
        ("/" + "x" * 5000, 404),
    ],
)
def test_keys_that_do_not_exist(rain, path, status):
    """They have status 404, or 400 if clients would take 404 for the fill value; and a reason as JSON."""
    with served({"rain": rain}) as client:
        found = client.get(path)
        assert (found.status_code, set(found.json())) == (status, {"error", "message"})


def test_chunks_that_a_newer_version_does_not_have(rain):
    """Programs that opened the older one get an error, and no fill values."""
    with served({"rain": rain}, refresh=0) as client:
        assert client.get("/rain/rain/c/5/0/0").status_code == 200
        shutil.rmtree(rain)
        xr.Dataset({"rain": (("time", "y", "x"), np.ones((1, 4, 5)))}).virtual.to_vstack(rain)
        assert client.get("/rain/rain/c/5/0/0").status_code == 400
        assert client.head("/rain/rain/c/5/0/0").status_code == 404
        gdal = client.get("/rain/rain/c/5/0/0", headers={"user-agent": "GDAL/3.12.2"})
        assert (gdal.status_code, len(gdal.content)) == (200, 1)


def test_references_that_are_gone_are_no_fill_values(rain):
    """Clients take status 404 of a chunk as the fill value, so chunks have it only if they were never written."""
    with served({"rain": rain}, refresh=0) as client:
        assert client.get("/rain/rain/c/0/0/0").status_code == 200
        shutil.rmtree(rain)
        assert client.get("/rain/rain/c/0/0/0").status_code == 502
        assert client.get("/rain@7/rain/c/0/0/0").status_code == 502
        assert client.get("/rain@7/zarr.json").status_code == 404


def test_a_store_that_is_written_anew(rain):
    """It has the same number of its snapshot as before."""
    with served({"rain": rain}, refresh=0) as client:
        assert client.get("/rain/rain/zarr.json").json()["shape"][0] == TIMES
        shutil.rmtree(rain)
        xr.Dataset({"rain": ("time", [1.0])}).virtual.to_vstack(rain)
        assert client.get("/rain/rain/zarr.json").json()["shape"] == [1]


def test_a_repository_at_a_snapshot(rain):
    """The snapshot that it was opened at is served."""
    later = xr.Dataset({"rain": (("time", "y", "x"), np.ones((1, 4, 5)))}, {"time": [9]})
    vs.Repository.open(rain).append(later, "time")
    for at, n in ((0, TIMES), (-1, TIMES + 1)):
        with served({"rain": vs.Repository.open(rain, at=at)}) as client:
            assert client.get("/rain/rain/zarr.json").json()["shape"][0] == n


def test_errors_show_no_secrets():
    """Neither logins nor signatures of URLs."""
    error = vs.errors.StorageError("'https://me:word@h/a.nc?sig=1f' failed", url="https://me:word@h/a.nc?sig=1f")
    body = error_body(error, timeout=1, cube="a")
    assert json.loads(body)["url"] == "https://h/a.nc?..."
    assert b"word" not in body
    assert b"1f" not in body


def test_nothing_can_be_written(rain):
    """Other methods have status 405."""
    with served({"rain": rain}) as client:
        for method in ("PUT", "POST", "DELETE", "PATCH"):
            assert client.request(method, "/rain/zarr.json").status_code == 405


@pytest.mark.parametrize("path", ["/", "/rain/", "/rain/rain/c/0/0/0", "/metrics"])
@pytest.mark.parametrize("token", [None, "sesame"])
def test_there_are_no_websockets(rain, path, token):
    """They are closed at once."""
    with (
        served({"rain": rain}, token=token) as client,
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(path),
    ):
        pass


@pytest.mark.parametrize("root", ["", "/data", "/данные/a b"])
@pytest.mark.parametrize("path", ["/rain", "/rain@0", "/zarr2/rain"])
def test_a_folder_without_its_slash(rain, root, path):
    """The root of a cube is sent to its folder, also below another application, or a proxy that removes a path."""
    app = Starlette(routes=[Mount(root, vs.serve.app({"rain": rain}))])
    with TestClient(app, base_url="http://localhost") as client:
        where = client.get(f"{root}{path}", follow_redirects=False).headers["location"]
        assert unquote(urljoin(f"http://host/proxy{quote(root + path)}", where)) == f"http://host/proxy{root}{path}/"
        assert client.get(f"{root}{path}").status_code == 200
        assert client.get(f"{root}/rain/rain/c/0/0/0").status_code == 200


def test_cut_chunks_are_encoded_again(rain):
    """A slice within the only chunk along an axis: the chunk in zarr's form begins elsewhere."""
    with xr.open_dataset(rain.with_name("rain.nc")) as file:
        wanted = file["rain"].isel(y=slice(1, None)).values
    vds = vs.open_virtual_dataset(rain.with_name("rain.nc")).isel(y=slice(1, None))
    np.testing.assert_array_equal(values_of(vds), wanted)
    np.testing.assert_array_equal(values_of(vds, codecs="any"), wanted)


@pytest.mark.parametrize("order", [("x", "time", "y"), ("y", "x", "time")])
@pytest.mark.parametrize("codecs", ["common", "any"])
def test_transposed(rain, order, codecs):
    """Chunks in another order of axes."""
    vds = vs.open_virtual_dataset(rain.with_name("rain.nc")).transpose(*order)
    with xr.open_dataset(rain.with_name("rain.nc")) as file:
        np.testing.assert_array_equal(values_of(vds, codecs=codecs), file["rain"].transpose(*order).values)


@pytest.mark.parametrize("chunks", [None, {"time": 4}, {"time": 1000, "y": 2}])
def test_unlike_files(tmp_path, chunks):
    """Files that differ in length, codecs and packing, in chunks of a chosen length."""
    paths = write_files(tmp_path)
    with served({"cube": cube(paths)}, chunks=chunks) as client:
        found = opened(client, "/cube/")["t"]
        np.testing.assert_array_equal(found[...], joined(paths)["t"].astype(found.dtype))
        if chunks:
            assert found.chunks[0] == min(chunks["time"], 120)


def with_fill(tmp_path, name, fill):
    """A file of which one chunk of two was never written."""
    import h5py

    with h5py.File(tmp_path / name, "w") as file:
        file.create_dataset("a", (4,), "f4", chunks=(2,), fillvalue=fill, compression="gzip")[:2] = 1
        file["a"].dims[0].label = "x"
    return vs.open_virtual_dataset(tmp_path / name)


def test_chunks_that_were_never_written(tmp_path):
    """Each part has its own fill value; where it is that of the array, there is no chunk."""
    parts = [with_fill(tmp_path, "a.h5", 5), with_fill(tmp_path, "b.h5", 7)]
    vds = xr.concat(parts, next(iter(parts[0].sizes)), coords="minimal", compat="override")
    for codecs in ("common", "any"):
        with served({"cube": vds}, codecs=codecs) as client:
            assert client.get("/cube/a/c/1").status_code == 404
            np.testing.assert_array_equal(opened(client, "/cube/")["a"], [1, 1, 5, 5, 1, 1, 7, 7])


@pytest.mark.parametrize("absent", ["fill", "raise"])
def test_absent_chunks(rain, absent):
    """A chunk that should exist reads as the fill value, or is an error that names the variable."""
    (group,) = vs.scan([rain.with_name("rain.nc")])
    array = group.arrays["rain"]
    entries = array.manifest.entries.copy()
    entries["location"][3] = 1
    entries["encoding"][3] = 0
    lost = replace(group, arrays={"rain": replace(array, manifest=replace(array.manifest, entries=entries))})
    with served({"cube": lost}, absent=absent) as client:
        for key in ("/cube/rain/c/3/0/0", "/zarr2/cube/rain/3.0.0"):
            found = client.get(key)
            assert found.status_code == (404 if absent == "fill" else 502)
            assert absent == "fill" or found.json()["variable"].lstrip("/") == "rain"


def test_variables_that_zarr_does_not_have(tmp_path):
    """They are left out of the listing and of consolidated metadata, and others are served."""
    (group,) = vs.scan([write_files(tmp_path)[0]])
    odd = replace(group, arrays={**group.arrays, "zarr.json": group.arrays["x"]})
    with served({"cube": odd}) as client:
        members = client.get("/cube/zarr.json").json()["consolidated_metadata"]["metadata"]
        assert sorted(members) == ["t", "time", "x"]


class TestWhoMayRead:
    """Tokens, origins, hosts, and places that cubes refer to."""

    def test_a_token(self, rain):
        with served({"rain": rain}, token="sesame") as client:
            for headers in (
                {},
                {"authorization": "Bearer other"},
                {"authorization": "Basic !"},
                {"authorization": "x"},
            ):
                refused = client.get("/rain/zarr.json", headers=headers)
                assert (refused.status_code, refused.json()["error"]) == (401, "Unauthorized")
                assert client.get("/metrics", headers=headers).status_code == 401
            assert client.get("/rain/zarr.json", headers={"authorization": "Bearer sesame"}).status_code == 200
            assert client.get("/rain/zarr.json", auth=("anyone", "sesame")).status_code == 200
            assert client.get("/rain/zarr.json", params={"token": "other"}).status_code == 401
            assert client.get("/", params={"token": "sesame"}).url == "http://localhost/"
            assert client.get("/rain/zarr.json").status_code == 200  # by the cookie
            for key in ("/rain/zarr.json", "/rain@0/rain/c/0/0/0"):
                assert client.get(key).headers["cache-control"].startswith("private, ")

    @pytest.mark.parametrize("path", ["/", "/rain/", "/rain@0/zarr.json", "/-/facts/rain/sources?limit=1"])
    def test_a_token_behind_a_proxy(self, rain, path):
        """The server does not know host and path that the browser sees."""
        with served({"rain": rain}, token="sesame") as client:
            link = f"{path}{'&' if '?' in path else '?'}token=sesame"
            where = client.get(link, follow_redirects=False).headers["location"]
        assert urljoin(f"https://example.org/data{link}", where) == f"https://example.org/data{path}"

    def test_two_servers_on_one_host(self, rain):
        """Browsers send cookies to all ports of a host, so that each server has a name of its own for its cookie."""
        cookies = None
        for port, token in ((8000, "sesame"), (8001, "other")):
            client = TestClient(
                vs.serve.app({"rain": rain}, token=token), base_url=f"http://localhost:{port}", cookies=cookies
            )
            assert client.get("/", params={"token": token}).status_code == 200
            cookies = client.cookies
        assert client.get("/rain/zarr.json").status_code == 200
        first = TestClient(
            vs.serve.app({"rain": rain}, token="sesame"), base_url="http://localhost:8000", cookies=cookies
        )
        assert first.get("/rain/zarr.json").status_code == 200

    @pytest.mark.parametrize("token", ["", "é"])
    def test_tokens_that_nobody_can_send(self, rain, token):
        with pytest.raises(ValueError, match="token"):
            vs.serve.app({"rain": rain}, token=token)

    @pytest.mark.parametrize(
        ("origins", "origin", "may"),
        [
            (None, "http://localhost:8888", True),
            (None, "http://127.0.0.1", True),
            (None, "https://evil.example", False),
            (None, "http://localhost.evil.example", False),
            (["https://a.example"], "https://a.example", True),
            (["https://a.example"], "http://localhost:8888", False),
            (["*"], "https://evil.example", True),
        ],
    )
    def test_origins(self, rain, origins, origin, may):
        with served({"rain": rain}, origins=origins) as client:
            found = client.get("/rain/zarr.json", headers={"origin": origin})
            assert ("access-control-allow-origin" in found.headers) is may
            asked = {
                "origin": origin,
                "access-control-request-method": "GET",
                "access-control-request-headers": "range",
            }
            assert (client.options("/rain/zarr.json", headers=asked).status_code == 200) is may

    def test_hosts(self, rain):
        with served({"rain": rain}) as client:
            for host in ("evil.example", "testserver"):
                assert client.get("/rain/zarr.json", headers={"host": host}).status_code == 400
            assert client.get("/rain/zarr.json", headers={"host": "127.0.0.1:8000"}).status_code == 200
        with served({"rain": rain}, hosts=["*"]) as client:
            assert client.get("/rain/zarr.json", headers={"host": "data.example"}).status_code == 200

    def test_places_that_were_not_named(self, rain, tmp_path_factory):
        """Where other machines read, places are listed; on loopback, the writer's own cube just works."""
        elsewhere = tmp_path_factory.mktemp("elsewhere") / "refs.json"
        vs.open_virtual_dataset(rain.with_name("rain.nc")).virtual.to_kerchunk(elsewhere)
        for hosts, allow, status in (
            (None, (), 200),
            (["localhost", "127.0.0.1"], (), 200),
            (None, vs.Listed(), 403),
            (["localhost", "data.example"], (), 403),
            (["*"], [], 403),
            (["*"], [rain.parent], 200),
        ):
            with served({"cube": elsewhere}, hosts=hosts, allow=allow) as client:
                answer = client.get("/cube/rain/c/0/0/0")
                assert answer.status_code == status
                assert status == 200 or answer.json()["error"] == "ForbiddenLocationError"


@pytest.mark.parametrize("name", ["", "-", "a/b", "a@1", "metrics", "zarr2", "..", "a b\n", "%41"])
def test_names_that_cubes_cannot_have(rain, name):
    """They would mean something else in a URL."""
    with pytest.raises(ValueError, match="name of a cube"):
        vs.serve.app({name: rain})


def test_metrics(rain):
    """Requests by status, chunks that were read, and chunks that others had read."""
    with served({"rain": rain}) as client:
        for _ in range(3):
            client.get("/rain/rain/c/2/0/0")
        client.get("/rain/nothing")
        lines = client.get("/metrics").text.splitlines()
        assert 'virtualstack_requests_total{cube="rain",status="200"} 3.0' in lines
        assert 'virtualstack_requests_total{cube="rain",status="404"} 1.0' in lines
        assert "virtualstack_chunks_read_total 1.0" in lines
        assert "virtualstack_chunks_shared_total 2.0" in lines
        assert "virtualstack_memory_bytes 0.0" in lines


def test_whole_objects_are_redirected():
    """Chunks that are objects on a public web server, if the server may redirect, and the object is what it was."""
    objects = {"c0": bytes(16), "c1": bytes(20), "c2": bytes(16)}
    with RangeServer(objects) as source:
        url = source.url("")
        manifest = vs.ChunkManifest.from_dict(
            {f"{i}": {"path": f"{url}c{i}", "offset": 4 * (i == 1), "length": 16} for i in range(3)},
            shape=(3,),
            encoding=vs.ChunkEncoding.c_order("<f4", (4,)),
            fill=vs.Fill.zero("f4"),
        )
        sized = tuple(replace(x, size=len(objects[x.url.rpartition("/")[2]])) for x in manifest.locations)
        array = vs.ManifestArray(
            manifest=replace(manifest, locations=sized),
            dtype=np.dtype("f4"),
            grid=vs.ChunkGrid.regular((12,), (4,)),
            dimension_names=("x",),
        )
        with served({"cube": vs.ManifestGroup(arrays={"a": array})}, redirect=True) as client:
            for method in ("GET", "HEAD"):
                found = client.request(method, "/cube/a/c/0", follow_redirects=False)
                assert (found.status_code, found.headers["location"]) == (307, f"{url}c0")
            assert client.get("/cube/a/c/1", follow_redirects=False).status_code == 200
            del objects["c0"]  # clients would take the status 404 of its server for the fill value
            objects["c2"] = bytes(17)
            for i in (0, 2):
                gone = client.get(f"/cube/a/c/{i}", follow_redirects=False)
                assert (gone.status_code, gone.json()["url"]) == (502, f"{url}c{i}")


def test_documents_are_json(rain):
    """Also with attributes that are not finite."""
    (group,) = vs.scan([rain.with_name("rain.nc")])
    odd = replace(group, attributes={"limit": float("inf"), "none": float("nan")})

    def refuse(text):
        raise AssertionError(text)

    with served({"cube": odd}) as client:
        for key in ("/cube/zarr.json", "/zarr2/cube/.zattrs", "/zarr2/cube/.zmetadata"):
            assert "Infinity" in json.dumps(json.loads(client.get(key).content, parse_constant=refuse))
