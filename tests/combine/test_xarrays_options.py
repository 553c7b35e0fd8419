"""The options of ``combine_options`` mean what they mean in xarray."""

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import CombineError

SCALARS = {"same": (1.0, 1.0), "other": (1.0, 2.0), "partly": (np.nan, 4.0), "level": (3.0, 3.0), "moved": (5.0, 6.0)}


def files(folder, *, y=("y",), names=SCALARS):
    """Two files, whose variables without ``time`` are equal, differ, or are missing in one."""
    paths = []
    for n in range(2):
        made = xr.Dataset({"v": (("time", "y"), np.full((2, 3), n, "f4"))}, {"time": [2 * n, 2 * n + 1]})
        for name in names:
            values = np.array([0.5, SCALARS[name][n], 7])
            made[name] = ("y", values, {"n": n} if names == ["same"] else {})
        made = made.set_coords([name for name in ("level", "moved") if name in names])
        made.to_netcdf(folder / f"{n}.nc", engine="netcdf4")
        paths.append(folder / f"{n}.nc")
    return paths


def compare(paths, options, loadable=None):
    """With virtual and with loaded variables, the result of `combine_datasets` is that of xr.concat."""
    parts = [vs.open_virtual_dataset(path, loadable_variables=loadable) for path in paths]
    found = vs.combine_datasets(parts, combine="nested", concat_dim="time", combine_options=options)
    with xr.open_dataset(paths[0]) as a, xr.open_dataset(paths[1]) as b:
        expected = xr.concat([a.load(), b.load()], "time", combine_attrs="drop_conflicts", join="exact", **options)
        xr.testing.assert_identical(found.virtual.open().load(), expected)


@pytest.mark.parametrize("loadable", [None, ["time"]])
@pytest.mark.parametrize("data_vars", ["different", "all", ["other", "partly"]])
@pytest.mark.parametrize("coords", ["different", "all", ["moved"]])
def test_variables_get_the_dimension_as_in_xarray(tmp_path, data_vars, coords, loadable):
    """With "different" they are compared, by references or values."""
    compare(files(tmp_path), {"data_vars": data_vars, "coords": coords, "compat": "equals"}, loadable)


@pytest.mark.parametrize("loadable", [None, ["time"]])
@pytest.mark.parametrize("compat", ["equals", "broadcast_equals", "no_conflicts", "override"])
def test_variables_without_the_dimension_are_compared_as_in_xarray(tmp_path, compat, loadable):
    """With no_conflicts, values that one file misses are taken from the other."""
    names = ["same", "level"] + ["partly"] * (compat in ("no_conflicts", "override"))
    compare(files(tmp_path, names=names), {"data_vars": "minimal", "coords": "minimal", "compat": compat}, loadable)


@pytest.mark.parametrize(
    ("compat", "names"),
    [("identical", ["same"]), ("equals", ["other"]), ("no_conflicts", ["other"]), ("broadcast_equals", ["partly"])],
)
def test_what_xarray_refuses_is_refused(tmp_path, compat, names):
    """Attributes that differ are no difference but for ``identical``."""
    options = {"data_vars": "minimal", "coords": "minimal", "compat": compat}
    paths = files(tmp_path, names=names)
    with xr.open_dataset(paths[0]) as a, xr.open_dataset(paths[1]) as b, pytest.raises(ValueError, match=names[0]):
        xr.concat([a.load(), b.load()], "time", **options)
    with pytest.raises(CombineError, match=f"'{names[0]}' .* differs between") as caught:
        compare(paths, options)
    assert caught.value.variable == names[0]


def test_unknown_values_are_named():
    """With those that exist."""
    with pytest.raises(ValueError, match="no_conflicts"):
        vs.combine_datasets([], combine_options={"compat": "same"})
    with pytest.raises(ValueError, match="'different'"):
        vs.combine_datasets([], combine_options={"coords": "some"})
