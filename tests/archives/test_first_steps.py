"""Archives of other kinds: what people type first works, or the message names what does; values are those of xarray."""

import re

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import message
from virtualstack.cli.command import main
from virtualstack.errors import CombineError

DAYS = pd.date_range("2020-01-01", periods=9)


def check(found, expected):
    """Compare the values of all variables of a virtual dataset, a store or a dataset with those of xarray."""
    found = found.virtual.open() if isinstance(found, xr.Dataset) and found.virtual.nrefs else found
    assert set(found.variables) == set(expected.variables)
    for name, variable in expected.variables.items():
        ours = found[name].transpose(*variable.dims)
        np.testing.assert_array_equal(ours.values, variable.values, err_msg=str(name))


def opened(store):
    """Return what a store shows."""
    return xr.open_dataset(store, engine="virtualstack")


@pytest.fixture
def profiles(tmp_path):
    """Profiles as those of Argo: dates are a data variable, and all have one platform."""
    paths = []
    for k, days in enumerate((DAYS[6:], DAYS[:2], DAYS[2:6])):
        ds = xr.Dataset(
            {
                "PLATFORM_NUMBER": ("N_PROF", np.array([b"6901234"] * len(days))),
                "JULD": ("N_PROF", days),
                "TEMP": (("N_PROF", "N_LEVELS"), np.random.default_rng(k).random((len(days), 4), "f4")),
            }
        )
        paths.append(str(tmp_path / f"profiles_{k}.nc"))
        ds.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims=["N_PROF"])
    return paths


def test_profiles_follow_each_other_by_their_dates(profiles):
    found = vs.open_virtual_mfdataset(profiles)
    ordered = [profiles[k] for k in (1, 2, 0)]
    check(found, xr.open_mfdataset(ordered, engine="netcdf4", combine="nested", concat_dim="N_PROF"))


def test_no_labels_are_proposed_that_decide_nothing(tmp_path):
    """All profiles are of one platform, and their dates are not in order."""
    paths = []
    for k in range(2):
        ds = xr.Dataset({"PLATFORM_NUMBER": ("N_PROF", np.array([b"69"] * 2)), "JULD": ("N_PROF", DAYS[[3 - k, k]])})
        paths.append(str(tmp_path / f"profiles_{k}.nc"))
        ds.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims=["N_PROF"])
    with pytest.raises(CombineError) as caught:
        vs.open_virtual_mfdataset(paths)
    assert [x.arguments for x in caught.value.remedies] == [{"combine": "nested", "concat_dim": "N_PROF"}]
    check(
        vs.open_virtual_mfdataset(paths, **caught.value.remedies[0].arguments),
        xr.open_mfdataset(paths, engine="netcdf4", combine="nested", concat_dim="N_PROF"),
    )


@pytest.mark.parametrize("name", ["float_{}", "r{}"])
def test_files_of_several_profiles_of_a_platform_follow_each_other(tmp_path, name):
    """Labels of platforms would come several times, and names such as ``r1`` are of no members: dates differ."""
    paths = []
    for k in range(2):
        platform = np.array([f"69{k}".encode()] * 2)
        ds = xr.Dataset({"PLATFORM_NUMBER": ("N_PROF", platform), "JULD": ("N_PROF", DAYS[[3 - k, k]])})
        paths.append(str(tmp_path / f"{name.format(k)}.nc"))
        ds.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims=["N_PROF"])
    with pytest.raises(CombineError) as caught:
        vs.open_virtual_mfdataset(paths)
    assert [x.arguments for x in caught.value.remedies] == [{"combine": "nested", "concat_dim": "N_PROF"}]


@pytest.mark.parametrize("way", ["append", "update"])
def test_a_store_knows_from_which_variable_its_labels_are(profiles, tmp_path, way):
    store = str(tmp_path / "x.vstack")
    vs.open_virtual_mfdataset(profiles[1:], labels={"N_PROF": "JULD"}).virtual.to_vstack(store)
    repository = vs.Repository.open(store)
    repository.append(profiles[0]) if way == "append" else repository.update([profiles[0]])
    expected = vs.open_virtual_mfdataset(profiles, labels={"N_PROF": "JULD"}).virtual.open()
    assert expected.indexes["N_PROF"].equals(DAYS.rename("N_PROF"))
    check(opened(store), expected)


@pytest.mark.parametrize("way", ["append", "update"])
def test_labels_that_two_variables_have_are_asked_for(profiles, tmp_path, way, capsys):
    """Both have the same first, middle and last date; that of the place would give other labels."""
    first, other = str(tmp_path / "a.nc"), str(tmp_path / "b.nc")
    for path, source, shift in ((first, profiles[2], 0), (other, profiles[0], 1)):
        with xr.open_dataset(source, engine="netcdf4") as ds:
            ds.assign(JULD_LOCATION=ds.JULD + np.timedelta64(shift, "h")).to_netcdf(path, engine="netcdf4")
    store = str(tmp_path / "x.vstack")
    vs.open_virtual_mfdataset([first], labels={"N_PROF": "JULD"}).virtual.to_vstack(store)
    add = getattr(vs.Repository.open(store), way)
    with pytest.raises(CombineError, match=r"open_virtual_mfdataset\(..., labels={'N_PROF': ...}\)"):
        add(other)
    assert main([way, store, other]) == 1
    assert "--labels N_PROF=NAME" in capsys.readouterr().err
    repository = add(vs.open_virtual_mfdataset([other], labels={"N_PROF": "JULD"}))
    assert repository.open_dataset().indexes["N_PROF"].is_monotonic_increasing


