"""Many files as one dataset: equal to what xarray makes of the files, or an error that says where they differ."""

import re
from datetime import date, datetime, timedelta, timezone

import cftime
import h5py
import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from tests.joins import MINIMAL, refuse
from virtualstack.dataset import virtual_array
from virtualstack.errors import (
    CombineError,
    MalformedFileError,
    ReaderError,
    SourceNotFoundError,
    StorageError,
    VirtualValuesError,
)
from virtualstack.manifests import ManifestArray


def write(
    path,
    *,
    time,
    lat=(10.0, 20.0, 30.0),
    x=None,
    names=("v",),
    seed=0,
    units="days since 2000-01-01",
    packing=None,
    attrs=None,
    dtype="f4",
):
    """Write a file of variables (time, lat[, x]), with bounds of the times and a constant area."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, *np.asarray(time).astype(int), *(np.asarray(lat) * 1000).astype(int)])
    with netCDF4.Dataset(path, "w") as file:
        file.set_auto_maskandscale(False)
        dims = ["time", "lat"] + ([] if x is None else ["x"])
        file.createDimension("time", None)
        labels = {"time": time, "lat": lat, "x": x}
        for dim in dims:
            if dim != "time":
                file.createDimension(dim, len(labels[dim]))
            file.createVariable(dim, "f8", (dim,))[:] = labels[dim]
        file["time"].units = units
        file.createVariable("area", "f4", ("lat",))[:] = np.asarray(lat) * 2
        for name in names:
            shape = [len(labels[dim]) for dim in dims]
            options = {} if packing is None else {"fill_value": packing.get("_FillValue")}
            v = file.createVariable(name, dtype, dims, zlib=True, chunksizes=[min(n, 2) for n in shape], **options)
            v.set_auto_maskandscale(False)
            v.setncatts({key: value for key, value in (packing or {}).items() if key != "_FillValue"})
            v[:] = rng.integers(0, 90, shape).astype(dtype)
            v.units = "K"
        file.setncatts(attrs or {})
    return path


def days(start, n):
    return list(range(start, start + n))


def plain(paths, **options):
    """What xarray makes of the files, each opened plainly, in memory."""
    options = MINIMAL | {"join": "exact"} | options
    with xr.open_mfdataset(paths, engine="netcdf4", chunks=None, **options) as expected:
        return expected.load()


def check(vds, expected):
    """The values, dtypes, dimensions and coordinates are those of xarray."""
    found = vds.virtual.open().load()
    xr.testing.assert_equal(found, expected)
    assert set(found.coords) == set(expected.coords)
    for name in expected.variables:
        assert found[name].dtype == expected[name].dtype, name
        assert found[name].dims == expected[name].dims, name


# -- which files ----------------------------------------------------------------------------------------------


def test_a_glob_is_joined_by_coordinates_whatever_the_names(tmp_path):
    """Names say nothing: the second year stands first in the folder."""
    paths = [write(tmp_path / "b.nc", time=days(0, 3)), write(tmp_path / "a.nc", time=days(3, 5))]
    vds = vs.open_virtual_mfdataset(str(tmp_path / "*.nc"))
    check(vds, plain(paths, combine="by_coords"))
    assert isinstance(virtual_array(vds["v"].variable), ManifestArray)
    assert vds.sizes["time"] == 8
    assert vds.encoding.get("source") is None


def test_a_glob_is_in_natural_order(tmp_path):
    """Nested joining takes files as they come: 2 is before 10."""
    for i in (10, 2, 1):
        write(tmp_path / f"f{i}.nc", time=[100 - i])
    vds = vs.open_virtual_mfdataset(tmp_path / "f*.nc", combine="nested", concat_dim="time")
    assert vds.time.values.tolist() == (np.datetime64("2000-01-01") + np.array([99, 98, 90])).astype("M8[ns]").tolist()


def test_patterns_and_paths_in_lists_stand_where_they_are(tmp_path):
    """A list may hold both."""
    write(tmp_path / "x" / "1.nc", time=[5])
    write(tmp_path / "x" / "y" / "2.nc", time=[6])
    write(tmp_path / "0.nc", time=[9])
    urls = [tmp_path / "0.nc", str(tmp_path / "x" / "**" / "*.nc")]
    vds = vs.open_virtual_mfdataset(urls, combine="nested", concat_dim="time")
    assert (vds.time.dt.day.values - 1).tolist() == [9, 5, 6]


def test_one_file_is_a_dataset_too(tmp_path):
    path = write(tmp_path / "a.nc", time=days(0, 3))
    vds = vs.open_virtual_mfdataset(path)
    check(vds, plain([path]))
    assert vds.encoding["source"].endswith("a.nc")


def test_no_match_and_no_files_are_errors(tmp_path):
    with pytest.raises(SourceNotFoundError, match=r"nothing matches '.*\*\.nc'\. Check the folder"):
        vs.open_virtual_mfdataset(str(tmp_path / "*.nc"))
    with pytest.raises(SourceNotFoundError, match="the list of URLs is empty"):
        vs.open_virtual_mfdataset([])
    with pytest.raises(StorageError, match="a web server cannot list its files"):
        vs.open_virtual_mfdataset("https://example.org/data/*.nc")


def test_parameters_that_do_not_go_together_are_named(tmp_path):
    path = write(tmp_path / "a.nc", time=[0])
    for options, message in (
        ({"combine": "nested"}, "needs concat_dim="),
        ({"duplicates": "both"}, "duplicates='both'; it must be "),
        ({"labels": "time"}, "labels='time'; it must map dimensions to variables"),
        ({"combine": "both"}, "'by_coords' or 'nested'"),
        ({"unpack": "some"}, "it must be False, True, 'differing' or None"),
        ({"join": "some"}, r"join='some'; it must be 'exact'"),
        ({"combine_options": {"compatible": 1}}, r"has \['compatible'\]; the known ones are"),
        ({"combine_options": {"compat": "same"}}, "compat='same'; it must be "),
        ({"combine_options": {"data_vars": "some"}}, "data_vars='some'; it must be "),
        ({"combine_options": {"combine_attrs": "some"}}, "combine_attrs='some'"),
        ({"unsupported": "ignore"}, "'inline', 'raise' or 'skip'"),
    ):
        with pytest.raises(ValueError, match=message):
            vs.open_virtual_mfdataset([path], **options)


# -- order ----------------------------------------------------------------------------------------------------


def test_tiles_along_two_dimensions_find_their_places(tmp_path):
    """A grid of files, given in any order."""
    paths = [
        write(tmp_path / f"{t}{x}.nc", time=days(4 * t, 4 - t), x=days(3 * x, 3), seed=t)
        for t in (1, 0)
        for x in (1, 0, 2)
    ]
    check(vs.open_virtual_mfdataset(paths), plain(paths, combine="by_coords"))


def test_descending_coordinates_stay_descending(tmp_path):
    paths = [
        write(tmp_path / f"{i}.nc", time=[0], lat=lat) for i, lat in enumerate([(30.0, 20.0), (50.0, 40.0), (10.0,)])
    ]
    vds = vs.open_virtual_mfdataset(paths)
    assert vds.lat.values.tolist() == [50, 40, 30, 20, 10]
    check(vds, plain(paths, combine="by_coords"))


def test_variables_that_are_divided_differently_are_joined_each(tmp_path):
    """One by seasons and the other by years: only the whole must have the same labels, as xarray and the survey say."""
    time = pd.date_range("2001-01-01", "2002-12-31", freq="10D")
    rng = np.random.default_rng(0)
    whole = xr.Dataset({x: (("time", "x"), rng.random((len(time), 2))) for x in ("pr", "tas")}, {"time": time})
    parts = [
        (name, part) for name, freq in (("pr", "QS"), ("tas", "YS")) for _, part in whole[name].resample(time=freq)
    ]
    paths = [tmp_path / f"{name}_{i}.nc" for i, (name, _) in enumerate(parts)]
    for path, (_, part) in zip(paths, parts, strict=True):
        part.to_netcdf(path, engine="netcdf4")
    xr.Dataset({"area": ("x", [1.0, 2.0])}).to_netcdf(tmp_path / "fx.nc", engine="netcdf4")
    for given, expected in ((paths, whole), ([*paths[::-1], tmp_path / "fx.nc"], whole.assign(area=("x", [1.0, 2.0])))):
        found = vs.open_virtual_mfdataset(given)
        xr.testing.assert_equal(found.virtual.open().load(), expected)
        xr.testing.assert_equal(plain(given, combine="by_coords"), expected)
        assert found.encoding["unlimited_dims"] == {"time"}
        assert vs.survey(given).plan == ("along 'time'",)
    refuse("coordinate 'time' differs.*join='outer'", paths[1:])
    assert "coordinate 'time' differs" in vs.survey(paths[1:]).plan[1]
    found = vs.open_virtual_mfdataset(paths[1:], join="outer").virtual.open().load()
    xr.testing.assert_equal(found, plain(paths[1:], combine="by_coords", join="outer"))


def test_files_of_other_variables_stand_side_by_side(tmp_path):
    """As in archives with one variable a file; what they share must be equal."""
    paths = [write(tmp_path / f"{n}{i}.nc", time=days(2 * i, 2), names=(n,)) for n in "vw" for i in range(3)]
    check(vs.open_virtual_mfdataset(paths), plain(paths, combine="by_coords"))


def test_nested_lists_are_joined_as_they_stand(tmp_path):
    nested = [[write(tmp_path / f"{t}{x}.nc", time=days(2 * t, 2), x=days(3 * x, 3)) for x in range(2)] for t in (1, 0)]
    vds = vs.open_virtual_mfdataset(nested, combine="nested", concat_dim=["time", "x"])
    check(vds, plain(nested, combine="nested", concat_dim=["time", "x"]))
    refuse("lists are nested deeper", nested, combine="nested", concat_dim="time")
    refuse(
        r"where a list is needed: concat_dim names \['x'\], one dimension",
        nested[0],
        combine="nested",
        concat_dim=["time", "x"],
    )


def test_nested_lists_may_merge_at_a_level(tmp_path):
    nested = [[write(tmp_path / f"{n}{t}.nc", time=days(2 * t, 2), names=(n,)) for t in range(2)] for n in "vw"]
    vds = vs.open_virtual_mfdataset(nested, combine="nested", concat_dim=[None, "time"])
    check(vds, plain(nested, combine="nested", concat_dim=[None, "time"]))


def test_a_new_dimension_joins_files_that_lack_it(tmp_path):
    """All data variables get it, as with xarray."""
    paths = [write(tmp_path / f"{i}.nc", time=days(0, 2), seed=i) for i in range(3)]
    vds = vs.open_virtual_mfdataset(paths, combine="nested", concat_dim="member")
    check(vds, plain(paths, combine="nested", concat_dim="member", data_vars="all"))
    assert vds.v.dims == ("member", "time", "lat")


def test_overlaps_are_named_with_both_files(tmp_path):
    paths = [write(tmp_path / "a.nc", time=days(0, 4)), write(tmp_path / "b.nc", time=days(3, 4))]
    error = refuse(r"'.*a.nc' and '.*b.nc' both have time 2000-01-04 00:00:00\. duplicates='first'", paths)
    assert error.left_url.endswith("a.nc")
    other = [paths[0], write(tmp_path / "c.nc", time=[0.5, 1.5])]
    refuse("labels of 'time' alternate between files", other)
    three = [paths[0], write(tmp_path / "d.nc", time=days(1, 4))]
    refuse(r"both have time 2000-01-02 00:00:00 to 2000-01-04 00:00:00\.", three)


def test_duplicates_are_named(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=days(t, 2), seed=i) for i, t in enumerate((0, 2, 2))]
    both = r"'.*1.nc' and '.*2.nc' both have time 2000-01-03 00:00:00 to 2000-01-04 00:00:00"
    refuse(rf"{both}\. duplicates='first' keeps the first of them\. Or duplicates='last' keeps the last", paths)
    refuse(rf"{both}\. new_dim={{'part': .*}} tells them apart\. Or duplicates='first' keeps", paths[1:])


@pytest.mark.parametrize("is_scalar", [True, False])
def test_dates_of_leads_follow_the_start(is_scalar, tmp_path):
    """Of seasonal forecasts: each start has its own dates, as xarray joins them and as the survey says."""
    paths = []
    for i, start in enumerate(pd.date_range("2001-01-01", periods=3, freq="MS")):
        made = xr.Dataset({"v": (("lead", "x"), np.arange(6.0).reshape(3, 2) + i)}, {"lead": [0, 1, 2], "init": start})
        made = made.assign_coords(valid=("lead", pd.date_range(start, periods=3, freq="MS")))
        paths.append(tmp_path / f"{i}.nc")
        made = made if is_scalar else made.assign(v=made.v.expand_dims("init"))
        made.to_netcdf(paths[-1], engine="netcdf4")
    opened = [xr.load_dataset(path) for path in paths]
    expected = xr.concat(
        opened,
        "init",
        data_vars="minimal" if not is_scalar else "all",
        coords="different",
        join="exact",
        compat="equals",
    )
    xr.testing.assert_equal(vs.open_virtual_mfdataset(paths).virtual.open().load(), expected)
    assert vs.survey(paths).plan[0] == "along 'init'"
    vs.open_virtual_mfdataset(paths[:2]).virtual.to_vstack(tmp_path / "a.vstack")
    vs.Repository.open(tmp_path / "a.vstack").update(vs.open_virtual_dataset(paths[2]), dim="init")
    xr.testing.assert_equal(xr.load_dataset(tmp_path / "a.vstack", engine="virtualstack"), expected)
    refuse("'valid' does not have the dimension 'init'", paths, combine_options={"coords": "minimal"})


def test_experiments_in_folders_are_no_duplicates(tmp_path):
    """One began later: to leave a file out would mix them, so that only the new dimension is named."""
    years = {"ctl": (0, 2, 4), "exp": (2, 4)}
    paths = {
        name: [write(tmp_path / name / f"tas_{t}.nc", time=days(t, 2), seed=len(its) + t) for t in its]
        for name, its in years.items()
    }
    files = [path for its in paths.values() for path in its]
    error = refuse(
        r"'.*ctl/tas_2.nc' and '.*exp/tas_2.nc' both have time .*\. new_dim={'part': .* tells them apart", files
    )
    assert "duplicates" not in str(error)
    options = {"new_dim": {"part": vs.FromName(r"/(ctl|exp)/")}, "drop_variables": ["area"]}
    refuse("no file for .*join='outer'", files, **options)
    found = vs.open_virtual_mfdataset(files, join="outer", **options).virtual.open().load()
    whole = [plain(its, combine="by_coords").drop_vars("area") for its in paths.values()]
    xr.testing.assert_equal(found, xr.concat(whole, pd.Index(list(paths), name="part"), join="outer"))


def test_coordinates_without_an_order_are_named(tmp_path):
    a = write(tmp_path / "a.nc", time=[0, 5, 2])
    b = write(tmp_path / "b.nc", time=[6, 7, 8])
    refuse(r"'time' of '.*a.nc' neither ascends nor descends. Sort it", [a, b])
    c = write(tmp_path / "c.nc", time=[3, 2, 1])
    refuse(r"'time' ascends in '.*b.nc' and descends in '.*c.nc'", [b, c])


@pytest.mark.parametrize("lengths", [(0, 2), (2, 0), (0, 2, 0, 1), (2, 0, 0, 1)])
def test_a_file_without_times_adds_none(lengths, tmp_path):
    """Wherever it stands, as with xarray, and its variables must fit."""
    paths = [write(tmp_path / f"{i}.nc", time=days(2 * i, n), seed=i) for i, n in enumerate(lengths)]
    vds = vs.open_virtual_mfdataset(paths)
    opened = [xr.open_dataset(path) for path in paths]
    expected = xr.concat(opened, "time", data_vars="minimal", coords="minimal", compat="equals", join="exact")
    xr.testing.assert_identical(vds.virtual.open().load().drop_attrs(), expected.load().drop_attrs())
    looked = vs.survey(paths)
    assert looked.plan == (("along 'time'",) if sum(map(bool, lengths)) > 1 else ())
    assert len(looked.failures) == 0
    odd = write(tmp_path / "odd.nc", time=[], lat=days(0, 9))
    refuse("coordinate 'lat' differs.*join='outer'", [odd, *paths])
    opened = [x.drop_vars("area") for x in (*opened, xr.open_dataset(odd))]
    expected = xr.concat(opened, "time", data_vars="minimal", coords="minimal", compat="equals", join="outer")
    found = vs.open_virtual_mfdataset([odd, *paths], join="outer", drop_variables="area").virtual.open().load()
    xr.testing.assert_equal(found, expected.load())
    refuse("both have time no labels", [write(tmp_path / f"e{i}.nc", time=[]) for i in range(2)])


@pytest.mark.parametrize("numbers", [(2, 0), (0, 3), (2, 0, 3, 0)])
def test_a_day_without_stations_is_a_day(numbers, tmp_path):
    """Only files without elements along the joined dimension add none."""
    paths = []
    for i, n in enumerate(numbers):
        day = xr.Dataset({"t": (("time", "station"), np.arange(n)[None] + 10.0 * i)})
        paths.append(tmp_path / f"{i}.nc")
        day = day.assign_coords(time=pd.to_datetime([f"2020-01-0{i + 1}"]), station=np.arange(n))
        day.to_netcdf(paths[-1], engine="netcdf4")
    refuse("coordinate 'station' differs .*join='outer'", paths)
    opened = [xr.open_dataset(path) for path in paths]
    for join in ("outer", "inner"):
        expected = xr.concat(opened, "time", join=join, data_vars="minimal", coords="minimal", compat="equals")
        for given in (paths, paths[::-1]):
            found = vs.open_virtual_mfdataset(given, join=join).virtual.open().load()
            xr.testing.assert_equal(found, expected.load())


@pytest.mark.parametrize("options", [{}, {"coords": ["s", "lon"], "data_vars": ["g"]}], ids=["differing", "named"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0), (0, 1), (1, 0, 2, 3)])
def test_a_file_without_times_has_other_scalars_and_another_packing(order, options, tmp_path):
    """It has no elements that they count for; the variables get the dimension as in a join by xarray."""
    paths = []
    for i, n in enumerate([0, 2, 3, 0]):
        t = xr.Dataset({"t": (("time", "x"), np.arange(2.0 * n).reshape(n, 2)), "g": 1})
        t = t.assign_coords(time=pd.date_range(f"2020-01-{1 + 5 * i:02}", periods=n), s=i, lon=("x", [1.0, 2.0]))
        t = t.assign_coords(valid=("x", pd.date_range(f"2020-01-{1 + i:02}", periods=2)))
        paths.append(tmp_path / f"{i}.nc")
        packing = {"dtype": "i2", "scale_factor": 1.0 if n else 0.5, "_FillValue": -1}
        t.to_netcdf(paths[-1], engine="netcdf4", encoding={"t": packing})
    paths = [paths[i] for i in order]
    coords = [*options["coords"], "valid"] if options else "different"
    data_vars = options.get("data_vars", "minimal")
    opened = [xr.open_dataset(path) for path in paths]
    expected = xr.concat(opened, "time", compat="equals", join="exact", coords=coords, data_vars=data_vars).load()
    vds = vs.open_virtual_mfdataset(paths, combine_options=options)
    assert vds["t"].data.cf["scale_factor"] == 1.0
    xr.testing.assert_equal(vds.virtual.open().load(), expected)


def test_an_empty_tile_is_joined_with_its_row(tmp_path):
    """A file without times of the second of two tiles."""
    paths = [
        write(tmp_path / f"{t}{x}.nc", time=days(2 * t, 2 * (t < 2)), lat=days(3 * x, 3))
        for t, x in ((0, 0), (0, 1), (2, 1))
    ]
    expected = vs.open_virtual_mfdataset(paths[:2]).virtual.open().load()
    xr.testing.assert_identical(vs.open_virtual_mfdataset(paths).virtual.open().load(), expected)
    write(paths[2], time=[], lat=days(9, 3))
    refuse("coordinate 'lat' differs.*[Ll]eave the file without elements out", paths)


def test_a_group_that_is_empty_along_another_dimension_is_not_lost(tmp_path):
    """A file may lack stations and have times: they are not dropped with the stations."""
    paths = []
    for i, n in enumerate((2, 0, 3)):
        cloud = xr.Dataset({"v": ("time", [float(i)])}, {"time": [i]})
        station = xr.Dataset({"w": ("station", np.arange(n, dtype=float))}, {"station": np.arange(n)})
        paths.append(tmp_path / f"{i}.nc")
        xr.DataTree.from_dict({"/a": cloud, "/b": station}).to_netcdf(paths[-1], engine="netcdf4")
    with pytest.raises(CombineError, match="coordinate 'time' differs"):
        vs.open_virtual_mfdatatree(paths[:2])


@pytest.mark.parametrize("combine", [{}, {"combine": "nested", "concat_dim": "time"}])
@pytest.mark.parametrize("first", [0, 1])
def test_scalar_times_join_files_with_times(combine, first, tmp_path):
    """As with xarray's concat; variables that lack the dimension in other files do not get it."""
    paths = []
    for i in range(3):
        part = xr.Dataset({"v": (("time", "x"), np.arange(4.0).reshape(2, 2) + 10 * i), "area": ("x", [1.0, 2.0])})
        part = part.assign_coords(
            x=[0, 1], time=np.datetime64("2020-01-01", "ns") + np.array([2 * i, 2 * i + 1]) * np.timedelta64(1, "D")
        )
        paths.append(tmp_path / f"{i}.nc")
        (part if i % 2 == first else part.isel(time=0)).to_netcdf(paths[-1], engine="netcdf4")
    opened = [xr.open_dataset(path) for path in paths]
    expected = xr.concat(opened, "time", data_vars="minimal", coords="minimal", compat="equals", join="exact")
    made = vs.open_virtual_mfdataset(paths, **combine).virtual.open()
    xr.testing.assert_equal(made.load().transpose(*expected.dims), expected.load())
    assert vs.survey(paths).plan == ("along 'time'",)


