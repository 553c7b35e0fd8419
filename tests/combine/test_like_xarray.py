"""What joins give beside values: attributes, dtypes of coordinates and the order of dimensions are those of xarray."""

from datetime import date, datetime, timedelta

import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import opened
from tests.joins import MINIMAL, refuse
from virtualstack.errors import CombineError


def written(folder, datasets, **encodings):
    """Write files 0.nc, 1.nc, ...; encodings of the variables, one a file."""
    paths = [folder / f"{i}.nc" for i in range(len(datasets))]
    for i, (path, dataset) in enumerate(zip(paths, datasets, strict=True)):
        dataset.to_netcdf(path, engine="netcdf4", encoding={name: found[i] for name, found in encodings.items()})
    return paths


def joined_plainly(paths, join="exact", **options):
    """What xarray makes of the files opened plainly."""
    return xr.combine_nested(
        [opened(path) for path in paths], "t", join=join, combine_attrs="drop_conflicts", **{**MINIMAL, **options}
    )


OTHER_MEANINGS = {
    "a fill value": (np.array([1, -5], "i2"), {"_FillValue": None}, np.array([1, 2], "i2"), {"_FillValue": -5}),
    "a scale": (
        np.array([10, 20], "f4"),
        {"_FillValue": None},
        np.array([1.0, 2.0]),
        {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9},
    ),
    "dates": (
        np.array([1, 2]),
        {},
        np.array(["2000-01-01", "2000-01-02"], "M8[ns]"),
        {"units": "days since 2000-01-01"},
    ),
    "durations": (np.array([1, 2]), {}, np.array([1, 2], "m8[D]").astype("m8[ns]"), {"units": "days"}),
    "booleans": (np.array([1, 2], "i1"), {}, np.array([True, False]), {}),
}


