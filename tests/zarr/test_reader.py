"""Zarr stores of both versions, in folders and archives, beside what zarr and xarray read of them."""

import io
import json
import pickle
import re
import shutil
import struct
import time
import warnings
import zipfile
from pathlib import Path

import dask
import netCDF4
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr
from fsspec.implementations.memory import MemoryFileSystem
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

import virtualstack as vs
from tests.amount import examples
from tests.latency_server import LatencyServer
from tests.servers import RangeServer
from virtualstack.errors import (
    MalformedFileError,
    ReaderError,
    SourceChangedError,
    SourceNotFoundError,
    StorageError,
    UnknownFormatError,
    UnsupportedFeatureError,
)
from virtualstack.location import absolute_url
from virtualstack.storage import Storage
from virtualstack.zarr.archive import ZipArchive

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*not part of the Zarr format 3 spec"),
    pytest.mark.filterwarnings("ignore:.*in the Zarr version 3 spec"),
    pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification"),
    pytest.mark.filterwarnings("ignore:Duplicate name"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
]


@pytest.fixture
def dataset():
    """Coordinates, packed values, missing chunks, times and texts."""
    random = np.random.default_rng(0)
    t = random.random((4, 6, 5)).astype("f4")
    t[0, 0, 0] = np.nan
    ds = xr.Dataset(
        {
            "t": (("time", "y", "x"), t, {"units": "K"}),
            "packed": (("time", "y"), random.integers(0, 100, (4, 6)).astype("f8") / 2),
            "count": (("y", "x"), random.integers(0, 9, (6, 5), dtype="i8")),
            "flag": ("x", np.array([True, False, True, True, False])),
            "name": ("y", np.array(["a", "bc", "", "d", "é", "f"], dtype=object)),
            "scalar": ((), 3),
        },
        {"time": np.array(["2020-01-01", "2020-01-02", "2020-02-01", "2021-01-01"], "M8[ns]"), "y": np.arange(6.0)},
        {"title": "zarr"},
    )
    ds["packed"].encoding = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    ds["t"].encoding = {"chunks": (1, 4, 5)}
    return ds


def array_in_group(path, shape, chunks, dtype, *, name="v", version=3, **options):
    """Make an array, and the group that it is in; its dimensions are named."""
    dims = list("xyz"[: len(shape)])
    names = {"dimension_names": dims} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": dims}}
    array = zarr.create_array(
        path, name=name, shape=shape, chunks=chunks, dtype=dtype, zarr_format=version, **names, **options
    )
    zarr.open_group(path, mode="a", zarr_format=version)
    return array


