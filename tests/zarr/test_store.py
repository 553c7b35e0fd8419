"""The zarr store over a group, read by zarr and by xarray."""

import asyncio
import json
import os
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
import zarr
from fsspec.implementations.local import LocalFileSystem
from numcodecs.vlen import VLenUTF8
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

import virtualstack as vs
from tests.data.arrays import array_of, one_inline_chunk
from tests.data.netcdf4 import netcdf4_file
from tests.data.stores import publish
from tests.forks import forked, forking, waiting_reader
from tests.servers import RangeServer
from virtualstack.codecs.codec import Codec
from virtualstack.errors import SourceChangedError, SourceNotFoundError, StorageError, UnsupportedFeatureError
from virtualstack.manifests import ChunkManifest, ManifestGroup
from virtualstack.reading import read_array
from virtualstack.storage import MemoryTarget, Storage
from virtualstack.testing.strategies import ZLIB, store_array
from virtualstack.zarr.present import ZarrArray, present
from virtualstack.zarr.store import ManifestStore

PROTOTYPE = default_buffer_prototype()


def known(values, chunks, url="memory://store/a", **options):
    array, values, sources = store_array(values, chunks, url=url, **options)
    publish(sources)
    return replace(array, dimension_names=tuple("xyz"[: array.ndim])), values


def inline(values, *, stored=None, fill=0, raw=None, **options):
    """Values as one inline chunk."""
    stored = stored or values.dtype
    raw = raw if raw is not None else values.astype(stored).tobytes()
    return one_inline_chunk(raw, values.shape, stored, fill=fill, **options)


def run(awaitable):
    return asyncio.run(awaitable)


def get(store, key, part=None):
    found = run(store.get(key, PROTOTYPE, part))
    return None if found is None else found.to_bytes()


def listed(store, prefix=None):
    async def collect():
        return [key async for key in (store.list() if prefix is None else store.list_prefix(prefix))]

    return run(collect())


def names(store, prefix):
    async def collect():
        return sorted([name async for name in store.list_dir(prefix)])

    return run(collect())


def a_group():
    plain, plain_values = known(np.arange(35, dtype="i4").reshape(5, 7), (2, 3), codecs=(ZLIB,), url="memory://store/p")
    big, big_values = known(
        np.arange(12.0).reshape(3, 4), (2, 2), stored_dtype=">f8", order=(1, 0), url="memory://store/b"
    )
    holes = np.array([[0, 1], [2, 0]], np.uint8)
    holey, holey_values = known(np.ones((4, 4), "i2"), (2, 2), holes=holes, fill=7, url="memory://store/h")
    cut, cut_values = plain[1:4, ::2], plain_values[1:4, ::2]
    mixed = np.concatenate([plain, plain[:, ::-1]])
    mixed_values = np.concatenate([plain_values, plain_values[:, ::-1]])
    scalar, scalar_values = known(np.array(3, "i8"), (), url="memory://store/s")
    empty, empty_values = known(np.zeros((0, 3), "f4"), (1, 2), url="memory://store/e")
    made = {
        "plain": (plain, plain_values),
        "big": (big, big_values),
        "holey": (holey, holey_values),
        "cut": (replace(cut, dimension_names=("x", "z")), cut_values),
        "mixed": (replace(mixed, dimension_names=("y", "z")), mixed_values),
        "scalar": (scalar, scalar_values),
        "empty": (replace(empty, dimension_names=("p", "q")), empty_values),
    }
    arrays, values = ({name: pair[i] for name, pair in made.items()} for i in (0, 1))
    inner = ManifestGroup(arrays={"deep": plain}, attributes={"title": "inner"})
    return ManifestGroup(arrays=arrays, groups={"inner": inner}, attributes={"n": np.int16(3), "nan": np.nan}), values


@pytest.mark.parametrize("given", ["x.vstack", xr.Dataset()])
def test_it_takes_a_group(given):
    """A URL or a dataset would fail at the first key that zarr asks for, with an error of Python's."""
    with pytest.raises(TypeError, match=r"needs a group, such as vds\.virtual\.to_group\(\)"):
        ManifestStore(given)


