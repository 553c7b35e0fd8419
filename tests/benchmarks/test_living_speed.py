"""What build, survey, verify and segments cost beside the scan alone, for files of a satellite with 27 variables.

Run with VIRTUALSTACK_BENCHMARK=full for 2,000 and 20,000 files: they are copies of one, with another time in each. Each
step has a process of its own, so that its CPU time and its memory are known.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import virtualstack as vs
from tests.benchmarks.timing import IS_FULL
from tests.data.netcdf4 import netcdf4_file
from virtualstack.scanning.job import KillablePool

SIZES = (2000, 20_000) if IS_FULL else (12,)
RECIPE = vs.Recipe(["files/*.nc"], dim="t", unpack=True)


def write_files(folder, n):
    """Write a file of 27 variables, of which three have chunks, and copies with other times."""
    folder.mkdir()
    packed = {"scale_factor": np.float32(0.5), "_FillValue": -1, "coordinates": "t y x"}
    deflate = {"zlib": True, "chunksizes": (8, 16)}
    values = np.random.default_rng(0).integers(0, 4000, (16, 16))
    scalars = {f"statistic_{i}": ("f4", "", 0.5 * i, {"_FillValue": np.float32(-999)}) for i in range(20)}
    template = folder / "template"
    variables = {
        **{f"band_{i}": ("i2", "y x", values + i, packed, deflate) for i in range(3)},
        "t": ("f8", "", 0.0, {"units": "seconds since 2000-01-01 12:00:00", "standard_name": "time"}),
        "time_bounds": ("f8", "bounds", [0.0, 1.0], {}),
        "y": ("f4", "y", np.arange(16), {}),
        "x": ("f4", "x", np.arange(16), {}),
        **scalars,
    }
    netcdf4_file(template, {"y": 16, "x": 16, "bounds": 2}, variables, platform="G16")
    with h5py.File(template) as file:
        assert len(variables) == 27
        offset = file["t"].id.get_offset()
    whole = bytearray(template.read_bytes())
    template.unlink()
    for i in range(n):
        whole[offset : offset + 8] = np.float64(7e8 + 600 * i).tobytes()
        (folder / f"OR_s{i:07}.nc").write_bytes(whole)


def run(step, n):
    """Do one step in the folder of an archive of `n` files."""
    if step == "scan":
        assert len(vs.scan(sorted(map(str, Path("files").iterdir())))) == n
    elif step == "survey":
        assert len(vs.survey("files/*.nc").table) == n
    elif step == "build":
        assert len(vs.Repository.build("a.vstack", RECIPE, sample=0).placed) == n
    elif step == "verify":
        assert vs.Repository.open("a.vstack").verify().n_sources == n
    elif step == "nothing new":
        assert vs.Repository.open("a.vstack").sync(sample=0).table.empty
    elif step == "ledger":
        assert len(vs.Repository.open("a.vstack").ledger()) == n
    else:
        with KillablePool(int(step[0])) as pool:
            assert len(vs.Repository.build(f"{step[0]}.vstack", RECIPE, sample=0, executor=pool).placed) == n


STEPS = ("scan", "build", "survey", "verify", "nothing new", "ledger", "1 worker", "2 workers")


def measured(step, n, folder):
    """Run a step in a process of its own; return its wall time, its CPU time with and without workers, and memory."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", __name__, step, str(n)]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("n", SIZES)
def test_what_a_store_costs_beside_its_scan(n, tmp_path):
    """Every step is done; the figures are printed."""
    write_files(tmp_path / "files", n)
    found = {step: measured(step, n, tmp_path) for step in STEPS}
    print(f"\n{n:,} files of 27 variables")
    for step, x in found.items():
        ratio = x["cpu"] / found["scan"]["cpu"]
        print(
            f"  {step:<12} wall {x['wall']:7.2f} s  cpu {x['cpu']:7.2f} s  x{ratio:.2f} of the scan"
            f"  driver {1e3 * x['driver'] / n:6.3f} ms a file  peak {x['peak'] / 1e6:6.0f} MB"
        )


def main(step, n):
    """Print what a step takes."""
    begin, before = time.perf_counter(), sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    run(step, n)
    own, workers = (resource.getrusage(x) for x in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    driver = own.ru_utime + own.ru_stime - before
    cpu = driver + workers.ru_utime + workers.ru_stime
    told = {"wall": time.perf_counter() - begin, "cpu": cpu, "driver": driver, "peak": own.ru_maxrss * 1024}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
