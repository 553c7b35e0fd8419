"""References open where virtualstack is not installed."""

import json
import shutil
import subprocess
import sys
import venv

import netCDF4
import numpy as np
import pytest
import xarray as xr

from tests.writers.netcdf_sources import virtual_group
from virtualstack.writers.kerchunk import write_kerchunk

SCRIPT = """
import importlib.util, json, sys
assert importlib.util.find_spec("virtualstack") is None, "virtualstack is installed"
import xarray as xr
with xr.open_dataset(sys.argv[1], engine="kerchunk") as dataset:
    variables = dataset.variables.items()
    print(json.dumps({name: [str(x.dtype), x.values.astype(str).ravel().tolist()] for name, x in variables}))
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Give the Python of a new environment with kerchunk, fastparquet, xarray and zarr, and nothing of ours."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    command = [str(python), "-m", "pip", "install", "-q", "kerchunk", "fastparquet", "xarray", "zarr>=3", "dask"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install kerchunk into a new environment: {done.stderr.strip()[-200:]}")
    yield str(python)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["json", "parq"])
def test_references_open_without_virtualstack(elsewhere, suffix, tmp_path):
    """Holes, NaN, packed values, times, scalars and written-out fills read there as in the source."""
    path = tmp_path / "source.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", 4)
        file.createDimension("x", 6)
        file.createVariable("t", "f8", ("t",))[:] = np.arange(4)
        file["t"].units = "days since 2001-02-03"
        options = {"chunksizes": (2, 3), "zlib": True}
        for name, dtype, fill in (("nan", "f4", np.nan), ("packed", "i2", -9), ("default", "i4", None)):
            variable = file.createVariable(name, dtype, ("t", "x"), fill_value=fill, **options)
            if name == "packed":
                variable.scale_factor = 0.5
            variable[:2] = np.arange(12).reshape(2, 6)
        file.createVariable("scalar", "i4", ())[...] = 5
    target = tmp_path / f"refs.{suffix}"
    write_kerchunk(virtual_group(path), target)
    run = [elsewhere, "-I", "-W", "ignore", "-c", SCRIPT, str(target)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    with xr.open_dataset(path, engine="h5netcdf") as expected:
        assert got.keys() == set(expected.variables)
        for name, variable in expected.variables.items():
            assert got[name] == [str(variable.dtype), variable.values.astype(str).ravel().tolist()]
    assert sys.prefix not in elsewhere