def test_zarr_reads_what_reading_reads():
    """Plain arrays and all others have the same values through zarr as directly."""
    group, values = a_group()
    opened = zarr.open(ManifestStore(group), mode="r")
    assert sorted(name for name, _ in opened.arrays()) == sorted(values)
    assert [name for name, _ in opened.groups()] == ["inner"]
    for name, array in opened.arrays():
        np.testing.assert_array_equal(array[...], values[name], err_msg=name)
        assert array.dtype == values[name].dtype
        np.testing.assert_array_equal(read_array(group.arrays[name], ...), values[name])
    np.testing.assert_array_equal(opened["plain"][1:, 2:6:2], values["plain"][1:, 2:6:2])
    np.testing.assert_array_equal(opened["inner/deep"][...], values["plain"])
    assert opened.attrs["n"] == 3
    assert np.isnan(opened.attrs["nan"])


def test_plain_chunks_are_handed_on_untouched():
    """Bytes of plain arrays are the stored bytes, and ranges of them are ranges of those."""
    group, _ = a_group()
    store = ManifestStore(group)
    manifest = group.arrays["plain"].manifest
    entry = manifest.entries[0, 1]
    source = MemoryTarget("memory://store").get("p")
    raw = source[entry["offset"] : entry["offset"] + entry["length"]]
    assert get(store, "plain/c/0/1") == raw
    assert get(store, "plain/c/0/1", RangeByteRequest(2, 5)) == raw[2:5]
    assert get(store, "plain/c/0/1", RangeByteRequest(2, 10**6)) == raw[2:]
    assert get(store, "plain/c/0/1", OffsetByteRequest(3)) == raw[3:]
    assert get(store, "plain/c/0/1", SuffixByteRequest(4)) == raw[-4:]
    assert run(store.getsize("plain/c/0/1")) == len(raw)
    got = run(store.get_partial_values(PROTOTYPE, [("plain/c/0/1", RangeByteRequest(0, 2)), ("nothing", None)]))
    assert got[0].to_bytes() == raw[:2]
    assert got[1] is None
    document = json.loads(get(store, "plain/zarr.json"))
    assert [codec["name"] for codec in document["codecs"]] == ["bytes", "numcodecs.zlib"]
    document = json.loads(get(store, "big/zarr.json"))
    assert document["codecs"][0] == {"name": "transpose", "configuration": {"order": [1, 0]}}
    assert document["codecs"][1] == {"name": "bytes", "configuration": {"endian": "big"}}


def test_decoded_chunks_have_ranges_too():
    """Ranges of decoded chunks are cut from the decoded bytes."""
    group, _ = a_group()
    store = ManifestStore(group)
    whole = get(store, "cut/c/0/0")
    document = json.loads(get(store, "cut/zarr.json"))
    assert len(whole) == 4 * np.prod(document["chunk_grid"]["configuration"]["chunk_shape"])
    assert get(store, "cut/c/0/0", RangeByteRequest(4, 8)) == whole[4:8]
    assert run(store.getsize("cut/c/0/0")) == len(whole)
    with pytest.raises(FileNotFoundError, match="cut/c/9/9"):
        run(store.getsize("cut/c/9/9"))
    with pytest.raises(ValueError, match="not a byte range"):
        get(store, "cut/zarr.json", (0, 3))


@pytest.mark.parametrize("part", [RangeByteRequest(-5, 3), OffsetByteRequest(-4), SuffixByteRequest(-3)])
@pytest.mark.parametrize("key", ["plain/c/0/1", "cut/c/0/0", "zarr.json"])
def test_no_range_reaches_before_a_value(key, part):
    """What lies before a stored chunk in its source is not handed on."""
    with pytest.raises(ValueError, match="cannot be negative"):
        get(ManifestStore(a_group()[0]), key, part)