@pytest.fixture
def swaths(tmp_path):
    """Files as those of TROPOMI or ODIM: the root has attributes alone."""
    paths = []
    for k in range(2):
        data = xr.Dataset({"no2": (("time", "pixel"), [[k, 2.0]])}, {"time": DAYS[k : k + 1]})
        paths.append(str(tmp_path / f"S5P_{DAYS[k]:%Y%m%d}.nc"))
        tree = xr.DataTree.from_dict({"/": xr.Dataset(attrs={"id": k}), "/PRODUCT/DETAILS": data})
        tree.to_netcdf(paths[-1], engine="netcdf4")
    return paths


def test_files_of_groups_alone_name_their_groups(swaths, tmp_path, capsys):
    with pytest.warns(UserWarning, match="DETAILS"), pytest.raises(CombineError, match="DETAILS") as caught:
        vs.open_virtual_mfdataset(swaths)
    assert [x.arguments for x in caught.value.remedies] == [{"group": "PRODUCT/DETAILS"}]
    expected = xr.open_mfdataset(swaths, engine="netcdf4", group="PRODUCT/DETAILS")
    check(vs.open_virtual_mfdataset(swaths, group="PRODUCT/DETAILS"), expected)
    assert "PRODUCT/DETAILS" in str(vs.survey(swaths))
    store = str(tmp_path / "x.vstack")
    assert main(["build", *swaths, "-o", store]) == 1
    (group,) = re.findall(r"--group (\S+)", capsys.readouterr().err)
    assert main(["build", *swaths, "-o", store, "--group", group]) == 0
    check(opened(store), expected)


@pytest.fixture
def scenes(tmp_path):
    """Scenes with a time that is one value."""
    paths = []
    for k in range(2):
        ds = xr.Dataset({"rad": (("y", "x"), [[k, 2.0]])}, {"t": DAYS[k], "x": [0, 1]})
        paths.append(str(tmp_path / f"scene{k}.nc"))
        ds.to_netcdf(paths[-1], engine="netcdf4")
    return paths


@pytest.mark.parametrize("way", ["append", "update"])
def test_a_store_of_one_scene_says_how_to_begin(scenes, tmp_path, capsys, way):
    store = str(tmp_path / "x.vstack")
    vs.open_virtual_dataset(scenes[0]).virtual.to_vstack(store)
    with pytest.raises(CombineError) as caught:
        getattr(vs.Repository.open(store), way)(scenes[1])
    remedy, _ = caught.value.remedies
    vs.open_virtual_mfdataset([scenes[0]], **remedy.arguments).virtual.to_vstack(store, mode="w")
    getattr(vs.Repository.open(store), way)(scenes[1])
    expected = xr.open_mfdataset(scenes, engine="netcdf4", combine="nested", concat_dim="t", coords="minimal")
    check(opened(store), expected)

    store = str(tmp_path / "y.vstack")
    assert main(["build", scenes[0], "-o", store]) == 0
    assert main([way, store, scenes[1]]) == 1
    (dim,) = re.findall(r"--concat-dim (\w+)", capsys.readouterr().err)
    assert main(["build", scenes[0], "-o", store, "--concat-dim", dim, "--overwrite"]) == 0
    assert main([way, store, scenes[1]]) == 0
    check(opened(store), expected)


def make_run(path, days, steps):
    """Write a run of GRIB, or several, with some of its steps."""
    keys = [
        {"dataDate": 20200100 + day, "dataTime": 0, "stepRange": step, "shortName": "2t"}
        for day in days
        for step in steps
    ]
    path.write_bytes(b"".join(message(x, seed=100 * x["dataDate"] + x["stepRange"]) for x in keys))
    return str(path)


@pytest.mark.parametrize("new", [[3], [3, 4]])
def test_a_run_of_one_step_is_appended_as_in_python(tmp_path, new):
    """The dates at other steps are not known."""
    runs = make_run(tmp_path / "a.grib", [1, 2], [0, 6, 12])
    paths = [make_run(tmp_path / f"b{day}.grib", [day], [6]) for day in new]
    by_cli, by_python = str(tmp_path / "x.vstack"), str(tmp_path / "y.vstack")
    for store in (by_cli, by_python):
        vs.open_virtual_dataset(runs).virtual.to_vstack(store)
    assert main(["append", by_cli, *paths, "--join", "left"]) == 0
    repository = vs.Repository.open(by_python)
    for path in paths:
        repository = repository.append(path, join="left")
    check(opened(by_cli), opened(by_python))
    with opened(by_cli) as found:
        expected = [xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""}) for path in paths]
        for k, one in enumerate(expected, 2):
            np.testing.assert_array_equal(found["t2m"][k, 1], one["t2m"])
            assert found["valid_time"][k].values.tolist() == [None, one["valid_time"].values.tolist(), None]


