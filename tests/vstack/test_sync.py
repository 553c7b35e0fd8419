"""Stores that are run every night: after each night they show what a loop of xarray over the files gives."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.archives import living
from tests.data.netcdf4 import netcdf4_file
from tests.object_server import ObjectServer
from tests.vstack import syncing
from virtualstack.cli.command import main
from virtualstack.errors import (
    CombineError,
    ForbiddenLocationError,
    MalformedFileError,
    RecipeError,
    SourceNotFoundError,
    StorageError,
)
from virtualstack.vstack.files import open_files
from virtualstack.vstack.format.ledger import Entry
from virtualstack.vstack.format.names import ledger_key
from virtualstack.vstack.ledger import read_ledger, with_entries
from virtualstack.vstack.recipe import kept
from virtualstack.vstack.write.commit import commit
from virtualstack.vstack.write.edit import Edit

NIGHTS = 30


def check(archive, store, number):
    """Compare all values with those of the loop; other labels are masked, or their file is gone."""
    repository = vs.Repository.open(store)
    truth, cube = archive.truth(number), repository.open_dataset()
    names = list(truth.data_vars)
    cube = cube.expand_dims([dim for dim in archive.dims if dim not in cube.dims])
    shown = cube[names].sel({dim: truth[dim].values for dim in archive.dims}).load()
    shown = shown.drop_vars(set(shown.coords) - set(truth.coords))
    truth = truth.drop_vars(set(truth.coords) - set(shown.coords))
    xr.testing.assert_equal(shown.transpose(*archive.dims, ...), truth.transpose(*archive.dims, ...))
    table = repository.ledger().table.assign(name=lambda x: x["url"].str.rpartition("/")[2])
    unfit = set(table["name"][table["state"].isin(["quarantined", "masked"])])
    assert unfit == archive.expected_unfit(number)
    assert table["reason"][table["state"].isin(["quarantined", "masked"])].str.len().gt(20).all()
    others = cube.isel({archive.dims[0]: ~np.isin(cube[archive.dims[0]], truth[archive.dims[0]])})
    for i in range(others.sizes[archive.dims[0]]):
        one = others[names[0]][{archive.dims[0]: i}]
        try:
            assert one.isnull().all()
            assert "masked" in set(table["state"])
        except StorageError as error:
            assert "vanished" in set(table["state"][table["url"] == error.url])
    return repository


@pytest.mark.parametrize(
    ("make", "nights"),
    [
        (living.runs, NIGHTS),
        *(pytest.param(x, 100, marks=pytest.mark.apart) for x in (living.scenes, living.days, living.runs)),
    ],
)
def test_nights(make, nights, tmp_path):
    archive = make(tmp_path / "files")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(archive.recipe)
    archive.night(0)
    vs.Repository.build(tmp_path / "a.vstack", recipe)
    check(archive, tmp_path / "a.vstack", 0)
    for number in range(1, nights):
        archive.night(number)
        done = vs.Repository.open(tmp_path / "a.vstack").sync()
        assert not done.failed
        assert all(x.status == "equal" for x in done.chunks)
        again = check(archive, tmp_path / "a.vstack", number).sync()
        assert repr(again) == f"snapshot {done.repository.snapshot.number}: nothing new"


def test_thirty_nights_of_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    archive = living.scenes(tmp_path / "files")
    archive.night(0)
    (tmp_path / "recipe.toml").write_text(archive.recipe)
    assert main(["sync", "a.vstack", "--recipe", "recipe.toml"]) == 0
    codes = {}
    for number in range(1, NIGHTS):
        archive.night(number)
        codes[number] = main(["sync", "a.vstack", "--sample", "2"])
        if codes[number] or number == NIGHTS - 1:
            check(archive, tmp_path / "a.vstack", number)
    assert {number: code for number, code in codes.items() if code} == {
        **dict.fromkeys((7, 12, 23), 4),  # files of the store that have changed or vanished
        **dict.fromkeys((9, 14, 20, 22), 3),  # files that do not fit
    }
    capsys.readouterr()
    assert main(["sync", "a.vstack", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exit_code"], found["files"], found["dry_run"]) == (0, [], None)
    assert main(["ledger", "a.vstack", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["counts"] == {"placed": 89, "quarantined": 2, "vanished": 1}


def state_of(store):
    """Values of all variables, and the ledger without times."""
    repository = vs.Repository.open(store)
    entries = repository.ledger().entries()
    return repository.open_dataset().load(), sorted(
        (x.url, x.size, x.modified, x.state, bool(x.reason)) for x in entries
    )


def run_for(store, seconds):
    """Bring a store up to date in a process that is killed after some time; return it, and how long the run lasted."""
    receiver, begun = syncing.CONTEXT.Pipe(duplex=False)
    process = syncing.CONTEXT.Process(target=syncing.run, args=(store, begun))
    process.start()
    receiver.recv()
    begin = time.monotonic()
    process.join(seconds)
    lasted = time.monotonic() - begin
    process.kill()
    process.join()
    return process, lasted


@pytest.mark.parametrize(("nights", "each", "most"), [(6, 3, 100), pytest.param(100, 5, 100, marks=pytest.mark.apart)])
def test_runs_that_are_killed_end_in_the_same_store(nights, each, most, tmp_path):
    """Each night, runs are killed at random times while they have work to do; the next run does all of it."""
    archive = living.days(tmp_path / "files")
    recipe = vs.Recipe.from_toml(archive.recipe)
    archive.night(0)
    for name in ("killed.vstack", "whole.vstack"):
        vs.Repository.build(tmp_path / name, recipe)
    random, n_killed = np.random.default_rng(0), 0
    for number in range(1, nights):
        archive.night(number)
        whole, lasts = run_for(tmp_path / "whole.vstack", 60)
        assert whole.exitcode == 0
        for _ in range(each):
            before = vs.Repository.open(tmp_path / "killed.vstack").snapshot.number
            process, _ = run_for(tmp_path / "killed.vstack", float(random.uniform(0, 1.2 * lasts)))
            n_killed += process.exitcode == -signal.SIGKILL
            is_done = vs.Repository.open(tmp_path / "killed.vstack").snapshot.number > before
            if is_done or process.exitcode == 0:
                break  # a later run of this night would have nothing to do
        if n_killed >= most:
            break
    vs.Repository.open(tmp_path / "killed.vstack").sync(sample=0)
    assert n_killed > (3 if nights < 10 else most - 1)
    found, wanted = state_of(tmp_path / "killed.vstack"), state_of(tmp_path / "whole.vstack")
    xr.testing.assert_identical(found[0], wanted[0])
    assert found[1] == wanted[1]
    assert vs.Repository.open(tmp_path / "killed.vstack").verify().is_good


def test_a_night_without_news_costs_one_listing():
    with ObjectServer() as server:
        storage = {"s3://bucket/": server.options}
        recipe = vs.Recipe(["s3://bucket/files/*.nc"], dim="time")
        put(server, 0)
        put(server, 1)
        vs.Repository.build("s3://bucket/a.vstack", recipe, storage=storage, sample=0)
        repository = vs.Repository.open("s3://bucket/a.vstack", storage=storage)
        server.requests.clear()
        done = repository.sync()
        assert done.exit_code == 0
        assert dict(server.requests) == {"GET": 2}  # the listing, and the page of the ledger
        put(server, 2)
        server.requests.clear()
        assert len(repository.sync(sample=0).placed) == 1


def put(server, day):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"day{day}.nc")
        rain = ("f8", "time x", np.arange(4.0).reshape(1, 4) + day, {}, {"zlib": True})
        netcdf4_file(path, {"time": None, "x": 4}, {"time": ("i4", "time", [day], {}), "rain": rain})
        server.objects[f"bucket/files/day{day}.nc"] = path.read_bytes()


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Three days in files of their own, in the working directory."""
    monkeypatch.chdir(tmp_path)
    for day in range(3):
        write_day(day)
    return vs.Recipe(["day*.nc"], dim="time")