def test_listing_names_what_is_there():
    """Keys that are listed exist, and no others do; EMPTY chunks are absent."""
    group, _ = a_group()
    store = ManifestStore(group)
    keys = listed(store)
    assert len(keys) == len(set(keys))
    for key in keys:
        assert run(store.exists(key)), key
        assert get(store, key) is not None, key
    assert {"zarr.json", "inner/zarr.json", "inner/deep/c/0/0", "scalar/c", "holey/c/0/0"} <= set(keys)
    for key in ("holey/c/0/1", "holey/c/1/0", "plain/c/0/9", "plain/c/0", "plain/c/00/0", "x", "plain/0.0", ".zgroup"):
        assert key not in keys
        assert not run(store.exists(key))
        assert get(store, key) is None
    assert names(store, "") == sorted(["zarr.json", "inner", *group.arrays])
    assert names(store, "plain") == ["c", "zarr.json"]
    assert names(store, "plain/c") == ["0", "1", "2"]
    assert names(store, "plain/c/1") == ["0", "1", "2"]
    assert names(store, "holey/c/0/") == ["0"]
    assert names(store, "empty") == ["zarr.json"]
    for part in ("²", "9" * 5000):
        assert not run(store.exists(f"plain/c/0/{part}"))
        assert get(store, f"plain/c/0/{part}") is None
    for prefix in ("plain/c/0/0", "plain/d", "plain/c/9", "plain/c/x", "nothing", "plain/c/²", "plain/c/" + "9" * 5000):
        assert names(store, prefix) == []
    assert listed(store, "inner/deep/c/1/") == [f"inner/deep/c/1/{i}" for i in range(3)]
    assert listed(store, "scalar") == ["scalar/zarr.json", "scalar/c"]
    assert not run(store.is_empty("inner"))
    assert run(store.is_empty("nothing"))


def test_what_cannot_be_read_names_the_chunk():
    """Stored chunks that are handed on have variable, cell and bytes in their errors, as those that are decoded."""
    array = a_group()[0].arrays["plain"].rename_locations(lambda url: "memory://store/gone")
    opened = zarr.open(ManifestStore(ManifestGroup(arrays={"plain": array})), mode="r")
    with pytest.raises(
        SourceNotFoundError, match=r"cell \(0, 1\) of variable 'plain' \(bytes \d+ to \d+\).*nothing at"
    ) as caught:
        opened["plain"][0, 3]
    entry = array.manifest.entries[0, 1]
    assert (caught.value.offset, caught.value.length) == (entry["offset"], entry["length"])
    assert (caught.value.cell, caught.value.url) == ((0, 1), "memory://store/gone")


def test_each_array_has_its_own_version_of_a_source():
    """One that was indexed before the source changed is not served from what another one of the same URL opened."""
    array = a_group()[0].arrays["plain"]
    (location,) = array.manifest.locations
    old = replace(array, manifest=replace(array.manifest, locations=(replace(location, size=10_000),)))
    opened = zarr.open(ManifestStore(ManifestGroup(arrays={"new": array, "old": old})), mode="r")
    assert opened["new"][0, 0] == 0
    with pytest.raises(SourceChangedError, match=r"cell \(0, 0\) of variable 'old'"):
        opened["old"][0, 0]


@pytest.mark.parametrize("where", ["file", "http", "fsspec"])
def test_a_source_that_changes_between_two_chunks_is_found(tmp_path, where):
    """Also where the store has read from it before: what is kept open is compared again."""
    old, new = (
        store_array(np.full((4, 2), n, "<i4"), (2, 2), url=(tmp_path / "x").as_uri(), order=(0, 1)) for n in (1, 2)
    )
    (before,), (after,) = old[2].values(), new[2].values()
    assert len(before) == len(after)
    (tmp_path / "x").write_bytes(before)
    with RangeServer(tmp_path) as server:
        url = server.url("x") if where == "http" else (tmp_path / "x").as_uri()
        storage = Storage.from_option(LocalFileSystem() if where == "fsspec" else None)
        array = replace(old[0], manifest=replace(old[0].manifest, locations=(storage.source(url).location,)))
        opened = zarr.open(ManifestStore(ManifestGroup(arrays={"v": array}), storage), mode="r")
        np.testing.assert_array_equal(opened["v"][:2], 1)
        (tmp_path / "x").write_bytes(after)
        os.utime(tmp_path / "x", (1, 1))
        with pytest.raises(SourceChangedError, match=r"cell \(1, 0\) of variable 'v'"):
            opened["v"][2:]


def test_missing_chunks_are_absent_or_an_error():
    """A ABSENT chunk is its fill value, or raises where asked."""
    group, values = a_group()
    strict = ManifestStore(group, absent="raise")
    opened = zarr.open(strict, mode="r")
    np.testing.assert_array_equal(opened["holey"][:2], values["holey"][:2])
    with pytest.raises(StorageError, match="is ABSENT") as caught:
        opened["holey"][2:]
    assert caught.value.variable == "holey"
    assert f"chunk {caught.value.cell} of" in str(caught.value)
    cut = replace(group.arrays["holey"][1:], dimension_names=("x", "y"))
    opened = zarr.open(ManifestStore(ManifestGroup(arrays={"cut": cut}), absent="raise"), mode="r")
    with pytest.raises(StorageError, match="1 chunk of variable 'v' is ABSENT"):
        opened["cut"][...]


