"""Commands on vstacks: what they print, change and exit with."""

import os
import re

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from virtualstack.cli.command import main


@pytest.fixture
def store(tmp_path, monkeypatch, capsys):
    """Two files, built one after the other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for i in range(2):
        time = ("f8", "time", [2 * i, 2 * i + 1], {"units": "days since 2000-01-01"})
        t = ("f4", "time x", np.arange(8).reshape(2, 4) + 2 * i, {}, {"zlib": True, "chunksizes": (1, 4)})
        netcdf4_file(tmp_path / "data" / f"f{i}.nc", {"time": None, "x": 4}, {"time": time, "t": t})
    assert main(["build", "data/f0.nc", "-o", "a.vstack"]) == 0
    added = vs.open_virtual_dataset("data/f1.nc")
    added.virtual.to_vstack("a.vstack", append_dim="time", message="the second")
    capsys.readouterr()
    return "a.vstack"


def test_log_lists_snapshots(store, capsys):
    """Newest first, with messages; as many as are asked for."""
    assert main(["log", store]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("<2 snapshots of 'file://")
    numbers = [line.split()[0] for line in lines if re.match(r" +[0-9]+  [0-9]{4}-", line)]
    assert numbers == ["1", "0"]
    assert "the second" in lines[0]
    assert main(["log", store, "-n", "1"]) == 0
    assert capsys.readouterr().out.startswith("<1 snapshot of")


def test_diff_shows_what_was_appended(store, capsys):
    """To the newest snapshot, or to another one, by number or time."""
    for arguments in (["0"], ["0", "1"], ["0", "-1"], ["0", "9999-01-01"]):
        assert main(["diff", store, *arguments]) == 0
        out = capsys.readouterr().out
        assert "<snapshots 0 to 1 of 'file://" in out
        assert "time" in out
    assert main(["diff", store, "1"]) == 0
    assert "no difference" in capsys.readouterr().out


def test_verify_tells_what_is_missing(store, tmp_path, capsys):
    """Exit status 1 where something is."""
    assert main(["verify", store, "--sample", "100%"]) == 0
    out = capsys.readouterr().out
    assert "2 sources, all as they were indexed" in out
    assert "chunks compared with their sources: 4 equal" in out
    (tmp_path / "data" / "f1.nc").unlink()
    assert main(["verify", store]) == 1
    assert "1 missing" in capsys.readouterr().out
    assert main(["verify", store, "--at", "0"]) == 0


def test_refresh_scans_changed_sources(store, tmp_path, capsys):
    """What does not fit is left, with exit status 1."""
    with netCDF4.Dataset(tmp_path / "data" / "f1.nc", "a") as file:
        file["t"][:] = 50
    os.utime(tmp_path / "data" / "f1.nc", (1, 1))
    assert main(["refresh", store, "-m", "anew"]) == 0
    assert "1 refreshed, 0 left" in capsys.readouterr().out
    with xr.open_dataset(store, engine="virtualstack") as cube:
        assert (cube["t"][2:] == 50).all()
    (tmp_path / "data" / "f0.nc").write_bytes(b"no netCDF")
    assert main(["refresh", store]) == 1
    assert "1 left" in capsys.readouterr().out


def test_relocate_says_where_sources_lie(store, tmp_path, capsys):
    """A folder that no source lies in is an error."""
    (tmp_path / "data").rename(tmp_path / "moved")
    assert main(["relocate", store, "data", "moved", "-m", "moved"]) == 0
    assert capsys.readouterr().out == "a.vstack: snapshot 2\n"
    with xr.open_dataset(store, engine="virtualstack") as cube:
        np.testing.assert_array_equal(cube["t"][:, 0], [0, 4, 2, 6])
    assert main(["relocate", store, "gone", "moved"]) == 1
    assert capsys.readouterr().err.startswith("virtualstack: error: ")


def test_compact_and_expire_leave_one_snapshot(store, capsys):
    """A dry run deletes nothing, and neither does what is young without being told to."""
    assert main(["compact", store, "t"]) == 0
    assert capsys.readouterr().out == "a.vstack: snapshot 2\n"
    assert main(["expire", store, "--keep", "1"]) == 0
    assert "<0 snapshots" in capsys.readouterr().out
    assert main(["expire", store, "--keep", "1", "--grace", "0", "--dry-run"]) == 0
    assert "<2 snapshots" in capsys.readouterr().out
    assert len(vs.Repository.open(store).log()) == 3
    assert main(["expire", store, "--older-than", "0d", "--grace", "0s"]) == 0
    assert "were deleted" in capsys.readouterr().out
    assert [entry.number for entry in vs.Repository.open(store).log()] == [2]
    with xr.open_dataset(store, engine="virtualstack") as cube:
        np.testing.assert_array_equal(cube["t"][:, 0], [0, 4, 2, 6])


@pytest.mark.parametrize("command", ["log", "verify", "refresh", "expire", "compact"])
def test_a_store_that_is_not_there_is_an_error(command, tmp_path, capsys):
    """A line, and what helps below it."""
    assert main([command, str(tmp_path / "gone.vstack")]) == 1
    what, helps = capsys.readouterr().err.splitlines()
    assert what.startswith("virtualstack: error: ")
    assert helps.startswith("  Check the URL")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["log", "a.vstack", "-n", "0"], "'0' is not a whole number from 1"),
        (["verify", "a.vstack", "--sample", "200%"], "'200%' is not a count of chunks"),
        (["verify", "a.vstack", "--at", "then"], "'then' is not a time such as"),
        (["expire", "a.vstack", "--older-than", "30y"], "'30y' is not a duration such as"),
        (["expire", "a.vstack", "--older-than", "long"], "'long' is not a time such as"),
        (["relocate", "a.vstack", "data"], "missing argument 'NEW'"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, reason, capsys):
    """And says what is wrong."""
    assert main(arguments) == 2
    assert reason in capsys.readouterr().err


def test_the_commands_allow_what_they_are_told(store, capsys):
    """As the engine does."""
    assert main(["verify", store, "--allow", "https://example.org/", "--allow", "data"]) == 0
