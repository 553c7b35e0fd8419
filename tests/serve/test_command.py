"""The command `virtualstack serve`."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import xarray as xr

import virtualstack as vs
from tests.serve.running import find_free_port
from virtualstack.cli.command import main

VIRTUALSTACK = Path(sys.executable).with_name("virtualstack")


@pytest.fixture
def rain(tmp_path, monkeypatch):
    """Two files to join, and a store."""
    monkeypatch.chdir(tmp_path)
    for day in range(2):
        xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]}).to_netcdf(f"day{day}.nc")
    xr.Dataset({"rain": ("time", [1.0])}).virtual.to_vstack("rain.vstack")
    return tmp_path


@pytest.mark.parametrize("workers", [1, 2])
def test_cubes_are_served(rain, workers):
    """By the names of files, by names of their own, and joined by a pattern; the command ends by SIGINT."""
    port = find_free_port()
    command = [VIRTUALSTACK, "serve", "rain.vstack", "all=day*.nc", "--concat-dim=time", f"--port={port}"]
    command += [f"--workers={workers}"]
    server = subprocess.Popen([*command, "--token=sesame"], cwd=rain, stderr=subprocess.PIPE, text=True)
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/all/rain/zarr.json")
        request.add_header("Authorization", "Bearer sesame")
        for _ in range(300):
            try:
                with urllib.request.urlopen(request) as answer:
                    assert b'"shape":[2]' in answer.read()
                break
            except urllib.error.URLError:
                assert server.poll() is None
                time.sleep(0.1)
        else:
            pytest.fail("the server did not start")
    finally:
        server.send_signal(2)
        _, messages = server.communicate(timeout=30)
    assert f"http://127.0.0.1:{port}/rain/ serves" in messages
    assert '127.0.0.1 "GET /all/rain/zarr.json" 200 ' in messages
    assert "Traceback" not in messages


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.vstack"], "is not a vstack"),
        (["rain.vstack", "rain.vstack"], "would both have the name 'rain'"),
        (["metrics=rain.vstack"], "cannot be the name of a cube"),
        (["rain.vstack", "--memory", "much"], "memory"),
        (["rain.vstack", "--memory", "0"], "at least 1 MiB"),
        (["rain.vstack", "--token", ""], "token"),
        (["day*.txt"], "day*.txt"),
    ],
)
def test_mistakes(rain, arguments, says, capsys, monkeypatch):
    """They end the command before it serves."""
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: pytest.fail("it served"))
    assert main(["serve", *arguments]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["rain.vstack", "--chunk", "time"], ["rain.vstack", "--chunk", "time=0"], ["rain.vstack", "--workers", "0"], []],
)
def test_wrong_usage(rain, arguments):
    """It has the exit status of all commands for it."""
    assert main(["serve", *arguments]) == 2


def test_files_of_a_pattern_are_joined_as_build_joins_them(tmp_path, monkeypatch, capsys):
    """By labels, so that the order of names does not matter and a file that comes twice is an error."""
    monkeypatch.chdir(tmp_path)
    opened = []

    def run(served, **_):
        opened.append(vs.open_virtual_mfdataset("day*.nc", **served["build"]).virtual.open()["time"].values.tolist())

    monkeypatch.setattr("virtualstack.serve.workers.run", run)
    for name, day in (("day0", 1), ("day1", 0)):
        xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]}).to_netcdf(f"{name}.nc")
    assert main(["serve", "all=day*.nc", "--concat-dim", "time"]) == 0
    assert main(["serve", "all=day*.nc", "--concat-dim", "time", "--in-order"]) == 0
    assert opened == [[0, 1], [1, 0]]
    assert main(["report", "day*.nc", "-o", "day.html", "--concat-dim", "time"]) == 0
    xr.Dataset({"rain": ("time", [3.0])}, {"time": [0]}).to_netcdf("day2.nc")
    capsys.readouterr()
    assert main(["report", "day*.nc", "-o", "twice.html", "--concat-dim", "time"]) == 1
    assert "Leave one of them out" in capsys.readouterr().err
    assert not Path("twice.html").exists()