def test_a_gap_in_the_grid_is_named_or_missing(tmp_path):
    """With an outer join tiles that have no file are ABSENT, and counted."""
    paths = [write(tmp_path / f"{t}{x}.nc", time=days(2 * t, 2), x=days(3 * x, 3)) for t, x in ((0, 0), (0, 1), (1, 1))]
    refuse(r"3 files do not fill a grid of 2 x 2 along \['time', 'x'\]: no file for time 2000-01-03.*, x 0", paths)
    vds = vs.open_virtual_mfdataset(paths, join="outer")
    datasets = [xr.load_dataset(path) for path in paths]
    expected = xr.merge([x.drop_vars("area") for x in datasets], join="outer", compat="no_conflicts")
    check(vds.drop_vars("area"), expected)
    missing = virtual_array(vds["v"].variable).manifest.summary().n_absent
    assert missing > 0
    with pytest.raises(StorageError, match=r"ABSENT|missing"):
        vds.virtual.open(absent="raise")["v"].load()


def test_a_gap_in_a_grid_whose_other_coordinates_differ(tmp_path):
    """Tiles are aligned before those that are not there are made."""
    places = ((0, 0, (10.0, 20.0)), (0, 1, (20.0, 30.0)), (1, 1, (10.0, 40.0)))
    paths = [
        write(tmp_path / f"{t}{x}.nc", time=days(2 * t, 2), x=days(3 * x, 3), lat=lat, names=("v", "w"))
        for t, x, lat in places
    ]
    for path in paths:
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("u", "f4", ("time", "lat"))[:] = np.outer(file["time"][:], file["lat"][:])
    vds = vs.open_virtual_mfdataset(paths, join="outer")
    opened = [xr.load_dataset(path) for path in paths]
    check(vds, xr.combine_nested(opened, None, join="outer", compat="no_conflicts"))