def names(urls):
    return [url.rpartition("/")[2] for url in urls]


def write_day(day, *, value=None, name=None):
    values = np.full((1, 4), float(day if value is None else value))
    found = xr.Dataset({"rain": (("time", "x"), values)}, {"time": [day], "x": np.arange(4)})
    found.to_netcdf(name or f"day{day}.nc", engine="h5netcdf")


def test_sidecars_say_which_files_are_complete(days):
    Path("day0.nc.done").touch()
    repository = vs.Repository.build("a.vstack", vs.Recipe(["day*.nc"], dim="time", sidecar=".done")).repository
    assert repository.ledger().counts == {"pending": 2, "placed": 1}
    assert repository.sync().repository.snapshot.number == 0
    Path("day2.nc.done").touch()
    done = repository.sync()
    assert [x.rpartition("/")[2] for x in done.placed] == ["day2.nc"]
    assert done.repository.open_dataset()["time"].values.tolist() == [0, 2]


def test_files_settle(days):
    with pytest.raises(SourceNotFoundError, match="settled"):
        vs.Repository.build("a.vstack", vs.Recipe(["day*.nc"], dim="time", settle="1h"))
    os.utime("day1.nc", (0, 0))
    repository = vs.Repository.build("a.vstack", vs.Recipe(["day*.nc"], dim="time", settle="1h")).repository
    assert repository.ledger().counts == {"pending": 2, "placed": 1}


