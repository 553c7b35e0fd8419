"""The README's two commands: one line each, and the same ones that CI runs."""

import os
import re
import shlex
import subprocess
import sys

import fsspec
import pytest
import xarray as xr

import virtualstack as vs
from tests.docs.page import ROOT, blocks
from tests.servers import RangeServer


def commands():
    return [block.text for block in blocks((ROOT / "README.md").read_text()) if block.language == "bash"]


def test_there_are_two_commands_of_one_line():
    """One shows the cube, one runs the tests."""
    cube, tests = commands()
    assert cube.count("\n") == tests.count("\n") == 1
    assert "virtualstack build sample:scenarios" in cube
    assert "--verify" in cube
    assert tests.endswith("-m pytest -n auto --dist loadfile\n")


def test_each_command_sets_itself_up():
    """In a virtual environment in the clone; nothing of a machine or registry is named."""
    for command in commands():
        check, say, make, *others = command.strip().split(" && ")
        assert check.startswith("python3 -c ")
        assert say.startswith('echo "Installing ')  # before the first slow step
        assert make == "python3 -m venv .venv"
        assert "://" not in command
        assert all(part.startswith(".venv/bin/") for part in others)


def test_what_pip_says_is_one_line_of_progress():
    """Each line takes the place of the one before it, and a terminal of 80 columns shows it whole."""
    (install,) = (part for part in commands()[0].split(" && ") if " pip install " in part)
    show = shlex.split(install.partition(" | ")[2])
    said = b"Collecting numpy\nDownloading " + 100 * b"n" + b"\nInstalling collected packages: numpy\n"
    run = subprocess.run([sys.executable, *show[1:]], input=said, stdout=subprocess.PIPE, check=True, timeout=60)
    assert show[0] == "python3"
    assert run.stdout.split(b"\r\33[K") == [
        b"",
        b"Collecting numpy",
        b"Downloading " + 67 * b"n",
        b"Installing collected packages: numpy" + os.linesep.encode(),
    ]


@pytest.mark.parametrize(("version", "status"), [((3, 8, 18), 1), ((3, 11, 9), 1), ((3, 12, 0), 0), ((3, 14, 1), 0)])
def test_an_old_python_is_told_so_in_one_sentence(version, status):
    """Before pip says which versions of a build tool this Python cannot have."""
    for command in commands():
        program, option, code = shlex.split(command.split(" && ")[0])
        old = f"import sys; sys.version_info = {version}; sys.version = '{'.'.join(map(str, version))} (main)'; {code}"
        done = subprocess.run([sys.executable, option, old], capture_output=True, text=True, check=False, timeout=60)
        said = f"virtualstack needs Python 3.12 or newer, and python3 is {'.'.join(map(str, version))}\n"
        assert (program, done.returncode, done.stderr) == ("python3", status, said if status else "")


def test_ci_runs_the_commands_of_the_readme():
    """It reads them there."""
    shown = subprocess.run([ROOT / ".ci" / "run", "--print"], capture_output=True, text=True, check=True, timeout=60)
    assert shown.stdout == "".join(commands())


def test_the_readme_is_short():
    """Three sentences say what it is."""
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 60
    first = text.split("\n\n")[2]
    assert len(re.findall(r"\.(?:\s|$)", first)) == 3


def test_the_picture_is_that_of_its_program(tmp_path):
    """But for the details of fonts."""
    image = pytest.importorskip("matplotlib.image")
    program, made = ROOT / "docs" / "_ext" / "readme_picture.py", tmp_path / "made.png"
    subprocess.run([sys.executable, program, made], check=True, timeout=120, env={**os.environ, "MPLBACKEND": "agg"})
    pixels, wanted = image.imread(made), image.imread(ROOT / "docs" / "_static" / "climate.png")
    assert pixels.shape == wanted.shape
    assert abs(pixels - wanted).mean() < 0.02


def hourly(folder):
    """Write the files of the hours, each in its newest version."""
    return [*{path.partition("_v2")[0].removesuffix(".nc"): path for path in vs.sample.hourly(folder)}.values()]


@pytest.mark.parametrize(
    ("page", "make", "variable", "files"),
    [
        ("README.md", hourly, "tb", "44 hourly files"),
        ("docs/index.md", hourly, "tb", "44 hourly files"),
        ("docs/index.md", vs.sample.model, "tas", "the 3 files"),
    ],
)
def test_requests_and_bytes_are_those_of_a_run(page, make, variable, files, tmp_path, monkeypatch):
    """Of reading one map of a cube on a web server, and of its files with xarray, h5netcdf and fsspec."""
    monkeypatch.chdir(tmp_path)
    paths = make("data")
    assert len(paths) == int(re.search(r"\d+", files)[0])
    vs.open_virtual_mfdataset(paths).virtual.to_vstack("cube.vstack", relative=True)
    found, maps = [], []
    with RangeServer(tmp_path) as server:
        cubes = (
            lambda: xr.open_dataset(server.url("cube.vstack"), engine="virtualstack"),
            lambda: xr.open_mfdataset(
                [fsspec.filesystem("http").open(server.url(path)) for path in paths], engine="h5netcdf"
            ),
        )
        for cube in cubes:
            server.reset()
            with cube() as opened:
                maps.append(opened[variable].sel(time="2024-06-02T12:00").load())
            found.append((server.n_requests, server.bytes_sent))
    xr.testing.assert_identical(*(x.drop_attrs() for x in maps))
    (line,) = (line for line in (ROOT / page).read_text().splitlines() if files in line)
    said = re.findall(r"(\d+) requests and ([\d.]+) ([kM])B", line)
    for (n, n_bytes), (number, size, unit) in zip(found, said, strict=True):
        assert n == int(number)
        assert n_bytes == pytest.approx(float(size) * {"k": 1e3, "M": 1e6}[unit], rel=0.06)
