import gzip
import json
import resource
from pathlib import Path

import fsspec
import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.data.watching import memory_below
from tests.kerchunk.reading import inline_references, read
from virtualstack.errors import ForbiddenLocationError, MalformedFileError, SourceNotFoundError, StorageError
from virtualstack.formats.base import ReadOptions
from virtualstack.kerchunk import reader as kerchunk
from virtualstack.kerchunk.reader import Kerchunk, read_references
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import Location, absolute_url
from virtualstack.readers import find_reader
from virtualstack.storage import Storage
from virtualstack.testing.strategies import model_read

ZARRAY = {"shape": [2], "chunks": [1], "dtype": "<i4", "compressor": None, "filters": None, "fill_value": None}


def references(**refs):
    return {"version": 1, "refs": {".zgroup": "{}", "v/.zarray": json.dumps(ZARRAY), **refs}}


def test_json_file(tmp_path):
    """A JSON file is read, plain and compressed with zstd, and its locations are taken from its folder."""
    text = json.dumps(references(**{"v/0": ["data/a.nc", 5, 4], "v/1": ["/abs/b.nc", 6, 4]})).encode()
    (tmp_path / "refs.json").write_bytes(text)
    (tmp_path / "refs.json.zst").write_bytes(numcodecs.Zstd().encode(text))
    (tmp_path / "refs.json.gz").write_bytes(gzip.compress(text))
    for name in ("refs.json", "refs.json.zst", "refs.json.gz"):
        assert isinstance(find_reader(tmp_path / name, Storage.from_option()), Kerchunk)
        group = read(tmp_path / name)
        assert group.url == absolute_url(tmp_path / name)
        assert group["v"].in_memory().locations == (
            Location(absolute_url(tmp_path / "data/a.nc")),
            Location("file:///abs/b.nc"),
        )
        assert group["v"].in_memory().entries["offset"].tolist() == [5, 6]


def test_names_of_folders_may_contain_json(tmp_path):
    """Only the suffix says that references are one file, as in the writer."""
    data = xr.Dataset({"v": ("x", [1.0, 2.0])})
    data.virtual.to_kerchunk(tmp_path / "refs.parq")
    (tmp_path / "refs.parq").rename(tmp_path / "refs.json.d")
    assert read(tmp_path / "refs.json.d")["v"].shape == (2,)
    data.virtual.to_kerchunk(tmp_path / "refs.json")
    (tmp_path / "refs.json").rename(tmp_path / "refs.json.old")
    assert read(tmp_path / "refs.json.old")["v"].shape == (2,)


def test_few_compressed_bytes_do_not_become_gigabytes(tmp_path):
    """A file of some kilobytes took gigabytes of memory; it ends in an error that names it, within little memory."""
    path = tmp_path / "refs.json.zst"
    packed = pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd")
    for _ in range(100):
        packed.write(b" " * (1 << 22))
    packed.close()
    assert path.stat().st_size < 50_000
    with (
        memory_below(300 << 20),
        pytest.raises(
            MalformedFileError, match=r"refs.json.zst' has \d+ bytes but decompresses to more than 67108864 bytes"
        ),
    ):
        read(path)


def test_work_follows_the_size_of_compressed_json(tmp_path):
    """1.9 MB became 1.9 GB before they were refused, as each byte could become 1000."""
    path = tmp_path / "refs.json.gz"
    noise = np.random.default_rng(0).bytes(100_000).hex().encode()
    path.write_bytes(gzip.compress(b'{"a":"' + noise + b'"' + b" " * (100 << 20) + b"}"))
    size = path.stat().st_size
    assert 300 < (100 << 20) / size < 1000
    with pytest.raises(
        MalformedFileError, match=rf"refs.json.gz' has {size} bytes but decompresses to more than 67108864 bytes"
    ):
        read(path)


