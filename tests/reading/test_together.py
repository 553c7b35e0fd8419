"""Small variables of one source are fetched together when it is opened."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.latency_server import LatencyServer
from tests.servers import RangeServer
from virtualstack.errors import StorageError
from virtualstack.manifests import ManifestArray
from virtualstack.reading import fetched, read_array
from virtualstack.storage import Storage

COORDINATES = ["height", "lat", "lat2d", "lon", "time"]


@pytest.fixture
def path(tmp_path):
    """A file whose small variables are apart, with chunks that were never written, bounds and a chunked scalar time."""
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as file:
        for dim, n in {"time": None, "lat": 5, "lon": 6}.items():
            file.createDimension(dim, n)
        for name, dims in {"time": "time", "lat": "lat", "lon": "lon", "height": "", "lat2d": "lat lon"}.items():
            variable = file.createVariable(name, "f8", dims.split(), chunksizes=(3, 4) if name == "lat2d" else None)
            variable[...] = np.arange(7) if name == "time" else 2.5
            file.createVariable(f"after_{name}", "f4", ("time", "lat", "lon"))[:] = np.ones((7, 5, 6))
        file["time"].units = "days since 2000-01-01"
        file["after_time"].coordinates = "height lat2d"
    return tmp_path / "a.nc"


def test_all_loaded_variables_take_one_round_of_requests(path):
    """Opening with five loaded variables takes as many requests as with one."""
    requests = []
    with LatencyServer(path.parent) as server, xr.open_dataset(path, engine="netcdf4") as expected:
        for loadable in (["time"], None):
            server.traffic()
            vds = vs.open_virtual_dataset(server.url("a.nc"), loadable_variables=loadable)
            requests.append(server.traffic().n_requests)
        loaded = [str(name) for name, x in vds.variables.items() if not isinstance(x._data, ManifestArray)]
        assert sorted(loaded) == COORDINATES
        xr.testing.assert_identical(vds[loaded].virtual.open().load(), expected[loaded].load())
    assert requests[1] == requests[0]


def test_a_source_that_ends_early_is_an_error_of_the_chunk(path):
    """The reading of the chunk says which one it is."""
    with RangeServer(path.parent) as server:
        (group,) = vs.scan([server.url("a.nc")])
        arrays = [group.arrays["lat"], group.arrays["lon"]]
        assert [x.in_memory().summary().n_inline for x in fetched(arrays, Storage.from_option())] == [1, 1]
        path.write_bytes(path.read_bytes()[:200])
        assert [x.in_memory().summary().n_inline for x in fetched(arrays, Storage.from_option())] == [0, 0]
        with pytest.raises(StorageError, match="variable '/lat'"):
            read_array(fetched(arrays, Storage.from_option())[0], ())


def test_references_to_other_files_open_without_them(path, tmp_path):
    """A scalar that is in another file stays virtual: opening references does not need the file."""
    vds = vs.open_virtual_dataset(path, loadable_variables=[]).virtual.load(["time", "lat", "lon"])
    references = vds.virtual.to_kerchunk()
    path.unlink()
    vds = vs.open_virtual_dataset(references)
    assert isinstance(vds["height"].variable._data, ManifestArray)
    assert vds.sizes["time"] == 7
