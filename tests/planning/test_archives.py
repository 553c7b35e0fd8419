"""Usual archives join with nothing, or with what the message names: values are those of xarray on the same files."""

import itertools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data import make_grib
from virtualstack.cli.command import main
from virtualstack.errors import CombineError

NESTED = {"engine": "netcdf4", "combine": "nested"}


def check(found, expected):
    """Compare the values of all variables that both have, and see that none is lost."""
    assert set(expected.variables) <= set(found.variables)
    for name in expected.variables:
        ours = found[name].transpose(*expected[name].dims)
        np.testing.assert_array_equal(ours.values, expected[name].values, err_msg=str(name))


def sorted_members(paths):
    """Return what xarray makes of members one by one."""
    kinds = ["r1i1p1f2", "r2i1p1f2"]
    each = [
        xr.open_mfdataset(
            [p for p in paths if kind in p],
            concat_dim="time",
            data_vars="minimal",
            coords="minimal",
            compat="override",
            **NESTED,
        )["tas"]
        for kind in kinds
    ]
    return np.stack([x.values for x in each])


def test_members_become_a_dimension(archive):
    """By ``variant_label``; their dates are of a calendar of 360 days."""
    found = vs.open_virtual_mfdataset(archive("cmip-members"))
    expected = sorted_members(archive("cmip-members"))
    np.testing.assert_array_equal(found.virtual.open()["tas"].transpose("variant_label", ...).values, expected)
    assert found["variant_label"].values.tolist() == ["r1i1p1f2", "r2i1p1f2"]
    assert found.indexes["time"].calendar == "360_day"


def test_scenes_become_a_dimension(archive):
    """By their scalar ``t``, in order."""
    paths = archive("goes-scenes")
    found = vs.open_virtual_mfdataset([*reversed(paths)]).virtual.open()
    expected = xr.open_mfdataset(paths, concat_dim="t", data_vars="all", coords="minimal", compat="override", **NESTED)
    check(found, expected)


def test_fields_of_one_step_each_have_gaps_and_duplicates(tmp_path, capsys):
    """Files of one forecast: the step that is missing is named, and so are two files that have the same step."""

    def field(name, step):
        return make_grib.write(tmp_path / name, [make_grib.message({"shortName": "2t", "step": step}, seed=step)])

    paths = [str(field(f"f{step:03}.grib2", step)) for step in (0, 3, 6, 12, 15)]
    found = vs.survey(paths)
    assert found.dim == "step"
    assert found.gaps[["after", "before", "steps"]].values.tolist() == [["0 days 06:00:00", "0 days 12:00:00", 1]]
    assert main(["build", *paths, "-o", str(tmp_path / "x.vstack")]) == 0
    assert "1 step of 'step' is missing" in capsys.readouterr().err
    again = tmp_path / "again.grib2"
    make_grib.write(again, [make_grib.message({"shortName": "2t", "step": 6}, seed=99)])
    with pytest.raises(CombineError) as refused:
        vs.open_virtual_mfdataset([*paths, again])
    assert {Path(x).name for x in (refused.value.left_url, refused.value.right_url)} == {"f006.grib2", "again.grib2"}
    for keep, path in (("first", paths[2]), ("last", again)):
        cube = vs.open_virtual_mfdataset([*paths, again], duplicates=keep).virtual.open()
        assert cube.sizes["step"] == 5
        np.testing.assert_array_equal(cube["t2m"][2].values.ravel(), make_grib.fields_of(Path(path))[0][1])
    assert main(["build", *paths, str(again), "-o", str(tmp_path / "y.vstack")]) == 1
    assert main(["build", *paths, str(again), "-o", str(tmp_path / "y.vstack"), "--keep-last"]) == 0
    with xr.open_dataset(tmp_path / "y.vstack", engine="virtualstack") as cube:
        np.testing.assert_array_equal(cube["t2m"][2].values.ravel(), make_grib.fields_of(again)[0][1])


def test_stations_of_the_same_names_are_no_labels_that_go_on(tmp_path):
    """Files of the same stations are not joined along the stations: the advice gives each file a label."""
    names = ("station", np.array(["a", "b"]))
    files = [xr.Dataset({"rain": (("obs", "station"), np.full((3, 2), i)), "name": names}) for i in range(2)]
    for i, file in enumerate(files):
        file.to_netcdf(tmp_path / f"f{i}.nc", engine="netcdf4")
    with pytest.raises(CombineError) as refused:
        vs.open_virtual_mfdataset(str(tmp_path / "*.nc"))
    assert all("concat_dim" not in remedy.arguments for remedy in refused.value.remedies)