def test_holes_with_other_fills_are_served():
    """Holes of two fill values in one array read as what they are."""
    one, left = known(
        np.ones((2, 2), "i2"), (1, 2), holes=np.array([[1], [0]], np.uint8), fill=7, url="memory://store/1"
    )
    two, right = known(
        np.ones((2, 2), "i2"), (1, 2), holes=np.array([[0], [1]], np.uint8), fill=8, url="memory://store/2"
    )
    both = replace(np.concatenate([one, two]), dimension_names=("x", "y"))
    store = ManifestStore(ManifestGroup(arrays={"v": both}))
    np.testing.assert_array_equal(zarr.open(store, mode="r")["v"][...], np.concatenate([left, right]))
    assert names(store, "v/c") == ["1", "2", "3"]


STRUCT = np.dtype([("a", "i2"), ("b", "f8")])


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    ("values", "stored", "fill"),
    [
        (np.array([True, False]), None, True),
        (np.array([1.5, np.nan], "f2"), ">f2", np.nan),
        (np.array([1 + 2j, 3], "c8"), ">c8", 1j),
        (np.array([b"ab", b"c"], "S3"), None, b"x"),
        (np.array(["ab", "ü"], "U3"), ">U3", "y"),
        (np.array(["2001-01-01", "NaT"], "M8[s]"), ">M8[s]", np.datetime64("NaT", "s")),
        (np.array([1, 2], "m8[ms]"), None, np.timedelta64(1, "ms")),
        (np.array([(1, 2.5), (3, 4.5)], STRUCT), None, 0),
        (np.array([(1, 2.5), (3, 4.5)], STRUCT), STRUCT.newbyteorder(">"), 0),
        (np.array([(1, 2.5), (3, 4.5)], np.dtype(STRUCT.descr, align=True)), None, 0),
        (np.array([b"abc", b"def"], "V3"), None, 0),
    ],
    ids=str,
)
def test_every_dtype_of_zarr_reads_back(values, stored, fill):
    """Values, holes and dtype come through zarr as they are stored."""
    array = inline(values, stored=stored and np.dtype(stored), fill=fill)
    hole = array_of(ChunkManifest.empty((1,), array.manifest.fill), (2,))
    group = ManifestGroup(arrays={"v": array, "both": replace(np.concatenate([array, hole]), dimension_names=("y",))})
    opened = zarr.open(ManifestStore(group), mode="r")
    for name, wanted in (("v", values), ("both", read_array(group.arrays["both"], ...))):
        got = opened[name][...]
        assert got.shape == wanted.shape
        if values.dtype.names is None:
            assert got.dtype == values.dtype
            np.testing.assert_array_equal(got, wanted)
        else:
            assert got.tolist() == wanted.tolist()


def test_strings_read_back():
    """Strings pass through as they are stored; cut ones are re-encoded."""
    dtype = np.dtypes.StringDType()
    words = np.array(["a", "", "länger"], dtype)
    raw = VLenUTF8().encode(words.astype(object))
    array = inline(words, codecs=[Codec.from_config("vlen-utf8")], raw=raw, fill="-", attributes={"_FillValue": "-"})
    group = ManifestGroup(arrays={"v": array, "cut": replace(array[::-1][:2], dimension_names=("y",))})
    opened = zarr.open(ManifestStore(group), mode="r")
    assert opened["v"][...].tolist() == ["a", "", "länger"]
    assert opened["cut"][...].tolist() == ["länger", ""]


def test_dtypes_without_a_zarr_form_are_refused_by_name():
    """An array that zarr cannot hold is not listed and raises when opened; the others work."""
    odd = inline(np.arange(3, dtype=np.longdouble))
    good, values = known(np.arange(3.0), (2,))
    store = ManifestStore(ManifestGroup(arrays={"odd": odd, "good": good}))
    opened = zarr.open(store, mode="r")
    assert [name for name, _ in opened.arrays()] == ["good"]
    np.testing.assert_array_equal(opened["good"][...], values)
    with pytest.raises(UnsupportedFeatureError, match=r"variable 'odd' has dtype '(float128|longdouble)"):
        opened["odd"]
    assert list(store.refused) == ["odd"]
    assert not run(store.exists("odd/zarr.json"))
    assert names(store, "odd") == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["zarr.json", "a\\b"])
