"""A second scan reads what is new or has changed, and nothing of the cache is believed unseen."""

import hashlib
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import orjson
import pytest
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numcodecs import zstd
from obstore.store import HTTPStore, MemoryStore, S3Store

import virtualstack as vs
from tests.data import make_hdf5, make_hdf5_usual, make_netcdf3
from tests.data.arrays import referenced_array
from tests.scanning.groups import assert_all_same, assert_same, assert_same_values, make
from tests.scanning.readers import Noting
from tests.servers import RangeServer
from virtualstack.errors import ManifestError, StorageError
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, ManifestGroup
from virtualstack.manifests.serialised.headers import from_group_header
from virtualstack.manifests.serialised.values import Heap, UnstorableError, from_dtype, from_value, to_dtype, to_value
from virtualstack.readers import HDF5, ReadOptions
from virtualstack.scanning.cache import ScanCache, Version, hash_backends
from virtualstack.scanning.plain_groups import from_group, to_group
from virtualstack.storage import Storage

N = 6


@pytest.fixture
def files(tmp_path):
    (tmp_path / "data").mkdir()
    return [make(tmp_path / "data" / f"f{i}.h5", i) for i in range(N)]


@pytest.fixture
def reads(tmp_path):
    """Scan with a cache, and say which files were read."""
    log = tmp_path / "log"

    def scan(files, **options):
        log.write_text("")
        options = {"cache": tmp_path / "cache", "reader": Noting(log=str(log))} | options
        result = vs.scan(files, **options)
        return result, log.read_text().split()

    return scan


def entries(folder):
    return sorted(folder.rglob("*.scan"))


# -- what is read again -------------------------------------------------------------------------------------------


def test_a_second_scan_reads_nothing_and_gives_the_same(files, reads):
    first, read = reads(files)
    assert sorted(read) == [path.name for path in files]
    second, read = reads(files)
    assert read == []
    assert_all_same(first, second)


@pytest.mark.parametrize("change", ["content and size", "content", "time"])
def test_changed_files_are_read_again(files, reads, change):
    reads(files)
    if change == "content and size":
        make(files[2], 99, 80)
    elif change == "content":
        make(files[2], 98)
        os.utime(files[2], (1, 1))
    else:
        os.utime(files[2], (1, 1))
    result, read = reads(files)
    assert read == ["f2.h5"]
    assert_same(result[2], vs.scan([files[2]])[0])
    assert reads(files)[1] == []


def test_new_files_are_read_and_lost_ones_fail(files, reads):
    reads(files[:3])
    files[0].unlink()
    result, read = reads(files, on_error="skip")
    assert sorted(read) == ["f0.h5", "f3.h5", "f4.h5", "f5.h5"]
    assert result.failures.error.tolist() == ["SourceNotFoundError"]


def test_files_that_failed_are_read_again(files, reads):
    whole = files[1].read_bytes()
    files[1].write_bytes(whole[:500])
    result, _ = reads(files, on_error="skip")
    assert len(result.failures) == 1
    assert reads(files, on_error="skip")[1] == ["f1.h5"]
    files[1].write_bytes(whole)
    result, read = reads(files)
    assert (len(result), read) == (N, ["f1.h5"])


def test_other_options_are_other_entries(files, reads, tmp_path):
    reads(files)
    _, read = reads(files, options=ReadOptions(drop_variables=frozenset("x")))
    assert len(read) == N
    assert len(reads(files, reader=Noting(log=f"{tmp_path}/./log"))[1]) == N
    assert reads(files)[1] == []


def test_other_versions_of_virtualstack_are_other_entries(files, reads, monkeypatch):
    reads(files)
    monkeypatch.setattr(sys.modules["virtualstack.scanning.cache"], "version", lambda name: "999")
    assert len(reads(files)[1]) == N


