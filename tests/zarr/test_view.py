"""The view of a group: what zarr reads of it, and how it follows a group that changes."""

import asyncio
import json
import sys
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.core.buffer import default_buffer_prototype

from tests.amount import examples
from tests.data.arrays import array_of
from tests.data.stores import publish
from tests.data.watching import memory_below
from tests.zarr.views import LOADED, a_group, documents, in_memory, keys_of, loaded, regular, virtual_arrays
from virtualstack.errors import VirtualValuesError
from virtualstack.manifests import ChunkEncoding, ChunkManifest, Fill, ManifestGroup, PagedManifest
from virtualstack.testing.strategies import ZLIB, in_pages, known_arrays
from virtualstack.zarr import view
from virtualstack.zarr.store import ManifestStore
from virtualstack.zarr.view import is_inline, left_out

# -- what is in it ----------------------------------------------------------------------------------------------


def test_zarr_reads_loaded_arrays():
    """Values, dtypes, names and attributes."""
    opened = zarr.open_group(in_memory(keys_of(a_group())), mode="r")
    for name, values in LOADED.items():
        array = opened[name]
        np.testing.assert_array_equal(array[...], values)
        assert array.dtype == values.dtype
        assert array.attrs["standard_name"] == name
    assert opened["plane"].metadata.dimension_names == ("time", "lat")
    np.testing.assert_array_equal(opened["inner/lat"][...], LOADED["lat"])


@pytest.mark.parametrize("dtype", ["?", ">i2", "f4", "g"])
def test_numbers_of_attributes_are_taken_together(dtype):
    """A large attribute costs no call of Python for each of its numbers, and they are those that are there."""
    n, n_calls = 10_000, 0
    values = np.arange(n).astype(dtype)

    def count(*_):
        nonlocal n_calls
        n_calls += 1

    sys.setprofile(count)
    try:
        keys = dict(view.make_view(ManifestGroup(attributes={"large": values})))
    finally:
        sys.setprofile(None)
    assert json.loads(keys["zarr.json"])["attributes"]["large"] == values.tolist()
    assert n_calls < n


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    "values",
    [
        np.array(["a", "", "länger"], np.dtypes.StringDType()),
        np.array("ü", np.dtypes.StringDType()),
        np.array(["ab", "ü"], "U3"),
        np.array([b"ab", b"c"], "S3"),
        np.array(["2001-01-01", "NaT"], "M8[s]"),
        np.array([1, 2], "m8[ms]"),
        np.array([1 + 2j, 3], ">c8"),
        np.array([1.5, np.nan], "f2"),
        np.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", "f8")]),
        np.array([b"abc", b"def"], "V3"),
    ],
    ids=str,
)
def test_every_dtype_of_zarr_is_loaded(values):
    """Text, dates, records and raw bytes too."""
    got = zarr.open_group(in_memory(keys_of(ManifestGroup(arrays={"v": loaded(values)}))), mode="r")["v"][...]
    np.testing.assert_array_equal(np.asarray(got), values)


def test_the_attributes_of_groups_are_those_of_the_user():
    """Nothing of the store stands there."""
    opened = zarr.open_group(in_memory(keys_of(a_group())), mode="r")
    assert dict(opened.attrs) == {"title": "of the user", "numbers": [1, 2.5, None]}
    assert dict(opened["inner"].attrs) == {"level": 2}


def test_virtual_arrays_have_their_metadata_and_no_chunk():
    """Of each kind; chunks and codecs are those of the source where all chunks have them."""
    group = a_group()
    keys = keys_of(group)
    opened = zarr.open_group(in_memory(keys), mode="r")
    for name, array in virtual_arrays().items():
        assert [key for key in keys if key.startswith(f"{name}/")] == [f"{name}/zarr.json"]
        assert (opened[name].shape, opened[name].dtype) == (array.shape, array.dtype)
        assert opened[name].fill_value == 7
        assert opened[name].metadata.dimension_names == array.dimension_names
        assert dict(opened[name].attrs) == {"units": "K"}
        with pytest.raises(VirtualValuesError):
            opened[name][...]
    chunks = {name: opened[name].chunks for name in virtual_arrays()}
    assert chunks["plain"] == chunks["paged"] == chunks["holey"] == chunks["mixed"] == chunks["uneven"] == (2, 3)
    assert chunks["turned"] == (3, 2)
    assert chunks["point"] == ()
    names = {key: [x["name"] for x in doc["codecs"]] for key, doc in documents(group).items() if "codecs" in doc}
    assert names["plain/zarr.json"] == names["paged/zarr.json"] == ["bytes", "numcodecs.zlib"]
    assert names["turned/zarr.json"] == ["transpose", "bytes", "numcodecs.zlib"]
    assert names["mixed/zarr.json"] == names["uneven/zarr.json"] == names["cut/zarr.json"] == ["bytes"]