@pytest.mark.parametrize("level", [1, 19])
def test_references_that_compress_best_are_read(tmp_path, monkeypatch, level):
    """Records of a netCDF-3 file with a long URL are the most regular references that people write."""
    monkeypatch.setattr(kerchunk, "_FREE_UNPACKED_BYTES", 0)
    url = "https://data.example.org/" + "a_folder_with_a_long_name/" * 20 + "tas_day_ssp585_20150101-20341231.nc"
    chunks = {f"v/{i}": [url, 20564 + 4096 * i, 4096] for i in range(50_000)}
    text = json.dumps(references(**{"v/.zarray": json.dumps({**ZARRAY, "shape": [50_000]}), **chunks})).encode()
    path = tmp_path / "refs.json.zst"
    path.write_bytes(numcodecs.Zstd(level).encode(text))
    assert len(text) > 100 * path.stat().st_size
    assert read(path)["v"].shape == (50_000,)


def test_compressed_json_that_is_damaged_or_endless(tmp_path, monkeypatch):
    """Both are errors that name the file, and no more memory is used than the text may have."""
    text = json.dumps(references(**{"v/0": ["/data/a.nc", 5, 4]})).encode()
    path = tmp_path / "refs.json.gz"
    path.write_bytes(gzip.compress(text)[:-20])
    with pytest.raises(MalformedFileError, match=r"refs.json.gz' cannot be decompressed \(gzip\)"):
        read(path)
    monkeypatch.setattr(kerchunk, "_MAX_TEXT_BYTES", 100_000)
    path.write_bytes(gzip.compress(text + b" " * 100_000))
    with pytest.raises(MalformedFileError, match=r"decompresses to more than 100000 bytes"):
        read(path)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_damaged_compressed_json_leaves_no_memory_behind(tmp_path):
    """pyarrow loses 4 MiB of address space each time a stream ends early, until there is a MemoryError."""
    path = tmp_path / "refs.json.gz"
    path.write_bytes(gzip.compress(b"{}")[:-9])

    def pages():
        return int(Path("/proc/self/statm").read_text().split()[0])

    def read_damaged(n):
        for _ in range(n):
            with pytest.raises(MalformedFileError, match=r"cannot be decompressed \(gzip\)"):
                read(path)

    read_damaged(5)  # whatever is kept for the next time
    before = pages()
    read_damaged(50)
    assert (pages() - before) * resource.getpagesize() < 100 << 20


def test_long_json_file(tmp_path, monkeypatch):
    """A long file says what the same references in memory say, or is refused as these are."""
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", "/")
    zarray = {**ZARRAY, "shape": [3000]}
    chunks = {f"v/{i}": [f"../data/{i % 5}.nc", 7 * i, i] for i in range(3000)}
    refs = references(**{"v/.zarray": json.dumps(zarray), **chunks, "v/17": "base64:AAAA", "v/18": ["/abs/b.nc", 1, 2]})
    expected = read_references(refs, base_url=absolute_url(tmp_path))
    text = json.dumps(refs).encode()
    assert len(text) > 1 << 16
    (tmp_path / "refs.json").write_bytes(text)
    (tmp_path / "refs.json.zst").write_bytes(numcodecs.Zstd().encode(text))
    for name in ("refs.json", "refs.json.zst"):
        got = read(tmp_path / name)
        assert (got["v"] == expected["v"]).all()
        assert len(got["v"].in_memory().locations) == 6
    for damaged in (
        text[:-1],
        text.replace(b"[", b"[[", 1),
        text.replace(b'"v/9"', b'"v/x"'),
        text.replace(b"7, 1]", b"-7, 1]"),
    ):
        assert damaged != text
        (tmp_path / "refs.json").write_bytes(damaged)
        with pytest.raises(MalformedFileError, match=r"refs.json"):
            read(tmp_path / "refs.json")


def test_name_without_suffix_is_json(tmp_path):
    """A file without a telling name is taken for JSON."""
    (tmp_path / "refs").write_text(json.dumps(references()))
    assert read(tmp_path / "refs").arrays.keys() == {"v"}


def test_nan_in_the_file_itself(tmp_path):
    """Metadata as objects may hold NaN, which is not JSON, but written."""
    (tmp_path / "a.json").write_text(
        '{"version":1,"refs":{"v/.zarray":' + json.dumps({**ZARRAY, "dtype": "<f4", "fill_value": float("nan")}) + "}}"
    )
    assert np.isnan(read(tmp_path / "a.json")["v"].in_memory().fill.value)


