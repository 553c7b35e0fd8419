"""References open where virtualstack is not installed."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.kerchunk.netcdf_sources import virtual_group
from virtualstack.kerchunk.writer import write_kerchunk

SCRIPT = """
import importlib.metadata, importlib.util, json, sys
assert importlib.util.find_spec("virtualstack") is None, "virtualstack is installed"
assert not [x for x in importlib.metadata.distributions() if x.name == "virtualstack"]
import xarray as xr
with xr.open_dataset(sys.argv[1], engine="kerchunk") as dataset:
    variables = dataset.variables.items()
    print(json.dumps({name: [str(x.dtype), x.values.astype(str).ravel().tolist()] for name, x in variables}))
"""


LEFT_OUT = "virtualstack", "__editable__", "pyproj", "rioxarray"  # the latter two end processes with eccodes badly


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Give a folder of all that is installed here, but for virtualstack: neither it nor its entry points."""
    pytest.importorskip("kerchunk", reason="kerchunk is not installed: pip install 'virtualstack[kerchunk]'")
    folder = tmp_path_factory.mktemp("elsewhere")
    for path in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(path).iterdir():
            if not entry.name.startswith(LEFT_OUT) and entry.suffix != ".pth":
                (folder / entry.name).symlink_to(entry)
    return folder


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
    script = f"import sys; sys.path.append({str(elsewhere)!r})\n{SCRIPT}"
    run = [sys.executable, "-I", "-S", "-W", "ignore", "-c", script, str(target)]
    done = subprocess.run(run, capture_output=True, text=True, check=False, cwd=target.parent)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got.keys() == set(expected.variables)
    for name, variable in expected.variables.items():
        assert got[name] == [str(variable.dtype), variable.values.astype(str).ravel().tolist()], name