# -- what must be the same ------------------------------------------------------------------------------------


def test_labels_that_differ_are_counted_and_measured(tmp_path):
    lat = np.array([10.0, 20.0, 30.0])
    paths = [write(tmp_path / f"{i}.nc", time=[i], lat=lat + (1e-6 * (i > 1))) for i in range(4)]
    message = r"coordinate 'lat' differs in 2 of 4 files, by at most 1e-06, first in '.*2.nc'"
    for tolerance, remedy in (
        (None, r"\. tolerance=1[.\d]*e-06 takes the labels of '.*0.nc'"),
        (1e-7, r", and tolerance=1e-07 is smaller\. tolerance=1[.\d]*e-06 takes the labels of '.*0.nc'"),
        (
            np.timedelta64(1, "h"),
            r", and tolerance=Timedelta\('0 days 01:00:00'\) is not a distance between numbers\. tolerance=1",
        ),
    ):
        refuse(message + remedy, paths, tolerance=tolerance)


@pytest.mark.parametrize("tolerance", ["1e-6", np.nan, -1, {"lat": 1e-6}, [1, 2], True, pd.NaT, -np.inf])
def test_an_invalid_tolerance_is_refused(tolerance, tmp_path):
    refuse(
        r"tolerance=.* is not a distance between labels. Give a number such as 1e-6",
        [write(tmp_path / "a.nc", time=[0])],
        tolerance=tolerance,
    )


def test_labels_on_both_sides_of_the_first_are_within_a_tolerance(tmp_path):
    """Each file is compared with the one whose labels it takes, not with the others."""
    lats = [(0.0, 10.0), (0.0, 10.000001), (0.0, 9.999999)]
    paths = [write(tmp_path / f"{i}.nc", time=[i], lat=lat) for i, lat in enumerate(lats)]
    vds = vs.open_virtual_mfdataset(paths, tolerance=1.5e-6, drop_variables="area")
    check(vds, plain(paths, combine="nested", concat_dim="time", join="override", drop_variables="area"))


def test_labels_of_other_lengths_are_explained(tmp_path):
    paths = [write(tmp_path / "a.nc", time=[0]), write(tmp_path / "b.nc", time=[1], lat=(20.0, 30.0))]
    message = r"'lat' differs in 1 of 2 files: 3 labels from 10.0 to 30.0 in '.*a.nc', 2 labels from 20.0 to 30.0 there"
    refuse(message, paths)


def test_jitter_without_another_dimension_is_measured(tmp_path):
    """Only lat varies, and it overlaps: not an order, but jitter."""
    paths = [write(tmp_path / f"{i}.nc", time=[0], lat=np.array([1.0, 2.0]) + 1e-5 * i) for i in range(2)]
    refuse(r"'lat' differs in 1 of 2 files, by at most 1e-05", paths)


def test_within_a_tolerance_the_first_file_counts(tmp_path):
    lat = np.array([10.0, 20.0, 30.0])
    paths = [write(tmp_path / f"{i}.nc", time=[i], lat=lat + 1e-6 * i) for i in range(3)]
    vds = vs.open_virtual_mfdataset(paths, tolerance=1e-5)
    assert vds.lat.values.tolist() == lat.tolist()
    check(vds, plain(paths, combine="nested", concat_dim="time", join="override"))


def test_tiles_within_a_tolerance_are_in_line(tmp_path):
    """Jitter along a dimension that files are joined along."""
    paths = [
        write(tmp_path / f"{t}{x}.nc", time=[t], x=np.array([0.0, 1.0]) + 2 * x + 1e-7 * t)
        for t in (0, 1)
        for x in (0, 1)
    ]
    vds = vs.open_virtual_mfdataset(paths, tolerance=1e-6)
    nested = [paths[:2], paths[2:]]
    check(vds, plain(nested, combine="nested", concat_dim=["time", "x"], join="override"))


def test_constant_variables_must_be_equal(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=[i]) for i in range(3)]
    with netCDF4.Dataset(paths[2], "a") as file:
        file["area"][1] = 41
    refuse(
        r"'area' does not have the dimension .* '.*2.nc': 1 of 3 values differ, by up to 1, first 40.0 and 41.0. ",
        paths,
    )
    vds = vs.open_virtual_mfdataset(paths, combine_options={"compat": "override"})
    check(vds, plain(paths, combine="by_coords"))
    assert vs.open_virtual_mfdataset(paths, drop_variables="area").sizes["time"] == 3
    assert vs.open_virtual_mfdataset(paths, tolerance=1.5).sizes["time"] == 3


def test_variables_that_some_files_lack_are_named_or_missing(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=days(2 * i, 2), names=("v", "w") if i != 1 else ("v",)) for i in range(3)]
    refuse(r"of 3 files, 'w' is missing from 1; .*0.nc' has 'w' and .*1.nc' does not", paths)
    vds = vs.open_virtual_mfdataset(paths, join="outer")
    check(vds, xr.concat([xr.load_dataset(p) for p in paths], "time", join="outer", **MINIMAL))
    assert virtual_array(vds["w"].variable).manifest.summary().n_absent == 2
    assert virtual_array(vds["v"].variable).manifest.summary().n_absent == 0


def test_units_that_differ_are_an_error_and_other_attributes_a_note(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=[i], attrs={"history": f"run {i}", "title": "t"}) for i in range(2)]
    vds = vs.open_virtual_mfdataset(paths)
    assert vds.attrs == {"title": "t"}
    report = vds.virtual.report()
    noted = report[report["state"] == "noted"]["detail"]
    assert noted.str.contains(r"'history' of the dataset differs between files and is left out").sum() == 1
    kept = vs.open_virtual_mfdataset(paths, combine_options={"combine_attrs": "override"})
    assert kept.attrs["history"] == "run 0"
    refuse("attribute 'history' of the dataset is 'run 0'", paths, combine_options={"combine_attrs": "no_conflicts"})
    with netCDF4.Dataset(paths[1], "a") as file:
        file["v"].units = "degC"
    error = refuse(r"attribute 'units' of variable 'v' is 'K' in '.*0.nc' and 'degC' in '.*1.nc'", paths)
    assert error.property == "units"
    assert "units" not in vs.open_virtual_mfdataset(paths, combine_options={"combine_attrs": "drop_conflicts"}).v.attrs


def test_variables_without_the_dimension_get_it_on_request(tmp_path):
    """As xarray's data_vars and coords; a coordinate without a dimension gets it by itself."""
    paths = [write(tmp_path / f"{i}.nc", time=days(2 * i, 1 + i)) for i in range(3)]
    for i, path in enumerate(paths):
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("run", "i4", ())[...] = i
            file.createVariable("height", "f4", ())[...] = 2 + i
            file["v"].coordinates = "height"
    refuse(r": 0 and 1\. Join it along 'time' too with combine_options=\{'data_vars': \['run'\]\}\. Or leave it", paths)
    options = {"combine_options": {"data_vars": ["run"], "coords": "minimal"}}
    refuse(r"Join it along 'time' too with combine_options=\{'coords': \['height'\]\}\. Or leave", paths, **options)
    for data_vars, coords in (("all", "all"), (["run"], ["height"]), (["run", "area"], "all")):
        vds = vs.open_virtual_mfdataset(paths, combine_options={"data_vars": data_vars, "coords": coords})
        expected = plain(paths, combine="nested", concat_dim="time", data_vars=data_vars, coords=coords)
        check(vds, expected)
        assert vds.run.dims == ("time",)
    expected = plain(paths, combine="nested", concat_dim="time", data_vars=["run"], coords=["height"])
    check(vs.open_virtual_mfdataset(paths, combine_options={"data_vars": ["run"]}), expected)


@pytest.mark.parametrize("how", ["append", "update"])
def test_a_coordinate_without_a_dimension_follows_in_an_addition_too(how, tmp_path):
    paths = [tmp_path / f"{i}.nc" for i in range(3)]
    for i, path in enumerate(paths):
        made = xr.Dataset({"v": ("time", [1.0 * i, 2.0])}, {"time": [2 * i, 2 * i + 1], "height": 2.0 + i})
        made.to_netcdf(path, engine="netcdf4")
    store = str(tmp_path / "s.vstack")
    vs.open_virtual_mfdataset(paths[:2]).virtual.to_vstack(store)
    getattr(vs.Repository.open(store), how)(paths[2])
    expected = plain(paths, combine="nested", concat_dim="time", data_vars="minimal", coords=["height"])
    xr.testing.assert_equal(xr.open_dataset(store, engine="virtualstack").load(), expected.load())