def test_whole_files_and_caches(tmp_path):
    """A reference to a whole file gets its size; fsspec's caches around a URL are left out."""
    (tmp_path / "chunk").write_bytes(b"1234")
    refs = references(**{"v/0": ["chunk"], "v/1": ["simplecache::filecache::s3://b/c", 0, 4]})
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    manifest = read(tmp_path / "refs.json")["v"].in_memory()
    whole, cached = manifest.locations
    assert (whole.url, whole.size, cached) == (absolute_url(tmp_path / "chunk"), 4, Location("s3://b/c"))
    assert manifest.entries["length"].tolist() == [4, 4]


def test_an_address_of_ipv6_is_no_chained_url(tmp_path):
    """Though it has '::'."""
    refs = references(**{"v/0": ["http://[2001:db8::1]:80/c", 0, 4]})
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    assert read(tmp_path / "refs.json")["v"].in_memory().locations == (Location("http://[2001:db8::1]:80/c"),)


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize("spelling", ["{}", "/{}", "memory://{}"])
def test_locations_without_a_protocol_are_those_of_fsspec(form, spelling, tmp_path):
    """With ``remote_protocol``, fsspec takes what has no protocol for a path on that filesystem."""
    fsspec.filesystem("memory").pipe("/protocols/a.nc", b"....\1\0\0\0\2\0\0\0")
    where = spelling.format("protocols/a.nc")
    refs = references(**{"v/0": [where, 4, 4], "v/1": [where, 8, 4]})
    path = tmp_path / ("refs.json" if form == "json" else "refs.parq")
    if form == "json":
        path.write_text(json.dumps(refs))
    else:
        pytest.importorskip("fastparquet")
        pytest.importorskip("kerchunk.df").refs_to_dataframe(refs, str(path))
    oracle = fsspec.filesystem("reference", fo=str(path), remote_protocol="memory")
    expected = b"".join(oracle.cat_file(f"v/{i}") for i in range(2))
    vds = vs.open_virtual_dataset(path, reader=Kerchunk(remote_protocol="memory"), allow="memory://protocols/")
    assert vds.virtual.open()["v"].values.astype("<i4").tobytes() == expected


def test_locations_on_a_bucket_or_in_another_folder(tmp_path, monkeypatch):
    """References that were made elsewhere lack the protocol or the folder of their files."""
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    (tmp_path / "refs.json").write_text(json.dumps(references(**{"v/0": ["bucket//a.nc", 0, 4]})))
    for reader, url in [
        (Kerchunk(), absolute_url(tmp_path / "bucket/a.nc")),
        (Kerchunk(remote_protocol="s3"), "s3://bucket//a.nc"),
        (Kerchunk(remote_protocol="file"), absolute_url(tmp_path / "folder/bucket/a.nc")),
        (Kerchunk(base_url="s3://other/x/"), "s3://other/x/bucket/a.nc"),
        (Kerchunk(base_url="s3://other/x"), "s3://other/x/bucket/a.nc"),
        (Kerchunk(base_url=tmp_path / "files"), absolute_url(tmp_path / "files/bucket/a.nc")),
    ]:
        group = reader.read(absolute_url(tmp_path / "refs.json"), Storage.from_option(None), ReadOptions())
        assert [x.url for x in group["v"].in_memory().locations] == [url]


def test_where_relative_locations_are_is_said_once():
    with pytest.raises(ValueError, match=r"'s3://' is not a protocol. Pass one such as 's3'"):
        Kerchunk(remote_protocol="s3://")
    with pytest.raises(ValueError, match="both define the folder of relative locations"):
        Kerchunk(remote_protocol="s3", base_url="s3://bucket/")