@pytest.mark.parametrize("files", [["old*.nc", "day*.nc"], ["day*.nc", "old*.nc"]])
def test_one_pattern_without_sidecars(days, files):
    write_day(8, name="old8.nc")
    Path("day1.nc.done").touch()
    done = vs.Repository.build("a.vstack", vs.Recipe(files, dim="time", sidecar=".done"))
    assert [x.rpartition("/")[2] for x in done.placed] == ["day1.nc"]


def test_files_with_a_time_in_the_future(days):
    os.utime("day1.nc", (time.time() + 3600,) * 2)
    repository = vs.Repository.build("a.vstack", days).repository
    assert repository.ledger().counts == {"placed": 3}
    write_day(3)
    os.utime("day3.nc", (time.time() + 3600,) * 2)
    recipe = vs.Recipe(["day*.nc"], dim="time", settle=0.5)
    assert repository.sync(recipe=recipe).pending
    time.sleep(0.5)
    assert vs.Repository.open("a.vstack").sync().placed


@pytest.mark.parametrize("files", [["day[01].nc", "day2.nc"], ["day2*.nc", "day[01].nc"]])
def test_all_files_of_a_pattern_vanish(days, files):
    repository = vs.Repository.build("a.vstack", vs.Recipe(files, dim="time")).repository
    Path("day2.nc").rename("away.nc")
    done = repository.sync()
    assert [x.rpartition("/")[2] for x in done.vanished] == ["day2.nc"]
    assert done.repository.sync().exit_code == 0
    with pytest.raises(SourceNotFoundError, match="other"):
        done.repository.sync(recipe=vs.Recipe([*files, "other*.nc"], dim="time"))
    Path("away.nc").rename("day2.nc")
    assert done.repository.sync().repository.ledger().counts == {"placed": 3}
    for day in range(3):
        Path(f"day{day}.nc").unlink()
    with pytest.raises(SourceNotFoundError):  # the disk may not be mounted
        done.repository.sync()


@pytest.mark.parametrize("given", [{"dim": "zz"}, {"labels": {"zz": "rain"}}])
def test_dimensions_that_are_not_there(days, given):
    name = next(iter(given))
    with pytest.raises(RecipeError, match=f"'{name}' of the recipe, in line 2, names 'zz', .* \\['time', 'x'\\]"):
        vs.Repository.build("a.vstack", vs.Recipe(["day*.nc"], **given))
    assert not Path("a.vstack").exists()
    repository = vs.Repository.build("a.vstack", days).repository
    for day in (3, 4):
        write_day(day)
        with pytest.raises(RecipeError, match="names 'zz'"):
            repository.sync(recipe=vs.Recipe(["day*.nc"], **given))


def test_keys_that_cannot_be_compared(days):
    recipe = vs.Recipe(["day*.nc"], dim="time", prefer="tests.vstack.recipes:odd")
    repository = vs.Repository.build("a.vstack", recipe).repository
    write_day(2, value=9, name="day2_again.nc")
    ((_, why),) = repository.sync().quarantined
    assert "prefer= cannot choose, because the keys are 1 and" in why
    done = vs.Repository.build("b.vstack", recipe)
    assert len(done.placed) == 3
    assert "prefer= returns keys that cannot be compared" in done.quarantined[0][1]


def test_a_tolerance_of_dates(days):
    for day, lag in ((0, 0), (1, 20)):
        at = np.datetime64("2000-01-01") + np.array([0, 6]) * np.timedelta64(1, "h") + np.timedelta64(lag, "s")
        found = xr.Dataset({"rain": (("run", "at"), np.full((1, 2), 1.0 * day))}, {"run": [day], "at": at})
        found.to_netcdf(f"run{day}.nc", engine="h5netcdf")
    done = vs.Repository.build("a.vstack", vs.Recipe(["run*.nc"], dim="run", tolerance="1min"))
    assert len(done.placed) == 2


def test_a_vanished_file_that_is_back_is_not_opened(days, monkeypatch):
    repository = vs.Repository.build("a.vstack", days).repository
    Path("day1.nc").rename("away.nc")
    done = repository.sync()
    assert [x.rpartition("/")[2] for x in done.vanished] == ["day1.nc"]
    assert done.exit_code == 4
    assert done.repository.sync().exit_code == 0
    Path("away.nc").rename("day1.nc")
    with monkeypatch.context() as patch:
        patch.setattr("virtualstack.vstack.files.open_all", None)
        repository = done.repository.sync().repository
    assert repository.ledger().counts == {"placed": 3}
    assert repository.open_dataset()["rain"].sum() == 12