def test_a_coordinate_gets_a_new_dimension_on_request(tmp_path):
    """The message names the option; one file gets the dimension too, so that it can be appended."""
    paths = [tmp_path / f"shot_{i}.nc" for i in range(3)]
    datasets = [xr.Dataset({"v": ("x", [1.0 * i, 2.0])}, {"t": ("x", [0.0, i]), "z": 5.0}) for i in range(3)]
    for path, made in zip(paths, datasets, strict=True):
        made.to_netcdf(path, engine="netcdf4")
    options = {"new_dim": {"shot": vs.FromName(r"_(\d)")}}
    refuse(r"Join it along 'shot' too with combine_options=\{'coords': \['t'\]\}\. Or leave", paths, **options)
    expected = xr.concat(datasets, "shot", coords=["t"], compat="equals").assign_coords(shot=range(3))
    options["combine_options"] = {"coords": ["t"]}
    check(vs.open_virtual_mfdataset(paths, **options), expected)
    store = str(tmp_path / "s.vstack")
    vs.open_virtual_mfdataset(paths[:2], **options).virtual.to_vstack(store)
    vs.open_virtual_mfdataset(paths[2:], **options).virtual.to_vstack(store, append_dim="shot")
    found = xr.open_dataset(store, engine="virtualstack").set_coords(["t", "z"])
    xr.testing.assert_equal(found.load(), expected)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("loaded", [["time"], ["time", "s", "m"]])
def test_a_variable_that_a_file_lacks_is_missing_along_a_new_dimension(order, loaded, tmp_path):
    """It does not get the values of the file that has it."""
    paths = [tmp_path / f"{i}.nc" for i in range(2)]
    made = xr.Dataset({"v": ("time", [1.0]), "s": 3.0, "m": ("y", [1.0, 2.0])}, {"time": [0]})
    made.to_netcdf(paths[0], engine="netcdf4")
    made[["v"]].assign_coords(time=[1]).to_netcdf(paths[1], engine="netcdf4")
    options = {"join": "outer", "combine": "nested", "concat_dim": "time"}
    vds = vs.open_virtual_mfdataset(
        paths[::order], loadable_variables=loaded, combine_options={"data_vars": "all"}, **options
    )
    check(vds, plain(paths[::order], data_vars="all", **options))
    with pytest.raises(KeyError, match=r"loadable_variables names \['tiem'\], which no file has"):
        vs.open_virtual_mfdataset(paths, loadable_variables=["tiem"])


def test_bounds_of_two_epochs_along_a_new_dimension(tmp_path):
    """Dates of this calendar have no dtype of a fixed size, so that they are loaded."""
    paths = [tmp_path / f"{k}.nc" for k in range(2)]
    for k, path in enumerate(paths):
        times = {"units": f"days since 2000-01-0{1 + k}", "calendar": "noleap", "bounds": "time_bnds"}
        bounds = np.array([[0.0, 1.0], [1.0, 2.0]]) - k
        file = xr.Dataset(
            {"time_bnds": (("time", "nv"), bounds)}, {"time": ("time", [0 - k, 1 - k], times), "member": k}
        )
        file.to_netcdf(path)
    joined = vs.open_virtual_mfdataset(paths).virtual.open().load()
    xr.testing.assert_identical(joined, xr.concat([xr.open_dataset(path) for path in paths], dim="member"))


def test_coordinates_of_two_dimensions_are_compared_and_kept(tmp_path):
    """They are virtual, and equal by value."""
    paths = [write(tmp_path / f"{i}.nc", time=[i], x=[0.0, 1.0]) for i in range(3)]
    for path in paths:
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("where", "f4", ("lat", "x"), zlib=True)[:] = np.arange(6).reshape(3, 2)
            file["v"].coordinates = "where"
    vds = vs.open_virtual_mfdataset(paths)
    check(vds, plain(paths, combine="by_coords"))
    assert "where" in vds.coords
    with netCDF4.Dataset(paths[1], "a") as file:
        file["where"][0, 0] = 1e-6
    refuse(r"'where' .* by up to 1e-06", paths)
    check(vs.open_virtual_mfdataset(paths, tolerance=1e-5), plain(paths, combine="by_coords"))


def test_axes_in_another_order_are_turned(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=days(2 * i, 2)) for i in range(2)]
    vds = vs.open_virtual_mfdataset(paths, preprocess=lambda ds: ds.transpose() if ds.time.dt.day[0] > 1 else ds)
    check(vds, plain(paths, combine="by_coords"))


def test_labels_of_the_first_file_override_on_request(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=[i], lat=np.arange(3.0) + i) for i in range(2)]
    options = {"join": "override", "combine": "nested", "concat_dim": "time", "drop_variables": "area"}
    check(vs.open_virtual_mfdataset(paths, **options), plain(paths, **options))
    paths.append(write(tmp_path / "2.nc", time=[2], lat=(1.0,)))
    refuse("'lat' differs in 2 of 3 files: 3 labels", paths, **options)


def test_dates_within_a_timedelta_are_those_of_the_first_file(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=np.arange(3) + i * 1e-4, lat=[10.0 * i]) for i in range(2)]
    vds = vs.open_virtual_mfdataset(paths, tolerance=np.timedelta64(1, "m"), drop_variables="area")
    check(vds, plain(paths, combine="nested", concat_dim="lat", join="override", drop_variables="area"))
    refuse(
        r"'time' differs in 1 of 2 files, by at most 0 days 00:00:08\.64", paths, tolerance=1e-3, drop_variables="area"
    )


def test_indexes_that_are_no_plain_ones_are_refused(tmp_path):
    path = write(tmp_path / "a.nc", time=days(0, 2), x=[0.0])
    refuse(
        r"coordinate 'p' of '.*a.nc' has a PandasMultiIndex; .* drop_indexes\('p'\)",
        [path],
        preprocess=lambda ds: ds.drop_vars(["area", "v"]).stack(p=["x", "lat"]),
    )


def test_files_of_two_formats_and_eras_are_one(tmp_path):
    """A netCDF-3 file beside netCDF-4 ones, packed in another way, with other units of time and longer."""
    a = write(tmp_path / "a.nc", time=days(0, 3), dtype="i2", packing={"_FillValue": np.int16(-9), "scale_factor": 0.5})
    b = write(tmp_path / "b.nc", time=[96, 120], units="hours since 2000-01-01", dtype="f4")
    c = tmp_path / "c.nc"
    later = xr.load_dataset(b).assign_coords(time=xr.load_dataset(b).time + np.timedelta64(9, "D"))
    later.to_netcdf(c, format="NETCDF3_64BIT", engine="netcdf4")
    vds = vs.open_virtual_mfdataset([c, b, a], unpack="differing")
    check(vds, plain([a, b, c], combine="by_coords"))


