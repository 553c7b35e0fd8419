"""The plain reader, which was written from the specification, reads what virtualstack writes, whatever it is."""

import itertools
import json
import os
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.data.arrays import array_of, referenced
from tests.properties.test_vstack import changed_arrays, named
from tests.scanning.groups import assert_same_values
from tests.vstack import plain_reader
from tests.vstack.growing import dataset, virtual, write
from tests.vstack.plain_reader import Store, snapshots
from virtualstack.codecs.codec import Codec
from virtualstack.formats.base import ReadOptions
from virtualstack.location import Location
from virtualstack.manifests import ChunkEncoding, ChunkManifest, Fill, ManifestGroup
from virtualstack.manifests.inline import inline_array
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.vstack import shown
from virtualstack.vstack.format import archive, rows, sources
from virtualstack.vstack.reader import VStack
from virtualstack.vstack.save import save
from virtualstack.vstack.write import edit, segment

SERIAL = itertools.count()


def group_of(url, **options):
    return VStack(**options).read(f"file://{url}", Storage.from_option(None), ReadOptions())


def assert_reads_alike(folder, **options):
    """Compare every group and array: values, names and attributes, with their types. Return the arrays."""
    plain, group = Store(folder, **options), group_of(folder, **options)
    groups, arrays = plain.groups(), plain.arrays()
    given = dict(arrays)
    assert groups.keys() == {path for path, _ in group.walk()}
    for path, node in group.walk():
        assert_same_values(groups[path]["attributes"], dict(node.attributes))
        assert groups[path]["dimensions"] == dict(node.dimensions)
        assert set(groups[path]["unlimited"]) == node.unlimited
        assert set(groups[path]["coordinates"]) == node.coordinates
        for name, array in node.arrays.items():
            found = arrays.pop(f"{path}/{name}")
            wanted = read_array(array, ..., None)
            assert found["values"].dtype == wanted.dtype
            np.testing.assert_array_equal(found["values"], wanted)
            assert tuple(found["dimension_names"]) == array.dimension_names
            assert_same_values(found["attributes"], {**array.attributes, **array.cf})
            np.testing.assert_array_equal(found["fill_value"], array.manifest.tables.fill.value)
    assert not arrays
    return given


def with_files(array, sources, folder):
    """Give an array whose sources are files."""
    urls = {}
    for url, data in sources.items():
        path = folder / f"{next(SERIAL)}.bin"
        path.write_bytes(data)
        urls[url] = f"file://{path}"
    manifest = array.in_memory()
    locations = tuple(replace(x, url=urls[x.url]) for x in manifest.locations)
    return replace(array, manifest=replace(manifest, locations=locations))


@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_array_is_read_alike(tmp_path_factory, data):
    """Rectilinear grids, several encodings, strides and starts, holes, inline chunks, in and out of the bundle."""
    folder = tmp_path_factory.mktemp("any")
    arrays = {}
    for name in "vw":
        array, _, sources = data.draw(changed_arrays())
        arrays[name] = replace(named(with_files(array, sources, folder)), name=name)
    save(ManifestGroup(arrays=arrays), folder / "x.vstack", relative=data.draw(st.booleans()))
    assert_reads_alike(folder / "x.vstack")


ATTRIBUTES = {
    "nothing": None, "flag": True, "text": "\u00e9\u0000", "n": -3, "long": 2**80, "x": 0.1, "nan": float("nan"),
    "infinite": [float("inf"), -float("inf")], "bytes": b"\x00\xff", "pair": (1, (2.0, "a")), "nested": {"array": [1]},
    "array": np.arange(6, dtype=">i2").reshape(2, 3), "scalar": np.float32(0.5), "time": np.datetime64("2000-01-01"),
    "record": np.array([(1, 2.0)], [("a", "<i2"), ("b", ">f8", (2,))]), "none": np.zeros((0, 2)),
    "texts": np.array([["a", ""]], np.dtypes.StringDType()), "bare": np.zeros(2, "V0"),
}  # fmt: skip


def test_attributes_of_any_kind_are_read_alike(tmp_path):
    array = inline_array(np.arange(3), name="v", dims=["x"], attributes=ATTRIBUTES)
    group = ManifestGroup(arrays={"v": array}, attributes=ATTRIBUTES)
    save(ManifestGroup(groups={"a": ManifestGroup(groups={"b": group})}, attributes={"top": 1}), tmp_path / "x.vstack")
    assert_reads_alike(tmp_path / "x.vstack")


