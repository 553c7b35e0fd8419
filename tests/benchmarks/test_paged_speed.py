"""Opening references and reading a little; run with VIRTUALSTACK_BENCHMARK=full for 10^6 and 10^8 references."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from tests.benchmarks.rivals import needs
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.arrays import referenced_array
from virtualstack.formats.base import ReadOptions
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup, inline_array
from virtualstack.reading import read_array
from virtualstack.storage import Storage

GRID = (1000, 1000) if IS_FULL else (5, 7)
MANY = 10**8 if IS_FULL else 4000
RECORD = 100_000 if IS_FULL else 1000
N_PARTS = 100_000 if IS_FULL else 50
CHUNK = 16
pytestmark = needs("kerchunk", "fastparquet")


def group_of(folder, grid) -> ManifestGroup:
    """``v`` of times and cells, all in one file that repeats, and ``t``."""
    values = np.arange(CHUNK * grid[1], dtype="<f4")
    (folder / "data.bin").write_bytes(values.tobytes())
    places = {
        "urls": absolute_url(folder / "data.bin"),
        "offsets": np.broadcast_to(np.arange(grid[1]) * CHUNK * 4, grid),
        "lengths": CHUNK * 4,
    }
    names = ("t", "x")
    array = referenced_array((grid[0], grid[1] * CHUNK), (1, CHUNK), **places, fill=np.nan, dimension_names=names)
    times = inline_array(np.arange(grid[0]), name="t", dims=("t",), attributes={})
    return ManifestGroup(arrays={"v": array, "t": times})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("paged")
    group = group_of(made, GRID)
    for suffix in ("parq", "json"):
        write_kerchunk(group, made / f"refs.{suffix}")
    slashes = (made / "refs.json").read_bytes().replace(b"/", b"\\/")
    (made / "refs.ujson.json").write_bytes(slashes)  # as kerchunk writes it
    return made


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """References whose record files are one file with many names."""
    made = tmp_path_factory.mktemp("many")
    write_kerchunk(group_of(made, (RECORD // 1000, 1000)), made / "refs.parq")
    first, n = made / "refs.parq/v/refs.0.parq", MANY // RECORD
    for record in range(1, n):
        os.link(first, made / f"refs.parq/v/refs.{record}.parq")
    metadata = json.loads((made / "refs.parq/.zmetadata").read_bytes())
    metadata["record_size"] = RECORD
    metadata["metadata"]["v/.zarray"]["shape"][0] = MANY // 1000
    (made / "refs.parq/.zmetadata").write_text(json.dumps(metadata))
    return made / "refs.parq"


@pytest.mark.parametrize("suffix", ["parq", "json", "ujson.json"])
def test_first_time_step(folder, suffix):
    """Opening references and loading one time step, as a user does it."""
    url = str(folder / f"refs.{suffix}")

    def first(engine):
        with xr.open_dataset(url, engine=engine) as dataset:
            return dataset.v.isel(t=0).load()

    best = interleaved(
        f"open {math.prod(GRID)} references of {suffix}, isel(t=0).load()",
        {"virtualstack": lambda: first("virtualstack"), "kerchunk": lambda: first("kerchunk")},
        repeats=7 if suffix == "parq" else 3,
    )
    xr.testing.assert_equal(best["virtualstack"].result, best["kerchunk"].result)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell the peak of a process")
@pytest.mark.parametrize("engine", ["virtualstack", "kerchunk"])
def test_memory_of_json(folder, engine):
    """Peak memory beyond that of the same on a few references: in a process of its own."""
    program = (
        "import os, re, sys, pathlib, warnings, xarray as xr\n"
        "warnings.simplefilter('ignore')\n"
        "def peak():\n"
        "    return 1024 * int(re.search(r'VmHWM:\\s*(\\d+)', pathlib.Path('/proc/self/status').read_text())[1])\n"
        "xr.open_dataset(sys.argv[2], engine=sys.argv[1]).v.isel(t=0).load()\n"
        "before = peak()\n"
        "xr.open_dataset(sys.argv[3], engine=sys.argv[1]).v.isel(t=0).load()\n"
        "print(peak() - before, flush=True)\n"
        "os._exit(0)"  # xarray has loaded plugins, of which some abort at exit
    )
    few = folder / "few.json"
    write_kerchunk(group_of(folder, (5, GRID[1])), few)
    call = [sys.executable, "-c", program, engine, few, folder / "refs.json"]
    ran = subprocess.run(call, capture_output=True, text=True, check=True)
    print(f"\npeak memory of {math.prod(GRID)} references of JSON, {engine}: {int(ran.stdout) / 1e6:.0f} MB")


def test_many_references(many):
    """Opening lazily, and reading one cell of what is open; each time another, so that nothing is kept."""
    opened = interleaved(
        f"open {MANY} references lazily",
        {"virtualstack": lambda: Kerchunk().read(many.as_uri(), Storage.from_option(), ReadOptions())},
    )
    array = opened["virtualstack"].result["v"]
    steps = iter(range(0, array.shape[0], max(array.shape[0] // 12, 1)))
    best = interleaved("  and read one cell", {"virtualstack": lambda: read_array(array, (next(steps), slice(16, 32)))})
    assert best["virtualstack"].result.tolist() == np.arange(16, 32).tolist()


def test_join_of_many(folder):
    """Joining arrays in pages, and finding a cell of the whole."""
    array = Kerchunk().read((folder / "refs.parq").as_uri(), Storage.from_option(), ReadOptions())["v"]
    parts = [array] * N_PARTS
    joined = interleaved(f"join {N_PARTS} arrays in pages", {"virtualstack": lambda: np.concatenate(parts)}, repeats=3)
    whole = joined["virtualstack"].result
    assert whole.manifest.read((slice(7, 8), slice(0, 3))).shape == (1, 3)
    middle = whole.shape[0] // 2 + 3
    best = interleaved("  and read a time step of it", {"virtualstack": lambda: read_array(whole, (middle,))})
    assert best["virtualstack"].result.tolist() == list(range(CHUNK * GRID[1]))