def test_what_differs_in_a_row_of_tiles_stays_left_out(tmp_path):
    """The only file of another row has an attribute, which is not that of all."""
    places = [(0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (1, 1, "c")]
    paths = [write(tmp_path / f"{t}{x}.nc", time=[t], x=[float(x)], attrs={"run": run}) for t, x, run in places]
    vds = vs.open_virtual_mfdataset(paths)
    assert vds.attrs == {}
    assert vds.virtual.report()["state"].tolist().count("noted") == 1


# -- outer joins ----------------------------------------------------------------------------------------------

PACKINGS = {
    "floats": ("f4", None),
    "floats with a fill": ("f4", {"_FillValue": np.float32(-1)}),
    "packed": ("i2", {"_FillValue": np.int16(-99), "scale_factor": 0.5, "add_offset": 3.0}),
    "missing_value alone": ("i2", {"missing_value": np.int16(-7), "scale_factor": np.float32(0.1)}),
    "unsigned": ("i1", {"_FillValue": np.int8(-1), "_Unsigned": "true"}),
    "plain integers": ("i4", None),
    "short integers": ("i2", None),
    "bytes": ("u1", {"_FillValue": np.uint8(255)}),
}


@pytest.mark.parametrize("join", ["outer", "inner", "left", "right"])
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("unpack", [False, True])
def test_joins_give_what_xarray_gives(tmp_path, join, packing, unpack):
    """Chunks are cut by the new labels; what is not there decodes to NaN."""
    dtype, attributes = PACKINGS[packing]
    lats = [(10.0, 20.0, 30.0, 40.0), (20.0, 30.0), (30.0, 40.0, 50.0)]
    paths = [
        write(tmp_path / f"{i}.nc", time=days(2 * i, 2), lat=lat, dtype=dtype, packing=attributes)
        for i, lat in enumerate(lats)
    ]
    vds = vs.open_virtual_mfdataset(
        paths, join=join, drop_variables="area", combine="nested", concat_dim="time", unpack=unpack
    )
    expected = plain(paths, combine="nested", concat_dim="time", join=join, drop_variables="area")
    check(vds, expected)
    by_coords = vs.open_virtual_mfdataset(paths, join=join, drop_variables="area", unpack=unpack)
    check(by_coords, expected)


@pytest.mark.parametrize("dtype", ["f4", "i4"])
@pytest.mark.parametrize("loaded", [[], ["bounds"]])
def test_what_files_share_is_put_together_from_all(tmp_path, dtype, loaded):
    """Bounds of latitudes: each file has those of its own, and the result has them all."""
    lats = [(10.0, 20.0, 30.0), (20.0, 30.0, 40.0), (10.0, 50.0)]
    paths = [write(tmp_path / f"{i}.nc", time=[i], lat=lat) for i, lat in enumerate(lats)]
    for path, lat in zip(paths, lats, strict=True):
        with netCDF4.Dataset(path, "a") as file:
            file.createDimension("n", 2)
            file.createVariable("bounds", dtype, ("lat", "n"), zlib=True)[:] = np.outer(lat, [1, 2])
    options = {"join": "outer", "combine": "nested", "concat_dim": "time"}
    vds = vs.open_virtual_mfdataset(paths, loadable_variables=["time", "lat", *loaded], **options)
    check(vds, plain(paths, **options | {"compat": "no_conflicts"}))
    assert not np.isnan(vds.virtual.open()["bounds"].values).any()
    with netCDF4.Dataset(paths[1], "a") as file:
        file["bounds"][0, 1] = 41
    refuse(r"'bounds' .* '.*1.nc': 1 of 4 values differ, by up to 1", paths, **options)
    assert vs.open_virtual_mfdataset(paths, combine_options={"compat": "override"}, **options).sizes["lat"] == 5


def test_an_outer_join_of_descending_labels(tmp_path):
    """As xarray sorts their union, so do we."""
    lats = [(30.0, 20.0, 10.0), (40.0, 30.0, 20.0)]
    paths = [write(tmp_path / f"{i}.nc", time=[i], lat=lat) for i, lat in enumerate(lats)]
    vds = vs.open_virtual_mfdataset(paths, join="outer", drop_variables="area")
    check(vds, plain(paths, combine="nested", concat_dim="time", join="outer", drop_variables="area"))


def test_an_outer_join_within_a_tolerance_doubles_no_labels(tmp_path):
    paths = [
        write(tmp_path / "0.nc", time=[0], lat=(10.0, 20.0)),
        write(tmp_path / "1.nc", time=[1], lat=(20.00001, 30.0, 40.0)),
    ]
    vds = vs.open_virtual_mfdataset(paths, join="outer", tolerance=1e-3, drop_variables="area")
    assert vds.lat.values.tolist() == [10.0, 20.0, 30.0, 40.0]
    found = vds.virtual.open()["v"]
    assert np.isnan(found.values).tolist() == [[False, False, True, True], [True, False, False, False]]


def test_packed_numbers_without_a_missing_value_are_refused(tmp_path):
    paths = [
        write(tmp_path / f"{i}.nc", time=[i], lat=lat, dtype="i2", packing={"scale_factor": 0.5})
        for i, lat in enumerate([(1.0, 2.0), (2.0, 3.0)])
    ]
    options = {"join": "outer", "drop_variables": "area"}
    refuse(
        r"no stored value of dtype 'int16' with scale.* to a missing value.*fill_value=\{'v'.*unpack=True",
        paths,
        **options,
    )
    expected = plain(paths, combine="nested", concat_dim="time", **options)
    check(vs.open_virtual_mfdataset(paths, unpack=True, **options), expected)
    filled = vs.open_virtual_mfdataset(paths, combine_options={"fill_value": {"v": -4.5}}, **options)
    opened = [xr.load_dataset(path, drop_variables="area") for path in paths]
    check(filled, xr.combine_nested(opened, concat_dim="time", join="outer", fill_value={"v": -4.5}))
    refuse(r"decodes to 0\.3", paths, combine_options={"fill_value": 0.3}, **options)


def test_labels_that_occur_twice_cannot_be_aligned(tmp_path):
    paths = [write(tmp_path / "0.nc", time=[0], lat=(10.0, 10.0, 20.0)), write(tmp_path / "1.nc", time=[1])]
    refuse(
        r"'lat' has label 10.0 more than once in '.*0.nc'",
        paths,
        join="outer",
        combine="nested",
        concat_dim="time",
        drop_variables="area",
    )


# -- files that pack differently ------------------------------------------------------------------------------


def test_dates_of_two_calendars_are_refused_when_they_are_joined(tmp_path):
    """By name, with a label of each, and with no advice that would leave out the days of one of them."""
    paths = [tmp_path / "standard.nc", tmp_path / "noleap.nc"]
    for i, path in enumerate(paths):
        time = xr.Variable("time", [100.0 + 400 * i, 101 + 400 * i])
        time.attrs = {"units": "days since 2000-01-01", "calendar": path.stem}
        xr.Dataset({"v": ("time", [1.0 + i, 2 + i])}, {"time": time}).to_netcdf(path, engine="netcdf4")
    message = (
        r"labels of 'time' are of several kinds.*: 2000-04-10 00:00:00 \(datetime64\) in '.*standard.nc', "
        r"2001-05-16 00:00:00 \(cftime, calendar 'noleap'\) in '.*noleap.nc'. .*join the files of each kind"
    )
    for options in ({}, {"combine": "nested", "concat_dim": "time"}):
        assert "convert_calendar" not in str(refuse(message, paths, **options))
    vds = vs.open_virtual_mfdataset(paths, preprocess=lambda ds: ds.convert_calendar("noleap"))
    expected = xr.concat([xr.load_dataset(path).convert_calendar("noleap") for path in paths], "time")
    xr.testing.assert_equal(vds.virtual.open().load(), expected)


@pytest.mark.filterwarnings("ignore:Unable to decode time axis")
def test_dates_beyond_2262_are_joined_as_xarray_advises(tmp_path):
    """xarray decodes one file to datetime64 and the other to cftime; what the error advises keeps every day."""
    paths = [tmp_path / "a.nc", tmp_path / "b.nc"]
    for i, path in enumerate(paths):
        time = xr.date_range(f"{2256 + 8 * i}-02-27", periods=4, calendar="standard", use_cftime=True)
        xr.Dataset({"v": ("time", np.arange(4.0) + 10 * i)}, {"time": time}).to_netcdf(path, engine="netcdf4")
    refused = refuse("labels of 'time' are of several kinds", paths)
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    assert "Open the files with decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)" in str(refused)
    found = vs.open_virtual_mfdataset(paths, decode_times=coder).virtual.open(decode_times=coder).load()
    expected = xr.concat([xr.load_dataset(path, decode_times=coder) for path in paths], "time")
    assert found.sizes["time"] == 8
    xr.testing.assert_equal(found, expected)


@pytest.mark.parametrize("how", ["cftime", "seconds", "by name"])
def test_a_coder_of_times_decides_as_in_xarray(tmp_path, how):
    """Also for one file, and for a map from names."""
    made = xr.Dataset({"v": ("time", [1.0, 2.0])}, {"time": np.array(["2001-01-01", "2001-01-02"], "M8[ns]")})
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    coder = {
        "cftime": xr.coders.CFDatetimeCoder(use_cftime=True),
        "seconds": xr.coders.CFDatetimeCoder(time_unit="s"),
        "by name": {"time": False},
    }[how]
    expected = xr.load_dataset(tmp_path / "a.nc", decode_times=coder)
    for vds in (
        vs.open_virtual_dataset(tmp_path / "a.nc", decode_times=coder),
        vs.open_virtual_mfdataset([tmp_path / "a.nc"], decode_times=coder),
        vs.open_virtual_dataset(tmp_path / "a.nc", decode_times=coder, unpack=True),
    ):
        xr.testing.assert_identical(vds.time, expected.time)
        assert vds.time.dtype == expected.time.dtype


@pytest.mark.parametrize("target", ["a.json", "a.parq", "a.vstack", "a.icechunk"])
def test_dates_of_cftime_are_written_as_numbers(tmp_path, target):
    """As xarray writes them: with the units and the calendar of the files, or others."""
    coder = xr.coders.CFDatetimeCoder(use_cftime=True)
    paths = [tmp_path / f"{i}.nc" for i in range(2)]
    for i, path in enumerate(paths):
        time = pd.date_range("2001-01-01T00", periods=2, freq="48h") + i * pd.Timedelta("84h")
        run = xr.Variable("time", time - pd.Timedelta(hours=1))
        made = xr.Dataset({"v": ("time", [1.0, 2.0])}, {"time": time, "run": run})
        made.to_netcdf(path, engine="netcdf4", encoding={"time": {"units": f"{['days', 'hours'][i]} since 2001-01-01"}})
    expected = xr.concat([xr.load_dataset(path, decode_times=coder) for path in paths], "time")
    vds = vs.open_virtual_mfdataset(paths, decode_times=coder, loadable_variables="run")
    assert vds["time"].dtype == vds["run"].dtype == object
    write = {"json": "to_kerchunk", "parq": "to_kerchunk", "vstack": "to_vstack", "icechunk": "to_icechunk"}
    getattr(vds.virtual, write[target.rpartition(".")[2]])(tmp_path / target)
    xr.testing.assert_equal(xr.load_dataset(tmp_path / target, engine="virtualstack", decode_times=coder), expected)
    expected = xr.concat([xr.load_dataset(path) for path in paths], "time")
    xr.testing.assert_equal(xr.load_dataset(tmp_path / target, engine="virtualstack"), expected)


def test_characters_are_not_joined_to_another_text(tmp_path):
    """xarray reads each file's as one text, and two files as two."""
    for i, text in enumerate(("ab", "cde")):
        netcdf4_file(tmp_path / f"{i}.nc", {"t": len(text)}, {"v": ("S1", "t", np.array(list(text), "S1"))})
    options = {"combine": "nested", "concat_dim": "t", "combine_options": {"data_vars": "all"}}
    for loadable in (None, ["v"]):
        vds = vs.open_virtual_mfdataset(str(tmp_path / "*.nc"), loadable_variables=loadable, **options)
        assert vds.virtual.open().v.values.tolist() == [b"ab", b"cde"]


def test_only_variables_that_are_packed_differently_are_unpacked(tmp_path):
    """Bit-identical to opening each file with xarray and joining."""
    packings = [{"_FillValue": np.int16(-99), "scale_factor": s} for s in (0.5, 0.25)]
    paths = [
        write(tmp_path / f"{i}.nc", time=days(0, 2), dtype="i2", packing=packing, units=f"days since {2000 + i}-01-01")
        for i, packing in enumerate(packings)
    ]
    for path in paths:
        with netCDF4.Dataset(path, "a") as file:
            same = file.createVariable("same", "i2", ("time", "lat"), fill_value=-1)
            same.scale_factor = 0.1
            same[:] = [[1, 2, 3], [4, 5, 6]]
            bounds = file.createVariable("run", "f8", ("time",))
            bounds.units = file["time"].units
            bounds[:] = [0.5, 1.5]
    refuse("scale_factor", paths, unpack=False)
    vds = vs.open_virtual_mfdataset(paths)
    assert "is packed differently in some files, and is unpacked" in vds.virtual.report().to_string()
    assert vds.v.dtype == np.float64
    assert vds.same.dtype == np.int16
    assert vds.run.dtype == "M8[ns]"
    check(vds, plain(paths, combine="by_coords"))
    how = {"unpack": "differing", "decode_times": False, "combine": "nested", "concat_dim": "time"}
    stored = vs.open_virtual_mfdataset(paths, drop_variables=["v", "time", "run"], **how)
    assert stored.same.dtype == np.int16


def test_a_variable_that_cannot_be_unpacked_is_named(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=[i]) for i in range(2)]
    for path, calendar in zip(paths, ("noleap", "360_day"), strict=True):
        with netCDF4.Dataset(path, "a") as file:
            file.createDimension("long", 1 << 18)
            run = file.createVariable("run", "f8", ("time", "long"))
            run.units, run.calendar = "days since 2000-01-01", calendar
            run[:] = 3
    refuse(r"'run' is packed differently in some files, and it cannot be unpacked in '.*0.nc'", paths)


# -- each file ------------------------------------------------------------------------------------------------


def test_preprocess_sees_each_dataset_and_where_it_is_from(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=days(2 * i, 2)) for i in range(2)]

    def change(ds):
        return ds.isel(lat=slice(1, None)).assign_attrs(name=ds.encoding["source"][-4:])

    vds = vs.open_virtual_mfdataset(paths, preprocess=change, combine_options={"combine_attrs": "override"})
    expected = plain(paths, combine="by_coords", preprocess=lambda ds: ds.isel(lat=slice(1, None)))
    check(vds, expected)
    assert vds.attrs["name"] == "0.nc"
    with pytest.raises(TypeError, match=r"preprocess= returned a NoneType for 'file.*0.nc'; it must return a Dataset"):
        vs.open_virtual_mfdataset(paths, preprocess=lambda ds: None)


def test_labels_come_from_names(tmp_path):
    """Dates, whole numbers or text."""
    paths = [write(tmp_path / f"r{i}" / f"x_2000010{i}_run{i}b.nc", time=[7], seed=i) for i in (1, 2)]
    for pattern, options, expected in (
        (r"_(\d{8})", {"format": "%Y%m%d"}, np.array(["2000-01-01", "2000-01-02"], "M8[ns]")),
        (r"run(\d)", {}, np.array([1, 2])),
        (r"run\d.", {}, np.array(["run1b", "run2b"])),
        (r"/r(\d)/", {}, np.array([1, 2])),
    ):
        vds = vs.open_virtual_mfdataset(paths, new_dim={"member": vs.FromName(pattern, **options)})
        assert vds.member.values.tolist() == expected.tolist()
        assert vds.v.dims == ("member", "time", "lat")
        opened = [xr.load_dataset(p).expand_dims(member=[m]) for p, m in zip(paths, expected, strict=True)]
        joined = xr.combine_by_coords(opened, join="exact", **MINIMAL | {"data_vars": "all"})
        xr.testing.assert_equal(vds.virtual.open().load(), joined)


