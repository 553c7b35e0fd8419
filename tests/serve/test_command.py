"""The command `virtualstack serve`."""

import os
import re
import shlex
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
from virtualstack.errors import UnknownFormatError
from virtualstack.serve import workers
from virtualstack.serve.metrics import forget_ended_processes

VIRTUALSTACK = Path(sys.executable).with_name("virtualstack")


@pytest.fixture
def rain(tmp_path, monkeypatch):
    """Two files to join, and a store."""
    monkeypatch.chdir(tmp_path)
    for day in range(2):
        xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]}).to_netcdf(f"day{day}.nc")
    xr.Dataset({"rain": ("time", [1.0])}).virtual.to_vstack("rain.vstack")
    return tmp_path


def first_answer(server, request):
    """Return the first answer of a server."""
    for _ in range(300):
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.read()
        except urllib.error.URLError:
            assert server.poll() is None
            time.sleep(0.1)
    return pytest.fail("the server did not start")


@pytest.mark.parametrize("workers", [1, 2])
def test_cubes_are_served(rain, workers):
    """By the names of files, by names of their own, and joined by a pattern; the command ends by SIGINT.

    A cube that cannot be opened is reported, and does not stop the others.
    """
    port = find_free_port()
    (rain / "damaged.vstack" / ".vstack").mkdir(parents=True)
    command = [VIRTUALSTACK, "serve", "damaged.vstack", "gone.json", "rain.vstack", "all=day*.nc", "--concat-dim=time"]
    command.append(f"--port={port}")
    command += [f"--workers={workers}"]
    server = subprocess.Popen([*command, "--token=sesame"], cwd=rain, stderr=subprocess.PIPE, text=True)
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/all/rain/zarr.json")
        request.add_header("Authorization", "Bearer sesame")
        assert b'"shape":[2]' in first_answer(server, request)
    finally:
        server.send_signal(2)
        _, messages = server.communicate(timeout=30)
    assert messages.index(f"http://127.0.0.1:{port}/ answers when 4 cubes are open") < messages.index("not served")
    assert f"http://127.0.0.1:{port}/rain/ serves" in messages
    assert "damaged is not served: " in messages
    assert "gone is not served: " in messages
    assert '127.0.0.1 "GET /all/rain/zarr.json" 200 ' in messages
    assert "Traceback" not in messages


def test_what_to_type_is_said(rain):
    """The line opens the first cube; without the last slash, the error says to add it."""
    port = find_free_port()
    command = [VIRTUALSTACK, "serve", "rain.vstack", f"--port={port}"]
    server = subprocess.Popen(command, cwd=rain, stderr=subprocess.PIPE, text=True)
    try:
        first_answer(server, f"http://127.0.0.1:{port}/rain/zarr.json")
        said = next(line for line in server.stderr if "in a browser" in line)
        call = said.partition("in Python: ")[2].strip()
        assert eval(call, {"xr": xr}).sizes["time"] > 0
        with pytest.raises(UnknownFormatError, match="Or end the URL of a zarr group or a folder with '/'"):
            vs.open_virtual_dataset(f"http://127.0.0.1:{port}/rain")
    finally:
        server.send_signal(2)
        server.communicate(timeout=30)


def lines_of(url):
    return urllib.request.urlopen(url).read().decode().splitlines()