def test_plain_virtual_arrays_have_the_metadata_of_a_vstack():
    """All but the encoding of keys, by which they are refused."""
    group = ManifestGroup(arrays={x: y for x, y in virtual_arrays().items() if x not in ("paged", "uneven")})
    shown, store = documents(group), ManifestStore(group)
    for name in group.arrays:
        made = asyncio.run(store.get(f"{name}/zarr.json", default_buffer_prototype()))
        expected = {**json.loads(made.to_bytes()), "chunk_key_encoding": {"name": "virtualstack.manifest"}}
        assert shown[f"{name}/zarr.json"] == expected


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@settings(deadline=None, max_examples=examples(100))
@given(known_arrays(), st.booleans(), st.booleans())
def test_any_array_is_shown_with_its_values_or_without(known, is_loaded, is_paged):
    """Of any grid, encodings and holes: all values, or an error."""
    array = replace(known.array.whole(), dimension_names=tuple("abcdefgh"[: known.array.ndim]))
    publish(known.sources)
    in_pieces, pages = in_pages(array, 3)
    array = in_pieces if is_paged else array
    keys = keys_of(ManifestGroup(arrays={"v": array}), lambda array: is_loaded)
    opened = zarr.open_group(in_memory(keys), mode="r")["v"]
    assert (opened.shape, opened.dtype) == (known.values.shape, known.values.dtype)
    if is_loaded or not known.values.size:
        np.testing.assert_array_equal(opened[...], known.values)
        return
    assert not pages.read_pages
    with pytest.raises(VirtualValuesError):
        opened[...]


@dataclass(frozen=True, eq=False)
class NoPages:
    """Pages that must not be read."""

    def read(self, page, /):
        raise AssertionError(f"page {page} was read")

    def complete(self, entries, rows, /):
        raise AssertionError("rows were read")


def of_many_chunks(shape, chunks, n_encodings=1):
    encodings = [ChunkEncoding.c_order("<f4", chunks, (ZLIB,) * i) for i in range(1, n_encodings + 1)]
    tables = ChunkManifest(np.zeros(0, ChunkManifest.empty((), Fill.zero("f4")).entries.dtype), (Fill.zero("f4"),))
    manifest = PagedManifest(
        source=NoPages(),
        shape=regular(shape, chunks).shape,
        page_size=1000,
        tables=replace(tables, encodings=tuple(encodings)),
    )
    return array_of(manifest, chunks, shape=shape)


def test_arrays_of_any_number_of_chunks_cost_nothing():
    """No page is read, no list of chunks is made."""
    arrays = {
        "plain": of_many_chunks((10**15, 50), (1000, 50)),
        "mixed": of_many_chunks((10**15, 50), (1000, 50), n_encodings=2),
    }
    arrays["cut"] = replace(arrays["plain"][5000 : 10**14], dimension_names=("x", "y"))
    arrays["joined"] = replace(np.concatenate([arrays["plain"], arrays["mixed"]]), dimension_names=("x", "y"))
    assert not any(map(is_inline, arrays.values()))
    group = ManifestGroup(arrays=arrays)
    with memory_below(1 << 20):
        found = documents(group)
    assert found["plain/zarr.json"]["shape"] == [10**15, 50]
    assert found["joined/zarr.json"]["shape"] == [2 * 10**15, 50]
    assert {
        x: found[f"{x}/zarr.json"]["chunk_grid"]["configuration"]["chunk_shape"][1] for x in arrays
    } == dict.fromkeys(arrays, 50)