def test_labels_come_from_attributes_and_functions(tmp_path):
    paths = [
        write(tmp_path / f"{i}.nc", time=[7], seed=i, attrs={"realization": np.int32(3 - i), "made": f"200{i}-01"})
        for i in range(2)
    ]
    assert vs.open_virtual_mfdataset(paths, new_dim={"m": vs.FromAttribute("realization")}).m.values.tolist() == [2, 3]
    dated = vs.open_virtual_mfdataset(paths, new_dim={"run": vs.FromAttribute("made", format="%Y-%m")})
    assert dated.run.values.tolist() == np.array(["2000-01", "2001-01"], "M8[ns]").tolist()
    made = vs.open_virtual_mfdataset(paths, new_dim={"z": lambda ds: ds.attrs["realization"] * 2.5})
    assert made.z.values.tolist() == [5.0, 7.5]


def test_labels_that_are_not_there_are_named(tmp_path):
    path = write(tmp_path / "a.nc", time=[7])
    for new_dim, message in (
        (
            {"m": vs.FromName(r"run(\d)")},
            r"'m' has no label for '.*a.nc': it has a name that does not match 'run",
        ),
        ({"m": vs.FromAttribute("run")}, r"'.*a.nc': it has no attribute 'run', only \[\]"),
        ({"m": vs.FromName("(a)", format="%Y")}, r"label 'a' of 'm' in '.*a.nc' is not a date of format '%Y'"),
        ({"v": vs.FromName("a")}, r"'v' is already a variable"),
    ):
        refuse(message, [path], new_dim=new_dim)
    path = write(tmp_path / "b.nc", time=[7, 8])
    refuse("has 2 elements along 'time', and got one label", [path], new_dim={"time": vs.FromName("b")})
    refuse("has 2 elements along 'time', and got 1 label", [path], new_dim={"time": [[1]]})
    with pytest.raises(ValueError, match="is not a valid regular expression"):
        vs.FromName("(")
    with pytest.raises(ValueError, match="has 2 groups"):
        vs.FromName("(a)(b)")


def test_labels_in_a_list(tmp_path):
    """One for each file, in the order of the files; the cube is in the order of the labels."""
    paths = [write(tmp_path / f"{name}.nc", time=[7], seed=i) for i, name in enumerate("ab")]
    values = [xr.open_dataset(path, engine="netcdf4")["v"].values for path in paths]
    for labels in ([20, 10], np.array([20, 10]), pd.Index([20, 10])):
        made = vs.open_virtual_mfdataset(paths, new_dim={"m": labels}).virtual.open()
        np.testing.assert_array_equal(made["m"], [10, 20])
        np.testing.assert_array_equal(made["v"], values[::-1])
    dates = [pd.Timestamp("2001-01-02", tz="UTC"), np.datetime64("2001-01-01")]
    made = vs.combine_datasets([vs.open_virtual_dataset(path) for path in paths], new_dim={"day": dates})
    np.testing.assert_array_equal(made["day"], np.array(["2001-01-01", "2001-01-02"], "M8[ns]"))
    np.testing.assert_array_equal(made.virtual.open()["v"], values[::-1])


def test_labels_of_a_dimension_are_replaced(tmp_path):
    """Files that count their hours from 0 get dates of their names, or lists; the files may have other lengths."""
    paths = [write(tmp_path / f"run_2001010{i}.nc", time=[0], seed=i) for i in (2, 1)]
    values = [xr.open_dataset(path, engine="netcdf4")["v"].values for path in paths]
    made = vs.open_virtual_mfdataset(paths, new_dim={"time": vs.FromName(r"(\d{8})", format="%Y%m%d")})
    np.testing.assert_array_equal(made["time"], np.array(["2001-01-01", "2001-01-02"], "M8[ns]"))
    np.testing.assert_array_equal(made.virtual.open()["v"], np.concatenate(values[::-1]))
    paths.append(write(tmp_path / "run_20010103.nc", time=[0, 1], seed=5))
    values.append(xr.open_dataset(paths[2], engine="netcdf4")["v"].values)
    for labels in ([40, 30, [10, 20]], lambda ds: xr.DataArray({2: [40], 1: [30], 3: [10, 20]}[_day(ds)], dims="t")):
        made = vs.open_virtual_mfdataset(paths, new_dim={"time": labels}).virtual.open()
        assert made["time"].values.tolist() == [10, 20, 30, 40]
        np.testing.assert_array_equal(made["v"], np.concatenate(values[::-1]))


def _day(ds):
    return int(ds.encoding["source"][-4])


@pytest.mark.parametrize(
    ("labelling", "message"),
    [
        (vs.FromAttribute("levels"), r"label array\(\[1, 2\].*\) of 'm' in '.*a.nc' is not one value"),
        (lambda ds: [1, 2], r"label \[1, 2\] of 'm' in '.*a.nc' is not one value. Give a function"),
        (lambda ds: None, r"'m' has no label for '.*a.nc': it got None from its function"),
        (lambda ds: np.datetime64("NaT", "ns"), r"'m' has no label"),
        (lambda ds: ds.attrs["absent"], r"the function of new_dim 'm' raised KeyError for '.*a.nc': 'absent'"),
        (
            r"_(\d)",
            r"new_dim={'m': '_.*'} does not say where the labels come from. Give FromName\('_.*'\), FromAttribute",
        ),
        ([1, 2], r"new_dim has 2 labels of 'm' for 1 file"),
    ],
)
def test_an_error_of_a_label_names_the_file(labelling, message, tmp_path):
    path = write(tmp_path / "a.nc", time=[7], attrs={"levels": np.array([1, 2])})
    error = refuse(message, [path], new_dim={"m": labelling})
    if "raised" in message:
        assert isinstance(error.__cause__, KeyError)
    refuse(r"new_dim='run' does not say where the labels come from. Give a dictionary", [path], new_dim="run")


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (datetime(2000, 1, 1, 5, tzinfo=timezone(timedelta(hours=5))), np.datetime64("2000-01-01", "ns")),
        (date(2000, 1, 1), np.datetime64("2000-01-01", "ns")),
        (np.datetime64("2000", "Y"), np.datetime64("2000-01-01", "ns")),
        (xr.DataArray(np.float32(1.5)), np.float32(1.5)),
        (np.array([7], "i2"), np.int16(7)),
        (cftime.DatetimeNoLeap(2000, 1, 1), cftime.DatetimeNoLeap(2000, 1, 1)),
        (datetime(3000, 1, 1, 7), cftime.DatetimeProlepticGregorian(3000, 1, 1, 7)),
        (np.datetime64("0850-01-01", "us"), cftime.DatetimeProlepticGregorian(850, 1, 1)),
    ],
)
@pytest.mark.filterwarnings("ignore:Unable to decode time axis")
def test_labels_of_functions_are_plain_values(label, expected, tmp_path):
    """They are written and read back."""
    path = write(tmp_path / "a.nc", time=[7])
    made = vs.open_virtual_mfdataset([path], new_dim={"m": lambda ds: label}).virtual.open().m
    assert made.dtype == np.asarray(expected).dtype
    assert made.values[0] == expected


def test_labels_are_from_the_names_of_all_files_or_from_the_folders_of_all(tmp_path):
    """A file without a match does not take that of its folder where others have one in their names."""
    paths = [write(tmp_path / "r5" / name, time=[7], seed=i) for i, name in enumerate(("x_r1.nc", "control.nc"))]
    refuse(
        r"'.*control.nc': it has a name that does not match 'r\(.*Give a pattern that all",
        paths,
        new_dim={"r": vs.FromName(r"r(\d)")},
    )
    vds = vs.open_virtual_mfdataset(paths[1:], new_dim={"r": vs.FromName(r"r(\d)")})
    assert vds.r.values.tolist() == [5]
    odd = write(tmp_path / "a%205.nc", time=[7])  # a percent sign of a local name is none of an encoding
    assert vs.open_virtual_mfdataset([odd], new_dim={"r": vs.FromName(r"a%(\d+)")}).r.values.tolist() == [205]


def test_an_error_of_preprocess_names_the_file(tmp_path, monkeypatch):
    paths = [write(tmp_path / f"{i}.nc", time=[i]) for i in range(2)]
    for function, message in (
        (lambda ds: ds["absent"], r"preprocess= raised KeyError for '.*0.nc': "),
        (lambda ds: ds.isel(nowhere=0), r"preprocess= raised ValueError for '.*0.nc': "),
    ):
        error = refuse(message, paths, preprocess=function)
        assert type(error.__cause__) in (KeyError, ValueError)
        with pytest.raises(CombineError, match=message):
            vs.open_virtual_mfdatatree(paths, preprocess=function)
    monkeypatch.setattr("virtualstack.manifests.values.MAX_VALUES_BYTES", -1)
    with pytest.raises(VirtualValuesError) as values:
        vs.open_virtual_mfdataset(paths, preprocess=lambda ds: ds.where(ds.v.values > 0))
    assert re.fullmatch(r"in preprocess= for '.*0.nc'", values.value.__notes__[0])


@pytest.mark.parametrize("urls", [123, None, [["a.nc"], 7]])
def test_a_source_that_is_no_path_is_refused(urls):
    with pytest.raises(StorageError, match=r"is of type '(int|NoneType)', which does not open. Give a path, a URL"):
        vs.open_virtual_mfdataset(urls)


def test_files_that_cannot_be_opened_are_left_out_on_request(tmp_path):
    """One warning, and a line each in the report."""
    paths = [write(tmp_path / f"{i}.nc", time=[i]) for i in range(4)]
    paths[1].write_bytes(b"no file of any format" * 100)
    paths[2].unlink()
    with pytest.raises(ReaderError, match=r"1\.nc"):
        vs.open_virtual_mfdataset(paths)
    with pytest.warns(UserWarning, match=r"left out 2 of 4 files that could not be opened, the first is '.*[12].nc'"):
        vds = vs.open_virtual_mfdataset(paths, on_error="skip")
    assert vds.sizes["time"] == 2
    report = vds.virtual.report()
    refused = report[report["state"] == "refused"]
    assert sorted(re.findall(r"(\d)\.nc$", "\n".join(refused["variable"]), re.MULTILINE)) == ["1", "2"]
    with pytest.raises(ReaderError, match=r"1\.nc"):
        vs.open_virtual_mfdataset(paths[1:2], on_error="skip")