def test_files_within_archives_are_refused(tmp_path):
    """Members of a zip file have no byte ranges of their own."""
    group = read_references(references(**{"v/0": ["zip://a.nc::s3://b/c.zip", 0, 4]}))
    (refusal,) = group.refusals
    assert "is reached through 'zip://a.nc', where byte ranges are not those of the file itself" in refusal.reason
    kept = read_references(references(**{"v/0": ["data/odd::name", 0, 4]}), base_url="s3://b/refs")
    assert kept["v"].in_memory().locations[0].url == "s3://b/refs/data/odd::name"


def test_group_and_dropped_variables():
    """Only the arrays of one group and of those above it are looked at, and none that is dropped."""
    refs = {f"{path}/.zarray": ZARRAY for path in ("a/v", "a/w", "a/b/v", "ab/v", "t")}
    group = read_references(
        {"version": 1, "refs": refs}, options=ReadOptions(group="/a", drop_variables=frozenset({"w"}))
    )
    assert sorted(group.all_arrays()) == ["a/b/v", "a/v", "t"]


def test_strays_are_recorded():
    """References that belong to no array are recorded, not dropped in silence."""
    (refusal,) = read_references(references(**{"w/0": "x"})).refusals
    assert (refusal.path, refusal.kind, refusal.reason) == ("/w", "noted", "1 reference outside of all arrays")


def test_mere_defaults_need_not_mask():
    """References whose fill_value is a mere default can be read without masking it."""
    refs = {"version": 1, "refs": {"v/.zarray": {**ZARRAY, "fill_value": 0}}}
    assert read_references(refs)["v"].attributes == {"_FillValue": 0}
    reader = Kerchunk(masks_fill_value=False)
    assert reader.read_references(refs, storage=Storage.from_option(), options=ReadOptions())["v"].attributes == {}


def test_the_references_are_not_changed():
    """A dict given to the reader stays as it is."""
    refs = references(**{"v/0": ["{{u}}/x", 0, 4]}) | {"templates": {"u": "s3://b"}}
    before = json.dumps(refs)
    assert read_references(refs)["v"].in_memory().locations == (Location("s3://b/x"),)
    assert json.dumps(refs) == before


def test_record_files_that_are_not_there(tmp_path):
    """fsspec takes the chunks of an absent file for absent, and so do we."""
    refs = {f"v/{i}": ["s3://b/a", i, 4] for i in range(2)}
    write_kerchunk(read_references(references(**refs)), tmp_path / "refs.parq")
    (tmp_path / "refs.parq/v/refs.0.parq").unlink()
    assert read(tmp_path / "refs.parq")["v"].in_memory().entries["location"].tolist() == [0, 0]


def test_documents_that_are_no_references_are_refused(tmp_path):
    """Other files are told apart with their URL."""
    for content, message in (
        (b"CDF\1", "is not JSON"),
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": 1}', "holds no zarr metadata"),
        (b"\x28\xb5\x2f\xfdxx", "cannot be decompressed .zstd."),
        (b'{"version": 9}', "is not a set of kerchunk references"),
    ):
        (tmp_path / "refs.json").write_bytes(content)
        with pytest.raises(MalformedFileError, match=message):
            read(tmp_path / "refs.json")


def test_missing_references_are_refused(tmp_path):
    """Missing files, and directories without references, are named."""
    with pytest.raises(SourceNotFoundError, match=r"refs.json"):
        read(tmp_path / "refs.json")
    (tmp_path / "refs.parq").mkdir()
    with pytest.raises(SourceNotFoundError, match=r"refs.parq/.zmetadata"):
        read(tmp_path / "refs.parq")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match=r"folder' is a directory"):
        read(tmp_path / "folder")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_values_of_zarr_arrays(zarr_format, tmp_path):
    """Chunks that zarr wrote, given inline under its own keys, have the values that zarr reads."""
    values = np.arange(30, dtype=">f4").reshape(5, 6)
    store = zarr.storage.MemoryStore()
    root = zarr.create_group(store, zarr_format=zarr_format)
    orders = (("c", "C"), ("f", "F")) if zarr_format == 2 else (("c", None), ("f", None))
    for name, order in orders:
        options = {"order": order} if order else {"filters": [zarr.codecs.TransposeCodec(order=(1, 0))]}
        made = root.create_array(
            name, shape=(5, 6), chunks=(2, 4), dtype=">f4", compressors=None, fill_value=7, **options
        )
        made[:4] = values[:4]
    root.create_array("s", shape=(), dtype="i2", compressors=None)[...] = 5
    group = read_references(inline_references(store))
    for name in ("c", "f", "s"):
        np.testing.assert_array_equal(model_read(group[name], {}), root[name][...])
    assert group.refusals == ()


