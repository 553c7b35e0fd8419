"""Files of one field that are appended to a store, as forecasts and analyses arrive."""

import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import message, write
from virtualstack.cli.command import main


def stored(tmp_path, keys):
    """Give a store of all files but the last, the last file, and what all files are together."""
    paths = [write(tmp_path / f"{i}.grib2", [message({"shortName": "2t", **x}, seed=i)]) for i, x in enumerate(keys)]
    vs.open_virtual_mfdataset(paths[:-1]).virtual.to_vstack(tmp_path / "x.vstack")
    return vs.Repository.open(tmp_path / "x.vstack"), paths[-1], vs.open_virtual_mfdataset(paths).virtual.open().load()


def test_a_day_is_appended_with_its_valid_time(tmp_path):
    """The times of validity have the dimension in the store, and not in a file of one time."""
    store, last, expected = stored(tmp_path, [{"dataDate": 20200100 + day} for day in (1, 2, 3)])
    assert expected.valid_time.dims == ("time",)
    store.append(vs.open_virtual_dataset(last))
    with xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), expected)


def test_steps_are_appended(tmp_path):
    """The time of all files is one, so the store grows along the steps, which differ."""
    store, last, expected = stored(tmp_path, [{"step": step} for step in (0, 6, 12)])
    store.append(vs.open_virtual_dataset(last))
    with xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), expected)


def test_several_files_are_placed_at_once(tmp_path):
    """The command update takes them, each by its labels, as Repository.update does."""
    paths = [write(tmp_path / f"{i}.grib2", [message({"shortName": "2t", "step": 6 * i}, seed=i)]) for i in range(4)]
    vs.open_virtual_mfdataset([paths[0], paths[2]]).virtual.to_vstack(tmp_path / "x.vstack")
    assert main(["update", str(tmp_path / "x.vstack"), str(paths[3]), str(paths[1])]) == 0
    with xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), vs.open_virtual_mfdataset(paths).virtual.open().load())


def test_a_run_of_one_step_is_placed_by_all_of_its_labels(tmp_path, monkeypatch, capsys):
    """The store has other steps, too, and the message names the option that leaves them missing."""
    monkeypatch.chdir(tmp_path)
    places = [(1, 0), (1, 6), (2, 0), (2, 6), (3, 0)]
    fields = [message({"shortName": "2t", "dataDate": 20200100 + day, "step": step}) for day, step in places]
    paths = [str(write(tmp_path / f"{i}.grib2", [field])) for i, field in enumerate(fields)]
    assert main(["build", *paths[:-1], "-o", "x.vstack"]) == 0
    assert main(["append", "x.vstack", paths[-1]]) == 1
    assert "--join left" in capsys.readouterr().err
    assert main(["append", "x.vstack", paths[-1], "--join", "left"]) == 0
    found = vs.Repository.open("x.vstack").open_dataset().load()
    expected = vs.open_virtual_mfdataset(paths, join="outer").virtual.open().load()
    xr.testing.assert_equal(found.drop_vars("valid_time"), expected.drop_vars("valid_time"))
    assert found["valid_time"][-1, 0] == found["time"][-1] == pd.Timestamp("2020-01-03T12")


BASE = {"shortName": "t", "typeOfLevel": "isobaricInhPa", "level": 1000, "productDefinitionTemplateNumber": 1}
PLACES = [{"level": level} for level in (1000, 850)]
TIMES = [{"dataDate": 20200101 + day} for day in (0, 1)]
STEPS = [{"step": step} for step in (0, 6)]
MEMBERS = [{"number": number} for number in (1, 2)]


@pytest.mark.parametrize(
    ("by_file", "in_file", "grows"),
    [
        (PLACES, TIMES, "time"),
        (PLACES, STEPS, "step"),
        (PLACES, [{}], "isobaricInhPa"),
        (MEMBERS, PLACES, "number"),
        (MEMBERS, STEPS, "step"),
        ([a | b for a in PLACES for b in MEMBERS], [{}], "number"),
        ([a | b for a in MEMBERS for b in STEPS], PLACES, "step"),
        ([a | b for a in TIMES for b in MEMBERS], PLACES, "time"),
    ],
)
def test_times_grow_before_members_and_members_before_levels(tmp_path, by_file, in_file, grows):
    paths = [
        write(tmp_path / f"{i}.grib2", [message(BASE | one | other) for other in in_file])
        for i, one in enumerate(by_file)
    ]
    vds = vs.open_virtual_mfdataset(paths)
    assert vds.encoding["unlimited_dims"] == {grows}
