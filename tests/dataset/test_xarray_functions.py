"""Functions of xarray that a user tries on a virtual dataset: values as of the file, or one clear error."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import VirtualValuesError

mpl.use("Agg")

STRUCTURAL = {
    "align inner": lambda x: xr.align(x, x.isel(t=slice(1, 3)))[0],
    "align outer": lambda x: xr.align(x.isel(t=slice(0, 2)), x.isel(t=slice(1, 3)), join="outer")[0],
    "align exact": lambda x: xr.align(x, x, join="exact")[1],
    "align left": lambda x: xr.align(x.isel(t=[1, 2]), x, join="left")[1],
    "broadcast": lambda x: xr.broadcast(x.v, x.t)[0].to_dataset(),
    "swap_dims": lambda x: x.swap_dims(t="aux").sel(aux=4.0),
    "set_xindex": lambda x: x.set_xindex("aux").sel(aux=[2.0, 4.0]),
    "where": lambda x: x.where(x.t > 1),
    "where drop": lambda x: x.where(x.t > 1, drop=True),
    "sel": lambda x: x.sel(t=1.9, method="nearest"),
    "pointwise": lambda x: x.isel(t=xr.DataArray([0, 1], dims="p"), y=xr.DataArray([2, 1], dims="p")),
    "mask": lambda x: x.isel(t=np.array([True, False, True, False])),
    "query": lambda x: x.query(t="t > 1"),
    "sortby": lambda x: x.sortby("t", ascending=False),
    "roll": lambda x: x.roll(t=1),
    "shift": lambda x: x.shift(t=1),
    "pad": lambda x: x.pad(t=1),
    "astype": lambda x: x.astype("f4"),
    "expand_dims": lambda x: x.expand_dims("e"),
    "drop_duplicates": lambda x: x.drop_duplicates("t"),
    "combine_first": lambda x: x.combine_first(x),
    "to_array": lambda x: x[["v"]].to_array().to_dataset(name="v"),
}
"""Functions that use no values of a virtual variable, however large it is."""

VALUES = {
    "mean": lambda x: x.mean("t"),
    "interp": lambda x: x.interp(t=1.5),
    "fillna": lambda x: x.fillna(0),
    "diff": lambda x: x.diff("t"),
    "add": lambda x: x + 1,
    "apply_ufunc": lambda x: xr.apply_ufunc(np.sqrt, x),
    "rolling": lambda x: x.rolling(t=2).mean(),
    "weighted": lambda x: x.weighted(x.t).mean(),
    "dot": lambda x: xr.dot(x.v, x.v).to_dataset(name="v"),
    "to_dataframe": lambda x: x.to_dataframe().to_xarray(),
    "to_dask_dataframe": lambda x: x.to_dask_dataframe().compute().set_index(["t", "y"]).to_xarray(),
    "to_pandas": lambda x: x.v.to_pandas().stack().to_xarray().to_dataset(name="v"),
    "plot": lambda x: x.v.plot() and x,
    "histogram": lambda x: x.v.plot.hist() and x,
    "line": lambda x: x.v[:, 0].plot() and x,
}
"""Functions that use values."""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "a.nc"
    coords = {"t": np.arange(4.0), "y": np.arange(5), "aux": ("t", np.arange(4.0) * 2)}
    xr.Dataset({"v": (("t", "y"), np.arange(20.0).reshape(4, 5))}, coords).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file whose variable has 24 MB and takes little space."""
    path = tmp_path_factory.mktemp("large") / "a.nc"
    coords = {"t": np.arange(4.0), "aux": ("t", np.arange(4.0) * 2)}
    made = xr.Dataset({"v": (("t", "y"), np.zeros((4, 750_000)))}, coords)
    made.to_netcdf(path, engine="h5netcdf", encoding={"v": {"zlib": True, "chunksizes": (1, 750_000)}})
    return path


@pytest.mark.parametrize("name", [*STRUCTURAL, *VALUES])
def test_of_a_small_variable(name, small):
    """The values of xarray."""
    function = (STRUCTURAL | VALUES)[name]
    found = function(vs.open_virtual_dataset(small)).virtual.open().load()
    xr.testing.assert_equal(found, function(xr.load_dataset(small)))


@pytest.mark.parametrize("name", STRUCTURAL)
def test_of_a_large_variable_that_uses_no_values(name, large):
    """The same values, and the dataset stays virtual."""
    found = STRUCTURAL[name](vs.open_virtual_dataset(large))
    assert list(found.virtual._arrays()) == ["v"]
    xr.testing.assert_equal(found.virtual.open().load(), STRUCTURAL[name](xr.load_dataset(large)))


@pytest.mark.parametrize("name", [name for name in VALUES if name != "line"])
def test_of_a_large_variable_that_uses_values(name, large):
    """One error, which says what to do."""
    with pytest.raises(VirtualValuesError, match=r"(18|24) MB, more than .*\. Use vds\.virtual\.open\(\)"):
        VALUES[name](vs.open_virtual_dataset(large))


def test_writers_of_xarray_write_nothing(small, tmp_path):
    """`to_netcdf` creates no file; xarray writes loaded variables to zarr before it looks at a virtual one."""
    vds = vs.open_virtual_dataset(small)
    for write in (vds.to_netcdf, lambda path: xr.save_mfdataset([vds], [path])):
        with pytest.raises(VirtualValuesError, match=r"vds\.virtual\.open\(\)\.to_netcdf"):
            write(tmp_path / "a.nc")
    assert not (tmp_path / "a.nc").exists()
    with pytest.raises(VirtualValuesError, match="If it was to_zarr, delete the store that it began"):
        vds.to_zarr(tmp_path / "a.zarr", consolidated=False)
    assert "v" not in xr.open_zarr(tmp_path / "a.zarr", consolidated=False).variables