def test_quarantined_files_are_opened_again_if_they_or_the_recipe_change(days, monkeypatch):
    write_day(2, value=9, name="day2_again.nc")
    done = vs.Repository.build("a.vstack", days)
    assert len(done.quarantined) == 1
    with monkeypatch.context() as patch:
        patch.setattr("virtualstack.vstack.files.open_all", None)
        assert done.repository.sync().exit_code == 0
        with pytest.raises(TypeError):
            done.repository.sync(retry=True)
    done = done.repository.sync(recipe=vs.Recipe(["day*.nc"], dim="time", prefer="last"))
    assert len(done.placed) == 1
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 1, 9]
    assert done.repository.recipe.prefer == "last"


def test_changed_files_may_swap_their_labels(days):
    repository = vs.Repository.build("a.vstack", days).repository
    write_day(1, value=11, name="day0.nc")
    write_day(0, value=10, name="day1.nc")
    write_day(3)
    done = repository.sync()
    assert done.exit_code == 4
    assert len(done.changed) == 2
    assert done.repository.snapshot.number == 1
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [10, 11, 2, 3]
    write_day(7, name="day1.nc")
    done = done.repository.sync()
    assert done.repository.snapshot.number == 2
    cube = done.repository.open_dataset()
    assert cube["time"].values.tolist() == [0, 1, 2, 3, 7]
    np.testing.assert_array_equal(cube["rain"].values[:, 0], [np.nan, 11, 2, 3, 7])


def test_a_file_may_get_another_name(days):
    repository = vs.Repository.build("a.vstack", days).repository
    Path("day1.nc").rename("day1_again.nc")
    done = repository.sync()
    assert (len(done.placed), len(done.vanished), len(done.quarantined)) == (1, 1, 0)
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 1, 2]
    assert done.repository.sync().exit_code == 0
    Path("day1.nc").write_bytes(Path("day1_again.nc").read_bytes())  # the old name is back, and both are there
    os.utime("day1.nc", ns=(Path("day1_again.nc").stat().st_mtime_ns,) * 2)
    done = done.repository.sync()
    assert [url.rpartition("/")[2] for url, _ in done.quarantined] == ["day1.nc"]
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("prefer", "shown"), [("first", [8, 2, 2]), ("last", [1, 1, 7]), ("newest", [1, 1, 7])])
def test_labels_that_a_changed_file_leaves_show_the_next_file(tmp_path, monkeypatch, prefer, shown):
    monkeypatch.chdir(tmp_path)

    def write(name, labels, value, when):
        times = np.datetime64("2020-01-01", "ns") + np.array(labels, "m8[D]")
        found = xr.Dataset({"rain": (("time", "x"), np.full((len(labels), 2), float(value)))}, {"time": times})
        found.to_netcdf(name, engine="h5netcdf", encoding={"rain": {"chunksizes": (1, 2)}})
        os.utime(name, (when, when))

    write("a.nc", [0, 1], 1, 100)
    write("b.nc", [1, 2], 2, 200)
    repository = vs.Repository.build("a.vstack", vs.Recipe(["*.nc"], dim="time", prefer=prefer)).repository
    if prefer == "first":
        write("a.nc", [0], 8, 300)
    else:
        write("b.nc", [2], 7, 300)
    done = repository.sync()
    assert (len(done.changed), len(done.placed), done.exit_code) == (1, 0, 4)
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == shown
    assert done.repository.snapshot.number == 1
    assert done.repository.sync().repository.snapshot.number == 1
    Path("b.nc" if prefer != "first" else "a.nc").write_bytes(b"no file of HDF5")
    done = done.repository.sync()
    wanted = [np.nan, 2, 2] if prefer == "first" else [1, 1, np.nan]
    np.testing.assert_array_equal(done.repository.open_dataset()["rain"].values[:, 0], wanted)


@pytest.mark.parametrize("odd", [[100, 101, 102, 103], [0, 1, 2]])
def test_one_odd_file_that_comes_first_does_not_win(days, odd):
    write_day(3)
    write_day(4, value=9)
    values = np.zeros((1, len(odd)))
    xr.Dataset({"rain": (("time", "x"), values)}, {"time": [0], "x": odd}).to_netcdf("day0.nc", engine="h5netcdf")
    done = vs.Repository.build("a.vstack", days)
    assert [url.rpartition("/")[2] for url, _ in done.quarantined] == ["day0.nc"]
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [1, 2, 3, 9]


