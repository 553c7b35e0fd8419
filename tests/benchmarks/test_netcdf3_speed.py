"""Opening netCDF-3 files virtually beside VirtualiZarr and kerchunk; with VIRTUALSTACK_BENCHMARK=full at full size."""

import netCDF4
import numpy as np
import pytest

import virtualstack as vs
from tests.benchmarks.rivals import needs, virtualizarr
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.netcdf4 import netcdf4_file
from virtualstack.reading import read_array

N_RECORDS = 10_000 if IS_FULL else 10
pytestmark = needs("virtualizarr", "kerchunk", "scipy")  # both read netCDF-3 by scipy


@pytest.fixture(scope="module")
def daily(tmp_path_factory):
    """Thirteen variables with the usual attributes, ten of them along the record dimension."""
    path = tmp_path_factory.mktemp("daily") / "daily.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        for name, n in {"time": None, "lat": 90, "lon": 180}.items():
            file.createDimension(name, n)
            axis = file.createVariable(name, "f8", (name,))
            axis.setncatts({"standard_name": name, "units": "days since 2000-01-01" if n is None else "degrees"})
            axis[:] = np.arange(n or 4)
        for i in range(10):
            variable = file.createVariable(f"v{i}", "i2", ("time", "lat", "lon"), fill_value=-9)
            variable.set_auto_maskandscale(False)
            variable.setncatts({"units": "K", "long_name": f"variable {i}", "scale_factor": 0.5, "add_offset": 1.0})
            variable[:] = i
    return path


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Thirty short variables along the record dimension."""
    path = tmp_path_factory.mktemp("records") / "records.nc"
    variables = {f"v{i}": ("f4", "time x", None if i else np.zeros((N_RECORDS, 5))) for i in range(30)}
    return netcdf4_file(path, {"time": None, "x": 5}, variables, kind="NETCDF3_64BIT_OFFSET")


def open_kerchunk(path):
    from kerchunk.netCDF3 import NetCDF3ToZarr

    return NetCDF3ToZarr(str(path), inline_threshold=0).translate()


@pytest.mark.parametrize("name", ["daily", "records"])
def test_open(name, request):
    """The same references by all of them, without loading."""
    path = request.getfixturevalue(name)
    timings = interleaved(
        f"open {name}",
        {
            "virtualstack": lambda: vs.open_virtual_dataset(path, loadable_variables=[]),
            "VirtualiZarr": lambda: virtualizarr(path.as_uri(), parser="NetCDF3Parser"),
            "kerchunk": lambda: open_kerchunk(path),
        },
        repeats=3 if name == "records" else 15,
    )
    refs = vs.open_virtual_dataset(path, loadable_variables=[]).virtual.to_kerchunk()["refs"]
    expected = timings["kerchunk"].result["refs"]
    chunk = "v7/3.0.0" if name == "daily" else f"v7/{N_RECORDS - 1}.0"
    assert refs[chunk][1:] == expected[chunk][1:]
    ours, theirs = (timings[tool].result["v7"].shape for tool in ("virtualstack", "VirtualiZarr"))
    assert ours == theirs


def test_tiny_chunks(records):
    """Values of thirty variables whose records are chunks of 20 bytes, beside netCDF4."""
    array = {name: x.variable._data for name, x in vs.open_virtual_dataset(records).data_vars.items()}

    def by_netcdf4():
        with netCDF4.Dataset(records) as file:
            return [file[name][:] for name in array]

    got = interleaved(
        f"{len(array) * N_RECORDS} tiny chunks",
        {"netCDF4": by_netcdf4, "virtualstack": lambda: [read_array(x, ...) for x in array.values()]},
    )
    np.testing.assert_array_equal(got["virtualstack"].result, got["netCDF4"].result)
