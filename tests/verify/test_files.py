"""Comparing a cube with its files: equal is said to be equal, and nothing else is."""

import importlib.util
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from virtualstack.errors import MalformedFileError, MissingDependencyError, SourceNotFoundError
from virtualstack.storage import MemoryTarget
from virtualstack.verify import libraries, values_differ, verify_against_files

FIRST, SECOND = 3, 2


def write(path, start, n, *, name="t", dtype="f4", extra=None):
    """Write one file with a variable of time, its times, a constant, and text."""
    values = np.arange(4 * n).reshape(n, 4) + start
    values[0, 0] = -9
    variables = {
        "time": ("f8", "time", np.arange(start, start + n), {"units": "days since 2000-01-01"}),
        name: (dtype, "time x", values, {"_FillValue": -9}),
        "x": ("i4", "x", range(4)),
        "label": (str, "x", np.array(["a", "b", "ç", ""], object)),
    }
    if extra:
        variables[extra] = ("i4", "", 1)
    return str(netcdf4_file(path, {"time": None, "x": 4}, variables))


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / "a.nc", 0, FIRST), write(tmp_path / "b.nc", FIRST, SECOND)]


@pytest.fixture
def cube(files):
    """The cube as it should be, by xarray alone."""
    parts = [xr.load_dataset(file, engine="netcdf4") for file in files]
    return xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override")


def reasons(found):
    return {(x.variable, x.url.rpartition("/")[2]): x.reason for x in found.differences}


def test_an_equal_cube_is_equal(cube, files):
    """NaN equals NaN; times and text are compared too."""
    found = verify_against_files(cube, files, dim="time")
    assert found.differences == ()
    assert found.variables == ("label", "t", "time", "x")
    assert str(found) == "4 variables equal in 2 files"


def test_one_file_needs_no_dim(cube, files):
    """The whole cube is that file."""
    found = verify_against_files(cube.isel(time=slice(FIRST)), files[:1])
    assert str(found) == "4 variables equal in 1 file"


def test_one_other_value_is_found(cube, files):
    """In the file it belongs to, with its index there and both values."""
    cube["t"][FIRST + 1, 2] = 0
    found = verify_against_files(cube, files, dim="time")
    wanted = "1 of 8 values differ, the first at (1, 2): 0.0 in the cube, 9.0 in the file"
    assert reasons(found) == {("t", "b.nc"): wanted}
    assert str(found) == "3 variables equal in 2 files, 1 differ"
    assert str(found.differences[0]).startswith("variable 't', compared with 'file:///")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("t", lambda x: x.fillna(-9)),  # missing data that read as their fill value
        ("time", lambda x: x + np.timedelta64(1, "D")),
        ("x", lambda x: x[::-1]),
        ("label", lambda x: x.str.upper()),
    ],
)
def test_other_values_of_any_variable_are_found(cube, files, name, change):
    """Data, coordinates, constants and text."""
    wrong = cube.reset_coords().drop_indexes(["time", "x"])
    wrong[name] = (wrong[name].dims, change(wrong[name].drop_vars(wrong[name].coords)).values)
    assert set(reasons(verify_against_files(wrong, files, dim="time"))) == {(name, "a.nc"), (name, "b.nc")}


def test_another_dtype_is_found(cube, files):
    """Though all values are equal."""
    cube["t"] = cube["t"].astype("f8")
    found = verify_against_files(cube, files, dim="time")
    assert reasons(found)["t", "a.nc"] == "the cube has dtype 'float64', but the file has 'float32'"


def test_files_in_another_order_are_found(cube, files):
    """The order of files is that of the cube."""
    assert verify_against_files(cube, files[::-1], dim="time").differences


def test_a_cube_that_is_too_long_is_found(cube, files):
    """A file too few."""
    found = verify_against_files(cube, files[:1], dim="time")
    assert reasons(found)["t", "a.nc"] == "the files have 3 elements along 'time', but the cube has 5"


def test_a_cube_that_is_too_short_is_found(cube, files):
    """A file too many."""
    found = verify_against_files(cube.isel(time=slice(FIRST)), files, dim="time")
    assert reasons(found)["t", "b.nc"] == "the cube has shape (0, 4) there, but the file has (2, 4)"


def test_a_variable_that_only_one_side_has_is_found(cube, files, tmp_path):
    """Unless it was left out on purpose."""
    lost = cube.drop_vars("t").assign(u=cube["t"])
    found = reasons(verify_against_files(lost, files[:1], dim="time"))
    assert found["t", "a.nc"] == "it is not in the cube"
    assert found["u", "a.nc"] == "it is not in the file"
    dropped = verify_against_files(cube.drop_vars("t"), files, dim="time", ignore=["t"])
    assert not dropped.differences


def test_a_group_is_compared_with_that_group(tmp_path):
    """And not with the root."""
    with netCDF4.Dataset(tmp_path / "g.nc", "w") as file:
        group = file.createGroup("inner")
        group.createDimension("x", 2)
        group.createVariable("v", "i4", ("x",))[:] = [1, 2]
    cube = xr.Dataset({"v": ("x", np.array([1, 2], "i4"))})
    assert not verify_against_files(cube, [tmp_path / "g.nc"], group="inner").differences
    assert verify_against_files(cube, [tmp_path / "g.nc"]).differences