def test_metrics_of_several_processes(rain):
    """Each process answers for all of them."""
    port = find_free_port()
    url = f"http://127.0.0.1:{port}"
    command = [VIRTUALSTACK, "serve", "rain.vstack", f"--port={port}", "--workers=2"]
    with subprocess.Popen(command, cwd=rain, stderr=subprocess.PIPE, text=True) as server:
        try:
            first_answer(server, f"{url}/rain/rain/zarr.json")
            for _ in range(40):
                urllib.request.urlopen(f"{url}/rain/rain/c/0").read()
            counted = 'virtualstack_requests_total{cube="rain",status="200"} 41.0'
            for _ in range(300):  # requests are counted half a second later
                if counted in lines_of(f"{url}/metrics"):
                    break
                time.sleep(0.1)
            for _ in range(10):
                lines = lines_of(f"{url}/metrics")
                assert counted in lines
                (n,) = (float(x.split()[1]) for x in lines if x.startswith("virtualstack_chunks_read_total"))
                (shared,) = (float(x.split()[1]) for x in lines if x.startswith("virtualstack_chunks_shared_total"))
                assert n + shared == 40
                assert f"virtualstack_cache_bytes {n * 8}" in lines
        finally:
            server.send_signal(2)
            assert "Traceback" not in server.communicate(timeout=30)[1]


def test_processes_that_were_killed_hold_no_memory(tmp_path, monkeypatch):
    """What they counted stays, and what they held is left out when another one takes their place."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for pid in (ended.pid, os.getpid()):
        for kind in ("counter", "gauge_livesum", "gauge_sum"):
            (tmp_path / f"{kind}_{pid}.db").touch()
    forget_ended_processes()
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == 5
    assert f"gauge_livesum_{ended.pid}.db" not in left


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


def test_the_environment_of_a_server_is_not_left_behind(rain, monkeypatch):
    """The variables of its processes, one of which has the token, are those of before once the server ends."""
    seen, before = {}, dict(os.environ)
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: seen.update(os.environ))
    options = {"cubes": {"rain": "rain.vstack"}, "memory": "64 MiB", "cache": "64 MiB"}
    workers.run(options, host="127.0.0.1", port=1, workers=2, announce=lambda _: None)
    assert seen.keys() - before.keys() == {"VIRTUALSTACK_SERVE", "PROMETHEUS_MULTIPROC_DIR"}
    assert dict(os.environ) == before


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
    assert main(["report", "day0.nc"]) == 2
    assert "the name of the file to write is missing. Add it: -o day0.html" in capsys.readouterr().err
    assert main(["report", "day*.nc", "-o", "day.html", "--concat-dim", "time"]) == 0
    xr.Dataset({"rain": ("time", [3.0])}, {"time": [0]}).to_netcdf("day2.nc")
    capsys.readouterr()
    assert main(["report", "day*.nc", "-o", "twice.html", "--concat-dim", "time"]) == 1
    error = capsys.readouterr().err
    assert "'day1.nc' and 'day2.nc' both have time 0.\n  --keep-first keeps the first of them. Or --keep-last" in error
    assert not Path("twice.html").exists()
    assert main(["report", "day*.nc", "-o", "twice.html", "--concat-dim", "time", "--in-order"]) == 1
    assert "label 0 of 'time' would repeat.\n  --keep-all keeps all\n" in capsys.readouterr().err
    assert main(["report", "day*.nc", "-o", "twice.html", "--concat-dim", "time", "--keep-last"]) == 0


def test_a_cube_for_other_machines_names_all_places_that_are_missing(rain, capsys, monkeypatch):
    """In one line of options that can be pasted."""
    monkeypatch.setattr(workers.uvicorn, "run", lambda *_, **__: None)
    other = rain / "other"
    for folder in ("a", "b b"):
        (rain / folder).mkdir()
    (rain / "day0.nc").rename(rain / "a" / "day0.nc")
    (rain / "day1.nc").rename(rain / "b b" / "day1.nc")
    other.mkdir()
    found = vs.open_virtual_mfdataset([rain / "a" / "day0.nc", rain / "b b" / "day1.nc"])
    found.virtual.to_kerchunk(other / "cube.json")
    assert main(["serve", str(other / "cube.json"), "--host", "0.0.0.0"]) == 1
    said = capsys.readouterr().err
    pasted = re.search(r"--allow .*", said)[0]
    assert main(["serve", str(other / "cube.json"), "--host", "0.0.0.0", *shlex.split(pasted)]) == 0
    assert main(["serve", str(other / "cube.json")]) == 0
