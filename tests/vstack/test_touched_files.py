"""Files that were touched, copied, restored or written again: only those with other content are changed files."""

import itertools
import os
import shutil
import subprocess
import time
import zlib

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load as read
from tests.servers import RangeServer
from tests.vstack.archive import as_read, change_snapshot, days, join
from virtualstack.errors import SourceChangedError
from virtualstack.storage import SourceChangedWarning, digests, source

OTHER_TIME = 1_000_000_000


@pytest.fixture
def archive(tmp_path):
    """Four files, and a vstack with their absolute paths."""
    paths = days(tmp_path / "data")
    join(paths).virtual.to_vstack(tmp_path / "x.vstack")
    return paths


def copied(command, path):
    """Put a copy in the place of a file, by a command, with the file as backup."""
    backup = path.with_suffix(".bak")
    path.rename(backup)
    subprocess.run([*command, backup, path], check=True)


def restored_with_older_time(path):
    copied(["cp"], path)
    os.utime(path, (OTHER_TIME, OTHER_TIME))


TOUCHES = {
    "touch": lambda path: os.utime(path),
    "cp": lambda path: copied(["cp"], path),
    "cp -p": lambda path: copied(["cp", "-p"], path),
    "rsync -a": lambda path: copied(["rsync", "-a"], path),
    "rsync": lambda path: copied(["rsync"], path),
    "an older backup": restored_with_older_time,
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_a_file_with_another_time_opens(archive, tmp_path, touch):
    """Every way to give a file another time or inode leaves its values."""
    if touch.startswith("rsync") and shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    expected = as_read(archive)
    TOUCHES[touch](archive[1])
    xr.testing.assert_equal(read(tmp_path / "x.vstack"), expected)
    repository = vs.Repository.open(tmp_path / "x.vstack")
    assert repository.verify(sample=1.0).is_good
    assert not repository.refresh().refreshed


def test_the_digest_is_read_once_for_files_that_are_read(archive, tmp_path, monkeypatch):
    """Of touched files, only those whose chunks are read are looked into."""
    asked = []
    made = digests._local_digest
    monkeypatch.setattr(digests, "_local_digest", lambda url, *rest: asked.append(url) or made(url, *rest))
    for path in archive:
        os.utime(path, (OTHER_TIME, OTHER_TIME))
    for _ in range(2):
        dataset = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")
        dataset["t"][:2].load()
    assert asked == [f"file://{archive[0]}"]


def chunk_rewritten(path):
    """Put another zlib stream of the same length into a chunk, as software that writes in place may do."""
    with h5py.File(path) as file:
        info = file["t"].id.get_chunk_info(3)
    data = bytearray(path.read_bytes())
    stored = bytes(data[info.byte_offset : info.byte_offset + info.size])
    values = bytearray(zlib.decompress(stored))
    for bit in range(8 * len(values)):
        values[bit // 8] ^= 1 << bit % 8
        made = zlib.compress(bytes(values), 4)
        values[bit // 8] ^= 1 << bit % 8
        if len(made) == len(stored) and made != stored:
            data[info.byte_offset : info.byte_offset + info.size] = made
            return path.write_bytes(data)
    raise AssertionError("no other stream has this length")


def attribute_changed(path):
    with h5py.File(path, "r+") as file:
        file["time"].attrs.modify("units", np.bytes_("hours since 2001-01-01"))


def truncated(path):
    path.write_bytes(path.read_bytes()[:-1])


def grown(path):
    path.write_bytes(path.read_bytes() + b"x")


CHANGES = {
    "an attribute": (attribute_changed, "other content"),
    "a chunk of the same length": (chunk_rewritten, "other content"),
    "truncated": (truncated, "10,9.. bytes instead of 10,9.. bytes"),
    "grown": (grown, "10,9.. bytes instead of 10,9.. bytes"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_with_other_content_is_changed(archive, tmp_path, change):
    """The message names the file, the difference in words, the command and the option; no epoch number."""
    how, words = CHANGES[change]
    how(archive[1])
    os.utime(archive[1], (OTHER_TIME, OTHER_TIME))
    with pytest.raises(SourceChangedError, match=rf"001\.nc' changed after it was indexed: {words}") as caught:
        read(tmp_path / "x.vstack")
    assert "Scan it again (in a vstack: 'virtualstack refresh'). Or read it as it is with stale='warn'" in str(
        caught.value
    )
    assert str(OTHER_TIME) not in str(caught.value)
    assert [x.status for x in vs.Repository.open(tmp_path / "x.vstack").verify().problems] == ["changed"]


def test_a_chunk_of_a_file_that_is_not_read_whole(tmp_path):
    """In files above 256 KiB the end of a chunk is sampled, where deflate has a checksum of it."""
    path = tmp_path / "day.nc"
    values = np.random.default_rng(0).integers(0, 99, (10, 64, 64)).astype("f4")
    made = {"v": {"chunksizes": (1, 16, 64), "zlib": True, "complevel": 1}, "raw": {"zlib": False}}
    noise = np.random.default_rng(1).normal(size=(64, 64, 64))
    dataset = xr.Dataset({"v": (("t", "y", "x"), values), "raw": (("t2", "y", "x"), noise)})
    dataset.to_netcdf(path, engine="h5netcdf", encoding=made)
    vs.open_virtual_dataset(path).virtual.to_vstack(tmp_path / "x.vstack")
    os.utime(path, (OTHER_TIME, OTHER_TIME))
    xr.testing.assert_equal(read(tmp_path / "x.vstack"), xr.load_dataset(path))
    first, last = read_chunks(path, "v")[0], read_chunks(path, "v")[-1]
    for offset, n in (first, last):
        data = bytearray(path.read_bytes())
        data[offset + n - 6] ^= 1  # as if written again with another checksum
        (tmp_path / "new").write_bytes(data)
        shutil.copy2(tmp_path / "new", path)
        with pytest.raises(SourceChangedError, match="other content"):
            read(tmp_path / "x.vstack")
        data[offset + n - 6] ^= 1
        path.write_bytes(data)


def read_chunks(path, name):
    with h5py.File(path) as file:
        chunks = [file[name].id.get_chunk_info(i) for i in range(file[name].id.get_num_chunks())]
    return [(x.byte_offset, x.size) for x in chunks]


def test_the_option_that_the_message_names(archive, tmp_path):
    """Every function that opens a vstack has it; the virtual dataset carries it along."""
    chunk_rewritten(archive[1])
    os.utime(archive[1], (OTHER_TIME, OTHER_TIME))
    now = as_read(archive)["t"]
    url = str(tmp_path / "x.vstack")
    opened = {
        "dataset": lambda: vs.open_virtual_dataset(url, stale="warn").virtual.open(),
        "mfdataset": lambda: vs.open_virtual_mfdataset([url], stale="warn").virtual.open(),
        "tree": lambda: vs.open_virtual_datatree(url, stale="warn").virtual.open(),
        "mftree": lambda: vs.open_virtual_mfdatatree([url], stale="warn").virtual.open(),
        "engine": lambda: xr.open_dataset(url, engine="virtualstack", stale="warn"),
    }
    for name, open_it in opened.items():
        with pytest.warns(SourceChangedWarning, match=r"001\.nc"):
            np.testing.assert_array_equal(open_it()["t"].values, now, err_msg=name)


def changed_between_samples(path):
    """Change a value that is in no sample: a byte in the middle of a large chunk."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 1000] ^= 1
    path.write_bytes(data)


@pytest.fixture
def large(tmp_path):
    """A file with chunks that are not compressed, as the default digest only samples them."""
    path = tmp_path / "large.nc"
    values = np.random.default_rng(0).normal(size=(4, 500, 500)).astype("f4")
    xr.Dataset({"v": (("t", "y", "x"), values)}).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize("checksums", [False, True])
def test_checksums_cover_all_bytes(large, tmp_path, checksums):
    """A byte between the samples escapes the default digest, as documented, and no checksum of all bytes."""
    vs.open_virtual_dataset(large).virtual.to_vstack(tmp_path / "x.vstack", checksums=checksums)
    then = large.stat().st_mtime
    changed_between_samples(large)
    os.utime(large, (then, then))  # neither time nor size tells
    found = vs.Repository.open(tmp_path / "x.vstack").verify(sample=1.0)
    assert [x.status for x in found.chunks] == ["different" if checksums else "equal"]
    os.utime(large, (OTHER_TIME, OTHER_TIME))
    if checksums:
        assert found.chunks[0].reason == "its source has other content than when the store was written"
        with pytest.raises(SourceChangedError, match="other content, modified 2001-09-09 instead of"):
            read(tmp_path / "x.vstack")
    else:
        xr.testing.assert_equal(read(tmp_path / "x.vstack"), xr.load_dataset(large))


def test_verify_compares_with_what_was_recorded(archive, tmp_path):
    """A chunk that was replaced without another time or size is different, though it equals itself."""
    then = archive[1].stat().st_mtime_ns
    chunk_rewritten(archive[1])
    os.utime(archive[1], ns=(then, then))
    found = vs.Repository.open(tmp_path / "x.vstack").verify(sample=1.0)
    different = [x for x in found.chunks if x.status == "different"]
    assert {x.url for x in different} == {f"file://{archive[1]}"}


def test_the_digest_of_an_earlier_version(archive, tmp_path):
    """A store whose digests cover the beginning, middle and end opens touched files, and new ones are added to it."""

    def with_old_digests(document):
        for segment in document["segments"]["tail"]:
            rows = segment["sources"]
            rows["digest"] = [digests.read_digest(vs.storage.local.look_up_local(f"file://{x}")) for x in archive]

    change_snapshot(tmp_path / "x.vstack", with_old_digests)
    expected = as_read(archive)
    os.utime(archive[2], (OTHER_TIME, OTHER_TIME))
    xr.testing.assert_equal(read(tmp_path / "x.vstack"), expected)


REPLICAS = {
    "in turn": itertools.count,
    "at random": lambda: iter(np.random.default_rng(0).integers(0, 2, 10_000).tolist()),
}


@pytest.mark.parametrize("order", REPLICAS)
def test_replicas_with_their_own_etags(tmp_path, order):
    """A name behind which two servers have other etags for the same file opens, and another file does not."""
    paths, turns = days(tmp_path / "data"), REPLICAS[order]()
    with RangeServer(tmp_path / "data", tag=lambda etag: f'"{next(turns) % 2}-{etag[1:]}') as server:
        join([server.url(x.name) for x in paths]).virtual.to_vstack(tmp_path / "x.vstack")
        for _ in range(4):
            source._REPLICAS.clear()
            xr.testing.assert_equal(read_allowed(tmp_path / "x.vstack", server), as_read(paths))
        assert vs.Repository.open(tmp_path / "x.vstack", allow=server.root).verify().is_good
        paths[1].write_bytes(paths[1].read_bytes() + b"x")
        with pytest.raises(SourceChangedError, match="instead of"):
            read_allowed(tmp_path / "x.vstack", server)


TAGS = {
    "none": None,
    "weak": lambda etag: f"W/{etag[:-1]}{time.monotonic_ns()}{etag[-1]}",
    "strong": lambda etag: etag,
}


@pytest.mark.parametrize("tag", TAGS)
def test_a_file_that_was_touched_on_a_server(tmp_path, tag):
    """Another Last-Modified is no change; other content is one, by the strong etag or else by the digest."""
    paths, words = days(tmp_path / "data"), "its ETag is" if tag == "strong" else "other content, modified 2001"
    with RangeServer(tmp_path / "data", tag=TAGS[tag]) as server:
        join([server.url(x.name) for x in paths]).virtual.to_vstack(tmp_path / "x.vstack")
        server.modified = OTHER_TIME
        repository = vs.Repository.open(tmp_path / "x.vstack", allow=server.root)
        for _ in range(2):
            for stale in ("error", "warn"):
                xr.testing.assert_equal(read_allowed(tmp_path / "x.vstack", server, stale=stale), as_read(paths))
        assert repository.verify(sample=1.0).is_good
        attribute_changed(paths[1])
        server.modified = OTHER_TIME + 1
        with pytest.raises(SourceChangedError, match=words):
            read_allowed(tmp_path / "x.vstack", server)
        with pytest.warns(SourceChangedWarning, match=words):
            read_allowed(tmp_path / "x.vstack", server, stale="warn")
        assert [x.url for x in repository.verify().problems] == [server.url("001.nc")]
        refreshed = repository.refresh()
        assert [refreshed.refreshed, [url for url, _ in refreshed.left]] == [(), [server.url("001.nc")]]


def test_files_with_strong_etags_take_no_requests_for_digests(tmp_path):
    """Writing a store of files whose server tells versions apart reads nothing of them."""
    paths = days(tmp_path / "data")
    with RangeServer(tmp_path / "data") as server:
        joined = join([server.url(x.name) for x in paths])
        server.reset()
        joined.virtual.to_vstack(tmp_path / "x.vstack")
        assert server.n_requests == 0


def read_allowed(url, server, **options):
    return xr.load_dataset(url, engine="virtualstack", allow=server.root, **options)


def test_checksums_of_files_on_a_server(tmp_path):
    """Without an etag, a chunk that was replaced there is different in `verify`, which reads the whole file."""
    paths = days(tmp_path / "data")
    with RangeServer(tmp_path / "data", tag=None) as server:
        vds = join([server.url(x.name) for x in paths])
        vds.virtual.to_vstack(tmp_path / "x.vstack", checksums=True)
        repository = vs.Repository.open(tmp_path / "x.vstack", allow=server.root)
        assert repository.verify(sample=1.0).is_good
        chunk_rewritten(paths[1])
        found = repository.verify(sample=1.0)
        assert {x.url for x in found.chunks if x.status == "different"} == {server.url("001.nc")}


def test_a_file_of_a_bucket_that_was_put_again(tmp_path, s3_server):
    """The same bytes have the same etag."""
    options, paths = {"s3://bucket": s3_server.options}, days(tmp_path / "data", 2)
    for path in paths * 2:
        s3_server.put(f"touched/{path.name}", path.read_bytes())
    urls = [f"s3://bucket/touched/{path.name}" for path in paths]
    join(urls, storage=options).virtual.to_vstack(tmp_path / "x.vstack")
    s3_server.put("touched/000.nc", paths[0].read_bytes())
    opened = xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack", storage=options)
    xr.testing.assert_equal(opened, as_read(paths))
    chunk_rewritten(paths[1])
    s3_server.put("touched/001.nc", paths[1].read_bytes())
    with pytest.raises(SourceChangedError, match="its ETag is"):
        xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack", storage=options)