@pytest.mark.parametrize("unpack", [False, True, "differing"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("what", OTHER_MEANINGS)
def test_what_another_file_says_of_its_numbers_is_not_said_of_the_first_files(what, nested, unpack, tmp_path):
    values, encoding, others, other_encoding = OTHER_MEANINGS[what]
    datasets = [xr.Dataset({"a": ("t", [1.0]), "s": ("y", x)}, {"t": [i]}) for i, x in enumerate((values, others))]
    datasets[1].s.attrs["comment"] = "of the other"
    paths = written(tmp_path, datasets, s=(encoding, other_encoding))
    how = {"combine": "nested", "concat_dim": "t"} if nested else {}
    vds = vs.open_virtual_mfdataset(paths, unpack=unpack, combine_options={"compat": "override"}, **how)
    assert vds.s.attrs["comment"] == "of the other"
    found, expected = vds.virtual.open().load(), joined_plainly(paths)
    assert found.s.dtype == expected.s.dtype
    np.testing.assert_array_equal(found.s, expected.s)


def test_what_another_file_says_of_its_numbers_is_not_said_where_files_stand_side_by_side(tmp_path):
    values, encoding, others, other_encoding = OTHER_MEANINGS["a scale"]
    datasets = [xr.Dataset({"s": ("y", values), "a": 1}), xr.Dataset({"s": ("y", others), "b": 2})]
    paths = written(tmp_path, datasets, s=(encoding, other_encoding))
    vds = vs.open_virtual_mfdataset(paths, combine="nested", concat_dim=[None], combine_options={"compat": "override"})
    np.testing.assert_array_equal(vds.virtual.open().s, values)


LABELS = ([[0, 1], [0, 1], [0, 1]], [[0, 1], [0, 1], [0, 2]], [[0, 2], [0, 1], [0, 1]], [[0, 1], [0], [0, 1]])


@pytest.mark.parametrize("join", ["outer", "inner", "left", "right"])
@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize(
    "dtypes",
    [("f4", "f8"), ("f8", "f4"), ("f4", "f8", "f4"), ("f8", "f4", "f4"), ("f4", "f4", "f8"), ("i4", "f4"), ("i4", "i8"),
     ("u8", "i8"), ("i2", "u2", "f4"), ("U1", "U3")],
    ids="-".join,
)  # fmt: skip
def test_joined_coordinates_have_the_dtype_that_xarray_gives_them(dtypes, labels, join, tmp_path):
    datasets = [
        xr.Dataset(
            {"a": (("t", "y"), np.arange(len(y), dtype="f4")[None] + 10 * i)}, {"t": [i], "y": np.array(y).astype(d)}
        )
        for i, (d, y) in enumerate(zip(dtypes, labels, strict=False))
    ]
    paths = written(tmp_path, datasets)
    expected = joined_plainly(paths, join)
    for how in ({}, {"combine": "nested", "concat_dim": "t"}):
        vds = vs.open_virtual_mfdataset(paths, join=join, **how)
        assert vds.y.dtype == expected.y.dtype
        found = vds.virtual.open().load()
        assert found.y.dtype == expected.y.dtype
        xr.testing.assert_equal(found.reset_coords(drop=True), expected.reset_coords(drop=True))


@pytest.mark.parametrize("join", ["outer", "inner"])
def test_labels_that_no_integer_dtype_holds_are_floats(join, tmp_path):
    labels = (np.array([2**63], "u8"), np.array([-1], "i8"))
    paths = written(
        tmp_path, [xr.Dataset({"a": (("t", "y"), [[1.0]])}, {"t": [i], "y": y}) for i, y in enumerate(labels)]
    )
    expected = joined_plainly(paths, join)
    found = vs.open_virtual_mfdataset(paths, join=join, combine="nested", concat_dim="t").virtual.open().load()
    assert found.y.dtype == expected.y.dtype
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.a, expected.a)


def test_variables_that_get_two_dimensions_have_them_in_the_order_of_xarray(tmp_path):
    places = [(i, j) for i in range(2) for j in range(2)]
    datasets = [
        xr.Dataset(
            {"a": (("t", "x"), np.full((1, 2), 1.0 * i)), "h": ("y", [1.0 * i, 2.0 * j]), "g": ("x", [1.0 * j, i])},
            {"t": [i], "x": [2 * j, 2 * j + 1]},
        )
        for i, j in places
    ]
    paths = written(tmp_path, datasets)
    rows = [paths[:2], paths[2:]]
    options = {"combine_options": {"data_vars": "all", "compat": "override"}}
    virtual = [vs.open_virtual_mfdataset(paths, **options)]
    virtual.append(vs.open_virtual_mfdataset(rows, combine="nested", concat_dim=["t", "x"], **options))
    plain = [[xr.open_dataset(path, engine="netcdf4") for path in row] for row in rows]
    expected = xr.combine_nested(plain, ["t", "x"], join="exact", **{**MINIMAL, "data_vars": "all"})
    for vds in virtual:
        assert {name: x.dims for name, x in vds.items()} == {name: x.dims for name, x in expected.items()}
        xr.testing.assert_equal(vds.virtual.open().load(), expected.load())


DAY = np.timedelta64(1, "D")
START = np.datetime64("2000-01-01", "ns")


def forecast(i, j, *, has_time=True, **more):
    """A file of one time and one member, with other coordinates without a dimension."""
    scalars = {
        "time": START + i * DAY, "number": j, "valid_time": START + (10 + i) * DAY, "seed": 7 * j, "run": i + 10 * j,
        "height": 2.0, "quality": np.nan if i else 1.0, "code": "ab"[: 1 + i],
    }  # fmt: skip
    if not has_time:
        scalars["time"] = [START + 2 * i * DAY, START + (2 * i + 1) * DAY]
    values = np.full((2, 3) if not has_time else (3,), 10.0 * i + j)
    return xr.Dataset({"a": (("time", "x")[has_time:], values)}, {**scalars, "x": [0, 1, 2], **more})


FOLLOWING = {"coords": "different", "compat": "equals", "data_vars": "minimal", "combine_attrs": "drop_conflicts"}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("has_time", [True, False])
def test_coordinates_without_a_dimension_that_differ_follow_the_dimension(has_time, nested, tmp_path):
    paths = written(tmp_path, [forecast(i, 0, has_time=has_time) for i in range(3)])
    how = {"combine": "nested", "concat_dim": "time"} if nested else {}
    vds = vs.open_virtual_mfdataset(paths, **how)
    plain = xr.combine_nested([opened(path) for path in paths], "time", join="exact", **FOLLOWING)
    assert vds.valid_time.dims == vds.quality.dims == vds.code.dims == ("time",)
    assert vds.height.dims == vds.number.dims == ()
    xr.testing.assert_identical(vds.virtual.open().load(), plain.load())


def test_coordinates_without_a_dimension_follow_only_the_dimensions_along_which_they_differ(tmp_path):
    paths = written(tmp_path, [forecast(i, j) for i in range(3) for j in range(2)])
    plain = [[opened(paths[2 * i + j]) for i in range(3)] for j in range(2)]
    expected = xr.combine_nested(plain, ["number", "time"], join="exact", **FOLLOWING).load()
    rows = [[paths[2 * i + j] for i in range(3)] for j in range(2)]
    nested = vs.open_virtual_mfdataset(rows, combine="nested", concat_dim=["number", "time"])
    for vds in (vs.open_virtual_mfdataset(paths[::-1]), nested):
        assert {name: set(x.dims) for name, x in vds.coords.items()} == {
            "time": {"time"}, "valid_time": {"time"}, "quality": {"time"}, "code": {"time"}, "number": {"number"},
            "seed": {"number"}, "run": {"time", "number"}, "height": set(), "x": {"x"},
        }  # fmt: skip
        found = vds.virtual.open().load()
        xr.testing.assert_equal(found.transpose(*expected.dims), expected.transpose(*expected.dims))


def test_coordinates_without_a_dimension_follow_where_a_place_has_no_file(tmp_path):
    places = [(0, 0), (1, 0), (1, 1)]
    paths = written(tmp_path, [forecast(i, j) for i, j in places])
    found = vs.open_virtual_mfdataset(paths, join="outer").virtual.open().load()
    for i, j in places:
        one = found.sel(time=START + i * DAY, number=j)
        for name in ("a", "valid_time", "seed", "run", "code"):
            assert (one[name].values == forecast(i, j)[name].values).all(), name


def test_coordinates_without_a_dimension_do_not_follow_if_none_may(tmp_path):
    paths = written(tmp_path, [forecast(i, 0) for i in range(2)])
    with pytest.raises(CombineError, match="differs between") as caught:
        vs.open_virtual_mfdataset(paths, combine_options={"coords": "minimal"})
    assert caught.value.variable == "valid_time"


MISUSES = {
    "names 't' twice": (["t", "t"], lambda a, b: [[a], [b]]),
    r"lists along \['q'\] have lengths \[2\] at '.*0.nc' and \[1\] at '.*1.nc'": (
        ["t", "q"],
        lambda a, b: [[a, b], [b]],
    ),
    r"'a', which is a variable of '.*0.nc' with the dimensions \['t', 'y'\]": ("a", lambda a, b: [a, b]),
}


@pytest.mark.parametrize("message", MISUSES)
def test_a_wrong_concat_dim_is_named_before_files_that_differ(message, tmp_path):
    datasets = [xr.Dataset({"a": (("t", "y"), [[1.0]])}, {"t": [i], "y": [1.0 * i]}) for i in range(2)]
    concat_dim, nest = MISUSES[message]
    error = refuse(message, nest(*written(tmp_path, datasets)), combine="nested", concat_dim=concat_dim)
    assert (error.left, error.right) == (((2,), (1,)) if error.property == "hypercube" else (None, None))


# -- what errors say ------------------------------------------------------------------------------------------


def two_files(folder, first, second):
    """Write two files of `a` along `t`, each with variables more."""
    datasets = [xr.Dataset({"a": ("t", [1.0 * i]), **x}, {"t": [i]}) for i, x in enumerate((first, second))]
    return written(folder, datasets)


@pytest.mark.parametrize("loadable", [["t"], ["t", "h"]])
def test_a_missing_value_is_the_same_as_a_missing_value_only(loadable, tmp_path):
    heights = [1.0, np.nan, 3.0], [1.0, np.nan, 3.0], [1.0, 2.0, 3.0], [np.nan, np.nan, 3.0]
    paths = written(
        tmp_path, [xr.Dataset({"a": ("t", [1.0]), "h": ("x", h)}, {"t": [i]}) for i, h in enumerate(heights)]
    )
    options = {"loadable_variables": loadable, "combine_options": {"compat": "equals"}}
    found = vs.open_virtual_mfdataset(paths[:2], **options)
    np.testing.assert_array_equal(found.virtual.open().h, heights[0])
    for pair in ([0, 2], [2, 0], [0, 3], [3, 0]):
        refuse("'h' does not have the dimension .* differs between", [paths[i] for i in pair], **options)


def test_dates_and_numbers_that_are_packed_differently_are_compared(tmp_path):
    """xr.merge asks whether bounds of a model's calendar are equal, although they count from two dates."""
    days = xr.date_range("2000-01-01", periods=20, calendar="noleap", use_cftime=True)
    both = xr.Dataset(
        {"b": (("t", "nv"), np.stack([days, days.shift(1, "D")], 1)), "h": ("x", [0.5, 7.0, 2.0])}, {"t": days}
    )
    paths = []
    for i, name in enumerate("vw"):
        dates = {"units": f"days since {2000 - i}-01-01", "calendar": "noleap", "dtype": "f8"}
        encoding = {"t": dates, "b": dates, "h": {"dtype": "i2", "scale_factor": 0.5 / (i + 1), "_FillValue": -9 - i}}
        paths.append(tmp_path / f"{name}.nc")
        both.assign({name: ("t", np.arange(20.0))}).to_netcdf(paths[-1], engine="netcdf4", encoding=encoding)
    plain = [xr.load_dataset(path) for path in paths]
    virtual = [vs.open_virtual_dataset(path) for path in paths]
    for join in (xr.merge, xr.combine_by_coords):
        for compat in ("no_conflicts", "equals", "broadcast_equals"):
            options = {"compat": compat, "join": "exact", "combine_attrs": "override"}
            xr.testing.assert_equal(join(virtual, **options).virtual.open().load(), join(plain, **options))
    found = vs.open_virtual_mfdataset(paths, unpack=True)
    xr.testing.assert_equal(found.virtual.open().load(), xr.merge(plain, compat="equals", join="exact"))
    for datasets in (plain, virtual):
        datasets[1] = datasets[1].assign(b=datasets[1]["b"].roll(nv=1))
        with pytest.raises(ValueError, match=r"conflicting values for variable 'b'"):
            xr.merge(datasets, compat="no_conflicts", join="exact")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("more", [{"dtype": "f8"}, {"dtype": "i4"}, {"dtype": "i2", "scale_factor": 0.01}])
def test_numbers_of_two_dtypes_may_be_the_same(more, order, tmp_path):
    """As float32 in one file, and packed in the other: their values count, as in xarray."""
    encodings = [{"dtype": "f4", "_FillValue": None}, {"_FillValue": -9} | more][::order]
    datasets = [xr.Dataset({"a": ("t", [1.0]), "h": ("x", [0.0, 2.0, 5.0])}, {"t": [i]}) for i in range(2)]
    paths = written(tmp_path, datasets, h=encodings)
    found = vs.open_virtual_mfdataset(paths).virtual.open().load()
    expected = joined_plainly(paths)
    xr.testing.assert_equal(found, expected)
    assert found["h"].dtype == expected["h"].dtype
    datasets[1]["h"][2] = 6.0
    refuse("'h' .* differs between .*5.0 and 6.0|5 and 6|6.0 and 5.0", written(tmp_path, datasets, h=encodings))


@pytest.mark.parametrize("unpack", [False, True, "differing"])
def test_dates_of_two_calendars_are_refused_with_a_remedy_that_works(unpack, tmp_path):
    paths = two_files(tmp_path, {}, {})
    for path, calendar in zip(paths, ("noleap", "standard"), strict=True):
        with netCDF4.Dataset(path, "a") as file:
            run = file.createVariable("run", "f8", ("t",))
            run.units, run.calendar = "days since 2001-01-01", calendar
            run[:] = 1
    error = refuse(r"'/?run' .*[Ll]eave (the variable|it) out with drop_variables", paths, unpack=unpack)
    assert "unpack=True" not in str(error)  # no chunk decodes to dates of the other calendar
    message = r"'run' has dates of several calendars: cftime, calendar 'noleap' in '.*0.nc', datetime64 in '.*1.nc'"
    error = refuse(message, paths, unpack=unpack, loadable_variables=["t", "run"])
    assert (error.left, error.right) == ("cftime, calendar 'noleap'", "datetime64")
    vds = vs.open_virtual_mfdataset(paths, unpack=unpack, drop_variables=["run"])
    np.testing.assert_array_equal(vds.virtual.open().a, [0, 1])


FILLS = [
    np.datetime64("1999-01-01"),
    np.datetime64("1999-01-01", "ns"),
    pd.Timestamp("1999-01-01"),
    date(1999, 1, 1),
    datetime(1999, 1, 1),
]


@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize("fill", FILLS, ids=repr)
def test_a_date_fills_what_is_stored_as_days(fill, unpack, tmp_path):
    dates = xr.Variable("t", np.array(["2000-01-02"], "M8[ns]"))
    paths = two_files(tmp_path, {}, {"b": dates})[::-1]
    with netCDF4.Dataset(paths[0]) as file:
        assert file["b"].units.startswith("days since")
        assert file["b"].dtype == np.int64
    options = {"combine_options": {"fill_value": {"b": fill}}, "combine": "nested", "concat_dim": "t", "unpack": unpack}
    found = vs.open_virtual_mfdataset(paths, join="outer", **options).virtual.open().b.values
    np.testing.assert_array_equal(found, np.array(["2000-01-02", "1999-01-01"], "M8[ns]"))


def test_a_duration_fills_what_is_stored_as_hours(tmp_path):
    hours = xr.Variable("t", np.array([5], "m8[h]").astype("m8[ns]"))
    paths = two_files(tmp_path, {}, {"b": hours})[::-1]
    options = {"combine_options": {"fill_value": {"b": timedelta(hours=-2)}}, "combine": "nested", "concat_dim": "t"}
    found = vs.open_virtual_mfdataset(paths, join="outer", **options).virtual.open().b.values
    np.testing.assert_array_equal(found, np.array([5, -2], "m8[h]").astype("m8[ns]"))


def test_a_date_that_stored_days_cannot_hold_is_refused(tmp_path):
    dates = xr.Variable("t", np.array(["2000-01-02"], "M8[ns]"))
    paths = two_files(tmp_path, {}, {"b": dates})
    with netCDF4.Dataset(paths[1]) as file:
        assert file["b"].units.startswith("days since")
        assert file["b"].dtype == np.int64
    options = {"combine_options": {"fill_value": {"b": np.datetime64("1999-01-01T12")}}}
    refuse(r"no stored value of dtype 'int64' with .* decodes to np.datetime64", paths, join="outer", **options)


@pytest.mark.parametrize("fill", [1, 1.5, b"", np.datetime64("2000-01-01")], ids=repr)
def test_text_is_filled_with_text_alone(fill, tmp_path):
    paths = two_files(tmp_path, {}, {"b": ("t", np.array(["x"]))})
    options = {"combine_options": {"fill_value": {"b": fill}}}
    refuse(r"'b' .* text cannot be filled with .*. Set fill_value={'b': ''}", paths, join="outer", **options)
    vds = vs.open_virtual_mfdataset(paths, join="outer", combine_options={"fill_value": {"b": "none"}})
    np.testing.assert_array_equal(vds.virtual.open().b, ["none", "x"])


@pytest.mark.parametrize("other", [("t", "z"), ("t",)], ids=str)
def test_other_dimensions_are_named_before_coordinates_that_are_absent(other, tmp_path):
    datasets = [
        xr.Dataset({"a": (("t", "y"), np.ones((2, 2)))}, {"t": [0, 1], "y": [0.0, 1.0]}),
        xr.Dataset({"a": (other, np.ones((2,) * len(other)))}, {"t": [2, 3]}),
    ]
    error = refuse(r"'a' has dimensions {'t': 2, 'y': 2} in '.*0.nc' and {'t': 2", written(tmp_path, datasets))
    assert (error.left, error.right) == ({"t": 2, "y": 2}, dict.fromkeys(other, 2))


def test_scalars_that_differ_are_named_with_both_values(tmp_path):
    paths = two_files(tmp_path, {"s": 1}, {"s": 2})
    error = refuse(r"'s' .* differs between '.*0.nc' and '.*1.nc': 1 and 2. ", paths)
    assert (error.left, error.right) == (1, 2)


def test_values_that_differ_are_counted_and_the_first_are_named(tmp_path):
    paths = two_files(tmp_path, {"s": ("y", [1, 2, 3])}, {"s": ("y", [1, 5, 4])})
    error = refuse(r"2 of 3 values differ, by up to 3, first 2 and 5. ", paths)
    assert (error.left, error.right) == (2, 5)


def test_units_that_one_file_lacks_are_those_of_the_other(tmp_path):
    datasets = [xr.Dataset({"a": ("t", [1.0], {"units": "K"} if i else {})}, {"t": [i]}) for i in range(2)]
    paths = written(tmp_path, datasets)
    assert joined_plainly(paths).a.attrs["units"] == "K"
    assert vs.open_virtual_mfdataset(paths).a.attrs["units"] == "K"


@pytest.mark.parametrize("join", ["outer", "inner", "left", "right"])
def test_labels_that_are_categories_are_joined_and_stay_categories(join):
    """With the labels and values that xarray gives the same labels as text."""
    labels = [["a", "b"], ["b", "c"]]
    categories = [pd.CategoricalIndex(x, categories=["a", "b", "c"]) for x in labels]
    made, wanted = (
        [xr.Dataset({"v": (("time", "x"), [[1.0, 2.0]])}, {"time": [i], "x": x}) for i, x in enumerate(each)]
        for each in (categories, labels)
    )
    found = vs.combine_datasets(made, combine="nested", concat_dim="time", join=join)
    expected = xr.combine_nested(wanted, "time", join=join)
    assert isinstance(found.indexes["x"], pd.CategoricalIndex)
    assert found["x"].values.tolist() == expected["x"].values.tolist()
    np.testing.assert_array_equal(found["v"].values, expected["v"].values)