def test_other_libraries_are_other_entries(files, tmp_path, monkeypatch):
    """Without one of them, a reader may refuse what it takes with it."""
    cache = tmp_path / "cache"
    vs.scan(files, cache=cache)
    vs.scan(files, cache=cache)
    assert len(entries(cache)) == N
    monkeypatch.setattr(sys.modules["virtualstack.scanning.cache"], "find_spec", lambda name: None)
    vs.scan(files, cache=cache)
    assert len(entries(cache)) == 2 * N


def test_an_interrupted_scan_goes_on(files, reads, tmp_path):
    def interrupt(done, total):
        if done == 3:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        reads(files * 10, progress=interrupt, executor=executor)
    kept = len(entries(tmp_path / "cache"))
    assert kept >= 3
    assert len(reads(files)[1]) == N - kept


def test_without_recheck_no_file_is_looked_at(files, reads):
    first, _ = reads(files)
    for path in files:
        path.unlink()
    second, read = reads(files, recheck=False)
    assert read == []
    assert_same(first[0], second[0])


@pytest.mark.parametrize("recheck", [True, False])
def test_remote_files_are_asked_once_or_not_at_all(files, tmp_path, recheck):
    """With the one request that opens a file, which is not repeated where it has changed."""
    for path in files:
        with h5py.File(path, "a") as file:  # more than what comes with the first request
            file["y"] = np.zeros(100_000)
            file.create_dataset("z", data=np.arange(9), chunks=(3,))
    with RangeServer(files[0].parent) as server:
        urls = [server.url(path.name) for path in files]
        first = vs.scan(urls, cache=tmp_path / "cache")
        n_first = server.n_requests
        assert n_first > N
        server.reset()
        second = vs.scan(urls, cache=tmp_path / "cache", recheck=recheck)
        assert server.n_requests == (N if recheck else 0)
        assert_all_same(first, second)
        server.reset()
        with h5py.File(files[1], "a") as file:
            file["x"][0] = 1
        third = vs.scan(urls, cache=tmp_path / "cache", recheck=recheck)
        assert server.n_requests == (N - 1 + n_first // N if recheck else 0)
        assert third[1].arrays["x"].equals(second[1].arrays["x"]) == (not recheck)


def test_a_server_without_versions_is_read_again():
    """A size alone says too little."""
    cache = ScanCache(target=Storage.from_option().target("memory://versions/"), how="", is_checked=True)
    storage = cache.watch(Storage.from_option())
    Storage.from_option().target("memory://versions/").put("a", b"123")
    etag = storage.source("memory://versions/a").location.etag
    for known, is_same in (({}, True), ({"etag": None}, False), ({"size": 4}, False), ({"stamp": (1, 2)}, False)):
        storage.seen["memory://versions/a"] = Version(**{"size": 3, "etag": etag} | known)
        cache.store("memory://versions/a", ManifestGroup(url="x"), storage)
        assert (cache.load("memory://versions/a", Storage.from_option()) is not None) == is_same
        for key in cache.target.list():
            cache.target.delete(key)


@pytest.mark.parametrize("way", ["put in its place", "written over", "link to another"])
def test_another_file_of_the_same_size_and_time_is_read(files, reads, tmp_path, way):
    """As restored copies and files made with a fixed time are."""
    other = make(tmp_path / "other.h5", 99)
    for path in (files[2], other):
        os.utime(path, (1e9, 1e9))
    assert other.stat().st_size == files[2].stat().st_size
    given = [files[2]]
    if way == "link to another":
        given = [tmp_path / "link.h5"]
        given[0].symlink_to(files[2])
    reads(given)
    assert reads(given)[1] == []
    if way == "put in its place":
        other.replace(files[2])
    elif way == "written over":
        files[2].write_bytes(other.read_bytes())
        os.utime(files[2], (1e9, 1e9))
    else:
        given[0].unlink()
        given[0].symlink_to(other)
    result, read = reads(given)
    assert read == [given[0].name]
    assert result[0].arrays["x"].equals(vs.scan(given)[0].arrays["x"])
    assert reads(given)[1] == []


def test_two_versions_within_a_tick_of_the_clock_are_two(tmp_path):
    """Both have the same time of change, if nobody waits."""
    path = tmp_path / "a.h5"
    versions = [make(tmp_path / f"{i}.h5", i).read_bytes() for i in range(2)]
    for i in range(60):
        path.write_bytes(versions[0])
        vs.scan([path], cache=tmp_path / "cache")
        with path.open("r+b") as file:
            file.write(versions[1])
        assert_same(vs.scan([path], cache=tmp_path / "cache")[0], vs.scan([path])[0])
        assert i or len(entries(tmp_path / "cache")) == 1


def test_a_cache_beside_copied_files_reads_them_once_more(files, reads, tmp_path):
    """Of which it knows nothing."""
    reads(files)
    for path in files:
        status = path.stat()
        path.write_bytes(path.read_bytes())
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len(reads(files)[1]) == N
    assert reads(files)[1] == []


# -- how it was reached -------------------------------------------------------------------------------------------


@pytest.fixture
def two_servers(tmp_path):
    """One key in a bucket of two servers."""
    for i in range(2):
        (tmp_path / f"server{i}" / "bucket").mkdir(parents=True)
        make(tmp_path / f"server{i}" / "bucket" / "a.h5", i)
    with RangeServer(tmp_path / "server0") as one, RangeServer(tmp_path / "server1") as two:
        yield one.root, two.root


@pytest.mark.parametrize("recheck", [True, False])
@pytest.mark.parametrize("kind", ["options", "store", "environment"])
def test_one_url_on_two_servers_is_two_files(two_servers, tmp_path, monkeypatch, kind, recheck):
    """Also where nobody looks whether they have changed."""
    for _ in range(2):
        for i, root in enumerate(two_servers):
            options = {"skip_signature": True, "region": "us-east-1"}
            if kind == "environment":
                monkeypatch.setenv("AWS_ENDPOINT_URL", root)
            else:
                options["endpoint"] = root
            if kind == "store":
                storage = S3Store("bucket", config=options, client_options={"allow_http": True})
            else:
                storage = options | {"allow_http": True}
            storage, cache = {"s3://bucket/": storage}, tmp_path / "cache"
            (group,) = vs.scan(["s3://bucket/a.h5"], storage=storage, cache=cache, recheck=recheck)
            assert group.attributes["title"] == f"number {i}"
    assert len(entries(tmp_path / "cache")) == 2
    for entry in entries(tmp_path / "cache"):
        assert b"127.0.0.1" not in entry.read_bytes() + orjson.dumps(opened(entry)[0])  # it may hold a password


def test_which_options_make_another_storage():
    """Where it is and who asks, and not how often or how long; no mark shows what was given."""

    def mark(backend):
        (found,) = hash_backends(Storage(given=(("s3://b/", backend),))).values()
        assert "hunter2" not in found
        return found

    first = mark({"key": "me", "secret": "hunter2", "client_kwargs": {"region_name": "a", "endpoint": "b"}})
    assert first == mark(
        {"client_kwargs": {"endpoint": "b", "region_name": "a"}, "secret": "hunter2", "key": "me", "max_retries": 9,
         "read_timeout": "1s"}
    )  # fmt: skip
    others = [{"key": "you", "secret": "hunter2"}, {"key": "me", "headers": {"tenant": "x"}}, {}, MemoryFileSystem()]
    assert len({first, *map(mark, others)}) == 5
    assert mark(MemoryFileSystem()) == mark(MemoryFileSystem())
    assert mark(HTTPStore("http://a/")) != mark(HTTPStore("http://b/"))
    store = MemoryStore()
    assert mark(store) != mark(store)  # nobody can tell what is in it


def test_the_mark_of_a_store_is_the_same_in_every_process(files, tmp_path):
    """Which gives its options in any order."""
    script = (
        "from obstore.store import S3Store; from virtualstack.scanning.cache import hash_backends; "
        "from virtualstack.storage import Storage; "
        "config = dict.fromkeys(['endpoint', 'access_key_id', 'secret_access_key', 'region'], 'x'); "
        "print(hash_backends(Storage(given=(('', S3Store('b', config=config)),))))"
    )
    found = {subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(found) == 1


# -- files that point to others -----------------------------------------------------------------------------------


def put(path, values):
    with h5py.File(path, "w") as file:
        file["x"] = values


@pytest.fixture
def virtual(tmp_path):
    """Two sources, one of which comes later, and a virtual dataset over both."""
    layout = h5py.VirtualLayout((2, 10), "f8")
    for i in range(2):
        layout[i] = h5py.VirtualSource(f"s{i}.h5", "x", (10,))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)
    put(tmp_path / "s0.h5", np.arange(10.0))
    return tmp_path / "v.h5"


def check_virtual(path, reads, *, is_read):
    (group,), read = reads([path])
    assert read == [path.name] * is_read
    assert_same(group, vs.scan([path])[0])
    if not group.refusals:
        with h5py.File(path) as file:
            values = zarr.open_group(vs.ManifestStore(group), mode="r")["x"][:]
            np.testing.assert_array_equal(values, file["x"][:])
    return group


def test_a_virtual_dataset_is_read_again_when_a_source_comes_changes_or_goes(virtual, reads):
    """And is kept in between."""
    other = virtual.with_name("other.h5")
    put(other, np.arange(10.0) + 9)
    steps = [
        lambda: put(virtual.with_name("s1.h5"), np.arange(10.0) + 5),
        lambda: put(virtual.with_name("s0.h5"), np.arange(10.0) + 7),
        lambda: other.replace(virtual.with_name("s0.h5")),
        lambda: virtual.with_name("s1.h5").unlink(),
    ]
    assert "source file 's1.h5' does not exist" in check_virtual(virtual, reads, is_read=True).refusals[0].reason
    check_virtual(virtual, reads, is_read=False)
    for step in steps:
        step()
        check_virtual(virtual, reads, is_read=True)
        check_virtual(virtual, reads, is_read=False)


def test_a_source_that_stands_in_front_of_another_is_seen(virtual, reads, tmp_path, monkeypatch):
    """The HDF5 library looks beside the file first, and then in the working directory."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    put(folder / "s1.h5", np.arange(10.0) + 3)
    check_virtual(virtual, reads, is_read=True)
    check_virtual(virtual, reads, is_read=False)
    put(virtual.with_name("s1.h5"), np.arange(10.0) + 4)
    check_virtual(virtual, reads, is_read=True)


@pytest.mark.parametrize("change", ["working directory", "prefix"])
def test_sources_are_looked_for_anew_from_another_place(virtual, reads, tmp_path, monkeypatch, change):
    folders = [tmp_path / "a", tmp_path / "b"]
    for i, folder in enumerate(folders):
        folder.mkdir()
        put(folder / "s1.h5", np.arange(10.0) + 3 + i)
        if change == "prefix":
            monkeypatch.setenv("HDF5_VDS_PREFIX", str(folder))
        else:
            monkeypatch.chdir(folder)
        (group,), read = reads([virtual])
        assert read == ["v.h5"]
        assert_same(group, vs.scan([virtual])[0])
        assert any(x.url == f"file://{folder}/s1.h5" for x in group.arrays["x"].in_memory().locations)


def test_a_source_that_cannot_be_opened_is_tried_each_time(virtual, reads):
    virtual.with_name("s1.h5").mkdir()
    for _ in range(2):
        assert "is a directory" in check_virtual(virtual, reads, is_read=True).refusals[0].reason


def test_files_with_arrays_of_size_zero_are_kept(tmp_path, reads):
    put(tmp_path / "z.h5", np.zeros((0, 3)))
    reads([tmp_path / "z.h5"])
    assert reads([tmp_path / "z.h5"])[1] == []


def test_external_files_are_asked_for(tmp_path, reads):
    raw = tmp_path / "raw.bin"
    raw.write_bytes(np.arange(6.0).tobytes())
    with h5py.File(tmp_path / "e.h5", "w") as file:
        file.create_dataset("x", (6,), "f8", external=[(str(raw), 0, 48)])
    for step in (None, lambda: raw.write_bytes(bytes(48)), lambda: raw.write_bytes(bytes(8)), raw.unlink):
        if step is not None:
            step()
        (group,), read = reads([tmp_path / "e.h5"])
        assert read == ["e.h5"]
        assert_same(group, vs.scan([tmp_path / "e.h5"])[0])
        assert reads([tmp_path / "e.h5"])[1] == []


def test_a_virtual_dataset_that_grows_with_its_sources_is_never_old(tmp_path, reads):
    """Sources by number (printf): none at first."""
    create, space = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5s.create_simple((0, 3), (h5py.h5s.UNLIMITED, 3))
    part = h5py.h5s.create_simple((1, 3))
    space.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), stride=(1, 3), block=(1, 3))
    create.set_virtual(space, b"p%b.h5", b"x", part)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F64LE, space, create)
    for n in range(3):
        (group,), _ = reads([tmp_path / "v.h5"])
        assert group.arrays["x"].shape == (n, 3)
        assert reads([tmp_path / "v.h5"])[1] == []
        put(tmp_path / f"p{n}.h5", np.ones((1, 3)))


def test_every_file_that_a_remote_source_opens_is_asked_for(files, virtual, tmp_path):
    """Each is one request; those that were not there as well."""
    put(virtual.with_name("s1.h5"), np.arange(10.0))
    with RangeServer(tmp_path) as server:
        first = vs.scan([server.url("v.h5")], cache=tmp_path / "cache")
        server.reset()
        assert_same(first[0], vs.scan([server.url("v.h5")], cache=tmp_path / "cache")[0])
        assert sorted(path for _, path, *_ in server.log) == ["/s0.h5", "/s1.h5", "/v.h5"]
        put(virtual.with_name("s1.h5"), np.arange(20.0)[10:])
        again = vs.scan([server.url("v.h5")], cache=tmp_path / "cache")
        assert_same(again[0], vs.scan([server.url("v.h5")])[0])
        assert not again[0].arrays["x"].equals(first[0].arrays["x"])


# -- what is stored -----------------------------------------------------------------------------------------------

BUILDERS = ["layouts", "fill_times", "types", "strings", "no_zarr_type", "odd_numbers", "bitfields", "filters", "links"]


@pytest.mark.parametrize("name", [*BUILDERS, "many_attributes", "virtual", "external"])
def test_every_kind_of_file_has_a_plain_form(name, tmp_path):
    pytest.importorskip("hdf5plugin")
    (group,) = vs.scan([make_hdf5.make(name, tmp_path)])
    heap = Heap()
    data = orjson.loads(orjson.dumps(from_group(group, heap)))
    assert_same(group, to_group(data, memoryview(b"".join(heap.parts))))


def test_groups_and_netcdf3_are_the_same_from_the_cache(tmp_path):
    paths = [make_hdf5_usual.many_groups(tmp_path / "g.nc", 3), make_hdf5_usual.daily(tmp_path / "d.nc", 2)]
    paths += [make_netcdf3.make(name, tmp_path) for name in ("usual_1", "usual_5", "attributes_2")]
    first = vs.scan(paths, cache=tmp_path / "cache")
    assert len(entries(tmp_path / "cache")) == len(paths)
    assert_all_same(first, vs.scan(paths, cache=tmp_path / "cache"))


VALUES = [
    None, True, 0, -1, 2**53, -(2**200), 1.0, -0.0, float("inf"), "", "é\0", b"", b"\xff", [], [1, [2.5]], (1, "a"),
    {"a": (1,), "": None}, np.float32(1.1), np.int8(-3), np.bool_(True), np.datetime64("2000-01-01", "s"),
    np.array([1, 2], ">i2"), np.zeros((2, 0), "f8"), np.array(3.0), np.array(["a", "bc"]), np.array([b"a", b"bc"]),
    np.array([(1, 2.0)], [("a", "<i2"), ("b", ">f8", (2,))]), np.array(["a", ""], np.dtypes.StringDType()),
    np.complex64(1 + 2j), np.asfortranarray(np.arange(6).reshape(2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_attributes_come_back_with_their_types(value):
    heap = Heap()
    data = orjson.loads(orjson.dumps(from_value(value, heap)))
    assert_same_values(to_value(data, memoryview(b"".join(heap.parts))), value)


def test_nan_comes_back():
    heap = Heap()
    assert np.isnan(to_value(from_value(float("nan"), heap), memoryview(b"")))


@pytest.mark.parametrize(
    "value",
    [
        object(), {1: 2}, {"a": 1, 2: 3}, {1, 2}, np.array([None]),
        np.array(["a"], np.dtypes.StringDType(na_object=None)), 1j, 10**4300,
        np.ma.masked_array([1, 2], [0, 1]), np.bytes_(b"a\0"), np.str_("a\0"),
        np.zeros(1, [("a", "i1", (10**6, 0)), ("b", "i4")]),
    ],
    ids=["object", "dict", "keys", "set", "objects", "texts", "complex", "digits", "mask", "bytes", "text", "fields"],
)  # fmt: skip
def test_values_without_a_plain_form_are_refused(value):
    with pytest.raises(UnstorableError):
        from_value(value, Heap())


def test_lists_that_are_too_deep_are_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UnstorableError, match="too deep in each other"):
        from_group_header(ManifestGroup(arrays={}, attributes={"a": deep}), Heap())


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "i1"), ("b", "f8")], align=True),
        np.dtype([("a", "i1"), ("b", [("c", ">f8", (2, 3))])]),
        np.dtype({"names": ["a"], "formats": ["i1"], "offsets": [3], "itemsize": 8}),
    ],
)
def test_structured_dtypes_come_back_or_are_refused(dtype):
    try:
        data = from_dtype(dtype)
    except UnstorableError:
        return
    assert to_dtype(orjson.loads(orjson.dumps(data))) == dtype


def test_a_dtype_with_metadata_is_refused():
    with pytest.raises(UnstorableError, match="with metadata"):
        from_dtype(np.dtype("i2", metadata={"a": 1}))


def watching(folder):
    """A cache, and a file that was opened through the storage that it watches."""
    (folder / "a").write_bytes(b"123")
    cache, url = ScanCache(target=Storage.from_option().target(folder), how=""), f"file://{folder}/a"
    watched = cache.watch(Storage.from_option())
    watched.source(url)
    return cache, url, watched


def test_a_group_without_a_plain_form_is_read_each_time(tmp_path):
    cache, url, watched = watching(tmp_path)
    cache.store(url, ManifestGroup(attributes={"f": object()}), watched)
    cache.store(url, ManifestGroup(attributes={"f": "\ud800"}), watched)
    assert entries(tmp_path) == []
    cache.store(url, ManifestGroup(), watched)
    assert len(entries(tmp_path)) == 1


def test_rectilinear_grids_holes_starts_and_inline_chunks_come_back(tmp_path):
    """What readers of other formats may give."""
    encoding = ChunkEncoding.c_order("<f4", (4,))
    places = {"urls": "file:///a", "offsets": [8, 0, 99], "lengths": [16, -1, 16]}
    one = referenced_array((11,), (4,), **places, fill=np.nan, name=None, dimension_names=("x",))
    two = ManifestArray(
        manifest=ChunkManifest.from_bytes([bytes(16)], shape=(1,), encoding=encoding, fill=Fill.from_value(2, "f4")),
        grid=ChunkGrid.regular((4,), (4,)), dtype=np.dtype("f4"), dimension_names=("x",),
    )  # fmt: skip
    joined = np.concatenate([one, two, one[1:]])
    assert not joined.grid.is_regular
    assert joined.in_memory().starts is not None
    group = ManifestGroup(
        arrays={"a": replace(joined, dimension_names=("x",))},
        coordinates=frozenset("a"),
        dimensions={"x": 25},
        url=None,
    )
    cache, url, watched = watching(tmp_path)
    cache.store(url, group, watched)
    assert_same(group, cache.load(url, Storage.from_option()))


# -- what is not believed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign", "pickle", "folder"])
def test_damaged_and_foreign_entries_are_ignored_and_written_anew(files, reads, tmp_path, damage):
    wanted, _ = reads(files)
    marker = tmp_path / "marker"
    for path in entries(tmp_path / "cache"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()
        if damage == "folder":
            path.mkdir()
        else:
            content = {
                "empty": b"",
                "cut": data[: len(data) // 2],
                "flipped": data,
                "foreign": b"\x89PNG\r\n" * 99,
                "pickle": pickle.dumps(Evil(str(marker))),
            }[damage]
            path.write_bytes(content)
    if damage == "folder":
        with pytest.warns(UserWarning, match="could not be cached"):
            got, read = reads(files)
    else:
        got, read = reads(files)
        assert reads(files)[1] == []
    assert sorted(read) == [path.name for path in files]
    assert_all_same(wanted, got)
    assert not marker.exists()


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_forged_entries_never_end_in_an_error(tmp_path_factory, data):
    """With a right checksum: any part of the JSON is replaced, removed or grown."""
    folder = tmp_path_factory.mktemp("forged")
    path = make(folder / "a.h5")
    url = f"file://{path}"
    storage = Storage.from_option()
    cache = ScanCache.at(folder / "cache", storage, HDF5(), ReadOptions(), is_checked=False)
    watched = cache.watch(storage)
    cache.store(url, HDF5().read(url, watched, ReadOptions()), watched)
    (entry,) = entries(folder / "cache")
    header, heap = opened(entry)
    change(header, data)
    entry.write_bytes(forged(header, heap))
    got = cache.load(url, storage)
    if got is not None:
        for array in got.arrays.values():
            array.validate()


def opened(entry):
    body = bytes(zstd.decompress(entry.read_bytes()[24:]))
    length = int.from_bytes(body[:8], "little")
    return orjson.loads(body[8 : 8 + length]), body[8 + length :]


def forged(header, heap):
    text = orjson.dumps(header)
    packed = zstd.compress(len(text).to_bytes(8, "little") + text + heap, 1)
    return b"vs.scan\n" + hashlib.blake2b(packed, digest_size=16).digest() + packed


ODD = st.sampled_from([None, -1, 0, 1, 2**40, 2**62, 2**63 - 1, 1.5, "", "O", "<f4", "V0", [], [1], {}, True])


def change(node, data):
    """Walk to some place of the JSON, and put something odd there."""
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(node[key], dict | list) and node[key] and data.draw(st.integers(0, 5)):
            node = node[key]
            continue
        if data.draw(st.booleans()):
            del node[key]
        else:
            node[key] = data.draw(ODD)
        return


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("arrays", "x", "shape"), [2**50, 5]),
        (("arrays", "x", "chunk_shapes"), [2, [0, 16]]),
        (("arrays", "x", "dtype"), "|O"),
        (("arrays", "x", "dtype"), "<f8"),
        (("arrays", "x", "encodings"), [{"dtype": "<f4", "shape": [2, 5], "codecs": [], "strides": [2**40, 1]}]),
        (("arrays", "x", "encodings"), []),
        (("arrays", "x", "locations"), [["file:///a", 10, None, None]]),
        (("arrays", "x", "chunks"), [0, 5]),
        (("arrays", "x", "fill_values"), []),
        (("arrays", "x", "dimension_names"), ["a"]),
        (("url",), 3),
    ],
)
def test_entries_that_contradict_themselves_are_not_used(tmp_path, where, value):
    path = make(tmp_path / "a.h5")
    vs.scan([path], cache=tmp_path / "cache")
    (entry,) = entries(tmp_path / "cache")
    header, heap = opened(entry)
    node = header["group"]
    for key in where[:-1]:
        node = node[key]
    node[where[-1]] = value
    entry.write_bytes(forged(header, heap))
    assert_same(vs.scan([path])[0], vs.scan([path], cache=tmp_path / "cache")[0])


def test_chunks_of_all_arrays_together_are_bounded(monkeypatch):
    """Each array for itself would be small enough."""
    array = referenced_array((60,), (1,), dimension_names=("x",))
    group = ManifestGroup(arrays={"a": array}, groups={"g": ManifestGroup(arrays={"b": array})})
    heap = Heap()
    data = from_group(group, heap)
    monkeypatch.setattr(sys.modules["virtualstack.scanning.plain_groups"], "_MAX_CELLS", 119)
    with pytest.raises(ManifestError, match="more than 119 chunks"):
        to_group(data, memoryview(b"".join(heap.parts)))
    with pytest.raises(UnstorableError, match="120 chunks"):
        from_group(group, Heap())
    assert from_group(group.groups["g"], Heap())


def test_an_entry_under_the_name_of_another_is_not_used(files, reads, tmp_path):
    reads(files)
    paths = entries(tmp_path / "cache")
    paths[0].write_bytes(paths[1].read_bytes())
    result, read = reads(files)
    assert len(read) == 1
    assert_all_same(vs.scan(files), result)


# -- where the cache is -------------------------------------------------------------------------------------------


def test_two_scans_at_a_time_share_a_cache(files, reads, tmp_path):
    results = [None] * 4

    def scan(i):
        results[i] = vs.scan(files * 3, cache=tmp_path / "cache")

    threads = [threading.Thread(target=scan, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wanted = vs.scan(files * 3)
    for result in (*results, vs.scan(files * 3, cache=tmp_path / "cache")):
        assert_all_same(wanted, result)
    assert len(entries(tmp_path / "cache")) == N


def test_the_cache_may_be_in_a_bucket(files, s3):
    storage = {"s3://bucket/": s3.options}
    first = vs.scan(files, cache="s3://bucket/cache", storage=storage)
    kept = [key for key in Storage.from_option(storage).target("s3://bucket/cache").list() if key.endswith(".scan")]
    assert len(kept) == N
    assert_all_same(first, vs.scan(files, cache="s3://bucket/cache", storage=storage))
    assert b"secret" not in b"".join(Storage.from_option(storage).target("s3://bucket/cache").get(key) for key in kept)


def test_a_place_that_cannot_be_written_to_is_told_at_once(files, tmp_path):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(StorageError, match="cache"):
        vs.scan(files, cache=tmp_path / "cache", on_error="skip")


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_place_that_is_no_directory_is_named_with_the_cause(files, tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=rf"cache='.*{place}' cannot be created .*\[Errno"):
        vs.scan(files, cache=tmp_path / place)


def test_a_cache_that_may_only_be_read_is_used(files, reads, tmp_path):
    """As on a web server; what is new is not kept, with a warning."""
    first, _ = reads(files[1:])
    with RangeServer(tmp_path) as server:
        again, read = reads(files[1:], cache=server.url("cache"), retries=0)
        assert read == []
        assert_all_same(first, again)
        with pytest.warns(UserWarning, match=r"f0\.h5' could not be cached"):
            assert reads(files, cache=server.url("cache"))[1] == ["f0.h5"]
        with pytest.raises(StorageError, match="cannot be created or written"):
            reads(files, cache=server.url("data"))


def test_a_cache_says_what_it_is(files, reads, tmp_path):
    """Programs that make backups leave out folders with this file (bford.info/cachedir)."""
    reads(files)
    text = (tmp_path / "cache" / "CACHEDIR.TAG").read_text()
    assert text.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")


def test_a_scan_fills_the_cache_of_open_virtual_mfdataset(tmp_path, monkeypatch):
    """The documented options make the entries that joining files asks for."""
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3.0)
    options = vs.readers.ReadOptions(is_tree=False, is_part=True)
    vs.scan([path], cache=tmp_path / "cache", options=options)
    monkeypatch.setattr(vs.readers.HDF5, "read", None)
    assert vs.open_virtual_mfdataset([path], cache=tmp_path / "cache").x.size == 3