def test_the_caller_says_what_is_loaded():
    """By default what is INLINE; any array can be."""
    group = ManifestGroup(arrays={"lat": loaded(LOADED["lat"]), "holey": virtual_arrays()["holey"]})
    assert [key for key in keys_of(group) if "/c" in key] == ["lat/c/0"]
    assert [key for key in keys_of(group, lambda array: False) if "/c" in key] == []
    half = array_of(ChunkManifest.empty((2,), Fill.zero("i2")), (2,))
    assert not is_inline(half)
    assert not is_inline(replace(np.concatenate([loaded(np.ones(2, "i2")), half]), dimension_names=("x",)))
    assert not is_inline(in_pages(virtual_arrays()["plain"], 2)[0])


def test_loaded_arrays_are_one_chunk_up_to_a_megabyte():
    """Then chunks of as many rows whatever their number; rows of more are cut along the next axis."""
    shapes = [((180, 360), 8), ((131072,), 8), ((131073,), 8), ((10**9,), 8), ((0, 5), 4), ((), 8), ((3, 10**6), 8)]
    found = [view.chunk_shape(*x) for x in shapes]
    assert found == [(180, 360), (131072,), (131072,), (131072,), (1, 5), (), (1, 131072)]
    for shape, itemsize in product([(100, 70, 1000), (10**6, 3), (2, 1, 10**7), (5000, 0, 3)], [1, 2, 8, 100]):
        chunks = view.chunk_shape(shape, itemsize)
        assert np.prod(chunks) * itemsize < 2 << 20
        longer = view.chunk_shape((3 * shape[0], *shape[1:]), itemsize)
        assert chunks == longer or chunks[0] == shape[0]


# -- what cannot be in it ---------------------------------------------------------------------------------------


def test_what_zarr_cannot_have_is_left_out_and_named():
    """Dtypes without a form, and names that are no keys."""
    odd, good = loaded(np.arange(3, dtype=np.longdouble)), loaded(np.arange(3))
    inner = ManifestGroup(arrays={"odd": odd, ".vstack": good}, groups={"..": ManifestGroup(arrays={"x": good})})
    names = {
        "..": "name '..'",
        "a\nb": "control",
        "\x7f": "control",
        "zarr.json": "a name that the store itself uses",
        ".vstack": "a name that the store itself uses",
        "ü" * 128: "256 bytes",
    }
    group = ManifestGroup(
        arrays={"odd": odd, "good": good, **dict.fromkeys(names, good)}, groups={"inner": inner, "a\0b": inner}
    )
    assert set(keys_of(group)) == {
        *("zarr.json", "good/zarr.json", "good/c/0"),
        *("inner/zarr.json", "inner/.vstack/zarr.json", "inner/.vstack/c/0"),
    }
    reasons = left_out(group)
    assert reasons.keys() == {"odd", "inner/odd", "inner/..", "a\0b", *names}
    assert all(text in reasons[name] for name, text in names.items())
    assert "'inner/odd' has dtype" in reasons["inner/odd"]


def test_attributes_are_json_for_every_parser():
    """NaN and infinities are text, as zarr writes them among fill values."""
    odd = {"note": np.nan, "valid_range": np.array([-np.inf, 1.0]), "tree": {"a": [np.inf, 2]}}
    group = ManifestGroup(arrays={"v": loaded(np.ones(2), **odd)}, attributes={"top": -np.inf})
    found = documents(group)
    assert found["v/zarr.json"]["attributes"] == {
        "note": "NaN",
        "valid_range": ["-Infinity", 1.0],
        "tree": {"a": ["Infinity", 2]},
    }
    assert found["zarr.json"]["attributes"] == {"top": "-Infinity"}