def test_a_name_that_zarr_has_or_takes_for_a_path_hides_nothing(name):
    """It is refused, and the others are there; of backslashes zarr makes slashes, and does not find them."""
    _, inner = a_group()[0].arrays.popitem()
    store = ManifestStore(ManifestGroup(arrays={name: inner, "v": inner}))
    assert store.refused.keys() == {name}
    assert names(store, "") == ["v", "zarr.json"]
    assert list(zarr.open_group(store, mode="r")) == ["v"]


def test_codecs_that_zarr_lacks_are_decoded_for_it():
    """Shuffled bytes that fill no element are HDF5's alone; zarr gets them decoded."""
    values = np.arange(5, dtype="u1")
    raw = np.concatenate([values[:4].reshape(2, 2).T.reshape(-1), values[4:]]).tobytes()
    array = inline(values, codecs=[Codec.from_config("numcodecs.shuffle", elementsize=2)], raw=raw)
    store = ManifestStore(ManifestGroup(arrays={"v": array}))
    np.testing.assert_array_equal(zarr.open(store, mode="r")["v"][...], values)
    assert [codec["name"] for codec in json.loads(get(store, "v/zarr.json"))["codecs"]] == ["bytes"]
    unknown = inline(values, codecs=[Codec.from_config("numcodecs.nobody_knows")], raw=raw)
    store = ManifestStore(ManifestGroup(arrays={"v": unknown}))
    with pytest.raises(UnsupportedFeatureError, match="nobody_knows"):
        zarr.open(store, mode="r")["v"][...]


def test_xarray_decodes_as_it_does_elsewhere():
    """Fill values, packing, times and coordinates come out as attributes say."""
    packed = inline(
        np.array([1, -9, 3], "i2"),
        attributes={"scale_factor": np.float64(0.5), "_FillValue": np.int16(-9), "valid_range": np.array([0, 9], "i2")},
    )
    floats = inline(np.array([1, 9e36, 3], "f4"), attributes={"_FillValue": np.array([9e36], "f4"), "note": b"\xe4"})
    time = inline(np.array([0, 1, 2], "i4"), attributes={"units": "days since 2000-01-01"})
    aux = inline(np.array([5, 6, 7], "i4"), attributes={"_FillValue": "no number", "odd": np.zeros(1, STRUCT)})
    wrong = inline(np.array([5, 6, 7], "i4"), attributes={"_FillValue": np.array([1, 2])})
    group = ManifestGroup(
        arrays={"packed": packed, "floats": floats, "time": time, "aux": aux, "wrong": wrong},
        coordinates=frozenset({"aux"}),
    )
    ds = xr.open_zarr(ManifestStore(group), consolidated=False)
    np.testing.assert_array_equal(ds.packed, [0.5, np.nan, 1.5])
    np.testing.assert_array_equal(ds.floats, [1, np.nan, 3])
    assert ds.time.dtype.kind == "M"
    assert "aux" in ds.coords
    assert ds.floats.attrs["note"] == "ä"
    assert "_FillValue" not in ds.aux.attrs
    raw = xr.open_zarr(ManifestStore(group), consolidated=False, decode_cf=False)
    np.testing.assert_array_equal(raw.packed, [1, -9, 3])
    assert raw.packed.attrs["_FillValue"] == -9


def test_a_store_pickles_and_equals_its_copy():
    """A copy is equal by structure, and reads the same; another group is not equal."""
    group, values = a_group()
    store = ManifestStore(group)
    get(store, "cut/c/0/0")
    copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    np.testing.assert_array_equal(zarr.open(copy, mode="r")["cut"][...], values["cut"])
    assert store != ManifestStore(group, absent="raise")
    assert store != ManifestStore(replace(group, groups={}))
    assert store != ManifestStore(replace(group, attributes={}))
    other = {**group.arrays, "plain": group.arrays["plain"][::-1][::-1][:]}
    assert store == ManifestStore(
        replace(group, arrays={**other, "plain": replace(other["plain"], dimension_names=("x", "y"))})
    )
    assert store != ManifestStore(
        replace(group, arrays={**other, "plain": replace(group.arrays["plain"], name="w", attributes={"a": 1})})
    )
    assert store != "store"
    assert repr(store).startswith("ManifestStore(ManifestGroup(7 arrays")