def test_a_root_with_coordinates_alone_names_the_groups(tmp_path):
    """As satellites write it: the times in the root, the data in a group."""
    path = tmp_path / "scan.nc"
    xr.Dataset(coords={"time": [0, 1]}).to_netcdf(path, engine="netcdf4")
    xr.Dataset({"v": ("time", [1.0, 2.0])}).to_netcdf(path, group="PRODUCT", mode="a", engine="netcdf4")
    with pytest.warns(UserWarning, match=r"group '/' has only coordinates, .*\['/PRODUCT'\].*group='/PRODUCT'"):
        assert not vs.open_virtual_dataset(path).data_vars
    with pytest.warns(UserWarning, match="only coordinates"):
        vs.open_virtual_mfdataset([path])
    assert list(vs.open_virtual_dataset(path, group="PRODUCT").data_vars) == ["v"]


def test_groups_inherit_the_dates_of_the_root(tmp_path):
    """As TROPOMI writes it: the files follow each other by these dates. A dimension of another length stays apart."""
    paths = [tmp_path / f"S5P_{n}.nc" for n in (1, 2)]
    for n, path in enumerate(paths):
        labels = {"time": ("i4", "time", [1 - n]), "x": ("f4", "x", [5, 7]), "PRODUCT/x": ("f4", "x", [0, 1, 2])}
        values = {"PRODUCT/no2": ("f4", "time x", np.full((1, 3), n)), "PRODUCT/flags": ("i2", "time", [n])}
        netcdf4_file(path, {"time": 1, "x": 2, "PRODUCT/x": 3}, labels | values)
        with netCDF4.Dataset(path, "a") as file:
            file["time"].units = "days since 2020-01-01"
    sources = []
    for path in reversed(paths):
        with xr.open_dataset(path) as root, xr.open_dataset(path, group="PRODUCT") as data:
            sources.append(data.assign_coords(time=root["time"]).load())
    expected = xr.concat(sources, "time", join="exact", **MINIMAL)
    xr.testing.assert_identical(vs.open_virtual_mfdataset(paths, group="PRODUCT").virtual.open().load(), expected)
    xr.testing.assert_identical(
        xr.open_mfdataset(paths, engine="virtualstack", group="PRODUCT", combine="by_coords", **MINIMAL).load(),
        expected,
    )
    tree = vs.open_virtual_mfdatatree(paths, group="PRODUCT")
    xr.testing.assert_identical(tree.to_dataset().virtual.open().load(), expected)
    left_out = vs.open_virtual_dataset(paths[0], group="PRODUCT", drop_variables="time")
    assert set(left_out.coords) == {"x"}


def test_variables_in_groups_are_not_silently_missing(tmp_path):
    """A root without variables opens as an empty dataset, as with xarray; the warning names the groups."""
    paths = [tmp_path / f"shot_{n}.h5" for n in range(2)]
    for n, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            file["camera/raw/frames"] = np.full(3, n)
            file["empty/deep"] = 1
    where = r"group '/' has no variables.*\['/camera/raw', '/empty'\].*group='/camera/raw'"
    with pytest.warns(UserWarning, match=where):
        assert not vs.open_virtual_dataset(paths[0]).variables
    below = r"group '/camera' has no variables.*\['/camera/raw'\].*group='/camera/raw'"
    with pytest.warns(UserWarning, match=below):
        vs.open_virtual_dataset(paths[0], group="camera")
    with pytest.warns(UserWarning, match=where) as warned:
        vs.open_virtual_mfdataset(paths, new_dim={"shot": vs.FromName(r"_(\d)")})
    assert len(warned) == 1
    found = vs.open_virtual_mfdataset(paths, group="camera/raw", new_dim={"shot": vs.FromName(r"_(\d)")})
    assert found["frames"].shape == (2, 3)


def test_a_dimension_of_one_element_gets_new_labels(tmp_path):
    """As the band of a GeoTIFF."""
    paths = [tmp_path / f"B0{n}.nc" for n in (4, 8)]
    for n, path in enumerate(paths):
        values = {"v": (("band", "x"), [[1.0 + n, 2.0]])}
        xr.Dataset(values, coords={"band": [1]}).to_netcdf(path, engine="netcdf4")
    found = vs.open_virtual_mfdataset(paths, new_dim={"band": vs.FromName(r"(B\d+)")})
    assert found["band"].values.tolist() == ["B04", "B08"]
    assert found["v"].values.tolist() == [[1.0, 2.0], [2.0, 2.0]]


def test_files_without_the_group_are_left_out_on_request(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=[i]) for i in range(3)]
    for path in paths[:2]:
        with netCDF4.Dataset(path, "a") as file:
            file.createGroup("g").createVariable("w", "f4", ("time",))[:] = 1
    with pytest.raises(ReaderError, match=r"2\.nc.*no array or group 'g'"):
        vs.open_virtual_mfdataset(paths, group="g", combine="nested", concat_dim="time")
    with pytest.warns(UserWarning, match=r"left out 1 of 3 files .* no array or group 'g'"):
        vds = vs.open_virtual_mfdataset(paths, group="g", combine="nested", concat_dim="time", on_error="skip")
    assert vds.w.sizes == {"time": 2}


def test_variables_that_cannot_be_referenced_are_skipped_with_one_warning(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=[i]) for i in range(3)]
    for path in paths:
        with netCDF4.Dataset(path, "a") as file:
            file.createVariable("text", str, ("time",))[:] = np.array(["x" * 2000], object)
    options = {"inline_limit": 100}
    with pytest.raises(ReaderError, match=r"'/text'.*cannot be referenced|cannot be referenced: '/text'"):
        vs.open_virtual_mfdataset(paths, **options)
    with pytest.warns(UserWarning, match=r"0.nc': left out '/text'.*\(and of 2 more files\)") as caught:
        vds = vs.open_virtual_mfdataset(paths, unsupported="skip", **options)
    assert len(caught) == 1
    assert "text" not in vds
    assert vs.open_virtual_mfdataset(paths).virtual.open()["text"].values.tolist() == ["x" * 2000] * 3


def test_options_of_opening_reach_each_file(tmp_path):
    paths = [write(tmp_path / f"{i}.nc", time=[i]) for i in range(2)]
    vds = vs.open_virtual_mfdataset(
        paths, loadable_variables=["time", "lat", "v"], drop_variables="area", reader="hdf5"
    )
    assert virtual_array(vds["v"].variable) is None
    check(vds, plain(paths, combine="by_coords", drop_variables="area"))
    bare = vs.open_virtual_mfdataset(paths, loadable_variables=[], combine="nested", concat_dim="time")
    assert virtual_array(bare["time"].variable) is not None
    check(bare, plain(paths, combine="nested", concat_dim="time"))


def test_many_dates_of_one_calendar_are_joined(tmp_path):
    """Dates that are objects are labels as others are."""
    paths = [write(tmp_path / f"{i}.nc", time=days(30 * i, 2)) for i in range(3)]
    for path in paths:
        with netCDF4.Dataset(path, "a") as file:
            file["time"].calendar = "360_day"
    check(vs.open_virtual_mfdataset(paths), plain(paths, combine="by_coords"))


def test_cube_is_written_and_read_back(tmp_path):
    """An outer join goes through references, too."""
    paths = [
        write(tmp_path / f"{i}.nc", time=days(2 * i, 2), lat=lat) for i, lat in enumerate([(1.0, 2.0), (2.0, 3.0)])
    ]
    vds = vs.open_virtual_mfdataset(paths, join="outer", drop_variables="area")
    expected = plain(paths, combine="nested", concat_dim="time", join="outer", drop_variables="area")
    group = vds.virtual.to_group()
    xr.testing.assert_equal(xr.open_dataset(group, engine="virtualstack").load(), expected)
    assert pd.DataFrame(vds.virtual.locations).shape[0] == 2


@pytest.mark.parametrize("packing", ["floats", "packed", "plain integers"])
def test_an_absent_variable_is_written_as_absent_chunks(tmp_path, packing):
    """Chunks that match stay as they are, and any reader of references sees missing values."""
    pytest.importorskip("kerchunk")
    dtype, attributes = PACKINGS[packing]
    paths = [
        write(tmp_path / f"{i}.nc", time=days(2 * i, 2), names=names, packing=attributes, dtype=dtype)
        for i, names in enumerate([("v",), ("v", "w"), ("v", "w")])
    ]
    vds = vs.open_virtual_mfdataset(paths, join="outer")
    assert set(vds.virtual.report().set_index("variable").loc[["v", "w"], "form"]) == {"plain"}
    vds.virtual.to_kerchunk(tmp_path / "refs.json")
    opened = [xr.load_dataset(path) for path in paths]
    with xr.open_dataset(str(tmp_path / "refs.json"), engine="kerchunk") as found:
        xr.testing.assert_equal(found.load(), xr.concat(opened, "time", join="outer", **MINIMAL))


