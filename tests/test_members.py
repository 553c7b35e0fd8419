"""Variables and groups are added to references and repositories by name, as to a vstack; the rest stays as it is."""

import json

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import WriterError


def write(path, n=4, **names):
    """Write variables of one dimension, one chunk for each element."""
    data = {name: ("time", np.arange(n) + float(value)) for name, value in names.items()}
    encoding = {name: {"chunksizes": (1,), "zlib": True} for name in data}
    times = ("time", np.arange(n), {"units": "days since 2001-01-01"})
    xr.Dataset(data, {"time": times}, {"title": path.stem}).to_netcdf(path, engine="netcdf4", encoding=encoding)
    return vs.open_virtual_dataset(path)


@pytest.fixture(params=["refs.json", "refs.parq", "cube.icechunk", "cube.vstack"])
def target(request, tmp_path):
    """A place, and how to write to it."""
    path = tmp_path / request.param

    def put(vds, **options):
        kind = path.suffix.removeprefix(".")
        method = {"json": "to_kerchunk", "parq": "to_kerchunk", "icechunk": "to_icechunk", "vstack": "to_vstack"}[kind]
        getattr(vds.virtual, method)(path, **options)

    return path, put


def values(path, group=None):
    with xr.open_dataset(path, engine="virtualstack", group=group, chunks=None) as opened:
        return opened.load()


def test_by_name(target, tmp_path):
    """A variable is added, another replaced, a parent comes beside a child, and a group is replaced alone."""
    path, put = target
    put(write(tmp_path / "t.nc", t=0), mode="a")
    put(write(tmp_path / "u.nc", u=10), mode="a")
    with xr.open_mfdataset([tmp_path / "t.nc", tmp_path / "u.nc"], engine="netcdf4") as wanted:
        xr.testing.assert_equal(values(path), wanted.load())
    assert values(path).attrs == {"title": "u"}
    write(tmp_path / "packed.nc", t=50)
    with xr.open_dataset(tmp_path / "packed.nc", engine="netcdf4") as file:
        encoding = {"t": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "chunksizes": (3,)}}
        file.load().to_netcdf(tmp_path / "other.nc", engine="netcdf4", encoding=encoding)
    put(vs.open_virtual_dataset(tmp_path / "other.nc"), mode="a")
    np.testing.assert_array_equal(values(path)["t"], np.arange(4) + 50.0)
    np.testing.assert_array_equal(values(path)["u"], np.arange(4) + 10.0)

    put(write(tmp_path / "v.nc", v=20), group="deep/inner")
    put(write(tmp_path / "w.nc", w=30), group="deep", mode="w-")
    put(write(tmp_path / "x.nc", x=40), group="deep/inner", mode="w")
    with xr.open_datatree(path, engine="virtualstack", chunks=None) as tree:
        assert set(tree.groups) == {"/", "/deep", "/deep/inner"}
        assert {name for node in tree.subtree for name in node.to_dataset(inherit=False).data_vars} == {*"tuwx"}
        for place, first in (("/t", 50), ("/u", 10), ("/deep/w", 30), ("/deep/inner/x", 40)):
            np.testing.assert_array_equal(tree[place], np.arange(4.0) + first)
    np.testing.assert_array_equal(values(path, "deep")["w"], np.arange(4.0) + 30)


def test_a_group_grows(target, tmp_path):
    """Along a dimension; the group beside it stays."""
    path, put = target
    whole = write(tmp_path / "t.nc", t=0, n=6)
    put(whole.isel(time=slice(4)), group="one")
    put(whole, group="two")
    put(whole.isel(time=slice(4, 6)), group="one", append_dim="time")
    xr.testing.assert_identical(values(path, "one"), values(path, "two"))
    np.testing.assert_array_equal(values(path, "one")["t"], np.arange(6.0))


def test_what_disagrees(target, tmp_path):
    """What would make other variables wrong is an error, and nothing is written."""
    path, put = target
    put(write(tmp_path / "t.nc", t=0))
    with pytest.raises(WriterError, match="mode='a'"):
        put(write(tmp_path / "u.nc", u=0), mode="w-")
    with pytest.raises(WriterError, match="'time'"):
        put(write(tmp_path / "v.nc", n=5, v=0), mode="a")
    shifted = write(tmp_path / "w.nc", w=0)
    shifted["time"] = shifted["time"] + np.timedelta64(1, "D")
    with pytest.raises(WriterError, match="labels of 'time' differ"):
        put(shifted, mode="a")
    with pytest.raises(ValueError, match="mode='r'"):
        put(shifted, mode="r")
    with pytest.raises(ValueError, match="append_dim='time'"):
        put(shifted, mode="a", append_dim="time")
    assert set(values(path).data_vars) == {"t"}
    np.testing.assert_array_equal(values(path)["t"], np.arange(4.0))


def test_references_in_memory(tmp_path):
    """A group of a dict; there is nothing that could be added to."""
    vds = write(tmp_path / "t.nc", t=0)
    made = vds.virtual.to_kerchunk(group="deep/inner")
    assert json.loads(made["refs"]["deep/inner/.zgroup"]) == {"zarr_format": 2}
    np.testing.assert_array_equal(values(made, "deep/inner")["t"], np.arange(4.0))
    with pytest.raises(WriterError, match="no target was given"):
        vds.virtual.to_kerchunk(mode="a")