def test_references_in_memory_name_nothing_beside_their_folder_and_listed_places(tmp_path, monkeypatch):
    """Their folder is the working directory, or ``base_url``; without a list they name everything."""
    (tmp_path / "inside").mkdir()
    for folder in (tmp_path, tmp_path / "inside"):
        (folder / "a.bin").write_bytes(bytes(4))
    zarray = json.dumps({**ZARRAY, "shape": [1], "chunks": [1], "zarr_format": 2, "order": "C"})
    monkeypatch.chdir(tmp_path / "inside")
    listed = ReadOptions.from_options(allow=vs.Listed())
    for options in ({}, {"base_url": str(tmp_path / "inside")}):
        for name, is_theirs in (("a.bin", True), (f"{tmp_path}/inside/a.bin", True), (f"{tmp_path}/a.bin", False)):
            refs = {".zgroup": '{"zarr_format": 2}', "v/.zarray": zarray, "v/0": [name, 0, 4]}
            if is_theirs:
                assert list(read_references(refs, **options, options=listed).arrays) == ["v"]
            else:
                with pytest.raises(ForbiddenLocationError, match="which is a local file"):
                    read_references(refs, **options, options=listed)
            assert list(read_references(refs, **options).arrays) == ["v"]


def test_references_that_kerchunk_made(tmp_path):
    """kerchunk's own translation of an HDF5 file has the values of h5py."""
    hdf = pytest.importorskip("kerchunk.hdf", reason="kerchunk is not installed: pip install 'virtualstack[kerchunk]'")
    path, values = tmp_path / "a.h5", np.arange(12, dtype="i4").reshape(3, 4)
    with h5py.File(path, "w") as file:
        file["v"] = values
    references = hdf.SingleHdf5ToZarr(str(path), inline_threshold=0).translate()
    array = read_references(references, base_url=str(tmp_path))["v"]
    assert model_read(array, {absolute_url(path): path.read_bytes()}).tolist() == values.tolist()


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
def test_parquet_that_kerchunk_made(tmp_path):
    """Padded parquet of kerchunk's own writer is read, with holes and inline data."""
    df = pytest.importorskip("kerchunk.df", reason="kerchunk is not installed: pip install 'virtualstack[kerchunk]'")
    pytest.importorskip("fastparquet", reason="fastparquet is not installed: pip install 'virtualstack[kerchunk]'")
    zarray = {**ZARRAY, "shape": [5], "zarr_format": 2, "order": "C"}
    refs = {
        ".zgroup": '{"zarr_format":2}',
        "v/.zarray": json.dumps(zarray),
        "v/.zattrs": '{"_ARRAY_DIMENSIONS":["x"]}',
        "v/0": ["s3://b/a", 10, 4],
        "v/2": "base64:AQIDBA==",
        "v/3": ["s3://b/b", 20, 4],
        "v/4": ["s3://b/a", 30, 4],
    }
    df.refs_to_dataframe({"version": 1, "refs": refs}, str(tmp_path / "refs.parq"), record_size=3)
    got = read(tmp_path / "refs.parq")["v"]
    assert got.equals(read_references({"version": 1, "refs": refs})["v"])
    assert got.in_memory().entries["location"].tolist()[1] == 0


