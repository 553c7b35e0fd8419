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

import virtualstack as vs
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
    """Give the Python of a new environment with kerchunk, cfgrib, fastparquet, xarray and zarr, and nothing of ours."""
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    packages = ["kerchunk", "fastparquet", "xarray", "zarr>=3", "dask", "cfgrib", "eccodes"]
    command = [str(python), "-m", "pip", "install", "-q", *packages]
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
    with xr.open_dataset(path, engine="h5netcdf") as expected:
        check(expected, virtual_group(path), tmp_path / f"refs.{suffix}", elsewhere)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["json", "parq"])
def test_fields_of_grib_are_decoded_by_kerchunk_without_virtualstack(elsewhere, suffix, tmp_path):
    """Holes of a field, and one that is not there, are NaN."""
    make_grib = pytest.importorskip("tests.data.make_grib")
    values = np.where(np.arange(24) % 5 == 0, np.nan, np.arange(24.0))
    keys = [
        {"shortName": "t", "typeOfLevel": "isobaricInhPa", "level": n, "step": m} for n in (850, 500) for m in (0, 6)
    ]
    fields = [make_grib.message(x, values=values + n, after={"bitsPerValue": 12}) for n, x in enumerate(keys[:3])]
    path = make_grib.write(tmp_path / "a.grib2", fields)
    with xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""}) as expected:
        assert np.isnan(expected.t.values[-1, -1]).all()
        check(expected, vs.open_virtual_dataset(path).virtual.to_group(), tmp_path / f"refs.{suffix}", elsewhere)


def check(expected, group, target, elsewhere):
    """References of a group give there what is expected here."""
    write_kerchunk(group, target)
    run = [elsewhere, "-I", "-W", "ignore", "-c", SCRIPT, str(target)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=target.parent)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got.keys() == set(expected.variables)
    for name, variable in expected.variables.items():
        assert got[name] == [str(variable.dtype), variable.values.astype(str).ravel().tolist()], name
    assert sys.prefix not in elsewhere