def test_files_that_were_never_placed_and_are_deleted_leave_the_ledger(days):
    Path("day7.nc").write_bytes(b"no file of HDF5")
    write_day(8)
    os.utime("day8.nc", (time.time(), time.time()))
    for day in range(3):
        os.utime(f"day{day}.nc", (0, 0))
    os.utime("day7.nc", (0, 0))
    repository = vs.Repository.build("a.vstack", vs.Recipe(["day*.nc"], dim="time", settle="1h")).repository
    assert repository.ledger().counts == {"placed": 3, "quarantined": 1, "pending": 1}
    Path("day7.nc").unlink()
    Path("day8.nc").unlink()
    repository = repository.sync().repository
    assert repository.ledger().counts == {"placed": 3}
    assert repr(repository.sync()) == f"snapshot {repository.snapshot.number}: nothing new"
    write_day(7)
    os.utime("day7.nc", (0, 0))
    assert len(repository.sync().placed) == 1


def test_reasons_advise_keys_of_the_recipe(days):
    write_day(0, value=7, name="day5.nc")
    xr.Dataset({"rain": ("x", np.zeros(4))}).to_netcdf("day6.nc", engine="h5netcdf")
    xr.Dataset({"rain": (("time", "x"), [[1.0]])}, {"time": [7], "x": [9]}).to_netcdf("day7.nc", engine="h5netcdf")
    done = vs.Repository.build("a.vstack", days)
    reasons = " ".join(why for _, why in done.quarantined)
    assert len(done.quarantined) == 3
    assert 'prefer = "first" keeps the first of them. Or prefer = "last"' in reasons
    assert 'join = "outer" fills' in reasons
    assert not [x for x in ("duplicates", "inner", "new_dim={", "assign_coords") if x in reasons]
    write_day(0, value=7, name="day8.nc")
    reason = done.repository.sync().quarantined[0][1]
    assert 'prefer = "newest"' in reason
    assert "lambda" not in reason


def test_labels_of_another_dimension_may_repeat(days):
    for day in range(3):
        found = xr.Dataset({"rain": (("time", "x"), [[1.0, 2.0, 3.0]])}, {"time": [day], "x": [1, 1, 2]})
        found.to_netcdf(f"day{day}.nc", engine="h5netcdf")
    done = vs.Repository.build("a.vstack", days)
    assert len(done.placed) == 3
    assert {x.status for x in done.chunks} == {"equal"}


def test_a_misfit_may_be_an_error(days):
    recipe = vs.Recipe(["day*.nc"], dim="time", misfit="raise")
    repository = vs.Repository.build("a.vstack", recipe).repository
    Path("day7.nc").write_bytes(b"no file of HDF5")
    Path("day8.nc").write_bytes(b"no file of HDF5")
    write_day(3)
    with pytest.raises(CombineError, match=r"2 files cannot be placed.*day7.*day8"):
        repository.sync()
    assert vs.Repository.open("a.vstack").snapshot.number == 0


def test_functions_of_a_recipe(days):
    def names(recipe):
        return list(vs.Repository.build("a.vstack", recipe).repository.open_dataset()["rain"].attrs)

    assert names(vs.Recipe(["day*.nc"], dim="time", preprocess="tests.vstack.recipes:described")) == ["from"]
    write_day(5)
    with pytest.raises(RecipeError, match="'preprocess' of the recipe, in line 2"):
        vs.Repository.open("a.vstack").sync(recipe=vs.Recipe(["day*.nc"], preprocess="tests.vstack.recipes:nothing"))


def test_a_store_from_a_network_runs_no_code():
    with ObjectServer() as server:
        storage = {"s3://bucket/": server.options}
        put(server, 0)
        recipe = vs.Recipe(["s3://bucket/files/*.nc"], dim="time", preprocess="tests.vstack.recipes:described")
        repository = vs.Repository.build("s3://bucket/a.vstack", recipe, storage=storage, sample=0).repository
        with pytest.raises(ForbiddenLocationError, match="recipes:described"):
            repository.sync()
        assert repository.sync(recipe=recipe).exit_code == 0
        local = vs.Recipe(["/etc/*.nc"], dim="time")
        edit = Edit(recipe=kept(local).text)
        commit(repository._opened, repository.snapshot, edit)
        with pytest.raises(ForbiddenLocationError, match="/etc"):
            vs.Repository.open("s3://bucket/a.vstack", storage=storage).sync()


