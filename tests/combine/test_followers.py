"""Scalars and dates of leads that differ from those of a store: in all targets they get the dimension, as in a join."""

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine"),
    pytest.mark.filterwarnings("ignore:.*not part of the Zarr format 3 spec"),
    pytest.mark.filterwarnings("ignore:.*in the Zarr version 3 spec"),
]


@pytest.fixture(params=["json", "parq", "vstack", "icechunk"])
def target(request, tmp_path):
    if request.param == "icechunk":
        pytest.importorskip("icechunk")
    return tmp_path / f"a.{request.param}"


def write(vds, target, **options):
    accessor = vds.virtual
    to = {".vstack": accessor.to_vstack, ".icechunk": accessor.to_icechunk}.get(target.suffix, accessor.to_kerchunk)
    to(target, **options)


@pytest.mark.parametrize("loadable", [None, []], ids=["loaded", "in files"])
def test_scalars_that_differ_get_the_dimension(tmp_path, target, loadable):
    """The store has one value of `run`, which all files before had; in the last file it has the dimension."""
    days = [
        xr.Dataset({"t": (("x",), [i, 2.0])}, {"x": [0, 1], "time": 10 * i, "run": i // 2, "height": 2.0})
        for i in range(4)
    ]
    wanted = xr.concat(days, "time", data_vars="all", coords="different", compat="equals", join="exact")
    for i, day in enumerate(days):
        day.to_netcdf(tmp_path / f"{i}.nc")
    wanted.isel(time=slice(3, None)).drop_vars("height").assign_coords(height=2.0).to_netcdf(tmp_path / "3.nc")
    first = [vs.open_virtual_dataset(tmp_path / f"{i}.nc", loadable_variables=loadable) for i in range(2)]
    write(xr.concat(first, "time", coords=["time"], compat="override", data_vars="all"), target)
    for i in (2, 3):
        write(vs.open_virtual_dataset(tmp_path / f"{i}.nc"), target, append_dim="time")
    found = load(target)
    assert found["run"].dims == ("time",)
    assert not found["height"].ndim
    xr.testing.assert_equal(found, wanted)


def test_dates_of_leads_get_the_dimension(tmp_path, target):
    """A store of the first forecast, or of the first two, gets the next ones as a join of all files does."""
    days = [
        xr.Dataset(
            {"t": (("start", "lead"), [[i, 2.0]])},
            {
                "start": [np.datetime64("2020-01-01", "ns") + np.timedelta64(i, "D")],
                "lead": [6, 12],
                "valid": ("lead", np.array(["2020-01-01T06", "2020-01-01T12"], "M8[ns]") + np.timedelta64(i, "D")),
                "height": ("lead", [2.0, 3.0]),
            },
        )
        for i in range(4)
    ]
    for i, day in enumerate(days):
        day.to_netcdf(tmp_path / f"{i}.nc")
    wanted = xr.concat(days, "start", data_vars="minimal", coords="different", compat="equals", join="exact")
    for first in (1, 2):
        begun = target.with_name(f"{first}{target.suffix}")
        write(vs.open_virtual_mfdataset([tmp_path / f"{i}.nc" for i in range(first)]), begun)
        for i in range(first, 4):
            write(vs.open_virtual_dataset(tmp_path / f"{i}.nc"), begun, append_dim="start")
        found = load(begun)
        assert found["valid"].dims == ("start", "lead")
        xr.testing.assert_equal(found, wanted)


def test_dates_at_other_labels_do_not_follow_an_update(tmp_path):
    """Two leads more are no other dates at the leads of the store."""
    for i in range(2):
        n = 2 + 2 * i
        valid = np.datetime64("2020-01-01", "ns") + np.arange(n) * np.timedelta64(6, "h")
        xr.Dataset({"t": (("start", "lead"), np.ones((1, n)))}, {"start": [i], "lead": range(n)}).assign_coords(
            valid=("lead", valid)
        ).to_netcdf(tmp_path / f"{i}.nc")
    vs.open_virtual_dataset(tmp_path / "0.nc").virtual.to_vstack(tmp_path / "a.vstack")
    vs.Repository.open(tmp_path / "a.vstack").update([tmp_path / "1.nc"], dim="start", join="outer")
    found = load(tmp_path / "a.vstack")
    assert found["valid"].dims == ("lead",)
    assert (found["valid"].values == valid).all()


def test_scalars_stay_where_the_values_of_the_store_are_wanted(tmp_path, target):
    """As ``compat="override"`` says."""
    for i in range(2):
        xr.Dataset({"t": ("time", [i])}, {"time": [i], "run": i}).to_netcdf(tmp_path / f"{i}.nc")
    write(vs.open_virtual_dataset(tmp_path / "0.nc"), target)
    other = vs.open_virtual_dataset(tmp_path / "1.nc")
    write(other, target, append_dim="time", combine_options={"compat": "override"})
    assert load(target)["run"].values == 0
