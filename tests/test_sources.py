"""Sources that are elsewhere, wrong, or gone: the right class of error, naming URL and remedy; else equal values."""

import os

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file, opened
from tests.servers import RangeServer
from virtualstack.errors import (
    MalformedFileError,
    ReaderError,
    SourceChangedError,
    SourceNotFoundError,
    StorageError,
    UnknownFormatError,
)


def make_bytes(path, start=0):
    time = ("f8", "time", [start], {"units": "days since 2000-01-01"})
    v = ("f4", "time x", np.arange(50)[None] + start, {}, {"zlib": True, "chunksizes": (1, 20)})
    return netcdf4_file(path, {"time": None, "x": 50}, {"time": time, "v": v}).read_bytes()


@pytest.fixture
def data(tmp_path):
    return make_bytes(tmp_path / "source.nc")


@pytest.fixture
def expected(tmp_path, data):
    return opened(tmp_path / "source.nc")


@pytest.mark.parametrize("mode", ["normal", "ignore_ranges", "no_head", "redirect", "no_total"])
def test_web_servers_of_every_kind_give_the_values(data, expected, mode):
    """Values over http are those of the local file, from servers without ranges too."""
    with RangeServer({"a.nc": data}, mode=mode) as server:
        vds = vs.open_virtual_dataset(server.url("a.nc"))
        xr.testing.assert_identical(vds.virtual.open().load(), expected)


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_answers_of_servers_become_typed_errors(data, status):
    """403, 404 and 500 are errors that name the URL and what the server said, at opening and at reading."""
    quick = {"max_retries": 1, "retry_timeout": 2}
    kind = SourceNotFoundError if status == 404 else StorageError
    with RangeServer({"a.nc": data}) as server:
        url = server.url("a.nc")
        storage = {server.root: quick}
        lazy = vs.open_virtual_dataset(url, storage=storage).virtual.open()
        server.mode, server.status = "status", status
        with pytest.raises(kind, match=r"a\.nc"):
            vs.open_virtual_dataset(url, storage=storage)
        with pytest.raises(kind, match=r"a\.nc"):
            lazy.v.load()


@pytest.mark.parametrize("mode", ["short_body", "cut_body", "short_range"])
def test_short_answers_are_never_taken_for_data(data, mode):
    """A body that is shorter than asked for is an error, not padding."""
    with RangeServer({"a.nc": data}) as server:
        storage = {server.root: {"max_retries": 1, "retry_timeout": 2}}
        lazy = vs.open_virtual_dataset(server.url("a.nc"), storage=storage).virtual.open()
        server.mode = mode
        with pytest.raises(StorageError, match=r"a\.nc"):
            lazy.v.load()


def test_buckets_take_references_and_values(data, expected, s3_server):
    """The whole path over S3: scan, write references, open them with what the open was given."""
    s3_server.put("cube/a.nc", data)
    url = "s3://bucket/cube/a.nc"
    vds = vs.open_virtual_dataset(url, storage={"s3://bucket/": s3_server.options})
    xr.testing.assert_identical(vds.virtual.open().load(), expected)  # the dataset carries its storage along
    for target in ("s3://bucket/refs.json", "s3://bucket/refs.parq"):
        vds.virtual.to_kerchunk(target)
        opened = xr.open_dataset(target, engine="virtualstack", storage={"s3://bucket/": s3_server.options})
        xr.testing.assert_identical(opened.load(), expected)
        assert "secret" not in str(vds.virtual.to_kerchunk(None))


def test_what_a_bucket_refuses_says_who_asked(s3_server, data):
    """The message names the identities that were tried and the remedy."""
    s3_server.put("secret/a.nc", data)
    storage = {"s3://nowhere/": {**s3_server.options, "max_retries": 1}}
    with pytest.raises(SourceNotFoundError, match=r"s3://nowhere/a\.nc"):
        vs.open_virtual_dataset("s3://nowhere/a.nc", storage=storage)
    with RangeServer({}, mode="status", status=403) as server:
        options = {"endpoint": server.root.rstrip("/"), "allow_http": True, "max_retries": 0}
        with pytest.raises(StorageError, match=r"(?s)anonymous.*storage=") as caught:
            vs.open_virtual_dataset("s3://bucket/a.nc", storage={"s3://bucket/": options})
        assert caught.value.url == "s3://bucket/a.nc"


def truncated(data):
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("half.nc", truncated, MalformedFileError, "half.nc"),
        ("empty.nc", lambda data: b"", ReaderError, "empty"),
        ("text.nc", lambda data: b"hello, world\n", MalformedFileError, "named like HDF5.*68 65 6c"),
        ("page.nc", lambda data: b"<!DOCTYPE html><html>Not found</html>", UnknownFormatError, "web page"),
        ("zipped.nc", lambda data: b"\x1f\x8b\x08\x00" + data, MalformedFileError, "cannot be unpacked"),
        ("field.nc", lambda data: b"GRIB" + bytes(100), ReaderError, "GRIB"),
        ("classic.nc", lambda data: b"CDF\x01" + bytes(8), MalformedFileError, "netCDF-3"),
        ("scene.h5", lambda data: b"II*\x00" + bytes(100), ReaderError, "TIFF"),
        ("data", lambda data: bytes(64), UnknownFormatError, "data"),
        ("refs.json", lambda data: b'{"version": 1', MalformedFileError, "refs.json"),
    ],
)
def test_files_that_are_not_what_they_seem(tmp_path, data, name, content, error, message):
    """Damaged, empty and foreign files raise a typed error that names the file."""
    path = tmp_path / name
    path.write_bytes(content(data))
    with pytest.raises(error, match=message) as caught:
        vs.open_virtual_dataset(path)
    assert caught.value.url == f"file://{path}"