@pytest.mark.parametrize("way", ["append", "update"])
def test_a_file_without_elements_does_not_unpack_the_store(tmp_path, way):
    """Nor does a note say so."""
    paths = []
    for name, n, scale in (("a", 4, 0.5), ("empty", 0, 0.1), ("b", 3, 0.5)):
        ds = xr.Dataset({"v": ("time", np.arange(n) * 0.5)}, {"time": DAYS[:4][:n] if name == "a" else DAYS[4 : 4 + n]})
        ds["v"].encoding = {"dtype": "i2", "scale_factor": scale, "_FillValue": -9}
        ds["time"].encoding = {"units": "days since 2000-01-01", "dtype": "f8"}
        paths.append(str(tmp_path / f"{name}.nc"))
        ds.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims=["time"])
    store = str(tmp_path / "x.vstack")
    repository = vs.Repository.create(store, paths[0])
    if way == "append":
        for path in paths[1:]:
            repository = repository.append(path)
    else:
        repository.update(paths[1:])
    with vs.open_virtual_dataset(store) as found:
        assert found["v"].dtype == "i2"
        assert (found.virtual.report()["state"] != "noted").all()
    check(opened(store), xr.open_mfdataset([paths[0], paths[2]], engine="netcdf4"))


def test_joined_files_are_named_when_they_are_appended(tmp_path, capsys):
    paths = []
    for k in range(3):
        ds = xr.Dataset({"v": (("time", "x"), [[k, 2.0]])}, {"time": DAYS[k : k + 1], "x": [0, 1 + (k > 0)]})
        paths.append(str(tmp_path / f"{k}.nc"))
        ds.to_netcdf(paths[-1], engine="netcdf4")
    store = str(tmp_path / "x.vstack")
    assert main(["build", paths[0], "-o", store]) == 0
    assert main(["append", store, *paths[1:]]) == 1
    assert "1.nc'" in capsys.readouterr().err


@pytest.mark.parametrize("source", [vs.FromName, vs.FromAttribute])
def test_sources_of_labels_are_text(source):
    with pytest.raises(TypeError, match=r"=\[1, 2\] is not"):
        source([1, 2])


@pytest.fixture
def tiles(tmp_path):
    """Tiles of two days, each with a time that is one value."""
    paths = []
    for day in range(2):
        for tile in range(2):
            y = np.arange(3) + 3 * tile
            ds = xr.Dataset({"ndvi": (("y", "x"), np.full((3, 2), 10.0 * day + tile))}, {"y": y, "x": [0, 1]})
            paths.append(str(tmp_path / f"MOD.A202000{day + 1}.v{tile:02d}.nc"))
            ds.assign_coords(time=DAYS[day]).to_netcdf(paths[-1], engine="netcdf4")
    return paths


@pytest.mark.parametrize("way", ["append", "update"])
def test_tiles_of_the_next_day_do_not_go_below_those_of_the_first(tiles, tmp_path, capsys, way):
    store = str(tmp_path / "x.vstack")
    assert main(["build", *tiles[:2], "-o", store]) == 0
    assert main([way, store, *tiles[2:]]) == 1
    (dim,) = re.findall(r"--concat-dim (\w+)", capsys.readouterr().err)
    assert main(["build", *tiles[:2], "-o", store, "--concat-dim", dim, "--overwrite"]) == 0
    more = ["--join", "outer"] if way == "update" else []
    assert main([way, store, *tiles[2:], *more]) == 0
    each = [xr.open_dataset(path, engine="netcdf4").expand_dims("time") for path in tiles]
    check(opened(store), xr.combine_by_coords(each))


def test_the_latest_scene_replaces_others_if_it_is_preferred(tiles, tmp_path):
    store = str(tmp_path / "x.vstack")
    vs.open_virtual_mfdataset(tiles[:2]).virtual.to_vstack(store)
    vs.Repository.open(store).update([tiles[2]], prefer="last", join="outer")
    np.testing.assert_array_equal(opened(store)["ndvi"][:, 0], [10, 10, 10, 1, 1, 1])


def test_nests_of_other_lengths_are_named(tmp_path):
    """As the domains of WRF."""
    paths = []
    for n in (4, 6):
        for day in range(2):
            paths.append(str(tmp_path / f"wrfout_d0{n}_{DAYS[day]:%Y-%m-%d}.nc"))
            xr.Dataset({"T2": (("Time", "y"), np.full((1, n), day))}).to_netcdf(paths[-1], engine="netcdf4")
    with pytest.raises(CombineError, match=r"4 elements along 'y', .*d06.* 6"):
        vs.open_virtual_mfdataset(paths)