@pytest.mark.filterwarnings("ignore:variable 'v' has multiple fill values")
@pytest.mark.filterwarnings("ignore:variable 'v' has non-conforming")
@pytest.mark.parametrize("missing", [np.nan, [np.nan, 2.0], [np.nan], [1.0, np.inf], 2.0, np.float32(2)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "i2"])
def test_attributes_that_change_values_change_them_alike(missing, dtype):
    """xarray decodes the view as it decodes the dataset."""
    values = np.array([1, 2, 3], dtype)
    if dtype == "f4":
        values[2] = np.inf
    attributes = {"missing_value": missing}
    expected = xr.decode_cf(xr.Dataset({"v": ("x", values, attributes)})).load()
    keys = keys_of(ManifestGroup(arrays={"v": loaded(values, **attributes)}))
    got = xr.open_zarr(in_memory(keys), consolidated=False).load()
    np.testing.assert_array_equal(got.v, expected.v)


# -- following a group ------------------------------------------------------------------------------------------


def test_an_append_rewrites_the_last_chunk_alone():
    """And the metadata of what grew; what is as it was is not written."""
    long = np.arange(600_000)
    virtual = virtual_arrays()["plain"]
    before = ManifestGroup(arrays={"lat": loaded(LOADED["lat"]), "time": loaded(long[:300_000]), "v": virtual})
    more = replace(np.concatenate([virtual, virtual]), dimension_names=virtual.dimension_names)
    after = ManifestGroup(arrays={"lat": loaded(LOADED["lat"]), "time": loaded(long[:300_001]), "v": more})
    assert list(keys_of(after, previous=before)) == ["time/c/2", "time/zarr.json", "v/zarr.json"]
    assert keys_of(before, previous=before) == {}
    assert keys_of(a_group(), previous=a_group()) == {}
    longest = ManifestGroup(arrays={"time": loaded(long)})
    assert list(keys_of(longest, previous=ManifestGroup(arrays={"time": before.arrays["time"]}))) == [
        *("time/c/2", "time/c/3", "time/c/4", "time/zarr.json")
    ]


N = np.arange(40, dtype="i4")
VERSIONS = {
    "none": None,
    "virtual": virtual_arrays()["plain"],
    "group": ManifestGroup(arrays={"x": loaded(N[:3])}),
    "3": loaded(N[:3]),
    "5": loaded(N[:5]),
    "5 others": loaded(N[5:10]),
    "5 floats": loaded(N[:5].view("f4")),
    "2 x 3": loaded(N[:6].reshape(2, 3)),
    "3 x 2": loaded(N[:6].reshape(3, 2)),
    "1 x 3": loaded(N[:3].reshape(1, 3)),
    "scalar": loaded(N[3]),
    "zero": loaded(N[:0]),
    "20": loaded(N[:20]),
    "30": loaded(N[:30]),
    "32": loaded(N[:32]),
    "30 others": loaded(N[10:]),
    "30 bytes": loaded(N[:30].astype("u1")),
    "9 x 2": loaded(N[:18].reshape(9, 2)),
    "2 x 20": loaded(N.reshape(2, 20)),
    "1 x 20": loaded(N[:20].reshape(1, 20)),
}


def group_of(version):
    if isinstance(version, ManifestGroup):
        return ManifestGroup(groups={"v": version})
    return ManifestGroup(arrays={} if version is None else {"v": version})


def shown(objects):
    """What a reader finds: values, or ``None`` where it finds none and knows."""
    try:
        found = zarr.open_group(in_memory(objects), mode="r")["v"][...]
    except (KeyError, VirtualValuesError, ValueError, TypeError):
        return None
    return found.dtype, found.shape, found.tobytes()


@pytest.mark.parametrize(
    "old", [x if i % 3 == 0 else pytest.param(x, marks=pytest.mark.apart) for i, x in enumerate(VERSIONS)]
)
def test_a_view_is_never_wrong_while_it_changes(old, monkeypatch):
    """At each step a reader finds old values, new ones, or an error; at the end nothing else than the new view."""
    monkeypatch.setattr(view, "CHUNK_BYTES", 64)
    before = group_of(VERSIONS[old])
    for version in VERSIONS.values():
        after, objects = group_of(version), keys_of(before)
        right = shown(objects), shown(keys_of(after))
        for key, data in view.make_view(after, previous=before):
            objects |= {key: data}
            if data is None:
                del objects[key]
            found = shown(objects)
            assert found is None or found in right
        assert objects == keys_of(after)
