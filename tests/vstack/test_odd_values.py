"""Loaded variables and attributes that are no plain numbers or text."""

import itertools
import sys
from datetime import datetime

import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.data.arrays import inline_chunks
from tests.data.watching import recorded_calls
from virtualstack.dataset.encode import to_group
from virtualstack.errors import WriterError
from virtualstack.manifests import ManifestGroup
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.save import save


def cube(labels=(1, 2, 3), **attributes):
    return xr.Dataset({"v": ("x", [1.0, 2.0, 3.0], attributes)}, {"x": list(labels)}, attributes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([None, None], object), "contains objects such as None"),
        (np.array(None, object), "contains objects such as None"),
        (np.array(["a", np.nan], np.dtypes.StringDType(na_object=np.nan)), "contains objects such as nan"),
        (np.array(["a", "\ud800"]), "contains a string that is not valid text"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, values, message):
    """And does not become text such as 'None'."""
    ds = xr.Dataset({"v": xr.Variable(("x",)[: values.ndim], values)})
    with pytest.raises(WriterError, match=message):
        ds.virtual.to_vstack(tmp_path / "x.vstack")
    assert not (tmp_path / "x.vstack").exists()


def test_fields_out_of_order_are_refused(tmp_path):
    """The form of dtypes has no place for them."""
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [8, 0]})
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["v"] = np.zeros(2, dtype)
    vds = vs.open_virtual_dataset(tmp_path / "a.h5")
    with pytest.raises(WriterError, match=r"'/v' has an attribute or dtype .*'offsets': \[8, 0\]"):
        vds.virtual.to_vstack(tmp_path / "x.vstack")


def test_texts_that_may_be_missing_and_are_not(tmp_path):
    """Are texts as others."""
    values = np.array(["a", "bc"], np.dtypes.StringDType(na_object=np.nan))
    xr.Dataset({"v": ("x", values)}).virtual.to_vstack(tmp_path / "x.vstack")
    assert xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")["v"].values.tolist() == ["a", "bc"]


def nested(depth):
    found = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "value",
    [datetime(2000, 1, 1), nested(3000), -(10**4300), np.ma.masked_array([1, 2], [0, 1]), np.bytes_(b"a\0")],
    ids=["date", "depth", "digits", "mask", "text"],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_attributes_without_a_form_are_refused(tmp_path, value, is_there):
    """Whether there is a store of other ones already or not."""
    if is_there:
        cube().virtual.to_vstack(tmp_path / "x.vstack")
    with pytest.raises(WriterError, match="has an attribute or dtype that a vstack cannot store"):
        cube(q=value).virtual.to_vstack(tmp_path / "x.vstack", mode="w")


def test_attributes_that_are_no_unicode_are_named(tmp_path):
    """They are refused: JSON has no form for half a pair of surrogates."""
    ds = cube()
    ds["v"].attrs["q"] = ["a", "b\udc80"]
    with pytest.raises(WriterError, match=r"\(in 'arrays': '/v': 'attributes': 'q': 1\); rename what"):
        ds.virtual.to_vstack(tmp_path / "x.vstack")


@pytest.mark.parametrize("value", [[[1], [2, 3]], nested(100), {"a": [1, [2, 3]], "b": [np.nan]}])
def test_lists_that_are_no_arrays_are_compared(tmp_path, value):
    """When a store grows."""
    cube(q=value).virtual.to_vstack(tmp_path / "x.vstack")
    cube([4, 5, 6], q=value).virtual.to_vstack(tmp_path / "x.vstack", append_dim="x")
    vs.Repository.open(tmp_path / "x.vstack").update([cube([7, 8, 9], q=value)], dim="x")
    stored = vs.open_virtual_dataset(tmp_path / "x.vstack")
    assert stored.sizes["x"] == 9
    assert str(stored.attrs["q"]) == str(stored["v"].attrs["q"]) == str(value)


def test_long_doubles_come_back(tmp_path):
    cube(q=np.longdouble("1.1")).virtual.to_vstack(tmp_path / "x.vstack")
    assert vs.open_virtual_dataset(tmp_path / "x.vstack").attrs["q"] == np.longdouble("1.1")


@pytest.mark.parametrize("value", [np.bytes_(b""), np.str_(""), np.void(b"")])
def test_empty_scalars_come_back(tmp_path, value):
    """They have no bytes to numpy."""
    cube(q=value).virtual.to_vstack(tmp_path / "x.vstack")
    stored = vs.open_virtual_dataset(tmp_path / "x.vstack").attrs["q"]
    assert stored == value
    assert type(stored) is type(value)