@pytest.mark.parametrize("keep", ["first", "last"])
def test_a_scene_that_came_twice_is_a_question(archive, keep, tmp_path, capsys):
    """Each option that the message names keeps one of them, in Python and on the command line."""
    paths = archive("goes")
    with pytest.raises(CombineError, match=rf"both have t 2024-06-01 .*duplicates='{keep}'"):
        vs.open_virtual_mfdataset(paths)
    kept = [*paths[:2], paths[2 if keep == "first" else 3], *paths[4:]]
    expected = xr.open_mfdataset(kept, concat_dim="t", data_vars="all", coords="minimal", compat="override", **NESTED)
    check(vs.open_virtual_mfdataset(paths, duplicates=keep).virtual.open(), expected)
    target = str(tmp_path / "goes.vstack")
    assert main(["build", *paths, "-o", target]) == 1
    said = capsys.readouterr().err
    option = f"--keep-{keep}"
    assert option in said
    assert main(["build", *paths, "-o", target, option, "--verify"]) == 0
    assert "1 step of 't' is missing between" in capsys.readouterr().err
    with xr.open_dataset(target, engine="virtualstack") as cube:
        check(cube, expected)
        assert cube.encoding["unlimited_dims"] == {"t"}


def test_tiles_are_placed_by_their_positions(archive):
    """And without them, by 2-D coordinates."""
    paths = archive("nemo")
    expected = xr.combine_nested(
        [
            [xr.open_dataset(path, engine="netcdf4") for path in paths[:3]],
            [xr.open_dataset(path, engine="netcdf4") for path in paths[3:]],
        ],
        ["y", "x"],
        data_vars="minimal",
        coords="minimal",
        compat="override",
        combine_attrs="drop_conflicts",
    )
    check(vs.open_virtual_mfdataset([*reversed(paths)]).virtual.open(), expected)

    def bare(ds):
        return ds.drop_attrs(deep=False)

    check(vs.open_virtual_mfdataset([*reversed(paths)], preprocess=bare).virtual.open(), expected)


@pytest.mark.parametrize("days", [1, 2])
@pytest.mark.parametrize("u", [("eta_u", "xi_u"), ("eta_rho", "xi_u")], ids=["own dims", "a shared dim"])
def test_tiles_of_staggered_grids_are_placed_grid_by_grid(tmp_path, u, days):
    """As ROMS writes them: points of currents lie between those of the surface, and are fewer."""
    lon, lat = np.meshgrid(np.arange(8.0), np.arange(6.0))
    rho = ("eta_rho", "xi_rho")
    whole = xr.Dataset(
        {
            "zeta": (("t", *rho), np.arange(48.0 * days).reshape(days, 6, 8)),
            "u": (("t", *u), np.arange(42.0 * days).reshape(days, 6, 7)),
            "h": (rho, lon * lat),
        },
        {
            "t": np.arange(days) * 1.0,
            "lon_rho": (rho, lon),
            "lat_rho": (rho, lat),
            "lon_u": (u, lon[:, :-1] + 0.5),
            "lat_u": (u, lat[:, :-1]),
        },
    )
    paths = []
    for t, y, x in itertools.product(range(days), (0, 3), (0, 4)):
        box = {"t": slice(t, t + 1)} | {dim: slice(y, y + 3) if "eta" in dim else slice(x, x + 4) for dim in {*rho, *u}}
        paths.append(str(tmp_path / f"{len(paths)}.nc"))
        whole.isel(box).to_netcdf(paths[-1], engine="netcdf4")
    found = vs.open_virtual_mfdataset(paths[::-1])
    assert dict(found.sizes) == dict(whole.sizes)
    check(found.virtual.open(), whole)
    assert vs.survey(paths).duplicates.empty


def test_files_of_wrf_are_in_the_order_of_their_times(archive):
    """``XTIME`` decides the order, and makes no labels unless it is asked for."""
    paths = archive("wrf")
    expected = xr.open_mfdataset(
        paths, concat_dim="Time", data_vars="minimal", coords="minimal", compat="override", **NESTED
    )
    found = vs.open_virtual_mfdataset([*reversed(paths)], loadable_variables=["XTIME"])
    assert "Time" not in found.indexes
    check(found.virtual.open(), expected)
    for name in ("XTIME", "Times"):
        labelled = vs.open_virtual_mfdataset([*reversed(paths)], labels={"Time": name})
        assert labelled.indexes["Time"].equals(expected["XTIME"].to_index())
        check(labelled.virtual.open(), expected)


def test_scenes_without_times_keep_their_dates(archive, tmp_path, capsys):
    """The message names two sources of dates, and no ``band``; both give the dates."""
    paths = archive("cog")
    with pytest.raises(CombineError) as caught:
        vs.open_virtual_mfdataset(paths)
    assert "concat_dim='band'" not in str(caught.value)
    sources = [remedy.arguments["new_dim"]["time"] for remedy in caught.value.remedies]
    assert [source.python.partition("(")[0] for source in sources] == ["vs.FromName", "vs.FromAttribute"]
    dates = np.array(["2024-04-06T10:30", "2024-05-11T10:30", "2024-06-20T10:30", "2024-08-04T10:30"], "M8[ns]")
    assert main(["build", *paths, "-o", str(tmp_path / "a.vstack")]) == 1
    said = capsys.readouterr().err
    for i, source in enumerate(sources):
        found = vs.open_virtual_mfdataset([*reversed(paths)], new_dim={"time": eval(source.python, {"vs": vs})})
        np.testing.assert_array_equal(found["time"].values, dates)
        option = f"--new-dim {shlex.quote(f'time={source.command}')}"
        assert option in said
        target = str(tmp_path / f"{i}.vstack")
        assert main(["build", *paths, "-o", target, *shlex.split(option)]) == 0
        with xr.open_dataset(target, engine="virtualstack") as cube:
            np.testing.assert_array_equal(cube["time"].values, dates)