def test_the_ledger_stays_small(tmp_path):
    """Pages are joined as they grow, and a file has one entry."""
    pages, objects = (), {}

    def get(page):
        return objects[ledger_key(page.name)]

    for night in range(40):
        entries = [Entry(f"s3://b/{night % 30}-{i}.nc", i, float(night), None, "placed", "", 0.0) for i in range(5)]
        pages = with_entries(pages, entries, get, objects.__setitem__)
    found = read_ledger(pages, get)
    assert len(found) == 150
    assert len(pages) < 6
    assert {x.url: x.modified for x in found.entries()}["s3://b/3-1.nc"] == 33
    pages = with_entries(
        (),
        [Entry(f"s3://b/2024/{i:07}.nc", i, 1.0, f'"{i:032x}"', "placed", "", 0.0) for i in range(20000)],
        get,
        objects.__setitem__,
    )
    assert pages[0].size < 40 * 20000
    damaged = bytearray(get(pages[0]))
    damaged[1000] ^= 1
    with pytest.raises(MalformedFileError, match="ledger"):
        read_ledger(pages, lambda page: bytes(damaged))


def test_expiry_keeps_the_ledger(days):
    repository = vs.Repository.build("a.vstack", days).repository
    for day in range(3, 6):
        write_day(day)
        repository = repository.sync().repository
    repository.expire(keep=1, grace=timedelta(0))
    assert vs.Repository.open("a.vstack").ledger().counts == {"placed": 6}
    assert len(list(Path("a.vstack/.vstack/ledger").iterdir())) == len(repository.snapshot.ledger)


def test_members_come_one_by_one_in_a_calendar_of_a_model(tmp_path, monkeypatch):
    """Dates of cftime have no missing value, so that the bounds of times are without the members, which repeat them."""
    monkeypatch.chdir(tmp_path)

    def write(member, year):
        middle = 365.0 * year + np.array([15, 45])
        data = xr.Dataset(
            {
                "tas": (("time", "x"), np.full((2, 3), 10.0 * member + year)),
                "time_bnds": (("time", "edge"), np.stack([middle - 15, middle + 15], 1)),
            },
            {"time": middle},
        )
        data["time"].attrs = {"units": "days since 2000-01-01", "calendar": "noleap", "bounds": "time_bnds"}
        data.to_netcdf(f"tas_r{member}_{year}.nc", engine="netcdf4")

    for member, year in ((1, 0), (1, 1), (2, 0), (2, 1)):
        write(member, year)
    recipe = vs.Recipe(["*.nc"], dim="time", join="outer", new_dim={"member": {"name": r"_(r\d)_"}})
    repository = vs.Repository.build("a.vstack", recipe).repository
    for night in ([(3, 0), (1, 2), (2, 2)], [(3, 1)]):
        for member, year in night:
            write(member, year)
        done = repository.sync()
        assert (len(done.placed), done.exit_code) == (len(night), 0)
        repository = done.repository
    found = repository.open_dataset().load()
    parts = [
        xr.load_dataset(path, decode_cf=True).drop_vars("time_bnds").expand_dims(member=[path.name[4:6]])
        for path in Path().glob("*.nc")
    ]
    wanted = xr.combine_by_coords(parts, join="outer", combine_attrs="override")
    xr.testing.assert_equal(found[["tas"]].transpose(*wanted.dims), wanted)
    bounds = [xr.load_dataset(f"tas_r1_{year}.nc")["time_bnds"] for year in range(3)]
    xr.testing.assert_equal(found["time_bnds"], xr.concat(bounds, "time"))


def write_station(name, day, *, names, height=None):
    """Write one day of stations, with a text that has no missing value in a file."""
    found = xr.Dataset(
        {"rain": (("time", "station"), np.full((1, len(names)), float(day)))}, {"time": [day], "station": names}
    )
    found["kind"] = (("time", "station"), np.full((1, len(names)), "gauge"))
    found.to_netcdf(name, engine="netcdf4")


def test_files_that_lack_each_other_are_placed_together(tmp_path, monkeypatch):
    """A text has no missing value: a new station needs all days, and a new day all stations."""
    monkeypatch.chdir(tmp_path)
    for day in (0, 1):
        write_station(f"a_{day}.nc", day, names=["a"])
        write_station(f"b_{day}.nc", day, names=["b"])
    recipe = vs.Recipe(["*.nc"], dim="time", join="outer")
    repository = vs.Repository.build("a.vstack", recipe).repository
    write_station("a_2.nc", 2, names=["a"])
    done = repository.sync()
    assert (len(done.placed), len(done.quarantined)) == (0, 1)
    assert done.repository.ledger().counts["waiting"] == 1
    again = done.repository.sync()
    assert again.repository.snapshot.number == done.repository.snapshot.number
    write_station("b_2.nc", 2, names=["b"])
    write_station("c_0.nc", 0, names=["c"])
    done = again.repository.sync()
    assert sorted(x[-6:] for x in done.placed) == ["a_2.nc", "b_2.nc"]
    assert [x[-6:] for x, _ in done.quarantined] == ["c_0.nc"]
    write_station("c_1.nc", 1, names=["c"])
    write_station("c_2.nc", 2, names=["c"])
    done = done.repository.sync()
    assert len(done.placed) == 3
    wanted = xr.combine_by_coords([xr.load_dataset(x) for x in sorted(tmp_path.glob("*.nc"))])
    xr.testing.assert_equal(done.repository.open_dataset().load(), wanted)
    assert done.repository.ledger().counts == {"placed": 9}