def test_a_store_is_read_only():
    """Nothing can be written, and no writeable store is made of it."""
    store = ManifestStore(ManifestGroup())
    assert store.read_only
    assert not store.supports_writes
    assert not store.supports_deletes
    assert not store.supports_consolidated_metadata
    for change in (
        lambda: run(store.set("a", PROTOTYPE.buffer.from_bytes(b""))),
        lambda: run(store.delete("a")),
        lambda: store.with_read_only(False),
    ):
        with pytest.raises(ValueError, match="read-only"):
            change()
    assert store.with_read_only() == store.with_read_only(True) == store
    assert names(store, "") == ["zarr.json"]


@forking
@pytest.mark.parametrize("where", ["decoding", "looking for a form"])
def test_a_child_forked_while_another_thread_reads_reads_too(monkeypatch, where):
    """It waits neither for a chunk that only its parent is decoding, nor for a lock that nobody will give back."""
    group, values = a_group()
    store, began, goes_on = ManifestStore(group), threading.Event(), threading.Event()

    def slow(function):
        def waiting(*args, **options):
            began.set()
            goes_on.wait(60)
            return function(*args, **options)

        return waiting

    if where == "decoding":
        monkeypatch.setattr(ZarrArray, "make", slow(ZarrArray.make))
    else:
        monkeypatch.setattr("virtualstack.zarr.keys.present", slow(present))

    def child():
        goes_on.set()
        assert np.frombuffer(store._get("cut/c/0/0", None), "<i4")[0] == values["cut"][0, 0]

    with waiting_reader(lambda: store._get("cut/c/0/0", None), began, goes_on):
        assert forked(child)


def test_a_decoded_chunk_is_made_once():
    """Many threads that ask for one decoded chunk wait for one decoding; its error reaches all of them."""
    from virtualstack.cache import ByteCache

    cache, calls, release = ByteCache(10), [], threading.Event()

    def make():
        calls.append(1)
        release.wait(5)
        return b"12345"

    got = []
    threads = [threading.Thread(target=lambda: got.append(cache.get("k", make))) for _ in range(4)]
    for thread in threads:
        thread.start()
    release.set()
    for thread in threads:
        thread.join()
    assert got == [b"12345"] * 4
    assert len(calls) == 1
    cache.get("l", lambda: b"12345")
    cache.get("k", make)
    cache.get("m", lambda: b"12345")
    assert len(calls) == 1
    cache.get("l", make)
    assert len(calls) == 2
    assert cache.get("large", lambda: bytes(11)) == bytes(11)

    def fail():
        raise StorageError("no bytes")

    for _ in range(2):
        with pytest.raises(StorageError, match="no bytes"):
            cache.get("f", fail)


@pytest.mark.parametrize("kind", ["NETCDF3_64BIT_OFFSET", "NETCDF4"])
def test_many_small_chunks_are_merged(kind, tmp_path):
    """Records of netCDF-3, and compressed ones of netCDF-4: zarr has few calls, and the values of the file."""
    values = np.arange(7000, dtype="f4").reshape(700, 10)
    stored = {"zlib": True, "chunksizes": (1, 10)} if kind == "NETCDF4" else {}
    variables = {"time": ("f8", "time", np.arange(700))}
    variables |= {name: ("f4", "time x", by * values, {}, stored) for name, by in (("a", 1), ("b", -1))}
    netcdf4_file(tmp_path / "a.nc", {"time": None, "x": 10}, variables, kind=kind)
    vds = vs.open_virtual_dataset(tmp_path / "a.nc", loadable_variables=[])
    assert vds.virtual.nrefs >= 1400
    opened = zarr.open_group(ManifestStore(vds.virtual.to_group()), mode="r")
    np.testing.assert_array_equal(opened["a"][...], values)
    np.testing.assert_array_equal(opened["b"][690:, 3], -values[690:, 3])
    assert opened["b"].nchunks == 1
    some = zarr.open_group(ManifestStore(vds.isel(time=slice(100)).virtual.to_group()), mode="r")
    assert some["a"].nchunks == 100