@pytest.mark.parametrize(
    "values",
    [
        np.array(["a", "", "\u00e9" * 9], np.dtypes.StringDType()), np.array("one", np.dtypes.StringDType()),
        np.array([b"a", b"bc"]), np.array(["a", "bc"]), np.array([True, False]), np.zeros((2, 0), "f4"),
        np.array([(1, 2.0), (3, 4.0)], [("a", "<i2"), ("b", "<f8", (1,))]), np.array([1, 2], "datetime64[ns]"),
        np.array(5, "u8"), np.array([1j, -2]), np.zeros(3, "V5"), np.arange(40_000.0), np.float16([1, 2]),
    ],
)  # fmt: skip
def test_loaded_values_of_any_dtype_are_read_alike(values, tmp_path):
    dims = [f"d{i}" for i in range(values.ndim)]
    group = ManifestGroup(arrays={"v": inline_array(values, name="v", dims=dims, attributes={})})
    save(group, tmp_path / "x.vstack")
    assert_reads_alike(tmp_path / "x.vstack")
    assert read_array(group_of(tmp_path / "x.vstack").arrays["v"], ..., None).tobytes() == values.tobytes()


FIELDS = np.array([(1, (2, 3))], "i2,(2,)f4")


@pytest.mark.parametrize(
    ("values", "raw", "codec"),
    [
        (np.array("one", np.dtypes.StringDType()), b"\x01\0\0\0\x03\0\0\0one", Codec.from_config("vlen-utf8")),
        (FIELDS, zlib.compress(FIELDS), Codec.from_config("numcodecs.zlib", level=1)),
    ],
    ids=["text", "fields"],
)
def test_chunks_of_files_are_read_alike_where_zarr_has_no_such_dtype(values, raw, codec, tmp_path):
    """Or gives one value as no array."""
    (tmp_path / "a.bin").write_bytes(raw)
    one = np.zeros((1,) * values.ndim, int)
    options = {"location": f"file://{tmp_path}/a.bin", "codecs": [codec]}
    array = referenced(one, one + len(raw), values.shape, values.dtype, **options)
    save(ManifestGroup(arrays={"v": array}), tmp_path / "x.vstack")
    assert_reads_alike(tmp_path / "x.vstack")


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_shuffled_checksums_are_read_alike(dtype, tmp_path):
    """Which fill no element of 8 bytes."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        file.createDimension("x", 10)
        options = {"fletcher32": True, "shuffle": True, "zlib": True, "chunksizes": (6,)}
        file.createVariable("v", dtype, ("x",), **options)[:] = np.arange(10)
    vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "x.vstack")
    assert_reads_alike(tmp_path / "x.vstack")


RECORD = np.dtype([("a", "i1"), ("b", ">f8"), ("c", "<i2", (2,))], align=True)


@pytest.mark.parametrize("chunks", [None, (2,)])
@pytest.mark.parametrize("dtype", [RECORD, np.dtype([("n", RECORD), ("s", "S3")], align=True)], ids=["plain", "nested"])
def test_fields_with_bytes_between_them_are_read_alike(dtype, chunks, tmp_path):
    """As C lays out what HDF5 files hold."""
    record = np.zeros(3, RECORD)
    record["a"], record["b"], record["c"] = 7, np.arange(3) * 1.5, np.arange(6).reshape(3, 2)
    values = record
    if dtype is not RECORD:
        values = np.zeros(3, dtype)
        values["n"], values["s"] = record, b"ab"
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("v", data=values, chunks=chunks, compression=chunks and "gzip")
    vs.open_virtual_dataset(tmp_path / "a.h5").virtual.to_vstack(tmp_path / "x.vstack")
    assert_reads_alike(tmp_path / "x.vstack")
    found = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")["v"].values
    assert found.tobytes() == values.astype(found.dtype).tobytes()


@pytest.mark.parametrize("dtype", ["<i4", ">i4"])
@pytest.mark.parametrize(
    "codecs",
    [
        [],
        [Codec.from_config("numcodecs.zlib", level=1)],
        [Codec.from_config("numcodecs.shuffle", elementsize=4), Codec.from_config("numcodecs.zlib", level=1)],
        [Codec.from_config("zstd", level=1, checksum=False)],
        [Codec.from_config("gzip", level=1), Codec.from_config("crc32c")],
        [Codec.from_config("bytes", endian="big"), Codec.from_config("numcodecs.bz2", level=1)],
        [Codec.from_config("transpose", order=[1, 0]), Codec.from_config("numcodecs.lzma", preset=1)],
        [
            Codec.from_config("numcodecs.astype", encode_dtype=">i2", decode_dtype="=i4"),
            Codec.from_config("numcodecs.zlib", level=1),
        ],
        [Codec.from_config("numcodecs.fletcher32")],
    ],
    ids=lambda codecs: "+".join(codec.name for codec in codecs) or "none",
)
def test_codecs_are_those_of_zarr(codecs, dtype, tmp_path):
    """Encoded by zarr, where it does not encode as the plain bytes are."""
    values = np.arange(12, dtype="i4").reshape(3, 4)
    codecs = [replace(x, configuration=x.configuration.replace("=i4", dtype)) for x in codecs]
    stored = next((x.options()["encode_dtype"] for x in codecs if x.name == "numcodecs.astype"), dtype)
    endian = "big" if stored[0] == ">" else "little"
    documents = [codec.to_json() for codec in codecs]
    if not any(codec.name == "bytes" for codec in codecs):
        n = sum(codec.name in ("transpose", "numcodecs.astype") for codec in codecs)
        documents.insert(n, {"name": "bytes", "configuration": {"endian": endian}})
    path = tmp_path / "made.zarr"
    made = vs_create(path, values, documents)
    raw = (path / "c/0/0").read_bytes()
    (tmp_path / "a.bin").write_bytes(b"head" + raw)
    options = {"location": f"file://{tmp_path}/a.bin", "codecs": codecs}
    array = referenced([[4]], [[len(raw)]], (3, 4), dtype, **options)
    save(ManifestGroup(arrays={"v": array}), tmp_path / "x.vstack")
    assert_reads_alike(tmp_path / "x.vstack")
    np.testing.assert_array_equal(Store(tmp_path / "x.vstack").arrays()["/v"]["values"], made)


def vs_create(path, values, codecs):
    import warnings

    import zarr

    document = {
        "zarr_format": 3, "node_type": "array", "shape": values.shape, "data_type": "int32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": values.shape}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs, "attributes": {},
    }  # fmt: skip
    path.mkdir()
    (path / "zarr.json").write_text(json.dumps(document))
    with warnings.catch_warnings(action="ignore"):
        array = zarr.open_array(path, mode="r+")
        array[...] = values
        return array[...]


@pytest.mark.parametrize("relative", [False, True])
def test_files_joined_appended_and_moved_are_read_alike(relative, tmp_path, monkeypatch):
    """Of all snapshots: trees would be the same; tables that grow beyond their tail, relocated and relative sources."""
    monkeypatch.setattr(edit, "MAX_TAIL_ROWS", 2)
    monkeypatch.setattr(edit, "FULL_PAGE_ROWS", 3)
    (tmp_path / "data").mkdir()
    url = tmp_path / "x.vstack"
    for i in range(6):
        path = write(tmp_path / "data" / f"{i}.nc", dataset(range(3 * i, 3 * i + 1 + i % 3), seed=i))
        options = {"append_dim": "time"} if i else {}
        virtual(path).virtual.to_vstack(url, relative=relative, **options)
    assert Store(url).snapshot["arrays"]["/t"]["placements"]["pages"]
    for number in snapshots(url):
        assert_reads_alike(url, at=number)
    vs.Repository.open(url).write("t", {"time": slice(1, 3), "lat": 0}, np.full((2, 8), 5.0))
    assert Store(url).arrays()["/t"]["values"][1:3, 0].tolist() == [[5.0] * 8] * 2
    assert_reads_alike(url)
    (tmp_path / "data").rename(tmp_path / "other")
    moves = {"../data/": "../other/"} if relative else {str(tmp_path / "data"): str(tmp_path / "other")}
    vs.Repository.open(url).relocate(moves)
    assert_reads_alike(url)
    with xr.open_dataset(url, engine="virtualstack") as cube:
        assert cube.sizes["time"] == Store(url).arrays()["/t"]["values"].shape[0]


def test_sources_that_nothing_shows_any_more_are_not_read(tmp_path):
    """Those of before a refresh have another size now, or are gone."""
    url, files = tmp_path / "x.vstack", [tmp_path / f"{i}.nc" for i in range(3)]
    for i, file in enumerate(files):
        options = {"append_dim": "time"} if i else {}
        virtual(write(file, dataset(range(3 * i, 3 * i + 3), seed=i))).virtual.to_vstack(url, **options)
    write(files[0], dataset(range(3), seed=7).assign_attrs(note="longer" * 1000))
    files[2].unlink()
    found = vs.Repository.open(url).refresh(missing="mask")
    assert (len(found.refreshed), len(found.masked), found.left) == (1, 1, ())
    assert_reads_alike(url)


@pytest.mark.parametrize("relative", [False, True])
def test_sources_of_another_version_are_refused(relative, tmp_path):
    """Of another size, or of another time where that counts."""
    (tmp_path / "a").mkdir()
    file = write(tmp_path / "a" / "0.nc", dataset(range(3)))
    for name in ("a/x.vstack", "a/y.vstack"):
        virtual(file).virtual.to_vstack(tmp_path / name, relative=relative)
    os.utime(file, (1, 1))
    if relative:
        assert_reads_alike(tmp_path / "a" / "x.vstack")
    else:
        with pytest.raises(ValueError, match=r"version of '.*0\.nc'"):
            Store(tmp_path / "a" / "x.vstack").arrays()
        shutil.move(tmp_path / "a" / "0.nc", tmp_path / "0.nc")
        vs.Repository.open(tmp_path / "a" / "x.vstack").relocate({tmp_path / "a": tmp_path})
        assert_reads_alike(tmp_path / "a" / "x.vstack")
    write(file, dataset(range(3)).assign_attrs(note="longer" * 1000))
    with pytest.raises(ValueError, match=r"version of '.*0\.nc'"):
        Store(tmp_path / "a" / "y.vstack").arrays()


def test_boxes_that_reach_out_of_the_grid(tmp_path):
    """What they cover there is nothing."""
    url = tmp_path / "x.vstack"
    virtual(write(tmp_path / "a.nc", dataset(range(3)))).virtual.to_vstack(url)
    store = Store(url)
    array = store.snapshot["arrays"]["/t"]
    wanted = store.arrays()["/t"]["values"]
    for row in array["placements"]["tail"]:
        row[-len(array["shape"]) :] = [n + 1 for n in row[-len(array["shape"]) :]]
    np.testing.assert_array_equal(store.arrays()["/t"]["values"], wanted)


def test_pages_are_as_long_as_the_specification_says():
    """The plain reader has their lengths from there."""
    own = plain_reader.PAGE, plain_reader.SHARD, plain_reader.SOURCES
    assert own == (rows.PAGE_ROWS, rows.SHARD_PAGES, sources.PAGE_SOURCES)


@pytest.mark.parametrize("part", [100, pytest.param(1, marks=pytest.mark.apart)])
def test_many_sources_and_rows_are_read_alike(part, tmp_path, monkeypatch):
    """More than a page of each, of pages as they are or a hundredth of these; a shard and a half."""
    for module in (archive, rows, segment):
        monkeypatch.setattr(module, "SHARD_PAGES", 2)
    monkeypatch.setattr(plain_reader, "SHARD", 2)
    for module, name in ((rows, "PAGE_ROWS"), (plain_reader, "PAGE"), (plain_reader, "SOURCES")):
        monkeypatch.setattr(module, name, getattr(module, name) // part)
    page = sources.PAGE_SOURCES // part
    for module in (archive, segment, shown, sources):
        monkeypatch.setattr(module, "PAGE_SOURCES", page)
    n_sources, n_rows = 5000 // part, 70_000 // part
    data = np.random.default_rng(0).integers(0, 256, n_sources).astype("u1")
    for i in range(n_sources):
        (tmp_path / f"{i}.bin").write_bytes(data[i : i + 1].tobytes())
    (tmp_path / "all.bin").write_bytes(np.arange(n_rows, dtype="<u2").tobytes())
    many = ChunkManifest.from_arrays(
        np.zeros(n_sources, int), np.ones(n_sources, int),
        location=[Location(f"file://{tmp_path}/{i}.bin") for i in range(n_sources)],
        location_codes=np.arange(n_sources) + 3, encoding=ChunkEncoding.c_order("u1", (1,)), fill=Fill.zero("u1"),
    )  # fmt: skip
    order = np.random.default_rng(0).permutation(n_rows)
    options = {"location": f"file://{tmp_path}/all.bin", "name": "rows", "dims": ["rows"]}
    shuffled = referenced(order * 2, np.full(n_rows, 2), (1,), "<u2", **options)
    arrays = {"many": array_of(many, (1,), name="many", dims=["many"]), "rows": shuffled}
    save(ManifestGroup(arrays=arrays), tmp_path / "x.vstack")
    found = assert_reads_alike(tmp_path / "x.vstack")
    np.testing.assert_array_equal(found["/many"]["values"], data)
    np.testing.assert_array_equal(found["/rows"]["values"], order.astype("u2"))


def test_the_plain_reader_is_short_and_knows_nothing_of_virtualstack():
    """As the specification says."""
    text = Path(__file__).with_name("plain_reader.py").read_text()
    assert len(text.splitlines()) <= 210
    assert not [
        line for line in text.splitlines() if "import" in line and "virtualstack" in line.partition("import")[2]
    ]
