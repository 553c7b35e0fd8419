"""Masks of elements that no file has, after labels are looked up and parts are joined."""

from dataclasses import replace

import cftime
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.arrays import referenced_array
from virtualstack.combine.absent import (
    absent_joined,
    absent_moved,
    absent_variables,
    missing_variable,
    with_missing_value,
)
from virtualstack.errors import CombineError


def shown(absent, dims, shape, name="v"):
    """Return the mask in full, as a list."""
    mask = absent(name, dims)
    return None if mask is None else np.broadcast_to(mask, shape).tolist()


def moved(rest, **positions):
    return absent_moved(rest, {dim: np.array(at, np.int64) for dim, at in positions.items()})


def test_labels_without_an_element_are_absent():
    found = moved(None, x=[0, 1, -1], y=[-1, 0])
    assert shown(found, ("t", "x"), (2, 3)) == 2 * [[False, False, True]]
    assert shown(found, ("x",), (3,)) == [False, False, True]
    assert shown(found, ("y", "x"), (2, 3)) == [[True, True, True], [False, False, True]]
    assert shown(found, ("t",), (2,)) is None
    assert moved(None, x=[1, 0]) is None


def test_absent_elements_move_with_their_labels():
    """Also if each label has an element; labels that come in addition are absent."""
    once = moved(None, x=[0, 1, -1])
    assert shown(moved(once, x=[2, 1, 0]), ("x",), (3,)) == [True, False, False]
    assert shown(moved(once, x=[2, -1, 0, 1]), ("x",), (4,)) == [True, True, False, False]
    assert shown(moved(absent_variables(None, {"v"}), x=[1, 0]), ("x",), (2,)) == [True, True]
    assert shown(moved(once, y=[1, -1]), ("y", "x"), (2, 3)) == [[False, False, True], [True, True, True]]


def test_variables_may_have_absent_elements_of_their_own():
    some = moved(None, x=[0, -1])
    found = absent_variables(some, {"a"})
    assert shown(found, ("x",), (2,), "a") == [True, True]
    assert shown(found, ("x",), (2,), "c") == [False, True]
    assert shown(absent_variables(None, {"a"}), ("x",), (2,), "c") is None
    assert absent_variables(some, ()) is some


def test_joined_parts_have_their_absent_elements_side_by_side():
    """A variable without the dimension is absent only where it is in all parts."""
    one, two = moved(None, x=[0, -1]), moved(None, x=[-1, -1])
    found = absent_joined([one, None, two], "t", [1, 2, 1])
    assert shown(found, ("t", "x"), (4, 2)) == [[False, True], [False, False], [False, False], [True, True]]
    assert shown(found, ("x",), (2,)) is None
    assert shown(absent_joined([one, two], "t", [1, 1]), ("x",), (2,)) == [False, True]


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_variable_that_is_missing_has_one_chunk_where_chunks_differ(n):
    """Otherwise it has chunks of the usual length."""
    even = referenced_array((6,), (2,))
    uneven = np.concatenate([referenced_array((3,), (3,)), referenced_array((2,), (2,)), referenced_array((4,), (4,))])
    for array, n_chunks in ((even, -(-n // 2)), (uneven, min(n, 1))):
        found = missing_variable("v", xr.Variable("x", array), {"x": n}, None)
        assert found.shape == (n,)
        assert found._data.grid.shape == (n_chunks,)


NUMBERS = "'fill_value': ...}. Or open the files with unpack=True, which decodes numbers"
LOADED = "'fill_value': ...}. Or load it with loadable_variables=[..., 'v']"


@pytest.mark.parametrize(
    ("dtype", "cf", "fill", "why", "value", "end"),
    [
        ("?", {}, None, "dtype 'bool' has no missing value", "False", LOADED),
        ("i1", {"dtype": "bool"}, None, "with dtype = 'bool' decodes to a missing value", "False", LOADED),
        ("S2", {}, None, "dtype '|S2' has no missing value", "b''", "'fill_value': ...}"),
        ("S2", {"_Encoding": "utf-8"}, None, "dtype '|S2' has no missing value", "''", "'fill_value': ...}"),
        ("S2", {}, 5, "text cannot be filled with 5", "b''", "'fill_value': ...}"),
        ("i2", {"scale_factor": 2}, None, "with scale_factor = 2 decodes to a missing value", "...", NUMBERS),
        ("i2", {"scale_factor": 2}, 3.0, "with scale_factor = 2 decodes to 3.0", "...", NUMBERS),
    ],
)
def test_a_variable_without_a_missing_value_has_a_remedy(dtype, cf, fill, why, value, end):
    array = replace(referenced_array((2,), (2,), dtype, fill=np.zeros((), dtype)[()]), cf=cf)
    with pytest.raises(CombineError) as caught:
        with_missing_value(array, fill, name="v")
    message = str(caught.value)
    assert message.startswith("variable 'v' has missing elements to fill, but ")
    assert f"{why}. Set fill_value={{'v': {value}}}, or in" in message
    assert message.endswith(end)
    assert (caught.value.left, caught.value.left_url) == (array.dtype, array.a_url())


@pytest.fixture
def ragged(tmp_path):
    """Two files with other latitudes."""
    times = xr.date_range("2000-01-01", periods=4, freq="MS", calendar="360_day", use_cftime=True)
    paths = []
    for k in range(2):
        own = times[2 * k : 2 * k + 2]
        ds = xr.Dataset({"n": (("time", "lat"), np.full((2, 2), k, "i4"), {"units": "milliseconds"})})
        ds = ds.assign_coords(time=own, lat=[k, k + 1])
        ds["first"] = (("time", "lat"), np.stack([own.values] * 2, 1))
        for name in ("time", "first"):
            ds[name].encoding["units"] = "days since 2000-01-01"
        paths.append(tmp_path / f"{k}.nc")
        ds.to_netcdf(paths[-1], engine="netcdf4")
    return paths


def test_numbers_with_units_of_durations_are_missing_as_in_xarray(ragged):
    """They are no durations without the attribute ``dtype``."""
    found = vs.open_virtual_mfdataset(ragged, join="outer", drop_variables="first").virtual.open()
    each = [xr.open_dataset(path, engine="netcdf4", drop_variables="first") for path in ragged]
    expected = xr.concat(each, "time", join="outer", data_vars="minimal", coords="minimal", compat="override")
    assert found["n"].dtype == expected["n"].dtype
    xr.testing.assert_identical(found["n"], expected["n"])


def test_dates_of_cftime_have_no_missing_value(ragged):
    """xarray cannot write them either: the advice is another value, or to leave them out."""
    with pytest.raises(CombineError, match="no stored value") as caught:
        vs.open_virtual_mfdataset(ragged, join="outer")
    filled, left_out = caught.value.remedies
    assert "first" not in vs.open_virtual_mfdataset(ragged, join="outer", **left_out.arguments)
    (name,) = filled.arguments["fill_value"]
    day = cftime.Datetime360Day(1900, 1, 1)
    options = {"join": "outer", "combine_options": {"fill_value": {name: day}}}
    assert vs.open_virtual_mfdataset(ragged, **options).virtual.open()["first"].values[0, 2] == day
