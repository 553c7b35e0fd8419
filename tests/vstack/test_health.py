"""Health of stores: labels that are late or missing, as a loop over the names of the files gives them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from prometheus_client.parser import text_string_to_metric_families

import virtualstack as vs
from virtualstack.cli.command import main
from virtualstack.errors import RecipeError

NOW = pd.Timestamp("2024-03-10 06:30")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory, at half past six."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("virtualstack.vstack.health.time.time", lambda: NOW.timestamp())


def write(name, when, *, dims=("time",), **labels):
    labels = {"time": [np.datetime64(when, "ns")], **labels}
    data = np.full([len(labels[dim]) for dim in dims] + [2], 1.0)
    xr.Dataset({"rain": ((*dims, "x"), data)}, labels).to_netcdf(name, engine="h5netcdf")


def texts(ranges):
    return [(x.first, x.last, x.n) for x in ranges]


def test_hours_that_are_late_or_missing(here):
    hours = pd.date_range("2024-03-10", "2024-03-10 06:00", freq="h")
    came = [0, 1, 4]
    for hour in came:
        write(f"rain_{hour}.nc", hours[hour] + pd.Timedelta(seconds=20 * hour))  # times of scenes are not round
    rule = {"every": "1h", "first": "2024-03-09 22:00", "late": "90min", "missing": "3h"}
    rule["gaps"] = [["2024-03-09 22:00", "2024-03-09 22:30"]]
    recipe = vs.Recipe(["rain_*.nc"], dim="time", expected={"time": rule})
    health = vs.Repository.build("a.vstack", recipe).repository.health()
    wanted = {"late": [], "missing": []}
    for hour in pd.date_range("2024-03-09 23:00", NOW, freq="h"):
        if hour not in hours[came]:
            age = NOW - hour
            name = "missing" if age >= pd.Timedelta("3h") else "late" if age >= pd.Timedelta("90min") else None
            if name is not None:
                wanted[name].append(f"time {hour}")
    assert wanted == {
        "late": ["time 2024-03-10 05:00:00"],
        "missing": [f"time {x}" for x in ("2024-03-09 23:00:00", "2024-03-10 02:00:00", "2024-03-10 03:00:00")],
    }
    assert texts(health.late) == [(wanted["late"][0],) * 2 + (1,)]
    assert texts(health.missing) == [(wanted["missing"][0],) * 2 + (1,), (*wanted["missing"][1:], 2)]
    assert (health.n_expected, health.exit_code) == (9, 1)
    assert health.labels == {"there": 3, "late": 1, "missing": 3, "known": 1, "pending": 1}
    assert "missing: time 2024-03-10 02:00:00 to time 2024-03-10 03:00:00: 2 labels" in repr(health)


def test_months_of_a_store_that_is_complete(here):
    for month in (12, 1, 2):
        write(f"rain_{month:02}.nc", f"{2023 + (month < 12)}-{month:02}-16")
    recipe = vs.Recipe(["rain_*.nc"], dim="time", expected={"time": {"every": "MS", "late": "40d"}})
    health = vs.Repository.build("a.vstack", recipe).repository.health()
    assert health.labels == {"there": 3, "late": 0, "missing": 0, "known": 0, "pending": 1}  # March is not over
    assert health.exit_code == 0


def test_steps_of_runs(here):
    """A label is there if a chunk of it is: outer joins make labels that no file has."""
    came = [("2024-03-09", 0), ("2024-03-09", 6), ("2024-03-10", 0), ("2024-03-10", 12)]
    for run, step in came:
        write(f"run_{run}_{step}.nc", run, dims=("time", "step"), step=[step])
    expected = {"time": {"every": "1D", "late": "6h"}, "step": {"labels": [0, 6, 12]}}
    recipe = vs.Recipe(["run_*.nc"], dim="time", join="outer", expected=expected)
    health = vs.Repository.build("a.vstack", recipe).repository.health()
    assert texts(health.late) == [
        ("time 2024-03-09 00:00:00, step 12",) * 2 + (1,),
        ("time 2024-03-10 00:00:00, step 6",) * 2 + (1,),
    ]
    assert (health.n_expected, health.n_there, health.missing) == (6, len(came), ())


def test_files_and_growth_as_text_json_and_gauges(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for day in range(3):
        write(f"rain_{day}.nc", f"2024-03-0{day + 1}")
    Path("rain_3.nc").write_bytes(b"no file of HDF5")
    size = sum(Path(f"rain_{day}.nc").stat().st_size for day in range(3))
    vs.Repository.build("a.vstack", vs.Recipe(["rain_*.nc"], dim="time"))
    assert main(["health", "a.vstack", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == {"placed": 3, "quarantined": 1}
    assert [x["n_files"] for x in found["growth"]] == [3, 3, 3]
    assert abs(pd.Timestamp(found["last_placed"]).timestamp() - time.time()) < 600
    assert (found["labels"], [x["state"] for x in found["odd"]]) == (None, ["quarantined"])
    assert main(["health", "a.vstack"]) == 3
    text = capsys.readouterr().out
    assert re.search(r"growth: 3 files \(.*\) in 1 day.*\n  quarantined: .*rain_3.nc", text)
    assert main(["health", "a.vstack", "--prometheus"]) == 3
    families = {x.name: x.samples for x in text_string_to_metric_families(capsys.readouterr().out)}
    samples = {tuple(sorted(x.labels.items())): x.value for x in families["virtualstack_store_files"]}
    store = ("store", tmp_path.joinpath("a.vstack").as_uri())
    assert samples == {(("state", "placed"), store): 3, (("state", "quarantined"), store): 1}
    assert {x.value for x in families["virtualstack_store_placed_bytes"]} == {size}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('{every = "1h", labels = [1]}', "either every or labels"),
        ('{every = "often"}', "[Ii]nvalid frequency"),
        ('{every = "1h", later = "1h"}', "'later' is not known; there are labels, every, first"),
        ('{every = "1h", late = "2h", missing = "1h"}', "missing is not less than late"),
        ('{every = "1h", gaps = ["2024"]}', "gaps are pairs"),
        ('{labels = [1], late = "1h"}', "labels goes without other keys"),
        ('{every = "0h"}', "every is not longer than nothing"),
        ('{every = "-1h"}', "every is not longer than nothing"),
        ('{every = "1h", first = "2026-02-01", last = "2026-01-01"}', "last is before first"),
    ],
)
def test_rules_that_are_refused(table, why):
    with pytest.raises(RecipeError, match=f"'expected' of the recipe, in line 2, is not valid: .*{why}"):
        vs.Recipe.from_toml(f'files = ["*.nc"]\nexpected.time = {table}')


def test_labels_of_another_kind(here):
    xr.Dataset({"rain": ("time", [1.0])}, {"time": [0]}).to_netcdf("rain_0.nc", engine="h5netcdf")
    xr.Dataset({"rain": ("time", [1.0])}, {"time": [np.datetime64(0, "ns")]}).to_netcdf("date.nc", engine="h5netcdf")
    for number, (name, rules, why) in enumerate(
        (
            ("rain_0.nc", {"time": {"every": "1h"}}, "are no dates"),
            ("rain_0.nc", {"run": {"labels": [1]}}, "names 'run'"),
            ("rain_0.nc", {"time": {"labels": [0.5]}}, "not like those of the store"),
            ("date.nc", {"time": {"labels": [0]}}, "not like those of the store"),
        )
    ):
        repository = vs.Repository.build(f"{number}.vstack", vs.Recipe([name], dim="time", expected=rules)).repository
        with pytest.raises(RecipeError, match=why):
            repository.health()


def test_times_with_a_zone(here):
    """They are times of UTC, as those of the store."""
    xr.Dataset({"rain": ("time", [1.0])}, {"time": [np.datetime64(0, "ns")]}).to_netcdf("date.nc", engine="h5netcdf")
    rule = {"every": "1h", "first": "1970-01-01T01:00+01:00", "last": "1970-01-01T02Z"}
    rule["gaps"] = [["1970-01-01T02Z", "1970-01-01T02Z"]]
    recipe = vs.Recipe(["date.nc"], dim="time", expected={"time": rule})
    found = vs.Repository.build("a.vstack", recipe).repository.health().labels
    assert found == {"there": 1, "late": 0, "missing": 1, "known": 1, "pending": 0}