@pytest.mark.parametrize("dtype", ["S3", "U3"])
def test_text_that_is_empty_where_it_is_missing(tmp_path, dtype):
    """As zarr v2 has it by default."""
    array = zarr.create_array(
        tmp_path / "a.zarr", name="v", shape=(2,), dtype=dtype, fill_value="" if dtype == "U3" else b"", zarr_format=2,
        attributes={"_ARRAY_DIMENSIONS": ["x"]},
    )  # fmt: skip
    zarr.open_group(tmp_path / "a.zarr", mode="a", zarr_format=2)
    array[...] = np.array(["a", ""], dtype)
    vs.convert(tmp_path / "a.zarr", tmp_path / "x.vstack")
    expected = xr.open_zarr(tmp_path / "a.zarr", consolidated=False, chunks=None).load()
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack").load(), expected)


def test_attributes_that_lie_too_deep_are_refused(tmp_path):
    """JSON of hundreds of levels is read, and not written."""
    deep = 1
    for _ in range(400):
        deep = {"a": deep}
    with pytest.raises(WriterError, match=r"'a': \.\.\."):
        xr.Dataset(attrs={"deep": deep}).virtual.to_vstack(tmp_path / "x.vstack")


@pytest.mark.parametrize("shape", [(1 << 23,), (1 << 12, 1 << 11)])
def test_a_large_loaded_variable_is_stored_once(tmp_path, monkeypatch, shape):
    """In compressed chunks, which are read once."""
    n_read = recorded_calls(monkeypatch, Archive, "heap", lambda self, segment, offsets, lengths: int(lengths.sum()))
    values = np.random.default_rng(0).integers(0, 250, shape).astype("u2")
    dims = ("y", "x")[: values.ndim]
    xr.Dataset({"v": (dims, values)}, {"y": np.arange(shape[0])}).virtual.to_vstack(tmp_path / "x.vstack")
    assert not n_read
    on_disk = sum(x.stat().st_size for x in (tmp_path / "x.vstack").rglob("*") if x.is_file())
    assert on_disk < 0.8 * values.nbytes + 2 * 8 * shape[0]
    found = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")
    np.testing.assert_array_equal(found["v"].values, values)
    assert sum(n_read) < 0.6 * values.nbytes
    assert max(found["v"].encoding["chunks"]) < max(shape)


def test_a_loaded_variable_that_grows(tmp_path):
    path, values = tmp_path / "x.vstack", np.arange(3 << 18, dtype=float).reshape(-1, 3)
    ends = [0, 100_000, 100_001, 230_000, len(values)]
    for a, b in itertools.pairwise(ends):
        part = xr.Dataset({"v": (("x", "y"), values[a:b])}, {"x": np.arange(a, b)})
        part.virtual.to_vstack(path, append_dim="x" if a else None)
    np.testing.assert_array_equal(xr.open_dataset(path, engine="virtualstack")["v"].values, values)


def test_inline_chunks_without_bytes_are_told_from_those_behind_them(tmp_path):
    """They begin where the next one begins; each comes back as it was stored."""
    stored = [b"", b"ab", b"", b"cd", b"ab", b"ab"]
    save(ManifestGroup(arrays={"v": inline_chunks((2,), "u1", *stored, dimension_names=("x",))}), tmp_path / "x.vstack")
    found = to_group(vs.open_virtual_dataset(tmp_path / "x.vstack")).arrays["v"].in_memory()
    ranges = zip(found.entries["offset"].tolist(), found.entries["length"].tolist(), strict=True)
    assert [bytes(found.inline[begin : begin + length]) for begin, length in ranges] == stored


def test_inline_chunks_in_several_objects(tmp_path, monkeypatch):
    """Of a heap that is larger than one object."""
    monkeypatch.setattr("virtualstack.vstack.write.segment._HEAP_PART_BYTES", 40)
    arrays = {
        name: inline_chunks((2,), "u1", *(bytes([i, n]) for i in range(5)), dimension_names=(name.upper(),), name=name)
        for n, name in enumerate("abc")
    }
    save(ManifestGroup(arrays=arrays), tmp_path / "x.vstack")
    assert len(list(tmp_path.glob("x.vstack/.vstack/segments/*/heap/**/*[0-9]"))) > 1
    found = vs.open_virtual_dataset(tmp_path / "x.vstack", loadable_variables=list("abc"))
    for n, name in enumerate("abc"):
        assert found[name].values.tolist() == [x for i in range(5) for x in (i, n)]


def test_overwritten_values_in_several_objects(tmp_path, monkeypatch):
    """Of values that are more than one object holds."""
    monkeypatch.setattr(sys.modules["virtualstack.vstack.write.values"], "_OBJECT_BYTES", 300)
    values = np.random.default_rng(0).normal(size=(20, 100))
    made = xr.Dataset({"v": (("x", "y"), values)})
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"v": {"chunksizes": (1, 100)}})
    vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "x.vstack")
    vs.Repository.open(tmp_path / "x.vstack").write("v", np.s_[5:15], values[5:15] + 1)
    values[5:15] += 1
    np.testing.assert_array_equal(xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack")["v"].values, values)
    assert len(list(tmp_path.glob("x.vstack/.vstack/segments/*/values/**/*[0-9]"))) > 1
