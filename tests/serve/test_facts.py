"""Facts of the server's page agree with Python's own, and no answer is large."""

import json
import time
from pathlib import Path

import pytest
import requests
import xarray as xr

import virtualstack as vs
from tests.serve.groups import large_group
from tests.serve.running import serving
from tests.serve.unlike import cube, write_files
from virtualstack.errors import StorageError
from virtualstack.manifests.chunk_map import count_sources, map_chunks
from virtualstack.surveying.cube import cube_timeline


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def store(paths):
    """A vstack of the unlike files, beside them, with three snapshots."""
    url = Path(paths[0]).with_name("cube.vstack")
    repo = vs.Repository.create(url, cube(paths[:3]), message="three months")
    repo.write("x", {"x": 0}, -1.0, message="mend x").write("x", {"x": 1}, -2.0)
    return url


@pytest.fixture(scope="module")
def client(store, paths):
    with serving({"cube": store, "one": paths[0]}) as url:
        yield url


def get(client, path):
    answer = requests.get(client + path, timeout=30)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < 1_000_000
    return answer.json()


def test_cubes(client, store):
    """The list names each cube, its reader, and whether it has snapshots."""
    one, other = get(client, "/-/cubes")["cubes"]
    assert one == {"name": "cube", "kind": "vstack", "url": store.as_uri(), "has_snapshots": True}
    assert (other["name"], other["kind"], other["has_snapshots"]) == ("one", "hdf5", False)


def test_variables(client, store):
    """Dimensions, shape, data type, chunks and attributes of each variable are those of the group."""
    found = get(client, "/-/facts/cube/variables")
    (group,) = vs.scan([store])
    assert (found["total"], found["next"], found["n_refused"]) == (3, None, 0)
    assert [x["path"] for x in found["items"]] == list(group.arrays)
    t = next(x for x in found["items"] if x["path"] == "t")
    assert (t["dims"], t["shape"], t["dtype"]) == (["time", "y", "x"], [90, 5, 6], "float32")
    assert t["chunks"] == ["1 to 7", 5, 6]
    assert t["attributes"]["units"] == "K"
    assert t["attributes"]["_FillValue"] == "NaN"


def test_counts_and_map(client, store):
    """Counts and the map are those of `map_chunks`."""
    (group,) = vs.scan([store])
    for item in get(client, "/-/facts/cube/counts")["items"]:
        wanted = map_chunks(group.arrays[item["path"]])
        assert item["n_chunks"] == wanted.n_chunks
        assert item["n_referenced"] == wanted.n_referenced
        assert item["nbytes"] == wanted.nbytes
        assert len(item["encodings"]) == wanted.n_encodings
    found = get(client, "/-/facts/cube/map?variable=t")
    assert found == json.loads(json.dumps(map_chunks(group.arrays["t"], name="t").to_json()))


def test_timeline_and_sources(client, store):
    """Both are what Python says."""
    (group,) = vs.scan([store])
    assert get(client, "/-/facts/cube/timeline") == json.loads(json.dumps(cube_timeline(group).to_json()))
    wanted = count_sources(group.all_arrays()).rows(1, 1)
    found = get(client, "/-/facts/cube/sources?offset=1&limit=1")
    assert (found["total"], found["offset"], found["next"]) == (3, 1, 2)
    assert [(x["url"], x["n_chunks"]) for x in found["items"]] == [(x.url, x.n_chunks) for x in wanted]


def test_snapshots(client, store):
    """Messages and changes are those of the log, and a difference that of `diff`; other cubes have none."""
    repo = vs.Repository.open(store)
    found = get(client, "/-/facts/cube/snapshots")
    assert [(x["number"], x["message"], x["changes"]) for x in found["items"]] == [
        (x.number, x.message, list(x.changes)) for x in repo.log()
    ]
    lines = get(client, "/-/facts/cube/diff?before=0&after=2")["lines"]
    assert lines == repr(repo.diff(0, 2)).splitlines()[1:]
    assert get(client, "/-/facts/one/snapshots")["has_snapshots"] is False
    assert get(client, "/-/facts/cube@0/variables")["version"] == "0"
    assert get(client, "/-/facts/cube/variables")["version"] == "2"  # the page marks it in the list


def test_a_growing_store_is_seen(paths):
    """Facts are those of the newest version."""
    repo = vs.Repository.create(Path(paths[0]).with_name("grows.vstack"), paths[0])
    with serving({"grows": repo}, refresh=0) as client:
        assert get(client, "/-/facts/grows/map?variable=t")["n_chunks"] == 31
        repo.append(paths[2], "time")
        assert get(client, "/-/facts/grows/map?variable=t")["n_chunks"] == 62
        assert get(client, "/-/facts/grows/variables")["version"] == "1"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/-/facts/nothing/variables", 404),
        ("/-/facts/cube/nothing", 404),
        ("/-/facts/cube/map?variable=nothing", 404),
        ("/-/facts/cube@77/variables", 404),
        ("/-/facts/cube/diff?before=0&after=77", 404),
        ("/-/facts/one/diff?before=0&after=1", 404),
        ("/-/facts/cube/sources?offset=-1", 400),
        ("/-/facts/cube/sources?limit=many", 400),
        ("/-/assets/..%2Fapp.py", 404),
        ("/-/assets/nothing.js", 404),
    ],
)
def test_unknown_paths_are_errors_in_json(client, path, status):
    """Each is an error in JSON."""
    answer = requests.get(client + path, timeout=30)
    assert answer.status_code == status
    assert answer.json()["message"]


