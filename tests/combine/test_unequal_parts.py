"""Parts that differ in how they were opened, in attributes, lengths and labels: what is joined, and what is said."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import CombineError


def write(path, time, **variables):
    made = xr.Dataset({"v": ("time", np.asarray(time, "f8")), **variables}, {"time": np.asarray(time)})
    made.to_netcdf(path, engine="netcdf4")
    return path


def joined(parts, **options):
    return vs.combine_datasets(parts, combine="nested", concat_dim="time", **options)


@pytest.mark.parametrize("order", [1, -1])
def test_labels_that_are_loaded_in_one_file_and_virtual_in_another_are_named(tmp_path, order):
    """With the file of each, whichever comes first."""
    paths = [write(tmp_path / "a.nc", [0, 1]), write(tmp_path / "b.nc", [2, 3])]
    parts = [vs.open_virtual_dataset(paths[0]), vs.open_virtual_dataset(paths[1], loadable_variables=[])]
    with pytest.raises(CombineError, match="same loadable_variables") as found:
        joined(parts[::order])
    text = str(found.value)
    assert "'time' is " in text
    left, right = text.split(". Open")[0].split(" and ")
    for part, kind in ((left, ""), (right, "")):
        assert ("a.nc" in part and "loaded" in part) or ("b.nc" in part and "virtual" in part), (part, kind)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize("encoding", [{}, {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}])
def test_a_variable_that_is_loaded_in_one_file_and_virtual_in_another_is_joined(tmp_path, order, unpack, encoding):
    """Its size decides whether opening loads it: the loaded part becomes INLINE, packed as the virtual one."""
    parts = []
    for n in range(2):
        made = xr.Dataset({"v": ("time", [n + 0.5, np.nan])}, {"time": [2 * n, 2 * n + 1]})
        made.to_netcdf(tmp_path / f"{n}.nc", engine="netcdf4", encoding={"v": encoding})
        loadable = ["time", "v"] if n else ["time"]
        parts.append(vs.open_virtual_dataset(tmp_path / f"{n}.nc", loadable_variables=loadable, unpack=unpack))
    found = joined(parts[::order]).virtual.open().load()
    files = [xr.open_dataset(tmp_path / f"{n}.nc", engine="netcdf4") for n in range(2)]
    xr.testing.assert_identical(found, xr.concat(files[::order], "time").load())


@pytest.mark.parametrize("how", ["drop", "override", "drop_conflicts", lambda each, context: {"n": len(each)}])
def test_attributes_are_merged_as_by_xarray(tmp_path, how):
    """Those of variables and of the dataset."""
    made = [
        xr.Dataset({"v": ("time", [1.0], {"a": i, "b": 1})}, {"time": [i]}, {"c": i, "d": 2, f"e{i}": 1})
        for i in range(2)
    ]
    found = joined(made, combine_options={"combine_attrs": how})
    wanted = xr.concat(made, "time", combine_attrs=how)
    assert found.attrs == wanted.attrs
    assert found["v"].attrs == wanted["v"].attrs


def test_attributes_that_one_file_lacks_are_not_identical():
    """Though all that both have are equal."""
    made = [xr.Dataset({"v": ("time", [1.0], {"a": 1} | more)}, {"time": [i]}) for i, more in enumerate(({}, {"b": 2}))]
    with pytest.raises(CombineError, match=r"'v'.*b"):
        joined(made, combine_options={"combine_attrs": "identical"})


def test_lengths_without_labels_are_named(tmp_path):
    """They cannot be aligned."""
    parts = [
        xr.Dataset({"a": (("time", "x"), np.zeros((1, 2)))}, {"time": [0]}),
        xr.Dataset({"a": (("time", "x"), np.zeros((1, 3)))}, {"time": [1]}),
    ]
    with pytest.raises(CombineError, match=r"'?x'?.*2.*3"):
        joined(parts)
    with pytest.raises(CombineError, match=r"dimension 'x' has 2 elements in .* and 3 in .* no labels to align them"):
        vs.combine_datasets([parts[0].drop_vars("time").rename(a="b", time="t"), parts[1]], combine="by_coords")


def test_a_number_is_no_tolerance_of_dates():
    """Labels stay as they are, or it is refused; nothing is moved."""
    dates = pd.date_range("2000-01-01", periods=3)
    made = [
        xr.Dataset({"v": (("time", "x"), np.ones((1, 3)))}, {"time": [i], "x": dates + pd.Timedelta(i, "s")})
        for i in (0, 1)
    ]
    found = joined(made, join="outer", tolerance=5)
    wanted = xr.concat(made, "time", join="outer")
    xr.testing.assert_equal(found.compute(), wanted)


def test_numbers_that_lack_elements_in_some_files_are_united():
    """Integers of one file that become floats for want of elements agree with those of a file that has all."""
    made = [
        xr.Dataset({"v": (("time", "x"), np.ones((1, len(x)))), "m": ("x", np.array(x) * 10)}, {"time": [i], "x": x})
        for i, x in enumerate(([1, 2], [1, 2, 3], [2, 3]))
    ]
    found = joined(made, join="outer")
    wanted = xr.concat(made, "time", join="outer", data_vars="minimal", coords="minimal", compat="no_conflicts")
    np.testing.assert_array_equal(found["m"].values, wanted["m"].values)
    np.testing.assert_array_equal(found["v"].values, wanted["v"].values)
    wrong = made[2].assign(m=("x", [20, 31]))
    with pytest.raises(CombineError, match="'m'"):
        joined([*made[:2], wrong], join="outer")


def test_many_files_whose_labels_alternate_are_refused(tmp_path, monkeypatch):
    """Each label would cut a piece from a chunk."""
    monkeypatch.setattr("virtualstack.combine.align._MAX_PIECES", 10)
    parts = []
    for i in range(2):
        x = np.arange(40) * 2 + i
        made = xr.Dataset({"v": (("time", "x"), np.ones((1, 40)))}, {"time": [i], "x": x})
        made.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
        parts.append(vs.open_virtual_dataset(tmp_path / f"{i}.nc"))
    with pytest.raises(CombineError, match="labels of 'x' alternate between files"):
        joined(parts, join="outer")
    assert joined(parts, join="left").sizes["x"] == 40
