"""Sources that changed after they were indexed, and what a storage is told to make of them."""

import asyncio
import os
import pickle
import warnings
from dataclasses import replace

import fsspec
import numpy as np
import pytest
from zarr.core.buffer import default_buffer_prototype

from tests.servers import RangeServer
from virtualstack.errors import SourceChangedError, StorageError
from virtualstack.manifests import ManifestGroup
from virtualstack.reading import read_array
from virtualstack.scanning.cache import WatchedStorage
from virtualstack.scanning.job import with_retries
from virtualstack.storage import MemoryTarget, SourceChangedWarning, Storage
from virtualstack.testing.strategies import store_array
from virtualstack.zarr.store import ManifestStore

OLD, NEW = b"0123456789", b"abcdefghijkl"


@pytest.fixture(params=["local", "memory", "http", "s3", "fsspec"])
def changing(request, tmp_path):
    """A storage, a URL, and what puts other bytes there."""
    match request.param:
        case "local" | "fsspec":
            path = tmp_path / "x"
            options = fsspec.filesystem("file") if request.param == "fsspec" else None
            yield Storage.from_option(options), f"file://{path}", path.write_bytes
        case "memory":
            target = MemoryTarget(f"memory://{tmp_path.name}")
            yield Storage.from_option(), target.url + "x", lambda data: target.put("x", data)
        case "http":
            files = {}
            with RangeServer(files) as server:
                yield Storage.from_option(), server.url("x"), lambda data: files.update(x=data)
        case "s3":
            s3 = request.getfixturevalue("s3")
            yield Storage.from_option({"s3://bucket": s3.options}), "s3://bucket/x", lambda data: s3.put("x", data)


@pytest.mark.parametrize("changing", ["local", "memory", "http", "s3"], indirect=True)
def test_an_error_unless_told_otherwise(changing):
    """As ever: on opening, or with the first bytes that are read."""
    storage, url, put = changing
    put(OLD)
    expected = storage.source(url).location
    put(NEW)
    for told in (storage, storage.with_stale("ignore").with_stale("error")):
        with pytest.raises(SourceChangedError, match=r"changed after it was indexed: 12 B instead of 10 B"):
            told.source(url, expected=expected).read(0, 2)


def test_what_is_there_now_is_read(changing):
    """All of it, beyond the size that was; nothing is said."""
    storage, url, put = changing
    put(OLD)
    expected = storage.source(url).location
    put(NEW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        source = storage.with_stale("ignore").source(url, expected=expected)
    assert source.read(0, source.size) == NEW


def test_a_warning_names_what_was_and_what_is(changing):
    """One for each source that is opened."""
    storage, url, put = changing
    put(OLD)
    expected = storage.source(url).location
    put(NEW)
    with pytest.warns(SourceChangedWarning, match=rf"'{url}' .* 12 B instead of 10 B") as caught:
        source = storage.with_stale("warn").source(url, expected=expected)
    assert source.read(0, source.size) == NEW
    assert len(caught) == 1


def test_what_is_as_it_was_is_no_matter(changing):
    """Nor is another time, or an etag that is not known on both sides."""
    storage, url, put = changing
    put(OLD)
    found = storage.source(url).location
    for expected in (found, replace(found, url="s3://mirror/x", last_modified=1.0), replace(found, etag=None)):
        for stale in ("error", "warn", "ignore"):
            assert storage.with_stale(stale).source(url, expected=expected).read(0, 10) == OLD


def test_a_source_that_shrank_is_an_error_all_the_same(changing):
    """No bytes are made up."""
    storage, url, put = changing
    put(NEW)
    expected = storage.source(url).location
    put(OLD)
    with pytest.raises(StorageError, match=r"has 10 bytes, but 2 bytes from offset 10 were requested"):
        storage.with_stale("ignore").source(url, expected=expected).read(10, 2)


def a_changed_array(tmp_path):
    """An array of four chunks whose source was written again, with other values."""
    old, new = (
        store_array(np.arange(n, n + 16, dtype="<i4").reshape(4, 4), (2, 2), url=f"file://{tmp_path}/x") for n in (0, 1)
    )
    (raw,) = old[2].values()
    (tmp_path / "x").write_bytes(raw)
    location = Storage.from_option().source(tmp_path / "x").location
    (raw,) = new[2].values()
    (tmp_path / "x").write_bytes(raw)
    os.utime(tmp_path / "x", (1, 1))
    return replace(old[0], manifest=replace(old[0].manifest, locations=(location,))), new[1]


def through_zarr(array, storage):
    store = ManifestStore(ManifestGroup(arrays={"v": array}), storage)
    found = asyncio.run(store.get("v/c/1/1", default_buffer_prototype()))
    return np.frombuffer(found.to_bytes(), "<i4").reshape(2, 2)


READS = {
    "many chunks": (lambda array, storage: read_array(array, ..., storage), ...),
    "one chunk": (lambda array, storage: read_array(array, (3, 2), storage), (3, 2)),
    "zarr": (through_zarr, (slice(2, 4), slice(2, 4))),
}


@pytest.mark.parametrize("read", READS)
def test_all_who_read_do_as_the_storage_says(tmp_path, read):
    """Chunks together, one chunk the short way, and zarr."""
    array, values = a_changed_array(tmp_path)
    get, where = READS[read]
    storage = Storage.from_option()
    with pytest.raises(SourceChangedError, match=r"modified 1970-01-01 instead of 2"):
        get(array, storage)
    with pytest.warns(SourceChangedWarning, match=r"modified 1970-01-01 instead of 2"):
        np.testing.assert_array_equal(get(array, storage.with_stale("warn")), values[where])
    np.testing.assert_array_equal(get(array, storage.with_stale("ignore")), values[where])


def test_it_is_part_of_the_storage():
    """It goes to workers and through what makes other storages of one; options stay."""
    storage = Storage.from_option({"s3://b": {"n": 1}})
    told = storage.with_stale("warn")
    assert told != storage
    assert told == storage.with_stale("warn")
    assert told.find("s3://b/x") == storage.find("s3://b/x")
    assert pickle.loads(pickle.dumps(told)) == told
    assert Storage.from_option(told) is told
    assert told.once("s3://b/x").stale == "warn"
    assert with_retries(told, ["s3://b/x"], 3).stale == "warn"
    assert repr(told).endswith(", stale='warn')")
    assert "stale" not in repr(storage)
    with pytest.raises(ValueError, match=r"stale='no'; it must be 'error', 'warn', 'ignore' or None"):
        storage.with_stale("no")


def test_what_is_watched_for_the_cache_does_so_too(tmp_path):
    """The storage of a scan that is kept."""
    watched = WatchedStorage(stale="ignore")
    (tmp_path / "x").write_bytes(OLD)
    location = replace(watched.source(tmp_path / "x").location, size=99)
    assert watched.source(tmp_path / "x", expected=location).size == 10
