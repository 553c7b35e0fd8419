"""Names that other tools give a meaning of their own: variables are those that xarray's engine reads."""

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import WriterError

NAMES = ["None", "__values__", "nan", "0", "0.0", "c", "c0", "index", "values", "dims", "attrs", "virtual", "a b", "é"]
NAMES += [
    "time",
    "e\u0301",
    "...",
    "a%20b",
    "a#b",
    "{{u}}",
    "refs",
    "metadata",
    "name",
    "*",
    "日本",
    "True",
    "zarr.json",
]
NAMES += [".zarray", ".zmetadata", "..", "a\\b"]
NOT_OF_ZARR = {".zarray", ".zmetadata", "..", "a\\b"}  # which mean something else there


def write(path, name):
    """Write a variable of any name along "t", which has labels; netCDF itself normalises names to NFC."""
    with h5py.File(path, "w") as file:
        file["t"] = np.arange(4.0)
        file["t"].make_scale("t")
        values = np.array([1, 2, 3, 4], "f4")
        made = file.create_dataset(name, data=values, chunks=(2,), compression="gzip")
        made.dims[0].attach_scale(file["t"])
    return path


@pytest.fixture(params=NAMES)
def named(request, tmp_path):
    path = write(tmp_path / "named.nc", request.param)
    with xr.open_dataset(path, engine="netcdf4") as expected:
        return request.param, path, expected.load()


def check(found, expected):
    assert set(found.variables) == set(expected.variables)
    assert set(found.coords) == set(expected.coords)
    for name in expected.variables:
        np.testing.assert_array_equal(found[name].values, expected[name].values)


def test_variables_of_any_name_are_read(named):
    """Engine, virtual dataset and joined datasets give each variable under the name that xarray gives it."""
    _, path, expected = named
    check(xr.open_dataset(path, engine="virtualstack"), expected)
    check(vs.open_virtual_dataset(path).virtual.open(), expected)
    check(vs.open_virtual_mfdataset([path]).virtual.open(), expected)
    check(xr.open_datatree(path, engine="virtualstack").to_dataset(), expected)


def test_variables_of_any_name_are_written_or_refused(named, tmp_path):
    """Each form has the variable, or its writer says that it cannot have the name; renamed, it can."""
    name, path, expected = named
    vds = vs.open_virtual_dataset(path)
    for target, write_to in (("r.json", "to_kerchunk"), ("r.parq", "to_kerchunk"), ("r.vstack", "to_vstack")):
        here, target = (vds, expected), tmp_path / target
        if name in (NOT_OF_ZARR if write_to == "to_kerchunk" else {".."}):
            with pytest.raises(WriterError, match=r"[Rr]ename it"):
                getattr(vds.virtual, write_to)(target)
            its = unicode_of(name, expected)
            here = vds.rename({its: "renamed"}), expected.rename({its: "renamed"})
        getattr(here[0].virtual, write_to)(target)
        check(xr.open_dataset(target, engine="virtualstack"), here[1])
        if target.suffix == ".json":
            check(xr.open_dataset(str(target), engine="kerchunk"), here[1])


def unicode_of(name, dataset):
    """Return the name as netCDF normalises it."""
    return next(x for x in dataset.variables if x not in ("t", None)) if name != "__values__" else None


@pytest.mark.parametrize("name", ["a\\b", "..", "zarr.json"])
def test_zarr_opens_a_group_with_a_name_that_it_has_not(tmp_path, name):
    """A name that zarr cannot have hides its variable from zarr, and nothing else; renamed, it is there."""
    path = write(tmp_path / "named.nc", name)
    vds = vs.open_virtual_dataset(path)
    store = vs.ManifestStore(vds.virtual.to_group())
    np.testing.assert_array_equal(xr.open_zarr(store, consolidated=False)["t"], np.arange(4))
    store = vs.ManifestStore(vds.rename({name: "renamed"}).virtual.to_group())
    np.testing.assert_array_equal(xr.open_zarr(store, consolidated=False)["renamed"], [1, 2, 3, 4])


def test_a_variable_that_xarray_shows_without_a_name_can_be_dropped(tmp_path):
    """``__values__`` in a file is ``None`` in xarray, and is dropped by the name in the file."""
    path = write(tmp_path / "named.nc", "__values__")
    assert set(xr.open_dataset(path, engine="virtualstack", drop_variables="__values__").variables) == {"t"}
    group = vs.open_virtual_dataset(path).virtual.to_group()
    assert set(xr.open_dataset(group, engine="virtualstack", drop_variables="__values__").variables) == {"t"}