def test_packed_months_are_unpacked(archive):
    """As xarray decodes each file."""
    paths = archive("era5")
    found = vs.open_virtual_mfdataset(paths).virtual.open()
    expected = xr.open_mfdataset(
        paths, concat_dim="valid_time", data_vars="minimal", coords="minimal", compat="override", **NESTED
    )
    check(found, expected)
    with pytest.raises(CombineError, match=r"scale_factor|add_offset"):
        vs.open_virtual_mfdataset(paths, unpack=False)


def test_calendars_are_not_mixed(archive):
    """As in xarray, which raises too."""
    paths = archive("cmip-models")
    with pytest.raises(CombineError, match="several kinds"):
        vs.open_virtual_mfdataset(paths)
    with pytest.raises(TypeError), xr.open_mfdataset(paths, engine="netcdf4"):
        pass


def test_ragged_files_have_no_dimension_to_join_along(archive):
    """No advice is given that would not work."""
    with pytest.raises(CombineError) as caught:
        vs.open_virtual_mfdataset(archive("trajectories"))
    assert not re.search("concat_dim='|duplicates=", str(caught.value))


def test_a_store_knows_the_dimension_of_its_build(archive, tmp_path):
    """``append`` and ``update`` continue it, from files with a scalar time."""
    paths = archive("goes-scenes")
    expected = xr.open_mfdataset(paths, concat_dim="t", data_vars="all", coords="minimal", compat="override", **NESTED)
    for command in ("append", "update"):
        store = str(tmp_path / f"{command}.vstack")
        assert main(["build", *paths[:2], "-o", store]) == 0
        assert main([command, store, *paths[2:]]) == 0
        with xr.open_dataset(store, engine="virtualstack") as cube:
            check(cube, expected)


def test_labels_that_would_repeat_are_wanted_in_so_many_words(tmp_path, capsys):
    """``--in-order`` alone is refused."""
    paths = []
    for i in range(2):
        paths.append(str(tmp_path / f"{i}.nc"))
        xr.Dataset({"v": ("time", [i, i + 1.0])}, {"time": [0, 1]}).to_netcdf(paths[-1], unlimited_dims=["time"])
    build = ["build", *paths, "-o", str(tmp_path / "a.vstack"), "--in-order"]
    assert main(build) == 1
    assert "--keep-all" in capsys.readouterr().err
    assert main([*build, "--keep-all"]) == 0
    with xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack") as cube:
        assert cube["v"].values.tolist() == [0, 1, 1, 2]


def test_runs_and_steps_are_the_dimensions_of_forecasts(tmp_path):
    """For the survey, for datasets that are open and for files, which the reader of GRIB assembles itself."""
    paths = [
        str(make_grib.write(tmp_path / f"{day}_{step}.grib2", [make_grib.message(keys, seed=day % 7 + step)]))
        for day in (20200101, 20200102)
        for step in (0, 6, 24)
        for keys in [{"dataDate": day, "dataTime": 0, "step": step, "shortName": "2t"}]
    ]
    looked = vs.survey(paths)
    assert looked.dim == "time"
    assert looked.plan[0] in ("along 'time' x 'step'", "along 'step' x 'time'")
    files = vs.open_virtual_mfdataset(paths).virtual.open().load()
    assert files.t2m.dims[:2] == ("time", "step")
    joined = vs.combine_datasets([vs.open_virtual_dataset(path) for path in paths]).virtual.open().load()
    xr.testing.assert_equal(joined.drop_vars("valid_time").transpose(*files.dims), files.drop_vars("valid_time"))
    assert (joined.valid_time.transpose("time", "step").values == files.valid_time.values).all()


@pytest.mark.parametrize("role", ["timeseries_id", "profile_id"])
def test_stations_join_along_what_identifies_them(tmp_path, role):
    """A file for each station: the latitude, which differs too, is none of its names."""
    files = []
    for i, name in enumerate(["Ödenburg", "Agram", "Pola"]):
        time = xr.Variable("time", np.arange(4), {"units": "hours since 2020-01-01", "standard_name": "time"})
        where = {"lat": 50.0 - i, "lon": 10.0, "name": ((), name, {"cf_role": role})}
        values = xr.Variable("time", np.arange(4.0) + 10 * i)
        files.append(tmp_path / f"{i}.nc")
        xr.Dataset({"t": values}, {"time": time, **where}).to_netcdf(files[-1])
    found = vs.open_virtual_mfdataset(files).virtual.open().load()
    expected = xr.concat([xr.load_dataset(path) for path in files], "name", coords="different", compat="equals")
    xr.testing.assert_equal(found, expected.sortby("name"))
