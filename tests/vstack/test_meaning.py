"""Files whose attributes are spelt in other words than those of a store, and mean the same."""

import os

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load
from virtualstack.errors import CombineError


def write(path, start, *, offset=0, **attributes):
    """Write three days with bounds; numbers of the bounds are virtual in the store."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 3)
        file.createDimension("edge", 2)
        time = file.createVariable("time", "f8", ("time",))
        time.setncatts({"units": "days since 1970-01-01", "bounds": "time_bounds", **attributes})
        time[:] = np.arange(3) + start
        bounds = file.createVariable("time_bounds", "f8", ("time", "edge"))
        bounds[:] = start + np.arange(3)[:, None] + [0, 1]
        file.createVariable("q", "f4", ("time",))[:] = np.arange(3) + offset + start
    return str(path)


def check(url, *paths):
    wanted = [xr.load_dataset(path, engine="netcdf4") for path in paths]
    xr.testing.assert_equal(load(url), xr.concat(wanted, "time"))


SPELLINGS = [
    {},
    {"calendar": "standard"},
    {"calendar": "gregorian"},
    {"calendar": "proleptic_gregorian"},
    {"units": "days since 1970-01-01 00:00:00"},
    {"units": "days since 1970-1-1T00:00:00Z", "calendar": "Gregorian"},
]


@pytest.mark.parametrize(("before", "after"), [*(({}, x) for x in SPELLINGS), *((x, {}) for x in SPELLINGS[1:])])
def test_a_changed_file_with_bounds_of_times_is_refreshed(tmp_path, before, after):
    """Whatever its calendar is called, and though it names none."""
    path, url = write(tmp_path / "a.nc", 10, **before), str(tmp_path / "x.vstack")
    vs.open_virtual_dataset(path).virtual.to_vstack(url)
    write(path, 10, offset=5, **after)
    os.utime(path, (1e9, 1e9))
    assert vs.Repository.open(url).refresh().is_complete
    check(url, path)


@pytest.mark.parametrize("how", ["append", "update", "region"])
@pytest.mark.parametrize("after", SPELLINGS[3:])
def test_files_that_spell_times_otherwise_are_added(tmp_path, how, after):
    """Appended, placed by their labels, or put over a region."""
    first, url = write(tmp_path / "a.nc", 10), str(tmp_path / "x.vstack")
    second = write(tmp_path / "b.nc", 10 if how == "region" else 13, offset=7, **after)
    vs.open_virtual_dataset(first).virtual.to_vstack(url)
    if how == "append":
        vs.open_virtual_dataset(second).virtual.to_vstack(url, append_dim="time")
    elif how == "update":
        vs.Repository.open(url).update(second, dim="time")
    else:
        vs.open_virtual_dataset(second).virtual.to_vstack(url, region="auto")
    check(url, *([second] if how == "region" else [first, second]))


@pytest.mark.parametrize("after", SPELLINGS[3:])
def test_files_that_spell_times_otherwise_are_joined(tmp_path, after):
    """Also where nothing is loaded."""
    paths = [write(tmp_path / "a.nc", 10), write(tmp_path / "b.nc", 13, **after)]
    url = str(tmp_path / "x.vstack")
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(url)
    check(url, *paths)


def test_references_of_kerchunk_are_appended_to(tmp_path):
    """By the same comparison as in a store of our own."""
    first, second = write(tmp_path / "a.nc", 10), write(tmp_path / "b.nc", 13, units="days since 1970-01-01 00:00:00")
    url = str(tmp_path / "refs.json")
    vs.open_virtual_dataset(first).virtual.to_kerchunk(url)
    vs.open_virtual_dataset(second).virtual.to_kerchunk(url, append_dim="time")
    check(url, first, second)


@pytest.mark.filterwarnings("ignore:.*in the Zarr version 3 spec")
def test_icechunk_is_appended_to(tmp_path):
    """By the same comparison as in a store of our own."""
    pytest.importorskip("icechunk", reason="icechunk is not installed: pip install 'virtualstack[icechunk]'")
    from tests.icechunk.repositories import repository

    paths = write(tmp_path / "a.nc", 10), write(tmp_path / "b.nc", 13, units="days since 1970-01-01 00:00:00")
    session = repository(None, tmp_path).writable_session("main")
    vs.open_virtual_dataset(paths[0]).virtual.to_icechunk(session.store)
    vs.open_virtual_dataset(paths[1]).virtual.to_icechunk(session.store, append_dim="time")
    found = xr.open_zarr(session.store, consolidated=False, chunks=None).load()
    xr.testing.assert_equal(found, xr.concat([xr.load_dataset(path) for path in paths], "time"))


OTHER_TIMES = [{"units": "hours since 1970-01-01"}, {"units": "days since 1970-01-02"}]


@pytest.mark.parametrize("how", ["append", "update", "json", "parquet"])
@pytest.mark.parametrize("after", OTHER_TIMES)
def test_bounds_that_count_from_another_date_are_added(tmp_path, how, after):
    """As monthly files do; the bounds have the units of their times, and three files follow each other."""
    paths = [write(tmp_path / "a.nc", 10), write(tmp_path / "b.nc", 5000, **after), write(tmp_path / "c.nc", 9999)]
    if how in ("append", "update"):
        url = str(tmp_path / "x.vstack")
        repository = vs.Repository.create(url, paths[0])
        for path in paths[1:]:
            repository = repository.append(path) if how == "append" else repository.update(path)
        assert repository.update(paths[1]).snapshot.number == repository.snapshot.number
    else:
        url = str(tmp_path / f"refs.{how}")
        vs.open_virtual_dataset(paths[0]).virtual.to_kerchunk(url)
        for path in paths[1:]:
            vs.open_virtual_dataset(path).virtual.to_kerchunk(url, append_dim="time")
    check(url, *paths)


def test_bounds_are_replaced_by_those_of_another_file_that_counts_otherwise(tmp_path):
    """At the same labels."""
    first, second = write(tmp_path / "a.nc", 10), write(tmp_path / "b.nc", 9, offset=5, **OTHER_TIMES[1])
    url = str(tmp_path / "x.vstack")
    vs.Repository.create(url, first).update(second, prefer="last")
    check(url, second)


def test_dates_of_another_calendar_are_refused(tmp_path):
    """They have no dtype in common."""
    first, second = write(tmp_path / "a.nc", 10), write(tmp_path / "b.nc", 9999, calendar="noleap")
    virtual = [vs.open_virtual_dataset(path, decode_times=False) for path in (first, second)]
    url = str(tmp_path / "x.vstack")
    virtual[0].virtual.to_vstack(url)
    with pytest.raises(CombineError, match="calendar"):
        virtual[1].virtual.to_vstack(url, append_dim="time")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"_FillValue": np.int16(-9)}, {"missing_value": np.int32(-9)}),
        ({"_FillValue": np.int16(-9), "missing_value": np.int16(-9)}, {"_FillValue": np.int16(-9)}),
        ({"_FillValue": np.int16(-9), "_Unsigned": "false"}, {"_FillValue": np.int16(-9)}),
    ],
)
def test_missing_values_that_are_the_same_join(tmp_path, before, after):
    """By whichever attribute they are named, in whichever dtype."""
    paths = []
    for i, attributes in enumerate((before, after)):
        paths.append(str(tmp_path / f"{i}.nc"))
        attributes = dict(attributes)
        with netCDF4.Dataset(paths[-1], "w") as file:
            file.createDimension("x", 3)
            a = file.createVariable("a", "i2", ("x",), fill_value=attributes.pop("_FillValue", False))
            a.set_auto_maskandscale(False)
            a.setncatts(attributes)
            a[:] = [1, -9, 3]
            file.createVariable("x", "f8", ("x",))[:] = np.arange(3) + 3 * i
    url = str(tmp_path / "x.vstack")
    vs.open_virtual_dataset(paths[0]).virtual.to_vstack(url)
    vs.open_virtual_dataset(paths[1]).virtual.to_vstack(url, append_dim="x")
    np.testing.assert_array_equal(load(url)["a"], xr.concat([xr.load_dataset(p) for p in paths], "x")["a"])