def theirs(path, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_zarr(path, chunks=None, **options).load()


def ours(path, **options):
    return vs.open_virtual_dataset(path, loadable_variables=[], **options).virtual.open().load()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_equals_xarray(dataset, tmp_path, version, consolidated):
    path = tmp_path / "a.zarr"
    dataset.to_zarr(path, zarr_format=version, consolidated=consolidated)
    xr.testing.assert_identical(ours(path), theirs(path, consolidated=consolidated))
    vds = vs.open_virtual_dataset(path)
    xr.testing.assert_identical(vds.virtual.open().load(), theirs(path, consolidated=consolidated))
    assert vds["t"].variable._data.manifest.shape == (4, 2, 1)
    for wanted in (True, False):
        reader = vs.readers.Zarr(consolidated=wanted)
        if wanted and not consolidated:
            with pytest.raises(MalformedFileError, match="no consolidated metadata"):
                vs.open_virtual_dataset(path, reader=reader)
        else:
            xr.testing.assert_identical(ours(path, reader=reader), theirs(path, consolidated=consolidated))


@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("keys", ["default", "v2", None])
@pytest.mark.parametrize("shape", [(7, 5), (), (0, 3), (1,)])
def test_keys_of_every_kind(tmp_path, separator, keys, shape):
    """Chunks are found under any separator, in version 2 (None) and 3."""
    kind = {"name": keys, "separator": separator} if keys else {"name": "v2", "separator": separator}
    options = {"chunk_key_encoding": kind, "version": 3 if keys else 2, "fill_value": 7}
    chunks = tuple(min(3, max(1, n)) for n in shape)
    array = array_in_group(tmp_path / "a.zarr", shape, chunks, "i4", **options)
    array[...] = np.arange(array.size).reshape(shape)
    if shape == (7, 5):
        array[:3, :3] = 7  # an absent chunk
    np.testing.assert_array_equal(
        ours(tmp_path / "a.zarr", reader=vs.readers.Zarr(masks_fill_value=False))["v"], array[...]
    )


CODECS = {
    "none": {"compressors": None},
    "zstd": {"compressors": ZstdCodec(level=3)},
    "gzip+crc": {"compressors": [GzipCodec(level=1), Crc32cCodec()]},
    "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="bitshuffle", typesize=4)},
    "transposed": {"filters": [TransposeCodec(order=(2, 0, 1))], "compressors": ZstdCodec()},
    "big": {"serializer": BytesCodec(endian="big"), "compressors": None},
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("shards", [None, (4, 6, 6)])
@pytest.mark.parametrize("dtype", ["f4", "i8", "c16", "M8[s]"])
def test_codecs_within_shards_and_without(tmp_path, codec, shards, dtype):
    """Each codec gives the values that zarr gives, chunk by chunk and in shards."""
    array = array_in_group(tmp_path / "a.zarr", (9, 6, 10), (2, 3, 3), dtype, shards=shards, **CODECS[codec])
    array[:5, 2:, :] = np.random.default_rng(1).integers(0, 100, (5, 4, 10)).astype(dtype)
    vds = vs.open_virtual_dataset(tmp_path / "a.zarr", decode_times=False)
    assert vds["v"].variable._data.manifest.shape == (5, 2, 4)
    np.testing.assert_array_equal(vds.virtual.open()["v"].values, array[...])


def random_sharding(rng):
    """Give the shape of an array, that of its chunks, and that of its shards."""
    ndim = int(rng.integers(1, 4))
    shape = tuple(rng.integers(1, 13, ndim).tolist())
    chunks = tuple(rng.integers(1, 4, ndim).tolist())
    return shape, chunks, tuple(int(n * rng.integers(1, 4)) for n in chunks)


def write_boxes(array, rng):
    """Write some boxes of an array; others, and so some chunks and shards, stay unwritten."""
    for _ in range(3):
        box = tuple(slice(*sorted(rng.integers(0, n + 1, 2))) for n in array.shape)
        array[box] = rng.integers(0, 100, array[box].shape)


def _sharded(path, *, shape, chunks, shards, location, index_codecs, rng):
    codec = ShardingCodec(
        chunk_shape=chunks, codecs=[BytesCodec(), ZstdCodec()], index_codecs=index_codecs, index_location=location
    )
    options = {"fill_value": 3, "serializer": codec, "compressors": None, "filters": None}
    array = array_in_group(path, shape, shards, "i4", **options)
    write_boxes(array, rng)
    return array


@pytest.mark.parametrize("seed", range(examples(30)))
def test_shards_of_any_shape(tmp_path, seed):
    """Absent chunks, absent shards, shards beyond the end, an index at either end, with and without checksum."""
    rng = np.random.default_rng(seed)
    shape, chunks, shards = random_sharding(rng)
    array = _sharded(
        tmp_path / "a.zarr",
        shape=shape,
        chunks=chunks,
        shards=shards,
        location=("start", "end")[int(rng.integers(2))],
        index_codecs=[BytesCodec()] + [Crc32cCodec()] * int(rng.integers(2)),
        rng=rng,
    )
    vds = vs.open_virtual_dataset(tmp_path / "a.zarr")
    assert vds["v"].variable._data.manifest.shape == tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
    np.testing.assert_array_equal(vds.virtual.open()["v"].values, array[...])
    again = pickle.loads(pickle.dumps(vds))
    np.testing.assert_array_equal(again.virtual.open()["v"].values, array[...])


@pytest.mark.parametrize("sharded", [False, True])
def test_rectilinear_grids(tmp_path, sharded):
    """Chunks of several lengths along an axis, also as shards."""
    with zarr.config.set({"array.rectilinear_chunks": True}):
        options = {"shards": [[4, 8, 2], [6, 3]], "chunks": (2, 3)} if sharded else {"chunks": [[4, 8, 2], [6, 3]]}
        try:
            array = zarr.create_array(
                tmp_path / "a.zarr", name="v", shape=(14, 9), dtype="f8", dimension_names=["x", "y"], **options
            )
        except (ValueError, TypeError, NotImplementedError) as error:
            pytest.skip(f"zarr does not write it: {error}")
        zarr.open_group(tmp_path / "a.zarr", mode="a")
        array[...] = np.random.default_rng(0).random((14, 9))
        np.testing.assert_array_equal(ours(tmp_path / "a.zarr")["v"], array[...])


@pytest.mark.parametrize("version", [2, 3])
def test_trees(tmp_path, version, dataset):
    """Groups below groups, and one group by its path."""
    tree = xr.DataTree.from_dict({"/": dataset[["t"]], "/a": dataset[["count"]], "/a/b c": dataset[["packed"]]})
    tree.to_zarr(tmp_path / "a.zarr", zarr_format=version, consolidated=version == 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = xr.open_datatree(tmp_path / "a.zarr", engine="zarr", chunks=None).load()
    found = vs.open_virtual_datatree(tmp_path / "a.zarr").virtual.open().load()
    xr.testing.assert_identical(found, expected)
    xr.testing.assert_identical(ours(tmp_path / "a.zarr", group="a/b c"), expected["a/b c"].to_dataset())
    xr.testing.assert_identical(ours(tmp_path / "a.zarr" / "a"), theirs(tmp_path / "a.zarr" / "a", consolidated=False))


def test_what_is_no_chunk_is_left_out(tmp_path):
    """Other files, keys outside of the grid, and numbers with a zero in front: zarr does not look at them either."""
    array = array_in_group(tmp_path / "a.zarr", (4, 4), (2, 2), "i4")
    array[...] = 5
    folder = tmp_path / "a.zarr" / "v"
    beyond = "c/9999999999999999999999/0", "c/0/99999999999999999999"
    for name in ("c/0/7", "c/00/1", "c/1/1.tmp", "c/1/x", ".DS_Store", *beyond):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"junk")
    (folder / "c/1/0").unlink()
    np.testing.assert_array_equal(ours(tmp_path / "a.zarr")["v"], array[...])


def test_an_array_alone_and_netcdf_s_own_zarr(tmp_path):
    zarr.create_array(tmp_path / "b.zarr", shape=(3,), dtype="i4", dimension_names=["x"])[...] = [1, 2, 3]
    np.testing.assert_array_equal(ours(tmp_path / "b.zarr")["data"], [1, 2, 3])
    for mode in ("nczarr", "zarr"):
        with netCDF4.Dataset(f"file://{tmp_path}/{mode}.zarr#mode={mode},file", "w") as file:
            file.createDimension("x", 5)
            variable = file.createVariable("t", "f4", ("x",), fill_value=-1.0)
            variable[:3] = [1, 2, 3]
            variable.units, file.title = "K", "nczarr"
        xr.testing.assert_identical(ours(tmp_path / f"{mode}.zarr"), theirs(tmp_path / f"{mode}.zarr"))
        for name in ("zattrs", "zarray"):  # as older versions wrote it
            path = tmp_path / f"{mode}.zarr" / "t" / f".{name}"
            document = json.loads(path.read_text())
            document.pop("_ARRAY_DIMENSIONS", None), document.pop("_nczarr_array", None)
            path.write_text(
                json.dumps({**document, **({"_NCZARR_ARRAY": {"dimrefs": ["/x"]}} if name == "zarray" else {})})
            )
        assert ours(tmp_path / f"{mode}.zarr")["t"].dims == ("x",)


# -- archives -------------------------------------------------------------------------------------------------


def pack(folder, path, *, prefix="", compression=zipfile.ZIP_STORED, extra=b"", reverse=False):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted((x for x in Path(folder).rglob("*") if x.is_file()), reverse=reverse):
            info = zipfile.ZipInfo(prefix + file.relative_to(folder).as_posix())
            info.compress_type, info.extra = compression, extra
            archive.writestr(info, file.read_bytes())
    return path


def archived(dataset, folder, *, compression=zipfile.ZIP_STORED, extra=b"", **options):
    """Write a store of a dataset, and put it into an archive."""
    dataset.to_zarr(folder / "a.zarr", **options)
    return pack(folder / "a.zarr", folder / "a.zarr.zip", compression=compression, extra=extra)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_archives(dataset, tmp_path, version, consolidated):
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=version, consolidated=consolidated)
    expected = theirs(tmp_path / "a.zarr", consolidated=consolidated)
    mark = b"UT" + struct.pack("<HBI", 5, 1, 0)
    packed = {
        "plain": pack(tmp_path / "a.zarr", tmp_path / "plain.zarr.zip"),
        "extra fields": pack(tmp_path / "a.zarr", tmp_path / "extra.zarr.zip", extra=mark, reverse=True),
        "a folder": pack(tmp_path / "a.zarr", tmp_path / "folder.zip", prefix="ä/"),
        "another name": pack(tmp_path / "a.zarr", tmp_path / "data.bin"),
    }
    (tmp_path / "junk.zarr.zip").write_bytes(b"PK\3\4 in front" + packed["plain"].read_bytes())
    packed["bytes in front"] = tmp_path / "junk.zarr.zip"
    for path in packed.values():
        xr.testing.assert_identical(ours(path), expected)
    vds = vs.open_virtual_dataset(packed["plain"], loadable_variables=[])
    assert [x.url for x in vds["t"].variable._data.in_memory().locations] == [f"file://{packed['plain']}"]
    xr.testing.assert_identical(pickle.loads(pickle.dumps(vds)).virtual.open().load(), expected)


def flip(path, at):
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def spans(path):
    """Name, first byte and size of each member of an archive that is not compressed."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            file.seek(member.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            yield member.filename, member.header_offset + 30 + name + extra, member.file_size


@pytest.mark.parametrize("compressors", [None, "auto"])
@pytest.mark.parametrize("mark", [b"", b"UT" + struct.pack("<HBI", 5, 1, 0)])
@pytest.mark.parametrize("version", [2, 3])
def test_a_changed_byte_of_any_member_is_an_error(tmp_path, version, mark, compressors):
    """Whichever byte of a member changes, zarr raises an error, and so does every way to read all of the archive."""
    source = xr.Dataset({"v": ("x", np.arange(10.0)), "w": ("x", np.ones(10, "i2"))})  # the last chunk is not filled
    options = {name: {"chunks": (4,), "compressors": compressors} for name in "vw"}
    path = archived(source, tmp_path, extra=mark, zarr_format=version, encoding=options, consolidated=False)
    xr.testing.assert_identical(ours(path), source)
    for name, start, size in list(spans(path)):
        for at in sorted({start, start + size // 2, start + size - 1}):
            flip(path, at)
            with pytest.raises((MalformedFileError, StorageError), match=re.escape(name)) as error:
                ours(path)
            assert str(path) in str(error.value)
            with pytest.raises((MalformedFileError, StorageError)):
                xr.open_dataset(path, engine="virtualstack").load()
            flip(path, at)
    xr.testing.assert_identical(ours(path), source)


@pytest.mark.parametrize("select", [{"x": 1}, {"x": slice(5, None, 2)}, {"x": [0, 9]}])
def test_a_part_of_a_damaged_member_is_an_error(tmp_path, select):
    """A selection reads the whole member, as zarr does, as only that can be checked; workers check too."""
    source = xr.Dataset({"v": ("x", np.arange(10.0))})
    path = archived(source, tmp_path, encoding={"v": {"chunks": (10,), "compressors": None}})
    (start,) = [start for name, start, _ in spans(path) if name == "v/c/0"]
    vds = vs.open_virtual_dataset(path, loadable_variables=[])
    sent = pickle.loads(pickle.dumps(vds))
    xr.testing.assert_identical(sent.virtual.open().isel(select).load(), source.isel(select))
    flip(path, start + 3 * 8)  # an element that none of the selections shows
    for one in (vs.open_virtual_dataset(path, loadable_variables=[]), pickle.loads(pickle.dumps(vds))):
        with pytest.raises(StorageError, match=r"v/c/0|changed after it was indexed"):
            one.virtual.open().isel(select).load()


def test_shards_in_archives_are_read_in_parts(tmp_path):
    """A chunk in a shard is not a member of the archive, and is read alone."""
    source = xr.Dataset({"v": ("x", np.arange(64.0))})
    path = archived(source, tmp_path, encoding={"v": {"chunks": (8,), "shards": (32,), "compressors": None}})
    (start,) = [start for name, start, _ in spans(path) if name == "v/c/1"]
    xr.testing.assert_identical(ours(path), source)
    flip(path, start)
    opened = vs.open_virtual_dataset(path, loadable_variables=[]).virtual.open()
    xr.testing.assert_identical(opened.isel(x=slice(8)).load(), source.isel(x=slice(8)))


def test_archives_written_by_zarr_and_as_streams(dataset, tmp_path):
    """Members written over, and members whose size stands behind them."""
    store = zarr.storage.ZipStore(tmp_path / "z.zarr.zip", mode="w")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.to_zarr(store)
    store.close()
    dataset.to_zarr(tmp_path / "a.zarr")
    expected = theirs(tmp_path / "a.zarr")
    xr.testing.assert_identical(ours(tmp_path / "z.zarr.zip"), expected)

    class Stream(io.RawIOBase):
        def __init__(self, file):
            self.file = file

        def writable(self):
            return True

        def write(self, data):
            return self.file.write(data)

    with (tmp_path / "s.zarr.zip").open("wb") as file:
        pack(tmp_path / "a.zarr", io.BufferedWriter(Stream(file)))
    xr.testing.assert_identical(ours(tmp_path / "s.zarr.zip"), expected)


def test_compressed_members_are_refused_by_name(dataset, tmp_path):
    path = archived(dataset[["t", "count"]], tmp_path, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(UnsupportedFeatureError, match=r"zip -0"):
        vs.open_virtual_dataset(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_documents_in_archives_are_named(dataset, tmp_path, compression):
    path = archived(dataset[["count"]], tmp_path, compression=compression)
    with zipfile.ZipFile(path) as archive:
        begin = archive.getinfo("zarr.json").header_offset + 30 + len("zarr.json")
    data = bytearray(path.read_bytes())
    data[begin + 12 : begin + 60] = bytes(range(200, 248))
    path.write_bytes(data)
    with pytest.raises(MalformedFileError, match=r"'zarr\.json' in .* cannot be read"):
        vs.open_virtual_dataset(path)


def test_lzma_that_takes_more_than_there_is(dataset, tmp_path, monkeypatch):
    path = archived(dataset[["count"]], tmp_path)

    def read(*args):
        raise MemoryError

    monkeypatch.setattr(zipfile.ZipFile, "read", read)
    with pytest.raises(MalformedFileError, match="more memory than there is"):
        vs.open_virtual_dataset(path)


def test_absolute_names_in_archives_are_no_groups(dataset, tmp_path):
    path = archived(dataset[["count"]], tmp_path, consolidated=False)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("/etc/zarr.json", "{}")
    xr.testing.assert_identical(ours(path), ours(tmp_path / "a.zarr"))


def test_documents_in_archives_are_bounded_together(tmp_path, monkeypatch):
    monkeypatch.setattr("virtualstack.zarr.archive.MAX_INDEX_BYTES", 1 << 20)
    path, text = tmp_path / "a.zarr.zip", b" " * (360 << 10)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("", "a/", "b/", "c/"):
            archive.writestr(f"{name}.zgroup", b'{"zarr_format": 2}' + text)
    with pytest.raises(MalformedFileError, match="the metadata of the archive are longer than"):
        vs.open_virtual_datatree(path)


def test_each_of_many_groups_of_an_archive_is_listed_by_itself(tmp_path):
    """Each group looked at the names of all groups before it: 100,000 empty groups took minutes to open."""
    path, n = tmp_path / "a.zarr.zip", 20_000
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(".zgroup", '{"zarr_format": 2}')
        for i in range(n):
            archive.writestr(f"g{i}/.zgroup", '{"zarr_format": 2}')
        archive.writestr("g5-/x/.zgroup", '{"zarr_format": 2}')
        archive.writestr("g50/y/.zgroup", '{"zarr_format": 2}')
    archive = ZipArchive(Storage().source(absolute_url(path)))
    assert len(archive.folders("")) == n + 1
    begin = time.process_time()
    found = {i: folders for i in range(n) if (folders := archive.folders(f"g{i}"))}
    assert time.process_time() - begin < 1
    assert found == {50: ["y"]}
    assert archive.folders("g5-") == ["x"]


def test_index_of_an_archive_is_bounded(tmp_path):
    path, size = tmp_path / "a.zarr.zip", 20 << 30
    with path.open("wb") as file:
        file.write(b"PK\3\4")
        file.seek(size)
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 8, 8, size - 4, 4))
        file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, size, 1))
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0))
    with pytest.raises(MalformedFileError, match=r"has an index of 21474836476 bytes"):
        vs.open_virtual_dataset(path)


@pytest.mark.parametrize("consolidated", [True, False])
def test_an_archive_takes_few_requests(tmp_path, consolidated):
    """336 members behind a network: the size and first bytes, the index, and perhaps the metadata."""
    ds = xr.Dataset({"t": (("time", "x"), np.random.default_rng(0).random((333, 3000)))})
    encoding = {"t": {"chunks": (1, 3000), "compressors": None}}
    path = archived(ds, tmp_path, encoding=encoding, consolidated=consolidated)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == 335
    with RangeServer(tmp_path) as server:
        vds = vs.open_virtual_dataset(server.url("a.zarr.zip"))
        manifest = vds["t"].variable._data.in_memory()
        assert server.n_requests <= (3 if consolidated else 4)
        assert (manifest.entries["location"] > 0).all()
        xr.testing.assert_identical(vds.virtual.open().isel(time=[0, 332]).load(), ds.isel(time=[0, 332]))


@pytest.mark.parametrize("damage", ["no archive", "cut", "index", "headers", "no store"])
def test_damaged_archives(tmp_path, dataset, damage):
    """A typed error, at opening or where values are read; no bare one and no wrong value."""
    path = archived(dataset, tmp_path, extra=b"XX\0\0")
    data = bytearray(path.read_bytes())
    if damage == "no archive":
        data = bytearray(b"nothing at all")
    elif damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "index":
        at = data.rindex(b"PK\1\2")
        data[at + 42 : at + 46] = b"\xff\xff\xff\x7f"
    elif damage == "headers":
        data = bytearray(bytes(data).replace(b"PK\3\4", b"PK\3\5"))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "text")
        data = bytearray(path.read_bytes())
    path.write_bytes(data)
    with pytest.raises(ReaderError):
        ours(path)


# -- stores elsewhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_object_stores(s3, dataset, tmp_path, version, consolidated):
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=version, consolidated=consolidated)
    expected = theirs(tmp_path / "a.zarr", consolidated=consolidated)
    for path in filter(Path.is_file, (tmp_path / "a.zarr").rglob("*")):
        key, data = path.relative_to(tmp_path).as_posix(), path.read_bytes()
        s3.put(key, data)
        s3.put(key.replace("a.zarr", f"plain{version}"), data)
        MemoryFileSystem().pipe(f"/fs/{key}", data)
        vs.storage.Storage.from_option(None).target("memory://test").put(key, data)
    storage = {"s3://bucket": s3.options}
    xr.testing.assert_identical(ours("s3://bucket/a.zarr", storage=storage), expected)
    xr.testing.assert_identical(ours(f"s3://bucket/plain{version}", storage=storage), expected)
    xr.testing.assert_identical(ours("memory://fs/a.zarr", storage={"memory://fs": MemoryFileSystem()}), expected)
    xr.testing.assert_identical(ours("memory://test/a.zarr"), expected)
    with pytest.raises(SourceNotFoundError):
        ours("s3://bucket/nothing.zarr", storage=storage)


def test_web_servers(tmp_path):
    """Chunks are asked for one by one; without consolidated metadata only arrays can be found."""
    array = array_in_group(tmp_path / "a.zarr", (4, 6), (2, 2), "f4", name="t ö")
    array[:2] = np.random.default_rng(0).random((2, 6))
    with RangeServer(tmp_path) as server:
        with pytest.raises(StorageError, match="consolidate"):
            ours(server.url("a.zarr"))
        np.testing.assert_array_equal(ours(server.url("a.zarr") + "/t%20%C3%B6")["data"], array[...])
        zarr.consolidate_metadata(tmp_path / "a.zarr")
        np.testing.assert_array_equal(ours(server.url("a.zarr"))["t ö"], array[...])


@pytest.mark.parametrize(("version", "shards"), [(2, None), (3, None), (3, (4, 6))])
def test_web_servers_are_asked_for_what_is_wanted(tmp_path, version, shards):
    """Of an array of many chunks, requests go to those that are read; the others may be any number."""
    n_rows, n_filled, width = (101, 60, 12) if shards is None else (401, 300, 30)
    array = array_in_group(tmp_path / "a.zarr", (n_rows, width), (2, 3), "f4", shards=shards, version=version)
    array[:n_filled] = np.random.default_rng(0).random((n_filled, width))
    array[8:12, 3:6] = 0  # chunks of zeros are not stored
    zarr.consolidate_metadata(tmp_path / "a.zarr", zarr_format=version)
    expected = array[...]
    with LatencyServer(tmp_path) as server:
        options = {"loadable_variables": [], "reader": vs.readers.Zarr(masks_fill_value=False)}
        vds = vs.open_virtual_dataset(server.url("a.zarr"), **options)
        v = vds.virtual.open()["v"]
        server.traffic()
        end = slice(n_filled - 10, n_filled + 10)
        for key in [(slice(9, 11), slice(4, 8)), (5, 5), (end, 0), ([3, n_filled, 11, 3], [1, 7])]:
            np.testing.assert_array_equal(v[key], expected[np.ix_(*key)] if isinstance(key[0], list) else expected[key])
        n_chunks = (2 * 2 + 1 + 11 + 3 * 2) if shards is None else (2 * 2 + 1 + 6 + 3 * 2)
        assert server.traffic().n_requests <= (2 if shards is None else 3) * n_chunks
        cube = xr.concat([vds, vds], "x").isel(x=slice(n_rows - 6, n_rows + 9)).virtual.open()["v"]
        np.testing.assert_array_equal(cube, np.concatenate([expected, expected])[n_rows - 6 : n_rows + 9])
        np.testing.assert_array_equal(v, expected)


# -- errors ---------------------------------------------------------------------------------------------------


def test_folders_that_are_no_store_are_refused(tmp_path, dataset):
    (tmp_path / "empty.zarr").mkdir()
    dataset[["count"]].to_netcdf(tmp_path / "a.nc")
    vds = vs.open_virtual_dataset(tmp_path / "a.nc", loadable_variables=[])
    vds.virtual.to_kerchunk(tmp_path / "a.parq")
    vds.virtual.to_vstack(tmp_path / "a.vstack")
    for name, reader, error, match in (
        ("empty.zarr", None, UnknownFormatError, None),
        ("empty.zarr", "zarr", SourceNotFoundError, "not a zarr store"),
        ("nothing.zarr", None, SourceNotFoundError, None),
        ("a.parq", "zarr", MalformedFileError, "kerchunk"),
        ("a.vstack", "zarr", MalformedFileError, "vstack"),
        ("a.nc", "zarr", MalformedFileError, "not a zip archive of a zarr store"),
    ):
        with pytest.raises(error, match=match):
            ours(tmp_path / name, reader=reader)
    shutil.move(tmp_path / "a.vstack", tmp_path / "b.zarr")
    xr.testing.assert_identical(ours(tmp_path / "b.zarr"), vds.virtual.open().load())


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"node_type": "group", "consolidated_metadata": {}}', '{"node_type": "array"}']
)
def test_damaged_metadata(tmp_path, text):
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "zarr.json").write_text(text)
    with pytest.raises(MalformedFileError):
        ours(tmp_path / "a.zarr")


@pytest.mark.parametrize("damage", ["short", "checksum", "beyond"])
def test_damaged_shards(tmp_path, damage):
    checks = damage == "checksum"
    _sharded(
        tmp_path / "a.zarr", shape=(8, 8), chunks=(2, 2), shards=(8, 8), location="end",
        index_codecs=[BytesCodec()] + [Crc32cCodec()] * checks, rng=np.random.default_rng(3),
    )  # fmt: skip
    path = tmp_path / "a.zarr/v/c/0/0"
    data = bytearray(path.read_bytes())
    if damage == "short":
        data = data[:20]
    elif damage == "checksum":
        data[-30] ^= 1
    else:
        data[-256:] = struct.pack("<2Q", len(data) - 1, 2) + data[-240:]
    path.write_bytes(data)
    with pytest.raises(MalformedFileError, match="Write it again"):
        ours(tmp_path / "a.zarr")


def test_chunks_that_change_are_seen(tmp_path):
    array = array_in_group(tmp_path / "a.zarr", (4,), (2,), "i4")
    array[...] = [1, 2, 3, 4]
    vds = vs.open_virtual_dataset(tmp_path / "a.zarr", loadable_variables=[])
    vds["v"].variable._data.in_memory()
    array[...] = [12345, 678910, 3, 4]
    with pytest.raises(SourceChangedError):
        vds.virtual.open().load()


def test_a_link_to_a_folder_above_ends(tmp_path):
    zarr.open_group(tmp_path / "a.zarr", mode="w").create_group("g")
    (tmp_path / "a.zarr" / "g" / "h").symlink_to(tmp_path / "a.zarr")
    with pytest.raises(StorageError, match="Too many levels of symbolic links"):
        vs.open_virtual_datatree(tmp_path / "a.zarr", reader=vs.readers.Zarr(consolidated=False))


def test_links_make_no_endless_groups(tmp_path, monkeypatch):
    """Twenty groups with two links to the next one each are a million groups."""
    monkeypatch.setattr("virtualstack.zarr.reader._MAX_NODES", 1000)
    zarr.open_group(tmp_path / "a.zarr", mode="w")
    for i in range(20):
        zarr.open_group(tmp_path / "a.zarr" / str(i), mode="w")
        for name in ("one", "two"):
            (tmp_path / "a.zarr" / str(i) / name).symlink_to(tmp_path / "a.zarr" / str(i + 1))
    zarr.open_group(tmp_path / "a.zarr" / "20", mode="w")
    with pytest.raises(ReaderError, match="more than 1000 groups and arrays"):
        vs.open_virtual_datatree(tmp_path / "a.zarr", reader=vs.readers.Zarr(consolidated=False))


# -- together with other formats ------------------------------------------------------------------------------


def test_one_cube_of_every_form(tmp_path):
    """netCDF-3, netCDF-4, zarr of both versions, shards, an archive and references join as xarray's own does."""
    parts = [
        xr.Dataset(
            {"t": (("time", "x"), np.random.default_rng(i).random((3, 8)).astype("f4"))},
            {"time": np.arange(3) + 3 * i, "x": np.arange(8)},
        )
        for i in range(7)
    ]
    paths = [tmp_path / name for name in ("0.nc", "1.nc", "2.zarr", "3.zarr", "4.zarr", "5.zarr.zip", "6.json")]
    parts[0].to_netcdf(paths[0], format="NETCDF3_CLASSIC")
    parts[1].to_netcdf(paths[1], encoding={"t": {"zlib": True, "chunksizes": (2, 5)}})
    parts[2].to_zarr(paths[2], zarr_format=2, encoding={"t": {"compressors": numcodecs.Zlib(1), "chunks": (3, 4)}})
    parts[3].to_zarr(paths[3], zarr_format=3, encoding={"t": {"chunks": (1, 8)}})
    parts[4].to_zarr(paths[4], zarr_format=3, encoding={"t": {"chunks": (1, 2), "shards": (3, 4)}})
    parts[5].to_zarr(tmp_path / "5", zarr_format=2)
    pack(tmp_path / "5", paths[5])
    parts[6].to_netcdf(tmp_path / "6.nc")
    vs.open_virtual_dataset(tmp_path / "6.nc").virtual.to_kerchunk(paths[6])
    cube = xr.combine_nested([vs.open_virtual_dataset(path) for path in paths], concat_dim="time")
    expected = xr.combine_nested(parts, concat_dim="time")
    xr.testing.assert_equal(cube.virtual.open().load(), expected)
    cube.virtual.to_vstack(tmp_path / "cube.vstack")
    lazy = xr.open_dataset(tmp_path / "cube.vstack", engine="virtualstack", chunks={})
    with dask.config.set(scheduler="threads"):
        xr.testing.assert_equal(lazy.load(), expected)


@pytest.mark.parametrize("form", ["json", "parq", "vstack", "icechunk"])
def test_conversion(tmp_path, dataset, form):
    """What a zarr store holds is the same in each form of references."""
    if form == "icechunk":
        pytest.importorskip("icechunk")
    dataset = dataset.drop_vars("name") if form == "icechunk" else dataset
    dataset.to_zarr(tmp_path / "a.zarr", zarr_format=2)
    vs.convert(tmp_path / "a.zarr", tmp_path / f"b.{form}")
    xr.testing.assert_identical(ours(tmp_path / f"b.{form}"), theirs(tmp_path / "a.zarr"))


def test_chunks_in_folders_that_are_links_are_found(tmp_path):
    """As zarr finds them; a link to nothing is an error that names it, and one to a folder above is not followed."""
    for version, name in ((3, "c/1"), (3, "c"), (2, "1")):
        path = tmp_path / f"{version}{name.replace('/', '')}.zarr"
        keys = {"name": "default" if version == 3 else "v2", "separator": "/"}
        options = {"fill_value": 9, "version": version, "chunk_key_encoding": keys}
        array = array_in_group(path, (4, 2), (1, 1), "i4", **options)
        array[...] = np.arange(8).reshape(4, 2)
        folder, elsewhere = path / "v" / name, tmp_path / f"elsewhere {path.name}"
        folder.rename(elsewhere)
        folder.symlink_to(elsewhere)
        (elsewhere / "loop").symlink_to(path / "v")
        reader = vs.readers.Zarr(masks_fill_value=False)
        np.testing.assert_array_equal(ours(path, reader=reader)["v"], np.arange(8).reshape(4, 2))
    (elsewhere / "0").unlink()
    (elsewhere / "0").symlink_to(tmp_path / "nothing")
    with pytest.raises(SourceNotFoundError, match=r"v/1/0'"):
        ours(path)


def test_attributes_of_any_size(tmp_path):
    """Numbers of 2^64 and more stay whole numbers."""
    for version in (2, 3):
        attributes = {"n": 10**30, "m": -(2**65), "nan": float("nan")}
        xr.Dataset({"v": ("x", [1.0], attributes)}).to_zarr(tmp_path / f"{version}.zarr", zarr_format=version)
        xr.testing.assert_identical(ours(tmp_path / f"{version}.zarr"), theirs(tmp_path / f"{version}.zarr"))


def test_an_archive_whose_index_ends_early_is_damaged(dataset, tmp_path):
    """A length in the index that is wrong may hide all members behind it, which zipfile does not see."""
    path = archived(dataset[["count"]], tmp_path, consolidated=False)
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\1\2")
    data[first + 29] = 40  # the second byte of the length of its name
    path.write_bytes(data)
    with pytest.raises(MalformedFileError, match=r"lists 1 members, but its last record says"):
        vs.open_virtual_dataset(path)


def test_a_group_with_members_that_zarr_does_not_know_is_refused(dataset, tmp_path):
    """One damaged letter of ``attributes`` lost all attributes without a word."""
    dataset[["count"]].assign_attrs(a=1).to_zarr(tmp_path / "a.zarr", zarr_format=3, consolidated=False)
    path = tmp_path / "a.zarr" / "zarr.json"
    path.write_text(path.read_text().replace('"attributes"', '"attrifutes"'))
    with pytest.raises(UnsupportedFeatureError, match="member 'attrifutes'"):
        vs.open_virtual_dataset(tmp_path / "a.zarr")


@pytest.mark.parametrize("fill", [0, "", None, "a", "0"])
def test_strings_of_version_2_are_missing_where_xarray_says_so(tmp_path, fill):
    """Of a fill value 0 zarr makes the text 0, so that true empty strings are not missing."""
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    array = group.create_array("v", shape=(4,), chunks=(2,), dtype=str, fill_value="")
    array[:2] = np.array(["a", ""], object)
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    path = tmp_path / "s" / "v" / ".zarray"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fill_value": fill}))
    expected = xr.open_zarr(tmp_path / "s", consolidated=False, zarr_format=2).v.values.tolist()
    assert repr(vs.open_virtual_dataset(tmp_path / "s").virtual.open().v.values.tolist()) == repr(expected)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
def test_fill_values_beyond_the_range_of_the_dtype_are_infinite(tmp_path, version):
    """As zarr reads them."""
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(4,), chunks=(2,), dtype="f4", fill_value=1, zarr_format=version
    )
    array[:2] = [1, np.inf]
    path = tmp_path / "a.zarr" / ("zarr.json" if version == 3 else ".zarray")
    path.write_text(json.dumps({**json.loads(path.read_text()), "fill_value": 1e40}))
    expected = zarr.open_array(tmp_path / "a.zarr")[:].tolist()
    found = vs.open_virtual_dataset(tmp_path / "a.zarr", reader=vs.readers.Zarr(masks_fill_value=False))
    assert found.virtual.open()["data"].values.tolist() == expected == [1, np.inf, np.inf, np.inf]


@pytest.mark.parametrize(
    "codec",
    [
        numcodecs.Quantize(3, "f8", "f4"),
        numcodecs.Quantize(3, "f4", "f8"),
        numcodecs.FixedScaleOffset(offset=0, scale=100, dtype="f8", astype="i2"),
        numcodecs.Delta("i4", "i2"),
    ],
)  # fmt: skip
def test_filters_that_store_another_dtype(tmp_path, codec):
    """As zarr decodes them."""
    array = zarr.create_array(
        tmp_path / "q", shape=(8,), chunks=(4,), dtype=codec.dtype, zarr_format=2, filters=[codec], compressors=None,
        fill_value=99,
    )  # fmt: skip
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    array[:] = np.linspace(0, 8, 8).astype(codec.dtype)
    (found,) = vs.open_virtual_dataset(tmp_path / "q").virtual.open().variables.values()
    np.testing.assert_array_equal(found.values, zarr.open_array(tmp_path / "q", mode="r")[:])