def test_references_of_xarray_attributes(tmp_path):
    """Metadata that xarray wrote to zarr decodes the same through references."""
    source = xr.Dataset(
        {"v": (("t", "x"), np.array([[1.5, np.nan], [3, 4]]), {"units": "K"}), "n": ((), np.int8(3))},
        coords={"t": [0, 1], "lat": (("t", "x"), np.zeros((2, 2)))},
    )
    for zarr_format in (2, 3):
        store = zarr.storage.MemoryStore()
        source.to_zarr(store, zarr_format=zarr_format, consolidated=False, encoding={"v": {"_FillValue": -9.0}})
        group = read_references(inline_references(store))
        assert group["v"].attributes["units"] == "K"
        assert group["v"].attributes["_FillValue"] == -9.0
        assert group["v"].dimension_names == ("t", "x")
        assert group.coordinates == {"lat"}


@pytest.mark.parametrize("n", [3, 3000])
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_one_array_without_a_group(n, separator, zarr_format, tmp_path):
    """It is a variable, whose name is ours; short text and long text are read by different ways."""
    values = np.arange(4 * n, dtype="<i4").reshape(2 * n, 2)
    (tmp_path / "raw").write_bytes(values.tobytes())
    options = {"filters": None, "compressors": None} if zarr_format == 2 else {"compressors": None}
    key = {"name": "v2" if zarr_format == 2 else "default", "separator": separator}
    store = zarr.storage.MemoryStore()
    options |= {"fill_value": 0, "zarr_format": zarr_format, "chunk_key_encoding": key}
    zarr.create_array(store, shape=values.shape, chunks=(2, 2), dtype="<i4", **options)
    refs = {name: value.to_bytes().decode() for name, value in store._store_dict.items()}
    prefix = "" if zarr_format == 2 else f"c{separator}"
    refs |= {f"{prefix}{i}{separator}0": [f"{tmp_path}/raw", 16 * i, 16] for i in range(n)}
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    got = vs.open_virtual_dataset(tmp_path / "refs.json").virtual.open()
    assert list(got) == ["data"]
    np.testing.assert_array_equal(got["data"].fillna(0), values)


def test_coordinates_of_the_whole_are_coordinates(tmp_path, monkeypatch):
    """The root's attribute ``coordinates`` is read as xarray reads it, by the engine too."""
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", "/data")
    refs = references(
        **{"v/0": ["/data/a.nc", 5, 4], "lat/.zarray": json.dumps(ZARRAY), ".zattrs": '{"coordinates": "lat"}'}
    )
    (tmp_path / "refs.json").write_text(json.dumps(refs))
    for opened in (
        xr.open_dataset(tmp_path / "refs.json", engine="virtualstack"),
        xr.open_dataset(refs, engine="virtualstack"),
        vs.open_virtual_dataset(tmp_path / "refs.json"),
        vs.open_virtual_dataset(tmp_path / "refs.json").virtual.open(),
    ):
        assert list(opened.coords) == ["lat"]
        assert opened.attrs == {}
    raw = xr.open_dataset(refs, engine="virtualstack", decode_coords=False)
    assert raw.attrs == {"coordinates": "lat"}


@pytest.mark.parametrize(
    "metadata",
    [
        {"zarr_format": 2, "dtype": "<U500000000", "chunks": [1], "compressor": None, "filters": None, "order": "C"},
        {
            "zarr_format": 3,
            "node_type": "array",
            "data_type": {"name": "null_terminated_bytes", "configuration": {"length_bytes": 2_000_000_000}},
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
            "chunk_key_encoding": {"name": "default"},
            "codecs": [{"name": "bytes"}],
        },
    ],
)
def test_large_values_take_no_memory(metadata):
    """A few bytes may say that each has any size; of each array there is at least one, its fill value."""
    key = "v/.zarray" if metadata["zarr_format"] == 2 else "v/zarr.json"
    refs = {key: json.dumps(metadata | {"shape": [1], "fill_value": ""})}
    with memory_below(64 << 20):
        group = read_references({"version": 1, "refs": refs})
    assert "values of 2000000000 bytes each" in group.refusals[0].reason


def test_keys_of_many_groups_are_refused():
    refs = {"a/" * 5000 + ".zgroup": '{"zarr_format": 2}'}
    with pytest.raises(MalformedFileError, match="in more than 100 groups"):
        read_references({"version": 1, "refs": refs})