def test_token(store):
    """Facts and assets need the token of the server."""
    with serving({"cube": store}, token="word") as client:
        for path in ("/", "/-/cubes", "/-/facts/cube/variables", "/-/assets/page.js"):
            assert requests.get(client + path, timeout=30).status_code == 401
        sent = {"Authorization": "Bearer word"}
        assert requests.get(f"{client}/-/cubes", headers=sent, timeout=30).status_code == 200


def test_secrets_in_urls_are_not_shown():
    """A login and a signed query are left out of sources and maps."""
    manifest = vs.ChunkManifest.from_dict(
        {"0": {"path": "https://user:word@host/day.nc?signature=1f2e", "offset": 0, "length": 40}},
        shape=(1,),
        encoding=vs.ChunkEncoding.c_order("<f4", (10,)),
        fill=vs.Fill.zero("f4"),
    )
    array = vs.ManifestArray(
        manifest=manifest, grid=vs.ChunkGrid.regular((10,), (10,)), dtype="f4", dimension_names=("x",)
    )
    with serving({"cube": vs.ManifestGroup(arrays={"rain": array})}) as client:
        assert get(client, "/-/facts/cube/sources")["items"][0]["url"] == "https://host/day.nc?..."
        text = json.dumps(get(client, "/-/facts/cube/map?variable=rain"))
    assert "word" not in text
    assert "1f2e" not in text


def test_a_variable_whose_references_cannot_be_read_says_so(store, monkeypatch):
    """The counts of other variables are there."""

    def fail(array, /, *, name, **options):
        if name == "t":
            raise StorageError("the references are gone")
        return map_chunks(array, name=name, **options)

    monkeypatch.setattr("virtualstack.serve.facts.map_chunks", fail)
    with serving({"cube": store}) as client:
        found = {x["path"]: x for x in get(client, "/-/facts/cube/counts")["items"]}
    assert found["t"] == {"path": "t", "error": "the references are gone"}
    assert found["x"]["n_chunks"] == 1


def test_a_large_cube_has_small_answers():
    """10^6 chunks in 3,000 sources."""
    with serving({"large": large_group()}) as client:
        begin = time.perf_counter()
        for kind in ("variables", "counts", "map?variable=rain", "timeline", "sources?limit=1000"):
            get(client, f"/-/facts/large/{kind}")
        print(f"all facts in {time.perf_counter() - begin:.2f} s")
        assert get(client, "/-/facts/large/sources?offset=2990")["items"][-1]["url"].endswith("year02999.nc")


def test_many_variables_with_long_attributes_come_in_pages(tmp_path):
    """Pages together have all of them."""
    dataset = xr.Dataset({f"v{i}": ("x", [1.0], {f"a{j}": "long " * 1000 for j in range(9)}) for i in range(80)})
    dataset.virtual.to_vstack(tmp_path / "wide.vstack")
    names, offset = [], 0
    with serving({"wide": tmp_path / "wide.vstack"}) as client:
        while offset is not None:
            page = get(client, f"/-/facts/wide/variables?offset={offset}")
            names += [x["path"] for x in page["items"]]
            offset = page["next"]
    assert names == [f"v{i}" for i in range(80)]


def test_large_integers_in_attributes():
    """JavaScript rounds numbers from 2^53 on, so that they are text; others stay numbers."""
    large = 2**53 + 1
    attributes = {"id": large, "range": [-large, 2**53 - 1], "n": 7}
    dataset = xr.Dataset({"a": ("x", [1.0], attributes)}, attrs={"id": large})
    with serving({"a": dataset}) as client:
        found = get(client, "/-/facts/a/variables")
    assert found["attributes"]["id"] == str(large)
    assert found["items"][0]["attributes"] == {"id": str(large), "range": [str(-large), 2**53 - 1], "n": 7}


def test_a_zarr_store_in_a_folder(tmp_path):
    """It is served too, and so are facts about it."""
    xr.Dataset({"rain": ("x", [1.0, 2.0])}).to_zarr(tmp_path / "rain.zarr", zarr_format=3, consolidated=False)
    with serving({"rain": tmp_path / "rain.zarr"}) as client:
        assert get(client, "/rain/rain/zarr.json")["shape"] == [2]
        assert get(client, "/-/facts/rain/counts")["items"][0]["n_referenced"] == 1


def test_text_is_called_text(tmp_path):
    """The name of the class of numpy says nothing to people."""
    xr.Dataset({"name": ("x", ["a", "bc"])}).virtual.to_vstack(tmp_path / "names.vstack")
    with serving({"names": tmp_path / "names.vstack"}) as client:
        assert get(client, "/-/facts/names/variables")["items"][0]["dtype"] == "text"