def test_labels_that_a_group_inherits_are_compared(tmp_path):
    """With those of the root."""
    xr.Dataset(coords={"x": [3, 4]}).to_netcdf(tmp_path / "g.nc", engine="netcdf4")
    xr.Dataset({"v": ("x", [1, 2])}).to_netcdf(tmp_path / "g.nc", group="a/b", mode="a", engine="netcdf4")
    cube = vs.open_virtual_dataset(tmp_path / "g.nc", group="a/b").virtual.open()
    assert list(cube.coords) == ["x"]
    assert not verify_against_files(cube, [tmp_path / "g.nc"], group="a/b").differences
    found = verify_against_files(cube.assign_coords(x=[3, 5]), [tmp_path / "g.nc"], group="a/b")
    assert reasons(found)["x", "g.nc"].startswith("1 of 2 values differ")


def test_progress_counts_files(cube, files):
    """After each one."""
    seen = []
    verify_against_files(cube, files, dim="time", progress=lambda *args: seen.append(args))
    assert seen == [(1, 2), (2, 2)]


def without(*modules):
    return lambda name: None if name in modules else importlib.util.find_spec(name)


@pytest.mark.parametrize("hidden", [["h5netcdf"], ["netCDF4", "hdf5plugin"]])
def test_either_library_is_enough(cube, files, monkeypatch, hidden):
    """netCDF4 where h5netcdf is not installed, and h5netcdf alone, as with the extra ``verify``."""
    monkeypatch.setattr(libraries, "find_spec", without(*hidden))
    assert str(verify_against_files(cube, files, dim="time")) == "4 variables equal in 2 files"


def test_without_either_library_the_error_names_the_extra(cube, files, monkeypatch):
    """And ends with the pip command."""
    monkeypatch.setattr(libraries, "find_spec", without("netCDF4", "h5netcdf"))
    with pytest.raises(MissingDependencyError, match=r"independently needs .* pip install 'virtualstack\[verify\]'$"):
        verify_against_files(cube, files, dim="time")


def test_a_remote_file_is_read_by_h5netcdf(cube, files):
    """Through the storage that the cube itself uses."""
    cube = cube.isel(time=slice(FIRST))
    MemoryTarget("memory://verify/").put("a.nc", Path(files[0]).read_bytes())
    assert not verify_against_files(cube, ["memory://verify/a.nc"], dim="time").differences


def test_a_file_that_is_gone_is_named(cube, tmp_path):
    """Like any other source."""
    with pytest.raises(SourceNotFoundError, match=r"gone\.nc"):
        verify_against_files(cube, [tmp_path / "gone.nc"])


def test_a_file_that_the_library_cannot_open_is_named(cube, tmp_path):
    """With what the library says."""
    (tmp_path / "a.nc").write_bytes(b"no netCDF")
    with pytest.raises(
        MalformedFileError, match=r"a\.nc' cannot be opened by xarray's H5netcdf engine: .* files can be compared$"
    ):
        verify_against_files(cube, [tmp_path / "a.nc"])


def test_values_that_the_library_cannot_read_are_not_equal(tmp_path):
    """Here the checksum of a chunk is wrong."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("v", data=np.arange(4), chunks=(4,), fletcher32=True)
        at = data.id.get_chunk_info(0).byte_offset
    with (tmp_path / "a.h5").open("r+b") as raw:
        raw.seek(at)
        raw.write(b"\xff")
    cube = xr.Dataset({"v": ("phony_dim_0", np.arange(4))})
    found = reasons(verify_against_files(cube, [tmp_path / "a.h5"]))
    assert found["v", "a.h5"].startswith("the file's values cannot be read: ")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (np.array([1, 2], ">i4"), np.array([1, 2], "<i4")),
        (np.array(["a"], object), np.array(["a"], "U1")),
        (np.array(["a"], np.dtypes.StringDType()), np.array(["a"], object)),
        (np.array(["NaT", "2000-01-01"], "M8[ns]"), np.array(["NaT", "2000-01-01"], "M8[ns]")),
        (np.array([complex(np.nan, 1)]), np.array([complex(np.nan, 1)])),
        (np.array([(1, np.nan)], "i4,f8"), np.array([(1, np.nan)], "i4,f8")),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (np.array(1.5), np.array(1.5)),
    ],
)
def test_equal_values_do_not_differ(ours, theirs):
    """Byte order and the class of strings are no difference."""
    assert values_differ(ours, theirs) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        (np.array([1], "i4"), np.array([1], "i8"), "the cube has dtype 'int32', but the file has 'int64'"),
        (np.array([np.nan]), np.array([0.0]), "1 of 1 values differ, the first at (0,): nan in the cube, 0.0 in"),
        (np.array(["NaT"], "M8[ns]"), np.array(["2000-01-01"], "M8[ns]"), "1 of 1 values differ"),
        (np.array(2), np.array(3), "1 of 1 values differ, the first at (): 2 in the cube, 3 in the file"),
        (np.array(["a"], object), np.array([1], object), "dtype|1 of 1"),
        (np.array([(1, 2.0)], "i4,f8"), np.array([(1, 3.0)], "i4,f8"), "field 'f1': 1 of 1 values differ"),
    ],
)
def test_values_that_differ_are_said(ours, theirs, reason):
    """With both values."""
    assert any(part in values_differ(ours, theirs) for part in reason.split("|"))