def test_a_quarantined_file_is_placed_when_the_one_that_it_clashed_with_is_gone(days):
    write_day(2, value=9, name="day2_again.nc")
    repository = vs.Repository.build("a.vstack", days).repository
    write_day(3)
    done = repository.sync()
    assert (len(done.placed), len(done.quarantined)) == (1, 0)  # it is not opened again
    Path("day2.nc").unlink()
    done = done.repository.sync()
    assert [x.rpartition("/")[2] for x in done.placed] == ["day2_again.nc"]
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 1, 9, 3]


def test_files_that_the_store_does_not_show_do_not_vanish(days):
    recipe = vs.Recipe(["day*.nc"], dim="time", prefer="newest")
    os.utime("day2.nc", (0, 0))
    repository = vs.Repository.build("a.vstack", recipe).repository
    write_day(2, value=9, name="day2_final.nc")
    repository = repository.sync().repository
    Path("day2.nc").unlink()
    done = repository.sync()
    assert (done.vanished, done.exit_code) == ((), 0)
    assert done.repository.ledger().counts == {"placed": 3}
    assert done.repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 1, 9]


def test_reports_have_one_line_for_like_files(days):
    repository = vs.Repository.build("a.vstack", days).repository
    for day in range(30, 60):
        found = xr.Dataset({"rain": (("time", "x"), np.zeros((1, 2)))}, {"time": [day], "x": [7, 8]})
        found.to_netcdf(f"day{day}.nc", engine="h5netcdf")
    done = repository.sync()
    assert len(done.quarantined) == 30
    lines = repr(done).splitlines()
    assert len(lines) < 5
    assert [x for x in lines if "30 quarantined" in x and "day30.nc' to '" in x and "day59.nc'; the first: " in x]


def test_placed_files_are_opened_again_if_the_recipe_takes_more(days, monkeypatch):
    for day in range(3):
        found = xr.load_dataset(f"day{day}.nc")
        found.assign(snow=2 * found["rain"]).to_netcdf(f"day{day}.nc", engine="h5netcdf")
    first = vs.Recipe(["day*.nc"], dim="time", join="outer", drop_variables=["snow"])
    repository = vs.Repository.build("a.vstack", first).repository
    more = vs.Recipe(["day*.nc"], dim="time", join="outer")
    done = repository.sync(recipe=more)
    assert "(drop_variables), and 3 placed files stay as before" in done.notes[0]
    assert "--reopen" in repr(done)
    done = done.repository.sync(reopen=True)
    assert (done.exit_code, done.notes, len(done.placed)) == (0, (), 3)
    wanted = xr.concat([xr.load_dataset(f"day{day}.nc") for day in range(3)], "time")
    xr.testing.assert_equal(done.repository.open_dataset().load(), wanted)
    with pytest.raises(CombineError, match="3 files cannot be placed, and nothing was committed"):
        done.repository.sync(recipe=vs.Recipe(["day*.nc"], dim="time", new_dim={"x": {"name": r"(\d)"}}), reopen=True)
    assert vs.Repository.open("a.vstack").ledger().counts == {"placed": 3}


def test_snapshots_that_the_recipe_does_not_keep_are_deleted(days, monkeypatch):
    monkeypatch.setattr("virtualstack.vstack.sync.GRACE_SECONDS", 0)
    recipe = vs.Recipe(["day*.nc"], dim="time", retention={"keep": 2})
    repository = vs.Repository.build("a.vstack", recipe).repository
    expired = []
    for day in range(3, 6):
        write_day(day)
        done = repository.sync()
        expired.append(done.expired)
        repository = done.repository
    assert expired == [(), (0,), (1,)]
    assert [x.number for x in repository.log()] == [3, 2]
    assert "1 old snapshot deleted" in repr(done)
    assert done.repository.sync().expired == ()
    assert repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RecipeError, match="'retention' of the recipe"):
        vs.Recipe(["day*.nc"], retention={"keep": 0})


