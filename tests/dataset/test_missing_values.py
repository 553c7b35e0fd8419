"""Floats whose files differ in dtype and in what stands for a missing value: joined as xarray joins them."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.joins import MINIMAL

OPTIONS = MINIMAL | {"join": "exact"}


def write(path, values, start=0, **encoding):
    """Write a variable along ``t``; without an encoding xarray gives floats a ``_FillValue`` of NaN."""
    ds = xr.Dataset({"a": ("t", np.asarray(values))}, coords={"t": np.arange(start, start + len(values))})
    ds.to_netcdf(path, encoding={"a": encoding})
    return path


def check(vds, expected):
    found = vds.virtual.open().load()
    xr.testing.assert_equal(found, expected)
    assert found.a.dtype == expected.a.dtype


FLOATS = [
    ("f4", {}),
    ("f8", {}),
    ("f4", {"_FillValue": None}),
    ("f4", {"_FillValue": np.float32(-9999)}),
    ("f8", {"_FillValue": -9999.0}),
    ("f4", {"_FillValue": np.float32(1e20)}),
    ("f8", {"_FillValue": 1e20}),
    ("f4", {"missing_value": np.float32(7)}),
    ("i2", {}),
]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(forms=st.lists(st.sampled_from(FLOATS), min_size=2, max_size=4))
def test_floats_of_other_dtypes_and_missing_values_join_as_with_xarray(tmp_path_factory, forms):
    """Whatever each file says is missing, and in whatever order files come, values and dtype are those of xarray."""
    folder = tmp_path_factory.mktemp("floats")
    paths = []
    for i, (dtype, encoding) in enumerate(forms):
        values = np.array([1.1, np.nan, -9999.5, 1e19] if dtype[0] == "f" else [1, 2, 3, -4], dtype)
        paths.append(write(folder / f"{i}.nc", values, 4 * i, **encoding))
    with xr.open_mfdataset(paths, combine="nested", concat_dim="t", **OPTIONS) as opened:
        expected = opened.load()
    check(vs.open_virtual_mfdataset(paths), expected)


@pytest.mark.parametrize("dtypes", [("f4", "f8"), ("f8", "f4"), ("f4", "i4"), ("i2", "f8")])
def test_xarray_joins_virtual_floats_of_two_dtypes(tmp_path, dtypes):
    """The NaN that xarray writes as the _FillValue of every float is not a packing."""
    paths = [write(tmp_path / f"{x}.nc", np.array([1, 2, 3], x) / np.array(3, x), 3 * i) for i, x in enumerate(dtypes)]
    expected = xr.concat([xr.load_dataset(path) for path in paths], "t", **OPTIONS)
    check(xr.concat([vs.open_virtual_dataset(path) for path in paths], "t", **OPTIONS), expected)


@pytest.mark.parametrize("target", ["a.json", "a.parq", "a.vstack"])
def test_joined_floats_are_written_as_they_are(tmp_path, target):
    """Both dtypes in one variable, whose _FillValue is the NaN of the first."""
    paths = [write(tmp_path / f"{x}.nc", np.array([1.1, np.nan], x), 2 * i) for i, x in enumerate(("f4", "f8"))]
    vds = xr.concat([vs.open_virtual_dataset(path) for path in paths], "t", **OPTIONS)
    url = str(tmp_path / target)
    vds.virtual.to_vstack(url) if target == "a.vstack" else vds.virtual.to_kerchunk(url)
    expected = xr.concat([xr.load_dataset(path) for path in paths], "t", **OPTIONS)
    with xr.open_dataset(url, engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), expected)
        assert found.a.dtype == "f8"


@pytest.mark.parametrize("encoding", [{}, {"_FillValue": None}, {"_FillValue": np.float32(-9999)}])
def test_narrower_floats_are_appended_to_a_store(tmp_path, encoding):
    """The store holds float64, the new file float32 with a missing value of its own."""
    first = write(tmp_path / "a.nc", np.array([1.1, np.nan]))
    new = write(tmp_path / "b.nc", np.array([1.1, 5, -9999], "f4"), 2, **encoding)
    url = str(tmp_path / "a.vstack")
    vs.open_virtual_dataset(first).virtual.to_vstack(url)
    vs.open_virtual_dataset(new).virtual.to_vstack(url, append_dim="t")
    expected = xr.concat([xr.load_dataset(path) for path in (first, new)], "t", **OPTIONS)
    with xr.open_dataset(url, engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), expected)


def test_a_store_of_float32_takes_float64(tmp_path):
    """The store gets the dtype that xarray joins the files in."""
    paths = [
        write(tmp_path / "a.nc", np.array([1.1, np.nan], "f4")),
        write(tmp_path / "b.nc", np.array([1.1, np.nan]), 2),
    ]
    url = str(tmp_path / "a.vstack")
    vs.open_virtual_dataset(paths[0]).virtual.to_vstack(url)
    vs.open_virtual_dataset(paths[1]).virtual.to_vstack(url, append_dim="t")
    with xr.open_dataset(url, engine="virtualstack") as found, xr.open_mfdataset(paths, engine="netcdf4") as wanted:
        assert found.a.dtype == "f8"
        np.testing.assert_array_equal(found.a, wanted.a)