def test_options_of_scanning_reach_the_scan(tmp_path):
    """Workers, a cache and a progress."""
    paths = [write(tmp_path / f"{i}.nc", time=days(2 * i, 2)) for i in range(3)]
    seen = []
    for _ in range(2):
        vds = vs.open_virtual_mfdataset(
            paths, executor="threads", cache=tmp_path / "cache", progress=lambda done, n: seen.append((done, n))
        )
        check(vds, plain(paths, combine="by_coords"))
    assert seen[-1] == (3, 3)
    assert any((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("option", ["data_vars", "engine", "loadable_variable", "chunks"])
def test_an_unknown_keyword_is_an_error(option, tmp_path):
    """Also one of xarray's, which would have been left out silently."""
    path = write(tmp_path / "a.nc", time=days(0, 2))
    for function in (vs.open_virtual_mfdataset, vs.open_virtual_mfdatatree):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
            function([path], **{option: 1})


def test_a_bad_file_keeps_its_place_in_lists_of_lists(tmp_path):
    """Left out, the files behind it would stand in its place."""
    good = [write(tmp_path / f"{i}.nc", time=days(2 * i, 2)) for i in range(2)]
    bad = tmp_path / "bad.nc"
    bad.write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(MalformedFileError) as caught:
        vs.open_virtual_mfdataset(
            [[good[0], bad], [good[1], bad]], combine="nested", concat_dim=["time", "x"], on_error="skip"
        )
    assert "has a position in nested lists" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("text", "format", "label"),
    [
        ("29990101", "%Y%m%d", cftime.DatetimeProlepticGregorian(2999, 1, 1)),
        ("15000101", "%Y%m%d", cftime.DatetimeProlepticGregorian(1500, 1, 1)),
        ("20200101", "%Y%m%d", np.datetime64("2020-01-01T00", "ns")),
        ("20200101+0500", "%Y%m%d%z", np.datetime64("2019-12-31T19", "ns")),
    ],
)
def test_dates_of_names_are_right(text, format, label, tmp_path):
    """Nanoseconds have no room for some, and zones are minded."""
    path = write(tmp_path / f"a_{text}.nc", time=days(0, 2))
    opened = {"combine": "nested", "concat_dim": "run", "new_dim": {"run": vs.FromName(r"_([\d+]+)\.", format=format)}}
    assert vs.open_virtual_mfdataset([path], **opened).run.values.tolist() == np.array([label]).tolist()


# -- datasets that are open already ---------------------------------------------------------------------------


@pytest.fixture
def daily(tmp_path):
    return [write(tmp_path / f"{day}.nc", time=[day, day + 1], seed=day) for day in (0, 2, 4)]


@pytest.mark.parametrize(
    "arranged",
    [
        lambda paths, opened: opened[::-1],
        lambda paths, opened: [paths[1], opened[0], paths[2]],
        lambda paths, opened: (opened[2], paths[0], opened[1]),
        lambda paths, opened: [paths[0], vs.combine_datasets(opened[1:])],
    ],
    ids=["datasets", "mixed", "tuple", "joined"],
)
def test_datasets_are_joined_like_files(daily, arranged):
    """Virtual datasets in the place of files, and beside them, give what xarray gives of the files."""
    opened = [vs.open_virtual_dataset(path) for path in daily]
    made = vs.open_virtual_mfdataset(arranged(daily, opened))
    xr.testing.assert_equal(made.virtual.open().load(), plain(daily))
    assert virtual_array(made["v"].variable) is not None


def test_datasets_are_combined_without_opening(daily):
    """``combine_datasets`` joins by coordinates or nested, as open_virtual_mfdataset joins files."""
    opened = [vs.open_virtual_dataset(path) for path in daily]
    expected = plain(daily)
    xr.testing.assert_equal(vs.combine_datasets(opened[::-1]).virtual.open().load(), expected)
    nested = vs.combine_datasets(opened, combine="nested", concat_dim="time")
    xr.testing.assert_equal(nested.virtual.open().load(), expected)
    runs = vs.combine_datasets([opened[:1], opened[:1]], combine="nested", concat_dim=["run", "time"])
    np.testing.assert_array_equal(runs.virtual.open()["v"].values[1], expected["v"].values[:2])
    one = vs.combine_datasets(opened[0])
    xr.testing.assert_equal(one.virtual.open().load(), expected.isel(time=slice(0, 2)))


def test_edits_of_datasets_stay_and_preprocess_is_applied(daily):
    """What was done to a dataset stays; preprocess= sees it as those of files, and does not change the one given."""
    first = vs.open_virtual_dataset(daily[0]).isel(lat=[0, 2])

    def cut(ds):
        ds.attrs["seen"] = ds.encoding["source"]
        return ds if ds.sizes["lat"] == 2 else ds.isel(lat=[0, 2])

    made = vs.open_virtual_mfdataset([first, daily[1]], preprocess=cut)
    expected = plain(daily[:2]).isel(lat=[0, 2])
    xr.testing.assert_equal(made.virtual.open().load(), expected)
    assert "seen" not in first.attrs


def test_a_dataset_in_memory_is_joined_with_files(daily):
    """Loaded values have no file; they are joined as loaded variables of files are."""
    names = ["v", "area"]
    loaded = xr.open_dataset(daily[0], engine="netcdf4").load()
    made = vs.open_virtual_mfdataset([loaded, daily[1]], loadable_variables=["time", "lat", *names])
    xr.testing.assert_equal(made[names].load(), plain(daily[:2])[names])


def test_options_of_opening_without_a_file_are_an_error(daily):
    """Options that would have no effect are not swallowed; without them the same call works."""
    opened = [vs.open_virtual_dataset(path) for path in daily]
    for options in ({"drop_variables": "area"}, {"unpack": True}, {"reader": "hdf5"}):
        with pytest.raises(TypeError, match=f"{next(iter(options))}.* only datasets are given"):
            vs.open_virtual_mfdataset(opened, **options)
    made = vs.open_virtual_mfdataset([opened[0], daily[1]], drop_variables="absent")
    assert made.sizes["time"] == 4
    xr.testing.assert_equal(vs.open_virtual_mfdataset(opened).virtual.open().load(), plain(daily))


def test_an_item_that_is_no_dataset_is_named_by_its_type(daily):
    """A tree, an array or a URL where datasets belong is an error that says which function takes it."""
    opened = vs.open_virtual_dataset(daily[0])
    with pytest.raises(TypeError, match=r"a DataTree is not a Dataset\. Use open_virtual_mfdatatree"):
        vs.open_virtual_mfdataset([xr.DataTree(opened)])
    with pytest.raises(StorageError, match="of type 'DataArray'"):
        vs.open_virtual_mfdataset(opened["v"])
    with pytest.raises(TypeError, match="not a str: open_virtual_mfdataset takes URLs"):
        vs.combine_datasets([str(daily[0])])
    with pytest.raises(ValueError, match="unpack=True"):
        vs.combine_datasets([opened], unpack=True)
    xr.testing.assert_equal(vs.open_virtual_mfdataset([str(daily[0])]), opened)


def test_files_that_cannot_be_opened_are_left_out_beside_datasets(daily, tmp_path):
    """``on_error="skip"`` leaves out a damaged file, and joins datasets with the others."""
    (tmp_path / "bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    opened = vs.open_virtual_dataset(daily[2])
    with pytest.warns(UserWarning, match="left out 1 of 4 files"):
        made = vs.open_virtual_mfdataset([opened, daily[0], tmp_path / "bad.nc", daily[1]], on_error="skip")
    xr.testing.assert_equal(made.virtual.open().load(), plain(daily))


def test_labels_come_from_attributes_of_the_groups_above(tmp_path):
    """The global attributes of a file are those of its root; the nearest group counts."""
    for i in range(2):
        with netCDF4.Dataset(tmp_path / f"{i}.nc", "w") as file:
            file.shot, file.part, file.deep = np.int32(100 + i), "root", "root"
            group = file.createGroup("a")
            group.part, group.deep = f"a{i}", "a"
            group = group.createGroup("b")
            group.deep = f"b{i}"
            group.createDimension("x", 2)
            group.createVariable("v", "f8", ("x",))[:] = [i, i + 0.5]
    found = {}
    for name in ("shot", "part", "deep"):
        options = {"group": "/a/b", "new_dim": {"n": vs.FromAttribute(name)}}
        vds = vs.open_virtual_mfdataset(tmp_path / "*.nc", preprocess=lambda ds: ds.rename(v="w"), **options)
        found[name] = vds["n"].values.tolist()
        assert vds.virtual.open()["w"].sel(n=found[name][1]).values.tolist() == [1, 1.5]
        assert vds.attrs == {}
        assert not any(key.endswith("inherited") for key in vds.encoding)
    assert found == {"shot": [100, 101], "part": ["a0", "a1"], "deep": ["b0", "b1"]}
    message = r"'.*0.nc': it has no attribute 'run' in its group or above, only \['deep', 'part', 'shot'\]"
    refuse(message, tmp_path / "*.nc", group="a/b", new_dim={"n": vs.FromAttribute("run")})
    tree = vs.open_virtual_mfdatatree(tmp_path / "*.nc", group="a", new_dim={"n": vs.FromAttribute("shot")})
    assert tree["b"]["n"].values.tolist() == [100, 101]


def _with_latitude(path, step, lat):
    """Write one step of values that tell the latitude."""
    values = np.array(lat, float)[None, :] + 1000 * step
    ds = xr.Dataset({"t": (("time", "lat"), values)}, {"time": [step], "lat": np.array(lat, float)})
    ds.to_netcdf(path, engine="h5netcdf")
    return str(path)


@pytest.mark.parametrize("join", ["left", "outer", "inner"])
@pytest.mark.parametrize("first", [[0, 10, 20], [20, 10, 0]])
def test_reversed_labels_are_aligned_if_asked(tmp_path, join, first):
    paths = [_with_latitude(tmp_path / f"{i}.nc", i, lat) for i, lat in enumerate((first, first[::-1], first))]
    cube = vs.open_virtual_mfdataset(paths, join=join).virtual.open()
    theirs = xr.concat([xr.open_dataset(path, engine="h5netcdf") for path in paths], "time", join=join)
    xr.testing.assert_identical(cube.load(), theirs.load())


@pytest.mark.parametrize("join", ["exact", "override"])
def test_reversed_labels_are_refused_unless_aligned(tmp_path, join):
    paths = [_with_latitude(tmp_path / f"{i}.nc", i, lat) for i, lat in enumerate(([0, 10, 20], [20, 10, 0]))]
    refuse(r"coordinate 'lat' differs in 1 of 2 files", paths, join=join)
    refuse(r"coordinate 'lat' differs in 1 of 2 files", paths, join=join, combine="nested", concat_dim="time")


@pytest.mark.parametrize("join", ["left", "outer", "inner"])
@pytest.mark.parametrize("own", [[0.2, 0.3], [0.3, 0.2, 0.1]], ids=["fewer", "reversed"])
def test_a_tolerance_joins_labels_of_two_precisions(tmp_path, join, own):
    """As if both files had the labels of the first one."""
    paths, exact = [], []
    for i, (lat, dtype) in enumerate([([0.1, 0.2, 0.3], "f8"), (own, "f4")]):
        made = xr.Dataset({"v": (("time", "lat"), [[10.0 * x for x in lat]])}, {"time": [i], "lat": lat})
        exact.append(made)
        made.assign_coords(lat=made.lat.astype(dtype)).to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
        paths.append(tmp_path / f"{i}.nc")
    options = {"combine": "nested", "concat_dim": "time", "join": join}
    found = vs.open_virtual_mfdataset(paths, tolerance=1e-5, **options).virtual.open().load()
    xr.testing.assert_equal(found, xr.concat(exact, "time", join=join))


def test_labels_that_descend_are_not_overridden_by_labels_that_ascend(tmp_path):
    """Also where they are not exact mirrors: rounding is what override is for."""
    paths = []
    for i, lat in enumerate([[1.0, 2.0, 3.0], [1.0, 2.0, 3.001], [3.001, 2.0, 1.0]]):
        made = xr.Dataset({"v": (("time", "lat"), [lat])}, {"time": [i], "lat": lat})
        made.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
        paths.append(tmp_path / f"{i}.nc")
    options = {"combine": "nested", "concat_dim": "time", "join": "override"}
    refuse("coordinate 'lat'", paths, **options)
    assert vs.open_virtual_mfdataset(paths[:2], **options).sizes["time"] == 2


def test_names_of_stations_come_before_what_is_measured(tmp_path):
    """Two of them share a latitude."""
    paths = [tmp_path / f"{n}.nc" for n in range(3)]
    for n, (path, name, lat) in enumerate(zip(paths, ("ZUG", "AAR", "BRN"), (50.0, 49.0, 50.0), strict=True)):
        scalars = {"lat": lat, "lon": 10.0 + n, "station_id": name}
        xr.Dataset({"t": ("time", [n, n])}, {"time": [0, 1], **scalars}).to_netcdf(path)
    joined = vs.open_virtual_mfdataset(paths).virtual.open().load()
    files = [xr.open_dataset(path) for path in paths]
    expected = xr.concat(files, "station_id", **MINIMAL | {"data_vars": "all", "coords": ["lat", "lon"]})
    xr.testing.assert_equal(joined.sortby("station_id"), expected.sortby("station_id"))