def test_a_suffix_is_only_a_hint(tmp_path, data):
    """The first bytes decide; reader= overrides, and must fit."""
    path = tmp_path / "model.grib"
    path.write_bytes(data)
    assert "v" in vs.open_virtual_dataset(path)
    assert "v" in vs.open_virtual_dataset(path, reader="hdf5")
    assert "v" in vs.open_virtual_dataset(path, reader=vs.readers.HDF5())
    with pytest.raises(ReaderError, match="nope"):
        vs.open_virtual_dataset(path, reader="nope")
    with pytest.raises(ReaderError, match=r"model\.grib"):
        vs.open_virtual_dataset(path, reader="kerchunk")


def test_paths_that_lead_nowhere(tmp_path):
    """Missing files, directories and unreadable files are told apart."""
    with pytest.raises(SourceNotFoundError, match=r"missing\.nc"):
        vs.open_virtual_dataset(tmp_path / "missing.nc")
    with pytest.raises(FileNotFoundError):
        vs.open_virtual_dataset(tmp_path / "missing.nc")
    with pytest.raises((ReaderError, StorageError), match="directory"):
        vs.open_virtual_dataset(tmp_path)
    os.mkfifo(tmp_path / "pipe.nc")
    with pytest.raises(StorageError, match=r"pipe\.nc"):
        vs.open_virtual_dataset(tmp_path / "pipe.nc")
    with pytest.raises(StorageError, match="gopher"):
        vs.open_virtual_dataset("gopher://host/a.nc")


def test_a_name_that_is_too_long_is_an_error_of_storage(tmp_path, data):
    """What the file system refuses has our class, when reading and when writing."""
    with pytest.raises(StorageError, match="too long"):
        vs.open_virtual_dataset(tmp_path / ("a" * 300 + ".nc"))
    (tmp_path / "a.nc").write_bytes(data)
    vds = vs.open_virtual_dataset(tmp_path / "a.nc")
    for suffix in (".json", ".parq"):
        with pytest.raises(StorageError, match="too long"):
            vds.virtual.to_kerchunk(tmp_path / ("a" * 300 + suffix))


def test_odd_names_are_names(tmp_path, expected, data):
    """Blanks, percent signs, hashes and letters of any script stand for themselves."""
    folder = tmp_path / "a b%20c#d"
    folder.mkdir()
    path = folder / "größe?.nc"
    path.write_bytes(data)
    vds = vs.open_virtual_dataset(path)
    xr.testing.assert_identical(vds.virtual.open().load(), expected)
    vds.virtual.to_kerchunk(folder / "refs.json")
    xr.testing.assert_identical(xr.open_dataset(folder / "refs.json", engine="virtualstack").load(), expected)


def test_a_source_that_changed_is_found(tmp_path, data):
    """A file of another size is not read with the old references."""
    path = tmp_path / "a.nc"
    path.write_bytes(data)
    lazy = vs.open_virtual_dataset(path).virtual.open()
    path.write_bytes(data + b"more")
    with pytest.raises(SourceChangedError, match=r"a\.nc"):
        lazy.v.load()


def test_a_source_written_again_with_the_same_size_is_found(tmp_path, data, expected):
    """It is another version for lazy values and for virtual datasets, which have no digest; a copy is not.

    A store has a digest, and tells other bytes of the same length from the same bytes with another time.
    """
    path = tmp_path / "a.nc"
    path.write_bytes(data)
    vds = vs.open_virtual_dataset(path)
    lazy = vds.virtual.open()
    copy = vds.virtual.rename_locations({f"file://{path}": f"file://{tmp_path / 'source.nc'}"})
    vds.virtual.to_vstack(tmp_path / "x.vstack")
    path.write_bytes(data)
    os.utime(path, (0, 0))
    modified = r"modified 1970-01-01 instead of \d{4}-\d\d-\d\d\. .*stale='warn'"
    for opened_before in (lazy, vds.virtual.open()):
        with pytest.raises(SourceChangedError, match=rf"a\.nc' changed after it was indexed: {modified}"):
            opened_before.v.load()
    xr.testing.assert_identical(xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack"), expected)
    xr.testing.assert_identical(copy.virtual.open().load(), expected)
    xr.testing.assert_identical(vs.open_virtual_dataset(path).virtual.open().load(), expected)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(path, (9, 9))
    with pytest.raises(SourceChangedError, match=rf"a\.nc' changed after it was indexed: other content, {modified}"):
        xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack")


def test_damage_in_a_chunk_is_found_when_it_is_read(tmp_path, data):
    """Bytes that do not decode raise with variable, cell, source, offset and length; other chunks are fine."""
    path = tmp_path / "a.nc"
    path.write_bytes(data)
    vds = vs.open_virtual_dataset(path)
    entry = vds.v.variable._data.in_memory().entries[0, 1]
    damaged = bytearray(data)
    damaged[int(entry["offset"]) + 2 : int(entry["offset"]) + 20] = bytes(18)
    status = path.stat()
    path.write_bytes(damaged)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # a disk that rots leaves no time
    lazy = vds.virtual.open()
    np.testing.assert_array_equal(lazy.v[0, :20], np.arange(20))
    with pytest.raises(vs.errors.ChunkDecodeError, match=r"\(0, 1\) of variable 'v'.*a\.nc") as caught:
        lazy.v.load()
    assert (caught.value.cell, caught.value.offset) == ((0, 1), int(entry["offset"]))