def test_refresh_tells_the_ledger(days, monkeypatch):
    """A masked file that is back is placed again: the ledger must not say that the store shows it."""
    repository = vs.Repository.build("a.vstack", days).repository
    write_day(1, value=11)
    repository = repository.refresh().repository
    with monkeypatch.context() as patch:
        patch.setattr("virtualstack.vstack.files.open_all", None)
        assert repr(repository.sync()) == "snapshot 1: nothing new"
    Path("day0.nc").rename("away.nc")
    repository = repository.refresh(missing="mask").repository
    assert repository.ledger().counts == {"placed": 2, "masked": 1}
    done = repository.sync()
    assert (done.exit_code, done.repository.ledger().counts) == (0, {"placed": 2})
    np.testing.assert_array_equal(done.repository.open_dataset()["rain"].values[:, 0], [np.nan, 11, 2])
    Path("away.nc").rename("day0.nc")
    found = done.repository.sync().repository.open_dataset().load()
    xr.testing.assert_equal(found, xr.concat([xr.load_dataset(f"day{day}.nc") for day in range(3)], "time"))


def test_an_update_is_noted_in_the_ledger(days, monkeypatch):
    """The next run does not open the file again."""
    repository = vs.Repository.build("a.vstack", days).repository
    write_day(5)
    write_day(6, name="other6.nc")  # no file of the recipe
    repository = repository.update(["day5.nc", "other6.nc"])
    assert repository.ledger().counts == {"placed": 4}
    opened = {}
    monkeypatch.setattr(
        "virtualstack.vstack.sync.open_files", lambda files, *_, **how: opened.update(files) or ([], {})
    )
    done = repository.sync()
    assert (done.repository.snapshot.number, done.table.empty, opened) == (1, True, {})


def test_an_update_opens_no_file_that_the_ledger_knows(days, monkeypatch):
    """It opens what is new, what has changed, and all if other options or a later preference may show more of it."""
    repository = vs.Repository.build("a.vstack", days).repository
    write_day(5)
    write_day(1, value=11)
    opened, made = [], "virtualstack.vstack.repository.open_files"
    monkeypatch.setattr(made, lambda files, *how: opened.append(names(files)) or open_files(files, *how))
    repository = repository.update("day*.nc", prefer="newest")
    assert repository.update(["day0.nc", "day5.nc"]) is repository
    assert repository.update("day2.nc", labels=[9]).snapshot.number == 2
    assert opened == [["day1.nc", "day5.nc"], [], []]
    assert repository.open_dataset()["rain"].values[:, 0].tolist() == [0, 11, 2, 5]
    repository.update("day0.nc", prefer="last")
    repository.update("day0.nc", join="outer")
    assert opened[3:] == [["day0.nc"], ["day0.nc"]]


def test_an_append_opens_by_the_recipe_and_is_noted_in_the_ledger(days, monkeypatch):
    repository = vs.Repository.build("a.vstack", replace(days, drop_variables=["rain"])).repository
    write_day(5)
    repository = repository.append("day5.nc")
    assert repository.ledger().counts == {"placed": 4}
    assert dict(repository.open_dataset().sizes) == {"time": 4, "x": 4}
    assert not repository.open_dataset().data_vars
    monkeypatch.setattr("virtualstack.vstack.files.open_all", None)
    assert repository.sync().table.empty


def test_a_file_that_was_touched_has_not_changed(days, monkeypatch):
    """Its content is compared with the digest; only a key of the recipe may show another file for a later time."""
    repository = vs.Repository.build("a.vstack", days).repository
    os.utime("day1.nc", (1, 1))
    with monkeypatch.context() as patch:
        patch.setattr("virtualstack.vstack.files.open_all", None)
        done = repository.sync()
    assert (done.exit_code, done.table.empty, done.repository.snapshot.number) == (0, True, 1)
    assert done.repository.sync().repository.snapshot.number == 1
    write_day(1, value=11)
    done = done.repository.sync()
    assert (done.exit_code, names(done.changed)) == (4, ["day1.nc"])
    os.utime("day1.nc", (1, 1))
    assert names(done.repository.sync(recipe=replace(days, prefer="newest")).changed) == ["day1.nc"]


def test_verify_opens_no_file_whose_version_the_ledger_has(days, monkeypatch):
    """A run has compared a file that was touched; one that was touched later is read."""
    repository = vs.Repository.build("a.vstack", days).repository
    os.utime("day1.nc", (1, 1))
    repository = repository.sync().repository
    with monkeypatch.context() as unread:
        unread.setattr("virtualstack.vstack.verify.check_version", lambda *_: 1 / 0)
        found = repository.verify()
    assert (found.is_good, found.n_touched) == (True, 1)
    write_day(1, value=3)
    assert [x.status for x in repository.verify().problems] == ["changed"]
