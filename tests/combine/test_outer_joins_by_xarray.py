"""Outer joins, reindexing and masking by plain xarray: new elements of packed integers hold what means missing."""

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from tests.joins import MINIMAL
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError

pytestmark = pytest.mark.filterwarnings("ignore")

FORMS = {
    "scaled": ("i2", -9, {"scale_factor": 0.5, "add_offset": 1.0}),
    "masked": ("i4", -9, {}),
    "missing": ("u1", None, {"missing_value": np.uint8(9)}),
    "unsigned": ("i1", -1, {"_Unsigned": "true", "scale_factor": 0.5}),
    "run": ("i4", -9, {"units": "hours since 2000-01-01"}),
    "long": ("i8", None, {"units": "hours since 2000-01-01"}),
}


def write(path, x, t=0):
    labels = {"t": ("i4", "t", [t]), "x": ("i4", "x", x)}
    values = np.arange(len(x))[None]
    made = {name: (dtype, "t x", values, {"_FillValue": fill} | more) for name, (dtype, fill, more) in FORMS.items()}
    return str(netcdf4_file(path, {"t": 1, "x": len(x)}, labels | made))


WAYS = {
    "concat": lambda a, b: xr.concat([a, b], "t", join="outer", **MINIMAL),
    "combine_by_coords": lambda a, b: xr.combine_by_coords([a, b], join="outer", **MINIMAL),
    "merge": lambda a, b: xr.merge(
        [a.isel(t=0, drop=True), b.isel(t=0, drop=True).rename(scaled="other")[["other"]]], join="outer"
    ),
    "align": lambda a, b: xr.align(a, b, join="outer", exclude=["t"])[1],
    "reindex": lambda a, b: a.reindex(x=[3, 0, 7]),
    "where": lambda a, b: a.where(a.x > 0),
    "full_like": lambda a, b: a.assign(
        {
            name: xr.full_like(
                a[name],
                np.nan,
                None if virtual_array(a[name].variable) is not None or a[name].dtype.kind == "M" else a[name].dtype,
            )
            for name in FORMS
            if name not in ("run", "long")
        }
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_new_elements_are_missing_as_with_xarray(tmp_path, way):
    """Scaled, masked, unsigned and times: values and dtypes are those of the decoded datasets."""
    paths = [write(tmp_path / "a.nc", [0, 1, 2]), write(tmp_path / "b.nc", [0, 1, 2, 3, 4], 1)]
    vds = WAYS[way](*(vs.open_virtual_dataset(path) for path in paths))
    expected = WAYS[way](*(xr.load_dataset(path) for path in paths))
    assert all(virtual_array(x.variable) is not None for x in vds.data_vars.values())
    found = vds.virtual.open().load()
    xr.testing.assert_equal(found, expected)
    assert vds.dtypes["scaled"] == "i2"
    with xr.open_dataset(vds.virtual.to_kerchunk(), engine="virtualstack") as found:
        xr.testing.assert_equal(found.load(), expected)


def test_an_array_of_missing_values_joins_the_array_that_it_is_like(tmp_path):
    """It is packed by the same attributes."""
    path = write(tmp_path / "a.nc", [0, 1, 2])
    vds, plain = vs.open_virtual_dataset(path)["scaled"], xr.load_dataset(path)["scaled"]
    joined, expected = (xr.concat([x, xr.full_like(x, np.nan)], "t") for x in (vds, plain))
    np.testing.assert_array_equal(joined.to_dataset(name="scaled").virtual.open()["scaled"], expected)


def test_packed_integers_without_a_missing_value_name_what_gives_one(tmp_path):
    """Both remedies of the message work."""
    path = tmp_path / "a.nc"
    xr.Dataset({"a": ("x", [1.0, 2])}, coords={"x": [0, 1]}).to_netcdf(
        path, encoding={"a": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": None}}
    )
    vds = vs.open_virtual_dataset(path)
    with pytest.raises(CombineError, match=r"reads as missing. Say which .*set_encoding\(\{'a': .*fill_value=\{'a'"):
        vds.reindex(x=[1, 2])
    said = vds.virtual.set_encoding({"a": {"_FillValue": np.int16(-9)}})
    np.testing.assert_array_equal(said.reindex(x=[1, 2]).virtual.open().a, [2, np.nan])
    filled = vds.virtual.reindex(x=[1, 2], fill_value={"a": 7.5})
    np.testing.assert_array_equal(filled.virtual.open().a, [2, 7.5])


def test_text_has_no_missing_value(tmp_path):
    """What the message names fills it."""
    path = tmp_path / "a.nc"
    xr.Dataset({"a": ("x", ["u", "v"])}, coords={"x": [0, 1]}).to_netcdf(path)
    vds = vs.open_virtual_dataset(path)
    with pytest.raises(
        CombineError, match=r"has no missing value. Join the files with .*Or fill in a value with .*fill_value=\{'a'"
    ):
        xr.align(vds, vds.assign_coords(x=[1, 2]), join="outer")
    np.testing.assert_array_equal(vds.virtual.reindex(x=[1, 2], fill_value={"a": "w"}).virtual.open().a, ["v", "w"])
